//! The map from producer id to entry, laid out so that forgetting a million producers is cheap.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use weir_format::{Offset, ProducerId};

use crate::entry::ProducerStateEntry;
use crate::snapshot::{Pieces, SnapshotPiece, encode_entry};

/// Where a producer's entry lies. Good until the next change of the [`Producers`] that it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u32);

impl Place {
    fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("fewer than 2^32 producers"))
    }

    fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// Three lines of a cache, and never a piece of a fourth: with many producers, fetching them is what a batch costs.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Slot {
    producer_id: ProducerId,
    entry: ProducerStateEntry,
    /// Nobody has it.
    vacant: bool,
}

impl Slot {
    fn of(producer_id: ProducerId, entry: ProducerStateEntry) -> Self {
        Self { producer_id, entry, vacant: false }
    }
}

/// Entries by producer id, of at most so many producers if there is a cap.
///
/// The entries lie in one vector and the tree holds only their places: an id costs about 250 bytes
/// whatever the insertion order, and dropping all of them frees few, large pieces. (One tree of
/// whole entries has 12 times the nodes' bytes to give back, and clients choose their ids, so a
/// hash map would need a hasher that they cannot steer.)
#[derive(Clone, Debug)]
pub(crate) struct Producers {
    /// INVARIANT: each place is below `slots.len()`, holds this id, and is not vacant.
    places: BTreeMap<ProducerId, Place>,
    slots: Vec<Slot>,
    /// Places that nobody has. Whoever is new takes one of these first.
    /// INVARIANT: every vacant slot is in here; what is not vacant, or not there any more, may be as well.
    vacant: Vec<Place>,
    cap: Option<Cap>,
    /// What a snapshot still needs, while one is encoded piece by piece.
    frozen: Option<Box<Frozen>>,
}

/// The state as it was when a snapshot of it was begun.
#[derive(Clone, Debug)]
struct Frozen {
    pieces: Pieces,
    /// Everybody up to this one is encoded; `None`: nobody.
    past: Option<ProducerId>,
    /// What was known of those behind it that changed since; `None`: they were not there.
    before: BTreeMap<ProducerId, Option<Vec<u8>>>,
}

/// Who goes first when there are too many.
#[derive(Clone, Debug)]
struct Cap {
    max: usize,
    /// INVARIANT: the rank and id of every producer without an open transaction.
    evictable: BTreeSet<(u64, ProducerId)>,
}

/// Where an entry stands in the order of eviction; `None` while its transaction is open.
///
/// It depends on nothing that a snapshot does not keep, so that a state which was loaded evicts
/// the same producers as one that saw every batch.
fn rank(entry: &ProducerStateEntry) -> Option<u64> {
    if entry.transaction_first_offset().is_some() {
        return None;
    }
    let behind = |last: Offset| last.get().unsigned_abs().saturating_add(1);
    Some(entry.last_offset().map_or(0, behind))
}

const _: () = assert!(size_of::<Slot>() == 192, "a producer's entry has three cache lines");

impl Producers {
    /// Nobody, and room for at most `max_producers`.
    pub(crate) fn new(max_producers: Option<usize>) -> Self {
        Self {
            places: BTreeMap::new(),
            slots: Vec::new(),
            vacant: Vec::new(),
            cap: max_producers.map(|max| Cap { max, evictable: BTreeSet::new() }),
            frozen: None,
        }
    }

    /// Entries in any order; the id of one that occurs twice is the error.
    ///
    /// Nobody is evicted: that happens with a batch, so that it depends on batches alone.
    pub(crate) fn load(
        max_producers: Option<usize>,
        entries: Vec<(ProducerId, ProducerStateEntry)>,
    ) -> Result<Self, ProducerId> {
        let mut loaded = Self::new(max_producers);
        let mut places: Vec<(ProducerId, Place)> =
            entries.iter().enumerate().map(|(index, (id, _))| (*id, Place::new(index))).collect();
        // Ours are sorted already, and sorted pairs are built into a tree at once.
        places.sort_unstable_by_key(|(producer_id, _)| *producer_id);
        let pairs = places.iter().zip(places.iter().skip(1));
        if let Some(((twice, _), _)) = pairs.into_iter().find(|((this, _), (next, _))| this == next) {
            return Err(*twice);
        }
        loaded.places = places.into_iter().collect();
        loaded.slots = entries.into_iter().map(|(producer_id, entry)| Slot::of(producer_id, entry)).collect();
        if let Some(cap) = &mut loaded.cap {
            cap.evictable =
                loaded.slots.iter().filter_map(|slot| Some((rank(&slot.entry)?, slot.producer_id))).collect();
        }
        Ok(loaded)
    }

    /// Nobody, with the same cap.
    pub(crate) fn emptied(&self) -> Self {
        Self::new(self.cap.as_ref().map(|cap| cap.max))
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Places, vacant ones included: what a look at everybody has to look at.
    pub(crate) fn place_count(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn get(&self, producer_id: ProducerId) -> Option<&ProducerStateEntry> {
        self.find(producer_id).map(|(_, entry)| entry)
    }

    pub(crate) fn find(&self, producer_id: ProducerId) -> Option<(Place, &ProducerStateEntry)> {
        let place = *self.places.get(&producer_id)?;
        Some((place, self.entry_at(place)?))
    }

    /// Changes the entry of a producer; `place` is where it was found, `None` if it was not, and
    /// then it is an empty one.
    ///
    /// Cost: no search in the tree if the place is known and there is no cap.
    /// # Panics
    /// If the place is another producer's.
    pub(crate) fn update<T>(
        &mut self,
        producer_id: ProducerId,
        place: Option<Place>,
        change: impl FnOnce(&mut ProducerStateEntry) -> T,
    ) -> T {
        let known = place.is_some();
        if self.frozen.is_some() {
            self.keep_for_snapshot(producer_id, place);
        }
        let place = place.unwrap_or_else(|| self.insert(producer_id));
        let slot = self.slots.get_mut(place.index()).expect("a place that was found is there");
        assert_eq!(slot.producer_id, producer_id, "a place belongs to the producer it was found for");
        let Some(cap) = &mut self.cap else {
            return change(&mut slot.entry);
        };
        let before = if known { rank(&slot.entry) } else { None };
        let result = change(&mut slot.entry);
        let after = rank(&slot.entry);
        if before != after {
            if let Some(before) = before {
                cap.evictable.remove(&(before, producer_id));
            }
            if let Some(after) = after {
                cap.evictable.insert((after, producer_id));
            }
        }
        result
    }

    fn insert(&mut self, producer_id: ProducerId) -> Place {
        let slot = Slot::of(producer_id, ProducerStateEntry::EMPTY);
        let place = match self.take_vacant() {
            Some(place) => {
                *self.slots.get_mut(place.index()).expect("a vacant place is there") = slot;
                place
            }
            None => {
                // A vector doubles by itself; an eighth keeps the bytes per id within bounds.
                if self.slots.len() == self.slots.capacity() {
                    self.slots.reserve_exact((self.slots.len() >> 3).max(4));
                }
                let place = Place::new(self.slots.len());
                self.slots.push(slot);
                place
            }
        };
        let before = self.places.insert(producer_id, place);
        assert_eq!(before, None, "a producer that was not found is not there");
        place
    }

    fn take_vacant(&mut self) -> Option<Place> {
        while let Some(place) = self.vacant.pop() {
            if self.slots.get(place.index()).is_some_and(|slot| slot.vacant) {
                return Some(place);
            }
        }
        None
    }

    fn vacate(&mut self, place: Place) {
        self.slots.get_mut(place.index()).expect("whoever goes was somewhere").vacant = true;
        self.vacant.push(place);
    }

    /// Forgets who is too many, lowest last offset first; never one with an open transaction, nor
    /// `keep`, whose batch it was. Returns how many went.
    pub(crate) fn evict(&mut self, keep: ProducerId) -> usize {
        let mut evicted = 0_usize;
        while let Some(cap) = &mut self.cap
            && self.places.len() > cap.max
        {
            let first = cap.evictable.iter().find(|(_, producer_id)| *producer_id != keep);
            let Some(victim) = first.copied() else { break };
            cap.evictable.remove(&victim);
            let place = self.places.get(&victim.1).copied().expect("whoever may go is there");
            if self.frozen.is_some() {
                self.keep_for_snapshot(victim.1, Some(place));
            }
            self.places.remove(&victim.1);
            self.vacate(place);
            evicted = evicted.saturating_add(1);
        }
        evicted
    }

    /// Ascending by producer id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ProducerId, &ProducerStateEntry)> {
        self.places.iter().filter_map(|(producer_id, place)| Some((*producer_id, self.entry_at(*place)?)))
    }

    /// Forgets the entries that `unwanted` names; returns how many. No snapshot is under way.
    ///
    /// Cost: one look at each entry; entries move only if most of them go, and then their memory
    /// is given back.
    pub(crate) fn forget(&mut self, unwanted: impl Fn(ProducerId, &ProducerStateEntry) -> bool) -> usize {
        let before = self.len();
        // In the order in which they lie, since that is how memory likes to be read.
        let going: Vec<bool> =
            self.slots.iter().map(|slot| !slot.vacant && unwanted(slot.producer_id, &slot.entry)).collect();
        let goes = |place: Place| going.get(place.index()).copied().unwrap_or(false);
        match going.iter().filter(|goes| **goes).count() {
            0 => return 0,
            count if count > self.slots.len() >> 1 => self.keep_few(goes),
            _ => {
                let Self { places, slots, vacant, cap, .. } = self;
                places.retain(|producer_id, place| {
                    let going = goes(*place);
                    if going && let Some(slot) = slots.get_mut(place.index()) {
                        slot.vacant = true;
                        vacant.push(*place);
                        if let (Some(cap), Some(rank)) = (cap.as_mut(), rank(&slot.entry)) {
                            cap.evictable.remove(&(rank, *producer_id));
                        }
                    }
                    !going
                });
            }
        }
        before.saturating_sub(self.len())
    }

    /// As [`forget`](Self::forget), of `count` places from the one of this number on; returns how
    /// many went, and the number of the place behind them, `None` if there is none.
    ///
    /// Cost: one look at each of these entries, one search in the tree for each that goes.
    pub(crate) fn forget_some(
        &mut self,
        from: usize,
        count: usize,
        unwanted: impl Fn(ProducerId, &ProducerStateEntry) -> bool,
    ) -> (usize, Option<usize>) {
        let end = from.saturating_add(count).min(self.slots.len());
        let mut gone = 0_usize;
        for index in from..end {
            let Some(slot) = self.slots.get(index) else { break };
            if slot.vacant || !unwanted(slot.producer_id, &slot.entry) {
                continue;
            }
            let (producer_id, rank) = (slot.producer_id, rank(&slot.entry));
            if let (Some(cap), Some(rank)) = (&mut self.cap, rank) {
                cap.evictable.remove(&(rank, producer_id));
            }
            let place = self.places.remove(&producer_id).expect("a slot that is not vacant has a place");
            self.vacate(place);
            gone = gone.saturating_add(1);
        }
        (gone, (end < self.slots.len()).then_some(end))
    }

    /// Whether most places are vacant, so that giving back their memory is worth the moves.
    pub(crate) fn is_mostly_vacant(&self) -> bool {
        self.places.len() < self.slots.len() >> 1
    }

    /// Moves the entries that lie last to vacant places, at most so many, and gives back the memory
    /// behind the last one once no place is vacant. False if there is more to do.
    pub(crate) fn compact(&mut self, count: usize) -> bool {
        for _ in 0..count {
            if self.slots.len() <= self.places.len() {
                break;
            }
            let Some(last) = self.slots.pop() else { break };
            if last.vacant {
                continue;
            }
            let place = self.take_vacant().expect("there are more places than producers");
            self.places.insert(last.producer_id, place);
            *self.slots.get_mut(place.index()).expect("a vacant place is there") = last;
        }
        if self.slots.len() > self.places.len() {
            return false;
        }
        self.vacant = Vec::new();
        self.slots.shrink_to(self.slots.len().saturating_add(self.slots.len() >> 3));
        true
    }

    /// From now on, until it is encoded, the state as it is now is kept for a snapshot at `offset`.
    pub(crate) fn freeze(&mut self, offset: Offset) {
        let pieces = Pieces::new(offset, self.len());
        self.frozen = Some(Box::new(Frozen { pieces, past: None, before: BTreeMap::new() }));
    }

    /// Ends a snapshot that is under way.
    pub(crate) fn thaw(&mut self) {
        self.frozen = None;
    }

    /// The offset of the snapshot that is under way.
    pub(crate) fn frozen_at(&self) -> Option<Offset> {
        self.frozen.as_ref().map(|frozen| frozen.pieces.offset())
    }

    /// The next piece of the snapshot that is under way, of at most so many producers; the last one
    /// ends it.
    pub(crate) fn snapshot_piece(&mut self, count: usize) -> Option<SnapshotPiece> {
        let frozen = self.frozen.as_mut()?;
        let behind = (frozen.past.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let mut now = self.places.range(behind).peekable();
        let mut before = frozen.before.range(behind).peekable();
        let mut bytes = Vec::new();
        let mut past = frozen.past;
        for _ in 0..count {
            // Whoever changed is written as it was, whoever did not as it is.
            let changed = before.next_if(|(id, _)| now.peek().is_none_or(|(other, _)| *id <= *other));
            if let Some((producer_id, entry)) = changed {
                let _as_it_is = now.next_if(|(id, _)| *id == producer_id);
                bytes.extend(entry.iter().flatten());
                past = Some(*producer_id);
                continue;
            }
            let Some((producer_id, place)) = now.next() else { break };
            let slot = self.slots.get(place.index()).expect("a place of a producer is there");
            encode_entry(*producer_id, &slot.entry, &mut bytes);
            past = Some(*producer_id);
        }
        let is_last = past == frozen.past;
        frozen.past = past;
        if is_last {
            let frozen = self.frozen.take()?;
            return Some(frozen.pieces.header());
        }
        Some(frozen.pieces.entries(bytes))
    }

    /// Before a producer changes or goes; `place` is `None` if it is new.
    #[cold]
    fn keep_for_snapshot(&mut self, producer_id: ProducerId, place: Option<Place>) {
        let Some(frozen) = &mut self.frozen else { return };
        if frozen.past.is_some_and(|past| producer_id <= past) {
            return;
        }
        let slot = place.and_then(|place| self.slots.get(place.index()));
        frozen.before.entry(producer_id).or_insert_with(|| {
            let mut bytes = Vec::new();
            encode_entry(producer_id, &slot?.entry, &mut bytes);
            Some(bytes)
        });
    }

    fn keep_few(&mut self, goes: impl Fn(Place) -> bool) {
        let stay: Vec<(ProducerId, ProducerStateEntry)> = self
            .places
            .iter()
            .filter(|(_, place)| !goes(**place))
            .filter_map(|(producer_id, place)| Some((*producer_id, self.entry_at(*place)?.clone())))
            .collect();
        let max = self.cap.as_ref().map(|cap| cap.max);
        *self = Self::load(max, stay).expect("no id is here twice");
    }

    fn entry_at(&self, place: Place) -> Option<&ProducerStateEntry> {
        self.slots.get(place.index()).map(|slot| &slot.entry)
    }
}
