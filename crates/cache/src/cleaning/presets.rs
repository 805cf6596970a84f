//! Named presets, as used in published measurements.

use super::config::{AcpConfig, AlruConfig, CleaningConfig, CleaningPolicy};
use std::str::FromStr;

/// A set of values that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CleaningPreset {
    /// Source: header of `raid60_random_write_cached.csv`.
    AcpVeryAggressive,
    /// Source: header of `raid60_random_write_cached.csv`.
    AlruVeryAggressive,
    /// For the disks of a parallel file system. It belongs with I/O classes that cache metadata
    /// and requests of up to 128,000 bytes, and let the rest go past.
    Lustre,
}

/// A name that no preset has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown cleaning preset {name:?}; known: {}", names())]
pub struct UnknownPreset {
    pub name: String,
}

impl CleaningPreset {
    pub const ALL: [Self; 3] = [Self::AcpVeryAggressive, Self::AlruVeryAggressive, Self::Lustre];

    pub fn name(self) -> &'static str {
        match self {
            Self::AcpVeryAggressive => "acp-very-aggressive",
            Self::AlruVeryAggressive => "alru-very-aggressive",
            Self::Lustre => "lustre",
        }
    }

    /// `before` with the preset's policy and its parameters; the rest stays as it was.
    pub fn apply(self, before: CleaningConfig) -> CleaningConfig {
        match self {
            Self::AcpVeryAggressive => CleaningConfig {
                policy: CleaningPolicy::Acp,
                acp: AcpConfig { wake_up_ms: 1, flush_max_buffers: 8192 },
                ..before
            },
            Self::AlruVeryAggressive => CleaningConfig {
                policy: CleaningPolicy::Alru,
                alru: AlruConfig {
                    wake_up_s: 0,
                    staleness_s: 1,
                    flush_max_buffers: 8192,
                    activity_threshold_ms: 0,
                    ..AlruConfig::default()
                },
                ..before
            },
            Self::Lustre => CleaningConfig {
                policy: CleaningPolicy::Alru,
                alru: AlruConfig {
                    wake_up_s: 2,
                    staleness_s: 5,
                    flush_max_buffers: 256,
                    activity_threshold_ms: 500,
                    ..AlruConfig::default()
                },
                ..before
            },
        }
    }
}

impl FromStr for CleaningPreset {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Self, UnknownPreset> {
        let found = Self::ALL.into_iter().find(|preset| preset.name() == name);
        found.ok_or_else(|| UnknownPreset { name: name.to_owned() })
    }
}

fn names() -> String {
    CleaningPreset::ALL.map(CleaningPreset::name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_found_by_name_and_possible() {
        for preset in CleaningPreset::ALL {
            assert_eq!(preset.name().parse(), Ok(preset));
            preset.apply(CleaningConfig::default()).check().unwrap();
        }
        let error = "lazy".parse::<CleaningPreset>().unwrap_err().to_string();
        assert!(error.contains("lazy") && error.contains("lustre"), "{error}");
    }

    #[test]
    fn preset_leaves_what_it_does_not_name() {
        let before = CleaningConfig { in_flight_max: 7, ..CleaningConfig::default() };
        let after = CleaningPreset::Lustre.apply(before);
        assert_eq!((after.in_flight_max, after.acp), (7, before.acp));
        assert_eq!((after.alru.wake_up_s, after.alru.activity_threshold_ms), (2, 500));
    }
}
