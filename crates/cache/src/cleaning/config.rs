//! The cleaner's settings, as in a description: the field's names, with units.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;

/// The cleaning policy: what is written to the core, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CleaningPolicy {
    /// Cleans only for an explicit flush of dirty data, and in modes without dirty data. Data
    /// replayed after an unclean shutdown is cleaned all the same, because its parity is suspect.
    Nop,
    /// The data written longest ago, when it is stale and the volume is idle.
    Alru,
    /// The region with the most dirty data first, continuously.
    Acp,
    /// In address order, by the stripes of the core, at a steady rate.
    #[default]
    Stripe,
    /// In flush order: the core is always consistent at a point in time.
    Ordered,
}

impl CleaningPolicy {
    pub const ALL: [Self; 5] = [Self::Nop, Self::Alru, Self::Acp, Self::Stripe, Self::Ordered];

    pub fn name(self) -> &'static str {
        match self {
            Self::Nop => "nop",
            Self::Alru => "alru",
            Self::Acp => "acp",
            Self::Stripe => "stripe",
            Self::Ordered => "ordered",
        }
    }
}

/// Settings of the cleaner: the policy, common parameters, and those of each policy, which are kept
/// while another one is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", default, deny_unknown_fields)]
pub struct CleaningConfig {
    pub policy: CleaningPolicy,
    /// Most core writes in flight.
    pub in_flight_max: u32,
    /// Longest run of blocks in one core write, in bytes; a full stripe may be longer.
    pub write_bytes_max: u32,
    /// The core is flushed at least this often while there are unflushed writes.
    pub core_flush_interval_ms: u32,
    /// How long a write waits for the cleaner before it goes past a full cache.
    pub full_wait_ms: u32,
    pub stripe: StripeConfig,
    pub alru: AlruConfig,
    pub acp: AcpConfig,
}

/// Parameters of `stripe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StripeConfig {
    /// Below this dirty ratio, in per cent of the dirty limit, nothing is cleaned under client
    /// load, except data replayed after an unclean shutdown.
    pub low_percent: u32,
    /// The target dirty ratio.
    pub target_percent: u32,
    /// From this ratio on the cleaner works at full speed.
    pub high_percent: u32,
    /// When no request came for so long, everything is cleaned.
    pub idle_after_ms: u32,
}

/// Parameters of `alru`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AlruConfig {
    /// Pause after a round that found nothing to clean.
    pub wake_up_s: u32,
    /// Minimum age of data to be cleaned.
    pub staleness_s: u32,
    /// Most blocks of one round, at every line size.
    pub flush_max_buffers: u32,
    /// Idle time after which cleaning may begin.
    pub activity_threshold_ms: u32,
    /// From this dirty ratio on it cleans regardless of age and load; 100: never.
    pub dirty_ratio_threshold_percent: u32,
    /// How far below that ratio it stops again.
    pub dirty_ratio_inertia_mib: u32,
}

/// Parameters of `acp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AcpConfig {
    /// Pause after a round.
    pub wake_up_ms: u32,
    /// Most blocks of one round, at every line size.
    pub flush_max_buffers: u32,
}

impl Default for CleaningConfig {
    fn default() -> Self {
        Self {
            policy: CleaningPolicy::Stripe,
            in_flight_max: 1024,
            write_bytes_max: 1 << 20,
            core_flush_interval_ms: 100,
            full_wait_ms: 5000,
            stripe: StripeConfig::default(),
            alru: AlruConfig::default(),
            acp: AcpConfig::default(),
        }
    }
}

impl Default for StripeConfig {
    fn default() -> Self {
        Self { low_percent: 10, target_percent: 40, high_percent: 75, idle_after_ms: 5000 }
    }
}

impl Default for AlruConfig {
    fn default() -> Self {
        Self {
            wake_up_s: 20,
            staleness_s: 120,
            flush_max_buffers: 100,
            activity_threshold_ms: 10_000,
            dirty_ratio_threshold_percent: 100,
            dirty_ratio_inertia_mib: 128,
        }
    }
}

impl Default for AcpConfig {
    fn default() -> Self {
        Self { wake_up_ms: 10, flush_max_buffers: 128 }
    }
}

/// A parameter outside its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    #[error("cleaning.{name} = {found} is out of range: {least} to {most}")]
    Range { name: &'static str, found: u32, least: u32, most: u32 },
    #[error(
        "cleaning.stripe: low-percent {low}, target-percent {target} and high-percent {high} must \
         rise in this order"
    )]
    Order { low: u32, target: u32, high: u32 },
}

impl CleaningConfig {
    /// Checks every parameter, also those of inactive policies.
    ///
    /// # Errors
    /// The first one that is out of its range.
    pub fn check(&self) -> Result<(), ParameterError> {
        within("in-flight-max", self.in_flight_max, 1..=65_536)?;
        within("write-bytes-max", self.write_bytes_max, 4096..=64 << 20)?;
        within("core-flush-interval-ms", self.core_flush_interval_ms, 1..=60_000)?;
        within("full-wait-ms", self.full_wait_ms, 0..=60_000)?;
        self.stripe.check()?;
        self.alru.check()?;
        self.acp.check()
    }
}

impl StripeConfig {
    fn check(&self) -> Result<(), ParameterError> {
        within("stripe.low-percent", self.low_percent, 0..=100)?;
        within("stripe.target-percent", self.target_percent, 0..=100)?;
        within("stripe.high-percent", self.high_percent, 0..=100)?;
        within("stripe.idle-after-ms", self.idle_after_ms, 100..=3_600_000)?;
        let (low, target, high) = (self.low_percent, self.target_percent, self.high_percent);
        match low <= target && target <= high {
            true => Ok(()),
            false => Err(ParameterError::Order { low, target, high }),
        }
    }
}

impl AlruConfig {
    fn check(&self) -> Result<(), ParameterError> {
        within("alru.wake-up-s", self.wake_up_s, 0..=3600)?;
        within("alru.staleness-s", self.staleness_s, 1..=3600)?;
        within("alru.flush-max-buffers", self.flush_max_buffers, 1..=10_000)?;
        within("alru.activity-threshold-ms", self.activity_threshold_ms, 0..=1_000_000)?;
        let percent = self.dirty_ratio_threshold_percent;
        within("alru.dirty-ratio-threshold-percent", percent, 0..=100)?;
        within("alru.dirty-ratio-inertia-mib", self.dirty_ratio_inertia_mib, 0..=1 << 20)
    }
}

impl AcpConfig {
    fn check(&self) -> Result<(), ParameterError> {
        within("acp.wake-up-ms", self.wake_up_ms, 0..=10_000)?;
        within("acp.flush-max-buffers", self.flush_max_buffers, 1..=10_000)
    }
}

fn within(
    name: &'static str,
    found: u32,
    range: RangeInclusive<u32>,
) -> Result<(), ParameterError> {
    let (least, most) = (*range.start(), *range.end());
    match range.contains(&found) {
        true => Ok(()),
        false => Err(ParameterError::Range { name, found, least, most }),
    }
}

impl fmt::Display for CleaningPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_field_and_in_their_ranges() {
        let config = CleaningConfig::default();
        config.check().unwrap();
        let AlruConfig { wake_up_s, staleness_s, flush_max_buffers, .. } = config.alru;
        assert_eq!((wake_up_s, staleness_s, flush_max_buffers), (20, 120, 100));
        assert_eq!(config.alru.activity_threshold_ms, 10_000);
        assert_eq!(config.acp, AcpConfig { wake_up_ms: 10, flush_max_buffers: 128 });
    }

    #[test]
    fn both_ends_of_a_range_are_possible_and_what_lies_beyond_is_named() {
        let set = |change: fn(&mut CleaningConfig, u32), value| {
            let mut config = CleaningConfig::default();
            change(&mut config, value);
            config.check().map_err(|error| error.to_string())
        };
        type Change = fn(&mut CleaningConfig, u32);
        let parameters: [(&str, Change, u32, u32); 8] = [
            ("alru.wake-up-s", |it, to| it.alru.wake_up_s = to, 0, 3600),
            ("alru.staleness-s", |it, to| it.alru.staleness_s = to, 1, 3600),
            ("alru.flush-max-buffers", |it, to| it.alru.flush_max_buffers = to, 1, 10_000),
            (
                "alru.activity-threshold-ms",
                |it, to| it.alru.activity_threshold_ms = to,
                0,
                1_000_000,
            ),
            (
                "alru.dirty-ratio-threshold-percent",
                |it, to| it.alru.dirty_ratio_threshold_percent = to,
                0,
                100,
            ),
            ("acp.wake-up-ms", |it, to| it.acp.wake_up_ms = to, 0, 10_000),
            ("acp.flush-max-buffers", |it, to| it.acp.flush_max_buffers = to, 1, 10_000),
            ("in-flight-max", |it, to| it.in_flight_max = to, 1, 65_536),
        ];
        for (name, change, least, most) in parameters {
            assert_eq!(set(change, least), Ok(()));
            assert_eq!(set(change, most), Ok(()));
            let error = set(change, most + 1).unwrap_err();
            let says = format!("cleaning.{name} = {} is out of range", most + 1);
            assert!(error.contains(&says) && error.contains(&most.to_string()), "{error}");
            assert!(least == 0 || set(change, least - 1).is_err());
        }
    }

    #[test]
    fn ratios_of_stripe_rise() {
        let stripe = StripeConfig { low_percent: 50, target_percent: 40, ..Default::default() };
        let error = CleaningConfig { stripe, ..Default::default() }.check().unwrap_err();
        assert!(error.to_string().contains("low-percent 50"), "{error}");
    }
}
