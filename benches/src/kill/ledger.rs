//! What a writer said: the lines of its pipe, and what they oblige the files to hold.

use std::fmt;

use anyhow::{Context, Result, bail, ensure};
use weir_format::{LeaderEpoch, Offset};

/// What a batch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Records of nobody.
    Data,
    /// Records of a transaction, which its producer opens with them.
    Transactional,
    /// The marker that aborts it.
    Abort,
}

/// One batch that a writer was about to append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Leader epoch: one of its own for each start of a writer and each truncation.
    pub epoch: LeaderEpoch,
    /// What it is.
    pub kind: Kind,
    /// Whose it is; −1 for nobody.
    pub producer_id: i64,
}

/// One line of a writer. It is printed, and has left the writer, before what comes after it in the writer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// The log was opened, with these ends.
    Start(Offset, Offset),
    /// This batch is about to be appended.
    Write(Written),
    /// Everything below has been written, if not synced: it survives the process.
    Complete(Offset),
    /// Everything below is durable.
    Durable(Offset),
    /// The log is about to be cut at this offset.
    Truncate(Offset),
    /// The cut is done.
    Truncated(Offset),
    /// The log start is about to move here.
    Delete(Offset),
    /// The move is done.
    Deleted(Offset),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Start(start, end) => write!(f, "s {} {}", start.get(), end.get()),
            Line::Write(batch) => {
                let kind = match batch.kind {
                    Kind::Data => 'd',
                    Kind::Transactional => 't',
                    Kind::Abort => 'a',
                };
                write!(
                    f,
                    "w {} {} {} {kind} {}",
                    batch.base_offset.get(),
                    batch.last_offset.get(),
                    batch.epoch.get(),
                    batch.producer_id
                )
            }
            Line::Complete(end) => write!(f, "c {}", end.get()),
            Line::Durable(end) => write!(f, "a {}", end.get()),
            Line::Truncate(at) => write!(f, "t {}", at.get()),
            Line::Truncated(at) => write!(f, "T {}", at.get()),
            Line::Delete(at) => write!(f, "d {}", at.get()),
            Line::Deleted(at) => write!(f, "D {}", at.get()),
        }
    }
}

impl Line {
    /// Reads one line, without its end.
    ///
    /// # Errors
    /// If no writer prints such a line.
    pub fn parse(text: &str) -> Result<Line> {
        let words: Vec<&str> = text.split(' ').collect();
        let offset = |word: &str| -> Result<Offset> {
            Offset::new(word.parse()?).with_context(|| format!("no offset in {text:?}"))
        };
        Ok(match words.as_slice() {
            ["s", start, end] => Line::Start(offset(start)?, offset(end)?),
            ["w", base, last, epoch, kind, producer] => Line::Write(Written {
                base_offset: offset(base)?,
                last_offset: offset(last)?,
                epoch: LeaderEpoch::new(epoch.parse()?).context("no epoch")?,
                kind: match *kind {
                    "d" => Kind::Data,
                    "t" => Kind::Transactional,
                    "a" => Kind::Abort,
                    _ => bail!("no kind of batch in {text:?}"),
                },
                producer_id: producer.parse()?,
            }),
            ["c", end] => Line::Complete(offset(end)?),
            ["a", end] => Line::Durable(offset(end)?),
            ["t", at] => Line::Truncate(offset(at)?),
            ["T", at] => Line::Truncated(offset(at)?),
            ["d", at] => Line::Delete(offset(at)?),
            ["D", at] => Line::Deleted(offset(at)?),
            _ => bail!("the writer printed {text:?}"),
        })
    }
}

/// What must be there, and what may.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// Every batch that was about to be appended and has not been cut since, ascending.
    pub batches: Vec<Written>,
    /// How many batches were ever acknowledged as durable.
    pub acknowledged_batches: u64,
    /// Truncations begun since this was last set to 0.
    pub truncations_begun: u64,
    /// Deletions begun since this was last set to 0.
    pub deletions_begun: u64,
    acknowledged: Option<Offset>,
    complete: Option<Offset>,
    truncating: Option<Offset>,
    /// The last log start that was certainly set, and the last that may have been.
    deleted: Option<Offset>,
    deleting: Option<Offset>,
    /// Where the log ends while it has no batch.
    empty_end: Option<Offset>,
    epoch: i32,
}

impl Ledger {
    /// Everything below is durable, so it must be there.
    #[must_use]
    pub fn acknowledged(&self) -> Offset {
        self.acknowledged.unwrap_or(Offset::ZERO)
    }

    /// Everything below was written, so a kill does not take it.
    #[must_use]
    pub fn complete(&self) -> Offset {
        self.complete.unwrap_or(Offset::ZERO).max(self.acknowledged())
    }

    /// The log start that a node would have stored.
    #[must_use]
    pub fn log_start(&self) -> Offset {
        self.deleted.unwrap_or(Offset::ZERO)
    }

    /// The highest that the log start may be.
    #[must_use]
    pub fn highest_log_start(&self) -> Offset {
        self.deleting.unwrap_or(Offset::ZERO).max(self.log_start())
    }

    /// Whether the writer died in a truncation.
    #[must_use]
    pub fn is_truncating(&self) -> bool {
        self.truncating.is_some()
    }

    /// An epoch above all that were used.
    #[must_use]
    pub fn next_epoch(&self) -> LeaderEpoch {
        LeaderEpoch::new(self.epoch + 1).unwrap_or(LeaderEpoch::ZERO)
    }

    /// Takes a line into account.
    ///
    /// # Errors
    /// If the writer contradicts what it said before.
    pub fn apply(&mut self, line: &Line) -> Result<()> {
        match *line {
            Line::Start(start, end) => {
                ensure!(end == self.end(), "the writer found the end {end:?}, it is {:?}", self.end());
                ensure!(
                    start >= self.log_start() && start <= self.highest_log_start(),
                    "the writer found the start {start:?}"
                );
            }
            Line::Write(batch) => {
                ensure!(batch.base_offset == self.end(), "{batch:?} does not follow {:?}", self.end());
                self.epoch = self.epoch.max(batch.epoch.get());
                self.batches.push(batch);
            }
            Line::Complete(end) => {
                ensure!(
                    end <= self.end() && end >= self.complete(),
                    "complete to {end:?} of {:?}",
                    self.end()
                );
                self.complete = Some(end);
            }
            Line::Durable(end) => {
                ensure!(
                    end <= self.end() && end >= self.acknowledged(),
                    "durable to {end:?} of {:?}",
                    self.end()
                );
                let before = self.acknowledged();
                let new = self.batches.iter().rev().take_while(|batch| batch.base_offset >= before);
                let new = new.filter(|batch| batch.last_offset < end).count();
                self.acknowledged_batches += u64::try_from(new)?;
                self.acknowledged = Some(end);
            }
            Line::Truncate(at) => {
                self.truncations_begun += 1;
                self.truncating = Some(at);
                self.acknowledged = Some(self.acknowledged().min(at));
                self.complete = Some(self.complete().min(at));
            }
            Line::Truncated(at) => {
                ensure!(self.truncating == Some(at), "the writer did not begin to truncate to {at:?}");
                self.truncating = None;
                self.batches.retain(|batch| batch.last_offset < at);
                self.empty_end = Some(at);
                ensure!(self.end() == at, "truncated to {at:?}, which is no end of a batch");
            }
            Line::Delete(at) => {
                self.deletions_begun += 1;
                self.deleting = Some(at);
            }
            Line::Deleted(at) => {
                ensure!(self.deleting == Some(at), "the writer did not begin to delete to {at:?}");
                self.deleted = Some(at);
            }
        }
        Ok(())
    }

    /// The offset behind the last batch.
    #[must_use]
    pub fn end(&self) -> Offset {
        let empty_end = self.empty_end.unwrap_or(Offset::ZERO);
        self.batches.last().and_then(|batch| batch.last_offset.next()).unwrap_or(empty_end)
    }

    /// What was found is what is there from now on: batches from `first` to `end`.
    pub fn found(&mut self, first: Offset, end: Offset, log_start: Offset) {
        self.batches.retain(|batch| batch.base_offset >= first && batch.last_offset < end);
        self.truncating = None;
        self.empty_end = Some(end);
        self.acknowledged = Some(end);
        self.complete = Some(end);
        self.deleted = Some(log_start);
        self.deleting = Some(log_start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Result<Ledger> {
        let mut ledger = Ledger::default();
        for line in text.split(", ") {
            let line = Line::parse(line)?;
            assert_eq!(Line::parse(&line.to_string()).expect("printed"), line);
            ledger.apply(&line)?;
        }
        Ok(ledger)
    }

    #[test]
    fn what_is_owed_follows_from_the_lines() {
        let ledger = lines("s 0 0, w 0 4 1 d -1, w 5 5 1 t 5, w 6 6 1 a 5, c 6, a 5, t 5").expect("lines");
        assert_eq!(ledger.acknowledged().get(), 5);
        assert_eq!(ledger.complete().get(), 5);
        assert_eq!((ledger.end().get(), ledger.is_truncating()), (7, true));
        assert_eq!((ledger.acknowledged_batches, ledger.next_epoch().get()), (1, 2));
        let ledger =
            lines("s 0 0, w 0 4 1 d -1, w 5 5 1 d -1, a 6, t 5, T 5, w 5 9 2 d -1, d 5").expect("lines");
        assert_eq!((ledger.end().get(), ledger.acknowledged().get()), (10, 5));
        assert_eq!((ledger.log_start().get(), ledger.highest_log_start().get()), (0, 5));
    }

    #[test]
    fn a_writer_that_contradicts_itself_is_refused() {
        for text in
            ["w 3 4 1 d -1", "w 0 4 1 d -1, c 6", "w 0 4 1 d -1, a 5, a 3", "T 0", "s 0 7", "D 3", "x"]
        {
            assert!(lines(text).is_err(), "{text}");
        }
    }
}
