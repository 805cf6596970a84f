//! Advice for a volume that is being served.
//!
//! 1. A [`Look`] is a stretch of requests as they were just served.
//! 2. Its [`Character`] is compared with that of the looks which led to the last advice: only a
//!    workload that has changed is worth another search.
//! 3. [`weakens`] says which of the advised settings need leave.
//! 4. After a change, looks from before and after it are compared ([`delivered`]).
//! 5. [`Watch`] puts these together, with what it did as [`Event`]s.
//!
//! **Invariants**: pure functions of what was seen; one request more or less changes no verdict
//! by more than its share.
//!
//! **Not here**: taking looks and changing settings (the daemon and its client do).

mod character;
mod event;
mod guard;
mod look;
#[cfg(test)]
mod tests;
mod watch;

pub use character::{Change, Character};
pub use event::Event;
pub use guard::{Weakening, weakens};
pub use look::{Look, delivered};
pub use watch::{Orders, Proposal, Served, Watch};
