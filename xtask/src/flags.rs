//! The grammar of the command line, by hand: a handful of flags does not need a parser.

use crate::seccomp::Refusal;

/// What `cargo xtask` prints without a command.
pub(crate) const HELP: &str = "\
usage: cargo xtask <command>

  test [ARGS...]                 all tests of the workspace (ARGS go to cargo test)
  ci                             fmt, clippy, tidy, tests, tests on each backend and where io_uring is refused,
                                 doc tests, fuzz smoke, docs, demo; each with its time
  tidy [--bless]                 layers, module docs, unsafe, FIXMEs, forbidden words, doc hashes, root, markdown
  fuzz <target> --seconds N      coverage-guided fuzzing of one target (--install fetches cargo-fuzz first)
  fuzz --all --seconds N         the same for every target, N seconds each (--jobs N: so many at a time)
  fuzz list                      the targets, one a line
  fuzz --smoke                   every target in process on stable, and a canary that must fail
  golden DIR [--make N] [--sweep N] [--seed N]
                                 golden data of a folder, read and compared with what Kafka said of it; --make first
                                 lets Apache Kafka 4.4.0's classes make N directories, each damaged another way, --sweep
                                 N logs, cut at each byte of a batch and with each byte of two headers changed
  seccomp eperm|enosys -- COMMAND...
                                 a command where the kernel refuses io_uring, as containers do
  interop --tier 1               end-to-end tests with Apache Kafka 4.4.0 and its clients, on loopback
  kill [--rounds N] [--backends uring,pwrite] [--seed N]
                                 kill -9 of a process that writes, then every byte compared; nothing may be lost
  bench start-idle [--runs N] [--idle-seconds N] [--with-kafka]
                                 start to serving, idle memory, idle CPU of `weir serve`
  bench append [ARGS...]         the segment writer against plain loops on the same disk (--help for its ARGS)
  bench format [--runs N]        batches and records against the checksum library and kafka-protocol, alternated
  bench psm [--runs N]           producer state: batches, barrier, expiry, snapshots at up to a million producers
  bench recovery [ARGS...]       logs loaded after a crash, beside plain reads and Kafka's loader (--help for its ARGS)

interop also takes: --only PREFIX (checks whose name starts so), --keep (leave the work folder),
--smoke HOST:PORT (only the client smoke, against a broker that runs already).
";

/// One parsed command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Test {
        rest: Vec<String>,
    },
    Ci,
    Tidy {
        bless: bool,
    },
    Fuzz(FuzzOptions),
    Golden(GoldenOptions),
    Interop(InteropOptions),
    Kill(KillOptions),
    Bench(BenchOptions),
    /// A command, where io_uring is refused.
    Seccomp {
        refusal: Refusal,
        command: Vec<String>,
    },
}

/// `golden`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct GoldenOptions {
    pub(crate) folder: String,
    /// Lives of a log that are made first, and damaged.
    pub(crate) make: u64,
    /// Lives of which one place after the other is damaged.
    pub(crate) sweep: u64,
    pub(crate) seed: u64,
}

/// `fuzz`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FuzzOptions {
    List,
    Smoke,
    /// By coverage: one target, or all.
    Guided {
        target: Option<String>,
        /// For each target.
        seconds: u64,
        jobs: usize,
        install: bool,
    },
}

/// `interop`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct InteropOptions {
    /// Only checks whose name starts with this are counted; what they depend on is run all the same.
    pub(crate) only: Option<String>,
    /// The work folder stays, and its path is printed.
    pub(crate) keep: bool,
    /// Only the client smoke, against this broker.
    pub(crate) smoke: Option<String>,
}

/// `kill`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KillOptions {
    pub(crate) rounds: u32,
    /// Each writes its rounds; all recover, by turns.
    pub(crate) backends: Vec<String>,
    pub(crate) seed: u64,
}

/// `bench`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BenchOptions {
    StartIdle(StartIdleOptions),
    /// The arguments of the benchmark itself.
    Append(Vec<String>),
    /// How often each work is measured.
    Format {
        runs: u32,
    },
    /// The same of producer state.
    Psm {
        runs: u32,
    },
    /// The arguments of the benchmark itself.
    Recovery(Vec<String>),
}

/// `bench start-idle`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StartIdleOptions {
    pub(crate) runs: u32,
    pub(crate) idle_seconds: u32,
    pub(crate) with_kafka: bool,
}

/// Reads the arguments behind `cargo xtask`.
///
/// # Errors
/// One line that says which word is wrong; nothing was run.
pub(crate) fn parse(arguments: &[String]) -> Result<Command, String> {
    let Some((command, rest)) = arguments.split_first() else {
        return Ok(Command::Help);
    };
    let mut words = Words { rest };
    match command.as_str() {
        "help" | "--help" | "-h" => Ok(Command::Help),
        "test" => Ok(Command::Test { rest: rest.to_vec() }),
        "ci" => words.done(Command::Ci),
        "tidy" => {
            let mut bless = false;
            while let Some(word) = words.next() {
                match word {
                    "--bless" => bless = true,
                    other => return Err(unknown("tidy", other)),
                }
            }
            Ok(Command::Tidy { bless })
        }
        "fuzz" => fuzz(&mut words).map(Command::Fuzz),
        "golden" => golden(&mut words).map(Command::Golden),
        "seccomp" => seccomp(rest),
        "interop" => interop(&mut words).map(Command::Interop),
        "kill" => kill(&mut words).map(Command::Kill),
        "bench" => bench(&mut words).map(Command::Bench),
        other => Err(format!("no command {other:?}")),
    }
}

fn seccomp(words: &[String]) -> Result<Command, String> {
    match words {
        [refusal, dashes, command @ ..] if dashes == "--" && !command.is_empty() => {
            let refusal = Refusal::from_name(refusal).ok_or_else(|| unknown("seccomp", refusal))?;
            Ok(Command::Seccomp { refusal, command: command.to_vec() })
        }
        _ => Err("seccomp needs eperm or enosys, then -- and a command".to_owned()),
    }
}

fn fuzz(words: &mut Words<'_>) -> Result<FuzzOptions, String> {
    let (mut target, mut all, mut seconds, mut jobs, mut install) = (None, false, 60, 1, false);
    while let Some(word) = words.next() {
        match word {
            "list" | "--list" => return words.done(FuzzOptions::List),
            "--smoke" => return words.done(FuzzOptions::Smoke),
            "--seconds" => seconds = words.number("--seconds")?,
            "--jobs" => jobs = usize::try_from(small(words.number("--jobs")?)?).unwrap_or(usize::MAX),
            "--install" => install = true,
            "--all" => all = true,
            word if word.starts_with('-') || target.is_some() => return Err(unknown("fuzz", word)),
            word => target = Some(word.to_owned()),
        }
    }
    match (&target, all) {
        (None, false) => Err("fuzz needs a target, --all, list or --smoke".to_owned()),
        (Some(target), true) => Err(format!("fuzz takes {target:?} or --all, not both")),
        _ => Ok(FuzzOptions::Guided { target, seconds, jobs, install }),
    }
}

fn golden(words: &mut Words<'_>) -> Result<GoldenOptions, String> {
    let mut options = GoldenOptions::default();
    while let Some(word) = words.next() {
        match word {
            "--make" => options.make = words.number("--make")?,
            "--sweep" => options.sweep = words.number("--sweep")?,
            "--seed" => options.seed = words.number("--seed")?,
            word if word.starts_with('-') || !options.folder.is_empty() => {
                return Err(unknown("golden", word));
            }
            word => options.folder = word.to_owned(),
        }
    }
    if options.folder.is_empty() {
        return Err("golden needs a folder that has logs/ or batches/ in it".to_owned());
    }
    Ok(options)
}

fn interop(words: &mut Words<'_>) -> Result<InteropOptions, String> {
    let mut options = InteropOptions::default();
    let mut tier = None;
    while let Some(word) = words.next() {
        match word {
            "--tier" => tier = Some(words.number("--tier")?),
            "--only" => options.only = Some(words.value("--only")?),
            "--smoke" => options.smoke = Some(words.value("--smoke")?),
            "--keep" => options.keep = true,
            other => return Err(unknown("interop", other)),
        }
    }
    match tier {
        Some(1) => Ok(options),
        Some(other) => Err(format!("interop has tier 1 only, not {other}")),
        None => Err("interop needs --tier 1".to_owned()),
    }
}

fn kill(words: &mut Words<'_>) -> Result<KillOptions, String> {
    let mut options =
        KillOptions { rounds: 50, backends: vec!["uring".to_owned(), "pwrite".to_owned()], seed: 1 };
    while let Some(word) = words.next() {
        match word {
            "--rounds" => options.rounds = small(words.number("--rounds")?)?,
            "--backends" => {
                options.backends = words.value("--backends")?.split(',').map(str::to_owned).collect();
            }
            "--seed" => options.seed = words.number("--seed")?,
            other => return Err(unknown("kill", other)),
        }
    }
    Ok(options)
}

fn bench(words: &mut Words<'_>) -> Result<BenchOptions, String> {
    match words.next() {
        Some("start-idle") => start_idle(words).map(BenchOptions::StartIdle),
        Some("append") => Ok(BenchOptions::Append(words.rest.to_vec())),
        Some("format") => Ok(BenchOptions::Format { runs: runs(words, "bench format")? }),
        Some("psm") => Ok(BenchOptions::Psm { runs: runs(words, "bench psm")? }),
        Some("recovery") => Ok(BenchOptions::Recovery(words.rest.to_vec())),
        Some(other) => Err(format!("no benchmark {other:?}; there are {BENCHES}")),
        None => Err(format!("bench needs a name; there are {BENCHES}")),
    }
}

const BENCHES: &str = "start-idle, append, format, psm and recovery";

/// `--runs` alone.
fn runs(words: &mut Words<'_>, command: &str) -> Result<u32, String> {
    let mut runs = 9;
    while let Some(word) = words.next() {
        match word {
            "--runs" => runs = small(words.number("--runs")?)?,
            other => return Err(unknown(command, other)),
        }
    }
    Ok(runs)
}

fn start_idle(words: &mut Words<'_>) -> Result<StartIdleOptions, String> {
    let mut options = StartIdleOptions { runs: 5, idle_seconds: 20, with_kafka: false };
    while let Some(word) = words.next() {
        match word {
            "--runs" => options.runs = small(words.number("--runs")?)?,
            "--idle-seconds" => options.idle_seconds = small(words.number("--idle-seconds")?)?,
            "--with-kafka" => options.with_kafka = true,
            other => return Err(unknown("bench", other)),
        }
    }
    Ok(options)
}

fn small(number: u64) -> Result<u32, String> {
    u32::try_from(number).map_err(|_| format!("{number} is too large"))
}

fn unknown(command: &str, word: &str) -> String {
    format!("{command} does not know {word:?}")
}

struct Words<'a> {
    rest: &'a [String],
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn value(&mut self, flag: &str) -> Result<String, String> {
        self.next().map(str::to_owned).ok_or_else(|| format!("{flag} needs a value"))
    }

    fn number(&mut self, flag: &str) -> Result<u64, String> {
        let value = self.value(flag)?;
        value.parse().map_err(|_| format!("{flag} needs a number, not {value:?}"))
    }

    fn done<T>(&mut self, value: T) -> Result<T, String> {
        match self.next() {
            None => Ok(value),
            Some(word) => Err(format!("{word:?} does not belong here")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn check_parses(line: &str, command: &Command) {
        assert_eq!(parse(&words(line)).as_ref(), Ok(command), "{line}");
    }

    #[test]
    fn every_command_of_the_help_parses() {
        check_parses("", &Command::Help);
        check_parses("ci", &Command::Ci);
        check_parses("test -p weir-psm", &Command::Test { rest: words("-p weir-psm") });
        check_parses("tidy --bless", &Command::Tidy { bless: true });
        check_parses("fuzz list", &Command::Fuzz(FuzzOptions::List));
        check_parses("fuzz --smoke", &Command::Fuzz(FuzzOptions::Smoke));
        check_parses(
            "fuzz barrier --seconds 7",
            &Command::Fuzz(FuzzOptions::Guided {
                target: Some("barrier".to_owned()),
                seconds: 7,
                jobs: 1,
                install: false,
            }),
        );
        check_parses(
            "fuzz --all --seconds 600 --jobs 2 --install",
            &Command::Fuzz(FuzzOptions::Guided { target: None, seconds: 600, jobs: 2, install: true }),
        );
        check_parses(
            "seccomp enosys -- cargo test -p x",
            &Command::Seccomp { refusal: Refusal::Enosys, command: words("cargo test -p x") },
        );
        let golden = GoldenOptions { folder: "some/where".to_owned(), ..GoldenOptions::default() };
        check_parses("golden some/where", &Command::Golden(golden));
        check_parses(
            "golden some/where --make 40 --sweep 2 --seed 7",
            &Command::Golden(GoldenOptions { folder: "some/where".to_owned(), make: 40, sweep: 2, seed: 7 }),
        );
        check_parses("interop --tier 1", &Command::Interop(InteropOptions::default()));
        check_parses(
            "kill --rounds 7 --backends pwrite --seed 3",
            &Command::Kill(KillOptions { rounds: 7, backends: vec!["pwrite".to_owned()], seed: 3 }),
        );
        check_parses(
            "bench start-idle --runs 1 --idle-seconds 2",
            &Command::Bench(BenchOptions::StartIdle(StartIdleOptions {
                runs: 1,
                idle_seconds: 2,
                with_kafka: false,
            })),
        );
        check_parses("bench append --runs 1", &Command::Bench(BenchOptions::Append(words("--runs 1"))));
        check_parses("bench format", &Command::Bench(BenchOptions::Format { runs: 9 }));
        check_parses("bench format --runs 7", &Command::Bench(BenchOptions::Format { runs: 7 }));
        check_parses("bench psm --runs 5", &Command::Bench(BenchOptions::Psm { runs: 5 }));
        check_parses("bench recovery --gb 1", &Command::Bench(BenchOptions::Recovery(words("--gb 1"))));
    }

    #[test]
    fn a_wrong_word_is_named() {
        for (line, word) in [
            ("frobnicate", "frobnicate"),
            ("ci now", "now"),
            ("tidy --blessed", "--blessed"),
            ("fuzz barrier --seconds many", "many"),
            ("fuzz", "target"),
            ("fuzz barrier --all", "both"),
            ("golden", "folder"),
            ("golden --all", "--all"),
            ("golden a b", "b"),
            ("seccomp eacces -- true", "eacces"),
            ("seccomp eperm true", "--"),
            ("seccomp eperm --", "command"),
            ("interop", "--tier 1"),
            ("interop --tier 2", "2"),
            ("kill --fast", "--fast"),
            ("bench mirror", "mirror"),
            ("bench format --fast", "--fast"),
            ("bench psm --fast", "--fast"),
        ] {
            let error = parse(&words(line)).expect_err(line);
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
