//! Results as text for people: plain, aligned, without colours.
//!
//! **Not here**: JSON, which is `serde` on the types themselves.

mod advice;
mod figures;
mod gains;
mod signature;
mod stats;
mod table;

pub(crate) use advice::kind_and_size;
pub use advice::render_advice;
pub(crate) use figures::{a_request, micros};
pub use figures::{count, duration, factor, percent, rate, size, throughput};
pub(crate) use gains::{between, told};
pub use signature::render_signature;
pub use stats::render_stats;
pub use table::{Align, Table};
