//! S3-FIFO: a small queue, a main one, and a memory of what left the small one.
//!
//! What enters goes into the small queue. At its end it goes on to the main one where it was asked
//! for more than once again, else it leaves, and is remembered: what comes back soon enters the
//! main queue. At the end of the main queue it goes round once for each hit.
//!
//! **Source**: Yang, Zhang, Qiu, Yue and Vinayak, *FIFO queues are all you need for cache
//! eviction*, SOSP '23, algorithm 1: a tenth of the capacity for the small queue, two bits of
//! frequency, which are cleared on the way into the main queue; as many ghosts as the main queue
//! has places, which are not removed when they are hit (section 4.2). Ours adds mappings that end:
//! their entries stay in the queue and are passed over, unless the block is back in it by then.

use super::ghost::Ghosts;
use super::lanes::{Lane, Lanes};
use super::{Heat, Hits, Policy, PolicyMemory, Queued, Residents, entries_max};
use crate::types::CoreBlock;

/// Share of the small queue.
pub const SMALL_PERCENT: u64 = 10;
/// Hits in the small queue above which a block goes on to the main one.
pub const ONCE_MORE: u8 = 1;

pub struct S3Fifo {
    capacity: u64,
    main_max: u64,
    lanes: Lanes,
    small: Lane,
    main: Lane,
    ghosts: Ghosts,
}

impl S3Fifo {
    pub fn new(capacity: u64, core_blocks: u64) -> Self {
        let main_max = main_max(capacity);
        Self {
            capacity,
            main_max,
            lanes: Lanes::new(entries_max(capacity), 2, core_blocks),
            small: Lane::new(),
            main: Lane::new(),
            ghosts: Ghosts::new(main_max, core_blocks),
        }
    }

    fn is_small_untidier(&self, residents: &dyn Residents) -> bool {
        let held = residents.held();
        self.small.len() - held.small() >= self.main.len() - held.main
    }

    fn evict_from_small(&mut self, residents: &mut dyn Residents) {
        while let Some(block) = self.lanes.pop(&mut self.small) {
            let heat = residents.change(block, at_end_of_small);
            if !heat.is_resident() || heat.is_in_main() {
                continue;
            }
            if at_end_of_small(heat) == Heat::NONE {
                return self.ghosts.insert(block);
            }
            self.lanes.push(&mut self.main, block);
            if residents.held().main > self.main_max {
                self.evict_from_main(residents);
            }
        }
    }

    fn evict_from_main(&mut self, residents: &mut dyn Residents) {
        while let Some(block) = self.lanes.pop(&mut self.main) {
            let heat = residents.change(block, at_end_of_main);
            if !heat.is_in_main() {
                continue;
            }
            if at_end_of_main(heat) == Heat::NONE {
                return;
            }
            self.lanes.push(&mut self.main, block);
        }
    }
}

impl Queued for S3Fifo {
    fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn evict(&mut self, residents: &mut dyn Residents) {
        match residents.held().small() * 100 >= self.capacity * SMALL_PERCENT {
            true => self.evict_from_small(residents),
            false => self.evict_from_main(residents),
        }
    }

    /// In the queue that has more of those to pass over.
    fn tidy(&mut self, residents: &dyn Residents) {
        let is_small = self.is_small_untidier(residents);
        let lane = if is_small { &mut self.small } else { &mut self.main };
        let oldest = self.lanes.pop(lane).expect("it has entries to pass over");
        let heat = residents.heat(oldest);
        if heat.is_resident() && heat.is_in_main() != is_small {
            self.lanes.push(lane, oldest);
        }
    }

    fn shorten(&mut self, residents: &mut dyn Residents) {
        match self.is_small_untidier(residents) {
            true => self.evict_from_small(residents),
            false => self.evict_from_main(residents),
        }
    }
}

/// What becomes of a block whose entry reaches the end of the small queue.
fn at_end_of_small(heat: Heat) -> Heat {
    match heat.frequency() {
        _ if heat.is_in_main() => heat,
        0..=ONCE_MORE => Heat::NONE,
        _ => Heat::MAIN,
    }
}

/// The same for the main queue.
fn at_end_of_main(heat: Heat) -> Heat {
    match heat.frequency() {
        _ if !heat.is_in_main() => heat,
        0 => Heat::NONE,
        _ => heat.cooler(),
    }
}

impl Policy for S3Fifo {
    fn hits(&self) -> Hits {
        Hits::Counted
    }

    fn insert(&mut self, block: CoreBlock, residents: &mut dyn Residents) -> Heat {
        self.make_room(residents);
        let (lane, heat) = match self.ghosts.contains(block) {
            true => (&mut self.main, Heat::MAIN),
            false => (&mut self.small, Heat::SMALL),
        };
        self.lanes.push(lane, block);
        heat
    }

    fn memory(&self) -> PolicyMemory {
        let queues = self.lanes.memory_bytes();
        PolicyMemory { queues, ghosts: self.ghosts.memory_bytes() }
    }
}

/// Places of the main queue.
pub fn main_max(capacity: u64) -> u64 {
    (capacity - capacity * SMALL_PERCENT / 100).max(1)
}
