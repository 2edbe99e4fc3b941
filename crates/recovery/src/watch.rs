//! What a long call tells the one who waits for it, and asks: how far it is, whether to go on, and the time.

use std::ops::ControlFlow;
use std::time::Duration;

use crate::error::LoadError;
use crate::tail::TailRead;
use crate::walk::FileView;

/// How much is read between two calls of [`Watch::progress`], in bytes.
pub(crate) const STEP: u64 = 1 << 20;

/// Somebody who waits for a load: sees how far it is, may end it, and has a clock.
///
/// The crate reads no clock and knows no signal; whoever owns them passes them in here.
pub trait Watch {
    /// Called at the start of each phase and each segment, and at least once for every MiB that is read; bytes never go
    /// back within a phase of one call, but a load that has to trust less begins its walk again.
    ///
    /// `Break` ends the call with its *interrupted* error: what was done stays done, and the next call does the rest.
    fn progress(&mut self, progress: &Progress) -> ControlFlow<()>;

    /// The time since any fixed moment, for the durations in the report; `None` if there is no clock.
    fn now(&mut self) -> Option<Duration>;
}

/// Nobody waits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn progress(&mut self, _: &Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn now(&mut self) -> Option<Duration> {
        None
    }
}

/// How far a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What it is doing.
    pub phase: Phase,
    /// Bytes of this phase that are done.
    pub bytes_done: u64,
    /// Bytes of this phase.
    pub bytes_total: u64,
}

/// What a call is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Files of interrupted operations are finished or dropped.
    Leftovers,
    /// Batches are checked and fed to producer state.
    Walk,
    /// What lies behind the last valid batch is searched for others.
    Tail,
    /// Indexes and small files are written.
    Rebuild,
    /// Bytes are copied into an archive.
    Archive,
}

/// The watch asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stop;

/// The phases of a call, counted.
pub(crate) struct Meter<'a> {
    watch: &'a mut dyn Watch,
    count: Count,
}

/// Where a phase is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count {
    phase: Phase,
    done: u64,
    total: u64,
    told: u64,
}

impl<'a> Meter<'a> {
    /// Begins with a phase, and says so.
    pub(crate) fn begin(watch: &'a mut dyn Watch, phase: Phase, total: u64) -> Result<Self, Stop> {
        let mut meter = Self { watch, count: Count { phase, done: 0, total, told: 0 } };
        meter.tell()?;
        Ok(meter)
    }

    /// Goes over to another phase, and says so; the count of the one before can be [resumed](Self::resume).
    pub(crate) fn enter(&mut self, phase: Phase, total: u64) -> Result<Count, Stop> {
        let before = std::mem::replace(&mut self.count, Count { phase, done: 0, total, told: 0 });
        self.tell()?;
        Ok(before)
    }

    /// Goes on with a phase that another one interrupted.
    pub(crate) fn resume(&mut self, count: Count) {
        self.count = count;
    }

    /// So many bytes more are done.
    pub(crate) fn add(&mut self, bytes: u64) -> Result<(), Stop> {
        self.count.done = self.count.done.saturating_add(bytes);
        if self.count.done.saturating_sub(self.count.told) < STEP { Ok(()) } else { self.tell() }
    }

    /// Says how far it is.
    pub(crate) fn tell(&mut self) -> Result<(), Stop> {
        let count = &mut self.count;
        count.told = count.done;
        // A file that grows meanwhile is no reason to say more than all.
        count.total = count.total.max(count.done);
        let progress = Progress { phase: count.phase, bytes_done: count.done, bytes_total: count.total };
        match self.watch.progress(&progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Stop),
        }
    }

    /// The time, if the watch has a clock.
    pub(crate) fn now(&mut self) -> Option<Duration> {
        self.watch.now()
    }
}

/// A file whose reads are counted, so that a long look at it can be ended.
pub(crate) struct Metered<'a, 'b> {
    pub(crate) view: FileView<'a>,
    pub(crate) meter: &'a mut Meter<'b>,
}

impl TailRead for Metered<'_, '_> {
    type Error = LoadError;

    fn size(&self) -> u64 {
        self.view.size
    }

    fn read_at(&mut self, position: u64, into: &mut [u8]) -> Result<(), LoadError> {
        self.view.read_at(position, into)?;
        Ok(self.meter.add(u64::try_from(into.len()).unwrap_or(u64::MAX))?)
    }
}
