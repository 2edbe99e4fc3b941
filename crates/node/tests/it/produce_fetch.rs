//! Batches in and out, as clients see them.

use std::time::Duration;

use weir_format::{BatchBuilder, Sequence, TimestampMs};
use weir_wire::ErrorCode;
use weir_wire::fetch::{READ_COMMITTED, READ_UNCOMMITTED};
use weir_wire::msg::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use weir_wire::msg::{ListOffsetsRequest, MetadataRequest, metadata_request};
use weir_wire::{StrBytes, Uuid};

use crate::support::{
    NOW, Process, TestNode, batch, fetch_request, idempotent, instant, offsets_and_epochs, produce_request,
};

#[tokio::test]
async fn what_was_acknowledged_is_read_back_with_offsets_and_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    let mut client = node.connect().await;
    client.create_topic("orders", 2, &[]).await;
    for (acks, values, base) in [(-1, ["a", "b"], 0), (1, ["c", "d"], 2), (-1, ["e", "f"], 4)] {
        let answer = client.produce("orders", batch(&values), acks).await;
        assert_eq!((answer.error_code, answer.base_offset), (ErrorCode::NONE, base));
        assert_eq!((answer.log_append_time_ms, answer.log_start_offset), (-1, 0));
    }
    assert_eq!(client.values("orders", 0).await, ["a", "b", "c", "d", "e", "f"]);
    // A fetch in the middle of a batch gets that batch whole.
    let answer = client.fetch(&fetch_request("orders", 3)).await;
    let found = offsets_and_epochs(&answer.records.unwrap());
    assert_eq!(found.iter().map(|(offset, _)| offset.get()).collect::<Vec<_>>(), [2, 4]);
    assert!(found.iter().all(|(_, epoch)| epoch.unwrap().get() == 0));
    assert_eq!((answer.high_watermark, answer.last_stable_offset, answer.log_start_offset), (6, 6, 0));
    assert_eq!(answer.aborted_transactions, None);
    let mut committed = fetch_request("orders", 0);
    committed.isolation_level = READ_COMMITTED;
    assert_eq!(client.fetch(&committed).await.aborted_transactions, Some(Vec::new()));
    assert!(node.server.stop().await);
}

#[tokio::test]
async fn a_duplicate_is_acknowledged_with_its_first_offset_and_written_once() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    let mut client = node.connect().await;
    client.create_topic("t", 1, &[]).await;
    let id = client.producer_id().await;
    let produce = |sequence, values: &'static [&'static str]| idempotent(id, 0, sequence, values);
    assert_eq!(client.produce("t", produce(0, &["a", "b"]), -1).await.base_offset, 0);
    assert_eq!(client.produce("t", produce(2, &["c"]), -1).await.base_offset, 2);
    let again = client.produce("t", produce(0, &["a", "b"]), -1).await;
    assert_eq!((again.error_code, again.base_offset), (ErrorCode::NONE, 0));
    let gap = client.produce("t", produce(9, &["x"]), -1).await;
    assert_eq!((gap.error_code, gap.base_offset), (ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, -1));
    assert_eq!(client.produce("t", idempotent(id, 1, 0, &["d"]), -1).await.base_offset, 3);
    let fenced = client.produce("t", produce(3, &["x"]), -1).await;
    assert_eq!(fenced.error_code, ErrorCode::INVALID_PRODUCER_EPOCH);
    assert_eq!(client.values("t", 0).await, ["a", "b", "c", "d"]);
}

#[tokio::test]
async fn a_long_poll_ends_when_a_batch_becomes_durable_and_not_before() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    let mut producer = node.connect().await;
    let mut consumer = node.connect().await;
    producer.create_topic("t", 1, &[]).await;

    let mut poll = fetch_request("t", 0);
    poll.max_wait_ms = 300;
    let began = instant();
    let answer = consumer.fetch(&poll).await;
    assert!(answer.records.unwrap().is_empty());
    assert!(began.elapsed() >= Duration::from_millis(300));

    poll.max_wait_ms = 15_000;
    let began = instant();
    let wait = tokio::spawn(async move { (consumer.fetch(&poll).await, consumer) });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!wait.is_finished());
    producer.produce("t", batch(&["x"]), 1).await;
    let (answer, _consumer) = wait.await.unwrap();
    assert_eq!(answer.high_watermark, 1);
    assert!(!answer.records.unwrap().is_empty());
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_stop_ends_long_polls_and_is_clean() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    let mut consumer = node.connect().await;
    consumer.create_topic("t", 1, &[]).await;
    let mut poll = fetch_request("t", 0);
    poll.max_wait_ms = 15_000;
    let wait = tokio::spawn(async move { consumer.fetch(&poll).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let began = instant();
    assert!(node.server.stop().await);
    assert!(began.elapsed() < Duration::from_secs(4));
    assert!(wait.await.unwrap().records.unwrap().is_empty());
}

#[tokio::test]
async fn what_clients_may_not_write_is_refused_and_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    let mut client = node.connect().await;
    client.create_topic("t", 1, &[("max.message.bytes", "200")]).await;
    client.create_topic("two", 1, &[("min.insync.replicas", "2")]).await;
    let id = client.producer_id().await;
    let now = TimestampMs::new(NOW);
    let mut two = batch(&["a"]);
    two.extend_from_slice(&batch(&["b"]));
    let mut flipped = batch(&["a"]);
    let last = flipped.len() - 1;
    flipped[last] ^= 1;
    let large = "x".repeat(500);
    let transactional = BatchBuilder::new()
        .producer(id, weir_format::ProducerEpoch::ZERO, Some(Sequence::ZERO))
        .transactional()
        .record(now, None, Some(b"x"))
        .build()
        .unwrap();
    let truncated = batch(&["a"]).split_to(40);
    let cases = [
        ("two batches", two, ErrorCode::INVALID_RECORD),
        ("a wrong CRC", flipped, ErrorCode::CORRUPT_MESSAGE),
        ("half a batch", truncated, ErrorCode::CORRUPT_MESSAGE),
        ("a large batch", batch(&[&large]), ErrorCode::MESSAGE_TOO_LARGE),
        ("a barrier", weir_format::MirrorPidReset::build(now), ErrorCode::INVALID_RECORD),
        ("a batch outside any transaction", transactional, ErrorCode::INVALID_PRODUCER_EPOCH),
    ];
    for (what, records, code) in cases {
        let answer = client.produce("t", records, -1).await;
        assert_eq!((answer.error_code, answer.base_offset), (code, -1), "{what}");
        assert!(answer.error_message.is_some(), "{what}");
    }
    assert_eq!(
        client.produce("none", batch(&["a"]), -1).await.error_code,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
    );
    assert_eq!(client.produce("t", batch(&["a"]), 2).await.error_code, ErrorCode::INVALID_REQUIRED_ACKS);
    assert_eq!(client.produce("two", batch(&["a"]), -1).await.error_code, ErrorCode::NOT_ENOUGH_REPLICAS);
    assert_eq!(client.produce("two", batch(&["a"]), 1).await.error_code, ErrorCode::NONE);
    let answer = client.produce("t", batch(&["first"]), -1).await;
    assert_eq!((answer.error_code, answer.base_offset), (ErrorCode::NONE, 0));
    assert_eq!(client.values("t", 0).await, ["first"]);
}

#[tokio::test]
async fn a_refused_acks0_batch_closes_the_connection_and_a_taken_one_is_quiet() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    let mut client = node.connect().await;
    client.create_topic("t", 1, &[]).await;
    let mut raw = node.raw().await;
    let body = |topic: &str| {
        let request = produce_request(topic, 0, batch(&["a"]).freeze(), 0);
        weir_wire::encode(&request, 7).unwrap()
    };
    raw.request(0, 7, 1, &body("t")).await;
    // Nothing is answered to the first, so the next answer is the second's.
    raw.request(18, 0, 2, &[]).await;
    assert_eq!(raw.frame().await[..4], 2_i32.to_be_bytes());
    raw.request(0, 7, 3, &body("none")).await;
    raw.closed().await;
    // Nobody waited for it to be durable, so its reader does.
    let mut poll = fetch_request("t", 0);
    poll.max_wait_ms = 10_000;
    assert_eq!(client.fetch(&poll).await.high_watermark, 1);
    assert_eq!(client.values("t", 0).await, ["a"]);
}

#[tokio::test]
async fn offsets_are_out_of_range_only_outside_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    let mut client = node.connect().await;
    client.create_topic("t", 1, &[]).await;
    client.produce("t", batch(&["a", "b"]), -1).await;
    for (from, code) in [
        (-1, ErrorCode::OFFSET_OUT_OF_RANGE),
        (0, ErrorCode::NONE),
        (2, ErrorCode::NONE),
        (3, ErrorCode::OFFSET_OUT_OF_RANGE),
    ] {
        assert_eq!(client.fetch(&fetch_request("t", from)).await.error_code, code, "{from}");
    }
}

#[tokio::test]
async fn leader_epochs_of_clients_are_checked_and_divergence_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let mut process = Process::start(&path);
    let mut client = process.connect().await;
    client.create_topic("t", 1, &[]).await;
    client.produce("t", batch(&["a", "b"]), -1).await;
    process.signal(rustix::process::Signal::KILL);
    process.wait();
    // An unclean start: the epoch is one higher.
    let node = TestNode::start(&path).await;
    let mut client = node.connect().await;
    client.produce("t", batch(&["c"]), -1).await;
    for (epoch, code) in [
        (-1, ErrorCode::NONE),
        (0, ErrorCode::FENCED_LEADER_EPOCH),
        (1, ErrorCode::NONE),
        (2, ErrorCode::UNKNOWN_LEADER_EPOCH),
    ] {
        let mut request = fetch_request("t", 0);
        request.topics[0].partitions[0].current_leader_epoch = epoch;
        assert_eq!(client.fetch(&request).await.error_code, code, "{epoch}");
    }
    // A client that read five offsets of epoch 0 has three that are not here.
    let mut request = fetch_request("t", 5);
    request.topics[0].partitions[0].last_fetched_epoch = 0;
    let answer = client.fetch(&request).await;
    let diverging = answer.diverging_epoch.unwrap();
    assert_eq!((diverging.epoch, diverging.end_offset), (0, 2));
    assert_eq!(answer.error_code, ErrorCode::NONE);
    let mut request = fetch_request("t", 2);
    request.topics[0].partitions[0].last_fetched_epoch = 0;
    assert_eq!(client.fetch(&request).await.diverging_epoch, None);
}

#[tokio::test]
async fn topics_are_fetched_and_produced_by_id() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    let mut client = node.connect().await;
    client.create_topic("t", 1, &[]).await;
    let mut request = MetadataRequest::default();
    let mut topic = metadata_request::MetadataRequestTopic::default();
    topic.name = Some(StrBytes::from("t"));
    request.topics = Some(vec![topic]);
    let id = client.call(&request).await.topics[0].topic_id;
    for (id, code) in [(id, ErrorCode::NONE), (Uuid::from_bytes([9; 16]), ErrorCode::UNKNOWN_TOPIC_ID)] {
        let mut produce = produce_request("", 0, batch(&["a"]).freeze(), -1);
        produce.topics[0].topic_id = id;
        let response = client.call_at(&produce, 13).await;
        assert_eq!(response.topics[0].partitions[0].error_code, code);
        assert_eq!(response.topics[0].topic_id, id);
        let mut fetch = fetch_request("", 0);
        fetch.topics[0].topic_id = id;
        let response = client.call_at(&fetch, 18).await;
        assert_eq!(response.topics[0].partitions[0].error_code, code);
    }
}

#[tokio::test]
async fn offsets_are_listed_for_ends_and_timestamps() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    let mut client = node.connect().await;
    client.create_topic("t", 1, &[]).await;
    for step in 0..3 {
        let records =
            BatchBuilder::new().record(TimestampMs::new(NOW + step * 100), None, Some(b"x")).build().unwrap();
        client.produce("t", records, -1).await;
    }
    for (timestamp, offset, found) in [
        (-1, 3, -1),
        (-2, 0, -1),
        (-3, 2, NOW + 200),
        (-4, 0, -1),
        (-5, -1, -1),
        (NOW, 0, NOW),
        (NOW + 1, 1, NOW + 100),
        (NOW + 201, -1, -1),
    ] {
        for (version, isolation) in [(11, READ_UNCOMMITTED), (11, READ_COMMITTED)] {
            let mut request = ListOffsetsRequest::default();
            request.replica_id = -1;
            request.isolation_level = isolation;
            let mut topic = ListOffsetsTopic::default();
            topic.name = StrBytes::from("t");
            let mut partition = ListOffsetsPartition::default();
            partition.current_leader_epoch = -1;
            partition.timestamp = timestamp;
            topic.partitions.push(partition);
            request.topics.push(topic);
            let response = client.call_at(&request, version).await;
            let answer = &response.topics[0].partitions[0];
            assert_eq!(
                (answer.error_code, answer.offset, answer.timestamp),
                (0, offset, found),
                "{timestamp}"
            );
        }
    }
}

#[tokio::test]
async fn many_producers_share_syncs_and_none_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    let mut client = node.connect().await;
    client.create_topic("t", 1, &[]).await;
    let mut tasks = Vec::new();
    for producer in 0..8 {
        let mut client = node.connect().await;
        tasks.push(tokio::spawn(async move {
            let id = client.producer_id().await;
            for sequence in 0..25 {
                let value = format!("{producer}-{sequence}");
                let answer = client.produce("t", idempotent(id, 0, sequence, &[&value]), -1).await;
                assert_eq!(answer.error_code, ErrorCode::NONE);
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let mut values = client.values("t", 0).await;
    values.sort();
    let mut expected: Vec<String> =
        (0..8).flat_map(|producer| (0..25).map(move |sequence| format!("{producer}-{sequence}"))).collect();
    expected.sort();
    assert_eq!(values, expected);
}

#[tokio::test]
async fn a_fetch_session_is_offered_to_none_and_continued_by_none() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    let mut client = node.connect().await;
    client.create_topic("t", 1, &[]).await;
    for (id, epoch, code) in [
        (0, -1, ErrorCode::NONE),
        (0, 0, ErrorCode::NONE),
        (-1, -1, ErrorCode::NONE),
        (7, 0, ErrorCode::NONE),
        (7, 1, ErrorCode::FETCH_SESSION_ID_NOT_FOUND),
    ] {
        let mut request = fetch_request("t", 0);
        (request.session_id, request.session_epoch) = (id, epoch);
        let response = client.call_at(&request, 12).await;
        assert_eq!((response.error_code, response.session_id), (code, 0), "{id} {epoch}");
        assert_eq!(response.topics.len(), usize::from(code.is_none()));
    }
}
