//! Switching a drive's write cache.
//!
//! 1. The current state is read from the drive.
//! 2. The caller saves it durably.
//! 3. Before a cache is switched off it is flushed.
//! 4. It is switched.
//! 5. The state is read back; any other than the requested one is an error.

mod nvme;
mod scsi;
mod virtio;

use crate::ask::{self, AskError};
use crate::drive::{Drive, Protocol};
use crate::hook::{self, HookError};
use crate::write_cache::{CacheState, Setting};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// How long the drive keeps the setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lasting {
    UntilPowerCycle,
    Saved,
}

/// The operations that switching needs.
pub trait CacheControl {
    /// The current state as the drive reports it.
    ///
    /// # Errors
    /// Where the drive does not report it.
    fn read(&self) -> Result<CacheState, AskError>;

    /// Writes everything acknowledged to the medium, also where the kernel assumes no cache.
    ///
    /// # Errors
    /// Where the drive could not.
    fn flush(&self) -> Result<(), ControlError>;

    /// Switches it; returns how long the setting lasts.
    ///
    /// # Errors
    /// Where it cannot be done, or not for as long.
    fn write(&self, to: Setting, lasting: Lasting) -> Result<Lasting, ControlError>;
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("{}: {source}{}", path.display(), way_out(source))]
    Sysfs { path: PathBuf, source: io::Error },
    #[error("the kernel could not write back its cached data: {0}")]
    Sync(io::Error),
    #[error("{why}: the setting would be lost at the next power cycle; leave out --persistent")]
    Unsaveable { why: &'static str },
    #[error(
        "the kernel assumes that there is no volatile cache ({place} is write through) and would \
        send no flushes; write \"write back\" there first"
    )]
    NoFlushes { place: String },
    #[error("{place} is read-only: the hypervisor does not allow switching the cache")]
    ReadOnly { place: String },
    #[error(transparent)]
    Hook(#[from] HookError),
}

/// Why a cache was not switched, and its state.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    #[error("the state of the write cache cannot be read, and nothing was changed: {}", unread(.0))]
    Before(AskError),
    #[error("the drive has no volatile write cache: there is nothing to switch")]
    Absent,
    #[error(
        "the state of the write cache could not be saved for later, and nothing was changed: {0}"
    )]
    Keep(io::Error),
    #[error("the write cache could not be flushed, and nothing was changed: {0}")]
    Flush(ControlError),
    #[error("the write cache was not switched: {0}")]
    Write(ControlError),
    #[error("the write cache may or may not have been switched: {0}")]
    Half(ControlError),
    #[error("the write cache was switched, but its state cannot be read: {0}")]
    After(AskError),
    #[error("the drive ignored the setting: its write cache is {is}, not {asked}")]
    NotTaken { asked: Setting, is: CacheState },
}

/// The cause, and the way out where the drive accepts no such command.
fn unread(error: &AskError) -> String {
    match error {
        AskError::NoWay => {
            format!("{error}; for a controller use its vendor's tool (--hook)")
        }
        error => error.to_string(),
    }
}

/// The outcome of switching, as the drive reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switched {
    /// Unknown only where a hook switched a cache whose state the drive does not report.
    pub before: Option<CacheState>,
    pub after: Option<CacheState>,
    /// How long the setting lasts; `None` where nothing was sent because it was set already, and
    /// with a hook.
    pub lasting: Option<Lasting>,
    pub flushed: bool,
}

/// Switches a cache; `keep` saves the previous state.
///
/// # Errors
/// With the step that failed, and whether anything was changed.
pub fn switch(
    control: &dyn CacheControl,
    to: Setting,
    lasting: Lasting,
    keep: impl FnOnce(Setting) -> io::Result<()>,
) -> Result<Switched, SetError> {
    let before = control.read().map_err(SetError::Before)?;
    let was = before.setting().ok_or(SetError::Absent)?;
    if was == to && lasting == Lasting::UntilPowerCycle {
        let state = Some(before);
        return Ok(Switched { before: state, after: state, lasting: None, flushed: false });
    }
    keep(was).map_err(SetError::Keep)?;
    let flushed = flush_before(control, to)?;
    let lasting = control.write(to, lasting).map_err(|error| match control.read() {
        Ok(now) if now == before => SetError::Write(error),
        _ => SetError::Half(error),
    })?;
    let after = control.read().map_err(SetError::After)?;
    match after == to.into() {
        true => {
            let (before, after) = (Some(before), Some(after));
            Ok(Switched { before, after, lasting: Some(lasting), flushed })
        }
        false => Err(SetError::NotTaken { asked: to, is: after }),
    }
}

/// Switches by a command, which runs whatever state the drive reports: behind a controller that may
/// be another cache's, or none.
///
/// # Errors
/// As [`switch`]; but not where the drive does not report its state.
pub fn switch_by_hook(
    control: &dyn CacheControl,
    words: &[String],
    to: Setting,
    keep: impl FnOnce(Setting) -> io::Result<()>,
) -> Result<Switched, SetError> {
    let before = control.read().ok();
    if let Some(was) = before.and_then(CacheState::setting) {
        keep(was).map_err(SetError::Keep)?;
    }
    let flushed = flush_before(control, to)?;
    // What a failed command has changed is unknown.
    hook::run(words).map_err(|error| SetError::Half(error.into()))?;
    let after = control.read().ok();
    match after {
        Some(is) if is != to.into() => Err(SetError::NotTaken { asked: to, is }),
        _ => Ok(Switched { before, after, lasting: None, flushed }),
    }
}

fn flush_before(control: &dyn CacheControl, to: Setting) -> Result<bool, SetError> {
    let is_needed = to == Setting::Off;
    if is_needed {
        control.flush().map_err(SetError::Flush)?;
    }
    Ok(is_needed)
}

impl Drive {
    /// Access to this drive's write cache.
    ///
    /// # Errors
    /// Where it cannot be opened.
    pub fn cache_control(&self) -> Result<Box<dyn CacheControl>, AskError> {
        let file = ask::open(&self.path)?;
        Ok(match self.protocol {
            Protocol::Nvme => Box::new(nvme::Controller::new(file, self)),
            Protocol::Virtio => Box::new(virtio::VirtioDisk::new(file, self)),
            protocol if protocol.speaks_scsi() => Box::new(scsi::ScsiDisk::new(file, self)),
            _ => Box::new(Mute { file }),
        })
    }
}

/// A device without a command set known here; only a hook can switch it.
struct Mute {
    file: File,
}

impl CacheControl for Mute {
    fn read(&self) -> Result<CacheState, AskError> {
        Err(AskError::NoWay)
    }

    fn flush(&self) -> Result<(), ControlError> {
        sync(&self.file)
    }

    fn write(&self, _to: Setting, _lasting: Lasting) -> Result<Lasting, ControlError> {
        Err(AskError::NoWay.into())
    }
}

/// Makes the kernel write back its cached data of the device, and flush if it assumes a volatile
/// cache.
fn sync(file: &File) -> Result<(), ControlError> {
    file.sync_all().map_err(ControlError::Sync)
}

fn write_attribute(path: &Path, text: &str) -> Result<(), ControlError> {
    let written = std::fs::write(path, text);
    written.map_err(|source| ControlError::Sysfs { path: path.to_owned(), source })
}

fn way_out(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => " (requires root)",
        io::ErrorKind::InvalidInput => " (rejected by the drive)",
        _ => "",
    }
}

impl SetError {
    /// Whether the drive's state is known to be unchanged.
    pub fn changed_nothing(&self) -> bool {
        match self {
            Self::Before(_) | Self::Absent | Self::Keep(_) | Self::Flush(_) | Self::Write(_) => {
                true
            }
            // There are two states, and it is not in the other one.
            Self::NotTaken { is, .. } => *is != CacheState::Absent,
            Self::Half(_) | Self::After(_) => false,
        }
    }
}

#[cfg(test)]
mod tests;
