//! Random lives of a partition: bytes choose the machine, what is done, what fails, and when the power is cut.

use weir_segment::io::sim::CrashPolicy;

use super::history::What;
use super::world::{Machine, Mirrored, Mutant, Op, Stop, Tally, World};
use crate::Durability;

/// Bytes that choose. When they are used up, everything is the first choice.
#[derive(Debug)]
pub struct Choices<'a> {
    rest: &'a [u8],
}

impl<'a> Choices<'a> {
    /// From these bytes.
    pub fn new(bytes: &'a [u8]) -> Choices<'a> {
        Choices { rest: bytes }
    }

    /// Whether all are used up.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn byte(&mut self) -> usize {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        usize::from(*first)
    }

    /// A number below `bound`, which is at most 65,536.
    pub fn below(&mut self, bound: usize) -> usize {
        let drawn = if bound > 256 { self.byte() * 256 + self.byte() } else { self.byte() };
        drawn % bound.max(1)
    }

    fn of_64(&mut self, bound: usize) -> i64 {
        i64::try_from(self.below(bound)).unwrap()
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 1
    }

    /// What a power cut does.
    fn policy(&mut self) -> CrashPolicy {
        CrashPolicy::ALL[self.below(15)]
    }

    /// The bytes that are left, all at once.
    pub fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }
}

/// The bytes that a seed stands for (SplitMix64): several hundred operations.
pub fn bytes_of_seed(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let words = 16 + next() % 112;
    (0..words).flat_map(|_| next().to_le_bytes()).collect()
}

fn machine(choices: &mut Choices<'_>) -> Machine {
    let flags = choices.below(256);
    let flag = |bit: u32| flags >> bit & 1 == 1;
    Machine {
        seed: u64::try_from(choices.below(65_536)).unwrap(),
        reorder: flag(0),
        short: flag(1),
        queue_depth: flag(2).then_some(1 + flags % 3),
        slow: flag(3),
        direct: flag(4),
        ahead: flag(5).then_some(1_500),
        segment_bytes: [700, 1_500, 4_000, 20_000][flags >> 6],
        durability: if choices.below(8) == 7 { Durability::Written } else { Durability::Synced },
    }
}

fn mirrored(choices: &mut Choices<'_>) -> Mirrored {
    let id = choices.of_64(4);
    let odd = choices.below(256);
    let epoch = i16::try_from(odd % 3).unwrap();
    let what = match choices.below(8) {
        0 => What::Barrier,
        1 | 2 => What::Marker {
            id,
            epoch,
            coordinator_epoch: i32::try_from(odd % 4).unwrap(),
            commit: choices.coin(),
        },
        3 => What::Plain,
        // No mirror asks whether a sequence follows; some are close to where they wrap.
        _ => What::Data {
            id,
            epoch,
            sequence: if odd > 200 { i32::MAX - 1 } else { i32::try_from(odd).unwrap() },
            transactional: choices.coin(),
        },
    };
    let count = 1 + choices.of_64(4);
    Mirrored {
        gap: if odd % 8 == 7 { 1 + choices.of_64(20) } else { 0 },
        next_epoch: odd % 16 == 3,
        what,
        count,
        size: choices.below(300),
        // Compaction keeps a control batch's record.
        emptied: odd % 32 == 5 && matches!(what, What::Data { .. }),
    }
}

fn op(world: &World, choices: &mut Choices<'_>) -> Op {
    let id = choices.of_64(4);
    let end = world.history.end;
    match choices.below(52) {
        0..=2 => Op::Plain { count: 1 + choices.of_64(3), size: choices.below(900) },
        3..=12 => Op::Produce {
            id,
            transactional: choices.coin(),
            count: 1 + choices.of_64(3),
            size: choices.below(400),
        },
        13 => Op::ProduceOff {
            id,
            epoch: i16::try_from(choices.below(3)).unwrap() - 1,
            sequence: i32::try_from(choices.below(3)).unwrap() - 1,
            transactional: choices.coin(),
        },
        // The newest is the one that may not be durable yet.
        14 | 15 => Op::Again { id, back: [0, 0, 0, 0, 1, 2, 4, 5][choices.below(8)] },
        16..=20 => Op::Marker {
            id,
            commit: choices.coin(),
            epoch: [0, 0, 0, 0, 0, 1, 1, -1][choices.below(8)],
            coordinator: [0, 0, 0, 0, 0, 1, 1, -1][choices.below(8)],
        },
        21 | 22 => Op::Barrier,
        23..=25 => Op::Mirror((0..1 + choices.below(6)).map(|_| mirrored(choices)).collect()),
        26 => Op::Flush,
        27 | 28 => Op::Poll,
        29 | 30 => Op::SyncBegin,
        31 => Op::Settle,
        32..=35 => Op::Sync,
        36 => Op::Checkpoint,
        37 => Op::CheckpointStart,
        38 | 39 => {
            let back = choices.of_64(24);
            Op::Truncate((end - back).max(0))
        }
        40 => match choices.below(8) {
            0 => Op::StartOver(end + choices.of_64(50) - 20).at_least_0(),
            _ => Op::Truncate(choices.of_64(usize::try_from(end + 1).unwrap().min(65_536))),
        },
        41 => {
            let high_watermark = world.view().map_or(0, |view| view.high_watermark.get());
            Op::DeleteTo((high_watermark - choices.of_64(20)).max(0))
        }
        42 => Op::Epoch,
        43 => Op::Rest,
        44 => Op::Reopen,
        45 => Op::Kill,
        46 | 47 => Op::SnapshotStep,
        48 => Op::Retain {
            ms: choices.coin().then(|| u64::try_from(choices.below(60)).unwrap()),
            bytes: choices.coin().then(|| u64::try_from(choices.below(6_000)).unwrap()),
            most: 1 + choices.below(4),
        },
        _ => Op::Check(1 + choices.below(2_000)),
    }
}

impl Op {
    fn at_least_0(self) -> Op {
        match self {
            Op::StartOver(at) => Op::StartOver(at.max(0)),
            other => other,
        }
    }
}

/// What the disk was told to do, beside a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Full,
    Write,
    Sync,
}

/// Lives through what the bytes choose; what happened, and what is wrong.
pub fn live(bytes: &[u8], mutant: Mutant) -> (Tally, Result<(), String>) {
    let mut choices = Choices::new(bytes);
    let machine = machine(&mut choices);
    let mut world = World::new(&machine, mutant);
    let mut log = Vec::new();
    let result = lives(&mut world, &mut choices, &mut log);
    let result = match result {
        // It ends here: somebody has to look at it.
        Err(Stop::HalfASector) => Ok(()),
        other => other,
    };
    let result = result.map_err(|stop| {
        let said = match stop {
            Stop::Wrong(what) => what,
            other => format!("{other:?}"),
        };
        format!("{said}\non {machine:?} after\n{}", log.join("\n"))
    });
    (world.tally, result)
}

fn lives(world: &mut World, choices: &mut Choices<'_>, log: &mut Vec<String>) -> Result<(), Stop> {
    world.open()?;
    let mut fault = Fault::None;
    let mut policy = None;
    while !choices.is_empty() {
        let done = match choices.below(64) {
            0 | 1 => {
                let op = world.disk().op_count() + 1 + u64::try_from(choices.below(40)).unwrap();
                policy = Some(choices.policy());
                log.push(format!("the power is to be cut at {op}: {policy:?}"));
                world.disk().crash_at(op);
                Ok(())
            }
            2 if fault == Fault::None => {
                fault = [Fault::Full, Fault::Write, Fault::Sync, Fault::Sync][choices.below(4)];
                let nth = 1 + u64::try_from(choices.below(8)).unwrap();
                log.push(format!("{fault:?} {nth}"));
                match fault {
                    Fault::Full => world.fill(nth * 300),
                    Fault::Write => world.fail_write(nth),
                    Fault::Sync => world.fail_sync(nth),
                    Fault::None => {}
                }
                Ok(())
            }
            _ => {
                let op = op(world, choices);
                log.push(format!("{op:?}"));
                world.step(&op)
            }
        };
        match done {
            Ok(()) => {}
            Err(stop @ (Stop::Wrong(_) | Stop::HalfASector)) => return Err(stop),
            Err(Stop::Off) if world.disk().is_off() || fault != Fault::None => {
                world.tally.failed += u64::from(!world.disk().is_off());
                go_on(world, choices, log, fault, policy.take())?;
                fault = Fault::None;
            }
            Err(Stop::Off) => return Err(Stop::Wrong("it went offline, and nothing failed".to_string())),
        }
    }
    let last = policy.unwrap_or(CrashPolicy::DROP_ALL);
    go_on(world, choices, log, Fault::Sync, Some(last))?;
    world.check_rot(u64::try_from(log.len()).unwrap())
}

/// After a stop: the power is cut, or the process is killed; then the log is recovered.
fn go_on(
    world: &mut World,
    choices: &mut Choices<'_>,
    log: &mut Vec<String>,
    fault: Fault,
    policy: Option<CrashPolicy>,
) -> Result<(), Stop> {
    world.check_ledger()?;
    let ledger = world.ledger_to_keep();
    // After a failed sync a reader of the page cache sees what the disk does not have, so it must not be believed.
    let kill = !world.disk().is_off() && matches!(fault, Fault::Full | Fault::Write) && choices.coin();
    if kill {
        log.push("killed".to_string());
        let _no_sync_fails = world.kill();
    } else {
        let policy = policy.unwrap_or_else(|| choices.policy());
        log.push(format!("the power is cut: {policy:?}"));
        world.power_cut(policy);
    }
    let stays_full = fault == Fault::Full && choices.coin();
    if !stays_full {
        world.repair();
    }
    if choices.below(4) == 3 {
        let op = world.disk().op_count() + 1 + u64::try_from(choices.below(60)).unwrap();
        log.push(format!("and again at {op}"));
        world.disk().crash_at(op);
    }
    let mut tries = 0;
    while let Err(stop) = world.recover() {
        if stop != Stop::Off || tries > 2 {
            return Err(stop);
        }
        tries += 1;
        if world.disk().is_off() {
            let policy = choices.policy();
            log.push(format!("the power is cut while it recovers: {policy:?}"));
            world.power_cut(policy);
        } else {
            log.push("there is room again".to_string());
            world.repair();
        }
    }
    world.repair();
    match ledger {
        Some(ledger) => world.check_against(&ledger),
        None => Ok(()),
    }
}
