use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use weir_format::{BatchBuilder, BatchReader, TimestampMs};
use weir_log::{Durability, LogConfig, OpenOptions, TailMemory};
use weir_segment::io::sim::{Acknowledged, CrashPolicy, SimDisk};

use super::worker::{REOPEN_AFTER, REST_AFTER, TURN};
use super::*;
use crate::uuid::Uuid;

fn id(number: u8) -> PartitionId {
    PartitionId { topic_id: Uuid([number; 16]), partition: 0 }
}

fn spec(number: u8) -> PartitionSpec {
    PartitionSpec {
        id: id(number),
        topic: format!("t{number}"),
        log_dir: PathBuf::from("/d"),
        dir: PathBuf::from(format!("/d/t{number}-0")),
        log: LogConfig::default(),
        options: OpenOptions {
            side_dir: PathBuf::from(format!("/d.weir/{number}")),
            clean_shutdown: false,
            recovery_point: Offset::ZERO,
            log_start_offset: Offset::ZERO,
            now: TimestampMs::new(0),
        },
        leadership: Leadership { leader_epoch: LeaderEpoch::new(3).unwrap(), read_only: None },
    }
}

const EXPIRE_INTERVAL: Duration = Duration::from_millis(200);

/// Chores come often.
fn often() -> ShardConfig {
    ShardConfig {
        expiry_interval: EXPIRE_INTERVAL,
        retention_interval: Duration::from_millis(50),
        ..ShardConfig::default()
    }
}

fn shards(disk: &SimDisk) -> Shards {
    let disk = disk.clone();
    let open: OpenIo = Box::new(move || Ok(Box::new(disk.io())));
    Shards::start(vec![open], often(), TailMemory::new(1 << 20)).unwrap()
}

fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.yield_always(true);
    disk
}

async fn open(shards: &Shards, spec: PartitionSpec) -> PartitionHandle {
    let leadership = spec.leadership.clone();
    let handle = shards.of(spec.id).open(spec).await.unwrap();
    let status = handle.loaded().await;
    assert!(matches!(status.log, LogStatus::Online(_)), "{status:?}");
    handle.set_leadership(leadership).await.unwrap();
    handle
}

fn batch(value: &str) -> BytesMut {
    BatchBuilder::new().record(TimestampMs::new(5), None, Some(value.as_bytes())).build().unwrap()
}

async fn append(handle: &PartitionHandle, value: &str) -> Result<Appended, PartitionError> {
    handle.append_client(batch(value), Acks::Durable).await
}

async fn values(handle: &PartitionHandle) -> Vec<String> {
    let mut values = Vec::new();
    let mut from = Offset::ZERO;
    loop {
        let read = handle.read(from, 1 << 20, Isolation::Uncommitted, true).await.unwrap();
        if read.bytes.is_empty() {
            return values;
        }
        for batch in BatchReader::new(&read.bytes) {
            let batch = batch.unwrap();
            from = batch.next_offset();
            for record in batch.records().unwrap() {
                values.push(String::from_utf8(record.unwrap().value.unwrap().to_vec()).unwrap());
            }
        }
    }
}

/// Keeps the shard from going on until the sender is dropped.
async fn hold(shard: &ShardHandle) -> std::sync::mpsc::Sender<()> {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (entered, inside) = oneshot::channel();
    let shard = shard.clone();
    tokio::spawn(async move {
        let _ = shard
            .run_io(move |_| {
                let _ = entered.send(());
                let _ = wait.recv();
            })
            .await;
    });
    inside.await.unwrap();
    go
}

fn log_syncs(disk: &SimDisk, number: u8) -> usize {
    let log = format!("/d/t{number}-0/00000000000000000000.log");
    let is_log = |path: &Path| path == Path::new(&log);
    disk.ledger()
        .iter()
        .filter(|entry| is_log(&entry.path) && matches!(entry.what, Acknowledged::File { .. }))
        .count()
}

#[tokio::test]
async fn appends_that_wait_together_share_one_sync_per_partition() {
    let disk = disk(1);
    let shards = shards(&disk);
    let handles = [open(&shards, spec(1)).await, open(&shards, spec(2)).await];
    let before = [log_syncs(&disk, 1), log_syncs(&disk, 2)];
    let go = hold(handles[0].shard()).await;
    let mut waiting = Vec::new();
    for step in 0..60 {
        let append = handles[step % 2].start_append(batch("x"), AppendOrigin::Client, None, Acks::Durable);
        waiting.push(append.await.unwrap());
    }
    drop(go);
    for (step, waiting) in waiting.into_iter().enumerate() {
        let appended = waiting.await.unwrap();
        assert_eq!(appended.base_offset.get(), i64::try_from(step / 2).unwrap());
    }
    assert_eq!([log_syncs(&disk, 1) - before[0], log_syncs(&disk, 2) - before[1]], [1, 1]);
    assert_eq!(handles[0].view().unwrap().high_watermark.get(), 30);
    assert!(shards.stop().await.iter().all(|points| points.clean && points.recovery_point.get() == 30));
}

#[tokio::test]
async fn nothing_is_readable_or_acknowledged_before_it_is_durable() {
    let disk = disk(2);
    let shards = shards(&disk);
    let handle = open(&shards, spec(1)).await;
    let go = hold(handle.shard()).await;
    let written = handle.start_append(batch("x"), AppendOrigin::Client, None, Acks::Written).await.unwrap();
    let read = {
        let handle = handle.clone();
        tokio::spawn(async move { handle.read(Offset::ZERO, 1 << 20, Isolation::Uncommitted, true).await })
    };
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(go);
    assert_eq!(written.await.unwrap().base_offset, Offset::ZERO);
    // The read was served behind the append and before its sync.
    let read = read.await.unwrap().unwrap();
    assert!(read.bytes.is_empty() || read.view.high_watermark.get() == 1);
    let mut watch = handle.watch();
    let view = watch.wait_for(|status| status.view().unwrap().high_watermark.get() == 1).await.unwrap();
    assert_eq!(view.view().unwrap().log_end_offset.get(), 1);
}

#[tokio::test]
async fn a_failed_sync_acknowledges_nothing_refuses_writes_and_spares_the_others() {
    let disk = disk(3);
    let shards = shards(&disk);
    let (bad, good) = (open(&shards, spec(1)).await, open(&shards, spec(2)).await);
    append(&bad, "kept").await.unwrap();
    disk.fail_sync(1);
    let error = append(&bad, "lost").await.unwrap_err();
    assert!(matches!(&error, PartitionError::Offline { reason } if reason.contains("sync")), "{error}");
    let error = append(&bad, "refused").await.unwrap_err();
    assert!(matches!(error, PartitionError::Offline { .. }), "{error}");
    assert!(matches!(bad.status().log, LogStatus::WritesRefused { .. }));
    assert_eq!(values(&bad).await, ["kept"]);
    // Consumers ask for the end of the log before they read.
    let end = bad.offset_for(weir_log::OffsetSpec::Latest, Isolation::Uncommitted).await.unwrap().unwrap();
    assert_eq!(end.offset.get(), 1);
    assert!(matches!(bad.advance_log_start(end.offset).await.unwrap_err(), PartitionError::Offline { .. }));
    append(&good, "fine").await.unwrap();
    // Nothing tells what of the log is on the disk, so time does not heal it.
    tokio::time::sleep(REOPEN_AFTER * 2).await;
    assert!(matches!(append(&bad, "refused").await.unwrap_err(), PartitionError::Offline { .. }));
    let points = shards.stop().await;
    let clean: BTreeMap<&str, bool> =
        points.iter().map(|points| (points.topic.as_str(), points.clean)).collect();
    assert_eq!(clean, BTreeMap::from([("t1", false), ("t2", true)]));
}

#[tokio::test]
async fn a_full_disk_refuses_writes_serves_reads_and_goes_on_when_there_is_room() {
    let disk = disk(4);
    let shards = shards(&disk);
    let handle = open(&shards, spec(1)).await;
    append(&handle, "kept").await.unwrap();
    disk.full_after(Some(0));
    assert!(matches!(append(&handle, "refused").await.unwrap_err(), PartitionError::Offline { .. }));
    assert_eq!(values(&handle).await, ["kept"]);
    // Reopening needs no room that is not there.
    tokio::time::sleep(REOPEN_AFTER * 2).await;
    assert!(append(&handle, "still refused").await.is_err());
    assert_eq!(values(&handle).await, ["kept"]);
    disk.full_after(None);
    tokio::time::sleep(REOPEN_AFTER * 2).await;
    assert_eq!(append(&handle, "after").await.unwrap().base_offset.get(), 1);
    assert_eq!(values(&handle).await, ["kept", "after"]);
    assert!(shards.stop().await[0].clean);
}

/// A start on a full disk cannot note the epoch that it raised; writes are taken once there is room, without another start.
#[tokio::test]
async fn a_change_that_a_full_disk_refused_is_no_reason_to_refuse_writes_for_ever() {
    let disk = disk(9);
    let shards = shards(&disk);
    let handle = open(&shards, spec(1)).await;
    append(&handle, "kept").await.unwrap();
    disk.full_after(Some(0));
    let raised = LeaderEpoch::new(4).unwrap();
    handle.set_leadership(Leadership { leader_epoch: raised, read_only: None }).await.unwrap();
    match handle.status().log {
        LogStatus::WritesRefused { reason, .. } => {
            assert!(reason.contains("leader-epoch-checkpoint"), "{reason}");
            assert!(reason.contains("space"), "the system's own word is missing: {reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(values(&handle).await, ["kept"]);
    disk.full_after(None);
    tokio::time::sleep(REOPEN_AFTER * 2).await;
    // Who asks where the epoch ends is answered before anything is written under it.
    handle.sync().await.unwrap();
    assert_eq!(handle.end_offset_for_epoch(raised).await.unwrap(), Some((raised, Offset::new(1).unwrap())));
    assert_eq!(append(&handle, "after").await.unwrap().base_offset.get(), 1);
    // A failed sync is another matter.
    disk.fail_sync(1);
    let next = LeaderEpoch::new(5).unwrap();
    handle.set_leadership(Leadership { leader_epoch: next, read_only: None }).await.unwrap();
    tokio::time::sleep(REOPEN_AFTER * 2).await;
    assert!(append(&handle, "refused").await.is_err());
    shards.stop().await;
}

#[tokio::test]
async fn a_reopened_log_starts_where_it_was_told_to() {
    let disk = disk(8);
    let shards = shards(&disk);
    let handle = open(&shards, spec(1)).await;
    for value in ["a", "b", "c"] {
        append(&handle, value).await.unwrap();
    }
    let start = Offset::new(2).unwrap();
    assert_eq!(handle.delete_records(Some(start)).await.unwrap().log_start_offset, start);
    disk.full_after(Some(0));
    append(&handle, "refused").await.unwrap_err();
    disk.full_after(None);
    tokio::time::sleep(REOPEN_AFTER * 2).await;
    let appended = append(&handle, "d").await.unwrap();
    assert_eq!((appended.log_start_offset, appended.base_offset.get()), (start, 3));
}

#[tokio::test]
async fn a_reopened_log_is_judged_by_its_own_recovery_point_and_not_by_one_from_before_a_cut() {
    let disk = disk(9);
    let shards = shards(&disk);
    // What the checkpoint said at the start, of a log that was longer then.
    let mut longer = spec(1);
    longer.options.recovery_point = Offset::new(1_000).unwrap();
    let handle = open(&shards, longer).await;
    append(&handle, "kept").await.unwrap();
    disk.full_after(Some(100));
    append(&handle, &"refused".repeat(1_000)).await.unwrap_err();
    let log = disk.read_file(Path::new("/d/t1-0/00000000000000000000.log")).unwrap();
    assert!(log.len() > batch("kept").len(), "a part of it has been written");
    disk.full_after(None);
    tokio::time::sleep(REOPEN_AFTER * 2).await;
    assert_eq!(append(&handle, "after").await.unwrap().base_offset.get(), 1);
    assert_eq!(values(&handle).await, ["kept", "after"]);
}

#[tokio::test]
async fn what_was_acknowledged_survives_every_kind_of_power_cut() {
    for (seed, policy) in (0..).zip(CrashPolicy::ALL) {
        let disk = disk(seed);
        disk.reorder(true);
        let before = shards(&disk);
        let handle = open(&before, spec(1)).await;
        let mut acknowledged = Vec::new();
        for step in 0..6 {
            let value = format!("{seed}-{step}");
            append(&handle, &value).await.unwrap();
            acknowledged.push(value);
        }
        // One more is written, and perhaps not synced.
        let last = handle.append_client(batch("last"), Acks::Written).await;
        disk.crash(policy);
        drop(last);
        let after = shards(&disk);
        let handle = open(&after, spec(1)).await;
        let found = values(&handle).await;
        assert_eq!(found[..6], acknowledged, "{policy:?}");
        assert!(found.len() == 6 || found[6..] == ["last"], "{policy:?} {found:?}");
        assert!(after.stop().await[0].clean);
    }
}

#[tokio::test]
async fn appends_beyond_what_may_be_unsynced_wait_in_order() {
    let disk = disk(5);
    let shards = shards(&disk);
    let mut spec = spec(1);
    spec.log.max_unsynced_bytes = 500;
    let handle = open(&shards, spec).await;
    let go = hold(handle.shard()).await;
    let mut waiting = Vec::new();
    for step in 0..30 {
        let value = format!("{step:0>200}");
        let append = handle.start_append(batch(&value), AppendOrigin::Client, None, Acks::Durable);
        waiting.push(append.await.unwrap());
    }
    drop(go);
    for (step, waiting) in (0..).zip(waiting) {
        assert_eq!(waiting.await.unwrap().base_offset.get(), step);
    }
    assert!(log_syncs(&disk, 1) >= 15, "{}", log_syncs(&disk, 1));
    assert_eq!(values(&handle).await.len(), 30);
}

#[tokio::test]
async fn a_guarded_partition_takes_replication_alone_and_an_open_one_none() {
    let disk = disk(6);
    let shards = shards(&disk);
    let handle = open(&shards, spec(1)).await;
    let epoch = LeaderEpoch::new(3).unwrap();
    let foreign = |offset: i64| {
        BatchBuilder::new()
            .base_offset(Offset::new(offset).unwrap())
            .leader_epoch(epoch)
            .record(TimestampMs::new(5), None, Some(b"source"))
            .build()
            .unwrap()
    };
    let refused = handle.append_replicated(foreign(0), Offset::ZERO, epoch).await.unwrap_err();
    assert!(matches!(refused, PartitionError::NotMirrored));
    let read_only = ReadOnly { mirror: "dr".to_owned(), state: "MIRRORING".to_owned() };
    let guarded = Leadership { leader_epoch: epoch, read_only: Some(read_only) };
    handle.set_leadership(guarded.clone()).await.unwrap();
    assert_eq!(handle.append_replicated(foreign(0), Offset::ZERO, epoch).await.unwrap().base_offset.get(), 0);
    // Offsets may have gaps, the log's end may not have moved: a log that came back shorter than
    // what was fetched for it would get a hole.
    let (expected, found) = (Offset::new(5).unwrap(), Offset::new(1).unwrap());
    let moved = handle.append_replicated(foreign(5), expected, epoch).await.unwrap_err();
    assert!(
        matches!(moved, PartitionError::EndMoved { expected: e, found: f } if e == expected && f == found),
        "{moved}"
    );
    let refused = append(&handle, "client").await.unwrap_err();
    assert!(matches!(refused, PartitionError::ReadOnly { .. }), "{refused}");
    // A marker and a barrier of our own are what a stop writes before the guard falls.
    let barrier = weir_format::MirrorPidReset::build(TimestampMs::new(5));
    assert_eq!(handle.append_coordinator(barrier).await.unwrap().base_offset.get(), 1);
    assert_eq!(handle.sync().await.unwrap().high_watermark.get(), 2);
    handle.set_leadership(Leadership { read_only: None, ..guarded }).await.unwrap();
    assert_eq!(append(&handle, "client").await.unwrap().base_offset.get(), 2);
}

#[tokio::test]
async fn a_stop_answers_what_was_asked_before_it_and_refuses_what_comes_after() {
    let disk = disk(7);
    let shards = shards(&disk);
    let handle = open(&shards, spec(1)).await;
    let go = hold(handle.shard()).await;
    let mut waiting = Vec::new();
    for _ in 0..10 {
        let append = handle.start_append(batch("x"), AppendOrigin::Client, None, Acks::Durable);
        waiting.push(append.await.unwrap());
    }
    let (points, ()) = tokio::join!(shards.stop(), async { drop(go) });
    for waiting in waiting {
        waiting.await.unwrap();
    }
    assert_eq!((points[0].recovery_point.get(), points[0].clean), (10, true));
    assert!(matches!(append(&handle, "late").await.unwrap_err(), PartitionError::ShutDown));
    assert!(matches!(handle.sync().await.unwrap_err(), PartitionError::ShutDown));
}

#[tokio::test]
async fn producers_that_have_been_idle_too_long_are_forgotten_by_the_clock() {
    use weir_format::{ProducerEpoch, ProducerId, Sequence};
    let disk = disk(8);
    let shards = shards(&disk);
    let mut spec = spec(1);
    let expiration = Duration::from_secs(3_600);
    spec.log.psm.producer_id_expiration = expiration;
    let handle = open(&shards, spec).await;
    let idempotent = |id: i64, timestamp: TimestampMs| {
        BatchBuilder::new()
            .producer(ProducerId::new(id).unwrap(), ProducerEpoch::ZERO, Sequence::new(0))
            .record(timestamp, None, Some(b"x"))
            .build()
            .unwrap()
    };
    let now = crate::clock::now();
    handle.append_client(idempotent(1, TimestampMs::new(5)), Acks::Durable).await.unwrap();
    handle.append_client(idempotent(2, now), Acks::Durable).await.unwrap();
    let known = || async {
        handle.run(|log, _| log.producers().map(|(id, _)| id.get()).collect::<Vec<_>>()).await.unwrap()
    };
    // Nobody asks for anything meanwhile: the shard wakes by itself.
    tokio::time::sleep(EXPIRE_INTERVAL * 3).await;
    assert_eq!(known().await, [2]);
}

#[tokio::test]
async fn a_full_queue_of_syncs_keeps_no_segment_from_being_rolled() {
    let disk = disk(11);
    let shards = shards(&disk);
    let mut handles = Vec::new();
    for number in 1..=8 {
        let mut spec = spec(number);
        // One batch, and no second one.
        spec.log.segment.segment_bytes = u32::try_from(batch("x").len()).unwrap();
        handles.push(open(&shards, spec).await);
    }
    disk.queue_depth(Some(1));
    // One turn's appends, and behind them one more for each partition: it rolls the segment whose sync still waits
    // for room in the queue.
    let rounds = TURN / handles.len() + 1;
    let go = hold(handles[0].shard()).await;
    let mut waiting = Vec::new();
    for _ in 0..rounds {
        for handle in &handles {
            waiting.push(
                handle.start_append(batch("x"), AppendOrigin::Client, None, Acks::Durable).await.unwrap(),
            );
        }
    }
    drop(go);
    for waiting in waiting {
        waiting.await.unwrap();
    }
    let end = i64::try_from(rounds).unwrap();
    for handle in &handles {
        assert_eq!(handle.view().unwrap().high_watermark.get(), end);
    }
    assert!(shards.stop().await.iter().all(|points| points.clean && points.recovery_point.get() == end));
}

#[tokio::test]
async fn acks_1_is_answered_by_what_is_written_and_acks_all_by_what_is_durable() {
    let disk = disk(21);
    let shards = shards(&disk);
    let handle = open(&shards, spec(1)).await;
    append(&handle, "kept").await.unwrap();
    let go = hold(handle.shard()).await;
    let (first, all) = (Acks::Written, Acks::Durable);
    let written = handle.start_append(batch("written"), AppendOrigin::Client, None, first).await.unwrap();
    let durable = handle.start_append(batch("durable"), AppendOrigin::Client, None, all).await.unwrap();
    disk.fail_sync(1);
    drop(go);
    assert_eq!(written.await.unwrap().base_offset.get(), 1);
    assert!(matches!(durable.await.unwrap_err(), PartitionError::Offline { .. }));
    assert_eq!(values(&handle).await, ["kept"], "nothing is readable that is not durable");
}

#[tokio::test]
async fn after_a_failed_write_nothing_behind_it_is_acknowledged() {
    // N-TAIL-1.
    let disk = disk(22);
    let shards = shards(&disk);
    let handle = open(&shards, spec(1)).await;
    for value in ["1", "2", "3", "4"] {
        append(&handle, value).await.unwrap();
    }
    let go = hold(handle.shard()).await;
    let mut waiting = Vec::new();
    for number in 5..=10 {
        let acks = if number % 2 == 0 { Acks::Written } else { Acks::Durable };
        let append = handle.start_append(batch(&number.to_string()), AppendOrigin::Client, None, acks);
        waiting.push(append.await.unwrap());
    }
    disk.fail_write(1);
    drop(go);
    for waiting in waiting {
        assert!(matches!(waiting.await.unwrap_err(), PartitionError::Offline { .. }));
    }
    assert!(matches!(handle.status().log, LogStatus::WritesRefused { .. }));
    tokio::time::sleep(REOPEN_AFTER * 2).await;
    assert_eq!(append(&handle, "after").await.unwrap().base_offset.get(), 4);
    assert_eq!(values(&handle).await, ["1", "2", "3", "4", "after"]);
    assert!(shards.stop().await[0].clean);
}

#[tokio::test]
async fn what_was_cut_away_is_not_acknowledged_however_far_the_log_grows() {
    for to in [0, 9] {
        let disk = disk(25);
        let shards = shards(&disk);
        let handle = open(&shards, spec(1)).await;
        let go = hold(handle.shard()).await;
        let mut cut_away = Vec::new();
        for acks in [Acks::Durable, Acks::Written] {
            let append = handle.start_append(batch("cut"), AppendOrigin::Client, None, acks);
            cut_away.push(append.await.unwrap());
        }
        let cut = handle.run(move |log, io| match to {
            0 => log.truncate_to(io, Offset::ZERO),
            to => log.truncate_fully_and_start_at(io, Offset::new(to).unwrap()),
        });
        let (cutting, ()) = tokio::join!(cut, async { drop(go) });
        cutting.unwrap().unwrap();
        assert_eq!(handle.view().unwrap().high_watermark.get(), to);
        for value in ["1", "2"] {
            append(&handle, value).await.unwrap();
        }
        for waiting in cut_away {
            let refused = waiting.await.unwrap_err();
            assert!(matches!(refused, PartitionError::Offline { .. }), "{refused}");
        }
        assert_eq!(handle.sync().await.unwrap().high_watermark.get(), to + 2);
        assert!(shards.stop().await[0].clean);
    }
}

#[tokio::test]
async fn whoever_is_told_of_a_change_sees_it() {
    let disk = disk(28);
    let shards = shards(&disk);
    let handle = open(&shards, spec(1)).await;
    for start in 1..=200 {
        let start = Offset::new(start).unwrap();
        handle.run(move |log, io| log.truncate_fully_and_start_at(io, start)).await.unwrap().unwrap();
        let view = handle.view().unwrap();
        assert_eq!((view.log_start_offset, view.high_watermark), (start, start));
    }
    assert!(shards.stop().await[0].clean);
}

/// TRUNC-7: it was asked for while the mirror owned the partition, and comes when that is over.
#[tokio::test]
async fn what_a_mirror_asked_for_before_a_stop_cuts_nothing_behind_it() {
    let disk = disk(27);
    let shards = shards(&disk);
    let handle = open(&shards, spec(1)).await;
    let read_only = ReadOnly { mirror: "dr".to_owned(), state: "STOPPING".to_owned() };
    let stopped = handle.status().leadership;
    let stopping = Leadership { read_only: Some(read_only), ..stopped.clone() };
    handle.set_leadership(stopping).await.unwrap();
    let barrier = weir_format::MirrorPidReset::build(TimestampMs::new(5));
    handle.append_coordinator(barrier).await.unwrap();
    handle.sync().await.unwrap();
    let go = hold(handle.shard()).await;
    let start = Offset::new(1).unwrap();
    let (stop, cut, emptied, moved, ()) = tokio::join!(
        biased;
        handle.set_leadership(stopped),
        handle.truncate_to(Offset::ZERO),
        handle.truncate_fully_and_start_at(Offset::new(9).unwrap()),
        handle.advance_log_start(start),
        async { drop(go) }
    );
    stop.unwrap();
    for asked in [cut, emptied, moved] {
        assert!(matches!(asked.unwrap_err(), PartitionError::NotMirrored));
    }
    let view = handle.view().unwrap();
    assert_eq!((view.log_start_offset, view.log_end_offset), (Offset::ZERO, start));
    assert_eq!(append(&handle, "ours").await.unwrap().base_offset.get(), 1);
    assert!(shards.stop().await[0].clean);
}

#[tokio::test]
async fn a_first_batch_that_begins_below_the_end_of_an_empty_log_is_acknowledged() {
    let disk = disk(26);
    let shards = shards(&disk);
    let epoch = LeaderEpoch::new(3).unwrap();
    let mut spec = spec(1);
    let read_only = ReadOnly { mirror: "dr".to_owned(), state: "MIRRORING".to_owned() };
    spec.leadership.read_only = Some(read_only);
    let handle = open(&shards, spec).await;
    let start = Offset::new(7).unwrap();
    handle.truncate_fully_and_start_at(start).await.unwrap();
    let mut builder = BatchBuilder::new().base_offset(Offset::new(5).unwrap()).leader_epoch(epoch);
    for _ in 0..4 {
        builder = builder.record(TimestampMs::new(5), None, Some(b"source"));
    }
    let appended = handle.append_replicated(builder.build().unwrap(), start, epoch).await.unwrap();
    assert_eq!((appended.base_offset.get(), appended.last_offset.get()), (5, 8));
}

/// The files below a directory that this process holds open.
#[cfg(target_os = "linux")]
fn open_files(dir: &Path) -> Vec<PathBuf> {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| {
        let target = std::fs::read_link(entry.ok()?.path()).ok()?;
        target.starts_with(dir).then_some(target)
    });
    links.filter(|path| path.extension().is_some()).collect()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_partition_that_failed_gives_its_files_back_when_it_is_closed() {
    use weir_segment::io::select::{IoConfig, WantedBackend, select};

    let root = tempfile::tempdir().unwrap();
    for wanted in [WantedBackend::Pwrite, WantedBackend::Auto] {
        let root = root.path().join(format!("{wanted:?}"));
        let open_io: OpenIo = Box::new(move || Ok(select(wanted, &IoConfig::default()).unwrap().0));
        let shards = Shards::start(vec![open_io], often(), TailMemory::new(1 << 20)).unwrap();
        let mut spec = spec(1);
        spec.dir = root.join("t1-0");
        spec.options.side_dir = root.join("side");
        spec.log.segment.segment_bytes = 200;
        let handle = open(&shards, spec).await;
        append(&handle, "kept").await.unwrap();
        // A segment that is to be rolled into a directory that somebody moved away.
        std::fs::rename(root.join("t1-0"), root.join("moved")).unwrap();
        while append(&handle, "more than a segment takes").await.is_ok() {}
        assert!(matches!(handle.status().log, LogStatus::WritesRefused { .. }));
        assert!(!open_files(&root).is_empty());
        assert!(matches!(handle.close().await.unwrap_err(), PartitionError::Offline { .. }));
        assert_eq!(open_files(&root), Vec::<PathBuf>::new(), "{wanted:?}");
        shards.stop().await;
    }
}

#[tokio::test]
async fn a_partition_at_rest_holds_no_space_and_nothing_unsynced() {
    for durability in [Durability::Synced, Durability::Written] {
        let disk = disk(23);
        disk.direct(true);
        disk.allocate_ahead(Some(64 << 10));
        let shards = shards(&disk);
        let mut spec = spec(1);
        spec.log.durability = durability;
        let handle = open(&shards, spec).await;
        let path = Path::new("/d/t1-0/00000000000000000000.log");
        for round in 1..=2 {
            append(&handle, "x").await.unwrap();
            assert!(disk.read_file(path).unwrap().len() >= 64 << 10, "space is allocated ahead");
            tokio::time::sleep(REST_AFTER * 5).await;
            let size = batch("x").len() * round;
            assert_eq!(disk.read_file(path).unwrap().len(), size, "{durability:?}");
            assert!(disk.durable_file(path).unwrap().len() >= size, "{durability:?}");
        }
        assert_eq!(values(&handle).await, ["x", "x"]);
        assert!(shards.stop().await[0].clean);
    }
}

#[tokio::test]
async fn many_partitions_are_written_and_synced_side_by_side() {
    let disk = disk(24);
    disk.reorder(true);
    disk.slow(Some(1..10_000));
    disk.queue_depth(Some(8));
    let shards = shards(&disk);
    let mut handles = Vec::new();
    for number in 1..=40 {
        handles.push(open(&shards, spec(number)).await);
    }
    let go = hold(handles[0].shard()).await;
    let mut waiting = Vec::new();
    for round in 0..5 {
        for handle in &handles {
            let acks = if round % 2 == 0 { Acks::Durable } else { Acks::Written };
            let value = "v".repeat(3_000 * (round + 1));
            waiting.push(handle.start_append(batch(&value), AppendOrigin::Client, None, acks).await.unwrap());
        }
    }
    drop(go);
    for waiting in waiting {
        waiting.await.unwrap();
    }
    for handle in &handles {
        handle.sync().await.unwrap();
        assert_eq!(values(handle).await.len(), 5);
    }
    assert_eq!(log_syncs(&disk, 1), 1, "one sync for all of a partition");
    assert!(shards.stop().await.iter().all(|points| points.clean && points.recovery_point.get() == 5));
}

#[tokio::test]
async fn a_broken_backend_fails_every_partition_once_and_the_shard_still_answers() {
    let disk = disk(25);
    let shards = shards(&disk);
    let (one, two) = (open(&shards, spec(1)).await, open(&shards, spec(2)).await);
    append(&one, "kept").await.unwrap();
    disk.break_reaps();
    assert!(matches!(append(&one, "lost").await, Err(PartitionError::Offline { .. })));
    for handle in [&one, &two] {
        assert!(matches!(append(handle, "refused").await, Err(PartitionError::Offline { .. })));
        assert!(matches!(handle.status().log, LogStatus::WritesRefused { .. }));
    }
    // A partition that is opened now is offline, and nobody waits for it.
    let three = shards.of(id(3)).open(spec(3)).await.unwrap();
    assert!(matches!(three.loaded().await.log, LogStatus::Offline { .. }));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(disk.broken_reaps(), 1, "it is asked again and again");
    assert!(shards.stop().await.iter().all(|points| !points.clean));
}

/// Two of these fill a segment of 450 bytes.
fn old(timestamp: i64) -> BytesMut {
    BatchBuilder::new().record(TimestampMs::new(timestamp), None, Some(&[b'v'; 130])).build().unwrap()
}

fn hourly(number: u8) -> PartitionSpec {
    let mut spec = spec(number);
    spec.log.segment.segment_bytes = 450;
    spec.log.segment.segment_ms = i64::MAX;
    spec.log.retention.ms = Some(60 * 60 * 1_000);
    spec
}

async fn starts_at(handle: &PartitionHandle, offset: i64) -> bool {
    for _ in 0..100 {
        if handle.view().unwrap().log_start_offset.get() == offset {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}

#[tokio::test]
async fn old_segments_are_deleted_by_the_clock_and_not_while_they_are_mirrored() {
    let disk = disk(31);
    let shards = shards(&disk);
    let own = open(&shards, hourly(1)).await;
    let mut mirrored = hourly(2);
    let read_only = ReadOnly { mirror: "m".to_owned(), state: "MIRRORING".to_owned() };
    mirrored.leadership.read_only = Some(read_only);
    let mirrored = open(&shards, mirrored).await;
    for base in 0..5 {
        own.append_client(old(1_000), Acks::Durable).await.unwrap();
        let mut batch = old(1_000);
        let at = Offset::new(base).unwrap();
        weir_format::set_base_offset(&mut batch, at).unwrap();
        weir_format::set_leader_epoch(&mut batch, LeaderEpoch::ZERO).unwrap();
        mirrored.append_replicated(batch, at, LeaderEpoch::ZERO).await.unwrap();
    }
    mirrored.sync().await.unwrap();
    assert!(starts_at(&own, 5).await, "{:?}", own.view());
    assert_eq!(own.stats().await.unwrap().segments_deleted, 3);
    assert_eq!(mirrored.stats().await.unwrap().segment_count, 3);
    assert_eq!(mirrored.view().unwrap().log_start_offset, Offset::ZERO);
    // The log start follows the source's, and what is below it goes.
    mirrored.advance_log_start(Offset::new(3).unwrap()).await.unwrap();
    for _ in 0..100 {
        if mirrored.stats().await.unwrap().segment_count == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(mirrored.stats().await.unwrap().segment_count, 2);
    assert_eq!(mirrored.view().unwrap().log_start_offset, Offset::new(3).unwrap());
    shards.stop().await;
}

/// Segments that waited for a snapshot of the producers go once it is durable, and not at the next look by the clock.
#[tokio::test]
async fn old_segments_that_waited_for_a_snapshot_go_behind_it() {
    let disk = disk(36);
    let open_io: OpenIo = {
        let disk = disk.clone();
        Box::new(move || Ok(Box::new(disk.io())))
    };
    let seldom = ShardConfig { retention_interval: Duration::from_secs(3_600), ..often() };
    let shards = Shards::start(vec![open_io], seldom, TailMemory::new(1 << 20)).unwrap();
    let handle = open(&shards, hourly(1)).await;
    let producer = weir_format::ProducerId::new(7).unwrap();
    for sequence in 0..3 {
        let batch = BatchBuilder::new()
            .producer(producer, weir_format::ProducerEpoch::ZERO, weir_format::Sequence::new(sequence))
            .record(crate::clock::now(), None, Some(&[b'v'; 130]))
            .build()
            .unwrap();
        handle.append_client(batch, Acks::Durable).await.unwrap();
    }
    // Both are there at once: the snapshot behind the first segment, and the wish to delete that.
    let moved = handle.delete_records(Offset::new(2)).await.unwrap();
    assert_eq!(moved.log_start_offset.get(), 2);
    for _ in 0..100 {
        if handle.stats().await.unwrap().segment_count == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(handle.stats().await.unwrap().segment_count, 1);
    // The same by time: its records are of long ago.
    let handle = open(&shards, hourly(2)).await;
    for sequence in 0..3 {
        let batch = BatchBuilder::new()
            .producer(producer, weir_format::ProducerEpoch::ZERO, weir_format::Sequence::new(sequence))
            .record(TimestampMs::new(1_000), None, Some(&[b'v'; 130]))
            .build()
            .unwrap();
        handle.append_client(batch, Acks::Durable).await.unwrap();
    }
    assert!(starts_at(&handle, 3).await, "{:?}", handle.view());
    shards.stop().await;
}

#[tokio::test]
async fn records_are_deleted_for_clients_but_not_of_a_mirror() {
    let disk = disk(32);
    let shards = shards(&disk);
    let handle = open(&shards, spec(1)).await;
    for _ in 0..4 {
        append(&handle, "v").await.unwrap();
    }
    let before = |offset| handle.delete_records(Offset::new(offset));
    assert_eq!(before(2).await.unwrap().log_start_offset.get(), 2);
    assert_eq!(before(1).await.unwrap().log_start_offset.get(), 2, "it never moves back");
    let above = before(5).await.unwrap_err();
    assert!(matches!(above, PartitionError::Change(ChangeError::OffsetOutOfRange { .. })), "{above}");
    assert_eq!(handle.delete_records(None).await.unwrap().log_start_offset.get(), 4);
    let read_only = Some(ReadOnly { mirror: "m".to_owned(), state: "MIRRORING".to_owned() });
    let leadership = Leadership { leader_epoch: LeaderEpoch::new(4).unwrap(), read_only };
    handle.set_leadership(leadership).await.unwrap();
    let refused = handle.delete_records(None).await.unwrap_err();
    assert!(matches!(refused, PartitionError::ReadOnly { .. }), "{refused}");
    shards.stop().await;
}

/// A snapshot is finished by a shard that has nothing else to do, and beside one that appends.
#[tokio::test]
async fn a_shard_writes_a_snapshot_behind_each_roll() {
    let disk = disk(33);
    let shards = shards(&disk);
    let mut small = spec(1);
    small.log.segment.segment_bytes = 450;
    let handle = open(&shards, small).await;
    for _ in 0..3 {
        handle.append_client(old(1_000), Acks::Durable).await.unwrap();
    }
    for _ in 0..100 {
        if handle.stats().await.unwrap().newest_snapshot.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let stats = handle.stats().await.unwrap();
    assert_eq!((stats.newest_snapshot, stats.snapshots_written), (Offset::new(2), 1));
    for _ in 0..20 {
        handle.append_client(old(1_000), Acks::Durable).await.unwrap();
    }
    shards.stop().await;
    let newest =
        disk.files().into_iter().filter(|path| path.extension().is_some_and(|kind| kind == "snapshot"));
    assert!(newest.count() <= 2);
}

#[tokio::test]
async fn what_a_barrier_did_is_counted_and_its_memory_is_freed_elsewhere() {
    let disk = disk(34);
    let shards = shards(&disk);
    let handle = open(&shards, spec(1)).await;
    for id in 0..3 {
        let producer = weir_format::ProducerId::new(id).unwrap();
        let batch = BatchBuilder::new()
            .producer(producer, weir_format::ProducerEpoch::ZERO, weir_format::Sequence::new(0))
            .record(TimestampMs::new(5), None, None)
            .build()
            .unwrap();
        handle.append_client(batch, Acks::Durable).await.unwrap();
    }
    assert_eq!(handle.stats().await.unwrap().producers, 3);
    let barrier = BatchBuilder::barrier(TimestampMs::new(5));
    let appended = handle.append_coordinator(barrier).await.unwrap();
    assert_eq!((appended.barriers.len(), appended.forgotten.len()), (1, 0), "it was handed on");
    let stats = handle.stats().await.unwrap();
    assert_eq!((stats.producers, stats.barriers, stats.producers_forgotten_at_barriers), (0, 1, 3));
    assert_eq!(stats.transactions_aborted_at_barriers, 0);
    shards.stop().await;
}

/// Inflating is done before the shard gets the batch, and what is wrong with it is said all the same.
#[tokio::test]
async fn a_compressed_batch_is_looked_into_on_the_way() {
    let disk = disk(35);
    let shards = shards(&disk);
    let handle = open(&shards, spec(1)).await;
    // The codec says snappy, the bytes are none.
    let mut batch = batch("not snappy");
    batch[22] |= 2;
    let crc = weir_format::crc::batch_crc(&batch);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    let refused = handle.append_client(batch, Acks::Durable).await.unwrap_err();
    assert!(matches!(&refused, PartitionError::Append(AppendError::Records { .. })), "{refused:?}");
    assert_eq!(handle.view().unwrap().log_end_offset, Offset::ZERO);
    shards.stop().await;
}
