//! A seeded source and network, in virtual time: leaders move, answers fail, are late, cut or
//! corrupt, batches are split anyhow; what arrives is the source's log, byte for byte.

use super::*;
use crate::destination::{NewestBatch, OpenTransaction, ProducerIdsMet, Transition};
use crate::source::{SourcePartition, SourceRange, TopicConfig};
use bytes::{Bytes, BytesMut};
use weir_format::{
    BatchBuilder, BatchReader, ControlRecordType, ProducerEpoch, ProducerId, RecordBatch, Sequence,
    TimestampMs, set_base_offset, set_leader_epoch,
};

const TOPIC: &str = "orders";
const CLUSTER: &str = "source-cluster";
const ID: TopicId = TopicId([9; 16]);

fn epoch(raw: i32) -> LeaderEpoch {
    LeaderEpoch::new(raw).expect("not negative")
}

fn offset(raw: i64) -> Offset {
    Offset::new(raw).expect("not negative")
}

fn tp(partition: i32) -> TopicPartition {
    TopicPartition::new(TOPIC, partition)
}

/// xorshift64*: chance without an environment.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

// --- source ---

#[derive(Clone, Debug)]
struct SourceLog {
    batches: Vec<(i64, BytesMut)>,
    start: i64,
    end: i64,
    leader: i32,
    leader_epoch: i32,
}

#[derive(Debug)]
struct SimSource {
    state: Arc<Mutex<SourceState>>,
}

#[derive(Debug)]
struct SourceState {
    random: Random,
    logs: BTreeMap<i32, SourceLog>,
    topic_id: TopicId,
    topic_exists: bool,
    cluster_id: String,
    /// One answer in so many goes wrong; 0: none.
    trouble: u64,
    reachable: bool,
    /// Does not say where histories part, as before Kafka 2.7.
    is_old: bool,
    /// Says that its log starts here, whatever it holds.
    claimed_start: Option<i64>,
    /// Whatever is asked of this partition is answered with more than is taken.
    oversized: Option<i32>,
    /// Corrupts every answer of this partition.
    rotten: Option<i32>,
    fetches: u64,
    reconnects: u64,
}

impl SourceState {
    fn new(seed: u64, partitions: i32) -> Self {
        let log = |_| SourceLog { batches: Vec::new(), start: 0, end: 0, leader: 1, leader_epoch: 3 };
        Self {
            random: Random::new(seed),
            logs: (0..partitions).map(|number| (number, log(number))).collect(),
            topic_id: ID,
            topic_exists: true,
            cluster_id: CLUSTER.to_owned(),
            trouble: 0,
            reachable: true,
            is_old: false,
            claimed_start: None,
            oversized: None,
            rotten: None,
            fetches: 0,
            reconnects: 0,
        }
    }

    fn produce(&mut self, partition: i32, records: i64, open_id: Option<i64>) {
        let log = self.logs.get_mut(&partition).expect("exists");
        let mut builder = BatchBuilder::new();
        if let Some(id) = open_id {
            let (id, zero) = (ProducerId::new(id).expect("id"), ProducerEpoch::ZERO);
            builder = builder.producer(id, zero, Sequence::new(0)).transactional();
        }
        for number in 0..records {
            let value = format!("{partition}/{}", log.end + number);
            builder = builder.record(TimestampMs::new(1_000 + number), None, Some(value.as_bytes()));
        }
        let mut bytes = builder.build().expect("builds");
        set_base_offset(&mut bytes, offset(log.end)).expect("a batch");
        set_leader_epoch(&mut bytes, epoch(log.leader_epoch)).expect("a batch");
        log.batches.push((log.end, bytes));
        log.end += records;
    }

    fn bytes(&self, partition: i32) -> Vec<u8> {
        let log = &self.logs[&partition];
        let kept = log.batches.iter().filter(|(base, _)| *base >= log.start);
        kept.flat_map(|(_, bytes)| bytes.to_vec()).collect()
    }

    fn elect(&mut self, partition: i32) {
        let log = self.logs.get_mut(&partition).expect("exists");
        log.leader = log.leader % 3 + 1;
        log.leader_epoch += 1;
    }

    fn answer(&mut self, broker: i32, wanted: &FetchPartition, room: &mut i64) -> FetchedPartition {
        let mut answer = FetchedPartition {
            partition: wanted.partition.clone(),
            code: SourceCode::None,
            high_watermark: None,
            log_start_offset: None,
            diverging: None,
            records: Bytes::new(),
        };
        let number = wanted.partition.partition;
        let Some(log) = self.logs.get(&number).filter(|_| self.topic_exists) else {
            answer.code = SourceCode::UnknownTopicOrPartition;
            return answer;
        };
        let known = wanted.current_leader_epoch.map_or(-1, LeaderEpoch::get);
        answer.code = if wanted.topic_id != self.topic_id {
            SourceCode::UnknownTopicId
        } else if log.leader != broker {
            SourceCode::NotLeader
        } else if known < log.leader_epoch {
            SourceCode::FencedLeaderEpoch
        } else if known > log.leader_epoch {
            SourceCode::UnknownLeaderEpoch
        } else if wanted.fetch_offset.get() < log.start || wanted.fetch_offset.get() > log.end {
            SourceCode::OffsetOutOfRange
        } else {
            SourceCode::None
        };
        if answer.code != SourceCode::None {
            return answer;
        }
        answer.high_watermark = Some(offset(log.end));
        answer.log_start_offset = Some(offset(self.claimed_start.unwrap_or(log.start)));
        let mut records = BytesMut::new();
        for (base, bytes) in &log.batches {
            let next = RecordBatch::parse(bytes).expect("a batch").next_offset();
            if next <= wanted.fetch_offset {
                continue;
            }
            if *base > wanted.fetch_offset.get() && records.is_empty() && *base < log.start {
                continue;
            }
            let limit = usize::try_from(wanted.partition_max_bytes).unwrap_or(0);
            if !records.is_empty() && (records.len() + bytes.len() > limit || self.random.one_in(3)) {
                // The rest is cut somewhere within the next batch.
                let cut = usize::try_from(self.random.below(bytes.len() as u64)).unwrap_or(0);
                records.extend_from_slice(&bytes[..cut]);
                break;
            }
            records.extend_from_slice(bytes);
        }
        *room -= i64::try_from(records.len()).unwrap_or(i64::MAX);
        let spoil = self.rotten == Some(number) || (self.trouble > 0 && self.random.one_in(self.trouble));
        if let (true, Ok(first)) = (spoil, RecordBatch::parse(&records)) {
            // Within what a CRC covers: base offset and leader epoch are outside of it.
            let covered = first.size() as u64 - 21;
            let at = if self.rotten == Some(number) { 30 } else { self.random.below(covered) + 21 };
            records[usize::try_from(at).expect("small")] ^= 4;
        }
        answer.records = records.freeze();
        answer
    }
}

impl SimSource {
    fn lock(&self) -> MutexGuard<'_, SourceState> {
        lock(&self.state)
    }

    async fn network(&self) -> Result<(), SourceError> {
        let (wait, fate) = {
            let mut state = self.lock();
            let trouble = state.trouble;
            let fate = if !state.reachable {
                1
            } else if trouble > 0 && state.random.one_in(trouble) {
                state.random.below(3) + 1
            } else {
                0
            };
            (state.random.below(3), fate)
        };
        sleep(Duration::from_millis(wait)).await;
        match fate {
            0 => Ok(()),
            1 => Err(SourceError::Unreachable { cause: "simulated".to_owned() }),
            2 => {
                sleep(Duration::from_secs(5)).await;
                Err(SourceError::TimedOut { broker: "simulated".to_owned(), after_ms: 5000 })
            }
            _ => Err(SourceError::Malformed { cause: "simulated".to_owned() }),
        }
    }
}

impl Source for SimSource {
    async fn metadata(&self, topics: Option<&[Arc<str>]>) -> Result<SourceMetadata, SourceError> {
        self.network().await?;
        let mut state = self.lock();
        assert!(topics.is_none_or(|topics| topics.iter().all(|topic| &**topic == TOPIC)));
        let stale = state.trouble > 0 && state.random.one_in(4);
        let leaderless = state.trouble > 0 && state.random.one_in(6);
        let partitions = state.logs.iter().map(|(number, log)| {
            let back = i32::from(stale && log.leader_epoch > 3);
            let known = SourcePartition {
                leader: (!leaderless).then_some(BrokerId(log.leader)),
                leader_epoch: (!leaderless).then(|| epoch(log.leader_epoch - back)),
            };
            (*number, known)
        });
        let topic = SourceTopic {
            code: if state.topic_exists { SourceCode::None } else { SourceCode::UnknownTopicOrPartition },
            id: state.topic_id,
            is_internal: false,
            partitions: if state.topic_exists { partitions.collect() } else { BTreeMap::new() },
        };
        Ok(SourceMetadata {
            cluster_id: Some(state.cluster_id.clone()),
            topics: BTreeMap::from([(TOPIC.to_owned(), topic)]),
        })
    }

    async fn fetch(
        &self,
        broker: BrokerId,
        request: FetchRequest,
    ) -> Result<Vec<FetchedPartition>, SourceError> {
        self.network().await?;
        let oversized = self.lock().oversized;
        // Kafka gives the first partition that has something one batch, whatever its size.
        if request.partitions.first().is_some_and(|first| Some(first.partition.partition) == oversized) {
            let (broker, size, limit) = (broker.to_string(), 200 << 20, 128 << 20);
            return Err(SourceError::TooLarge { broker, size, limit });
        }
        let deadline =
            Instant::now() + Duration::from_millis(u64::try_from(request.max_wait_ms).expect("a wait"));
        loop {
            let answers: Vec<FetchedPartition> = {
                let mut state = self.lock();
                state.fetches += 1;
                let mut room = i64::from(request.max_bytes);
                request.partitions.iter().map(|wanted| state.answer(broker.0, wanted, &mut room)).collect()
            };
            let something =
                answers.iter().any(|answer| answer.code != SourceCode::None || !answer.records.is_empty());
            if something || Instant::now() >= deadline {
                return Ok(answers);
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn range(
        &self,
        broker: BrokerId,
        partition: &TopicPartition,
        _: Option<LeaderEpoch>,
    ) -> Result<SourceRange, SourceError> {
        self.network().await?;
        let state = self.lock();
        let log = &state.logs[&partition.partition];
        if log.leader != broker.0 {
            return Err(SourceError::Refused { api: "ListOffsets", code: SourceCode::NotLeader });
        }
        Ok(SourceRange { start: offset(log.start), end: offset(log.end) })
    }

    async fn topic_configs(
        &self,
        _: &[Arc<str>],
    ) -> Result<BTreeMap<Arc<str>, Vec<TopicConfig>>, SourceError> {
        Ok(BTreeMap::new())
    }

    async fn reconnect(&self, _: BrokerId) {
        self.lock().reconnects += 1;
    }

    fn tells_divergence(&self) -> bool {
        !self.lock().is_old
    }
}

// --- destination ---

#[derive(Clone, Debug, Default)]
struct Memory {
    state: Arc<Mutex<MemoryState>>,
}

#[derive(Debug, Default)]
struct MemoryState {
    logs: BTreeMap<TopicPartition, MemoryLog>,
    covered: BTreeMap<u32, i64>,
    /// Appends fail.
    full: bool,
    stores: Vec<(TopicPartition, MirrorPartitionState)>,
}

#[derive(Clone, Debug)]
struct MemoryLog {
    bytes: Vec<u8>,
    start: i64,
    end: i64,
    durable: i64,
    leader_epoch: LeaderEpoch,
    open: BTreeMap<i64, i64>,
    newest: Option<NewestBatch>,
    record: Option<PartitionRecord>,
}

impl MemoryLog {
    fn new() -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            end: 0,
            durable: 0,
            leader_epoch: epoch(14),
            open: BTreeMap::new(),
            newest: None,
            record: None,
        }
    }

    fn state(&self) -> LogState {
        let first_open = self.open.values().min().copied().unwrap_or(self.durable);
        LogState {
            log_start_offset: offset(self.start),
            high_watermark: offset(self.durable),
            last_stable_offset: offset(first_open.min(self.durable)),
            log_end_offset: offset(self.end),
            leader_epoch: self.leader_epoch,
            latest_epoch: self.newest.and_then(|newest| newest.leader_epoch),
            newest_batch: self.newest,
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        for batch in BatchReader::new(bytes) {
            let batch = batch.expect("checked before it is appended");
            assert!(batch.base_offset().get() >= self.end, "offsets go up");
            let id = batch.raw_producer_id();
            match batch.control_type() {
                Some(ControlRecordType::Abort | ControlRecordType::Commit) => {
                    self.open.remove(&id);
                }
                Some(ControlRecordType::MirrorPidReset) => self.open.clear(),
                _ if batch.is_transactional() => {
                    self.open.entry(id).or_insert(batch.base_offset().get());
                }
                _ => {}
            }
            self.end = batch.next_offset().get();
            self.newest = Some(NewestBatch {
                base_offset: batch.base_offset(),
                crc: batch.crc(),
                leader_epoch: batch.leader_epoch(),
                is_barrier: batch.is_barrier(),
            });
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn stamp(&mut self, mut bytes: BytesMut) -> Offset {
        let at = offset(self.end);
        set_base_offset(&mut bytes, at).expect("a batch");
        set_leader_epoch(&mut bytes, self.leader_epoch).expect("a batch");
        self.take(&bytes);
        at
    }
}

impl Memory {
    fn with<T>(&self, partition: &TopicPartition, work: impl FnOnce(&mut MemoryLog) -> T) -> T {
        work(lock(&self.state).logs.entry(partition.clone()).or_insert_with(MemoryLog::new))
    }

    fn bytes(&self, partition: &TopicPartition) -> Vec<u8> {
        self.with(partition, |log| log.bytes.clone())
    }

    fn refuse_if_full(&self) -> Result<(), DestinationError> {
        if lock(&self.state).full {
            return Err(DestinationError::Storage { cause: "no space left on device".to_owned() });
        }
        Ok(())
    }
}

impl Destination for Memory {
    async fn log_state(&self, partition: &TopicPartition) -> Result<LogState, DestinationError> {
        Ok(self.with(partition, |log| log.state()))
    }

    async fn append(
        &self,
        partition: &TopicPartition,
        records: Bytes,
        expected_end: Offset,
        max: LeaderEpoch,
    ) -> Result<LogState, DestinationError> {
        sleep(Duration::from_micros(200)).await;
        self.refuse_if_full()?;
        let covered = lock(&self.state).covered.clone();
        self.with(partition, |log| {
            let found = offset(log.end);
            if found != expected_end {
                return Err(DestinationError::LogEndMoved { expected: expected_end, found });
            }
            let record = log.record.as_ref().expect("a state is stored before the first byte");
            assert_eq!(record.state, MirrorPartitionState::Mirroring, "appends only while MIRRORING");
            for batch in BatchReader::new(&records) {
                let batch = batch.expect("whole and good");
                assert!(
                    batch.leader_epoch().is_none_or(|epoch| epoch <= max && epoch <= log.leader_epoch),
                    "M5"
                );
                if let Some(id) = batch.producer_id() {
                    let number = u32::try_from(id.get() >> 32).expect("31 bits");
                    assert!(covered.get(&number).is_some_and(|highest| *highest >= id.get()), "B12");
                }
            }
            log.take(&records);
            Ok(log.state())
        })
    }

    async fn start_log_at(
        &self,
        partition: &TopicPartition,
        start: Offset,
    ) -> Result<LogState, DestinationError> {
        Ok(self.with(partition, |log| {
            assert!(log.newest.is_none(), "nothing is cut");
            (log.start, log.end, log.durable) = (start.get(), start.get(), start.get());
            log.state()
        }))
    }

    async fn advance_log_start(
        &self,
        partition: &TopicPartition,
        start: Offset,
    ) -> Result<LogState, DestinationError> {
        Ok(self.with(partition, |log| {
            assert!(start.get() <= log.durable, "never above the high watermark");
            log.start = log.start.max(start.get());
            log.state()
        }))
    }

    async fn sync(&self, partition: &TopicPartition) -> Result<LogState, DestinationError> {
        sleep(Duration::from_millis(1)).await;
        Ok(self.with(partition, |log| {
            log.durable = log.end;
            log.state()
        }))
    }

    async fn open_transactions(
        &self,
        partition: &TopicPartition,
    ) -> Result<Vec<OpenTransaction>, DestinationError> {
        Ok(self.with(partition, |log| {
            let open = log.open.iter().map(|(id, first)| OpenTransaction {
                producer_id: ProducerId::new(*id).expect("id"),
                producer_epoch: Some(ProducerEpoch::ZERO),
                first_offset: offset(*first),
                coordinator_epoch: None,
            });
            open.collect()
        }))
    }

    async fn append_abort(
        &self,
        partition: &TopicPartition,
        transaction: &OpenTransaction,
    ) -> Result<Offset, DestinationError> {
        self.refuse_if_full()?;
        let marker = BatchBuilder::end_transaction_marker(
            false,
            transaction.producer_id,
            transaction.producer_epoch.expect("given"),
            transaction.coordinator_epoch,
            TimestampMs::new(5),
        );
        Ok(self.with(partition, |log| log.stamp(marker)))
    }

    async fn append_barrier(&self, partition: &TopicPartition) -> Result<Offset, DestinationError> {
        self.refuse_if_full()?;
        Ok(self.with(partition, |log| log.stamp(BatchBuilder::barrier(TimestampMs::new(5)))))
    }

    async fn cover_producer_ids(&self, met: &ProducerIdsMet) -> Result<(), DestinationError> {
        let covered = &mut lock(&self.state).covered;
        for (number, id) in met {
            let highest = covered.entry(*number).or_insert(id.get());
            *highest = (*highest).max(id.get());
        }
        Ok(())
    }

    async fn load(&self, partition: &TopicPartition) -> Result<Option<PartitionRecord>, DestinationError> {
        Ok(self.with(partition, |log| log.record.clone()))
    }

    async fn store(
        &self,
        partition: &TopicPartition,
        transition: &Transition,
    ) -> Result<(), DestinationError> {
        sleep(Duration::from_millis(1)).await;
        lock(&self.state).stores.push((partition.clone(), transition.record.state));
        self.with(partition, |log| {
            let found = log.record.as_ref().map(|record| record.state_epoch);
            if found != transition.expected_state_epoch {
                return Err(DestinationError::Fenced { expected: transition.expected_state_epoch, found });
            }
            if transition.record.state == MirrorPartitionState::Stopped {
                assert_eq!((log.durable, log.open.len()), (log.end, 0), "M2");
                assert!(log.newest.is_some_and(|newest| newest.is_barrier), "M2");
            }
            log.record = Some(transition.record.clone());
            log.leader_epoch = log.leader_epoch.max(transition.leader_epoch.unwrap_or(epoch(0)));
            Ok(())
        })
    }
}

// --- the world ---

struct World {
    source: Arc<Mutex<SourceState>>,
    memory: Memory,
    mirror: Mirror<SimSource, Memory>,
}

fn config() -> RunnerConfig {
    let mut config = RunnerConfig::new("dr");
    config.source_cluster_id = Some(CLUSTER.to_owned());
    config.limits.partition_max_bytes = 2048;
    config
}

impl World {
    fn new(seed: u64, partitions: i32) -> Self {
        Self::over(Arc::new(Mutex::new(SourceState::new(seed, partitions))), Memory::default())
    }

    fn over(source: Arc<Mutex<SourceState>>, memory: Memory) -> Self {
        let sim = SimSource { state: Arc::clone(&source) };
        let mirror = Mirror::start(config(), sim, memory.clone());
        Self { source, memory, mirror }
    }

    fn source(&self) -> MutexGuard<'_, SourceState> {
        lock(&self.source)
    }

    fn want(&self, partition: i32, desired: Desired) {
        self.mirror.set_desired(&tp(partition), ID, desired);
    }

    fn status(&self, partition: i32) -> PartitionStatus {
        self.mirror.partition_status(&tp(partition)).expect("has it")
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..200_000 {
            if holds(self) {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
        panic!("{what}: not within the time; {:#?}", self.mirror.status());
    }

    async fn until_state(&self, partition: i32, state: MirrorPartitionState) {
        self.until(state.name(), |world| world.status(partition).state == state).await;
    }

    async fn until_equal(&self, partition: i32) {
        self.until("equal bytes", |world| {
            world.memory.bytes(&tp(partition)) == world.source().bytes(partition)
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_troubled_source_is_mirrored_byte_for_byte() {
    for seed in 1..=12 {
        let world = World::new(seed, 3);
        world.source().trouble = 12;
        for partition in 0..3 {
            world.want(partition, Desired::Mirroring);
        }
        let mut random = Random::new(seed + 1000);
        for round in 0..120 {
            let partition = i32::try_from(random.below(3)).expect("small");
            let records = i64::try_from(random.below(20)).expect("small") + 1;
            let open = random.one_in(4).then_some(round);
            world.source().produce(partition, records, open);
            if random.one_in(10) {
                world.source().elect(partition);
            }
            sleep(Duration::from_millis(random.below(200))).await;
        }
        // A flipped bit twice in a row in one place is a reason to stop (M6): try again then.
        world.source().trouble = 0;
        for partition in 0..3 {
            world
                .until("settled", |world| {
                    if world.status(partition).state == MirrorPartitionState::Failed {
                        world.mirror.try_again(&tp(partition));
                    }
                    world.memory.bytes(&tp(partition)) == world.source().bytes(partition)
                })
                .await;
            let status = world.status(partition);
            let source_epoch = world.source().logs[&partition].leader_epoch;
            assert!(status.leader_epoch.is_some_and(|ours| ours.get() > source_epoch), "M5, seed {seed}");
        }
        world.mirror.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_transactions_and_writes_the_barrier() {
    let world = World::new(1, 1);
    world.source().produce(0, 10, None);
    world.source().produce(0, 2, Some(77));
    world.source().produce(0, 3, Some(5));
    world.want(0, Desired::Mirroring);
    world.until_equal(0).await;
    let before = world.source().bytes(0);
    world.want(0, Desired::Stopped);
    world.until_state(0, MirrorPartitionState::Stopped).await;
    let status = world.status(0);
    let aborts: Vec<(i64, i64, i64)> = status
        .report
        .aborts
        .iter()
        .map(|abort| (abort.producer_id.get(), abort.first_offset.get(), abort.offset.get()))
        .collect();
    assert_eq!(aborts, [(77, 10, 15), (5, 12, 16)], "ascending by first offset");
    assert_eq!(status.barrier_offset, Some(offset(17)));
    let position = status.position.expect("stored");
    assert_eq!((position.last_mirror_offset, position.last_mirror_epoch), (offset(15), Some(epoch(3))));
    let after = world.memory.bytes(&tp(0));
    assert!(after.starts_with(&before));
    // Nothing of the source reaches it any more (N-FAIL-11), once the last long poll is over.
    sleep(Duration::from_secs(1)).await;
    world.source().produce(0, 5, None);
    let fetches = world.source().fetches;
    sleep(Duration::from_secs(120)).await;
    assert_eq!(world.source().fetches, fetches);
    assert_eq!(world.memory.bytes(&tp(0)), after);
    world.mirror.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_the_source() {
    let world = World::new(3, 1);
    world.source().produce(0, 4, None);
    world.want(0, Desired::Mirroring);
    world.until_equal(0).await;
    // During a long poll.
    let began = Instant::now();
    world.want(0, Desired::Stopped);
    world.until_state(0, MirrorPartitionState::Stopped).await;
    assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
    // With the source gone, and the mirror just restarted.
    let world = World::new(4, 1);
    world.source().produce(0, 4, None);
    world.want(0, Desired::Mirroring);
    world.until_equal(0).await;
    world.mirror.shutdown().await;
    world.source().reachable = false;
    let world = World::over(world.source.clone(), world.memory.clone());
    world.want(0, Desired::Mirroring);
    sleep(Duration::from_secs(60)).await;
    let status = world.status(0);
    assert_eq!(status.state, MirrorPartitionState::Mirroring, "it keeps its state");
    assert!(status.attention.expect("says why").contains("simulated"));
    let began = Instant::now();
    world.want(0, Desired::Stopped);
    world.until_state(0, MirrorPartitionState::Stopped).await;
    assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
    world.mirror.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_keeps_stopping_and_says_so() {
    let world = World::new(5, 1);
    world.source().produce(0, 4, Some(9));
    world.want(0, Desired::Mirroring);
    world.until_equal(0).await;
    lock(&world.memory.state).full = true;
    world.want(0, Desired::Stopped);
    sleep(Duration::from_secs(100)).await;
    let status = world.status(0);
    assert_eq!(status.state, MirrorPartitionState::Stopping);
    assert!(status.attention.expect("says why").contains("no space left"));
    assert_eq!(status.stop_step, Some(StopStep::AbortTransactions));
    lock(&world.memory.state).full = false;
    world.until_state(0, MirrorPartitionState::Stopped).await;
    world.mirror.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_makes_a_mirror_wait_and_leaves_no_hole() {
    let world = World::new(15, 1);
    world.source().produce(0, 4, None);
    world.want(0, Desired::Mirroring);
    world.until_equal(0).await;
    world.memory.sync(&tp(0)).await.expect("syncs");
    world.source().produce(0, 4, None);
    world.until_equal(0).await;
    // The next append fails, and the log comes back without what was not durable.
    lock(&world.memory.state).full = true;
    world.source().produce(0, 4, None);
    sleep(Duration::from_secs(30)).await;
    let status = world.status(0);
    assert_eq!(status.state, MirrorPartitionState::Mirroring, "it may pass");
    assert!(status.attention.expect("says why").contains("no space left"));
    world.memory.with(&tp(0), |log| {
        let kept: usize = BatchReader::new(&log.bytes.clone())
            .map(|batch| batch.expect("good"))
            .take_while(|batch| batch.next_offset().get() <= log.durable)
            .map(|batch| {
                log.end = batch.next_offset().get();
                log.newest = Some(NewestBatch {
                    base_offset: batch.base_offset(),
                    crc: batch.crc(),
                    leader_epoch: batch.leader_epoch(),
                    is_barrier: false,
                });
                batch.size()
            })
            .sum();
        log.bytes.truncate(kept);
        assert_eq!(log.end, 4);
    });
    lock(&world.memory.state).full = false;
    world.until_equal(0).await;
    assert_eq!(world.status(0).log_end_offset, Some(offset(12)));
    world.mirror.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn retention_that_overtakes_is_a_named_gap() {
    let world = World::new(6, 1);
    world.source().produce(0, 10, None);
    world.want(0, Desired::Mirroring);
    world.until_equal(0).await;
    let mirrored = world.memory.bytes(&tp(0));
    {
        let mut source = world.source();
        source.reachable = false;
        source.produce(0, 30, None);
        source.produce(0, 10, None);
        source.logs.get_mut(&0).expect("exists").start = 40;
        source.reachable = true;
    }
    world.until_state(0, MirrorPartitionState::Failed).await;
    let status = world.status(0);
    assert_eq!(status.failure.as_deref(), Some("gap"));
    let words = status.attention.expect("says why");
    assert!(words.contains("10 to 40"), "{words}");
    assert_eq!(world.memory.bytes(&tp(0)), mirrored, "nothing was cut, nothing was skipped");
    world.mirror.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_lost_data_is_failed_with_both_numbers() {
    let world = World::new(7, 1);
    world.source().produce(0, 10, None);
    world.source().produce(0, 10, None);
    world.want(0, Desired::Mirroring);
    world.until_equal(0).await;
    {
        let mut source = world.source();
        let log = source.logs.get_mut(&0).expect("exists");
        log.batches.pop();
        log.end = 10;
    }
    world.until_state(0, MirrorPartitionState::Failed).await;
    let status = world.status(0);
    assert_eq!(status.failure.as_deref(), Some("source-ends-below"));
    let words = status.attention.expect("says why");
    assert!(words.contains("10") && words.contains("20"), "{words}");
    world.mirror.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_first_mirror_of_a_log_that_starts_later_starts_there() {
    let world = World::new(8, 1);
    {
        let mut source = world.source();
        source.produce(0, 500, None);
        source.produce(0, 10, None);
        source.logs.get_mut(&0).expect("exists").start = 500;
    }
    world.want(0, Desired::Mirroring);
    world.until_equal(0).await;
    let log = world.memory.with(&tp(0), |log| log.clone());
    assert_eq!((log.start, log.end), (500, 510));
    // The log start follows the source's, up to what is durable.
    world.source().logs.get_mut(&0).expect("exists").start = 505;
    world.source().produce(0, 1, None);
    world.memory.sync(&tp(0)).await.expect("syncs");
    world.until("start follows", |world| world.memory.with(&tp(0), |log| log.start) == 505).await;
    world.mirror.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_or_recreated_topic_is_believed_the_second_time() {
    for recreated in [false, true] {
        let world = World::new(9, 1);
        world.source().produce(0, 10, None);
        world.want(0, Desired::Mirroring);
        world.until_equal(0).await;
        let mirrored = world.memory.bytes(&tp(0));
        let set = |gone: bool| {
            let mut source = world.source();
            if recreated {
                source.topic_id = if gone { TopicId([1; 16]) } else { ID };
            } else {
                source.topic_exists = !gone;
            }
        };
        // Once: forgiven.
        set(true);
        sleep(Duration::from_millis(1500)).await;
        set(false);
        sleep(Duration::from_secs(30)).await;
        assert_eq!(world.status(0).state, MirrorPartitionState::Mirroring);
        set(true);
        world.until_state(0, MirrorPartitionState::Failed).await;
        let failure = world.status(0).failure;
        assert_eq!(failure.as_deref(), Some(if recreated { "topic-recreated" } else { "topic-deleted" }));
        assert_eq!(world.memory.bytes(&tp(0)), mirrored);
        // Back again, and tried again: what an older round said does not count.
        set(false);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(world.status(0).state, MirrorPartitionState::Failed, "not by itself");
        world.mirror.try_again(&tp(0));
        world.source().produce(0, 1, None);
        world.until_equal(0).await;
        assert_eq!(world.status(0).state, MirrorPartitionState::Mirroring);
        world.mirror.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn another_cluster_at_the_address_writes_nothing() {
    let world = World::new(10, 1);
    world.source().produce(0, 10, None);
    world.source().cluster_id = "somebody-else".to_owned();
    world.want(0, Desired::Mirroring);
    world.until_state(0, MirrorPartitionState::Failed).await;
    assert_eq!(world.status(0).failure.as_deref(), Some("wrong-cluster"));
    assert_eq!(world.memory.bytes(&tp(0)), b"");
    world.mirror.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_rotten_partition_fails_after_one_new_connection_and_the_others_go_on() {
    let world = World::new(11, 2);
    world.source().rotten = Some(0);
    for partition in 0..2 {
        world.source().produce(partition, 10, None);
        world.want(partition, Desired::Mirroring);
    }
    world.until_state(0, MirrorPartitionState::Failed).await;
    assert_eq!(world.status(0).failure.as_deref(), Some("corrupt-batch"));
    assert_eq!(world.source().reconnects, 1);
    world.source().produce(1, 10, None);
    world.until_equal(1).await;
    assert_eq!(world.memory.bytes(&tp(0)), b"");
    // The operator sees to it, and says so.
    world.source().rotten = None;
    world.mirror.try_again(&tp(0));
    world.until_equal(0).await;
    world.mirror.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_mirror_goes_on_where_its_log_ends() {
    let world = World::new(12, 1);
    world.source().produce(0, 10, None);
    world.want(0, Desired::Mirroring);
    world.until_equal(0).await;
    world.mirror.shutdown().await;
    world.source().produce(0, 10, None);
    let world = World::over(world.source.clone(), world.memory.clone());
    world.want(0, Desired::Mirroring);
    world.until_equal(0).await;
    // And not when the source has something else where our newest batch is.
    world.mirror.shutdown().await;
    {
        let mut source = world.source();
        let log = source.logs.get_mut(&0).expect("exists");
        log.batches.pop();
        log.end = 10;
        source.produce(0, 9, Some(4));
        source.produce(0, 9, None);
    }
    let world = World::over(world.source.clone(), world.memory.clone());
    world.want(0, Desired::Mirroring);
    world.until_state(0, MirrorPartitionState::Failed).await;
    assert_eq!(world.status(0).failure.as_deref(), Some("newest-batch-differs"));
    world.mirror.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn many_elections_never_let_our_epoch_fall_behind() {
    let world = World::new(13, 1);
    world.want(0, Desired::Mirroring);
    for _ in 0..40 {
        world.source().elect(0);
        world.source().produce(0, 1, None);
        sleep(Duration::from_millis(700)).await;
    }
    world.until_equal(0).await;
    // The memory asserts at each append that no batch is above our epoch.
    let ours = world.status(0).leader_epoch.expect("known");
    assert!(ours.get() > 43, "{ours}");
    world.mirror.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn lag_ages_while_the_source_is_away() {
    let world = World::new(14, 1);
    world.source().produce(0, 10, None);
    world.want(0, Desired::Mirroring);
    assert_eq!(world.status(0).lag(), None, "unknown is absent");
    world.until_equal(0).await;
    world.until("lag 0", |world| world.status(0).lag() == Some(0)).await;
    world.source().reachable = false;
    sleep(Duration::from_secs(300)).await;
    let status = world.status(0);
    assert_eq!(status.state, MirrorPartitionState::Mirroring);
    assert!(status.last_fetch_age.is_some_and(|age| age >= Duration::from_secs(290)), "{status:?}");
    world.source().reachable = true;
    world.source().produce(0, 10, None);
    world.until_equal(0).await;
    world
        .until("fresh", |world| {
            world.status(0).last_fetch_age.is_some_and(|age| age < Duration::from_secs(1))
        })
        .await;
    assert_eq!(world.status(0).attention, None);
    world.mirror.shutdown().await;
}

/// An unclean election at a source that cannot say so: another leader with another history, which
/// has grown beyond ours before anybody asked.
#[tokio::test(start_paused = true)]
async fn a_new_leader_of_an_old_source_is_compared_before_anything_is_taken_from_it() {
    let world = World::new(21, 1);
    world.source().is_old = true;
    for _ in 0..4 {
        world.source().produce(0, 5, None);
    }
    world.want(0, Desired::Mirroring);
    world.until_equal(0).await;
    // A clean one first: it costs a comparison, and nothing else.
    world.source().elect(0);
    world.source().produce(0, 2, None);
    world.until_equal(0).await;
    let mirrored = world.memory.bytes(&tp(0));
    {
        let mut source = world.source();
        source.elect(0);
        let log = source.logs.get_mut(&0).expect("exists");
        log.batches.pop();
        log.end -= 2;
        source.produce(0, 1, None);
        source.produce(0, 7, None);
    }
    world.until_state(0, MirrorPartitionState::Failed).await;
    assert_eq!(world.status(0).failure.as_deref(), Some("newest-batch-differs"));
    assert_eq!(world.memory.bytes(&tp(0)), mirrored, "nothing of the other history");
    world.mirror.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_log_start_that_contradicts_the_answer_deletes_nothing() {
    let world = World::new(22, 1);
    world.source().produce(0, 5, None);
    world.source().claimed_start = Some(1_000_000);
    world.want(0, Desired::Mirroring);
    world.until_equal(0).await;
    world.memory.with(&tp(0), |log| log.durable = log.end);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(world.memory.with(&tp(0), |log| log.start), 0);
    // What it may mean is followed.
    world.source().claimed_start = Some(3);
    world.until("the log start follows", |world| world.memory.with(&tp(0), |log| log.start) == 3).await;
    world.mirror.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_no_answer_can_hold_fails_its_partition_and_the_others_go_on() {
    let world = World::new(23, 4);
    for partition in 0..4 {
        world.source().produce(partition, 5, None);
        world.want(partition, Desired::Mirroring);
    }
    for partition in 0..4 {
        world.until_equal(partition).await;
    }
    world.source().oversized = Some(2);
    for partition in 0..4 {
        world.source().produce(partition, 5, None);
    }
    world.until_state(2, MirrorPartitionState::Failed).await;
    assert_eq!(world.status(2).failure.as_deref(), Some("batch-too-large"));
    for partition in [0, 1, 3] {
        world.until_equal(partition).await;
        assert_eq!(world.status(partition).state, MirrorPartitionState::Mirroring);
    }
    world.mirror.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_grew_at_the_source_says_so_on_each_of_its_partitions() {
    let world = World::new(24, 1);
    world.source().produce(0, 5, None);
    world.want(0, Desired::Mirroring);
    world.until_equal(0).await;
    assert_eq!(world.mirror.status()[0].attention, None);
    let log = world.source().logs[&0].clone();
    world.source().logs.insert(1, log);
    sleep(Duration::from_secs(60)).await;
    let status = world.mirror.status().remove(0);
    assert_eq!(status.state, MirrorPartitionState::Mirroring, "what is here is mirrored on");
    let attention = status.attention.expect("says it");
    assert!(attention.contains("2 partitions at the source, 1 of them here"), "{attention}");
    world.mirror.shutdown().await;
}
