//! ARC: a list of lines used once and one of lines used more often, with sizes that adapt to the
//! ghost hits of each.
//!
//! **Source**: Megiddo and Modha, *ARC: a self-tuning, low overhead replacement cache*, FAST '03,
//! figure 4; its target moves by whole lines, the quotient of the ghost lists rounded down. Added
//! here are invalidated mappings, which leave their list, and while there is space nothing is
//! replaced; and groups, each with its own lists and target, whose ghosts share the memory.

use super::directory::{At, Directory};
use super::{Group, Heat, Hits, Policy, PolicyMemory, Residents, cold, residents_in};
use crate::types::CoreLine;

/// Resident, asked for once.
const T1: usize = 0;
/// Resident, asked for again.
const T2: usize = 1;
/// Not resident any more; were in `T1`, and in `T2`.
const B1: usize = 2;
const B2: usize = 3;
/// Of each group.
const LISTS: usize = 4;

pub struct Arc {
    capacity: u64,
    /// By group: how many of the residents should be in `T1`.
    targets: Box<[u64]>,
    directory: Directory,
}

impl Arc {
    pub fn new(capacity: u64, groups: usize) -> Self {
        let directory = Directory::new(2 * capacity, LISTS * groups);
        Self { capacity, targets: vec![0; groups].into(), directory }
    }

    fn len(&self, group: Group, list: usize) -> u64 {
        self.directory.len(list_of(group, list))
    }

    /// Which list of which group.
    fn place(&self, at: At) -> (Group, usize) {
        let list = self.directory.list_of(at);
        (Group((list / LISTS) as u8), list % LISTS)
    }

    /// Makes room for a line by moving another one to the ghosts.
    fn replace(&mut self, group: Group, is_in_b2: bool, residents: &mut dyn Residents) {
        let once = self.len(group, T1);
        if once + self.len(group, T2) < self.capacity {
            return;
        }
        let target = self.targets[group.index()];
        let is_once = once > target || is_in_b2 && once == target && once > 0;
        self.send_to_ghosts(group, is_once, residents);
    }

    fn send_to_ghosts(&mut self, group: Group, is_once: bool, residents: &mut dyn Residents) {
        let is_once = is_once || self.len(group, T2) == 0;
        let (list, ghosts) = if is_once { (T1, B1) } else { (T2, B2) };
        let oldest = self.directory.oldest(list_of(group, list));
        let (at, victim) = oldest.expect("residents are in the lists");
        self.directory.renew(at, list_of(group, ghosts));
        residents.change(victim, group, cold);
    }

    /// Room in the lists for a line that is in none.
    fn make_room(&mut self, group: Group, residents: &mut dyn Residents) {
        let first = self.len(group, T1) + self.len(group, B1);
        let all = first + self.len(group, T2) + self.len(group, B2);
        if first == self.capacity && self.len(group, T1) < self.capacity {
            self.forget(group, B1);
            self.replace(group, false, residents);
        } else if first == self.capacity {
            let victim = self.forget(group, T1);
            residents.change(victim, group, cold);
        } else if all >= self.capacity {
            if all == 2 * self.capacity {
                self.forget(group, B2);
            }
            self.replace(group, false, residents);
        }
        if self.directory.is_full() {
            self.forget_most();
        }
    }

    /// Where the ghosts of all groups are too many.
    fn forget_most(&mut self) {
        let groups = (0..self.targets.len() as u8).map(Group);
        let lists = groups.flat_map(|group| [(group, B1), (group, B2)]);
        let longest = lists.max_by_key(|&(group, list)| self.len(group, list));
        let (group, list) = longest.expect("there is a group");
        self.forget(group, list);
    }

    fn forget(&mut self, group: Group, list: usize) -> CoreLine {
        let oldest = self.directory.oldest(list_of(group, list));
        let (at, line) = oldest.expect("a list that is not empty");
        self.directory.remove(at);
        line
    }

    /// Moves the target of a group by the ghost of it that was asked for.
    fn learn(&mut self, group: Group, is_in_b2: bool) {
        let (once, again) = (self.len(group, B1), self.len(group, B2));
        let most = match self.targets.len() {
            1 => self.capacity,
            _ => self.len(group, T1) + self.len(group, T2),
        };
        let target = &mut self.targets[group.index()];
        *target = match is_in_b2 {
            false => (*target + (again / once).max(1)).min(most),
            true => target.saturating_sub((once / again).max(1)),
        };
    }
}

fn list_of(group: Group, list: usize) -> usize {
    group.index() * LISTS + list
}

impl Policy for Arc {
    fn hits(&self) -> Hits {
        Hits::Ordered
    }

    fn insert(&mut self, line: CoreLine, group: Group, residents: &mut dyn Residents) -> Heat {
        let ghost = self.directory.find(line);
        if let Some(at) = ghost
            && self.place(at).0 == group
        {
            let is_in_b2 = self.place(at).1 == B2;
            self.learn(group, is_in_b2);
            self.replace(group, is_in_b2, residents);
            self.directory.renew(at, list_of(group, T2));
            return Heat::SMALL.warmer();
        }
        if let Some(at) = ghost {
            // Its class has changed since it left.
            self.directory.remove(at);
        }
        self.make_room(group, residents);
        self.directory.push(list_of(group, T1), line);
        Heat::SMALL
    }

    /// What was hit before was asked for again.
    fn insert_again(
        &mut self,
        line: CoreLine,
        group: Group,
        was: Heat,
        residents: &mut dyn Residents,
    ) -> Heat {
        let heat = self.insert(line, group, residents);
        if was.frequency() == 0 && !was.is_in_main() {
            return heat;
        }
        self.hit(line);
        was.warmer()
    }

    fn evict(&mut self, group: Group, residents: &mut dyn Residents) {
        let is_once = self.len(group, T1) > self.targets[group.index()];
        self.send_to_ghosts(group, is_once, residents);
    }

    fn hit(&mut self, line: CoreLine) {
        let at = self.directory.find(line).expect("a resident line is in a list");
        self.directory.renew(at, list_of(self.place(at).0, T2));
    }

    fn remove(&mut self, line: CoreLine) {
        if let Some(at) = self.directory.find(line)
            && self.place(at).1 <= T2
        {
            self.directory.remove(at);
        }
    }

    fn memory(&self) -> PolicyMemory {
        let all = self.directory.memory_bytes();
        PolicyMemory { queues: all / 2, ghosts: all - all / 2 }
    }

    fn self_check(&self, residents: &dyn Residents) {
        self.directory.self_check();
        for (group, target) in (0..).map(Group).zip(&self.targets) {
            let found = [T1, T2, B1, B2].map(|list| {
                let lines = self.directory.lines(list_of(group, list));
                residents_in(lines, group, residents, Heat::is_resident)
            });
            let is_held = [T1, T2].map(|list| self.len(group, list));
            assert_eq!(found, [is_held[T1], is_held[T2], 0, 0], "residents are in their lists");
            let held = residents.held(group).all;
            assert_eq!(found[T1] + found[T2], held, "residents are in their lists");
            assert!(*target <= self.capacity, "a target is within the capacity");
        }
    }
}
