//! ARC: a list of what was asked for once and one of what was asked for again, whose sizes follow
//! from which of them would have needed more room.
//!
//! **Source**: Megiddo and Modha, *ARC: a self-tuning, low overhead replacement cache*, FAST '03,
//! figure 4; its target moves by whole blocks, the quotient of the ghost lists rounded down. Ours
//! adds mappings that end: they leave their list, and while there is room nothing is replaced.

use super::directory::Directory;
use super::{Heat, Hits, Policy, PolicyMemory, Residents, cold};
use crate::types::CoreBlock;

/// Resident, asked for once.
const T1: usize = 0;
/// Resident, asked for again.
const T2: usize = 1;
/// Not resident any more; were in `T1`, and in `T2`.
const B1: usize = 2;
const B2: usize = 3;

pub struct Arc {
    capacity: u64,
    /// How many of the residents should be in `T1`.
    target: u64,
    directory: Directory<4>,
}

impl Arc {
    pub fn new(capacity: u64) -> Self {
        Self { capacity, target: 0, directory: Directory::new(2 * capacity) }
    }

    fn len(&self, list: usize) -> u64 {
        self.directory.len(list)
    }

    /// Makes room for a block by moving another one to the ghosts.
    fn replace(&mut self, is_in_b2: bool, residents: &mut dyn Residents) {
        let once = self.len(T1);
        if once + self.len(T2) < self.capacity {
            return;
        }
        let is_once = once > self.target || is_in_b2 && once == self.target && once > 0;
        let (list, ghosts) = if is_once || self.len(T2) == 0 { (T1, B1) } else { (T2, B2) };
        let (at, victim) = self.directory.oldest(list).expect("a full cache holds something");
        self.directory.renew(at, ghosts);
        residents.change(victim, cold);
    }

    /// Room in the lists for a block that is in none.
    fn make_room(&mut self, residents: &mut dyn Residents) {
        let first = self.len(T1) + self.len(B1);
        if first == self.capacity {
            if self.len(T1) < self.capacity {
                self.forget(B1);
                self.replace(false, residents);
            } else {
                let victim = self.forget(T1);
                residents.change(victim, cold);
            }
            return;
        }
        let all = first + self.len(T2) + self.len(B2);
        if all >= self.capacity {
            if all == 2 * self.capacity {
                self.forget(B2);
            }
            self.replace(false, residents);
        }
    }

    fn forget(&mut self, list: usize) -> CoreBlock {
        let (at, block) = self.directory.oldest(list).expect("a list that is not empty");
        self.directory.remove(at);
        block
    }
}

impl Policy for Arc {
    fn hits(&self) -> Hits {
        Hits::Ordered
    }

    fn insert(&mut self, block: CoreBlock, residents: &mut dyn Residents) -> Heat {
        let Some(at) = self.directory.find(block) else {
            self.make_room(residents);
            self.directory.push(T1, block);
            return Heat::SMALL;
        };
        let (once, again) = (self.len(B1), self.len(B2));
        let is_in_b2 = self.directory.list_of(at) == B2;
        self.target = match is_in_b2 {
            false => (self.target + (again / once).max(1)).min(self.capacity),
            true => self.target.saturating_sub((once / again).max(1)),
        };
        self.replace(is_in_b2, residents);
        self.directory.renew(at, T2);
        Heat::SMALL
    }

    fn hit(&mut self, block: CoreBlock) {
        let at = self.directory.find(block).expect("a resident block is in a list");
        self.directory.renew(at, T2);
    }

    fn remove(&mut self, block: CoreBlock) {
        if let Some(at) = self.directory.find(block)
            && self.directory.list_of(at) <= T2
        {
            self.directory.remove(at);
        }
    }

    fn memory(&self) -> PolicyMemory {
        let all = self.directory.memory_bytes();
        PolicyMemory { queues: all / 2, ghosts: all - all / 2 }
    }
}
