//! What those who watch a node see.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use weir_format::{BatchBuilder, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use weir_node::config::Address;
use weir_node::http::Http;
use weir_node::loading::Starting;
use weir_node::metadata::{Change, Leadership, PartitionId, ReadOnly};
use weir_node::shard::Acks;

use crate::support::{NOW, TestNode, serve_until_said};

async fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    // One that is not answered is closed, perhaps with bytes unread.
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

/// The status and the body.
async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: weir\r\nAccept: */*\r\n\r\n");
    let answer = exchange(address, request.as_bytes()).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let head = head.to_ascii_lowercase();
    assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn from(id: i64, offset: i64, transactional: bool) -> BytesMut {
    let builder = BatchBuilder::new()
        .base_offset(Offset::new(offset).unwrap())
        .leader_epoch(LeaderEpoch::ZERO)
        .producer(ProducerId::new(id).unwrap(), ProducerEpoch::ZERO, Sequence::new(0))
        .record(TimestampMs::new(NOW), None, Some(b"v"));
    let builder = if transactional { builder.transactional() } else { builder };
    builder.build().unwrap()
}

fn barrier(offset: i64) -> BytesMut {
    let mut barrier = BatchBuilder::barrier(TimestampMs::new(NOW));
    weir_format::set_base_offset(&mut barrier, Offset::new(offset).unwrap()).unwrap();
    weir_format::set_leader_epoch(&mut barrier, LeaderEpoch::ZERO).unwrap();
    barrier
}

#[tokio::test]
async fn what_barriers_did_is_counted_apart_for_those_written_and_those_met() {
    let dir = tempfile::tempdir().unwrap();
    let local = Address { host: "127.0.0.1".to_owned(), port: 0 };
    let http = Http::start(&local, Starting::new()).await.unwrap();
    let address = http.local_addr();
    let (status, said) = get(address, "/ready").await;
    assert_eq!((status, said.as_str()), (503, "loading: 0 of 0 partitions\n"));
    assert!(get(address, "/metrics").await.1.contains("\nweir_ready 0\n"));
    let node = TestNode::start(&dir.path().join("data")).await;
    let inner = node.server.node();
    http.show(inner.clone());
    let mut client = node.connect().await;
    let mut handles = Vec::new();
    for topic in ["own", "mirrored"] {
        client.create_topic(topic, 1, &[]).await;
        let id = PartitionId { topic_id: inner.metadata().topic(topic).unwrap().id, partition: 0 };
        handles.push(inner.partition(id).unwrap());
    }
    let [own, mirrored] = [&handles[0], &handles[1]];
    for id in 0..3 {
        own.append_client(from(id, 0, false), Acks::Durable).await.unwrap();
    }
    own.append_coordinator(barrier(0)).await.unwrap();
    let read_only = Some(ReadOnly { mirror: "dr".to_owned(), state: "MIRRORING".to_owned() });
    let leadership = Leadership { leader_epoch: LeaderEpoch::ZERO, read_only };
    inner
        .commit(Change { partitions: vec![(mirrored.id(), leadership)], ..Change::default() })
        .await
        .unwrap();
    let chunk =
        [&from(5, 0, true)[..], &from(6, 1, false), &barrier(2), &from(7, 3, false), &barrier(4)].concat();
    mirrored.append_replicated(BytesMut::from(&chunk[..]), Offset::ZERO, LeaderEpoch::ZERO).await.unwrap();

    let (status, said) = get(address, "/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "weir_ready 1",
        "weir_partitions{role=\"leader\",state=\"online\"} 1",
        "weir_partitions{role=\"mirror\",state=\"online\"} 1",
        "weir_partitions{role=\"leader\",state=\"offline\"} 0",
        "weir_barriers_total{kind=\"written\"} 1",
        "weir_barriers_total{kind=\"met\"} 2",
        "weir_barrier_producers_expired_total{kind=\"written\"} 3",
        "weir_barrier_producers_expired_total{kind=\"met\"} 3",
        "weir_barrier_transactions_aborted_total{kind=\"written\"} 0",
        "weir_barrier_transactions_aborted_total{kind=\"met\"} 1",
    ] {
        assert!(said.lines().any(|found| found == line), "{line} is not in\n{said}");
    }
    // Each family is documented, and nothing is in the document that is not there.
    let document = include_str!("../../../../docs/operations.md");
    let named = |text: &str| {
        let words = text.split(|one: char| !(one.is_ascii_lowercase() || one == '_'));
        let names: std::collections::BTreeSet<String> =
            words.filter(|word| word.starts_with("weir_")).map(str::to_owned).collect();
        names
    };
    let section = document.split("## Watch it").nth(1).unwrap().split("\n## ").next().unwrap();
    let series: Vec<&str> = said.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(named(section), named(&series.join("\n")));
    http.not_ready();
    assert_eq!(get(address, "/ready").await, (503, "stopping\n".to_owned()));
    assert!(node.server.stop().await);
}

#[tokio::test]
async fn what_is_no_request_for_something_that_is_there_is_answered_so_or_closed() {
    let local = Address { host: "127.0.0.1".to_owned(), port: 0 };
    let http = Http::start(&local, Starting::new()).await.unwrap();
    let address = http.local_addr();
    assert_eq!(get(address, "/health?a=b").await, (200, "ok\n".to_owned()));
    assert_eq!(get(address, "/../etc/passwd").await.0, 404);
    let head = exchange(address, b"HEAD /health HTTP/1.0\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.0 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(exchange(address, b"POST /metrics HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 405 "));
    assert!(exchange(address, b"\xff\x00\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
    let long = exchange(address, &[b'x'; 20_000]).await;
    assert!(long.is_empty() || long.starts_with("HTTP/1.1 4"), "{long}");
    // Many that say nothing keep others waiting, and not for ever.
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let late = tokio::time::timeout(Duration::from_secs(20), get(address, "/health")).await;
    assert_eq!(late.unwrap().0, 200);
}

#[tokio::test]
async fn a_node_is_watched_where_it_is_told_to_listen() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let set = ["weir.http.listener=127.0.0.1:0"];
    let serve = move || serve_until_said(&path, &set, "metrics are served");
    let (mut child, line) = tokio::task::spawn_blocking(serve).await.unwrap();
    let address = line.trim_end().rsplit_once("address=").unwrap().1.parse().unwrap();
    for _ in 0..200 {
        if get(address, "/ready").await == (200, "ready\n".to_owned()) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(get(address, "/metrics").await.1.contains("\nweir_ready 1\n"));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}
