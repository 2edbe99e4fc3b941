//! A bounded pool of descriptors behind [`FileId`]s (D12): least recently used first, what is idle and clean is given
//! back, and opened again by its backend when it is used.
//!
//! A descriptor is *pinned* while an operation of it is in flight, and *dirty* while something written through it was
//! not synced: an error that the kernel has not reported yet belongs to the open file. Neither is given back. Where
//! there are too many dirty ones, the backend syncs the one that [`Descriptors::oldest_dirty`] names and gives it back.

use std::collections::BTreeMap;

use super::FileId;

/// The descriptors that are held now, each of type `D`.
#[derive(Debug)]
pub(crate) struct Descriptors<D> {
    max: usize,
    clock: u64,
    held: BTreeMap<FileId, Held<D>>,
    // INVARIANT: `idle` and `dirty` hold exactly those of `held` that are not pinned, by when they were last used.
    idle: BTreeMap<u64, FileId>,
    dirty: BTreeMap<u64, FileId>,
}

#[derive(Debug)]
struct Held<D> {
    descriptor: D,
    last_used: u64,
    pins: usize,
    dirty: bool,
}

impl<D> Descriptors<D> {
    /// An empty pool that holds at most `max`, at least 1.
    pub(crate) fn new(max: usize) -> Descriptors<D> {
        let max = max.max(1);
        Descriptors { max, clock: 0, held: BTreeMap::new(), idle: BTreeMap::new(), dirty: BTreeMap::new() }
    }

    /// How many are held.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether one more would be more than the pool may hold.
    pub(crate) fn is_full(&self) -> bool {
        self.held.len() >= self.max
    }

    /// Takes a file's state out of the lists, changes it, and lists it by what it is then.
    fn change<T>(&mut self, file: FileId, change: impl FnOnce(&mut Held<D>) -> T) -> Option<T> {
        let held = self.held.get_mut(&file)?;
        self.idle.remove(&held.last_used);
        self.dirty.remove(&held.last_used);
        let result = change(held);
        if held.pins == 0 {
            let list = if held.dirty { &mut self.dirty } else { &mut self.idle };
            list.insert(held.last_used, file);
        }
        Some(result)
    }

    /// The descriptor of a file, if it is held: it is then the most recently used one.
    pub(crate) fn get(&mut self, file: FileId) -> Option<&D> {
        self.clock += 1;
        let now = self.clock;
        self.change(file, |held| held.last_used = now)?;
        self.held.get(&file).map(|held| &held.descriptor)
    }

    /// Holds a descriptor, idle and clean. [`Descriptors::make_room`] before.
    ///
    /// # Panics
    /// If one is held for this file: two descriptors of one file would hide each other's errors.
    pub(crate) fn insert(&mut self, file: FileId, descriptor: D) {
        self.clock += 1;
        let held = Held { descriptor, last_used: self.clock, pins: 0, dirty: false };
        self.idle.insert(held.last_used, file);
        let before = self.held.insert(file, held);
        assert!(before.is_none(), "{file} has two descriptors");
    }

    /// Gives idle and clean descriptors back until one more fits, or none is left: `gone` gets each.
    pub(crate) fn make_room(&mut self, mut gone: impl FnMut(FileId, D)) {
        while self.is_full() {
            let Some((_, file)) = self.idle.pop_first() else { return };
            if let Some(held) = self.held.remove(&file) {
                gone(file, held.descriptor);
            }
        }
    }

    /// The least recently used one that is dirty and not pinned.
    pub(crate) fn oldest_dirty(&self) -> Option<FileId> {
        self.dirty.values().next().copied()
    }

    /// An operation of this file begins: its descriptor stays until [`Descriptors::unpin`].
    pub(crate) fn pin(&mut self, file: FileId) {
        self.change(file, |held| held.pins += 1);
    }

    /// An operation of this file has ended.
    pub(crate) fn unpin(&mut self, file: FileId) {
        self.change(file, |held| held.pins = held.pins.saturating_sub(1));
    }

    /// Says whether something written to this file was not synced.
    pub(crate) fn set_dirty(&mut self, file: FileId, dirty: bool) {
        self.change(file, |held| held.dirty = dirty);
    }

    /// Gives a file's descriptor back, whatever its state.
    pub(crate) fn remove(&mut self, file: FileId) -> Option<D> {
        let held = self.held.remove(&file)?;
        self.idle.remove(&held.last_used);
        self.dirty.remove(&held.last_used);
        Some(held.descriptor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(pool: &mut Descriptors<u32>) -> Vec<(u64, u32)> {
        let mut gone = Vec::new();
        pool.make_room(|file, descriptor| gone.push((file.0, descriptor)));
        gone
    }

    #[test]
    fn the_least_recently_used_idle_descriptor_goes_first() {
        let mut pool = Descriptors::new(3);
        for file in 0..3 {
            assert_eq!(room(&mut pool), []);
            pool.insert(FileId(file), 10);
        }
        assert_eq!(pool.get(FileId(0)), Some(&10));
        assert_eq!(room(&mut pool), [(1, 10)]);
        pool.insert(FileId(3), 13);
        assert_eq!(pool.get(FileId(1)), None);
        assert_eq!(pool.len(), 3);
        assert_eq!(room(&mut pool), [(2, 10)]);
        assert_eq!(room(&mut pool), []);
    }

    #[test]
    fn what_is_pinned_or_dirty_stays() {
        let mut pool = Descriptors::new(1);
        for file in 0..3 {
            pool.insert(FileId(file), 0);
        }
        pool.pin(FileId(0));
        pool.pin(FileId(0));
        pool.set_dirty(FileId(1), true);
        assert_eq!(room(&mut pool), [(2, 0)]);
        assert_eq!(pool.oldest_dirty(), Some(FileId(1)));
        pool.pin(FileId(1));
        assert_eq!(pool.oldest_dirty(), None);
        pool.unpin(FileId(1));
        pool.unpin(FileId(0));
        assert_eq!(room(&mut pool), []);
        pool.unpin(FileId(0));
        assert_eq!(room(&mut pool), [(0, 0)]);
        pool.set_dirty(FileId(1), false);
        assert_eq!((pool.oldest_dirty(), room(&mut pool)), (None, vec![(1, 0)]));
    }

    #[test]
    fn a_removed_descriptor_is_in_no_list() {
        let mut pool = Descriptors::new(1);
        pool.insert(FileId(7), 1);
        pool.set_dirty(FileId(7), true);
        assert_eq!(pool.remove(FileId(7)), Some(1));
        assert_eq!((pool.remove(FileId(7)), pool.oldest_dirty(), pool.len()), (None, None, 0));
        // Of a file that is not held, nothing is listed.
        pool.pin(FileId(7));
        pool.set_dirty(FileId(7), true);
        assert_eq!((pool.oldest_dirty(), pool.len()), (None, 0));
    }
}
