//! Cleaning for writes that wait for space, in addition to the policy.
//!
//! A policy that works in rounds may pause for long, or be busy with a round that takes seconds. To
//! free space in the meantime, some of the oldest blocks are cleaned in a batch, one batch at a
//! time.
//!
//! **Source**: Open CAS cleans 32 cache lines of the tail of its list of the least recently used
//! when nothing can be evicted (`OCF_EVICTION_CLEAN_SIZE`). Here they are the blocks written
//! longest ago, which is the order of the log: this leaves the least for reclaim to copy.

use super::batches::Task;
use crate::cleaning::{Age, DirtyData, Walk};
use crate::engine::Engine;
use crate::line_map::Version;
use crate::types::CoreBlock;
use std::cell::Cell;
use std::rc::Rc;

const BLOCKS: usize = 32;
/// What lies side by side goes in one write, and counts as one: a cache that is full of streams
/// gives room as fast as the core takes them.
const BLOCKS_SIDE_BY_SIDE: usize = 2048;

/// Where the relief is.
#[derive(Default)]
pub(super) struct Relief {
    is_wanted: Cell<bool>,
    /// Writes on their way to the core.
    pub in_flight: Cell<u32>,
    /// How far the log was walked.
    walked: Cell<Age>,
}

impl Engine {
    /// A write has found no room.
    pub(crate) fn want_relief(&self) {
        self.cleaning.relief.is_wanted.set(true);
        self.cleaning_wanted.notify_all();
    }

    /// Begins another go, where one is wanted and none is under way.
    pub(super) fn relieve(self: &Rc<Self>) {
        let relief = &self.cleaning.relief;
        let is_wanted = relief.is_wanted.take() || self.queue.len() > 0;
        if !self.cleaning.policy.borrow().wants_relief() || self.is_resting() {
            return;
        }
        let in_flight = relief.in_flight.get();
        if in_flight as usize > BLOCKS / 2 {
            // Who wanted it meanwhile is not forgotten.
            return relief.is_wanted.set(is_wanted);
        }
        // Where there is room but for what the core has to flush first, more would not help.
        // Nobody gets by who is first in the queue and finds too little.
        let needed = self.queue.first_blocks().max(BLOCKS as u64);
        if !is_wanted || self.log.borrow().has_room_after_flush(needed) {
            return;
        }
        let batches = self.reach().join(self.choose_oldest().into_iter());
        relief.in_flight.set(in_flight + batches.len() as u32);
        let begun = batches.into_iter().map(|batch| self.begun(Task::Relieve, batch)).collect();
        self.begin(begun);
    }

    fn choose_oldest(&self) -> Vec<Version> {
        let mut walked = self.cleaning.relief.walked.get();
        let mut log = self.log.borrow_mut();
        let head = log.age_now();
        let mut blocks: Vec<CoreBlock> = Vec::new();
        let (mut runs, mut is_again) = (0, false);
        while runs < BLOCKS && blocks.len() < BLOCKS_SIDE_BY_SIDE {
            let more = log.oldest(&mut walked, head, Walk::of(BLOCKS));
            if more.is_empty() {
                if is_again || !blocks.is_empty() {
                    break;
                }
                // Perhaps something behind has become dirty again.
                (walked, is_again) = (Age::default(), true);
            }
            for block in more {
                runs += usize::from(blocks.last().is_none_or(|last| last.0 + 1 != block.0));
                blocks.push(block);
            }
        }
        self.cleaning.relief.walked.set(walked);
        blocks.sort_unstable();
        blocks.into_iter().filter_map(|block| super::guide::choose(&mut log, block)).collect()
    }

    /// One of the writes has ended.
    pub(super) fn note_relief(&self) {
        let left = self.cleaning.relief.in_flight.get() - 1;
        self.cleaning.relief.in_flight.set(left);
    }
}
