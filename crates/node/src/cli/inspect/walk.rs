//! From batch to batch through a segment that may hold anything, in a MiB of memory whatever its batches say.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};

use weir_format::{
    BatchError, Codec, HEADER_SIZE, Message, RecordBatch, TimestampMs, frame_size, message_size,
};
use weir_recovery::tail::TailRead;

use super::files::{FileBytes, read_up_to};

/// How much is read at a time, and how much of a batch is looked at; of a longer one the rest is summed and let go.
const CHUNK: usize = 1 << 20;
/// Messages of magic 0 and 1 above this size are not believed; no client sends them.
const OLD_MESSAGE_LIMIT: u64 = 16 << 20;
/// Where the CRC of a batch stands, and what it covers.
const CRC_AT: usize = 17;
const CRC_COVERS_FROM: u64 = 21;
/// What the length field of a batch does not count.
const LENGTH_AT: usize = 8;
const LENGTH_COUNTS_FROM: usize = 12;

/// Whether to go on, and who is told how far it got.
pub struct Watch<'a> {
    /// Set from outside, to end early.
    pub stop: &'a AtomicBool,
    /// Told of each piece of bytes that were read.
    pub progress: &'a dyn Fn(u64),
}

impl Watch<'_> {
    fn check(&self) -> Result<(), Halt> {
        if self.stop.load(Ordering::Relaxed) { Err(Halt::Interrupted) } else { Ok(()) }
    }
}

/// Why a walk goes no further.
#[derive(Debug)]
pub(super) enum Halt {
    /// Somebody asked for it.
    Interrupted,
    /// The file cannot be read.
    Io(io::Error),
}

impl From<io::Error> for Halt {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What stands at one position of a segment.
pub(super) enum Step<'b> {
    /// The end of the file.
    End,
    /// A batch with the right CRC. Of one that is longer than a MiB only the front is there.
    Batch { position: u64, size: u64, batch: RecordBatch<'b> },
    /// A message of magic 0 or 1 with the right CRC.
    Old { position: u64, size: u64, message: OldMessage },
    /// Anything else.
    Invalid { position: u64, error: BatchError },
}

/// What is said of a message of magic 0 or 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct OldMessage {
    pub(super) magic: i8,
    pub(super) last_offset: i64,
    pub(super) codec: Codec,
    pub(super) timestamp: TimestampMs,
}

pub(super) struct Walker<'a> {
    file: &'a dyn FileBytes,
    watch: &'a Watch<'a>,
    size: u64,
    position: u64,
    // INVARIANT: the bytes of the file from `position` on, behind the first `used` ones.
    buffer: Vec<u8>,
    used: usize,
    front: Vec<u8>,
}

impl<'a> Walker<'a> {
    /// From `position` to `size`, where the file is taken to end.
    pub(super) fn new(file: &'a dyn FileBytes, watch: &'a Watch<'a>, position: u64, size: u64) -> Self {
        Self { file, watch, size, position, buffer: Vec::new(), used: 0, front: Vec::new() }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Goes on elsewhere.
    pub(super) fn seek(&mut self, position: u64) {
        self.position = position;
        self.buffer.clear();
        self.used = 0;
    }

    fn held(&self) -> &[u8] {
        self.buffer.get(self.used..).unwrap_or_default()
    }

    /// Holds `want` bytes from the position on, or what is there.
    fn hold(&mut self, want: usize) -> Result<(), Halt> {
        self.watch.check()?;
        let rest = usize::try_from(self.size.saturating_sub(self.position)).unwrap_or(usize::MAX);
        let want = want.max(CHUNK).min(rest);
        self.buffer.resize(want, 0);
        self.used = 0;
        let read = read_up_to(self.file, self.position, &mut self.buffer)?;
        self.buffer.truncate(read);
        let read = u64::try_from(read).unwrap_or(u64::MAX);
        (self.watch.progress)(read);
        if u64::try_from(want).is_ok_and(|want| read < want) {
            // Cut while it was read: by a node that rolled.
            self.size = self.position.saturating_add(read);
        }
        Ok(())
    }

    /// The next step; a step behind an invalid one is the same again.
    pub(super) fn next(&mut self) -> Result<Step<'_>, Halt> {
        let position = self.position;
        let rest = |walker: &Self| walker.size.saturating_sub(position);
        let need = usize::try_from(rest(self)).unwrap_or(usize::MAX).min(HEADER_SIZE);
        if self.held().len() < need {
            self.hold(0)?;
        }
        let rest = rest(self);
        if rest == 0 {
            return Ok(Step::End);
        }
        let have = usize::try_from(rest).unwrap_or(usize::MAX);
        let size = match frame_size(self.held()) {
            Ok(Some(size)) if size <= have => size,
            Ok(Some(need)) => {
                return Ok(Step::Invalid { position, error: BatchError::Truncated { need, have } });
            }
            Ok(None) => {
                return Ok(Step::Invalid {
                    position,
                    error: BatchError::Truncated { need: HEADER_SIZE, have },
                });
            }
            Err(BatchError::UnsupportedMagic { magic }) => return self.old(magic, rest),
            Err(error) => return Ok(Step::Invalid { position, error }),
        };
        let long = u64::try_from(size).unwrap_or(u64::MAX);
        if size > CHUNK {
            return self.long_batch(size, long);
        }
        if self.held().len() < size {
            self.hold(size)?;
        }
        if let Err(error) = RecordBatch::parse(self.held()) {
            return Ok(Step::Invalid { position, error });
        }
        let from = self.used;
        self.used += size;
        self.position = position.saturating_add(long);
        match RecordBatch::parse_without_crc(self.buffer.get(from..).unwrap_or_default()) {
            Ok(batch) => Ok(Step::Batch { position, size: long, batch }),
            Err(error) => Ok(Step::Invalid { position, error }),
        }
    }

    fn long_batch(&mut self, size: usize, long: u64) -> Result<Step<'_>, Halt> {
        let position = self.position;
        if self.held().len() < CHUNK {
            self.hold(CHUNK)?;
        }
        let mut front = std::mem::take(&mut self.front);
        front.clear();
        front.extend(self.held().iter().take(CHUNK));
        self.front = front;
        let field = |at: usize| self.front.get(at..)?.first_chunk::<4>().copied();
        let stored = field(CRC_AT).map_or(0, u32::from_be_bytes);
        let base_offset = self.front.first_chunk::<8>().map_or(0, |raw| i64::from_be_bytes(*raw));
        let (mut at, end) = (position.saturating_add(CRC_COVERS_FROM), position.saturating_add(long));
        let mut computed = 0;
        let mut piece = vec![0; CHUNK];
        while at < end {
            self.watch.check()?;
            let want = usize::try_from(end.saturating_sub(at)).unwrap_or(CHUNK).min(CHUNK);
            let into = piece.get_mut(..want).unwrap_or_default();
            let read = read_up_to(self.file, at, into)?;
            if read < want {
                return Ok(Step::Invalid {
                    position,
                    error: BatchError::Truncated { need: size, have: read },
                });
            }
            computed = crc32c::crc32c_append(computed, into);
            at = at.saturating_add(u64::try_from(want).unwrap_or(u64::MAX));
            (self.watch.progress)(u64::try_from(want).unwrap_or(0));
        }
        if computed != stored {
            let error = BatchError::CrcMismatch { stored, computed, base_offset };
            return Ok(Step::Invalid { position, error });
        }
        // The front stands for the whole: everything that state is made of is in its header and its first record.
        let length = self.front.len().saturating_sub(LENGTH_COUNTS_FROM);
        let length = i32::try_from(length).unwrap_or(i32::MAX).to_be_bytes();
        for (to, from) in self.front.iter_mut().skip(LENGTH_AT).zip(length) {
            *to = from;
        }
        self.seek(position.saturating_add(long));
        match RecordBatch::parse_without_crc(&self.front) {
            Ok(batch) => Ok(Step::Batch { position, size: long, batch }),
            Err(error) => {
                self.position = position;
                Ok(Step::Invalid { position, error })
            }
        }
    }

    fn old(&mut self, magic: i8, rest: u64) -> Result<Step<'_>, Halt> {
        let position = self.position;
        let invalid = Step::Invalid { position, error: BatchError::UnsupportedMagic { magic } };
        let Ok(Some(size)) = message_size(self.held()) else { return Ok(invalid) };
        let long = u64::try_from(size).unwrap_or(u64::MAX);
        if long > rest.min(OLD_MESSAGE_LIMIT) {
            return Ok(invalid);
        }
        if self.held().len() < size {
            self.hold(size)?;
        }
        let Ok(message) = Message::parse(self.held()) else { return Ok(invalid) };
        let message = OldMessage {
            magic: message.magic(),
            last_offset: message.offset().get(),
            codec: message.codec(),
            timestamp: message.timestamp(),
        };
        self.used += size;
        self.position = position.saturating_add(long);
        Ok(Step::Old { position, size: long, message })
    }
}

/// A file as the judge of torn tails sees it.
pub(super) struct Tail<'a> {
    pub(super) file: &'a dyn FileBytes,
    pub(super) watch: &'a Watch<'a>,
    pub(super) size: u64,
}

impl TailRead for Tail<'_> {
    type Error = Halt;

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&mut self, position: u64, into: &mut [u8]) -> Result<(), Halt> {
        self.watch.check()?;
        let read = read_up_to(self.file, position, into)?;
        if read < into.len() { Err(Halt::Io(ErrorKind::UnexpectedEof.into())) } else { Ok(()) }
    }
}

/// The position behind the last byte from `position` on that is not zero; `position` if all are.
pub(super) fn data_end(tail: &mut Tail<'_>, position: u64) -> Result<u64, Halt> {
    let mut end = tail.size;
    let mut window = vec![0; CHUNK];
    while end > position {
        let size = usize::try_from(end.saturating_sub(position)).unwrap_or(CHUNK).min(CHUNK);
        let at = end.saturating_sub(u64::try_from(size).unwrap_or(0));
        let window = window.get_mut(..size).unwrap_or_default();
        tail.read_at(at, window)?;
        if let Some(last) = window.iter().rposition(|byte| *byte != 0) {
            return Ok(at.saturating_add(u64::try_from(last).unwrap_or(0)).saturating_add(1));
        }
        end = at;
    }
    Ok(position)
}
