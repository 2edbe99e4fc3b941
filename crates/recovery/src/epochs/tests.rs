use super::*;

fn offset(raw: i64) -> Offset {
    Offset::new(raw).unwrap()
}

fn epoch(raw: i32) -> LeaderEpoch {
    LeaderEpoch::new(raw).unwrap()
}

fn cache(entries: &[(i32, i64)]) -> LeaderEpochCache {
    let mut cache = LeaderEpochCache::new();
    for &(e, o) in entries {
        assert!(cache.assign(epoch(e), offset(o)));
    }
    cache
}

fn pairs(cache: &LeaderEpochCache) -> Vec<(i32, i64)> {
    cache.entries().iter().map(|entry| (entry.epoch.get(), entry.start_offset.get())).collect()
}

#[test]
fn an_epoch_is_assigned_once_and_later_batches_of_it_change_nothing() {
    let mut cache = cache(&[(0, 0), (3, 20)]);
    assert!(!cache.assign(epoch(3), offset(25)));
    assert_eq!(pairs(&cache), [(0, 0), (3, 20)]);
}

#[test]
fn an_epoch_without_records_gives_way_to_the_next_at_the_same_offset() {
    let mut cache = cache(&[(0, 0), (2, 30), (4, 60)]);
    assert!(cache.assign(epoch(6), offset(60)));
    assert_eq!(pairs(&cache), [(0, 0), (2, 30), (6, 60)]);
}

#[test]
fn a_contradicting_entry_drops_those_it_contradicts() {
    let mut by_epoch = cache(&[(0, 0), (3, 20), (5, 40)]);
    assert!(by_epoch.assign(epoch(3), offset(50)));
    assert_eq!(pairs(&by_epoch), [(0, 0), (3, 50)]);
    let mut by_offset = cache(&[(0, 0), (3, 20), (5, 40)]);
    assert!(by_offset.assign(epoch(6), offset(20)));
    assert_eq!(pairs(&by_offset), [(0, 0), (6, 20)]);
}

#[test]
fn end_offsets_follow_kip_279() {
    // TRUNC-8: the largest epoch not above the asked one, and its end.
    let leader = cache(&[(0, 0), (3, 20)]);
    let end = |e| leader.end_offset_for(epoch(e), offset(30)).map(|(e, o)| (e.get(), o.get()));
    assert_eq!(end(2), Some((0, 20)));
    assert_eq!(end(0), Some((0, 20)));
    assert_eq!(end(3), Some((3, 30)));
    assert_eq!(end(4), None);
    // Older than anything known: ends where the oldest known begins.
    let late = cache(&[(5, 100), (7, 150)]);
    assert_eq!(late.end_offset_for(epoch(2), offset(200)), Some((epoch(2), offset(100))));
    assert_eq!(LeaderEpochCache::new().end_offset_for(epoch(0), offset(5)), None);
}

#[test]
fn truncation_from_either_end_keeps_what_is_in_force() {
    let mut from_end = cache(&[(0, 0), (2, 30), (4, 60)]);
    assert!(from_end.truncate_from_end(offset(60)));
    assert_eq!(pairs(&from_end), [(0, 0), (2, 30)]);
    assert!(!from_end.truncate_from_end(offset(31)));

    let mut above = cache(&[(0, 0), (2, 30), (4, 60)]);
    assert!(!above.truncate_above(offset(60)));
    assert!(above.truncate_above(offset(59)));
    assert_eq!(pairs(&above), [(0, 0), (2, 30)]);

    let mut from_start = cache(&[(0, 0), (2, 30), (4, 60)]);
    assert!(from_start.truncate_from_start(offset(45)));
    assert_eq!(pairs(&from_start), [(2, 45), (4, 60)]);
    assert!(!from_start.truncate_from_start(offset(45)));
    assert!(!from_start.truncate_from_start(offset(10)));
}

#[test]
fn the_epoch_of_an_offset_is_the_one_in_force_there() {
    let cache = cache(&[(0, 10), (2, 30)]);
    assert_eq!(cache.epoch_for_offset(offset(9)), None);
    assert_eq!(cache.epoch_for_offset(offset(29)), Some(epoch(0)));
    assert_eq!(cache.epoch_for_offset(offset(30)), Some(epoch(2)));
}

#[test]
fn the_checkpoint_is_kafkas_text_and_a_spoilt_one_is_refused() {
    let cache = cache(&[(0, 0), (2, 30)]);
    assert_eq!(cache.encode(), b"0\n2\n0 0\n2 30\n");
    assert_eq!(LeaderEpochCache::decode(&cache.encode()), Ok(cache));
    assert_eq!(LeaderEpochCache::decode(b"0\n0\n"), Ok(LeaderEpochCache::new()));
    for spoilt in [
        &b""[..],
        b"1\n0\n",
        b"0\n",
        b"0\n1\n",
        b"0\n2\n0 0\n",
        b"0\n1\n0 0\n1 1\n",
        b"0\n1\n0\n",
        b"0\n1\n-1 0\n",
        b"0\n2\n0 0\n0 1\n",
        b"0\n2\n0 5\n1 5\n",
        b"0\n1\n0 \xff\n",
        b"0\n99999999999999999999\n",
        b"\0\0\0\0\0\0\0\0",
    ] {
        assert!(LeaderEpochCache::decode(spoilt).is_err(), "{spoilt:?}");
    }
}

#[test]
fn a_checkpoint_agrees_with_the_batches_or_is_called_wrong() {
    let mut witness = EpochWitness::default();
    for (e, base, next) in [(0, 5, 10), (0, 10, 30), (2, 35, 60), (6, 60, 61)] {
        witness.observe(LeaderEpoch::new(e), offset(base), offset(next));
    }
    // The log as it is; with first batches compacted away; with an epoch without records in between and at the end.
    for right in [
        &[(0, 5), (2, 35), (6, 60)][..],
        &[(0, 0), (2, 30), (6, 60)],
        &[(0, 0), (1, 30), (2, 33), (6, 60), (8, 61)],
    ] {
        assert!(witness.agrees_with(&cache(right), Offset::ZERO), "{right:?}");
    }
    for wrong in [
        &[][..],
        &[(0, 0), (2, 30)],
        &[(0, 6), (2, 35), (6, 60)],
        &[(0, 0), (2, 29), (6, 60)],
        &[(0, 0), (2, 36), (6, 60)],
        &[(0, 0), (3, 30), (6, 60)],
        &[(0, 0), (1, 20), (2, 30), (6, 60)],
        &[(0, 0), (2, 30), (5, 59), (6, 60)],
    ] {
        let agrees = witness.agrees_with(&cache(wrong), Offset::ZERO);

        assert!(!agrees, "{wrong:?}");
    }
}

#[test]
fn a_checkpoint_that_forgot_what_lies_below_the_log_start_agrees() {
    let mut witness = EpochWitness::default();
    for (e, base, next) in [(0, 5, 10), (2, 10, 30), (2, 30, 60), (6, 60, 61)] {
        witness.observe(LeaderEpoch::new(e), offset(base), offset(next));
    }
    assert!(witness.agrees_with(&cache(&[(2, 45), (6, 60)]), offset(45)));
    assert!(!witness.agrees_with(&cache(&[(2, 46), (6, 60)]), offset(45)));
    assert!(!witness.agrees_with(&cache(&[(6, 60)]), offset(45)));
    assert!(witness.agrees_with(&cache(&[(6, 61)]), offset(61)));
}

#[test]
fn what_a_checkpoint_says_and_no_batch_contradicts_is_kept() {
    let mut witness = EpochWitness::default();
    for (e, base, next) in [(1, 100, 120), (2, 120, 140), (3, 140, 160), (5, 170, 180)] {
        witness.observe(LeaderEpoch::new(e), offset(base), offset(next));
    }
    let completed = |known: &[(i32, i64)]| pairs(&witness.completed_by(&cache(known), offset(200)));
    let of_batches = [(1, 100), (2, 120), (3, 140), (5, 170)];
    assert_eq!(completed(&[]), of_batches);
    // It forgot what lay below a log start of 150, and knows that an epoch began in a gap.
    assert_eq!(completed(&[(3, 150), (5, 160)]), [(1, 100), (2, 120), (3, 140), (5, 160)]);
    // Epochs without records: in the gap, at the next one's start, behind the last batch.
    assert_eq!(
        completed(&[(3, 150), (4, 165), (7, 180), (8, 200)]),
        [(1, 100), (2, 120), (3, 140), (4, 165), (5, 170), (7, 180), (8, 200)]
    );
    assert_eq!(completed(&[(4, 170)]), of_batches);
    // Before the first batch.
    assert_eq!(completed(&[(0, 50), (1, 90)])[..2], [(0, 50), (1, 90)]);
    // What a batch contradicts, or what lies above the log end, is not.
    for wrong in [
        &[(1, 101)][..],
        &[(2, 119)],
        &[(2, 121)],
        &[(4, 159)],
        &[(4, 171)],
        &[(5, 159)],
        &[(7, 179)],
        &[(7, 201)],
    ] {
        assert_eq!(completed(wrong), of_batches, "{wrong:?}");
    }
}
