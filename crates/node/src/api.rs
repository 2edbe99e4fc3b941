//! Kafka's requests: one file per API, named by its number, so that the folder is the support
//! matrix. Which versions are served stands in `weir_wire::api`.
//!
//! A call is answered in two steps. [`dispatch`] is awaited in the order in which requests come
//! over a connection, and only starts what must be in that order: appends are handed to their
//! shards. The [`Answer`] that comes back is awaited by the connection's writer, in the same order.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::sync::watch;
use weir_format::LeaderEpoch;
use weir_wire::frame::Frame;
use weir_wire::{ApiKey, ErrorCode, Limits, Message, Request, RequestHeader, StrBytes, decode, kip1279};

use crate::error_code;
use crate::metadata::PartitionId;
use crate::mirror_host::MirrorHost;
use crate::node::Node;
use crate::shard::{PartitionHandle, describe};

mod key_00_produce;
mod key_01_fetch;
mod key_02_list_offsets;
mod key_03_metadata;
mod key_09_offset_fetch;
mod key_10_find_coordinator;
mod key_18_api_versions;
mod key_19_create_topics;
mod key_21_delete_records;
mod key_22_init_producer_id;
mod key_23_offset_for_leader_epoch;
mod key_30094_create_cluster_mirror;
mod key_30095_start_mirror_topics;
mod key_30096_stop_mirror_topics;
mod key_30098_list_cluster_mirrors;
mod key_30099_describe_cluster_mirrors;
mod key_30104_delete_cluster_mirror;
mod key_32_describe_configs;
mod key_60_describe_cluster;

pub use key_18_api_versions::unsupported_version;

/// What a connection remembers of its client.
#[derive(Debug, Default)]
pub struct Session {
    /// What the client's library calls itself, once it has said so.
    pub software_name: OnceLock<String>,
}

/// One request, and what its handler may use.
#[derive(Debug, Clone)]
pub struct Call {
    /// The node.
    pub node: Arc<Node>,
    /// Its mirrors.
    pub mirrors: Arc<MirrorHost>,
    /// The client.
    pub session: Arc<Session>,
    /// The request's header.
    pub header: RequestHeader,
    /// Becomes true when the node stops: long polls end then.
    pub stopping: watch::Receiver<bool>,
}

/// What goes back to the client.
#[derive(Debug)]
pub enum Reply {
    /// A response.
    Frame(Frame),
    /// Nothing: the client does not wait for a response.
    Nothing,
    /// The connection is closed, for this reason.
    Close(String),
}

/// The rest of a call, which ends in its reply.
pub type Answer = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// Starts a call; see the [module](self).
pub async fn dispatch(call: Call, body: Bytes) -> Answer {
    match call.header.api_key {
        // Its appends are handed over here, in order.
        ApiKey::PRODUCE => key_00_produce::start(call, body).await,
        ApiKey::FETCH => answer(call, body, key_01_fetch::handle),
        ApiKey::LIST_OFFSETS => answer(call, body, key_02_list_offsets::handle),
        ApiKey::METADATA => answer(call, body, key_03_metadata::handle),
        ApiKey::OFFSET_FETCH => answer(call, body, key_09_offset_fetch::handle),
        ApiKey::FIND_COORDINATOR => answer(call, body, key_10_find_coordinator::handle),
        ApiKey::API_VERSIONS => answer(call, body, key_18_api_versions::handle),
        ApiKey::CREATE_TOPICS => answer(call, body, key_19_create_topics::handle),
        ApiKey::DELETE_RECORDS => answer(call, body, key_21_delete_records::handle),
        ApiKey::INIT_PRODUCER_ID => answer(call, body, key_22_init_producer_id::handle),
        ApiKey::OFFSET_FOR_LEADER_EPOCH => answer(call, body, key_23_offset_for_leader_epoch::handle),
        ApiKey::DESCRIBE_CONFIGS => answer(call, body, key_32_describe_configs::handle),
        ApiKey::DESCRIBE_CLUSTER => answer(call, body, key_60_describe_cluster::handle),
        kip1279::CREATE_CLUSTER_MIRROR => answer(call, body, key_30094_create_cluster_mirror::handle),
        kip1279::START_MIRROR_TOPICS => answer(call, body, key_30095_start_mirror_topics::handle),
        kip1279::STOP_MIRROR_TOPICS => answer(call, body, key_30096_stop_mirror_topics::handle),
        kip1279::LIST_CLUSTER_MIRRORS => answer(call, body, key_30098_list_cluster_mirrors::handle),
        kip1279::DESCRIBE_CLUSTER_MIRRORS => answer(call, body, key_30099_describe_cluster_mirrors::handle),
        kip1279::DELETE_CLUSTER_MIRROR => answer(call, body, key_30104_delete_cluster_mirror::handle),
        other => close(format!("{other} has no handler")),
    }
}

/// An answer that closes the connection.
pub(crate) fn close(reason: String) -> Answer {
    Box::pin(async move { Reply::Close(reason) })
}

/// Reads the request and lets `handle` answer it. A request that cannot be read closes the
/// connection, as in Kafka: nothing behind it could be trusted.
pub(crate) fn answer<R, F>(call: Call, body: Bytes, handle: impl FnOnce(Call, R) -> F) -> Answer
where
    R: Request,
    R::Response: Send + 'static,
    F: Future<Output = R::Response> + Send + 'static,
{
    let header = call.header.clone();
    match decode::<R>(body, header.api_version, &Limits::SERVER) {
        Ok(request) => {
            let response = handle(call, request);
            Box::pin(async move { respond(&header, &response.await) })
        }
        Err(error) => close(describe(&error)),
    }
}

/// The reply that carries a response.
pub(crate) fn respond<M: Message>(header: &RequestHeader, response: &M) -> Reply {
    match header.respond(response) {
        Ok(frame) => Reply::Frame(frame),
        Err(error) => {
            let error = describe(&error);
            tracing::error!(api = %header.api_key, version = header.api_version, error, "response cannot be written");
            Reply::Close(error)
        }
    }
}

/// A text of the protocol.
pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from(text)
}

/// A partition that a request names by its topic's name or id.
///
/// # Errors
/// The code that every API answers for it.
pub(crate) fn find_partition(
    node: &Node,
    topic: TopicRef<'_>,
    partition: i32,
) -> Result<PartitionHandle, ErrorCode> {
    let found = match topic {
        TopicRef::Name(name) => node.metadata().topic(name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?,
        TopicRef::Id(id) => {
            let id = crate::uuid::from_wire(id);
            node.metadata().topic_by_id(id).ok_or(ErrorCode::UNKNOWN_TOPIC_ID)?
        }
    };
    if partition < 0 || partition >= found.partitions {
        return Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    }
    // A partition of a known topic that is not here has lost its directory.
    node.partition(PartitionId { topic_id: found.id, partition }).ok_or(ErrorCode::KAFKA_STORAGE_ERROR)
}

/// How a request names a topic.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TopicRef<'a> {
    /// By name.
    Name(&'a str),
    /// By id, in newer versions.
    Id(weir_wire::Uuid),
}

/// Whether the leader epoch that a client knows is this partition's.
///
/// # Errors
/// FENCED_LEADER_EPOCH if the client's is older, UNKNOWN_LEADER_EPOCH if it is newer.
/// Kafka: `Partition.checkCurrentLeaderEpoch`.
pub(crate) fn check_leader_epoch(handle: &PartitionHandle, client: i32) -> Result<(), ErrorCode> {
    // −1: the client does not know it.
    let Some(client) = LeaderEpoch::new(client) else { return Ok(()) };
    match client.cmp(&handle.leader_epoch()) {
        std::cmp::Ordering::Less => Err(ErrorCode::FENCED_LEADER_EPOCH),
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(ErrorCode::UNKNOWN_LEADER_EPOCH),
    }
}

/// A partition whose log is loaded and whose epoch the client knows, or the code to answer.
pub(crate) fn served_partition(
    node: &Node,
    topic: TopicRef<'_>,
    partition: i32,
    leader_epoch: i32,
) -> Result<PartitionHandle, ErrorCode> {
    let handle = find_partition(node, topic, partition)?;
    check_leader_epoch(&handle, leader_epoch)?;
    handle.view().map_err(|error| error_code::of_partition(&error))?;
    Ok(handle)
}
