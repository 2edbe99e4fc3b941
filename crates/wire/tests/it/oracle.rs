//! Our Produce and Fetch against `kafka-wire`'s: the same fields must become the same bytes, and the
//! bytes the same fields. The oracle is filled field by field, so that two swapped fields show.

use bytes::{Bytes, BytesMut};
use kafka_wire::{fetch_request, fetch_response, produce_request, produce_response};
use kafka_wire_core::{ApiVersion, KafkaEncode};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use weir_wire::fetch::*;
use weir_wire::produce::*;
use weir_wire::{ErrorCode, Limits, Message, StrBytes, Uuid, decode, encode};

macro_rules! filled {
    ($type:path { $($field:ident: $value:expr,)* }) => {{
        let mut value = <$type>::default();
        $(value.$field = $value;)*
        value
    }};
}

fn text() -> impl Strategy<Value = StrBytes> {
    "[a-zäß]{0,12}".prop_map(StrBytes::from)
}

fn id() -> impl Strategy<Value = Uuid> {
    prop_oneof![1 => Just(Uuid::ZERO), 3 => any::<[u8; 16]>().prop_map(Uuid::from_bytes)]
}

fn records() -> impl Strategy<Value = Option<Bytes>> {
    option::of(vec(any::<u8>(), 0..600).prop_map(Bytes::from))
}

/// One of the two names a topic has at a version; the other is lost.
fn topic(by_id: bool) -> impl Strategy<Value = (StrBytes, Uuid)> {
    (text(), id())
        .prop_map(move |(name, id)| if by_id { (StrBytes::default(), id) } else { (name, Uuid::ZERO) })
}

fn at<T: Clone>(version: i16, first: i16, value: T, below: T) -> T {
    if version >= first { value } else { below }
}

fn leader() -> impl Strategy<Value = Option<LeaderIdAndEpoch>> {
    option::of(
        (any::<i32>(), 0..i32::MAX)
            .prop_map(|(leader_id, leader_epoch)| LeaderIdAndEpoch { leader_id, leader_epoch }),
    )
}

fn endpoints() -> impl Strategy<Value = Vec<NodeEndpoint>> {
    vec(
        (any::<i32>(), text(), any::<i32>(), option::of(text()))
            .prop_map(|(node_id, host, port, rack)| NodeEndpoint { node_id, host, port, rack }),
        0..3,
    )
}

fn check<M, K>(ours: &M, oracle: &K, version: i16) -> Result<(), TestCaseError>
where
    M: Message + PartialEq + std::fmt::Debug,
    K: KafkaEncode,
{
    let bytes = encode(ours, version).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let mut expected = BytesMut::new();
    oracle
        .encode_into(&mut expected, ApiVersion::new(version))
        .map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(&bytes[..], &expected[..], "version {}", version);
    let back: M =
        decode(bytes, version, &Limits::SERVER).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(&back, ours);
    Ok(())
}

prop_compose! {
    fn produce_request(version: i16)(
        transactional_id in option::of(text()),
        acks in any::<i16>(),
        timeout_ms in any::<i32>(),
        topics in vec(
            (topic(version >= 13), vec((any::<i32>(), records()), 0..4)).prop_map(|((name, topic_id), partitions)| {
                let partitions =
                    partitions.into_iter().map(|(index, records)| ProducePartition { index, records }).collect();
                ProduceTopic { name, topic_id, partitions }
            }),
            0..4,
        ),
    ) -> ProduceRequest {
        ProduceRequest { transactional_id, acks, timeout_ms, topics }
    }
}

prop_compose! {
    fn produce_partition(version: i16)(
        index in any::<i32>(),
        code in any::<i16>(),
        offsets in any::<[i64; 3]>(),
        errors in vec((any::<i32>(), option::of(text())), 0..3),
        message in option::of(text()),
        leader in leader(),
    ) -> ProducePartitionResponse {
        let record_errors = errors
            .into_iter()
            .map(|(batch_index, batch_index_error_message)| {
                BatchIndexAndErrorMessage { batch_index, batch_index_error_message }
            })
            .collect();
        ProducePartitionResponse {
            index,
            error_code: ErrorCode::new(code),
            base_offset: offsets[0],
            log_append_time_ms: offsets[1],
            log_start_offset: at(version, 5, offsets[2], -1),
            record_errors: at(version, 8, record_errors, vec![]),
            error_message: at(version, 8, message, None),
            current_leader: at(version, 10, leader, None),
        }
    }
}

prop_compose! {
    fn produce_response(version: i16)(
        topics in vec(
            (topic(version >= 13), vec(produce_partition(version), 0..4)).prop_map(|((name, topic_id), partitions)| {
                ProduceTopicResponse { name, topic_id, partitions }
            }),
            0..4,
        ),
        throttle_time_ms in any::<i32>(),
        endpoints in endpoints(),
    ) -> ProduceResponse {
        ProduceResponse { topics, throttle_time_ms, node_endpoints: at(version, 10, endpoints, vec![]) }
    }
}

prop_compose! {
    fn fetch_partition(version: i16)(
        (partition, epoch, last, max_bytes) in any::<(i32, i32, i32, i32)>(),
        (offset, start, watermark) in any::<(i64, i64, i64)>(),
        directory in id(),
    ) -> FetchPartition {
        FetchPartition {
            partition,
            current_leader_epoch: at(version, 9, epoch, NO_EPOCH),
            fetch_offset: offset,
            last_fetched_epoch: at(version, 12, last, NO_EPOCH),
            log_start_offset: at(version, 5, start, -1),
            partition_max_bytes: max_bytes,
            replica_directory_id: at(version, 17, directory, Uuid::ZERO),
            high_watermark: at(version, 18, watermark, i64::MAX),
        }
    }
}

prop_compose! {
    fn fetch_request(version: i16)(
        (replica_id, max_wait_ms, min_bytes, max_bytes) in any::<(i32, i32, i32, i32)>(),
        replica_epoch in any::<i64>(),
        isolation_level in any::<i8>(),
        (session_id, session_epoch) in any::<(i32, i32)>(),
        cluster_id in option::of(text()),
        rack_id in text(),
        topics in vec(
            (topic(version >= 13), vec(fetch_partition(version), 0..4)).prop_map(|((name, topic_id), partitions)| {
                FetchTopic { name, topic_id, partitions }
            }),
            0..4,
        ),
        forgotten in vec(
            (topic(version >= 13), vec(any::<i32>(), 0..4)).prop_map(|((name, topic_id), partitions)| {
                ForgottenTopic { name, topic_id, partitions }
            }),
            0..3,
        ),
    ) -> FetchRequest {
        FetchRequest {
            cluster_id: at(version, 12, cluster_id, None),
            replica_id,
            replica_epoch: at(version, 15, replica_epoch, -1),
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation_level,
            session_id: at(version, 7, session_id, NO_SESSION_ID),
            session_epoch: at(version, 7, session_epoch, FINAL_SESSION_EPOCH),
            topics,
            forgotten_topics: at(version, 7, forgotten, vec![]),
            rack_id: at(version, 11, rack_id, StrBytes::default()),
        }
    }
}

prop_compose! {
    fn fetch_partition_response(version: i16)(
        (partition, code, replica) in any::<(i32, i16, i32)>(),
        offsets in any::<[i64; 3]>(),
        diverging in option::of((0..i32::MAX, any::<i64>())),
        leader in leader(),
        snapshot in option::of((0..i64::MAX, any::<i32>())),
        aborted in option::of(vec(any::<(i64, i64)>(), 0..4)),
        records in records(),
    ) -> FetchPartitionResponse {
        let diverging = diverging.map(|(epoch, end_offset)| EpochEndOffset { epoch, end_offset });
        let snapshot = snapshot.map(|(end_offset, epoch)| SnapshotId { end_offset, epoch });
        FetchPartitionResponse {
            partition,
            error_code: ErrorCode::new(code),
            high_watermark: offsets[0],
            last_stable_offset: offsets[1],
            log_start_offset: at(version, 5, offsets[2], -1),
            diverging_epoch: at(version, 12, diverging, None),
            current_leader: at(version, 12, leader, None),
            snapshot_id: at(version, 12, snapshot, None),
            aborted_transactions: aborted.map(|aborted| {
                aborted
                    .into_iter()
                    .map(|(producer_id, first_offset)| AbortedTransaction { producer_id, first_offset })
                    .collect()
            }),
            preferred_read_replica: at(version, 11, replica, -1),
            records,
        }
    }
}

prop_compose! {
    fn fetch_response(version: i16)(
        throttle_time_ms in any::<i32>(),
        code in any::<i16>(),
        session_id in any::<i32>(),
        topics in vec(
            (topic(version >= 13), vec(fetch_partition_response(version), 0..4)).prop_map(
                |((name, topic_id), partitions)| FetchTopicResponse { name, topic_id, partitions },
            ),
            0..4,
        ),
        endpoints in endpoints(),
    ) -> FetchResponse {
        FetchResponse {
            throttle_time_ms,
            error_code: ErrorCode::new(at(version, 7, code, 0)),
            session_id: at(version, 7, session_id, NO_SESSION_ID),
            topics,
            node_endpoints: at(version, 16, endpoints, vec![]),
        }
    }
}

fn oracle_produce_request(ours: &ProduceRequest) -> kafka_wire::ProduceRequest {
    filled!(kafka_wire::ProduceRequest {
        transactional_id: ours.transactional_id.clone(),
        acks: ours.acks,
        timeout_ms: ours.timeout_ms,
        topic_data: ours
            .topics
            .iter()
            .map(|topic| {
                filled!(produce_request::TopicProduceData {
                    name: topic.name.clone(),
                    topic_id: topic.topic_id,
                    partition_data: topic
                        .partitions
                        .iter()
                        .map(|partition| {
                            filled!(produce_request::PartitionProduceData {
                                index: partition.index,
                                records: partition.records.clone(),
                            })
                        })
                        .collect(),
                })
            })
            .collect(),
    })
}

fn oracle_produce_response(ours: &ProduceResponse) -> kafka_wire::ProduceResponse {
    let partition = |partition: &ProducePartitionResponse| {
        let mut out = filled!(produce_response::PartitionProduceResponse {
            index: partition.index,
            error_code: partition.error_code.get(),
            base_offset: partition.base_offset,
            log_append_time_ms: partition.log_append_time_ms,
            log_start_offset: partition.log_start_offset,
            record_errors: partition
                .record_errors
                .iter()
                .map(|error| {
                    filled!(produce_response::BatchIndexAndErrorMessage {
                        batch_index: error.batch_index,
                        batch_index_error_message: error.batch_index_error_message.clone(),
                    })
                })
                .collect(),
            error_message: partition.error_message.clone(),
        });
        if let Some(leader) = partition.current_leader {
            out.current_leader = filled!(produce_response::LeaderIdAndEpoch {
                leader_id: leader.leader_id,
                leader_epoch: leader.leader_epoch,
            });
        }
        out
    };
    filled!(kafka_wire::ProduceResponse {
        responses: ours
            .topics
            .iter()
            .map(|topic| {
                filled!(produce_response::TopicProduceResponse {
                    name: topic.name.clone(),
                    topic_id: topic.topic_id,
                    partition_responses: topic.partitions.iter().map(partition).collect(),
                })
            })
            .collect(),
        throttle_time_ms: ours.throttle_time_ms,
        node_endpoints: ours
            .node_endpoints
            .iter()
            .map(|endpoint| {
                filled!(produce_response::NodeEndpoint {
                    node_id: endpoint.node_id,
                    host: endpoint.host.clone(),
                    port: endpoint.port,
                    rack: endpoint.rack.clone(),
                })
            })
            .collect(),
    })
}

fn oracle_fetch_request(ours: &FetchRequest, version: i16) -> kafka_wire::FetchRequest {
    let mut out = filled!(kafka_wire::FetchRequest {
        cluster_id: ours.cluster_id.clone(),
        max_wait_ms: ours.max_wait_ms,
        min_bytes: ours.min_bytes,
        max_bytes: ours.max_bytes,
        isolation_level: ours.isolation_level,
        session_id: ours.session_id,
        session_epoch: ours.session_epoch,
        topics: ours
            .topics
            .iter()
            .map(|topic| {
                filled!(fetch_request::FetchTopic {
                    topic: topic.name.clone(),
                    topic_id: topic.topic_id,
                    partitions: topic
                        .partitions
                        .iter()
                        .map(|partition| {
                            filled!(fetch_request::FetchPartition {
                                partition: partition.partition,
                                current_leader_epoch: partition.current_leader_epoch,
                                fetch_offset: partition.fetch_offset,
                                last_fetched_epoch: partition.last_fetched_epoch,
                                log_start_offset: partition.log_start_offset,
                                partition_max_bytes: partition.partition_max_bytes,
                                replica_directory_id: partition.replica_directory_id,
                                high_watermark: partition.high_watermark,
                            })
                        })
                        .collect(),
                })
            })
            .collect(),
        forgotten_topics_data: ours
            .forgotten_topics
            .iter()
            .map(|topic| {
                filled!(fetch_request::ForgottenTopic {
                    topic: topic.name.clone(),
                    topic_id: topic.topic_id,
                    partitions: topic.partitions.clone(),
                })
            })
            .collect(),
        rack_id: ours.rack_id.clone(),
    });
    if version <= 14 {
        out.replica_id = ours.replica_id;
    } else {
        out.replica_state = filled!(fetch_request::ReplicaState {
            replica_id: ours.replica_id,
            replica_epoch: ours.replica_epoch,
        });
    }
    out
}

fn oracle_fetch_response(ours: &FetchResponse) -> kafka_wire::FetchResponse {
    let partition = |partition: &FetchPartitionResponse| {
        let mut out = filled!(fetch_response::PartitionData {
            partition_index: partition.partition,
            error_code: partition.error_code.get(),
            high_watermark: partition.high_watermark,
            last_stable_offset: partition.last_stable_offset,
            log_start_offset: partition.log_start_offset,
            aborted_transactions: partition.aborted_transactions.as_ref().map(|aborted| {
                aborted
                    .iter()
                    .map(|aborted| {
                        filled!(fetch_response::AbortedTransaction {
                            producer_id: aborted.producer_id,
                            first_offset: aborted.first_offset,
                        })
                    })
                    .collect()
            }),
            preferred_read_replica: partition.preferred_read_replica,
            records: partition.records.clone(),
        });
        if let Some(diverging) = partition.diverging_epoch {
            out.diverging_epoch = filled!(fetch_response::EpochEndOffset {
                epoch: diverging.epoch,
                end_offset: diverging.end_offset,
            });
        }
        if let Some(leader) = partition.current_leader {
            out.current_leader = filled!(fetch_response::LeaderIdAndEpoch {
                leader_id: leader.leader_id,
                leader_epoch: leader.leader_epoch,
            });
        }
        if let Some(snapshot) = partition.snapshot_id {
            out.snapshot_id = filled!(fetch_response::SnapshotId {
                end_offset: snapshot.end_offset,
                epoch: snapshot.epoch,
            });
        }
        out
    };
    filled!(kafka_wire::FetchResponse {
        throttle_time_ms: ours.throttle_time_ms,
        error_code: ours.error_code.get(),
        session_id: ours.session_id,
        responses: ours
            .topics
            .iter()
            .map(|topic| {
                filled!(fetch_response::FetchableTopicResponse {
                    topic: topic.name.clone(),
                    topic_id: topic.topic_id,
                    partitions: topic.partitions.iter().map(partition).collect(),
                })
            })
            .collect(),
        node_endpoints: ours
            .node_endpoints
            .iter()
            .map(|endpoint| {
                filled!(fetch_response::NodeEndpoint {
                    node_id: endpoint.node_id,
                    host: endpoint.host.clone(),
                    port: endpoint.port,
                    rack: endpoint.rack.clone(),
                })
            })
            .collect(),
    })
}

/// A version and a value that this version can say.
fn versioned<S: Strategy>(
    versions: std::ops::RangeInclusive<i16>,
    value: impl Fn(i16) -> S + Clone,
) -> impl Strategy<Value = (i16, S::Value)>
where
    S::Value: Clone,
{
    versions.prop_flat_map(move |version| (Just(version), value(version)))
}

proptest! {
    #[test]
    fn produce_requests_are_the_oracle_s((version, ours) in versioned(3..=13, produce_request)) {
        check(&ours, &oracle_produce_request(&ours), version)?;
    }

    #[test]
    fn produce_responses_are_the_oracle_s((version, ours) in versioned(3..=13, produce_response)) {
        check(&ours, &oracle_produce_response(&ours), version)?;
    }

    #[test]
    fn fetch_requests_are_the_oracle_s((version, ours) in versioned(4..=18, fetch_request)) {
        check(&ours, &oracle_fetch_request(&ours, version), version)?;
    }

    #[test]
    fn fetch_responses_are_the_oracle_s((version, ours) in versioned(4..=18, fetch_response)) {
        check(&ours, &oracle_fetch_response(&ours), version)?;
    }
}

/// Versions that the oracle does not know, by hand from Kafka 3.9's message files.
#[test]
fn produce_0_to_2_have_no_transactional_id_and_shorter_answers() {
    let request = ProduceRequest {
        transactional_id: None,
        acks: -1,
        timeout_ms: 500,
        topics: vec![ProduceTopic {
            name: "t".into(),
            topic_id: Uuid::ZERO,
            partitions: vec![ProducePartition { index: 2, records: Some(Bytes::from_static(b"abc")) }],
        }],
    };
    let expected = [
        0xff, 0xff, 0, 0, 1, 0xf4, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, b'a', b'b',
        b'c',
    ];
    let response = ProduceResponse {
        topics: vec![ProduceTopicResponse {
            name: "t".into(),
            topic_id: Uuid::ZERO,
            partitions: vec![ProducePartitionResponse {
                index: 2,
                error_code: ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT,
                ..Default::default()
            }],
        }],
        ..Default::default()
    };
    let start = [0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 2, 0, 43];
    let minus_one = [0xff; 8];
    let throttle = [0; 4];
    let answers = [
        [&start[..], &minus_one].concat(),
        [&start[..], &minus_one, &throttle].concat(),
        [&start[..], &minus_one, &minus_one, &throttle].concat(),
    ];
    for (version, answer) in (0..).zip(answers) {
        assert_eq!(encode(&request, version).unwrap(), &expected[..]);
        assert_eq!(
            decode::<ProduceRequest>(Bytes::copy_from_slice(&expected), version, &Limits::SERVER).unwrap(),
            request
        );
        assert_eq!(encode(&response, version).unwrap(), answer);
        assert_eq!(decode::<ProduceResponse>(answer.into(), version, &Limits::CLIENT).unwrap(), response);
    }
    let transactional = ProduceRequest { transactional_id: Some("x".into()), ..request };
    assert!(encode(&transactional, 2).is_err());
}

#[test]
fn unknown_tagged_fields_are_skipped_and_known_ones_before_their_version_too() {
    // A Fetch 12 request with tag 0 (cluster id), 1 (replica state, known from 15 on) and 9 (nobody's).
    let mut bytes = encode(&FetchRequest::default(), 12).unwrap().to_vec();
    assert_eq!(bytes.pop(), Some(0));
    bytes.extend_from_slice(&[3, 0, 2, 2, b'c', 1, 1, 0xff, 9, 2, 1, 2]);
    let read: FetchRequest = decode(bytes.into(), 12, &Limits::SERVER).unwrap();
    assert_eq!(read, FetchRequest { cluster_id: Some("c".into()), ..FetchRequest::default() });
}
