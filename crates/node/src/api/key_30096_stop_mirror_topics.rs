//! StopMirrorTopics (96 in KIP-1279).

use weir_wire::kip1279::{StopMirrorTopicsRequest, StopMirrorTopicsResponse};

use super::key_30095_start_mirror_topics::topic_results;
use super::{Call, text};
use crate::mirror_host::MirrorError;

pub(super) async fn handle(call: Call, request: StopMirrorTopicsRequest) -> StopMirrorTopicsResponse {
    let names = request.topics.iter().map(|topic| topic.topic_name.to_string());
    let patterns: Vec<String> =
        names.chain(request.patterns.iter().map(|pattern| pattern.to_string())).collect();
    let stopped = if request.dry_run {
        Err(MirrorError::NotInThisVersion { what: "a dry run of a stop" })
    } else {
        call.mirrors.stop_topics(&request.mirror_name, &patterns, request.accept_gap).await
    };
    let mut response = StopMirrorTopicsResponse::default();
    match stopped {
        Ok(results) => response.topics = topic_results(results),
        Err(error) => {
            response.error_code = error.code();
            response.error_message = Some(text(&error.to_string()));
        }
    }
    response
}
