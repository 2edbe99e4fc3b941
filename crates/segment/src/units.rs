//! Sizes in memory and positions in files, each as the other, and the blocks that positions lie in.

use crate::io::BLOCK_SIZE;

/// A size in memory as one on the disk.
pub(crate) fn to_u64(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

/// A size on the disk as one in memory: the largest there is, where it is more.
pub(crate) fn to_usize(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// Where the block starts in which a position lies.
pub(crate) fn block_start(position: u64) -> u64 {
    position / BLOCK_SIZE * BLOCK_SIZE
}

/// Where the last block ends that holds something below a position.
#[cfg(target_os = "linux")]
pub(crate) fn block_end(position: u64) -> u64 {
    position.checked_next_multiple_of(BLOCK_SIZE).unwrap_or(u64::MAX)
}
