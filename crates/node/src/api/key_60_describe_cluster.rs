//! DescribeCluster.

use weir_wire::ErrorCode;
use weir_wire::msg::describe_cluster_response::DescribeClusterBroker;
use weir_wire::msg::{DescribeClusterRequest, DescribeClusterResponse};

use super::key_03_metadata::CLUSTER_OPERATIONS;
use super::{Call, text};

/// Brokers; the other endpoint type is KRaft controllers.
const BROKERS: i8 = 1;

pub(super) async fn handle(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse {
    let mut response = DescribeClusterResponse::default();
    if call.header.api_version >= 1 && request.endpoint_type != BROKERS {
        response.error_code = ErrorCode::MISMATCHED_ENDPOINT_TYPE.get();
        response.error_message = Some(text("The request was sent to an endpoint of type BROKER"));
        return response;
    }
    let address = call.node.advertised();
    let node_id = call.node.metadata().node_id();
    response.cluster_id = text(call.node.metadata().cluster_id());
    response.controller_id = node_id;
    let mut broker = DescribeClusterBroker::default();
    broker.broker_id = node_id;
    broker.host = text(&address.host);
    broker.port = i32::from(address.port);
    response.brokers.push(broker);
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = CLUSTER_OPERATIONS;
    }
    response
}
