//! Settings of an array that can be changed online.

use super::{SettingChange, SettingError};
use crate::Size;
use headpond_raid::{Array, Deadlines, MergeConfig, MergeWait, deadlines};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Everything of a volume beside its caches that can be changed while it is served: of its arrays,
/// the same for all cores, and of its clients. In the description it is the table `[array]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArraySettings {
    /// How long a write of a sequential stream waits for the rest of its stripe.
    pub merge_wait_us: MergeWaitSetting,
    /// Most bytes that wait so at a time.
    pub merge_max: Size,
    /// After which a read of a member is reconstructed from its peers.
    #[serde(alias = "member_patience_ms")]
    pub member_read_timeout_ms: WaitMs,
    /// After which a member that does not answer is failed.
    #[serde(alias = "member_deadline_ms")]
    pub member_timeout_ms: WaitMs,
    /// Timeouts of reads within ten minutes after which a member is failed.
    #[serde(alias = "member_late_max")]
    pub member_timeouts_max: TimeoutsMax,
    /// Memory limit for the requests of all clients.
    pub client_memory: ClientMemory,
}

/// Milliseconds, or `off`: for as long as it takes.
pub type WaitMs = Limit<{ WAIT_MS.0 }, { WAIT_MS.1 }>;
/// A number of times, or `off`: however often.
pub type TimeoutsMax = Limit<{ TIMEOUTS_MAX.0 }, { TIMEOUTS_MAX.1 }>;

/// `off`, or a number from `LEAST` to `MOST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "NumberOrText", into = "String")]
pub struct Limit<const LEAST: u64, const MOST: u64>(Option<u64>);

/// `auto`, `off`, or a number of microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "NumberOrText", into = "String")]
pub struct MergeWaitSetting(pub MergeWait);

/// A size of [`CLIENT_MEMORY`], or `auto`: whoever serves the volume decides by the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "NumberOrText", into = "String")]
pub struct ClientMemory(pub Option<Size>);

/// What a file has for a number that may be a word.
#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

/// The keys of what is set here.
const KEYS: [&str; 6] = [
    "merge-wait-us",
    "merge-max",
    "member-read-timeout-ms",
    "member-timeout-ms",
    "member-timeouts-max",
    "client-memory",
];
/// From a little more than the array can tell apart to ten minutes.
pub(super) const WAIT_MS: (u64, u64) = (100, 600_000);
const _: () = assert!(WAIT_MS.0 >= deadlines::READ_MIN.as_millis() as u64);
pub(super) const TIMEOUTS_MAX: (u64, u64) = (1, deadlines::EventWindow::KEPT_MAX as u64);
pub(super) const MERGE_WAIT_US_MAX: u64 = 1_000_000;
pub(super) const MERGE_MAX_MAX: Size = Size(1 << 30);
/// The least and the most that clients' requests can be given.
pub const CLIENT_MEMORY: (Size, Size) = (Size(64 << 20), Size(1 << 40));

/// A wait that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no wait: it is auto, off, or 0 to {MERGE_WAIT_US_MAX} microseconds")]
struct MergeWaitError(String);

/// A limit that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is no limit: it is off, or {least} to {most}")]
struct LimitError {
    text: String,
    least: u64,
    most: u64,
}

/// A budget that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is no budget: it is auto, or a size from {least} to {most}",
    least = CLIENT_MEMORY.0,
    most = CLIENT_MEMORY.1
)]
struct ClientMemoryError(String);

impl ArraySettings {
    /// These settings with some of them changed, in order; the changes are those that
    /// [`SettingChange::is_of_array`] tells.
    ///
    /// # Errors
    /// At the first whose value does not fit its setting.
    pub fn with_all(&self, changes: &[SettingChange]) -> Result<Self, SettingError> {
        changes.iter().try_fold(self.clone(), |settings, change| {
            let changed: Self = change.changed(&settings)?;
            match changed.merge_max <= MERGE_MAX_MAX {
                true => Ok(changed),
                false => Err(change.refusal(change.possible().unwrap_or_default())),
            }
        })
    }

    /// Has an array work like this from now on.
    pub(crate) fn apply_to(&self, array: &Array) {
        let (wait, bytes_max) = (self.merge_wait_us.0, self.merge_max.bytes());
        array.set_merge(MergeConfig { wait, bytes_max });
        array.set_deadlines(self.deadlines());
    }

    /// `None` without timeouts.
    pub fn deadlines(&self) -> Option<Deadlines> {
        let time = |WaitMs { 0: millis }| millis.map(Duration::from_millis);
        let (read, deadline) = (time(self.member_read_timeout_ms), time(self.member_timeout_ms));
        let timeouts_max = self.member_timeouts_max.0.map(|times| times as u32);
        // Reads do not wait longer than the timeout of the member.
        let read = read.map(|read| deadline.map_or(read, |deadline| read.min(deadline)));
        (read.is_some() || deadline.is_some()).then_some(Deadlines { read, deadline, timeouts_max })
    }

    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for ArraySettings {
    fn default() -> Self {
        let MergeConfig { wait, bytes_max } = MergeConfig::default();
        let Deadlines { read, deadline, timeouts_max } = Deadlines::default();
        let millis = |time: Option<Duration>| Limit(time.map(|time| time.as_millis() as u64));
        Self {
            merge_wait_us: MergeWaitSetting(wait),
            merge_max: Size(bytes_max),
            member_read_timeout_ms: millis(read),
            member_timeout_ms: millis(deadline),
            member_timeouts_max: Limit(timeouts_max.map(u64::from)),
            client_memory: ClientMemory::default(),
        }
    }
}

impl SettingChange {
    /// Whether it is about the arrays or the clients, not about a cache.
    pub fn is_of_array(&self) -> bool {
        KEYS.iter().any(|key| self.concerns(key))
    }
}

impl fmt::Display for NumberOrText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl<const LEAST: u64, const MOST: u64> TryFrom<NumberOrText> for Limit<LEAST, MOST> {
    type Error = LimitError;

    fn try_from(text: NumberOrText) -> Result<Self, LimitError> {
        let text = text.to_string();
        if text == "off" {
            return Ok(Self(None));
        }
        match text.parse() {
            Ok(number) if (LEAST..=MOST).contains(&number) => Ok(Self(Some(number))),
            _ => Err(LimitError { text, least: LEAST, most: MOST }),
        }
    }
}

impl<const LEAST: u64, const MOST: u64> From<Limit<LEAST, MOST>> for String {
    fn from(Limit(limit): Limit<LEAST, MOST>) -> Self {
        limit.map_or_else(|| "off".into(), |number| number.to_string())
    }
}

impl TryFrom<NumberOrText> for MergeWaitSetting {
    type Error = MergeWaitError;

    fn try_from(text: NumberOrText) -> Result<Self, MergeWaitError> {
        let text = text.to_string();
        match text.as_str() {
            "auto" => Ok(Self(MergeWait::Adaptive)),
            "off" => Ok(Self(MergeWait::Off)),
            number => match number.parse() {
                Ok(micros @ 0..=MERGE_WAIT_US_MAX) => {
                    Ok(Self(MergeWait::AtMost(Duration::from_micros(micros))))
                }
                _ => Err(MergeWaitError(text)),
            },
        }
    }
}

impl From<MergeWaitSetting> for String {
    fn from(MergeWaitSetting(wait): MergeWaitSetting) -> Self {
        match wait {
            MergeWait::Adaptive => "auto".into(),
            MergeWait::Off => "off".into(),
            MergeWait::AtMost(wait) => wait.as_micros().to_string(),
        }
    }
}

impl TryFrom<NumberOrText> for ClientMemory {
    type Error = ClientMemoryError;

    fn try_from(text: NumberOrText) -> Result<Self, ClientMemoryError> {
        let text = text.to_string();
        if text == "auto" {
            return Ok(Self(None));
        }
        match text.parse() {
            Ok(size) if (CLIENT_MEMORY.0..=CLIENT_MEMORY.1).contains(&size) => Ok(Self(Some(size))),
            _ => Err(ClientMemoryError(text)),
        }
    }
}

impl From<ClientMemory> for String {
    fn from(ClientMemory(size): ClientMemory) -> Self {
        size.map_or_else(|| "auto".into(), |size| size.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> Result<ArraySettings, SettingError> {
        let change: SettingChange = text.parse()?;
        assert!(change.is_of_array(), "{text}");
        ArraySettings::default().with_all(&[change])
    }

    #[test]
    fn what_is_set_is_what_the_file_would_say() {
        for (text, file) in [
            ("merge-wait-us=off", "merge_wait_us = 'off'"),
            ("merge_wait_us=250", "merge_wait_us = 250"),
            ("merge-wait-us=0", "merge_wait_us = '0'"),
            ("merge-wait-us=auto", ""),
            ("merge-max=1M", "merge_max = '1M'"),
            ("merge_max=0", "merge_max = '0'"),
            ("member-read-timeout-ms=500", "member_patience_ms = 500"),
            ("member-timeout-ms=off", "member_deadline_ms = 'off'"),
            ("member-timeouts-max=3", "member_late_max = '3'"),
            ("client-memory=512M", "client_memory = '512M'"),
            ("client-memory=auto", ""),
        ] {
            let expected: ArraySettings = toml::from_str(file).unwrap();
            assert_eq!(set(text), Ok(expected.clone()), "{text}");
            let kept = toml::to_string(&expected).unwrap();
            assert_eq!(toml::from_str(&kept), Ok(expected), "{kept}");
        }
    }

    #[test]
    fn a_mistake_says_what_is_possible() {
        for (text, part) in [
            ("merge-wait-us=1000001", "it is auto, off, or 0 to 1000000"),
            ("merge-wait-us=soon", "auto, off"),
            ("merge-max=2G", "it is 0 to 1G"),
            ("member-read-timeout-ms=99", "it is off, or 100 to 600000"),
            ("member-timeouts-max=0", "it is off, or 1 to 100"),
            ("client-memory=63M", "it is auto, or a size from 64M to 1T"),
            ("client-memory=off", "it is auto, or a size"),
            ("merge-wait-us.policy=off", "merge-wait-us, without anything after it"),
        ] {
            let error = set(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_read_is_never_waited_for_longer_than_its_member() {
        let with = |texts: &[&str]| {
            let changes: Vec<SettingChange> =
                texts.iter().map(|text| text.parse().unwrap()).collect();
            ArraySettings::default().with_all(&changes).unwrap().deadlines()
        };
        assert_eq!(with(&[]), Some(Deadlines::default()));
        let quick = with(&["member-timeout-ms=1000"]).unwrap();
        assert_eq!(quick.read, quick.deadline);
        let endless = with(&["member-timeout-ms=off"]).unwrap();
        assert_eq!((endless.read, endless.deadline), (Deadlines::default().read, None));
        assert_eq!(with(&["member-read-timeout-ms=off", "member-timeout-ms=off"]), None);
    }
}
