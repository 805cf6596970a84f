//! What can be set on a volume, as `headpond set` takes it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How the cache treats writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheMode {
    WriteBack,
    WriteThrough,
    PassThrough,
}

/// Who cleans dirty data, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cleaning {
    /// Whole stripes in address order.
    Stripe,
    /// Nobody.
    Nop,
}

/// From which length a sequential stream goes past the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeqCutoff {
    Never,
    Bytes(u64),
}

/// One setting as key and value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    pub key: &'static str,
    pub value: String,
}

impl fmt::Display for CacheMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CacheMode::WriteBack => "write-back",
            CacheMode::WriteThrough => "write-through",
            CacheMode::PassThrough => "pass-through",
        })
    }
}

impl fmt::Display for Cleaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cleaning::Stripe => "stripe",
            Cleaning::Nop => "nop",
        })
    }
}

impl fmt::Display for SeqCutoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] =
            [(1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
        let SeqCutoff::Bytes(bytes) = *self else {
            return f.write_str("never");
        };
        let whole = |&&(unit, _): &&(u64, &str)| bytes >= unit && bytes % unit == 0;
        match UNITS.iter().find(whole) {
            Some((unit, letter)) => write!(f, "{}{letter}", bytes / unit),
            None => write!(f, "{bytes}"),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutoff_is_written_in_the_largest_whole_unit() {
        let words = [(SeqCutoff::Never, "never"), (SeqCutoff::Bytes(1 << 20), "1M")];
        for (cutoff, word) in words {
            assert_eq!(cutoff.to_string(), word);
        }
        assert_eq!(SeqCutoff::Bytes(1536 << 10).to_string(), "1536K");
        assert_eq!(SeqCutoff::Bytes(1000).to_string(), "1000");
    }
}
