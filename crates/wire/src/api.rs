//! Which APIs there are, and which versions of them weir serves.

use std::fmt;

use crate::kip1279;

/// A Kafka API by its number. Any number can arrive, so this is not an enum.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiKey(i16);

struct Known {
    key: i16,
    name: &'static str,
    first_flexible: i16,
}

/// A version that does not exist: the API has no flexible one.
const NEVER: i16 = i16::MAX;

macro_rules! api_keys {
    ($($key:literal $constant:ident $name:ident $first_flexible:expr;)*) => {
        #[allow(missing_docs, reason = "each constant is Kafka's own name for its number")]
        impl ApiKey {
            $(pub const $constant: Self = Self($key);)*
        }
        const KNOWN: &[Known] =
            &[$(Known { key: $key, name: stringify!($name), first_flexible: $first_flexible },)*];
    };
}

// Kafka 4.4.0 (`ApiKeys`): number, name, first version with flexible encoding. Without 4 to 7, which
// no Kafka serves any more.
api_keys! {
    0 PRODUCE Produce 9;
    1 FETCH Fetch 12;
    2 LIST_OFFSETS ListOffsets 6;
    3 METADATA Metadata 9;
    8 OFFSET_COMMIT OffsetCommit 8;
    9 OFFSET_FETCH OffsetFetch 6;
    10 FIND_COORDINATOR FindCoordinator 3;
    11 JOIN_GROUP JoinGroup 6;
    12 HEARTBEAT Heartbeat 4;
    13 LEAVE_GROUP LeaveGroup 4;
    14 SYNC_GROUP SyncGroup 4;
    15 DESCRIBE_GROUPS DescribeGroups 5;
    16 LIST_GROUPS ListGroups 3;
    17 SASL_HANDSHAKE SaslHandshake NEVER;
    18 API_VERSIONS ApiVersions 3;
    19 CREATE_TOPICS CreateTopics 5;
    20 DELETE_TOPICS DeleteTopics 4;
    21 DELETE_RECORDS DeleteRecords 2;
    22 INIT_PRODUCER_ID InitProducerId 2;
    23 OFFSET_FOR_LEADER_EPOCH OffsetForLeaderEpoch 4;
    24 ADD_PARTITIONS_TO_TXN AddPartitionsToTxn 3;
    25 ADD_OFFSETS_TO_TXN AddOffsetsToTxn 3;
    26 END_TXN EndTxn 3;
    27 WRITE_TXN_MARKERS WriteTxnMarkers 1;
    28 TXN_OFFSET_COMMIT TxnOffsetCommit 3;
    29 DESCRIBE_ACLS DescribeAcls 2;
    30 CREATE_ACLS CreateAcls 2;
    31 DELETE_ACLS DeleteAcls 2;
    32 DESCRIBE_CONFIGS DescribeConfigs 4;
    33 ALTER_CONFIGS AlterConfigs 2;
    34 ALTER_REPLICA_LOG_DIRS AlterReplicaLogDirs 2;
    35 DESCRIBE_LOG_DIRS DescribeLogDirs 2;
    36 SASL_AUTHENTICATE SaslAuthenticate 2;
    37 CREATE_PARTITIONS CreatePartitions 2;
    38 CREATE_DELEGATION_TOKEN CreateDelegationToken 2;
    39 RENEW_DELEGATION_TOKEN RenewDelegationToken 2;
    40 EXPIRE_DELEGATION_TOKEN ExpireDelegationToken 2;
    41 DESCRIBE_DELEGATION_TOKEN DescribeDelegationToken 2;
    42 DELETE_GROUPS DeleteGroups 2;
    43 ELECT_LEADERS ElectLeaders 2;
    44 INCREMENTAL_ALTER_CONFIGS IncrementalAlterConfigs 1;
    45 ALTER_PARTITION_REASSIGNMENTS AlterPartitionReassignments 0;
    46 LIST_PARTITION_REASSIGNMENTS ListPartitionReassignments 0;
    47 OFFSET_DELETE OffsetDelete NEVER;
    48 DESCRIBE_CLIENT_QUOTAS DescribeClientQuotas 1;
    49 ALTER_CLIENT_QUOTAS AlterClientQuotas 1;
    50 DESCRIBE_USER_SCRAM_CREDENTIALS DescribeUserScramCredentials 0;
    51 ALTER_USER_SCRAM_CREDENTIALS AlterUserScramCredentials 0;
    52 VOTE Vote 0;
    53 BEGIN_QUORUM_EPOCH BeginQuorumEpoch 1;
    54 END_QUORUM_EPOCH EndQuorumEpoch 1;
    55 DESCRIBE_QUORUM DescribeQuorum 0;
    56 ALTER_PARTITION AlterPartition 2;
    57 UPDATE_FEATURES UpdateFeatures 0;
    58 ENVELOPE Envelope 0;
    59 FETCH_SNAPSHOT FetchSnapshot 0;
    60 DESCRIBE_CLUSTER DescribeCluster 0;
    61 DESCRIBE_PRODUCERS DescribeProducers 0;
    62 BROKER_REGISTRATION BrokerRegistration 0;
    63 BROKER_HEARTBEAT BrokerHeartbeat 0;
    64 UNREGISTER_BROKER UnregisterBroker 0;
    65 DESCRIBE_TRANSACTIONS DescribeTransactions 0;
    66 LIST_TRANSACTIONS ListTransactions 0;
    67 ALLOCATE_PRODUCER_IDS AllocateProducerIds 0;
    68 CONSUMER_GROUP_HEARTBEAT ConsumerGroupHeartbeat 0;
    69 CONSUMER_GROUP_DESCRIBE ConsumerGroupDescribe 0;
    70 CONTROLLER_REGISTRATION ControllerRegistration 0;
    71 GET_TELEMETRY_SUBSCRIPTIONS GetTelemetrySubscriptions 0;
    72 PUSH_TELEMETRY PushTelemetry 0;
    73 ASSIGN_REPLICAS_TO_DIRS AssignReplicasToDirs 0;
    74 LIST_CONFIG_RESOURCES ListConfigResources 0;
    75 DESCRIBE_TOPIC_PARTITIONS DescribeTopicPartitions 0;
    76 SHARE_GROUP_HEARTBEAT ShareGroupHeartbeat 1;
    77 SHARE_GROUP_DESCRIBE ShareGroupDescribe 1;
    78 SHARE_FETCH ShareFetch 1;
    79 SHARE_ACKNOWLEDGE ShareAcknowledge 1;
    80 ADD_RAFT_VOTER AddRaftVoter 0;
    81 REMOVE_RAFT_VOTER RemoveRaftVoter 0;
    82 UPDATE_RAFT_VOTER UpdateRaftVoter 0;
    83 INITIALIZE_SHARE_GROUP_STATE InitializeShareGroupState 0;
    84 READ_SHARE_GROUP_STATE ReadShareGroupState 0;
    85 WRITE_SHARE_GROUP_STATE WriteShareGroupState 0;
    86 DELETE_SHARE_GROUP_STATE DeleteShareGroupState 0;
    87 READ_SHARE_GROUP_STATE_SUMMARY ReadShareGroupStateSummary 0;
    88 STREAMS_GROUP_HEARTBEAT StreamsGroupHeartbeat 0;
    89 STREAMS_GROUP_DESCRIBE StreamsGroupDescribe 0;
    90 DESCRIBE_SHARE_GROUP_OFFSETS DescribeShareGroupOffsets 0;
    91 ALTER_SHARE_GROUP_OFFSETS AlterShareGroupOffsets 0;
    92 DELETE_SHARE_GROUP_OFFSETS DeleteShareGroupOffsets 0;
    93 STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE StreamsGroupTopologyDescriptionUpdate 0;
    94 UNREGISTER_CONTROLLER UnregisterController 0;
}

impl ApiKey {
    /// The API with this number, known or not.
    pub const fn new(key: i16) -> Self {
        Self(key)
    }

    /// The number on the wire.
    pub const fn get(self) -> i16 {
        self.0
    }

    /// Kafka's name, or KIP-1279's for our own numbers; `None` for an unknown number.
    pub fn name(self) -> Option<&'static str> {
        self.known().map(|known| known.name).or_else(|| kip1279::api_name(self))
    }

    /// True when `version` has compact lengths and tagged fields; `None` for an unknown API.
    ///
    /// A version that is newer than any known one counts as flexible if the API ever is.
    pub fn is_flexible(self, version: i16) -> Option<bool> {
        self.known()
            .map(|known| version >= known.first_flexible)
            .or_else(|| kip1279::api_name(self).map(|_| true))
    }

    /// Every API of Kafka 4.4.0, in ascending order; without weir's own.
    pub fn known_to_kafka() -> impl Iterator<Item = Self> {
        KNOWN.iter().map(|known| Self(known.key))
    }

    fn known(self) -> Option<&'static Known> {
        KNOWN.binary_search_by_key(&self.0, |known| known.key).ok().and_then(|index| KNOWN.get(index))
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "API {}", self.0),
        }
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({})", self.0)
    }
}

/// The versions of one API that somebody serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiRange {
    /// The API.
    pub api_key: ApiKey,
    /// Oldest version served.
    pub min: i16,
    /// Newest version served.
    pub max: i16,
}

impl ApiRange {
    const fn new(api_key: ApiKey, min: i16, max: i16) -> Self {
        Self { api_key, min, max }
    }

    /// True when `version` is served.
    pub const fn contains(self, version: i16) -> bool {
        self.min <= version && version <= self.max
    }
}

/// What weir lists in ApiVersions, in ascending order.
///
/// Each line is decoded and answered whole, but one: Produce 0 to 2, which carry the old record
/// formats. They are listed because librdkafka before 2.8 compresses only if version 0 is, and are
/// answered with UNSUPPORTED_FOR_MESSAGE_FORMAT (KAFKA-18659).
const SERVED: &[ApiRange] = &[
    ApiRange::new(ApiKey::PRODUCE, 0, 13),
    ApiRange::new(ApiKey::FETCH, 4, 18),
    ApiRange::new(ApiKey::LIST_OFFSETS, 1, 11),
    ApiRange::new(ApiKey::METADATA, 0, 13),
    ApiRange::new(ApiKey::OFFSET_FETCH, 1, 10),
    ApiRange::new(ApiKey::FIND_COORDINATOR, 0, 6),
    ApiRange::new(ApiKey::API_VERSIONS, 0, 5),
    ApiRange::new(ApiKey::CREATE_TOPICS, 2, 7),
    ApiRange::new(ApiKey::DELETE_RECORDS, 0, 2),
    ApiRange::new(ApiKey::INIT_PRODUCER_ID, 0, 5),
    ApiRange::new(ApiKey::OFFSET_FOR_LEADER_EPOCH, 2, 4),
    ApiRange::new(ApiKey::DESCRIBE_CONFIGS, 1, 4),
    ApiRange::new(ApiKey::DESCRIBE_CLUSTER, 0, 2),
];

/// The oldest Produce version whose records have the current format.
pub const FIRST_PRODUCE_VERSION_WITH_RECORD_BATCHES: i16 = 3;

/// The versions of `api_key` that weir serves, hidden APIs among them; `None` if it serves none.
pub fn served(api_key: ApiKey) -> Option<ApiRange> {
    match SERVED.binary_search_by_key(&api_key, |range| range.api_key) {
        Ok(index) => SERVED.get(index).copied(),
        Err(_) => kip1279::served(api_key),
    }
}

/// What weir lists for a client with this software name, in ascending order.
///
/// weir's own APIs are listed to weir alone: other clients may refuse a list with unknown numbers.
pub fn listed(client_software_name: Option<&str>) -> impl Iterator<Item = ApiRange> {
    let own = client_software_name == Some(crate::SOFTWARE_NAME);
    SERVED.iter().copied().chain(kip1279::served_ranges().filter(move |_| own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keys_and_flexible_versions_agree_with_the_generated_messages() {
        let mut checked = 0;
        for descriptor in kafka_wire::API_DESCRIPTORS {
            let key = ApiKey::new(descriptor.api_key.value());
            let name = descriptor.request.name.strip_suffix("Request").unwrap();
            // 93 has another meaning in the commit that kafka-wire was made from.
            if key.get() == 93 {
                continue;
            }
            assert_eq!(key.name(), Some(name));
            let versions = descriptor.supported_versions;
            for version in versions.min().value()..=versions.max().value() {
                let flexible =
                    descriptor.flexible_versions.is_some_and(|range| range.min().value() <= version);
                assert_eq!(key.is_flexible(version), Some(flexible), "{name} {version}");
            }
            checked += 1;
        }
        assert!(checked > 80, "{checked}");
    }

    #[test]
    fn the_tables_are_sorted() {
        assert!(KNOWN.is_sorted_by(|a, b| a.key < b.key));
        assert!(SERVED.is_sorted_by(|a, b| a.api_key < b.api_key));
        assert!(SERVED.iter().all(|range| range.min <= range.max));
    }

    #[test]
    fn every_listed_version_is_one_that_kafka_4_4_0_lists_too() {
        // Kafka lists Produce from 0 and otherwise what kafka-wire supports, the unstable apart.
        for range in listed(None) {
            let descriptor = kafka_wire::API_DESCRIPTORS
                .iter()
                .find(|descriptor| descriptor.api_key.value() == range.api_key.get())
                .unwrap();
            let newest = descriptor.latest_stable_version().unwrap().value();
            assert!(range.max <= newest, "{range:?}");
            let oldest = match range.api_key {
                ApiKey::PRODUCE => 0,
                _ => descriptor.supported_versions.min().value(),
            };
            assert_eq!(range.min, oldest, "{range:?}");
        }
    }

    #[test]
    fn produce_is_listed_from_version_0_so_that_old_librdkafka_compresses() {
        assert_eq!(served(ApiKey::PRODUCE), Some(ApiRange::new(ApiKey::PRODUCE, 0, 13)));
    }

    #[test]
    fn our_own_apis_are_listed_to_weir_alone_and_served_to_all() {
        let own = ApiKey::new(30094);
        assert!(!listed(None).any(|range| range.api_key == own));
        assert!(!listed(Some("librdkafka")).any(|range| range.api_key == own));
        assert!(listed(Some("weir")).any(|range| range.api_key == own));
        assert!(served(own).is_some());
        assert!(listed(Some("weir")).map(|range| range.api_key).is_sorted());
    }
}
