//! Drives the machines over a [`Source`] and a [`Destination`]: the only place that waits.
//!
//! Tasks of one mirror, however many partitions it has:
//!
//! ```text
//! router      source metadata, who leads what, deleted and recreated topics     1
//! fetcher     one fetch after the other, all partitions of one source broker    1 per broker
//! partition   steps MirrorPartition, carries its actions out                    1 per partition
//! ```
//!
//! A partition that is fetched has a slot. Whoever appends to its log holds the slot's lock,
//! so `RemoveFetcher` is: take the slot away, then wait for that lock once. A long poll that
//! is still on its way then finds no slot and is thrown away; a stop never waits for it.
//! Memory is bounded by one response per source broker.
//!
//! Lock order: `Shared::partitions`, `Shared::slots`, `Broker::slots`, `Progress`; none of
//! these is held over an await. A slot's own lock is, and is taken with none of them held.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use weir_format::{LeaderEpoch, Offset};

use crate::alignment::{AlignmentPlan, compare_newest, plan};
use crate::barrier::{AbortAppended, StopOutcome, StopStep, barrier_in_log};
use crate::destination::{Destination, DestinationError, LogState};
use crate::failure::Failure;
use crate::fetch::{AppendPlan, FetchDecision, FetchLimits, FetchState};
use crate::partition::{Action, Desired, Event, MirrorPartition, StopReport, backoff};
use crate::record::{MirrorPosition, PartitionRecord};
use crate::source::{
    BrokerId, FetchPartition, FetchRequest, FetchedPartition, Source, SourceCode, SourceError,
    SourceMetadata, SourceTopic, TopicId, TopicPartition,
};
use crate::state::MirrorPartitionState;

/// How a mirror is run.
#[derive(Clone, Debug)]
pub struct RunnerConfig {
    /// The mirror's name, for log lines.
    pub name: String,
    /// The source's cluster id as stored at first contact.
    pub source_cluster_id: Option<String>,
    /// How long the source may hold an empty fetch. KIP: `fetch.wait.max.ms`.
    pub fetch_max_wait: Duration,
    /// Bytes per response over all partitions. KIP: `fetch.response.max.bytes`.
    pub response_max_bytes: i32,
    /// Sizes per partition.
    pub limits: FetchLimits,
    /// How old the source's metadata may get. Kafka: `metadata.max.age.ms`.
    pub metadata_max_age: Duration,
    /// How long to wait before a topic that is gone is asked for again; the second such
    /// answer in a row is believed.
    pub missing_round_interval: Duration,
}

impl RunnerConfig {
    /// The defaults for a mirror of this name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            source_cluster_id: None,
            fetch_max_wait: Duration::from_millis(500),
            response_max_bytes: 10 << 20,
            limits: FetchLimits::default(),
            metadata_max_age: Duration::from_secs(30),
            missing_round_interval: Duration::from_secs(5),
        }
    }
}

/// Two answers in a row: a topic is gone, or another cluster answers.
const ROUNDS_TO_BELIEVE: u32 = 2;
/// The shortest time between two metadata requests.
const METADATA_MIN_GAP: Duration = Duration::from_millis(50);
/// Events a partition may have waiting; its fetcher sends one and then stands still.
const EVENT_QUEUE: usize = 16;

/// What there is to say about one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionStatus {
    /// Which partition.
    pub partition: TopicPartition,
    /// What the operator wants; `None` until the partition is loaded.
    pub desired: Option<Desired>,
    /// Its state.
    pub state: MirrorPartitionState,
    /// How often its state has changed.
    pub state_epoch: i32,
    /// The step of a stop that is under way.
    pub stop_step: Option<StopStep>,
    /// What holds it up, or why it is FAILED.
    pub attention: Option<String>,
    /// The fixed name of the reason it is FAILED for.
    pub failure: Option<String>,
    /// How many attempts at the current work have failed.
    pub attempt: u32,
    /// Its position, stored by the stop of this session or an earlier one.
    pub position: Option<MirrorPosition>,
    /// The barrier that made it writable.
    pub barrier_offset: Option<Offset>,
    /// What the stop that this process ran did.
    pub report: StopReport,
    /// Our leader epoch.
    pub leader_epoch: Option<LeaderEpoch>,
    /// The source's high watermark as of the last fetch.
    pub source_offset: Option<Offset>,
    /// Our log end as of the last append.
    pub log_end_offset: Option<Offset>,
    /// How long ago the source last answered a fetch of this partition; it ages (O8).
    pub last_fetch_age: Option<Duration>,
}

impl PartitionStatus {
    fn new(partition: TopicPartition) -> Self {
        Self {
            partition,
            desired: None,
            state: MirrorPartitionState::Unknown,
            state_epoch: 0,
            stop_step: None,
            attention: None,
            failure: None,
            attempt: 0,
            position: None,
            barrier_offset: None,
            report: StopReport::default(),
            leader_epoch: None,
            source_offset: None,
            log_end_offset: None,
            last_fetch_age: None,
        }
    }

    /// Records between the source's high watermark and our log end, as of the last fetch;
    /// unknown is `None`.
    #[must_use]
    pub fn lag(&self) -> Option<i64> {
        Some(self.source_offset?.get().saturating_sub(self.log_end_offset?.get()).max(0))
    }
}

/// One running mirror.
///
/// Dropping it ends its tasks at their next await; [`Mirror::shutdown`] waits for them.
#[derive(Debug)]
pub struct Mirror<S, D> {
    shared: Arc<Shared<S, D>>,
}

#[derive(Debug)]
struct Shared<S, D> {
    config: RunnerConfig,
    source: S,
    destination: D,
    partitions: Mutex<BTreeMap<TopicPartition, Entry>>,
    slots: Mutex<Slots>,
    view: watch::Sender<Arc<View>>,
    refresh: Notify,
    stop: watch::Sender<bool>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct Entry {
    command: watch::Sender<Command>,
    status: watch::Receiver<PartitionStatus>,
    progress: Arc<Progress>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Command {
    desired: Desired,
    tries: u64,
}

/// Who is fetched, and from where.
#[derive(Debug, Default)]
struct Slots {
    /// Partitions whose topic the source is asked about.
    interested: BTreeMap<TopicPartition, TopicId>,
    fetched: BTreeMap<TopicPartition, (Arc<Slot>, Option<BrokerId>)>,
    brokers: BTreeMap<BrokerId, Arc<Broker>>,
}

#[derive(Debug)]
struct Broker {
    id: BrokerId,
    slots: Mutex<BTreeMap<TopicPartition, Arc<Slot>>>,
    changed: Notify,
}

#[derive(Debug)]
struct Slot {
    partition: TopicPartition,
    inner: tokio::sync::Mutex<SlotInner>,
    progress: Arc<Progress>,
    events: mpsc::Sender<Event>,
}

#[derive(Debug)]
struct SlotInner {
    /// INVARIANT: once true, nothing is appended through this slot any more.
    removed: bool,
    fetch: FetchState,
    not_before: Option<Instant>,
}

/// What the status shows of a fetcher's work.
#[derive(Debug, Default)]
struct Progress {
    inner: Mutex<ProgressInner>,
}

#[derive(Clone, Debug, Default)]
struct ProgressInner {
    source_offset: Option<Offset>,
    log_end_offset: Option<Offset>,
    last_fetch: Option<Instant>,
    waits_for: Option<String>,
}

/// What is known of the source, as of the last round that answered.
#[derive(Clone, Debug, Default)]
struct View {
    topics: BTreeMap<String, SourceTopic>,
    failures: BTreeMap<Arc<str>, Failure>,
    error: Option<String>,
    round: u64,
}

/// None of our locks is held by code that can panic half way through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Progress {
    fn update(&self, change: impl FnOnce(&mut ProgressInner)) {
        change(&mut lock(&self.inner));
    }

    fn wait_for(&self, cause: Option<String>) {
        self.update(|inner| inner.waits_for = cause);
    }
}

impl View {
    fn leader(&self, partition: &TopicPartition) -> Option<(BrokerId, Option<LeaderEpoch>)> {
        let topic = self.topics.get(&*partition.topic)?;
        let found = topic.partitions.get(&partition.partition)?;
        Some((found.leader?, found.leader_epoch))
    }
}

impl<S: Source, D: Destination> Mirror<S, D> {
    /// A mirror without partitions. Must be called within a tokio runtime.
    #[must_use]
    pub fn start(config: RunnerConfig, source: S, destination: D) -> Self {
        let shared = Arc::new(Shared {
            config,
            source,
            destination,
            partitions: Mutex::default(),
            slots: Mutex::default(),
            view: watch::Sender::new(Arc::default()),
            refresh: Notify::new(),
            stop: watch::Sender::new(false),
            tasks: Mutex::default(),
        });
        shared.spawn(route(Arc::clone(&shared)));
        Self { shared }
    }

    /// Takes a partition on, or changes what is wanted of it.
    ///
    /// Its log and its topic must be there already, with the source's id and settings.
    pub fn set_desired(&self, partition: &TopicPartition, topic_id: TopicId, desired: Desired) {
        let mut partitions = lock(&self.shared.partitions);
        if let Some(entry) = partitions.get(partition) {
            entry
                .command
                .send_if_modified(|command| std::mem::replace(&mut command.desired, desired) != desired);
            return;
        }
        let (command, commands) = watch::channel(Command { desired, tries: 0 });
        let (status_sender, status) = watch::channel(PartitionStatus::new(partition.clone()));
        let progress = Arc::new(Progress::default());
        let entry = Entry { command, status, progress: Arc::clone(&progress) };
        partitions.insert(partition.clone(), entry);
        drop(partitions);
        let task = PartitionTask {
            shared: Arc::clone(&self.shared),
            partition: partition.clone(),
            topic_id,
            commands,
            status: status_sender,
            progress,
        };
        self.shared.spawn(task.run());
    }

    /// Tries a FAILED partition again.
    pub fn try_again(&self, partition: &TopicPartition) {
        if let Some(entry) = lock(&self.shared.partitions).get(partition) {
            entry.command.send_modify(|command| command.tries = command.tries.wrapping_add(1));
        }
    }

    /// Every partition, ascending by topic and number.
    #[must_use]
    pub fn status(&self) -> Vec<PartitionStatus> {
        let mut all: Vec<PartitionStatus> =
            lock(&self.shared.partitions).values().map(Entry::status).collect();
        let mut counts: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for status in &all {
            *counts.entry(Arc::clone(&status.partition.topic)).or_default() += 1;
        }
        for status in all.iter_mut().filter(|status| status.state.wants_fetcher()) {
            let topic = &status.partition.topic;
            let here = counts.get(topic).copied().unwrap_or(0);
            if let Some(there) = self.partitions_at_source(topic).filter(|there| *there > here) {
                let cause =
                    format!("topic {topic} has {there} partitions at the source, {here} of them here");
                status.attention.get_or_insert(cause);
            }
        }
        all
    }

    /// One partition.
    #[must_use]
    pub fn partition_status(&self, partition: &TopicPartition) -> Option<PartitionStatus> {
        lock(&self.shared.partitions).get(partition).map(Entry::status)
    }

    /// How many partitions a topic has at the source, as of the last round that said so.
    #[must_use]
    pub fn partitions_at_source(&self, topic: &str) -> Option<usize> {
        self.shared.view.borrow().topics.get(topic).map(|topic| topic.partitions.len())
    }

    /// Changes of a partition's state; `None` if the mirror does not have it.
    ///
    /// What ages or is counted per fetch is only in [`Mirror::partition_status`].
    #[must_use]
    pub fn watch(&self, partition: &TopicPartition) -> Option<watch::Receiver<PartitionStatus>> {
        lock(&self.shared.partitions).get(partition).map(|entry| entry.status.clone())
    }

    /// Where this mirror reads from.
    #[must_use]
    pub fn source(&self) -> &S {
        &self.shared.source
    }

    /// What this mirror writes to.
    #[must_use]
    pub fn destination(&self) -> &D {
        &self.shared.destination
    }

    /// Ends all tasks and waits for them. An append or a store that was begun is finished.
    pub async fn shutdown(&self) {
        self.shared.stop.send_replace(true);
        let mut tasks = std::mem::take(&mut *lock(&self.shared.tasks));
        while tasks.join_next().await.is_some() {}
    }
}

impl<S, D> Drop for Mirror<S, D> {
    fn drop(&mut self) {
        self.shared.stop.send_replace(true);
    }
}

impl Entry {
    fn status(&self) -> PartitionStatus {
        let mut status = self.status.borrow().clone();
        let progress = lock(&self.progress.inner).clone();
        status.source_offset = progress.source_offset;
        status.log_end_offset = progress.log_end_offset;
        status.last_fetch_age = progress.last_fetch.map(|at| at.elapsed());
        if status.attention.is_none() {
            status.attention = progress.waits_for;
        }
        status
    }
}

impl<S: Source, D: Destination> Shared<S, D> {
    fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    fn stopped(&self) -> impl Future<Output = ()> + Send + use<S, D> {
        let mut stop = self.stop.subscribe();
        async move {
            // An error means that the mirror is gone.
            let _ = stop.wait_for(|stopped| *stopped).await;
        }
    }

    fn set_interested(&self, partition: &TopicPartition, topic_id: Option<TopicId>) {
        let mut slots = lock(&self.slots);
        match topic_id {
            Some(id) => {
                slots.interested.insert(partition.clone(), id);
            }
            None => {
                slots.interested.remove(partition);
            }
        }
    }

    fn add_slot(self: &Arc<Self>, slot: Arc<Slot>) {
        let leader = self.view.borrow().leader(&slot.partition).map(|(broker, _)| broker);
        let mut slots = lock(&self.slots);
        slots.fetched.insert(slot.partition.clone(), (Arc::clone(&slot), leader));
        match leader {
            Some(broker) => self.assign(&mut slots, broker, slot),
            None => self.refresh.notify_one(),
        }
    }

    fn assign(self: &Arc<Self>, slots: &mut Slots, broker: BrokerId, slot: Arc<Slot>) {
        let queue = slots.brokers.entry(broker).or_insert_with(|| {
            let queue = Arc::new(Broker { id: broker, slots: Mutex::default(), changed: Notify::new() });
            self.spawn(fetch_from(Arc::clone(self), Arc::clone(&queue)));
            queue
        });
        lock(&queue.slots).insert(slot.partition.clone(), slot);
        queue.changed.notify_one();
    }

    /// Afterwards nothing is appended through the partition's slot, and nothing is under way.
    async fn remove_slot(&self, partition: &TopicPartition) {
        let slot = {
            let mut slots = lock(&self.slots);
            let Some((slot, broker)) = slots.fetched.remove(partition) else { return };
            if let Some(queue) = broker.and_then(|broker| slots.brokers.get(&broker)) {
                lock(&queue.slots).remove(partition);
            }
            slot
        };
        slot.inner.lock().await.removed = true;
    }

    fn slot(&self, partition: &TopicPartition) -> Option<Arc<Slot>> {
        lock(&self.slots).fetched.get(partition).map(|(slot, _)| Arc::clone(slot))
    }
}

// --- router ---

async fn route<S: Source, D: Destination>(shared: Arc<Shared<S, D>>) {
    let work = route_forever(&shared);
    tokio::select! {
        biased;
        () = work => {}
        () = shared.stopped() => {}
    }
}

async fn route_forever<S: Source, D: Destination>(shared: &Arc<Shared<S, D>>) {
    let mut attempt = 0_u32;
    let mut missing = BTreeMap::new();
    loop {
        let interested = lock(&shared.slots).interested.clone();
        let topics: Vec<Arc<str>> = interested
            .keys()
            .map(|partition| Arc::clone(&partition.topic))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        if topics.is_empty() {
            shared.refresh.notified().await;
            continue;
        }
        match shared.source.metadata(Some(&topics)).await {
            Ok(metadata) => {
                attempt = 0;
                let failures = judge(shared, &interested, &metadata, &mut missing);
                let undecided = missing.values().any(|(rounds, _)| *rounds < ROUNDS_TO_BELIEVE);
                publish(shared, metadata, failures);
                reconcile(shared).await;
                sleep(METADATA_MIN_GAP).await;
                if undecided {
                    sleep(shared.config.missing_round_interval).await;
                } else {
                    let _ = timeout(shared.config.metadata_max_age, shared.refresh.notified()).await;
                }
            }
            Err(error) => {
                tracing::warn!(mirror = shared.config.name, attempt, %error, "no metadata from the source");
                shared.view.send_modify(|view| {
                    let view = Arc::make_mut(view);
                    view.error = Some(error.to_string());
                    view.round = view.round.wrapping_add(1);
                });
                sleep(backoff(attempt)).await;
                attempt = attempt.saturating_add(1);
            }
        }
    }
}

type Missing = BTreeMap<Arc<str>, (u32, Failure)>;

/// What the source's answer says against each topic; believed the second time in a row.
fn judge<S, D>(
    shared: &Shared<S, D>,
    interested: &BTreeMap<TopicPartition, TopicId>,
    metadata: &SourceMetadata,
    missing: &mut Missing,
) -> BTreeMap<Arc<str>, Failure> {
    let wrong_cluster = match (&shared.config.source_cluster_id, &metadata.cluster_id) {
        (Some(expected), Some(found)) if expected != found => {
            Some(Failure::WrongCluster { expected: expected.clone(), found: found.clone() })
        }
        _ => None,
    };
    let mut against = BTreeMap::new();
    for (partition, expected) in interested {
        let topic = &partition.topic;
        let failure = wrong_cluster.clone().or_else(|| {
            let found = metadata.topics.get(&**topic)?;
            if found.code == SourceCode::UnknownTopicOrPartition {
                return Some(Failure::TopicDeleted { topic: topic.to_string(), rounds: ROUNDS_TO_BELIEVE });
            }
            let recreated = found.code == SourceCode::None
                && found.id != *expected
                && !found.id.is_zero()
                && !expected.is_zero();
            recreated.then(|| Failure::TopicRecreated {
                topic: topic.to_string(),
                expected: expected.to_string(),
                found: found.id.to_string(),
            })
        });
        if let Some(failure) = failure {
            against.insert(Arc::clone(topic), failure);
        }
    }
    missing.retain(|topic, _| against.contains_key(topic));
    let mut believed = BTreeMap::new();
    for (topic, failure) in against {
        let (rounds, _) = missing.entry(Arc::clone(&topic)).or_insert((0, failure.clone()));
        *rounds = rounds.saturating_add(1);
        if *rounds >= ROUNDS_TO_BELIEVE {
            believed.insert(topic, failure);
        }
    }
    believed
}

/// An answer without a topic, or without its leader's epoch, takes nothing away (O4).
fn publish<S, D>(shared: &Shared<S, D>, metadata: SourceMetadata, failures: BTreeMap<Arc<str>, Failure>) {
    let expected = shared.config.source_cluster_id.as_ref();
    let wrong =
        expected.is_some() && metadata.cluster_id.is_some() && metadata.cluster_id.as_ref() != expected;
    shared.view.send_modify(|view| {
        let view = Arc::make_mut(view);
        view.round = view.round.wrapping_add(1);
        view.error = None;
        view.failures = failures;
        if wrong {
            view.error = Some("another cluster answers at the source's address".to_owned());
            return;
        }
        for (name, mut topic) in metadata.topics {
            if topic.code != SourceCode::None {
                view.error = Some(format!("the source answered {} for topic {name}", topic.code));
                continue;
            }
            if let Some(known) = view.topics.get(&name) {
                for (number, partition) in &mut topic.partitions {
                    let before = known.partitions.get(number).and_then(|known| known.leader_epoch);
                    partition.leader_epoch = partition.leader_epoch.or(before);
                }
            }
            view.topics.insert(name, topic);
        }
    });
}

/// Moves slots to their leaders, and tells partitions what they must know.
async fn reconcile<S: Source, D: Destination>(shared: &Arc<Shared<S, D>>) {
    let view = Arc::clone(&shared.view.borrow());
    let mut changed = Vec::new();
    {
        let mut slots = lock(&shared.slots);
        let mut moves = Vec::new();
        for (partition, (slot, broker)) in &mut slots.fetched {
            changed.push(Arc::clone(slot));
            let leader = view.leader(partition).map(|(leader, _)| leader);
            if leader.is_some() && leader != *broker {
                moves.push((std::mem::replace(broker, leader), leader, Arc::clone(slot)));
            }
        }
        for (from, to, slot) in moves {
            if let Some(queue) = from.and_then(|from| slots.brokers.get(&from)) {
                lock(&queue.slots).remove(&slot.partition);
            }
            if let Some(to) = to {
                tracing::info!(mirror = shared.config.name, partition = %slot.partition, broker = %to, "fetching from");
                shared.assign(&mut slots, to, slot);
            }
        }
    }
    for slot in changed {
        if let Some(failure) = view.failures.get(&slot.partition.topic) {
            slot.fail(Event::Failed(failure.clone())).await;
            continue;
        }
        let Some((_, epoch)) = view.leader(&slot.partition) else { continue };
        let mut inner = slot.inner.lock().await;
        if inner.fetch.source_leader_epoch() == epoch || inner.removed {
            continue;
        }
        let known_before = inner.fetch.source_leader_epoch().is_some();
        inner.fetch.set_source_leader_epoch(epoch);
        inner.not_before = None;
        if known_before && !shared.source.tells_divergence() {
            slot.end(&mut inner, Event::LeaderUnproven);
            continue;
        }
        if let Some(epoch) = epoch {
            // Full: the partition is busy. A batch with this epoch will come to the same.
            let _ = slot.events.try_send(Event::SourceLeaderEpoch(epoch));
        }
    }
}

impl Slot {
    /// Reports what ends this slot's work and appends nothing more.
    async fn fail(&self, event: Event) {
        let mut inner = self.inner.lock().await;
        self.end(&mut inner, event);
    }

    fn end(&self, inner: &mut SlotInner, event: Event) {
        if inner.removed {
            return;
        }
        match self.events.try_send(event) {
            Ok(()) => inner.removed = true,
            // The partition has much to do: the same answer will come again.
            Err(_) => inner.not_before = Some(Instant::now() + backoff(0)),
        }
    }
}

// --- fetcher ---

async fn fetch_from<S: Source, D: Destination>(shared: Arc<Shared<S, D>>, broker: Arc<Broker>) {
    let mut attempt = 0_u32;
    let mut first = 0_usize;
    // Fetches left that ask for one partition each, to find the one whose batch is too large.
    let mut singly = 0_usize;
    loop {
        let slots: Vec<Arc<Slot>> = lock(&broker.slots).values().cloned().collect();
        let (mut sent, wake_at) = gather(&slots, &mut first).await;
        if singly > 0 {
            singly -= 1;
            sent.truncate(1);
        }
        if sent.is_empty() {
            let wake_at = wake_at.unwrap_or_else(|| Instant::now() + shared.config.metadata_max_age);
            tokio::select! {
                biased;
                () = broker.changed.notified() => {}
                () = sleep_until(wake_at) => {}
                () = shared.stopped() => return,
            }
            continue;
        }
        let request = FetchRequest {
            partitions: sent.iter().map(|(_, request)| request.clone()).collect(),
            max_wait_ms: if singly > 0 { 0 } else { millis(shared.config.fetch_max_wait) },
            min_bytes: 1,
            max_bytes: sent
                .iter()
                .map(|(_, request)| request.partition_max_bytes)
                .fold(shared.config.response_max_bytes, i32::max),
        };
        let fetched = tokio::select! {
            biased;
            fetched = shared.source.fetch(broker.id, request) => fetched,
            () = shared.stopped() => return,
        };
        match fetched {
            Ok(fetched) => {
                attempt = 0;
                let mut sent: BTreeMap<_, _> = sent
                    .into_iter()
                    .map(|(slot, request)| (slot.partition.clone(), (slot, request)))
                    .collect();
                for fetched in fetched {
                    // What was not asked for, or twice, is not looked at.
                    if let Some((slot, request)) = sent.remove(&fetched.partition) {
                        on_fetched(&shared, broker.id, &slot, &request, &fetched).await;
                    }
                }
                // An answer without a partition says nothing of it; asked again, not at once.
                for (slot, _) in sent.into_values() {
                    slot.inner.lock().await.not_before = Some(Instant::now() + backoff(0));
                }
            }
            // M6: that partition's alone, so whose batch it is must be found out.
            Err(SourceError::TooLarge { size, limit, .. }) => {
                tracing::warn!(mirror = shared.config.name, broker = %broker.id, size, limit, "an answer is too large");
                if let [(slot, request)] = &sent[..] {
                    let mut inner = slot.inner.lock().await;
                    if inner.fetch.request() == *request
                        && let FetchDecision::Fail(failure) = inner.fetch.on_oversized(size, limit)
                    {
                        slot.end(&mut inner, Event::Failed(failure));
                    }
                }
                // Twice each: the second answer decides.
                singly = singly.max(slots.len().saturating_mul(2));
                attempt = attempt.saturating_add(1);
                tokio::select! {
                    biased;
                    () = sleep(backoff(0)) => {}
                    () = shared.stopped() => return,
                }
            }
            Err(error) => {
                tracing::warn!(mirror = shared.config.name, broker = %broker.id, attempt, %error, "fetch failed");
                for (slot, _) in &sent {
                    slot.progress.wait_for(Some(error.to_string()));
                }
                shared.source.reconnect(broker.id).await;
                shared.refresh.notify_one();
                let wait = backoff(attempt);
                attempt = attempt.saturating_add(1);
                tokio::select! {
                    biased;
                    () = sleep(wait) => {}
                    () = shared.stopped() => return,
                }
            }
        }
    }
}

fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

/// What can be fetched now, beginning with another partition each time, so that none starves;
/// else when something can.
async fn gather(
    slots: &[Arc<Slot>],
    first: &mut usize,
) -> (Vec<(Arc<Slot>, FetchPartition)>, Option<Instant>) {
    let now = Instant::now();
    let mut sent = Vec::with_capacity(slots.len());
    let mut wake_at: Option<Instant> = None;
    let turn = first.checked_rem(slots.len()).unwrap_or(0);
    *first = turn.wrapping_add(1);
    for slot in slots.iter().cycle().skip(turn).take(slots.len()) {
        let inner = slot.inner.lock().await;
        if inner.removed {
            continue;
        }
        match inner.not_before {
            Some(at) if at > now => wake_at = Some(wake_at.map_or(at, |known| known.min(at))),
            _ => sent.push((Arc::clone(slot), inner.fetch.request())),
        }
    }
    (sent, wake_at)
}

async fn on_fetched<S: Source, D: Destination>(
    shared: &Arc<Shared<S, D>>,
    broker: BrokerId,
    slot: &Arc<Slot>,
    request: &FetchPartition,
    fetched: &FetchedPartition,
) {
    let mut inner = slot.inner.lock().await;
    // Ownership again, under the lock: a partition that was stopped, moved or realigned
    // meanwhile takes nothing from an old answer.
    if inner.removed || inner.fetch.request() != *request {
        return;
    }
    let answered = fetched.code == SourceCode::None && fetched.diverging.is_none();
    if answered {
        slot.progress.update(|progress| {
            progress.source_offset = fetched.high_watermark.or(progress.source_offset);
            progress.last_fetch = Some(Instant::now());
        });
    }
    let decision = inner.fetch.on_response(fetched);
    let decision = if decision == FetchDecision::AskRange {
        // Not under the lock: a stop must not wait for the source.
        let epoch = inner.fetch.source_leader_epoch();
        drop(inner);
        let range = tokio::select! {
            biased;
            range = shared.source.range(broker, &slot.partition, epoch) => range,
            () = shared.stopped() => return,
        };
        inner = slot.inner.lock().await;
        if inner.removed || inner.fetch.request() != *request {
            return;
        }
        match range {
            Ok(range) => inner.fetch.on_range(range),
            Err(error) => FetchDecision::BackOff(error.to_string()),
        }
    } else {
        decision
    };
    let waits_for = match decision {
        FetchDecision::Append(plan) => match append(shared, slot, &mut inner, &plan).await {
            Ok(()) => None,
            Err(event) => {
                slot.end(&mut inner, event);
                None
            }
        },
        FetchDecision::Idle | FetchDecision::AskRange => {
            inner.not_before = None;
            None
        }
        FetchDecision::Widen => None,
        FetchDecision::Refresh => {
            inner.not_before = Some(Instant::now() + backoff(inner.fetch.refusals().saturating_sub(1)));
            shared.refresh.notify_one();
            Some(format!("the source answered {}; asking who leads", fetched.code))
        }
        FetchDecision::BackOff(cause) => {
            inner.not_before = Some(Instant::now() + backoff(inner.fetch.refusals()));
            shared.refresh.notify_one();
            Some(cause)
        }
        FetchDecision::Reconnect(cause) => {
            tracing::warn!(mirror = shared.config.name, partition = %slot.partition, cause, "fetching again over a new connection");
            shared.source.reconnect(broker).await;
            Some(cause)
        }
        FetchDecision::RaiseEpoch(epoch) => {
            slot.end(&mut inner, Event::BatchAhead(epoch));
            None
        }
        FetchDecision::Fail(failure) => {
            slot.end(&mut inner, Event::Failed(failure));
            None
        }
    };
    slot.progress.wait_for(waits_for);
    if answered && !inner.removed {
        follow_log_start(shared, slot, request.fetch_offset, fetched).await;
    }
}

async fn append<S: Source, D: Destination>(
    shared: &Shared<S, D>,
    slot: &Slot,
    inner: &mut SlotInner,
    plan: &AppendPlan,
) -> Result<(), Event> {
    let (destination, partition) = (&shared.destination, &slot.partition);
    let log = async {
        if !plan.producer_ids.is_empty() {
            destination.cover_producer_ids(&plan.producer_ids).await?;
        }
        if let Some(start) = plan.restart_at {
            destination.start_log_at(partition, start).await?;
        }
        destination.append(partition, plan.records.clone(), plan.expected_end, plan.max_leader_epoch).await
    };
    let log = log.await.map_err(|error| match error {
        DestinationError::Rejected { .. } | DestinationError::TooManyProducerIdRanges { .. } => {
            Event::Failed(Failure::Destination { cause: error.to_string() })
        }
        // May pass: a full disk, a store that was slow.
        error => Event::LogFailed { cause: error.to_string() },
    })?;
    inner.fetch.appended(plan, &log).map_err(Event::Failed)?;
    inner.not_before = None;
    slot.progress.update(|progress| progress.log_end_offset = Some(log.log_end_offset));
    Ok(())
}

/// O5: the log start follows the source's, never beyond what is durable here.
async fn follow_log_start<S: Source, D: Destination>(
    shared: &Shared<S, D>,
    slot: &Slot,
    fetch_offset: Offset,
    fetched: &FetchedPartition,
) {
    // A source that starts behind the offset that it has just answered contradicts itself, and
    // nothing is deleted on its word (O4).
    let believed = |start: &Offset| *start > Offset::ZERO && *start <= fetch_offset;
    let Some(source_start) = fetched.log_start_offset.filter(believed) else { return };
    let moved = async {
        let log = shared.destination.log_state(&slot.partition).await?;
        let start = source_start.min(log.high_watermark);
        if start > log.log_start_offset {
            shared.destination.advance_log_start(&slot.partition, start).await?;
        }
        Ok::<(), DestinationError>(())
    };
    if let Err(error) = moved.await {
        // Only space is at stake; the next fetch tries again.
        tracing::warn!(mirror = shared.config.name, partition = %slot.partition, %error, "log start not moved");
    }
}

// --- partition ---

struct PartitionTask<S, D> {
    shared: Arc<Shared<S, D>>,
    partition: TopicPartition,
    topic_id: TopicId,
    commands: watch::Receiver<Command>,
    status: watch::Sender<PartitionStatus>,
    progress: Arc<Progress>,
}

type Aligning = Pin<Box<dyn Future<Output = Event> + Send>>;

impl<S: Source, D: Destination> PartitionTask<S, D> {
    async fn run(mut self) {
        let stopped = self.shared.stopped();
        tokio::pin!(stopped);
        let mut attempt = 0;
        loop {
            let loaded = tokio::select! {
                biased;
                () = &mut stopped => return,
                loaded = self.load() => loaded,
            };
            match loaded {
                Ok(machine) => {
                    if self.drive(machine, stopped.as_mut()).await {
                        return;
                    }
                    // Fenced: what the store has now decides.
                }
                Err(error) => {
                    tracing::error!(mirror = self.shared.config.name, partition = %self.partition, %error, "not loaded");
                    self.progress.wait_for(Some(error.to_string()));
                }
            }
            let wait = backoff(attempt);
            attempt = attempt.saturating_add(1);
            tokio::select! {
                biased;
                () = &mut stopped => return,
                () = sleep(wait) => {}
            }
        }
    }

    async fn load(&self) -> Result<MirrorPartition, DestinationError> {
        let record = self.shared.destination.load(&self.partition).await?;
        let log = self.shared.destination.log_state(&self.partition).await?;
        self.progress.update(|progress| {
            progress.log_end_offset = Some(log.log_end_offset);
            progress.waits_for = None;
        });
        Ok(MirrorPartition::load(record, &log))
    }

    /// Steps the machine until the mirror ends (`true`) or it is fenced (`false`).
    async fn drive(
        &mut self,
        mut machine: MirrorPartition,
        mut stopped: Pin<&mut impl Future<Output = ()>>,
    ) -> bool {
        let (events_sender, mut events) = mpsc::channel(EVENT_QUEUE);
        let mut command = *self.commands.borrow_and_update();
        let mut queue = VecDeque::from([Event::Desired(command.desired)]);
        let mut aligning: Option<Aligning> = None;
        let mut retry_at: Option<Instant> = None;
        loop {
            while let Some(event) = queue.pop_front() {
                for action in machine.step(event) {
                    let answer = match action {
                        Action::Align => {
                            self.shared.set_interested(&self.partition, Some(self.topic_id));
                            self.shared.refresh.notify_one();
                            let record = machine.record().clone();
                            aligning = Some(Box::pin(align(
                                Arc::clone(&self.shared),
                                self.partition.clone(),
                                record,
                                Arc::clone(&self.progress),
                            )));
                            None
                        }
                        Action::RetryAfter(wait) => {
                            retry_at = Some(Instant::now() + wait);
                            None
                        }
                        Action::RemoveFetcher => {
                            aligning = None;
                            self.remove_fetcher().await;
                            None
                        }
                        Action::Stop(step) => {
                            aligning = None;
                            Some(self.stop_step(step, machine.record()).await)
                        }
                        Action::StartFetcher => self.start_fetcher(&events_sender).await,
                        Action::Store(transition) => Some(self.store(&transition).await),
                    };
                    queue.extend(answer);
                }
                self.publish(&machine, command.desired);
            }
            if machine.is_fenced() {
                tracing::error!(mirror = self.shared.config.name, partition = %self.partition, "fenced; loading again");
                self.remove_fetcher().await;
                return false;
            }
            tokio::select! {
                biased;
                () = &mut stopped => {
                    self.remove_fetcher().await;
                    return true;
                }
                changed = self.commands.changed() => {
                    if changed.is_err() {
                        self.remove_fetcher().await;
                        return true;
                    }
                    let now = *self.commands.borrow_and_update();
                    queue.push_back(Event::Desired(now.desired));
                    if now.tries != command.tries {
                        queue.push_back(Event::TryAgain);
                    }
                    command = now;
                }
                event = events.recv() => queue.extend(event),
                event = async {
                    match &mut aligning {
                        Some(work) => work.await,
                        None => std::future::pending().await,
                    }
                } => {
                    aligning = None;
                    queue.push_back(event);
                }
                () = async {
                    match retry_at {
                        Some(at) => sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                } => {
                    retry_at = None;
                    queue.push_back(Event::RetryDue);
                }
            }
        }
    }

    fn publish(&self, machine: &MirrorPartition, desired: Desired) {
        let record = machine.record();
        let status = PartitionStatus {
            desired: Some(desired),
            state: machine.shown_state(),
            state_epoch: record.state_epoch,
            stop_step: machine.stop_step(),
            attention: machine.attention(),
            failure: record.failure.as_ref().map(|failure| failure.name().to_owned()),
            attempt: machine.attempt(),
            position: record.position,
            barrier_offset: record.barrier_offset,
            report: machine.report().clone(),
            leader_epoch: Some(machine.leader_epoch()),
            ..PartitionStatus::new(self.partition.clone())
        };
        self.status.send_if_modified(|known| {
            if *known == status {
                return false;
            }
            if known.state != status.state {
                tracing::info!(
                    mirror = self.shared.config.name,
                    partition = %self.partition,
                    from = %known.state,
                    to = %status.state,
                    reason = status.attention.as_deref(),
                    "mirror state"
                );
            }
            *known = status;
            true
        });
    }

    async fn remove_fetcher(&self) {
        self.shared.set_interested(&self.partition, None);
        self.shared.remove_slot(&self.partition).await;
        self.progress.wait_for(None);
    }

    async fn start_fetcher(&self, events: &mpsc::Sender<Event>) -> Option<Event> {
        // The slot before this one, if any, has seen its end.
        self.shared.remove_slot(&self.partition).await;
        let log = match self.shared.destination.log_state(&self.partition).await {
            Ok(log) => log,
            Err(error) => return Some(Event::LogFailed { cause: error.to_string() }),
        };
        self.shared.set_interested(&self.partition, Some(self.topic_id));
        self.progress.update(|progress| progress.log_end_offset = Some(log.log_end_offset));
        let epoch = self.shared.view.borrow().leader(&self.partition).and_then(|(_, epoch)| epoch);
        let limits = self.shared.config.limits;
        let fetch = FetchState::new(self.partition.clone(), self.topic_id, limits, &log, epoch);
        self.shared.add_slot(Arc::new(Slot {
            partition: self.partition.clone(),
            inner: tokio::sync::Mutex::new(SlotInner { removed: false, fetch, not_before: None }),
            progress: Arc::clone(&self.progress),
            events: events.clone(),
        }));
        None
    }

    async fn store(&self, transition: &crate::destination::Transition) -> Event {
        match self.shared.destination.store(&self.partition, transition).await {
            Ok(()) => {
                if let (Some(epoch), Some(slot)) =
                    (transition.leader_epoch, self.shared.slot(&self.partition))
                {
                    slot.inner.lock().await.fetch.set_leader_epoch(epoch);
                }
                Event::Stored
            }
            Err(error) => Event::StoreFailed {
                fenced: matches!(error, DestinationError::Fenced { .. }),
                cause: error.to_string(),
            },
        }
    }

    async fn stop_step(&self, step: StopStep, record: &PartitionRecord) -> Event {
        if step == StopStep::RemoveFetcher {
            self.remove_fetcher().await;
            return Event::StopStepDone(StopOutcome::FetcherRemoved);
        }
        match stop_step(&self.shared.destination, &self.partition, step, record).await {
            Ok(outcome) => Event::StopStepDone(outcome),
            Err(error) => Event::StopStepFailed { cause: error.to_string() },
        }
    }
}

/// Carries out a step of the stop that works on the log; the others have nothing to do there.
///
/// # Errors
/// [`DestinationError`]: nothing is skipped; the step is to be repeated.
pub async fn stop_step<D: Destination>(
    destination: &D,
    partition: &TopicPartition,
    step: StopStep,
    record: &PartitionRecord,
) -> Result<StopOutcome, DestinationError> {
    match step {
        // The fetcher is the runner's, the transitions are stored by it: no log is touched.
        StopStep::RemoveFetcher | StopStep::SavePosition | StopStep::SaveStopped => {
            Ok(StopOutcome::FetcherRemoved)
        }
        StopStep::SyncLog => Ok(StopOutcome::LogSynced(destination.sync(partition).await?)),
        StopStep::AbortTransactions => {
            let mut aborts = Vec::new();
            let mut open = destination.open_transactions(partition).await?;
            open.sort_by_key(|transaction| transaction.first_offset);
            for transaction in open {
                let offset = destination.append_abort(partition, &transaction).await?;
                aborts.push(AbortAppended {
                    producer_id: transaction.producer_id,
                    first_offset: transaction.first_offset,
                    offset,
                });
            }
            Ok(StopOutcome::TransactionsAborted(aborts))
        }
        StopStep::AppendBarrier => {
            if !destination.open_transactions(partition).await?.is_empty() {
                // The log was opened again without an ABORT that was not durable.
                return Err(DestinationError::Storage { cause: "a transaction is open again".to_owned() });
            }
            let log = destination.log_state(partition).await?;
            let offset = match barrier_in_log(record, &log) {
                Some(offset) => offset,
                None => destination.append_barrier(partition).await?,
            };
            Ok(StopOutcome::BarrierInLog(offset))
        }
        StopStep::SyncBarrier => Ok(StopOutcome::BarrierSynced(destination.sync(partition).await?)),
    }
}

/// Compares our log with the source's until there is an answer; waits as long as there is none.
async fn align<S: Source, D: Destination>(
    shared: Arc<Shared<S, D>>,
    partition: TopicPartition,
    record: PartitionRecord,
    progress: Arc<Progress>,
) -> Event {
    let mut views = shared.view.subscribe();
    // What an older round said of a topic may be why this is tried again.
    let began_in = views.borrow().round;
    let mut attempt = 0;
    let mut suspect = None;
    loop {
        let view = Arc::clone(&views.borrow_and_update());
        if let Some(failure) = view.failures.get(&partition.topic).filter(|_| view.round != began_in) {
            return Event::Failed(failure.clone());
        }
        let cause = match view.leader(&partition) {
            None if view.round == 0 => None,
            None => Some(
                view.error.clone().unwrap_or_else(|| "the partition has no leader at the source".to_owned()),
            ),
            Some((broker, epoch)) => match align_once(&shared, &partition, &record, broker, epoch).await {
                Ok(Ok(log)) => {
                    progress.update(|progress| {
                        progress.waits_for = None;
                        progress.log_end_offset = Some(log.log_end_offset);
                    });
                    return Event::Aligned { source_leader_epoch: epoch, log };
                }
                // Once more over a new connection, as for any answer that is hard to believe.
                Ok(Err(failure)) if suspect.replace(failure.clone()).as_ref() == Some(&failure) => {
                    return Event::Failed(failure);
                }
                Ok(Err(failure)) => {
                    shared.source.reconnect(broker).await;
                    Some(failure.to_string())
                }
                Err(cause) => Some(cause),
            },
        };
        if let Some(cause) = cause {
            progress.wait_for(Some(cause));
            shared.refresh.notify_one();
            sleep(backoff(attempt)).await;
            attempt = attempt.saturating_add(1);
        } else {
            // The first round is under way.
            let _ = views.changed().await;
        }
    }
}

/// Outer error: no answer, try later. Inner error: an answer that says no.
async fn align_once<S: Source, D: Destination>(
    shared: &Shared<S, D>,
    partition: &TopicPartition,
    record: &PartitionRecord,
    broker: BrokerId,
    epoch: Option<LeaderEpoch>,
) -> Result<Result<LogState, Failure>, String> {
    let words = |error: SourceError| error.to_string();
    let range = shared.source.range(broker, partition, epoch).await.map_err(words)?;
    let log = shared.destination.log_state(partition).await.map_err(|error| error.to_string())?;
    match plan(record, &log, range) {
        AlignmentPlan::Fits => Ok(Ok(log)),
        AlignmentPlan::StartLogAt(start) => {
            let log = shared.destination.start_log_at(partition, start).await;
            log.map(Ok).map_err(|error| error.to_string())
        }
        AlignmentPlan::Fail(failure) => Ok(Err(failure)),
        AlignmentPlan::CompareNewest { fetch_offset, newest } => {
            let topic_id = lock(&shared.slots).interested.get(partition).copied().unwrap_or_default();
            let request = FetchRequest {
                partitions: vec![FetchPartition {
                    partition: partition.clone(),
                    topic_id,
                    fetch_offset,
                    current_leader_epoch: epoch,
                    last_fetched_epoch: None,
                    partition_max_bytes: shared.config.limits.partition_max_bytes,
                }],
                max_wait_ms: 0,
                min_bytes: 0,
                max_bytes: shared.config.response_max_bytes,
            };
            let fetched = shared.source.fetch(broker, request).await.map_err(words)?;
            let fetched = fetched
                .into_iter()
                .find(|fetched| fetched.partition == *partition)
                .ok_or("the source's answer does not have the partition")?;
            if fetched.code != SourceCode::None {
                return Err(format!("the source answered {}", fetched.code));
            }
            Ok(compare_newest(&newest, &fetched).map(|()| log))
        }
    }
}

#[cfg(test)]
mod tests;
