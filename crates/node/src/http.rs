//! The HTTP listener for those who watch a node: `/metrics`, `/ready` and `/health`, to be read and nothing else.
//!
//! It listens from the first moment of a start, so that somebody sees how far that is. One request a connection, a few
//! connections at once, a few seconds each: whoever can reach it can keep others from watching, and the node from nothing.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::config::Address;
use crate::loading::Starting;
use crate::metrics;
use crate::node::{Node, StartError};

/// Connections that are answered at once; more wait.
const CONNECTIONS: usize = 16;
/// Bytes of a request's head.
const MAX_HEAD: usize = 8 << 10;
/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long accepting rests when the system has no descriptor left.
const ACCEPT_REST: Duration = Duration::from_millis(500);
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

#[derive(Debug)]
struct Watched {
    starting: Arc<Starting>,
    node: OnceLock<Arc<Node>>,
    is_ready: AtomicBool,
}

/// The listener; gone when it is dropped.
#[derive(Debug)]
pub struct Http {
    watched: Arc<Watched>,
    local: SocketAddr,
    accepting: tokio::task::JoinHandle<()>,
}

impl Http {
    /// Listens, and shows a start.
    ///
    /// # Errors
    /// [`StartError::Listen`].
    pub async fn start(address: &Address, starting: Arc<Starting>) -> Result<Self, StartError> {
        let failed = |source| StartError::Listen { address: address.clone(), source };
        let host = if address.host.is_empty() { "0.0.0.0" } else { &address.host };
        let listener = TcpListener::bind((host, address.port)).await.map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let watched = Arc::new(Watched { starting, node: OnceLock::new(), is_ready: AtomicBool::new(false) });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&watched)));
        tracing::info!(address = %local, "metrics are served");
        Ok(Self { watched, local, accepting })
    }

    /// The address that is listened on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// From now on it shows the node, which serves.
    pub fn show(&self, node: Arc<Node>) {
        let _ = self.watched.node.set(node);
        self.watched.is_ready.store(true, Ordering::Release);
    }

    /// From now on nobody is to come: the node stops.
    pub fn not_ready(&self) {
        self.watched.is_ready.store(false, Ordering::Release);
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, watched: Arc<Watched>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(room) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_REST).await;
            continue;
        };
        let watched = Arc::clone(&watched);
        tokio::spawn(async move {
            // Who is slow, or is gone, gets nothing.
            let _ = tokio::time::timeout(PATIENCE, answer(stream, &watched)).await;
            drop(room);
        });
    }
}

async fn answer(stream: TcpStream, watched: &Watched) -> Result<(), hyper::Error> {
    let service =
        service_fn(async |request: Request<Incoming>| Ok::<_, Infallible>(watched.answer(&request)));
    let mut connection = http1::Builder::new();
    connection.keep_alive(false).max_buf_size(MAX_HEAD);
    connection.serve_connection(TokioIo::new(stream), service).await
}

impl Watched {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let (status, kind, body) = match *request.method() {
            Method::GET | Method::HEAD => self.say(request.uri().path()),
            _ => (StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD are answered\n".to_owned()),
        };
        let mut response = Response::new(Full::from(body));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }

    /// Status, type and body of the answer.
    fn say(&self, path: &str) -> (StatusCode, &'static str, String) {
        let is_ready = self.is_ready.load(Ordering::Acquire);
        let node = self.node.get();
        match path {
            "/metrics" => {
                let node = node.map(|node| &**node);
                (StatusCode::OK, METRICS, metrics::render(&self.starting.progress(), node, is_ready))
            }
            "/health" => (StatusCode::OK, TEXT, "ok\n".to_owned()),
            "/ready" if is_ready => (StatusCode::OK, TEXT, "ready\n".to_owned()),
            "/ready" => {
                let said = match node {
                    Some(_) => "stopping\n".to_owned(),
                    None => format!("loading: {}\n", self.starting.progress()),
                };
                (StatusCode::SERVICE_UNAVAILABLE, TEXT, said)
            }
            _ => (StatusCode::NOT_FOUND, TEXT, "there are /metrics, /ready and /health\n".to_owned()),
        }
    }
}
