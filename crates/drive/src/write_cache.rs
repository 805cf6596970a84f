//! The states of a write cache, and those it can be set to.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A volatile write cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheState {
    /// The drive has none, or only a non-volatile one.
    Absent,
    Off,
    On,
}

/// What a write cache can be set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Setting {
    Off,
    On,
}

impl Setting {
    pub(crate) fn of(on: bool) -> Self {
        if on { Self::On } else { Self::Off }
    }
}

impl CacheState {
    /// The setting that restores this state; `None` where there is no cache.
    pub fn setting(self) -> Option<Setting> {
        match self {
            Self::Absent => None,
            Self::Off => Some(Setting::Off),
            Self::On => Some(Setting::On),
        }
    }
}

impl From<Setting> for CacheState {
    fn from(setting: Setting) -> Self {
        match setting {
            Setting::Off => Self::Off,
            Setting::On => Self::On,
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        CacheState::from(*self).fmt(f)
    }
}

impl fmt::Display for CacheState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "absent or non-volatile",
            Self::Off => "off",
            Self::On => "on",
        })
    }
}
