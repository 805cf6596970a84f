//! Events of a volume: what happened to it, kept over restarts for people, scripts and programs.

mod kept;

pub use kept::{EventFiles, EventWriter};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One event. As JSON it has the `schema` of all answers beside these fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Of the volume, from 1 on; what is missing was lost.
    pub sequence: u64,
    /// RFC 3339 in UTC with milliseconds, so that the order of texts is that of times.
    pub time: String,
    pub volume: String,
    pub event: EventKind,
    pub severity: Severity,
    /// The device concerned.
    pub device: Option<String>,
    /// Its role in the array.
    pub member: Option<u16>,
    pub text: String,
    /// By kind: counts, the state, who did it.
    pub details: Map<String, Value>,
}

/// Which events there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    VolumeStarted,
    VolumeStopping,
    VolumeStopped,
    /// It was not started.
    StartFailed,
    /// The daemon before this one ended without a stop.
    UncleanShutdown,
    AlertRaised,
    AlertCleared,
    ArrayState,
    MemberState,
    CacheState,
    /// A rebuild, sync, scrub, reshape or cleaning.
    JobStarted,
    JobEnded,
    /// Error counts of a device rose.
    DeviceErrors,
    SlowRequests,
    /// One of the kernel's went on with the next daemon, or could not.
    BlockDevice,
    /// With what was set, and by whom.
    SettingsChanged,
    /// Any other command that changes something.
    Command,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Info,
    Warning,
    Error,
}

impl EventKind {
    /// Its name in JSON and for scripts.
    pub fn word(self) -> &'static str {
        match self {
            Self::VolumeStarted => "volume_started",
            Self::VolumeStopping => "volume_stopping",
            Self::VolumeStopped => "volume_stopped",
            Self::StartFailed => "start_failed",
            Self::UncleanShutdown => "unclean_shutdown",
            Self::AlertRaised => "alert_raised",
            Self::AlertCleared => "alert_cleared",
            Self::ArrayState => "array_state",
            Self::MemberState => "member_state",
            Self::CacheState => "cache_state",
            Self::JobStarted => "job_started",
            Self::JobEnded => "job_ended",
            Self::DeviceErrors => "device_errors",
            Self::SlowRequests => "slow_requests",
            Self::BlockDevice => "block_device",
            Self::SettingsChanged => "settings_changed",
            Self::Command => "command",
        }
    }
}

impl Severity {
    /// Its name in JSON and for scripts.
    pub fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl Event {
    /// Without number, time and volume, which it gets when it is told.
    pub fn new(event: EventKind, severity: Severity, text: impl Into<String>) -> Self {
        Self {
            sequence: 0,
            time: String::new(),
            volume: String::new(),
            event,
            severity,
            device: None,
            member: None,
            text: text.into(),
            details: Map::new(),
        }
    }

    pub fn of_device(self, device: Option<&str>) -> Self {
        Self { device: device.map(str::to_owned), ..self }
    }

    pub fn of_member(self, role: u16) -> Self {
        Self { member: Some(role), ..self }
    }

    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_json() {
        // The compiler asks for a word of each; these are the ends and the middle of the list.
        for kind in [EventKind::VolumeStarted, EventKind::MemberState, EventKind::Command] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.word());
        }
        for severity in [Severity::Info, Severity::Warning, Severity::Error] {
            assert_eq!(serde_json::to_value(severity).unwrap(), severity.word());
        }
    }
}
