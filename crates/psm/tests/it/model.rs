//! The naive model: it keeps the whole history and answers every question by reading it from the start.

use std::collections::{BTreeMap, BTreeSet};

use weir_psm::{Applied, CompletedTransaction};

use crate::support::{Data, Marker, offset, pid};

/// What was appended, and where it starts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Data(Data),
    Marker(Marker),
    Barrier,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Append,
    /// First and last offset of the original.
    Duplicate(i64, i64),
    Epoch,
    Sequence,
    TransactionState,
    Coordinator,
    NotVerified,
}

/// All that Kafka writes of a producer into a snapshot, and its window of batches as
/// (first sequence, last sequence, first offset, last offset).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Producer {
    pub(crate) epoch: i16,
    pub(crate) coordinator_epoch: i32,
    pub(crate) last_timestamp: i64,
    pub(crate) open_since: Option<i64>,
    pub(crate) batches: Vec<(i32, i32, i64, i64)>,
}

/// What the coordinator was asked about a producer.
#[derive(Clone, Copy, Debug)]
struct Asked {
    guard: u64,
    epoch: i16,
    lowest_sequence: i32,
    version_2: bool,
    at: i64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) history: Vec<(i64, Event)>,
    pub(crate) end: i64,
    /// Where the log ended at the last restart, which left one batch of each producer's window.
    restarted_at: i64,
    /// How much of the history does not count for a producer, since it expired or was evicted then.
    forgotten: BTreeMap<i64, usize>,
    /// How many producers are remembered.
    max_producers: Option<usize>,
    asked: BTreeMap<i64, Asked>,
    guards_made: u64,
}

/// Whether one sequence of a producer comes before another that it has in flight: they wrap behind 2^31 - 1.
fn comes_before(one: i32, other: i32) -> bool {
    let up = (i64::from(other) - i64::from(one)).rem_euclid(1 << 31);
    (1..1 << 30).contains(&up)
}

impl Model {
    pub(crate) fn new(max_producers: Option<usize>) -> Self {
        Self { max_producers, ..Self::default() }
    }

    pub(crate) fn append(&mut self, event: Event) {
        self.history.push((self.end, event));
        self.end += match event {
            Event::Data(data) => i64::from(data.count),
            Event::Marker(_) | Event::Barrier => 1,
        };
        match event {
            Event::Data(Data { pid, transactional: true, .. }) | Event::Marker(Marker { pid, .. }) => {
                self.asked.remove(&pid);
            }
            Event::Data(_) => {}
            Event::Barrier => self.asked.clear(),
        }
        if let (Some(max), Event::Data(Data { pid, .. }) | Event::Marker(Marker { pid, .. })) =
            (self.max_producers, event)
        {
            self.evict(max, pid);
        }
    }

    fn evict(&mut self, max: usize, newest: i64) {
        loop {
            let known = self.known();
            let victim = known
                .iter()
                .filter(|(id, producer)| *id != newest && producer.open_since.is_none())
                .min_by_key(|(id, producer)| (producer.batches.last().map_or(-1, |batch| batch.3), *id));
            match victim {
                Some((victim, _)) if known.len() > max => self.forget(*victim),
                _ => return,
            }
        }
    }

    fn forget(&mut self, id: i64) {
        self.forgotten.insert(id, self.history.len());
    }

    /// Who is known, and what.
    pub(crate) fn known(&self) -> Vec<(i64, Producer)> {
        let ids: BTreeSet<i64> = self
            .history
            .iter()
            .filter_map(|(_, event)| match event {
                Event::Data(Data { pid, .. }) | Event::Marker(Marker { pid, .. }) => Some(*pid),
                Event::Barrier => None,
            })
            .collect();
        ids.into_iter().filter_map(|id| Some((id, self.producer(id)?))).collect()
    }

    /// Who was idle for so long is forgotten; how many.
    pub(crate) fn expire(&mut self, now: i64, limit: i64, high_watermark: i64) -> usize {
        self.asked.retain(|_, asked| now - asked.at < limit);
        let idle: Vec<i64> = self
            .known()
            .into_iter()
            .filter(|(id, producer)| {
                let in_flight = producer.batches.last().is_some_and(|batch| batch.3 >= high_watermark)
                    || self.asked.contains_key(id);
                now - producer.last_timestamp >= limit && producer.open_since.is_none() && !in_flight
            })
            .map(|(id, _)| id)
            .collect();
        for id in &idle {
            self.forget(*id);
        }
        idle.len()
    }

    pub(crate) fn restart(&mut self) {
        self.restarted_at = self.end;
        self.asked.clear();
    }

    /// Everything is gone, and the log starts at its end.
    pub(crate) fn clear(&mut self) {
        let Self { end, max_producers, guards_made, .. } = *self;
        *self = Self { end, max_producers, guards_made, ..Self::default() };
    }

    /// Guards are never alike, whatever was cut from the log.
    pub(crate) fn keep_counting_guards(&mut self, before: &Self) {
        self.guards_made = before.guards_made;
        self.asked.clear();
    }

    /// The question to the coordinator: which guard comes back, if there is something to ask.
    pub(crate) fn ask(
        &mut self,
        id: i64,
        epoch: i16,
        sequence: i32,
        version_2: bool,
        at: i64,
    ) -> Option<u64> {
        if self.is_open(id, epoch) {
            return None;
        }
        if let Some(asked) = self.asked.get_mut(&id) {
            if epoch > asked.epoch {
                (asked.epoch, asked.lowest_sequence) = (epoch, sequence);
            } else if epoch == asked.epoch && comes_before(sequence, asked.lowest_sequence) {
                asked.lowest_sequence = sequence;
            }
            return Some(asked.guard);
        }
        self.guards_made += 1;
        let asked = Asked { guard: self.guards_made, epoch, lowest_sequence: sequence, version_2, at };
        self.asked.insert(id, asked);
        Some(asked.guard)
    }

    fn is_open(&self, id: i64, epoch: i16) -> bool {
        self.producer(id).is_some_and(|known| known.open_since.is_some() && known.epoch == epoch)
    }

    /// What this producer wrote, or was written for it, since the last barrier.
    fn events_of(&self, id: i64) -> Vec<(i64, Event)> {
        let last_barrier = self.history.iter().rposition(|(_, event)| matches!(event, Event::Barrier));
        let first = last_barrier.map_or(0, |at| at + 1);
        let first = first.max(self.forgotten.get(&id).copied().unwrap_or(0));
        self.history[first..]
            .iter()
            .filter(|(_, event)| match event {
                Event::Data(data) => data.pid == id,
                Event::Marker(marker) => marker.pid == id,
                Event::Barrier => false,
            })
            .copied()
            .collect()
    }

    pub(crate) fn producer(&self, id: i64) -> Option<Producer> {
        let events = self.events_of(id);
        let epoch_of = |event: &Event| match event {
            Event::Data(data) => data.epoch,
            Event::Marker(marker) => marker.epoch,
            Event::Barrier => unreachable!("not of a producer"),
        };
        let (_, last) = events.last()?;
        let epoch = epoch_of(last);
        // The window: the data batches of the newest run of one epoch, at most five.
        let run = events.iter().rposition(|(_, event)| epoch_of(event) != epoch).map_or(0, |at| at + 1);
        let mut batches: Vec<_> = events[run..]
            .iter()
            .filter_map(|(base, event)| match event {
                Event::Data(data) => {
                    let last = i64::from(data.seq) + i64::from(data.count) - 1;
                    let last = if last > i64::from(i32::MAX) { last - (1 << 31) } else { last };
                    Some((data.seq, last as i32, *base, base + i64::from(data.count) - 1))
                }
                _ => None,
            })
            .collect();
        let before_restart = batches.iter().filter(|batch| batch.3 < self.restarted_at).count();
        batches.drain(..before_restart.saturating_sub(1));
        batches.drain(..batches.len().saturating_sub(5));
        let last_marker = events.iter().rposition(|(_, event)| matches!(event, Event::Marker(_)));
        let coordinator_epoch = last_marker.map_or(-1, |at| match events[at].1 {
            Event::Marker(marker) => marker.coordinator_epoch,
            _ => unreachable!("a marker"),
        });
        let open_since = events[last_marker.map_or(0, |at| at + 1)..]
            .iter()
            .find(|(_, event)| matches!(event, Event::Data(data) if data.transactional))
            .map(|(base, _)| *base);
        let last_timestamp = match last {
            Event::Data(data) => data.timestamp,
            Event::Marker(marker) => marker.timestamp,
            Event::Barrier => unreachable!("not of a producer"),
        };
        Some(Producer { epoch, coordinator_epoch, last_timestamp, open_since, batches })
    }

    /// What a leader says of a client's batch.
    pub(crate) fn client(&self, data: &Data) -> Verdict {
        self.of_client(data, None)
    }

    /// The same, of a leader that wants a guard.
    pub(crate) fn verified(&self, data: &Data, guard: Option<u64>) -> Verdict {
        self.of_client(data, Some(guard))
    }

    fn of_client(&self, data: &Data, guard: Option<Option<u64>>) -> Verdict {
        let asked = self.asked.get(&data.pid);
        let fits = |guard: Option<u64>| guard.is_some() && guard == asked.map(|asked| asked.guard);
        let missing = guard
            .is_some_and(|guard| data.transactional && !self.is_open(data.pid, data.epoch) && !fits(guard));
        let lost = |no_batch: bool| {
            asked.is_some_and(|asked| {
                (asked.version_2 && no_batch && data.seq != 0)
                    || comes_before(asked.lowest_sequence, data.seq)
            })
        };
        let Some(known) = self.producer(data.pid) else {
            return match (missing, lost(true)) {
                (true, _) => Verdict::NotVerified,
                (false, true) => Verdict::Sequence,
                (false, false) => Verdict::Append,
            };
        };
        let last = (i64::from(data.seq) + i64::from(data.count) - 1) % (1 << 31);
        if data.epoch == known.epoch
            && let Some(original) =
                known.batches.iter().find(|batch| batch.0 == data.seq && i64::from(batch.1) == last)
        {
            return Verdict::Duplicate(original.2, original.3);
        }
        if data.epoch < known.epoch {
            return Verdict::Epoch;
        }
        if missing {
            return Verdict::NotVerified;
        }
        if lost(known.batches.is_empty()) {
            return Verdict::Sequence;
        }
        let next = match known.batches.last() {
            Some((_, i32::MAX, ..)) => 0,
            Some((_, last, ..)) if data.epoch == known.epoch => last + 1,
            _ => 0,
        };
        if data.seq != next {
            return Verdict::Sequence;
        }
        if known.open_since.is_some() && !data.transactional {
            return Verdict::TransactionState;
        }
        Verdict::Append
    }

    /// What a leader says of a coordinator's marker.
    pub(crate) fn coordinator(&self, marker: &Marker, version_2: bool) -> Verdict {
        let Some(known) = self.producer(marker.pid) else { return Verdict::Append };
        let written_again = marker.epoch == known.epoch && known.open_since.is_none();
        let right =
            if version_2 { marker.epoch > known.epoch || written_again } else { marker.epoch >= known.epoch };
        if !right {
            return Verdict::Epoch;
        }
        if marker.coordinator_epoch < known.coordinator_epoch {
            return Verdict::Coordinator;
        }
        Verdict::Append
    }

    /// Everything that ended, in log order, with where it ended; and what is open.
    fn transactions(&self) -> (Vec<CompletedTransaction>, Vec<(i64, i64)>) {
        let mut ended = Vec::new();
        let mut open: Vec<(i64, i64)> = Vec::new();
        for (at, event) in &self.history {
            let mut end = |open: &mut Vec<(i64, i64)>, which: usize, aborted| {
                let (first, id) = open.remove(which);
                ended.push(CompletedTransaction {
                    producer_id: pid(id),
                    first_offset: offset(first),
                    last_offset: offset(*at),
                    aborted,
                    last_stable_offset: offset(open.iter().map(|open| open.0).min().unwrap_or(at + 1)),
                });
            };
            match event {
                Event::Data(data) => {
                    if data.transactional && open.iter().all(|open| open.1 != data.pid) {
                        open.push((*at, data.pid));
                    }
                }
                Event::Marker(marker) => {
                    if let Some(which) = open.iter().position(|open| open.1 == marker.pid) {
                        end(&mut open, which, !marker.commit);
                    }
                }
                Event::Barrier => {
                    while !open.is_empty() {
                        end(&mut open, 0, true);
                    }
                }
            }
        }
        (ended, open)
    }

    pub(crate) fn completed(&self) -> Vec<CompletedTransaction> {
        self.transactions().0
    }

    /// (first offset, producer id), ascending.
    pub(crate) fn open(&self) -> Vec<(i64, i64)> {
        self.transactions().1
    }

    pub(crate) fn last_stable_offset(&self, high_watermark: i64) -> i64 {
        let (ended, open) = self.transactions();
        ended
            .iter()
            .filter(|ended| ended.last_offset.get() >= high_watermark)
            .map(|ended| ended.first_offset.get())
            .chain(open.iter().map(|open| open.0))
            .chain([high_watermark])
            .min()
            .expect("the high watermark is one of them")
    }
}

/// The transactions that a list of commits ended, in order.
pub(crate) fn completed_of(applied: &[Applied]) -> Vec<CompletedTransaction> {
    applied
        .iter()
        .flat_map(|applied| {
            let at_barrier = applied.barrier.iter().flat_map(|barrier| barrier.transactions_aborted.clone());
            applied.completed.into_iter().chain(at_barrier)
        })
        .collect()
}
