//! Logs of real Kafka, batch by batch through the gate, against Kafka's own word.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;
use weir_format::{BatchReader, Offset, ProducerEpoch, ProducerId, Sequence};
use weir_psm::{AppendOrigin, Checked, CompletedTransaction, ProducerStateEntry, snapshot};

use crate::support::{Gate, offset};

/// Logs without a barrier: Kafka 4.4's answer is the whole answer.
const LOGS: [&str; 12] = [
    "plain",
    "idempotent",
    "txn-open",
    "txn-tv0",
    "txn-tv1",
    "txn-tv2",
    "txn-librdkafka",
    "txn-long",
    "kill9-txn",
    "compacted",
    "compacted-hard",
    "internal-consumer-offsets",
];
const BARRIER_LOGS: [&str; 3] = ["barrier", "barrier-unclean", "barrier-compacted"];

fn folder(log: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/golden").join(log)
}

fn json(log: &str, file: &str) -> Value {
    let text = std::fs::read(folder(log).join(file)).expect("golden data");
    serde_json::from_slice(&text).expect("JSON")
}

/// Files of a log with this extension, in the order of their offsets.
fn files(log: &str, extension: &str) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(folder(log))
        .expect("golden data")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, std::fs::read(path).expect("readable"))
        })
        .collect()
}

fn log_bytes(log: &str) -> Vec<u8> {
    let bytes: Vec<u8> = files(log, "log").into_iter().flat_map(|(_, bytes)| bytes).collect();
    assert!(!bytes.is_empty(), "{log} has batches");
    bytes
}

/// An entry as `expected.json` writes it. The order of keys does not matter there.
fn entry_json(id: ProducerId, entry: &ProducerStateEntry) -> Value {
    let batches: Vec<Value> = entry
        .batches()
        .iter()
        .map(|batch| {
            serde_json::json!({
                "firstSeq": batch.first_sequence().map_or(-1, Sequence::get),
                "lastSeq": batch.last_sequence().map_or(-1, Sequence::get),
                "firstOffset": batch.first_offset().get(),
                "lastOffset": batch.last_offset().get(),
                "offsetDelta": batch.offset_delta(),
                "timestamp": batch.timestamp().get(),
            })
        })
        .collect();
    serde_json::json!({
        "producerId": id.get(),
        "epoch": entry.producer_epoch().map_or(-1, ProducerEpoch::get),
        "coordinatorEpoch": entry.coordinator_epoch().unwrap_or(-1),
        "lastTimestamp": entry.last_timestamp().get(),
        "currentTxnFirstOffset": entry.transaction_first_offset().map(Offset::get),
        "batches": batches,
    })
}

fn entries_json(gate: &Gate) -> Value {
    gate.psm.entries().map(|(id, entry)| entry_json(id, entry)).collect()
}

fn aborted_json(completed: &[CompletedTransaction]) -> Value {
    completed
        .iter()
        .filter(|transaction| transaction.aborted)
        .map(|transaction| {
            serde_json::json!({
                "producerId": transaction.producer_id.get(),
                "firstOffset": transaction.first_offset.get(),
                "lastOffset": transaction.last_offset.get(),
                "lastStableOffset": transaction.last_stable_offset.get(),
            })
        })
        .collect()
}

fn check_replay(log: &str) {
    let expected = json(log, "expected.json");
    let mut gate = Gate::new();
    let applied = gate.replay(&log_bytes(log));
    let completed: Vec<_> = applied.iter().filter_map(|applied| applied.completed).collect();
    assert!(applied.iter().all(|applied| applied.barrier.is_none()), "{log} has no barrier");
    assert_eq!(entries_json(&gate), expected["producersRebuiltWithoutSnapshots"], "{log}");
    assert_eq!(aborted_json(&completed), expected["abortedTransactions"], "{log}");

    gate.psm.on_high_watermark(gate.psm.map_end_offset());
    let first_unstable = gate.psm.first_unstable_offset().map(Offset::get);
    assert_eq!(first_unstable, expected["firstUnstableOffsetRebuilt"].as_i64(), "{log}");
    let open = gate.psm.open_transactions().next().map(|transaction| transaction.first_offset.get());
    assert_eq!(open, first_unstable, "{log}: everything completed is replicated");
}

#[test]
fn replay_gives_the_producers_and_transactions_that_kafka_gives() {
    for log in LOGS {
        check_replay(log);
    }
}

/// Reads a snapshot file of Kafka's, compares its content with what Kafka read from it, and writes it again.
fn check_snapshots(log: &str) -> usize {
    let expected = json(log, "expected.json");
    let files = files(log, "snapshot");
    for (name, bytes) in &files {
        let decoded = snapshot::decode(bytes).expect("Kafka wrote it");
        // The order in the file is a hash map's, so that of `expected.json` says nothing.
        let by_id: BTreeMap<_, _> = decoded.iter().map(|(id, entry)| (*id, entry)).collect();
        let content: Value = by_id.iter().map(|(id, entry)| entry_json(*id, entry)).collect();
        // Kafka deletes a stray one before it would read it.
        if let Some(read) = expected["snapshots"].get(name) {
            assert_eq!(&content, read, "{log}/{name}");
        }
        let again = snapshot::encode(decoded.len(), decoded.iter().map(|(id, entry)| (*id, entry)));
        assert_eq!(&again, bytes, "{log}/{name}: the same entries are the same bytes");

        // Loaded and taken again, it is the same but for the order.
        let end = name.trim_end_matches(".snapshot").parse().expect("twenty digits");
        let mut gate = Gate::new();
        gate.psm.load_snapshot(bytes, offset(end)).expect("Kafka wrote it");
        let ours = gate.psm.snapshot();
        assert_eq!(ours.len(), bytes.len(), "{log}/{name}");
        let mut reloaded = Gate::new();
        reloaded.psm.load_snapshot(&ours, offset(end)).expect("we wrote it");
        assert!(reloaded.psm.equal_state(&gate.psm), "{log}/{name}");
        assert_eq!(reloaded.psm.snapshot(), ours, "{log}/{name}");
    }
    files.len()
}

#[test]
fn snapshots_of_kafka_are_read_and_written_byte_for_byte() {
    let count: usize = LOGS.iter().chain(&BARRIER_LOGS).map(|log| check_snapshots(log)).sum();
    assert!(count >= 15, "there are snapshots to read: {count}");
}

/// Kafka's own snapshot of a point, loaded, is the state that replay up to that point gives.
#[test]
fn a_snapshot_of_kafka_equals_the_replay_up_to_it() {
    for log in LOGS {
        // Compaction took batches that the snapshots still count.
        if log.starts_with("compacted") {
            continue;
        }
        for (name, bytes) in files(log, "snapshot") {
            let end = name.trim_end_matches(".snapshot").parse().expect("twenty digits");
            let mut loaded = Gate::new();
            loaded.psm.load_snapshot(&bytes, offset(end)).expect("Kafka wrote it");
            let log_bytes = log_bytes(log);
            let below: usize = BatchReader::new(&log_bytes)
                .map(|batch| batch.expect("valid"))
                .take_while(|batch| batch.base_offset() < offset(end))
                .map(|batch| batch.size())
                .sum();
            let mut replayed = Gate::new();
            replayed.replay(&log_bytes[..below]);
            assert!(loaded.psm.equal_state(&replayed.psm), "{log}/{name}");
            assert!(
                loaded.psm.open_transactions().eq(replayed.psm.open_transactions()),
                "{log}/{name}: open transactions are restored"
            );
        }
    }
}

/// `part` says some of what `whole` says: each field of it, and each element of its lists.
fn assert_says(whole: &Value, part: &Value, what: &str) {
    match (whole, part) {
        (Value::Array(whole), Value::Array(part)) => {
            assert_eq!(whole.len(), part.len(), "{what}");
            for (whole, part) in whole.iter().zip(part) {
                assert_says(whole, part, what);
            }
        }
        (Value::Object(whole), Value::Object(part)) => {
            for (key, part) in part {
                let whole = whole.get(key).unwrap_or_else(|| panic!("{what} says nothing of {key}"));
                assert_says(whole, part, &format!("{what}.{key}"));
            }
        }
        _ => assert_eq!(whole, part, "{what}"),
    }
}

/// B2, B4: the state before each offset that the rule of KIP-1279 was worked out for.
fn check_barrier_log(log: &str) {
    let expected = json(log, "kip1279.json");
    let before = expected["producersBeforeOffset"].as_object().expect("a map");
    let bytes = log_bytes(log);
    let mut gate = Gate::new();
    let mut completed = Vec::new();
    let mut seen = 0;
    let mut check = |gate: &Gate| {
        if let Some(entries) = before.get(&gate.end().to_string()) {
            let mut known = entries_json(gate);
            for entry in known.as_array_mut().expect("a list") {
                // The newest batch, as the file of the rule names it.
                let newest = entry["batches"].as_array().and_then(|batches| batches.last()).cloned();
                let newest = newest.expect("no marker dropped the batches here");
                entry["lastSequence"] = newest["lastSeq"].clone();
                entry["lastOffset"] = newest["lastOffset"].clone();
            }
            assert_says(&known, entries, &format!("{log} before {}", gate.end()));
            seen += 1;
        }
    };
    for batch in BatchReader::new(&bytes) {
        let batch = batch.expect("valid");
        check(&gate);
        let checked = gate.psm.check(&batch, batch.base_offset(), AppendOrigin::Replication);
        let Checked::Append(transition) = checked.expect("replication") else { panic!("no duplicates") };
        let applied = gate.psm.commit(transition);
        completed.extend(applied.completed);
        assert_eq!(applied.barrier.is_some(), batch.is_barrier());
        if let Some(barrier) = applied.barrier {
            assert_eq!(barrier.producers_expired, 2, "{log}");
            assert_eq!(barrier.transactions_aborted, [], "{log}: the stop had ended them");
        }
    }
    check(&gate);
    assert_eq!(seen, before.len(), "{log}: every listed offset is a batch's border");
    gate.psm.on_high_watermark(gate.psm.map_end_offset());
    let stable = gate.psm.last_stable_offset(gate.psm.map_end_offset()).get();
    assert_eq!(Some(stable), expected["lastStableOffset"].as_i64(), "{log}");
    assert_says(&aborted_json(&completed), &expected["abortedTransactions"], log);
}

#[test]
fn behind_a_barrier_nobody_is_known() {
    for log in ["barrier", "barrier-unclean"] {
        check_barrier_log(log);
    }
}

/// B8, GAP-2: compaction takes the data and keeps the barriers.
#[test]
fn a_compacted_log_still_forgets_at_its_barriers() {
    let mut gate = Gate::new();
    let applied = gate.replay(&log_bytes("barrier-compacted"));
    let barriers: Vec<_> = applied.iter().filter_map(|applied| applied.barrier.as_ref()).collect();
    assert_eq!(barriers.len(), 2, "both are kept");
    let last = barriers[1].offset;
    for (id, entry) in gate.psm.entries() {
        assert!(entry.last_offset() > Some(last), "producer {id} was seen behind the last barrier");
    }
}
