//! Headpond's own file of classes: TOML, one table a class.
//!
//! ```toml
//! [[class]]
//! id = 1
//! name = "metadata"
//! when = "metadata&done"
//! priority = 0            # 0 is evicted last, 255 first, or "pinned"
//! occupancy = 0.25        # of the cache; or pass_through = true
//! ```

use super::error::{ClassError, FilePosition};
use super::{Class, ClassId, Classes, Occupancy, Priority, Rule};
use serde::{Deserialize, Serialize};
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    class: Vec<Spanned<Table>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    id: Spanned<i64>,
    name: Option<String>,
    when: Option<Spanned<String>>,
    priority: Option<Spanned<toml::Value>>,
    occupancy: Option<Spanned<f64>>,
    pass_through: Option<Spanned<bool>>,
}

#[derive(Serialize)]
struct ClassFile {
    class: Vec<WrittenClass>,
}

#[derive(Serialize)]
struct WrittenClass {
    id: u8,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    when: Option<String>,
    priority: toml::Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    occupancy: Option<f64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pass_through: bool,
}

impl Classes {
    /// Reads our own file. Without a table for class 0 its requests may fill the cache.
    ///
    /// # Errors
    /// The line and the word that is wrong, and what is allowed there.
    pub fn from_toml(text: &str) -> Result<Self, ClassError> {
        let file: File =
            toml::from_str(text).map_err(|error| ClassError::Syntax(error.to_string()))?;
        let mut classes = Vec::<Class>::new();
        for table in file.class {
            let reader = Reader { text, start: table.span().start };
            let class = reader.class(table.into_inner())?;
            let (id, place) = (class.id.get(), reader.place());
            match classes.last().map(|last| last.id.cmp(&class.id)) {
                Some(std::cmp::Ordering::Equal) => {
                    return Err(ClassError::Repeated { place, id });
                }
                Some(std::cmp::Ordering::Greater) => return Err(ClassError::Order { place, id }),
                _ => classes.push(class),
            }
        }
        Ok(Self::from_unsorted(classes))
    }

    /// The text of the file.
    pub fn to_toml(&self) -> String {
        let class = self.iter().map(WrittenClass::of).collect();
        toml::to_string(&ClassFile { class }).expect("classes are plain data")
    }
}

impl WrittenClass {
    fn of(class: &Class) -> Self {
        let share = f64::from(class.occupancy.get()) / 100.0;
        Self {
            id: class.id.get(),
            name: class.name.clone(),
            when: class.rule.as_ref().map(Rule::to_string),
            priority: match class.priority {
                Priority::Pinned => toml::Value::from("pinned"),
                Priority::Level(level) => toml::Value::from(i64::from(level)),
            },
            occupancy: (!class.is_pass_through()).then_some(share),
            pass_through: class.is_pass_through(),
        }
    }
}

/// Reads one table, and knows where it stands.
struct Reader<'a> {
    text: &'a str,
    start: usize,
}

impl Reader<'_> {
    fn place(&self) -> FilePosition {
        self.place_of(self.start)
    }

    fn place_of(&self, offset: usize) -> FilePosition {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        FilePosition { line: 1 + before.iter().filter(|byte| **byte == b'\n').count() }
    }

    fn class(&self, table: Table) -> Result<Class, ClassError> {
        let id = {
            let place = self.place_of(table.id.span().start);
            let id = *table.id.get_ref();
            let error = || ClassError::Id { place, word: id.to_string() };
            u64::try_from(id).ok().and_then(ClassId::new).ok_or_else(error)?
        };
        let occupancy = self.occupancy(&table)?;
        let priority = self.priority(table.priority)?;
        let rule = match (id, table.when) {
            (ClassId::UNCLASSIFIED, Some(when)) => {
                let place = self.place_of(when.span().start);
                return Err(ClassError::RuleOfUnclassified { place });
            }
            (ClassId::UNCLASSIFIED, None) => None,
            (_, Some(when)) => {
                let place = self.place_of(when.span().start);
                let rule = Rule::parse(when.get_ref());
                Some(rule.map_err(|source| ClassError::Condition { place, source })?)
            }
            (_, None) => return Err(ClassError::NoRule { place: self.place(), id: id.get() }),
        };
        let named = || rule.as_ref().map_or("unclassified".into(), Rule::to_string);
        let name = table.name.unwrap_or_else(named);
        Ok(Class { id, name, rule, priority, occupancy })
    }

    fn occupancy(&self, table: &Table) -> Result<Occupancy, ClassError> {
        let passes = table.pass_through.as_ref();
        if let (Some(passes), Some(_)) = (passes, &table.occupancy) {
            return Err(ClassError::TwoShares { place: self.place_of(passes.span().start) });
        }
        if passes.is_some_and(|passes| *passes.get_ref()) {
            return Ok(Occupancy::NONE);
        }
        let Some(share) = &table.occupancy else { return Ok(Occupancy::ALL) };
        let (place, value) = (self.place_of(share.span().start), *share.get_ref());
        let error = || ClassError::Occupancy { place, word: value.to_string() };
        if !(0.0..=1.0).contains(&value) {
            return Err(error());
        }
        // What a decimal fraction lacks in binary is not to cost a hundredth.
        Occupancy::percent((value * 100.0 + 1e-6).floor() as u64).ok_or_else(error)
    }

    fn priority(&self, value: Option<Spanned<toml::Value>>) -> Result<Priority, ClassError> {
        let Some(value) = value else { return Ok(Priority::default()) };
        let place = self.place_of(value.span().start);
        let error = |value: &toml::Value| {
            let word = value.to_string();
            ClassError::Priority { place, word, pinned: "\"pinned\"" }
        };
        match value.get_ref() {
            toml::Value::String(word) if word == "pinned" => Ok(Priority::Pinned),
            toml::Value::Integer(level) => {
                let level = u8::try_from(*level).map_err(|_| error(value.get_ref()))?;
                Ok(Priority::Level(level))
            }
            other => Err(error(other)),
        }
    }
}
