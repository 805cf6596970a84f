//! Reads the cleaner's settings: one word, the policy, or a table of which any part
//! may be left out. What is out of its range is refused here, wherever it comes from.

use super::config::{AcpConfig, AlruConfig, CleaningConfig, CleaningPolicy, StripeConfig};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use std::fmt;

/// The table.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Parts {
    policy: CleaningPolicy,
    in_flight_max: u32,
    write_bytes_max: u32,
    core_flush_interval_ms: u32,
    full_wait_ms: u32,
    stripe: StripeConfig,
    alru: AlruConfig,
    acp: AcpConfig,
}

impl Default for Parts {
    fn default() -> Self {
        let CleaningConfig {
            policy,
            in_flight_max,
            write_bytes_max,
            core_flush_interval_ms,
            full_wait_ms,
            stripe,
            alru,
            acp,
        } = CleaningConfig::default();
        Self {
            policy,
            in_flight_max,
            write_bytes_max,
            core_flush_interval_ms,
            full_wait_ms,
            stripe,
            alru,
            acp,
        }
    }
}

impl Parts {
    fn config(self) -> CleaningConfig {
        let Self {
            policy,
            in_flight_max,
            write_bytes_max,
            core_flush_interval_ms,
            full_wait_ms,
            stripe,
            alru,
            acp,
        } = self;
        CleaningConfig {
            policy,
            in_flight_max,
            write_bytes_max,
            core_flush_interval_ms,
            full_wait_ms,
            stripe,
            alru,
            acp,
        }
    }
}

fn find<E: Error>(text: &str) -> Result<CleaningPolicy, E> {
    let found = CleaningPolicy::ALL.into_iter().find(|policy| policy.name() == text);
    found.ok_or_else(|| E::custom(format!("{text:?} is no way to clean; there are: {}", known())))
}

fn known() -> String {
    CleaningPolicy::ALL.map(CleaningPolicy::name).join(", ")
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
        Parts::deserialize(MapAccessDeserializer::new(map)).map(Parts::config)
    }
}
