//! Bytes that an enemy chose: no panic, no hang, no memory beyond a bound.

use std::sync::OnceLock;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use weir_wire::fetch::{FetchRequest, FetchResponse};
use weir_wire::produce::{ProduceRequest, ProduceResponse};
use weir_wire::{ApiKey, DecodeError, Limits, Message, RequestHeader, decode, kip1279, msg};

use crate::golden;

static PAIRS: OnceLock<Vec<golden::Pair>> = OnceLock::new();

type Try = fn(Bytes, i16) -> Option<DecodeError>;

fn attempt<M: Message>(body: Bytes, version: i16) -> Option<DecodeError> {
    decode::<M>(body, version, &Limits::SERVER).err()
}

/// Every message that a server of ours reads, and every answer that a client of ours reads.
const MESSAGES: &[(&str, (i16, i16), Try)] = &{
    macro_rules! messages {
        ($($message:ty),* $(,)?) => {
            [$((<$message as Message>::NAME, <$message as Message>::VERSIONS, attempt::<$message> as Try),)*]
        };
    }
    messages![
        ProduceRequest,
        ProduceResponse,
        FetchRequest,
        FetchResponse,
        msg::ListOffsetsRequest,
        msg::ListOffsetsResponse,
        msg::MetadataRequest,
        msg::MetadataResponse,
        msg::OffsetFetchRequest,
        msg::OffsetFetchResponse,
        msg::FindCoordinatorRequest,
        msg::FindCoordinatorResponse,
        msg::ApiVersionsRequest,
        msg::ApiVersionsResponse,
        msg::CreateTopicsRequest,
        msg::CreateTopicsResponse,
        msg::InitProducerIdRequest,
        msg::InitProducerIdResponse,
        msg::OffsetForLeaderEpochRequest,
        msg::OffsetForLeaderEpochResponse,
        msg::DescribeConfigsRequest,
        msg::DescribeConfigsResponse,
        msg::DescribeClusterRequest,
        msg::DescribeClusterResponse,
        kip1279::CreateClusterMirrorRequest,
        kip1279::StartMirrorTopicsRequest,
        kip1279::StopMirrorTopicsRequest,
        kip1279::ListClusterMirrorsRequest,
        kip1279::ListClusterMirrorsResponse,
        kip1279::DescribeClusterMirrorsRequest,
        kip1279::DescribeClusterMirrorsResponse,
        kip1279::DeleteClusterMirrorRequest,
    ]
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn no_bytes_make_a_message_panic(bytes in vec(any::<u8>(), 0..300)) {
        let bytes = Bytes::from(bytes);
        for (_, (min, max), attempt) in MESSAGES {
            for version in [*min, *max, min.midpoint(*max)] {
                attempt(bytes.clone(), version);
            }
        }
        let _ = RequestHeader::decode(bytes.clone());
        let _ = RequestHeader::decode_any(bytes);
    }

    #[test]
    fn a_golden_frame_with_some_bytes_changed_makes_no_message_panic(
        which in any::<prop::sample::Index>(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let pairs = PAIRS.get_or_init(golden::pairs);
        let pair = &pairs[which.index(pairs.len())];
        for frame in [&pair.request, &pair.response] {
            let mut bytes = frame.to_vec();
            for (at, byte) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            let bytes = Bytes::from(bytes);
            let Ok((header, _)) = RequestHeader::decode_any(pair.request.clone()) else { continue };
            for skip in [0, 4, 5] {
                let body = bytes.slice(skip.min(bytes.len())..);
                for (_, (min, max), attempt) in MESSAGES {
                    attempt(body.clone(), header.api_version.clamp(*min, *max));
                }
            }
            let _ = RequestHeader::decode_any(bytes);
        }
    }
}

#[test]
fn a_count_of_two_thousand_million_costs_nothing() {
    for claim in [
        &[0x7f, 0xff, 0xff, 0xff][..],
        // The same as a compact count, and behind some plausible fields.
        &[0xff, 0xff, 0xff, 0xff, 0x0f],
        &[0, 0xff, 0xff, 0xff, 0xff, 0x0f],
        &[0, 0, 0xff, 0xff, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff],
        &[0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff],
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff],
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff],
    ] {
        let claim = Bytes::from_static(claim);
        for (name, (min, max), attempt) in MESSAGES {
            for version in *min..=*max {
                let body = claim.clone();
                let used = allocation_counter::measure(|| {
                    attempt(body, version);
                });
                assert!(used.bytes_max < 8192, "{name} {version} took {} bytes", used.bytes_max);
            }
        }
    }
}

/// The densest bodies there are: as many of the smallest elements as the body has room for.
#[test]
fn a_full_body_costs_a_bounded_multiple_of_its_size() {
    let size = 256 * 1024;
    for filler in [0_u8, 1, 2, 3, 0x7f] {
        for lead in
            [&[][..], &[0], &[0, 0], &[0xff, 0xff, 0, 0, 0, 0], &[0; 4], &[0; 17], &[0; 21], &[1, 0, 0]]
        {
            let mut body = lead.to_vec();
            for count in [
                &u32::try_from(size).unwrap().to_be_bytes()[..],
                // 131,071 and 65,535 elements as a compact count.
                &[0x80, 0x80, 0x08],
                &[0x80, 0x80, 0x04],
            ] {
                body.truncate(lead.len());
                body.extend_from_slice(count);
                body.resize(size, filler);
                let body = Bytes::from(body.clone());
                for (name, (_, max), attempt) in MESSAGES {
                    let body = body.clone();
                    let used = allocation_counter::measure(|| {
                        attempt(body, *max);
                    });
                    let most = 150 * u64::try_from(size).unwrap();
                    assert!(used.bytes_max < most, "{name} took {} bytes", used.bytes_max);
                }
            }
        }
    }
}

#[test]
fn a_body_above_its_budget_is_refused_before_it_is_read() {
    let limits = Limits { max_message_bytes: 100, ..Limits::SERVER };
    let body = Bytes::from(vec![0; 101]);
    for error in [
        decode::<msg::MetadataRequest>(body.clone(), 12, &limits).unwrap_err(),
        decode::<kip1279::CreateClusterMirrorRequest>(body, 0, &limits).unwrap_err(),
    ] {
        assert!(matches!(error, DecodeError::TooLarge { size: 101, limit: 100, .. }), "{error}");
    }
}

#[test]
fn a_produce_request_may_be_as_large_as_its_frame() {
    let records = Bytes::from(vec![1; 20 << 20]);
    let mut frame = weir_wire::frame::FrameBuilder::new();
    let request = ProduceRequest {
        topics: vec![weir_wire::produce::ProduceTopic {
            name: "t".into(),
            partitions: vec![weir_wire::produce::ProducePartition { index: 0, records: Some(records) }],
            ..Default::default()
        }],
        ..Default::default()
    };
    request.encode(9, &mut frame).unwrap();
    let body = Bytes::from(frame.finish().unwrap().to_vec()).slice(4..);
    let address = body.as_ptr_range();
    let used = allocation_counter::measure(|| {
        let read: ProduceRequest = decode(body.clone(), 9, &Limits::SERVER).unwrap();
        let records = read.topics[0].partitions[0].records.as_ref().unwrap();
        assert_eq!(records.len(), 20 << 20);
        assert!(address.contains(&records.as_ptr()), "records are a slice of the frame");
    });
    assert!(used.bytes_max < 1024, "{}", used.bytes_max);
    assert_eq!(<ProduceRequest as weir_wire::Request>::API_KEY, ApiKey::PRODUCE);
}
