//! Clean blocks that are written along with dirty ones.
//!
//! The core has them already, so writing them again changes nothing; but two runs with a cached
//! block between them become one write instead of two, and a completely cached stripe needs no
//! reads for its parity.
//!
//! **Invariants**
//! - A clean block is written only while it is the current version, under the lock on it: the
//!   core's data is overwritten with the same.
//! - Only dirty blocks change their state by such a write.

use super::batches::{Batch, WriteReach};
use super::guide::choose;
use super::writing::Held;
use crate::engine::Engine;
use crate::line_map::{State, Version};
use crate::log::Log;
use crate::types::CoreBlock;
use headpond_block::BLOCK_BYTES;
use smallvec::SmallVec;
use std::ops::Range;

/// Longest gap that is closed: longer ones cost the disks more than a second write does.
const GAP_BLOCKS_MAX: u64 = 16;

impl WriteReach {
    /// Puts the clean blocks between a batch and `next` into the batch, if they are all there.
    pub(super) fn close_gap(&self, log: &Log, batch: &mut Batch, next: CoreBlock) -> bool {
        let end = batch[batch.len() - 1].block.0 + 1;
        let fits = next.0 > end && next.0 - end <= GAP_BLOCKS_MAX;
        if !fits || !self.spans(batch[0].block, next) {
            return false;
        }
        let Some(clean) = clean_blocks(log, end..next.0) else { return false };
        batch.extend(clean);
        true
    }

    /// Takes into a batch what is dirty beside it, with the clean blocks between where they are all
    /// there.
    pub(super) fn take_neighbours(&self, log: &mut Log, batch: &mut Batch) {
        let last = batch[batch.len() - 1].block;
        let mut before = Vec::new();
        let below = (0..batch[0].block.0).rev().map(CoreBlock);
        take_beside(log, below.take_while(|it| self.spans(*it, last)), |it| before.push(it));
        before.reverse();
        batch.insert_many(0, before);
        let first = batch[0].block;
        let above = (last.0 + 1..).map(CoreBlock);
        take_beside(log, above.take_while(|it| self.spans(first, *it)), |it| batch.push(it));
    }

    /// Completes a batch to its stripe, where half of it is dirty and the rest cached.
    pub(super) fn complete_stripe(&self, log: &Log, batch: &mut Batch) {
        let Some(blocks) = self.stripe_blocks else { return };
        let dirty = batch.iter().filter(|version| version.state == State::Dirty).count() as u64;
        if (batch.len() as u64) >= blocks || dirty * 2 < blocks {
            return;
        }
        let first = batch[0].block.0;
        let start = first / blocks * blocks;
        let last = batch[batch.len() - 1].block.0;
        let (Some(before), Some(after)) =
            (clean_blocks(log, start..first), clean_blocks(log, last + 1..start + blocks))
        else {
            return;
        };
        batch.insert_many(0, before);
        batch.extend(after);
    }
}

impl Engine {
    /// What is written next of a batch, from one place in it on: a run without gaps that begins and
    /// ends with a dirty block, or is a whole stripe.
    pub(super) fn next_group(&self, held: &[Held], from: usize) -> Option<Range<usize>> {
        // Where dirty blocks are fragmented, and then there is nothing to look for.
        if let [alone] = held {
            return (from == 0 && alone.is_dirty()).then_some(0..1);
        }
        let mut start = from;
        while start < held.len() {
            let is_gap = |pair: &[Held]| pair[0].version.block.0 + 1 != pair[1].version.block.0;
            let gap = held[start..].windows(2).position(is_gap);
            let end = gap.map_or(held.len(), |gap| start + gap + 1);
            if let Some(group) = self.trim(held, start..end) {
                return Some(group);
            }
            start = end;
        }
        None
    }

    fn trim(&self, held: &[Held], run: Range<usize>) -> Option<Range<usize>> {
        let first = held[run.clone()].iter().position(Held::is_dirty)?;
        let last = held[run.clone()].iter().rposition(Held::is_dirty)?;
        let width = self.core.geometry().stripe.map(|stripe| u64::from(stripe.width_bytes));
        if width == Some(run.len() as u64 * BLOCK_BYTES) {
            return Some(run);
        }
        Some(run.start + first..run.start + last + 1)
    }
}

/// Chooses what is dirty of some blocks, in their order, up to the first that is neither that nor
/// part of a gap that can be closed.
fn take_beside(
    log: &mut Log,
    blocks: impl Iterator<Item = CoreBlock>,
    mut take: impl FnMut(Version),
) {
    let mut gap = SmallVec::<[Version; GAP_BLOCKS_MAX as usize]>::new();
    for block in blocks {
        if let Some(version) = choose(log, block) {
            gap.drain(..).for_each(&mut take);
            take(version);
            continue;
        }
        let clean = log.map.newest(block).filter(|version| is_clean(log, version));
        match clean {
            Some(version) if gap.len() < GAP_BLOCKS_MAX as usize => gap.push(version),
            _ => return,
        }
    }
}

fn is_clean(log: &Log, version: &Version) -> bool {
    matches!(version.state, State::Written | State::Clean) && log.is_whole(version)
}

/// The clean versions of some blocks, where all of them are cached and nothing newer is under way.
fn clean_blocks(log: &Log, blocks: Range<u64>) -> Option<Vec<Version>> {
    let clean = |block| {
        let version = log.map.newest(CoreBlock(block))?;
        is_clean(log, &version).then_some(version)
    };
    blocks.map(clean).collect()
}
