//! Which backend runs, and why: `weir.io = auto | uring | pwrite`.
//!
//! Chosen once per shard at start, never switched while running.

use std::fmt;
use std::str::FromStr;

use super::Io;
use super::pwrite::{PwriteConfig, PwriteIo};

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

/// What was chosen, for the start-up log, a metric and `weir inspect`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// The backend that runs.
    pub backend: Backend,
    /// Why this one.
    pub reason: String,
}

impl fmt::Display for Selected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.backend, self.reason)
    }
}

/// Why no backend was chosen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// The operator asked for io_uring, and must not get something else.
    #[error("weir.io is uring, but this build has no io_uring backend: set weir.io to auto or pwrite")]
    UringNotInThisBuild,
}

/// Opens the backend that was asked for.
///
/// Inputs: `config` is used if the choice is pwrite.
///
/// # Errors
/// [`SelectError`]: do not start; its text has the remedy.
pub fn select(want: WantedBackend, config: PwriteConfig) -> Result<(Box<dyn Io>, Selected), SelectError> {
    let reason = match want {
        WantedBackend::Uring => return Err(SelectError::UringNotInThisBuild),
        WantedBackend::Pwrite => "asked for by weir.io",
        WantedBackend::Auto => "this build has no io_uring backend",
    };
    let io = Box::new(PwriteIo::new(config));
    Ok((io, Selected { backend: Backend::Pwrite, reason: reason.to_string() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_weir_io_picks_the_backend_and_says_why() {
        let select = |text: &str| select(text.parse().unwrap(), PwriteConfig::default());
        assert_eq!(select("auto").unwrap().1.to_string(), "pwrite (this build has no io_uring backend)");
        assert_eq!(select("pwrite").unwrap().1.to_string(), "pwrite (asked for by weir.io)");
        let refused = select("uring").err().unwrap().to_string();
        assert!(refused.contains("auto or pwrite"), "{refused}");
        assert!("ring".parse::<WantedBackend>().unwrap_err().to_string().contains("\"ring\""));
    }
}
