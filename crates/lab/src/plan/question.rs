//! What the figures of a plan are for.

use super::{Plan, PlanError};
use serde::{Deserialize, Serialize};

/// A question of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Question {
    /// How latency grows with throughput: where it bends, and what is carried within a budget.
    Curves {
        #[serde(default = "one_ms")]
        budgets_ms: Vec<f64>,
    },
    /// Which of two values of an axis wins where.
    Versus {
        /// `target`, a setting, or a list of the matrix.
        axis: String,
        first: String,
        second: String,
        #[serde(default = "one_ms")]
        budgets_ms: Vec<f64>,
    },
    /// How it compares with what such an array is expected to do.
    Rating,
    /// Where a cache pays, by size and depth of requests.
    Map { axis: String, without: String, with: String },
    /// What it costs to make writes stable, and what that says of the drive.
    Sync,
    /// How fast a cache fills and how fast it is cleaned.
    Limits,
    /// Each round as a point of time.
    Passes,
    /// What jobs beside each other get.
    Beside,
    /// Requests a second by size and kind.
    Table,
}

pub(crate) fn one_ms() -> Vec<f64> {
    vec![1.0]
}

impl Question {
    pub(crate) fn check(&self, plan: &Plan) -> Result<(), PlanError> {
        let (axis, values) = match self {
            Self::Versus { axis, first, second, .. } => (axis, [first, second]),
            Self::Map { axis, without, with } => (axis, [without, with]),
            _ => return Ok(()),
        };
        if has_other_targets(plan, axis) && plan.targets.len() != 2 {
            let cause = format!("it compares {} with {}", values[0], values[1]);
            let way_out = "name two targets (--target A --target B); a volume that is served can be \
                           compared with itself by its mode";
            return Err(PlanError::field("answer", cause, way_out));
        }
        let cells = plan.cells();
        for value in values {
            let is_there = cells.iter().any(|cell| cell.axis(plan, axis).as_ref() == Some(value));
            if !is_there && !has_other_targets(plan, axis) {
                let cause = format!("no cell has {axis} {value}");
                let way_out = "compare values that are in the matrix or among the targets";
                return Err(PlanError::field("answer", cause, way_out));
            }
        }
        Ok(())
    }

    /// The targets that it compares, where it does that.
    pub(crate) fn targets(&self) -> Option<[String; 2]> {
        match self {
            Self::Versus { axis, first: one, second: other, .. }
            | Self::Map { axis, without: one, with: other }
                if axis == "target" =>
            {
                Some([one.clone(), other.clone()])
            }
            _ => None,
        }
    }

    /// Compares two values of a setting in the place of two targets.
    pub(crate) fn take_modes(&mut self, setting: &str, values: &[String; 2]) {
        if self.targets().is_none() {
            return;
        }
        if let Self::Versus { axis, first: one, second: other, .. }
        | Self::Map { axis, without: one, with: other } = self
        {
            setting.clone_into(axis);
            [*one, *other] = values.clone();
        }
    }
}

/// Where a builtin plan is carried out on targets of the user's, those have names of their own.
fn has_other_targets(plan: &Plan, axis: &str) -> bool {
    axis == "target" && plan.targets.iter().all(|target| target.machine.is_none())
}
