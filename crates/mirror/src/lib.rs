//! Mirroring of partitions from another Kafka cluster: decisions, and the loop that drives
//! them.
//!
//! For: whoever keeps a byte-for-byte copy of topics and must be able to make it writable.
//! Not here: logs, files, sockets of a server, the command line; what is written to is a
//! [`Destination`], what is read from a [`Source`].
//!
//! Start from [`partition::MirrorPartition`] (one partition, pure), [`fetch::FetchState`]
//! (what a fetch response means, pure) and [`runner::Mirror`] (drives both).
//!
//! ```
//! use weir_mirror::partition::{Action, Desired, Event, MirrorPartition};
//! use weir_mirror::state::MirrorPartitionState;
//! # use weir_mirror::destination::LogState;
//! # use weir_format::{LeaderEpoch, Offset};
//! # let epoch = LeaderEpoch::new(11).unwrap();
//! # let log = LogState { log_start_offset: Offset::ZERO, high_watermark: Offset::ZERO,
//! #     last_stable_offset: Offset::ZERO, log_end_offset: Offset::ZERO, leader_epoch: epoch,
//! #     latest_epoch: None, newest_batch: None };
//! let mut partition = MirrorPartition::load(None, &log);
//! let actions: Vec<_> = partition.step(Event::Desired(Desired::Mirroring)).into_iter().collect();
//! let [Action::Store(transition)] = actions.as_slice() else { panic!("stores first") };
//! assert_eq!(transition.record.state, MirrorPartitionState::LogAlignment);
//! assert_eq!(partition.step(Event::Stored).into_iter().next(), Some(Action::Align));
//! ```
//!
//! The long document is `docs/architecture.md`, and `docs/barrier.md` for the stop.

#![forbid(unsafe_code)]

pub mod alignment;
pub mod barrier;
pub mod destination;
pub mod failure;
pub mod fetch;
pub mod kafka_source;
pub mod partition;
pub mod record;
pub mod runner;
pub mod source;
pub mod state;

pub use destination::{Destination, DestinationError};
pub use failure::Failure;
pub use source::{Source, SourceError, TopicId, TopicPartition};
