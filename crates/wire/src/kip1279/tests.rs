use std::collections::BTreeSet;

use super::*;
use crate::message::{decode, encode};

#[test]
fn no_number_of_ours_is_one_of_kafka_s() {
    let kafka: BTreeSet<i16> = kafka_wire::API_DESCRIPTORS
        .iter()
        .map(|descriptor| descriptor.api_key.value())
        .chain(ApiKey::known_to_kafka().map(ApiKey::get))
        .collect();
    assert!(kafka.contains(&94), "Kafka 4.4.0 has UnregisterController");
    let codes: BTreeSet<i16> = ErrorCode::known().map(ErrorCode::get).collect();
    for (kip, name) in APIS {
        assert!(!kafka.contains(&(kip + NUMBER_OFFSET)), "{name}");
    }
    for (kip, name) in ERRORS {
        assert!(!codes.contains(&(kip + NUMBER_OFFSET)), "{name}");
    }
    assert!(codes.contains(&ON_KAFKA_APIS.get()));
}

#[test]
fn the_tables_are_ascending_and_what_is_served_has_a_name() {
    assert!(APIS.is_sorted_by(|a, b| a.0 < b.0));
    assert!(ERRORS.is_sorted_by(|a, b| a.0 < b.0));
    assert!(SERVED.is_sorted());
    assert!(SERVED.iter().all(|api_key| api_name(*api_key).is_some()));
    assert_eq!(api_name(ApiKey::new(30_097)), None);
    assert_eq!(api_name(ApiKey::new(i16::MIN)), None);
}

#[test]
fn a_kip_code_becomes_policy_violation_on_kafka_s_apis_and_others_stay() {
    assert_eq!(for_kafka_apis(error::READ_ONLY_TOPIC), ErrorCode::POLICY_VIOLATION);
    assert_eq!(for_kafka_apis(ErrorCode::FENCED_LEADER_EPOCH), ErrorCode::FENCED_LEADER_EPOCH);
    assert_eq!(error_name(error::READ_ONLY_TOPIC), Some("READ_ONLY_TOPIC"));
    assert_eq!(error::READ_ONLY_TOPIC.to_string(), "READ_ONLY_TOPIC (30134)");
    assert_eq!(error_name(ErrorCode::GROUP_DELETION_FAILED), None);
}

#[test]
fn states_have_the_kip_s_codes_and_names() {
    let expected = [
        (0, "LOG_ALIGNMENT"),
        (1, "EPOCH_FENCING"),
        (2, "ULE_RECOVERY"),
        (3, "MIRRORING"),
        (4, "PAUSING"),
        (5, "PAUSED"),
        (6, "STOPPING"),
        (7, "STOPPED"),
        (8, "FAILED"),
        (-1, "UNKNOWN"),
    ];
    let found: Vec<(i8, &str)> =
        MirrorPartitionState::ALL.iter().map(|state| (state.code(), state.name())).collect();
    assert_eq!(found, expected);
    for state in MirrorPartitionState::ALL {
        assert_eq!(MirrorPartitionState::from_code(state.code()), Some(*state));
        assert_eq!(MirrorPartitionState::from_name(state.name()), Some(*state));
    }
    assert_eq!(MirrorPartitionState::from_code(16), None);
}

/// Encodes to exactly these bytes, and decodes from them to the same value.
fn check_bytes<M: Message + PartialEq + std::fmt::Debug>(message: M, expected: &[u8]) {
    let bytes = encode(&message, 0).unwrap();
    assert_eq!(&bytes[..], expected, "{}", M::NAME);
    assert_eq!(decode::<M>(bytes.clone(), 0, &Limits::SERVER).unwrap(), message);
    for cut in 0..bytes.len() {
        assert!(decode::<M>(bytes.slice(..cut), 0, &Limits::SERVER).is_err(), "{} cut at {cut}", M::NAME);
    }
    let mut longer = bytes.to_vec();
    longer.push(0);
    assert!(matches!(
        decode::<M>(longer.into(), 0, &Limits::SERVER),
        Err(DecodeError::Trailing { count: 1 })
    ));
    assert!(decode::<M>(bytes, 1, &Limits::SERVER).is_err(), "there is only version 0");
}

// Worked by hand from the field lists: no released encoder knows these messages.
#[test]
fn requests_are_laid_out_as_the_kip_lists_their_fields() {
    let name = || StrBytes::from("m1");
    check_bytes(
        CreateClusterMirrorRequest {
            mirror_name: name(),
            configs: vec![
                MirrorConfig { name: "a".into(), value: Some("b".into()) },
                MirrorConfig { name: "c".into(), value: None },
            ],
        },
        &[3, b'm', b'1', 3, 2, b'a', 2, b'b', 0, 2, b'c', 0, 0, 0],
    );
    check_bytes(
        StartMirrorTopicsRequest {
            mirror_name: name(),
            topics: vec![StartMirrorTopic {
                topic_id: Uuid::from_bytes([7; 16]),
                topic_name: "t".into(),
                num_partitions: 3,
            }],
            include_patterns: vec![".*".into()],
            exclude_patterns: vec![],
            state_offset: -1,
            ..Default::default()
        },
        &[
            3, b'm', b'1', 2, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 2, b't', 0, 0, 0, 3, 0, 2, 3,
            b'.', b'*', 1, 255, 255, 255, 255, 255, 255, 255, 255, 0,
        ],
    );
    check_bytes(
        StopMirrorTopicsRequest {
            mirror_name: name(),
            topics: vec![MirrorTopic { topic_name: "t".into() }],
            state_offset: 5,
            patterns: vec!["x".into()],
            ..Default::default()
        },
        &[3, b'm', b'1', 2, 2, b't', 0, 0, 0, 0, 0, 0, 0, 0, 5, 1, 0, 3, 2, 2, b'x'],
    );
    check_bytes(
        StopMirrorTopicsRequest { mirror_name: name(), ..Default::default() },
        &[3, b'm', b'1', 1, 255, 255, 255, 255, 255, 255, 255, 255, 0],
    );
    check_bytes(ListClusterMirrorsRequest { include_topic_names: true }, &[1, 0]);
    check_bytes(DescribeClusterMirrorsRequest::default(), &[0, 0, 0]);
    check_bytes(
        DescribeClusterMirrorsRequest {
            mirror_names: Some(vec![name()]),
            include_authorized_operations: true,
            cluster_id: Some("c".into()),
            last_mirror_epoch_lookups: vec![LastMirrorEpochLookup {
                topic_id: Uuid::from_bytes([1; 16]),
                partitions: vec![0, 2],
            }],
        },
        &[
            2, 3, b'm', b'1', 1, 2, 0, 2, 2, b'c', 1, 27, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
            3, 0, 0, 0, 0, 0, 0, 0, 2, 0,
        ],
    );
    check_bytes(
        DeleteClusterMirrorRequest { mirror_name: name(), state_offset: 0 },
        &[3, b'm', b'1', 0, 0, 0, 0, 0, 0, 0, 0, 0],
    );
    check_bytes(
        RecoverMirrorTopicsRequest { mirror_name: name(), topics: vec![MirrorTopic::default()] },
        &[3, b'm', b'1', 2, 1, 0, 0],
    );
}

#[test]
fn weir_s_own_fields_are_tagged_from_10_000_on_and_absent_at_their_defaults() {
    check_bytes(
        StopMirrorTopicsRequest { state_offset: 0, accept_gap: true, dry_run: true, ..Default::default() },
        // 10,000 is 0x90 0x4e as a varint.
        &[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0x90, 0x4e, 1, 1, 0x91, 0x4e, 1, 1],
    );
    check_bytes(
        StartMirrorTopicsRequest { state_offset: 0, accept_cut: 7, ..Default::default() },
        &[1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x90, 0x4e, 8, 0, 0, 0, 0, 0, 0, 0, 7],
    );
    let partition = DescribedMirrorPartition {
        failure: Some("GAP".into()),
        last_fetch_age_ms: 5,
        barrier_offset: 6,
        leader_epoch: 7,
        ..Default::default()
    };
    let topics = vec![DescribedMirrorTopic { topic_name: "t".into(), partitions: vec![partition] }];
    let mirrors = vec![DescribedMirror { topics, ..Default::default() }];
    let response = DescribeClusterMirrorsResponse { mirrors, ..Default::default() };
    let bytes = encode(&response, 0).unwrap();
    assert_eq!(decode::<DescribeClusterMirrorsResponse>(bytes, 0, &Limits::SERVER).unwrap(), response);
}

#[test]
fn responses_are_laid_out_as_the_kip_lists_their_fields() {
    check_bytes(
        CreateClusterMirrorResponse {
            throttle_time_ms: 1,
            error_code: error::CLUSTER_MIRROR_ALREADY_EXISTS,
            error_message: Some("no".into()),
        },
        &[0, 0, 0, 1, 0x75, 0xb8, 3, b'n', b'o', 0],
    );
    check_bytes(
        StartMirrorTopicsResponse {
            topics: vec![MirrorTopicResult { name: "t".into(), ..Default::default() }],
            ..Default::default()
        },
        &[0, 0, 0, 0, 0, 0, 0, 2, 2, b't', 0, 0, 0, 0, 0],
    );
    check_bytes(
        ListClusterMirrorsResponse {
            mirrors: vec![ListedMirror {
                mirror_name: "m".into(),
                source_bootstrap: "h:1".into(),
                source_cluster_id: "".into(),
                topic_count: 2,
                topic_names: Some(vec!["a".into(), "b".into()]),
            }],
            ..Default::default()
        },
        &[0, 0, 0, 0, 0, 0, 0, 2, 2, b'm', 4, b'h', b':', b'1', 1, 0, 0, 0, 2, 3, 2, b'a', 2, b'b', 0, 0],
    );
    check_bytes(
        DescribeClusterMirrorsResponse {
            mirrors: vec![DescribedMirror {
                mirror_name: "m".into(),
                topics: vec![DescribedMirrorTopic {
                    topic_name: "t".into(),
                    partitions: vec![DescribedMirrorPartition {
                        partition_index: 1,
                        state_value: MirrorPartitionState::Mirroring.name().into(),
                        source_offset: 9,
                        ..Default::default()
                    }],
                }],
                ..Default::default()
            }],
            ..Default::default()
        },
        &[
            0, 0, 0, 0, 0, 0, 0, 2, // throttle, error, message, one mirror
            0, 0, 0, 2, b'm', 0, 0, 0x80, 0, 0, 0, 2, // error, message, name, source, operations
            2, b't', 2, 0, 0, 0, 1, 10, b'M', b'I', b'R', b'R', b'O', b'R', b'I', b'N', b'G', 0, 0,
            0, //
            0, 0, 0, 0, 0, 0, 0, 9, 255, 255, 255, 255, 255, 255, 255, 255, // offsets
            255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, // last mirrored
            0, 0, 0, 0,
        ],
    );
}
