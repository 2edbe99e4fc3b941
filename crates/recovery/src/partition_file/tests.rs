use super::*;

fn offset(raw: i64) -> Offset {
    Offset::new(raw).unwrap()
}

fn example() -> PartitionFile {
    let mut file = PartitionFile::new(offset(54));
    file.note_barrier(offset(31), BarrierNote { aborted_transaction: false });
    file.note_barrier(offset(53), BarrierNote { aborted_transaction: true });
    file.indexed = offset(54);
    let note = TransactionsNote { count: 1, last_offset: offset(53), crc: 0x0c1d_2e3f };
    file.transactions.insert(offset(31), note);
    file.note_snapshot(offset(31), 0x0000_00ff);
    file.note_snapshot(offset(54), 0x806d_95cc);
    file
}

#[test]
fn the_bytes_are_those_of_the_documentation() {
    let mut file = example();
    file.cut = Some(Cut { to: offset(20), from: offset(60) });
    let text = String::from_utf8(file.encode()).unwrap();
    let (body, crc) = text.split_at(text.len() - 16);
    assert_eq!(
        body,
        concat!(
            "weir-partition 2\nchecked 54\nindexed 54\nbarrier 31\nbarrier 53 aborted\n",
            "transactions 31 1 53 0c1d2e3f\nsnapshot 31 000000ff\nsnapshot 54 806d95cc\ncut 20 60\n"
        )
    );
    assert_eq!(crc, format!("crc32c {:08x}\n", crc32c(body.as_bytes())));
    assert_eq!(PartitionFile::decode(text.as_bytes()), Ok(file));
}

#[test]
fn every_changed_byte_and_every_cut_is_refused() {
    let bytes = example().encode();
    for index in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[index] ^= 1 << bit;
            assert!(PartitionFile::decode(&changed).is_err(), "byte {index} bit {bit}");
        }
        assert!(PartitionFile::decode(&bytes[..index]).is_err(), "cut at {index}");
    }
}

#[test]
fn lines_out_of_order_are_refused_even_with_the_right_crc() {
    for lines in [
        "barrier 1\nchecked 2\nindexed 2\n",
        "checked 2\nbarrier 1\n",
        "checked 2\nindexed 2\nbarrier 1\nbarrier 1\n",
        "checked 2\nindexed 2\nsnapshot 2 00000000\nbarrier 1\n",
        "checked 2\nindexed 2\nsnapshot 2 00000000\ntransactions 0 1 1 00000000\n",
        "checked 2\nindexed 2\ntransactions 0 1 1 00000000\ntransactions 0 1 1 00000000\n",
        "checked 2\nindexed 2\ntransactions 0 0 1 00000000\n",
        "checked 2\nindexed 2\ntransactions 0 1 00000000\n",
        "checked 2\nindexed 2\ntransactions 0 1 1 00000000 7\n",
        "checked -2\nindexed 2\n",
        "checked +2\nindexed 2\n",
        "checked 2\nindexed -2\n",
        "checked 2\nindexed 2\nsnapshot 2 0\n",
        "checked 2\nindexed 2\ncut 5 5\n",
        "checked 2\nindexed 2\n\n",
        "checked 2\n",
        "",
    ] {
        let body = format!("weir-partition 2\n{lines}");
        let bytes = format!("{body}crc32c {:08x}\n", crc32c(body.as_bytes()));
        let refused = PartitionFile::decode(bytes.as_bytes());
        assert!(matches!(refused, Err(PartitionFileError::Malformed { .. })), "{body}: {refused:?}");
    }
    let later = "weir-partition 3\nanything\n";
    let bytes = format!("{later}crc32c {:08x}\n", crc32c(later.as_bytes()));
    assert_eq!(PartitionFile::decode(bytes.as_bytes()), Err(PartitionFileError::Version));
}

#[test]
fn a_cut_takes_barriers_and_snapshots_above_it_and_lowers_the_recovery_point() {
    let mut file = example();
    file.truncate(offset(53), offset(70));
    assert_eq!(file.checked(), offset(53));
    assert_eq!(file.barriers().map(|(at, _)| at).collect::<Vec<_>>(), [offset(31)]);
    assert_eq!(file.snapshots().map(|(at, _)| at).collect::<Vec<_>>(), [offset(31)]);
    for (checkpoint, effective) in [(40, 40), (53, 53), (54, 53), (70, 53), (71, 71)] {
        assert_eq!(file.effective_recovery_point(offset(checkpoint)), offset(effective));
    }
    // A snapshot above the cut was written since, and what lies below it was synced first.
    let mut grown = file.clone();
    grown.note_snapshot(offset(60), 1);
    for (checkpoint, effective) in [(54, 54), (60, 60), (70, 60), (71, 71)] {
        assert_eq!(grown.effective_recovery_point(offset(checkpoint)), offset(effective));
    }
    grown.forget_cut();
    assert_eq!((grown.cut(), grown.effective_recovery_point(offset(70))), (None, offset(70)));
    // A second cut before the checkpoint knows of the first: the range of both.
    file.truncate(offset(40), offset(55));
    assert_eq!(file.cut(), Some(Cut { to: offset(40), from: offset(70) }));
    file.forget_cut_below(offset(69));
    assert!(file.cut().is_some());
    file.forget_cut_below(offset(70));
    assert_eq!(file.cut(), None);
}

#[test]
fn deletion_takes_what_lies_below_it() {
    let mut file = example();
    file.delete_below(offset(32));
    assert_eq!(file.barriers().map(|(at, _)| at).collect::<Vec<_>>(), [offset(53)]);
    assert_eq!(file.snapshots().map(|(at, _)| at).collect::<Vec<_>>(), [offset(54)]);
    assert_eq!(file.checked(), offset(54));
    assert!(file.aborted_at_barrier(offset(53)));
    assert!(!file.aborted_at_barrier(offset(31)));
}

fn index(entries: &[(i64, i64)]) -> TransactionIndex {
    let mut index = TransactionIndex::new();
    for &(first, last) in entries {
        index.append(weir_segment::AbortedTransaction {
            producer_id: weir_format::ProducerId::new(5).unwrap(),
            first_offset: offset(first),
            last_offset: offset(last),
            last_stable_offset: offset(last),
        });
    }
    index
}

#[test]
fn a_transaction_index_is_known_by_its_first_entries_below_what_was_noted() {
    let (full, empty) = (index(&[(1, 3), (5, 8)]), TransactionIndex::new());
    let mut file = PartitionFile::new(offset(20));
    assert!(!file.knows_transactions(offset(0), &full, offset(1)), "nothing is known yet");
    file.note_transactions(offset(0), &full, offset(10));
    file.set_indexed(offset(10));
    fn knows(file: &PartitionFile, index: &TransactionIndex) -> bool {
        file.knows_transactions(offset(0), index, offset(10))
    }
    assert!(knows(&file, &full));
    assert!(knows(&file, &index(&[(1, 3), (5, 8), (2, 12)])), "it has grown since");
    for other in [&empty, &index(&[(1, 3)]), &index(&[(1, 3), (6, 8)]), &index(&[(1, 3), (5, 8), (4, 9)])] {
        assert!(!knows(&file, other), "{other:?}");
    }
    assert!(!file.knows_transactions(offset(0), &full, offset(11)), "not that far");
    assert!(file.knows_transactions(offset(10), &empty, offset(10)));
    assert!(!file.knows_transactions(offset(3), &index(&[(4, 6)]), offset(10)), "none was noted there");
    assert_eq!(PartitionFile::decode(&file.encode()), Ok(file.clone()));

    // A cut behind the last entry breaks nothing, one into the entries forgets the segment, and what follows.
    file.note_transactions(offset(10), &index(&[(11, 12)]), offset(20));
    file.set_indexed(offset(20));
    let mut cut = file.clone();
    cut.truncate(offset(13), offset(20));
    assert_eq!(cut.indexed(), offset(13));
    assert!(cut.knows_transactions(offset(10), &index(&[(11, 12)]), offset(13)));
    cut.truncate(offset(12), offset(13));
    assert_eq!(cut.indexed(), offset(10));
    assert!(knows(&cut, &full));
    cut.truncate(offset(9), offset(12));
    assert_eq!(cut.indexed(), offset(9));
    assert!(cut.knows_transactions(offset(0), &full, offset(9)));
    cut.truncate(offset(8), offset(9));
    assert_eq!((cut.indexed(), cut.transactions.len()), (offset(0), 0));
    file.delete_below(offset(10));
    assert_eq!(file.transactions.keys().collect::<Vec<_>>(), [&offset(10)]);
}
