//! Least recently used: what was asked for longest ago leaves.

use super::directory::Directory;
use super::{Heat, Hits, Policy, PolicyMemory, Residents, cold};
use crate::types::CoreBlock;

const LIST: usize = 0;

pub struct Lru {
    capacity: u64,
    directory: Directory<1>,
}

impl Lru {
    pub fn new(capacity: u64) -> Self {
        Self { capacity, directory: Directory::new(capacity) }
    }
}

impl Policy for Lru {
    fn hits(&self) -> Hits {
        Hits::Ordered
    }

    fn insert(&mut self, block: CoreBlock, residents: &mut dyn Residents) -> Heat {
        if self.directory.len(LIST) == self.capacity {
            let (at, victim) = self.directory.oldest(LIST).expect("a full list");
            self.directory.remove(at);
            residents.change(victim, cold);
        }
        self.directory.push(LIST, block);
        Heat::SMALL
    }

    fn hit(&mut self, block: CoreBlock) {
        let at = self.directory.find(block).expect("a resident block is in the list");
        self.directory.renew(at, LIST);
    }

    fn remove(&mut self, block: CoreBlock) {
        if let Some(at) = self.directory.find(block) {
            self.directory.remove(at);
        }
    }

    fn memory(&self) -> PolicyMemory {
        PolicyMemory { queues: self.directory.memory_bytes(), ghosts: 0 }
    }
}
