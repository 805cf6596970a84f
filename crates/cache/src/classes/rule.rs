//! A rule: conditions joined by `&` and `|`, read from left to right.

use super::{ClassId, Condition, ConditionError, Facts};
use std::fmt;

/// Conditions in their order, each with what joins it to those before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    terms: Vec<(Join, Condition)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Join {
    And,
    Or,
}

/// What a rule says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RuleOutcome {
    pub holds: bool,
    /// No later rule is tried.
    pub is_done: bool,
}

impl Rule {
    /// Reads a rule.
    ///
    /// # Errors
    /// The condition that is wrong, and what is allowed.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        Self::parse_with(text, Condition::parse)
    }

    /// Reads a rule whose conditions `parse` understands.
    pub(super) fn parse_with(
        text: &str,
        mut parse: impl FnMut(&str) -> Result<Condition, ConditionError>,
    ) -> Result<Self, ConditionError> {
        let (mut terms, mut join, mut rest) = (Vec::new(), Join::Or, text);
        loop {
            let at = rest.find(['&', '|']);
            let (condition, operator) = match at {
                Some(at) => (&rest[..at], rest[at..].chars().next()),
                None => (rest, None),
            };
            if text.trim().is_empty() {
                return Err(ConditionError::Empty);
            }
            if condition.trim().is_empty() {
                let before = if join == Join::And { '&' } else { '|' };
                return Err(ConditionError::Missing { operator: operator.unwrap_or(before) });
            }
            terms.push((join, parse(condition)?));
            let Some(operator) = operator else { return Ok(Self { terms }) };
            join = if operator == '&' { Join::And } else { Join::Or };
            rest = &rest[at.expect("an operator was found") + 1..];
        }
    }

    pub(super) fn asks_for_metadata(&self) -> bool {
        self.terms.iter().any(|(_, condition)| *condition == Condition::Metadata)
    }

    /// Whether it depends on where a request goes: the place on a core, or which core.
    pub(super) fn asks_for_place(&self) -> bool {
        let is_place =
            |condition: &Condition| matches!(condition, Condition::Lba(_) | Condition::CoreId(_));
        self.terms.iter().any(|(_, condition)| is_place(condition))
    }

    /// Whether some request could be of this class.
    pub fn can_hold(&self) -> bool {
        let mut can = false;
        for (join, condition) in &self.terms {
            let never = *condition == Condition::Never;
            match join {
                Join::And if !can => break,
                Join::And => can = !never,
                Join::Or => can |= !never,
            }
        }
        can
    }

    /// A term joined by `&` to what does not hold ends the rule, whatever comes after it; `done`
    /// ends the whole list. So evaluates Open CAS.
    pub(super) fn judge(&self, facts: &Facts, found: ClassId) -> RuleOutcome {
        let mut holds = false;
        for (join, condition) in &self.terms {
            if *join == Join::And && !holds {
                break;
            }
            holds = condition.holds(facts, found) || *join == Join::Or && holds;
            if *condition == Condition::Done {
                return RuleOutcome { holds: true, is_done: true };
            }
        }
        RuleOutcome { holds, is_done: false }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (join, condition)) in self.terms.iter().enumerate() {
            match join {
                _ if index == 0 => {}
                Join::And => f.write_str("&")?,
                Join::Or => f.write_str("|")?,
            }
            condition.fmt(f)?;
        }
        Ok(())
    }
}
