//! Who is forgotten without a barrier: by the clock, and by the cap.

use std::time::Duration;

use weir_format::TimestampMs;
use weir_psm::{PsmConfig, TransactionVersion};

use crate::support::{Data, Gate, Outcome, commit, data, offset};

fn capped(max: usize) -> Gate {
    Gate::with(PsmConfig { max_producers: Some(max), ..PsmConfig::default() })
}

fn hour() -> Gate {
    Gate::with(PsmConfig { producer_id_expiration: Duration::from_secs(3_600), ..PsmConfig::default() })
}

/// A client may send a batch again until it is acknowledged, and records may be of last year.
#[test]
fn a_request_in_flight_keeps_its_producer() {
    let late = TimestampMs::new(1_767_225_600_000);
    let mut gate = hour();
    gate.client(data(5, 0, 0, 3).at(0)).applied();
    gate.client(data(6, 0, 0, 1).at(0)).applied();
    assert_eq!(gate.psm.expire(late), 0, "neither is acknowledged");
    gate.psm.on_high_watermark(offset(3));
    assert_eq!((gate.psm.expire(late), gate.ids()), (1, vec![6]));
    gate.psm.on_high_watermark(offset(4));
    assert_eq!((gate.psm.expire(late), gate.ids()), (1, vec![]));
    // What a load brings is in the log, and how far it is acknowledged is said anew.
    gate.client(data(7, 0, 0, 1).at(0)).applied();
    let snapshot = gate.psm.snapshot();
    let mut loaded = hour();
    loaded.psm.load_snapshot(&snapshot, offset(5)).expect("we wrote it");
    assert_eq!(loaded.psm.expire(late), 0);
    loaded.psm.on_high_watermark(offset(5));
    assert_eq!(loaded.psm.expire(late), 1);
}

/// A high watermark from before a truncation says nothing about what is written after it.
#[test]
fn a_truncation_takes_back_what_was_acknowledged() {
    let late = TimestampMs::new(1_767_225_600_000);
    let mut gate = hour();
    gate.client(data(5, 0, 0, 9).at(0)).applied();
    gate.psm.on_high_watermark(offset(9));
    gate.psm.truncate_fully_and_start_at(offset(2));
    gate.client(data(6, 0, 0, 3).at(0)).applied();
    assert_eq!(gate.psm.expire(late), 0);
    gate.psm.on_high_watermark(offset(5));
    assert_eq!(gate.psm.expire(late), 1);
}

/// Few of many, most of many, all: those who stay are known as before.
#[test]
fn whoever_stays_when_others_expire_is_known_as_before() {
    for going in [1, 30, 64, 99, 100] {
        let mut gate = hour();
        for id in 0..100 {
            let at = if id * 7 % 100 < going { 0 } else { 3_600_000 };
            gate.client(data(id, 0, 0, 2).at(at)).applied();
        }
        gate.psm.on_high_watermark(offset(gate.end()));
        let stay: Vec<i64> = (0..100).filter(|id| id * 7 % 100 >= going).collect();
        let gone = gate.psm.expire(TimestampMs::new(3_600_000));
        assert_eq!((gone, gate.ids()), (going as usize, stay.clone()));
        for id in 0..100 {
            // Who is known has to go on where it was; the place of who is not goes to whoever comes.
            let outcome = gate.client(data(id, 0, 40, 1));
            let known = matches!(outcome, Outcome::Refused(_));
            assert_eq!(known, stay.contains(&id), "{going}: {id} {outcome:?}");
            if known {
                gate.client(data(id, 0, 2, 1)).applied();
                assert!(matches!(gate.client(data(id, 0, 0, 2)), Outcome::Duplicate(_)));
            }
        }
        assert_eq!(gate.ids(), (0..100).collect::<Vec<_>>());
        for id in 0..100 {
            let last = if stay.contains(&id) { 2 } else { 40 };
            assert_eq!(gate.producer(id).map(|known| known.1), Some(last), "{going}: {id}");
        }
    }
}

/// N-PID-8.
#[test]
fn above_the_cap_the_lowest_last_offset_goes() {
    let mut gate = capped(3);
    for id in [9, 4, 7] {
        assert_eq!(gate.client(data(id, 0, 0, 1)).applied().producers_evicted, 0);
    }
    // Producer 9 was first, and wrote again since.
    gate.client(data(9, 0, 1, 1)).applied();
    assert_eq!(gate.client(data(1, 0, 0, 1)).applied().producers_evicted, 1);
    assert_eq!(gate.ids(), [1, 7, 9]);
    assert_eq!(gate.mirrored(data(2, 0, 0, 1)).producers_evicted, 1);
    assert_eq!(gate.ids(), [1, 2, 9]);
    // Who was evicted starts anew; who was not goes on.
    assert_eq!(gate.client(data(4, 0, 55, 1)).applied().producers_evicted, 1);
    assert_eq!((gate.ids(), gate.producer(4)), (vec![1, 2, 4], Some((0, 55, 6))));
    assert!(matches!(gate.client(data(2, 0, 2, 1)), Outcome::Refused(_)));
}

#[test]
fn without_a_cap_nobody_is_evicted() {
    let mut gate = Gate::new();
    for id in 0..5_000 {
        assert_eq!(gate.mirrored(data(id, 0, 0, 1)).producers_evicted, 0);
    }
    assert_eq!(gate.psm.producer_count(), 5_000);
}

#[test]
fn an_open_transaction_is_never_evicted() {
    let mut gate = capped(2);
    for id in 1..5 {
        gate.client(data(id, 0, 0, 1).transactional()).applied();
    }
    assert_eq!(gate.ids(), [1, 2, 3, 4], "there are more than may be");
    gate.client(data(8, 0, 0, 1)).applied();
    assert_eq!(gate.ids(), [1, 2, 3, 4, 8], "nor is the one that just wrote");
    // Once it is ended, its turn comes by its last batch, and not by its marker.
    gate.append_marker(commit(3, 0, 0), TransactionVersion::Legacy).applied();
    assert_eq!(gate.ids(), [1, 2, 3, 4], "producer 8 goes, since 3 is the one that was written for");
    gate.append_marker(commit(2, 0, 0), TransactionVersion::Legacy).applied();
    assert_eq!(gate.ids(), [1, 2, 4]);
    let open: Vec<i64> = gate.psm.open_transactions().map(|open| open.producer_id.get()).collect();
    assert_eq!(open, [1, 4]);
}

/// A marker may leave an entry without a batch: that one goes first.
#[test]
fn an_entry_without_a_batch_is_the_lowest() {
    let mut gate = capped(2);
    gate.mirrored(data(1, 0, 0, 1));
    assert_eq!(gate.mirrored_marker(commit(2, 0, 0)).producers_evicted, 0, "not at once");
    gate.mirrored_marker(commit(3, 0, 0));
    assert_eq!(gate.ids(), [1, 3]);
    gate.mirrored(data(4, 0, 0, 1));
    assert_eq!(gate.ids(), [1, 4]);
}

/// Whom the cap costs is a function of the bytes, also behind a load of more than it allows.
#[test]
fn a_loaded_state_evicts_whom_the_live_one_does() {
    let mut gate = capped(2);
    gate.mirrored(data(1, 0, 0, 1).transactional());
    gate.mirrored(data(2, 0, 0, 1).transactional());
    gate.mirrored_marker(commit(3, 0, 0));
    let mut loaded = capped(2);
    loaded.psm.load_snapshot(&gate.psm.snapshot(), offset(3)).expect("we wrote it");
    for gate in [&mut gate, &mut loaded] {
        assert_eq!(gate.ids(), [1, 2, 3]);
        gate.mirrored(data(1, 0, 1, 1).transactional());
        assert_eq!(gate.ids(), [1, 2]);
    }
    // A cap that is lower than what a snapshot holds.
    let mut lowered = capped(1);
    let mut many = Gate::new();
    for id in 0..9 {
        many.mirrored(data(id, 0, 0, 1));
    }
    lowered.psm.load_snapshot(&many.psm.snapshot(), offset(9)).expect("we wrote it");
    assert_eq!(lowered.mirrored(data(3, 0, 1, 1)).producers_evicted, 8);
    assert_eq!(lowered.ids(), [3]);
}

/// A barrier and an expiry leave the order of eviction as right as before.
#[test]
fn the_cap_holds_behind_a_barrier_and_an_expiry() {
    let write = |gate: &mut Gate, data: Data| gate.client(data).applied().producers_evicted;
    let mut gate =
        Gate::with(PsmConfig { producer_id_expiration: Duration::from_millis(100), max_producers: Some(3) });
    for id in 0..3 {
        write(&mut gate, data(id, 0, 0, 1).at(0));
    }
    gate.barrier();
    for id in 3..6 {
        assert_eq!(write(&mut gate, data(id, 0, 0, 1).at(id * 50)), 0);
    }
    gate.psm.on_high_watermark(offset(gate.end()));
    assert_eq!(gate.psm.expire(TimestampMs::new(250)), 1);
    assert_eq!(write(&mut gate, data(8, 0, 0, 1)), 0);
    assert_eq!(write(&mut gate, data(9, 0, 0, 1)), 1);
    assert_eq!(gate.ids(), [5, 8, 9]);
    // And when most of them go at once.
    gate.psm.on_high_watermark(offset(gate.end()));
    assert_eq!(gate.psm.expire(TimestampMs::new(1_050)), 1);
    assert_eq!(gate.psm.expire(TimestampMs::new(9_999)), 2);
    for id in 0..3 {
        assert_eq!(write(&mut gate, data(id, 0, 7, 1)), 0);
    }
    assert_eq!(write(&mut gate, data(7, 0, 7, 1)), 1);
    assert_eq!(gate.ids(), [1, 2, 7]);
}

/// PID-14: a look at everybody in slices, between which batches come.
#[test]
fn a_look_in_slices_forgets_who_is_idle_and_nobody_else() {
    let mut gate = hour();
    for id in 0..100 {
        gate.client(data(id, 0, 0, 1).at(if id < 80 { 0 } else { 3_600_000 })).applied();
    }
    gate.psm.on_high_watermark(offset(100));
    gate.psm.start_expiry(TimestampMs::new(3_600_000));
    assert_eq!(gate.psm.expire_slice(30), 30);
    // One that was to go comes again before its turn, one that went comes as new, another is new.
    gate.client(data(60, 0, 1, 1).at(3_600_000)).applied();
    gate.client(data(3, 0, 7, 1).at(3_600_000)).applied();
    gate.client(data(500, 0, 0, 1).at(3_600_000)).applied();
    let mut gone = 30;
    for _ in 0..20 {
        gone += gate.psm.expire_slice(30);
    }
    assert!(!gate.psm.is_expiring(), "a look ends");
    let stay: Vec<i64> = [3, 60].into_iter().chain(80..100).chain([500]).collect();
    assert_eq!((gone, gate.ids()), (79, stay.clone()));
    // Entries were moved together, and are still whose they were.
    for id in stay {
        let known = gate.producer(id).map(|known| known.1);
        let expected = match id {
            3 => 7,
            60 => 1,
            _ => 0,
        };
        assert_eq!(known, Some(expected), "{id}");
        gate.client(data(id, 0, expected + 1, 1)).applied();
    }
    assert_eq!(gate.psm.expire_slice(30), 0, "nothing is under way");
}

/// A barrier ends a look: those behind it are others.
#[test]
fn a_look_ends_at_a_barrier() {
    let mut gate = hour();
    for id in 0..10 {
        gate.client(data(id, 0, 0, 1).at(0)).applied();
    }
    gate.psm.on_high_watermark(offset(10));
    gate.psm.start_expiry(TimestampMs::new(3_600_000));
    assert_eq!(gate.psm.expire_slice(4), 4);
    gate.barrier();
    assert!(!gate.psm.is_expiring());
    gate.client(data(9, 0, 0, 1).at(0)).applied();
    assert_eq!((gate.psm.expire_slice(4), gate.ids()), (0, vec![9]));
}

/// B7: what is written of a snapshot is of before the barrier, and nobody finishes it.
#[test]
fn a_snapshot_under_way_ends_at_a_barrier() {
    let mut gate = hour();
    gate.client(data(5, 0, 0, 3)).applied();
    gate.client(data(6, 0, 0, 3)).applied();
    assert!(gate.psm.start_snapshot());
    assert!(!gate.psm.start_snapshot(), "one at a time");
    assert!(gate.psm.snapshot_piece(1).is_some());
    assert_eq!(gate.psm.snapshot_under_way(), Some(offset(6)));
    gate.barrier();
    assert_eq!(gate.psm.snapshot_under_way(), None);
    assert!(gate.psm.snapshot_piece(1).is_none());
    assert!(gate.psm.start_snapshot(), "the next one may begin");
}
