//! The setting of the sequential cutoff.

use crate::Size;
use headpond_cache::CutoffPolicy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

const POLICIES: [(&str, CutoffPolicy); 3] = [
    ("always", CutoffPolicy::Always),
    ("full", CutoffPolicy::Full),
    ("never", CutoffPolicy::Never),
];
/// Open CAS's range.
pub(crate) const THRESHOLD_MIN: Size = Size(1 << 10);
pub(crate) const THRESHOLD_MAX: Size = Size(4_194_181 << 10);
const PROMOTION_COUNT_MAX: u32 = 65_535;

/// When a sequential stream goes past the cache.
///
/// It reads and writes itself as a table; a word stands for its policy, and a size for the policy
/// `always` with that threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Form")]
pub struct SeqCutoff {
    pub policy: CutoffPolicy,
    /// Contiguous bytes that a stream puts into the cache before.
    pub threshold: Size,
    /// Contiguous requests after which random requests no longer displace a stream that is shorter
    /// than the threshold.
    pub promotion_count: u32,
    /// Whether it was set as a size, which stands for `always` with that threshold.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub by_size: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Form {
    Word(String),
    Table(Table),
}

#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Table {
    policy: String,
    threshold: Size,
    promotion_count: u32,
    by_size: bool,
}

impl Default for Table {
    fn default() -> Self {
        let SeqCutoff { threshold, promotion_count, .. } = SeqCutoff::default();
        Self { policy: "full".into(), threshold, promotion_count, by_size: false }
    }
}

impl Default for SeqCutoff {
    fn default() -> Self {
        Self { policy: CutoffPolicy::Full, ..Self::NEVER }
    }
}

/// When a run is grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamPromotion {
    pub requests: u32,
    /// More than so many bytes.
    pub bytes: u64,
}

impl SeqCutoff {
    pub const NEVER: Self = Self {
        policy: CutoffPolicy::Never,
        threshold: Size(1 << 20),
        promotion_count: 8,
        by_size: false,
    };

    /// Whatever the filling of the cache is.
    pub fn always(threshold: Size) -> Self {
        Self { policy: CutoffPolicy::Always, threshold, ..Self::NEVER }
    }

    /// The value of the setting, as it was set.
    pub fn setting(&self) -> String {
        match self.by_size {
            true => self.threshold.to_string(),
            false => self.word().to_owned(),
        }
    }

    fn word(&self) -> &'static str {
        let found = POLICIES.iter().find(|(_, policy)| *policy == self.policy);
        found.expect("every policy has a name").0
    }

    pub(crate) fn stream_promotion(&self) -> StreamPromotion {
        StreamPromotion { requests: self.promotion_count, bytes: self.threshold.bytes() }
    }

    fn checked(self) -> Result<Self, String> {
        if !(THRESHOLD_MIN..=THRESHOLD_MAX).contains(&self.threshold) {
            let found = self.threshold;
            return Err(format!("a threshold is {THRESHOLD_MIN} to {THRESHOLD_MAX}, not {found}"));
        }
        if !(1..=PROMOTION_COUNT_MAX).contains(&self.promotion_count) {
            let found = self.promotion_count;
            return Err(format!("a promotion count is 1 to {PROMOTION_COUNT_MAX}, not {found}"));
        }
        Ok(self)
    }

    /// The same with another policy, by its word or by a size.
    fn with_word(self, word: &str) -> Result<Self, String> {
        if let Some((_, policy)) = POLICIES.iter().find(|(name, _)| *name == word) {
            let by_size = self.by_size && *policy == CutoffPolicy::Always;
            return Ok(Self { policy: *policy, by_size, ..self });
        }
        let known = "it is one of: always, full, never, or a size such as 1M, which is always";
        let threshold = word.parse::<Size>().map_err(|_| known.to_owned())?;
        Self { policy: CutoffPolicy::Always, threshold, by_size: true, ..self }.checked()
    }
}

impl TryFrom<Form> for SeqCutoff {
    type Error = String;

    fn try_from(form: Form) -> Result<Self, String> {
        match form {
            Form::Word(word) => word.parse(),
            Form::Table(Table { policy, threshold, promotion_count, by_size }) => {
                let plain =
                    Self { policy: CutoffPolicy::Full, threshold, promotion_count, by_size };
                plain.checked()?.with_word(&policy)
            }
        }
    }
}

impl FromStr for SeqCutoff {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::default().with_word(word)
    }
}

impl fmt::Display for SeqCutoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.policy {
            CutoffPolicy::Never => f.write_str(self.word()),
            _ => write!(f, "{} after {}", self.word(), self.threshold),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<SeqCutoff, String> {
        let table: toml::Table = format!("v = {text}").parse().unwrap();
        table["v"].clone().try_into().map_err(|error: toml::de::Error| error.message().to_owned())
    }

    #[test]
    fn a_word_a_size_and_a_table_say_the_same() {
        assert_eq!(read("\"never\""), Ok(SeqCutoff::NEVER));
        assert_eq!(read("\"full\""), Ok(SeqCutoff::default()));
        let table = "{ policy = \"always\", threshold = \"2M\", by_size = true }";
        assert_eq!(read(table), read("\"2M\""));
        assert_eq!(read("{ policy = \"2M\" }"), read("\"2M\""));
        let by_word = read("{ policy = \"always\", threshold = \"2M\" }");
        assert_eq!(by_word, Ok(SeqCutoff::always(Size(2 << 20))));
        let odd = SeqCutoff { promotion_count: 3, ..SeqCutoff::always(Size(4096)) };
        let written = toml::to_string(&odd).unwrap();
        assert_eq!(toml::from_str::<SeqCutoff>(&written).unwrap(), odd, "{written}");
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        for (text, part) in [
            ("\"fast\"", "always, full, never"),
            ("\"0\"", "1K to"),
            ("{ threshold = \"8T\" }", "not 8T"),
            ("{ promotion_count = 0 }", "1 to 65535"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
