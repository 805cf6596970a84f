//! The durability oracle: from the history of requests, acknowledgements, flushes and power cuts it
//! tells which values a block may hold, and judges every read.
//!
//! 1. [`Witness::begin_write`] (or `begin_zeroes`, `begin_discard`) before the request is sent,
//!    with bytes from [`Payload::fill`]; [`Witness::acknowledge`] or [`Witness::fail`] when it is
//!    answered.
//! 2. [`Witness::begin_flush`] and [`Witness::acknowledge_flush`] around each flush.
//! 3. [`Witness::begin_read`], the read, [`Witness::check_read`]; or [`Witness::check_now`] where
//!    nothing happened in between.
//! 4. [`Witness::crash`] at a power cut: what was in flight may or may not have happened.
//!
//! The contract that is judged, per sector of 512 bytes:
//! - A read returns a value that no write acknowledged before the read began has replaced. Writes
//!   in flight during the read may show or not, and need not show alike twice.
//! - A failed write has happened or has not; it does not happen later.
//! - A flush covers the writes that were acknowledged before it began. A FUA write covers itself.
//! - After a power cut a sector holds the value it had at some time since the last promise about
//!   it. What a read has then shown stays.
//! - A write of a whole aligned block of 4 KiB shows whole or not at all once it is no longer in
//!   flight. Smaller writes are judged by sector.
//! - Discarded sectors read as zeros or as what was newest before, and never as anything older.
//!   They need not read alike twice: one copy may have forgotten what another holds.
//!
//! [`Client`] does all this for a seeded workload on any `BlockDevice`; the judgement itself knows
//! nothing of devices.
//!
//! **Not here**: any code of the engine, on purpose: a judge does not share the mistakes of the
//! judged.

#![forbid(unsafe_code)]

mod book;
mod client;
mod draw;
mod payload;
pub mod probe;
mod sector;
mod verdict;
mod witness;

pub mod field;

pub use book::Promise;
pub use client::{Client, Tally, Workload};
pub use payload::{Content, Payload, WriteId};
pub use verdict::{Offence, Verdict};
pub use witness::{FlushId, ReadId, Witness};

/// The unit in which values are told apart, in bytes.
pub const SECTOR_BYTES: u64 = 512;

/// The unit that a write replaces as a whole, in bytes.
pub const BLOCK_BYTES: u64 = 4096;

const SECTORS_PER_BLOCK: usize = (BLOCK_BYTES / SECTOR_BYTES) as usize;
