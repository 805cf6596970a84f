//! What a device does with flushes, as far as its timing tells, without cutting anything.
//!
//! 1. [`measure`] asks for a few hundred writes, flushes and reads.
//! 2. [`judge`] weighs what that says for and against each explanation, and names its reasons.
//!
//! **Invariants**: timing alone never proves that a promise is kept. Where two explanations look
//! alike from outside, both are named.

mod judgement;
mod measure;
mod reported;

pub use judgement::{Explanation, Judgement, Reason, judge};
pub use measure::{Depth, Measured, Options, ReadOnly, Writes, measure};
pub use reported::{OwnCache, Reported};
