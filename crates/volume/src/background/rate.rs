//! How fast work beside the requests may go.

use crate::Size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits in bytes a second, of each member for a rebuild, else of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackgroundRate {
    /// At least, while clients ask something of the array; more where they hardly feel it.
    #[serde(default = "usual_min", alias = "floor")]
    pub min: Size,
    /// At most; as fast as the members can, where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "ceiling")]
    pub max: Option<Size>,
}

/// A maximum below the minimum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "at least {min} and at most {max} a second cannot be: lower the minimum or raise the maximum"
)]
pub struct BackgroundRateError {
    min: Size,
    max: Size,
}

impl BackgroundRate {
    /// # Errors
    /// Where no rate is between the two.
    pub fn check(&self) -> Result<(), BackgroundRateError> {
        let min = self.min;
        match self.max.filter(|max| *max < min) {
            Some(max) => Err(BackgroundRateError { min, max }),
            None => Ok(()),
        }
    }
}

impl Default for BackgroundRate {
    fn default() -> Self {
        Self { min: usual_min(), max: None }
    }
}

/// A drive of 4 TB is done in five days that know no rest. Linux md goes down to a tenth of that.
fn usual_min() -> Size {
    Size(10 << 20)
}
