use std::sync::atomic::{AtomicBool, Ordering};

use bytes::BytesMut;
use weir_format::{BatchBuilder, BatchReader, TimestampMs};
use weir_log::Isolation;

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
    Node::over(config, WantedBackend::Auto, opened).await.unwrap()
}

fn batch(value: &str) -> BytesMut {
    BatchBuilder::new().record(TimestampMs::new(5), None, Some(value.as_bytes())).build().unwrap()
}

async fn epochs(handle: &PartitionHandle) -> Vec<i32> {
    let read = handle.read(Offset::ZERO, 1 << 20, Isolation::Uncommitted, true).await.unwrap();
    BatchReader::new(&read.bytes).map(|batch| batch.unwrap().leader_epoch().unwrap().get()).collect()
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
