//! The witness of the field: whether a real device keeps its promises when the power goes.
//!
//! Two machines: one writes to the device and will lose its power, the other keeps its own and
//! remembers. The contract, for each block of 4 KiB: after a cut it holds a value that was current
//! at some time since the last promise about it; a write in flight may be there or not; a flush
//! covers the writes that were acknowledged before it began.
//!
//! Without I/O: [`content`] (what a block says of itself), [`event`] (what a writer reports),
//! [`book`] (what each block may hold), [`ruling`] (the comparison), [`statistics`] (how little it
//! proves), [`wire`] and [`auth`] (what travels, and who may send it), [`snapshot`]. On the
//! runtime's devices and streams: [`writer`], [`looker`], [`session`], [`server`]; [`simple`] does
//! without a witness; on files of the
//! witness: [`folder`], [`subject`].
//!
//! **Invariants**
//! - No device can hold a value that the witness has not stored: a write is submitted only after
//!   its announcement is durable there.
//! - What the witness knows at a cut is a beginning of what happened, in the order in which the
//!   writer saw it happen.
//! - Nothing is said to be kept that was not looked at, or not promised.
//!
//! **Not here**: sockets and devices (the runtimes), cutting power, judging reads while a workload
//! runs (the crate's own `Witness`, which keeps every write and is for simulations).

pub mod auth;
pub mod book;
pub mod codec;
pub mod content;
pub mod event;
pub mod folder;
pub mod link;
pub mod looker;
mod pattern;
pub mod ruling;
pub mod server;
pub mod session;
pub mod simple;
pub mod snapshot;
pub mod statistics;
pub mod subject;
pub mod wire;
pub mod writer;
