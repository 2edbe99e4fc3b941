//! Kafka's record batches as borrowed views, and the one writer of batches.
//!
//! `weir-format` turns bytes into meaning and meaning into bytes: it finds a batch in a buffer, checks its frame and
//! its CRC-32C, reads its header, walks its records, names its control records, recognises the **barrier**
//! (`MIRROR_PID_RESET`, KIP-1279) and builds all of these.
//!
//! It deliberately does no I/O, reads no clock, keeps no producer history, decides nothing about offsets or
//! transactions, and allocates nothing whose size an input chose. Compressed batches are kept whole: their header is
//! readable, and with the feature `codec` so are their records, explicitly and up to a limit
//! (`RecordBatch::record_stream`, `RecordBatch::decompress`). Message sets of magic 0 and 1 are read and never written;
//! what expects a batch refuses them by name.
//!
//! Start from [`RecordBatch`] (one verified batch), [`BatchReader`] (all batches of a buffer) and [`BatchBuilder`]; for
//! what Kafka wrote before 0.11, from [`Message`] and [`AnyBatchReader`].
//!
//! ```text
//! byte  0        8     12    16 17    21  23    27        35        43        51  53    57    61
//!       +--------+-----+-----+--+-----+---+-----+---------+---------+---------+---+-----+-----+---------
//!       | base   |batch|lead.|ma|crc  |att|last |base     |max      |producer |ep.|base |rec. | records
//!       | offset |len. |epoch|2 |32c  |rib|delta|timestamp|timestamp|id       |   |seq. |count|
//!       +--------+-----+-----+--+-----+---+-----+---------+---------+---------+---+-----+-----+---------
//!                |<- batch length counts from byte 12 to the end ----------------------------------->
//!                                     |<- the CRC covers byte 21 to the end ------------------------->
//! ```
//!
//! Base offset and leader epoch lie outside the CRC, so that a leader can stamp them without touching the rest.
//!
//! ```
//! use weir_format::{BatchBuilder, BatchReader, MirrorPidReset, Offset, TimestampMs};
//!
//! let now = TimestampMs::new(1_767_225_600_000);
//! let mut log = BatchBuilder::new().record(now, Some(b"key"), Some(b"value")).build()?;
//! let mut barrier = MirrorPidReset::build(now);
//! weir_format::set_base_offset(&mut barrier, Offset::new(1).expect("not negative"))?;
//! log.extend_from_slice(&barrier);
//!
//! let mut found = Vec::new();
//! for batch in BatchReader::new(&log) {
//!     if let Some(barrier) = MirrorPidReset::describe(&batch?) {
//!         found.push((barrier.offset.get(), barrier.timestamp));
//!     }
//! }
//! assert_eq!(found, [(1, now)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The long documents are `docs/barrier.md` and `docs/on-disk-format.md`, which has every byte; the bytes are Kafka's, as
//! `DefaultRecordBatch` and `DefaultRecord` write them.

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::as_conversions)]
#![cfg_attr(
    test,
    allow(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        reason = "a test that indexes wrongly should fail loudly"
    )
)]

mod barrier;
mod batch;
mod builder;
#[cfg(feature = "codec")]
pub mod codec;
mod control;
mod control_value;
pub mod crc;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod ids;
mod message_set;
mod record;
#[cfg(feature = "codec")]
mod stream;
pub mod varint;

pub use barrier::{MirrorPidReset, MirrorPidResetValue};
pub use batch::{
    BatchHeader, BatchReader, Codec, FRAME_SIZE, HEADER_SIZE, MAGIC, RecordBatch, TimestampType, frame_size,
    header_of, set_base_offset, set_leader_epoch, set_log_append_time, set_max_timestamp,
};
pub use builder::BatchBuilder;
pub use control::{ControlRecordKey, ControlRecordType, EndTransactionMarker};
pub use control_value::{ControlRecordValue, Endpoint, Voter};
pub use error::{
    AnyBatchError, BatchError, BuildError, CodecError, ControlError, MessageError, RecordError, VarintError,
};
pub use ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
pub use message_set::{AnyBatch, AnyBatchReader, Message, MessageSetReader, message_size};
pub use record::{Header, Headers, Record, Records};
#[cfg(feature = "codec")]
pub use stream::{MessageStream, RecordStream};
