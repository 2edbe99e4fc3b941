//! A bar on the terminal, below the lines of the log, while partitions are loaded.

use std::io::{IsTerminal as _, Write};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use crate::loading::{LoadProgress, Starting};

/// Time between two drawings.
const DRAWN_EVERY: Duration = Duration::from_millis(200);

/// A start that takes less shows no bar.
const SHOWN_AFTER: Duration = Duration::from_millis(500);

/// Cells of the bar itself.
const CELLS: u64 = 20;

/// Columns of a terminal that does not say how many it has.
const COLUMNS: usize = 80;

/// Back to the first column, and nothing behind it.
const CLEAR: &str = "\r\x1b[K";

/// The bar; gone when it is dropped.
#[derive(Debug)]
pub(super) struct Bar {
    over: Arc<Mutex<bool>>,
    task: tokio::task::JoinHandle<()>,
}

impl Bar {
    /// Draws how far a start is, if standard error is a terminal.
    pub(super) fn on_terminal(starting: &Arc<Starting>) -> Option<Self> {
        is_terminal().then(|| Self::draw(starting))
    }

    fn draw(starting: &Arc<Starting>) -> Self {
        let over = Arc::new(Mutex::new(false));
        let (starting, is_over) = (Arc::clone(starting), Arc::clone(&over));
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(DRAWN_EVERY).await;
                let progress = starting.progress();
                let over = is_over.lock().unwrap_or_else(PoisonError::into_inner);
                if *over {
                    return;
                }
                if progress.elapsed.is_some_and(|elapsed| elapsed >= SHOWN_AFTER) {
                    let _ = write!(std::io::stderr().lock(), "{CLEAR}{}", line(&progress, columns()));
                }
            }
        });
        Self { over, task }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.task.abort();
        *self.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        let _ = write!(std::io::stderr().lock(), "{CLEAR}");
    }
}

/// Whether standard error is a terminal on which something can be drawn over.
pub(super) fn is_terminal() -> bool {
    static IS_TERMINAL: LazyLock<bool> = LazyLock::new(|| {
        std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
    });
    *IS_TERMINAL
}

/// Columns of the terminal.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(COLUMNS)
}

/// The bar and what it means, on one line: a longer one would be left behind when the next is drawn.
fn line(progress: &LoadProgress, columns: usize) -> String {
    // After a clean stop nothing is read again: then partitions are what is counted.
    let (done, total) = match progress.bytes_total {
        0 => (as_u64(progress.partitions_done), as_u64(progress.partitions_total)),
        total => (progress.bytes_done, total),
    };
    let share = |of: u64| {
        let share = u128::from(done) * u128::from(of) / u128::from(total.max(1));
        usize::try_from(share).unwrap_or(0)
    };
    let full = "#".repeat(share(CELLS));
    let empty = "-".repeat(usize::try_from(CELLS).unwrap_or(0).saturating_sub(full.len()));
    let text = format!("[{full}{empty}] {:>3} % {progress}", share(100));
    // Some terminals go to the next line with the last column.
    text.chars().take(columns.saturating_sub(1)).collect()
}

fn as_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Standard error for the lines of the log: on a terminal each takes the place of the bar.
#[derive(Debug)]
pub(super) struct LogLines;

impl Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let stderr = std::io::stderr();
        if !is_terminal() {
            return stderr.lock().write(bytes);
        }
        let mut lock = stderr.lock();
        lock.write_all(CLEAR.as_bytes())?;
        lock.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_shows_the_share_of_the_bytes_or_of_the_partitions() {
        let progress = LoadProgress {
            partitions_total: 10,
            partitions_done: 9,
            bytes_total: 4_000_000_000,
            bytes_done: 1_000_000_000,
            elapsed: Some(Duration::from_secs(1)),
            ..LoadProgress::default()
        };
        let text = "[#####---------------]  25 % 9 of 10 partitions, 1.0 of 4.0 GB, about 3 s left";
        assert_eq!(line(&progress, 100), text);
        let clean = LoadProgress { bytes_total: 0, bytes_done: 0, ..progress };
        assert_eq!(line(&clean, 100), "[##################--]  90 % 9 of 10 partitions");
        let none = LoadProgress::default();
        assert_eq!(line(&none, 100), "[--------------------]   0 % 0 of 0 partitions");
        let many = LoadProgress { partitions_total: 1_000_000, partitions_offline: 100_000, ..progress };
        for columns in [1, 20, 80] {
            assert_eq!(line(&many, columns).len(), columns - 1);
        }
    }
}
