//! Failures of a case.

use headpond_witness::Verdict;

/// A failure of a case.
#[derive(Debug, thiserror::Error)]
pub enum Offence {
    #[error("a read broke the contract: {0}")]
    Verdict(#[from] Box<Verdict>),
    #[error("{reads} reads and {others} other requests failed, and no fault explains it")]
    Errors { reads: u64, others: u64 },
    #[error("the volume refused to open, and no fault explains it: {0}")]
    Refused(String),
    #[error("a command failed, and no fault explains it: {0}")]
    Command(String),
    #[error("the core has {found} bytes instead of {expected}")]
    Size { found: u64, expected: u64 },
    #[error("the volume could not be stopped, and no fault explains it: {0}")]
    Stop(String),
    #[error("a life did not end within 30 min of virtual time, {phase}: {picture}")]
    Stuck { phase: &'static str, picture: String },
    #[error("the case did not end in {seconds} s of real time")]
    Endless { seconds: u64 },
    #[error("no task can continue: {0}")]
    Stalled(String),
    #[error("the case cannot be set up: {0}")]
    Setup(String),
    #[error("panic: {0}")]
    Panic(String),
}
