//! Errors of a file of classes.

use super::{CLASSES_MAX, KERNEL_CONDITIONS};
use std::fmt;

/// Where in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePosition {
    /// Counted from 1.
    pub line: usize,
}

impl fmt::Display for FilePosition {
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
    Header { place: FilePosition, expected: &'static str, found: String },
    #[error("{place}: {found} fields; four are required: id, name, priority, allocation")]
    Fields { place: FilePosition, found: usize },
    #[error("{place}: {word:?} is not a class id: ids are whole numbers from 0 to {max}", max = CLASSES_MAX - 1)]
    Id { place: FilePosition, word: String },
    #[error("{place}: class {id} is defined twice")]
    Repeated { place: FilePosition, id: u8 },
    #[error("{place}: class {id} follows a higher id; rules are matched in order of ids")]
    Order { place: FilePosition, id: u8 },
    #[error(
        "the file has no class 0: add a line for requests that match no rule, e.g. 0,unclassified,22,1"
    )]
    NoUnclassified,
    #[error(
        "{place}: class 0 is for requests that match no rule, and cannot have one; give the rule another id"
    )]
    RuleOfUnclassified { place: FilePosition },
    #[error("{place}: class {id} has no rule; only class 0 needs none")]
    NoRule { place: FilePosition, id: u8 },
    #[error("{place}: the rule is {found} characters long; the limit is {max}")]
    Length { place: FilePosition, found: usize, max: usize },
    #[error(
        "{place}: {word:?} is not an eviction priority: 0 (evicted last) to 255 (evicted first), or \
        {pinned} for a pinned class"
    )]
    Priority { place: FilePosition, word: String, pinned: &'static str },
    #[error(
        "{place}: {word:?} is not a share of the cache: 0.00 (bypasses it) to 1.00 (all of it)"
    )]
    Occupancy { place: FilePosition, word: String },
    #[error("{place}: {source}")]
    Condition { place: FilePosition, source: ConditionError },
    #[error("{place}: pass_through and occupancy set the same; keep one")]
    TwoShares { place: FilePosition },
}

const CONDITIONS: &str =
    "request_size, lba, io_direction, metadata, core_id, io_class, done, never";

/// Why a rule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    #[error("a condition is missing before or after {operator:?}")]
    Missing { operator: char },
    #[error("{word:?} is not a condition; known: {CONDITIONS}")]
    Unknown { word: String },
    #[error(
        "{word} is known only inside a file system, not to a block device ({all}); use `never` \
        instead, as is done where Open CAS's file is read without --strict",
        all = KERNEL_CONDITIONS.join(", ")
    )]
    KernelOnly { word: &'static str },
    #[error("{word} takes no operand, but has {operand:?}")]
    Operand { word: &'static str, operand: String },
    #[error("the rule has no condition; known: {CONDITIONS}")]
    Empty,
    #[error("{word} requires a number, e.g. {word}:le:4096, not {operand:?}")]
    Number { word: &'static str, operand: String },
    #[error("{operator:?} is not an operator of {word}; known: eq, ne, lt, gt, le, ge")]
    Operator { word: &'static str, operator: String },
    #[error("io_direction is read or write, not {operand:?}")]
    Direction { operand: String },
}
