//! One `weir serve`, and the `weir mirror` commands against it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::World;
use super::process::{self, Ended, Running, tail, wait_until};

/// How long a node may take from exec to its line `ready`; generous for a busy machine.
const READY: Duration = Duration::from_secs(30);

/// A node that ends with its owner. It keeps its port over restarts, as clients expect.
#[derive(Debug)]
pub(super) struct Node {
    running: Running,
    binary: PathBuf,
    work: PathBuf,
    name: String,
    port: u16,
    data: PathBuf,
}

/// The command of a node: one listener of loopback, one log directory.
pub(super) fn serve(binary: &Path, data: &Path, port: u16) -> Command {
    let mut command = Command::new(binary);
    command
        .arg("serve")
        .args(["--set", &format!("log.dirs={}", data.display())])
        .args(["--set", &format!("listeners=PLAINTEXT://127.0.0.1:{port}")]);
    command
}

impl Node {
    /// Formats a folder under the work folder by starting on it.
    pub(super) fn start_new(world: &World, name: &str) -> Result<Self> {
        let folder = world.work.join(name);
        std::fs::create_dir_all(&folder)?;
        Self::start_on(world, name, &folder.join("data"))
    }

    /// Starts a node on a folder that may hold data.
    pub(super) fn start_on(world: &World, name: &str, data: &Path) -> Result<Self> {
        let port = process::free_port()?;
        let binary = world.weir.clone();
        let running = start(&binary, data, port, &world.work, name)?;
        Ok(Self {
            running,
            binary,
            work: world.work.clone(),
            name: name.to_owned(),
            port,
            data: data.to_path_buf(),
        })
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    /// A partition's folder.
    pub(super) fn partition(&self, topic: &str, partition: i32) -> PathBuf {
        self.data.join(format!("{topic}-{partition}"))
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self) {
        self.running.kill();
    }

    /// Starts again on the same folder and port.
    pub(super) fn restart(&mut self) -> Result<()> {
        self.running = start(&self.binary, &self.data, self.port, &self.work, &self.name)?;
        Ok(())
    }

    /// SIGTERM; the end must come soon and with status 0.
    pub(super) fn stop(mut self) -> Result<PathBuf> {
        self.running.terminate()?;
        let status = self.running.wait(Duration::from_secs(30))?;
        ensure!(status.success(), "weir ended with {status}: {}", tail(&self.running.stderr(), 8));
        Ok(self.data.clone())
    }

    /// `weir mirror VERB --bootstrap-server HERE ARGS`.
    pub(super) fn mirror(&self, verb: &str, arguments: &[&str]) -> Result<Ended> {
        let mut command = Command::new(&self.binary);
        command.args(["mirror", verb, "--bootstrap-server", &self.address()]).args(arguments);
        process::run(&mut command, &self.work, Duration::from_secs(60), "")
    }

    /// `weir mirror describe --json`: what it says of each partition.
    pub(super) fn describe(&self) -> Result<Vec<Partition>> {
        let ended = self.mirror("describe", &["--json"])?.must_succeed("weir mirror describe")?;
        let json: serde_json::Value = serde_json::from_str(&ended.stdout)
            .with_context(|| format!("describe --json printed {}", tail(&ended.stdout, 3)))?;
        let array = json.as_array().context("describe --json is not an array")?;
        array
            .iter()
            .map(|one| {
                Ok(Partition {
                    topic: one["topic"].as_str().context("no topic")?.to_owned(),
                    state: one["state"].as_str().context("no state")?.to_owned(),
                    lag: one["lag"].as_i64(),
                    error: one["errorMessage"].as_str().unwrap_or_default().to_owned(),
                })
            })
            .collect()
    }
}

/// One line of `describe`.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) topic: String,
    pub(super) state: String,
    pub(super) lag: Option<i64>,
    pub(super) error: String,
}

fn start(binary: &Path, data: &Path, port: u16, work: &Path, name: &str) -> Result<Running> {
    let mut running = Running::start(&mut serve(binary, data, port), work, &format!("weir-{name}"))?;
    wait_until("weir is not ready", READY, || {
        if running.stdout().lines().any(|line| line.starts_with("ready ")) {
            return Ok(true);
        }
        if running.has_ended() {
            bail!("weir ended at once: {}", tail(&running.stderr(), 8));
        }
        Ok(false)
    })
    .with_context(|| tail(&running.stderr(), 8))?;
    Ok(running)
}
