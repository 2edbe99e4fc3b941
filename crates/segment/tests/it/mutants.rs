//! Tests of the tests: the same enumeration of crashes passes a log writer that is right, and catches ones that are not.
//!
//! The writer here is the smallest that appends to a file as D11 asks: it sends the block that was not full again from
//! its start, waits for a write in flight that contains it, and gathers what arrives meanwhile. Each mutant breaks one
//! rule.

use std::path::Path;

use bytes::Bytes;
use weir_format::RecordBatch;
use weir_segment::io::sim::{CrashPolicy, SimDisk, SimIo};
use weir_segment::io::{BLOCK_SIZE, FileId, Io, IoError, Op, Open, SyncKind, Ticket, Wait};

use crate::support::{NOW, batch};

fn place(position: u64) -> usize {
    usize::try_from(position).unwrap()
}

const FILE: &str = "/log";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    /// None: it is right.
    Right,
    /// Does not wait for the write in flight that contains the block that was not full.
    SharesBlocks,
    /// Acknowledges what is written, before the sync.
    AcknowledgesBeforeTheSync,
    /// Submits the sync while writes are in flight, and takes it to cover them.
    SyncsBeforeTheReap,
    /// Takes a sync to cover what was appended while it was in flight.
    AcknowledgesTheEnd,
}

struct Writer {
    io: SimIo,
    file: FileId,
    mutant: Mutant,
    /// Everything that was appended.
    image: Vec<u8>,
    /// Ends of the batches in it.
    ends: Vec<u64>,
    /// How much of it was handed to writes.
    submitted: u64,
    /// First and last byte of writes in flight.
    in_flight: Vec<(Ticket, u64, u64)>,
    next_ticket: u64,
    /// How much of it is known to be durable.
    acknowledged: u64,
}

impl Writer {
    fn open(disk: &SimDisk, mutant: Mutant) -> Result<Writer, IoError> {
        let mut io = disk.io();
        let file = io.open(Path::new(FILE), Open::Append)?;
        Ok(Writer {
            io,
            file,
            mutant,
            image: Vec::new(),
            ends: Vec::new(),
            submitted: 0,
            in_flight: Vec::new(),
            next_ticket: 0,
            acknowledged: 0,
        })
    }

    fn end(&self) -> u64 {
        self.image.len() as u64
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket::new(self.next_ticket)
    }

    fn append(&mut self, bytes: &Bytes) -> Result<(), IoError> {
        self.image.extend_from_slice(bytes);
        self.ends.push(self.end());
        self.pump();
        self.reap(Wait::Poll)
    }

    /// Writes what was gathered, if it may.
    fn pump(&mut self) {
        let from = self.submitted / BLOCK_SIZE * BLOCK_SIZE;
        let must_wait = self.in_flight.iter().any(|(_, _, last)| last / BLOCK_SIZE >= from / BLOCK_SIZE);
        if self.submitted == self.end() || (must_wait && self.mutant != Mutant::SharesBlocks) {
            return;
        }
        let ticket = self.ticket();
        let bytes = Bytes::copy_from_slice(&self.image[place(from)..]);
        self.in_flight.push((ticket, from, self.end() - 1));
        self.submitted = self.end();
        assert!(self.io.submit(ticket, Op::Write { file: self.file, at: from, bytes }).is_ok());
    }

    fn reap(&mut self, wait: Wait) -> Result<(), IoError> {
        let mut done = Vec::new();
        self.io.reap(wait, &mut done)?;
        for done in done {
            self.in_flight.retain(|(ticket, ..)| *ticket != done.ticket);
            let Op::Write { at, bytes, .. } = done.op else {
                done.result?;
                continue;
            };
            let count = done.result? as usize;
            // A short write goes on where it ended.
            if count < bytes.len() {
                let (rest, at) = (bytes.slice(count..), at + count as u64);
                let ticket = self.ticket();
                self.in_flight.push((ticket, at, at + rest.len() as u64 - 1));
                assert!(self.io.submit(ticket, Op::Write { file: self.file, at, bytes: rest }).is_ok());
            }
        }
        self.pump();
        Ok(())
    }

    fn sync(&mut self, meanwhile: &Bytes) -> Result<(), IoError> {
        self.pump();
        if self.mutant != Mutant::SyncsBeforeTheReap {
            while self.submitted < self.end() || !self.in_flight.is_empty() {
                self.reap(Wait::Block)?;
            }
        }
        let end = self.end();
        if self.mutant == Mutant::AcknowledgesBeforeTheSync {
            self.acknowledged = end;
        }
        let ticket = self.ticket();
        assert!(self.io.submit(ticket, Op::Sync { file: self.file, what: SyncKind::Data }).is_ok());
        // What arrives while it runs is not covered.
        self.append(meanwhile)?;
        while self.io.in_flight() > 0 {
            self.reap(Wait::Block)?;
        }
        self.acknowledged = if self.mutant == Mutant::AcknowledgesTheEnd { self.end() } else { end };
        Ok(())
    }

    fn work(&mut self) -> Result<(), IoError> {
        let made = |number: i64, size: usize| batch(number, 1, size, NOW.get());
        let sizes = [100, 2_000, 700, 3_900, 50, 5_000, 300, 20];
        for (number, size) in (0..).zip(sizes) {
            self.append(&made(2 * number, size))?;
            if number % 2 == 1 {
                self.sync(&made(2 * number + 1, 400))?;
            }
        }
        Ok(())
    }
}

/// What the enumeration found.
#[derive(Debug, Default)]
struct Found {
    points: usize,
    unlike_submitted: usize,
    lost: usize,
    not_in_the_ledger: usize,
}

/// Whether what was acknowledged is there after a crash, and what is there is a prefix.
fn check(disk: &SimDisk, writer: &Writer, found: &mut Found) {
    found.points += 1;
    let bytes = disk.read_file(Path::new(FILE)).unwrap();
    let mut valid = 0;
    while let Ok(batch) = RecordBatch::parse(&bytes[valid..]) {
        let is_next = writer.ends.contains(&((valid + batch.bytes().len()) as u64));
        let end = valid + batch.bytes().len();
        if !is_next || writer.image.get(valid..end) != Some(batch.bytes()) {
            found.unlike_submitted += 1;
            break;
        }
        valid = end;
    }
    found.lost += usize::from((valid as u64) < writer.acknowledged);
}

fn machine(seed: u64, mutant: Mutant) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.write_file(Path::new(FILE), b"");
    disk.reorder(true);
    disk.yield_always(seed.is_multiple_of(2));
    disk.short(seed % 5 == 4);
    disk.direct(!seed.is_multiple_of(3));
    disk.allocate_ahead((!seed.is_multiple_of(4)).then_some(4_096));
    disk.allow_overlap(mutant == Mutant::SharesBlocks);
    disk
}

/// A crash at every operation of the workload, under every policy.
#[expect(clippy::print_stdout, reason = "the number of crash points is a result")]
fn enumerate(mutant: Mutant, seeds: std::ops::Range<u64>) -> Found {
    let mut found = Found::default();
    for seed in seeds {
        let whole = machine(seed, mutant);
        Writer::open(&whole, mutant).unwrap().work().unwrap();
        for op in 1..=whole.op_count() {
            let off = machine(seed, mutant);
            off.crash_at(op);
            let mut writer = Writer::open(&off, mutant).unwrap();
            assert!(writer.work().is_err());
            let ledger = off.acknowledged().remove(Path::new(FILE)).unwrap_or_default();
            let acknowledged = place(writer.acknowledged);
            let in_ledger = ledger.get(..acknowledged) == Some(&writer.image[..acknowledged]);
            found.not_in_the_ledger += usize::from(!in_ledger);
            for policy in CrashPolicy::ALL {
                let disk = off.fork();
                disk.crash(policy);
                check(&disk, &writer, &mut found);
            }
        }
    }
    println!("{mutant:?}: {found:?}");
    found
}

const SEEDS: std::ops::Range<u64> = 0..20;

#[test]
fn a_writer_that_is_right_loses_nothing() {
    let found = enumerate(Mutant::Right, SEEDS);
    assert!(found.points > 5_000, "{found:?}");
    assert_eq!((found.lost, found.not_in_the_ledger, found.unlike_submitted), (0, 0, 0));
}

#[test]
fn writes_that_share_a_block_in_flight_are_refused() {
    let disk = machine(0, Mutant::Right);
    let error = Writer::open(&disk, Mutant::SharesBlocks).unwrap().work().unwrap_err();
    assert!(matches!(&error, IoError::Misuse { .. }), "{error}");
    assert!(error.to_string().ends_with("another write in flight touches the same block"), "{error}");
}

#[test]
fn writes_that_share_a_block_in_flight_lose_what_was_acknowledged_where_nothing_refuses_them() {
    let found = enumerate(Mutant::SharesBlocks, SEEDS);
    assert!(found.lost > 0 && found.not_in_the_ledger > 0, "{found:?}");
}

#[test]
fn an_acknowledgement_before_the_sync_loses_what_was_acknowledged() {
    for mutant in [Mutant::AcknowledgesBeforeTheSync, Mutant::SyncsBeforeTheReap, Mutant::AcknowledgesTheEnd]
    {
        let found = enumerate(mutant, SEEDS);
        assert!(found.lost > 0 && found.not_in_the_ledger > 0, "{found:?}");
    }
}
