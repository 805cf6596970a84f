//! First in, first out: what entered longest ago leaves, whatever it was asked for.

use super::lanes::{Lane, Lanes};
use super::{Heat, Hits, Policy, PolicyMemory, Queued, Residents, cold, entries_max};
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
}

impl Queued for Fifo {
    fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

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

    fn shorten(&mut self, residents: &mut dyn Residents) {
        self.evict(residents);
    }
}

impl Policy for Fifo {
    fn hits(&self) -> Hits {
        Hits::Counted
    }

    fn insert(&mut self, block: CoreBlock, residents: &mut dyn Residents) -> Heat {
        self.make_room(residents);
        self.lanes.push(&mut self.queue, block);
        Heat::SMALL
    }

    fn memory(&self) -> PolicyMemory {
        PolicyMemory { queues: self.lanes.memory_bytes(), ghosts: 0 }
    }
}
