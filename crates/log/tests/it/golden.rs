//! Directories written by real Kafka brokers: they load to what Kafka says of them, or the difference is named.

use serde_json::Value;
use weir_format::{BatchReader, TimestampMs};
use weir_log::{AppendParams, Isolation, OffsetSpec, ReadError};
use weir_recovery::{CutKind, Invalid, LoadError, NoSnapshot, ProducerStateSource, Rebuilt};
use weir_segment::{OffsetIndex, TimeIndex};

use super::support::*;

struct Golden {
    bench: Bench,
    expected: Value,
}

fn golden(name: &str) -> Golden {
    let from = testdata().join(name);
    let expected: Value =
        serde_json::from_str(&std::fs::read_to_string(from.join("expected.json")).unwrap()).unwrap();
    let mut bench = Bench::new(1);
    bench.config.segment.index_interval_bytes = 1024;
    let partition = expected["partition"].as_str().unwrap();
    bench.dir = format!("/golden/{partition}").into();
    bench.disk.import(&from.join(partition), &bench.dir).unwrap();
    Golden { bench, expected }
}

impl Golden {
    fn try_open(&self) -> Result<Open, LoadError> {
        let inputs = &self.expected["inputs"];
        let number = |name: &str| offset(inputs[name].as_i64().unwrap().max(0));
        let mut options = self.bench.options();
        options.clean_shutdown = inputs["cleanShutdownMarker"].as_bool().unwrap();
        options.recovery_point = number("recoveryPointCheckpoint");
        options.log_start_offset = number("logStartOffsetCheckpoint");
        self.bench.try_open(options)
    }

    fn open(&self) -> Open {
        self.try_open().unwrap()
    }
}

fn int(value: &Value) -> i64 {
    value.as_i64().unwrap()
}

fn optional(value: &Value) -> Option<i64> {
    value.as_i64()
}

/// Log start and end, LSO, epochs, aborted transactions.
fn check_bounds(open: &mut Open, load: &Value) {
    let view = open.log.view();
    assert_eq!(view.log_start_offset.get(), int(&load["logStartOffset"]));
    assert_eq!(view.log_end_offset.get(), int(&load["logEndOffset"]));
    assert_eq!(view.high_watermark, view.log_end_offset);
    assert_eq!(view.last_stable_offset.get(), int(&load["lastStableOffsetWithHighWatermarkAtEnd"]));
    let expected: Vec<(i32, i64)> = load["leaderEpochs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| (i32::try_from(int(&pair[0])).unwrap(), int(&pair[1])))
        .collect();
    assert_eq!(open.facts().epochs, expected);
    let found: Vec<_> = open
        .aborted()
        .iter()
        .map(|entry| {
            (
                entry.producer_id.get(),
                entry.first_offset.get(),
                entry.last_offset.get(),
                entry.last_stable_offset.get(),
            )
        })
        .collect();
    let expected: Vec<_> = load["abortedTransactions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            (
                int(&entry["producerId"]),
                int(&entry["firstOffset"]),
                int(&entry["lastOffset"]),
                int(&entry["lastStableOffset"]),
            )
        })
        .collect();
    assert_eq!(found, expected);
}

/// Every entry, with all of its batches.
fn check_producers(open: &Open, expected: &Value) {
    let expected = expected.as_array().unwrap();
    assert_eq!(open.log.producers().count(), expected.len());
    for ((id, entry), expected) in open.log.producers().zip(expected) {
        assert_eq!(id.get(), int(&expected["producerId"]));
        let epoch = entry.producer_epoch().map_or(-1, |epoch| i64::from(epoch.get()));
        assert_eq!(epoch, int(&expected["epoch"]), "{id}");
        assert_eq!(
            i64::from(entry.coordinator_epoch().unwrap_or(-1)),
            int(&expected["coordinatorEpoch"]),
            "{id}"
        );
        assert_eq!(entry.last_timestamp().get(), int(&expected["lastTimestamp"]), "{id}");
        let open_from = entry.transaction_first_offset().map(|first| first.get());
        assert_eq!(open_from, optional(&expected["currentTxnFirstOffset"]), "{id}");
        let batches: Vec<_> = entry
            .batches()
            .iter()
            .map(|batch| {
                (
                    batch.first_sequence().map_or(-1, |sequence| i64::from(sequence.get())),
                    batch.last_sequence().map_or(-1, |sequence| i64::from(sequence.get())),
                    batch.first_offset().get(),
                    batch.last_offset().get(),
                    i64::from(batch.offset_delta()),
                    batch.timestamp().get(),
                )
            })
            .collect();
        let expected: Vec<_> = expected["batches"]
            .as_array()
            .unwrap()
            .iter()
            .map(|batch| {
                (
                    int(&batch["firstSeq"]),
                    int(&batch["lastSeq"]),
                    int(&batch["firstOffset"]),
                    int(&batch["lastOffset"]),
                    int(&batch["offsetDelta"]),
                    int(&batch["timestamp"]),
                )
            })
            .collect();
        assert_eq!(batches, expected, "{id}");
    }
}

/// Sizes and both indexes of every segment, as the files say after a clean stop.
fn check_segments(golden: &Golden, open: Open) {
    let segments = open.log.segments();
    open.close();
    let expected = golden.expected["load"]["segments"].as_array().unwrap();
    assert_eq!(segments.len(), expected.len());
    for (segment, expected) in segments.iter().zip(expected) {
        let base = segment.base_offset;
        assert_eq!(base.get(), int(&expected["baseOffset"]));
        assert_eq!(i64::try_from(segment.size).unwrap(), int(&expected["size"]));
        let file = |suffix: &str| {
            let name = format!("{:020}.{suffix}", base.get());
            golden.bench.disk.read_file(&golden.bench.path(&name)).unwrap()
        };
        let pairs = |name: &str| -> Vec<(i64, i64)> {
            expected[name].as_array().unwrap().iter().map(|pair| (int(&pair[0]), int(&pair[1]))).collect()
        };
        let offsets = OffsetIndex::decode(base, &file("index")).unwrap();
        let offsets: Vec<_> =
            offsets.entries().map(|entry| (entry.offset.get(), i64::from(entry.position))).collect();
        assert_eq!(offsets, pairs("offsetIndex"), "offset index of {base}");
        let times = TimeIndex::decode(base, &file("timeindex")).unwrap();
        let times: Vec<_> =
            times.entries().map(|entry| (entry.timestamp.get(), entry.offset.get())).collect();
        assert_eq!(times, pairs("timeIndex"), "time index of {base}");
    }
}

fn check_list_offsets(open: &mut Open, load: &Value) {
    for vector in load["listOffsets"].as_array().unwrap() {
        let ask = int(&vector["ask"]);
        let spec = match ask {
            -1 => OffsetSpec::Latest,
            -2 | -4 => OffsetSpec::Earliest,
            -3 => OffsetSpec::MaxTimestamp,
            // The earliest tiered offset: nothing is tiered here or there.
            -5 => continue,
            timestamp => OffsetSpec::Timestamp(TimestampMs::new(timestamp)),
        };
        let found = open.log.offset_for(&mut *open.io, spec, Isolation::Uncommitted).unwrap();
        let answer = &vector["answer"];
        let Some(found) = found else {
            assert!(answer.is_null(), "{ask}: found none, expected {answer}");
            continue;
        };
        let found = (
            found.timestamp.map_or(-1, TimestampMs::get),
            found.offset.get(),
            found.leader_epoch.map_or(-1, |epoch| i64::from(epoch.get())),
        );
        let expected = (int(&answer["timestamp"]), int(&answer["offset"]), int(&answer["leaderEpoch"]));
        assert_eq!(found, expected, "{ask}");
    }
}

fn check_fetches(open: &mut Open, load: &Value) {
    let fetches = load["fetches"].as_array().unwrap();
    assert!(!fetches.is_empty());
    for vector in fetches {
        let from = int(&vector["offset"]);
        for (name, max, isolation) in [
            ("readUncommittedMax1", 1, Isolation::Uncommitted),
            ("readUncommittedMax4096", 4096, Isolation::Uncommitted),
            ("readCommittedMax4096", 4096, Isolation::Committed),
        ] {
            let expected = &vector[name];
            let read = open.log.read(&mut *open.io, offset(from), max, isolation, true);
            if expected["exception"] == "OffsetOutOfRangeException" {
                assert!(matches!(read, Err(ReadError::OffsetOutOfRange { .. })), "{from} {name}");
                continue;
            }
            let read = read.unwrap();
            let first = BatchReader::new(&read.bytes).next().map(|batch| batch.unwrap().base_offset().get());
            assert_eq!(first, optional(&expected["firstBatchBaseOffset"]), "{from} {name}");
            // Kafka cuts the last batch where the bytes end, weir leaves it out.
            let bytes = i64::try_from(read.bytes.len()).unwrap();
            let kafka = int(&expected["bytes"]);
            if kafka < 4096 {
                assert_eq!(bytes, kafka, "{from} {name}");
            } else {
                assert!(bytes <= kafka && bytes > kafka - 2100, "{from} {name}: {bytes} of {kafka}");
            }
            if let Some(aborted) = expected["aborted"].as_array() {
                let aborted: Vec<_> = aborted.iter().map(|pair| (int(&pair[0]), int(&pair[1]))).collect();
                let found: Vec<_> = read
                    .aborted
                    .iter()
                    .map(|entry| (entry.producer_id.get(), entry.first_offset.get()))
                    .collect();
                assert_eq!(found, aborted, "{from} {name}");
            }
        }
    }
}

fn check_epoch_ends(open: &Open, load: &Value) {
    for vector in load["endOffsetForEpoch"].as_array().unwrap() {
        let asked = i32::try_from(int(&vector["epoch"])).unwrap();
        let found =
            open.log.end_offset_for_epoch(epoch(asked)).map(|(e, end)| (i64::from(e.get()), end.get()));
        let answer = &vector["answer"];
        let expected = answer.as_array().map(|pair| (int(&pair[0]), int(&pair[1])));
        assert_eq!(found, expected, "epoch {asked}");
    }
}

fn check_whole(name: &str) {
    let golden = golden(name);
    let mut open = golden.open();
    let load = &golden.expected["load"];
    check_bounds(&mut open, load);
    check_producers(&open, &golden.expected["replay"]["producersRebuiltWithoutSnapshots"]);
    check_list_offsets(&mut open, load);
    check_fetches(&mut open, load);
    check_epoch_ends(&open, load);
    check_segments(&golden, open);
}

#[test]
fn plain_loads_to_what_kafka_says() {
    check_whole("plain");
}

#[test]
fn idempotent_loads_to_what_kafka_says() {
    check_whole("idempotent");
}

#[test]
fn txn_open_loads_to_what_kafka_says() {
    check_whole("txn-open");
}

#[test]
fn kill9_loads_to_what_kafka_says() {
    check_whole("kill9");
}

/// `barrier` and `barrier-unclean`: all as Kafka says, but for producers, which are as `kip1279.json` says.
fn check_barrier(name: &str) {
    let golden = golden(name);
    let mut open = golden.open();
    let load = &golden.expected["load"];
    check_bounds(&mut open, load);
    check_list_offsets(&mut open, load);
    check_fetches(&mut open, load);
    check_epoch_ends(&open, load);

    // B7: the snapshots at 31 and 54 were written by a Kafka that does not know the barrier.
    let reason = NoSnapshot::NoPartitionFile;
    assert_eq!(open.report.producer_state, ProducerStateSource::Replay { from: offset(0), reason });
    let barriers: Vec<_> = open
        .report
        .barriers
        .iter()
        .map(|found| (found.offset.get(), found.producers_expired, found.transactions_aborted))
        .collect();
    assert_eq!(barriers, [(31, 2, 0), (53, 2, 0)]);
    assert_eq!(open.log.producers().count(), 0, "at 54 nothing is known");

    // State at every offset that kip1279.json names, by cutting the log there.
    let kip: Value =
        serde_json::from_str(&std::fs::read_to_string(testdata().join(name).join("kip1279.json")).unwrap())
            .unwrap();
    let mut before: Vec<(i64, &Value)> = kip["producersBeforeOffset"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(at, producers)| (at.parse().unwrap(), producers))
        .collect();
    before.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    assert_eq!(before.len(), 6);
    drop(open);
    for (at, producers) in before {
        let mut open = golden.open();
        open.truncate(at);
        assert_eq!(open.log.log_end_offset(), offset(at));
        let producers = producers.as_array().unwrap();
        assert_eq!(open.log.producers().count(), producers.len(), "before {at}");
        for ((id, entry), expected) in open.log.producers().zip(producers) {
            assert_eq!(id.get(), int(&expected["producerId"]), "before {at}");
            let found_epoch = entry.producer_epoch().map(|epoch| i64::from(epoch.get()));
            assert_eq!(found_epoch, optional(&expected["epoch"]), "before {at}");
            let last_sequence = entry.last_sequence().map(|sequence| i64::from(sequence.get()));
            assert_eq!(last_sequence, optional(&expected["lastSequence"]), "before {at}");
            assert_eq!(
                entry.last_offset().map(|last| last.get()),
                optional(&expected["lastOffset"]),
                "before {at}"
            );
            if let Some(coordinator) = optional(&expected["coordinatorEpoch"]) {
                assert_eq!(entry.coordinator_epoch().map(i64::from), Some(coordinator), "before {at}");
            }
            let open_from = entry.transaction_first_offset().map(|first| first.get());
            assert_eq!(open_from, optional(&expected["currentTxnFirstOffset"]), "before {at}");
        }
    }

    // PID-1 on Kafka's own bytes: the colliding batch gets the log end, and is not taken for a duplicate.
    let golden = self::golden(name);
    let mut open = golden.open();
    let params = AppendParams::client(epoch(2), NOW);
    let taken = open.append(data(Some((5, 0, 0)), false, 10, 8), &params).unwrap();
    assert_eq!((taken.base_offset, taken.duplicate), (offset(54), false));
    assert_eq!(open.log.log_end_offset(), offset(64));
}

#[test]
fn barrier_loads_to_what_the_kip_says() {
    check_barrier("barrier");
}

#[test]
fn barrier_unclean_loads_to_what_the_kip_says() {
    check_barrier("barrier-unclean");
}

#[test]
fn a_foreign_directory_is_replayed_once() {
    let golden = golden("barrier");
    let open = golden.open();
    assert_eq!(open.report.rebuilt, [Rebuilt::PartitionFile]);
    open.close();
    let open = golden.bench.open_clean();
    assert_eq!(open.report.producer_state, ProducerStateSource::Snapshot { offset: offset(54) });
    assert_eq!(open.report.walked_from, Some(offset(31)), "the first segment is not read again");
    assert_eq!(open.log.last_batch().map(|last| last.is_barrier), Some(true));
    let barriers: Vec<_> = open.log.partition_file().barriers().map(|(at, _)| at.get()).collect();
    assert_eq!(barriers, [31, 53]);
}

/// Logs whose last bytes are torn, and were above the recovery point: cut as Kafka cuts them.
#[test]
fn torn_tails_are_cut_where_kafka_cuts_them() {
    for (name, torn) in [
        ("torn-body", true),
        ("torn-header", true),
        // Five bytes of the batch are left, the upper ones of its offset, and those are zeros.
        ("torn-length", false),
        ("garbage-tail", true),
        ("short-tail", true),
        ("zeros-tail", false),
        ("kill9-prealloc", false),
    ] {
        let golden = golden(name);
        let mut open = golden.open();
        check_bounds(&mut open, &golden.expected["load"]);
        check_producers(&open, &golden.expected["replay"]["producersRebuiltWithoutSnapshots"]);
        let [cut] = &open.report.cuts[..] else { panic!("{name}: {:?}", open.report.cuts) };
        assert_eq!(cut.kind, if torn { CutKind::Torn } else { CutKind::Preallocated }, "{name}");
        assert_eq!(golden.bench.disk.read_file(&cut.file).unwrap().len() as u64, cut.position, "{name}");
        // R5: the same again, and nothing left to cut.
        let facts = open.facts();
        drop(open);
        let mut again = golden.open();
        assert_eq!(again.facts(), facts, "{name}");
        assert_eq!(again.report.cuts, [], "{name}");
    }
}

/// Kafka cuts at a flipped bit, or does not see it. weir takes the partition offline, and changes nothing.
#[test]
fn a_flipped_bit_is_corruption_and_nothing_is_cut() {
    for (name, next_offset, segment_follows, behind) in [
        // Kafka: log end 224 + the batches before; ours: valid batches lie behind.
        ("bitflip-active", None, false, true),
        // Kafka: cut at 56, later segments deleted.
        ("bitflip-sealed", Some(56), true, true),
        // Kafka serves it: the clean marker is there.
        ("bitflip-clean", None, false, true),
        // Kafka serves it: it lies below the recovery point. So do we not: a foreign log is read once, whole.
        ("bitflip-sealed-unseen", Some(56), true, true),
    ] {
        let golden = golden(name);
        let before = golden.bench.disk.contents();
        let Err(LoadError::Corrupt(corruption)) = golden.try_open() else { panic!("{name} was loaded") };
        assert!(matches!(corruption.found, Invalid::Batch(_)), "{name}: {corruption}");
        if let Some(expected) = next_offset {
            assert_eq!(corruption.next_offset, offset(expected), "{name}");
        }
        assert_eq!(corruption.last_segment.is_some(), segment_follows, "{name}");
        assert_eq!(corruption.behind.is_some(), behind, "{name}");
        let text = corruption.to_string();
        assert!(text.contains("weir dump-log") && text.contains(".log"), "{text}");
        assert_eq!(golden.bench.disk.contents(), before, "{name}: nothing was changed");
    }
}

#[test]
fn old_formats_are_refused_and_left_alone() {
    let golden = golden("magic-v0");
    let before = golden.bench.disk.contents();
    let refused = golden.try_open();
    assert!(
        matches!(refused, Err(LoadError::UnsupportedMagic { magic: 0, position: 0, .. })),
        "{:?}",
        refused.err()
    );
    assert_eq!(golden.bench.disk.contents(), before);
}

#[test]
fn a_missing_epoch_checkpoint_is_rebuilt_from_the_log() {
    let golden = golden("no-epoch-checkpoint");
    let mut open = golden.open();
    check_bounds(&mut open, &golden.expected["load"]);
    assert!(open.report.rebuilt.contains(&Rebuilt::LeaderEpochs));
}

/// Kafka drops the last epoch without records when it loads; we keep it (EPOCH-3).
#[test]
fn the_last_epoch_without_records_is_kept() {
    let golden = golden("leader-epochs-empty-last");
    let open = golden.open();
    let last = open.log.epochs().latest().unwrap();
    assert_eq!((last.epoch.get(), last.start_offset.get()), (8, 90));
    let kafka = golden.expected["load"]["leaderEpochs"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((int(&kafka[0]), int(&kafka[1])), (6, 60), "what Kafka's own load ends with");
}

#[test]
fn a_log_start_inside_a_batch_is_kept() {
    let golden = golden("deleted-records");
    let mut open = golden.open();
    check_bounds(&mut open, &golden.expected["load"]);
    let read = open.read(174, 1, Isolation::Uncommitted);
    let first = BatchReader::new(&read.bytes).next().unwrap().unwrap();
    assert!(first.base_offset() <= offset(174) && first.last_offset() >= offset(174));
}
