//! Switching a drive's write cache.
//!
//! 1. What it is now is read from the drive.
//! 2. The caller keeps that, durably.
//! 3. A cache that is switched off is flushed first: what it holds is on the medium before.
//! 4. It is switched.
//! 5. What it is now is read from the drive; if that is not what was asked for, it is an error.

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

/// How long a drive keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lasting {
    UntilPowerCycle,
    Saved,
}

/// What switching needs of a drive.
pub trait CacheControl {
    /// By the drive's word, now.
    ///
    /// # Errors
    /// Where the drive does not say.
    fn read(&self) -> Result<CacheState, AskError>;

    /// Has everything that was acknowledged on the medium, whatever the kernel believes of the
    /// cache.
    ///
    /// # Errors
    /// Where the drive could not.
    fn flush(&self) -> Result<(), ControlError>;

    /// Switches it; how long that lasts.
    ///
    /// # Errors
    /// Where it cannot be done, or not for as long.
    fn write(&self, to: Setting, lasting: Lasting) -> Result<Lasting, ControlError>;
}

/// Why a step was not done.
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

/// Why a cache was not switched, and what it is now.
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

/// Why, and what is left where the drive itself takes no command for it.
fn unread(error: &AskError) -> String {
    match error {
        AskError::NoWay => {
            format!("{error}; for a controller use its vendor's tool (--hook)")
        }
        error => error.to_string(),
    }
}

/// What switching came to, as the drive tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switched {
    /// Unknown only where a hook has switched what the drive does not show.
    pub before: Option<CacheState>,
    pub after: Option<CacheState>,
    /// How long; `None` where nothing was sent, because it was so already, or by a hook.
    pub lasting: Option<Lasting>,
    pub flushed: bool,
}

/// Switches a cache; `keep` stores what it was.
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

/// Switches by a command. It is run whatever the drive says of itself: behind a controller that may
/// be another cache's state, or none.
///
/// # Errors
/// As [`switch`]; not where the drive does not say what it is.
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
    // What a command that fails has done, nobody knows.
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
    /// The way to this drive's write cache.
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

/// A device that the kernel has no way to; a hook may have one.
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

/// Has the kernel write back what it holds of the device, and flush if it believes in a cache.
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
    /// Whether the drive is known to be as it was before.
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
