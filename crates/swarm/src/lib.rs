//! The judge at work: whole volumes in virtual time, with faults and power cuts, thousands of them.
//!
//! 1. A seed draws a [`Topology`]: level, members, strips, cache, slices; 2. the volume lives
//!    several lives, each with a workload, commands in the middle and faults inside the contract;
//!    most end by a power cut or a killed program; 3. the witness judges every read of every life,
//!    and whatever fails without a fault that explains it is an offence as well; 4. after a clean
//!    stop a copy of the disks is opened without as many members as may be lost, so that the
//!    redundancy is judged too.
//! 5. Beside that, [`enumerate`] goes through all short workloads and all their cuts.
//!
//! **Invariants**
//! - A seed tells one story, on every machine.
//! - What a case may expect of the volume follows from the faults that were applied, never from
//!   what the engine says of itself.
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
mod topology;

pub use case::{Failure, run_case};
pub use hunt::{Hunt, hunt, play};
pub use offence::Offence;
pub use tally::Tally;
pub use topology::Topology;
