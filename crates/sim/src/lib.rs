//! Virtual time: the runtime, the drive models and the disasters of a simulated machine.
//!
//! The engine's own source runs here on a clock that jumps to the next timer. Everything is drawn
//! from one seed, so that a run can be repeated bit for bit; dropping a run at any await is a power
//! cut.
//!
//! Room by room:
//! - [`run`], [`run_until_cut`]: the runtime. A run that can never go on ends as `Stalled`.
//! - [`catalogue`]: everything that is modelled, by name or from a user's file.
//! - [`hdd`]: the disk drive as a pure machine. [`ModelDevice`] makes it a `BlockDevice`, in
//!   virtual time or against the wall clock; [`FixedLatencyDevice`] is the simple model of a fast
//!   device.
//! - [`ssd`]: the solid state drive, likewise.
//! - [`remote`]: storage behind a network, as it was measured from outside.
//! - [`controller`] and [`NetworkLink`]: what may lie between the host and its drives.
//! - [`Power`], [`Medium`], [`SimDisk`]: disks that lose what was not flushed, and a switch to cut
//!   the power at any device operation.
//! - [`net`]: connections with latency that can be cut.
//!
//! **Invariants**
//! - Nothing here reads a clock, draws from the system or starts a thread.
//! - What a run does depends on its seed and its code only.
//!
//! **Not here**: judging what a run did (`headpond-witness`), real I/O (`headpond-uring`).

#![forbid(unsafe_code)]

pub mod catalogue;
mod command;
pub mod controller;
pub mod demerit;
pub mod disksim;
mod error;
mod fixed;
pub mod hdd;
mod kind;
mod medium;
mod model_device;
pub mod net;
mod network;
mod power;
mod random;
pub mod remote;
mod runtime;
mod sim_disk;
mod sparse;
pub mod ssd;

pub use catalogue::{CatalogueError, Model};
pub use command::Machine;
pub use controller::{Controller, ControllerModel};
pub use error::ModelError;
pub use fixed::{FixedLatency, FixedLatencyDevice};
pub use kind::Kind;
pub use medium::{Flushes, Loss, Medium, Picture};
pub use model_device::ModelDevice;
pub use network::{NetworkLink, NetworkModel};
pub use power::{Ended, Power, run_threads_until_cut, run_until_cut};
pub use random::Random;
pub use runtime::{Sim, run, run_threads};
pub use sim_disk::{OperationTime, SimDisk};
pub use sparse::SparseDevice;
