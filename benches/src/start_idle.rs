//! Start and idle cost of a broker process.
//!
//! Question: how long from exec to the first answered ApiVersions on a data directory that was formatted before, how
//! much memory is resident after an idle time, and how much CPU did that time take.
//! Unit: seconds, MiB, percent of one core.
//! Bound: a start of weir reads a few small files and opens one socket; an idle weir makes no system call except for
//! timers.
//! Run: `cargo xtask bench start-idle`, with `--with-kafka` for Kafka in the same run, alternated.
//! As in Kafka's own row, readiness is polled every 10 ms, so a start is known to 10 ms only.

#![expect(clippy::disallowed_methods, reason = "a benchmark owns a clock")]

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How often readiness is asked for.
const POLL: Duration = Duration::from_millis(10);
/// A broker that has not answered by then will not.
const LIMIT: Duration = Duration::from_secs(60);

/// One measured life of a process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// From exec to the first answered ApiVersions.
    pub to_serving: Duration,
    /// CPU used until then, user and system.
    pub cpu_to_serving: Duration,
    /// Resident memory after the idle time, in MiB.
    pub resident_mib: f64,
    /// CPU used in the idle time, in percent of one core.
    pub idle_percent: f64,
}

/// Starts a broker, waits until it answers, leaves it alone for `idle`, ends it with SIGTERM.
///
/// The command's data directory must have been formatted before, and it must listen on `port` of loopback. What it
/// prints goes to `log`.
///
/// # Errors
/// If it ends early, never answers, or its `/proc` files cannot be read.
pub fn measure(command: &mut Command, port: u16, idle: Duration, log: &Path) -> Result<Figures> {
    let output = File::options().create(true).append(true).open(log)?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let ticks = ticks_per_second()?;
    let start = Instant::now();
    let mut broker = Ending(command.spawn().with_context(|| format!("cannot start {command:?}"))?);
    loop {
        if answers(port) {
            break;
        }
        if let Some(status) = broker.0.try_wait()? {
            bail!("it ended with {status} before it served; see {}", log.display());
        }
        if start.elapsed() > LIMIT {
            bail!("it does not answer on port {port} within {} s", LIMIT.as_secs());
        }
        std::thread::sleep(POLL);
    }
    let to_serving = start.elapsed();
    let cpu_to_serving = cpu(broker.0.id(), ticks)?;
    std::thread::sleep(idle);
    let idle_cpu = cpu(broker.0.id(), ticks)?.saturating_sub(cpu_to_serving);
    let resident_mib = resident_mib(broker.0.id())?;
    let idle_percent = 100.0 * idle_cpu.as_secs_f64() / idle.as_secs_f64();
    broker.terminate()?;
    Ok(Figures { to_serving, cpu_to_serving, resident_mib, idle_percent })
}

/// The middle one; of an even count the lower middle.
///
/// # Panics
/// If there are none.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len().saturating_sub(1) / 2;
    *values.get(middle).expect("a median needs a value")
}

/// A child that does not outlive the measurement.
struct Ending(Child);

impl Ending {
    fn terminate(&mut self) -> Result<()> {
        Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status()?;
        let start = Instant::now();
        while start.elapsed() < LIMIT {
            if self.0.try_wait()?.is_some() {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        bail!("it does not end on SIGTERM")
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let _gone_already = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// One ApiVersions request of version 0 on a new connection.
fn answers(port: u16) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        // Frame size, API key 18, version 0, correlation id 1, no client id.
        stream.write_all(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff])?;
        let mut answer = [0; 10];
        stream.read_exact(&mut answer)?;
        // Correlation id 1 and error code 0.
        Ok(answer.ends_with(&[0, 0, 0, 1, 0, 0]))
    };
    ask().unwrap_or(false)
}

/// User and system time of a process so far.
///
/// The process's own count has the time of threads that are gone, but in ticks of 10 ms; the threads' counts are exact,
/// but of those that live. The larger one is nearer to the truth.
fn cpu(process: u32, ticks: u64) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let (user, system) = times_of(&stat).context("a stat line of another shape")?;
    let counted = Duration::from_secs_f64(ratio(user + system, ticks));
    let mut exact = Duration::ZERO;
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread may end while we look, and kernels may be built without these files.
        let text = std::fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        let nanoseconds = text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0);
        exact += Duration::from_nanos(nanoseconds);
    }
    Ok(counted.max(exact))
}

/// Fields 14 and 15 of a stat line, counted behind the name, which may hold blanks.
fn times_of(stat: &str) -> Option<(u64, u64)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn resident_mib(process: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let kib: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .context("no VmRSS")?;
    Ok(ratio(kib, 1024))
}

fn ticks_per_second() -> Result<u64> {
    let output = Command::new("getconf").arg("CLK_TCK").output().context("getconf is not there")?;
    String::from_utf8_lossy(&output.stdout).trim().parse().context("getconf CLK_TCK is not a number")
}

fn ratio(above: u64, below: u64) -> f64 {
    let above = u32::try_from(above).map_or(f64::from(u32::MAX), f64::from);
    let below = u32::try_from(below).map_or(f64::from(u32::MAX), f64::from);
    above / below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_a_name_with_blanks() {
        let stat = "42 (a (b) c) S 1 42 42 0 -1 4194560 100 0 0 0 7 5 0 0 20 0 1 0 100 1 1";
        assert_eq!(times_of(stat), Some((7, 5)));
    }

    #[test]
    fn the_middle_value_is_taken() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(vec![4.0, 1.0]) - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn a_process_that_ends_early_is_said_so() {
        let log = tempfile::NamedTempFile::new().expect("a file");
        let error = measure(&mut Command::new("false"), 1, Duration::ZERO, log.path()).expect_err("it ended");
        assert!(error.to_string().contains("before it served"), "{error:#}");
    }
}
