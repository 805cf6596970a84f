//! The judge at work: whole volumes in virtual time, with faults and power cuts, thousands of them.
//!
//! 1. A seed draws a [`Topology`]: level, members, strips, cache, slices; 2. the volume lives
//!    several lives, each with a workload, commands in the middle and faults inside the contract; most
//!    end by a power cut or a killed program; 3. the witness judges every read of every life, and
//!    whatever fails without a fault that explains it is an offence as well; 4. in the end the array is
//!    opened without as many members as it can lose, so that its redundancy is judged too.
//!
//! **Invariants**
//! - A seed tells one story, on every machine.
//! - What a case may expect of the volume follows from the faults that were applied, never from
//!   what the engine says of itself.
//!
//! **Not here**: the oracle (`headpond-witness`), the disks (`headpond-sim`).

mod case;
mod devices;
pub mod enumerate;
mod expect;
mod faults;
mod hunt;
mod life;
mod machine;
mod steps;
mod tally;
mod topology;

pub use case::{Failure, Offence, run_case};
pub use hunt::{Hunt, hunt};
pub use tally::{ROWS, Tally};
pub use topology::Topology;
