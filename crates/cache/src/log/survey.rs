//! What is mapped of a run of blocks.

use super::Log;
use crate::line_map::{Marks, State};
use crate::types::{BlockRun, CoreBlock};

/// What is mapped of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    pub mapped: u64,
    /// The core lacks them or has not flushed them.
    pub unsafe_at_core: u64,
    pub dirty: u64,
    pub pending: u64,
}

impl Log {
    pub fn survey(&self, run: BlockRun) -> Survey {
        let mut survey = Survey::default();
        for version in run.blocks().filter_map(|block| self.map.newest(block)) {
            survey.mapped += 1;
            survey.unsafe_at_core += u64::from(version.is_unsafe_at_core());
            survey.dirty += u64::from(version.target == State::Dirty);
            survey.pending += u64::from(version.state == State::Pending);
        }
        survey
    }

    /// The mapped blocks of a run, ascending; as fast as the smaller of run and map.
    pub fn mapped_in(&self, run: BlockRun) -> Vec<CoreBlock> {
        if run.count <= u64::from(self.layout.slots()) {
            return run.blocks().filter(|block| self.map.newest(*block).is_some()).collect();
        }
        let inside = |block: &CoreBlock| run.first <= *block && *block < run.end();
        let mut blocks: Vec<_> =
            self.map.iter().map(|version| version.block).filter(inside).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// The published blocks of a run whose parity is not to be trusted, ascending.
    pub fn replayed_in(&self, run: BlockRun) -> Vec<CoreBlock> {
        if self.map.counts().replayed == 0 {
            return Vec::new();
        }
        let owes_parity = |block: &CoreBlock| {
            let version = self.map.published(*block);
            version.is_some_and(|version| version.marks.contains(Marks::REPLAYED))
        };
        self.mapped_in(run).into_iter().filter(owes_parity).collect()
    }

    /// Whether a block of the run is damaged.
    pub fn is_lost_in(&self, run: BlockRun) -> bool {
        !self.lost.is_empty() && self.lost.range(run.first..run.end()).next().is_some()
    }
}
