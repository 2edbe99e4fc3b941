//! InitProducerId: ids that no cluster mirrored here has handed out (law B12).

use weir_wire::ErrorCode;
use weir_wire::msg::{InitProducerIdRequest, InitProducerIdResponse};

use super::Call;
use crate::shard::describe;

pub(super) async fn handle(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse {
    let refused = |code: ErrorCode| {
        let mut response = InitProducerIdResponse::default();
        response.error_code = code.get();
        (response.producer_id, response.producer_epoch) = (-1, -1);
        response
    };
    match request.transactional_id {
        Some(id) if id.as_str().is_empty() => return refused(ErrorCode::INVALID_REQUEST),
        // Transactions have no coordinator yet: retriable, as while one is being elected.
        Some(_) => return refused(ErrorCode::COORDINATOR_NOT_AVAILABLE),
        None => {}
    }
    match call.node.metadata().next_producer_id().await {
        Ok(id) => {
            let mut response = InitProducerIdResponse::default();
            response.producer_id = id.get();
            response.producer_epoch = 0;
            response
        }
        Err(error) => {
            tracing::error!(error = describe(&error), "no producer id");
            // Some of the alternatives are fatal to older clients.
            refused(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS)
        }
    }
}
