//! Enumerated values as words.

use serde::Serialize;
use serde_json::Value;

/// The word that JSON has for a value of an enumeration.
///
/// # Panics
/// Where it is more than a word.
pub fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        other => unreachable!("an enumerated value is a word, not {other:?}"),
    }
}
