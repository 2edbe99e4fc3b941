use super::*;

fn offset(raw: i64) -> Offset {
    Offset::new(raw).unwrap()
}

fn example() -> PartitionFile {
    let mut file = PartitionFile::new(offset(54));
    file.note_barrier(offset(31), BarrierNote { aborted_transaction: false });
    file.note_barrier(offset(53), BarrierNote { aborted_transaction: true });
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
        "weir-partition 1\nchecked 54\nbarrier 31\nbarrier 53 aborted\nsnapshot 31 000000ff\nsnapshot 54 806d95cc\ncut 20 60\n"
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
    for body in [
        "weir-partition 1\nbarrier 1\nchecked 2\n",
        "weir-partition 1\nchecked 2\nbarrier 1\nbarrier 1\n",
        "weir-partition 1\nchecked 2\nsnapshot 2 00000000\nbarrier 1\n",
        "weir-partition 1\nchecked -2\n",
        "weir-partition 1\nchecked +2\n",
        "weir-partition 1\nchecked 2\nsnapshot 2 0\n",
        "weir-partition 1\nchecked 2\ncut 5 5\n",
        "weir-partition 1\nchecked 2\n\n",
        "weir-partition 1\n",
    ] {
        let bytes = format!("{body}crc32c {:08x}\n", crc32c(body.as_bytes()));
        let refused = PartitionFile::decode(bytes.as_bytes());
        assert!(matches!(refused, Err(PartitionFileError::Malformed { .. })), "{body}: {refused:?}");
    }
    let later = "weir-partition 2\nanything\n";
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
