//! The oracles of the fuzz targets over the network's bytes.
//!
//! A target in `fuzz/` is three lines over one function here; the same functions run over mutated
//! golden frames in an ordinary test. Each says more than "did not panic": what is read can be
//! written, what was written is read as the same, and a frame is taken as it claims.

#![allow(clippy::missing_panics_doc, reason = "an oracle fails by panicking")]

use bytes::{Bytes, BytesMut};

use crate::fetch::FetchRequest;
use crate::frame::{LENGTH_SIZE, split_frame};
use crate::message::{Message, Request, decode, encode};
use crate::produce::ProduceRequest;
use crate::{ApiKey, Limits, RequestHeader, kip1279, msg};

/// One oracle: it panics if this crate is wrong about these bytes.
pub type Oracle = fn(&[u8]);

/// Every target and its oracle, by name in ascending order.
pub const TARGETS: &[(&str, Oracle)] =
    &[("frame", check_frame), ("request", check_request), ("response", check_response)];

const LIMITS: Limits = Limits { max_frame_bytes: 1 << 20, ..Limits::SERVER };

/// What [`split_frame`] says of any bytes.
pub fn check_frame(data: &[u8]) {
    let mut buffer = BytesMut::from(data);
    match split_frame(&mut buffer, LIMITS.max_frame_bytes) {
        Ok(Some(frame)) => {
            assert!(frame.len() <= LIMITS.max_frame_bytes);
            let end = LENGTH_SIZE + frame.len();
            assert_eq!(frame, data[LENGTH_SIZE..end]);
            assert_eq!(buffer, data[end..]);
        }
        Ok(None) | Err(_) => assert_eq!(buffer, data, "what is not taken stays"),
    }
}

/// What a server reads: any bytes as a request frame, without its length.
pub fn check_request(data: &[u8]) {
    let frame = Bytes::copy_from_slice(data);
    let Ok((header, body)) = RequestHeader::decode(frame) else { return };
    let again = header.encode().and_then(crate::frame::FrameBuilder::finish);
    let again = Bytes::from(again.expect("what was read can be written").to_vec_without_length());
    let (same, rest) = RequestHeader::decode(again).expect("what was written can be read");
    assert_eq!((&same, rest.len()), (&header, 0));
    by_key(header.api_key, header.api_version, body, Side::Request);
}

/// What a client reads: API key and version, then any bytes as that response's body.
pub fn check_response(data: &[u8]) {
    let Some((&[k0, k1, version], body)) = data.split_first_chunk::<3>() else { return };
    let api_key = ApiKey::new(i16::from_be_bytes([k0, k1]));
    by_key(api_key, i16::from(version), Bytes::copy_from_slice(body), Side::Response);
}

#[derive(Clone, Copy)]
enum Side {
    Request,
    Response,
}

/// Reads a body twice, with what it was written as in between. The bytes may differ (fields that
/// nobody knows are skipped, a varint may be longer than it must), the meaning may not.
fn round_trip<M: Message>(body: Bytes, version: i16) {
    let Ok(first) = decode::<M>(body, version, &LIMITS) else { return };
    // A legal message may not be writable when it uses what its version has no word for.
    let Ok(bytes) = encode(&first, version) else { return };
    let second = decode::<M>(bytes.clone(), version, &LIMITS).expect("what was written can be read");
    assert_eq!(encode(&second, version).expect("and written again"), bytes);
}

fn either<R: Request>(version: i16, body: Bytes, side: Side) {
    match side {
        Side::Request => round_trip::<R>(body, version),
        Side::Response => round_trip::<R::Response>(body, version),
    }
}

macro_rules! dispatch {
    ($api_key:expr, $version:expr, $body:expr, $side:expr, $($request:ty),* $(,)?) => {
        match $api_key {
            $(api_key if api_key == <$request as Request>::API_KEY => {
                either::<$request>($version, $body, $side);
            })*
            _ => {}
        }
    };
}

fn by_key(api_key: ApiKey, version: i16, body: Bytes, side: Side) {
    dispatch!(
        api_key,
        version,
        body,
        side,
        ProduceRequest,
        FetchRequest,
        msg::ListOffsetsRequest,
        msg::MetadataRequest,
        msg::OffsetFetchRequest,
        msg::FindCoordinatorRequest,
        msg::ApiVersionsRequest,
        msg::CreateTopicsRequest,
        msg::InitProducerIdRequest,
        msg::OffsetForLeaderEpochRequest,
        msg::DescribeConfigsRequest,
        msg::DescribeClusterRequest,
        kip1279::CreateClusterMirrorRequest,
        kip1279::StartMirrorTopicsRequest,
        kip1279::StopMirrorTopicsRequest,
        kip1279::ListClusterMirrorsRequest,
        kip1279::DescribeClusterMirrorsRequest,
        kip1279::PauseMirrorTopicsRequest,
        kip1279::ResumeMirrorTopicsRequest,
        kip1279::DeleteClusterMirrorRequest,
        kip1279::RecoverMirrorTopicsRequest,
    );
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;
    use crate::header::response_header_version;

    type Inputs = [(Oracle, Vec<u8>); 3];

    /// For each golden pair, what the three oracles take.
    fn seeds() -> &'static [Inputs] {
        static SEEDS: OnceLock<Vec<Inputs>> = OnceLock::new();
        SEEDS.get_or_init(|| {
            let text = include_str!("../testdata/requests.txt");
            text.lines()
                .map(|line| {
                    let mut words = line.split(' ').skip(1).map(|hex| -> Vec<u8> {
                        (0..hex.len())
                            .step_by(2)
                            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
                            .collect()
                    });
                    let (request, response) = (words.next().unwrap(), words.next().unwrap());
                    let start = crate::header::HeaderStart::decode(&request).unwrap();
                    let header = response_header_version(start.api_key, start.api_version).unwrap();
                    let body = 4 + usize::try_from(header).unwrap();
                    let response = [&request[..2], &request[3..4], &response[body..]].concat();
                    let length = i32::try_from(request.len()).unwrap().to_be_bytes();
                    let frame = [&length[..], &request].concat();
                    [
                        (check_request as Oracle, request),
                        (check_response as Oracle, response),
                        (check_frame as Oracle, frame),
                    ]
                })
                .collect()
        })
    }

    #[test]
    fn the_targets_are_sorted_and_hold_for_every_golden_frame() {
        assert!(TARGETS.is_sorted_by(|a, b| a.0 < b.0));
        for (oracle, input) in seeds().iter().flatten() {
            oracle(input);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        #[test]
        fn the_oracles_hold_for_golden_frames_with_some_bytes_changed(
            which in any::<Index>(),
            changes in vec((any::<Index>(), any::<u8>()), 0..4),
            cut in any::<Index>(),
        ) {
            for (oracle, input) in &seeds()[which.index(seeds().len())] {
                let mut input = input.clone();
                for (at, byte) in &changes {
                    let at = at.index(input.len());
                    input[at] = *byte;
                }
                oracle(&input);
                oracle(&input[..cut.index(input.len())]);
            }
        }
    }
}
