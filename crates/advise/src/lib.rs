//! From a trace to a decision: the signature of a workload and the advice drawn from it.
//!
//! 1. [`Signature::of`] reads a trace once and says what its streams are like; a [`Sampler`] keeps
//!    as much of it as can be replayed often.
//! 2. [`Advice::from`] replays that on models of the devices with many settings, and takes the
//!    best.
//! 3. [`live`] says when a served volume's workload has changed, what may be set on it, and whether
//!    that delivered.
//! 4. [`render`] puts both in words and tables, [`picture`] draws; `serde` puts them in JSON;
//!    [`emit`] writes the commands that carry advice out, here and on other caches.
//!
//! **Not here**: trace formats (`headpond-trace`); the machines that are replayed on
//! (`headpond-whatif`); applying advice (the volume does).

#![forbid(unsafe_code)]

pub mod advice;
pub mod emit;
pub mod live;
pub mod long_run;
pub mod picture;
pub mod render;
pub mod reuse;
pub mod sample;
pub mod search;
pub mod signature;
pub mod situation;
#[cfg(test)]
mod testing;
pub mod wear;

pub use advice::Advice;
pub use reuse::Reuse;
pub use sample::{Sample, Sampler};
pub use search::{Freedom, Goal, GoalError, JudgeError, Setting, Simulate};
pub use signature::{
    Partial, Pattern, Sampling, Signature, SignatureBuilder, StreamSignature, VolumeSignature,
};
pub use situation::{Effort, Situation};
pub use wear::Wear;
