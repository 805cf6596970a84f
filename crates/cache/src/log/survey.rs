//! The mapped versions of a run of blocks.

use super::Log;
use crate::line_map::{Marks, State};
use crate::types::{BlockRun, CoreBlock};
use headpond_block::{BlockDevice, Cause, DeviceError, Outcome};

/// What is mapped of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    pub mapped: u64,
    /// The core lacks them or has not flushed them; so it is with what the cache has lost.
    pub unsafe_at_core: u64,
    pub dirty: u64,
    pub pending: u64,
}

impl Log {
    pub fn survey(&self, run: BlockRun) -> Survey {
        let mut survey = Survey::default();
        self.map.each_newest(run, |_, version| {
            let Some(version) = version else { return };
            survey.mapped += 1;
            survey.unsafe_at_core += u64::from(version.is_unsafe_at_core());
            survey.dirty += u64::from(version.target == State::Dirty);
            survey.pending += u64::from(version.state == State::Pending);
        });
        if !self.lost.is_empty() {
            survey.unsafe_at_core += self.lost_in(run).count() as u64;
        }
        survey
    }

    /// Whether anything of a run is lost, or its newest version is one that the core lacks, or may
    /// lack after a power cut.
    pub fn is_any_unsafe_at_core(&self, run: BlockRun) -> bool {
        let counts = self.map.counts();
        let mut is_any = self.is_lost_in(run);
        if counts.pending_dirty + counts.pending_other + counts.dirty + counts.written > 0 {
            self.map.each_newest(run, |_, version| {
                is_any |= version.is_some_and(|version| version.is_unsafe_at_core());
            });
        }
        is_any
    }

    /// The mapped blocks of a run, ascending; as fast as the smaller of run and map.
    pub fn mapped_in(&self, run: BlockRun) -> Vec<CoreBlock> {
        if run.count <= u64::from(self.layout.slots()) {
            let mut blocks = Vec::new();
            self.map.each_newest(run, |block, version| {
                if version.is_some() {
                    blocks.push(block);
                }
            });
            return blocks;
        }
        let inside = |block: &CoreBlock| run.first <= *block && *block < run.end();
        let mut blocks: Vec<_> =
            self.map.iter().map(|version| version.block).filter(inside).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// The blocks of a run that are mapped or lost, ascending.
    pub fn known_in(&self, run: BlockRun) -> Vec<CoreBlock> {
        let mut blocks = self.mapped_in(run);
        if self.is_lost_in(run) {
            blocks.extend(self.lost_in(run));
            blocks.sort_unstable();
            blocks.dedup();
        }
        blocks
    }

    /// The runs in a run, of at most so many blocks each, of which the core lacks what is newest,
    /// or which the cache has lost.
    pub fn lacking_in(&self, run: BlockRun, most: u64) -> Vec<BlockRun> {
        let counts = self.map.counts();
        if counts.dirty + counts.pending_dirty == 0 && !self.is_lost_in(run) {
            return Vec::new();
        }
        let known = self.known_in(run).into_iter();
        runs_of(known.filter(|block| self.is_lacking(*block)), most)
    }

    /// The runs in a run of which the core lacks something, or may lack it after a power cut, or
    /// which the cache has lost.
    pub fn unsafe_in(&self, run: BlockRun) -> Vec<BlockRun> {
        let known = self.known_in(run).into_iter();
        runs_of(known.filter(|block| !self.is_settled(*block)), u64::MAX)
    }

    /// Whether the core lacks what is newest of a block, or the cache has lost it.
    pub fn is_lacking(&self, block: CoreBlock) -> bool {
        let newest = self.map.newest(block);
        newest.is_some_and(|it| it.target == State::Dirty) || self.lost.contains(&block)
    }

    /// Whether a block is mapped that the core lacks, or may lack after a power cut.
    pub fn is_unsafe_at_core(&self, block: CoreBlock) -> bool {
        self.map.newest(block).is_some_and(|version| version.is_unsafe_at_core())
    }

    /// Whether the core has for good what the cache knows of a block.
    pub fn is_settled(&self, block: CoreBlock) -> bool {
        !self.lost.contains(&block) && !self.is_unsafe_at_core(block)
    }

    /// The published blocks of a run whose parity is not to be trusted, ascending.
    pub fn replayed_in(&self, run: BlockRun) -> Vec<CoreBlock> {
        if self.map.counts().replayed == 0 {
            return Vec::new();
        }
        let needs_parity = |block: &CoreBlock| {
            let version = self.map.published(*block);
            version.is_some_and(|version| version.marks.contains(Marks::REPLAYED))
        };
        self.mapped_in(run).into_iter().filter(needs_parity).collect()
    }

    /// All blocks whose parity is not to be trusted, in no order.
    pub fn replayed(&self) -> impl Iterator<Item = CoreBlock> + '_ {
        let none = self.map.counts().replayed == 0;
        let blocks = (!none).then(|| self.map.dirty_blocks()).into_iter().flatten();
        blocks.filter(|block| {
            let version = self.map.published(*block);
            version.is_some_and(|version| version.marks.contains(Marks::REPLAYED))
        })
    }

    /// All blocks that wait for the cleaner, or will soon, in no order.
    pub fn dirty(&self) -> impl Iterator<Item = CoreBlock> + '_ {
        self.map.dirty_blocks()
    }

    /// A block has been chosen past the index, which need not name its region for it.
    pub fn chosen_past_index(&mut self, block: CoreBlock) {
        let map = &self.map;
        self.dirty.chosen(block, |run| {
            let mut is_any = false;
            map.each_waiting(&[run], |_| is_any = true);
            is_any
        });
    }

    /// Has the indexes name what is dirty next, each for as long as there may be something.
    #[inline]
    pub fn name_dirty(&mut self) {
        if self.replayed.wants_names() || self.dirty.wants_names() {
            self.name_next();
        }
    }

    fn name_next(&mut self) {
        let map = &self.map;
        // A block may have paid its debt since it was noted, and waits there all the same.
        for index in [&mut self.replayed, &mut self.dirty] {
            while index.wants_names() {
                match index.gathers() {
                    true => index.gather(map.dirty_blocks()),
                    false => index.enter(|runs, names| map.each_waiting(runs, |it| names.push(it))),
                }
            }
        }
    }

    /// Whether the cache holds a block or has lost it: in both cases what the core has is not the
    /// answer.
    pub fn knows(&self, block: CoreBlock) -> bool {
        self.map.newest(block).is_some() || self.lost.contains(&block)
    }

    /// Whether a block of the run is damaged.
    pub fn is_lost_in(&self, run: BlockRun) -> bool {
        !self.lost.is_empty() && self.lost_in(run).next().is_some()
    }

    fn lost_in(&self, run: BlockRun) -> impl Iterator<Item = CoreBlock> {
        self.lost.range(run.first..run.end()).copied()
    }

    /// What a request gets that would have to know what was in a damaged block.
    pub fn loss_in(&self, run: BlockRun, cache: &dyn BlockDevice) -> Outcome {
        match self.is_lost_in(run) {
            true => Err(DeviceError::new(cache.name(), Cause::Media { range: run.range() })),
            false => Ok(()),
        }
    }
}

/// Blocks that ascend as runs of at most so many.
fn runs_of(blocks: impl Iterator<Item = CoreBlock>, most: u64) -> Vec<BlockRun> {
    let mut runs: Vec<BlockRun> = Vec::new();
    for block in blocks {
        match runs.last_mut() {
            Some(last) if last.end() == block && last.count < most => last.count += 1,
            _ => runs.push(BlockRun { first: block, count: 1 }),
        }
    }
    runs
}
