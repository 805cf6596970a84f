//! The setting that names the I/O classes.

use headpond_cache::classes::{ClassError, Classes, OneRule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The I/O classes of a volume, as the description says them.
///
/// One line is the name of a set that is built in, a single rule, or the name of a file, which
/// whoever opens the volume reads first; more lines are the text of such a file.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub enum ClassSetting {
    /// Every request is as welcome as any other.
    #[default]
    None,
    /// Metadata and requests of up to 128,000 bytes; the rest goes past the cache.
    Lustre,
    /// What one rule takes is treated apart.
    OneRule(OneRule),
    Inline(Arc<Classes>),
    /// Not read yet.
    File(String),
}

impl ClassSetting {
    /// The classes of a text.
    ///
    /// # Errors
    /// The line and the word that is wrong, and what is allowed there.
    pub fn parse(text: &str) -> Result<Self, ClassError> {
        Ok(Self::Inline(Arc::new(Classes::parse(text)?)))
    }

    /// Whether it is a text of somebody's, and not one line that says it all.
    pub fn is_text(&self) -> bool {
        matches!(self, Self::Inline(_) | Self::File(_))
    }

    /// The file that has to be read before the volume is opened.
    pub fn file(&self) -> Option<&str> {
        match self {
            Self::File(path) => Some(path),
            _ => None,
        }
    }

    /// The classes; none of those of a file that nobody has read.
    pub fn classes(&self) -> Arc<Classes> {
        match self {
            Self::None | Self::File(_) => Arc::default(),
            Self::Lustre => Arc::new(Classes::lustre()),
            Self::OneRule(rule) => Arc::new(rule.classes()),
            Self::Inline(classes) => Arc::clone(classes),
        }
    }
}

impl TryFrom<String> for ClassSetting {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.trim() {
            "" | "none" => Ok(Self::None),
            "lustre" => Ok(Self::Lustre),
            lines if lines.contains('\n') => Self::parse(&text).map_err(|error| error.to_string()),
            line => match OneRule::parse(line) {
                Some(rule) => rule.map(Self::OneRule).map_err(|error| error.to_string()),
                None => Ok(Self::File(line.to_owned())),
            },
        }
    }
}

impl From<ClassSetting> for String {
    fn from(setting: ClassSetting) -> String {
        match setting {
            ClassSetting::None => "none".into(),
            ClassSetting::Lustre => "lustre".into(),
            ClassSetting::OneRule(rule) => rule.to_string(),
            ClassSetting::Inline(classes) => classes.to_toml(),
            ClassSetting::File(path) => path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let inline = ClassSetting::parse("[[class]]\nid = 1\nwhen = \"metadata\"\n").unwrap();
        let file = ClassSetting::File("/etc/classes.toml".into());
        let rule =
            OneRule::parse("past:request_size:ge:131072&io_direction:read").unwrap().unwrap();
        let rule = ClassSetting::OneRule(rule);
        for setting in [ClassSetting::None, ClassSetting::Lustre, rule, inline, file] {
            let text = String::from(setting.clone());
            assert_eq!(ClassSetting::try_from(text), Ok(setting));
        }
        let wrong = ClassSetting::try_from("[[class]]\nid = 99\n".to_owned());
        assert!(wrong.unwrap_err().contains("line 2"));
        let wrong = ClassSetting::try_from("past:request_sise:lt:4096".to_owned());
        assert!(wrong.unwrap_err().contains("request_sise"));
    }

    #[test]
    fn large_requests_of_lustre_go_past_the_cache_unless_they_are_metadata() {
        use headpond_cache::classes::Facts;
        let classes = ClassSetting::Lustre.classes();
        let goes_past = |size_bytes, is_metadata| {
            let facts = Facts { size_bytes, lba: 0, is_write: true, is_metadata, core_id: 1 };
            classes.get(classes.classify(&facts)).unwrap().is_pass_through()
        };
        assert_eq!(
            [4096, 128_000, 128_001, 1 << 20].map(|size| goes_past(size, false)),
            [false, false, true, true]
        );
        assert!(!goes_past(1 << 20, true));
    }
}
