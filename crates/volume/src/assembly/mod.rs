//! From a description and devices to an open volume: made, found, owned, cut into slices.
//!
//! **Not here**: requests (`serving`), and what changes a volume that is open (`change`).

pub(crate) mod cores;
pub(crate) mod create;
pub(crate) mod label;
pub(crate) mod open;
pub(crate) mod ownership;
pub(crate) mod promises;
pub(crate) mod slicing;
pub(crate) mod vouch;
