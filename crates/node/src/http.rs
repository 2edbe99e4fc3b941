//! The HTTP listener for those who watch a node: `/metrics`, `/ready` and `/health`, to be read and nothing else.
//!
//! It listens from the first moment of a start, so that somebody sees how far that is. One request a connection, a few
//! connections at once, a few seconds each: whoever can reach it can keep others from watching, and the node from nothing.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
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
/// Prometheus' name of its text format.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
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

async fn answer(mut stream: TcpStream, watched: &Watched) -> std::io::Result<()> {
    let mut head = Vec::new();
    let is_whole = |head: &[u8]| head.windows(4).any(|end| end == b"\r\n\r\n");
    while !is_whole(&head) {
        let left = MAX_HEAD.saturating_sub(head.len());
        if left == 0 || (&mut stream).take(left as u64).read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (status, kind, body) = match method {
        "GET" | "HEAD" => watched.say(target.split('?').next().unwrap_or_default()),
        _ => ("405 Method Not Allowed", TEXT, "only GET and HEAD are answered\n".to_owned()),
    };
    let size = body.len();
    let mut response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
    );
    if method != "HEAD" {
        response.push_str(&body);
    }
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}

impl Watched {
    /// Status, type and body of the answer.
    fn say(&self, path: &str) -> (&'static str, &'static str, String) {
        const OK: &str = "200 OK";
        let is_ready = self.is_ready.load(Ordering::Acquire);
        let node = self.node.get();
        match path {
            "/metrics" => {
                let node = node.map(|node| &**node);
                (OK, METRICS, metrics::render(&self.starting.progress(), node, is_ready))
            }
            "/health" => (OK, TEXT, "ok\n".to_owned()),
            "/ready" if is_ready => (OK, TEXT, "ready\n".to_owned()),
            "/ready" => {
                let said = match node {
                    Some(_) => "stopping\n".to_owned(),
                    None => format!("loading: {}\n", self.starting.progress()),
                };
                ("503 Service Unavailable", TEXT, said)
            }
            _ => ("404 Not Found", TEXT, "there are /metrics, /ready and /health\n".to_owned()),
        }
    }
}
