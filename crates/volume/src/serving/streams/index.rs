//! Finding runs by where they end or start: a hash table with open addressing, small enough for the
//! processor's first caches.
//!
//! **Invariants**
//! - An entry lies at its home, or behind it without an empty place in between.
//! - At most half the places are used, and a quarter under random requests: most looks end where
//!   they begin.

use super::{Direction, RUNS_MAX, Run};

const PLACE_BITS: u32 = 11;
const PLACES: usize = 1 << PLACE_BITS;
const _: () = assert!(PLACES >= 2 * 2 * RUNS_MAX, "two entries for each run");

/// Which end of a run an entry is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    Start,
    End,
}

/// An address, and which way the data goes there, hashed once for all looks and changes.
#[derive(Clone, Copy)]
pub(super) struct Key {
    address: u64,
    direction: Direction,
    hash: u32,
}

/// What a place holds.
///
/// In 32 bits, from the top: the home of the key; more bits of its hash, most of which differ where
/// keys do; the edge; the number of the run.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry(u32);

const RUN_BITS: u32 = 10;
const _: () = assert!(RUNS_MAX < 1 << RUN_BITS);
const EDGE: u32 = 1 << RUN_BITS;

pub(super) struct Index(Box<[Entry; PLACES]>);

impl Key {
    #[inline]
    pub fn new(address: u64, direction: Direction) -> Self {
        // Fibonacci hashing: neighbours are far apart, and the upper bits depend on all others.
        const RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
        let hash = (address ^ direction as u64).wrapping_mul(RATIO);
        Self { address, direction, hash: (hash >> 32) as u32 }
    }

    fn home(self) -> usize {
        (self.hash >> (u32::BITS - PLACE_BITS)) as usize
    }

    fn is_of(self, run: &Run, edge: Edge) -> bool {
        let address = match edge {
            Edge::Start => run.range.start(),
            Edge::End => run.range.end(),
        };
        address == self.address && run.direction == self.direction
    }
}

impl Entry {
    const EMPTY: Self = Self(u32::MAX);
    const HASH: u32 = !(2 * EDGE - 1);

    fn new(key: Key, edge: Edge, run: usize) -> Self {
        Self(Self::tag(key, edge) | run as u32)
    }

    /// All but the run.
    fn tag(key: Key, edge: Edge) -> u32 {
        key.hash & Self::HASH | if edge == Edge::End { EDGE } else { 0 }
    }

    fn home(self) -> usize {
        (self.0 >> (u32::BITS - PLACE_BITS)) as usize
    }

    fn run(self) -> usize {
        (self.0 & (EDGE - 1)) as usize
    }

    fn edge(self) -> Edge {
        if self.0 & EDGE == 0 { Edge::Start } else { Edge::End }
    }

    fn has_tag(self, tag: u32) -> bool {
        self.0 & !(EDGE - 1) == tag
    }
}

impl Default for Index {
    fn default() -> Self {
        Self(Box::new([Entry::EMPTY; PLACES]))
    }
}

impl Index {
    /// The run with this edge there.
    #[inline]
    pub fn find(&self, key: Key, edge: Edge, runs: &[Run]) -> Option<usize> {
        let at = self.place(key, edge, runs)?;
        Some(self.0[at].run())
    }

    /// Inserts where no run with this edge there is found.
    #[inline]
    pub fn insert_new(&mut self, key: Key, edge: Edge, run: usize) {
        let mut at = key.home();
        while self.0[at] != Entry::EMPTY {
            at = after(at);
        }
        self.0[at] = Entry::new(key, edge, run);
    }

    /// Another run with this edge there is found no more.
    #[inline]
    pub fn insert(&mut self, key: Key, edge: Edge, run: usize, runs: &[Run]) {
        match self.place(key, edge, runs) {
            Some(at) => self.0[at] = Entry::new(key, edge, run),
            None => self.insert_new(key, edge, run),
        }
    }

    /// Removes the entry of this run, if it is the one that is found there; whether it was.
    #[inline]
    pub fn remove(&mut self, key: Key, edge: Edge, run: usize) -> bool {
        let entry = Entry::new(key, edge, run);
        let mut at = key.home();
        while self.0[at] != entry {
            if self.0[at] == Entry::EMPTY {
                return false;
            }
            at = after(at);
        }
        // Those behind it that are not at home move up.
        let mut next = after(at);
        while self.0[next] != Entry::EMPTY {
            if distance(self.0[next].home(), next) >= distance(at, next) {
                self.0[at] = self.0[next];
                at = next;
            }
            next = after(next);
        }
        self.0[at] = Entry::EMPTY;
        true
    }

    /// All runs that are found by this edge.
    pub fn runs(&self, edge: Edge) -> impl Iterator<Item = usize> + '_ {
        let used = self.0.iter().filter(|entry| **entry != Entry::EMPTY);
        used.filter(move |entry| entry.edge() == edge).map(|entry| entry.run())
    }

    #[inline]
    fn place(&self, key: Key, edge: Edge, runs: &[Run]) -> Option<usize> {
        let (tag, mut at) = (Entry::tag(key, edge), key.home());
        loop {
            let entry = self.0[at];
            if entry == Entry::EMPTY {
                return None;
            }
            if entry.has_tag(tag) && key.is_of(&runs[entry.run()], edge) {
                return Some(at);
            }
            at = after(at);
        }
    }
}

fn after(at: usize) -> usize {
    (at + 1) % PLACES
}

fn distance(from: usize, to: usize) -> usize {
    (to + PLACES - from) % PLACES
}
