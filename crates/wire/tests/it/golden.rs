//! Frames of a real Kafka 4.4.0, read and written again.

use std::collections::BTreeMap;

use bytes::Bytes;
use weir_wire::fetch::FetchRequest;
use weir_wire::header::{decode_response_header, encode_response};
use weir_wire::produce::ProduceRequest;
use weir_wire::{ApiKey, Limits, Request, RequestHeader, api, decode, msg};

pub(crate) struct Pair {
    pub(crate) name: String,
    pub(crate) request: Bytes,
    pub(crate) response: Bytes,
}

pub(crate) fn pairs() -> Vec<Pair> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/requests.txt");
    let text = std::fs::read_to_string(path).expect("the golden frames");
    text.lines()
        .map(|line| {
            let [name, request, response] =
                line.split(' ').collect::<Vec<_>>().try_into().expect("three words a line");
            Pair { name: name.to_owned(), request: from_hex(request), response: from_hex(response) }
        })
        .collect()
}

fn from_hex(text: &str) -> Bytes {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}

/// Both frames of a pair are read as `R` and its response, and come out as the same bytes.
fn check_pair<R: Request>(pair: &Pair) {
    let name = &pair.name;
    let (header, body) = RequestHeader::decode_any(pair.request.clone()).expect(name);
    assert_eq!(header.api_key, R::API_KEY, "{name}");
    let version = header.api_version;
    let request: R = decode(body, version, &Limits::SERVER).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut frame = header.encode().expect(name);
    request.encode(version, &mut frame).expect(name);
    assert_eq!(frame.finish().expect(name).to_vec()[4..], pair.request, "{name} request");

    let (correlation_id, body) =
        decode_response_header(R::API_KEY, version, pair.response.clone()).expect(name);
    assert_eq!(correlation_id, header.correlation_id, "{name}");
    let response: R::Response =
        decode(body, version, &Limits::CLIENT).unwrap_or_else(|error| panic!("{name}: {error}"));
    let frame = encode_response(R::API_KEY, version, correlation_id, &response).expect(name);
    assert_eq!(frame.to_vec()[4..], pair.response, "{name} response");
}

macro_rules! check_by_key {
    ($pair:expr, $($request:ty),* $(,)?) => {{
        let key = ApiKey::new(i16::from_be_bytes([$pair.request[0], $pair.request[1]]));
        $(if key == <$request as Request>::API_KEY {
            check_pair::<$request>($pair);
        } else)* {
            panic!("{} has no type here", $pair.name);
        }
    }};
}

#[test]
fn every_frame_of_kafka_4_4_0_comes_out_as_the_same_bytes() {
    let pairs = pairs();
    assert_eq!(pairs.len(), 230);
    for pair in &pairs {
        check_by_key!(
            pair,
            ProduceRequest,
            FetchRequest,
            msg::ListOffsetsRequest,
            msg::MetadataRequest,
            msg::OffsetCommitRequest,
            msg::OffsetFetchRequest,
            msg::FindCoordinatorRequest,
            msg::JoinGroupRequest,
            msg::HeartbeatRequest,
            msg::LeaveGroupRequest,
            msg::SyncGroupRequest,
            msg::DescribeGroupsRequest,
            msg::ListGroupsRequest,
            msg::ApiVersionsRequest,
            msg::CreateTopicsRequest,
            msg::DeleteTopicsRequest,
            msg::DeleteRecordsRequest,
            msg::InitProducerIdRequest,
            msg::OffsetForLeaderEpochRequest,
            msg::AddPartitionsToTxnRequest,
            msg::EndTxnRequest,
            msg::WriteTxnMarkersRequest,
            msg::TxnOffsetCommitRequest,
            msg::DescribeAclsRequest,
            msg::CreateAclsRequest,
            msg::DeleteAclsRequest,
            msg::DescribeConfigsRequest,
            msg::DescribeLogDirsRequest,
            msg::CreatePartitionsRequest,
            msg::CreateDelegationTokenRequest,
            msg::DeleteGroupsRequest,
            msg::ElectLeadersRequest,
            msg::IncrementalAlterConfigsRequest,
            msg::AlterPartitionReassignmentsRequest,
            msg::ListPartitionReassignmentsRequest,
            msg::OffsetDeleteRequest,
            msg::DescribeClientQuotasRequest,
            msg::AlterClientQuotasRequest,
            msg::DescribeUserScramCredentialsRequest,
            msg::DescribeQuorumRequest,
            msg::DescribeClusterRequest,
            msg::DescribeProducersRequest,
            msg::DescribeTransactionsRequest,
            msg::ListTransactionsRequest,
            msg::ConsumerGroupHeartbeatRequest,
            msg::ConsumerGroupDescribeRequest,
            msg::ListConfigResourcesRequest,
            msg::DescribeTopicPartitionsRequest,
            msg::ShareGroupHeartbeatRequest,
            msg::ShareGroupDescribeRequest,
            msg::ShareFetchRequest,
            msg::ShareAcknowledgeRequest,
            msg::InitializeShareGroupStateRequest,
            msg::ReadShareGroupStateRequest,
            msg::WriteShareGroupStateRequest,
            msg::ReadShareGroupStateSummaryRequest,
            msg::DescribeShareGroupOffsetsRequest,
        );
    }
}

#[test]
fn the_golden_frames_hold_every_version_of_produce_and_fetch_from_3_and_4_on() {
    let mut versions: BTreeMap<i16, std::collections::BTreeSet<i16>> = BTreeMap::new();
    for pair in pairs() {
        let (header, _) = RequestHeader::decode_any(pair.request).unwrap();
        versions.entry(header.api_key.get()).or_default().insert(header.api_version);
    }
    assert!(versions[&0].iter().copied().eq(3..=13), "{:?}", versions[&0]);
    assert!(versions[&1].iter().copied().eq(4..=18), "{:?}", versions[&1]);
}

#[test]
fn what_we_list_is_within_what_a_real_kafka_4_4_0_lists() {
    let pair = pairs().into_iter().find(|pair| pair.name == "18-ApiVersions-v4").unwrap();
    let (_, body) = decode_response_header(ApiKey::API_VERSIONS, 4, pair.response).unwrap();
    let kafka: msg::ApiVersionsResponse = decode(body, 4, &Limits::CLIENT).unwrap();
    for ours in api::listed(None) {
        let theirs = kafka.api_keys.iter().find(|range| range.api_key == ours.api_key.get()).unwrap();
        assert_eq!(ours.min, theirs.min_version, "{ours:?}");
        assert!(ours.max <= theirs.max_version, "{ours:?}");
    }
    let own = api::listed(Some("weir")).filter(|range| range.api_key.get() >= 30_000);
    assert_eq!(own.count(), 6);
    assert!(kafka.api_keys.iter().all(|range| range.api_key < 30_000));
}

#[test]
fn a_cut_frame_is_an_error_at_every_byte() {
    for pair in pairs() {
        let (header, body) = RequestHeader::decode_any(pair.request).unwrap();
        let version = header.api_version;
        for cut in 0..body.len() {
            let cut = body.slice(..cut);
            match header.api_key {
                ApiKey::PRODUCE => assert!(decode::<ProduceRequest>(cut, version, &Limits::SERVER).is_err()),
                ApiKey::FETCH => assert!(decode::<FetchRequest>(cut, version, &Limits::SERVER).is_err()),
                ApiKey::METADATA => {
                    assert!(decode::<msg::MetadataRequest>(cut, version, &Limits::SERVER).is_err());
                }
                _ => {}
            }
        }
        let (_, body) = decode_response_header(header.api_key, version, pair.response).unwrap();
        for cut in 0..body.len() {
            let cut = body.slice(..cut);
            match header.api_key {
                ApiKey::PRODUCE => {
                    let response =
                        decode::<<ProduceRequest as Request>::Response>(cut, version, &Limits::CLIENT);
                    assert!(response.is_err());
                }
                ApiKey::FETCH => {
                    let response =
                        decode::<<FetchRequest as Request>::Response>(cut, version, &Limits::CLIENT);
                    assert!(response.is_err());
                }
                _ => {}
            }
        }
    }
}
