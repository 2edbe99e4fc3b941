//! ListClusterMirrors (98 in KIP-1279).

use weir_wire::kip1279::{ListClusterMirrorsRequest, ListClusterMirrorsResponse, ListedMirror};

use super::{Call, text};

pub(super) async fn handle(call: Call, request: ListClusterMirrorsRequest) -> ListClusterMirrorsResponse {
    let listed = call.mirrors.list().into_iter().map(|mirror| ListedMirror {
        mirror_name: text(&mirror.name),
        source_bootstrap: text(&mirror.source_bootstrap),
        source_cluster_id: text(&mirror.source_cluster_id.unwrap_or_default()),
        topic_count: i32::try_from(mirror.topics.len()).unwrap_or(i32::MAX),
        topic_names: request
            .include_topic_names
            .then(|| mirror.topics.keys().map(|topic| text(topic)).collect()),
    });
    ListClusterMirrorsResponse { mirrors: listed.collect(), ..ListClusterMirrorsResponse::default() }
}
