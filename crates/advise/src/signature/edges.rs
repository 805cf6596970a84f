//! Runs by the place where they begin or end.
//!
//! A hash table of chains; a run has a *seat*, which is its place in every table here.
//!
//! **Invariants**: no two entries have the same edge, and a seat has one entry at most: none where
//! somebody else has taken its edge.

/// The number of a place that a run takes while it is followed.
pub(crate) type Seat = u16;

const NOBODY: Seat = Seat::MAX;

/// Seats: more than the runs that are followed.
pub(crate) const SEATS: usize = 1024;

/// Chains: eight for each run that is followed.
const CHAINS: usize = 4096;

/// A place where a run begins or ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edge {
    offset_bytes: u64,
    /// Device and direction.
    way: u32,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Edges {
    heads: Box<[Seat; CHAINS]>,
    /// By seat.
    entries: Box<[Entry; SEATS]>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    edge: Edge,
    next: Seat,
    /// Its chain, or nobody's.
    chain: u16,
}

const _: () = assert!(SEATS < NOBODY as usize);
const _: () = assert!(CHAINS < NOBODY as usize);

impl Default for Edges {
    fn default() -> Self {
        let nothing = Entry { edge: Edge::default(), next: NOBODY, chain: NOBODY };
        Self { heads: Box::new([NOBODY; CHAINS]), entries: Box::new([nothing; SEATS]) }
    }
}

impl Edges {
    #[inline]
    pub(crate) fn get(&self, edge: Edge) -> Option<Seat> {
        let mut seat = self.heads[edge.chain()];
        while seat != NOBODY {
            let entry = &self.entries[usize::from(seat)];
            if entry.edge == edge {
                return Some(seat);
            }
            seat = entry.next;
        }
        None
    }

    /// Takes the entry of an edge out.
    #[inline]
    pub(crate) fn take(&mut self, edge: Edge) -> Option<Seat> {
        let seat = self.get(edge)?;
        self.release(seat);
        Some(seat)
    }

    /// The edge is of this seat, whosever it was. The seat must have no entry.
    #[inline]
    pub(crate) fn insert(&mut self, edge: Edge, seat: Seat) {
        self.take(edge);
        self.link(edge, seat);
    }

    /// The edge is of this seat, unless it is somebody's. The seat must have no entry.
    #[inline]
    pub(crate) fn insert_if_free(&mut self, edge: Edge, seat: Seat) {
        if self.get(edge).is_none() {
            self.link(edge, seat);
        }
    }

    /// Takes the entry of a seat out, where it has one.
    #[inline]
    pub(crate) fn release(&mut self, seat: Seat) {
        let entry = &mut self.entries[usize::from(seat)];
        let (next, chain) = (entry.next, std::mem::replace(&mut entry.chain, NOBODY));
        if chain == NOBODY {
            return;
        }
        let head = &mut self.heads[usize::from(chain)];
        if *head == seat {
            *head = next;
            return;
        }
        let mut before = usize::from(*head);
        while self.entries[before].next != seat {
            before = usize::from(self.entries[before].next);
        }
        self.entries[before].next = next;
    }

    #[inline]
    fn link(&mut self, edge: Edge, seat: Seat) {
        let entry = &mut self.entries[usize::from(seat)];
        assert!(entry.chain == NOBODY, "a seat has one entry");
        let chain = edge.chain();
        let next = std::mem::replace(&mut self.heads[chain], seat);
        *entry = Entry { edge, next, chain: chain as u16 };
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.heads.iter().all(|&seat| seat == NOBODY)
    }
}

impl Edge {
    #[inline]
    pub(crate) fn new(device: u16, is_write: bool, offset_bytes: u64) -> Self {
        Self { offset_bytes, way: u32::from(device) << 1 | u32::from(is_write) }
    }

    /// Further along the same way.
    #[inline]
    pub(crate) fn at(self, offset_bytes: u64) -> Self {
        Self { offset_bytes, ..self }
    }

    #[inline]
    fn chain(self) -> usize {
        let mixed = self.offset_bytes ^ u64::from(self.way).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - CHAINS.ilog2())) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn edges_are_found_as_in_a_map(
            // Few offsets and few seats, so that they meet.
            steps in prop::collection::vec((0u8..4, 0usize..30, 0u16..20), 0..400),
        ) {
            // All are in one of three chains.
            let is_near = |&offset: &u64| Edge::new(0, false, offset).chain() < 3;
            let offsets: Vec<u64> = (0..).filter(is_near).take(30).collect();
            let (mut ours, mut map) = (Edges::default(), HashMap::new());
            for (step, at, seat) in steps {
                let offset_bytes = offsets[at];
                let edge = Edge::new(0, seat % 2 == 0, offset_bytes);
                let key = (offset_bytes, seat % 2 == 0);
                let is_seated = map.values().any(|&other| other == seat);
                match step {
                    0 => prop_assert_eq!(ours.take(edge), map.remove(&key)),
                    1 if !is_seated => {
                        ours.insert(edge, seat);
                        map.insert(key, seat);
                    }
                    2 if !is_seated => {
                        ours.insert_if_free(edge, seat);
                        map.entry(key).or_insert(seat);
                    }
                    _ => {
                        ours.release(seat);
                        map.retain(|_, other| *other != seat);
                    }
                }
                prop_assert_eq!(ours.get(edge), map.get(&key).copied());
                prop_assert_eq!(ours.is_empty(), map.is_empty());
            }
        }
    }
}
