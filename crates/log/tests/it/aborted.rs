//! What it costs to remember aborted transactions, and to list them.

use bytes::BytesMut;
use weir_log::Isolation;
use weir_segment::TransactionIndex;

use super::support::*;

/// Transactions of one record and its ABORT, one behind the other, as they lie in a source's log.
fn many_aborted(count: i64) -> BytesMut {
    let mut all = BytesMut::new();
    for number in 0..count {
        let id = 100 + number;
        all.extend_from_slice(&placed(data(Some((id, 0, 0)), true, 1, 1), 2 * number, 0));
        all.extend_from_slice(&placed(marker(false, id, 0, 1), 2 * number + 1, 0));
    }
    all
}

/// A mirror's append that goes over a segment's end has the markers of the older segment behind it.
#[test]
fn an_append_over_a_segments_end_writes_its_transaction_index_once() {
    let bench = Bench::new(5).segment_bytes(200_000);
    let mut open = bench.open_unclean();
    open.sync();
    let before = bench.disk.op_count();
    open.replicate(many_aborted(1_500));
    let changes = bench.disk.op_count() - before;
    assert_eq!(open.log.segments().len(), 2);
    let of_the_older = open.log.segment_transactions(&mut *open.io, offset(0)).unwrap().len();
    assert!(of_the_older > 1_000, "{of_the_older} aborted transactions in the segment that was left");
    assert!(changes < 100, "{changes} changes of the disk");
    // A start after a crash relies on the file: the snapshot at the new segment does not know them.
    let file = bench.disk.durable_file(&bench.path("00000000000000000000.txnindex")).unwrap();
    assert_eq!(TransactionIndex::decode(offset(0), &file).unwrap().entries().len(), of_the_older);
    open.sync();
    // All of them are found, also after a crash.
    for restart in [false, true] {
        if restart {
            open = bench.open_unclean();
        }
        let ids: Vec<i64> = open.aborted().iter().map(|entry| entry.producer_id.get()).collect();
        assert_eq!(ids, (100..1_600).collect::<Vec<_>>(), "after a restart: {restart}");
        let read = open.read(1_000, 1, Isolation::Committed);
        let found: Vec<_> =
            read.aborted.iter().map(|entry| (entry.producer_id.get(), entry.first_offset.get())).collect();
        assert_eq!(found[0], (600, 1_000));
    }
}
