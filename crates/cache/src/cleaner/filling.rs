//! Clean blocks that are written along with dirty ones.
//!
//! The core has them already, so writing them again changes nothing; but two runs with a cached
//! block between them leave in one write instead of two, and a stripe that is all there needs
//! nothing read for its parity.
//!
//! **Invariants**
//! - A clean block is written only while it is the version that readers get, under the lock on it:
//!   what the core has is overwritten by itself.
//! - Nothing but dirty blocks changes its state by such a write.

use crate::engine::Engine;
use crate::line_map::{State, Version};
use crate::log::Log;
use crate::types::CoreBlock;
use headpond_block::BLOCK_BYTES;

/// Longest gap that is closed: longer ones cost the disks more than a second write does.
const GAP_BLOCKS_MAX: u64 = 16;

impl Engine {
    /// Puts the clean blocks between a batch and `next` into the batch, if they are all there.
    pub(super) fn close_gap(&self, log: &Log, batch: &mut Vec<Version>, next: CoreBlock) -> bool {
        let end = batch[batch.len() - 1].block.0 + 1;
        let fits = next.0 > end && next.0 - end <= GAP_BLOCKS_MAX;
        if !fits || !self.is_within_one_write(batch[0].block, next) {
            return false;
        }
        let Some(clean) = clean_blocks(log, end..next.0) else { return false };
        batch.extend(clean);
        true
    }

    /// Completes a batch to its stripe, where half of it is dirty and the rest cached.
    pub(super) fn complete_stripe(&self, log: &Log, batch: &mut Vec<Version>) {
        let Some(stripe) = self.core.geometry().stripe else { return };
        let blocks = (u64::from(stripe.width_bytes) / BLOCK_BYTES).max(1);
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
        batch.splice(0..0, before);
        batch.extend(after);
    }

    /// What of a batch is still to be written, as runs without gaps that begin and end with dirty
    /// blocks, or are whole stripes.
    pub(super) fn groups(&self, batch: &[Version]) -> Vec<Vec<Version>> {
        let mut groups: Vec<Vec<Version>> = Vec::new();
        for version in batch.iter().filter_map(|version| self.still_there(version)) {
            match groups.last_mut() {
                Some(group) if group[group.len() - 1].block.0 + 1 == version.block.0 => {
                    group.push(version);
                }
                _ => groups.push(vec![version]),
            }
        }
        groups.iter_mut().for_each(|group| self.trim(group));
        groups.retain(|group| !group.is_empty());
        groups
    }

    fn trim(&self, group: &mut Vec<Version>) {
        let is_dirty = |version: &Version| version.state == State::Dirty;
        let Some(first) = group.iter().position(is_dirty) else { return group.clear() };
        let width = self.core.geometry().stripe.map(|stripe| u64::from(stripe.width_bytes));
        if width == Some(group.len() as u64 * BLOCK_BYTES) {
            return;
        }
        let last = group.iter().rposition(is_dirty).expect("there is one");
        group.truncate(last + 1);
        group.drain(..first);
    }

    /// A version of a batch as it is now, where its contents are still those of the block.
    fn still_there(&self, version: &Version) -> Option<Version> {
        let log = self.log.borrow();
        let now = log.map.version(version.slot);
        let is_wanted = match version.state {
            State::Dirty => now.state == State::Dirty,
            _ => matches!(now.state, State::Written | State::Clean),
        };
        match now.block == version.block && is_wanted {
            true => Some(now),
            // Superseded, and next in order all the same.
            false => log.kept_version(version),
        }
    }
}

/// The clean versions of some blocks, where all of them are cached and nothing newer is under way.
fn clean_blocks(log: &Log, blocks: std::ops::Range<u64>) -> Option<Vec<Version>> {
    let clean = |block| {
        let version = log.map.newest(CoreBlock(block))?;
        matches!(version.state, State::Written | State::Clean).then_some(version)
    };
    blocks.map(clean).collect()
}
