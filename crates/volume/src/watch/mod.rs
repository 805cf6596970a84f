//! Status of a volume: its state, its counters, its alerts.
//!
//! **Invariant**: nothing here changes anything.

pub(crate) mod alerts;
pub(crate) mod counts;
pub(crate) mod report;
pub(crate) mod status;
pub(crate) mod wear;
