//! What changes an open volume, one command at a time: caches, cores, members, journals, copies.
//!
//! **Invariant**: a change holds requests only while what lies below them is exchanged.

pub(crate) mod core_change;
pub(crate) mod exchange;
pub(crate) mod journal;
pub(crate) mod lifecycle;
pub(crate) mod members;
pub(crate) mod quiesced;
pub(crate) mod reshape;
pub(crate) mod tier;
