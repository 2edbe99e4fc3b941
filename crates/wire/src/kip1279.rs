//! KIP-1279 (Cluster Mirroring) on weir's own numbers: APIs, error codes, partition states.
//!
//! Upstream has not released the KIP. The numbers of its development fork (late 2026: API keys 94 to
//! 107, error codes 134 to 146) collide with Kafka 4.4.0, where 94 is UnregisterController and 134
//! to 136 are taken, and they will move. Until upstream's are released, weir adds [`NUMBER_OFFSET`]
//! to each: API keys 30094 to 30107, listed to weir alone, and error codes 30134 to 30146, used only
//! inside these APIs. On Kafka's own APIs a refusal is [`ON_KAFKA_APIS`].
//!
//! Field orders are those of the fork's message files at the commits named beside each message. All
//! are version 0 and flexible. Fields that the KIP does not have are tagged, from 10,000 on, and marked
//! as weir's: a reader that does not know them skips them.

use bytes::Bytes;

use crate::api::{ApiKey, ApiRange};
use crate::codec::{Reader, Writer, tag_value};
use crate::error_code::ErrorCode;
use crate::frame::FrameBuilder;
use crate::message::{Message, Request, check_decode, check_encode};
use crate::{DecodeError, EncodeError, Limits, StrBytes, Uuid};

/// What weir adds to a provisional number of the KIP.
pub const NUMBER_OFFSET: i16 = 30_000;

/// What a refusal because of a mirror is called on Kafka's own APIs: every client knows this code
/// and none retries it. The message names mirror and state where the version has one.
pub const ON_KAFKA_APIS: ErrorCode = ErrorCode::POLICY_VIOLATION;

const fn own_api(kip: i16) -> ApiKey {
    ApiKey::new(kip + NUMBER_OFFSET)
}

/// `CreateClusterMirror`, 94 in the KIP.
pub const CREATE_CLUSTER_MIRROR: ApiKey = own_api(94);
/// `StartMirrorTopics`, 95 in the KIP.
pub const START_MIRROR_TOPICS: ApiKey = own_api(95);
/// `StopMirrorTopics`, 96 in the KIP.
pub const STOP_MIRROR_TOPICS: ApiKey = own_api(96);
/// `ListClusterMirrors`, 98 in the KIP.
pub const LIST_CLUSTER_MIRRORS: ApiKey = own_api(98);
/// `DescribeClusterMirrors`, 99 in the KIP.
pub const DESCRIBE_CLUSTER_MIRRORS: ApiKey = own_api(99);
/// `PauseMirrorTopics`, 102 in the KIP.
pub const PAUSE_MIRROR_TOPICS: ApiKey = own_api(102);
/// `ResumeMirrorTopics`, 103 in the KIP.
pub const RESUME_MIRROR_TOPICS: ApiKey = own_api(103);
/// `DeleteClusterMirror`, 104 in the KIP.
pub const DELETE_CLUSTER_MIRROR: ApiKey = own_api(104);
/// `RecoverMirrorTopics`, 107 in the KIP.
pub const RECOVER_MIRROR_TOPICS: ApiKey = own_api(107);

/// Every API of the KIP: its number there, its name. 97 is not used.
const APIS: &[(i16, &str)] = &[
    (94, "CreateClusterMirror"),
    (95, "StartMirrorTopics"),
    (96, "StopMirrorTopics"),
    (98, "ListClusterMirrors"),
    (99, "DescribeClusterMirrors"),
    (100, "ReadMirrorStates"),
    (101, "WriteMirrorStates"),
    (102, "PauseMirrorTopics"),
    (103, "ResumeMirrorTopics"),
    (104, "DeleteClusterMirror"),
    (105, "BumpLeaderEpochs"),
    (106, "ReadMirrorOffsets"),
    (107, "RecoverMirrorTopics"),
];

/// Those that weir serves, in ascending order.
const SERVED: &[ApiKey] = &[
    CREATE_CLUSTER_MIRROR,
    START_MIRROR_TOPICS,
    STOP_MIRROR_TOPICS,
    LIST_CLUSTER_MIRRORS,
    DESCRIBE_CLUSTER_MIRRORS,
    DELETE_CLUSTER_MIRROR,
];

pub(crate) fn api_name(api_key: ApiKey) -> Option<&'static str> {
    let kip = api_key.get().checked_sub(NUMBER_OFFSET)?;
    APIS.iter().find(|(number, _)| *number == kip).map(|(_, name)| *name)
}

pub(crate) fn served_ranges() -> impl Iterator<Item = ApiRange> {
    SERVED.iter().map(|api_key| ApiRange { api_key: *api_key, min: 0, max: 0 })
}

pub(crate) fn served(api_key: ApiKey) -> Option<ApiRange> {
    served_ranges().find(|range| range.api_key == api_key)
}

macro_rules! mirror_error_codes {
    ($($(#[$doc:meta])* $kip:literal $name:ident;)*) => {
        /// The KIP's error codes under weir's numbers: inside these APIs only.
        pub mod error {
            use super::{ErrorCode, NUMBER_OFFSET};
            $($(#[$doc])* pub const $name: ErrorCode = ErrorCode::new($kip + NUMBER_OFFSET);)*
        }
        const ERRORS: &[(i16, &str)] = &[$(($kip, stringify!($name)),)*];
    };
}

mirror_error_codes! {
    /// The topic is mirrored and takes no writes.
    134 READ_ONLY_TOPIC;
    /// A mirror of that name exists.
    136 CLUSTER_MIRROR_ALREADY_EXISTS;
    /// There is no mirror of that name.
    137 UNKNOWN_CLUSTER_MIRROR;
    /// Another mirror has the topic.
    138 TOPIC_ALREADY_IN_CLUSTER_MIRROR;
    /// The mirror does not have the topic.
    139 TOPIC_NOT_IN_CLUSTER_MIRROR;
    /// The topic is paused already.
    140 MIRROR_TOPIC_ALREADY_PAUSED;
    /// The topic is not paused.
    141 MIRROR_TOPIC_NOT_PAUSED;
    /// The topic is being stopped.
    142 MIRROR_TOPIC_BEING_STOPPED;
    /// The mirror still has topics that are not stopped.
    143 CLUSTER_MIRROR_NOT_EMPTY;
    /// The principal may not do this to the mirror.
    144 CLUSTER_MIRROR_AUTHORIZATION_FAILED;
    /// The partitions' states do not allow this (older name: `INVALID_CLUSTER_MIRROR_STATES`).
    145 INVALID_CLUSTER_MIRROR_STATE;
    /// The topic must be stopped first.
    146 MIRROR_TOPIC_NOT_STOPPED;
}

/// The KIP's name for one of weir's own error codes; `None` for any other code.
pub fn error_name(code: ErrorCode) -> Option<&'static str> {
    let kip = code.get().checked_sub(NUMBER_OFFSET)?;
    ERRORS.iter().find(|(number, _)| *number == kip).map(|(_, name)| *name)
}

/// The code to use on Kafka's own APIs for any of the codes in [`error`]; others stay as they are.
pub fn for_kafka_apis(code: ErrorCode) -> ErrorCode {
    if error_name(code).is_some() { ON_KAFKA_APIS } else { code }
}

macro_rules! partition_states {
    ($($(#[$doc:meta])* $code:literal $variant:ident $name:literal;)*) => {
        /// The state of one mirrored partition, with the KIP's code and name.
        ///
        /// Codes are the newest seen (fork commit `3dd729d22f93`); earlier ones differ.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum MirrorPartitionState { $($(#[$doc])* $variant,)* }

        impl MirrorPartitionState {
            /// Every state, in the order of the KIP's table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The KIP's code.
            pub const fn code(self) -> i8 {
                match self { $(Self::$variant => $code,)* }
            }

            /// The KIP's name, as `DescribeClusterMirrors` says it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

partition_states! {
    /// Finding the last common position and truncating to it.
    0 LogAlignment "LOG_ALIGNMENT";
    /// Waiting for the own leader epoch to be raised above the source's.
    1 EpochFencing "EPOCH_FENCING";
    /// An unclean election was seen on the source.
    2 UleRecovery "ULE_RECOVERY";
    /// Fetching.
    3 Mirroring "MIRRORING";
    /// The fetcher is being removed.
    4 Pausing "PAUSING";
    /// Read-only, and nothing is fetched.
    5 Paused "PAUSED";
    /// On the way to writable: aborts and barrier are being written.
    6 Stopping "STOPPING";
    /// Writable.
    7 Stopped "STOPPED";
    /// In error.
    8 Failed "FAILED";
    /// Not mirrored, or not known.
    -1 Unknown "UNKNOWN";
}

impl MirrorPartitionState {
    /// The state with this code.
    pub fn from_code(code: i8) -> Option<Self> {
        Self::ALL.iter().copied().find(|state| state.code() == code)
    }

    /// The state with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|state| state.name() == name)
    }
}

impl std::fmt::Display for MirrorPartitionState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A value that is always written the same way, in a flexible version.
trait Field: Sized {
    /// Fewest bytes on the wire.
    const MIN_SIZE: usize;
    fn read(r: &mut Reader, name: &'static str) -> Result<Self, DecodeError>;
    fn write(&self, w: &mut Writer<'_>, name: &'static str) -> Result<(), EncodeError>;
}

macro_rules! fixed_field {
    ($($type:ty, $size:literal, $method:ident;)*) => {$(
        impl Field for $type {
            const MIN_SIZE: usize = $size;
            fn read(r: &mut Reader, name: &'static str) -> Result<Self, DecodeError> {
                r.$method(name)
            }
            fn write(&self, w: &mut Writer<'_>, _: &'static str) -> Result<(), EncodeError> {
                w.$method(*self);
                Ok(())
            }
        }
    )*};
}

fixed_field! {
    bool, 1, bool;
    i16, 2, i16;
    i32, 4, i32;
    i64, 8, i64;
    Uuid, 16, uuid;
}

impl Field for ErrorCode {
    const MIN_SIZE: usize = 2;
    fn read(r: &mut Reader, name: &'static str) -> Result<Self, DecodeError> {
        r.i16(name).map(Self::new)
    }
    fn write(&self, w: &mut Writer<'_>, _: &'static str) -> Result<(), EncodeError> {
        w.i16(self.get());
        Ok(())
    }
}

impl Field for StrBytes {
    const MIN_SIZE: usize = 1;
    fn read(r: &mut Reader, name: &'static str) -> Result<Self, DecodeError> {
        r.string(name)
    }
    fn write(&self, w: &mut Writer<'_>, name: &'static str) -> Result<(), EncodeError> {
        w.string(name, self)
    }
}

impl Field for Option<StrBytes> {
    const MIN_SIZE: usize = 1;
    fn read(r: &mut Reader, name: &'static str) -> Result<Self, DecodeError> {
        r.nullable_string(name)
    }
    fn write(&self, w: &mut Writer<'_>, name: &'static str) -> Result<(), EncodeError> {
        w.nullable_string(name, self.as_deref())
    }
}

impl<T: Field> Field for Vec<T> {
    const MIN_SIZE: usize = 1;
    fn read(r: &mut Reader, name: &'static str) -> Result<Self, DecodeError> {
        r.array(name, T::MIN_SIZE, |r| T::read(r, name))
    }
    fn write(&self, w: &mut Writer<'_>, name: &'static str) -> Result<(), EncodeError> {
        w.array(name, self, |w, value| value.write(w, name))
    }
}

impl<T: Field> Field for Option<Vec<T>> {
    const MIN_SIZE: usize = 1;
    fn read(r: &mut Reader, name: &'static str) -> Result<Self, DecodeError> {
        r.nullable_array(name, T::MIN_SIZE, |r| T::read(r, name))
    }
    fn write(&self, w: &mut Writer<'_>, name: &'static str) -> Result<(), EncodeError> {
        w.nullable_array(name, self.as_deref(), |w, value| value.write(w, name))
    }
}

/// Structures of version 0: fields in wire order, then tagged ones. A tagged field at its default is
/// not written.
macro_rules! structures {
    ($(
        $(#[$doc:meta])*
        $name:ident {
            $($(#[$field_doc:meta])* $field:ident: $type:ty = $default:expr,)*
            $(@tags { $($(#[$tag_doc:meta])* $tag:literal $tag_field:ident: $tag_type:ty = $tag_default:expr,)* })?
        }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
            $($($(#[$tag_doc])* pub $tag_field: $tag_type,)*)?
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* $($($tag_field: $tag_default,)*)? }
            }
        }

        impl Field for $name {
            const MIN_SIZE: usize = 1 $(+ <$type as Field>::MIN_SIZE)*;

            fn read(r: &mut Reader, _: &'static str) -> Result<Self, DecodeError> {
                #[allow(unused_mut, reason = "only structures with tagged fields change afterwards")]
                let mut value = Self {
                    $($field: Field::read(r, stringify!($field))?,)*
                    $($($tag_field: $tag_default,)*)?
                };
                r.tagged(|r, tag| match tag {
                    $($($tag => {
                        value.$tag_field = Field::read(r, stringify!($tag_field))?;
                        Ok(true)
                    })*)?
                    _ => {
                        let _ = r;
                        Ok(false)
                    }
                })?;
                Ok(value)
            }

            fn write(&self, w: &mut Writer<'_>, _: &'static str) -> Result<(), EncodeError> {
                $(self.$field.write(w, stringify!($field))?;)*
                #[allow(unused_mut, reason = "only structures with tagged fields add some")]
                let mut tags: Vec<(u32, Vec<u8>)> = Vec::new();
                $($(if self.$tag_field != $tag_default {
                    let value = tag_value(|w| self.$tag_field.write(w, stringify!($tag_field)))?;
                    tags.push(($tag, value));
                })*)?
                w.tagged(&tags)
            }
        }
    )*};
}

macro_rules! messages {
    ($($name:ident;)*) => {$(
        impl Message for $name {
            const NAME: &'static str = stringify!($name);
            const VERSIONS: (i16, i16) = (0, 0);

            fn decode(body: Bytes, version: i16, limits: &Limits) -> Result<Self, DecodeError> {
                check_decode(Self::NAME, version, Self::VERSIONS)?;
                if body.len() > limits.max_message_bytes {
                    let limit = limits.max_message_bytes;
                    return Err(DecodeError::TooLarge { field: Self::NAME, size: body.len(), limit });
                }
                let mut r = Reader::new(body, true, limits);
                let value = <Self as Field>::read(&mut r, Self::NAME)?;
                r.finish()?;
                Ok(value)
            }

            fn encode(&self, version: i16, out: &mut FrameBuilder) -> Result<(), EncodeError> {
                check_encode(Self::NAME, version, Self::VERSIONS)?;
                self.write(&mut Writer::new(out, true), Self::NAME)
            }
        }
    )*};
}

macro_rules! requests {
    ($($request:ident, $api_key:ident, $response:ident;)*) => {
        messages! { $($request; $response;)* }
        $(impl Request for $request {
            const API_KEY: ApiKey = $api_key;
            type Response = $response;
        })*
    };
}

requests! {
    CreateClusterMirrorRequest, CREATE_CLUSTER_MIRROR, CreateClusterMirrorResponse;
    StartMirrorTopicsRequest, START_MIRROR_TOPICS, StartMirrorTopicsResponse;
    StopMirrorTopicsRequest, STOP_MIRROR_TOPICS, StopMirrorTopicsResponse;
    ListClusterMirrorsRequest, LIST_CLUSTER_MIRRORS, ListClusterMirrorsResponse;
    DescribeClusterMirrorsRequest, DESCRIBE_CLUSTER_MIRRORS, DescribeClusterMirrorsResponse;
    PauseMirrorTopicsRequest, PAUSE_MIRROR_TOPICS, PauseMirrorTopicsResponse;
    ResumeMirrorTopicsRequest, RESUME_MIRROR_TOPICS, ResumeMirrorTopicsResponse;
    DeleteClusterMirrorRequest, DELETE_CLUSTER_MIRROR, DeleteClusterMirrorResponse;
    RecoverMirrorTopicsRequest, RECOVER_MIRROR_TOPICS, RecoverMirrorTopicsResponse;
}

structures! {
    /// Defines a mirror: a name and how its source is reached.
    CreateClusterMirrorRequest {
        /// The mirror.
        mirror_name: StrBytes = StrBytes::default(),
        /// Its configuration, `bootstrap.servers` among it.
        configs: Vec<MirrorConfig> = Vec::new(),
    }
    /// One entry of a mirror's configuration.
    MirrorConfig {
        /// The key.
        name: StrBytes = StrBytes::default(),
        /// The value.
        value: Option<StrBytes> = None,
    }
    /// The answer to [`CreateClusterMirrorRequest`].
    CreateClusterMirrorResponse {
        /// How long the client is to be quiet.
        throttle_time_ms: i32 = 0,
        /// What became of it.
        error_code: ErrorCode = ErrorCode::NONE,
        /// What to tell the user.
        error_message: Option<StrBytes> = None,
    }
    /// Starts topics of a mirror (fork commit `2c233cfb`): topics by name, patterns, or both.
    StartMirrorTopicsRequest {
        /// The mirror.
        mirror_name: StrBytes = StrBytes::default(),
        /// Topics as known on the source; id zero and 0 partitions when the client does not know.
        topics: Vec<StartMirrorTopic> = Vec::new(),
        /// Patterns that topics must match, added to the mirror's.
        include_patterns: Vec<StrBytes> = Vec::new(),
        /// Patterns that topics must not match, added to the mirror's.
        exclude_patterns: Vec<StrBytes> = Vec::new(),
        /// Metadata offset of the sender's knowledge, −1 for no check.
        state_offset: i64 = -1,
        @tags {
            /// weir's: how many records alignment may cut at most over all partitions, −1 for none said.
            10_000 accept_cut: i64 = -1,
            /// weir's: says what would be done, and does nothing.
            10_001 dry_run: bool = false,
        }
    }
    /// One topic of [`StartMirrorTopicsRequest`].
    StartMirrorTopic {
        /// Its id on the source.
        topic_id: Uuid = Uuid::ZERO,
        /// Its name.
        topic_name: StrBytes = StrBytes::default(),
        /// Its partitions on the source.
        num_partitions: i32 = 0,
    }
    /// The answer to [`StartMirrorTopicsRequest`].
    StartMirrorTopicsResponse {
        /// How long the client is to be quiet.
        throttle_time_ms: i32 = 0,
        /// What is wrong with the request as a whole.
        error_code: ErrorCode = ErrorCode::NONE,
        /// What to tell the user.
        error_message: Option<StrBytes> = None,
        /// What became of each topic.
        topics: Vec<MirrorTopicResult> = Vec::new(),
    }
    /// What became of one topic.
    MirrorTopicResult {
        /// The topic.
        name: StrBytes = StrBytes::default(),
        /// What became of it.
        error_code: ErrorCode = ErrorCode::NONE,
        /// What to tell the user.
        error_message: Option<StrBytes> = None,
    }
    /// Stops topics of a mirror: afterwards they are writable here (fork commit `15b72822`).
    StopMirrorTopicsRequest {
        /// The mirror.
        mirror_name: StrBytes = StrBytes::default(),
        /// The topics.
        topics: Vec<MirrorTopic> = Vec::new(),
        /// Metadata offset of the sender's knowledge, −1 for no check.
        state_offset: i64 = -1,
        @tags {
            /// Patterns to take out of the mirror's.
            0 patterns: Vec<StrBytes> = Vec::<StrBytes>::new(),
            /// weir's: stops partitions although offsets of the source are missing here.
            10_000 accept_gap: bool = false,
            /// weir's: says what would be done, and does nothing.
            10_001 dry_run: bool = false,
        }
    }
    /// One topic by name.
    MirrorTopic {
        /// Its name.
        topic_name: StrBytes = StrBytes::default(),
    }
    /// The answer to [`StopMirrorTopicsRequest`] (fork commit `47e1e629`).
    StopMirrorTopicsResponse {
        /// How long the client is to be quiet.
        throttle_time_ms: i32 = 0,
        /// What is wrong with the request as a whole.
        error_code: ErrorCode = ErrorCode::NONE,
        /// What to tell the user.
        error_message: Option<StrBytes> = None,
        /// What became of each topic.
        topics: Vec<MirrorTopicResult> = Vec::new(),
    }
    /// Lists the mirrors.
    ListClusterMirrorsRequest {
        /// Whether to name the topics of each.
        include_topic_names: bool = false,
    }
    /// The answer to [`ListClusterMirrorsRequest`].
    ListClusterMirrorsResponse {
        /// How long the client is to be quiet.
        throttle_time_ms: i32 = 0,
        /// What is wrong with the request as a whole.
        error_code: ErrorCode = ErrorCode::NONE,
        /// What to tell the user.
        error_message: Option<StrBytes> = None,
        /// The mirrors that the principal may see.
        mirrors: Vec<ListedMirror> = Vec::new(),
    }
    /// One mirror of [`ListClusterMirrorsResponse`].
    ListedMirror {
        /// Its name.
        mirror_name: StrBytes = StrBytes::default(),
        /// Where its source is.
        source_bootstrap: StrBytes = StrBytes::default(),
        /// The source's cluster id, empty when unknown.
        source_cluster_id: StrBytes = StrBytes::default(),
        /// How many topics it has.
        topic_count: i32 = 0,
        /// Their names, when asked for.
        topic_names: Option<Vec<StrBytes>> = None,
    }
    /// Describes mirrors down to their partitions (fork commit `6215a562`).
    DescribeClusterMirrorsRequest {
        /// The mirrors, `None` for all.
        mirror_names: Option<Vec<StrBytes>> = None,
        /// Whether to say what the principal may do.
        include_authorized_operations: bool = false,
        @tags {
            /// Only mirrors whose source is this cluster.
            0 cluster_id: Option<StrBytes> = None::<StrBytes>,
            /// Partitions whose last mirrored position is asked for.
            1 last_mirror_epoch_lookups: Vec<LastMirrorEpochLookup> = Vec::<LastMirrorEpochLookup>::new(),
        }
    }
    /// One topic of [`DescribeClusterMirrorsRequest::last_mirror_epoch_lookups`].
    LastMirrorEpochLookup {
        /// The topic.
        topic_id: Uuid = Uuid::ZERO,
        /// Its partitions.
        partitions: Vec<i32> = Vec::new(),
    }
    /// The answer to [`DescribeClusterMirrorsRequest`] (fork commit `070c496d`).
    DescribeClusterMirrorsResponse {
        /// How long the client is to be quiet.
        throttle_time_ms: i32 = 0,
        /// What is wrong with the request as a whole.
        error_code: ErrorCode = ErrorCode::NONE,
        /// What to tell the user.
        error_message: Option<StrBytes> = None,
        /// The mirrors.
        mirrors: Vec<DescribedMirror> = Vec::new(),
    }
    /// One mirror of [`DescribeClusterMirrorsResponse`].
    DescribedMirror {
        /// What is wrong with this mirror, if anything.
        error_code: ErrorCode = ErrorCode::NONE,
        /// What to tell the user.
        error_message: Option<StrBytes> = None,
        /// Its name.
        mirror_name: StrBytes = StrBytes::default(),
        /// Where its source is.
        source_bootstrap: Option<StrBytes> = None,
        /// The source's cluster id.
        source_cluster_id: Option<StrBytes> = None,
        /// Bits of what the principal may do, `i32::MIN` when not asked for.
        authorized_operations: i32 = i32::MIN,
        /// Its topics.
        topics: Vec<DescribedMirrorTopic> = Vec::new(),
    }
    /// One topic of [`DescribedMirror`].
    DescribedMirrorTopic {
        /// Its name.
        topic_name: StrBytes = StrBytes::default(),
        /// Its partitions.
        partitions: Vec<DescribedMirrorPartition> = Vec::new(),
    }
    /// One partition of [`DescribedMirrorTopic`].
    DescribedMirrorPartition {
        /// The partition.
        partition_index: i32 = 0,
        /// Its state by name, see [`MirrorPartitionState::name`].
        state_value: StrBytes = StrBytes::default(),
        /// Why it is FAILED.
        error_message: Option<StrBytes> = None,
        /// Which retry it is at.
        retry_attempt: i16 = 0,
        /// The source's high watermark, −1 when unknown.
        source_offset: i64 = -1,
        /// The own log end, −1 when unknown.
        destination_offset: i64 = -1,
        /// Leader epoch of the last mirrored record, −1 when none.
        last_mirror_epoch: i32 = -1,
        /// Offset behind the last mirrored record, −1 when none.
        last_mirror_offset: i64 = -1,
        @tags {
            /// weir's: the fixed name of the reason it is FAILED for.
            10_000 failure: Option<StrBytes> = None::<StrBytes>,
            /// weir's: how long ago the source last answered a fetch of it, −1 when never.
            10_001 last_fetch_age_ms: i64 = -1,
            /// weir's: offset of the barrier that made it writable, −1 when none.
            10_002 barrier_offset: i64 = -1,
            /// weir's: the own leader epoch, −1 when unknown.
            10_003 leader_epoch: i32 = -1,
        }
    }
    /// Pauses topics of a mirror.
    PauseMirrorTopicsRequest {
        /// The mirror.
        mirror_name: StrBytes = StrBytes::default(),
        /// The topics.
        topics: Vec<MirrorTopic> = Vec::new(),
        /// Metadata offset of the sender's knowledge, −1 for no check.
        state_offset: i64 = -1,
    }
    /// The answer to [`PauseMirrorTopicsRequest`].
    PauseMirrorTopicsResponse {
        /// How long the client is to be quiet.
        throttle_time_ms: i32 = 0,
        /// What is wrong with the request as a whole.
        error_code: ErrorCode = ErrorCode::NONE,
        /// What to tell the user.
        error_message: Option<StrBytes> = None,
        /// What became of each topic.
        topics: Vec<MirrorTopicResult> = Vec::new(),
    }
    /// Resumes paused topics of a mirror.
    ResumeMirrorTopicsRequest {
        /// The mirror.
        mirror_name: StrBytes = StrBytes::default(),
        /// The topics.
        topics: Vec<MirrorTopic> = Vec::new(),
        /// Metadata offset of the sender's knowledge, −1 for no check.
        state_offset: i64 = -1,
    }
    /// The answer to [`ResumeMirrorTopicsRequest`].
    ResumeMirrorTopicsResponse {
        /// How long the client is to be quiet.
        throttle_time_ms: i32 = 0,
        /// What is wrong with the request as a whole.
        error_code: ErrorCode = ErrorCode::NONE,
        /// What to tell the user.
        error_message: Option<StrBytes> = None,
        /// What became of each topic.
        topics: Vec<MirrorTopicResult> = Vec::new(),
    }
    /// Forgets a mirror whose topics are all stopped. The topics stay.
    DeleteClusterMirrorRequest {
        /// The mirror.
        mirror_name: StrBytes = StrBytes::default(),
        /// Metadata offset of the sender's knowledge, −1 for no check.
        state_offset: i64 = -1,
    }
    /// The answer to [`DeleteClusterMirrorRequest`].
    DeleteClusterMirrorResponse {
        /// How long the client is to be quiet.
        throttle_time_ms: i32 = 0,
        /// What became of it.
        error_code: ErrorCode = ErrorCode::NONE,
        /// What to tell the user.
        error_message: Option<StrBytes> = None,
    }
    /// Has the FAILED partitions of some topics tried again.
    RecoverMirrorTopicsRequest {
        /// The mirror.
        mirror_name: StrBytes = StrBytes::default(),
        /// The topics.
        topics: Vec<MirrorTopic> = Vec::new(),
    }
    /// The answer to [`RecoverMirrorTopicsRequest`].
    RecoverMirrorTopicsResponse {
        /// How long the client is to be quiet.
        throttle_time_ms: i32 = 0,
        /// What is wrong with the request as a whole.
        error_code: ErrorCode = ErrorCode::NONE,
        /// What to tell the user.
        error_message: Option<StrBytes> = None,
        /// What became of each topic.
        topics: Vec<MirrorTopicResult> = Vec::new(),
    }
}

#[cfg(test)]
mod tests;
