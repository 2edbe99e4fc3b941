//! Starts and stops, clean and otherwise.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use weir_node::config::{Config, Overrides};
use weir_wire::ErrorCode;
use weir_wire::client::{ClientConfig, Connection};
use weir_wire::msg::MetadataRequest;
use weir_wire::msg::metadata_request::MetadataRequestTopic;

use crate::support::{
    Client, Process, TestNode, batch, fetch_request, idempotent, log_of_a_start, offsets_and_epochs,
    serve_fails, serve_until_said,
};

const MARKER: &str = ".kafka_cleanshutdown";

#[tokio::test]
async fn a_second_serve_is_refused_and_the_first_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let process = Process::start(&path);
    let (code, error) = serve_fails(&path, &[]);
    assert_eq!(code, 1);
    assert!(error.contains("is in use by another process"), "{error}");
    assert!(error.contains("\nhelp: "), "{error}");
    process.connect().await.create_topic("t", 1, &[]).await;
}

#[test]
fn what_cannot_be_served_is_said_in_one_place_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let full = dir.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("letter.txt"), b"x").unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"x").unwrap();
    let fresh = dir.path().join("fresh");
    let cases: [(&Path, &[&str], i32, &str); 4] = [
        (&full, &[], 1, "is not empty and has no meta.properties"),
        (&file, &[], 1, "is a file, not a directory"),
        (&fresh, &["num.partition=3"], 2, "did you mean num.partitions?"),
        (&fresh, &["num.partitions=0"], 2, "must be at least 1"),
    ];
    for (path, set, code, text) in cases {
        let (found, error) = serve_fails(path, set);
        assert_eq!(found, code, "{error}");
        assert!(error.contains(text), "{error}");
        assert!(error.contains("error: ") && error.contains("\nhelp: "), "{error}");
    }
    assert_eq!(std::fs::read_dir(&full).unwrap().count(), 1);
    assert!(!fresh.exists(), "nothing was made before the options were checked");
}

#[cfg(target_os = "linux")]
#[test]
fn who_asks_for_io_uring_where_it_is_refused_gets_no_node() {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let fresh = path.clone();
    // The filter is this thread's and that of the processes it starts.
    let thread = std::thread::Builder::new().spawn(move || {
        let rules = [(libc::SYS_io_uring_setup, Vec::new())].into();
        let answer = SeccompAction::Errno(libc::EPERM.unsigned_abs());
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, answer, arch).unwrap();
        seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
        let refused = serve_fails(&fresh, &["weir.io=uring"]);
        // Who does not ask for it gets one.
        let process = Process::start_with(&fresh, &["weir.io=auto"]);
        (refused, process)
    });
    let ((code, error), process) = thread.unwrap().join().unwrap();
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("error: ") && error.contains("io_uring is not permitted"), "{error}");
    assert!(error.contains("\nhelp: ") && error.contains("weir.io"), "{error}");
    assert!(path.exists());
    drop(process);
}

#[tokio::test]
async fn sigterm_leaves_the_marker_and_the_next_start_keeps_the_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    for round in 0..2 {
        let mut process = Process::start(&path);
        assert!(!path.join(MARKER).exists(), "the marker is gone while the node runs");
        let mut client = process.connect().await;
        if round == 0 {
            client.create_topic("t", 1, &[]).await;
        }
        let answer = client.produce("t", batch(&["a", "b"]), -1).await;
        assert_eq!((answer.error_code, answer.base_offset), (ErrorCode::NONE, round * 2));
        let records = client.fetch(&fetch_request("t", 0)).await.records.unwrap();
        assert!(offsets_and_epochs(&records).iter().all(|(_, epoch)| epoch.unwrap().get() == 0));
        process.signal(Signal::TERM);
        assert!(process.wait().success());
        assert!(path.join(MARKER).exists());
        let recovery = std::fs::read_to_string(path.join("recovery-point-offset-checkpoint")).unwrap();
        assert_eq!(recovery, format!("0\n1\nt 0 {}\n", (round + 1) * 2));
    }
}

#[tokio::test]
async fn sigkill_loses_nothing_acknowledged_and_raises_the_epoch_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let mut expected = Vec::new();
    let mut producer = None;
    for round in 0..3 {
        let mut process = Process::start(&path);
        let mut client = process.connect().await;
        if round == 0 {
            client.create_topic("t", 1, &[]).await;
        }
        assert_eq!(client.values("t", 0).await, expected);
        let id = match producer {
            Some(id) => id,
            None => client.producer_id().await,
        };
        producer = Some(id);
        // A batch from before the crash is still known as one.
        if round > 0 {
            let again = idempotent(id, 0, round * 5 - 1, &[&format!("{}-4", round - 1)]);
            let answer = client.produce("t", again, -1).await;
            assert_eq!((answer.error_code, answer.base_offset), (ErrorCode::NONE, i64::from(round * 5 - 1)));
        }
        for step in 0..5 {
            let value = format!("{round}-{step}");
            let answer = client.produce("t", idempotent(id, 0, round * 5 + step, &[&value]), -1).await;
            assert_eq!(answer.error_code, ErrorCode::NONE);
            expected.push(value);
        }
        let fresh = client.producer_id().await;
        assert_ne!(fresh, id);
        let from = i64::from(round * 5);
        let records = client.fetch(&fetch_request("t", from)).await.records.unwrap();
        let found = offsets_and_epochs(&records);
        assert!(found.iter().all(|(_, epoch)| epoch.unwrap().get() == round), "{found:?}");
        process.signal(Signal::KILL);
        process.wait();
        assert!(!path.join(MARKER).exists());
    }
}

#[tokio::test]
async fn a_corrupt_partition_is_offline_and_the_others_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let node = TestNode::start(&path).await;
    let mut client = node.connect().await;
    client.create_topic("good", 1, &[]).await;
    client.create_topic("bad", 1, &[]).await;
    for topic in ["good", "bad"] {
        client.produce(topic, batch(&["a"]), -1).await;
        client.produce(topic, batch(&["b"]), -1).await;
    }
    assert!(node.server.stop().await);
    let log = path.join("bad-0/00000000000000000000.log");
    let mut bytes = std::fs::read(&log).unwrap();
    let whole = bytes.clone();
    bytes[40] ^= 0xff;
    std::fs::write(&log, &bytes).unwrap();
    std::fs::remove_file(path.join(MARKER)).unwrap();

    let node = TestNode::start(&path).await;
    let mut client = node.connect().await;
    assert_eq!(client.values("good", 0).await, ["a", "b"]);
    assert_eq!(client.fetch(&fetch_request("bad", 0)).await.error_code, ErrorCode::KAFKA_STORAGE_ERROR);
    assert_eq!(client.produce("bad", batch(&["c"]), -1).await.error_code, ErrorCode::KAFKA_STORAGE_ERROR);
    assert_eq!(client.produce("good", batch(&["c"]), -1).await.error_code, ErrorCode::NONE);
    // What could not be opened was not closed: the next start must look at it again.
    assert!(!node.server.stop().await);
    assert!(!path.join(MARKER).exists());
    assert_eq!(std::fs::read(&log).unwrap(), bytes, "nothing was cut");
    let recovery = std::fs::read_to_string(path.join("recovery-point-offset-checkpoint")).unwrap();
    assert_eq!(recovery, "0\n2\nbad 0 2\ngood 0 3\n", "what is known of it is kept");
    std::fs::write(&log, &whole).unwrap();
    let node = TestNode::start(&path).await;
    assert_eq!(node.connect().await.values("bad", 0).await, ["a", "b"]);
}

#[tokio::test]
async fn a_start_that_ends_on_its_way_is_started_again_and_nothing_is_lost() {
    const PARTITIONS: i32 = 60;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let mut process = Process::start(&path);
    let mut client = process.connect().await;
    client.create_topic("t", PARTITIONS, &[]).await;
    for partition in 0..PARTITIONS {
        for step in 0..3 {
            let value = format!("{partition}-{step}");
            let mut request = crate::support::produce_request("t", partition, batch(&[&value]).freeze(), -1);
            request.timeout_ms = 20_000;
            let response = client.call_at(&request, 12).await;
            assert_eq!(response.topics[0].partitions[0].error_code, ErrorCode::NONE);
        }
    }
    process.signal(Signal::KILL);
    process.wait();
    // While it loads, when some are loaded, and when about all are.
    let ends =
        [("disk access", Signal::KILL), ("disk access", Signal::TERM), ("log recovered", Signal::KILL)];
    for (said, signal) in ends.into_iter().chain([("log recovered", Signal::TERM); 2]) {
        let (mut child, _) = serve_until_said(&path, &["num.recovery.threads.per.data.dir=1"], said);
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.success(), signal == Signal::TERM, "{status} after {said:?}");
        assert!(!path.join(MARKER).exists(), "no clean marker after {said:?} and {signal:?}");
    }
    let process = Process::start(&path);
    let mut client = process.connect().await;
    for partition in 0..PARTITIONS {
        let mut request = fetch_request("t", 0);
        request.topics[0].partitions[0].partition = partition;
        let answer = client.fetch(&request).await;
        assert_eq!((answer.error_code, answer.high_watermark), (ErrorCode::NONE, 3), "{partition}");
    }
}

#[tokio::test]
async fn strays_are_left_alone_and_a_lost_directory_is_not_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let node = TestNode::start(&path).await;
    let mut client = node.connect().await;
    client.create_topic("t", 2, &[]).await;
    client.produce("t", batch(&["a"]), -1).await;
    assert!(node.server.stop().await);
    let stray = path.join("stranger-0");
    std::fs::create_dir(&stray).unwrap();
    std::fs::write(stray.join("00000000000000000000.log"), b"precious").unwrap();
    std::fs::rename(path.join("t-1"), dir.path().join("aside")).unwrap();

    let node = TestNode::start(&path).await;
    let mut client = node.connect().await;
    assert_eq!(client.values("t", 0).await, ["a"]);
    let mut request = fetch_request("t", 0);
    request.topics[0].partitions[0].partition = 1;
    assert_eq!(client.fetch(&request).await.error_code, ErrorCode::KAFKA_STORAGE_ERROR);
    assert!(!path.join("t-1").exists());
    assert_eq!(std::fs::read(stray.join("00000000000000000000.log")).unwrap(), b"precious");
    // A topic of that name would be made on top of it.
    let mut request = weir_wire::msg::CreateTopicsRequest::default();
    request.topics.push(crate::support::creatable("stranger", 1, &[]));
    let response = client.call(&request).await;
    assert_eq!(ErrorCode::new(response.topics[0].error_code), ErrorCode::KAFKA_STORAGE_ERROR);
    assert_eq!(std::fs::read(stray.join("00000000000000000000.log")).unwrap(), b"precious");
}

/// At three in the morning "its directory is missing" is the wrong word for one that is there.
#[tokio::test]
async fn a_directory_that_does_not_say_whose_it_is_is_named_with_a_remedy_that_works() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let node = TestNode::start(&path).await;
    let mut client = node.connect().await;
    client.create_topic("t", 1, &[]).await;
    client.produce("t", batch(&["a"]), -1).await;
    assert!(node.server.stop().await);
    let metadata = path.join("t-0/partition.metadata");
    std::fs::write(&metadata, "topic_id: what\n").unwrap();
    let log = |path: PathBuf| tokio::task::spawn_blocking(move || log_of_a_start(&path));
    let said = log(path.clone()).await.unwrap();
    assert!(said.contains("partition.metadata cannot be read: offline, left untouched"), "{said}");
    std::fs::remove_file(&metadata).unwrap();
    let said = log(path.clone()).await.unwrap();
    assert!(said.contains("nothing says whose log this is: offline, left untouched"), "{said}");
    assert!(!said.contains("stray") && !said.contains("is missing"), "{said}");
    // The remedy, word for word.
    let lines: Vec<&str> = said.split('"').filter(|part| part.contains(": ")).collect();
    let lines: Vec<&str> = lines
        .into_iter()
        .filter(|part| part.starts_with("version") || part.starts_with("topic_id"))
        .collect();
    assert_eq!(lines.len(), 2, "{said}");
    std::fs::write(&metadata, format!("{}\n{}\n", lines[0], lines[1])).unwrap();
    let node = TestNode::start(&path).await;
    assert_eq!(node.connect().await.values("t", 0).await, ["a"]);
    assert!(node.server.stop().await);
}

/// A start behind a clean stop is quick and quiet, and says so where it is not.
#[tokio::test]
async fn a_clean_start_that_has_to_read_everything_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let node = TestNode::start(&path).await;
    let mut client = node.connect().await;
    client.create_topic("t", 1, &[]).await;
    client.produce("t", batch(&["a"]), -1).await;
    assert!(node.server.stop().await);
    let log = |path: PathBuf| tokio::task::spawn_blocking(move || log_of_a_start(&path));
    let said = log(path.clone()).await.unwrap();
    assert!(!said.contains("log recovered"), "{said}");
    std::fs::remove_dir_all(dir.path().join("data.weir/partitions")).unwrap();
    let said = log(path).await.unwrap();
    assert!(said.contains("log recovered") && said.contains("weir wrote no snapshot here"), "{said}");
}

#[tokio::test]
async fn topics_ids_and_settings_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let node = TestNode::start(&path).await;
    node.connect().await.create_topic("t", 3, &[("segment.bytes", "2000"), ("retention.ms", "-1")]).await;
    let before = node.server.node().metadata().topic("t").unwrap();
    assert!(node.server.stop().await);
    let node = TestNode::start_with(&path, &["weir.shards=1"]).await;
    assert_eq!(node.server.node().metadata().topic("t").unwrap(), before);
    assert_eq!(before.configs["segment.bytes"], "2000");
    let config = node.server.node().log_config(&before.configs);
    assert_eq!(config.segment.segment_bytes, 2000);
    assert_eq!(node.server.node().partitions().len(), 3);
}

#[tokio::test]
async fn weaker_flushing_answers_when_written_and_a_clean_stop_still_syncs() {
    for flush in ["interval", "os"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let option = format!("weir.flush={flush}");
        let node = TestNode::start_with(&path, &[&option]).await;
        let mut client = node.connect().await;
        client.create_topic("t", 1, &[]).await;
        for step in 0..20 {
            let answer = client.produce("t", batch(&["a"]), -1).await;
            assert_eq!((answer.error_code, answer.base_offset), (ErrorCode::NONE, step));
        }
        assert_eq!(client.values("t", 0).await.len(), 20);
        assert!(node.server.stop().await, "{flush}");
        let recovery = std::fs::read_to_string(path.join("recovery-point-offset-checkpoint")).unwrap();
        assert_eq!(recovery, "0\n1\nt 0 20\n");
    }
}

#[tokio::test]
async fn several_log_directories_share_the_partitions_and_a_new_one_joins() {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<String> =
        ["a", "b", "c"].iter().map(|name| dir.path().join(name).display().to_string()).collect();
    let config = |count: usize| {
        let set = vec![format!("log.dirs={}", paths[..count].join(",")), "listeners=127.0.0.1:0".to_owned()];
        Config::load(&Overrides { set, ..Overrides::default() }).unwrap()
    };
    let node = TestNode::start_config(config(2)).await;
    let mut client = node.connect().await;
    client.create_topic("t", 4, &[]).await;
    client.produce("t", batch(&["a"]), -1).await;
    assert!(node.server.stop().await);
    let partitions = |path: &str| {
        let names =
            std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("t-")).count()
    };
    assert_eq!([partitions(&paths[0]), partitions(&paths[1])], [2, 2]);

    let node = TestNode::start_config(config(3)).await;
    let mut client = node.connect().await;
    assert_eq!(client.values("t", 0).await, ["a"]);
    client.create_topic("u", 2, &[]).await;
    assert!(dir.path().join("c/u-0").exists() && dir.path().join("c/u-1").exists());
    assert!(node.server.stop().await);

    // A copy of a partition in another directory: neither is served, since either may be the older.
    let copied = paths.iter().find(|path| Path::new(path).join("t-0").exists()).unwrap();
    let copy = Path::new(paths.iter().find(|path| *path != copied).unwrap()).join("t-0");
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(Path::new(copied).join("t-0")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let node = TestNode::start_config(config(3)).await;
    let mut client = node.connect().await;
    let refused = client.produce("t", batch(&["b"]), -1).await.error_code;
    assert_eq!(refused, ErrorCode::KAFKA_STORAGE_ERROR);
    assert!(!node.server.stop().await, "an offline partition is no clean stop");
    std::fs::remove_dir_all(&copy).unwrap();
    let node = TestNode::start_config(config(3)).await;
    assert_eq!(node.connect().await.values("t", 0).await, ["a"]);
    assert!(node.server.stop().await);
    for path in &paths {
        assert!(Path::new(path).join(MARKER).exists());
    }
}

/// A client that hears once that its topic is unknown, or its offset out of range, forgets its
/// counters or starts over.
#[tokio::test(flavor = "multi_thread")]
async fn who_asks_while_a_node_starts_is_never_told_that_something_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let mut process = Process::start(&path);
    let address = process.address.clone();
    let mut client = process.connect().await;
    client.create_topic("t", 40, &[]).await;
    client.produce("t", batch(&["a"]), -1).await;
    for _ in 0..3 {
        process.signal(Signal::KILL);
        process.wait();
        let asking = tokio::spawn(asks_until_answered(address.clone()));
        let (listen, path) = (address.clone(), path.clone());
        let start = move || Process::start_at(&listen, &path, &[]);
        process = tokio::task::spawn_blocking(start).await.unwrap();
        asking.await.unwrap();
    }
}

async fn asks_until_answered(address: String) {
    let mut connection = loop {
        match Connection::connect(&[address.as_str()], &ClientConfig::default()).await {
            Ok(connection) => break connection,
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    };
    let mut topic = MetadataRequestTopic::default();
    topic.name = Some("t".into());
    let mut request = MetadataRequest::default();
    request.topics = Some(vec![topic]);
    let response = connection.call(&request).await.unwrap();
    assert_eq!(ErrorCode::new(response.topics[0].error_code), ErrorCode::NONE);
    assert_eq!(response.topics[0].partitions.len(), 40);
    // Without a leader is what may come back; with another word it would not.
    let known = [ErrorCode::NONE, ErrorCode::LEADER_NOT_AVAILABLE];
    assert!(response.topics[0].partitions.iter().all(|one| known.contains(&ErrorCode::new(one.error_code))));
    let mut client = Client { connection };
    let answer = client.fetch(&fetch_request("t", 1)).await;
    let known = [ErrorCode::NONE, ErrorCode::NOT_LEADER_OR_FOLLOWER];
    assert!(known.contains(&answer.error_code), "{}", answer.error_code);
    assert!(!answer.error_code.is_none() || answer.high_watermark == 1);
}
