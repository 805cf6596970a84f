//! Settings of promotion.

use crate::classes::Classes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// When a sequential stream above its threshold bypasses the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CutoffPolicy {
    Always,
    /// While the cache is full, so that insertions evict.
    #[default]
    Full,
    Never,
}

/// The promotion policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PromotionPolicy {
    /// At the first request.
    #[default]
    Always,
    /// After enough requests.
    Nhit,
}

/// Settings of promotion.
///
/// **Source**: the parameters of Open CAS's `nhit`, with its names, defaults and ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, try_from = "Parameters")]
pub struct Promotion {
    pub policy: PromotionPolicy,
    /// The request for a block that promotes it, counted from 1.
    pub insertion_threshold: u32,
    /// Occupancy in per cent below which everything is promoted.
    pub trigger: u32,
}

/// The same, unchecked.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Parameters {
    policy: PromotionPolicy,
    insertion_threshold: u32,
    trigger: u32,
}

impl Default for Promotion {
    fn default() -> Self {
        Self { policy: PromotionPolicy::Always, insertion_threshold: 3, trigger: 80 }
    }
}

impl Default for Parameters {
    fn default() -> Self {
        let Promotion { policy, insertion_threshold, trigger } = Promotion::default();
        Self { policy, insertion_threshold, trigger }
    }
}

impl TryFrom<Parameters> for Promotion {
    type Error = String;

    fn try_from(from: Parameters) -> Result<Self, String> {
        let Parameters { policy, insertion_threshold, trigger } = from;
        if !(2..=1000).contains(&insertion_threshold) {
            return Err(format!("an insertion threshold is 2 to 1000, not {insertion_threshold}"));
        }
        if trigger > 100 {
            return Err(format!("a trigger is 0 to 100 per cent, not {trigger}"));
        }
        Ok(Self { policy, insertion_threshold, trigger })
    }
}

/// All settings of promotion.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct AdmissionConfig {
    pub cutoff: CutoffPolicy,
    pub promotion: Promotion,
    pub classes: Arc<Classes>,
}
