//! Settings that change while a volume is served.

use crate::Size;
use headpond_cache::{CleaningPolicy, Mode};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// One change, as `key=value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingChange {
    Mode(Mode),
    Cleaning(CleaningPolicy),
    SeqCutoff(SeqCutoff),
}

/// From which length on a sequential stream goes past the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SeqCutoff {
    #[default]
    Never,
    /// After so many contiguous bytes.
    After(Size),
}

/// A change that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    #[error("{text:?} is no setting: write key=value, e.g. mode=write-through")]
    Form { text: String },
    #[error("there is no setting {key:?}; there are: mode, cleaning, seq-cutoff")]
    Key { key: String },
    #[error("{key}={value} is not possible; {key} is one of: {known}")]
    Value { key: &'static str, value: String, known: &'static str },
}

const MODES: [(&str, Mode); 3] = [
    ("write-back", Mode::WriteBack),
    ("write-through", Mode::WriteThrough),
    ("pass-through", Mode::PassThrough),
];
const CLEANING: [(&str, CleaningPolicy); 2] =
    [("stripe", CleaningPolicy::Stripe), ("nop", CleaningPolicy::Nop)];

/// Reads a mode.
///
/// # Errors
/// Names the modes that there are.
pub fn parse_mode(value: &str) -> Result<Mode, SettingError> {
    find(&MODES, value, "mode", "write-back, write-through, pass-through")
}

/// Reads a cleaning policy.
///
/// # Errors
/// Names the policies that there are.
pub fn parse_cleaning(value: &str) -> Result<CleaningPolicy, SettingError> {
    find(&CLEANING, value, "cleaning", "stripe, nop")
}

fn find<T: Copy>(
    table: &[(&str, T)],
    value: &str,
    key: &'static str,
    known: &'static str,
) -> Result<T, SettingError> {
    let found = table.iter().find(|(name, _)| *name == value).map(|(_, item)| *item);
    found.ok_or_else(|| SettingError::Value { key, value: value.to_owned(), known })
}

impl FromStr for SeqCutoff {
    type Err = SettingError;

    fn from_str(value: &str) -> Result<Self, SettingError> {
        if value == "never" {
            return Ok(Self::Never);
        }
        let known = "never, or a size such as 1M";
        let error = || SettingError::Value { key: "seq-cutoff", value: value.to_owned(), known };
        match value.parse::<Size>() {
            Ok(size) if size.bytes() > 0 => Ok(Self::After(size)),
            _ => Err(error()),
        }
    }
}

impl fmt::Display for SeqCutoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("never"),
            Self::After(size) => write!(f, "{size}"),
        }
    }
}

impl From<SeqCutoff> for String {
    fn from(cutoff: SeqCutoff) -> String {
        cutoff.to_string()
    }
}

impl TryFrom<String> for SeqCutoff {
    type Error = SettingError;

    fn try_from(text: String) -> Result<Self, SettingError> {
        text.parse()
    }
}

impl fmt::Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mode(mode) => write!(f, "mode={}", name_of(&MODES, *mode)),
            Self::Cleaning(policy) => write!(f, "cleaning={}", name_of(&CLEANING, *policy)),
            Self::SeqCutoff(cutoff) => write!(f, "seq-cutoff={cutoff}"),
        }
    }
}

fn name_of<T: PartialEq>(table: &[(&'static str, T)], item: T) -> &'static str {
    let entry = table.iter().find(|(_, other)| *other == item);
    entry.expect("the table names everything").0
}

impl FromStr for SettingChange {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let form = || SettingError::Form { text: text.to_owned() };
        let (key, value) = text.split_once('=').ok_or_else(form)?;
        match key {
            "mode" => parse_mode(value).map(Self::Mode),
            "cleaning" => parse_cleaning(value).map(Self::Cleaning),
            "seq-cutoff" => value.parse().map(Self::SeqCutoff),
            _ => Err(SettingError::Key { key: key.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_mistakes_name_what_is_possible() {
        assert_eq!("mode=write-back".parse(), Ok(SettingChange::Mode(Mode::WriteBack)));
        assert_eq!("cleaning=nop".parse(), Ok(SettingChange::Cleaning(CleaningPolicy::Nop)));
        let cutoff = SeqCutoff::After(Size(1 << 20));
        assert_eq!("seq-cutoff=1M".parse(), Ok(SettingChange::SeqCutoff(cutoff)));
        for (text, part) in [
            ("mode", "key=value"),
            ("mode=fast", "write-through"),
            ("colour=red", "there are: mode"),
            ("seq-cutoff=0", "such as 1M"),
        ] {
            let error = text.parse::<SettingChange>().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
