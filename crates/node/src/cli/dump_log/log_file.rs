//! A segment's file, walked batch by batch without trusting any of it.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags, SeekFrom};
use weir_format::Offset;
use weir_recovery::MAX_UNSYNCED_BYTES;
use weir_recovery::tail::{InvalidPlace, TailRead, TailVerdict, judge_tail};

use crate::cli::inspect::MAX_SEGMENT_SIZE;

use weir_format::{BatchError, BatchHeader, FRAME_SIZE, HEADER_SIZE, frame_size, header_of};

/// How much is read at once where the amount does not matter.
const CHUNK: usize = 64 << 10;
/// What the length field of a batch does not count.
const LENGTH_COUNTS_FROM: u64 = 12;

/// A file opened for reading, and its size when it was opened.
#[derive(Debug)]
pub(super) struct LogFile {
    file: File,
    size: u64,
}

/// A batch's header, copied out of the file.
#[derive(Debug)]
pub(super) struct OwnedHeader([u8; HEADER_SIZE]);

impl OwnedHeader {
    pub(super) fn view(&self) -> BatchHeader<'_> {
        header_of(&self.0).expect("it was checked when it was copied")
    }
}

/// What stands at a position of a log.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing: the file ends here.
    End,
    /// A whole batch of magic 2, by its header.
    Batch { header: OwnedHeader, size: u64 },
    /// A whole message set of magic 0 or 1.
    Old { offset: i64, magic: i8, size: u64 },
    /// A whole batch whose header makes no sense.
    Unreadable { size: u64, reason: String },
    /// Zeros to the end: preallocated, and not written yet.
    Zeros { size: u64 },
    /// No whole batch starts here; as many bytes are left.
    Invalid { size: u64, reason: String },
}

impl LogFile {
    /// Opens a file for reading; what is none, a pipe for example, is an error, and nobody waits for its writer.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "it is no file"));
        }
        Ok(Self { file, size: metadata.len() })
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn into_file(self) -> File {
        self.file
    }

    /// What stands at `position`. Cost: one read, but for a tail that has to be looked through.
    pub(super) fn step(&self, position: u64) -> io::Result<Step> {
        let left = self.size.saturating_sub(position);
        if left == 0 {
            return Ok(Step::End);
        }
        let mut prefix = [0; HEADER_SIZE];
        let read = self.read_up_to(position, &mut prefix)?;
        let prefix = prefix.get(..read).unwrap_or_default();
        let size = match frame_size(prefix) {
            Ok(Some(size)) => size as u64,
            Ok(None) => return self.tail(position, left, format!("{read} bytes are no batch's frame")),
            Err(BatchError::UnsupportedMagic { magic }) => return self.old(position, left, prefix, magic),
            Err(error) => return self.tail(position, left, error.to_string()),
        };
        if size > left {
            return self.tail(position, left, format!("batch needs {size} bytes, {left} are there"));
        }
        let header = prefix.try_into().map(OwnedHeader);
        let Ok(header) = header else {
            return self.tail(position, left, format!("{read} bytes are no batch's header"));
        };
        Ok(match header_of(&header.0) {
            Ok(_) => Step::Batch { header, size },
            Err(error) => Step::Unreadable { size, reason: error.to_string() },
        })
    }

    /// What stands at `position`, if that is a whole batch or message. Cost: one read, whatever is there.
    pub(super) fn whole_at(&self, position: u64) -> Option<Step> {
        let mut prefix = [0; HEADER_SIZE];
        let read = self.read_up_to(position, &mut prefix).ok()?;
        match frame_size(prefix.get(..read)?) {
            Ok(Some(_)) | Err(BatchError::UnsupportedMagic { .. }) => {
                let left = self.size.saturating_sub(position);
                let length = i32::from_be_bytes(*prefix.get(8..)?.first_chunk::<4>()?);
                let size = u64::try_from(length).ok()?.saturating_add(LENGTH_COUNTS_FROM);
                if size <= left { self.step(position).ok() } else { None }
            }
            _ => None,
        }
    }

    /// Where the first valid batch begins at or behind `position`, if one does.
    pub(super) fn next_valid(&self, position: u64) -> io::Result<Option<u64>> {
        let place = InvalidPlace {
            position,
            next_offset: Offset::ZERO,
            recovery_point: Offset::ZERO,
            // The answer for a sealed segment says what lies behind, whatever it is.
            last_segment: false,
            max_unsynced: MAX_UNSYNCED_BYTES,
        };
        let size = self.size.min(position.saturating_add(MAX_SEGMENT_SIZE));
        Ok(match judge_tail(&mut Tail { file: &self.file, size }, &place)? {
            TailVerdict::Corrupt { behind, .. } => behind.map(|behind| behind.position),
            _ => None,
        })
    }

    fn old(&self, position: u64, left: u64, prefix: &[u8], magic: i8) -> io::Result<Step> {
        let Some([a, b, c, d, e, f, g, h, i, j, k, l, ..]) = prefix.first_chunk::<FRAME_SIZE>().copied()
        else {
            return self.tail(position, left, "no batch's frame".to_owned());
        };
        let offset = i64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let length = u64::try_from(i32::from_be_bytes([i, j, k, l])).unwrap_or(0);
        let size = length + LENGTH_COUNTS_FROM;
        if size > left {
            return self.tail(position, left, format!("message needs {size} bytes, {left} are there"));
        }
        Ok(Step::Old { offset, magic, size })
    }

    /// What is left is no batch: is it zeros?
    fn tail(&self, position: u64, size: u64, reason: String) -> io::Result<Step> {
        let mut chunk = vec![0; CHUNK];
        let mut at = position;
        while at < self.size {
            // What was never written reads as zeros, and may be of any size.
            match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(data) => at = data.max(at),
                Err(rustix::io::Errno::NXIO) => break,
                Err(_) => {}
            }
            let read = self.read_up_to(at, &mut chunk)?;
            if read == 0 {
                break;
            }
            if chunk.iter().take(read).any(|byte| *byte != 0) {
                return Ok(Step::Invalid { size, reason });
            }
            at += read as u64;
        }
        Ok(Step::Zeros { size })
    }

    /// Exactly `size` bytes, which must be within the file.
    pub(super) fn read(&self, position: u64, size: u64) -> io::Result<Vec<u8>> {
        let size = usize::try_from(size).map_err(io::Error::other)?;
        let mut bytes = vec![0; size];
        self.file.read_exact_at(&mut bytes, position)?;
        Ok(bytes)
    }

    /// Whether the CRC of a batch is right, without holding it.
    pub(super) fn crc_is_valid(&self, position: u64, size: u64) -> io::Result<bool> {
        let from = weir_format::crc::CRC_COVERS_FROM as u64;
        let stored: [u8; 4] = self.read(position + from - 4, 4)?.try_into().unwrap_or_default();
        let (mut at, end) = (position + from, position + size);
        let mut chunk = vec![0; CHUNK];
        let mut crc = 0;
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
            let into = chunk.get_mut(..want).unwrap_or_default();
            self.file.read_exact_at(into, at)?;
            crc = crc32c::crc32c_append(crc, into);
            at += want as u64;
        }
        Ok(u32::from_be_bytes(stored) == crc)
    }

    /// As many bytes as are there; fewer only at the end of the file.
    fn read_up_to(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, position + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // A file that grew since it was opened is read as far as it went then.
        let left = usize::try_from(self.size.saturating_sub(position)).unwrap_or(usize::MAX);
        Ok(filled.min(left))
    }
}

/// A file as the judge of torn tails sees it.
struct Tail<'a> {
    file: &'a File,
    size: u64,
}

impl TailRead for Tail<'_> {
    type Error = io::Error;

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&mut self, position: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, position)
    }
}
