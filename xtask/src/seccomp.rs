//! `cargo xtask seccomp ERROR -- COMMAND...`: a command in a process whose kernel refuses io_uring, as the seccomp
//! profiles of containers do.

use std::process::ExitCode;

use anyhow::Result;

/// What the kernel answers to `io_uring_setup`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// As the default profiles of container engines.
    Eperm,
    /// As profiles that hide what they do not know, and as kernels without io_uring.
    Enosys,
}

impl Refusal {
    /// The name of the error, in small letters.
    pub(crate) fn from_name(name: &str) -> Option<Refusal> {
        match name {
            "eperm" => Some(Refusal::Eperm),
            "enosys" => Some(Refusal::Enosys),
            _ => None,
        }
    }

    /// The argument that means it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Refusal::Eperm => "eperm",
            Refusal::Enosys => "enosys",
        }
    }
}

/// Installs the filter, checks that `auto` then chooses pwrite and says why, and becomes the command.
///
/// # Errors
/// If the filter cannot be installed, if something else is chosen, or if the command cannot be started.
#[cfg(target_os = "linux")]
pub(crate) fn run(refusal: Refusal, command: &[String]) -> Result<ExitCode> {
    use std::os::unix::process::CommandExt;

    use anyhow::Context;
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
    use weir_segment::io::select::{Backend, IoConfig, WantedBackend, select};

    let (errno, word) = match refusal {
        Refusal::Eperm => (libc::EPERM, "EPERM"),
        Refusal::Enosys => (libc::ENOSYS, "ENOSYS"),
    };
    let rules = [(libc::SYS_io_uring_setup, Vec::new())].into();
    let answer = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, answer, std::env::consts::ARCH.try_into()?)?;
    seccompiler::apply_filter(&BpfProgram::try_from(filter)?)?;
    let (_, selected) = select(WantedBackend::Auto, &IoConfig::default())?;
    println!("io_uring_setup answers {word}: auto chooses {selected}");
    anyhow::ensure!(selected.backend == Backend::Pwrite, "auto chose {selected}");
    anyhow::ensure!(selected.reason.contains(word), "the reason does not name {word}: {selected}");
    let refused = select(WantedBackend::Uring, &IoConfig::default());
    anyhow::ensure!(refused.is_err(), "who asks for uring got something else");
    let (program, arguments) = command.split_first().context("no command")?;
    // What comes back is an error: else this process is that program now.
    Err(std::process::Command::new(program).args(arguments).exec())
        .with_context(|| format!("cannot start {program}"))
}

/// Only Linux has seccomp.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub(crate) fn run(_: Refusal, _: &[String]) -> Result<ExitCode> {
    anyhow::bail!("only Linux has seccomp")
}
