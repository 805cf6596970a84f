//! How fast work beside the requests may go.

use crate::Size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits in bytes a second, of each member for a rebuild, else of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pace {
    /// At least, while clients ask something of the array; more where they hardly feel it.
    #[serde(default = "usual_floor")]
    pub floor: Size,
    /// At most; as fast as the members can, where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<Size>,
}

/// A ceiling below the floor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "at least {floor} a second and at most {ceiling} cannot be: lower the floor or raise the ceiling"
)]
pub struct PaceError {
    floor: Size,
    ceiling: Size,
}

impl Pace {
    /// # Errors
    /// Where no rate is between the two.
    pub fn check(&self) -> Result<(), PaceError> {
        let floor = self.floor;
        match self.ceiling.filter(|ceiling| *ceiling < floor) {
            Some(ceiling) => Err(PaceError { floor, ceiling }),
            None => Ok(()),
        }
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self { floor: usual_floor(), ceiling: None }
    }
}

/// A drive of 4 TB is done in five days that know no rest. Linux md goes down to a tenth of that.
fn usual_floor() -> Size {
    Size(10 << 20)
}
