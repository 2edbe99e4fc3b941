//! One Apache Kafka broker in KRaft mode, on two unused ports of loopback.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::process::{self, Running, tail, wait_until};
use super::tools::Tools;

/// A broker that ends with its owner.
#[derive(Debug)]
pub(super) struct Kafka {
    running: Running,
    port: u16,
    data: PathBuf,
}

impl Kafka {
    /// Formats `folder` and starts a broker there; returns when it takes connections.
    pub(super) fn start(tools: &Tools, folder: &Path) -> Result<Self> {
        let (port, config) = format(tools, folder)?;
        let mut command = tools.java("kafka.Kafka", 512);
        Self::run(command.arg(&config), folder, "kafka", port)
    }

    /// Starts the broker once more that was stopped; what it says of its logs is kept for [`Kafka::said`].
    pub(super) fn start_again(tools: &Tools, folder: &Path) -> Result<Self> {
        let config = folder.join("server.properties");
        let text = std::fs::read_to_string(&config)?;
        let port = text
            .lines()
            .find_map(|line| line.strip_prefix("advertised.listeners=PLAINTEXT://127.0.0.1:"))
            .context("no advertised listener")?
            .parse()?;
        let mut command = tools.java_that_tells_of_logs("kafka.Kafka", 512)?;
        Self::run(command.arg(&config), folder, "kafka-again", port)
    }

    fn run(command: &mut Command, folder: &Path, name: &str, port: u16) -> Result<Self> {
        let mut running = Running::start(command, folder, name)?;
        wait_until("Kafka does not answer", Duration::from_secs(90), || {
            if running.has_ended() {
                bail!("Kafka ended at once: {}", tail(&running.stderr(), 8));
            }
            Ok(TcpStream::connect(("127.0.0.1", port)).is_ok())
        })?;
        Ok(Self { running, port, data: folder.join("data") })
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// What it has said so far, warnings and errors at least.
    pub(super) fn said(&self) -> String {
        self.running.stderr()
    }

    /// A partition's folder.
    pub(super) fn partition(&self, topic: &str, partition: i32) -> PathBuf {
        self.data.join(format!("{topic}-{partition}"))
    }

    /// The clean end.
    pub(super) fn stop(mut self) -> Result<PathBuf> {
        self.running.terminate()?;
        self.running.wait(Duration::from_secs(60))?;
        Ok(self.data.clone())
    }
}

/// Writes a configuration and formats the folder with Kafka's own tool.
fn format(tools: &Tools, folder: &Path) -> Result<(u16, PathBuf)> {
    std::fs::create_dir_all(folder)?;
    let (port, controller) = (process::free_port()?, process::free_port()?);
    let config = folder.join("server.properties");
    let properties = format!(
        "process.roles=broker,controller\n\
         node.id=1\n\
         controller.quorum.voters=1@127.0.0.1:{controller}\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n\
         controller.listener.names=CONTROLLER\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
         log.dirs={}\n\
         offsets.topic.replication.factor=1\n\
         offsets.topic.num.partitions=1\n\
         transaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\n\
         transaction.state.log.num.partitions=1\n\
         share.coordinator.state.topic.replication.factor=1\n\
         share.coordinator.state.topic.min.isr=1\n\
         group.initial.rebalance.delay.ms=0\n",
        folder.join("data").display()
    );
    std::fs::write(&config, properties)?;
    let id = cluster_id(folder)?;
    let mut tool = tools.java("kafka.tools.StorageTool", 256);
    tool.args(["format", "-t", &id, "-c"]).arg(&config);
    process::run(&mut tool, folder, Duration::from_secs(60), "")?.must_succeed("Kafka's StorageTool")?;
    Ok((port, config))
}

/// Sixteen random bytes as Kafka writes them: base64 for URLs, without padding.
fn cluster_id(folder: &Path) -> Result<String> {
    use std::io::Read as _;
    let mut bytes = [0_u8; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .with_context(|| format!("no random cluster id for {}", folder.display()))?;
    // An id that starts with a dash reads like an option to the tool.
    bytes[0] &= 0x3f;
    Ok(base64(&bytes))
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0_u32, |word, byte| (word << 8) | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..=chunk.len() {
            let index = (word >> (18 - 6 * place)) & 0x3f;
            let letter = LETTERS.get(usize::try_from(index).unwrap_or(0)).copied().unwrap_or(b'A');
            text.push(char::from(letter));
        }
    }
    text
}

/// The command of a formatted broker and its port, for a benchmark that measures both in one run.
///
/// # Errors
/// If Kafka cannot be fetched or formatted.
pub(crate) fn command_for_bench(folder: &Path) -> Result<(Command, u16)> {
    let tools = Tools::prepare_java(folder)?;
    let (port, config) = format(&tools, &folder.join("kafka"))?;
    let mut command = tools.plain_java("kafka.Kafka", 1024);
    command.arg(config);
    Ok((command, port))
}

/// How Kafka's own start script runs a broker.
const BROKER_FLAGS: [&str; 6] = [
    "-server",
    "-Xms1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
];

/// The program that makes partition directories with Kafka's classes, and damages them.
///
/// # Errors
/// If Java or Maven is missing, or Kafka cannot be fetched.
pub(crate) fn directories_for_golden(folder: &Path) -> Result<Command> {
    let tools = Tools::prepare_java(folder)?;
    Ok(tools.plain_java("Directories", 1024))
}

/// The command of `RecoverLog`, Kafka's loader of one partition, with a broker's heap and collector.
///
/// # Errors
/// If Kafka cannot be fetched or the program not be compiled.
pub(crate) fn loader_for_bench(folder: &Path) -> Result<Command> {
    let tools = Tools::prepare_java(folder)?;
    let plain = tools.plain_java("RecoverLog", 1024);
    let mut command = Command::new(plain.get_program());
    command.args(BROKER_FLAGS).args(plain.get_args());
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bytes_are_twenty_two_letters() {
        assert_eq!(base64(&[0; 16]), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(base64(b"weir"), "d2Vpcg");
        assert_eq!(base64(&[0xff, 0xef, 0xbe]), "_---");
    }
}
