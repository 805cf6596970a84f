//! Who says how candidates do.

use super::{Candidate, Trial};
use headpond_sim::CatalogueError;
use headpond_whatif::SimulateError;

/// A candidate to be tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    pub candidate: Candidate,
    /// Of a round.
    pub requests: usize,
    pub twist: Twist,
}

/// What is otherwise than the user said.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Twist {
    #[default]
    None,
    /// The cache is so many times as large.
    CacheTimes(f64),
    /// So many requests are in flight.
    Depth(u32),
    /// So much of the requests reads.
    ReadShare(f64),
    /// As many rounds as a cache that cleans nothing takes to be full.
    Longer,
}

/// Why nobody can say.
#[derive(Debug, thiserror::Error)]
pub enum JudgeError {
    #[error(transparent)]
    Model(#[from] CatalogueError),
    #[error("{candidate} cannot be tried: {source}")]
    Simulate { candidate: String, source: Box<SimulateError> },
}

/// Tries candidates.
pub trait Judge {
    /// One trial for each question, in their order; all laps of all trials with equal `requests`
    /// and twist have the same requests.
    ///
    /// # Errors
    /// Where one of them cannot be tried.
    fn judge(&mut self, questions: &[Question]) -> Result<Vec<Trial>, JudgeError>;
}
