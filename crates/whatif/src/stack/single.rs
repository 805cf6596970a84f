//! A core that is one device: `core = "rbd"`.

use super::{CoreStack, strip};
use crate::condition::Condition;
use headpond_raid::Level;
use headpond_sim::ssd::State;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

impl CoreStack {
    /// One device of this model, such as an image of Ceph.
    pub fn single(model: &str) -> Self {
        Self {
            raid: Level::Raid0,
            groups: 1,
            declustered: None,
            strip: strip(),
            drive: model.to_owned(),
            drives: 1,
            drive_write_cache: None,
            drive_state: State::default(),
            controller: None,
            network: None,
            intent: false,
            condition: Condition::default(),
        }
    }
}

/// Reads a core: the table of an array, or the word of a model.
pub(super) fn or_array<'de, D: Deserializer<'de>>(from: D) -> Result<CoreStack, D::Error> {
    from.deserialize_any(WordOrTable)
}

struct WordOrTable;

impl<'de> Visitor<'de> for WordOrTable {
    type Value = CoreStack;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of the array, or the model of its one device")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<CoreStack, E> {
        Ok(CoreStack::single(word))
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<CoreStack, A::Error> {
        CoreStack::deserialize(MapAccessDeserializer::new(table))
    }
}
