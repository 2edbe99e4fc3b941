//! A connection to a broker: who answers, which versions it speaks, one request at a time.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::api::{ApiKey, ApiRange};
use crate::error_code::ErrorCode;
use crate::frame::{FrameError, FrameReader};
use crate::header::decode_response_header;
use crate::message::{Request, encode_request};
use crate::msg::{ApiVersionsRequest, ApiVersionsResponse};
use crate::{DecodeError, EncodeError, Limits};

/// How connections are made and what they may cost.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// What we call ourselves in every request; brokers use it for quotas and logs.
    pub client_id: String,
    /// Longest wait for one address, name lookup and version negotiation included.
    pub connect_timeout: Duration,
    /// Longest wait for one response. Kafka: `request.timeout.ms`.
    pub request_timeout: Duration,
    /// What a response may cost; `max_frame_bytes` is the largest one taken.
    pub limits: Limits,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            client_id: crate::SOFTWARE_NAME.to_owned(),
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            limits: Limits::CLIENT,
        }
    }
}

/// Why a connection could not be made or a request got no answer.
///
/// Every text names the peer; texts about a request name its API.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No address was given.
    #[error("no broker address to connect to")]
    NoAddress,
    /// Several addresses were given and none became a connection.
    #[error("none of {peers} became a connection")]
    NoneAnswered {
        /// All of them, with commas.
        peers: String,
        /// The last one's failure.
        #[source]
        last: Box<ClientError>,
    },
    /// The address has no port, or the like.
    #[error("{peer} is not HOST:PORT")]
    BadAddress {
        /// As given.
        peer: String,
    },
    /// The connection was refused, the name unknown, or the like.
    #[error("cannot connect to {peer}")]
    Connect {
        /// `HOST:PORT`.
        peer: String,
        /// The operating system's word.
        #[source]
        source: std::io::Error,
    },
    /// Nothing answered in time.
    #[error("{peer} did not answer within {} ms while connecting", waited.as_millis())]
    ConnectTimeout {
        /// `HOST:PORT`.
        peer: String,
        /// How long we waited.
        waited: Duration,
    },
    /// No response in time. The connection is closed: a late response could be taken for another's.
    #[error("{peer} did not answer {api} within {} ms", waited.as_millis())]
    Timeout {
        /// `HOST:PORT`.
        peer: String,
        /// The request.
        api: ApiKey,
        /// How long we waited.
        waited: Duration,
    },
    /// The stream failed or ended, or carried something that is no frame. The connection is closed.
    #[error("connection to {peer} failed during {api}")]
    Stream {
        /// `HOST:PORT`.
        peer: String,
        /// The request.
        api: ApiKey,
        /// What is wrong.
        #[source]
        source: FrameError,
    },
    /// The peer closed the connection instead of answering; brokers do so when they do not like the
    /// request, or the listener speaks another security protocol.
    #[error("{peer} closed the connection instead of answering {api}")]
    Closed {
        /// `HOST:PORT`.
        peer: String,
        /// The request.
        api: ApiKey,
    },
    /// The response belongs to another request. The connection is closed.
    #[error("{peer} answered {api} with correlation id {found} instead of {expected}")]
    Correlation {
        /// `HOST:PORT`.
        peer: String,
        /// The request.
        api: ApiKey,
        /// What was sent.
        expected: i32,
        /// What came back.
        found: i32,
    },
    /// The response is malformed. The connection is closed.
    #[error("{peer} answered {api} version {version} with a malformed response")]
    Response {
        /// `HOST:PORT`.
        peer: String,
        /// The request.
        api: ApiKey,
        /// Its version.
        version: i16,
        /// What is wrong.
        #[source]
        source: DecodeError,
    },
    /// The request cannot be said in the version that both sides speak. The connection stays usable.
    #[error("cannot ask {peer} for {api} version {version}")]
    Request {
        /// `HOST:PORT`.
        peer: String,
        /// The request.
        api: ApiKey,
        /// Its version.
        version: i16,
        /// What is wrong.
        #[source]
        source: EncodeError,
    },
    /// The peer does not serve the API at all.
    #[error("{peer} does not serve {api}")]
    NotServed {
        /// `HOST:PORT`.
        peer: String,
        /// The API.
        api: ApiKey,
    },
    /// The peer serves the API, but in no version that we may use.
    #[error("{peer} serves {api} versions {} to {}, we need {min} to {max}", theirs.min, theirs.max)]
    NoCommonVersion {
        /// `HOST:PORT`.
        peer: String,
        /// The API.
        api: ApiKey,
        /// What it serves.
        theirs: ApiRange,
        /// Oldest version that we may use.
        min: i16,
        /// Newest version that we may use.
        max: i16,
    },
    /// The peer refused to say what it serves.
    #[error("{peer} answered {api} with {code}")]
    Refused {
        /// `HOST:PORT`.
        peer: String,
        /// The request.
        api: ApiKey,
        /// Its answer.
        code: ErrorCode,
    },
    /// An earlier request failed or was cancelled, so that what comes next on the stream is unknown.
    #[error("connection to {peer} is closed after an earlier failure")]
    Poisoned {
        /// `HOST:PORT`.
        peer: String,
    },
}

/// What one request may differ in from the connection's configuration.
#[derive(Clone, Copy, Debug)]
pub struct CallOptions {
    /// Oldest version that will do.
    pub min_version: i16,
    /// Newest version to use, although both sides may know a newer one.
    pub max_version: i16,
    /// Longest wait, instead of the configured one. For a fetch: longer than its `max_wait_ms`.
    pub timeout: Option<Duration>,
}

impl Default for CallOptions {
    fn default() -> Self {
        Self { min_version: 0, max_version: i16::MAX, timeout: None }
    }
}

/// A byte stream to a broker: TCP, TLS over it, or a test's.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A negotiated connection to one broker.
///
/// One request is in flight at a time. A call that fails in the stream, times out, or is cancelled
/// (its future dropped) closes the connection: every later call is [`ClientError::Poisoned`].
pub struct Connection {
    reader: FrameReader<Box<dyn Stream>>,
    peer: String,
    config: ClientConfig,
    versions: Vec<ApiRange>,
    next_correlation_id: i32,
    /// False from the first byte of a request until its response was read whole.
    usable: bool,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.peer)
            .field("usable", &self.usable)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// A connection to the first of `bootstrap` that answers, tried in order.
    ///
    /// Inputs: addresses as `HOST:PORT`; an IPv6 address in brackets.
    /// Cost: a name lookup, a TCP handshake and one or two round trips per address tried.
    ///
    /// # Errors
    /// `NoAddress`; a lone address's failure; else `NoneAnswered` with the last one's.
    pub async fn connect<S: AsRef<str>>(bootstrap: &[S], config: &ClientConfig) -> Result<Self, ClientError> {
        let mut last = ClientError::NoAddress;
        for address in bootstrap {
            match Self::connect_to(address.as_ref(), config).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        if bootstrap.len() < 2 {
            return Err(last);
        }
        let peers = bootstrap.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
        Err(ClientError::NoneAnswered { peers, last: Box::new(last) })
    }

    async fn connect_to(peer: &str, config: &ClientConfig) -> Result<Self, ClientError> {
        let peer = peer.trim();
        if !peer.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        {
            return Err(ClientError::BadAddress { peer: peer.to_owned() });
        }
        let connecting = async {
            let connect = |source| ClientError::Connect { peer: peer.to_owned(), source };
            let stream = TcpStream::connect(peer).await.map_err(connect)?;
            stream.set_nodelay(true).map_err(connect)?;
            Self::over(Box::new(stream), peer, config).await
        };
        match tokio::time::timeout(config.connect_timeout, connecting).await {
            Ok(connection) => connection,
            Err(_) => {
                Err(ClientError::ConnectTimeout { peer: peer.to_owned(), waited: config.connect_timeout })
            }
        }
    }

    /// A connection over a stream that is already there, negotiated.
    ///
    /// # Errors
    /// As a call of ApiVersions; `Refused` when the broker answers it with an error.
    pub async fn over(
        stream: Box<dyn Stream>,
        peer: &str,
        config: &ClientConfig,
    ) -> Result<Self, ClientError> {
        let mut connection = Self {
            reader: FrameReader::new(stream, config.limits.max_frame_bytes),
            peer: peer.to_owned(),
            config: config.clone(),
            versions: Vec::new(),
            next_correlation_id: 0,
            usable: true,
        };
        connection.negotiate().await?;
        Ok(connection)
    }

    /// Asks what the broker serves: as new as we can, else as it says, else version 0.
    async fn negotiate(&mut self) -> Result<(), ClientError> {
        let api = ApiKey::API_VERSIONS;
        let newest = 4;
        let response = self.ask_versions(newest).await?;
        let response = if ErrorCode::new(response.error_code) == ErrorCode::UNSUPPORTED_VERSION {
            // Kafka: the answer is in version 0 and may say what the broker speaks (KIP-511).
            let theirs = response
                .api_keys
                .iter()
                .find(|range| range.api_key == api.get())
                .map_or(0, |range| range.max_version);
            self.ask_versions(theirs.clamp(0, newest - 1)).await?
        } else {
            response
        };
        let code = ErrorCode::new(response.error_code);
        if !code.is_none() {
            self.usable = false;
            return Err(ClientError::Refused { peer: self.peer.clone(), api, code });
        }
        self.versions = response
            .api_keys
            .iter()
            .map(|range| ApiRange {
                api_key: ApiKey::new(range.api_key),
                min: range.min_version,
                max: range.max_version,
            })
            .collect();
        Ok(())
    }

    async fn ask_versions(&mut self, version: i16) -> Result<ApiVersionsResponse, ClientError> {
        let mut request = ApiVersionsRequest::default();
        if version >= 3 {
            request.client_software_name = crate::SOFTWARE_NAME.into();
            request.client_software_version = crate::SOFTWARE_VERSION.into();
        }
        let timeout = self.config.request_timeout;
        let body = self.exchange(&request, version, timeout).await?;
        // Kafka: a broker that does not know the version answers in version 0.
        let unsupported = ErrorCode::UNSUPPORTED_VERSION.get().to_be_bytes();
        let read_as = if body.starts_with(&unsupported) { 0 } else { version };
        self.decode::<ApiVersionsRequest>(body, read_as)
    }

    /// `HOST:PORT` as it was given.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// What the broker serves, as it said.
    pub fn api_versions(&self) -> &[ApiRange] {
        &self.versions
    }

    /// What the broker serves of one API.
    pub fn served(&self, api_key: ApiKey) -> Option<ApiRange> {
        self.versions.iter().copied().find(|range| range.api_key == api_key)
    }

    /// False when an earlier call failed or was cancelled: open another connection.
    pub fn is_usable(&self) -> bool {
        self.usable
    }

    /// The version that [`Connection::call`] would use for `R`: the newest that both sides know.
    ///
    /// # Errors
    /// `NotServed`, `NoCommonVersion`.
    pub fn version_for<R: Request>(&self) -> Result<i16, ClientError> {
        self.version_within::<R>(&CallOptions::default())
    }

    /// As [`Connection::version_for`], within the versions that `options` allow.
    ///
    /// # Errors
    /// `NotServed`, `NoCommonVersion`.
    pub fn version_within<R: Request>(&self, options: &CallOptions) -> Result<i16, ClientError> {
        let (api, peer) = (R::API_KEY, &self.peer);
        let theirs = self.served(api).ok_or_else(|| ClientError::NotServed { peer: peer.clone(), api })?;
        let (min, max) = R::CLIENT_VERSIONS;
        let (min, max) = (min.max(options.min_version), max.min(options.max_version));
        let version = max.min(theirs.max);
        if version < min || version < theirs.min {
            return Err(ClientError::NoCommonVersion { peer: peer.clone(), api, theirs, min, max });
        }
        Ok(version)
    }

    /// Sends a request in the newest version that both sides know and waits for its response.
    ///
    /// An error code inside the response is the caller's to read.
    ///
    /// # Errors
    /// See [`ClientError`]; `NotServed`, `NoCommonVersion` and `Request` leave the connection usable.
    pub async fn call<R: Request>(&mut self, request: &R) -> Result<R::Response, ClientError> {
        self.call_with(request, &CallOptions::default()).await.map(|(response, _)| response)
    }

    /// As [`Connection::call`], within `options`; gives the version used, too.
    ///
    /// # Errors
    /// As [`Connection::call`].
    pub async fn call_with<R: Request>(
        &mut self,
        request: &R,
        options: &CallOptions,
    ) -> Result<(R::Response, i16), ClientError> {
        let version = self.version_within::<R>(options)?;
        let timeout = options.timeout.unwrap_or(self.config.request_timeout);
        let body = self.exchange(request, version, timeout).await?;
        Ok((self.decode::<R>(body, version)?, version))
    }

    fn decode<R: Request>(&mut self, body: Bytes, version: i16) -> Result<R::Response, ClientError> {
        crate::decode(body, version, &self.config.limits).map_err(|source| {
            self.usable = false;
            ClientError::Response { peer: self.peer.clone(), api: R::API_KEY, version, source }
        })
    }

    /// One request, one response body.
    async fn exchange<R: Request>(
        &mut self,
        request: &R,
        version: i16,
        timeout: Duration,
    ) -> Result<Bytes, ClientError> {
        let api = R::API_KEY;
        if !self.usable {
            return Err(ClientError::Poisoned { peer: self.peer.clone() });
        }
        let correlation_id = self.next_correlation_id;
        let frame = encode_request(request, version, correlation_id, Some(&self.config.client_id))
            .map_err(|source| ClientError::Request { peer: self.peer.clone(), api, version, source })?;
        self.next_correlation_id = correlation_id.wrapping_add(1);
        // INVARIANT: set again only after the whole response was read, so that a dropped future
        // leaves it false.
        self.usable = false;
        let sending = async {
            frame.write_to(self.reader.stream_mut()).await?;
            self.reader.next().await
        };
        let received = match tokio::time::timeout(timeout, sending).await {
            Ok(received) => received,
            Err(_) => {
                return Err(ClientError::Timeout { peer: self.peer.clone(), api, waited: timeout });
            }
        };
        let frame = received
            .map_err(|source| ClientError::Stream { peer: self.peer.clone(), api, source })?
            .ok_or_else(|| ClientError::Closed { peer: self.peer.clone(), api })?;
        let (found, body) = decode_response_header(api, version, frame)
            .map_err(|source| ClientError::Response { peer: self.peer.clone(), api, version, source })?;
        if found != correlation_id {
            let (peer, expected) = (self.peer.clone(), correlation_id);
            return Err(ClientError::Correlation { peer, api, expected, found });
        }
        self.usable = true;
        Ok(body)
    }
}
