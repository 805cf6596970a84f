//! What the advice is for: the machine, what the user wants, and what may be done.

use crate::search::{Freedom, Goal};
use headpond_cache::Mode;
use headpond_whatif::Stack;

/// What advice may build on.
#[derive(Clone, Debug)]
pub struct Situation {
    /// The machine, with a cache of the size that is there or could be bought; the settings of the
    /// cache in it are those that are set now.
    pub stack: Stack,
    /// What of it nobody said.
    pub assumptions: Vec<String>,
    pub cache_is_lost_on_power: bool,
    /// Two or more devices hold every block of the cache.
    pub cache_is_mirrored: bool,
    /// Losing what is dirty at a power cut is acceptable.
    pub may_lose_dirty: bool,
    /// Nothing may be less safe than it is set now.
    pub keeps_promises: bool,
    pub goal: Goal,
    pub freedom: Freedom,
    /// The volume is there, and the settings in `stack` are what is set: the advice is compared
    /// with it.
    pub stands: bool,
    pub effort: Effort,
    /// In flight where the trace does not tell.
    pub depth_unless_told: u32,
}

/// How long to look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// A few seconds: little of the trace, and no question about what would change the answer.
    Quick,
    #[default]
    Usual,
    /// Everything that is known to be worth a try is tried on as much as is replayed at all.
    Exhaustive,
}

impl Effort {
    /// Requests that a sample may have.
    pub fn requests_max(self) -> usize {
        match self {
            Effort::Quick => 6_000,
            Effort::Usual | Effort::Exhaustive => 24_000,
        }
    }
}

impl Situation {
    /// Whether the cache may have the only copy of something.
    pub fn may_be_dirty(&self) -> bool {
        let mode = self.stack.cache.as_ref().map(|cache| cache.settings.mode);
        let is_new = self.keeps_promises && !mode.is_some_and(Mode::is_write_back);
        let is_lost = self.cache_is_lost_on_power && !self.may_lose_dirty;
        self.goal != Goal::Safety && !is_lost && !is_new
    }
}
