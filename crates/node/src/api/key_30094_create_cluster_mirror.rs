//! CreateClusterMirror (94 in KIP-1279).

use weir_wire::kip1279::{CreateClusterMirrorRequest, CreateClusterMirrorResponse};

use super::{Call, text};

pub(super) async fn handle(call: Call, request: CreateClusterMirrorRequest) -> CreateClusterMirrorResponse {
    let configs = request
        .configs
        .into_iter()
        .map(|config| (config.name.to_string(), config.value.map(|value| value.to_string())));
    let mut response = CreateClusterMirrorResponse::default();
    if let Err(error) = call.mirrors.create(&request.mirror_name, configs).await {
        response.error_code = error.code();
        response.error_message = Some(text(&error.to_string()));
    }
    response
}
