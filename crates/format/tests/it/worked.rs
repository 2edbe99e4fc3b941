//! The three batches of KIP-1279 that were worked out by hand (`testdata/PROVENANCE.md`).

use weir_format::{
    BatchBuilder, ControlRecordType, EndTransactionMarker, LeaderEpoch, MirrorPidReset, MirrorPidResetValue,
    Offset, ProducerEpoch, ProducerId, RecordBatch, TimestampMs, set_base_offset, set_leader_epoch,
    set_log_append_time,
};

use crate::support::{testdata, worked};

const NOW: TimestampMs = TimestampMs::new(1_767_225_600_000);

fn offset(raw: i64) -> Offset {
    Offset::new(raw).expect("not negative")
}

/// As a leader of epoch 12 appends it.
fn stamped(mut batch: bytes::BytesMut, base_offset: i64) -> Vec<u8> {
    set_base_offset(&mut batch, offset(base_offset)).expect("a batch");
    set_leader_epoch(&mut batch, LeaderEpoch::new(12).expect("not negative")).expect("a batch");
    batch.to_vec()
}

#[test]
fn the_worked_barrier_is_what_we_build() {
    let bytes = worked("barrier-3byte");
    assert_eq!(bytes.len(), 75);
    assert_eq!(stamped(MirrorPidReset::build(NOW), 42), bytes);
    assert_eq!(MirrorPidReset::build(NOW).to_vec(), testdata("batches/barrier-3byte-as-built.bin"));
    let batch = RecordBatch::parse(&bytes).expect("a batch");
    assert_eq!(batch.crc(), 0xd44d_46db);
    assert!(batch.is_barrier() && batch.is_control() && !batch.is_transactional());
    let barrier = MirrorPidReset::describe(&batch).expect("a barrier");
    let value = MirrorPidResetValue::Current { version: 0, tagged_fields: 0 };
    let leader_epoch = LeaderEpoch::new(12);
    assert_eq!(barrier, MirrorPidReset { offset: offset(42), leader_epoch, timestamp: NOW, value });
    assert_eq!(
        barrier.to_string(),
        "MIRROR_PID_RESET at offset 42, leader epoch 12, timestamp 1767225600000, value version 0"
    );
}

#[test]
fn the_time_of_a_barrier_is_its_records_or_the_leaders_under_log_append_time() {
    let (later, earlier) = (TimestampMs::new(NOW.get() + 5), TimestampMs::new(NOW.get() - 5));
    let mut bytes = MirrorPidReset::build(NOW);
    set_log_append_time(&mut bytes, later).expect("a batch");
    let time = |bytes: &[u8]| {
        let batch = RecordBatch::parse(bytes).expect("a batch");
        MirrorPidReset::describe(&batch).expect("a barrier").timestamp
    };
    assert_eq!(time(&bytes), later);
    // A foreign one may have a base timestamp that is not its record's.
    let foreign = BatchBuilder::new().base_timestamp(earlier);
    let foreign = foreign.control_record(NOW, ControlRecordType::MirrorPidReset, &[0, 0, 0]);
    assert_eq!(time(&foreign.build().expect("a batch")), NOW);
}

#[test]
fn the_worked_older_barrier_is_a_barrier_and_names_its_source() {
    let bytes = worked("barrier-26byte");
    assert_eq!(bytes.len(), 98);
    let batch = RecordBatch::parse(&bytes).expect("a batch");
    assert!(batch.is_barrier());
    let value = MirrorPidReset::describe(&batch).expect("a barrier").value;
    let source_cluster_id = "MkU3OEVBNTcwNTJENDM2Qk";
    assert_eq!(
        value,
        MirrorPidResetValue::WithSourceClusterId { version: 0, source_cluster_id, tagged_fields: 0 }
    );
}

#[test]
fn the_worked_abort_is_what_we_build() {
    let bytes = worked("abort");
    assert_eq!(bytes.len(), 78);
    let producer = ProducerId::new(5).expect("not negative");
    let built = BatchBuilder::end_transaction_marker(false, producer, ProducerEpoch::ZERO, Some(3), NOW);
    assert_eq!(stamped(built, 41), bytes);
    let batch = RecordBatch::parse(&bytes).expect("a batch");
    assert_eq!(batch.control_type(), Some(ControlRecordType::Abort));
    assert!(!batch.is_barrier() && batch.is_transactional());
    let marker =
        EndTransactionMarker { commit: false, coordinator_epoch: Some(3), timestamp: NOW, version: 0 };
    assert_eq!(batch.end_transaction_marker(), Some(Ok(marker)));
}

#[test]
fn the_worked_bytes_are_those_that_kafka_judged() {
    for (ours, kafkas) in
        [("barrier-3byte", "barrier-3byte"), ("barrier-26byte", "barrier-26byte"), ("abort", "control-abort")]
    {
        assert_eq!(worked(ours), testdata(&format!("batches/{kafkas}.bin")), "{ours}");
    }
}

#[test]
fn a_marker_of_an_unknown_coordinator_says_minus_one_and_reads_as_none() {
    let producer = ProducerId::new(5).expect("not negative");
    let bytes = BatchBuilder::end_transaction_marker(true, producer, ProducerEpoch::ZERO, None, NOW);
    let batch = RecordBatch::parse(&bytes).expect("a batch");
    let record = batch.records().expect("not compressed").next().expect("one").expect("well formed");
    assert_eq!(record.value, Some(&[0, 0, 0xff, 0xff, 0xff, 0xff][..]));
    let marker = batch.end_transaction_marker().expect("a marker").expect("well formed");
    assert_eq!((marker.commit, marker.coordinator_epoch), (true, None));
}
