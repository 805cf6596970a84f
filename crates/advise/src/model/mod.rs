//! A small analytic model of core and cache: how many requests a second a stream gets.
//!
//! Every stream is a closed loop: so many requests in flight, each answered before the next is
//! issued. Its rate is depth over response time; the response time is that of an idle device plus
//! the wait for the work of the others, and no device does more work than it has time for.
//!
//! **Invariants**: rates are finite and not negative; more depth never predicts a lower rate
//! without a cache.
//!
//! **Not here**: calibrated models of drives (`headpond-sim`), and what to do with the figures
//! (`advice`).
//!
//! **Source**: closed networks with balanced load: Lazowska et al., "Quantitative System
//! Performance", 1984, chapter 5; expected maximum of normal deviates for the slowest of several
//! members. The constants below are those of ordinary drives, not fitted to any published array.

mod cached;
mod core;
mod load;
#[cfg(test)]
mod tests;

pub use self::core::CoreModel;
pub use cached::{CachedRates, predict_cached, writes_fit};
pub use load::Load;
