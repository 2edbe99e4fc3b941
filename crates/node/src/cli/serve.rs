//! `weir serve`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

use super::Failure;
use super::bar::{Bar, LogLines};
use crate::config::{Config, ConfigError, Overrides};
use crate::http::Http;
use crate::loading::Starting;
use crate::node::{Node, StartError};
use crate::server::{Bound, Server};

/// Options of `weir serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// Directory of the logs; made and formatted if it is empty. The same as --set log.dirs=DIR.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Address to listen on; port 0 takes a free one. The same as --set listeners=HOST:PORT.
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Options: TOML with Kafka's names as flat keys, or a Kafka server.properties.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One option, over the file and the environment.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Say whether the options can be used, and do nothing.
    #[arg(long)]
    check_config: bool,
    /// How much is logged to standard error, as in RUST_LOG: a level, or target=level,...
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: String,
    /// How it is written.
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl Serve {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let overrides =
            Overrides { file: self.config, set: self.set, data_dir: self.data_dir, listen: self.listen };
        let config = Config::load(&overrides).map_err(|error| config_failure(&error))?;
        if self.check_config {
            return Ok(ExitCode::SUCCESS);
        }
        start_log(&self.log, self.log_format)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(8)
            .thread_name("net")
            .enable_all()
            .build()
            .map_err(|error| Failure::failed("the threads of the node cannot be started").because(&error))?;
        runtime.block_on(serve(config))
    }
}

fn config_failure(error: &ConfigError) -> Failure {
    Failure::of(2, error).help(error.help())
}

fn start_failure(error: &StartError) -> Failure {
    Failure::of(1, error).help(error.help())
}

fn start_log(filter: &str, format: LogFormat) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| Failure::usage(format!("--log {filter:?} is not a filter")).because(&error))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| LogLines).with_ansi(false);
    let started = match format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    started.map_err(|error| Failure::failed(format!("the log cannot be started: {error}")))
}

async fn serve(config: Config) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?;
    let starting = Starting::new();
    let http = match &config.http {
        Some(address) => {
            let listening = Http::start(address, Arc::clone(&starting)).await;
            Some(listening.map_err(|error| start_failure(&error))?)
        }
        None => None,
    };
    let mut server = std::pin::pin!(start(config, Arc::clone(&starting)));
    let mut interrupted = false;
    let server = loop {
        tokio::select! {
            server = &mut server => break server,
            // What was recovered so far is on the disk; the next start goes on from there.
            signal = signals.next() => {
                tracing::info!(signal, "stopping while starting");
                if interrupted {
                    // Who asks twice does not want to wait for what is being closed; a crash is what starts recover from.
                    return Ok(ExitCode::FAILURE);
                }
                interrupted = true;
                starting.interrupt();
            }
        }
    };
    let server = match server {
        Ok(server) => server,
        Err(StartError::Stopped) if interrupted => {
            tracing::info!("stopped while starting");
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => return Err(start_failure(&error)),
    };
    let ready = if interrupted { Ok(()) } else { announce(&server) };
    if !interrupted {
        if let Some(http) = &http {
            http.show(Arc::clone(server.node()));
        }
        let signal = signals.next().await;
        tracing::info!(signal, "stopping");
    }
    if let Some(http) = &http {
        http.not_ready();
    }
    let clean = server.stop().await;
    ready?;
    if clean {
        tracing::info!("stopped");
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::failed("not everything was closed cleanly; what was acknowledged is on the disk")
        .help("the next start recovers it; see the log above for the partitions"))
}

async fn start(config: Config, starting: Arc<Starting>) -> Result<Server, StartError> {
    let bound = Bound::bind(&config.listener).await?;
    let bar = Bar::on_terminal(&starting);
    let node = Node::start_watched(config, &starting).await;
    drop(bar);
    Server::start(node?, bound).await
}

/// The one line on standard output: clients may come.
fn announce(server: &Server) -> Result<(), Failure> {
    let local = server.local_addr();
    tracing::info!(
        address = %local, advertised = %server.node().advertised(),
        cluster_id = server.node().metadata().cluster_id(), "ready"
    );
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready {local}").and_then(|()| out.flush()).or_else(|error| match error.kind() {
        // Nobody reads it: that is no reason not to serve.
        std::io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(Failure::failed("standard output cannot be written").because(&error)),
    })
}

struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let failed = |error: std::io::Error| Failure::failed("signals cannot be received").because(&error);
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
