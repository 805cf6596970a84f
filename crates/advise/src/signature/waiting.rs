//! Records that wait until it is known where they belong, in lists.
//!
//! **Invariants**: a record is in one list; places that are given up are used again.

use headpond_trace::TraceRecord;

const NONE: u32 = u32::MAX;

/// All lists.
#[derive(Debug)]
pub(crate) struct Waiting {
    nodes: Vec<Node>,
    free: u32,
}

#[derive(Debug)]
struct Node {
    record: TraceRecord,
    next: u32,
}

/// One list, in the order in which its records came. Whoever drops it forgets them.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct List {
    first: u32,
    last: u32,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: NONE }
    }
}

impl Waiting {
    #[inline]
    pub(crate) fn push(&mut self, list: &mut List, record: TraceRecord) {
        let node = Node { record, next: NONE };
        let at = self.free;
        let at = match self.nodes.get_mut(at as usize) {
            Some(place) => {
                self.free = std::mem::replace(place, node).next;
                at
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        self.append(list, List { first: at, last: at });
    }

    /// Puts one list behind another.
    #[inline]
    pub(crate) fn append(&mut self, list: &mut List, other: List) {
        match self.nodes.get_mut(list.last as usize) {
            Some(last) => last.next = other.first,
            None => list.first = other.first,
        }
        if other.last != NONE {
            list.last = other.last;
        }
    }

    /// Takes all records of a list out.
    #[inline]
    pub(crate) fn drain(&mut self, list: List, mut take: impl FnMut(&TraceRecord)) {
        let mut at = list.first;
        while at != NONE {
            let node = &mut self.nodes[at as usize];
            take(&node.record);
            let next = std::mem::replace(&mut node.next, self.free);
            self.free = at;
            at = next;
        }
    }
}

impl List {
    pub(crate) fn new() -> Self {
        Self { first: NONE, last: NONE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_trace::Op;

    fn drained(waiting: &mut Waiting, list: List) -> Vec<u64> {
        let mut times = Vec::new();
        waiting.drain(list, |record| times.push(record.issued_ns));
        times
    }

    #[test]
    fn lists_keep_their_order_when_they_are_joined_and_their_places_are_used_again() {
        let mut waiting = Waiting::default();
        for _ in 0..3 {
            let (mut one, mut other, mut empty) = (List::new(), List::new(), List::new());
            for at_ns in 0..6 {
                let list = if at_ns % 2 == 0 { &mut one } else { &mut other };
                waiting.push(list, TraceRecord::new(at_ns, Op::Read, 0, 512));
            }
            waiting.append(&mut one, other);
            waiting.append(&mut one, List::new());
            waiting.append(&mut empty, one);
            waiting.push(&mut empty, TraceRecord::new(9, Op::Read, 0, 512));
            assert_eq!(drained(&mut waiting, empty), [0, 2, 4, 1, 3, 5, 9]);
            assert!(drained(&mut waiting, List::new()).is_empty());
        }
        assert_eq!(waiting.nodes.len(), 7);
    }
}
