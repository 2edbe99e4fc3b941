//! Aligned buffers that are used again: a [`BufferPool`] gives a [`PoolBuffer`], which is filled and frozen into
//! [`Bytes`], and comes back when the last of those is dropped.
//!
//! A backend that writes past the page cache takes such bytes without a copy ([`Io::write_alignment`]). No `unsafe`: a
//! buffer is one block longer than it has to be, and starts at the first aligned byte.
//!
//! ```
//! use weir_segment::io::buffer::BufferPool;
//!
//! let pool = BufferPool::new(1 << 20);
//! let mut buffer = pool.take(100_000);
//! assert_eq!(buffer.extend_from_slice(b"batch"), 5);
//! let bytes = buffer.freeze();
//! assert_eq!(bytes.as_ptr().addr() % 4096, 0);
//! drop(bytes);
//! pool.take(100_000);
//! assert_eq!(pool.counters().reused, 1);
//! ```
//!
//! [`Io::write_alignment`]: super::Io::write_alignment

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::units::to_u64;

/// What the first byte of every buffer is aligned to, and what every capacity is a multiple of, in bytes.
pub const ALIGNMENT: usize = 4096;

/// Capacity of the smallest class of buffers that is kept, in bytes.
pub const SMALLEST: usize = ALIGNMENT;

/// Capacity of the largest class of buffers that is kept, in bytes. Larger ones are made and freed.
pub const LARGEST: usize = 1 << 20;

/// 4 KiB, 8 KiB and so on to 1 MiB.
const CLASSES: usize = 9;

/// Aligned buffers, kept for the next use. A handle: clones share the buffers, from any thread.
#[derive(Clone)]
pub struct BufferPool {
    shared: Arc<Shared>,
}

struct Shared {
    kept: Mutex<Kept>,
    keep_size: usize,
    allocated: AtomicU64,
    reused: AtomicU64,
    freed: AtomicU64,
    live: AtomicU64,
    live_size: AtomicU64,
}

#[derive(Default)]
struct Kept {
    classes: [Vec<Storage>; CLASSES],
    size: usize,
}

/// Memory of one buffer. `start` is its first aligned byte.
#[derive(Default)]
struct Storage {
    bytes: Vec<u8>,
    start: usize,
    capacity: usize,
}

/// What a pool has done and holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BufferCounters {
    /// How many buffers were made.
    pub allocated: u64,
    /// How many were used again instead.
    pub reused: u64,
    /// How many were given back to the allocator.
    pub freed: u64,
    /// How many are in use now, as a [`PoolBuffer`] or as [`Bytes`].
    pub live: u64,
    /// Capacity of those in use, in bytes.
    pub live_size: u64,
    /// Capacity of those kept for the next use, in bytes.
    pub kept_size: u64,
}

/// The class with room for `capacity`, and its capacity.
fn class_of(capacity: usize) -> Option<(usize, usize)> {
    (0..CLASSES).map(|class| (class, SMALLEST << class)).find(|(_, size)| capacity <= *size)
}

impl Storage {
    fn new(capacity: usize) -> Storage {
        // The length never changes, so the memory never moves.
        let bytes = vec![0; capacity + ALIGNMENT];
        let start = bytes.as_ptr().addr().next_multiple_of(ALIGNMENT) - bytes.as_ptr().addr();
        Storage { bytes, start, capacity }
    }
}

impl BufferPool {
    /// A pool without buffers, which keeps at most `keep_size` bytes of them for the next use.
    pub fn new(keep_size: usize) -> BufferPool {
        BufferPool {
            shared: Arc::new(Shared {
                kept: Mutex::default(),
                keep_size,
                allocated: AtomicU64::new(0),
                reused: AtomicU64::new(0),
                freed: AtomicU64::new(0),
                live: AtomicU64::new(0),
                live_size: AtomicU64::new(0),
            }),
        }
    }

    /// An empty buffer with room for at least `capacity` bytes.
    ///
    /// Inputs: `capacity` sizes an allocation, so it must not come from outside unchecked.
    /// Cost: none if one of its class (4 KiB to 1 MiB, powers of two) is kept, else one allocation.
    pub fn take(&self, capacity: usize) -> PoolBuffer {
        let shared = &self.shared;
        let kept = class_of(capacity).and_then(|(class, size)| {
            let mut kept = shared.kept();
            let storage = kept.classes.get_mut(class)?.pop()?;
            kept.size -= size;
            Some(storage)
        });
        let storage = match kept {
            Some(storage) => {
                shared.reused.fetch_add(1, Ordering::Relaxed);
                storage
            }
            None => {
                shared.allocated.fetch_add(1, Ordering::Relaxed);
                let exact = capacity.next_multiple_of(ALIGNMENT);
                Storage::new(class_of(capacity).map_or(exact, |(_, size)| size))
            }
        };
        shared.live.fetch_add(1, Ordering::Relaxed);
        shared.live_size.fetch_add(to_u64(storage.capacity), Ordering::Relaxed);
        PoolBuffer { storage, len: 0, shared: Arc::clone(shared) }
    }

    /// What it has done and holds.
    pub fn counters(&self) -> BufferCounters {
        let shared = &self.shared;
        BufferCounters {
            allocated: shared.allocated.load(Ordering::Relaxed),
            reused: shared.reused.load(Ordering::Relaxed),
            freed: shared.freed.load(Ordering::Relaxed),
            live: shared.live.load(Ordering::Relaxed),
            live_size: shared.live_size.load(Ordering::Relaxed),
            kept_size: to_u64(shared.kept().size),
        }
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BufferPool").field(&self.counters()).finish()
    }
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, storage: Storage) {
        self.live.fetch_sub(1, Ordering::Relaxed);
        self.live_size.fetch_sub(to_u64(storage.capacity), Ordering::Relaxed);
        let class = class_of(storage.capacity).filter(|(_, size)| *size == storage.capacity);
        let mut kept = self.kept();
        let size = kept.size + storage.capacity;
        match class.and_then(|(class, _)| kept.classes.get_mut(class)) {
            Some(buffers) if size <= self.keep_size => {
                buffers.push(storage);
                kept.size = size;
            }
            _ => {
                drop(kept);
                self.freed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A buffer of a [`BufferPool`] while it is filled. Its first byte is aligned to [`ALIGNMENT`].
pub struct PoolBuffer {
    storage: Storage,
    len: usize,
    shared: Arc<Shared>,
}

impl PoolBuffer {
    /// How many bytes it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes it has room for, in all.
    pub fn capacity(&self) -> usize {
        self.storage.capacity
    }

    /// How many bytes more it has room for. It never grows.
    pub fn remaining(&self) -> usize {
        self.storage.capacity - self.len
    }

    /// Appends as many of `bytes` as fit, and says how many.
    #[must_use = "what did not fit is not in the buffer"]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.remaining());
        let at = self.storage.start + self.len;
        self.storage.bytes[at..at + count].copy_from_slice(&bytes[..count]);
        self.len += count;
        count
    }

    /// The bytes that it holds.
    pub fn as_slice(&self) -> &[u8] {
        &self.storage.bytes[self.storage.start..][..self.len]
    }

    /// All of its memory, to receive into; then [`PoolBuffer::set_len`]. What was not written holds bytes of earlier
    /// uses.
    pub fn as_mut_capacity(&mut self) -> &mut [u8] {
        &mut self.storage.bytes[self.storage.start..][..self.storage.capacity]
    }

    /// Says how many bytes of its memory count.
    ///
    /// # Panics
    /// If that is more than its capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.storage.capacity, "{len} bytes in a buffer of {}", self.storage.capacity);
        self.len = len;
    }

    /// The bytes, for good: shared without a copy, aligned at their start. The memory goes back to its pool with the last
    /// of them.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for PoolBuffer {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl Drop for PoolBuffer {
    fn drop(&mut self) {
        self.shared.give_back(std::mem::take(&mut self.storage));
    }
}

impl fmt::Debug for PoolBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolBuffer({} of {} bytes)", self.len, self.storage.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_hold_what_was_put_in() {
        let pool = BufferPool::new(16 << 20);
        for capacity in [0, 1, 4096, SMALLEST, SMALLEST + 1, LARGEST, LARGEST + 1, 3_000_000] {
            let mut buffer = pool.take(capacity);
            assert!(buffer.capacity() >= capacity && buffer.capacity().is_multiple_of(ALIGNMENT));
            let bytes: Vec<u8> = (0..=255).cycle().take(buffer.capacity() + 5).collect();
            assert_eq!(buffer.extend_from_slice(&bytes[..7]), 7.min(buffer.capacity()));
            assert_eq!(buffer.remaining(), buffer.capacity() - buffer.len());
            let (len, capacity) = (buffer.len(), buffer.capacity());
            assert_eq!(buffer.extend_from_slice(&bytes[len..]), capacity - len);
            assert_eq!(buffer.remaining(), 0);
            assert_eq!(buffer.as_slice(), &bytes[..capacity]);
            assert_eq!(buffer.as_slice().as_ptr().addr() % ALIGNMENT, 0);
            let frozen = buffer.freeze();
            assert_eq!(frozen.as_ptr().addr() % ALIGNMENT, 0);
            assert_eq!(frozen, bytes[..capacity]);
        }
        assert_eq!(pool.counters().live, 0);
        assert_eq!(pool.counters().live_size, 0);
    }

    #[test]
    fn a_buffer_comes_back_with_the_last_of_its_bytes() {
        let pool = BufferPool::new(1 << 20);
        let mut buffer = pool.take(10);
        assert_eq!(buffer.extend_from_slice(b"0123456789"), 10);
        let whole = buffer.freeze();
        let part = whole.slice(3..5);
        drop(whole);
        assert_eq!((pool.counters().live, pool.counters().kept_size), (1, 0));
        let thread = std::thread::Builder::new().spawn(move || assert_eq!(part, "34")).unwrap();
        thread.join().unwrap();
        assert_eq!((pool.counters().live, pool.counters().kept_size), (0, to_u64(SMALLEST)));
        let again = pool.take(SMALLEST);
        assert!(again.is_empty());
        let expected = BufferCounters {
            allocated: 1,
            reused: 1,
            freed: 0,
            live: 1,
            live_size: to_u64(SMALLEST),
            kept_size: 0,
        };
        assert_eq!(pool.counters(), expected);
    }

    #[test]
    fn the_classes_go_from_a_block_to_a_mebibyte() {
        assert_eq!(class_of(0), Some((0, SMALLEST)));
        assert_eq!(class_of(SMALLEST + 1), Some((1, 2 * SMALLEST)));
        assert_eq!(class_of(LARGEST), Some((CLASSES - 1, LARGEST)));
        assert_eq!(class_of(LARGEST + 1), None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let pool = BufferPool::new(3 * SMALLEST);
        let many: Vec<PoolBuffer> = (0..10).map(|_| pool.take(1)).collect();
        drop(many);
        drop(pool.take(LARGEST + 1));
        let counters = pool.counters();
        assert_eq!(counters.kept_size, to_u64(3 * SMALLEST));
        assert_eq!((counters.allocated, counters.freed, counters.live), (11, 8, 0));
    }

    #[test]
    fn memory_that_is_received_into_counts_as_far_as_it_is_said() {
        let pool = BufferPool::new(0);
        let mut buffer = pool.take(5);
        buffer.as_mut_capacity()[..3].copy_from_slice(b"abc");
        assert!(buffer.is_empty());
        buffer.set_len(2);
        assert_eq!(buffer.freeze(), "ab");
        assert!(std::panic::catch_unwind(|| BufferPool::new(0).take(5).set_len(SMALLEST + 1)).is_err());
    }
}
