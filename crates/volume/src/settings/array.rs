//! What of an array can be changed while it runs.

use super::{SettingChange, SettingError};
use crate::Size;
use headpond_raid::{MergeConfig, MergeWait};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Everything of the arrays that can be changed while they run: the same for all cores. In the
/// description it is the table `[array]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArraySettings {
    /// How long a write of a sequential stream waits for the rest of its stripe.
    pub merge_wait_us: MergeWaitSetting,
    /// Most that waits so at a time.
    pub merge_max: Size,
}

/// `auto`, `off`, or a number of microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "MergeWaitText", into = "String")]
pub struct MergeWaitSetting(pub MergeWait);

/// The same in a file.
#[derive(Deserialize)]
#[serde(untagged)]
enum MergeWaitText {
    Number(u64),
    Text(String),
}

pub(super) const MERGE_WAIT_US_MAX: u64 = 1_000_000;
pub(super) const MERGE_MAX_MAX: Size = Size(1 << 30);

/// A wait that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no wait: it is auto, off, or 0 to {MERGE_WAIT_US_MAX} microseconds")]
struct MergeWaitError(String);

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

    pub(crate) fn merge(&self) -> MergeConfig {
        MergeConfig { wait: self.merge_wait_us.0, bytes_max: self.merge_max.bytes() }
    }

    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for ArraySettings {
    fn default() -> Self {
        let MergeConfig { wait, bytes_max } = MergeConfig::default();
        Self { merge_wait_us: MergeWaitSetting(wait), merge_max: Size(bytes_max) }
    }
}

impl SettingChange {
    /// Whether it is about the arrays, not about a cache.
    pub fn is_of_array(&self) -> bool {
        self.concerns("merge-wait-us") || self.concerns("merge-max")
    }
}

impl TryFrom<MergeWaitText> for MergeWaitSetting {
    type Error = MergeWaitError;

    fn try_from(text: MergeWaitText) -> Result<Self, MergeWaitError> {
        let text = match text {
            MergeWaitText::Number(number) => number.to_string(),
            MergeWaitText::Text(text) => text,
        };
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
            ("merge-wait-us.policy=off", "merge-wait-us, without anything after it"),
        ] {
            let error = set(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
