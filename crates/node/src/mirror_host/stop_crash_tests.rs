//! A crash anywhere in a stop comes to the same end: over a real log on SimDisk and a metadata
//! store, killed at every operation of the disk, around every transaction of the store, and
//! between every two actions of the machine.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use weir_format::{
    BatchBuilder, BatchReader, ControlRecordType, LeaderEpoch, Offset, ProducerEpoch, ProducerId,
    RecordBatch, Sequence, TimestampMs, set_base_offset, set_leader_epoch,
};
use weir_log::{AppendParams, Isolation, LogConfig, OpenOptions, UnifiedLog};
use weir_mirror::barrier::{StopOutcome, StopStep};
use weir_mirror::destination::{
    Destination, DestinationError, LogState, OpenTransaction, ProducerIdsMet, Transition,
};
use weir_mirror::partition::{Action, Desired, Event, MirrorPartition};
use weir_mirror::record::{MirrorPosition, PartitionRecord};
use weir_mirror::runner::stop_step;
use weir_mirror::source::TopicPartition;
use weir_mirror::state::MirrorPartitionState;
use weir_segment::io::sim::{CrashPolicy, SimDisk, SimIo};

use super::destination::{abort_of, change_for, load_record, log_state, open_transaction};
use crate::meta_kv::{KeyValue, MemoryKv, MetaKv, MetaKvError, Revision, Txn, TxnOutcome};
use crate::metadata::{Change, Leadership, Metadata, PartitionId, ReadOnly, Topic};
use crate::uuid::Uuid;

const NOW: TimestampMs = TimestampMs::new(1_767_225_600_000);
const OWN_EPOCH: i32 = 14;

fn epoch(raw: i32) -> LeaderEpoch {
    LeaderEpoch::new(raw).expect("not negative")
}

/// A store that dies at a transaction: before it, or after it and before its answer.
#[derive(Debug, Default)]
struct CrashKv {
    inner: MemoryKv,
    txns: AtomicI64,
    /// Twice the number of the transaction to die at, plus one to die after it.
    dies_at: AtomicI64,
}

impl CrashKv {
    fn dead() -> MetaKvError {
        let source = std::io::Error::other("the machine is off");
        MetaKvError::Storage { path: PathBuf::from("memory"), source: Box::new(redb::Error::Io(source)) }
    }
}

impl MetaKv for CrashKv {
    fn get(&self, key: &[u8]) -> Result<Option<KeyValue>, MetaKvError> {
        self.inner.get(key)
    }

    fn range(&self, start: &[u8], end: &[u8]) -> Result<Vec<KeyValue>, MetaKvError> {
        self.inner.range(start, end)
    }

    fn txn(&self, txn: Txn) -> Result<TxnOutcome, MetaKvError> {
        let number = self.txns.fetch_add(1, Ordering::Relaxed) + 1;
        let dies_at = self.dies_at.load(Ordering::Relaxed);
        if dies_at == 2 * number {
            return Err(Self::dead());
        }
        let done = self.inner.txn(txn);
        if dies_at == 2 * number + 1 { Err(Self::dead()) } else { done }
    }

    fn revision(&self) -> Result<Revision, MetaKvError> {
        self.inner.revision()
    }
}

/// One machine: a log, its disk, and the metadata.
struct Machine {
    disk: SimDisk,
    kv: Arc<CrashKv>,
    id: PartitionId,
    metadata: Metadata,
    log: Mutex<(UnifiedLog, SimIo)>,
}

fn open_log(disk: &SimDisk) -> (UnifiedLog, SimIo) {
    let mut io = disk.io();
    let options = OpenOptions {
        side_dir: PathBuf::from("/data.weir/orders-0"),
        clean_shutdown: false,
        recovery_point: Offset::ZERO,
        log_start_offset: Offset::ZERO,
        now: NOW,
    };
    let dir = PathBuf::from("/data/orders-0");
    let (log, _) = UnifiedLog::open(&mut io, &dir, LogConfig::default(), options).expect("opens");
    (log, io)
}

/// What was mirrored: plain data, a transaction that ended, a barrier of the source, and two
/// transactions that are still open.
fn mirrored() -> Vec<BytesMut> {
    let data = |id: Option<i64>, transactional: bool| {
        let mut builder = BatchBuilder::new();
        if let Some(id) = id {
            let id = ProducerId::new(id).expect("not negative");
            builder = builder.producer(id, ProducerEpoch::new(3).expect("not negative"), Sequence::new(0));
        }
        if transactional {
            builder = builder.transactional();
        }
        builder.record(NOW, Some(b"k"), Some(b"v")).record(NOW, None, Some(b"w")).build().expect("builds")
    };
    let commit = BatchBuilder::end_transaction_marker(
        true,
        ProducerId::new(9).expect("not negative"),
        ProducerEpoch::new(3).expect("not negative"),
        Some(2),
        NOW,
    );
    let batches = [
        data(None, false),
        data(Some(9), true),
        commit,
        data(Some(4), false),
        BatchBuilder::barrier(NOW),
        data(Some(77), true),
        data(Some(4), false),
        data(Some(5), true),
    ];
    let mut next = Offset::ZERO;
    batches
        .into_iter()
        .map(|mut batch| {
            set_base_offset(&mut batch, next).expect("a batch");
            set_leader_epoch(&mut batch, epoch(3)).expect("a batch");
            next = RecordBatch::parse(&batch).expect("a batch").next_offset();
            batch
        })
        .collect()
}

impl Machine {
    /// A partition that is MIRRORING; the last `unsynced` batches are not durable.
    async fn new(unsynced: usize) -> Self {
        let disk = SimDisk::new(11);
        disk.yield_always(true);
        let kv = Arc::new(CrashKv::default());
        let store: Arc<dyn MetaKv> = Arc::clone(&kv) as Arc<dyn MetaKv>;
        Metadata::format(&*store, "R29sZGVuLWNsdXN0ZXItMQ", 1, &[]).expect("formats");
        let metadata = Metadata::open(store).expect("opens");
        let id = PartitionId { topic_id: Uuid([7; 16]), partition: 0 };
        let topic = Topic {
            name: "orders".to_owned(),
            id: id.topic_id,
            partitions: 1,
            configs: std::collections::BTreeMap::new(),
            mirror: Some("dr".to_owned()),
        };
        let read_only = ReadOnly { mirror: "dr".to_owned(), state: "MIRRORING".to_owned() };
        let leadership = Leadership { leader_epoch: epoch(OWN_EPOCH), read_only: Some(read_only) };
        let change =
            Change { put_topics: vec![topic], partitions: vec![(id, leadership)], ..Change::default() };
        metadata.commit(change).await.expect("commits");
        let record = PartitionRecord {
            state: MirrorPartitionState::Mirroring,
            session: 1,
            reached_mirroring: true,
            ..PartitionRecord::unknown()
        };
        let first = Transition { expected_state_epoch: None, record, leader_epoch: None };
        let change = change_for(&metadata, "dr", id, &first).await.expect("nothing is stored yet");
        metadata.commit(change).await.expect("commits");
        let (mut log, mut io) = open_log(&disk);
        let batches = mirrored();
        for (number, batch) in batches.iter().enumerate() {
            log.append(&mut io, batch.clone(), &AppendParams::replication(epoch(3), NOW)).expect("appends");
            if number + unsynced + 1 == batches.len() {
                log.sync(&mut io).expect("syncs");
            }
        }
        kv.txns.store(0, Ordering::Relaxed);
        Self { disk, kv, id, metadata, log: Mutex::new((log, io)) }
    }

    /// The power is gone, and comes back.
    fn reboot(self, policy: CrashPolicy) -> Self {
        drop(self.log);
        self.disk.crash(policy);
        self.kv.dies_at.store(0, Ordering::Relaxed);
        let store: Arc<dyn MetaKv> = Arc::clone(&self.kv) as Arc<dyn MetaKv>;
        let metadata = Metadata::open(store).expect("opens");
        let log = Mutex::new(open_log(&self.disk));
        Self { metadata, log, ..self }
    }

    fn partition() -> TopicPartition {
        TopicPartition::new("orders", 0)
    }

    fn with<T>(
        &self,
        work: impl FnOnce(&mut UnifiedLog, &mut SimIo) -> Result<T, String>,
    ) -> Result<T, DestinationError> {
        let mut log = self.log.lock().expect("no test panics in it");
        let (log, io) = &mut *log;
        work(log, io).map_err(|cause| DestinationError::Storage { cause })
    }

    fn leader_epoch(&self) -> LeaderEpoch {
        self.metadata.leadership(self.id).leader_epoch
    }

    fn append(&self, batch: BytesMut) -> Result<Offset, DestinationError> {
        let params = AppendParams::coordinator(self.leader_epoch(), NOW);
        self.with(|log, io| log.append(io, batch, &params).map_err(|error| error.to_string()))
            .map(|appended| appended.base_offset)
    }

    /// Stops the partition. Dies after `actions` actions, or where disk or store were told to;
    /// answers how many actions it took, and whether it came to the end.
    async fn stop(&self, most: usize) -> (usize, bool) {
        let partition = Self::partition();
        let record = load_record(&self.metadata, self.id).await.expect("reads");
        let log = self.log_state(&partition).await.expect("reads");
        let mut machine = MirrorPartition::load(record, &log);
        let mut todo: VecDeque<Action> = machine.step(Event::Desired(Desired::Stopped)).into_iter().collect();
        let mut taken = 0;
        while let Some(action) = todo.pop_front() {
            if taken == most {
                return (taken, false);
            }
            taken += 1;
            let event = match action {
                Action::Stop(StopStep::RemoveFetcher) => Event::StopStepDone(StopOutcome::FetcherRemoved),
                Action::Stop(step) => match stop_step(self, &partition, step, machine.record()).await {
                    Ok(outcome) => Event::StopStepDone(outcome),
                    Err(_) => return (taken, false),
                },
                Action::Store(transition) => match self.store(&partition, &transition).await {
                    Ok(()) => Event::Stored,
                    Err(_) => return (taken, false),
                },
                other => panic!("{other:?} does not belong to a stop"),
            };
            todo.extend(machine.step(event));
        }
        assert_eq!(machine.shown_state(), MirrorPartitionState::Stopped, "{:?}", machine.attention());
        (taken, true)
    }

    async fn end(&self) -> End {
        let record = load_record(&self.metadata, self.id).await.expect("reads").expect("is there");
        let mut log = self.log.lock().expect("no test panics in it");
        let (log, io) = &mut *log;
        let view = log.view();
        assert_eq!(view.high_watermark, view.log_end_offset);
        assert_eq!(view.last_stable_offset, view.log_end_offset);
        assert_eq!(log.open_transactions(), []);
        assert_eq!(log.producers().count(), 0, "nobody from before the barrier is known");
        let mut bytes = Vec::new();
        let mut from = Offset::ZERO;
        while from < view.log_end_offset {
            let read = log.read(io, from, 1 << 20, Isolation::Uncommitted, true).expect("reads");
            bytes.extend_from_slice(&read.bytes);
            let last = BatchReader::new(&read.bytes).map(|batch| batch.expect("good")).last();
            from = last.expect("something is there").next_offset();
        }
        End { record, bytes, leadership: self.metadata.leadership(self.id) }
    }
}

/// What a stop leaves.
#[derive(Debug, PartialEq, Eq)]
struct End {
    record: PartitionRecord,
    bytes: Vec<u8>,
    leadership: Leadership,
}

impl Destination for Machine {
    async fn log_state(&self, _: &TopicPartition) -> Result<LogState, DestinationError> {
        self.with(|log, _| Ok(log_state(log, self.leader_epoch())))
    }

    async fn append(
        &self,
        _: &TopicPartition,
        _: Bytes,
        _: Offset,
        _: LeaderEpoch,
    ) -> Result<LogState, DestinationError> {
        unreachable!("a stop fetches nothing")
    }

    async fn start_log_at(&self, _: &TopicPartition, _: Offset) -> Result<LogState, DestinationError> {
        unreachable!("a stop cuts nothing")
    }

    async fn advance_log_start(&self, _: &TopicPartition, _: Offset) -> Result<LogState, DestinationError> {
        unreachable!("a stop deletes nothing")
    }

    async fn sync(&self, partition: &TopicPartition) -> Result<LogState, DestinationError> {
        self.with(|log, io| log.sync(io).map(drop).map_err(|error| error.to_string()))?;
        self.log_state(partition).await
    }

    async fn open_transactions(&self, _: &TopicPartition) -> Result<Vec<OpenTransaction>, DestinationError> {
        self.with(|log, _| Ok(log.open_transactions().iter().map(open_transaction).collect()))
    }

    async fn append_abort(
        &self,
        _: &TopicPartition,
        transaction: &OpenTransaction,
    ) -> Result<Offset, DestinationError> {
        Machine::append(self, abort_of(transaction, NOW))
    }

    async fn append_barrier(&self, _: &TopicPartition) -> Result<Offset, DestinationError> {
        Machine::append(self, BatchBuilder::barrier(NOW))
    }

    async fn cover_producer_ids(&self, _: &ProducerIdsMet) -> Result<(), DestinationError> {
        unreachable!("a stop mirrors nothing")
    }

    async fn load(&self, _: &TopicPartition) -> Result<Option<PartitionRecord>, DestinationError> {
        load_record(&self.metadata, self.id).await
    }

    async fn store(&self, _: &TopicPartition, transition: &Transition) -> Result<(), DestinationError> {
        let change = change_for(&self.metadata, "dr", self.id, transition).await?;
        let stored = self.metadata.commit(change).await;
        stored.map(drop).map_err(|error| DestinationError::Storage { cause: error.to_string() })
    }
}

const POLICIES: [CrashPolicy; 3] = [CrashPolicy::KEEP_ALL, CrashPolicy::DROP_ALL, CrashPolicy::ALL[14]];

async fn undisturbed(unsynced: usize) -> (End, usize, u64, i64) {
    let machine = Machine::new(unsynced).await;
    let before = machine.disk.op_count();
    let (actions, ended) = machine.stop(usize::MAX).await;
    assert!(ended);
    let ops = machine.disk.op_count() - before;
    let txns = machine.kv.txns.load(Ordering::Relaxed);
    (machine.end().await, actions, ops, txns)
}

#[tokio::test]
async fn an_undisturbed_stop_ends_with_aborts_and_a_barrier() {
    let (end, actions, ops, txns) = undisturbed(0).await;
    assert_eq!(txns, 2, "STOPPING with its position, then STOPPED: no more, no less");
    assert!(actions >= 7 && ops > 0, "{actions} actions, {ops} operations");
    let batches = mirrored();
    let source: Vec<u8> = batches.concat();
    assert!(end.bytes.starts_with(&source));
    let added: Vec<RecordBatch<'_>> =
        BatchReader::new(&end.bytes[source.len()..]).map(|batch| batch.expect("good")).collect();
    let kinds: Vec<_> = added.iter().map(|batch| (batch.control_type(), batch.raw_producer_id())).collect();
    assert_eq!(
        kinds,
        [
            (Some(ControlRecordType::Abort), 77),
            (Some(ControlRecordType::Abort), 5),
            (Some(ControlRecordType::MirrorPidReset), -1),
        ]
    );
    assert!(added.iter().all(|batch| batch.leader_epoch() == Some(epoch(OWN_EPOCH + 1000))));
    let last = RecordBatch::parse(batches.last().expect("some")).expect("good").next_offset();
    assert_eq!(
        end.record.position,
        Some(MirrorPosition { session: 1, last_mirror_epoch: Some(epoch(3)), last_mirror_offset: last })
    );
    assert_eq!(end.record.barrier_offset, last.checked_add(2));
    let writable = Leadership { leader_epoch: epoch(OWN_EPOCH + 1000), read_only: None };
    assert_eq!(end.leadership, writable);
}

#[tokio::test]
async fn a_crash_anywhere_in_a_stop_comes_to_the_same_end() {
    let (expected, actions, ops, txns) = undisturbed(0).await;
    let mut runs = 0;
    for policy in POLICIES {
        for most in 0..=actions {
            let machine = Machine::new(0).await;
            machine.stop(most).await;
            let machine = machine.reboot(policy);
            assert!(machine.stop(usize::MAX).await.1);
            assert_eq!(machine.end().await, expected, "after {most} actions, {policy:?}");
            runs += 1;
        }
        for txn in 1..=txns {
            for after in 0..2 {
                let machine = Machine::new(0).await;
                machine.kv.dies_at.store(2 * txn + after, Ordering::Relaxed);
                assert!(!machine.stop(usize::MAX).await.1);
                let machine = machine.reboot(policy);
                assert!(machine.stop(usize::MAX).await.1);
                assert_eq!(machine.end().await, expected, "transaction {txn}, after {after}, {policy:?}");
                runs += 1;
            }
        }
        for op in 1..=ops {
            let machine = Machine::new(0).await;
            machine.disk.crash_at(machine.disk.op_count() + op);
            let (_, ended) = machine.stop(usize::MAX).await;
            let machine = machine.reboot(policy);
            assert!(machine.stop(usize::MAX).await.1);
            assert_eq!(machine.end().await, expected, "operation {op} of {ops}, {policy:?}, ended: {ended}");
            runs += 1;
        }
    }
    assert!(runs > 50, "{runs} crashes");
}

#[tokio::test]
async fn crashes_one_after_the_other_come_to_the_same_end() {
    let (expected, actions, _, _) = undisturbed(0).await;
    for policy in POLICIES {
        for first in 0..=actions {
            for second in 0..=actions {
                let machine = Machine::new(0).await;
                machine.stop(first).await;
                let machine = machine.reboot(policy);
                machine.stop(second).await;
                let machine = machine.reboot(policy);
                assert!(machine.stop(usize::MAX).await.1);
                assert_eq!(machine.end().await, expected, "after {first}, then {second} actions, {policy:?}");
            }
        }
    }
}

/// What was not durable before the stop may be gone; the position is then that of what is left.
#[tokio::test]
async fn a_crash_before_the_log_is_durable_takes_the_position_of_what_is_left() {
    let (_, _, ops, _) = undisturbed(3).await;
    let source: Vec<u8> = mirrored().concat();
    for policy in POLICIES {
        for op in 1..=ops {
            let machine = Machine::new(3).await;
            machine.disk.crash_at(machine.disk.op_count() + op);
            machine.stop(usize::MAX).await;
            let saved = load_record(&machine.metadata, machine.id).await.expect("reads");
            let saved = saved.and_then(|record| record.position);
            let machine = machine.reboot(policy);
            assert!(machine.stop(usize::MAX).await.1);
            let end = machine.end().await;
            let position = end.record.position.expect("saved");
            assert!(saved.is_none_or(|saved| saved == position), "written once");
            let mirrored = BatchReader::new(&end.bytes)
                .map(|batch| batch.expect("good"))
                .take_while(|batch| batch.next_offset() <= position.last_mirror_offset)
                .map(|batch| batch.size())
                .sum::<usize>();
            assert!(source.starts_with(&end.bytes[..mirrored]), "operation {op}, {policy:?}");
            let added: Vec<_> = BatchReader::new(&end.bytes[mirrored..])
                .map(|batch| batch.expect("good").control_type())
                .collect();
            let (barrier, aborts) = added.split_last().expect("a barrier");
            assert_eq!(*barrier, Some(ControlRecordType::MirrorPidReset));
            assert!(aborts.iter().all(|kind| *kind == Some(ControlRecordType::Abort)), "{added:?}");
        }
    }
}
