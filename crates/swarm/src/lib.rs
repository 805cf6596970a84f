//! The swarm: thousands of simulated volumes in virtual time, with faults and power cuts.
//!
//! 1. A seed draws a [`Topology`]: level, members, strips, cache, slices; 2. the volume runs
//!    several lives, each with a workload, commands in the middle and faults inside the contract;
//!    most end by a power cut or a killed program; 3. the witness verifies all reads of all lives,
//!    and any failure that no fault explains is an offence as well; 4. after a clean shutdown
//!    a copy of the disks is opened without as many members as the redundancy covers, so that the
//!    redundancy is verified too.
//! 5. Besides, [`enumerate`] runs all short workloads with all their cuts.
//!
//! **Invariants**
//! - A seed gives the same run on every machine.
//! - What a case may expect of the volume follows from the faults that were applied, never from
//!   what the engine reports.
//!
//! **Not here**: the oracle (`headpond-witness`), the disks (`headpond-sim`).

#![forbid(unsafe_code)]

mod case;
pub mod enumerate;
mod expect;
mod faults;
mod hunt;
mod life;
mod machine;
mod offence;
mod remains;
pub mod scenarios;
mod steps;
mod tally;
mod threads;
mod topology;

pub use case::{Failure, run_case};
pub use hunt::{Hunt, hunt, play};
pub use offence::Offence;
pub use tally::Tally;
pub use topology::Topology;
