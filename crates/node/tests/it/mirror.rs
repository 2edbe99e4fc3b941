//! One node mirrors another over real sockets, and is switched to.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use bytes::BytesMut;
use rustix::process::Signal;
use weir_format::{
    BatchBuilder, BatchReader, ControlRecordType, LeaderEpoch, ProducerEpoch, ProducerId, Sequence,
    TimestampMs,
};
use weir_log::AppendParams;
use weir_node::metadata::PartitionId;
use weir_wire::ErrorCode;
use weir_wire::fetch::READ_COMMITTED;
use weir_wire::kip1279::{
    DeleteClusterMirrorRequest, DescribeClusterMirrorsRequest, DescribedMirrorPartition,
    ListClusterMirrorsRequest,
};
use weir_wire::msg::MetadataRequest;
use weir_wire::{StrBytes, kip1279};

use crate::support::{Client, NOW, Process, TestNode, batch, fetch_request, idempotent, instant};

/// `weir mirror ARGS`, in a process of its own and without a terminal.
async fn mirror(arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("mirror").args(arguments).stdin(Stdio::null());
    tokio::time::timeout(Duration::from_secs(60), command.output())
        .await
        .expect("ends in time")
        .expect("runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("ended by itself")
}

async fn done(arguments: &[&str]) -> String {
    let output = mirror(arguments).await;
    assert_eq!(code(&output), 0, "{arguments:?}: {}{}", stdout(&output), stderr(&output));
    stdout(&output)
}

/// Defines mirror `dr` of `source` on `node` and starts `topics`.
async fn start_mirror(dir: &Path, node: &str, source: &str, topics: &str) {
    let file = dir.join("mirror.properties");
    std::fs::write(&file, format!("# the source\nbootstrap.servers = 127.0.0.1:1,{source}\n"))
        .expect("writes");
    let file = file.to_str().expect("text");
    let created =
        done(&["create", "--bootstrap-server", node, "--mirror", "dr", "--mirror-config", file]).await;
    assert_eq!(created, "Created mirror dr\n");
    let started = done(&["start", "--bootstrap-server", node, "--mirror", "dr", "--topics", topics]).await;
    let names: Vec<&str> = topics.split(',').collect();
    assert_eq!(started, format!("Started {} topic(s) in mirror dr: [{}]\n", names.len(), names.join(", ")));
}

async fn stop(node: &str, topics: &str) -> String {
    done(&["stop", "--bootstrap-server", node, "dr", "--topics", topics, "--confirm", "dr"]).await
}

/// Everything that a client may read of partition 0, and where it ends.
async fn read(client: &mut Client, topic: &str) -> (Vec<u8>, i64, i64) {
    let mut bytes = Vec::new();
    let mut from = 0;
    loop {
        let answer = client.fetch(&fetch_request(topic, from)).await;
        assert!(answer.error_code.is_none(), "{}", answer.error_code);
        let records = answer.records.expect("never null");
        if records.is_empty() {
            return (bytes, answer.high_watermark, answer.last_stable_offset);
        }
        bytes.extend_from_slice(&records);
        from = BatchReader::new(&records).last().expect("one at least").expect("good").next_offset().get();
    }
}

/// Waits until `client` serves the same bytes as `source`.
async fn until_equal(client: &mut Client, source: &mut Client, topic: &str) -> (Vec<u8>, i64) {
    let deadline = instant() + Duration::from_secs(20);
    loop {
        let (wanted, end, _) = read(source, topic).await;
        let answer = client.fetch(&fetch_request(topic, 0)).await;
        if answer.error_code.is_none() && answer.high_watermark == end {
            let (found, _, _) = read(client, topic).await;
            assert_eq!(found, wanted, "byte for byte");
            return (found, end);
        }
        assert!(instant() < deadline, "{} of {end}: {}", answer.high_watermark, answer.error_code);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn describe(client: &mut Client) -> Vec<DescribedMirrorPartition> {
    let response = client.call(&DescribeClusterMirrorsRequest::default()).await;
    let topics = response.mirrors.into_iter().flat_map(|mirror| mirror.topics);
    topics.flat_map(|topic| topic.partitions).collect()
}

async fn until_state(client: &mut Client, state: &str) -> Vec<DescribedMirrorPartition> {
    let deadline = instant() + Duration::from_secs(20);
    loop {
        let partitions = describe(client).await;
        if !partitions.is_empty() && partitions.iter().all(|partition| &*partition.state_value == state) {
            return partitions;
        }
        assert!(instant() < deadline, "{partitions:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn id(raw: i64) -> ProducerId {
    ProducerId::new(raw).expect("not negative")
}

/// Writes a transaction without an end into a node's log: what a crashed producer leaves.
async fn open_transaction(node: &TestNode, topic: &str, producer: i64) {
    let node = node.server.node();
    let topic_id = node.metadata().topic(topic).expect("exists").id;
    let handle = node.partition(PartitionId { topic_id, partition: 0 }).expect("exists");
    let batch: BytesMut = BatchBuilder::new()
        .producer(id(producer), ProducerEpoch::new(2).expect("not negative"), Sequence::new(0))
        .transactional()
        .record(TimestampMs::new(NOW), None, Some(b"open"))
        .build()
        .expect("builds");
    let params = AppendParams {
        may_start_transaction: true,
        ..AppendParams::client(LeaderEpoch::ZERO, TimestampMs::new(NOW))
    };
    handle
        .run(move |log, io| log.append(io, batch, &params).map(drop))
        .await
        .expect("runs")
        .expect("appends");
    handle.sync().await.expect("syncs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_mirrored_switched_to_and_mirrored_in_turn() {
    let dir = tempfile::tempdir().expect("a directory");
    let a = TestNode::start(&dir.path().join("a")).await;
    let b = TestNode::start(&dir.path().join("b")).await;
    let (mut to_a, mut to_b) = (a.connect().await, b.connect().await);
    to_a.create_topic("orders", 1, &[("retention.ms", "-1"), ("min.insync.replicas", "1")]).await;
    for sequence in 0..3 {
        let records = idempotent(id(5), 0, sequence * 2, &["x", "y"]);
        assert!(to_a.produce("orders", records, -1).await.error_code.is_none());
    }
    open_transaction(&a, "orders", 77).await;
    start_mirror(dir.path(), &b.address(), &a.address(), "orders").await;
    let (mirrored, end) = until_equal(&mut to_b, &mut to_a, "orders").await;
    assert_eq!(end, 7);

    // The topic is the source's: id, settings, but for what is never copied.
    let (ours, theirs) = (b.server.node(), a.server.node());
    let (ours, theirs) = (ours.metadata().topic("orders"), theirs.metadata().topic("orders"));
    let (ours, theirs) = (ours.expect("made"), theirs.expect("made"));
    assert_eq!((ours.id, ours.partitions), (theirs.id, theirs.partitions));
    assert_eq!(ours.configs.get("retention.ms").map(String::as_str), Some("-1"));
    assert_eq!(ours.configs.get("min.insync.replicas"), None);
    // A read_committed reader stops at the open transaction, as at the source (LSO from the log).
    let mut committed = fetch_request("orders", 0);
    committed.isolation_level = READ_COMMITTED;
    assert_eq!(to_b.fetch(&committed).await.last_stable_offset, 6);

    // Nobody else writes to it, and the refusal says why.
    let refused = to_b.produce("orders", batch(&["no"]), -1).await;
    assert_eq!(refused.error_code, ErrorCode::POLICY_VIOLATION);
    let words = refused.error_message.expect("says why").to_string();
    assert!(words.contains("dr") && words.contains("MIRRORING"), "{words}");
    let name = StrBytes::from("dr");
    let delete = DeleteClusterMirrorRequest { mirror_name: name, ..DeleteClusterMirrorRequest::default() };
    assert_eq!(to_b.call(&delete).await.error_code, kip1279::error::CLUSTER_MIRROR_NOT_EMPTY);

    // What the source writes now arrives, too.
    assert!(to_a.produce("orders", idempotent(id(5), 0, 6, &["late"]), -1).await.error_code.is_none());
    let (with_late, end) = until_equal(&mut to_b, &mut to_a, "orders").await;
    assert!(with_late.starts_with(&mirrored));
    let lines = done(&["describe", "--bootstrap-server", &b.address(), "--mirror", "dr"]).await;
    let row: Vec<&str> = lines.lines().nth(1).expect("one partition").split_whitespace().collect();
    assert_eq!(row, ["dr", "orders", "0", "8", "8", "0", "MIRRORING"]);

    let said = stop(&b.address(), "orders").await;
    assert_eq!(
        said,
        "Stopped [orders] topic(s) in mirror dr\n\
         orders-0: ABORT of producer 77 at 8, MIRROR_PID_RESET at 9, leader epoch 1011\n"
    );
    let (stopped, high_watermark, stable) = read(&mut to_b, "orders").await;
    assert_eq!((high_watermark, stable), (end + 2, end + 2));
    assert!(stopped.starts_with(&with_late));
    let added: Vec<_> = BatchReader::new(&stopped[with_late.len()..])
        .map(|batch| batch.map(|batch| (batch.control_type(), batch.leader_epoch().map(LeaderEpoch::get))))
        .map(|batch| batch.expect("good"))
        .collect();
    assert_eq!(
        added,
        [(Some(ControlRecordType::Abort), Some(1011)), (Some(ControlRecordType::MirrorPidReset), Some(1011))]
    );
    let partition = until_state(&mut to_b, "STOPPED").await.remove(0);
    assert_eq!((partition.last_mirror_offset, partition.last_mirror_epoch), (8, 0));
    assert_eq!((partition.barrier_offset, partition.leader_epoch), (9, 1011));

    // The same producer id, epoch and sequence as one that was mirrored: it lands, and is not
    // taken for a duplicate.
    let landed = to_b.produce("orders", idempotent(id(5), 0, 0, &["new", "new"]), -1).await;
    assert_eq!((landed.error_code, landed.base_offset), (ErrorCode::NONE, 10));
    // And none of ours is ever one of theirs (B12).
    let fresh = to_b.producer_id().await;
    assert!(fresh.get() >> 32 != 0 && fresh.get() >> 32 != to_a.producer_id().await.get() >> 32);
    assert!(to_a.produce("orders", batch(&["too late"]), -1).await.error_code.is_none());
    assert!(stop(&b.address(), "orders").await.starts_with("Stopped [orders]"), "stopped twice is stopped");

    // The switched-to node is a source like any other: the barrier travels as data.
    let c = TestNode::start(&dir.path().join("c")).await;
    start_mirror(dir.path(), &c.address(), &b.address(), "orders").await;
    let mut to_c = c.connect().await;
    until_equal(&mut to_c, &mut to_b, "orders").await;
    let said = stop(&c.address(), "orders").await;
    assert!(
        said.ends_with("orders-0: no open transaction, MIRROR_PID_RESET at 12, leader epoch 2022\n"),
        "{said}"
    );
    let landed = to_c.produce("orders", idempotent(id(5), 0, 0, &["again", "again"]), -1).await;
    assert_eq!((landed.error_code, landed.base_offset), (ErrorCode::NONE, 13));
    let delete = DeleteClusterMirrorRequest { mirror_name: StrBytes::from("dr"), ..delete };
    assert_eq!(to_c.call(&delete).await.error_code, ErrorCode::NONE);
    assert_eq!(to_c.call(&ListClusterMirrorsRequest::default()).await.mirrors, []);
    assert!(to_c.produce("orders", batch(&["plain now"]), -1).await.error_code.is_none());
    for node in [a, b, c] {
        assert!(node.server.stop().await, "closed cleanly");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_mirror_goes_on_where_it_was_and_a_stopped_one_stays_stopped() {
    let dir = tempfile::tempdir().expect("a directory");
    let a = TestNode::start(&dir.path().join("a")).await;
    let mut to_a = a.connect().await;
    to_a.create_topic("orders", 1, &[]).await;
    let data = dir.path().join("b");
    let mut b = Process::start(&data);
    assert!(to_a.produce("orders", batch(&["0"]), -1).await.error_code.is_none());
    start_mirror(dir.path(), &b.address, &a.address(), "orders").await;
    for round in 1..=4 {
        for _ in 0..20 {
            let sent = to_a.produce("orders", batch(&[&round.to_string()]), -1).await;
            assert!(sent.error_code.is_none());
        }
        b.signal(Signal::KILL);
        b.wait();
        b = Process::start(&data);
        let mut to_b = b.connect().await;
        until_equal(&mut to_b, &mut to_a, "orders").await;
        let partition = until_state(&mut to_b, "MIRRORING").await.remove(0);
        assert_eq!(partition.leader_epoch, 11, "a mirrored partition keeps its epoch");
    }
    let (source, end, _) = read(&mut to_a, "orders").await;
    // The source is lost, and then the mirror's machine, too. O1: everything is served.
    assert!(a.server.stop().await);
    b.signal(Signal::KILL);
    b.wait();
    let mut b = Process::start(&data);
    let mut to_b = b.connect().await;
    assert_eq!(read(&mut to_b, "orders").await, (source.clone(), end, end));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let partition = until_state(&mut to_b, "MIRRORING").await.remove(0);
    let why = partition.error_message.expect("says why nothing comes").to_string();
    assert!(why.contains("127.0.0.1:1") || why.contains("refused"), "{why}");
    assert_eq!(partition.source_offset, -1, "unknown is not 0");
    let began = instant();
    stop(&b.address, "orders").await;
    assert!(began.elapsed() < Duration::from_secs(5), "a stop needs no source: {:?}", began.elapsed());
    b.signal(Signal::KILL);
    b.wait();
    let mut b = Process::start(&data);
    let mut to_b = b.connect().await;
    let partition = until_state(&mut to_b, "STOPPED").await.remove(0);
    assert_eq!(partition.barrier_offset, end);
    assert_eq!(read(&mut to_b, "orders").await.1, end + 1);
    let landed = to_b.produce("orders", batch(&["ours"]), -1).await;
    assert_eq!((landed.error_code, landed.base_offset), (ErrorCode::NONE, end + 1));
    b.signal(Signal::TERM);
    assert!(b.wait().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_partition_is_writable_only_when_the_gap_is_accepted() {
    let dir = tempfile::tempdir().expect("a directory");
    let a = TestNode::start(&dir.path().join("a")).await;
    let b = TestNode::start(&dir.path().join("b")).await;
    let (mut to_a, mut to_b) = (a.connect().await, b.connect().await);
    to_a.create_topic("orders", 1, &[]).await;
    for value in ["0", "1", "2"] {
        assert!(to_a.produce("orders", batch(&[value]), -1).await.error_code.is_none());
    }
    start_mirror(dir.path(), &b.address(), &a.address(), "orders").await;
    until_equal(&mut to_b, &mut to_a, "orders").await;
    // The source loses what was mirrored: an unclean election, or a disk that lied.
    let topic_id = a.server.node().metadata().topic("orders").expect("exists").id;
    let handle = a.server.node().partition(PartitionId { topic_id, partition: 0 }).expect("exists");
    let to = weir_format::Offset::new(1).expect("not negative");
    handle.run(move |log, io| log.truncate_to(io, to)).await.expect("is open").expect("cuts");
    let partition = until_state(&mut to_b, "FAILED").await.remove(0);
    assert_eq!(
        partition.failure.as_deref(),
        Some("diverged"),
        "the source says where its history leaves ours"
    );
    let words = partition.error_message.expect("says why").to_string();
    assert!(words.contains("which ends at 3") && words.contains("epoch 0 ends at 1"), "{words}");
    assert_eq!(to_b.values("orders", 0).await, ["0", "1", "2"], "nothing was cut");
    let server = b.address();
    let failed = done(&["describe", "--bootstrap-server", &server, "--failed"]).await;
    assert!(failed.contains("NonRetryable the source's history leaves"), "{failed}");

    let stop = ["stop", "--bootstrap-server", &server, "dr", "--topics", "orders", "--confirm", "dr"];
    let output = mirror(&stop).await;
    assert_eq!(code(&output), 1);
    let said = stderr(&output);
    assert!(said.contains("orders-0 is FAILED") && said.contains("--accept-gap"), "{said}");
    let refused = to_b.produce("orders", batch(&["no"]), -1).await;
    assert_eq!(refused.error_code, ErrorCode::POLICY_VIOLATION);
    // Trying again changes nothing while the source is as it is.
    done(&["start", "--bootstrap-server", &server, "dr", "--topics", "orders"]).await;
    until_state(&mut to_b, "FAILED").await;
    let said = done(&[&stop[..], &["--accept-gap"]].concat()).await;
    assert!(said.contains("MIRROR_PID_RESET at 3"), "{said}");
    let landed = to_b.produce("orders", batch(&["ours"]), -1).await;
    assert_eq!((landed.error_code, landed.base_offset), (ErrorCode::NONE, 4));
    for node in [a, b] {
        node.server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_mirrored_is_said_in_one_go() {
    let dir = tempfile::tempdir().expect("a directory");
    let a = TestNode::start(&dir.path().join("a")).await;
    let b = TestNode::start(&dir.path().join("b")).await;
    let (mut to_a, mut to_b) = (a.connect().await, b.connect().await);
    for topic in ["orders", "payments", "__internal"] {
        to_a.create_topic(topic, 1, &[]).await;
    }
    to_b.create_topic("orders", 1, &[]).await;
    assert!(to_b.produce("orders", batch(&["mine"]), -1).await.error_code.is_none());
    let server = b.address();
    let properties = |text: String| {
        let file = dir.path().join("m.properties");
        std::fs::write(&file, text).expect("writes");
        file.to_str().expect("text").to_owned()
    };
    let refused = async |arguments: &[&str], exit: i32, says: &[&str]| {
        let output = mirror(arguments).await;
        let error = stderr(&output);
        assert_eq!(code(&output), exit, "{arguments:?}: {error}");
        assert!(error.starts_with("error: "), "{error}");
        for word in says {
            assert!(error.contains(word), "{arguments:?} does not say {word:?}: {error}");
        }
    };

    // A source that nobody is at, that is ourselves, that is not written right.
    let nowhere = properties("bootstrap.servers=127.0.0.1:1\n".to_owned());
    let words = ["create", "--bootstrap-server", &server, "--mirror", "dr", "--mirror-config", &nowhere];
    refused(&words, 1, &["cause: ", "127.0.0.1:1", "refused", "help: ", "NETWORK_EXCEPTION"]).await;
    properties(format!("bootstrap.servers={server}\n"));
    refused(&words, 1, &["cannot be its own source"]).await;
    properties("bootstrap.servers=nowhere\n".to_owned());
    refused(&words, 1, &["HOST:PORT"]).await;
    properties(format!("bootstrap.servers={}\nsecurity.protocol=SSL\n", a.address()));
    refused(&words, 1, &["security.protocol", "PLAINTEXT"]).await;
    refused(
        &["create", "--bootstrap-server", &server, "dr", "--mirror-config", "/nowhere"],
        2,
        &["/nowhere"],
    )
    .await;
    assert_eq!(
        done(&["list", "--bootstrap-server", &server]).await,
        "No mirrors found\n",
        "nothing was stored"
    );
    // A node that nobody is at, an address that is none.
    refused(&["list", "--bootstrap-server", "127.0.0.1:1"], 4, &["127.0.0.1:1", "help: "]).await;
    refused(&["list", "--bootstrap-server", "localhost"], 2, &["HOST:PORT"]).await;
    refused(
        &["start", "--bootstrap-server", &server, "dr", "--topics", "orders"],
        1,
        &["there is no mirror dr"],
    )
    .await;

    properties(format!("bootstrap.servers={}\n", a.address()));
    assert_eq!(done(&words).await, "Created mirror dr\n");
    refused(&words, 1, &["mirror dr exists"]).await;
    // One of the topics is in the way: the other is mirrored, and the exit code says "partly".
    let output = mirror(&["start", "--bootstrap-server", &server, "--mirror", "dr", "--topics", ".*"]).await;
    assert_eq!(code(&output), 3, "{}", stderr(&output));
    assert_eq!(stdout(&output), "Started 1 topic(s) in mirror dr: [payments]\n", "a pattern leaves __ out");
    let said = stderr(&output);
    assert!(said.contains("topic orders was not started") && said.contains("exists here with id"), "{said}");
    assert_eq!(to_b.values("orders", 0).await, ["mine"], "it was not touched");
    assert!(to_b.produce("orders", batch(&["mine"]), -1).await.error_code.is_none());
    until_state(&mut to_b, "MIRRORING").await;
    refused(
        &["start", "--bootstrap-server", &server, "dr", "--topics", "nosuch"],
        1,
        &["nosuch", "no topic"],
    )
    .await;

    // A stop is confirmed by name, and only of what is mirrored.
    let stop = ["stop", "--bootstrap-server", &server, "--mirror", "dr", "--topics", "payments"];
    refused(&stop, 2, &["--confirm dr"]).await;
    refused(&[&stop[..], &["--confirm", "prod"]].concat(), 2, &["prod"]).await;
    until_state(&mut to_b, "MIRRORING").await;
    let orders = ["stop", "--bootstrap-server", &server, "dr", "--topics", "orders", "--confirm", "dr"];
    refused(&orders, 1, &["does not have topic orders"]).await;
    let output = mirror(&[&stop[..], &["--confirm", "dr", "--no-wait"]].concat()).await;
    assert_eq!(
        (code(&output), stdout(&output)),
        (0, "Stopping [payments] topic(s) in mirror dr\n".to_owned())
    );
    until_state(&mut to_b, "STOPPED").await;
    // An empty topic has its barrier, too; and it does not become a mirror again by mistake.
    assert_eq!(describe(&mut to_b).await[0].barrier_offset, 0);
    assert!(to_b.produce("payments", batch(&["ours"]), -1).await.error_code.is_none());
    refused(&["start", "--bootstrap-server", &server, "dr", "--topics", "payments"], 1, &["was stopped"])
        .await;
    assert_eq!(to_b.values("payments", 1).await, ["ours"]);
    let json = done(&["describe", "--bootstrap-server", &server, "--json"]).await;
    let parsed: serde_json::Value = serde_json::from_str(&json).expect("is JSON");
    assert_eq!((&parsed[0]["topic"], &parsed[0]["state"]), (&"payments".into(), &"STOPPED".into()));
    let failed = done(&["describe", "--bootstrap-server", &server, "--failed"]).await;
    assert_eq!(failed, "No failed partitions found\n");

    // Asking the source for a topic that it does not have has made none there (N-CFG-4).
    let mut everything = MetadataRequest::default();
    everything.topics = None;
    let topics = to_a.call(&everything).await.topics;
    let names: Vec<&str> = topics.iter().filter_map(|topic| topic.name.as_deref()).collect();
    assert_eq!(names, ["__internal", "orders", "payments"]);
    for node in [a, b] {
        assert!(node.server.stop().await);
    }
}
