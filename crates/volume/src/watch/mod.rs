//! What a volume tells of itself: its state, its counters, what wants the operator.
//!
//! **Invariant**: nothing here changes anything.

pub(crate) mod alerts;
pub(crate) mod report;
pub(crate) mod status;
