//! The fault table, row by row: what proves that the rule is kept.
//!
//! A row is proved by scenarios, each of which sets up one fault and asserts one rule on a whole
//! volume; by tests of the crate that the rule is about; or not yet, and then the table says what
//! is missing. `docs/faults.md` is this table as text.
//!
//! **Invariants**
//! - Every test that the table names exists; a test sees to it.
//!
//! **Not here**: rows 44 to 56, which are about NBD (`crates/nbd/tests/integration/hostile.rs`).

mod array_faults;
mod cache_faults;
mod changes;
mod mirrored_cache;
mod power;
mod rig;
mod starts;
mod table;

#[cfg(test)]
mod tests;

pub use table::{ROWS_AND_LOSSES, all};

/// A row of the fault table, or a loss that happened to others, and what proves its rule.
pub struct Entry {
    pub about: About,
    pub fault: &'static str,
    pub proofs: &'static [Proof],
}

/// Where a rule comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    Row(u8),
    /// So manieth of the losses that happened to others.
    Loss(u8),
}

/// What shows that a rule is kept, or that it is not yet.
pub enum Proof {
    Scenario(Scenario),
    /// File and function of a test elsewhere in the workspace.
    Test(&'static str, &'static str),
    /// What is missing.
    NotYet(&'static str),
}

/// One fault, set up on a whole volume, and one rule.
#[derive(Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    /// Panics where the rule is broken.
    pub run: fn(),
}

impl std::fmt::Display for About {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Row(row) => write!(f, "row {row}"),
            Self::Loss(loss) => write!(f, "loss {loss}"),
        }
    }
}
