//! The system calls that the standard library does not have, and what takes their place where they are not offered.

use std::fs::File;
use std::io::{IoSlice, Result};

/// What this system was found not to offer. Once off, off for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offered {
    /// Writes that leave nothing in the page cache (`RWF_DONTCACHE`).
    pub(super) uncached_writes: bool,
    /// Reads that answer at once or not at all (`RWF_NOWAIT`).
    pub(super) cached_reads: bool,
}

impl Offered {
    /// What this kernel may offer.
    pub(super) fn here() -> Offered {
        let linux = cfg!(target_os = "linux");
        Offered { uncached_writes: linux, cached_reads: linux }
    }
}

/// What a read says that answers at once. Linux 5.9 and 5.10 have it read nothing, as at the end of the file, where nothing is
/// in the page cache: see BUGS in preadv2(2).
#[cfg(target_os = "linux")]
fn known(count: usize, wanted: usize, is_at_end: impl FnOnce() -> Result<bool>) -> Result<Option<usize>> {
    Ok((count > 0 || wanted == 0 || is_at_end()?).then_some(count))
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io::IoSliceMut;

    use rustix::io::{Errno, ReadWriteFlags};

    use super::{File, IoSlice, Offered, Result, known};

    /// `RWF_DONTCACHE`, since Linux 6.14. Not yet named by the library.
    const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

    fn not_offered(error: Errno) -> bool {
        matches!(error, Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM)
    }

    /// One write of several buffers, one behind the other; with a hint that they are not to stay in the page cache.
    pub(in super::super) fn write(
        offered: &mut Offered,
        file: &File,
        at: u64,
        bytes: &[IoSlice<'_>],
        uncached: bool,
    ) -> Result<usize> {
        if uncached && offered.uncached_writes {
            match rustix::io::pwritev2(file, bytes, at, DONTCACHE) {
                Err(error) if not_offered(error) => offered.uncached_writes = false,
                other => return Ok(other?),
            }
        }
        Ok(rustix::io::pwritev(file, bytes, at)?)
    }

    /// Reads what is in the page cache; `None` if nothing of it is, or this cannot be known.
    pub(in super::super) fn read_cached(
        offered: &mut Offered,
        file: &File,
        at: u64,
        into: &mut [u8],
    ) -> Result<Option<usize>> {
        if !offered.cached_reads {
            return Ok(None);
        }
        let wanted = into.len();
        match rustix::io::preadv2(file, &mut [IoSliceMut::new(into)], at, ReadWriteFlags::NOWAIT) {
            Ok(count) => known(count, wanted, || Ok(at >= file.metadata()?.len())),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) if not_offered(error) => {
                offered.cached_reads = false;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Gives back the pages of a file that are on the disk.
    pub(in super::super) fn forget_pages(file: &File) {
        // A hint, and no more.
        let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
    }
}

#[cfg(target_os = "linux")]
pub(super) use linux::{forget_pages, read_cached, write};

#[cfg(not(target_os = "linux"))]
mod other {
    use std::os::unix::fs::FileExt;

    use super::{File, IoSlice, Offered, Result};

    pub(in super::super) fn write(
        _: &mut Offered,
        file: &File,
        at: u64,
        bytes: &[IoSlice<'_>],
        _: bool,
    ) -> Result<usize> {
        // The first buffer that is not empty: the caller goes on behind it.
        match bytes.iter().find(|bytes| !bytes.is_empty()) {
            Some(bytes) => file.write_at(bytes, at),
            None => Ok(0),
        }
    }

    pub(in super::super) fn read_cached(
        _: &mut Offered,
        _: &File,
        _: u64,
        _: &mut [u8],
    ) -> Result<Option<usize>> {
        Ok(None)
    }

    pub(in super::super) fn forget_pages(_: &File) {}
}

#[cfg(not(target_os = "linux"))]
pub(super) use other::{forget_pages, read_cached, write};

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_read_of_nothing_is_an_answer_only_at_the_end() {
        let not_asked = || unreachable!("a count or no wish says enough");
        assert_eq!(known(5, 10, not_asked).unwrap(), Some(5));
        assert_eq!(known(0, 0, not_asked).unwrap(), Some(0));
        assert_eq!(known(0, 10, || Ok(true)).unwrap(), Some(0));
        assert_eq!(known(0, 10, || Ok(false)).unwrap(), None);
    }
}
