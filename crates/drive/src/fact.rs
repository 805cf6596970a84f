//! A fact about a drive, with its source.

use serde::Serialize;

/// A value and its source, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Fact<T> {
    Known { value: T, source: String },
    Unknown { unknown: String },
}

impl<T> Fact<T> {
    pub fn known(value: T, source: impl Into<String>) -> Self {
        Self::Known { value, source: source.into() }
    }

    /// `why` names what is missing.
    pub fn unknown(why: impl Into<String>) -> Self {
        Self::Unknown { unknown: why.into() }
    }

    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Known { value, .. } => Some(value),
            Self::Unknown { .. } => None,
        }
    }

    /// A value derived from this one, of the same source; unknown with `why` where it cannot be
    /// derived.
    pub fn and_then<U>(self, why: &str, read: impl FnOnce(T) -> Option<U>) -> Fact<U> {
        match self {
            Self::Unknown { unknown } => Fact::Unknown { unknown },
            Self::Known { value, source } => match read(value) {
                Some(value) => Fact::Known { value, source },
                None => Fact::Unknown { unknown: format!("{source}: {why}") },
            },
        }
    }
}
