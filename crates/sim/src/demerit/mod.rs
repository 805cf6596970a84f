//! How far a drive model is from the drive: service times that were measured, beside those of the
//! model under the same requests.
//!
//! 1. [`parse_line`] reads a line of a trace of DiskSim's validation.
//! 2. [`replay`] gives the requests to a model, one at a time.
//! 3. [`Comparison`] sets both beside each other; its figure is the RMS demerit.
//!
//! **Invariants**: the model is given operation, address, length and time of issue, never what was
//! measured; nothing is fitted.
//!
//! **Source** of the figure: C. Ruemmler and J. Wilkes, "An introduction to disk drive modeling",
//! IEEE Computer 27(3), 1994: the root mean square of the horizontal distance between the
//! distributions of both.

mod comparison;
mod replay;
mod trace;

pub use comparison::{Comparison, Row, demerit_ms};
pub use replay::{ReplayError, replay};
pub use trace::{Measured, MeasuredRequest, Operation, parse_line};
