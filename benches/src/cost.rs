//! What a piece of work took: wall time, CPU, context switches, system calls that read or write.

#![expect(clippy::disallowed_methods, reason = "a benchmark owns a clock")]

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

/// A running measurement of this process.
#[derive(Debug)]
pub struct Meter {
    start: Instant,
    cpu: Duration,
    counters: Counters,
}

/// What was measured between [`Meter::start`] and [`Meter::stop`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Wall time.
    pub wall: Duration,
    /// User and system time of all threads of this process, those that are gone and the kernel's workers for it
    /// included; the kernel's own write-back threads are not.
    pub cpu: Duration,
    /// What was counted.
    pub counters: Counters,
}

/// What the kernel counts of a process, and of its rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// System calls that write (`write`, `pwrite` and the like; not those of a ring, not syncs).
    pub write_calls: u64,
    /// System calls that read.
    pub read_calls: u64,
    /// Times a thread waited, of the threads that live.
    pub waits: u64,
}

impl Meter {
    /// Begins.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn start() -> Result<Meter> {
        let counters = Counters::now()?;
        Ok(Meter { cpu: process_cpu(), counters, start: Instant::now() })
    }

    /// Ends.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn stop(self) -> Result<Cost> {
        let wall = self.start.elapsed();
        let cpu = process_cpu().saturating_sub(self.cpu);
        let now = Counters::now()?;
        let counters = Counters {
            write_calls: now.write_calls.saturating_sub(self.counters.write_calls),
            read_calls: now.read_calls.saturating_sub(self.counters.read_calls),
            waits: now.waits.saturating_sub(self.counters.waits),
        };
        Ok(Cost { wall, cpu, counters })
    }
}

impl Cost {
    /// Throughput, in units of 10^6 bytes a second.
    pub fn mb_per_second(&self, bytes: u64) -> f64 {
        bytes as f64 / 1e6 / self.wall.as_secs_f64()
    }

    /// CPU seconds for 10^9 bytes.
    pub fn cpu_per_gb(&self, bytes: u64) -> f64 {
        self.cpu.as_secs_f64() / (bytes as f64 / 1e9)
    }
}

impl Counters {
    fn now() -> Result<Counters> {
        let io = std::fs::read_to_string("/proc/self/io").context("no /proc/self/io")?;
        let mut waits = 0;
        for task in std::fs::read_dir("/proc/self/task")? {
            // A thread may end while we look.
            let status = std::fs::read_to_string(task?.path().join("status")).unwrap_or_default();
            waits += field(&status, "voluntary_ctxt_switches:").unwrap_or(0);
        }
        Ok(Counters {
            write_calls: field(&io, "syscw:").context("no syscw")?,
            read_calls: field(&io, "syscr:").context("no syscr")?,
            waits,
        })
    }
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

/// CPU time of this process so far, to the nanosecond.
pub fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Free memory in MiB: a buffered writer pays for pages that were not touched before.
pub fn free_memory_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("MemFree:"))
        .and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok())
        .map_or(0, |kib| kib / 1024)
}

/// The mount that holds a folder: its kind and options, which decide what a sync costs.
#[must_use]
pub fn file_system(folder: &std::path::Path) -> String {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    mounts
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [_, point, kind, options, ..] = words.as_slice() else { return None };
            folder.starts_with(point).then(|| (point.len(), format!("{kind} ({options})")))
        })
        .max_by_key(|(length, _)| *length)
        .map_or_else(|| "unknown".to_owned(), |(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_seen_in_every_figure() {
        let folder = tempfile::tempdir().expect("a folder");
        let meter = Meter::start().expect("a meter");
        let mut sum = 0_u64;
        for number in 0..200_u64 {
            std::fs::write(folder.path().join("file"), number.to_string()).expect("a write");
            sum = (0..10_000).fold(sum, |sum, add| std::hint::black_box(sum.wrapping_add(add)));
        }
        let cost = meter.stop().expect("figures");
        assert!(cost.counters.write_calls >= 200, "{cost:?}");
        assert!(cost.cpu > Duration::ZERO && cost.wall > Duration::ZERO, "{cost:?}");
        let second = Cost { wall: Duration::from_secs(2), cpu: Duration::from_secs(1), ..cost };
        assert!((second.mb_per_second(4_000_000) - 2.0).abs() < 1e-9);
        assert!((second.cpu_per_gb(500_000_000) - 2.0).abs() < 1e-9);
    }
}
