//! The client against peers that misbehave, over real sockets.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use weir_wire::client::{CallOptions, ClientConfig, ClientError, Connection};
use weir_wire::fetch::{FetchRequest, FetchResponse};
use weir_wire::frame::{FrameError, FrameReader};
use weir_wire::{ApiKey, ErrorCode, Limits, RequestHeader, StrBytes, decode, header, kip1279, msg};

fn config() -> ClientConfig {
    ClientConfig {
        client_id: "test".to_owned(),
        connect_timeout: Duration::from_millis(500),
        request_timeout: Duration::from_millis(200),
        limits: Limits { max_frame_bytes: 1 << 20, ..Limits::CLIENT },
    }
}

/// A broker of one connection at an address of its own.
async fn broker<F, Fut>(serve: F) -> String
where
    F: FnOnce(TcpStream) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        serve(stream).await;
    });
    address
}

async fn next_request(reader: &mut FrameReader<TcpStream>) -> (RequestHeader, Bytes) {
    RequestHeader::decode_any(reader.next().await.unwrap().unwrap()).unwrap()
}

fn versions(ranges: &[(i16, i16, i16)]) -> msg::ApiVersionsResponse {
    let mut response = msg::ApiVersionsResponse::default();
    for (api_key, min, max) in ranges {
        let mut range = msg::api_versions_response::ApiVersion::default();
        range.api_key = *api_key;
        range.min_version = *min;
        range.max_version = *max;
        response.api_keys.push(range);
    }
    response
}

/// Answers ApiVersions as it should be, then gives the stream back.
async fn negotiated(stream: TcpStream, ranges: &[(i16, i16, i16)]) -> FrameReader<TcpStream> {
    let mut reader = FrameReader::new(stream, 1 << 20);
    let (header, body) = next_request(&mut reader).await;
    assert_eq!(header.api_key, ApiKey::API_VERSIONS);
    let request: msg::ApiVersionsRequest = decode(body, header.api_version, &Limits::SERVER).unwrap();
    assert_eq!(&*request.client_software_name, "weir");
    assert_eq!(header.client_id.as_deref(), Some("test"));
    let frame = header.respond(&versions(ranges)).unwrap();
    frame.write_to(reader.stream_mut()).await.unwrap();
    reader
}

const METADATA: &[(i16, i16, i16)] = &[(3, 0, 12), (18, 0, 4)];

async fn metadata_against<F, Fut>(answer: F) -> (ClientError, Connection)
where
    F: FnOnce(FrameReader<TcpStream>, RequestHeader) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send,
{
    let address = broker(|stream| async {
        let mut reader = negotiated(stream, METADATA).await;
        let (header, _) = next_request(&mut reader).await;
        answer(reader, header).await;
    })
    .await;
    let mut connection = Connection::connect(&[address], &config()).await.unwrap();
    let error = connection.call(&msg::MetadataRequest::default()).await.unwrap_err();
    assert!(error.to_string().contains(connection.peer()), "{error}");
    assert!(error.to_string().contains("Metadata"), "{error}");
    (error, connection)
}

#[track_caller]
fn assert_closed(connection: &Connection) {
    assert!(!connection.is_usable());
}

#[tokio::test]
async fn the_newest_version_that_both_sides_know_is_used() {
    let address = broker(|stream| async {
        let mut reader = negotiated(stream, &[(1, 4, 17), (3, 0, 12)]).await;
        let (header, body) = next_request(&mut reader).await;
        assert_eq!((header.api_key, header.api_version), (ApiKey::FETCH, 17));
        let request: FetchRequest = decode(body, 17, &Limits::SERVER).unwrap();
        assert_eq!(request.max_wait_ms, 5);
        let response = FetchResponse { throttle_time_ms: 3, ..Default::default() };
        header.respond(&response).unwrap().write_to(reader.stream_mut()).await.unwrap();
        let (header, _) = next_request(&mut reader).await;
        assert_eq!(header.api_version, 12);
        header.respond(&response).unwrap().write_to(reader.stream_mut()).await.unwrap();
    })
    .await;
    let mut connection = Connection::connect(&[address], &config()).await.unwrap();
    assert_eq!(connection.served(ApiKey::FETCH).unwrap().max, 17);
    let request = FetchRequest { max_wait_ms: 5, ..Default::default() };
    let response = connection.call(&request).await.unwrap();
    assert_eq!(response.throttle_time_ms, 3);
    let options = CallOptions { max_version: 12, ..Default::default() };
    let (_, version) = connection.call_with(&request, &options).await.unwrap();
    assert_eq!(version, 12);
}

#[tokio::test]
async fn an_older_broker_is_asked_again_in_the_version_it_names() {
    for named in [true, false] {
        let address = broker(move |stream| async move {
            let mut reader = FrameReader::new(stream, 1 << 20);
            let (first, _) = next_request(&mut reader).await;
            let mut refusal = if named { versions(&[(18, 0, 2)]) } else { versions(&[]) };
            refusal.error_code = ErrorCode::UNSUPPORTED_VERSION.get();
            let frame =
                header::encode_response(ApiKey::API_VERSIONS, 0, first.correlation_id, &refusal).unwrap();
            frame.write_to(reader.stream_mut()).await.unwrap();
            let (second, _) = next_request(&mut reader).await;
            assert_eq!(second.api_version, if named { 2 } else { 0 });
            let frame = second.respond(&versions(&[(3, 0, 7)])).unwrap();
            frame.write_to(reader.stream_mut()).await.unwrap();
        })
        .await;
        let connection = Connection::connect(&[address], &config()).await.unwrap();
        assert_eq!(connection.version_for::<msg::MetadataRequest>().unwrap(), 7);
    }
}

#[tokio::test]
async fn a_broker_that_refuses_to_say_its_versions_is_no_connection() {
    let address = broker(|stream| async {
        let mut reader = FrameReader::new(stream, 1 << 20);
        let (header, _) = next_request(&mut reader).await;
        let mut refusal = versions(&[]);
        refusal.error_code = ErrorCode::CLUSTER_AUTHORIZATION_FAILED.get();
        header.respond(&refusal).unwrap().write_to(reader.stream_mut()).await.unwrap();
    })
    .await;
    let error = Connection::connect(&[address], &config()).await.unwrap_err();
    assert!(
        error.to_string().ends_with("answered ApiVersions with CLUSTER_AUTHORIZATION_FAILED (31)"),
        "{error}"
    );
}

#[tokio::test]
async fn what_the_broker_does_not_serve_is_said_without_asking_it() {
    let address = broker(|stream| async {
        let mut reader = negotiated(stream, &[(1, 0, 3), (22, 0, 6)]).await;
        assert!(reader.next().await.unwrap().is_none(), "nothing is sent");
    })
    .await;
    let mut connection = Connection::connect(&[address], &config()).await.unwrap();
    let error = connection.call(&FetchRequest::default()).await.unwrap_err();
    assert!(error.to_string().ends_with("serves Fetch versions 0 to 3, we need 4 to 18"), "{error}");
    let error = connection.call(&kip1279::ListClusterMirrorsRequest::default()).await.unwrap_err();
    assert!(matches!(error, ClientError::NotServed { .. }), "{error}");
    assert!(error.to_string().contains("ListClusterMirrors"), "{error}");
    assert!(connection.is_usable());
    // InitProducerId 6 is unstable in Kafka.
    assert_eq!(connection.version_for::<msg::InitProducerIdRequest>().unwrap(), 5);
}

#[tokio::test]
async fn an_answer_to_another_request_closes_the_connection() {
    let (error, mut connection) = metadata_against(|mut reader, header| async move {
        let other = RequestHeader { correlation_id: header.correlation_id + 1, ..header };
        let frame = other.respond(&msg::MetadataResponse::default()).unwrap();
        frame.write_to(reader.stream_mut()).await.unwrap();
    })
    .await;
    assert!(matches!(error, ClientError::Correlation { expected: 1, found: 2, .. }), "{error}");
    assert_closed(&connection);
    let error = connection.call(&msg::MetadataRequest::default()).await.unwrap_err();
    assert!(matches!(error, ClientError::Poisoned { .. }), "{error}");
}

#[tokio::test]
async fn an_oversized_or_negative_frame_closes_the_connection() {
    for (length, oversized) in [(i32::MAX, true), (1 << 20 | 1, true), (-1, false)] {
        let (error, connection) = metadata_against(move |mut reader, _| async move {
            reader.stream_mut().write_all(&i32::to_be_bytes(length)).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        })
        .await;
        match error {
            ClientError::Stream { source: FrameError::TooLarge { limit, .. }, .. } => {
                assert!(oversized && limit == 1 << 20);
            }
            ClientError::Stream { source: FrameError::Negative { length: -1 }, .. } => assert!(!oversized),
            other => panic!("{other}"),
        }
        assert_closed(&connection);
    }
}

#[tokio::test]
async fn a_response_that_ends_early_closes_the_connection() {
    // Within the frame: the peer goes away.
    let (error, connection) = metadata_against(|mut reader, _| async move {
        reader.stream_mut().write_all(&[0, 0, 0, 100, 1, 2, 3]).await.unwrap();
    })
    .await;
    let ClientError::Stream { source: FrameError::Truncated { have: 7, need: 104 }, .. } = error else {
        panic!("{error}")
    };
    assert_closed(&connection);

    // A whole frame with half a body, and one with a body and more.
    for (cut, more) in [(3, 0), (0, 1)] {
        let (error, connection) = metadata_against(move |mut reader, header| async move {
            let frame = header.respond(&msg::MetadataResponse::default()).unwrap().to_vec();
            let mut body = frame[4..frame.len() - cut].to_vec();
            body.resize(body.len() + more, 0);
            let length = i32::try_from(body.len()).unwrap();
            reader.stream_mut().write_all(&length.to_be_bytes()).await.unwrap();
            reader.stream_mut().write_all(&body).await.unwrap();
        })
        .await;
        assert!(matches!(error, ClientError::Response { version: 12, .. }), "{error}");
        assert_closed(&connection);
    }

    // A frame that is too short for a header.
    let (error, connection) = metadata_against(|mut reader, _| async move {
        reader.stream_mut().write_all(&[0, 0, 0, 3, 0, 0, 0]).await.unwrap();
    })
    .await;
    assert!(matches!(error, ClientError::Response { .. }), "{error}");
    assert_closed(&connection);
}

#[tokio::test]
async fn a_peer_that_hangs_up_is_told_apart_from_one_that_is_silent() {
    let (error, connection) = metadata_against(|_, _| async {}).await;
    assert!(matches!(error, ClientError::Closed { .. }), "{error}");
    assert_closed(&connection);

    let (error, connection) = metadata_against(|mut reader, _| async move {
        let mut rest = [0; 1];
        let _ = reader.stream_mut().read(&mut rest).await;
    })
    .await;
    assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
    assert!(error.to_string().ends_with("did not answer Metadata within 200 ms"), "{error}");
    assert_closed(&connection);
}

#[tokio::test]
async fn a_peer_that_answers_byte_by_byte_does_not_outlast_the_timeout() {
    let (error, connection) = metadata_against(|mut reader, header| async move {
        let frame = header.respond(&msg::MetadataResponse::default()).unwrap().to_vec();
        for byte in frame {
            if reader.stream_mut().write_all(&[byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
    assert_closed(&connection);
}

#[tokio::test]
async fn a_cancelled_call_poisons_the_connection() {
    let address = broker(|stream| async {
        let mut reader = negotiated(stream, METADATA).await;
        let _ = next_request(&mut reader).await;
        let _ = reader.next().await;
    })
    .await;
    let mut connection = Connection::connect(&[address], &config()).await.unwrap();
    let request = msg::MetadataRequest::default();
    let cancelled = tokio::time::timeout(Duration::from_millis(20), connection.call(&request)).await;
    assert!(cancelled.is_err());
    assert!(!connection.is_usable());
    let error = connection.call(&request).await.unwrap_err();
    assert!(matches!(error, ClientError::Poisoned { .. }), "{error}");
}

#[tokio::test]
async fn the_first_address_that_answers_is_used_and_all_are_named_when_none_does() {
    let refused = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_address = silent.local_addr().unwrap().to_string();
    let address = broker(|stream| async {
        let mut reader = negotiated(stream, METADATA).await;
        let _ = reader.next().await;
    })
    .await;
    let list = [refused.clone(), silent_address.clone(), address.clone()];
    let connection = Connection::connect(&list, &config()).await.unwrap();
    assert_eq!(connection.peer(), address);

    let error = Connection::connect(&[&refused], &config()).await.unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }), "{error}");
    let error = Connection::connect(&[&refused, &silent_address], &config()).await.unwrap_err();
    assert!(error.to_string().contains(&refused) && error.to_string().contains(&silent_address), "{error}");
    let error = Connection::connect::<&str>(&[], &config()).await.unwrap_err();
    assert!(matches!(error, ClientError::NoAddress), "{error}");
    for bad in ["host", "host:", ":9092", "host:99999"] {
        let error = Connection::connect(&[bad], &config()).await.unwrap_err();
        assert!(matches!(error, ClientError::BadAddress { .. }), "{bad}: {error}");
    }
}

#[tokio::test]
async fn a_request_that_its_version_cannot_say_leaves_the_connection_usable() {
    let address = broker(|stream| async {
        let mut reader = negotiated(stream, &[(1, 4, 6), (3, 0, 12)]).await;
        let (header, _) = next_request(&mut reader).await;
        header
            .respond(&msg::MetadataResponse::default())
            .unwrap()
            .write_to(reader.stream_mut())
            .await
            .unwrap();
    })
    .await;
    let mut connection = Connection::connect(&[address], &config()).await.unwrap();
    let request = FetchRequest {
        forgotten_topics: vec![weir_wire::fetch::ForgottenTopic {
            name: StrBytes::from("t"),
            ..Default::default()
        }],
        ..Default::default()
    };
    let error = connection.call(&request).await.unwrap_err();
    assert!(matches!(error, ClientError::Request { version: 6, .. }), "{error}");
    assert!(connection.is_usable());
    connection.call(&msg::MetadataRequest::default()).await.unwrap();
}
