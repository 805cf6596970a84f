//! First in, first out: the line inserted longest ago is evicted, regardless of hits.

use super::lanes::{Lane, Lanes};
use super::{
    Group, Heat, Hits, Policy, PolicyMemory, Queued, Residents, cold, entries_max, residents_in,
};
use crate::types::CoreLine;

pub struct Fifo {
    capacity: u64,
    lanes: Lanes,
    /// One for each group.
    queues: Box<[Lane]>,
}

impl Fifo {
    pub fn new(capacity: u64, core_lines: u64, groups: usize) -> Self {
        let lanes = Lanes::new(entries_max(capacity), groups as u64, core_lines);
        Self { capacity, lanes, queues: (0..groups).map(|_| Lane::new()).collect() }
    }

    /// The group whose queue has the most to pass over.
    fn untidiest(&self, residents: &dyn Residents) -> Group {
        let groups = (0..self.queues.len() as u8).map(Group);
        let spare = |group: &Group| self.queues[group.index()].len() - residents.held(*group).all;
        groups.max_by_key(spare).expect("there is a group")
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
        let group = self.untidiest(residents);
        let queue = &mut self.queues[group.index()];
        let oldest = self.lanes.pop(queue).expect("a full queue");
        if residents.heat(oldest, group).is_resident() {
            self.lanes.push(queue, oldest);
        }
    }

    fn shorten(&mut self, residents: &mut dyn Residents) {
        self.evict(self.untidiest(residents), residents);
    }
}

impl Policy for Fifo {
    fn hits(&self) -> Hits {
        Hits::Counted
    }

    fn insert(&mut self, line: CoreLine, group: Group, residents: &mut dyn Residents) -> Heat {
        self.make_room(group, residents);
        self.lanes.push(&mut self.queues[group.index()], line);
        Heat::SMALL
    }

    fn evict(&mut self, group: Group, residents: &mut dyn Residents) {
        let queue = &mut self.queues[group.index()];
        let oldest = self.lanes.pop(queue).expect("residents are in the queue");
        residents.change(oldest, group, cold);
    }

    fn memory(&self) -> PolicyMemory {
        PolicyMemory { queues: self.lanes.memory_bytes(), ghosts: 0 }
    }

    fn self_check(&self, residents: &dyn Residents) {
        self.lanes.self_check(self.queues.iter());
        for (group, queue) in (0..).map(Group).zip(&self.queues) {
            let found = residents_in(self.lanes.lines(queue), group, residents, Heat::is_resident);
            assert_eq!(found, residents.held(group).all, "residents are in their queue");
        }
    }
}
