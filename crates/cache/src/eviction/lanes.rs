//! Queues of line numbers that share one piece of memory, which is taken once.
//!
//! **Not here**: which of the lines still are resident.

use crate::types::CoreLine;

const NONE: u32 = u32::MAX;
/// Entries are read and written as words, whatever they take: so much follows the last one.
const WORD_BYTES: usize = size_of::<u64>();
/// Entries of one chunk: few beside all there are, for every two lanes.
const CHUNKS_WANTED: u64 = 64;
const CHUNK_ENTRIES_MIN: u64 = 4;
const CHUNK_ENTRIES_MAX: u64 = 4096;
/// The first and the last chunk of a lane are not full.
const LOOSE_CHUNKS_PER_LANE: u64 = 2;

/// The memory: chunks of entries, each in a lane or free.
pub struct Lanes {
    bytes: Box<[u8]>,
    /// The chunk behind each one, in its lane or among the free ones.
    next: Box<[u32]>,
    free: u32,
    /// Bytes of an entry: as few as name every line of the core.
    width: usize,
    chunk_entries: u32,
    len: u64,
    len_max: u64,
}

/// A place: chunk, and entry within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    chunk: u32,
    entry: u32,
}

/// One queue.
pub struct Lane {
    front: Place,
    /// Behind the last entry.
    back: Place,
    len: u64,
}

impl Lane {
    pub fn new() -> Self {
        let nowhere = Place { chunk: NONE, entry: 0 };
        Self { front: nowhere, back: nowhere, len: 0 }
    }

    pub fn len(&self) -> u64 {
        self.len
    }
}

impl Lanes {
    /// For so many entries in all, in so many lanes.
    pub fn new(len_max: u64, lanes: u64, core_lines: u64) -> Self {
        let wanted = CHUNKS_WANTED * lanes.div_ceil(2);
        let each = (len_max / wanted).clamp(CHUNK_ENTRIES_MIN, CHUNK_ENTRIES_MAX);
        let chunks = len_max.div_ceil(each) + lanes * LOOSE_CHUNKS_PER_LANE;
        let width = (u64::BITS - core_lines.leading_zeros()).div_ceil(8).max(1) as usize;
        let chunks = u32::try_from(chunks).expect("a slice has fewer places");
        let next = (1..=chunks).map(|next| if next < chunks { next } else { NONE });
        Self {
            bytes: vec![0; chunks as usize * each as usize * width + WORD_BYTES].into(),
            next: next.collect(),
            free: 0,
            width,
            chunk_entries: each as u32,
            len: 0,
            len_max,
        }
    }

    pub fn is_full(&self) -> bool {
        self.len >= self.len_max
    }

    /// Entries in all lanes.
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn memory_bytes(&self) -> u64 {
        (self.bytes.len() + size_of_val(&*self.next)) as u64
    }

    /// # Panics
    /// Where the lanes are full.
    #[inline]
    pub fn push(&mut self, lane: &mut Lane, line: CoreLine) {
        assert!(!self.is_full(), "more entries than there is memory for");
        if lane.back.chunk == NONE || lane.back.entry == self.chunk_entries {
            self.open_chunk(lane);
        }
        self.set_entry(self.offset(lane.back), line);
        lane.back.entry += 1;
        (lane.len, self.len) = (lane.len + 1, self.len + 1);
    }

    /// Puts a free chunk behind the last one of a lane.
    fn open_chunk(&mut self, lane: &mut Lane) {
        let chunk = self.free;
        assert!(chunk != NONE, "chunks for as many entries as there may be");
        self.free = std::mem::replace(&mut self.next[chunk as usize], NONE);
        match lane.back.chunk {
            NONE => lane.front = Place { chunk, entry: 0 },
            last => self.next[last as usize] = chunk,
        }
        lane.back = Place { chunk, entry: 0 };
    }

    pub fn pop(&mut self, lane: &mut Lane) -> Option<CoreLine> {
        let line = self.ahead(lane, 0)?;
        (lane.len, self.len) = (lane.len - 1, self.len - 1);
        lane.front.entry += 1;
        if lane.front.entry == self.chunk_entries || lane.front == lane.back {
            let chunk = lane.front.chunk;
            let next = std::mem::replace(&mut self.next[chunk as usize], self.free);
            self.free = chunk;
            match next {
                NONE => *lane = Lane::new(),
                next => lane.front = Place { chunk: next, entry: 0 },
            }
        }
        Some(line)
    }

    /// What would be popped after so many others, where that lies beside the first.
    #[inline]
    pub fn ahead(&self, lane: &Lane, others: u32) -> Option<CoreLine> {
        let entry = lane.front.entry + others;
        let is_there = u64::from(others) < lane.len && entry < self.chunk_entries;
        is_there.then(|| self.entry(Place { entry, ..lane.front }))
    }

    #[inline]
    fn entry(&self, place: Place) -> CoreLine {
        let at = self.offset(place);
        let word: [u8; WORD_BYTES] = self.bytes[at..at + WORD_BYTES].try_into().expect("a word");
        CoreLine(u64::from_le_bytes(word) & self.mask())
    }

    /// Nothing but the entry itself changes.
    #[inline]
    fn set_entry(&mut self, at: usize, line: CoreLine) {
        let mask = self.mask();
        let place: &mut [u8; WORD_BYTES] =
            (&mut self.bytes[at..at + WORD_BYTES]).try_into().expect("a word");
        *place = (u64::from_le_bytes(*place) & !mask | line.0 & mask).to_le_bytes();
    }

    /// The bits of an entry within a word.
    #[inline]
    fn mask(&self) -> u64 {
        u64::MAX >> (u64::BITS - 8 * self.width as u32)
    }

    #[inline]
    fn offset(&self, place: Place) -> usize {
        (place.chunk as usize * self.chunk_entries as usize + place.entry as usize) * self.width
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn lanes_are_queues(steps in prop::collection::vec((0usize..2, any::<bool>()), 1..600)) {
            let mut lanes = Lanes::new(40, 2, 1 << 33);
            let mut ours = [Lane::new(), Lane::new()];
            let mut twins = [VecDeque::new(), VecDeque::new()];
            for (index, (lane, is_push)) in steps.into_iter().enumerate() {
                if is_push && !lanes.is_full() {
                    let line = CoreLine((index as u64) << 23);
                    lanes.push(&mut ours[lane], line);
                    twins[lane].push_back(line);
                } else {
                    prop_assert_eq!(lanes.pop(&mut ours[lane]), twins[lane].pop_front());
                }
                prop_assert_eq!(ours[lane].len(), twins[lane].len() as u64);
                prop_assert_eq!(lanes.is_full(), twins[0].len() + twins[1].len() == 40);
            }
        }
    }

    #[test]
    fn an_entry_takes_as_many_bytes_as_the_core_needs() {
        for (core_lines, bytes) in [(1 << 20, 3), ((1 << 24) - 1, 3), (1 << 31, 4), (1 << 35, 5)] {
            let lanes = Lanes::new(1 << 20, 2, core_lines);
            let each = lanes.memory_bytes() as f64 / f64::from(1 << 20);
            let bytes = f64::from(bytes);
            assert!(each >= bytes && each < bytes * 1.02, "{each} for {core_lines} lines");
        }
    }
}
