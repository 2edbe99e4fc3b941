//! Produce: batches of clients into partitions.

use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use weir_log::Appended;
use weir_psm::AppendOrigin;
use weir_wire::api::FIRST_PRODUCE_VERSION_WITH_RECORD_BATCHES;
use weir_wire::produce::{
    BatchIndexAndErrorMessage, ProducePartition, ProducePartitionResponse, ProduceRequest, ProduceResponse,
    ProduceTopicResponse,
};
use weir_wire::{ErrorCode, Limits, decode};

use super::{Answer, Call, Reply, TopicRef, close, find_partition, respond, text};
use crate::error_code;
use crate::node::Node;
use crate::shard::{Acks, PartitionError, describe};

/// First version that names topics by id.
const BY_ID: i16 = 13;

/// First version whose records may be compressed with zstd.
const FIRST_PRODUCE_VERSION_WITH_ZSTD: i16 = 7;

type Pending = Pin<Box<dyn Future<Output = Result<Appended, PartitionError>> + Send>>;

enum Started {
    Refused(ProducePartitionResponse),
    Appending(i32, Pending),
}

/// Hands the batches to their shards, in order; the answer waits for what `acks` asks.
pub(super) async fn start(call: Call, body: Bytes) -> Answer {
    let header = call.header.clone();
    let version = header.api_version;
    let request = match decode::<ProduceRequest>(body, version, &Limits::SERVER) {
        Ok(request) => request,
        Err(error) => return close(describe(&error)),
    };
    let acks = match request.acks {
        0 | 1 => Some(Acks::Written),
        -1 => Some(Acks::Durable),
        _ => None,
    };
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let by_id = version >= BY_ID;
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in topic.partitions {
            let named =
                if by_id { TopicRef::Id(topic.topic_id) } else { TopicRef::Name(topic.name.as_str()) };
            partitions.push(start_partition(&call.node, version, acks, named, partition).await);
        }
        topics.push((topic.name, topic.topic_id, partitions));
    }
    let wait = match request.acks {
        -1 => Some(Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0))),
        _ => None,
    };
    let no_response = request.acks == 0;
    Box::pin(async move {
        let mut response = ProduceResponse::default();
        let deadline = wait.map(|wait| tokio::time::Instant::now() + wait);
        for (name, topic_id, started) in topics {
            let mut partitions = Vec::with_capacity(started.len());
            for started in started {
                partitions.push(match started {
                    Started::Refused(refused) => refused,
                    Started::Appending(index, appending) => finish(index, appending, deadline).await,
                });
            }
            response.topics.push(ProduceTopicResponse { name, topic_id, partitions });
        }
        if !no_response {
            return respond(&header, &response);
        }
        // Kafka: with acks=0 the client can only learn of an error by a closed connection.
        let mut all = response.topics.iter().flat_map(|topic| &topic.partitions);
        match all.find(|partition| !partition.error_code.is_none()) {
            Some(failed) => {
                Reply::Close(format!("a batch sent with acks=0 failed with {}", failed.error_code))
            }
            None => Reply::Nothing,
        }
    })
}

async fn start_partition(
    node: &Node,
    version: i16,
    acks: Option<Acks>,
    topic: TopicRef<'_>,
    partition: ProducePartition,
) -> Started {
    let index = partition.index;
    let refused = |error_code: ErrorCode, why: Option<&str>| {
        let error_message = why.map(text);
        Started::Refused(ProducePartitionResponse { index, error_code, error_message, ..Default::default() })
    };
    let Some(acks) = acks else { return refused(ErrorCode::INVALID_REQUIRED_ACKS, None) };
    if version < FIRST_PRODUCE_VERSION_WITH_RECORD_BATCHES {
        return refused(ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT, None);
    }
    let handle = match find_partition(node, topic, index) {
        Ok(handle) => handle,
        Err(code) => return refused(code, None),
    };
    if acks == Acks::Durable
        && let Some(found) = node.metadata().topic_by_id(handle.id().topic_id)
        && node.config().topic_number(&found.configs, "min.insync.replicas") > 1
    {
        return refused(
            ErrorCode::NOT_ENOUGH_REPLICAS,
            Some("min.insync.replicas is above 1, and there is one node"),
        );
    }
    if let Err(error @ PartitionError::Loading) = handle.view() {
        return refused(error_code::of_partition(&error), None);
    }
    let Some(records) = partition.records.filter(|records| !records.is_empty()) else {
        return refused(ErrorCode::INVALID_RECORD, Some("no records"));
    };
    if version < FIRST_PRODUCE_VERSION_WITH_ZSTD
        && weir_format::header_of(&records).is_ok_and(|header| header.codec() == weir_format::Codec::Zstd)
    {
        // Kafka: `ProduceRequest.validateRecords`. Whoever reads as old as this could not inflate it.
        return refused(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, Some("zstd needs Produce version 7"));
    }
    // The one copy on the way in: the log patches offsets into bytes of its own.
    let records = BytesMut::from(&records[..]);
    match handle.start_append(records, AppendOrigin::Client, None, acks).await {
        Ok(appending) => Started::Appending(index, Box::pin(appending)),
        Err(error) => refused(error_code::of_partition(&error), None),
    }
}

async fn finish(
    index: i32,
    appending: Pending,
    deadline: Option<tokio::time::Instant>,
) -> ProducePartitionResponse {
    let result = match deadline {
        Some(deadline) => match tokio::time::timeout_at(deadline, appending).await {
            Ok(result) => result,
            Err(_) => {
                let error_code = ErrorCode::REQUEST_TIMED_OUT;
                return ProducePartitionResponse { index, error_code, ..Default::default() };
            }
        },
        None => appending.await,
    };
    match result {
        Ok(appended) => ProducePartitionResponse {
            index,
            base_offset: appended.base_offset.get(),
            log_append_time_ms: appended.append_time.map_or(-1, |time| time.get()),
            log_start_offset: appended.log_start_offset.get(),
            ..Default::default()
        },
        Err(error) => {
            tracing::debug!(index, error = describe(&error), "batch refused");
            let error_code = error_code::of_partition(&error);
            let error_message = Some(text(&describe(&error)));
            let record_errors = match &error {
                PartitionError::Append(error) => error.record_index(),
                _ => None,
            };
            // Kafka names the record by its place in the batch.
            let record_errors = record_errors
                .map(|batch_index| BatchIndexAndErrorMessage {
                    batch_index,
                    batch_index_error_message: error_message.clone(),
                })
                .into_iter()
                .collect();
            ProducePartitionResponse { index, error_code, record_errors, error_message, ..Default::default() }
        }
    }
}
