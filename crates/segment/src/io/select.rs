//! Which backend runs, and why: `weir.io = auto | uring | pwrite`.
//!
//! Chosen once per shard at start, never switched while running. With `auto`:
//!
//! | what the kernel says to a ring | what runs |
//! |---|---|
//! | it works, with the best settings or with plainer ones | uring |
//! | `EPERM`, `EACCES`, `ENOSYS`: a seccomp profile, `kernel.io_uring_disabled`, or no such thing | pwrite |
//! | `EINVAL`, `ENOMEM`, also with the plainest settings | pwrite |
//! | an operation or a feature is missing | pwrite |
//! | anything else | nothing: an error |

use std::fmt;
use std::str::FromStr;

use super::Io;
use super::pwrite::{PwriteConfig, PwriteIo};
#[cfg(target_os = "linux")]
use super::uring::{UringConfig, UringError, UringIo};

/// What the operator asked for: the value of `weir.io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WantedBackend {
    /// The fastest that works here.
    #[default]
    Auto,
    /// io_uring, or a refusal to start.
    Uring,
    /// Plain system calls.
    Pwrite,
}

/// A value that `weir.io` does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("weir.io is {found:?}, which is none of auto, uring and pwrite")]
pub struct WantedBackendError {
    /// What was found.
    pub found: String,
}

impl FromStr for WantedBackend {
    type Err = WantedBackendError;

    fn from_str(text: &str) -> Result<WantedBackend, WantedBackendError> {
        match text {
            "auto" => Ok(WantedBackend::Auto),
            "uring" => Ok(WantedBackend::Uring),
            "pwrite" => Ok(WantedBackend::Pwrite),
            _ => Err(WantedBackendError { found: text.to_string() }),
        }
    }
}

/// A backend that can be running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// io_uring.
    Uring,
    /// Plain system calls and a small pool of threads for syncs.
    Pwrite,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Uring => "uring",
            Backend::Pwrite => "pwrite",
        })
    }
}

/// Limits of whichever backend is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoConfig {
    /// If it is io_uring.
    #[cfg(target_os = "linux")]
    pub uring: UringConfig,
    /// If it is plain system calls.
    pub pwrite: PwriteConfig,
}

impl IoConfig {
    /// The same with at most `count` descriptors held, whichever backend is chosen.
    pub fn with_max_open_files(mut self, count: usize) -> IoConfig {
        #[cfg(target_os = "linux")]
        {
            self.uring.max_open_files = count;
        }
        self.pwrite.max_open_files = count;
        self
    }
}

/// What was chosen, for the start-up log, a metric and `weir inspect`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// The backend that runs.
    pub backend: Backend,
    /// Why this one.
    pub reason: String,
    /// The kernel's name and release.
    pub kernel: String,
}

impl fmt::Display for Selected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}; {})", self.backend, self.reason, self.kernel)
    }
}

/// Why no backend was chosen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// The operator asked for io_uring, it cannot be had, and they must not get something else.
    #[error("weir.io is uring, but {cause}: {remedy}")]
    Unavailable {
        /// Why it cannot be had.
        cause: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A ring could not be made, for a reason that no setting explains.
    #[cfg(target_os = "linux")]
    #[error("io_uring could not be set up: set weir.io to pwrite if that is to be ignored")]
    Broken {
        /// What failed.
        #[source]
        source: UringError,
    },
}

fn kernel() -> String {
    let uname = rustix::system::uname();
    format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy())
}

/// Opens the backend that was asked for.
///
/// # Errors
/// [`SelectError`]: do not start; its text has the remedy.
pub fn select(want: WantedBackend, config: &IoConfig) -> Result<(Box<dyn Io>, Selected), SelectError> {
    let reason = match want {
        WantedBackend::Pwrite => "asked for by weir.io".to_string(),
        #[cfg(target_os = "linux")]
        WantedBackend::Auto | WantedBackend::Uring => match UringIo::new(config.uring) {
            Ok(io) => {
                let asked =
                    if want == WantedBackend::Uring { "asked for by weir.io" } else { "it works here" };
                let mut reason = format!("{asked}: {}", io.settings());
                for remark in io.remarks() {
                    reason = format!("{reason}, {remark}");
                }
                let selected = Selected { backend: Backend::Uring, reason, kernel: kernel() };
                return Ok((Box::new(io), selected));
            }
            Err(error) => match refusal(&error) {
                Some((cause, _)) if want == WantedBackend::Auto => cause,
                Some((cause, remedy)) => return Err(SelectError::Unavailable { cause, remedy }),
                None => return Err(SelectError::Broken { source: error }),
            },
        },
        #[cfg(not(target_os = "linux"))]
        WantedBackend::Uring => {
            return Err(SelectError::Unavailable {
                cause: "only Linux has io_uring".to_string(),
                remedy: "set weir.io to auto or pwrite",
            });
        }
        #[cfg(not(target_os = "linux"))]
        WantedBackend::Auto => "only Linux has io_uring".to_string(),
    };
    let io = Box::new(PwriteIo::new(config.pwrite));
    Ok((io, Selected { backend: Backend::Pwrite, reason, kernel: kernel() }))
}

/// What a refusal of io_uring means and what helps; `None` if it is not one that is known.
#[cfg(target_os = "linux")]
fn refusal(error: &UringError) -> Option<(String, &'static str)> {
    const ALLOW: &str = "allow io_uring_setup, io_uring_enter and io_uring_register in the seccomp profile and set \
                         kernel.io_uring_disabled to 0, or set weir.io to auto or pwrite";
    const NEWER: &str = "run a newer kernel, or set weir.io to auto or pwrite";
    const MEMORY: &str =
        "raise the limit of locked memory (RLIMIT_MEMLOCK), or set weir.io to auto or pwrite";
    if let UringError::Missing { .. } = error {
        return Some((format!("{error}"), NEWER));
    }
    let (said, remedy) = match error.errno()? {
        libc::EPERM | libc::EACCES => {
            let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
            let said = match disabled.trim() {
                setting @ ("1" | "2") => {
                    format!("io_uring is not permitted: kernel.io_uring_disabled is {setting} (EPERM)")
                }
                _ => "io_uring is not permitted: a seccomp profile refuses it (EPERM)".to_string(),
            };
            return Some((said, ALLOW));
        }
        libc::ENOSYS => ("this kernel has no io_uring, or a seccomp profile hides it (ENOSYS)", ALLOW),
        libc::EINVAL => ("this kernel refuses every setting of io_uring that was tried (EINVAL)", NEWER),
        libc::ENOMEM => ("there is not enough memory for io_uring (ENOMEM)", MEMORY),
        _ => return None,
    };
    Some((said.to_string(), remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_weir_io_picks_the_backend_and_says_why() {
        let (_, selected) = select("pwrite".parse().unwrap(), &IoConfig::default()).unwrap();
        assert_eq!(selected.backend, Backend::Pwrite);
        assert_eq!(selected.to_string(), format!("pwrite (asked for by weir.io; {})", kernel()));
        assert!("ring".parse::<WantedBackend>().unwrap_err().to_string().contains("\"ring\""));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn every_refusal_that_is_known_has_a_remedy_and_no_other() {
        let setup = |errno| UringError::Setup { source: std::io::Error::from_raw_os_error(errno) };
        for errno in [libc::EPERM, libc::EACCES, libc::ENOSYS, libc::EINVAL, libc::ENOMEM] {
            let (cause, remedy) = refusal(&setup(errno)).unwrap();
            assert!(
                cause.contains("io_uring") && remedy.ends_with("set weir.io to auto or pwrite"),
                "{cause}"
            );
        }
        let (cause, remedy) = refusal(&UringError::Missing { what: "the operation Fsync" }).unwrap();
        assert_eq!(cause, "this kernel's io_uring lacks the operation Fsync");
        assert!(remedy.contains("newer kernel"));
        for errno in [libc::EMFILE, libc::EFAULT, libc::EIO] {
            assert!(refusal(&setup(errno)).is_none());
        }
    }
}
