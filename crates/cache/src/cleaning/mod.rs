//! Cleaning policies: one in each file, behind one trait.
//!
//! A policy decides, with the time as an input, how many writes to the core may be in flight and
//! which dirty blocks are next. It neither waits nor does I/O; `cleaner` does both.
//!
//! **Invariants**, whatever the policy
//! - Blocks with suspect parity go first (`pace`).
//! - A flush of all dirty data runs in address order at full speed.
//!
//! **Not here**: I/O (`cleaner`), the dirty blocks themselves (`dirty_index`, `log/age`).

mod acp;
mod alru;
mod chunks;
mod concurrency_limit;
mod config;
mod depth;
mod nop;
mod ordered;
pub(crate) mod pace;
mod pi;
mod policy;
mod presets;
mod reading;
mod rounds;
mod stripe;
mod throttle;
#[cfg(test)]
mod twins;

pub(crate) use chunks::Chunks;
pub(crate) use concurrency_limit::{Beside, ClientRead, ConcurrencyLimit};
pub use config::{
    AcpConfig, AlruConfig, CleaningConfig, CleaningPolicy, ParameterError, StripeConfig,
};
pub(crate) use depth::Depth;
pub(crate) use policy::{Age, Choice, Chunk, CleaningLoad, DirtyData, Policy, Walk};
pub use presets::{CleaningPreset, UnknownPreset};
pub(crate) use throttle::Throttle;

/// The policy that a configuration asks for, with nothing known yet.
pub(crate) fn policy(config: &CleaningConfig) -> Box<dyn Policy> {
    match config.policy {
        CleaningPolicy::Nop => Box::new(nop::Nop),
        CleaningPolicy::Alru => Box::new(alru::Alru::new(config.alru)),
        CleaningPolicy::Acp => Box::new(acp::Acp::new(config.acp)),
        CleaningPolicy::Stripe => Box::new(stripe::Stripe::new(config)),
        CleaningPolicy::Ordered => Box::new(ordered::Ordered::new(config)),
    }
}
