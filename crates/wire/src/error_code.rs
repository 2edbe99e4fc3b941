//! Kafka's error codes: number, name, and whether a client may simply try again.
//!
//! Numbers and names are those of Kafka 4.4.0 (`org.apache.kafka.common.protocol.Errors`).
//! Codes that a mirror needs and Kafka does not have are in [`crate::kip1279`], never here.

use std::fmt;

/// One error code as it travels on the wire.
///
/// Any `i16` can arrive, so this is a number with names for the known values, not an enum.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(i16);

/// What the table says about one code.
struct Row {
    code: i16,
    name: &'static str,
    retriable: bool,
}

macro_rules! error_codes {
    ($($code:literal $name:ident $kind:ident)*) => {
        #[allow(missing_docs, reason = "each constant is Kafka's own name for its number")]
        impl ErrorCode {
            $(pub const $name: Self = Self($code);)*
        }
        const TABLE: &[Row] = &[$(Row { code: $code, name: stringify!($name), retriable: error_codes!(@$kind) },)*];
    };
    (@retriable) => { true };
    (@final) => { false };
}

error_codes! {
    -1 UNKNOWN_SERVER_ERROR final
    0 NONE final
    1 OFFSET_OUT_OF_RANGE final
    2 CORRUPT_MESSAGE retriable
    3 UNKNOWN_TOPIC_OR_PARTITION retriable
    4 INVALID_FETCH_SIZE final
    5 LEADER_NOT_AVAILABLE retriable
    6 NOT_LEADER_OR_FOLLOWER retriable
    7 REQUEST_TIMED_OUT retriable
    8 BROKER_NOT_AVAILABLE final
    9 REPLICA_NOT_AVAILABLE retriable
    10 MESSAGE_TOO_LARGE final
    11 STALE_CONTROLLER_EPOCH final
    12 OFFSET_METADATA_TOO_LARGE final
    13 NETWORK_EXCEPTION retriable
    14 COORDINATOR_LOAD_IN_PROGRESS retriable
    15 COORDINATOR_NOT_AVAILABLE retriable
    16 NOT_COORDINATOR retriable
    17 INVALID_TOPIC_EXCEPTION final
    18 RECORD_LIST_TOO_LARGE final
    19 NOT_ENOUGH_REPLICAS retriable
    20 NOT_ENOUGH_REPLICAS_AFTER_APPEND retriable
    21 INVALID_REQUIRED_ACKS final
    22 ILLEGAL_GENERATION final
    23 INCONSISTENT_GROUP_PROTOCOL final
    24 INVALID_GROUP_ID final
    25 UNKNOWN_MEMBER_ID final
    26 INVALID_SESSION_TIMEOUT final
    27 REBALANCE_IN_PROGRESS final
    28 INVALID_COMMIT_OFFSET_SIZE final
    29 TOPIC_AUTHORIZATION_FAILED final
    30 GROUP_AUTHORIZATION_FAILED final
    31 CLUSTER_AUTHORIZATION_FAILED final
    32 INVALID_TIMESTAMP final
    33 UNSUPPORTED_SASL_MECHANISM final
    34 ILLEGAL_SASL_STATE final
    35 UNSUPPORTED_VERSION final
    36 TOPIC_ALREADY_EXISTS final
    37 INVALID_PARTITIONS final
    38 INVALID_REPLICATION_FACTOR final
    39 INVALID_REPLICA_ASSIGNMENT final
    40 INVALID_CONFIG final
    41 NOT_CONTROLLER retriable
    42 INVALID_REQUEST final
    43 UNSUPPORTED_FOR_MESSAGE_FORMAT final
    44 POLICY_VIOLATION final
    45 OUT_OF_ORDER_SEQUENCE_NUMBER final
    46 DUPLICATE_SEQUENCE_NUMBER final
    47 INVALID_PRODUCER_EPOCH final
    48 INVALID_TXN_STATE final
    49 INVALID_PRODUCER_ID_MAPPING final
    50 INVALID_TRANSACTION_TIMEOUT final
    51 CONCURRENT_TRANSACTIONS retriable
    52 TRANSACTION_COORDINATOR_FENCED final
    53 TRANSACTIONAL_ID_AUTHORIZATION_FAILED final
    54 SECURITY_DISABLED final
    55 OPERATION_NOT_ATTEMPTED final
    56 KAFKA_STORAGE_ERROR retriable
    57 LOG_DIR_NOT_FOUND final
    58 SASL_AUTHENTICATION_FAILED final
    59 UNKNOWN_PRODUCER_ID final
    60 REASSIGNMENT_IN_PROGRESS final
    61 DELEGATION_TOKEN_AUTH_DISABLED final
    62 DELEGATION_TOKEN_NOT_FOUND final
    63 DELEGATION_TOKEN_OWNER_MISMATCH final
    64 DELEGATION_TOKEN_REQUEST_NOT_ALLOWED final
    65 DELEGATION_TOKEN_AUTHORIZATION_FAILED final
    66 DELEGATION_TOKEN_EXPIRED final
    67 INVALID_PRINCIPAL_TYPE final
    68 NON_EMPTY_GROUP final
    69 GROUP_ID_NOT_FOUND final
    70 FETCH_SESSION_ID_NOT_FOUND retriable
    71 INVALID_FETCH_SESSION_EPOCH retriable
    72 LISTENER_NOT_FOUND retriable
    73 TOPIC_DELETION_DISABLED final
    74 FENCED_LEADER_EPOCH retriable
    75 UNKNOWN_LEADER_EPOCH retriable
    76 UNSUPPORTED_COMPRESSION_TYPE final
    77 STALE_BROKER_EPOCH final
    78 OFFSET_NOT_AVAILABLE retriable
    79 MEMBER_ID_REQUIRED final
    80 PREFERRED_LEADER_NOT_AVAILABLE retriable
    81 GROUP_MAX_SIZE_REACHED final
    82 FENCED_INSTANCE_ID final
    83 ELIGIBLE_LEADERS_NOT_AVAILABLE retriable
    84 ELECTION_NOT_NEEDED retriable
    85 NO_REASSIGNMENT_IN_PROGRESS final
    86 GROUP_SUBSCRIBED_TO_TOPIC final
    87 INVALID_RECORD final
    88 UNSTABLE_OFFSET_COMMIT retriable
    89 THROTTLING_QUOTA_EXCEEDED retriable
    90 PRODUCER_FENCED final
    91 RESOURCE_NOT_FOUND final
    92 DUPLICATE_RESOURCE final
    93 UNACCEPTABLE_CREDENTIAL final
    94 INCONSISTENT_VOTER_SET final
    95 INVALID_UPDATE_VERSION final
    96 FEATURE_UPDATE_FAILED final
    97 PRINCIPAL_DESERIALIZATION_FAILURE final
    98 SNAPSHOT_NOT_FOUND final
    99 POSITION_OUT_OF_RANGE final
    100 UNKNOWN_TOPIC_ID retriable
    101 DUPLICATE_BROKER_REGISTRATION final
    102 BROKER_ID_NOT_REGISTERED final
    103 INCONSISTENT_TOPIC_ID retriable
    104 INCONSISTENT_CLUSTER_ID final
    105 TRANSACTIONAL_ID_NOT_FOUND final
    106 FETCH_SESSION_TOPIC_ID_ERROR retriable
    107 INELIGIBLE_REPLICA final
    108 NEW_LEADER_ELECTED final
    109 OFFSET_MOVED_TO_TIERED_STORAGE final
    110 FENCED_MEMBER_EPOCH final
    111 UNRELEASED_INSTANCE_ID final
    112 UNSUPPORTED_ASSIGNOR final
    113 STALE_MEMBER_EPOCH final
    114 MISMATCHED_ENDPOINT_TYPE final
    115 UNSUPPORTED_ENDPOINT_TYPE final
    116 UNKNOWN_CONTROLLER_ID final
    117 UNKNOWN_SUBSCRIPTION_ID final
    118 TELEMETRY_TOO_LARGE final
    119 INVALID_REGISTRATION final
    120 TRANSACTION_ABORTABLE final
    121 INVALID_RECORD_STATE final
    122 SHARE_SESSION_NOT_FOUND retriable
    123 INVALID_SHARE_SESSION_EPOCH retriable
    124 FENCED_STATE_EPOCH final
    125 INVALID_VOTER_KEY final
    126 DUPLICATE_VOTER final
    127 VOTER_NOT_FOUND final
    128 INVALID_REGULAR_EXPRESSION final
    129 REBOOTSTRAP_REQUIRED final
    130 STREAMS_INVALID_TOPOLOGY final
    131 STREAMS_INVALID_TOPOLOGY_EPOCH final
    132 STREAMS_TOPOLOGY_FENCED final
    133 SHARE_SESSION_LIMIT_REACHED retriable
    134 GROUP_DELETION_FAILED final
    135 STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED final
    136 CONTROLLER_ID_NOT_REGISTERED final
}

impl ErrorCode {
    /// The code with this number, known or not.
    pub const fn new(code: i16) -> Self {
        Self(code)
    }

    /// The number on the wire.
    pub const fn get(self) -> i16 {
        self.0
    }

    /// True when this is `NONE`.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// `Ok` for `NONE`, else the code as an error.
    ///
    /// # Errors
    /// The code itself when it is not `NONE`.
    pub const fn ok(self) -> Result<(), Self> {
        if self.is_none() { Ok(()) } else { Err(self) }
    }

    /// Kafka's name, or KIP-1279's for our own numbers; `None` for an unknown number.
    pub fn name(self) -> Option<&'static str> {
        self.row().map(|row| row.name).or_else(|| crate::kip1279::error_name(self))
    }

    /// True when Kafka's own Java client treats the error as retriable.
    ///
    /// Other clients differ; an unknown number is not retriable.
    pub fn is_retriable(self) -> bool {
        self.row().is_some_and(|row| row.retriable)
    }

    /// Every code that Kafka 4.4.0 knows, in ascending order.
    pub fn known() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| Self(row.code))
    }

    fn row(self) -> Option<&'static Row> {
        TABLE.binary_search_by_key(&self.0, |row| row.code).ok().and_then(|index| TABLE.get(index))
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "unknown error code {}", self.0),
        }
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<i16> for ErrorCode {
    fn from(code: i16) -> Self {
        Self(code)
    }
}

impl From<ErrorCode> for i16 {
    fn from(code: ErrorCode) -> Self {
        code.0
    }
}

impl std::error::Error for ErrorCode {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_has_every_code_of_kafka_4_4_0() {
        let codes: Vec<i16> = ErrorCode::known().map(ErrorCode::get).collect();
        assert_eq!(codes, (-1..=136).collect::<Vec<i16>>());
    }

    #[test]
    fn a_code_prints_name_and_number_and_an_unknown_one_only_its_number() {
        assert_eq!(ErrorCode::POLICY_VIOLATION.to_string(), "POLICY_VIOLATION (44)");
        assert_eq!(ErrorCode::new(9999).to_string(), "unknown error code 9999");
    }

    #[test]
    fn retriable_is_as_in_the_java_client() {
        assert!(ErrorCode::NOT_LEADER_OR_FOLLOWER.is_retriable());
        assert!(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.is_retriable());
        assert!(!ErrorCode::POLICY_VIOLATION.is_retriable());
        assert!(!ErrorCode::OFFSET_OUT_OF_RANGE.is_retriable());
        assert!(!ErrorCode::new(9999).is_retriable());
    }
}
