//! The node's mirrors: what is defined in the store, and the runners that carry it out.
//!
//! ```text
//! mirror/<name>                      bootstrap addresses, options, the source's cluster id
//! mirror/<name>/topic/<topic>        what the operator wants of a topic
//! mirror-partition/<id>/<partition>  state, session, position: see weir_mirror::record
//! ```
//!
//! A request changes the store first and the runner afterwards; a start reads the store and
//! goes on from there, so that a stop that a crash interrupted is finished.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use regex_lite::Regex;
use weir_format::LeaderEpoch;
use weir_mirror::barrier::EPOCH_HEADROOM;
use weir_mirror::kafka_source::KafkaSource;
use weir_mirror::partition::Desired;
use weir_mirror::runner::{Mirror, PartitionStatus};
use weir_mirror::source::{
    Source, SourceCode, SourceMetadata, SourceTopic, TopicConfig, TopicId, TopicPartition,
};
use weir_mirror::state::MirrorPartitionState;
use weir_segment::layout::is_valid_topic_name;
use weir_wire::{ErrorCode, kip1279};

use crate::config::check_topic_configs;
use crate::meta_kv::{Compare, KvOp, MAX_TXN_OPS};
use crate::metadata::{Change, Leadership, MetadataError, PartitionId, ReadOnly, Topic};
use crate::node::{CreateTopicError, Node};
use crate::shard::describe;
use crate::uuid::{self, Uuid};

mod definition;
pub mod destination;
#[cfg(test)]
mod stop_crash_tests;

use definition::Definition;
use destination::{NodeDestination, record_key};

/// How long a request may wait for the source.
const SOURCE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a start waits for one partition to be compared with what its stop left.
const JUDGED_WITHIN: Duration = Duration::from_secs(10);
/// Rows that go into the transaction that makes a topic; further ones are written by the mirror.
const ROWS_WITH_TOPIC: usize = MAX_TXN_OPS - 16;
/// Most partitions of a topic that is mirrored. Kafka: `ReplicationControlManager`.
const MAX_PARTITIONS: usize = 10_000;
/// KIP-1279, default of `topics.exclude`: patterns leave these out.
const INTERNAL_PREFIX: &str = "__";

/// Why a request about a mirror was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MirrorError {
    /// A name that no mirror may have.
    #[error("{name:?} cannot be a mirror's name: 1 to 249 of a-z, A-Z, 0-9, '.', '_', '-'")]
    InvalidName {
        /// The name.
        name: String,
    },
    /// A configuration that cannot work.
    #[error("{key}={value:?}: {reason}")]
    InvalidConfig {
        /// The option.
        key: String,
        /// Its value.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is a mirror of this name.
    #[error("mirror {name} exists")]
    Exists {
        /// The name.
        name: String,
    },
    /// There is no mirror of this name.
    #[error("there is no mirror {name}")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The source gave no answer.
    #[error("the source at {addresses} gave no answer: {cause}")]
    SourceUnreachable {
        /// Its addresses.
        addresses: String,
        /// Why.
        cause: String,
    },
    /// The source is this cluster, or another one than before.
    #[error("the cluster at {addresses} is {found}: {reason}")]
    WrongCluster {
        /// Its addresses.
        addresses: String,
        /// Its cluster id.
        found: String,
        /// Why it cannot be the source.
        reason: String,
    },
    /// No topic has this name, or matches this pattern.
    #[error("no topic of {place} matches {pattern:?}")]
    NothingMatches {
        /// As given.
        pattern: String,
        /// Where it was looked for.
        place: String,
    },
    /// A pattern that cannot be read.
    #[error("{pattern:?} is neither a topic's name nor a pattern: {reason}")]
    InvalidPattern {
        /// As given.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The source refuses to say anything of this topic.
    #[error("the source answered {code} for topic {topic}")]
    SourceRefuses {
        /// The topic.
        topic: String,
        /// Its answer.
        code: String,
    },
    /// A topic of this name is here and is not a mirror's.
    #[error("topic {topic} exists here with id {ours}; the source's has id {theirs}")]
    TopicExists {
        /// The topic.
        topic: String,
        /// Its id here.
        ours: String,
        /// Its id at the source.
        theirs: String,
    },
    /// Another mirror has the topic.
    #[error("topic {topic} belongs to mirror {mirror}")]
    TopicInOtherMirror {
        /// The topic.
        topic: String,
        /// The mirror that has it.
        mirror: String,
    },
    /// The topic was stopped: it is written to here.
    #[error(
        "topic {topic} was stopped and is writable here: it cannot become a mirror again in this version"
    )]
    TopicStopped {
        /// The topic.
        topic: String,
    },
    /// Partitions of the topic are FAILED: what the source had is not all here.
    #[error("topic {topic} is not whole here: {reasons}")]
    TopicFailed {
        /// The topic.
        topic: String,
        /// Each FAILED partition with its reason.
        reasons: String,
    },
    /// The source has another number of partitions than we.
    #[error("topic {topic} has {ours} partitions here and {theirs} at the source")]
    PartitionCount {
        /// The topic.
        topic: String,
        /// Here.
        ours: i32,
        /// At the source.
        theirs: usize,
    },
    /// The mirror does not have this topic.
    #[error("mirror {mirror} does not have topic {topic}")]
    TopicNotInMirror {
        /// The mirror.
        mirror: String,
        /// The topic.
        topic: String,
    },
    /// The mirror has topics that are not stopped.
    #[error("mirror {name} has topics that are not stopped: {topics}")]
    NotEmpty {
        /// The mirror.
        name: String,
        /// Those topics.
        topics: String,
    },
    /// The topic could not be made here.
    #[error("topic {topic} could not be made: {cause}")]
    CreateTopic {
        /// The topic.
        topic: String,
        /// Why.
        cause: String,
    },
    /// The request asks for something that this version does not do.
    #[error("{what} is not in this version")]
    NotInThisVersion {
        /// What.
        what: &'static str,
    },
    /// The metadata store failed.
    #[error("the metadata store failed: {cause}")]
    Metadata {
        /// Why.
        cause: String,
    },
}

impl MirrorError {
    /// The code that says this inside the KIP's APIs.
    pub fn code(&self) -> ErrorCode {
        use kip1279::error;
        match self {
            Self::InvalidName { .. } | Self::InvalidPattern { .. } => ErrorCode::INVALID_REQUEST,
            Self::InvalidConfig { .. } => ErrorCode::INVALID_CONFIG,
            Self::Exists { .. } => error::CLUSTER_MIRROR_ALREADY_EXISTS,
            Self::Unknown { .. } => error::UNKNOWN_CLUSTER_MIRROR,
            Self::SourceUnreachable { .. } => ErrorCode::NETWORK_EXCEPTION,
            Self::WrongCluster { .. } => ErrorCode::INCONSISTENT_CLUSTER_ID,
            Self::NothingMatches { .. } | Self::SourceRefuses { .. } => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            Self::TopicExists { .. } => ErrorCode::INCONSISTENT_TOPIC_ID,
            Self::TopicInOtherMirror { .. } => error::TOPIC_ALREADY_IN_CLUSTER_MIRROR,
            Self::TopicStopped { .. } => error::INVALID_CLUSTER_MIRROR_STATE,
            // READ_ONLY_TOPIC: it stays so until the operator accepts what is missing.
            Self::TopicFailed { .. } => error::READ_ONLY_TOPIC,
            Self::PartitionCount { .. } => ErrorCode::INVALID_PARTITIONS,
            Self::TopicNotInMirror { .. } => error::TOPIC_NOT_IN_CLUSTER_MIRROR,
            Self::NotEmpty { .. } => error::CLUSTER_MIRROR_NOT_EMPTY,
            Self::NotInThisVersion { .. } => ErrorCode::UNSUPPORTED_VERSION,
            Self::CreateTopic { .. } | Self::Metadata { .. } => ErrorCode::KAFKA_STORAGE_ERROR,
        }
    }
}

fn metadata_failed(error: &MetadataError) -> MirrorError {
    MirrorError::Metadata { cause: describe(error) }
}

/// A mirror as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorSummary {
    /// Its name.
    pub name: String,
    /// Its bootstrap addresses, with commas.
    pub source_bootstrap: String,
    /// The source's cluster id, if it was reached once.
    pub source_cluster_id: Option<String>,
    /// Its topics, with what is wanted of them.
    pub topics: BTreeMap<String, Desired>,
}

#[derive(Debug)]
struct Running {
    definition: Definition,
    topics: Mutex<BTreeMap<String, Desired>>,
    mirror: Mirror<KafkaSource, NodeDestination>,
}

impl Running {
    fn topics(&self) -> BTreeMap<String, Desired> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_topic(&self, topic: &str, desired: Desired) {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner).insert(topic.to_owned(), desired);
    }

    fn addresses(&self) -> String {
        self.definition.bootstrap().join(",")
    }
}

/// All mirrors of a node.
#[derive(Debug)]
pub struct MirrorHost {
    node: Arc<Node>,
    // Lock order: `changes`, then `mirrors`, then a mirror's `topics`. Only `changes` is held
    // over an await.
    changes: tokio::sync::Mutex<()>,
    mirrors: RwLock<BTreeMap<String, Arc<Running>>>,
}

impl MirrorHost {
    /// Starts every mirror of the store: what was mirrored is mirrored on, what was stopping is
    /// stopped. No source needs to be reachable.
    ///
    /// # Errors
    /// [`MetadataError`] if the store cannot be read; nothing runs.
    pub async fn start(node: Arc<Node>) -> Result<Arc<Self>, MetadataError> {
        let rows = node.metadata().blocking(|kv| kv.range_prefix(definition::PREFIX.as_bytes())).await?;
        let mut definitions = BTreeMap::new();
        let mut topics: BTreeMap<String, BTreeMap<String, Desired>> = BTreeMap::new();
        for row in rows {
            let damaged = || MetadataError::Damaged { key: String::from_utf8_lossy(&row.key).into_owned() };
            let (name, topic) = definition::split_key(&row.key).ok_or_else(damaged)?;
            match topic {
                None => {
                    let found = Definition::decode(name, &row.value).ok_or_else(damaged)?;
                    definitions.insert(name.to_owned(), found);
                }
                Some(topic) => {
                    let desired = definition::decode_desired(&row.value).ok_or_else(damaged)?;
                    topics.entry(name.to_owned()).or_default().insert(topic.to_owned(), desired);
                }
            }
        }
        let host =
            Arc::new(Self { node, changes: tokio::sync::Mutex::default(), mirrors: RwLock::default() });
        for (name, definition) in definitions {
            let running = host.run(definition, topics.remove(&name).unwrap_or_default());
            for (topic, desired) in running.topics() {
                host.tell(&running, &topic, desired, false);
            }
        }
        host.until_judged().await;
        Ok(host)
    }

    /// Waits until each writable partition that can be served was compared with what its stop
    /// left: one that lost its barrier is FAILED before the first client is heard (B1, M4).
    async fn until_judged(&self) {
        for running in self.all() {
            for status in running.mirror.status() {
                let partition = &status.partition;
                let Some(topic) = self.node.metadata().topic(&partition.topic) else { continue };
                let id = PartitionId { topic_id: topic.id, partition: partition.partition };
                let leadership = self.node.metadata().leadership(id);
                let served = self.node.partition(id).filter(|handle| handle.view().is_ok());
                let (Some(handle), Some(mut watch)) = (served, running.mirror.watch(partition)) else {
                    continue;
                };
                if leadership.read_only.is_some() {
                    continue;
                }
                let judged = watch.wait_for(|status| status.desired.is_some());
                let refused = match tokio::time::timeout(JUDGED_WITHIN, judged).await {
                    Ok(Ok(status)) if status.state == MirrorPartitionState::Stopped => {
                        status.attention.clone()
                    }
                    // FAILED, and guarded; or the mirror is gone.
                    Ok(_) => None,
                    Err(_) => Some("its state could not be read in time".to_owned()),
                };
                if let Some(reason) = refused {
                    // The word FAILED could not be stored, which does not make it whole.
                    let _ = handle.refuse_writes(leadership, &reason).await;
                }
            }
        }
    }

    fn run(&self, definition: Definition, topics: BTreeMap<String, Desired>) -> Arc<Running> {
        let source = KafkaSource::new(definition.bootstrap(), definition.client())
            .bound_to(definition.source_cluster_id.clone());
        let destination = NodeDestination::new(Arc::clone(&self.node), definition.name.as_str());
        let mirror = Mirror::start(definition.runner(), source, destination);
        let name = definition.name.clone();
        let running = Arc::new(Running { definition, topics: Mutex::new(topics), mirror });
        self.mirrors.write().unwrap_or_else(PoisonError::into_inner).insert(name, Arc::clone(&running));
        running
    }

    /// Tells the runner what is wanted of every partition of a topic.
    fn tell(&self, running: &Running, topic: &str, desired: Desired, try_again: bool) {
        let Some(found) = self.node.metadata().topic(topic) else {
            tracing::error!(mirror = running.definition.name, topic, "a mirrored topic is not here");
            return;
        };
        for partition in 0..found.partitions {
            let partition = TopicPartition::new(topic, partition);
            running.mirror.set_desired(&partition, TopicId(found.id.0), desired);
            if try_again {
                running.mirror.try_again(&partition);
            }
        }
    }

    fn get(&self, name: &str) -> Result<Arc<Running>, MirrorError> {
        let mirrors = self.mirrors.read().unwrap_or_else(PoisonError::into_inner);
        mirrors.get(name).cloned().ok_or_else(|| MirrorError::Unknown { name: name.to_owned() })
    }

    fn all(&self) -> Vec<Arc<Running>> {
        self.mirrors.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The node below.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Defines a mirror. Its source is contacted, and its cluster id stored with it.
    ///
    /// # Errors
    /// [`MirrorError`]; nothing is stored then.
    pub async fn create(
        &self,
        name: &str,
        configs: impl IntoIterator<Item = (String, Option<String>)>,
    ) -> Result<(), MirrorError> {
        let mut definition = Definition::new(name, configs)?;
        let exists = || MirrorError::Exists { name: name.to_owned() };
        if self.get(name).is_ok() {
            return Err(exists());
        }
        let source = KafkaSource::new(definition.bootstrap(), definition.client());
        let metadata = self.ask(&definition, &source, Some(&[])).await?;
        definition.source_cluster_id = metadata.cluster_id;
        // Not before: a stop must never wait for a source.
        let _one_at_a_time = self.changes.lock().await;
        if self.get(name).is_ok() {
            return Err(exists());
        }
        let key = Definition::key(name);
        let change = Change {
            compare: vec![Compare::absent(key.as_str())],
            ops: vec![KvOp::put(key, definition.encode())],
            ..Change::default()
        };
        self.node.commit(change).await.map_err(|error| metadata_failed(&error))?;
        tracing::info!(
            mirror = name,
            source = definition.bootstrap().join(","),
            cluster_id = definition.source_cluster_id,
            "mirror created"
        );
        self.run(definition, BTreeMap::new());
        Ok(())
    }

    /// The source's metadata, from a cluster that may be this mirror's source.
    async fn ask(
        &self,
        definition: &Definition,
        source: &KafkaSource,
        topics: Option<&[Arc<str>]>,
    ) -> Result<SourceMetadata, MirrorError> {
        let addresses = definition.bootstrap().join(",");
        let unreachable =
            |cause: String| MirrorError::SourceUnreachable { addresses: addresses.clone(), cause };
        let metadata = tokio::time::timeout(SOURCE_TIMEOUT, source.metadata(topics))
            .await
            .map_err(|_| unreachable(format!("nothing came within {} s", SOURCE_TIMEOUT.as_secs())))?
            .map_err(|error| unreachable(error.to_string()))?;
        let found = metadata.cluster_id.clone().unwrap_or_default();
        let wrong = |reason: &str| {
            let (addresses, found) = (addresses.clone(), found.clone());
            Err(MirrorError::WrongCluster { addresses, found, reason: reason.to_owned() })
        };
        if found == self.node.metadata().cluster_id() {
            return wrong("this cluster cannot be its own source");
        }
        match &definition.source_cluster_id {
            Some(expected) if metadata.cluster_id.is_some() && *expected != found => {
                wrong(&format!("this mirror is bound to {expected}"))
            }
            _ => Ok(metadata),
        }
    }

    /// Mirrors topics, by name or pattern: each is made here with the source's id, partitions and
    /// settings, read-only from its first moment on, before its first byte is fetched.
    ///
    /// What became of each topic is in the answer, ascending by name.
    ///
    /// # Errors
    /// [`MirrorError`] if nothing was tried.
    pub async fn start_topics(
        &self,
        name: &str,
        patterns: &[String],
        exclude: &[String],
    ) -> Result<Vec<(String, Result<(), MirrorError>)>, MirrorError> {
        let running = self.get(name)?;
        let metadata = self.ask(&running.definition, running.mirror.source(), None).await?;
        let at_source: BTreeSet<&str> = metadata.topics.keys().map(String::as_str).collect();
        let mut chosen = BTreeMap::new();
        let excluded = patterns_of(exclude)?;
        for pattern in patterns_of(patterns)? {
            let mut matched = false;
            for topic in &at_source {
                let internal = pattern.is_regex() && topic.starts_with(INTERNAL_PREFIX);
                if pattern.matches(topic)
                    && !internal
                    && !excluded.iter().any(|pattern| pattern.matches(topic))
                {
                    matched = true;
                    chosen.insert((*topic).to_owned(), None);
                }
            }
            if !matched && !pattern.is_regex() {
                let place = format!("the source at {}", running.addresses());
                let error = MirrorError::NothingMatches { pattern: pattern.text.clone(), place };
                chosen.insert(pattern.text.clone(), Some(error));
            }
        }
        let wanted: Vec<Arc<str>> = chosen
            .iter()
            .filter(|(topic, error)| {
                error.is_none()
                    && metadata.topics.get(*topic).is_some_and(|topic| topic.code == SourceCode::None)
            })
            .map(|(topic, _)| Arc::from(topic.as_str()))
            .collect();
        // One question for all topics: settings before the first byte (O5).
        let configs =
            tokio::time::timeout(SOURCE_TIMEOUT, running.mirror.source().topic_configs(&wanted)).await;
        let unreachable =
            |cause: String| MirrorError::SourceUnreachable { addresses: running.addresses(), cause };
        let mut configs = configs
            .map_err(|_| unreachable(format!("nothing came within {} s", SOURCE_TIMEOUT.as_secs())))?
            .map_err(|error| unreachable(error.to_string()))?;
        // Not before: a stop must never wait for a source.
        let _one_at_a_time = self.changes.lock().await;
        let mut results = Vec::new();
        for (topic, error) in chosen {
            let result = match (error, metadata.topics.get(&topic)) {
                (Some(error), _) => Err(error),
                (None, Some(found)) => {
                    let settings = configs.remove(topic.as_str()).unwrap_or_default();
                    let settings = usable_settings(&running.definition, &topic, settings);
                    self.start_topic(&running, &topic, found, settings).await
                }
                // Chosen from this very map.
                (None, None) => continue,
            };
            results.push((topic, result));
        }
        Ok(results)
    }

    async fn start_topic(
        &self,
        running: &Running,
        name: &str,
        at_source: &SourceTopic,
        configs: BTreeMap<String, String>,
    ) -> Result<(), MirrorError> {
        let partitions = check_topic(name, at_source)?;
        let mirror = running.definition.name.as_str();
        for other in self.all() {
            // Also one that it stops: a start must not turn that round.
            if other.topics().contains_key(name) && other.definition.name != mirror {
                let mirror = other.definition.name.clone();
                return Err(MirrorError::TopicInOtherMirror { topic: name.to_owned(), mirror });
            }
        }
        let row =
            KvOp::put(definition::topic_key(mirror, name), definition::encode_desired(Desired::Mirroring));
        match self.node.metadata().topic(name) {
            None => self.create_topic(running, name, at_source, partitions, configs, row).await?,
            Some(ours) => {
                self.check_existing(running, &ours, at_source).await?;
                let change = Change { ops: vec![row], ..Change::default() };
                self.node.commit(change).await.map_err(|error| metadata_failed(&error))?;
            }
        }
        running.set_topic(name, Desired::Mirroring);
        self.tell(running, name, Desired::Mirroring, true);
        Ok(())
    }

    async fn create_topic(
        &self,
        running: &Running,
        name: &str,
        at_source: &SourceTopic,
        partitions: i32,
        configs: BTreeMap<String, String>,
        row: KvOp,
    ) -> Result<(), MirrorError> {
        let failed = |cause: String| MirrorError::CreateTopic { topic: name.to_owned(), cause };
        let id = if at_source.id.is_zero() {
            // A source before 2.8 has no ids.
            uuid::random().map_err(|error| failed(error.to_string()))?
        } else {
            Uuid(at_source.id.0)
        };
        let mirror = running.definition.name.clone();
        // M5 from the first moment on; the mirror checks it again before its first fetch.
        let rows = at_source.partitions.iter().take(ROWS_WITH_TOPIC).map(|(number, partition)| {
            let source = partition.leader_epoch.map_or(0, LeaderEpoch::get);
            let leader_epoch = source.checked_add(EPOCH_HEADROOM).and_then(LeaderEpoch::new);
            let read_only =
                ReadOnly { mirror: mirror.clone(), state: MirrorPartitionState::Unknown.name().to_owned() };
            let leadership = Leadership {
                leader_epoch: leader_epoch.unwrap_or(LeaderEpoch::ZERO),
                read_only: Some(read_only),
            };
            (PartitionId { topic_id: id, partition: *number }, leadership)
        });
        let change = Change { partitions: rows.collect(), ops: vec![row], ..Change::default() };
        let topic = Topic { name: name.to_owned(), id, partitions, configs, mirror: Some(mirror.clone()) };
        match self.node.create_topic(topic, change).await {
            Ok(()) => Ok(()),
            Err(CreateTopicError::IdTaken { id, name: other }) => {
                Err(failed(format!("its id {id} belongs to topic {other} here")))
            }
            Err(error) => Err(failed(describe(&error))),
        }
    }

    /// Whether a topic that is here already may be mirrored (on).
    async fn check_existing(
        &self,
        running: &Running,
        ours: &Topic,
        at_source: &SourceTopic,
    ) -> Result<(), MirrorError> {
        let topic = ours.name.clone();
        let is_ours = running.topics().contains_key(&topic);
        let same_id = ours.id.0 == at_source.id.0 || (at_source.id.is_zero() && is_ours);
        if !same_id || ours.mirror.is_none() {
            return Err(MirrorError::TopicExists {
                topic,
                ours: ours.id.to_string(),
                theirs: at_source.id.to_string(),
            });
        }
        let theirs = at_source.partitions.len();
        if usize::try_from(ours.partitions) != Ok(theirs) {
            return Err(MirrorError::PartitionCount { topic, ours: ours.partitions, theirs });
        }
        let writable = ours.partition_ids().any(|id| self.node.metadata().leadership(id).read_only.is_none());
        if writable || running.topics().get(&topic) == Some(&Desired::Stopped) {
            return Err(MirrorError::TopicStopped { topic });
        }
        Ok(())
    }

    /// Stops topics of a mirror, by name or pattern: the stop sequence of each partition begins,
    /// and its state says when it is done. A topic that is stopped already is no error.
    ///
    /// A topic with a FAILED partition becomes writable only with `accept_gap` (M3): what the
    /// source had behind the failure is missing here.
    ///
    /// # Errors
    /// [`MirrorError`] if nothing was tried.
    pub async fn stop_topics(
        &self,
        name: &str,
        patterns: &[String],
        accept_gap: bool,
    ) -> Result<Vec<(String, Result<(), MirrorError>)>, MirrorError> {
        let running = self.get(name)?;
        let _one_at_a_time = self.changes.lock().await;
        let topics = running.topics();
        let mut chosen = BTreeMap::new();
        for pattern in patterns_of(patterns)? {
            let mut matched = false;
            for topic in topics.keys().filter(|topic| pattern.matches(topic)) {
                matched = true;
                chosen.insert(topic.clone(), None);
            }
            if !matched {
                let (mirror, topic) = (name.to_owned(), pattern.text.clone());
                let error = MirrorError::TopicNotInMirror { mirror, topic };
                chosen.insert(pattern.text.clone(), Some(error));
            }
        }
        let mut results = Vec::new();
        for (topic, error) in chosen {
            let result = match error {
                Some(error) => Err(error),
                None => self.stop_topic(&running, &topic, accept_gap).await,
            };
            results.push((topic, result));
        }
        Ok(results)
    }

    async fn stop_topic(&self, running: &Running, topic: &str, accept_gap: bool) -> Result<(), MirrorError> {
        let statuses = running.mirror.status();
        let failed = statuses.iter().filter(|status| {
            &*status.partition.topic == topic && status.state == MirrorPartitionState::Failed
        });
        let mut reasons: Vec<String> = failed
            .map(|status| {
                format!(
                    "{} is FAILED: {}",
                    status.partition,
                    status.attention.as_deref().unwrap_or("no reason")
                )
            })
            .collect();
        let here = self.node.metadata().topic(topic).map_or(0, |topic| topic.partitions);
        let there = running.mirror.partitions_at_source(topic).unwrap_or(0);
        if usize::try_from(here).is_ok_and(|here| here < there)
            && running.topics().get(topic) != Some(&Desired::Stopped)
        {
            reasons.push(format!("it has {there} partitions at the source, {here} of them here"));
        }
        if !reasons.is_empty() && !accept_gap {
            return Err(MirrorError::TopicFailed { topic: topic.to_owned(), reasons: reasons.join("; ") });
        }
        let key = definition::topic_key(&running.definition.name, topic);
        let row = KvOp::put(key, definition::encode_desired(Desired::Stopped));
        let change = Change { ops: vec![row], ..Change::default() };
        self.node.commit(change).await.map_err(|error| metadata_failed(&error))?;
        running.set_topic(topic, Desired::Stopped);
        self.tell(running, topic, Desired::Stopped, accept_gap);
        tracing::info!(mirror = running.definition.name, topic, accept_gap, "stop asked for");
        Ok(())
    }

    /// Forgets a mirror whose partitions are all STOPPED. Its topics stay.
    ///
    /// # Errors
    /// [`MirrorError::NotEmpty`] names the topics that are not stopped.
    pub async fn delete(&self, name: &str) -> Result<(), MirrorError> {
        let running = self.get(name)?;
        let _one_at_a_time = self.changes.lock().await;
        let open: BTreeSet<String> = running
            .mirror
            .status()
            .into_iter()
            .filter(|status| status.state != MirrorPartitionState::Stopped)
            .map(|status| status.partition.topic.to_string())
            .collect();
        if !open.is_empty() {
            let topics = open.into_iter().collect::<Vec<_>>().join(", ");
            return Err(MirrorError::NotEmpty { name: name.to_owned(), topics });
        }
        running.mirror.shutdown().await;
        let mut ops = Vec::new();
        for topic in running.topics().keys() {
            ops.push(KvOp::delete(definition::topic_key(name, topic)));
            if let Some(found) = self.node.metadata().topic(topic) {
                ops.extend(found.partition_ids().map(|id| KvOp::delete(record_key(id))));
            }
        }
        // The definition goes last: a crash in between leaves a mirror that can be deleted again.
        ops.push(KvOp::delete(Definition::key(name)));
        for part in ops.chunks(MAX_TXN_OPS) {
            let change = Change { ops: part.to_vec(), ..Change::default() };
            self.node.commit(change).await.map_err(|error| metadata_failed(&error))?;
        }
        self.mirrors.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        Ok(())
    }

    /// Every mirror, ascending by name.
    pub fn list(&self) -> Vec<MirrorSummary> {
        self.all()
            .iter()
            .map(|running| MirrorSummary {
                name: running.definition.name.clone(),
                source_bootstrap: running.addresses(),
                source_cluster_id: running.definition.source_cluster_id.clone(),
                topics: running.topics(),
            })
            .collect()
    }

    /// One mirror and its partitions, ascending by topic and number.
    ///
    /// # Errors
    /// [`MirrorError::Unknown`].
    pub fn describe(&self, name: &str) -> Result<(MirrorSummary, Vec<PartitionStatus>), MirrorError> {
        let running = self.get(name)?;
        let summary = MirrorSummary {
            name: name.to_owned(),
            source_bootstrap: running.addresses(),
            source_cluster_id: running.definition.source_cluster_id.clone(),
            topics: running.topics(),
        };
        Ok((summary, running.mirror.status()))
    }

    /// How many partitions a topic has at a mirror's source, as it last said.
    ///
    /// # Errors
    /// [`MirrorError::Unknown`].
    pub fn partitions_at_source(&self, name: &str, topic: &str) -> Result<Option<usize>, MirrorError> {
        Ok(self.get(name)?.mirror.partitions_at_source(topic))
    }

    /// Changes of one partition's state, to wait for.
    ///
    /// # Errors
    /// [`MirrorError::Unknown`] or [`MirrorError::TopicNotInMirror`].
    pub fn watch(
        &self,
        name: &str,
        partition: &TopicPartition,
    ) -> Result<tokio::sync::watch::Receiver<PartitionStatus>, MirrorError> {
        self.get(name)?.mirror.watch(partition).ok_or_else(|| MirrorError::TopicNotInMirror {
            mirror: name.to_owned(),
            topic: partition.topic.to_string(),
        })
    }

    /// Ends all fetching; what was begun is finished. To be called before the node stops.
    pub async fn shutdown(&self) {
        for running in self.all() {
            running.mirror.shutdown().await;
        }
    }
}

/// Whether a topic of the source, which is not trusted, can be one of ours; its partitions.
fn check_topic(name: &str, at_source: &SourceTopic) -> Result<i32, MirrorError> {
    if at_source.code != SourceCode::None || at_source.partitions.is_empty() {
        let code = at_source.code.to_string();
        return Err(MirrorError::SourceRefuses { topic: name.to_owned(), code });
    }
    let cause = if !is_valid_topic_name(name) {
        // It would become the name of a directory.
        "its name is none that a topic may have"
    } else if at_source.partitions.len() > MAX_PARTITIONS {
        "it has more than 10000 partitions"
    } else if at_source.partitions.keys().enumerate().any(|(at, number)| i32::try_from(at) != Ok(*number)) {
        "its partition numbers have holes"
    } else {
        // The last number is one below the count.
        return Ok(at_source.partitions.keys().next_back().map_or(0, |last| last.saturating_add(1)));
    };
    Err(MirrorError::CreateTopic { topic: name.to_owned(), cause: cause.to_owned() })
}

/// The settings of a source topic that are taken over: not those that are excluded, nor those
/// that this version does not know, which a newer source may have.
fn usable_settings(
    definition: &Definition,
    topic: &str,
    settings: Vec<TopicConfig>,
) -> BTreeMap<String, String> {
    let mut usable = BTreeMap::new();
    for TopicConfig { name, value } in settings {
        let Some(value) = value.filter(|_| !definition.excludes_config(&name)) else { continue };
        match check_topic_configs(&BTreeMap::from([(name.clone(), value.clone())])) {
            Ok(()) => {
                usable.insert(name, value);
            }
            Err(reason) => {
                tracing::warn!(
                    mirror = definition.name,
                    topic,
                    reason,
                    "a setting of the source is left out"
                );
            }
        }
    }
    usable
}

/// A topic's name, or a pattern of names.
struct Pattern {
    text: String,
    regex: Option<Regex>,
}

impl Pattern {
    fn is_regex(&self) -> bool {
        self.regex.is_some()
    }

    fn matches(&self, topic: &str) -> bool {
        self.regex.as_ref().map_or(self.text == topic, |regex| regex.is_match(topic))
    }
}

/// What is a legal name is meant as one, although a dot would match anything in a pattern.
fn patterns_of(texts: &[String]) -> Result<Vec<Pattern>, MirrorError> {
    let mut patterns = Vec::new();
    for text in texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty()) {
        let regex = if definition::check_name(text).is_ok() {
            None
        } else {
            let compiled = Regex::new(&format!("^(?:{text})$"));
            Some(compiled.map_err(|error| MirrorError::InvalidPattern {
                pattern: text.to_owned(),
                reason: error.to_string(),
            })?)
        };
        patterns.push(Pattern { text: text.to_owned(), regex });
    }
    Ok(patterns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_mirror::source::SourcePartition;

    fn topic(numbers: impl IntoIterator<Item = i32>) -> SourceTopic {
        let partition = SourcePartition { leader: None, leader_epoch: None };
        SourceTopic {
            code: SourceCode::None,
            id: TopicId([1; 16]),
            is_internal: false,
            partitions: numbers.into_iter().map(|number| (number, partition)).collect(),
        }
    }

    #[test]
    fn a_topic_that_a_hostile_source_makes_up_is_refused() {
        assert_eq!(check_topic("orders", &topic(0..3)).expect("good"), 3);
        assert_eq!(check_topic("orders", &topic(0..10_000)).expect("good"), 10_000);
        for (name, numbers) in [
            ("../../etc", vec![0]),
            ("", vec![0]),
            ("..", vec![0]),
            ("a/b", vec![0]),
            ("orders", vec![]),
            ("orders", vec![1]),
            ("orders", vec![0, 2]),
            ("orders", vec![i32::MAX]),
            ("orders", (0..10_001).collect()),
        ] {
            assert!(check_topic(name, &topic(numbers.clone())).is_err(), "{name:?} {}", numbers.len());
        }
        let refused = SourceTopic { code: SourceCode::AuthorizationFailed, ..topic(0..1) };
        assert!(matches!(check_topic("orders", &refused), Err(MirrorError::SourceRefuses { .. })));
    }

    #[test]
    fn settings_that_are_excluded_unknown_or_wrong_are_left_out() {
        let bootstrap = [("bootstrap.servers".to_owned(), Some("a:1".to_owned()))];
        let definition = Definition::new("dr", bootstrap).expect("valid");
        let settings = [
            ("retention.ms", Some("-1")),
            ("cleanup.policy", Some("compact")),
            ("min.insync.replicas", Some("2")),
            ("future.option", Some("x")),
            ("segment.bytes", Some("many")),
            ("max.message.bytes", None),
        ];
        let settings = settings
            .map(|(name, value)| TopicConfig { name: name.to_owned(), value: value.map(str::to_owned) });
        let usable = usable_settings(&definition, "orders", settings.to_vec());
        let names: Vec<&str> = usable.keys().map(String::as_str).collect();
        assert_eq!(names, ["cleanup.policy", "retention.ms"]);
    }

    #[test]
    fn a_legal_name_is_itself_and_anything_else_a_whole_pattern() {
        let texts = ["orders.eu".to_owned(), "pay.*".to_owned(), " ".to_owned()];
        let patterns = patterns_of(&texts).expect("readable");
        assert_eq!(patterns.len(), 2);
        assert!(patterns[0].matches("orders.eu") && !patterns[0].matches("ordersXeu"));
        assert!(patterns[1].matches("payments") && !patterns[1].matches("repay"));
        assert!(patterns_of(&["(".to_owned()]).is_err());
    }
}
