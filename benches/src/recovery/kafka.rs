//! Kafka's own loader, in a Java process that takes one folder a line.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};

/// A process of `RecoverLog`.
#[derive(Debug)]
pub struct Loader {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// What it says of one load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loaded {
    /// Wall time in seconds.
    pub seconds: f64,
    /// CPU seconds of the whole process meanwhile.
    pub cpu: f64,
    /// Where the log ends.
    pub end_offset: i64,
    /// Producers known.
    pub producers: usize,
}

impl Loader {
    /// Starts it and waits until it takes lines.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(command: &[String]) -> Result<Loader> {
        let (program, arguments) = command.split_first().context("no command for Kafka's loader")?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take().context("its output")?);
        let mut loader = Loader { child, input, output: BufReader::new(output) };
        loader.expect("ready")?;
        Ok(loader)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("Kafka's loader has ended");
        }
        Ok(line.trim_end().to_owned())
    }

    fn expect(&mut self, word: &str) -> Result<()> {
        let line = self.line()?;
        if line != word {
            bail!("Kafka's loader says {line:?}, not {word:?}");
        }
        Ok(())
    }

    /// Loads the partition in `dir` as after a crash, with nothing known to be flushed; closed when this returns.
    ///
    /// # Errors
    /// If it fails.
    pub fn load(&mut self, dir: &Path) -> Result<Loaded> {
        let input = self.input.as_mut().context("its input")?;
        writeln!(input, "{} false 0", dir.display())?;
        input.flush()?;
        let line = self.line()?;
        let words: Vec<&str> = line.split(' ').collect();
        let [seconds, cpu, end_offset, producers] = words.as_slice() else {
            bail!("Kafka's loader says {line:?}");
        };
        let loaded = Loaded {
            seconds: seconds.parse()?,
            cpu: cpu.parse()?,
            end_offset: end_offset.parse()?,
            producers: producers.parse()?,
        };
        self.expect("closed")?;
        Ok(loaded)
    }

    /// Ends it.
    ///
    /// # Errors
    /// If it does not end well.
    pub fn end(mut self) -> Result<()> {
        drop(self.input.take());
        let status = self.child.wait()?;
        if !status.success() {
            bail!("Kafka's loader: {status}");
        }
        Ok(())
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
