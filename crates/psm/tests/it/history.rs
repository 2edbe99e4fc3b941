//! Random histories, made so that most steps are nearly right.

use proptest::prelude::*;

use crate::model::{Event, Model};
use crate::support::{Data, Marker, barrier};

pub(crate) const IDS: std::ops::Range<i64> = 0..5;

/// A batch, relative to what its producer did so far.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Batch {
    Data { id: i64, epoch: Rel, seq: Rel, count: i32, transactional: bool, emptied: bool },
    Marker { id: i64, epoch: Rel, coordinator: Rel, commit: bool },
    Barrier,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Rel {
    Same,
    Next,
    Back,
    Zero,
    /// Close to the wrap.
    Large,
}

pub(crate) fn rel() -> impl Strategy<Value = Rel> {
    prop_oneof![
        6 => Just(Rel::Next),
        3 => Just(Rel::Same),
        1 => Just(Rel::Back),
        2 => Just(Rel::Zero),
        1 => Just(Rel::Large),
    ]
}

pub(crate) fn epoch() -> impl Strategy<Value = Rel> {
    prop_oneof![8 => Just(Rel::Same), 2 => Just(Rel::Next), 1 => Just(Rel::Back)]
}

pub(crate) fn data() -> impl Strategy<Value = Batch> {
    (IDS, epoch(), rel(), 1..5_i32, any::<bool>(), prop::bool::weighted(0.1)).prop_map(
        |(id, epoch, seq, count, transactional, emptied)| Batch::Data {
            id,
            epoch,
            seq,
            count,
            transactional,
            emptied,
        },
    )
}

pub(crate) fn marker() -> impl Strategy<Value = Batch> {
    (IDS, epoch(), epoch(), any::<bool>()).prop_map(|(id, epoch, coordinator, commit)| Batch::Marker {
        id,
        epoch,
        coordinator,
        commit,
    })
}

pub(crate) fn batch() -> impl Strategy<Value = Batch> {
    prop_oneof![12 => data(), 6 => marker(), 1 => Just(Batch::Barrier)]
}

fn step(current: i64, rel: Rel, largest: i64) -> i64 {
    match rel {
        Rel::Same => current.max(0),
        Rel::Next => (current + 1).min(largest),
        Rel::Back => (current - 1).max(0),
        Rel::Zero => 0,
        Rel::Large => largest - 1,
    }
}

/// The epoch and first sequence that these mean for a producer, at this point of the history.
pub(crate) fn epoch_and_sequence(model: &Model, id: i64, epoch: Rel, seq: Rel) -> (i16, i32) {
    let known = model.producer(id);
    let current = known.as_ref().map_or(-1, |known| i64::from(known.epoch));
    let last = known.as_ref().and_then(|known| known.batches.last());
    let seq = match (seq, last) {
        // The same batch again.
        (Rel::Same, Some((first, ..))) => i64::from(*first),
        (Rel::Next, Some((_, i32::MAX, ..))) => 0,
        (seq, last) => step(last.map_or(-1, |last| i64::from(last.1)), seq, i64::from(i32::MAX)),
    };
    (step(current, epoch, 32_767) as i16, seq as i32)
}

/// The batch that this means, at this point of the history.
pub(crate) fn event(model: &Model, batch: Batch, timestamp: i64) -> Event {
    match batch {
        Batch::Data { id, epoch, seq, count, transactional, emptied } => {
            let (epoch, seq) = epoch_and_sequence(model, id, epoch, seq);
            let known = model.producer(id);
            let count = match known.as_ref().and_then(|known| known.batches.last()) {
                Some((first, last, ..)) if seq == *first && last >= first => last - first + 1,
                _ => count,
            };
            Event::Data(Data { pid: id, epoch, seq, count, transactional, timestamp, emptied })
        }
        Batch::Marker { id, epoch, coordinator, commit } => {
            let known = model.producer(id);
            let current = known.as_ref().map_or(-1, |known| i64::from(known.epoch));
            let current_coordinator = known.as_ref().map_or(-1, |known| i64::from(known.coordinator_epoch));
            Event::Marker(Marker {
                pid: id,
                epoch: step(current, epoch, 32_767) as i16,
                coordinator_epoch: step(current_coordinator, coordinator, 100) as i32,
                commit,
                timestamp,
            })
        }
        Batch::Barrier => Event::Barrier,
    }
}

pub(crate) fn bytes_of(event: &Event) -> Vec<u8> {
    match event {
        Event::Data(data) => data.bytes(),
        Event::Marker(marker) => marker.bytes(),
        Event::Barrier => barrier(),
    }
}
