use super::*;
use crate::meta_kv::MemoryKv;

const CLUSTER: &str = "R29sZGVuLWNsdXN0ZXItMQ";

fn fresh() -> (Arc<MemoryKv>, Metadata) {
    let kv = Arc::new(MemoryKv::new());
    let dirs = [(Uuid([7; 16]), "/data".to_owned())];
    Metadata::format(&*kv, CLUSTER, DEFAULT_NODE_ID, &dirs).unwrap();
    let metadata = Metadata::open(kv.clone()).unwrap();
    (kv, metadata)
}

fn reopen(kv: &Arc<MemoryKv>) -> Metadata {
    Metadata::open(kv.clone()).unwrap()
}

fn topic(name: &str, id: u8, mirror: Option<&str>) -> Topic {
    Topic {
        name: name.to_owned(),
        id: Uuid([id; 16]),
        partitions: 3,
        configs: BTreeMap::from([("retention.ms".to_owned(), "-1".to_owned())]),
        mirror: mirror.map(str::to_owned),
    }
}

fn pid(id: i64) -> ProducerId {
    ProducerId::new(id).unwrap()
}

#[test]
fn fields_survive_any_text() {
    let fields = Fields::new().with("a=b", "x\ny\\n=").with("empty", "").with("c", 5);
    let bytes = fields.encode();
    assert_eq!(Fields::decode(&bytes).unwrap(), fields);
    assert_eq!(fields.parse::<i32>("c"), Some(5));
    assert_eq!(Fields::decode(b"no equals sign"), None);
    assert_eq!(Fields::decode(b"a=\\q"), None);
    assert_eq!(Fields::decode(&[0xff, b'=']), None);
}

#[test]
fn a_store_without_a_cluster_is_refused() {
    let error = Metadata::open(Arc::new(MemoryKv::new())).unwrap_err();
    assert!(matches!(error, MetadataError::NotFormatted));
}

#[test]
fn formatting_twice_changes_nothing() {
    let (kv, metadata) = fresh();
    let again = Metadata::format(&*kv, "AAAAAAAAAAAAAAAAAAAAAA", 5, &[]);
    assert!(matches!(again, Err(MetadataError::Conflict)));
    assert_eq!(reopen(&kv).cluster_id(), CLUSTER);
    assert_eq!(metadata.node_id(), DEFAULT_NODE_ID);
    assert_eq!(metadata.log_dirs().unwrap().len(), 1);
}

#[tokio::test]
async fn a_change_is_visible_and_durable_or_neither() {
    let (kv, metadata) = fresh();
    let orders = topic("orders", 1, Some("dr"));
    let id = PartitionId { topic_id: orders.id, partition: 1 };
    let leadership = Leadership { leader_epoch: LeaderEpoch::new(11).unwrap(), read_only: None };
    let change = Change {
        compare: vec![Compare::absent("mirror/dr")],
        put_topics: vec![orders.clone()],
        partitions: vec![(id, leadership.clone())],
        ops: vec![KvOp::put("mirror/dr", "x")],
        ..Change::default()
    };
    metadata.commit(change.clone()).await.unwrap();
    assert!(matches!(metadata.commit(change).await, Err(MetadataError::Conflict)));
    for metadata in [metadata, reopen(&kv)] {
        assert_eq!(*metadata.topic("orders").unwrap(), orders);
        assert_eq!(metadata.topic_by_id(orders.id).unwrap().name, "orders");
        assert_eq!(metadata.leadership(id), leadership);
        let other = metadata.leadership(PartitionId { topic_id: orders.id, partition: 0 });
        assert_eq!(other.read_only.unwrap().mirror, "dr");
        assert_eq!(other.leader_epoch.get(), 0);
    }
}

#[tokio::test]
async fn a_removed_topic_leaves_nothing() {
    let (kv, metadata) = fresh();
    let orders = topic("orders", 1, None);
    let id = PartitionId { topic_id: orders.id, partition: 0 };
    let leadership = Leadership { leader_epoch: LeaderEpoch::new(4).unwrap(), read_only: None };
    let put_topics = vec![orders];
    let change = Change { put_topics, partitions: vec![(id, leadership)], ..Change::default() };
    metadata.commit(change).await.unwrap();
    let change = Change { remove_topics: vec!["orders".to_owned()], ..Change::default() };
    metadata.commit(change).await.unwrap();
    assert!(metadata.topics().is_empty() && reopen(&kv).topics().is_empty());
    assert_eq!(metadata.leadership(id).leader_epoch.get(), 0);
    assert!(kv.range_prefix(b"partition/").unwrap().is_empty());
}

#[test]
fn the_range_number_comes_from_the_cluster_id() {
    // CRC-32C of "123456789" is 0xe3069283 by the polynomial's definition; 31 bits of it.
    assert_eq!(producer_id_range_number("123456789"), 0x6306_9283);
    // The CRC of nothing is 0, which would be Kafka's own range.
    assert_eq!(producer_id_range_number(""), 1);
}

#[tokio::test]
async fn producer_ids_are_never_repeated_across_restarts() {
    let (kv, metadata) = fresh();
    let first = metadata.next_producer_id().await.unwrap();
    assert_eq!(range_number_of(first), producer_id_range_number(CLUSTER));
    assert_eq!(first.get() & 0xffff_ffff, 0);
    let mut last = first;
    for _ in 0..PRODUCER_ID_BLOCK {
        let next = metadata.next_producer_id().await.unwrap();
        assert_eq!(next.get(), last.get() + 1);
        last = next;
    }
    let after = reopen(&kv).next_producer_id().await.unwrap();
    assert!(after > last);
    assert_eq!(after.get(), first.get() + 2 * PRODUCER_ID_BLOCK);
}

#[tokio::test]
async fn mirrored_ids_of_our_own_range_are_skipped() {
    let (kv, metadata) = fresh();
    let first = metadata.next_producer_id().await.unwrap();
    // Inside the durable block, and beyond it.
    for ahead in [5, 3 * PRODUCER_ID_BLOCK] {
        let seen = pid(first.get() + ahead);
        metadata.note_mirrored_producer_ids([seen, pid(7)]).await.unwrap();
        assert!(reopen(&kv).next_producer_id().await.unwrap() > seen);
        assert_eq!(metadata.next_producer_id().await.unwrap().get(), seen.get() + 1);
    }
}

#[tokio::test]
async fn an_id_at_the_end_of_our_range_moves_us_to_a_free_one() {
    let (kv, metadata) = fresh();
    let number = producer_id_range_number(CLUSTER);
    let hostile =
        [pid(last_of_range(number)), pid(first_of_range(number + 1)), pid(first_of_range(number + 2))];
    metadata.note_mirrored_producer_ids(hostile).await.unwrap();
    for metadata in [reopen(&kv), metadata] {
        let next = metadata.next_producer_id().await.unwrap();
        assert_eq!(range_number_of(next), number + 3);
    }
    // The range that was left is never ours again.
    let foreign = read_foreign(&*kv).unwrap();
    assert_eq!(foreign, BTreeSet::from([number, number + 1, number + 2]));
}

#[tokio::test]
async fn the_set_of_foreign_ranges_is_bounded() {
    let (kv, metadata) = fresh();
    let number = producer_id_range_number(CLUSTER);
    let ranges = (0..=70_000_u64).filter(|range| *range != number);
    let ids: Vec<ProducerId> = ranges.map(|range| pid(first_of_range(range))).collect();
    metadata.note_mirrored_producer_ids(ids[..MAX_FOREIGN_RANGES].iter().copied()).await.unwrap();
    let full = metadata.note_mirrored_producer_ids([ids[MAX_FOREIGN_RANGES]]).await;
    assert!(matches!(full, Err(MetadataError::ForeignRangesFull)));
    // What is known already is no news.
    metadata.note_mirrored_producer_ids([ids[3]]).await.unwrap();
    assert_eq!(read_foreign(&*kv).unwrap().len(), MAX_FOREIGN_RANGES);
}
