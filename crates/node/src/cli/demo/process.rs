//! The demo's processes: this executable, once more.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use weir_wire::client::{ClientConfig, Connection};

use super::failed;
use crate::cli::Failure;

/// How long a node may take until it serves, and a command until it is done.
const PATIENCE: Duration = Duration::from_secs(15);

/// A node that serves. Dropping it kills it.
#[derive(Debug)]
pub(super) struct ServedNode {
    child: Child,
    address: String,
}

impl ServedNode {
    /// Starts `weir serve` on a data directory and waits for its `ready` line.
    pub(super) async fn start(executable: &Path, data_dir: &Path) -> Result<Self, Failure> {
        let log = data_dir.with_extension("log");
        let stderr = std::fs::File::options().create(true).append(true).open(&log);
        let stderr = stderr.map_err(failed(format!("cannot write {}", log.display())))?;
        let mut child = Command::new(executable)
            .arg("serve")
            .arg("--data-dir")
            .arg(data_dir)
            .args(["--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed("cannot start weir serve"))?;
        let stdout =
            child.stdout.take().ok_or_else(|| Failure::failed("weir serve has no standard output"))?;
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::time::timeout(PATIENCE, lines.next_line())
            .await
            .map_err(failed("weir serve did not get ready"))?
            .map_err(failed("cannot read what weir serve says"))?
            .unwrap_or_default();
        match line.strip_prefix("ready ") {
            Some(address) => Ok(Self { child, address: address.to_owned() }),
            None => {
                Err(Failure::failed(format!("weir serve ended before it was ready; see {}", log.display())))
            }
        }
    }

    /// Where it serves.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// A connection to it.
    pub(super) async fn connect(&self) -> Result<Connection, Failure> {
        Connection::connect(&[&self.address], &ClientConfig::default())
            .await
            .map_err(failed(format!("cannot connect to {}", self.address)))
    }

    /// SIGKILL, and waits until it is gone.
    pub(super) async fn kill(mut self) -> Result<(), Failure> {
        self.child.kill().await.map_err(failed("cannot kill the node"))
    }
}

/// Runs one command of this executable to its end and gives its standard output.
pub(super) async fn run(executable: &Path, arguments: &[&str]) -> Result<String, Failure> {
    let command = Command::new(executable).args(arguments).stdin(Stdio::null()).kill_on_drop(true).output();
    let what = || format!("weir {}", arguments.join(" "));
    let output = tokio::time::timeout(PATIENCE, command)
        .await
        .map_err(failed(format!("{} did not end", what())))?
        .map_err(failed(format!("cannot run {}", what())))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::failed(format!("{} failed: {}", what(), said.trim())))
}
