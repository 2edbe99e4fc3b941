use super::*;
use crate::source::Diverging;
use bytes::BytesMut;
use proptest::prelude::*;
use weir_format::{BatchBuilder, ProducerEpoch, ProducerId, Sequence, TimestampMs};

fn epoch(raw: i32) -> LeaderEpoch {
    LeaderEpoch::new(raw).expect("not negative")
}

fn offset(raw: i64) -> Offset {
    Offset::new(raw).expect("not negative")
}

fn log(end: i64, is_empty: bool, leader_epoch: i32) -> LogState {
    LogState {
        log_start_offset: Offset::ZERO,
        high_watermark: offset(end),
        last_stable_offset: offset(end),
        log_end_offset: offset(end),
        leader_epoch: epoch(leader_epoch),
        latest_epoch: (!is_empty).then(|| epoch(0)),
        newest_batch: (!is_empty).then(|| crate::destination::NewestBatch {
            base_offset: offset(end - 1),
            crc: 0,
            leader_epoch: Some(epoch(0)),
            is_barrier: false,
        }),
    }
}

/// Fetching at `end`; the source's epoch is 5, ours 16.
fn fetching(end: i64, is_empty: bool) -> FetchState {
    let limits = FetchLimits { partition_max_bytes: 4096, max_batch_bytes: 64 << 10 };
    FetchState::new(
        TopicPartition::new("t", 0),
        TopicId([7; 16]),
        limits,
        &log(end, is_empty, 16),
        Some(epoch(5)),
    )
}

fn batch(base: i64, records: i64, batch_epoch: i32) -> BytesMut {
    let mut builder = BatchBuilder::new().base_offset(offset(base)).leader_epoch(epoch(batch_epoch));
    for _ in 0..records {
        builder = builder.record(TimestampMs::new(1), None, Some(b"value"));
    }
    builder.build().expect("builds")
}

fn fetched(code: SourceCode, records: impl Into<Bytes>) -> FetchedPartition {
    FetchedPartition {
        partition: TopicPartition::new("t", 0),
        code,
        high_watermark: Some(offset(100)),
        log_start_offset: Some(offset(0)),
        diverging: None,
        records: records.into(),
    }
}

fn data(batches: &[BytesMut]) -> FetchedPartition {
    fetched(SourceCode::None, Bytes::from(batches.concat()))
}

fn plan_of(decision: FetchDecision) -> AppendPlan {
    match decision {
        FetchDecision::Append(plan) => *plan,
        other => panic!("expected an append, got {other:?}"),
    }
}

#[test]
fn whole_batches_are_appended_as_they_came() {
    let mut state = fetching(10, false);
    let request = state.request();
    assert_eq!((request.fetch_offset, request.current_leader_epoch), (offset(10), Some(epoch(5))));
    assert_eq!(request.last_fetched_epoch, Some(epoch(0)));
    // Offsets may have gaps: the source was compacted.
    let response = data(&[batch(10, 2, 4), batch(20, 3, 5)]);
    let plan = plan_of(state.on_response(&response));
    assert_eq!(plan.records, response.records);
    assert_eq!(plan.records.as_ptr(), response.records.as_ptr(), "no copy");
    assert_eq!((plan.next_offset, plan.max_leader_epoch, plan.restart_at), (offset(23), epoch(5), None));
    state.appended(&plan, &log(23, false, 16)).expect("the log ends there");
    assert_eq!(state.next_offset(), offset(23));
    assert!(state.appended(&plan, &log(22, false, 16)).is_err(), "a log that ends elsewhere is a fault");
}

/// A message of magic 1 by hand, as nothing here writes it.
fn message(at: i64, value: &[u8]) -> BytesMut {
    let mut covered = vec![1, 0];
    covered.extend_from_slice(&7_i64.to_be_bytes());
    covered.extend_from_slice(&(-1_i32).to_be_bytes());
    covered.extend_from_slice(&i32::try_from(value.len()).expect("small").to_be_bytes());
    covered.extend_from_slice(value);
    let crc = !covered.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    });
    let mut bytes = BytesMut::from(&at.to_be_bytes()[..]);
    bytes.extend_from_slice(&i32::try_from(covered.len() + 4).expect("small").to_be_bytes());
    bytes.extend_from_slice(&crc.to_be_bytes());
    bytes.extend_from_slice(&covered);
    bytes
}

/// A source of old may hold messages of magic 0 and 1 in front of its batches.
#[test]
fn n_gap_6_messages_of_old_formats_are_appended_as_they_came() {
    let mut state = fetching(10, false);
    // The offset of the second is that of the last message that it would wrap.
    let parts = [message(10, b"one"), message(19, b"two"), batch(20, 3, 5)];
    let response = data(&parts);
    let plan = plan_of(state.on_response(&response));
    assert_eq!((&plan.records, plan.next_offset), (&response.records, offset(23)));
    assert_eq!(plan.producer_ids, ProducerIdsMet::new());
    // One that is cut is left for the next fetch, and asked for with more room if it is the first.
    let cut = parts[..2].concat();
    let plan = plan_of(state.on_response(&fetched(SourceCode::None, cut[..cut.len() - 1].to_vec())));
    assert_eq!((plan.records.len(), plan.next_offset), (parts[0].len(), offset(11)));
    let large = message(10, &[0; 5_000]);
    let widened = state.on_response(&fetched(SourceCode::None, large[..4_096].to_vec()));
    assert_eq!(widened, FetchDecision::Widen);
    // What is wrong with one is said.
    let mut flipped = message(10, b"one");
    flipped[30] ^= 1;
    let FetchDecision::Reconnect(cause) = state.on_response(&data(&[flipped])) else { panic!("corrupt") };
    assert!(cause.contains("crc"), "{cause}");
    let FetchDecision::Fail(Failure::CorruptBatch { .. }) = state.on_response(&data(&[message(9, b"back")]))
    else {
        panic!("it goes back")
    };
}

/// B9, M6: nobody could tell whether it is the barrier.
#[test]
fn b9_a_control_batch_with_a_codec_is_corrupt() {
    let mut compressed = BatchBuilder::barrier(TimestampMs::new(1));
    weir_format::set_base_offset(&mut compressed, offset(11)).expect("a batch");
    weir_format::set_leader_epoch(&mut compressed, epoch(5)).expect("a batch");
    compressed[22] |= 1;
    let crc = weir_format::crc::batch_crc(&compressed);
    compressed[17..21].copy_from_slice(&crc.to_be_bytes());
    // What stands before it is taken, and it is the first of the next fetch.
    let mut state = fetching(10, false);
    let plan = plan_of(state.on_response(&data(&[batch(10, 1, 5), compressed.clone()])));
    assert_eq!(plan.next_offset, offset(11));
    state.appended(&plan, &log(11, false, 16)).expect("the log ends there");
    let again = data(&[compressed]);
    assert!(matches!(state.on_response(&again), FetchDecision::Reconnect(_)));
    let FetchDecision::Fail(Failure::CorruptBatch { cause, .. }) = state.on_response(&again) else {
        panic!("taken")
    };
    assert!(cause.contains("compressed"), "{cause}");
}

#[test]
fn producer_ids_are_collected_by_range() {
    let with_id = |base: i64, id: i64| {
        BatchBuilder::new()
            .base_offset(offset(base))
            .leader_epoch(epoch(1))
            .producer(
                ProducerId::new(id).expect("not negative"),
                ProducerEpoch::new(0).expect("not negative"),
                Sequence::new(0),
            )
            .record(TimestampMs::new(1), None, Some(b"v"))
            .build()
            .expect("builds")
    };
    let response = data(&[
        with_id(0, 5),
        with_id(1, 3),
        with_id(2, (9 << 32) + 7),
        batch(3, 1, 1),
        with_id(4, i64::MAX),
    ]);
    let plan = plan_of(fetching(0, true).on_response(&response));
    let met: Vec<(u32, i64)> = plan.producer_ids.iter().map(|(number, id)| (*number, id.get())).collect();
    assert_eq!(met, [(0, 5), (9, (9 << 32) + 7), (i32::MAX.unsigned_abs(), i64::MAX)]);
}

#[test]
fn a_cut_last_batch_is_left_for_the_next_fetch() {
    let (first, second) = (batch(10, 1, 5), batch(11, 1, 5));
    for cut in 1..second.len() {
        let bytes = [&first[..], &second[..cut]].concat();
        let plan = plan_of(fetching(10, false).on_response(&fetched(SourceCode::None, bytes)));
        assert_eq!(plan.records, first, "cut at {cut}");
        assert_eq!(plan.next_offset, offset(11));
    }
}

#[test]
fn a_first_batch_that_is_cut_is_asked_for_with_more_room_once() {
    let mut state = fetching(0, true);
    let large = batch(0, 1000, 5);
    assert!(large.len() > 4096);
    let cut = fetched(SourceCode::None, Bytes::copy_from_slice(&large[..4096]));
    assert_eq!(state.on_response(&cut), FetchDecision::Widen);
    assert_eq!(usize::try_from(state.request().partition_max_bytes).ok(), Some(large.len()));
    // The source had the room and did not use it: that is no batch.
    assert!(matches!(state.on_response(&cut), FetchDecision::Reconnect(_)));
    let plan = plan_of(state.on_response(&data(&[large])));
    state.appended(&plan, &log(1000, false, 16)).expect("the log ends there");
    assert_eq!(state.request().partition_max_bytes, 4096, "the room is given back");
}

#[test]
fn a_batch_beyond_the_limit_fails_after_one_refetch() {
    let mut state = fetching(0, true);
    let response = data(&[batch(0, 10_000, 5)]);
    assert!(response.records.len() > 64 << 10);
    assert!(matches!(state.on_response(&response), FetchDecision::Reconnect(_)));
    assert!(matches!(state.on_response(&response), FetchDecision::Fail(Failure::BatchTooLarge { .. })));
}

#[test]
fn corrupt_bytes_are_fetched_again_once_and_then_fail() {
    let good = batch(10, 3, 5);
    // Every byte that the CRC covers, and magic and CRC themselves.
    for position in 16..good.len() {
        let mut bad = good.clone();
        bad[position] ^= 0x20;
        let response = data(&[bad]);
        let mut state = fetching(10, false);
        let first = state.on_response(&response);
        assert!(matches!(first, FetchDecision::Reconnect(_)), "byte {position}: {first:?}");
        let second = state.on_response(&response);
        assert!(
            matches!(second, FetchDecision::Fail(Failure::CorruptBatch { .. })),
            "byte {position}: {second:?}"
        );
    }
    // A good answer in between forgives.
    let mut bad = good.clone();
    bad[30] ^= 1;
    let mut state = fetching(10, false);
    assert!(matches!(state.on_response(&data(&[bad.clone()])), FetchDecision::Reconnect(_)));
    plan_of(state.on_response(&data(&[good])));
    assert!(matches!(state.on_response(&data(&[bad])), FetchDecision::Reconnect(_)));
}

#[test]
fn what_stands_before_a_bad_batch_is_kept() {
    let mut bad = batch(11, 1, 5);
    bad[40] ^= 1;
    let first = batch(10, 1, 5);
    let mut state = fetching(10, false);
    let plan = plan_of(state.on_response(&data(&[first.clone(), bad])));
    assert_eq!(plan.records, first);
}

#[test]
fn offsets_that_go_back_are_never_appended() {
    let mut state = fetching(10, false);
    let response = data(&[batch(9, 2, 5)]);
    assert!(matches!(state.on_response(&response), FetchDecision::Reconnect(_)));
    assert!(matches!(state.on_response(&response), FetchDecision::Fail(Failure::CorruptBatch { .. })));
    let mut state = fetching(10, false);
    let plan = plan_of(state.on_response(&data(&[batch(10, 2, 5), batch(11, 1, 5)])));
    assert_eq!(plan.next_offset, offset(12));
}

#[test]
fn an_empty_log_takes_the_batch_that_contains_its_start() {
    let mut state = fetching(500, true);
    let plan = plan_of(state.on_response(&data(&[batch(495, 10, 5)])));
    assert_eq!((plan.restart_at, plan.next_offset), (Some(offset(495)), offset(505)));
    // One that ends before it does not contain it.
    let mut state = fetching(500, true);
    assert!(matches!(state.on_response(&data(&[batch(490, 5, 5)])), FetchDecision::Reconnect(_)));
}

#[test]
fn a_batch_above_the_sources_epoch_is_not_appended_and_those_before_it_are() {
    let mut state = fetching(10, false);
    let plan = plan_of(state.on_response(&data(&[batch(10, 1, 5), batch(11, 1, 6)])));
    assert_eq!(plan.next_offset, offset(11));
    state.appended(&plan, &log(11, false, 16)).expect("the log ends there");
    let response = data(&[batch(11, 1, 6)]);
    assert_eq!(state.on_response(&response), FetchDecision::Refresh);
    state.set_source_leader_epoch(Some(epoch(6)));
    plan_of(state.on_response(&response));
    // A source that goes on like that is not followed for ever.
    let mut state = fetching(11, false);
    let last = (0..MAX_REFUSALS).map(|_| state.on_response(&response)).last();
    assert!(matches!(last, Some(FetchDecision::Fail(_))), "{last:?}");
}

#[test]
fn a_batch_above_our_epoch_raises_it_first() {
    let mut state = fetching(10, false);
    state.set_source_leader_epoch(Some(epoch(40)));
    let response = data(&[batch(10, 1, 17)]);
    assert_eq!(state.on_response(&response), FetchDecision::RaiseEpoch(epoch(17)));
    state.set_leader_epoch(epoch(51));
    assert_eq!(plan_of(state.on_response(&response)).max_leader_epoch, epoch(40));
    // A source without epochs is bounded by ours all the same.
    let mut state = fetching(10, false);
    state.set_source_leader_epoch(None);
    assert_eq!(state.on_response(&data(&[batch(10, 1, 17)])), FetchDecision::RaiseEpoch(epoch(17)));
}

#[test]
fn errors_lead_to_what_the_table_says() {
    let none = Bytes::new();
    for code in [
        SourceCode::NotLeader,
        SourceCode::FencedLeaderEpoch,
        SourceCode::UnknownLeaderEpoch,
        SourceCode::UnknownTopicOrPartition,
        SourceCode::UnknownTopicId,
        SourceCode::InconsistentTopicId,
    ] {
        assert_eq!(
            fetching(10, false).on_response(&fetched(code, none.clone())),
            FetchDecision::Refresh,
            "{code}"
        );
    }
    let out_of_range = fetched(SourceCode::OffsetOutOfRange, none.clone());
    assert_eq!(fetching(10, false).on_response(&out_of_range), FetchDecision::AskRange);
    assert_eq!(
        fetching(10, false).on_response(&fetched(SourceCode::None, none.clone())),
        FetchDecision::Idle
    );
    let mut diverging = fetched(SourceCode::None, batch(10, 1, 5).freeze());
    diverging.diverging = Some(Diverging { epoch: Some(epoch(3)), end_offset: Some(offset(7)) });
    assert!(matches!(
        fetching(10, false).on_response(&diverging),
        FetchDecision::Fail(Failure::Diverged { .. })
    ));
    let mut state = fetching(10, false);
    let refused = fetched(SourceCode::AuthorizationFailed, none);
    for _ in 1..MAX_REFUSALS {
        assert!(matches!(state.on_response(&refused), FetchDecision::BackOff(_)));
    }
    assert!(matches!(state.on_response(&refused), FetchDecision::Fail(Failure::SourceRefuses { .. })));
}

#[test]
fn out_of_range_is_decided_by_where_the_source_starts_and_ends() {
    let range = |start, end| SourceRange { start: offset(start), end: offset(end) };
    assert_eq!(
        fetching(100, false).on_range(range(500, 900)),
        FetchDecision::Fail(Failure::Gap { log_end: offset(100), source_start: offset(500) })
    );
    let below = Failure::SourceEndsBelow { log_end: offset(100), source_end: offset(40) };
    let mut state = fetching(100, false);
    assert_eq!(state.on_range(range(0, 40)), FetchDecision::Refresh, "a new leader may not know yet");
    assert_eq!(state.on_range(range(0, 40)), FetchDecision::Fail(below));
    assert!(matches!(fetching(100, false).on_range(range(0, 100)), FetchDecision::BackOff(_)));
    assert!(matches!(fetching(100, false).on_range(range(100, 900)), FetchDecision::BackOff(_)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever bytes come: no panic, and what is appended is a prefix of whole batches with
    /// good CRCs, offsets that go up from the log end, and epochs within the limit.
    #[test]
    fn only_good_prefixes_are_ever_appended(
        sizes in proptest::collection::vec((0..3_i64, 1..4_i64, 0..8_i32), 1..6),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0..8_u32), 0..4),
        cut in any::<prop::sample::Index>(),
        is_empty in any::<bool>(),
    ) {
        let mut next = 10;
        let mut bytes = Vec::new();
        for (gap, records, batch_epoch) in sizes {
            bytes.extend_from_slice(&batch(next + gap - i64::from(batch_epoch == 7), records, batch_epoch));
            next += gap + records;
        }
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        bytes.truncate(bytes.len() - cut.index(bytes.len()) / 4);
        let mut state = fetching(10, is_empty);
        let decision = state.on_response(&fetched(SourceCode::None, bytes.clone()));
        if let FetchDecision::Append(plan) = decision {
            prop_assert!(bytes.starts_with(&plan.records));
            let mut expected = plan.restart_at.unwrap_or(offset(10));
            let mut reader = weir_format::BatchReader::new(&plan.records);
            for found in &mut reader {
                let found = found.expect("only good batches");
                prop_assert!(found.base_offset() >= expected);
                prop_assert!(found.leader_epoch().is_none_or(|found| found <= plan.max_leader_epoch));
                expected = found.next_offset();
            }
            prop_assert_eq!(reader.position(), plan.records.len());
            prop_assert_eq!(expected, plan.next_offset);
            prop_assert!(plan.restart_at.is_none() || is_empty);
        }
    }
}
