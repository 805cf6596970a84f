//! What-if: a workload on a machine that is only described, in virtual time.
//!
//! 1. A [`Stack`] says what the machine is made of: modelled drives, an array, perhaps a cache;
//!    2. [`job::parse`] reads what is asked of it, in fio's job syntax, or [`TraceLoad::open`] a
//!    recording; 3. [`simulate`] puts the
//!    machine together from the real array and cache, above models of its devices, runs the jobs,
//!    and tells what came of it and where the time went.
//!
//! **Invariants**
//! - One stack, one workload and one seed give the same figures on every machine.
//! - The engine is the one that serves real volumes; only devices and clock are models.
//!
//! **Not here**: the models (`headpond-sim`), load on real devices.

#![forbid(unsafe_code)]

#[cfg(test)]
mod beside;
mod condition;
mod endurance;
mod engine;
pub mod fit;
mod full;
mod generator;
pub mod job;
mod latency_windows;
mod load;
mod machine;
mod measured;
pub mod models;
mod outcome;
mod parallel;
mod place;
pub mod plan;
mod progress;
#[cfg(test)]
mod readers;
pub mod reference;
mod remainder;
mod replay;
pub mod rounds;
#[cfg(test)]
mod scene;
mod simulate;
mod stack;
#[cfg(test)]
mod steadiness;
mod windows;

pub use condition::Condition;
pub use endurance::{Endurance, EnduranceError};
pub use engine::{CleanerCost, Cost, EngineCost, EngineError, EngineModel};
pub use generator::Memory;
pub use job::{ArrivalProcess, Arrivals, Hot, Job, JobError, Rw};
pub use latency_windows::LatencyWindow;
pub use load::{Excerpt, Fit, IN_FLIGHT_MAX, Load, Pace, Remainder, Survey, TraceLoad};
pub use measured::{Bins, Kind, Latency, Measured, Side};
pub use outcome::{
    Afterwards, CacheShare, DeviceShare, EngineShare, JobOutcome, Outcome, Plans, Rebuilt,
};
pub use progress::Gauge;
pub use replay::{KindShare, LAPS, Lap, Replay, ReplayError};
pub use simulate::{Experiment, SimulateError, simulate, simulate_all, simulate_watched};
pub use stack::{CacheStack, CoreStack, Parts, Stack, StackError};
pub use windows::Window;
