//! Directories and names: what is durable of them, and what a crash undoes.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    File(u64),
    Dir(u64),
}

#[derive(Debug, Clone, Default)]
pub(super) struct Directory {
    pub(super) durable: BTreeMap<String, Entry>,
    pub(super) live: BTreeMap<String, Entry>,
    pub(super) unsynced: Vec<NameChange>,
}

#[derive(Debug, Clone)]
pub(super) enum NameChange {
    Put(String, Entry),
    Remove(String),
    Move(String, String, Entry),
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, Entry>) {
        match self {
            NameChange::Put(name, entry) => {
                names.insert(name.clone(), *entry);
            }
            NameChange::Remove(name) => {
                names.remove(name);
            }
            NameChange::Move(from, to, entry) => {
                names.remove(from);
                names.insert(to.clone(), *entry);
            }
        }
    }
}

impl Directory {
    pub(super) fn change(&mut self, change: NameChange) {
        change.apply(&mut self.live);
        self.unsynced.push(change);
    }

    /// The names are durable as they are.
    pub(super) fn sync(&mut self) {
        self.unsynced.clear();
        self.durable = self.live.clone();
    }

    /// What is on the disk after a power cut: each change since the last sync as `is_kept` says.
    pub(super) fn crash(&mut self, mut is_kept: impl FnMut() -> bool) {
        for change in std::mem::take(&mut self.unsynced) {
            if is_kept() {
                change.apply(&mut self.durable);
            }
        }
        self.live = self.durable.clone();
    }
}
