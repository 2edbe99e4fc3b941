//! A [`Source`] over Kafka's protocol, from Kafka 2.1 on, or another weir.
//!
//! Two connections per source broker at most: one for fetches, which are long polls, and one
//! for everything else. Each is opened when it is needed; the broker's address is the one of
//! the newest metadata. Metadata and settings are asked from any broker that answers, the
//! bootstrap addresses first.
//!
//! An address may come to belong to another cluster, which may have the same topics, ids
//! included, if it mirrors them too. So every connection to a broker is asked first which cluster
//! it leads to, and nothing is learned or fetched from another one than the mirror is bound to.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use weir_format::{LeaderEpoch, Offset};
use weir_wire::client::{CallOptions, ClientConfig, ClientError, Connection};
use weir_wire::frame::FrameError;
use weir_wire::msg::describe_configs_request::DescribeConfigsResource;
use weir_wire::msg::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use weir_wire::msg::metadata_request::MetadataRequestTopic;
use weir_wire::msg::{DescribeConfigsRequest, ListOffsetsRequest, MetadataRequest};
use weir_wire::{ApiKey, Request, StrBytes, Uuid, fetch};

use crate::source::{
    BrokerId, Diverging, FetchRequest, FetchedPartition, Source, SourceCode, SourceError, SourceMetadata,
    SourcePartition, SourceRange, SourceTopic, TopicConfig, TopicId, TopicPartition,
};

/// Kafka: `ConfigResource.Type.TOPIC`.
const TOPIC_RESOURCE: i8 = 2;
/// Kafka: `ConfigSource.DYNAMIC_TOPIC_CONFIG`: set on the topic itself.
const SET_ON_THE_TOPIC: i8 = 1;
/// ListOffsets: the log start.
const EARLIEST: i64 = -2;
/// ListOffsets: the high watermark.
const LATEST: i64 = -1;
/// Fetch addresses topics by id from 13 on; a source without ids is fetched by name.
const LAST_FETCH_BY_NAME: i16 = 12;

/// First version of Fetch in which a source says where its history leaves ours.
const FIRST_FETCH_WITH_DIVERGENCE: i16 = 12;
/// First version of Metadata in which a question makes no topic.
const FIRST_METADATA_THAT_MAKES_NOTHING: i16 = 4;

/// A source cluster behind a list of addresses.
#[derive(Debug)]
pub struct KafkaSource {
    bootstrap: Vec<String>,
    client: ClientConfig,
    /// The cluster that the mirror is bound to, once there was a first contact.
    cluster_id: Option<String>,
    /// For questions that any broker answers.
    any: Line,
    brokers: Mutex<BTreeMap<BrokerId, Arc<BrokerLink>>>,
    /// A fetch was answered in a version without divergence.
    blind: AtomicBool,
}

#[derive(Debug)]
struct BrokerLink {
    address: String,
    fetch: Line,
    control: Line,
}

/// At most one connection, for one request at a time.
#[derive(Debug, Default)]
struct Line {
    held: AsyncMutex<Option<(Connection, u64)>>,
    /// How often it was closed: a connection from before that is not used again.
    closed: AtomicU64,
}

impl Line {
    /// The next request goes over a new connection. Waits for nobody.
    fn close(&self) {
        self.closed.fetch_add(1, Ordering::AcqRel);
    }
}

/// An error with its causes, on one line.
fn with_causes(error: &ClientError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn source_error(error: &ClientError, api: &'static str) -> SourceError {
    match error {
        ClientError::Timeout { peer, waited, .. } => SourceError::TimedOut {
            broker: peer.clone(),
            after_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
        },
        ClientError::Stream { peer, api: ApiKey::FETCH, source: FrameError::TooLarge { size, limit } } => {
            SourceError::TooLarge { broker: peer.clone(), size: *size, limit: *limit }
        }
        ClientError::Correlation { .. } | ClientError::Response { .. } => {
            SourceError::Malformed { cause: with_causes(error) }
        }
        ClientError::Request { .. } | ClientError::NotServed { .. } | ClientError::NoCommonVersion { .. } => {
            SourceError::Unsupported { api, cause: with_causes(error) }
        }
        ClientError::Refused { code, .. } => {
            SourceError::Refused { api, code: SourceCode::from_code(code.get()) }
        }
        _ => SourceError::Unreachable { cause: with_causes(error) },
    }
}

/// One request over a connection that is opened, or opened again, as needed.
///
/// Brokers close idle connections: a stream that ends under a connection that was used before
/// is tried once more over a new one. Every request here only reads.
async fn call<R: Request + Sync>(
    line: &Line,
    addresses: &[String],
    client: &ClientConfig,
    cluster_id: Option<&str>,
    request: &R,
    options: &CallOptions,
    api: &'static str,
) -> Result<(R::Response, i16), SourceError> {
    let mut held = line.held.lock().await;
    loop {
        let closed = line.closed.load(Ordering::Acquire);
        let known = held.take().filter(|(connection, since)| connection.is_usable() && *since == closed);
        let reused = known.is_some();
        let mut connection = match known {
            Some((connection, _)) => connection,
            None => connect(addresses, client, cluster_id, api).await?,
        };
        let answer = connection.call_with(request, options).await;
        if connection.is_usable() {
            *held = Some((connection, closed));
        }
        match answer {
            Err(error @ ClientError::Stream { source: FrameError::TooLarge { .. }, .. }) => {
                return Err(source_error(&error, api));
            }
            Err(ClientError::Closed { .. } | ClientError::Stream { .. }) if reused => {}
            Err(error) => return Err(source_error(&error, api)),
            Ok(answer) => return Ok(answer),
        }
    }
}

/// A connection to the cluster that the mirror is bound to, and to no other one.
async fn connect(
    addresses: &[String],
    client: &ClientConfig,
    cluster_id: Option<&str>,
    api: &'static str,
) -> Result<Connection, SourceError> {
    let failed = |error| source_error(&error, api);
    let mut connection = Connection::connect(addresses, client).await.map_err(failed)?;
    if let Some(expected) = cluster_id {
        let mut request = MetadataRequest::default();
        request.topics = Some(Vec::new());
        request.allow_auto_topic_creation = false;
        let options =
            CallOptions { min_version: FIRST_METADATA_THAT_MAKES_NOTHING, ..CallOptions::default() };
        let (response, _) = connection.call_with(&request, &options).await.map_err(failed)?;
        if let Some(found) = response.cluster_id.as_ref().filter(|found| ***found != *expected) {
            let (expected, found) = (expected.to_owned(), found.to_string());
            return Err(SourceError::WrongCluster { expected, found });
        }
    }
    Ok(connection)
}

fn string(text: &str) -> StrBytes {
    StrBytes::from(text.to_owned())
}

fn epoch_or_none(epoch: Option<LeaderEpoch>) -> i32 {
    epoch.map_or(fetch::NO_EPOCH, LeaderEpoch::get)
}

impl KafkaSource {
    /// A source reached through these `HOST:PORT`s. Nothing is connected yet.
    #[must_use]
    pub fn new(bootstrap: Vec<String>, client: ClientConfig) -> Self {
        Self {
            bootstrap,
            client,
            cluster_id: None,
            any: Line::default(),
            brokers: Mutex::default(),
            blind: AtomicBool::new(false),
        }
    }

    /// The same, bound to the cluster with this id: no broker of another one is fetched from.
    #[must_use]
    pub fn bound_to(self, cluster_id: Option<String>) -> Self {
        Self { cluster_id, ..self }
    }

    fn link(&self, broker: BrokerId) -> Result<Arc<BrokerLink>, SourceError> {
        let brokers = self.brokers.lock().unwrap_or_else(PoisonError::into_inner);
        brokers.get(&broker).cloned().ok_or_else(|| SourceError::Unreachable {
            cause: format!("no address is known for source broker {broker}"),
        })
    }

    /// Every address there is: bootstrap, then the brokers of the newest metadata.
    fn addresses(&self) -> Vec<String> {
        let mut addresses = self.bootstrap.clone();
        let brokers = self.brokers.lock().unwrap_or_else(PoisonError::into_inner);
        addresses.extend(brokers.values().map(|link| link.address.clone()));
        addresses
    }

    fn learn(&self, found: impl Iterator<Item = (BrokerId, String)>) {
        let mut brokers = self.brokers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = std::mem::take(&mut *brokers);
        *brokers = found
            .map(|(id, address)| match known.get(&id) {
                Some(link) if link.address == address => (id, Arc::clone(link)),
                _ => {
                    let (fetch, control) = (Line::default(), Line::default());
                    (id, Arc::new(BrokerLink { address, fetch, control }))
                }
            })
            .collect();
    }

    async fn ask_any<R: Request + Sync>(
        &self,
        request: &R,
        min_version: i16,
        api: &'static str,
    ) -> Result<R::Response, SourceError> {
        let options = CallOptions { min_version, ..CallOptions::default() };
        // Whose answer it is, is for the asker to see: that another cluster answers is an answer.
        let answer = call(&self.any, &self.addresses(), &self.client, None, request, &options, api).await;
        if answer.is_err() {
            // The next question goes to whoever answers then.
            self.any.close();
        }
        answer.map(|(response, _)| response)
    }

    async fn offset_for(
        &self,
        link: &BrokerLink,
        partition: &TopicPartition,
        leader_epoch: Option<LeaderEpoch>,
        timestamp: i64,
    ) -> Result<Offset, SourceError> {
        const API: &str = "ListOffsets";
        let mut asked = ListOffsetsPartition::default();
        asked.partition_index = partition.partition;
        asked.current_leader_epoch = epoch_or_none(leader_epoch);
        asked.timestamp = timestamp;
        let mut topic = ListOffsetsTopic::default();
        topic.name = string(&partition.topic);
        topic.partitions = vec![asked];
        let mut request = ListOffsetsRequest::default();
        request.replica_id = fetch::CONSUMER_REPLICA_ID;
        request.isolation_level = fetch::READ_UNCOMMITTED;
        request.topics = vec![topic];
        let options = CallOptions { min_version: 1, ..CallOptions::default() };
        let address = std::slice::from_ref(&link.address);
        let bound_to = self.cluster_id.as_deref();
        let (response, _) =
            call(&link.control, address, &self.client, bound_to, &request, &options, API).await?;
        let answer = response
            .topics
            .iter()
            .filter(|topic| *topic.name == *partition.topic)
            .flat_map(|topic| &topic.partitions)
            .find(|answer| answer.partition_index == partition.partition)
            .ok_or_else(|| SourceError::Malformed { cause: format!("{API} answers without {partition}") })?;
        match SourceCode::from_code(answer.error_code) {
            SourceCode::None => {}
            code => return Err(SourceError::Refused { api: API, code }),
        }
        Offset::new(answer.offset).ok_or_else(|| SourceError::Malformed {
            cause: format!("{API} answers offset {} for {partition}", answer.offset),
        })
    }
}

impl Source for KafkaSource {
    async fn metadata(&self, topics: Option<&[Arc<str>]>) -> Result<SourceMetadata, SourceError> {
        const API: &str = "Metadata";
        let mut request = MetadataRequest::default();
        request.topics = topics.map(|topics| {
            let topic = |name: &Arc<str>| {
                let mut topic = MetadataRequestTopic::default();
                topic.name = Some(string(name));
                topic
            };
            topics.iter().map(topic).collect()
        });
        request.allow_auto_topic_creation = false;
        let response = self.ask_any(&request, FIRST_METADATA_THAT_MAKES_NOTHING, API).await?;
        if response.error_code != 0 {
            let code = SourceCode::from_code(response.error_code);
            return Err(SourceError::Refused { api: API, code });
        }
        let address = |host: &str, port: i32| match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        let cluster_id = response.cluster_id.as_ref().map(|id| id.to_string());
        if cluster_id.is_none() || self.cluster_id.is_none() || cluster_id == self.cluster_id {
            self.learn(
                response
                    .brokers
                    .iter()
                    .map(|broker| (BrokerId(broker.node_id), address(&broker.host, broker.port))),
            );
        } else {
            self.any.close();
        }
        let mut metadata = SourceMetadata { cluster_id, topics: BTreeMap::new() };
        for topic in &response.topics {
            let Some(name) = &topic.name else { continue };
            let partitions = topic.partitions.iter().map(|partition| {
                let known = SourcePartition {
                    leader: (partition.leader_id >= 0).then_some(BrokerId(partition.leader_id)),
                    leader_epoch: LeaderEpoch::new(partition.leader_epoch),
                };
                (partition.partition_index, known)
            });
            let topic = SourceTopic {
                code: SourceCode::from_code(topic.error_code),
                id: TopicId(topic.topic_id.to_bytes()),
                is_internal: topic.is_internal,
                partitions: partitions.filter(|(number, _)| *number >= 0).collect(),
            };
            metadata.topics.insert(name.to_string(), topic);
        }
        Ok(metadata)
    }

    async fn fetch(
        &self,
        broker: BrokerId,
        request: FetchRequest,
    ) -> Result<Vec<FetchedPartition>, SourceError> {
        const API: &str = "Fetch";
        let link = self.link(broker)?;
        let by_name = request.partitions.iter().any(|partition| partition.topic_id.is_zero());
        let mut topics: Vec<fetch::FetchTopic> = Vec::new();
        for wanted in &request.partitions {
            let partition = fetch::FetchPartition {
                partition: wanted.partition.partition,
                current_leader_epoch: epoch_or_none(wanted.current_leader_epoch),
                fetch_offset: wanted.fetch_offset.get(),
                last_fetched_epoch: epoch_or_none(wanted.last_fetched_epoch),
                partition_max_bytes: wanted.partition_max_bytes,
                ..fetch::FetchPartition::default()
            };
            match topics.last_mut() {
                Some(topic) if *topic.name == *wanted.partition.topic => topic.partitions.push(partition),
                _ => topics.push(fetch::FetchTopic {
                    name: string(&wanted.partition.topic),
                    topic_id: Uuid::from_bytes(wanted.topic_id.0),
                    partitions: vec![partition],
                }),
            }
        }
        let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
        let options = CallOptions {
            max_version: if by_name { LAST_FETCH_BY_NAME } else { i16::MAX },
            timeout: Some(self.client.request_timeout.saturating_add(wait)),
            ..CallOptions::default()
        };
        let asked = fetch::FetchRequest {
            max_wait_ms: request.max_wait_ms,
            min_bytes: request.min_bytes,
            max_bytes: request.max_bytes,
            isolation_level: fetch::READ_UNCOMMITTED,
            topics,
            ..fetch::FetchRequest::default()
        };
        let address = std::slice::from_ref(&link.address);
        let bound_to = self.cluster_id.as_deref();
        let (response, version) =
            call(&link.fetch, address, &self.client, bound_to, &asked, &options, API).await?;
        if version < FIRST_FETCH_WITH_DIVERGENCE {
            self.blind.store(true, Ordering::Relaxed);
        }
        if !response.error_code.is_none() {
            let code = SourceCode::from_code(response.error_code.get());
            return Err(SourceError::Refused { api: API, code });
        }
        let names: BTreeMap<TopicId, &Arc<str>> = request
            .partitions
            .iter()
            .filter(|wanted| !wanted.topic_id.is_zero())
            .map(|wanted| (wanted.topic_id, &wanted.partition.topic))
            .collect();
        let mut fetched = Vec::with_capacity(request.partitions.len());
        for topic in response.topics {
            let name = match names.get(&TopicId(topic.topic_id.to_bytes())) {
                Some(name) => Arc::clone(name),
                // A topic that was not asked for finds no partition that waits for it.
                None => Arc::from(&*topic.name),
            };
            for partition in topic.partitions {
                fetched.push(FetchedPartition {
                    partition: TopicPartition::new(Arc::clone(&name), partition.partition),
                    code: SourceCode::from_code(partition.error_code.get()),
                    high_watermark: Offset::new(partition.high_watermark),
                    log_start_offset: Offset::new(partition.log_start_offset),
                    diverging: partition.diverging_epoch.map(|diverging| Diverging {
                        epoch: LeaderEpoch::new(diverging.epoch),
                        end_offset: Offset::new(diverging.end_offset),
                    }),
                    records: partition.records.unwrap_or_default(),
                });
            }
        }
        Ok(fetched)
    }

    async fn range(
        &self,
        broker: BrokerId,
        partition: &TopicPartition,
        leader_epoch: Option<LeaderEpoch>,
    ) -> Result<SourceRange, SourceError> {
        let link = self.link(broker)?;
        let end = self.offset_for(&link, partition, leader_epoch, LATEST).await?;
        // Asked last: a start that moves meanwhile is seen, not missed.
        let start = self.offset_for(&link, partition, leader_epoch, EARLIEST).await?;
        Ok(SourceRange { start, end: end.max(start) })
    }

    async fn topic_configs(
        &self,
        topics: &[Arc<str>],
    ) -> Result<BTreeMap<Arc<str>, Vec<TopicConfig>>, SourceError> {
        const API: &str = "DescribeConfigs";
        let mut request = DescribeConfigsRequest::default();
        request.resources = topics
            .iter()
            .map(|topic| {
                let mut resource = DescribeConfigsResource::default();
                resource.resource_type = TOPIC_RESOURCE;
                resource.resource_name = string(topic);
                resource.configuration_keys = None;
                resource
            })
            .collect();
        let response = self.ask_any(&request, 1, API).await?;
        let mut configs = BTreeMap::new();
        for topic in topics {
            let result = response
                .results
                .iter()
                .find(|result| result.resource_type == TOPIC_RESOURCE && *result.resource_name == **topic)
                .ok_or_else(|| SourceError::Malformed { cause: format!("{API} answers without {topic}") })?;
            match SourceCode::from_code(result.error_code) {
                SourceCode::None => {}
                code => return Err(SourceError::Refused { api: API, code }),
            }
            let set = result.configs.iter().filter(|config| config.config_source == SET_ON_THE_TOPIC);
            let found = set.map(|config| TopicConfig {
                name: config.name.to_string(),
                value: config.value.as_ref().map(|value| value.to_string()),
            });
            configs.insert(Arc::clone(topic), found.collect());
        }
        Ok(configs)
    }

    async fn reconnect(&self, broker: BrokerId) {
        if let Ok(link) = self.link(broker) {
            link.fetch.close();
            link.control.close();
        }
    }

    fn tells_divergence(&self) -> bool {
        !self.blind.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
