//! Taking typed values out of a block, with errors that name file, line and field.

use super::error::{ImportError, Note};
use super::syntax::{Block, Content, Entry, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;

pub(super) struct Fields<'a> {
    pub block: &'a Block,
    asked: RefCell<BTreeSet<&'a str>>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(block: &'a Block) -> Self {
        Self { block, asked: RefCell::default() }
    }

    /// The value of a parameter that may be missing; where it is given twice, the last one.
    pub(super) fn optional(&self, key: &str) -> Option<&'a Value> {
        let entry = self.block.entries.iter().rev().find(|entry| entry.key == key)?;
        self.asked.borrow_mut().insert(&entry.key);
        Some(&entry.value)
    }

    fn required(&self, key: &str) -> Result<&'a Value, ImportError> {
        self.optional(key).ok_or_else(|| {
            let what = format!("is missing in this {}", self.block.kind);
            ImportError::field(&self.block.at, key, what)
        })
    }

    pub(super) fn number(&self, key: &str) -> Result<f64, ImportError> {
        number(key, self.required(key)?)
    }

    pub(super) fn number_or(&self, key: &str, default: f64) -> Result<f64, ImportError> {
        self.optional(key).map_or(Ok(default), |value| number(key, value))
    }

    /// A whole number within a range.
    pub(super) fn integer(&self, key: &str, least: u64, most: u64) -> Result<u64, ImportError> {
        integer(key, self.required(key)?, least, most)
    }

    pub(super) fn integer_or(
        &self,
        key: &str,
        default: u64,
        most: u64,
    ) -> Result<u64, ImportError> {
        self.optional(key).map_or(Ok(default), |value| integer(key, value, 0, most))
    }

    /// A time in milliseconds that is not negative.
    pub(super) fn time_or(&self, key: &str, default: f64) -> Result<f64, ImportError> {
        let Some(value) = self.optional(key) else { return Ok(default) };
        time(key, value)
    }

    pub(super) fn time(&self, key: &str) -> Result<f64, ImportError> {
        time(key, self.required(key)?)
    }

    pub(super) fn word(&self, key: &str) -> Result<(&'a str, &'a Value), ImportError> {
        let value = self.required(key)?;
        match &value.content {
            Content::Text(text) => Ok((text, value)),
            _ => Err(ImportError::field(&value.at, key, "is no word")),
        }
    }

    pub(super) fn block(&self, key: &str) -> Result<&'a Block, ImportError> {
        let value = self.required(key)?;
        match &value.content {
            Content::Block(block) => Ok(block),
            _ => Err(ImportError::field(&value.at, key, "is no block")),
        }
    }

    pub(super) fn list(&self, key: &str) -> Result<&'a [Value], ImportError> {
        let value = self.required(key)?;
        match &value.content {
            Content::List(values) => Ok(values),
            _ => Err(ImportError::field(&value.at, key, "is no list")),
        }
    }

    /// A list of whole numbers.
    pub(super) fn integers(&self, key: &str, most: u64) -> Result<Vec<u64>, ImportError> {
        self.list(key)?.iter().map(|value| integer(key, value, 0, most)).collect()
    }

    pub(super) fn numbers(&self, key: &str) -> Result<Vec<f64>, ImportError> {
        self.list(key)?.iter().map(|value| number(key, value)).collect()
    }

    /// What nobody asked for and is not known to mean nothing to a drive.
    pub(super) fn unknown(&self, without_effect: &[&str]) -> Vec<Note> {
        let asked = self.asked.borrow();
        let is_unknown = |entry: &&Entry| {
            !asked.contains(entry.key.as_str()) && !without_effect.contains(&entry.key.as_str())
        };
        let note = |entry: &Entry| Note {
            at: entry.value.at.clone(),
            text: format!("{} is not known and left out", entry.key),
        };
        self.block.entries.iter().filter(is_unknown).map(note).collect()
    }
}

pub(super) fn number(key: &str, value: &Value) -> Result<f64, ImportError> {
    let Content::Text(text) = &value.content else {
        return Err(ImportError::field(&value.at, key, "is no number"));
    };
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err(ImportError::field(&value.at, key, format!("{text} is no number"))),
    }
}

fn integer(key: &str, value: &Value, least: u64, most: u64) -> Result<u64, ImportError> {
    let number = number(key, value)?;
    let fits = number.fract() == 0.0 && number >= least as f64 && number <= most as f64;
    match fits {
        true => Ok(number as u64),
        false => {
            let what = format!("{number} is no whole number between {least} and {most}");
            Err(ImportError::field(&value.at, key, what))
        }
    }
}

fn time(key: &str, value: &Value) -> Result<f64, ImportError> {
    let number = number(key, value)?;
    match (0.0..=10_000.0).contains(&number) {
        true => Ok(number),
        false => {
            let what = format!("{number} is not between 0 and 10,000 ms");
            Err(ImportError::field(&value.at, key, what))
        }
    }
}
