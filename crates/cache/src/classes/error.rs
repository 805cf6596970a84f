//! What is wrong with a file of classes.

use super::{CLASSES_MAX, KERNEL_CONDITIONS};
use std::fmt;

/// Where in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Counted from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)
    }
}

/// Why a file of classes cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClassError {
    #[error("{0}")]
    Syntax(String),
    #[error("{place}: the first line names the columns: {expected}; not {found:?}")]
    Header { place: Place, expected: &'static str, found: String },
    #[error("{place}: {found} fields, where there are four: id, name, priority, allocation")]
    Fields { place: Place, found: usize },
    #[error("{place}: {word:?} is no class id: ids are whole numbers from 0 to {max}", max = CLASSES_MAX - 1)]
    Id { place: Place, word: String },
    #[error("{place}: class {id} is there already; each id has one line")]
    Repeated { place: Place, id: u8 },
    #[error(
        "{place}: class {id} comes after a higher id; rules are tried in the order of their ids"
    )]
    Order { place: Place, id: u8 },
    #[error(
        "the file has no class 0: add a line for requests that no rule takes, e.g. 0,unclassified,22,1"
    )]
    NoUnclassified,
    #[error(
        "{place}: class 0 is for requests that no rule takes, and has no rule; give the rule another id"
    )]
    RuleOfUnclassified { place: Place },
    #[error("{place}: class {id} has no rule; only class 0 goes without")]
    NoRule { place: Place, id: u8 },
    #[error("{place}: the rule is {found} characters long, {max} are allowed")]
    Length { place: Place, found: usize, max: usize },
    #[error(
        "{place}: {word:?} is no eviction priority: 0 (leaves last) to 255 (leaves first), or {pinned} \
         for a class that is pinned"
    )]
    Priority { place: Place, word: String, pinned: &'static str },
    #[error(
        "{place}: {word:?} is no share of the cache: 0.00 (past the cache) to 1.00 (all of it)"
    )]
    Occupancy { place: Place, word: String },
    #[error("{place}: {source}")]
    Condition { place: Place, source: ConditionError },
    #[error("{place}: pass_through and occupancy say the same in two ways; keep one")]
    TwoShares { place: Place },
}

const CONDITIONS: &str =
    "request_size, lba, io_direction, metadata, core_id, io_class, done, never";

/// Why a rule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    #[error("a condition is missing before or after {operator:?}")]
    Missing { operator: char },
    #[error("{word:?} is no condition; there are: {CONDITIONS}")]
    Unknown { word: String },
    #[error(
        "{word} is known inside a file system only, and a block device never learns it ({all}); \
         `never` can stand in its place, and does where Open CAS's file is read without --strict",
        all = KERNEL_CONDITIONS.join(", ")
    )]
    KernelOnly { word: &'static str },
    #[error("{word} takes no operand, and has {operand:?}")]
    Operand { word: &'static str, operand: String },
    #[error("there is no condition; there are: {CONDITIONS}")]
    Empty,
    #[error("{word} wants a number, e.g. {word}:le:4096, and has {operand:?}")]
    Number { word: &'static str, operand: String },
    #[error("{operator:?} is no operator of {word}; there are: eq, ne, lt, gt, le, ge")]
    Operator { word: &'static str, operator: String },
    #[error("io_direction is read or write, and not {operand:?}")]
    Direction { operand: String },
}
