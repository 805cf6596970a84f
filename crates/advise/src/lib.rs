//! From a trace to a decision: the signature of a workload and the advice drawn from it.
//!
//! 1. [`Signature::of`] reads a trace once and says what its streams are like.
//! 2. [`Advice::from`] predicts every setting on a model of the devices and takes the best.
//! 3. [`render`] puts both in words and tables; `serde` puts them in JSON.
//!
//! **Not here**: trace formats (`headpond-trace`); applying advice (the volume does).

pub mod advice;
pub mod facts;
pub mod model;
pub mod render;
pub mod settings;
pub mod signature;
#[cfg(test)]
mod testing;

pub use advice::{Advice, Situation};
pub use facts::{CacheClass, CacheFacts, CoreFacts, CoreLevel, MemberFacts};
pub use settings::{CacheMode, Cleaning, SeqCutoff, Setting};
pub use signature::{Pattern, Signature, SignatureBuilder, StreamSignature, VolumeSignature};
