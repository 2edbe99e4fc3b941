//! Producer snapshots on their way to the disk, beside the appends.
//!
//! A snapshot is begun where a segment is left, and costs nothing there: producer state keeps what it was. From then on
//! whoever owns the log calls [`UnifiedLog::snapshot_step`] between other work. Each step encodes some producers, and hands
//! one write or one sync to the disk; its completion comes as those of appends do.
//!
//! The order is the law (B7): the snapshot durable under its name, then the partition file that names it. A crash in
//! between costs a replay. What changes the log meanwhile ends it: a barrier and a cut drop what is not durable yet.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use weir_format::Offset;
use weir_psm::snapshot::SnapshotPiece;
use weir_recovery::{partition_file_path, with_snapshot};
use weir_segment::io::durable::{self, TEMPORARY_SUFFIX};
use weir_segment::io::{At, Done, FileId, Io, IoError, Op, Open, Operation, SyncKind, Ticket, Wait};
use weir_segment::layout::{FileKind, file_path};
use weir_segment::{LogSegment, SegmentError};

use super::UnifiedLog;
use crate::error::because;

/// Producers that one step encodes: some 100 µs.
const PIECE: usize = 2_048;

/// Bytes after which what was written is synced, so that the last sync has not all of it before it, and appends beside it
/// have a disk that is never busy for long.
const SYNC_EVERY: usize = 1 << 20;

/// A snapshot that is not durable, or not named, yet.
#[derive(Debug)]
pub(super) struct SnapshotWrite {
    /// Where it is written, and what it becomes.
    path: PathBuf,
    file: Option<FileId>,
    stage: Stage,
    flying: Option<Ticket>,
    /// What the queue of the disk had no room for, or took a part of.
    unsent: Option<Op>,
    failed: Option<IoError>,
    unsynced: usize,
    next_ticket: u64,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// Its producers are encoded and written.
    Entries,
    /// It is written.
    Written { offset: Offset, crc: u32 },
    /// It is synced, under another name.
    Synced { offset: Offset, crc: u32 },
    /// It is durable, and a partition file that names it is written.
    Naming { offset: Offset, crc: u32 },
    /// That is synced, under another name.
    Named { offset: Offset, crc: u32 },
}

enum Step {
    Again,
    Waits,
    Ended,
    /// Producer state does not have it any more.
    Void,
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY_SUFFIX);
    PathBuf::from(name)
}

impl SnapshotWrite {
    fn new(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            stage: Stage::Entries,
            flying: None,
            unsent: None,
            failed: None,
            unsynced: 0,
            next_ticket: 0,
        }
    }

    /// The file that is written, made empty if it is not open.
    fn file(&mut self, io: &mut dyn Io) -> Result<FileId, IoError> {
        if let Some(file) = self.file {
            return Ok(file);
        }
        let file = io.open(&temporary(&self.path), Open::CreateOrOpen)?;
        self.file = Some(file);
        io.truncate(file, 0)?;
        Ok(file)
    }

    fn submit(&mut self, io: &mut dyn Io, owner: u32, op: Op) -> Step {
        let ticket = weir_segment::ticket(owner, self.next_ticket);
        match io.submit(ticket, op) {
            Ok(()) => {
                self.flying = Some(ticket);
                self.next_ticket += 1;
            }
            Err(op) => self.unsent = Some(op),
        }
        Step::Waits
    }

    fn write(&mut self, io: &mut dyn Io, owner: u32, at: u64, bytes: Bytes) -> Result<Step, IoError> {
        let file = self.file(io)?;
        self.unsynced = self.unsynced.saturating_add(bytes.len());
        Ok(self.submit(io, owner, Op::Write { file, at, bytes }))
    }

    fn sync(&mut self, io: &mut dyn Io, owner: u32, what: SyncKind) -> Result<Step, IoError> {
        let file = self.file(io)?;
        self.unsynced = 0;
        Ok(self.submit(io, owner, Op::Sync { file, what }))
    }

    /// Closes what was synced and gives it its name, durably.
    fn rename(&mut self, io: &mut dyn Io) -> Result<(), IoError> {
        if let Some(file) = self.file.take() {
            io.close(file)?;
        }
        // DURABLE: a producer snapshot, and later the partition file that names it.
        durable::rename(io, &temporary(&self.path), &self.path)
    }

    /// Waits for what is in flight and takes the file away; the file whose completion is still to come, if one is.
    fn abandon(mut self, io: &mut dyn Io) -> Option<FileId> {
        let path = temporary(&self.path);
        let file = self.file.take()?;
        if let Err(error) = io.close(file).and_then(|()| io.remove(&path)) {
            tracing::debug!(%error, "a file without use is left");
        }
        self.flying.map(|_| file)
    }
}

impl UnifiedLog {
    /// Begins a snapshot at `offset`, where producer state ends, unless one is under way: that one is finished.
    ///
    /// A start from it does not see the batches below it, so what else those say must be on the disk before: leader epochs
    /// and transaction indexes. Where that fails the log can do without all three: the next start goes from an older
    /// snapshot, or from the first segment, and finds them again. (Epochs without records were written when they began.)
    pub(super) fn begin_snapshot(&mut self, io: &mut dyn Io, offset: Offset) {
        if let Err(error) = self.save_epochs(io).and_then(|()| self.log.write_transactions(io)) {
            tracing::warn!(error = because(&error), dir = %self.dir.display(), "no producer snapshot at the new segment");
            self.snapshot_failed = true;
            return;
        }
        if self.snapshot_write.is_none() && self.file.snapshot(offset).is_none() && self.psm.start_snapshot()
        {
            let path = file_path(&self.dir, offset, FileKind::Snapshot);
            self.snapshot_write = Some(Box::new(SnapshotWrite::new(path)));
        }
    }

    /// Whether a producer snapshot is under way: then [`UnifiedLog::snapshot_step`] has something to do, now or once a
    /// completion came.
    #[must_use]
    pub fn is_writing_snapshot(&self) -> bool {
        self.snapshot_write.is_some()
    }

    /// Moves the producer snapshot that is under way on by one step; true if the next one may follow at once, false if it
    /// waits for a completion or there is none.
    ///
    /// It fails alone: what the disk refuses is logged, and the next start replays from an older snapshot.
    ///
    /// Cost: some 100 µs, and one operation for the disk. Once for a snapshot two names are synced, blocking.
    pub fn snapshot_step(&mut self, io: &mut dyn Io) -> bool {
        let Some(mut write) = self.snapshot_write.take() else { return false };
        if write.flying.is_some() {
            self.snapshot_write = Some(write);
            return false;
        }
        let step = match write.failed.take() {
            Some(error) => Err(error),
            None if self.offline => Ok(Step::Void),
            None => self.move_on(io, &mut write),
        };
        match step {
            Ok(step @ (Step::Again | Step::Waits)) => {
                self.snapshot_write = Some(write);
                return matches!(step, Step::Again);
            }
            Ok(Step::Ended) => {
                self.snapshot_failed = false;
                self.counters.snapshots_written += 1;
            }
            Ok(Step::Void) => {
                self.psm.drop_snapshot();
                self.abandon(io, *write);
            }
            Err(error) => {
                tracing::warn!(error = because(&error), dir = %self.dir.display(), "no producer snapshot at the new segment");
                self.snapshot_failed = true;
                self.psm.drop_snapshot();
                self.abandon(io, *write);
            }
        }
        false
    }

    fn move_on(&mut self, io: &mut dyn Io, write: &mut SnapshotWrite) -> Result<Step, IoError> {
        let owner = self.owner;
        if let Some(op) = write.unsent.take() {
            return Ok(write.submit(io, owner, op));
        }
        match write.stage {
            Stage::Entries if write.unsynced >= SYNC_EVERY => write.sync(io, owner, SyncKind::Data),
            Stage::Entries => match self.psm.snapshot_piece(PIECE) {
                None => Ok(Step::Void),
                Some(SnapshotPiece::Entries { bytes, .. }) if bytes.is_empty() => Ok(Step::Again),
                Some(SnapshotPiece::Entries { position, bytes }) => {
                    write.write(io, owner, position, Bytes::from(bytes))
                }
                Some(SnapshotPiece::Header { bytes, offset, crc }) => {
                    write.stage = Stage::Written { offset, crc };
                    write.write(io, owner, 0, Bytes::copy_from_slice(&bytes))
                }
            },
            Stage::Written { offset, crc } => {
                write.stage = Stage::Synced { offset, crc };
                write.sync(io, owner, SyncKind::All)
            }
            Stage::Synced { offset, crc } => {
                write.rename(io)?;
                if io.metadata(&self.side_dir)?.is_none() {
                    durable::create_dir_all(io, &self.side_dir)?;
                }
                self.note_transactions(io, offset)?;
                let (named, _) = with_snapshot(&self.file, offset, crc);
                write.path = partition_file_path(&self.side_dir);
                write.stage = Stage::Naming { offset, crc };
                write.write(io, owner, 0, Bytes::from(named.encode()))
            }
            Stage::Naming { offset, crc } => {
                write.stage = Stage::Named { offset, crc };
                write.sync(io, owner, SyncKind::All)
            }
            Stage::Named { offset, crc } => {
                write.rename(io)?;
                self.name_snapshot(io, offset, crc);
                Ok(Step::Ended)
            }
        }
    }

    /// Notes what the transaction indexes of the segments below `end` hold, where it is not known yet: they are on the disk
    /// as they are in memory, or no snapshot would have been begun.
    fn note_transactions(&mut self, io: &mut dyn Io, end: Offset) -> Result<(), IoError> {
        let bases: Vec<Offset> =
            self.log.segments().map(LogSegment::base_offset).take_while(|base| *base < end).collect();
        // The last segment that was noted before may have grown since.
        let first = bases.partition_point(|base| *base <= self.file.indexed()).saturating_sub(1);
        for base in bases.into_iter().skip(first) {
            match self.log.segment_transactions(io, base) {
                Ok(index) => self.file.note_transactions(base, &index, end),
                Err(SegmentError::Io(error)) => return Err(error),
                // Not readable as one: what lies behind it is not noted either.
                Err(_) => return Ok(()),
            }
        }
        self.file.set_indexed(self.file.indexed().max(end));
        Ok(())
    }

    /// The snapshot at `offset` is one of the newest two from now on, and those that are not go.
    fn name_snapshot(&mut self, io: &mut dyn Io, offset: Offset, crc: u32) {
        let (named, kept) = with_snapshot(&self.file, offset, crc);
        let before = std::mem::replace(&mut self.file, named);
        for (gone, _) in before.snapshots().filter(|(at, _)| !kept.contains(at)) {
            self.remove_snapshot(io, gone);
        }
    }

    /// Removes a snapshot that the partition file does not name any more. What is left does no harm, so no name is synced.
    pub(super) fn remove_snapshot(&mut self, io: &mut dyn Io, offset: Offset) {
        match io.remove(&file_path(&self.dir, offset, FileKind::Snapshot)) {
            Err(error) if !error.is_not_found() => {
                tracing::debug!(%error, "a producer snapshot without use is left");
            }
            _ => {}
        }
    }

    /// Takes the completion of a write or a sync of the snapshot that is under way.
    #[expect(clippy::result_large_err, reason = "a completion that is given back is a value, not a failure")]
    pub(super) fn snapshot_done(&mut self, done: Done) -> Result<(), Done> {
        if let Some(at) = self.abandoned.iter().position(|file| *file == done.op.file()) {
            self.abandoned.swap_remove(at);
            return Ok(());
        }
        let Some(write) = &mut self.snapshot_write else { return Err(done) };
        if write.flying != Some(done.ticket) || write.file != Some(done.op.file()) {
            return Err(done);
        }
        write.flying = None;
        match (done.op, done.result) {
            (_, Err(error)) => write.failed = Some(error),
            (Op::Write { file, at, bytes }, Ok(count)) => {
                // D1: a count may be short.
                let count = usize::try_from(count).unwrap_or(usize::MAX).min(bytes.len());
                if count == 0 && !bytes.is_empty() {
                    let at = At { operation: Operation::Write, path: write.path.clone(), position: Some(at) };
                    write.failed =
                        Some(IoError::Short { at, done: 0, wanted: super::append::to_u64(bytes.len()) });
                } else if count < bytes.len() {
                    let at = at.saturating_add(super::append::to_u64(count));
                    write.unsent = Some(Op::Write { file, at, bytes: bytes.slice(count..) });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn abandon(&mut self, io: &mut dyn Io, write: SnapshotWrite) {
        self.abandoned.extend(write.abandon(io));
    }

    /// Before the partition file is written by somebody else: one that is being written beside it is let go of, and the
    /// snapshot that it was to name, which is durable, is named by the next one.
    pub(super) fn settle_naming(&mut self, io: &mut dyn Io) {
        let stage = self.snapshot_write.as_ref().map(|write| write.stage);
        if let Some(Stage::Naming { offset, crc } | Stage::Named { offset, crc }) = stage
            && let Some(write) = self.snapshot_write.take()
        {
            self.abandon(io, *write);
            self.name_snapshot(io, offset, crc);
        }
    }

    /// Before the log is cut, emptied or closed: a snapshot that is durable is named, any other is dropped.
    pub(super) fn end_snapshot(&mut self, io: &mut dyn Io) {
        self.settle_naming(io);
        if let Some(write) = self.snapshot_write.take() {
            self.abandon(io, *write);
        }
        self.psm.drop_snapshot();
    }

    /// Finishes the producer snapshot that is under way, blocking: for tools and tests that have nothing else to do.
    pub fn finish_snapshot(&mut self, io: &mut dyn Io) {
        let (mut done, mut others) = (Vec::new(), Vec::new());
        while self.is_writing_snapshot() {
            if self.snapshot_step(io) || !self.is_writing_snapshot() {
                continue;
            }
            if io.reap(Wait::Block, &mut done).is_err() {
                self.end_snapshot(io);
            }
            others.extend(done.drain(..).filter_map(|done| self.on_done(done).err()));
        }
        if !others.is_empty() {
            io.put_back(others);
        }
    }
}
