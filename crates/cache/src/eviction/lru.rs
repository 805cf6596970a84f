//! Least recently used: the line used longest ago is evicted.

use super::directory::Directory;
use super::{Group, Heat, Hits, Policy, PolicyMemory, Residents, cold, residents_in};
use crate::types::CoreLine;

pub struct Lru {
    capacity: u64,
    /// A list for each group.
    directory: Directory,
}

impl Lru {
    pub fn new(capacity: u64, groups: usize) -> Self {
        Self { capacity, directory: Directory::new(capacity, groups) }
    }
}

impl Policy for Lru {
    fn hits(&self) -> Hits {
        Hits::Ordered
    }

    fn insert(&mut self, line: CoreLine, group: Group, residents: &mut dyn Residents) -> Heat {
        if self.directory.len(group.index()) == self.capacity {
            self.evict(group, residents);
        }
        self.directory.push(group.index(), line);
        Heat::SMALL
    }

    fn evict(&mut self, group: Group, residents: &mut dyn Residents) {
        let (at, victim) = self.directory.oldest(group.index()).expect("residents are in the list");
        self.directory.remove(at);
        residents.change(victim, group, cold);
    }

    fn hit(&mut self, line: CoreLine) {
        let at = self.directory.find(line).expect("a resident line is in the list");
        self.directory.renew(at, self.directory.list_of(at));
    }

    fn remove(&mut self, line: CoreLine) {
        if let Some(at) = self.directory.find(line) {
            self.directory.remove(at);
        }
    }

    fn memory(&self) -> PolicyMemory {
        PolicyMemory { queues: self.directory.memory_bytes(), ghosts: 0 }
    }

    fn self_check(&self, residents: &dyn Residents) {
        self.directory.self_check();
        for (list, group) in (0..self.directory.lists()).zip((0..).map(Group)) {
            let lines = self.directory.lines(list);
            let found = residents_in(lines, group, residents, Heat::is_resident);
            assert_eq!(found, residents.held(group).all, "residents are in their list");
            assert_eq!(found, self.directory.len(list), "nobody else is");
        }
    }
}
