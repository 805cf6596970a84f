//! Results as text for people: plain, aligned, without colours.
//!
//! **Not here**: JSON, which is `serde` on the types themselves.

mod advice;
mod figures;
mod signature;
mod stats;
mod table;

pub use advice::render_advice;
pub use figures::{count, duration, factor, percent, rate, size, throughput};
pub use signature::render_signature;
pub use stats::render_stats;
pub use table::{Align, Table};
