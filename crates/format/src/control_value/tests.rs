use super::*;

fn decode(record_type: ControlRecordType, value: &[u8]) -> Result<ControlRecordValue<'_>, ControlError> {
    ControlRecordValue::decode(record_type, Some(value)).expect("a type of KRaft")
}

fn bare(id: i32) -> Voter<'static> {
    Voter { id, directory_id: None, endpoints: Vec::new(), kraft_versions: None }
}

#[test]
fn a_leader_change_is_read_in_both_versions() {
    // As Kafka 4.4.0 wrote it into its metadata log.
    let value = [0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 0];
    let want = ControlRecordValue::LeaderChange {
        version: 0,
        leader_id: 1,
        voters: vec![bare(1)],
        granting_voters: vec![bare(1)],
    };
    assert_eq!(decode(ControlRecordType::LeaderChange, &value), Ok(want));

    // A version that nobody knows yet is read as the newest known one.
    for version in [1, 2, i16::MAX] {
        let directory = [7; 16];
        let fields = [&[0, 0, 0, 3, 2, 0, 0, 0, 3][..], &directory, &[0, 1, 0]].concat();
        let value = [&version.to_be_bytes()[..], &fields].concat();
        let voter = Voter { directory_id: Some(directory), ..bare(3) };
        let (leader_id, voters, granting_voters) = (3, vec![voter], Vec::new());
        let want = ControlRecordValue::LeaderChange { version, leader_id, voters, granting_voters };
        assert_eq!(decode(ControlRecordType::LeaderChange, &value), Ok(want));
    }
}

#[test]
fn voters_are_read_with_endpoints_and_versions_and_unknown_tags() {
    let value = [
        &[0, 0, 3, 0, 0, 0, 9][..],
        &[1; 16],
        &[2, 3, b'C', b'T', 2, b'h', 0x23, 0x84, 1, 5, 2, 0xaa, 0xbb],
        // The versions have tags of their own, in front of the voter's.
        &[0, 0, 0, 1, 1, 0, 1, 0xdd, 0],
        &[0, 0, 0, 8],
        &[2; 16],
        &[1, 0, 0, 0, 2, 0, 1, 0, 1, 0xcc],
        &[1, 0, 1, 0xcc],
    ]
    .concat();
    let endpoint = Endpoint { name: b"CT", host: b"h", port: 9092 };
    let voter = |id, directory: u8, endpoints, highest| Voter {
        id,
        directory_id: Some([directory; 16]),
        endpoints,
        kraft_versions: Some((0, highest)),
    };
    let voters = vec![voter(9, 1, vec![endpoint], 1), voter(8, 2, Vec::new(), 2)];
    let want = ControlRecordValue::KraftVoters { version: 0, voters };
    assert_eq!(decode(ControlRecordType::KraftVoters, &value), Ok(want));
}

#[test]
fn the_small_values_are_read() {
    let header = ControlRecordValue::SnapshotHeader {
        version: 0,
        last_contained_log_timestamp: TimestampMs::new(258),
    };
    assert_eq!(decode(ControlRecordType::SnapshotHeader, &[0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0]), Ok(header));
    let footer = ControlRecordValue::SnapshotFooter { version: 0 };
    assert_eq!(decode(ControlRecordType::SnapshotFooter, &[0, 0, 0]), Ok(footer));
    let version = ControlRecordValue::KraftVersion { version: 0, kraft_version: 1 };
    assert_eq!(decode(ControlRecordType::KraftVersion, &[0, 0, 0, 1, 0]), Ok(version));
}

#[test]
fn a_cut_value_says_where_and_a_huge_count_costs_nothing() {
    let whole = [0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 0];
    for size in 0..whole.len() {
        let error = decode(ControlRecordType::LeaderChange, &whole[..size]).expect_err("cut");
        assert!(matches!(error, ControlError::MalformedValue { position, .. } if position <= size));
    }
    let huge = [0, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0];
    assert!(decode(ControlRecordType::LeaderChange, &huge).is_err());
    assert!(decode(ControlRecordType::LeaderChange, &[0, 0, 0, 0, 0, 1, 0]).is_err(), "a null list");
    assert_eq!(
        decode(ControlRecordType::SnapshotFooter, &[0xff, 0xff, 0]),
        Err(ControlError::InvalidVersion { version: -1 })
    );
    let none = ControlRecordValue::decode(ControlRecordType::KraftVersion, None).expect("a type of KRaft");
    assert!(none.is_err());
}

#[test]
fn what_is_not_krafts_has_no_value_here() {
    for record_type in
        [ControlRecordType::Abort, ControlRecordType::MirrorPidReset, ControlRecordType::Unknown(99)]
    {
        assert_eq!(ControlRecordValue::decode(record_type, Some(&[0, 0, 0])), None);
    }
}
