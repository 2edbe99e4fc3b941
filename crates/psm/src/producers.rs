//! The map from producer id to entry, laid out so that forgetting a million producers is cheap.

use std::collections::BTreeMap;

use weir_format::ProducerId;

use crate::entry::ProducerStateEntry;

/// Entries by producer id.
///
/// The entries lie in one vector and the tree holds only their places: an id costs about 250 bytes
/// whatever the insertion order, and dropping all of them frees few, large pieces. (One tree of
/// whole entries has 12 times the nodes' bytes to give back, and clients choose their ids, so a
/// hash map would need a hasher that they cannot steer.)
#[derive(Clone, Debug, Default)]
pub(crate) struct Producers {
    /// INVARIANT: a permutation of `0..entries.len()`.
    places: BTreeMap<ProducerId, u32>,
    entries: Vec<ProducerStateEntry>,
}

impl Producers {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn get(&self, producer_id: ProducerId) -> Option<&ProducerStateEntry> {
        self.places.get(&producer_id).and_then(|place| self.entry_at(*place))
    }

    /// The entry of this producer; an empty one if there was none.
    pub(crate) fn entry(&mut self, producer_id: ProducerId) -> &mut ProducerStateEntry {
        let next = u32::try_from(self.entries.len()).expect("fewer than 2^32 producers");
        let place = *self.places.entry(producer_id).or_insert(next);
        if place == next {
            // A vector doubles by itself; an eighth keeps the bytes per id within bounds.
            if self.entries.len() == self.entries.capacity() {
                self.entries.reserve_exact((self.entries.len() >> 3).max(4));
            }
            self.entries.push(ProducerStateEntry::EMPTY);
        }
        usize::try_from(place)
            .ok()
            .and_then(|place| self.entries.get_mut(place))
            .expect("every place has its entry")
    }

    /// Ascending by producer id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ProducerId, &ProducerStateEntry)> {
        self.places.iter().filter_map(|(producer_id, place)| Some((*producer_id, self.entry_at(*place)?)))
    }

    /// Forgets all entries but those that `keep` names; returns how many went.
    ///
    /// Cost: nothing is copied when all stay.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(ProducerId, &ProducerStateEntry) -> bool) -> usize {
        let before = self.len();
        let stay: Vec<ProducerId> = self
            .iter()
            .filter_map(|(producer_id, entry)| keep(producer_id, entry).then_some(producer_id))
            .collect();
        if stay.len() != before {
            let mut kept = Self::default();
            kept.entries.reserve_exact(stay.len());
            for producer_id in stay {
                if let Some(entry) = self.get(producer_id) {
                    *kept.entry(producer_id) = entry.clone();
                }
            }
            *self = kept;
        }
        before.saturating_sub(self.len())
    }

    fn entry_at(&self, place: u32) -> Option<&ProducerStateEntry> {
        self.entries.get(usize::try_from(place).ok()?)
    }
}
