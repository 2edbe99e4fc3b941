//! Child processes with an end: every wait has a limit, and what is still running is killed on drop.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::command::describe;

const POLL: Duration = Duration::from_millis(10);

/// A child that ends with its owner.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    line: String,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Running {
    /// Starts a command whose output goes to `NAME.out` and `NAME.err` in `folder`.
    pub(super) fn start(command: &mut Command, folder: &Path, name: &str) -> Result<Self> {
        let line = describe(command);
        let stdout = folder.join(format!("{name}.out"));
        let stderr = folder.join(format!("{name}.err"));
        let child = command
            .stdin(Stdio::piped())
            .stdout(File::create(&stdout)?)
            .stderr(File::options().create(true).append(true).open(&stderr)?)
            .spawn()
            .with_context(|| format!("cannot start {line}"))?;
        Ok(Self { child, line, stdout, stderr })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far.
    pub(super) fn stdout(&self) -> String {
        read(&self.stdout)
    }

    pub(super) fn stderr(&self) -> String {
        read(&self.stderr)
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Closes its standard input, which our programs take as the word to end.
    pub(super) fn close_stdin(&mut self) {
        drop(self.child.stdin.take());
    }

    /// SIGKILL, and waits until it is gone.
    pub(super) fn kill(&mut self) {
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
    }

    /// SIGTERM: the polite end.
    pub(super) fn terminate(&mut self) -> Result<()> {
        let status = Command::new("kill").args(["-TERM", &self.id().to_string()]).status()?;
        anyhow::ensure!(status.success(), "kill -TERM {}: {status}", self.id());
        Ok(())
    }

    /// Waits until it ends by itself.
    pub(super) fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                self.kill();
                bail!("{} did not end within {} s", self.line, limit.as_secs());
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a finished command left.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Ended {
    /// Both streams, for looking something up in whatever a tool printed.
    pub(super) fn all(&self) -> String {
        format!("{}\n{}", self.stdout, self.stderr)
    }

    /// An error with the last lines of standard error unless it succeeded.
    pub(super) fn must_succeed(self, what: &str) -> Result<Self> {
        if !self.status.success() {
            bail!("{what}: {}: {}", self.status, tail(&self.all(), 12));
        }
        Ok(self)
    }
}

/// Runs a command to its end within `limit`; `input` is its standard input.
pub(super) fn run(command: &mut Command, folder: &Path, limit: Duration, input: &str) -> Result<Ended> {
    let scratch = tempfile::Builder::new().prefix("run-").tempdir_in(folder)?;
    let stdin = scratch.path().join("in");
    std::fs::write(&stdin, input)?;
    let line = describe(command);
    let (stdout, stderr) = (scratch.path().join("out"), scratch.path().join("err"));
    let child = command
        .stdin(File::open(&stdin)?)
        .stdout(File::create(&stdout)?)
        .stderr(File::create(&stderr)?)
        .spawn()
        .with_context(|| format!("cannot start {line}"))?;
    let mut running = Running { child, line, stdout, stderr };
    let status = running.wait(limit).with_context(|| tail(&running.stderr(), 8))?;
    Ok(Ended { status, stdout: running.stdout(), stderr: running.stderr() })
}

/// Waits until `done` says so, an error if it does not within `limit`.
pub(super) fn wait_until(what: &str, limit: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + limit;
    loop {
        if done()? {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!("{what}: not within {} s", limit.as_secs());
        }
        std::thread::sleep(POLL);
    }
}

/// A port of loopback that nobody listens on now.
pub(super) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    Ok(listener.local_addr()?.port())
}

/// The last `count` lines.
pub(super) fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let skip = lines.len().saturating_sub(count);
    lines.into_iter().skip(skip).collect::<Vec<_>>().join(" / ")
}

fn read(path: &Path) -> String {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_does_not_end_is_killed_at_its_limit() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = run(Command::new("sleep").arg("30"), folder.path(), Duration::from_millis(50), "")
            .expect_err("too long");
        assert!(format!("{error:#}").contains("did not end"), "{error:#}");
    }

    #[test]
    fn input_and_both_outputs_pass() {
        let folder = tempfile::tempdir().expect("a folder");
        let ended = run(
            Command::new("sh").args(["-c", "cat; echo oops >&2; exit 3"]),
            folder.path(),
            Duration::from_secs(10),
            "hello",
        )
        .expect("it ends");
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("hello", "oops\n"));
        let error = ended.must_succeed("the command").expect_err("status 3");
        assert!(format!("{error:#}").contains("oops"), "{error:#}");
    }

    #[test]
    fn a_running_child_ends_on_drop() {
        let folder = tempfile::tempdir().expect("a folder");
        let running = Running::start(Command::new("sleep").arg("30"), folder.path(), "s").expect("it starts");
        let stat = format!("/proc/{}/stat", running.id());
        drop(running);
        assert!(!Path::new(&stat).exists());
    }
}
