//! Reads the cleaner's settings: one word, the policy, or a table with optional parts. Values out
//! of range are refused here, from any source.

use super::config::{CleaningConfig, CleaningPolicy};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;

fn find<E: Error>(text: &str) -> Result<CleaningPolicy, E> {
    let found = CleaningPolicy::ALL.into_iter().find(|policy| policy.name() == text);
    found.ok_or_else(|| E::custom(format!("{text:?} is not a cleaning policy; known: {}", known())))
}

fn known() -> String {
    CleaningPolicy::ALL.map(CleaningPolicy::name).join(", ")
}

/// The table in full; what is derived goes by the same name, and comes before the trait's.
impl Serialize for CleaningConfig {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, to)
    }
}

impl<'de> Deserialize<'de> for CleaningConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let config: Self = from.deserialize_any(Settings)?;
        config.check().map_err(D::Error::custom)?;
        Ok(config)
    }
}

struct Settings;

impl<'de> Visitor<'de> for Settings {
    type Value = CleaningConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a table of the cleaner's settings, or one of: {}", known())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<CleaningConfig, E> {
        Ok(CleaningConfig { policy: find(text)?, ..CleaningConfig::default() })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CleaningConfig, A::Error> {
        CleaningConfig::deserialize(MapAccessDeserializer::new(map))
    }
}
