//! StartMirrorTopics (95 in KIP-1279).

use weir_wire::kip1279::{MirrorTopicResult, StartMirrorTopicsRequest, StartMirrorTopicsResponse};

use super::{Call, text};
use crate::mirror_host::MirrorError;

/// What became of each topic.
pub(super) fn topic_results(results: Vec<(String, Result<(), MirrorError>)>) -> Vec<MirrorTopicResult> {
    let result = |(name, result): (String, Result<(), MirrorError>)| {
        let mut answer = MirrorTopicResult { name: text(&name), ..MirrorTopicResult::default() };
        if let Err(error) = result {
            answer.error_code = error.code();
            answer.error_message = Some(text(&error.to_string()));
        }
        answer
    };
    results.into_iter().map(result).collect()
}

pub(super) async fn handle(call: Call, request: StartMirrorTopicsRequest) -> StartMirrorTopicsResponse {
    let names = request.topics.iter().map(|topic| topic.topic_name.to_string());
    let patterns: Vec<String> =
        names.chain(request.include_patterns.iter().map(|pattern| pattern.to_string())).collect();
    let exclude: Vec<String> = request.exclude_patterns.iter().map(|pattern| pattern.to_string()).collect();
    let started = if request.dry_run || request.accept_cut >= 0 {
        Err(MirrorError::NotInThisVersion { what: "a dry run, or a cut, at the start of a topic" })
    } else {
        call.mirrors.start_topics(&request.mirror_name, &patterns, &exclude).await
    };
    let mut response = StartMirrorTopicsResponse::default();
    match started {
        Ok(results) => response.topics = topic_results(results),
        Err(error) => {
            response.error_code = error.code();
            response.error_message = Some(text(&error.to_string()));
        }
    }
    response
}
