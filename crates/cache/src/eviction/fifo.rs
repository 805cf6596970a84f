//! First in, first out: what entered longest ago leaves, whatever it was asked for.

use super::lanes::{Lane, Lanes};
use super::{Heat, Hits, Policy, PolicyMemory, Residents, cold, entries_max};
use crate::types::CoreBlock;

pub struct Fifo {
    capacity: u64,
    lanes: Lanes,
    queue: Lane,
}

impl Fifo {
    pub fn new(capacity: u64, core_blocks: u64) -> Self {
        let lanes = Lanes::new(entries_max(capacity), 1, core_blocks);
        Self { capacity, lanes, queue: Lane::new() }
    }

    /// Passes over an entry whose mapping ended, or puts one back that is in use.
    fn tidy(&mut self, residents: &dyn Residents) {
        let oldest = self.lanes.pop(&mut self.queue).expect("a full queue");
        if residents.heat(oldest).is_resident() {
            self.lanes.push(&mut self.queue, oldest);
        }
    }

    fn evict(&mut self, residents: &mut dyn Residents) {
        let oldest = self.lanes.pop(&mut self.queue).expect("residents are in the queue");
        residents.change(oldest, cold);
    }
}

impl Policy for Fifo {
    fn hits(&self) -> Hits {
        Hits::Counted
    }

    fn insert(&mut self, block: CoreBlock, residents: &mut dyn Residents) -> Heat {
        while residents.held().all >= self.capacity {
            self.evict(residents);
        }
        let mut turns = self.lanes.len();
        while self.lanes.is_full() {
            match turns {
                // Entries of one block that came and ended again and again, and is here now.
                0 => self.evict(residents),
                _ => self.tidy(residents),
            }
            turns = turns.saturating_sub(1);
        }
        self.lanes.push(&mut self.queue, block);
        Heat::SMALL
    }

    fn memory(&self) -> PolicyMemory {
        PolicyMemory { queues: self.lanes.memory_bytes(), ghosts: 0 }
    }
}
