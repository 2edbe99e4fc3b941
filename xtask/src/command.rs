//! Running other programs: where the workspace is, which cargo, and one line that says what failed.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The root of the workspace: where cargo runs us, else where this binary was built.
///
/// Two clones may share a target folder, so cargo's word at run time counts more than the one at build time.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map_or_else(|| manifest.clone(), Path::to_path_buf)
}

/// The cargo that runs us, or the one in the path.
pub(crate) fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// True if a program of this name can be started.
pub(crate) fn has(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

/// Runs to the end with our own standard streams.
///
/// # Errors
/// If it cannot be started or does not succeed; the line names the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = describe(command);
    let status = command.status().with_context(|| format!("cannot start {line}"))?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}

/// Runs to the end and returns its standard output; standard error is ours.
///
/// # Errors
/// If it cannot be started or does not succeed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = describe(command);
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start {line}"))?;
    if !output.status.success() {
        bail!("{line}: {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs to the end, passes its standard output on line by line and shows each line to `look`.
///
/// # Errors
/// If it cannot be started or does not succeed.
pub(crate) fn run_looking(command: &mut Command, mut look: impl FnMut(&str)) -> Result<()> {
    let line = describe(command);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {line}"))?;
    if let Some(stdout) = child.stdout.take() {
        let mut out = std::io::stdout().lock();
        for text in BufReader::new(stdout).split(b'\n') {
            let text = text.with_context(|| format!("cannot read what {line} prints"))?;
            let text = String::from_utf8_lossy(&text);
            look(&text);
            writeln!(out, "{text}")?;
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}

/// The command as one line, for messages.
pub(crate) fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut line = program
        .file_name()
        .map_or_else(|| program.display().to_string(), |name| name.to_string_lossy().into_owned());
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}

/// `cargo metadata` of the workspace, without dependencies' packages.
///
/// # Errors
/// If cargo fails or prints something that is not JSON.
pub(crate) fn metadata() -> Result<serde_json::Value> {
    let text = output(cargo().args(["metadata", "--no-deps", "--format-version", "1", "--offline"]))
        .or_else(|_| output(cargo().args(["metadata", "--no-deps", "--format-version", "1"])))?;
    serde_json::from_str(&text).context("cargo metadata did not print JSON")
}

/// The `package/feature` pairs that tests need switched on: simulated disks and fuzz oracles.
///
/// # Errors
/// As [`metadata`].
pub(crate) fn test_features() -> Result<String> {
    let metadata = metadata()?;
    let mut features = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        for feature in ["sim", "fuzzing"] {
            if package["features"].get(feature).is_some() {
                features.push(format!("{}/{feature}", package["name"].as_str().unwrap_or_default()));
            }
        }
    }
    Ok(features.join(","))
}
