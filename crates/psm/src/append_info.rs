//! What one batch would change, and how much of it is validated for whom.
//!
//! | origin | epoch | sequence | duplicate | open transaction | verification | coordinator epoch |
//! |---|---|---|---|---|---|---|
//! | `Client` | checked | checked | searched | checked | if asked for | - |
//! | `Coordinator` | checked | - | - | checked | if asked for | checked |
//! | `Replication` | taken | taken | - | taken | - | taken |
//!
//! "Taken" means that the log is right whatever it says: mirrored and replayed bytes were
//! validated by their leader, and a log that was accepted once must load again.

use weir_format::{Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

use crate::entry::{BatchMetadata, ProducerStateEntry};
use crate::error::ProducerStateError;
use crate::verification::Verification;

/// Who appends, which says how much is validated.
///
/// Kafka: `AppendOrigin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOrigin {
    /// A producer: everything is validated.
    Client,
    /// Transaction markers, the barrier, a coordinator's own records: epochs are validated.
    Coordinator,
    /// A follower, a mirror, replay: the bytes are taken as they are.
    Replication,
}

/// The rules by which a coordinator numbers its markers.
///
/// Kafka: `transaction.version`, KIP-890.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransactionVersion {
    /// Versions 0 and 1: a marker carries the epoch of its transaction.
    #[default]
    Legacy,
    /// Version 2: a marker carries the next epoch, which the producer goes on with.
    V2,
}

/// The rules for one producer: its entry as it is, and who appends.
pub(crate) struct ProducerAppendInfo<'a> {
    pub(crate) producer_id: ProducerId,
    /// `None`: nothing is known about this producer.
    pub(crate) entry: Option<&'a ProducerStateEntry>,
    /// What the transaction coordinator was asked about it.
    pub(crate) verification: Option<&'a Verification>,
    pub(crate) origin: AppendOrigin,
    /// Where the batch would start.
    pub(crate) offset: Offset,
}

/// A data batch of a producer, after the checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataChange {
    pub(crate) producer_id: ProducerId,
    pub(crate) epoch: Option<ProducerEpoch>,
    pub(crate) batch: BatchMetadata,
    pub(crate) is_transactional: bool,
    pub(crate) starts_transaction: bool,
}

/// A COMMIT or ABORT, after the checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MarkerChange {
    pub(crate) producer_id: ProducerId,
    pub(crate) epoch: Option<ProducerEpoch>,
    /// `None` is Kafka's -1, below every epoch.
    pub(crate) coordinator_epoch: Option<i32>,
    pub(crate) timestamp: TimestampMs,
    pub(crate) aborted: bool,
}

impl ProducerAppendInfo<'_> {
    /// Kafka: `ProducerAppendInfo.appendDataBatch`.
    pub(crate) fn data_batch(
        &self,
        epoch: Option<ProducerEpoch>,
        first_sequence: Option<Sequence>,
        batch: BatchMetadata,
        is_transactional: bool,
        tolerated: &mut Vec<ProducerStateError>,
    ) -> Result<DataChange, ProducerStateError> {
        self.check_epoch(epoch, TransactionVersion::Legacy, tolerated)?;
        if self.origin == AppendOrigin::Client {
            self.check_sequence(epoch, first_sequence)?;
        }
        let open = self.entry.and_then(|entry| entry.transaction_first_offset);
        if let Some(transaction_first_offset) = open
            && !is_transactional
        {
            // Kafka: throws here in replication too, which makes such a log unloadable. Ours loads.
            self.refuse_or_tolerate(
                ProducerStateError::InvalidTxnState {
                    producer_id: self.producer_id,
                    offset: self.offset,
                    transaction_first_offset,
                },
                tolerated,
            )?;
        }
        Ok(DataChange {
            producer_id: self.producer_id,
            epoch,
            batch,
            is_transactional,
            starts_transaction: is_transactional && open.is_none(),
        })
    }

    /// Kafka: `ProducerAppendInfo.appendEndTxnMarker`.
    pub(crate) fn end_transaction_marker(
        &self,
        marker: MarkerChange,
        version: TransactionVersion,
        tolerated: &mut Vec<ProducerStateError>,
    ) -> Result<MarkerChange, ProducerStateError> {
        self.check_epoch(marker.epoch, version, tolerated)?;
        if let Some(entry) = self.entry
            && marker.coordinator_epoch < entry.coordinator_epoch
        {
            self.refuse_or_tolerate(
                ProducerStateError::TransactionCoordinatorFenced {
                    producer_id: self.producer_id,
                    offset: self.offset,
                    coordinator_epoch: marker.coordinator_epoch,
                    current_epoch: entry.coordinator_epoch,
                },
                tolerated,
            )?;
        }
        Ok(marker)
    }

    /// Kafka: `UnifiedLog.analyzeAndValidateProducerState`. A producer whose epoch is over hears
    /// that first, since it can recover from it (KAFKA-19690).
    pub(crate) fn check_verified(
        &self,
        epoch: Option<ProducerEpoch>,
        verified: bool,
    ) -> Result<(), ProducerStateError> {
        self.check_epoch(epoch, TransactionVersion::Legacy, &mut Vec::new())?;
        if verified {
            return Ok(());
        }
        Err(ProducerStateError::NotVerified { producer_id: self.producer_id, offset: self.offset })
    }

    /// Kafka: `ProducerAppendInfo.checkProducerEpoch`.
    fn check_epoch(
        &self,
        epoch: Option<ProducerEpoch>,
        version: TransactionVersion,
        tolerated: &mut Vec<ProducerStateError>,
    ) -> Result<(), ProducerStateError> {
        let Some(entry) = self.entry else {
            return Ok(());
        };
        // `None` is Kafka's -1, and sorts below every epoch as that does.
        let fenced = match version {
            TransactionVersion::Legacy => epoch < entry.producer_epoch,
            // Kafka: KAFKA-19999. A marker that is written again after its answer was lost finds
            // its own epoch and no open transaction.
            TransactionVersion::V2 => {
                epoch < entry.producer_epoch
                    || (epoch == entry.producer_epoch && entry.transaction_first_offset.is_some())
            }
        };
        if fenced {
            self.refuse_or_tolerate(
                ProducerStateError::InvalidProducerEpoch {
                    producer_id: self.producer_id,
                    offset: self.offset,
                    epoch,
                    current_epoch: entry.producer_epoch,
                },
                tolerated,
            )?;
        }
        Ok(())
    }

    /// Kafka: `ProducerAppendInfo.checkSequence`.
    fn check_sequence(
        &self,
        epoch: Option<ProducerEpoch>,
        first_sequence: Option<Sequence>,
    ) -> Result<(), ProducerStateError> {
        let sequence = first_sequence.ok_or(ProducerStateError::MissingSequence {
            producer_id: self.producer_id,
            offset: self.offset,
        })?;
        let out_of_order = |expected| {
            Err(ProducerStateError::OutOfOrderSequence {
                producer_id: self.producer_id,
                offset: self.offset,
                sequence,
                expected,
            })
        };
        if let Some(verification) = self.verification {
            // Kafka: KAFKA-14920, KIP-890. Leading batches were lost, or are late.
            let knows_no_batch = self.entry.is_none_or(|entry| entry.batches().is_empty());
            if verification.version == TransactionVersion::V2 && knows_no_batch && sequence != Sequence::ZERO
            {
                return out_of_order(Sequence::ZERO);
            }
            if let Some(lowest) = verification.lowest_sequence
                && lowest.is_before(sequence)
            {
                return out_of_order(lowest);
            }
        }
        // Any sequence is taken from a producer of which nothing is known: its records may have
        // been deleted, or a barrier stands before it.
        let Some(entry) = self.entry else {
            return Ok(());
        };
        if entry.producer_epoch.is_none() {
            return Ok(());
        }
        let expected = match entry.last_sequence() {
            Some(last) if epoch == entry.producer_epoch => last.plus(1),
            _ => Sequence::ZERO,
        };
        if sequence == expected {
            return Ok(());
        }
        out_of_order(expected)
    }

    fn refuse_or_tolerate(
        &self,
        error: ProducerStateError,
        tolerated: &mut Vec<ProducerStateError>,
    ) -> Result<(), ProducerStateError> {
        if self.origin == AppendOrigin::Replication {
            tolerated.push(error);
            return Ok(());
        }
        Err(error)
    }
}
