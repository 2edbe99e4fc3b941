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
    /// A sync of a whole file system that reports the failures of its files.
    pub(super) file_system_sync: bool,
}

impl Offered {
    /// What this kernel may offer.
    pub(super) fn here() -> Offered {
        let linux = cfg!(target_os = "linux");
        Offered { uncached_writes: linux, cached_reads: linux, file_system_sync: linux && syncfs_reports() }
    }
}

/// Whether `syncfs` reports failed writes: since Linux 5.8. Before, its success means little.
fn syncfs_reports() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    at_least(&release, (5, 8))
}

fn at_least(release: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= wanted
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io::IoSliceMut;

    use rustix::io::{Errno, ReadWriteFlags};

    use super::{File, IoSlice, Offered, Result};

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
        match rustix::io::preadv2(file, &mut [IoSliceMut::new(into)], at, ReadWriteFlags::NOWAIT) {
            Ok(count) => Ok(Some(count)),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) if not_offered(error) => {
                offered.cached_reads = false;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a whole file system durable.
    pub(in super::super) fn sync_file_system(any_file: &File) -> Result<()> {
        loop {
            match rustix::fs::syncfs(any_file) {
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Gives back the pages of a file that are on the disk.
    pub(in super::super) fn forget_pages(file: &File) {
        // A hint, and no more.
        let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
    }

    /// The file system that a file is on.
    pub(in super::super) fn device(file: &File) -> Option<u64> {
        use std::os::unix::fs::MetadataExt;
        file.metadata().ok().map(|metadata| metadata.dev())
    }
}

#[cfg(target_os = "linux")]
pub(super) use linux::{device, forget_pages, read_cached, sync_file_system, write};

#[cfg(not(target_os = "linux"))]
mod other {
    use std::io::ErrorKind;
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

    pub(in super::super) fn sync_file_system(_: &File) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    pub(in super::super) fn forget_pages(_: &File) {}

    pub(in super::super) fn device(_: &File) -> Option<u64> {
        None
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) use other::{device, forget_pages, read_cached, sync_file_system, write};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_as_numbers() {
        for (release, enough) in [
            ("6.18.44-x", true),
            ("5.8.0", true),
            ("5.10", true),
            ("5.7.19", false),
            ("4.19-1", false),
            ("", false),
        ] {
            assert_eq!(at_least(release, (5, 8)), enough, "{release:?}");
        }
    }
}
