//! A solid state drive as a pure machine: flash dies behind channels, a write buffer, a translation
//! layer that collects garbage.
//!
//! 1. [`SsdModel`] is a data file made ready. 2. [`SsdDrive`] is one drive of that model in one
//!    [`State`]; it is a [`Machine`](crate::Machine) as a disk is.
//!
//! A write is in the buffer when it has crossed the link, and leaves it in units that a die
//! programs at once. It takes whole units of the map, of which writes in a row share what lies
//! between them. A flush of a drive whose buffer is lost with the power programs what the
//! buffer holds, with padding, and a page of the map's journal beside it. Space is written in
//! superblocks; when free ones run short, the one with the least valid data is copied together and
//! erased, at the pace at which the host uses space up. Reads go before programs, four to one.
//!
//! The map is statistical: of each superblock is known how many units of each region of the
//! address space are valid there, not which. An overwritten unit is drawn from those of its region.
//! Uniform and sequential writes come out as with a full map; within a region hot and cold units
//! are not told apart. A drive costs some megabytes, whatever its size.
//!
//! **Invariants**: no clock, no I/O; what is drawn comes from the seed. Every unit that is mapped
//! is valid in exactly one superblock.
//!
//! **Not here**: wear, read disturb, heat; collection while idle; merging of overwrites in the
//! buffer; reads answered from it; the reading of a unit of which a part is written.

mod collector;
mod drive;
mod flash;
mod map;
mod model;
mod parameters;
mod tally;

pub use drive::SsdDrive;
pub use model::SsdModel;
pub use parameters::{
    ControllerParameters, FlashParameters, FlushBehaviour, LinkParameters, Protocol, SlcParameters,
    SsdParameters, State, WriteBufferParameters,
};
