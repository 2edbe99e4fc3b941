//! The listener: connections, frames, order of answers, bounds.
//!
//! One task per connection. Its reader takes frames and starts their calls in order, its writer
//! sends the answers in the same order; a few calls of one connection may be under way at once, so
//! that a producer's next batch is appended while the last one is synced. What requests hold in
//! memory is bounded over all connections: a frame is read only when there is room for all of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncRead;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use weir_wire::ApiKey;
use weir_wire::frame::{FrameError, FrameReader};
use weir_wire::{HeaderError, RequestHeader};

use crate::api::{self, Answer, Call, Reply, Session};
use crate::config::Address;
use crate::mirror_host::MirrorHost;
use crate::node::{Node, StartError};
use crate::shard::describe;

/// Calls of one connection that may be under way at once.
const IN_FLIGHT: usize = 8;
/// Unit in which request memory is counted.
const MEMORY_UNIT: usize = 1024;
/// Connections that the system keeps until they are accepted.
const BACKLOG: u32 = 1024;
/// How long accepting rests when the system has no descriptor left.
const ACCEPT_REST: Duration = Duration::from_millis(500);
/// How long a stop waits for answers that are under way.
const DRAIN: Duration = Duration::from_secs(5);
/// How long nothing may come of a frame that was begun: its memory is wanted by others.
const STALLED: Duration = Duration::from_secs(30);

/// An address that is taken, and not listened on yet.
#[derive(Debug)]
pub struct Bound {
    socket: TcpSocket,
    address: Address,
    local: SocketAddr,
}

impl Bound {
    /// Takes the address, so that a wrong one is known before anything is recovered; clients are
    /// refused until [`Server::start`].
    ///
    /// # Errors
    /// [`StartError::Listen`].
    pub async fn bind(address: &Address) -> Result<Self, StartError> {
        let failed = |source| StartError::Listen { address: address.clone(), source };
        let host = if address.host.is_empty() { "0.0.0.0" } else { &address.host };
        let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
        for found in tokio::net::lookup_host((host, address.port)).await.map_err(failed)? {
            let socket = if found.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
            let bound = socket.and_then(|socket| {
                socket.set_reuseaddr(true)?;
                socket.bind(found)?;
                let local = socket.local_addr()?;
                Ok((socket, local))
            });
            match bound {
                Ok((socket, local)) => return Ok(Self { socket, address: address.clone(), local }),
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    /// What clients are told where nothing else is configured.
    fn advertised(&self) -> Address {
        let host = if self.address.host.is_empty() || self.local.ip().is_unspecified() {
            host_name()
        } else {
            self.address.host.clone()
        };
        Address { host, port: self.local.port() }
    }
}

fn host_name() -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    if name.is_empty() { "localhost".to_owned() } else { name.into_owned() }
}

/// A node that is served to clients.
#[derive(Debug)]
pub struct Server {
    node: Arc<Node>,
    mirrors: Arc<MirrorHost>,
    local: SocketAddr,
    stopping: watch::Sender<bool>,
    accepting: tokio::task::JoinHandle<()>,
    checkpoints: tokio::task::JoinHandle<()>,
    /// Each connection holds one of these.
    connections: mpsc::Receiver<()>,
}

impl Server {
    /// Takes up the node's mirrors, listens and serves.
    ///
    /// # Errors
    /// [`StartError::Listen`]; [`StartError::Mirrors`].
    pub async fn start(node: Arc<Node>, bound: Bound) -> Result<Self, StartError> {
        let mirrors = MirrorHost::start(Arc::clone(&node)).await.map_err(StartError::Mirrors)?;
        let advertised = node.config().advertised.clone().unwrap_or_else(|| bound.advertised());
        let port = if advertised.port == 0 { bound.local.port() } else { advertised.port };
        node.set_advertised(Address { port, ..advertised });
        let address = bound.address;
        let listener =
            bound.socket.listen(BACKLOG).map_err(|source| StartError::Listen { address, source })?;
        let (stopping, stop) = watch::channel(false);
        let (alive, connections) = mpsc::channel(1);
        let accepting = tokio::spawn(accept(listener, Arc::clone(&node), Arc::clone(&mirrors), stop, alive));
        let checkpoints = {
            let node = Arc::clone(&node);
            tokio::spawn(async move {
                tokio::join!(node.checkpoint_loop(), node.raise_owed_epochs());
            })
        };
        Ok(Self { node, mirrors, local: bound.local, stopping, accepting, checkpoints, connections })
    }

    /// The address that is listened on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The node's mirrors.
    pub fn mirrors(&self) -> &Arc<MirrorHost> {
        &self.mirrors
    }

    /// The node.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Accepts nothing more, lets answers that are under way go out, closes every log and leaves the
    /// clean marker. Answers whether all of it was clean.
    pub async fn stop(mut self) -> bool {
        self.stopping.send_replace(true);
        let _ = self.accepting.await;
        self.checkpoints.abort();
        if tokio::time::timeout(DRAIN, self.connections.recv()).await.is_err() {
            tracing::warn!("connections closed with answers under way");
        }
        self.mirrors.shutdown().await;
        self.node.stop().await
    }
}

async fn accept(
    listener: TcpListener,
    node: Arc<Node>,
    mirrors: Arc<MirrorHost>,
    mut stop: watch::Receiver<bool>,
    alive: mpsc::Sender<()>,
) {
    let slots = Arc::new(Semaphore::new(node.config().max_connections.min(Semaphore::MAX_PERMITS)));
    let memory = node.config().queued_max_bytes.div_ceil(MEMORY_UNIT).min(Semaphore::MAX_PERMITS);
    let memory = Arc::new(Semaphore::new(memory));
    let mut complained = false;
    loop {
        let slot = Arc::clone(&slots).acquire_owned();
        let accepted = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            accepted = async { (slot.await, listener.accept().await) } => accepted,
        };
        match accepted {
            (Ok(slot), Ok((stream, peer))) => {
                complained = false;
                let connection = Connection {
                    node: Arc::clone(&node),
                    mirrors: Arc::clone(&mirrors),
                    session: Arc::new(Session::default()),
                    peer,
                    memory: Arc::clone(&memory),
                    stop: stop.clone(),
                };
                let alive = alive.clone();
                tokio::spawn(async move {
                    connection.run(stream).await;
                    drop((slot, alive));
                });
            }
            (Err(_), _) => return,
            (_, Err(error)) => {
                // Most likely no descriptor is left: those who are connected live on.
                if !complained {
                    tracing::error!(error = describe(&error), "no connection can be accepted");
                    complained = true;
                }
                tokio::time::sleep(ACCEPT_REST).await;
            }
        }
    }
}

struct Connection {
    node: Arc<Node>,
    mirrors: Arc<MirrorHost>,
    session: Arc<Session>,
    peer: SocketAddr,
    memory: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
}

/// An answer under way, and the memory that its request holds.
struct Started {
    answer: Answer,
    api: ApiKey,
    _memory: OwnedSemaphorePermit,
}

/// Why a connection's reader ended.
enum End {
    /// The client is gone, or cannot be understood: nothing more is to be said.
    Now,
    /// The node stops: what is under way is still answered.
    Drain,
}

impl Connection {
    async fn run(self, stream: TcpStream) {
        // Answers are small and waited for.
        let _ = stream.set_nodelay(true);
        tracing::debug!(peer = %self.peer, "connected");
        let (read, write) = stream.into_split();
        let (answers, started) = mpsc::channel(IN_FLIGHT);
        let peer = self.peer;
        let mut writing = std::pin::pin!(write_answers(write, started, peer));
        let end = tokio::select! {
            end = self.read_requests(read, answers) => end,
            () = &mut writing => End::Now,
        };
        if matches!(end, End::Drain) {
            let _ = tokio::time::timeout(DRAIN, writing).await;
        }
        tracing::debug!(%peer, "disconnected");
    }

    async fn read_requests(&self, read: OwnedReadHalf, answers: mpsc::Sender<Started>) -> End {
        let limit = self.node.config().max_request_bytes;
        let mut frames = FrameReader::new(read, limit);
        let mut stop = self.stop.clone();
        loop {
            let next = tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return End::Drain,
                next = self.next_frame(&mut frames) => next,
            };
            let (frame, memory) = match next {
                Ok(Some(next)) => next,
                Ok(None) => return End::Now,
                Err(error @ (FrameError::Negative { .. } | FrameError::TooLarge { .. })) => {
                    tracing::warn!(peer = %self.peer, error = describe(&error), "connection closed");
                    return End::Now;
                }
                Err(error) => {
                    tracing::debug!(peer = %self.peer, error = describe(&error), "connection lost");
                    return End::Now;
                }
            };
            let started = match RequestHeader::decode(frame) {
                Ok((header, body)) => {
                    let api = header.api_key;
                    let call = Call {
                        node: Arc::clone(&self.node),
                        mirrors: Arc::clone(&self.mirrors),
                        session: Arc::clone(&self.session),
                        header,
                        stopping: self.stop.clone(),
                    };
                    Started { answer: api::dispatch(call, body).await, api, _memory: memory }
                }
                Err(HeaderError::UnsupportedVersion { start, .. })
                    if start.api_key == ApiKey::API_VERSIONS =>
                {
                    let reply = api::unsupported_version(start);
                    Started { answer: Box::pin(async move { reply }), api: start.api_key, _memory: memory }
                }
                Err(error) => {
                    // As in Kafka: the client's version of the answer is not known.
                    tracing::info!(peer = %self.peer, error = describe(&error), "connection closed");
                    return End::Drain;
                }
            };
            if answers.send(started).await.is_err() {
                return End::Now;
            }
        }
    }

    /// The next request, and the memory that it holds, which is taken before the frame is read: until
    /// then it has at most what one read brought along with the frame before it.
    async fn next_frame<R: AsyncRead + Unpin>(
        &self,
        frames: &mut FrameReader<R>,
    ) -> Result<Option<(Bytes, OwnedSemaphorePermit)>, FrameError> {
        // Kafka: a client that says nothing, or that has begun to, gives its place to others.
        let idle = self.node.config().max_idle;
        let Ok(size) = tokio::time::timeout(idle, frames.size()).await else { return Ok(None) };
        let Some(size) = size? else { return Ok(None) };
        let units = u32::try_from(size.div_ceil(MEMORY_UNIT)).unwrap_or(u32::MAX);
        let Ok(memory) = Arc::clone(&self.memory).acquire_many_owned(units).await else { return Ok(None) };
        Ok(whole_frame(frames, STALLED).await?.map(|frame| (frame, memory)))
    }
}

/// The next frame, unless nothing of it comes for as long as `stalled`.
async fn whole_frame<R: AsyncRead + Unpin>(
    frames: &mut FrameReader<R>,
    stalled: Duration,
) -> Result<Option<Bytes>, FrameError> {
    loop {
        let before = frames.buffered();
        match tokio::time::timeout(stalled, frames.next()).await {
            Ok(frame) => return frame,
            Err(_) if frames.buffered() > before => {}
            Err(_) => {
                let why = "nothing came of a frame that was begun";
                return Err(FrameError::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, why)));
            }
        }
    }
}

async fn write_answers(mut write: OwnedWriteHalf, mut started: mpsc::Receiver<Started>, peer: SocketAddr) {
    while let Some(Started { answer, api, _memory }) = started.recv().await {
        match answer.await {
            Reply::Frame(frame) => {
                if let Err(error) = frame.write_to(&mut write).await {
                    tracing::debug!(%peer, error = describe(&error), "connection lost");
                    return;
                }
            }
            Reply::Nothing => {}
            Reply::Close(reason) => {
                tracing::info!(%peer, %api, reason, "connection closed");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    const SHORT: Duration = Duration::from_millis(200);

    #[tokio::test]
    async fn a_frame_may_come_slowly_but_must_come() {
        let (mut near, far) = tokio::io::duplex(64);
        let mut frames = FrameReader::new(far, 100);
        let slow = tokio::spawn(async move {
            near.write_all(&[0, 0, 0, 8]).await.unwrap();
            for byte in 0..8 {
                tokio::time::sleep(SHORT / 2).await;
                near.write_all(&[byte]).await.unwrap();
            }
            near.write_all(&[0, 0, 0, 2, 1]).await.unwrap();
            near
        });
        let frame = whole_frame(&mut frames, SHORT).await.unwrap().unwrap();
        assert_eq!(frame[..], [0, 1, 2, 3, 4, 5, 6, 7]);
        let _open = slow.await.unwrap();
        match whole_frame(&mut frames, SHORT).await {
            Err(FrameError::Io(error)) => assert_eq!(error.kind(), std::io::ErrorKind::TimedOut),
            other => panic!("{other:?}"),
        }
    }
}
