//! LRU lists of lines, with look-up by number.

use crate::types::CoreLine;

const NONE: u32 = u32::MAX;
const LIST_SHIFT: u32 = 56;
const LINE_MASK: u64 = (1 << LIST_SHIFT) - 1;

#[derive(Clone, Copy)]
#[repr(C, packed(4))]
struct Node {
    /// The line, and the list that it is in.
    word: u64,
    newer: u32,
    older: u32,
    /// The next one of its bucket, or the next free one.
    next: u32,
}

const _: () = assert!(size_of::<Node>() == 20);

/// A line's place in the directory, as long as it stays there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At(u32);

#[derive(Clone, Copy)]
struct List {
    newest: u32,
    oldest: u32,
    len: u64,
}

pub struct Directory {
    nodes: Box<[Node]>,
    heads: Box<[u32]>,
    free: u32,
    lists: Box<[List]>,
}

impl Directory {
    /// For so many lines in so many lists together.
    pub fn new(capacity: u64, lists: usize) -> Self {
        assert!(lists < 1 << (u64::BITS - LIST_SHIFT));
        let capacity = u32::try_from(capacity).expect("as many as a slice has places, or twice");
        assert!(capacity < NONE);
        let next = |index: u32| if index + 1 < capacity { index + 1 } else { NONE };
        let node = |index| Node { word: 0, newer: NONE, older: NONE, next: next(index) };
        Self {
            nodes: (0..capacity).map(node).collect(),
            heads: vec![NONE; (capacity as usize).next_power_of_two()].into(),
            free: if capacity > 0 { 0 } else { NONE },
            lists: vec![List { newest: NONE, oldest: NONE, len: 0 }; lists].into(),
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.nodes) + size_of_val(&*self.heads)) as u64
    }

    pub fn is_full(&self) -> bool {
        self.free == NONE
    }

    pub fn lists(&self) -> usize {
        self.lists.len()
    }

    pub fn len(&self, list: usize) -> u64 {
        self.lists[list].len
    }

    pub fn find(&self, line: CoreLine) -> Option<At> {
        let mut at = self.heads[self.bucket(line)];
        while at != NONE && self.node(at).word & LINE_MASK != line.0 {
            at = self.node(at).next;
        }
        (at != NONE).then_some(At(at))
    }

    pub fn list_of(&self, at: At) -> usize {
        (self.node(at.0).word >> LIST_SHIFT) as usize
    }

    /// Puts a line that is in no list in front of one.
    ///
    /// # Panics
    /// Where the directory is full.
    pub fn push(&mut self, list: usize, line: CoreLine) {
        let at = self.free;
        assert!(at != NONE, "room for as many as the policy keeps");
        assert!(line.0 <= LINE_MASK);
        self.free = self.node(at).next;
        let bucket = self.bucket(line);
        let (word, next) = (line.0, self.heads[bucket]);
        self.nodes[at as usize] = Node { word, newer: NONE, older: NONE, next };
        self.heads[bucket] = at;
        self.link(list, at);
    }

    /// Moves a line to the front of a list.
    pub fn renew(&mut self, at: At, list: usize) {
        self.unlink(at.0);
        self.link(list, at.0);
    }

    /// The least recently used of a list.
    pub fn oldest(&self, list: usize) -> Option<(At, CoreLine)> {
        let at = self.lists[list].oldest;
        (at != NONE).then(|| (At(at), CoreLine(self.node(at).word & LINE_MASK)))
    }

    pub fn remove(&mut self, At(at): At) {
        self.unlink(at);
        let bucket = self.bucket(CoreLine(self.node(at).word & LINE_MASK));
        let next = self.node(at).next;
        if self.heads[bucket] == at {
            self.heads[bucket] = next;
        } else {
            let mut before = self.heads[bucket];
            while self.node(before).next != at {
                before = self.node(before).next;
            }
            self.nodes[before as usize].next = next;
        }
        self.nodes[at as usize].next = self.free;
        self.free = at;
    }

    /// The lines of a list, the least recently used first.
    pub fn lines(&self, list: usize) -> impl Iterator<Item = CoreLine> {
        let some = |at: u32| (at != NONE).then_some(at);
        let newer = move |at: &u32| some(self.node(*at).newer);
        let chain = std::iter::successors(some(self.lists[list].oldest), newer);
        chain.take(self.nodes.len() + 1).map(|at| CoreLine(self.node(at).word & LINE_MASK))
    }

    /// Checks that each line is found, and in the list that it names; for tests and simulation.
    ///
    /// # Panics
    /// Where one is not.
    pub fn self_check(&self) {
        let mut listed = 0;
        for (index, list) in self.lists.iter().enumerate() {
            assert_eq!(self.lines(index).count() as u64, list.len, "a list is as long as it says");
            let (mut at, mut newer) = (list.newest, NONE);
            while at != NONE {
                let node = self.node(at);
                let line = CoreLine(node.word & LINE_MASK);
                assert_eq!(self.find(line), Some(At(at)), "a line of a list is found");
                assert_eq!(self.list_of(At(at)), index, "a line names its list");
                assert_eq!({ node.newer }, newer, "a list is the same from both ends");
                (listed, newer, at) = (listed + 1, at, node.older);
            }
            assert_eq!(newer, list.oldest, "a list is the same from both ends");
        }
        let next = |at: &u32| Some(self.node(*at).next).filter(|next| *next != NONE);
        let free = std::iter::successors(Some(self.free).filter(|at| *at != NONE), next);
        let free = free.take(self.nodes.len() + 1).count();
        assert_eq!(listed + free, self.nodes.len(), "each place is in a list or free");
    }

    fn node(&self, at: u32) -> Node {
        self.nodes[at as usize]
    }

    fn link(&mut self, list: usize, at: u32) {
        let List { newest, .. } = self.lists[list];
        let node = &mut self.nodes[at as usize];
        node.word = node.word & LINE_MASK | (list as u64) << LIST_SHIFT;
        (node.newer, node.older) = (NONE, newest);
        match newest {
            NONE => self.lists[list].oldest = at,
            newest => self.nodes[newest as usize].newer = at,
        }
        self.lists[list].newest = at;
        self.lists[list].len += 1;
    }

    fn unlink(&mut self, at: u32) {
        let (list, Node { newer, older, .. }) = (self.list_of(At(at)), self.node(at));
        match newer {
            NONE => self.lists[list].newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => self.lists[list].oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
        self.lists[list].len -= 1;
    }

    fn bucket(&self, line: CoreLine) -> usize {
        let hash = line.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32) as usize & (self.heads.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_testkit::{Break, assert_trips};

    #[test]
    fn check_notices_what_is_wrong_with_lists() {
        let make = || {
            let mut directory = Directory::new(16, 2);
            (0..12).for_each(|line| directory.push(line as usize % 2, CoreLine(line)));
            directory
        };
        let breaks: [Break<Directory>; 5] = [
            ("as long as it says", |it| it.lists[0].len -= 1),
            ("is found", |it| it.heads.fill(NONE)),
            ("a line names its list", |it| it.nodes[2].word |= 1 << LIST_SHIFT),
            ("the same from both ends", |it| it.nodes[4].older = 0),
            ("in a list or free", |it| it.free = NONE),
        ];
        assert_trips(make, Directory::self_check, &breaks);
    }
}
