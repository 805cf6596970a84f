//! What can be said of figures that were measured several times.

mod knee;
mod median;
mod outliers;
mod pattern;
mod ranks;
mod steady;

pub use knee::{Knee, at_budget, knee};
pub use median::{Interval, Spread, median, spread};
pub use outliers::outliers;
pub use pattern::{Pattern, pattern};
pub use ranks::{RankComparison, adjust, differ};
pub use steady::{Drift, drift};
