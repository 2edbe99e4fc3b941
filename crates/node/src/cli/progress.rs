//! What long commands have in common: a bar or lines about how far they are, and an end when somebody asks for it.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Failure;

/// A bar is not drawn for what is over before.
const FIRST_DRAWN: Duration = Duration::from_millis(500);
/// How often a line is printed where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// How far something is, on standard error: a bar on a terminal, else a line every ten seconds.
pub(super) struct Bar {
    what: &'static str,
    total: AtomicU64,
    done: AtomicU64,
    started: Instant,
    bar: Option<ProgressBar>,
    next_line: Mutex<Duration>,
}

impl Bar {
    /// Of so many bytes.
    pub(super) fn new(what: &'static str, total: u64) -> Self {
        let bar = super::bar::is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
            let style = ProgressStyle::with_template(
                "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left",
            );
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar.set_message(what);
            bar
        });
        Self {
            what,
            total: AtomicU64::new(total),
            done: AtomicU64::new(0),
            started: now(),
            bar,
            next_line: Mutex::new(LINE_EVERY),
        }
    }

    /// So many bytes more.
    pub(super) fn advance(&self, size: u64) {
        self.show(self.done.fetch_add(size, Ordering::Relaxed).saturating_add(size));
    }

    /// So many bytes of so many.
    pub(super) fn set(&self, done: u64, total: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        if let Some(bar) = &self.bar {
            bar.set_length(total);
        }
        self.show(done);
    }

    fn show(&self, done: u64) {
        let total = self.total.load(Ordering::Relaxed);
        let elapsed = now().saturating_duration_since(self.started);
        if let Some(bar) = &self.bar {
            if elapsed >= FIRST_DRAWN && bar.is_hidden() {
                bar.set_draw_target(ProgressDrawTarget::stderr());
            }
            bar.set_position(done.min(total));
            return;
        }
        let mut next = self.next_line.lock().unwrap_or_else(PoisonError::into_inner);
        if elapsed >= *next {
            *next = elapsed.saturating_add(LINE_EVERY);
            let _ = writeln!(std::io::stderr(), "{}", line(self.what, done, total, elapsed));
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn line(what: &str, done: u64, total: u64, elapsed: Duration) -> String {
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    let rate = done.saturating_mul(1000).checked_div(millis).unwrap_or(0);
    let left = total.saturating_sub(done).checked_div(rate);
    let left = left.map_or_else(|| "unknown".to_owned(), |seconds| format!("{seconds} s"));
    format!("{what}: {done} of {total} bytes, {rate} bytes/s, {left} left")
}

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "how long a command takes; nothing is decided by it")]
    Instant::now()
}

/// Waits.
pub(super) fn pause(time: Duration) {
    #[expect(
        clippy::disallowed_methods,
        reason = "another process writes, and tells nobody when it is done"
    )]
    std::thread::sleep(time);
}

/// Bytes of the files at or below a path, three levels deep; for a bar, so that what cannot be looked at counts as
/// nothing.
pub(super) fn size_below(path: &Path) -> u64 {
    fn below(path: &Path, levels: u32) -> u64 {
        let Ok(metadata) = std::fs::metadata(path) else { return 0 };
        if metadata.is_file() {
            let is_log = path.extension().is_some_and(|extension| extension == "log");
            return if is_log { metadata.len() } else { 0 };
        }
        let entries = if levels == 0 { None } else { std::fs::read_dir(path).ok() };
        let sizes = entries.into_iter().flatten().flatten().map(|entry| below(&entry.path(), levels - 1));
        sizes.fold(0, u64::saturating_add)
    }
    below(path, 3)
}

/// Runs something that looks at `stop` now and then, which SIGINT and SIGTERM set.
pub(super) fn interruptible(
    stop: &Arc<AtomicBool>,
    work: impl FnOnce(&AtomicBool) -> Result<ExitCode, Failure> + Send + 'static,
) -> Result<ExitCode, Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let failed = |error: std::io::Error| Failure::failed("signals cannot be received").because(&error);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .map_err(failed)?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let theirs = Arc::clone(stop);
        let mut work = tokio::task::spawn_blocking(move || work(&theirs));
        loop {
            tokio::select! {
                done = &mut work => {
                    return done.unwrap_or_else(|error| Err(Failure::failed("a mistake of ours").because(&error)));
                }
                _ = interrupt.recv() => stop.store(true, Ordering::Relaxed),
                _ = terminate.recv() => stop.store(true, Ordering::Relaxed),
            }
        }
    })
}

/// The next line of standard input, a terminal; nothing if `stop` is set before somebody has ended it.
pub(super) fn read_line(stop: &AtomicBool) -> std::io::Result<Option<String>> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdin = std::io::stdin();
    let often = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    while !stop.load(Ordering::Relaxed) {
        let mut terminal = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut terminal, Some(&often)) {
            Err(rustix::io::Errno::INTR) | Ok(0) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => {
                let mut line = String::new();
                stdin.read_line(&mut line)?;
                // Ctrl-C and a line that came at once: the first one counts.
                return Ok((!stop.load(Ordering::Relaxed)).then_some(line));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_how_fast_and_how_long() {
        let said = line("looking", 3_000, 9_000, Duration::from_millis(1_500));
        assert_eq!(said, "looking: 3000 of 9000 bytes, 2000 bytes/s, 3 s left");
        assert_eq!(line("looking", 0, 9, Duration::ZERO), "looking: 0 of 9 bytes, 0 bytes/s, unknown left");
    }
}
