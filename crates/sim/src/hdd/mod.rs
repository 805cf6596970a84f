//! A hard disk drive as a pure machine: commands and times in, answers with times out.
//!
//! 1. [`HddModel`] is a data file made ready: layout, seek curve, rotation.
//! 2. [`Drive`] is one drive of that model: the place of its heads, its queue, its caches.
//! 3. The caller submits a [`Command`] at a time, asks for [`Drive::next_answer`], and collects the
//!    answers that are due; between calls the drive has lived through everything that lay between.
//!
//! **Invariants**: no clock, no randomness, no I/O; the answers depend only on the model, the phase
//! of the spindle and the commands with their times. How late the caller looks changes nothing.
//!
//! **Not here**: payload and waiting (`ModelDevice`), other kinds of drive.

mod angle;
mod drive;
mod layout;
mod mechanism;
mod model;
mod overheads;
mod parameters;
mod read_ahead;
mod read_buffer;
mod seek;
mod write_cache;
mod zone;

pub use crate::command::{Answer, Command, CommandKind, Tag};
pub use crate::error::ModelError;
pub use drive::Drive;
pub use model::HddModel;
pub use overheads::{AfterParameters, OverheadParameters};
pub use parameters::{
    GeometryParameters, HddParameters, InterfaceParameters, ReadAheadReach, ReadBufferParameters,
    SeekParameters, Serpentine, WriteCacheParameters, WriteSegmentParameters,
};
pub use zone::{ExtentParameters, ZoneParameters};
