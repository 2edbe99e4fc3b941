//! FindCoordinator: this node for groups; nobody yet for transactions.

use weir_wire::msg::find_coordinator_response::Coordinator;
use weir_wire::msg::{FindCoordinatorRequest, FindCoordinatorResponse};
use weir_wire::{ErrorCode, StrBytes};

use super::{Call, text};

/// First version that asks for several keys at once.
const BATCHED: i16 = 4;
const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

pub(super) async fn handle(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse {
    let code = match request.key_type {
        GROUP => ErrorCode::NONE,
        TRANSACTION => ErrorCode::COORDINATOR_NOT_AVAILABLE,
        _ => ErrorCode::INVALID_REQUEST,
    };
    let mut response = FindCoordinatorResponse::default();
    if call.header.api_version >= BATCHED {
        for key in request.coordinator_keys {
            response.coordinators.push(coordinator(&call, key, code));
        }
        return response;
    }
    let found = coordinator(&call, StrBytes::default(), code);
    response.error_code = found.error_code;
    // Kafka: the name of the code, "NONE" among them, before keys were batched.
    if call.header.api_version >= 1 {
        response.error_message = code.name().map(text);
    }
    response.node_id = found.node_id;
    response.host = found.host;
    response.port = found.port;
    response
}

fn coordinator(call: &Call, key: StrBytes, code: ErrorCode) -> Coordinator {
    let mut found = Coordinator::default();
    found.key = key;
    found.error_code = code.get();
    found.error_message = Some(text(""));
    if code.is_none() {
        let address = call.node.advertised();
        found.node_id = call.node.metadata().node_id();
        found.host = text(&address.host);
        found.port = i32::from(address.port);
    } else {
        (found.node_id, found.port) = (-1, -1);
    }
    found
}
