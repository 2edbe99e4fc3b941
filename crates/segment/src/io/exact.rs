//! Blocking helpers over [`Io`]: the only code that knows that a count can be short (D1).
//!
//! They may run beside operations that the caller has in flight: completions of those are kept and delivered by the
//! next [`Io::reap`].

use bytes::{Buf, Bytes, BytesMut};

use super::{At, FileId, Io, IoError, Op, Operation, SyncKind, Ticket, Wait};

/// The most that one operation asks for: below what any kernel takes in one call.
const MAX_OPERATION: usize = 1 << 30;

/// Runs one operation to its completion.
fn run(io: &mut dyn Io, op: Op) -> Result<(u32, Op), IoError> {
    let mut others = Vec::new();
    let mut done = Vec::new();
    let mut op = op;
    let outcome = loop {
        match io.submit(Ticket::EXACT, op) {
            Ok(()) => break Ok(()),
            Err(back) => op = back,
        }
        // The queue is full of the caller's operations: make room.
        if let Err(error) = io.reap(Wait::Block, &mut others) {
            break Err(error);
        }
    };
    let outcome = outcome.and_then(|()| {
        loop {
            io.reap(Wait::Block, &mut done)?;
            let mine = done.iter().position(|d| d.ticket == Ticket::EXACT);
            let mine = mine.map(|index| done.remove(index));
            others.append(&mut done);
            if let Some(mine) = mine {
                return mine.result.map(|count| (count, mine.op));
            }
        }
    });
    if !others.is_empty() {
        io.put_back(others);
    }
    outcome
}

fn count_of(count: u32, operation: Operation, position: u64, wanted: usize) -> Result<usize, IoError> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    assert!(count <= wanted, "{operation} at byte {position}: {count} bytes done, {wanted} asked for");
    Ok(count)
}

/// Writes all of `bytes` at `at`.
///
/// Cost: no copy; one write if the backend takes it whole.
///
/// # Errors
/// That of the write; the file is then poisoned (D5) and a part of the bytes may be there. [`IoError::Short`] if a write
/// did nothing.
pub fn write_all(io: &mut dyn Io, file: FileId, at: u64, bytes: Bytes) -> Result<(), IoError> {
    let mut at = at;
    let mut rest = bytes;
    while !rest.is_empty() {
        let part = rest.slice(..rest.len().min(MAX_OPERATION));
        let wanted = part.len();
        let (count, _) = run(io, Op::Write { file, at, bytes: part })?;
        let count = count_of(count, Operation::Write, at, wanted)?;
        if count == 0 {
            // D1 says that this is an error; whoever forgets it must not make us write forever.
            let at = At { operation: Operation::Write, path: io.path(file), position: Some(at) };
            return Err(IoError::Short { at, done: 0, wanted: u64::try_from(wanted).unwrap_or(u64::MAX) });
        }
        rest.advance(count);
        at += u64::try_from(count).unwrap_or(u64::MAX);
    }
    Ok(())
}

/// Reads up to `size` bytes from `at`; fewer only at the end of the file.
///
/// Inputs: `size` sizes an allocation, so it must not come from the disk unchecked.
///
/// # Errors
/// That of the read.
pub fn read_up_to(io: &mut dyn Io, file: FileId, at: u64, size: usize) -> Result<BytesMut, IoError> {
    let mut whole = BytesMut::new();
    let mut at = at;
    while whole.len() < size {
        let wanted = (size - whole.len()).min(MAX_OPERATION);
        let (count, op) = run(io, Op::Read { file, at, into: BytesMut::zeroed(wanted) })?;
        let count = count_of(count, Operation::Read, at, wanted)?;
        let Op::Read { mut into, .. } = op else { unreachable!("the backend returned another operation") };
        if count == 0 {
            break;
        }
        into.truncate(count);
        at += u64::try_from(count).unwrap_or(u64::MAX);
        if whole.is_empty() {
            whole = into;
        } else {
            whole.extend_from_slice(&into);
        }
    }
    Ok(whole)
}

/// Reads exactly `size` bytes from `at`.
///
/// # Errors
/// That of the read; [`IoError::Short`] if the file ends before.
pub fn read_exact(io: &mut dyn Io, file: FileId, at: u64, size: usize) -> Result<BytesMut, IoError> {
    let bytes = read_up_to(io, file, at, size)?;
    if bytes.len() < size {
        return Err(IoError::Short {
            at: At { operation: Operation::Read, path: io.path(file), position: Some(at) },
            done: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            wanted: u64::try_from(size).unwrap_or(u64::MAX),
        });
    }
    Ok(bytes)
}

/// Makes durable what was written to the file.
///
/// # Errors
/// That of the sync; the file is then poisoned (D5).
pub fn sync(io: &mut dyn Io, file: FileId, what: SyncKind) -> Result<(), IoError> {
    run(io, Op::Sync { file, what }).map(|_| ())
}
