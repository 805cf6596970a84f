//! I/O classes: which requests are cached, their share of the cache, and their eviction priority.
//!
//! A [`Classes`] is an ordered list of rules. It is read from Headpond's file (`file.rs`), from
//! Open CAS's (`csv.rs`) or from a line (`one_rule.rs`), all into the same list, and
//! [`Classes::classify`] gives each request one class.
//!
//! **Invariants**: ids are unique and ascend; class 0 always exists and has no rule.
//!
//! **Not here**: the effect of a class (`admission`), recognition of metadata (the volume).
//!
//! **Source**: Open CAS Linux, administrator's guide, "IO Classification", and the order of
//! evaluation of its classifier. `docs/classes.md` lists the differences.

mod condition;
mod csv;
mod error;
mod file;
mod one_rule;
mod rule;
#[cfg(test)]
mod tests;

pub use condition::{Condition, Facts, KERNEL_CONDITIONS};
pub use csv::{CSV_HEADER, UnknowableRule, Unknown, is_csv};
pub use error::{ClassError, ConditionError, FilePosition};
pub use one_rule::OneRule;
pub use rule::Rule;

use rule::RuleOutcome;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Classes that there can be, class 0 included.
pub const CLASSES_MAX: usize = 33;

/// Number of a class; 0 is for requests that no rule takes.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(try_from = "u8", into = "u8")]
pub struct ClassId(u8);

impl ClassId {
    pub const UNCLASSIFIED: Self = Self(0);
    pub const MAX: Self = Self(CLASSES_MAX as u8 - 1);

    /// The class of that number, where there can be one.
    pub fn new(id: u64) -> Option<Self> {
        (id <= u64::from(Self::MAX.0)).then_some(Self(id as u8))
    }

    pub fn get(self) -> u8 {
        self.0
    }

    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for ClassId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<ClassId> for u8 {
    fn from(id: ClassId) -> u8 {
        id.0
    }
}

impl TryFrom<u8> for ClassId {
    type Error = String;

    fn try_from(id: u8) -> Result<Self, String> {
        Self::new(id.into()).ok_or_else(|| format!("class ids are 0 to {}, not {id}", Self::MAX))
    }
}

/// How early the blocks of a class leave the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// No other class drives its blocks out.
    Pinned,
    /// 0 is evicted last, 255 first.
    Level(u8),
}

impl Default for Priority {
    fn default() -> Self {
        Self::Level(u8::MAX)
    }
}

/// Share of the cache that a class may hold, in hundredths: 0 is past the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Occupancy(u8);

impl Occupancy {
    pub const ALL: Self = Self(100);
    pub const NONE: Self = Self(0);

    /// A share of 0 to 100 per cent.
    pub fn percent(percent: u64) -> Option<Self> {
        (percent <= 100).then_some(Self(percent as u8))
    }

    pub fn get(self) -> u8 {
        self.0
    }

    /// Blocks that the class may hold of so many.
    pub fn of(self, blocks: u64) -> u64 {
        blocks / 100 * u64::from(self.0) + blocks % 100 * u64::from(self.0) / 100
    }
}

impl fmt::Display for Occupancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

/// One class: who belongs to it, and what that means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    pub id: ClassId,
    pub name: String,
    /// `None` for class 0 alone.
    pub rule: Option<Rule>,
    pub priority: Priority,
    pub occupancy: Occupancy,
}

impl Class {
    pub fn is_pass_through(&self) -> bool {
        self.occupancy == Occupancy::NONE
    }
}

/// All classes, by ascending id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    classes: Vec<Class>,
}

impl Default for Classes {
    fn default() -> Self {
        Self { classes: vec![unclassified()] }
    }
}

/// Class 0, where a file says nothing of it.
fn unclassified() -> Class {
    Class {
        id: ClassId::UNCLASSIFIED,
        name: "unclassified".into(),
        rule: None,
        priority: Priority::default(),
        occupancy: Occupancy::ALL,
    }
}

impl Classes {
    /// Reads either form; Open CAS's is known by its header. What it asks for that a block device
    /// cannot know never holds.
    ///
    /// # Errors
    /// The line and the word that is wrong, and what is allowed there.
    pub fn parse(text: &str) -> Result<Self, ClassError> {
        Self::read(text, Unknown::NeverHolds).map(|(classes, _)| classes)
    }

    /// The same, and which rules of Open CAS's file ask for that; or refuses them.
    ///
    /// # Errors
    /// As [`Classes::parse`].
    pub fn read(text: &str, unknown: Unknown) -> Result<(Self, Vec<UnknowableRule>), ClassError> {
        match is_csv(text) {
            true => Self::from_csv(text, unknown),
            false => Self::from_toml(text).map(|classes| (classes, Vec::new())),
        }
    }

    /// What a Lustre server's array gains from: metadata and small requests are cached, what the
    /// disks take well goes past.
    pub fn lustre() -> Self {
        let text = "[[class]]\nid = 0\npass_through = true\n\n\
                    [[class]]\nid = 1\nname = \"metadata\"\nwhen = \"metadata&done\"\npriority = 0\n\n\
                    [[class]]\nid = 2\nname = \"small\"\nwhen = \"request_size:le:128000&done\"\n\
                    priority = 10\n";
        Self::from_toml(text).expect("a sound file")
    }

    pub fn iter(&self) -> impl Iterator<Item = &Class> {
        self.classes.iter()
    }

    pub fn get(&self, id: ClassId) -> Option<&Class> {
        let at = self.classes.binary_search_by_key(&id, |class| class.id).ok()?;
        Some(&self.classes[at])
    }

    /// Whether every request is of class 0, and class 0 is as if there were no classes.
    pub fn is_trivial(&self) -> bool {
        self.classes.len() == 1 && self.classes[0].occupancy == Occupancy::ALL
    }

    /// Whether a rule asks for something that only a look at the file system tells.
    pub fn asks_for_metadata(&self) -> bool {
        self.classes.iter().filter_map(|class| class.rule.as_ref()).any(Rule::asks_for_metadata)
    }

    /// Whether a rule depends on where a request goes.
    pub fn asks_for_place(&self) -> bool {
        self.classes.iter().filter_map(|class| class.rule.as_ref()).any(Rule::asks_for_place)
    }

    /// The class of a request: rules are tried in the order of their ids, the last that holds
    /// counts, and one that reaches `done` is the last to be tried.
    pub fn classify(&self, facts: &Facts) -> ClassId {
        let mut found = ClassId::UNCLASSIFIED;
        for class in &self.classes {
            let Some(rule) = &class.rule else { continue };
            let RuleOutcome { holds, is_done } = rule.judge(facts, found);
            if holds {
                found = class.id;
            }
            if is_done {
                break;
            }
        }
        found
    }

    /// Takes classes in any order.
    fn from_unsorted(mut classes: Vec<Class>) -> Self {
        if !classes.iter().any(|class| class.id == ClassId::UNCLASSIFIED) {
            classes.push(unclassified());
        }
        classes.sort_by_key(|class| class.id);
        assert!(classes.is_sorted_by(|a, b| a.id < b.id), "ids are unique");
        Self { classes }
    }
}
