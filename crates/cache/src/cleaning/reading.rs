//! Reads the cleaner's settings: one word, a policy or a preset, or a table of which any part
//! may be left out. What is out of its range is refused here, wherever it comes from.

use super::config::{AcpConfig, AlruConfig, CleaningConfig, CleaningPolicy, StripeConfig};
use super::presets::CleaningPreset;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use std::fmt;

/// What may stand for a policy.
#[derive(Clone, Copy)]
enum Word {
    Policy(CleaningPolicy),
    /// A policy with the values of its parameters, whatever else is said of them.
    Preset(CleaningPreset),
}

/// The table.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Parts {
    policy: Word,
    in_flight_max: u32,
    write_bytes_max: u32,
    core_flush_interval_ms: u32,
    full_wait_ms: u32,
    stripe: StripeConfig,
    alru: AlruConfig,
    acp: AcpConfig,
}

impl Word {
    fn find(text: &str) -> Option<Self> {
        let policy = CleaningPolicy::ALL.into_iter().find(|policy| policy.name() == text);
        policy.map(Self::Policy).or_else(|| text.parse().ok().map(Self::Preset))
    }

    fn apply(self, before: CleaningConfig) -> CleaningConfig {
        match self {
            Self::Policy(policy) => CleaningConfig { policy, ..before },
            Self::Preset(preset) => preset.apply(before),
        }
    }

    fn known() -> String {
        let policies = CleaningPolicy::ALL.map(CleaningPolicy::name);
        let presets = CleaningPreset::ALL.map(CleaningPreset::name);
        [policies.as_slice(), &presets].concat().join(", ")
    }
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
        let policy = Word::Policy(policy);
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
            in_flight_max,
            write_bytes_max,
            core_flush_interval_ms,
            full_wait_ms,
            stripe,
            alru,
            acp,
            ..
        } = self;
        let policy = CleaningPolicy::default();
        self.policy.apply(CleaningConfig {
            policy,
            in_flight_max,
            write_bytes_max,
            core_flush_interval_ms,
            full_wait_ms,
            stripe,
            alru,
            acp,
        })
    }
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::find(&text).ok_or_else(|| unknown(&text))
    }
}

fn unknown<E: Error>(text: &str) -> E {
    E::custom(format!("{text:?} is no way to clean; there are: {}", Word::known()))
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
        write!(f, "a table of the cleaner's settings, or one of: {}", Word::known())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<CleaningConfig, E> {
        let word = Word::find(text).ok_or_else(|| unknown(text))?;
        Ok(word.apply(CleaningConfig::default()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CleaningConfig, A::Error> {
        Parts::deserialize(MapAccessDeserializer::new(map)).map(Parts::config)
    }
}
