//! DeleteClusterMirror (104 in KIP-1279).

use weir_wire::kip1279::{DeleteClusterMirrorRequest, DeleteClusterMirrorResponse};

use super::{Call, text};

pub(super) async fn handle(call: Call, request: DeleteClusterMirrorRequest) -> DeleteClusterMirrorResponse {
    let mut response = DeleteClusterMirrorResponse::default();
    if let Err(error) = call.mirrors.delete(&request.mirror_name).await {
        response.error_code = error.code();
        response.error_message = Some(text(&error.to_string()));
    }
    response
}
