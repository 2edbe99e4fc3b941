use std::sync::atomic::{AtomicBool, Ordering};

use bytes::BytesMut;
use weir_format::{BatchBuilder, BatchReader, TimestampMs};
use weir_log::Isolation;
use weir_recovery::PartitionFile;

use super::*;
use crate::config::Overrides;
use crate::meta_kv::{KeyValue, MetaKv, MetaKvError, Revision, Txn, TxnOutcome};
use crate::shard::Acks;
use crate::uuid;

/// A store that refuses writes while it is told to, as one on a full disk does.
struct Flaky {
    below: Arc<dyn MetaKv>,
    full: Arc<AtomicBool>,
}

impl MetaKv for Flaky {
    fn get(&self, key: &[u8]) -> Result<Option<KeyValue>, MetaKvError> {
        self.below.get(key)
    }

    fn range(&self, start: &[u8], end: &[u8]) -> Result<Vec<KeyValue>, MetaKvError> {
        self.below.range(start, end)
    }

    fn txn(&self, txn: Txn) -> Result<TxnOutcome, MetaKvError> {
        if self.full.load(Ordering::SeqCst) {
            let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(MetaKvError::Storage { path: PathBuf::from("store"), source: Box::new(full.into()) });
        }
        self.below.txn(txn)
    }

    fn revision(&self) -> Result<Revision, MetaKvError> {
        self.below.revision()
    }
}

async fn start(dir: &Path, full: &Arc<AtomicBool>) -> Arc<Node> {
    let overrides = Overrides { data_dir: Some(dir.to_path_buf()), ..Overrides::default() };
    let config = Config::load(&overrides).unwrap();
    let (mut io, _) = select(WantedBackend::Auto, &IoConfig::default()).unwrap();
    let mut opened = DataDirs::open(&config, &mut *io).unwrap();
    let below = Arc::clone(opened.metadata.kv());
    opened.metadata = Metadata::open(Arc::new(Flaky { below, full: Arc::clone(full) })).unwrap();
    Node::over(config, WantedBackend::Auto, opened, &Starting::new()).await.unwrap()
}

fn batch(value: &str) -> BytesMut {
    BatchBuilder::new().record(TimestampMs::new(5), None, Some(value.as_bytes())).build().unwrap()
}

async fn epochs(handle: &PartitionHandle) -> Vec<i32> {
    let read = handle.read(Offset::ZERO, 1 << 20, Isolation::Uncommitted, true).await.unwrap();
    BatchReader::new(&read.bytes).map(|batch| batch.unwrap().leader_epoch().unwrap().get()).collect()
}

#[tokio::test]
async fn an_interrupted_start_keeps_what_it_loaded_and_the_next_one_goes_on() {
    const PARTITIONS: i32 = 20;
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("data");
    let marker = dir.join(".kafka_cleanshutdown");
    let overrides = Overrides {
        data_dir: Some(dir.clone()),
        set: vec!["num.recovery.threads.per.data.dir=1".to_owned()],
        ..Overrides::default()
    };
    let config = Config::load(&overrides).unwrap();
    let topic = Topic {
        name: "t".to_owned(),
        id: uuid::random().unwrap(),
        partitions: PARTITIONS,
        configs: BTreeMap::new(),
        mirror: None,
    };
    let ids: Vec<PartitionId> = topic.partition_ids().collect();
    let node = Node::start(config.clone()).await.unwrap();
    node.create_topic(topic, Change::default()).await.unwrap();
    for id in &ids {
        node.partition(*id).unwrap().append_client(batch("a"), Acks::Durable).await.unwrap();
    }
    assert!(node.stop().await && marker.exists());
    drop(node);
    std::fs::remove_file(&marker).unwrap();
    std::fs::remove_file(dir.join("recovery-point-offset-checkpoint")).unwrap();

    let starting = Starting::new();
    *starting.interrupt_after.lock().unwrap() = Some(7);
    let started = Node::start_watched(config.clone(), &starting).await;
    assert!(matches!(started, Err(StartError::Stopped)), "{started:?}");
    let progress = starting.progress();
    assert_eq!((progress.partitions_done, progress.partitions_total), (7, 20), "{progress}");
    assert!(progress.bytes_done > 0 && progress.bytes_done < progress.bytes_total, "{progress}");
    assert!(!marker.exists());
    let kept = std::fs::read_to_string(dir.join("recovery-point-offset-checkpoint")).unwrap();
    assert_eq!(kept.lines().filter(|line| line.ends_with(" 1")).count(), 7, "{kept}");

    // One that is to end before it began loads nothing, and takes nothing away.
    let starting = Starting::new();
    starting.interrupt();
    let started = Node::start_watched(config.clone(), &starting).await;
    assert!(matches!(started, Err(StartError::Stopped)), "{started:?}");
    assert_eq!(starting.progress().partitions_done, 0);
    assert_eq!(std::fs::read_to_string(dir.join("recovery-point-offset-checkpoint")).unwrap(), kept);

    let starting = Starting::new();
    let node = Node::start_watched(config, &starting).await.unwrap();
    assert!(starting.progress().is_done());
    for id in &ids {
        let handle = node.partition(*id).unwrap();
        assert_eq!(handle.view().unwrap().high_watermark.get(), 1);
        handle.append_client(batch("b"), Acks::Durable).await.unwrap();
        // Each start that was not clean has raised it, and none has raised it without having loaded it.
        let epochs = epochs(&handle).await;
        assert!(epochs == [0, 1] || epochs == [0, 2], "{epochs:?}");
    }
    assert!(node.stop().await && marker.exists());
}

#[tokio::test]
async fn checkpoints_settle_a_cut_so_that_recovery_points_count_again() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("data");
    let overrides = Overrides { data_dir: Some(dir.clone()), ..Overrides::default() };
    let config = Config::load(&overrides).unwrap();
    let topic = Topic {
        name: "t".to_owned(),
        id: uuid::random().unwrap(),
        partitions: 1,
        configs: BTreeMap::new(),
        mirror: None,
    };
    let id = topic.partition_ids().next().unwrap();
    let node = Node::start(config.clone()).await.unwrap();
    node.create_topic(topic, Change::default()).await.unwrap();
    node.partition(id).unwrap().append_client(batch("a"), Acks::Durable).await.unwrap();
    let side_file = side_dir_of(&node.dirs[0], id).join("partition");
    assert!(node.stop().await);
    drop(node);
    // As `weir recover` leaves it: the log was cut from 60 to 1.
    let file = || PartitionFile::decode(&std::fs::read(&side_file).unwrap()).unwrap();
    let mut cut = file();
    let offset = |raw| Offset::new(raw).unwrap();
    cut.truncate(offset(1), offset(60));
    std::fs::write(&side_file, cut.encode()).unwrap();
    std::fs::remove_file(dir.join(".kafka_cleanshutdown")).unwrap();

    let node = Node::start(config).await.unwrap();
    node.partition(id).unwrap().append_client(batch("b"), Acks::Durable).await.unwrap();
    assert!(file().cut().is_some());
    assert!(node.write_checkpoints().await.unwrap());
    // The shard takes requests in turn.
    assert!(node.write_checkpoints().await.unwrap());
    assert_eq!(file().cut(), None);
    let kept = std::fs::read_to_string(dir.join("recovery-point-offset-checkpoint")).unwrap();
    assert_eq!(kept.lines().last(), Some("t 0 2"));
    assert!(node.stop().await);
}

#[tokio::test]
async fn an_epoch_that_cannot_be_stored_keeps_clients_from_writing_until_it_is() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("data");
    let marker = dir.join(".kafka_cleanshutdown");
    let full = Arc::new(AtomicBool::new(false));
    let topic = Topic {
        name: "t".to_owned(),
        id: uuid::random().unwrap(),
        partitions: 1,
        configs: BTreeMap::new(),
        mirror: None,
    };
    let id = PartitionId { topic_id: topic.id, partition: 0 };
    let node = start(&dir, &full).await;
    node.create_topic(topic, Change::default()).await.unwrap();
    node.partition(id).unwrap().append_client(batch("a"), Acks::Durable).await.unwrap();
    assert!(node.stop().await);
    drop(node);
    std::fs::remove_file(&marker).unwrap();

    full.store(true, Ordering::SeqCst);
    for round in 0..2 {
        let node = start(&dir, &full).await;
        let handle = node.partition(id).unwrap();
        let refused = handle.append_client(batch("x"), Acks::Durable).await.unwrap_err();
        assert!(refused.to_string().contains("epoch cannot be raised"), "{refused}");
        assert_eq!(epochs(&handle).await, [0]);
        if round == 0 {
            assert!(!node.stop().await, "what is owed is owed by the next start too");
            assert!(!marker.exists());
            continue;
        }
        full.store(false, Ordering::SeqCst);
        node.raise_owed_epochs().await;
        handle.append_client(batch("b"), Acks::Durable).await.unwrap();
        assert_eq!(epochs(&handle).await, [0, 1]);
        assert!(node.stop().await && marker.exists());
    }
}
