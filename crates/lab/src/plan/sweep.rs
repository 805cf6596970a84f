//! The whole matrix round after round, in the place of cell after cell.

use super::cell::CellLoad;
use super::error::PlanError;
use serde::{Deserialize, Serialize};

/// A round of every cell in turn, again and again: what one load leaves behind is what the next one
/// finds, as on a device that has more than one thing to do.
///
/// Source: SNIA Solid State Storage Performance Test Specification 2.0.2, IOPS test: a round is one
/// sweep through all block sizes and mixes, and the steady state is that of tracking variables.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sweep {
    /// Requests, as reports name them, whose steady state is that of all; where none is named, each
    /// cell has to come to its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tracked: Vec<String>,
}

impl Sweep {
    pub(super) fn check(&self, loads: &[CellLoad]) -> Result<(), PlanError> {
        let is_there = |name: &&String| loads.iter().any(|load| is_called(load, name));
        match self.tracked.iter().find(|name| !is_there(name)) {
            None => Ok(()),
            Some(name) => {
                let known: Vec<_> = loads.iter().map(CellLoad::request).collect();
                let cause = format!("{name:?} is not in the matrix");
                let way_out = format!("name one of {}", known.join(", "));
                Err(PlanError::field("sweep.tracked", cause, way_out))
            }
        }
    }

    /// Whether the steady state of a load is looked at.
    pub(crate) fn tracks(&self, load: &CellLoad) -> bool {
        self.tracked.is_empty() || self.tracked.iter().any(|name| is_called(load, name))
    }
}

/// With or without how much is in flight.
fn is_called(load: &CellLoad, name: &str) -> bool {
    name == load.request() || name == load.to_string()
}
