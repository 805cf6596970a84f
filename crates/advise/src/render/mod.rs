//! Results as text for people: plain, aligned, without colours.
//!
//! **Not here**: JSON, which is `serde` on the types themselves.

mod advice;
mod reuse;
mod signature;
mod stats;

pub(crate) use advice::kind_and_size;
pub use advice::render_advice;
pub use reuse::render_reuse;
pub use signature::render_signature;
pub use stats::render_stats;
