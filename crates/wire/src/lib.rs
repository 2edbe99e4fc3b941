//! Kafka's protocol, both sides: frames, headers, messages, and a client's connection.
//!
//! What it does not do: it keeps no log and opens no file, answers no request, and decides nothing
//! about a mirror. A server takes frames with [`frame::FrameReader`], reads [`RequestHeader`], then
//! the body with [`decode`], and answers with [`RequestHeader::respond`]. A client uses
//! [`client::Connection`].
//!
//! Every byte here may be an enemy's: nothing allocates by a number that a peer sent, [`Limits`]
//! bound the rest, and no input panics. Produce and Fetch are decoded and encoded by hand, with
//! records as [`bytes::Bytes`] that are never copied; [`kip1279`] has the messages of Cluster
//! Mirroring under weir's own numbers; all other messages are `kafka-wire`'s, in [`msg`], behind the
//! same [`decode`].
//!
//! ```
//! use bytes::{Bytes, BytesMut};
//! use weir_wire::fetch::{FetchPartitionResponse, FetchResponse, FetchTopicResponse};
//! use weir_wire::{ApiKey, Limits, RequestHeader, StrBytes, decode, frame, header};
//!
//! // A server answers a fetch: the records go out as they are.
//! let request = RequestHeader {
//!     api_key: ApiKey::FETCH,
//!     api_version: 12,
//!     correlation_id: 7,
//!     client_id: Some(StrBytes::from("reader")),
//! };
//! let records = Bytes::from(vec![0; 1000]);
//! let response = FetchResponse {
//!     topics: vec![FetchTopicResponse {
//!         name: StrBytes::from("orders"),
//!         partitions: vec![FetchPartitionResponse {
//!             high_watermark: 10,
//!             records: Some(records.clone()),
//!             ..Default::default()
//!         }],
//!         ..Default::default()
//!     }],
//!     ..Default::default()
//! };
//! let frame = request.respond(&response)?;
//! assert_eq!(frame.parts()[1].as_ptr(), records.as_ptr());
//!
//! // The client reads what went over the wire.
//! let mut wire = BytesMut::from(&frame.to_vec()[..]);
//! let body = frame::split_frame(&mut wire, Limits::CLIENT.max_frame_bytes)?.unwrap();
//! let (correlation_id, body) = header::decode_response_header(ApiKey::FETCH, 12, body)?;
//! assert_eq!(correlation_id, 7);
//! assert_eq!(decode::<FetchResponse>(body, 12, &Limits::CLIENT)?, response);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Which versions weir serves, and why, is in [`api`].

#![forbid(unsafe_code)]

pub mod api;
pub mod client;
mod codec;
mod error;
pub mod error_code;
pub mod fetch;
pub mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod header;
pub mod kip1279;
mod limits;
mod message;
pub mod produce;

pub use api::{ApiKey, ApiRange};
pub use error::{DecodeError, EncodeError};
pub use error_code::ErrorCode;
pub use header::{HeaderError, RequestHeader};
pub use kafka_wire_core::{StrBytes, TaggedFields, Uuid};
pub use limits::Limits;
pub use message::{Message, Request, decode, encode, encode_request};

/// What weir calls itself in ApiVersions.
pub const SOFTWARE_NAME: &str = "weir";
/// The version it gives there.
pub const SOFTWARE_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Messages that `kafka-wire` brings: all but Produce and Fetch, which are in [`produce`] and
/// [`fetch`].
///
/// Each message's inner structures are in the module named after it, as
/// `msg::metadata_response::MetadataResponseTopic`. Read them with [`decode`] only. They are
/// non-exhaustive: make one with `default()` and set its fields.
///
/// Encoding fails when a field is set that the version cannot say, unless Kafka calls the field
/// ignorable. Of the responses that weir gives, these must stay at their defaults:
///
/// | field | in versions |
/// |---|---|
/// | `ListOffsetsPartitionResponse::leader_epoch` | below 4 |
/// | `MetadataResponse::cluster_authorized_operations` | other than 8 to 10 |
/// | `MetadataResponseTopic::topic_authorized_operations` | below 8 |
/// | `MetadataResponseTopic::name` must not be null | below 12 |
/// | `OffsetFetchResponse::topics` | above 7 |
/// | `OffsetFetchResponse::groups` | below 8 |
/// | `FindCoordinatorResponse::error_code`, `node_id`, `host`, `port` | above 3 |
/// | `FindCoordinatorResponse::coordinators` | below 4 |
/// | `DescribeClusterResponse::endpoint_type` | 0 |
/// | `DescribeClusterBroker::is_fenced` | below 2 |
pub mod msg {
    pub use kafka_wire::{
        AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse, AddRaftVoterRequest, AddRaftVoterResponse, AllocateProducerIdsRequest,
        AllocateProducerIdsResponse, AlterClientQuotasRequest, AlterClientQuotasResponse,
        AlterConfigsRequest, AlterConfigsResponse, AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse, AlterPartitionRequest, AlterPartitionResponse,
        AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsResponse, AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse,
        ApiVersionsRequest, ApiVersionsResponse, AssignReplicasToDirsRequest, AssignReplicasToDirsResponse,
        BeginQuorumEpochRequest, BeginQuorumEpochResponse, BrokerHeartbeatRequest, BrokerHeartbeatResponse,
        BrokerRegistrationRequest, BrokerRegistrationResponse, ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
        ControllerRegistrationRequest, ControllerRegistrationResponse, CreateAclsRequest, CreateAclsResponse,
        CreateDelegationTokenRequest, CreateDelegationTokenResponse, CreatePartitionsRequest,
        CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse, DeleteAclsRequest,
        DeleteAclsResponse, DeleteGroupsRequest, DeleteGroupsResponse, DeleteRecordsRequest,
        DeleteRecordsResponse, DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse,
        DeleteShareGroupStateRequest, DeleteShareGroupStateResponse, DeleteTopicsRequest,
        DeleteTopicsResponse, DescribeAclsRequest, DescribeAclsResponse, DescribeClientQuotasRequest,
        DescribeClientQuotasResponse, DescribeClusterRequest, DescribeClusterResponse,
        DescribeConfigsRequest, DescribeConfigsResponse, DescribeDelegationTokenRequest,
        DescribeDelegationTokenResponse, DescribeGroupsRequest, DescribeGroupsResponse,
        DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeProducersRequest, DescribeProducersResponse,
        DescribeQuorumRequest, DescribeQuorumResponse, DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsResponse, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
        DescribeTransactionsRequest, DescribeTransactionsResponse, DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse, ElectLeadersRequest, ElectLeadersResponse,
        EndQuorumEpochRequest, EndQuorumEpochResponse, EndTxnRequest, EndTxnResponse, EnvelopeRequest,
        EnvelopeResponse, ExpireDelegationTokenRequest, ExpireDelegationTokenResponse, FetchSnapshotRequest,
        FetchSnapshotResponse, FindCoordinatorRequest, FindCoordinatorResponse,
        GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse, HeartbeatRequest,
        HeartbeatResponse, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
        InitProducerIdRequest, InitProducerIdResponse, InitializeShareGroupStateRequest,
        InitializeShareGroupStateResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
        LeaveGroupResponse, ListConfigResourcesRequest, ListConfigResourcesResponse, ListGroupsRequest,
        ListGroupsResponse, ListOffsetsRequest, ListOffsetsResponse, ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse, ListTransactionsRequest, ListTransactionsResponse,
        MetadataRequest, MetadataResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest,
        OffsetDeleteResponse, OffsetFetchRequest, OffsetFetchResponse, OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse, PushTelemetryRequest, PushTelemetryResponse,
        ReadShareGroupStateRequest, ReadShareGroupStateResponse, ReadShareGroupStateSummaryRequest,
        ReadShareGroupStateSummaryResponse, RemoveRaftVoterRequest, RemoveRaftVoterResponse,
        RenewDelegationTokenRequest, RenewDelegationTokenResponse, SaslAuthenticateRequest,
        SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse, ShareAcknowledgeRequest,
        ShareAcknowledgeResponse, ShareFetchRequest, ShareFetchResponse, ShareGroupDescribeRequest,
        ShareGroupDescribeResponse, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse,
        StreamsGroupDescribeRequest, StreamsGroupDescribeResponse, StreamsGroupHeartbeatRequest,
        StreamsGroupHeartbeatResponse, StreamsGroupTopologyDescriptionUpdateRequest,
        StreamsGroupTopologyDescriptionUpdateResponse, SyncGroupRequest, SyncGroupResponse,
        TxnOffsetCommitRequest, TxnOffsetCommitResponse, UnregisterBrokerRequest, UnregisterBrokerResponse,
        UpdateFeaturesRequest, UpdateFeaturesResponse, UpdateRaftVoterRequest, UpdateRaftVoterResponse,
        VoteRequest, VoteResponse, WriteShareGroupStateRequest, WriteShareGroupStateResponse,
        WriteTxnMarkersRequest, WriteTxnMarkersResponse, add_offsets_to_txn_request,
        add_offsets_to_txn_response, add_partitions_to_txn_request, add_partitions_to_txn_response,
        add_raft_voter_request, add_raft_voter_response, allocate_producer_ids_request,
        allocate_producer_ids_response, alter_client_quotas_request, alter_client_quotas_response,
        alter_configs_request, alter_configs_response, alter_partition_reassignments_request,
        alter_partition_reassignments_response, alter_partition_request, alter_partition_response,
        alter_replica_log_dirs_request, alter_replica_log_dirs_response, alter_share_group_offsets_request,
        alter_share_group_offsets_response, alter_user_scram_credentials_request,
        alter_user_scram_credentials_response, api_versions_request, api_versions_response,
        assign_replicas_to_dirs_request, assign_replicas_to_dirs_response, begin_quorum_epoch_request,
        begin_quorum_epoch_response, broker_heartbeat_request, broker_heartbeat_response,
        broker_registration_request, broker_registration_response, consumer_group_describe_request,
        consumer_group_describe_response, consumer_group_heartbeat_request,
        consumer_group_heartbeat_response, controller_registration_request, controller_registration_response,
        create_acls_request, create_acls_response, create_delegation_token_request,
        create_delegation_token_response, create_partitions_request, create_partitions_response,
        create_topics_request, create_topics_response, delete_acls_request, delete_acls_response,
        delete_groups_request, delete_groups_response, delete_records_request, delete_records_response,
        delete_share_group_offsets_request, delete_share_group_offsets_response,
        delete_share_group_state_request, delete_share_group_state_response, delete_topics_request,
        delete_topics_response, describe_acls_request, describe_acls_response,
        describe_client_quotas_request, describe_client_quotas_response, describe_cluster_request,
        describe_cluster_response, describe_configs_request, describe_configs_response,
        describe_delegation_token_request, describe_delegation_token_response, describe_groups_request,
        describe_groups_response, describe_log_dirs_request, describe_log_dirs_response,
        describe_producers_request, describe_producers_response, describe_quorum_request,
        describe_quorum_response, describe_share_group_offsets_request,
        describe_share_group_offsets_response, describe_topic_partitions_request,
        describe_topic_partitions_response, describe_transactions_request, describe_transactions_response,
        describe_user_scram_credentials_request, describe_user_scram_credentials_response,
        elect_leaders_request, elect_leaders_response, end_quorum_epoch_request, end_quorum_epoch_response,
        end_txn_request, end_txn_response, envelope_request, envelope_response,
        expire_delegation_token_request, expire_delegation_token_response, fetch_snapshot_request,
        fetch_snapshot_response, find_coordinator_request, find_coordinator_response,
        get_telemetry_subscriptions_request, get_telemetry_subscriptions_response, heartbeat_request,
        heartbeat_response, incremental_alter_configs_request, incremental_alter_configs_response,
        init_producer_id_request, init_producer_id_response, initialize_share_group_state_request,
        initialize_share_group_state_response, join_group_request, join_group_response, leave_group_request,
        leave_group_response, list_config_resources_request, list_config_resources_response,
        list_groups_request, list_groups_response, list_offsets_request, list_offsets_response,
        list_partition_reassignments_request, list_partition_reassignments_response,
        list_transactions_request, list_transactions_response, metadata_request, metadata_response,
        offset_commit_request, offset_commit_response, offset_delete_request, offset_delete_response,
        offset_fetch_request, offset_fetch_response, offset_for_leader_epoch_request,
        offset_for_leader_epoch_response, push_telemetry_request, push_telemetry_response,
        read_share_group_state_request, read_share_group_state_response,
        read_share_group_state_summary_request, read_share_group_state_summary_response,
        remove_raft_voter_request, remove_raft_voter_response, renew_delegation_token_request,
        renew_delegation_token_response, sasl_authenticate_request, sasl_authenticate_response,
        sasl_handshake_request, sasl_handshake_response, share_acknowledge_request,
        share_acknowledge_response, share_fetch_request, share_fetch_response, share_group_describe_request,
        share_group_describe_response, share_group_heartbeat_request, share_group_heartbeat_response,
        streams_group_describe_request, streams_group_describe_response, streams_group_heartbeat_request,
        streams_group_heartbeat_response, streams_group_topology_description_update_request,
        streams_group_topology_description_update_response, sync_group_request, sync_group_response,
        txn_offset_commit_request, txn_offset_commit_response, unregister_broker_request,
        unregister_broker_response, update_features_request, update_features_response,
        update_raft_voter_request, update_raft_voter_response, vote_request, vote_response,
        write_share_group_state_request, write_share_group_state_response, write_txn_markers_request,
        write_txn_markers_response,
    };
}
