//! Fetch: batches out of partitions, at once or when they come.
//!
//! No fetch sessions are kept: every answer says session 0, and clients then name all partitions
//! in every request.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use weir_format::{LeaderEpoch, Offset};
use weir_log::{Isolation, ReadError};
use weir_wire::ErrorCode;
use weir_wire::fetch::{
    AbortedTransaction, EpochEndOffset, FINAL_SESSION_EPOCH, FetchPartition, FetchPartitionResponse,
    FetchRequest, FetchResponse, FetchTopicResponse, INITIAL_SESSION_EPOCH, READ_COMMITTED,
};

use super::{Call, TopicRef, served_partition};
use crate::error_code;
use crate::shard::{PartitionError, PartitionHandle, PartitionStatus};

/// First version that names topics by id.
const BY_ID: i16 = 13;
/// Most bytes of one response. Kafka: `fetch.max.bytes`.
const MAX_BYTES: usize = 55 << 20;

pub(super) async fn handle(call: Call, request: FetchRequest) -> FetchResponse {
    // Sessions are offered by no answer of ours, so none can be continued. Kafka: the id counts only
    // where the epoch says that one is (kafka-go sends −1 as both).
    if !matches!(request.session_epoch, INITIAL_SESSION_EPOCH | FINAL_SESSION_EPOCH) {
        return FetchResponse { error_code: ErrorCode::FETCH_SESSION_ID_NOT_FOUND, ..Default::default() };
    }
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let deadline = tokio::time::Instant::now() + wait;
    let min_bytes = usize::try_from(request.min_bytes).unwrap_or(0);
    let mut stopping = call.stopping.clone();
    loop {
        // Taken before the logs are looked at: what comes in between ends the wait at once.
        let changes = watchers(&call, &request);
        let round = read_all(&call, &request).await;
        let enough = round.bytes >= min_bytes || round.must_answer || changes.is_empty();
        if enough || *stopping.borrow() || tokio::time::Instant::now() >= deadline {
            return round.response;
        }
        tokio::select! {
            () = any_changes(changes) => {}
            _ = stopping.changed() => {}
            () = tokio::time::sleep_until(deadline) => {}
        }
    }
}

fn watchers(call: &Call, request: &FetchRequest) -> Vec<watch::Receiver<PartitionStatus>> {
    let mut found = Vec::new();
    for topic in &request.topics {
        let named = named(call, &topic.name, topic.topic_id);
        for partition in &topic.partitions {
            if let Ok(handle) = super::find_partition(&call.node, named, partition.partition) {
                let mut watch = handle.watch();
                watch.mark_unchanged();
                found.push(watch);
            }
        }
    }
    found
}

fn named<'a>(call: &Call, name: &'a weir_wire::StrBytes, id: weir_wire::Uuid) -> TopicRef<'a> {
    if call.header.api_version >= BY_ID { TopicRef::Id(id) } else { TopicRef::Name(name.as_str()) }
}

/// Ends when one of them has changed, or its partition is gone.
async fn any_changes(changes: Vec<watch::Receiver<PartitionStatus>>) {
    let mut waits: Vec<Pin<Box<dyn Future<Output = ()> + Send>>> = Vec::with_capacity(changes.len());
    for mut change in changes {
        waits.push(Box::pin(async move {
            let _ = change.changed().await;
        }));
    }
    poll_fn(|context| {
        let ready = waits.iter_mut().any(|wait| wait.as_mut().poll(context).is_ready());
        if ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

struct Round {
    response: FetchResponse,
    bytes: usize,
    /// An error or a divergence: the client must learn of it now.
    must_answer: bool,
}

async fn read_all(call: &Call, request: &FetchRequest) -> Round {
    let mut round = Round { response: FetchResponse::default(), bytes: 0, must_answer: false };
    let max_bytes = usize::try_from(request.max_bytes).unwrap_or(0).min(MAX_BYTES);
    let isolation =
        if request.isolation_level == READ_COMMITTED { Isolation::Committed } else { Isolation::Uncommitted };
    for topic in &request.topics {
        let named = named(call, &topic.name, topic.topic_id);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let left = max_bytes.saturating_sub(round.bytes);
            let found =
                served_partition(&call.node, named, partition.partition, partition.current_leader_epoch);
            let answer = match found {
                Ok(handle) => read_one(&handle, partition, isolation, left, round.bytes == 0).await,
                Err(code) => Err(code),
            };
            let answer = answer.unwrap_or_else(|error_code| FetchPartitionResponse {
                error_code,
                records: Some(Bytes::new()),
                ..Default::default()
            });
            round.must_answer |= !answer.error_code.is_none() || answer.diverging_epoch.is_some();
            round.bytes += answer.records.as_ref().map_or(0, Bytes::len);
            partitions.push(FetchPartitionResponse { partition: partition.partition, ..answer });
        }
        round.response.topics.push(FetchTopicResponse {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partitions,
        });
    }
    round
}

async fn read_one(
    handle: &PartitionHandle,
    partition: &FetchPartition,
    isolation: Isolation,
    left: usize,
    at_least_one: bool,
) -> Result<FetchPartitionResponse, ErrorCode> {
    let view = handle.view().map_err(|error| error_code::of_partition(&error))?;
    let mut answer = FetchPartitionResponse {
        high_watermark: view.high_watermark.get(),
        last_stable_offset: view.last_stable_offset.get(),
        log_start_offset: view.log_start_offset.get(),
        aborted_transactions: (isolation == Isolation::Committed).then(Vec::new),
        records: Some(Bytes::new()),
        ..Default::default()
    };
    let from = Offset::new(partition.fetch_offset).ok_or(ErrorCode::OFFSET_OUT_OF_RANGE)?;
    // Before the log is looked at: a stop that ends meanwhile moves the end.
    let is_mirrored = handle.status().leadership.read_only.is_some();
    if let Some(last_fetched) = LeaderEpoch::new(partition.last_fetched_epoch)
        && let Some(diverging) = divergence(handle, last_fetched, from, is_mirrored).await?
    {
        answer.diverging_epoch = Some(diverging);
        return Ok(answer);
    }
    // At the end there is nothing to ask the shard for; beyond it only the shard knows whether the
    // offset is inside what is written and not yet readable.
    if from == view.end_for(isolation) {
        return Ok(answer);
    }
    let max = usize::try_from(partition.partition_max_bytes).unwrap_or(0).min(left);
    let read = handle.read(from, max, isolation, at_least_one).await;
    let read = read.map_err(|error| match error {
        // Law O6: the end of a mirror is not final. The client comes again, with the offset it has.
        PartitionError::Read(ReadError::OffsetOutOfRange { asked, end_offset, .. })
            if is_mirrored && asked > end_offset =>
        {
            ErrorCode::NOT_LEADER_OR_FOLLOWER
        }
        error => error_code::of_partition(&error),
    })?;
    answer.high_watermark = read.view.high_watermark.get();
    answer.last_stable_offset = read.view.last_stable_offset.get();
    answer.log_start_offset = read.view.log_start_offset.get();
    if isolation == Isolation::Committed {
        let aborted = read.aborted.iter().map(|aborted| AbortedTransaction {
            producer_id: aborted.producer_id.get(),
            first_offset: aborted.first_offset.get(),
        });
        answer.aborted_transactions = Some(aborted.collect());
    }
    answer.records = Some(read.bytes);
    Ok(answer)
}

/// Where the client's log and this one part, if they do.
///
/// Kafka: `Partition.readRecords`.
async fn divergence(
    handle: &PartitionHandle,
    last_fetched: LeaderEpoch,
    from: Offset,
    is_mirrored: bool,
) -> Result<Option<EpochEndOffset>, ErrorCode> {
    let end = handle.end_offset_for_epoch(last_fetched).await;
    let end = end.map_err(|error| error_code::of_partition(&error))?;
    // An epoch that was never here: nothing can be said about where the two logs agree.
    let (epoch, end_offset) = match end {
        Some(end) => end,
        None if is_mirrored => return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER),
        None => return Err(ErrorCode::OFFSET_OUT_OF_RANGE),
    };
    if is_mirrored && epoch < last_fetched {
        // An epoch that has not come yet, and may.
        return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
    }
    let diverges = epoch < last_fetched || end_offset < from;
    Ok(diverges.then(|| EpochEndOffset { epoch: epoch.get(), end_offset: end_offset.get() }))
}
