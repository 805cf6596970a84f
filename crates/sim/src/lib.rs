//! Virtual time: the runtime, the drive models and the disasters of a simulated machine.
//!
//! The engine's own source runs here on a clock that jumps to the next timer. Everything is drawn
//! from one seed, so that a run can be repeated bit for bit; dropping a run at any await is a power
//! cut.
//!
//! Room by room:
//! - [`run`], [`run_until_cut`]: the runtime. A run that can never go on ends as `Stalled`.
//! - [`hdd`]: the disk drive as a pure machine. [`ModelDevice`] makes it a `BlockDevice`, in
//!   virtual time or against the wall clock; [`FixedLatencyDevice`] is the simple model of a fast
//!   device.
//! - [`Power`], [`Medium`], [`SimDisk`]: disks that lose what was not flushed, and a switch to cut
//!   the power at any device operation.
//! - [`net`]: connections with latency that can be cut.
//!
//! **Invariants**
//! - Nothing here reads a clock, draws from the system or starts a thread.
//! - What a run does depends on its seed and its code only.
//!
//! **Not here**: judging what a run did (`headpond-witness`), real I/O (`headpond-uring`).

pub mod demerit;
pub mod disksim;
mod fixed;
pub mod hdd;
mod medium;
mod model_device;
pub mod net;
mod power;
mod random;
mod runtime;
mod sim_disk;
mod sparse;

pub use fixed::{FixedLatency, FixedLatencyDevice};
pub use medium::{Flushes, Loss, Medium, Picture};
pub use model_device::ModelDevice;
pub use power::{Ended, Power, run_until_cut};
pub use random::Random;
pub use runtime::{Sim, run};
pub use sim_disk::{OperationTime, SimDisk};
pub use sparse::SparseDevice;
