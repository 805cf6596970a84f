//! How long and how often each cell is measured, what is done before, and what must not happen.

use super::error::PlanError;
use headpond_volume::Size;
use serde::{Deserialize, Serialize};

/// The rounds of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RoundPlan {
    /// Rounds that do not count.
    pub warm_up: u32,
    /// Rounds that count, where no steady state is asked for.
    pub count: u32,
    pub seconds: f64,
    /// A round is over when the region was moved once, however long that takes.
    pub pass: bool,
    /// Looks within a round.
    pub windows: u32,
    /// Between two cells.
    pub cool_down_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady: Option<Steady>,
}

/// When a device is in its steady state.
///
/// Source: SNIA Solid State Storage Performance Test Specification 2.0.2, steady state: over the
/// last rounds the values stay within 20 % of their mean, and the fitted line within 10 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Steady {
    /// Rounds that are looked at, and that count once they are steady.
    pub rounds: u32,
    /// Largest less smallest, of the mean.
    pub range: f64,
    /// Rise or fall of the fitted line over all of them, of the mean.
    pub slope: f64,
    /// After so many rounds nothing is waited for any more; the cell is marked as not steady.
    pub most: u32,
}

/// What is done to a target before its first cell, whatever its loads are. What depends on the load
/// is done by rounds that do not count, and by waiting for the steady state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Precondition {
    /// Discards everything first.
    pub purge: bool,
    /// Times that everything is written, in order.
    pub fills: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill_bs: Option<Size>,
}

/// What ends or shortens a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// A plan that would take longer is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hours: Option<f64>,
    /// No more is written to any one target, preconditioning included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<Size>,
    /// A cell that waits longer in the mean ends the row: deeper ones with the same request are
    /// left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_ms: Option<f64>,
}

impl Default for RoundPlan {
    fn default() -> Self {
        Self {
            warm_up: 5,
            count: 5,
            seconds: 60.0,
            pass: false,
            windows: 60,
            cool_down_seconds: 0.0,
            steady: None,
        }
    }
}

impl Default for Steady {
    fn default() -> Self {
        Self { rounds: 5, range: 0.2, slope: 0.1, most: 25 }
    }
}

impl RoundPlan {
    pub(super) fn check(&self, name: &str) -> Result<(), PlanError> {
        let check = |holds, field: &str, cause: &str, way_out: &str| match holds {
            true => Ok(()),
            false => Err(PlanError::field(format!("{name}.{field}"), cause, way_out)),
        };
        check((1..=10_000).contains(&self.count), "count", "it is 0", "one round must count")?;
        check(self.warm_up <= 10_000, "warm_up", "it is over 10,000", "take fewer")?;
        let seconds = (0.001..=86_400.0).contains(&self.seconds);
        check(seconds, "seconds", "a round lasts from a millisecond to a day", "take another")?;
        check((1..=1000).contains(&self.windows), "windows", "it is not 1 to 1000", "take 60")?;
        let cool = (0.0..=86_400.0).contains(&self.cool_down_seconds);
        check(cool, "cool_down_seconds", "it is not within a day", "take fewer seconds")?;
        if let Some(steady) = self.steady {
            let enough =
                steady.rounds >= 3 && steady.rounds <= steady.most && steady.most <= 10_000;
            check(enough, "steady", "rounds are 3 or more, and most no fewer", "take 5 and 25")?;
            let shares = steady.range > 0.0 && steady.slope > 0.0;
            check(shares, "steady", "range and slope are above 0", "take 0.2 and 0.1")?;
            check(!self.pass, "steady", "rounds by pass have no steady state", "leave one out")?;
        }
        Ok(())
    }

    /// Most rounds of a cell.
    pub fn most(&self) -> u32 {
        self.steady.map_or(self.warm_up + self.count, |steady| self.warm_up + steady.most)
    }

    /// Fewest rounds of a cell.
    pub fn fewest(&self) -> u32 {
        self.steady.map_or(self.warm_up + self.count, |steady| self.warm_up + steady.rounds)
    }
}

impl Precondition {
    /// Size of the requests of a fill.
    pub fn fill_bytes(&self) -> u64 {
        self.fill_bs.map_or(128 << 10, |size| size.bytes())
    }

    pub fn is_anything(&self) -> bool {
        self.purge || self.fills > 0
    }
}

impl Limits {
    pub(super) fn check(&self) -> Result<(), PlanError> {
        let positive = |figure: Option<f64>| figure.is_none_or(|figure| figure > 0.0);
        match positive(self.hours) && positive(self.mean_ms) {
            true => Ok(()),
            false => Err(PlanError::field("limits", "a limit is 0 or less", "leave it out")),
        }
    }
}
