//! Reads as clients see them: from memory and from the disk, and offsets for what they ask.

use std::path::Path;

use bytes::BytesMut;
use weir_format::{BatchReader, Offset};
use weir_wire::msg::ListOffsetsRequest;
use weir_wire::msg::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use weir_wire::{ErrorCode, StrBytes};

use crate::support::{Client, NOW, TestNode, batch, fetch_request};

/// What a consumer says for each of these partitions of `t`.
fn list_offsets(asks: &[(i32, i64)]) -> ListOffsetsRequest {
    let mut topic = ListOffsetsTopic::default();
    topic.name = StrBytes::from("t");
    for (index, timestamp) in asks {
        let mut partition = ListOffsetsPartition::default();
        (partition.partition_index, partition.timestamp) = (*index, *timestamp);
        partition.current_leader_epoch = -1;
        topic.partitions.push(partition);
    }
    let mut request = ListOffsetsRequest::default();
    request.replica_id = -1;
    request.topics.push(topic);
    request
}

/// Error code, timestamp, offset and leader epoch of each answer.
async fn ask(client: &mut Client, version: i16, asks: &[(i32, i64)]) -> Vec<(i16, i64, i64, i32)> {
    let response = client.call_at(&list_offsets(asks), version).await;
    let answers = response.topics[0].partitions.iter();
    answers.map(|found| (found.error_code, found.timestamp, found.offset, found.leader_epoch)).collect()
}

/// Three records that Kafka's Java client compressed, with timestamps one millisecond apart.
fn compressed() -> BytesMut {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../format/testdata/batches/v2-zstd.bin");
    let mut bytes = BytesMut::from(&std::fs::read(path).unwrap()[..]);
    weir_format::set_base_offset(&mut bytes, Offset::ZERO).unwrap();
    bytes
}

#[tokio::test]
async fn the_exact_record_of_a_compressed_batch_is_answered_in_every_version() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    let mut client = node.connect().await;
    client.create_topic("t", 1, &[]).await;
    client.produce("t", batch(&["before"]), -1).await;
    client.produce("t", compressed(), -1).await;
    for version in 1..=11 {
        let epoch = if version >= 4 { 0 } else { -1 };
        for (asked, timestamp, offset) in [(NOW + 1, NOW + 1, 2), (NOW + 2, NOW + 2, 3), (NOW, NOW, 0)] {
            let found = ask(&mut client, version, &[(0, asked)]).await;
            assert_eq!(found, [(0, timestamp, offset, epoch)], "{version} {asked}");
        }
        assert_eq!(ask(&mut client, version, &[(0, NOW + 3)]).await, [(0, -1, -1, -1)]);
        if version >= 7 {
            assert_eq!(ask(&mut client, version, &[(0, -3)]).await, [(0, NOW + 2, 3, epoch)]);
        }
    }
    assert!(node.server.stop().await);
}

/// Kafka: `ListOffsetsRequest.duplicatePartitions`, `ReplicaManager.fetchOffset`.
#[tokio::test]
async fn a_partition_that_is_named_twice_is_refused_each_time_and_the_others_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    let mut client = node.connect().await;
    client.create_topic("t", 3, &[]).await;
    client.produce("t", batch(&["a"]), -1).await;
    let found = ask(&mut client, 11, &[(0, -1), (1, -1), (1, -2), (2, -2), (7, -9), (8, -1), (8, -1)]).await;
    let (twice, unsupported) = (ErrorCode::INVALID_REQUEST.get(), ErrorCode::UNSUPPORTED_VERSION.get());
    let refused = |code| (code, -1, -1, -1);
    let expected = [
        (0, -1, 1, 0),
        refused(twice),
        refused(twice),
        (0, -1, 0, 0),
        // Before anybody looks whether there is such a partition.
        refused(unsupported),
        refused(twice),
        refused(twice),
    ];
    assert_eq!(found, expected);
    assert!(node.server.stop().await);
}

/// The same records, whatever is held in memory, also over a restart.
#[tokio::test]
async fn a_consumer_reads_the_same_from_memory_and_from_the_disk() {
    for tail in ["weir.tail.bytes=0", "weir.tail.bytes=30000", "weir.tail.bytes=-1"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let node = TestNode::start_with(&path, &[tail]).await;
        let mut client = node.connect().await;
        client.create_topic("t", 1, &[("segment.bytes", "20000")]).await;
        let mut values = Vec::new();
        for number in 0..60_usize {
            let value = format!("{number}-{}", "x".repeat([10, 700, 9_000][number % 3]));
            client.produce("t", batch(&[&value]), -1).await;
            values.push(value);
        }
        assert_eq!(client.values("t", 0).await, values, "{tail}");
        // Where it is asked for little at a time, nothing is left out at the border.
        let (mut from, mut count) = (0, 0);
        while from < 60 {
            let mut request = fetch_request("t", from);
            request.topics[0].partitions[0].partition_max_bytes = 1_500;
            let records = client.fetch(&request).await.records.unwrap();
            assert!(!records.is_empty(), "{tail}: a consumer waits at {from} for ever");
            for batch in BatchReader::new(&records) {
                let batch = batch.unwrap();
                assert_eq!(batch.base_offset().get(), count, "{tail}");
                count += 1;
                from = batch.next_offset().get();
            }
        }
        assert!(node.server.stop().await);
        let node = TestNode::start_with(&path, &[tail]).await;
        let mut client = node.connect().await;
        assert_eq!(client.values("t", 0).await, values, "{tail}, after a restart");
        assert!(node.server.stop().await);
    }
}
