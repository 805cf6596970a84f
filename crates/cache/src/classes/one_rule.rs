//! Classes of a single rule, in one line: `past:request_size:ge:131072`.

use super::{Class, ClassId, Classes, ConditionError, Occupancy, Priority, Rule, unclassified};
use std::fmt;

/// What becomes of the requests that a rule takes, and of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneRule {
    effect: Effect,
    rule: Rule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// They may enter the cache, and no others.
    Only,
    /// They go past it.
    Past,
    /// They leave it after all others.
    Keep,
}

const WORDS: [(&str, Effect); 3] =
    [("only:", Effect::Only), ("past:", Effect::Past), ("keep:", Effect::Keep)];

impl OneRule {
    /// What a line begins with that says one rule, each followed by the rule.
    pub fn beginnings() -> impl Iterator<Item = &'static str> {
        WORDS.into_iter().map(|(word, _)| word)
    }

    /// Reads a line; none where it begins with none of the words.
    ///
    /// # Errors
    /// The condition that is wrong, and what is allowed.
    pub fn parse(line: &str) -> Option<Result<Self, ConditionError>> {
        let (effect, rule) = WORDS.into_iter().find_map(|(word, effect)| {
            let rule = line.strip_prefix(word)?;
            Some((effect, rule))
        })?;
        Some(Rule::parse(rule).map(|rule| Self { effect, rule }))
    }

    /// The same as a list of classes.
    pub fn classes(&self) -> Classes {
        let share = |passes| if passes { Occupancy::NONE } else { Occupancy::ALL };
        let rest = Class { occupancy: share(self.effect == Effect::Only), ..unclassified() };
        let taken = Class {
            id: ClassId(1),
            name: self.rule.to_string(),
            rule: Some(self.rule.clone()),
            priority: match self.effect {
                Effect::Keep => Priority::Level(0),
                Effect::Only | Effect::Past => Priority::default(),
            },
            occupancy: share(self.effect == Effect::Past),
        };
        Classes { classes: vec![rest, taken] }
    }
}

impl fmt::Display for OneRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = WORDS.into_iter().find(|(_, effect)| *effect == self.effect);
        let (word, _) = word.expect("each has a word");
        write!(f, "{word}{}", self.rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::Facts;

    fn one(line: &str) -> OneRule {
        OneRule::parse(line).expect("it begins with a word").expect("a sound rule")
    }

    #[test]
    fn a_line_says_what_becomes_of_what_it_takes_and_of_the_rest() {
        let shares = |line: &str| {
            let classes = one(line).classes();
            let of = |size_bytes| {
                let facts =
                    Facts { size_bytes, lba: 0, is_write: true, is_metadata: false, core_id: 1 };
                let class = classes.get(classes.classify(&facts)).unwrap();
                (class.is_pass_through(), class.priority)
            };
            [of(8192), of(4096)]
        };
        let usual = (false, Priority::Level(255));
        let past = (true, Priority::Level(255));
        assert_eq!(shares("past:request_size:ge:8192"), [past, usual]);
        assert_eq!(shares("only:request_size:ge:8192"), [usual, past]);
        assert_eq!(shares("keep:request_size:ge:8192"), [(false, Priority::Level(0)), usual]);
    }

    #[test]
    fn a_line_is_read_as_it_was_written_and_says_what_is_wrong_with_it() {
        let line = "only:metadata|request_size:lt:131072";
        assert_eq!(one(line).to_string(), line);
        assert_eq!(Classes::from_toml(&one(line).classes().to_toml()), Ok(one(line).classes()));
        assert!(OneRule::parse("/etc/past:metadata").is_none());
        assert!(OneRule::parse("past:request_sise:lt:4096").unwrap().is_err());
        let empty = OneRule::parse("past:").unwrap().unwrap_err().to_string();
        assert!(empty.starts_with("the rule has no condition"), "{empty}");
    }
}
