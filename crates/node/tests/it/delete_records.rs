//! DeleteRecords and retention, as clients meet them.

use std::path::PathBuf;
use std::time::Duration;

use weir_format::{BatchBuilder, TimestampMs};
use weir_node::config::{Config, Overrides};
use weir_node::metadata::{Change, Leadership, PartitionId, ReadOnly};
use weir_wire::msg::DeleteRecordsRequest;
use weir_wire::msg::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use weir_wire::{ErrorCode, StrBytes};

use crate::support::{Client, NOW, TestNode, batch, fetch_request};

pub(crate) fn delete_records(topic: &str, partition: i32, before: i64) -> DeleteRecordsRequest {
    let mut asked = DeleteRecordsPartition::default();
    (asked.partition_index, asked.offset) = (partition, before);
    let mut named = DeleteRecordsTopic::default();
    named.name = StrBytes::from(topic);
    named.partitions.push(asked);
    let mut request = DeleteRecordsRequest::default();
    request.timeout_ms = 1_000;
    request.topics.push(named);
    request
}

/// The code and the low watermark.
pub(crate) async fn delete(client: &mut Client, topic: &str, before: i64) -> (ErrorCode, i64) {
    let response = client.call(&delete_records(topic, 0, before)).await;
    let found = &response.topics[0].partitions[0];
    (ErrorCode::new(found.error_code), found.low_watermark)
}

#[tokio::test]
async fn records_are_deleted_up_to_an_offset_and_stay_so_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let node = TestNode::start(&data).await;
    let mut client = node.connect().await;
    client.create_topic("t", 1, &[("cleanup.policy", "delete")]).await;
    for value in ["a", "b", "c", "d"] {
        client.produce("t", batch(&[value]), -1).await;
    }
    assert_eq!(delete(&mut client, "t", 2).await, (ErrorCode::NONE, 2));
    assert_eq!(delete(&mut client, "t", 1).await, (ErrorCode::NONE, 2), "it never moves back");
    assert_eq!(delete(&mut client, "t", 5).await, (ErrorCode::OFFSET_OUT_OF_RANGE, -1));
    assert_eq!(delete(&mut client, "t", -2).await, (ErrorCode::OFFSET_OUT_OF_RANGE, -1));
    let below = client.fetch(&fetch_request("t", 1)).await;
    assert_eq!(below.error_code, ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(client.values("t", 2).await, ["c", "d"]);
    // It was written down before it was answered.
    let checkpoint = std::fs::read_to_string(data.join("log-start-offset-checkpoint")).unwrap();
    assert_eq!(checkpoint.lines().last(), Some("t 0 2"));
    assert!(node.server.stop().await);
    let node = TestNode::start(&data).await;
    let mut client = node.connect().await;
    assert_eq!(client.values("t", 2).await, ["c", "d"]);
    let below = client.fetch(&fetch_request("t", 1)).await;
    assert_eq!(below.error_code, ErrorCode::OFFSET_OUT_OF_RANGE);
    // -1 is the high watermark, and the log goes on behind it.
    assert_eq!(delete(&mut client, "t", -1).await, (ErrorCode::NONE, 4));
    assert_eq!(client.produce("t", batch(&["e"]), -1).await.base_offset, 4);
    assert_eq!(client.values("t", 4).await, ["e"]);
}

#[tokio::test]
async fn records_that_may_not_be_deleted_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    let mut client = node.connect().await;
    client.create_topic("compacted", 1, &[("cleanup.policy", "compact")]).await;
    client.create_topic("both", 1, &[("cleanup.policy", "compact,delete")]).await;
    client.create_topic("mirrored", 1, &[]).await;
    assert_eq!(delete(&mut client, "compacted", 0).await, (ErrorCode::POLICY_VIOLATION, -1));
    assert_eq!(delete(&mut client, "both", 0).await, (ErrorCode::NONE, 0));
    assert_eq!(delete(&mut client, "none", 0).await, (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, -1));
    assert_eq!(delete(&mut client, "__consumer_offsets", 0).await, (ErrorCode::INVALID_TOPIC_EXCEPTION, -1));
    client.produce("mirrored", batch(&["a"]), -1).await;
    let inner = node.server.node();
    let id = PartitionId { topic_id: inner.metadata().topic("mirrored").unwrap().id, partition: 0 };
    let leader_epoch = inner.partition(id).unwrap().leader_epoch();
    let read_only = Some(ReadOnly { mirror: "dr".to_owned(), state: "MIRRORING".to_owned() });
    let partitions = vec![(id, Leadership { leader_epoch, read_only })];
    inner.commit(Change { partitions, ..Change::default() }).await.unwrap();
    assert_eq!(delete(&mut client, "mirrored", 1).await, (ErrorCode::POLICY_VIOLATION, -1));
    assert_eq!(client.values("mirrored", 0).await, ["a"]);
}

/// What is acknowledged must survive a crash: a log start that is not written down is not answered as moved.
#[tokio::test]
async fn a_log_start_that_cannot_be_written_down_is_not_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = ["a", "b"].iter().map(|name| dir.path().join(name)).collect();
    let dirs = format!("log.dirs={},{}", paths[0].display(), paths[1].display());
    let set = vec![dirs, "listeners=127.0.0.1:0".to_owned()];
    let config = Config::load(&Overrides { set, ..Overrides::default() }).unwrap();
    let node = TestNode::start_config(config).await;
    let mut client = node.connect().await;
    // One in each directory.
    client.create_topic("t", 1, &[]).await;
    client.create_topic("u", 1, &[]).await;
    for topic in ["t", "u"] {
        for value in ["a", "b", "c", "d"] {
            client.produce(topic, batch(&[value]), -1).await;
        }
    }
    let home = paths.iter().find(|path| path.join("t-0").exists()).unwrap();
    assert!(!home.join("u-0").exists());
    let in_the_way = home.join("log-start-offset-checkpoint.tmp");
    std::fs::create_dir(&in_the_way).unwrap();
    let mut both = delete_records("t", 0, 2);
    both.topics.extend(delete_records("u", 0, 2).topics);
    // Asked again it is not written down either, though it has not to be moved any more.
    for before in [2, 1] {
        both.topics.iter_mut().for_each(|topic| topic.partitions[0].offset = before);
        let response = client.call(&both).await;
        let found = response.topics.iter().map(|topic| {
            let found = &topic.partitions[0];
            (topic.name.as_str(), ErrorCode::new(found.error_code), found.low_watermark)
        });
        let expected = [("t", ErrorCode::KAFKA_STORAGE_ERROR, -1), ("u", ErrorCode::NONE, 2)];
        assert_eq!(found.collect::<Vec<_>>(), expected, "{before}");
    }
    assert!(ErrorCode::KAFKA_STORAGE_ERROR.is_retriable());
    std::fs::remove_dir(&in_the_way).unwrap();
    assert_eq!(delete(&mut client, "t", 2).await, (ErrorCode::NONE, 2));
    let checkpoint = std::fs::read_to_string(home.join("log-start-offset-checkpoint")).unwrap();
    assert_eq!(checkpoint, "0\n1\nt 0 2\n");
    // What stands there is not written again.
    std::fs::create_dir(&in_the_way).unwrap();
    assert_eq!(delete(&mut client, "t", 1).await, (ErrorCode::NONE, 2));
    assert_eq!(delete(&mut client, "t", 3).await, (ErrorCode::KAFKA_STORAGE_ERROR, -1));
    std::fs::remove_dir(&in_the_way).unwrap();
    assert!(node.server.stop().await);
}

/// What the disk refused is written later, also if nothing else happens meanwhile.
#[tokio::test]
async fn checkpoints_that_could_not_be_written_are_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let set = ["log.flush.offset.checkpoint.interval.ms=1000"];
    let node = TestNode::start_with(&data, &set).await;
    let mut client = node.connect().await;
    client.create_topic("t", 1, &[]).await;
    let in_the_way = data.join("recovery-point-offset-checkpoint.tmp");
    std::fs::create_dir(&in_the_way).unwrap();
    client.produce("t", batch(&["a"]), -1).await;
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    std::fs::remove_dir(&in_the_way).unwrap();
    let written =
        || std::fs::read_to_string(data.join("recovery-point-offset-checkpoint")).unwrap_or_default();
    for _ in 0..50 {
        if written() == "0\n1\nt 0 1\n" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{:?}", written());
}

/// The topic's own settings count, and no configuration of a mirrored topic deletes anything.
#[tokio::test]
async fn records_expire_by_their_topics_settings() {
    let dir = tempfile::tempdir().unwrap();
    let set = ["log.retention.check.interval.ms=100", "log.retention.ms=-1"];
    let node = TestNode::start_with(&dir.path().join("data"), &set).await;
    let mut client = node.connect().await;
    client.create_topic("kept", 1, &[]).await;
    client.create_topic("expires", 1, &[("retention.ms", "3600000")]).await;
    client.create_topic("full", 1, &[("retention.bytes", "0")]).await;
    for topic in ["kept", "expires", "full"] {
        // Records of 2026-01-01.
        client.produce(topic, batch(&["a"]), -1).await;
    }
    for _ in 0..100 {
        let starts = ["expires", "full"].map(|topic| {
            let id = node.server.node().metadata().topic(topic).unwrap().id;
            let handle = node.server.node().partition(PartitionId { topic_id: id, partition: 0 }).unwrap();
            handle.view().unwrap().log_start_offset.get()
        });
        if starts == [1, 1] {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for topic in ["expires", "full"] {
        let gone = client.fetch(&fetch_request(topic, 0)).await;
        assert_eq!(gone.error_code, ErrorCode::OFFSET_OUT_OF_RANGE, "{topic}");
    }
    assert_eq!(client.values("kept", 0).await, ["a"]);
}

#[tokio::test]
async fn a_record_that_breaks_a_rule_of_its_topic_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    let mut client = node.connect().await;
    client.create_topic("compacted", 1, &[("cleanup.policy", "compact")]).await;
    client.create_topic("narrow", 1, &[("message.timestamp.before.max.ms", "1000")]).await;
    for (topic, code) in [("compacted", ErrorCode::INVALID_RECORD), ("narrow", ErrorCode::INVALID_TIMESTAMP)]
    {
        let builder = BatchBuilder::new();
        let now = TimestampMs::new(weir_node::clock::now().get());
        let builder = if topic == "narrow" {
            builder.record(now, None, None).record(TimestampMs::new(NOW), None, None)
        } else {
            builder.record(now, Some(b"k"), None).record(now, None, None)
        };
        let refused = client.produce(topic, builder.build().unwrap(), -1).await;
        assert_eq!((refused.error_code, refused.base_offset), (code, -1), "{topic}");
        let indexes: Vec<i32> = refused.record_errors.iter().map(|error| error.batch_index).collect();
        assert_eq!(indexes, [1], "{topic}");
    }
}
