//! What a volume is assembled from: arrays, a cache and its copies, slices, the owner.
//!
//! **Not here**: requests (`serving`), and the volume that is assembled (`volume`).

pub(crate) mod cached;
pub(crate) mod cores;
pub(crate) mod create;
pub(crate) mod gate;
pub(crate) mod label;
pub(crate) mod mirror;
pub(crate) mod open;
pub(crate) mod ownership;
pub(crate) mod slicing;
