//! A seeded loop on stable Rust: no coverage, no clock, the same inputs for the same seed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Oracle;

/// Inputs never grow beyond this many bytes.
const LARGEST_INPUT: usize = 16 * 1024;

/// An input on which an oracle failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// In which round, from 0.
    pub round: u64,
    /// The bytes, to be kept in `fuzz/regressions/`.
    pub input: Vec<u8>,
}

/// Runs `oracle` over every seed and then over `rounds` mutations of them.
///
/// The same seeds, seed and rounds give the same inputs. A panic of the oracle is caught; its message has gone to the
/// panic hook by then.
///
/// # Errors
/// The first [`Finding`].
pub fn smoke(oracle: Oracle, seeds: &[Vec<u8>], seed: u64, rounds: u64) -> Result<(), Finding> {
    for input in seeds {
        try_one(oracle, 0, input)?;
    }
    let mut rng = Rng(seed);
    for round in 0..rounds {
        let input = mutated(&mut rng, seeds);
        try_one(oracle, round, &input)?;
    }
    Ok(())
}

fn try_one(oracle: Oracle, round: u64, input: &[u8]) -> Result<(), Finding> {
    // Nothing outlives an oracle, so nothing can be seen half done.
    catch_unwind(AssertUnwindSafe(|| oracle(input))).map_err(|_| Finding { round, input: input.to_vec() })
}

fn mutated(rng: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut input = rng.pick(seeds).cloned().unwrap_or_default();
    for _ in 0..=rng.below(6) {
        mutate(rng, seeds, &mut input);
    }
    input.truncate(LARGEST_INPUT);
    input
}

fn mutate(rng: &mut Rng, seeds: &[Vec<u8>], input: &mut Vec<u8>) {
    let at = rng.below(input.len());
    match rng.below(8) {
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
        1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = rng.byte();
            }
        }
        2 => input.insert(at, rng.byte()),
        3 => {
            let end = input.len().min(at + 1 + rng.below(8));
            input.drain(at..end);
        }
        4 => input.truncate(at),
        5 => {
            let other = rng.pick(seeds).cloned().unwrap_or_default();
            let from = rng.below(other.len());
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        6 => {
            let numbers =
                [0_i64, 1, -1, -2, 6, 7, 127, 128, 0x7fff, 0x7fff_ffff, -0x8000_0000, i64::MAX, i64::MIN];
            let number = rng.pick(&numbers).copied().unwrap_or_default().to_be_bytes();
            let size = [1, 2, 4, 8][rng.below(4)];
            for (place, byte) in input[at..].iter_mut().zip(&number[8 - size..]) {
                *place = *byte;
            }
        }
        _ => {
            let run: Vec<u8> = (0..rng.below(64)).map(|_| rng.byte()).collect();
            input.extend_from_slice(&run);
        }
    }
}

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 if there is none.
    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).expect("a size in 64 bits");
        usize::try_from(self.next() % end).expect("it was a size")
    }

    fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }
}
