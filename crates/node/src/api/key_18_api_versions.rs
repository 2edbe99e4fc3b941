//! ApiVersions: what is served, and whether this is the cluster that the client means.

use weir_wire::api::{self, ApiRange};
use weir_wire::header::{HeaderStart, encode_response};
use weir_wire::msg::api_versions_response::ApiVersion;
use weir_wire::msg::{ApiVersionsRequest, ApiVersionsResponse};
use weir_wire::{ApiKey, ErrorCode};

use super::{Call, Reply};

/// First version in which the client says what it is.
const WITH_SOFTWARE: i16 = 3;
/// First version in which the client says which cluster and node it means (KIP-1242).
const WITH_IDENTITY: i16 = 5;

pub(super) async fn handle(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse {
    let version = call.header.api_version;
    let mut response = ApiVersionsResponse::default();
    if version >= WITH_SOFTWARE {
        let (name, software_version) =
            (request.client_software_name.as_str(), request.client_software_version.as_str());
        if !is_software_text(name) || !is_software_text(software_version) {
            response.error_code = ErrorCode::INVALID_REQUEST.get();
            return response;
        }
        let _ = call.session.software_name.set(name.to_owned());
    }
    if version >= WITH_IDENTITY {
        let metadata = call.node.metadata();
        let other_cluster =
            request.cluster_id.as_ref().is_some_and(|id| id.as_str() != metadata.cluster_id());
        let other_node = request.node_id >= 0 && request.node_id != metadata.node_id();
        if other_cluster || other_node {
            response.error_code = ErrorCode::REBOOTSTRAP_REQUIRED.get();
            return response;
        }
    }
    let name = call.session.software_name.get().map(String::as_str);
    response.api_keys = api::listed(name).map(listed).collect();
    // No feature is finalised here: clients then use what needs none.
    response.finalized_features_epoch = -1;
    response
}

fn listed(range: ApiRange) -> ApiVersion {
    let mut answer = ApiVersion::default();
    answer.api_key = range.api_key.get();
    answer.min_version = range.min;
    answer.max_version = range.max;
    answer
}

/// The answer to a version of ApiVersions that is not known: version 0's, with the code and the
/// list, from which the client picks one that is (KIP-511).
pub fn unsupported_version(start: HeaderStart) -> Reply {
    let mut response = ApiVersionsResponse::default();
    response.error_code = ErrorCode::UNSUPPORTED_VERSION.get();
    response.api_keys = api::listed(None).map(listed).collect();
    match encode_response(ApiKey::API_VERSIONS, 0, start.correlation_id, &response) {
        Ok(frame) => Reply::Frame(frame),
        Err(error) => Reply::Close(error.to_string()),
    }
}

/// Letters and digits, with dashes and dots between them.
///
/// Kafka: `ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN`.
fn is_software_text(text: &str) -> bool {
    let is_end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    is_end(text.bytes().next())
        && is_end(text.bytes().next_back())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_names_are_judged_as_kafka_does() {
        for good in ["a", "apache-kafka-java", "4.4.0", "2.16.1-rdkafka-2.16.0"] {
            assert!(is_software_text(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a b", "a/b", "ü"] {
            assert!(!is_software_text(bad), "{bad}");
        }
    }
}
