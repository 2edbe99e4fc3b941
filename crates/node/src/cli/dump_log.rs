//! `weir dump-log FILE...`: what stands in a partition's files, as text or as JSON.
//!
//! The text is that of Kafka's `DumpLogSegments --print-data-log`, line by line, so that what people have built on it
//! goes on working; the barrier has its name. Files are opened read-only, may belong to a running node, and may hold
//! anything: what cannot be read is named, with its place, and nothing but one batch and one of its records is held in memory.

mod item;
mod kraft;
mod log_file;
mod small;

use std::fmt;
use std::io::{self, BufReader, ErrorKind, IsTerminal as _, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use weir_format::{BatchHeader, Message, Offset, RecordBatch};
use weir_psm::{SnapshotError, snapshot};
use weir_recovery::partition_file::PARTITION_FILE_NAME;
use weir_segment::layout::{
    CLEAN_SHUTDOWN_MARKER, CLEANED_SUFFIX, DELETED_SUFFIX, HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT, LOG_START_CHECKPOINT, META_PROPERTIES, PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT, SWAP_SUFFIX,
};

use super::Failure;
pub(in crate::cli) use item::Control;
use item::{Finding, Findings, Item, Printer};
use log_file::{LogFile, Step};

/// Batches above this size are named without their records.
pub const MAX_BATCH_SIZE: u64 = 128 << 20;
/// What is decompressed of one batch at most; one record of it is held at a time.
const MAX_DECOMPRESSED_SIZE: usize = 1 << 30;
/// Snapshots above this size are not read: Kafka's have 46 bytes a producer.
const MAX_SNAPSHOT_SIZE: u64 = 1 << 30;
/// Small text files above this size are not read.
const MAX_SMALL_FILE_SIZE: u64 = 64 << 20;
/// Behind how many invalid places of a file the next valid batch is looked for; each look may read the rest of the file.
const MAX_RESUMED: u32 = 64;
/// How often a time index may step back before its entries are no longer looked up in the log.
const MAX_REWINDS: u32 = 16;

/// Arguments of `weir dump-log`.
#[derive(Debug, Clone, clap::Args)]
pub struct DumpLog {
    /// Files to print, or a directory for all of its files that are known: .log, .index, .timeindex, .txnindex,
    /// .snapshot, archives of what was cut, checkpoints, partition.metadata, meta.properties, weir's partition file.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// One JSON object a line, each with "apiVersion": "weir/v1" and its "kind".
    #[arg(long)]
    pub json: bool,
}

impl DumpLog {
    /// Prints the files to standard output.
    ///
    /// # Errors
    /// A [`Failure`] for the first file that cannot be dumped; the others were.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let mut stdout = io::stdout().lock();
        let options = DumpOptions { json: self.json, escape: !self.json && stdout.is_terminal() };
        match dump(&self.files, options, &mut stdout) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error) => Err(Failure::of(error.exit_code(), &error).help(error.help())),
        }
    }
}

/// How the output looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DumpOptions {
    /// JSON lines instead of text.
    pub json: bool,
    /// Whether control characters in keys, values and header keys are shown as escapes; for a terminal, which would
    /// obey them. Otherwise they are printed as they are, as Kafka does.
    pub escape: bool,
}

/// Why files could not be dumped to their end.
#[derive(Debug)]
#[non_exhaustive]
pub enum DumpError {
    /// The name has no extension of a partition's file.
    UnknownFile {
        /// The path as given.
        path: PathBuf,
    },
    /// The name does not start with a base offset.
    NoBaseOffset {
        /// The path as given.
        path: PathBuf,
    },
    /// The path is a directory, and none of its files is known.
    Directory {
        /// The path as given.
        path: PathBuf,
    },
    /// A small file that is not what its name says.
    SmallFile {
        /// The path as given.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file cannot be opened or read.
    Io {
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A `.log` file that does not start with a batch.
    NotALog {
        /// The path as given.
        path: PathBuf,
        /// What is wrong with its first bytes.
        reason: String,
    },
    /// A `.snapshot` file that is not what it says.
    Snapshot {
        /// The path as given.
        path: PathBuf,
        /// What is wrong with it.
        source: SnapshotError,
    },
    /// A `.snapshot` file of a size that none has.
    SnapshotTooLarge {
        /// The path as given.
        path: PathBuf,
        /// Its size.
        size: u64,
    },
    /// The output took no more.
    Output {
        /// What the system said.
        source: io::Error,
    },
}

impl fmt::Display for DumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownFile { path } => write!(f, "{} is not a file of a partition", path.display()),
            Self::NoBaseOffset { path } => {
                write!(f, "the name of {} does not start with an offset", path.display())
            }
            Self::Directory { path } => {
                write!(f, "{} is a directory without a file of a partition", path.display())
            }
            Self::SmallFile { path, reason } => {
                write!(f, "{} is not what its name says: {reason}", path.display())
            }
            Self::Io { path, .. } => write!(f, "cannot read {}", path.display()),
            Self::NotALog { path, reason } => write!(f, "{} is not a log segment: {reason}", path.display()),
            Self::Snapshot { path, .. } => write!(f, "{} is not a valid producer snapshot", path.display()),
            Self::SnapshotTooLarge { path, size } => {
                write!(f, "{} has {size} bytes, too many for a producer snapshot", path.display())
            }
            Self::Output { .. } => f.write_str("cannot write the output"),
        }
    }
}

impl std::error::Error for DumpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } | Self::Output { source } => Some(source),
            Self::Snapshot { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl DumpError {
    /// The status to exit with: 2 if the arguments were wrong and nothing was tried, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::UnknownFile { .. } | Self::NoBaseOffset { .. } | Self::Directory { .. } => 2,
            _ => 1,
        }
    }

    /// What to do about it.
    pub fn help(&self) -> &'static str {
        match self {
            Self::UnknownFile { .. } => {
                "give files that end in .log, .index, .timeindex, .txnindex or .snapshot, or a checkpoint"
            }
            Self::NoBaseOffset { .. } => {
                "keep the name that the file had in its partition: twenty digits and an extension"
            }
            Self::Directory { .. } => "give a partition's directory, LOGDIR/TOPIC-PARTITION, or files in one",
            Self::SmallFile { .. } => "weir inspect says whether a start needs the file",
            Self::Io { .. } => "check the path and that this user may read it",
            Self::NotALog { .. } => "check that this is a segment of a Kafka or weir partition, and whole",
            Self::Snapshot { .. } => {
                "nothing is lost: a snapshot that cannot be read is dropped, and an older one and the log are used"
            }
            Self::SnapshotTooLarge { .. } => "check that this is a producer snapshot",
            Self::Output { .. } => "check where the output goes",
        }
    }
}

/// Prints each file in turn; a reader that closes its end early is no error.
///
/// Paths and names are checked before the first file is printed. What is odd within a file is part of what is printed, and
/// one that cannot be dumped keeps none of the others from being.
///
/// Cost: one pass over each file, and one over its segment's headers for an index; one batch and one of its records in memory.
///
/// # Errors
/// [`DumpError`] of the first file that cannot be dumped; all others were, unless it is the output that failed.
pub fn dump(files: &[PathBuf], options: DumpOptions, out: &mut dyn Write) -> Result<(), DumpError> {
    let mut named = Vec::new();
    for path in files {
        if path.is_dir() {
            named.extend(files_in(path)?);
        } else {
            named.push((path.clone(), Kind::of(path)?));
        }
    }
    let mut printer = Printer::new(out, options);
    let mut first = Ok(());
    for (path, kind) in named {
        match dump_file(&path, kind, &mut printer) {
            Err(DumpError::Output { source }) if source.kind() == ErrorKind::BrokenPipe => return Ok(()),
            Err(DumpError::Output { source }) => return Err(DumpError::Output { source }),
            result => first = first.and(result),
        }
    }
    match printer.flush() {
        Err(source) if source.kind() != ErrorKind::BrokenPipe => Err(DumpError::Output { source }),
        _ => first,
    }
}

/// The files in a directory that can be dumped, by name.
fn files_in(dir: &Path) -> Result<Vec<(PathBuf, Kind)>, DumpError> {
    let failed = |source| DumpError::Io { path: dir.to_owned(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    let files = paths.into_iter().filter(|path| path.is_file());
    let files: Vec<_> = files.filter_map(|path| Kind::of(&path).ok().map(|kind| (path, kind))).collect();
    if files.is_empty() { Err(DumpError::Directory { path: dir.to_owned() }) } else { Ok(files) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extension {
    Log,
    Index,
    TimeIndex,
    TransactionIndex,
    Snapshot,
    Small(Small),
}

/// Text files by their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Small {
    LeaderEpochs,
    PartitionFile,
    PartitionMetadata,
    OffsetCheckpoint,
    MetaProperties,
    CleanShutdown,
}

impl Small {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            LEADER_EPOCH_CHECKPOINT => Self::LeaderEpochs,
            PARTITION_FILE_NAME => Self::PartitionFile,
            PARTITION_METADATA => Self::PartitionMetadata,
            RECOVERY_POINT_CHECKPOINT | LOG_START_CHECKPOINT | HIGH_WATERMARK_CHECKPOINT => {
                Self::OffsetCheckpoint
            }
            META_PROPERTIES => Self::MetaProperties,
            CLEAN_SHUTDOWN_MARKER => Self::CleanShutdown,
            _ => return None,
        })
    }
}

/// What a file is, by its name.
#[derive(Debug, Clone, Copy)]
struct Kind {
    extension: Extension,
    base_offset: Offset,
}

impl Kind {
    fn of(path: &Path) -> Result<Self, DumpError> {
        // A file that is not there is not called by a wrong name.
        let metadata =
            std::fs::metadata(path).map_err(|source| DumpError::Io { path: path.to_owned(), source })?;
        if metadata.is_dir() {
            return Err(DumpError::Directory { path: path.to_owned() });
        }
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        if let Some(small) = Small::of(&name) {
            return Ok(Self { extension: Extension::Small(small), base_offset: Offset::ZERO });
        }
        // An archive, `cut-BASE-POSITION-CRC.log`, and a file of an interrupted operation are read as what they were.
        let name = name.strip_prefix("cut-").unwrap_or(&name);
        let suffixes = [DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX];
        let name = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
        let extension = match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("log") => Extension::Log,
            Some("index") => Extension::Index,
            Some("timeindex") => Extension::TimeIndex,
            Some("txnindex") => Extension::TransactionIndex,
            Some("snapshot") => Extension::Snapshot,
            _ => return Err(DumpError::UnknownFile { path: path.to_owned() }),
        };
        let digits = name.split(['.', '-']).next().unwrap_or_default();
        let base_offset = digits
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| digits.parse().ok())
            .flatten()
            .and_then(Offset::new)
            .ok_or_else(|| DumpError::NoBaseOffset { path: path.to_owned() })?;
        Ok(Self { extension, base_offset })
    }
}

fn dump_file(path: &Path, kind: Kind, printer: &mut Printer<'_>) -> Result<(), DumpError> {
    // Before the first line: a file that is not there is an error and no dump of it.
    let file = LogFile::open(path).map_err(|source| DumpError::Io { path: path.to_owned(), source })?;
    let mut dump = Dump { path, base_offset: kind.base_offset, printer, findings: Findings::default() };
    match kind.extension {
        Extension::Log => dump.log(&file)?,
        Extension::Index => dump.offset_index(file)?,
        Extension::TimeIndex => dump.time_index(file)?,
        Extension::TransactionIndex => dump.transaction_index(file)?,
        Extension::Snapshot => dump.snapshot(file)?,
        Extension::Small(small) => dump.small(small, file)?,
    }
    let Dump { findings, printer, .. } = dump;
    printer.findings(path, &findings).map_err(|source| DumpError::Output { source })
}

/// One file being printed.
struct Dump<'a, 'out> {
    path: &'a Path,
    base_offset: Offset,
    printer: &'a mut Printer<'out>,
    findings: Findings,
}

impl Dump<'_, '_> {
    fn print(&mut self, item: &Item<'_>) -> Result<(), DumpError> {
        self.printer.item(self.path, item).map_err(|source| DumpError::Output { source })
    }

    fn start(&mut self) -> Result<(), DumpError> {
        self.print(&Item::File)
    }

    fn io(&self, source: io::Error) -> DumpError {
        DumpError::Io { path: self.path.to_owned(), source }
    }

    fn log(&mut self, log: &LogFile) -> Result<(), DumpError> {
        let mut position = 0;
        let mut step = log.step(position).map_err(|source| self.io(source))?;
        let mut resumed = 0;
        if let Step::Invalid { reason, .. } = &step {
            // An archive begins with what was not valid; so does a segment whose first batch is spoilt.
            if log.next_valid(0).map_err(|source| self.io(source))?.is_none() {
                return Err(DumpError::NotALog { path: self.path.to_owned(), reason: reason.clone() });
            }
        }
        self.start()?;
        self.print(&Item::LogStart { base_offset: self.base_offset })?;
        // What stands before the segment's first record is not in this file: no gap.
        let mut previous = self.base_offset.get() - 1;
        loop {
            match step {
                Step::End => return Ok(()),
                Step::Zeros { size } => return self.print(&Item::ZeroTail { position, size }),
                Step::Invalid { size, reason } => {
                    resumed += 1;
                    let next = if resumed > MAX_RESUMED {
                        None
                    } else {
                        log.next_valid(position).map_err(|source| self.io(source))?
                    };
                    let Some(next) = next.filter(|next| *next > position) else {
                        return self.print(&Item::InvalidTail { position, size, reason: &reason });
                    };
                    self.print(&Item::InvalidBytes { position, size: next - position, reason: &reason })?;
                    position = next;
                }
                Step::Old { offset, magic, size } => {
                    if size > MAX_BATCH_SIZE {
                        let reason = format!("the message has {size} bytes");
                        self.print(&Item::OldBatch { offset, position, size, magic, reason: &reason })?;
                    } else {
                        let bytes = log.read(position, size).map_err(|source| self.io(source))?;
                        match Message::parse(&bytes) {
                            Ok(message) => self.message(&message, position, &mut previous)?,
                            Err(error) => {
                                let reason = error.to_string();
                                self.print(&Item::OldBatch {
                                    offset,
                                    position,
                                    size,
                                    magic,
                                    reason: &reason,
                                })?;
                            }
                        }
                    }
                    position += size;
                }
                Step::Unreadable { size, reason } => {
                    self.print(&Item::UnreadableBatch { position, size, reason: &reason })?;
                    position += size;
                }
                Step::Batch { header, size } => {
                    if size > MAX_BATCH_SIZE {
                        let valid = log.crc_is_valid(position, size).map_err(|source| self.io(source))?;
                        let header = header.view();
                        previous = header.last_offset().get();
                        self.print(&Item::Batch { header: &header, position, valid })?;
                        self.print(&Item::NoRecords { reason: format_args!("the batch has {size} bytes") })?;
                    } else {
                        let bytes = log.read(position, size).map_err(|source| self.io(source))?;
                        match RecordBatch::parse_without_crc(&bytes) {
                            Ok(batch) => self.batch(&batch, position, &mut previous)?,
                            // Whoever owns the file wrote meanwhile.
                            Err(error) => {
                                let reason = error.to_string();
                                self.print(&Item::UnreadableBatch { position, size, reason: &reason })?;
                            }
                        }
                    }
                    position += size;
                }
            }
            step = log.step(position).map_err(|source| self.io(source))?;
        }
    }

    fn batch(&mut self, batch: &RecordBatch<'_>, position: u64, previous: &mut i64) -> Result<(), DumpError> {
        let valid = weir_format::crc::batch_crc(batch.bytes()) == batch.crc();
        let header = batch.header();
        self.print(&Item::Batch { header: &header, position, valid })?;
        // Records that cannot be read are none that are missing.
        let after = header.last_offset().get();
        let mut records = batch.record_stream(MAX_DECOMPRESSED_SIZE);
        while let Some(record) = records.next_record() {
            match record {
                Ok(record) => {
                    self.follow(previous, record.offset.get());
                    self.print(&Item::Record { header: &header, record: &record })?;
                }
                Err(error) => {
                    *previous = after;
                    return self.no_records(&error);
                }
            }
        }
        Ok(())
    }

    fn message(&mut self, message: &Message<'_>, position: u64, previous: &mut i64) -> Result<(), DumpError> {
        self.print(&Item::Message { message, position })?;
        let after = message.offset().get();
        let mut records = match message.record_stream(MAX_DECOMPRESSED_SIZE) {
            Ok(records) => records,
            Err(error) => {
                *previous = after;
                return self.no_records(&error);
            }
        };
        while let Some(record) = records.next_record_and_crc() {
            match record {
                Ok((record, crc)) => {
                    self.follow(previous, record.offset.get());
                    self.print(&Item::MessageRecord { message, record: &record, crc })?;
                }
                Err(error) => {
                    *previous = after;
                    return self.no_records(&error);
                }
            }
        }
        Ok(())
    }

    fn no_records(&mut self, error: &dyn std::error::Error) -> Result<(), DumpError> {
        match error.source() {
            Some(source) => self.print(&Item::NoRecords { reason: format_args!("{source}") }),
            None => self.print(&Item::NoRecords { reason: format_args!("{error}") }),
        }
    }

    /// Notes a gap in front of this offset.
    fn follow(&mut self, previous: &mut i64, offset: i64) {
        if previous.checked_add(1) != Some(offset) {
            self.findings.add(Finding::NonConsecutive { previous: *previous, next: offset });
        }
        *previous = offset;
    }

    /// The segment's log beside an index, to look its entries up in; it may be gone.
    fn sibling_log(&self) -> Option<LogFile> {
        let name = self.path.file_name()?.to_string_lossy().into_owned();
        let stem = name.split('.').next()?.to_owned();
        LogFile::open(&self.path.with_file_name(format!("{stem}.log"))).ok()
    }

    /// Whole entries of `N` bytes each, one at a time; calls back with false when the walk is to end.
    fn entries<const N: usize>(
        &mut self,
        file: LogFile,
        mut each: impl FnMut(&mut Self, usize, [u8; N]) -> Result<bool, DumpError>,
    ) -> Result<(), DumpError> {
        let size = file.size();
        let mut reader = BufReader::new(file.into_file());
        let whole = size / N as u64;
        for index in 0.. {
            let mut entry = [0; N];
            if u64::try_from(index).is_ok_and(|index| index >= whole) {
                break;
            }
            match reader.read_exact(&mut entry) {
                Ok(()) => {}
                // Cut short since it was opened, as a closing node does.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(self.io(error)),
            }
            if !each(self, index, entry)? {
                return Ok(());
            }
        }
        let rest = size % N as u64;
        if rest > 0 {
            self.print(&Item::InvalidTail { position: size - rest, size: rest, reason: "half an entry" })?;
        }
        Ok(())
    }

    fn offset_index(&mut self, file: LogFile) -> Result<(), DumpError> {
        self.start()?;
        if file.size() < 8 {
            return self.print(&Item::Empty);
        }
        let log = self.sibling_log();
        if log.is_none() {
            self.findings.add(Finding::LogMissing);
        }
        self.entries(file, |dump, index, entry: [u8; 8]| {
            let [a, b, c, d, e, f, g, h] = entry;
            let offset = dump.base_offset.get().wrapping_add(i64::from(i32::from_be_bytes([a, b, c, d])));
            let position = i32::from_be_bytes([e, f, g, h]);
            // A preallocated index ends in zeros, and 0 is only ever the first entry.
            if index > 0 && offset == dump.base_offset.get() {
                return Ok(false);
            }
            if let Some(log) = &log {
                let found = u64::try_from(position).ok().and_then(|position| match log.whole_at(position) {
                    Some(Step::Batch { header, .. }) => Some(header.view().last_offset().get()),
                    Some(Step::Old { offset, .. }) => Some(offset),
                    _ => None,
                });
                if found != Some(offset) {
                    dump.findings.add(Finding::IndexMismatch { offset, found });
                }
            }
            dump.print(&Item::OffsetIndexEntry { offset, position })?;
            Ok(true)
        })
    }

    fn time_index(&mut self, file: LogFile) -> Result<(), DumpError> {
        self.start()?;
        let log = self.sibling_log();
        if log.is_none() {
            self.findings.add(Finding::LogMissing);
        }
        let mut walk = log.as_ref().map(BatchSearch::new);
        let mut previous = -1;
        self.entries(file, |dump, index, entry: [u8; 12]| {
            let [a, b, c, d, e, f, g, h, i, j, k, l] = entry;
            let timestamp = i64::from_be_bytes([a, b, c, d, e, f, g, h]);
            let offset = dump.base_offset.get().wrapping_add(i64::from(i32::from_be_bytes([i, j, k, l])));
            if index > 0 && offset == dump.base_offset.get() {
                return Ok(false);
            }
            match walk.as_mut().map(|walk| walk.first_ending_at_or_above(offset)) {
                None | Some(Search::GaveUp) => {}
                Some(Search::None) => dump.findings.add(Finding::OffsetNotFound { offset, found: -1 }),
                Some(Search::Found { last_offset, .. }) if last_offset != offset => {
                    dump.findings.add(Finding::OffsetNotFound { offset, found: last_offset });
                }
                Some(Search::Found { max_timestamp, .. }) => {
                    if let Some(found) = max_timestamp.filter(|found| *found != timestamp) {
                        dump.findings.add(Finding::TimestampMismatch { timestamp, found });
                    }
                    if previous >= timestamp {
                        dump.findings.add(Finding::TimestampOutOfOrder { timestamp, previous });
                    }
                }
            }
            dump.print(&Item::TimeIndexEntry { timestamp, offset })?;
            previous = timestamp;
            Ok(true)
        })?;
        if walk.is_some_and(|walk| walk.rewinds > MAX_REWINDS) {
            self.findings.add(Finding::NotLookedUp);
        }
        Ok(())
    }

    fn transaction_index(&mut self, file: LogFile) -> Result<(), DumpError> {
        self.start()?;
        self.entries(file, |dump, _, entry: [u8; 34]| {
            let field = |at: usize| {
                let bytes = entry.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
                i64::from_be_bytes(bytes.unwrap_or_default())
            };
            dump.print(&Item::AbortedTransaction {
                version: i16::from_be_bytes([entry[0], entry[1]]),
                producer_id: field(2),
                first_offset: field(10),
                last_offset: field(18),
                last_stable_offset: field(26),
            })?;
            Ok(true)
        })
    }

    fn snapshot(&mut self, file: LogFile) -> Result<(), DumpError> {
        let size = file.size();
        if size > MAX_SNAPSHOT_SIZE {
            return Err(DumpError::SnapshotTooLarge { path: self.path.to_owned(), size });
        }
        let mut bytes = Vec::new();
        file.into_file().take(MAX_SNAPSHOT_SIZE).read_to_end(&mut bytes).map_err(|source| self.io(source))?;
        let entries = snapshot::decode(&bytes)
            .map_err(|source| DumpError::Snapshot { path: self.path.to_owned(), source })?;
        self.start()?;
        for (producer_id, entry) in &entries {
            self.print(&Item::Producer { producer_id: *producer_id, entry })?;
        }
        Ok(())
    }
}

/// Looks for batches by offset, forward: an index is ascending, and so is its log.
struct BatchSearch<'a> {
    log: &'a LogFile,
    position: u64,
    /// The largest offset looked for so far.
    reached: i64,
    rewinds: u32,
}

enum Search {
    /// The timestamp is not known of message sets of magic 0 and 1.
    Found {
        last_offset: i64,
        max_timestamp: Option<i64>,
    },
    None,
    /// The index goes back and forth so often that looking further would take for ever.
    GaveUp,
}

impl<'a> BatchSearch<'a> {
    fn new(log: &'a LogFile) -> Self {
        Self { log, position: 0, reached: i64::MIN, rewinds: 0 }
    }

    fn first_ending_at_or_above(&mut self, offset: i64) -> Search {
        if offset < self.reached {
            self.rewinds += 1;
            if self.rewinds > MAX_REWINDS {
                return Search::GaveUp;
            }
            self.position = 0;
        }
        self.reached = offset;
        loop {
            match self.log.step(self.position) {
                Ok(Step::Batch { header, size }) => {
                    let header: BatchHeader<'_> = header.view();
                    if header.last_offset().get() >= offset {
                        return Search::Found {
                            last_offset: header.last_offset().get(),
                            max_timestamp: Some(header.max_timestamp().get()),
                        };
                    }
                    self.position += size;
                }
                Ok(Step::Old { offset: last_offset, .. }) if last_offset >= offset => {
                    return Search::Found { last_offset, max_timestamp: None };
                }
                Ok(Step::Unreadable { size, .. } | Step::Old { size, .. }) => self.position += size,
                _ => return Search::None,
            }
        }
    }
}
