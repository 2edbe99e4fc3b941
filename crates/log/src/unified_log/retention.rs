//! The start of the log: what is deleted from it.

use weir_format::Offset;
use weir_segment::io::Io;

use super::UnifiedLog;
use crate::error::ChangeError;

impl UnifiedLog {
    /// Moves the log start up to `offset`, and deletes the segments that lie wholly below it. A lower offset than the
    /// log start changes nothing.
    ///
    /// The new log start is published at once; the node makes it durable in `log-start-offset-checkpoint`.
    ///
    /// # Errors
    /// [`ChangeError::OffsetOutOfRange`] above the high watermark; see [`ChangeError`].
    pub fn advance_log_start(&mut self, io: &mut dyn Io, offset: Offset) -> Result<(), ChangeError> {
        self.check_online()?;
        if offset > self.high_watermark {
            return Err(ChangeError::OffsetOutOfRange {
                asked: offset,
                first: self.log_start_offset,
                last: self.high_watermark,
            });
        }
        if offset <= self.log_start_offset {
            return Ok(());
        }
        self.log_start_offset = offset;
        self.epochs_unsaved |= self.epochs.truncate_from_start(offset);
        self.psm.on_log_start_offset(offset);
        self.publish();
        let deleted = self.log.delete_before(io, offset);
        let deleted = self.or_offline(deleted)?;
        if !deleted.is_empty() {
            let first = self.log.first_offset();
            self.file.delete_below(first);
            self.save_partition_file(io)?;
            let removed = weir_recovery::remove_snapshots(io, &self.dir, |at| at < first);
            self.or_offline(removed)?;
            let saved = self.save_epochs(io);
            self.or_offline(saved)?;
        }
        Ok(())
    }
}
