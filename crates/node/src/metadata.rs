//! What the node knows of its cluster, over the metadata store.
//!
//! Everything is held in memory and read from there; every change is one durable transaction of
//! the store first, and becomes visible afterwards. The store's keys:
//!
//! ```text
//! cluster/id                        the cluster id, 22 characters
//! cluster/node-id                   decimal
//! producer-id/number                number of the range that ids are handed out from (law B12)
//! producer-id/next                  first id that no durable block covers yet
//! producer-id/foreign/<number>      a range number that mirrored ids were in; no value
//! log-dir/<directory id>            the path it had when it was formatted
//! topic/<name>                      id, partitions, configs, the mirror it was made for
//! partition/<topic id>/<partition>  leader epoch; the mirror that owns it, and its state
//! ```
//!
//! Keys under `mirror/` and `mirror-partition/` are the mirror's own; [`Change::ops`] writes them in
//! the same transaction. Values are lines of `name=value`; see [`Fields`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, RwLock};

use weir_format::{LeaderEpoch, ProducerId};

use crate::meta_kv::{Compare, KvOp, MetaKv, MetaKvError, Revision, Txn};
use crate::uuid::Uuid;

/// The node id where none is configured: far above what clients remember of other clusters, so
/// that a cached broker is never this node by accident.
pub const DEFAULT_NODE_ID: i32 = 1_000_000;

/// Producer ids reserved by one durable step.
pub const PRODUCER_ID_BLOCK: i64 = 1_000;

/// Most range numbers that the set of foreign ones may have (law B12).
pub const MAX_FOREIGN_RANGES: usize = 65_536;

/// Range numbers have 31 bits; an id has its number above 32 bits of count.
const RANGE_BITS: u32 = 32;
const RANGE_NUMBER_MASK: u64 = 0x7fff_ffff;

const CLUSTER_ID: &str = "cluster/id";
const NODE_ID: &str = "cluster/node-id";
const PRODUCER_ID_NUMBER: &str = "producer-id/number";
const PRODUCER_ID_NEXT: &str = "producer-id/next";
const FOREIGN_PREFIX: &str = "producer-id/foreign/";
const LOG_DIR_PREFIX: &str = "log-dir/";
const TOPIC_PREFIX: &str = "topic/";
const PARTITION_PREFIX: &str = "partition/";

/// One partition, by the id of its topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId {
    /// The topic's id.
    pub topic_id: Uuid,
    /// The partition's number, from 0.
    pub partition: i32,
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic_id, self.partition)
    }
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its id: the source's, for a mirrored topic.
    pub id: Uuid,
    /// How many partitions it has.
    pub partitions: i32,
    /// Settings that differ from the node's, by Kafka's names.
    pub configs: BTreeMap<String, String>,
    /// The mirror that this topic was made for: partitions without a row of their own are
    /// read-only for its sake.
    pub mirror: Option<String>,
}

impl Topic {
    /// The ids of its partitions, ascending.
    pub fn partition_ids(&self) -> impl Iterator<Item = PartitionId> + use<> {
        let topic_id = self.id;
        (0..self.partitions).map(move |partition| PartitionId { topic_id, partition })
    }
}

/// Why clients may not write to a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOnly {
    /// Name of the mirror that owns the partition.
    pub mirror: String,
    /// The mirror's word for the partition's state, for messages.
    pub state: String,
}

/// What the cluster has decided about a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leadership {
    /// Epoch of this node's leadership.
    pub leader_epoch: LeaderEpoch,
    /// Set while a mirror owns the partition: no client may write (law B1).
    pub read_only: Option<ReadOnly>,
}

/// A change of the metadata: one transaction.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// What must hold, or nothing happens.
    pub compare: Vec<Compare>,
    /// Topics to write, new or changed.
    pub put_topics: Vec<Topic>,
    /// Topics to take away, with their partitions' rows.
    pub remove_topics: Vec<String>,
    /// Partitions to write.
    pub partitions: Vec<(PartitionId, Leadership)>,
    /// Keys that this module does not know.
    pub ops: Vec<KvOp>,
}

/// Why the metadata could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// The store failed.
    #[error("the metadata store failed")]
    Store(#[source] MetaKvError),
    /// Something that the change counted on is not so (any more).
    #[error("the metadata changed meanwhile")]
    Conflict,
    /// The store has no cluster id: it was never formatted, or only in part.
    #[error("the metadata store holds no cluster")]
    NotFormatted,
    /// A row cannot be read.
    #[error("the metadata store's row {key} cannot be read")]
    Damaged {
        /// The row's key.
        key: String,
    },
    /// Mirrored producer ids came from more ranges than the set can hold (law B12).
    #[error("producer ids of more than {MAX_FOREIGN_RANGES} ranges were mirrored here")]
    ForeignRangesFull,
    /// Every range number is taken by mirrored ids.
    #[error("no range of producer ids is left")]
    ProducerIdsExhausted,
    /// The thread that writes the store is gone.
    #[error("the metadata store is shut down")]
    ShutDown,
}

impl MetadataError {
    fn damaged(key: &[u8]) -> Self {
        Self::Damaged { key: String::from_utf8_lossy(key).into_owned() }
    }
}

/// Lines of `name=value`, the form of this crate's values in the store.
///
/// Backslash, line feed and (in names) the equals sign are escaped; names are unique; the order is
/// that of the names. The first version of a row is 1 and is not written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields(BTreeMap<String, String>);

impl Fields {
    /// No fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same fields and one more, which replaces one of the same name.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.0.insert(name.to_owned(), value.to_string());
        self
    }

    /// Like [`Fields::with`] if there is a value.
    #[must_use]
    pub fn with_some(self, name: &str, value: Option<impl fmt::Display>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value of a field that is there and can be parsed.
    pub fn parse<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name)?.parse().ok()
    }

    /// All fields, ascending by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The bytes to store.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = String::new();
        for (name, value) in &self.0 {
            escape(name, &mut text);
            text.push('=');
            escape(value, &mut text);
            text.push('\n');
        }
        text.into_bytes()
    }

    /// Reads what [`Fields::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut fields = BTreeMap::new();
        for line in text.lines() {
            let (name, value) = line.split_once('=')?;
            fields.insert(unescape(name)?, unescape(value)?);
        }
        Some(Self(fields))
    }
}

fn escape(text: &str, into: &mut String) {
    for character in text.chars() {
        match character {
            '\\' => into.push_str("\\\\"),
            '\n' => into.push_str("\\n"),
            '\r' => into.push_str("\\r"),
            '=' => into.push_str("\\e"),
            other => into.push(other),
        }
    }
}

fn unescape(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            plain.push(character);
            continue;
        }
        plain.push(match characters.next()? {
            '\\' => '\\',
            'n' => '\n',
            'r' => '\r',
            'e' => '=',
            _ => return None,
        });
    }
    Some(plain)
}

/// The number of the range that a cluster hands out producer ids from (law B12).
pub fn producer_id_range_number(cluster_id: &str) -> u64 {
    let number = u64::from(crc32c::crc32c(cluster_id.as_bytes())) & RANGE_NUMBER_MASK;
    number.max(1)
}

/// The number of the range that a producer id is in.
pub fn range_number_of(producer_id: ProducerId) -> u64 {
    u64::try_from(producer_id.get() >> RANGE_BITS).unwrap_or(0)
}

fn first_of_range(number: u64) -> i64 {
    i64::try_from(number << RANGE_BITS).unwrap_or(i64::MAX)
}

fn last_of_range(number: u64) -> i64 {
    first_of_range(number).saturating_add((1_i64 << RANGE_BITS) - 1)
}

#[derive(Debug, Default)]
struct Tables {
    topics: BTreeMap<String, Arc<Topic>>,
    names: HashMap<Uuid, String>,
    partitions: HashMap<PartitionId, Leadership>,
}

/// Where the next producer id comes from.
#[derive(Debug)]
struct ProducerIds {
    number: u64,
    /// First id that is not handed out yet.
    next: i64,
    /// End of the durable block: ids from here on need another one first.
    end: i64,
    foreign: BTreeSet<u64>,
}

/// The cluster's metadata, in memory and in the store.
#[derive(Clone)]
pub struct Metadata {
    inner: Arc<Inner>,
}

struct Inner {
    kv: Arc<dyn MetaKv>,
    cluster_id: String,
    node_id: i32,
    tables: RwLock<Tables>,
    // Lock order: one of these two, then `tables`; never both of these.
    changes: tokio::sync::Mutex<()>,
    producer_ids: tokio::sync::Mutex<ProducerIds>,
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metadata").field("cluster_id", &self.inner.cluster_id).finish_non_exhaustive()
    }
}

impl Metadata {
    /// Fills an empty store: identity, the range of producer ids, the log directories.
    ///
    /// # Errors
    /// [`MetadataError::Conflict`] if the store is not empty.
    pub fn format(
        kv: &dyn MetaKv,
        cluster_id: &str,
        node_id: i32,
        log_dirs: &[(Uuid, String)],
    ) -> Result<(), MetadataError> {
        let number = producer_id_range_number(cluster_id);
        let mut then = vec![
            KvOp::put(CLUSTER_ID, cluster_id),
            KvOp::put(NODE_ID, node_id.to_string()),
            KvOp::put(PRODUCER_ID_NUMBER, number.to_string()),
            KvOp::put(PRODUCER_ID_NEXT, first_of_range(number).to_string()),
        ];
        for (id, path) in log_dirs {
            then.push(KvOp::put(format!("{LOG_DIR_PREFIX}{id}"), path.as_str()));
        }
        let txn = Txn { compare: vec![Compare::absent(CLUSTER_ID)], then, otherwise: Vec::new() };
        let outcome = kv.txn(txn).map_err(MetadataError::Store)?;
        if outcome.succeeded { Ok(()) } else { Err(MetadataError::Conflict) }
    }

    /// Reads a formatted store.
    ///
    /// # Errors
    /// [`MetadataError::NotFormatted`]; [`MetadataError::Damaged`] names the row that is wrong.
    pub fn open(kv: Arc<dyn MetaKv>) -> Result<Self, MetadataError> {
        let text = |key: &str| -> Result<String, MetadataError> {
            let row = kv.get(key.as_bytes()).map_err(MetadataError::Store)?;
            let row = row.ok_or(MetadataError::NotFormatted)?;
            String::from_utf8(row.value).map_err(|_| MetadataError::damaged(key.as_bytes()))
        };
        let number = |key: &str| -> Result<i64, MetadataError> {
            text(key)?.parse().map_err(|_| MetadataError::damaged(key.as_bytes()))
        };
        let cluster_id = text(CLUSTER_ID)?;
        let node_id =
            i32::try_from(number(NODE_ID)?).map_err(|_| MetadataError::damaged(NODE_ID.as_bytes()))?;
        let range = u64::try_from(number(PRODUCER_ID_NUMBER)?)
            .map_err(|_| MetadataError::damaged(PRODUCER_ID_NUMBER.as_bytes()))?;
        let next = number(PRODUCER_ID_NEXT)?;
        let foreign = read_foreign(&*kv)?;
        let tables = read_tables(&*kv)?;
        let producer_ids = ProducerIds { number: range, next, end: next, foreign };
        Ok(Self {
            inner: Arc::new(Inner {
                kv,
                cluster_id,
                node_id,
                tables: RwLock::new(tables),
                changes: tokio::sync::Mutex::new(()),
                producer_ids: tokio::sync::Mutex::new(producer_ids),
            }),
        })
    }

    /// The store below, for keys that this module does not know. Its calls block.
    pub fn kv(&self) -> &Arc<dyn MetaKv> {
        &self.inner.kv
    }

    /// The cluster's id.
    pub fn cluster_id(&self) -> &str {
        &self.inner.cluster_id
    }

    /// This node's id.
    pub fn node_id(&self) -> i32 {
        self.inner.node_id
    }

    /// The ids of the log directories that this store knows, with the paths they had.
    ///
    /// # Errors
    /// [`MetadataError::Store`] or [`MetadataError::Damaged`].
    pub fn log_dirs(&self) -> Result<BTreeMap<Uuid, String>, MetadataError> {
        let mut found = BTreeMap::new();
        for row in self.inner.kv.range_prefix(LOG_DIR_PREFIX.as_bytes()).map_err(MetadataError::Store)? {
            let id = key_rest(&row.key, LOG_DIR_PREFIX).and_then(|text| text.parse().ok());
            let id = id.ok_or_else(|| MetadataError::damaged(&row.key))?;
            found.insert(id, String::from_utf8_lossy(&row.value).into_owned());
        }
        Ok(found)
    }

    /// Adds a log directory.
    ///
    /// # Errors
    /// [`MetadataError::Store`].
    pub fn add_log_dir(&self, id: Uuid, path: &str) -> Result<(), MetadataError> {
        let then = vec![KvOp::put(format!("{LOG_DIR_PREFIX}{id}"), path)];
        self.inner.kv.txn(Txn { then, ..Txn::default() }).map_err(MetadataError::Store)?;
        Ok(())
    }

    fn tables(&self) -> std::sync::RwLockReadGuard<'_, Tables> {
        self.inner.tables.read().expect("no holder of this lock panics")
    }

    /// A topic by its name.
    pub fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        self.tables().topics.get(name).cloned()
    }

    /// A topic by its id.
    pub fn topic_by_id(&self, id: Uuid) -> Option<Arc<Topic>> {
        let tables = self.tables();
        tables.names.get(&id).and_then(|name| tables.topics.get(name)).cloned()
    }

    /// All topics, ascending by name.
    pub fn topics(&self) -> Vec<Arc<Topic>> {
        self.tables().topics.values().cloned().collect()
    }

    /// What was decided about a partition; what holds for every new one where there is no row.
    pub fn leadership(&self, id: PartitionId) -> Leadership {
        let tables = self.tables();
        if let Some(found) = tables.partitions.get(&id) {
            return found.clone();
        }
        let topic = tables.names.get(&id.topic_id).and_then(|name| tables.topics.get(name));
        let mirror = topic.and_then(|topic| topic.mirror.clone());
        Leadership {
            leader_epoch: LeaderEpoch::new(0).expect("0 is an epoch"),
            read_only: mirror.map(|mirror| ReadOnly { mirror, state: "UNKNOWN".to_owned() }),
        }
    }

    /// Commits one transaction; afterwards it is durable and visible.
    ///
    /// Whoever changes a [`Leadership`] tells the partition as well, with
    /// [`crate::shard::PartitionHandle::set_leadership`], afterwards.
    ///
    /// # Errors
    /// [`MetadataError::Conflict`] if a comparison failed: nothing was written.
    /// [`MetadataError::Store`] if the store failed: what is in memory has not changed.
    pub async fn commit(&self, change: Change) -> Result<Revision, MetadataError> {
        let _one_at_a_time = self.inner.changes.lock().await;
        let mut then = change.ops.clone();
        for topic in &change.put_topics {
            then.push(KvOp::put(topic_key(&topic.name), encode_topic(topic)));
        }
        let mut gone = Vec::new();
        for name in &change.remove_topics {
            then.push(KvOp::delete(topic_key(name)));
            if let Some(topic) = self.topic(name) {
                let tables = self.tables();
                gone.extend(topic.partition_ids().filter(|id| tables.partitions.contains_key(id)));
            }
        }
        // A topic's rows may be more than a transaction takes: those left over mean nothing
        // without the topic, whose id never comes again.
        let room = crate::meta_kv::MAX_TXN_OPS.saturating_sub(then.len() + change.partitions.len());
        then.extend(gone.iter().take(room).map(|id| KvOp::delete(partition_key(*id))));
        for (id, leadership) in &change.partitions {
            then.push(KvOp::put(partition_key(*id), encode_leadership(leadership)));
        }
        let txn = Txn { compare: change.compare.clone(), then, otherwise: Vec::new() };
        let outcome = self.blocking(move |kv| kv.txn(txn)).await?;
        if !outcome.succeeded {
            return Err(MetadataError::Conflict);
        }
        let mut tables = self.inner.tables.write().expect("no holder of this lock panics");
        for name in &change.remove_topics {
            if let Some(topic) = tables.topics.remove(name) {
                tables.names.remove(&topic.id);
            }
        }
        for id in gone {
            tables.partitions.remove(&id);
        }
        for topic in change.put_topics {
            tables.names.insert(topic.id, topic.name.clone());
            tables.topics.insert(topic.name.clone(), Arc::new(topic));
        }
        tables.partitions.extend(change.partitions);
        Ok(outcome.revision)
    }

    /// Runs a call of the store away from the runtime's threads.
    ///
    /// # Errors
    /// [`MetadataError::Store`] with the store's error.
    pub async fn blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn MetaKv) -> Result<T, MetaKvError> + Send + 'static,
    ) -> Result<T, MetadataError> {
        let kv = Arc::clone(&self.inner.kv);
        let done = tokio::task::spawn_blocking(move || call(&*kv)).await;
        done.map_err(|_| MetadataError::ShutDown)?.map_err(MetadataError::Store)
    }

    /// A producer id that no cluster whose ids were mirrored here has handed out (law B12).
    ///
    /// # Errors
    /// [`MetadataError::Store`] if no further block can be made durable;
    /// [`MetadataError::ProducerIdsExhausted`].
    pub async fn next_producer_id(&self) -> Result<ProducerId, MetadataError> {
        let mut ids = self.inner.producer_ids.lock().await;
        if ids.next >= ids.end {
            let (number, start) = ids.place()?;
            let end = start.saturating_add(PRODUCER_ID_BLOCK).min(last_of_range(number));
            self.store_producer_ids(ids.number, number, end, &[]).await?;
            if number != ids.number {
                let left = ids.number;
                ids.foreign.insert(left);
            }
            ids.number = number;
            ids.next = start;
            ids.end = end;
        }
        let id = ids.next;
        ids.next += 1;
        Ok(ProducerId::new(id).expect("ranges hold ids from 2^32 on"))
    }

    /// Notes producer ids that are in mirrored data: none of them is ever handed out here (law B12).
    ///
    /// Durable when it returns, which must be before a partition becomes STOPPED or is deleted.
    /// For each range number the highest id seen is enough.
    ///
    /// # Errors
    /// [`MetadataError::ForeignRangesFull`]: the partition must become FAILED.
    /// [`MetadataError::Store`] if it could not be made durable.
    pub async fn note_mirrored_producer_ids(
        &self,
        mirrored: impl IntoIterator<Item = ProducerId>,
    ) -> Result<(), MetadataError> {
        let mut ids = self.inner.producer_ids.lock().await;
        let mut new = BTreeSet::new();
        let mut floor = ids.next;
        for id in mirrored {
            let number = range_number_of(id);
            if number == ids.number {
                floor = floor.max(id.get().saturating_add(1));
            } else if !ids.foreign.contains(&number) {
                new.insert(number);
            }
        }
        if ids.foreign.len() + new.len() > MAX_FOREIGN_RANGES {
            return Err(MetadataError::ForeignRangesFull);
        }
        if new.is_empty() && floor == ids.next {
            return Ok(());
        }
        // The durable block begins at `end`; a floor inside the block only skips ids of it.
        let next = floor.max(ids.end);
        let number = ids.number;
        let new: Vec<u64> = new.into_iter().collect();
        for part in new.chunks(crate::meta_kv::MAX_TXN_OPS / 2) {
            self.store_producer_ids(number, number, next, part).await?;
            ids.foreign.extend(part);
        }
        if new.is_empty() {
            self.store_producer_ids(number, number, next, &[]).await?;
        }
        ids.next = floor;
        ids.end = next;
        if floor > last_of_range(number) {
            tracing::warn!(
                number,
                "mirrored producer ids reach the end of this cluster's range: moving to another"
            );
        }
        Ok(())
    }

    async fn store_producer_ids(
        &self,
        left: u64,
        number: u64,
        next: i64,
        foreign: &[u64],
    ) -> Result<(), MetadataError> {
        let mut then = vec![
            KvOp::put(PRODUCER_ID_NUMBER, number.to_string()),
            KvOp::put(PRODUCER_ID_NEXT, next.to_string()),
        ];
        if left != number {
            // Our own ids of that range are out there: it is never ours again.
            then.push(KvOp::put(format!("{FOREIGN_PREFIX}{left}"), ""));
        }
        then.extend(foreign.iter().map(|number| KvOp::put(format!("{FOREIGN_PREFIX}{number}"), "")));
        self.blocking(move |kv| kv.txn(Txn { then, ..Txn::default() })).await?;
        Ok(())
    }
}

impl ProducerIds {
    /// The range and the first id of the next block.
    fn place(&self) -> Result<(u64, i64), MetadataError> {
        if self.next < last_of_range(self.number) {
            return Ok((self.number, self.next));
        }
        let mut number = self.number;
        for _ in 0..=MAX_FOREIGN_RANGES.saturating_add(1) {
            number = if number >= RANGE_NUMBER_MASK { 1 } else { number + 1 };
            if number != self.number && !self.foreign.contains(&number) {
                return Ok((number, first_of_range(number)));
            }
        }
        Err(MetadataError::ProducerIdsExhausted)
    }
}

fn key_rest<'a>(key: &'a [u8], prefix: &str) -> Option<&'a str> {
    std::str::from_utf8(key).ok()?.strip_prefix(prefix)
}

fn topic_key(name: &str) -> String {
    format!("{TOPIC_PREFIX}{name}")
}

/// The store's key of a partition's row, for comparisons.
pub fn partition_key(id: PartitionId) -> String {
    format!("{PARTITION_PREFIX}{id}")
}

fn encode_topic(topic: &Topic) -> Vec<u8> {
    let mut fields = Fields::new()
        .with("id", topic.id)
        .with("partitions", topic.partitions)
        .with_some("mirror", topic.mirror.as_ref());
    for (name, value) in &topic.configs {
        fields = fields.with(&format!("config.{name}"), value);
    }
    fields.encode()
}

fn decode_topic(name: &str, value: &[u8]) -> Option<Topic> {
    let fields = Fields::decode(value)?;
    let configs = fields.iter().filter_map(|(name, value)| {
        name.strip_prefix("config.").map(|name| (name.to_owned(), value.to_owned()))
    });
    Some(Topic {
        name: name.to_owned(),
        id: fields.parse("id")?,
        partitions: fields.parse("partitions").filter(|count| *count > 0)?,
        configs: configs.collect(),
        mirror: fields.get("mirror").map(str::to_owned),
    })
}

/// The bytes of a partition's row, for comparisons.
pub fn encode_leadership(leadership: &Leadership) -> Vec<u8> {
    let read_only = leadership.read_only.as_ref();
    Fields::new()
        .with("leader_epoch", leadership.leader_epoch.get())
        .with_some("mirror", read_only.map(|read_only| &read_only.mirror))
        .with_some("state", read_only.map(|read_only| &read_only.state))
        .encode()
}

fn decode_leadership(value: &[u8]) -> Option<Leadership> {
    let fields = Fields::decode(value)?;
    let leader_epoch = LeaderEpoch::new(fields.parse("leader_epoch")?)?;
    let read_only = fields.get("mirror").map(|mirror| ReadOnly {
        mirror: mirror.to_owned(),
        state: fields.get("state").unwrap_or("UNKNOWN").to_owned(),
    });
    Some(Leadership { leader_epoch, read_only })
}

fn read_tables(kv: &dyn MetaKv) -> Result<Tables, MetadataError> {
    let mut tables = Tables::default();
    for row in kv.range_prefix(TOPIC_PREFIX.as_bytes()).map_err(MetadataError::Store)? {
        let topic = key_rest(&row.key, TOPIC_PREFIX).and_then(|name| decode_topic(name, &row.value));
        let topic = topic.ok_or_else(|| MetadataError::damaged(&row.key))?;
        tables.names.insert(topic.id, topic.name.clone());
        tables.topics.insert(topic.name.clone(), Arc::new(topic));
    }
    for row in kv.range_prefix(PARTITION_PREFIX.as_bytes()).map_err(MetadataError::Store)? {
        let id = key_rest(&row.key, PARTITION_PREFIX).and_then(|rest| {
            let (topic_id, partition) = rest.split_once('/')?;
            Some(PartitionId { topic_id: topic_id.parse().ok()?, partition: partition.parse().ok()? })
        });
        let (Some(id), Some(leadership)) = (id, decode_leadership(&row.value)) else {
            return Err(MetadataError::damaged(&row.key));
        };
        if tables.names.contains_key(&id.topic_id) {
            tables.partitions.insert(id, leadership);
        }
    }
    Ok(tables)
}

fn read_foreign(kv: &dyn MetaKv) -> Result<BTreeSet<u64>, MetadataError> {
    let mut foreign = BTreeSet::new();
    for row in kv.range_prefix(FOREIGN_PREFIX.as_bytes()).map_err(MetadataError::Store)? {
        let number = key_rest(&row.key, FOREIGN_PREFIX).and_then(|text| text.parse().ok());
        foreign.insert(number.ok_or_else(|| MetadataError::damaged(&row.key))?);
    }
    Ok(foreign)
}

#[cfg(test)]
mod tests;
