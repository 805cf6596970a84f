//! `acp`, aggressive cleaning: the chunk of 100 MiB with the most dirty data first, in rounds of
//! `flush-max-buffers` with `wake-up` between them, regardless of client load.
//!
//! **Source**: the policy of that name in Open CAS, by its documentation and as probed. The
//! implementation differs: chunks without dirty data cost no memory, a chunk's blocks are taken
//! from the dirty index instead of by looking up each of its lines, and neighbours are written
//! together. Which chunk is next, how many lines make a round and how long the pause is are the
//! same.

use super::config::AcpConfig;
use super::policy::{Choice, CleaningLoad, DirtyData, Policy, Speed};
use super::rounds::{Rounds, round};
use crate::types::{BlockRun, CoreBlock};
use std::time::Duration;

pub(crate) struct Acp {
    config: AcpConfig,
    rounds: Rounds,
    /// What is left of the chunk that was begun.
    rest: Option<BlockRun>,
}

impl Acp {
    pub fn new(config: AcpConfig) -> Self {
        Self { config, rounds: Rounds::default(), rest: None }
    }

    fn pause(&self) -> Duration {
        Duration::from_millis(u64::from(self.config.wake_up_ms))
    }

    /// The next blocks of the chunk that was begun, or of the dirtiest one.
    fn next_blocks(&mut self, dirty_data: &mut dyn DirtyData) -> Vec<CoreBlock> {
        let most = self.config.flush_max_buffers as usize;
        if let Some(rest) = self.rest.take() {
            let blocks = self.take(rest, most, dirty_data);
            if !blocks.is_empty() {
                return blocks;
            }
        }
        let Some(chunk) = dirty_data.dirtiest() else { return Vec::new() };
        let run = dirty_data.run_of(chunk);
        self.take(run, most, dirty_data)
    }

    fn take(
        &mut self,
        run: BlockRun,
        most: usize,
        dirty_data: &mut dyn DirtyData,
    ) -> Vec<CoreBlock> {
        let blocks = dirty_data.dirty_in(run, most);
        if blocks.len() == most
            && let Some(last) = blocks.last()
        {
            let first = CoreBlock(last.0 + 1);
            let count = run.end().0 - first.0;
            self.rest = (count > 0).then_some(BlockRun { first, count });
        }
        blocks
    }
}

impl Policy for Acp {
    fn speed(&mut self, load: &CleaningLoad) -> Speed {
        self.rounds.speed(load, self.pause())
    }

    fn choose(&mut self, load: &CleaningLoad, dirty_data: &mut dyn DirtyData) -> Choice {
        if !self.rounds.may_begin(load) || !self.rounds.is_due(load) {
            return Choice::Nothing;
        }
        let choice = round(self.next_blocks(dirty_data));
        if choice == Choice::Nothing {
            self.rounds.pause(load, self.pause());
        }
        choice
    }

    fn wants_relief(&self) -> bool {
        true
    }

    fn counts_chunks(&self) -> bool {
        true
    }
}
