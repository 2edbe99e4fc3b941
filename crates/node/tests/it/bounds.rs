//! What clients can make a node hold in memory.

use std::time::Duration;

use weir_wire::msg::MetadataRequest;

use crate::support::{RawClient, TestNode};

const MIB: i32 = 1 << 20;

async fn answers(client: &mut RawClient, wait: Duration) -> bool {
    tokio::time::timeout(wait, client.frame()).await.is_ok()
}

#[tokio::test]
async fn a_large_frame_has_its_memory_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let set = ["socket.request.max.bytes=1048576", "queued.max.request.bytes=1048576"];
    let node = TestNode::start_with(&dir.path().join("data"), &set).await;
    // Nobody has to wait for a client that is connected and has said nothing.
    let _silent = node.raw().await;
    let mut first = node.raw().await;
    first.request(18, 0, 1, &[]).await;
    first.frame().await;
    // All that requests may hold is promised to this one, of which hardly anything has come.
    first.send(&MIB.to_be_bytes()).await;
    first.send(&[0; 100]).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut second = node.raw().await;
    second.request(18, 0, 2, &[]).await;
    assert!(!answers(&mut second, Duration::from_millis(500)).await, "read without memory for it");
    drop(first);
    assert!(answers(&mut second, Duration::from_secs(10)).await, "the memory comes back");
}

#[tokio::test]
async fn a_stop_does_not_wait_for_frames_that_are_not_whole_or_have_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let set = ["socket.request.max.bytes=1048576", "queued.max.request.bytes=1048576"];
    let node = TestNode::start_with(&dir.path().join("data"), &set).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = node.raw().await;
        client.send(&MIB.to_be_bytes()).await;
        client.send(&[0; 100]).await;
        clients.push(client);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let stopped = tokio::time::timeout(Duration::from_secs(4), node.server.stop()).await;
    assert!(stopped.expect("in time"), "clean");
}

#[tokio::test]
async fn many_large_requests_at_once_are_all_answered_within_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let set = ["socket.request.max.bytes=1048576", "queued.max.request.bytes=2097152"];
    let node = TestNode::start_with(&dir.path().join("data"), &set).await;
    // Metadata 1: an array of names, which are long and unknown.
    let mut body = 4_i32.to_be_bytes().to_vec();
    for _ in 0..4 {
        body.extend_from_slice(&30_000_i16.to_be_bytes());
        body.extend_from_slice(&[b'x'; 30_000]);
    }
    let mut tasks = Vec::new();
    for number in 0..24 {
        let mut client = node.raw().await;
        let body = body.clone();
        tasks.push(tokio::spawn(async move {
            for round in 0..3 {
                client.request(3, 1, number * 10 + round, &body).await;
                let frame = client.frame().await;
                assert_eq!(frame[..4], (number * 10 + round).to_be_bytes());
            }
        }));
    }
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(20), task).await.unwrap().unwrap();
    }
    assert!(node.connect().await.call(&MetadataRequest::default()).await.topics.is_empty());
}
