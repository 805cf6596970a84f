//! S3-FIFO: a small queue, a main one, and ghosts of the small one.
//!
//! A line is inserted into the small queue. At its end it moves to the main one after more than one
//! hit, else it is evicted and becomes a ghost: a ghost hit is inserted into the main queue. At the
//! end of the main queue a line is reinserted once for each hit.
//!
//! **Source**: Yang, Zhang, Qiu, Yue and Vinayak, *FIFO queues are all you need for cache
//! eviction*, SOSP '23, algorithm 1: a tenth of the capacity for the small queue, two bits of
//! frequency, which are cleared on the way into the main queue; as many ghosts as the main queue
//! has places, which are not removed when they are hit (section 4.2). Added here are invalidated
//! mappings: their entries stay in the queue and are skipped, unless the line was inserted again.

use super::ghost::Ghosts;
use super::lanes::{Lane, Lanes};
use super::{
    Group, Heat, Held, Hits, Policy, PolicyMemory, Queued, Residents, entries_max, residents_in,
};
use crate::types::CoreLine;

/// Share of the small queue.
pub const SMALL_PERCENT: u64 = 10;
/// Hits in the small queue above which a line goes on to the main one.
pub const ONCE_MORE: u8 = 1;

pub struct S3Fifo {
    capacity: u64,
    lanes: Lanes,
    /// Two for each group, whose shares are those of what the group holds.
    queues: Box<[Queues]>,
    ghosts: Ghosts,
}

struct Queues {
    small: Lane,
    main: Lane,
}

impl S3Fifo {
    pub fn new(capacity: u64, core_lines: u64, groups: usize) -> Self {
        let new = |_| Queues { small: Lane::new(), main: Lane::new() };
        Self {
            capacity,
            lanes: Lanes::new(entries_max(capacity), 2 * groups as u64, core_lines),
            queues: (0..groups).map(new).collect(),
            ghosts: Ghosts::new(main_max(capacity), core_lines),
        }
    }

    /// The group that has more to pass over than any other, and whether that is in its small queue.
    fn untidiest(&self, residents: &dyn Residents) -> (Group, bool) {
        let (mut found, mut most) = ((Group::FIRST, true), 0);
        for (group, queues) in (0..).map(Group).zip(&self.queues) {
            let held = residents.held(group);
            let (small, main) = (queues.small.len() - held.small(), queues.main.len() - held.main);
            if small.max(main) > most {
                (found, most) = ((group, small >= main), small.max(main));
            }
        }
        found
    }

    fn evict_from_small(&mut self, group: Group, held: Held, residents: &mut dyn Residents) {
        let main_max = main_max(held.all);
        while let Some(line) = self.lanes.pop(&mut self.queues[group.index()].small) {
            let heat = residents.change(line, group, at_end_of_small);
            if !heat.is_resident() || heat.is_in_main() {
                continue;
            }
            if at_end_of_small(heat) == Heat::NONE {
                self.ghosts.insert(line);
                return self.prefetch_next(group, residents);
            }
            self.lanes.push(&mut self.queues[group.index()].main, line);
            if residents.held(group).main > main_max {
                self.evict_from_main(group, residents);
            }
        }
    }

    /// Whoever is next in the small queue will be asked about when it is its turn, and the one
    /// behind it later.
    fn prefetch_next(&self, group: Group, residents: &dyn Residents) {
        let queue = &self.queues[group.index()].small;
        if let Some(next) = self.lanes.ahead(queue, 0) {
            residents.prefetch(next, 1);
            self.ghosts.prefetch(next);
        }
        if let Some(later) = self.lanes.ahead(queue, 1) {
            residents.prefetch(later, 0);
        }
    }

    fn evict_from_main(&mut self, group: Group, residents: &mut dyn Residents) {
        let queue = &mut self.queues[group.index()].main;
        while let Some(line) = self.lanes.pop(queue) {
            let heat = residents.change(line, group, at_end_of_main);
            if !heat.is_in_main() {
                continue;
            }
            if at_end_of_main(heat) == Heat::NONE {
                return;
            }
            self.lanes.push(queue, line);
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

    /// In the queue that has more of those to pass over.
    fn tidy(&mut self, residents: &dyn Residents) {
        let (group, is_small) = self.untidiest(residents);
        let Queues { small, main } = &mut self.queues[group.index()];
        let lane = if is_small { small } else { main };
        let oldest = self.lanes.pop(lane).expect("it has entries to pass over");
        let heat = residents.heat(oldest, group);
        if heat.is_resident() && heat.is_in_main() != is_small {
            self.lanes.push(lane, oldest);
        }
    }

    fn shorten(&mut self, residents: &mut dyn Residents) {
        match self.untidiest(residents) {
            (group, true) => self.evict_from_small(group, residents.held(group), residents),
            (group, false) => self.evict_from_main(group, residents),
        }
    }
}

/// What becomes of a line whose entry reaches the end of the small queue.
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

    fn insert(&mut self, line: CoreLine, group: Group, residents: &mut dyn Residents) -> Heat {
        self.make_room(group, residents);
        let Queues { small, main } = &mut self.queues[group.index()];
        let (lane, heat) = match self.ghosts.contains(line) {
            true => (main, Heat::MAIN),
            false => (small, Heat::SMALL),
        };
        self.lanes.push(lane, line);
        heat
    }

    /// To the queue that it was in, as often hit as it was.
    fn insert_again(
        &mut self,
        line: CoreLine,
        group: Group,
        was: Heat,
        residents: &mut dyn Residents,
    ) -> Heat {
        if !was.is_resident() {
            return self.insert(line, group, residents);
        }
        self.make_room(group, residents);
        let Queues { small, main } = &mut self.queues[group.index()];
        self.lanes.push(if was.is_in_main() { main } else { small }, line);
        was
    }

    #[inline]
    fn evict(&mut self, group: Group, residents: &mut dyn Residents) {
        let held = residents.held(group);
        match held.small() * 100 >= held.all * SMALL_PERCENT {
            true => self.evict_from_small(group, held, residents),
            false => self.evict_from_main(group, residents),
        }
    }

    fn prefetch(&self, line: CoreLine) {
        self.ghosts.prefetch(line);
    }

    fn memory(&self) -> PolicyMemory {
        let queues = self.lanes.memory_bytes();
        PolicyMemory { queues, ghosts: self.ghosts.memory_bytes() }
    }

    fn self_check(&self, residents: &dyn Residents) {
        let lanes = self.queues.iter().flat_map(|queues| [&queues.small, &queues.main]);
        self.lanes.self_check(lanes);
        self.ghosts.self_check();
        let is_in_small = |heat: Heat| heat.is_resident() && !heat.is_in_main();
        for (group, Queues { small, main }) in (0..).map(Group).zip(&self.queues) {
            let [small, main] = [small, main].map(|lane| self.lanes.lines(lane));
            let held = residents.held(group);
            let found = residents_in(small, group, residents, is_in_small);
            assert_eq!(found, held.small(), "residents are in the small queue");
            let found = residents_in(main, group, residents, Heat::is_in_main);
            assert_eq!(found, held.main, "residents are in the main queue");
        }
    }
}

/// Places of the main queue.
pub fn main_max(capacity: u64) -> u64 {
    (capacity - capacity * SMALL_PERCENT / 100).max(1)
}
