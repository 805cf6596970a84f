//! Queues of block numbers that share one piece of memory, which is taken once.
//!
//! **Not here**: which of the blocks still are resident.

use crate::types::CoreBlock;

const NONE: u32 = u32::MAX;
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
    /// Bytes of an entry: as few as name every block of the core.
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
    pub fn new(len_max: u64, lanes: u64, core_blocks: u64) -> Self {
        let wanted = CHUNKS_WANTED * lanes.div_ceil(2);
        let each = (len_max / wanted).clamp(CHUNK_ENTRIES_MIN, CHUNK_ENTRIES_MAX);
        let chunks = len_max.div_ceil(each) + lanes * LOOSE_CHUNKS_PER_LANE;
        let width = (u64::BITS - core_blocks.leading_zeros()).div_ceil(8).max(1) as usize;
        let chunks = u32::try_from(chunks).expect("a slice has fewer places");
        let next = (1..=chunks).map(|next| if next < chunks { next } else { NONE });
        Self {
            bytes: vec![0; chunks as usize * each as usize * width].into(),
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
    pub fn push(&mut self, lane: &mut Lane, block: CoreBlock) {
        assert!(!self.is_full(), "more entries than there is memory for");
        if lane.back.chunk == NONE || lane.back.entry == self.chunk_entries {
            let chunk = self.free;
            assert!(chunk != NONE, "chunks for as many entries as there may be");
            self.free = std::mem::replace(&mut self.next[chunk as usize], NONE);
            match lane.back.chunk {
                NONE => lane.front = Place { chunk, entry: 0 },
                last => self.next[last as usize] = chunk,
            }
            lane.back = Place { chunk, entry: 0 };
        }
        let at = self.offset(lane.back);
        self.bytes[at..at + self.width].copy_from_slice(&block.0.to_le_bytes()[..self.width]);
        lane.back.entry += 1;
        (lane.len, self.len) = (lane.len + 1, self.len + 1);
    }

    pub fn pop(&mut self, lane: &mut Lane) -> Option<CoreBlock> {
        let block = self.front(lane)?;
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
        Some(block)
    }

    /// What would be popped.
    #[inline]
    pub fn front(&self, lane: &Lane) -> Option<CoreBlock> {
        (lane.len > 0).then(|| self.entry(lane.front))
    }

    #[inline]
    fn entry(&self, place: Place) -> CoreBlock {
        let (at, mut bytes) = (self.offset(place), [0; 8]);
        bytes[..self.width].copy_from_slice(&self.bytes[at..at + self.width]);
        CoreBlock(u64::from_le_bytes(bytes))
    }

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
                    let block = CoreBlock((index as u64) << 23);
                    lanes.push(&mut ours[lane], block);
                    twins[lane].push_back(block);
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
        for (core_blocks, bytes) in [(1 << 20, 3), ((1 << 24) - 1, 3), (1 << 31, 4), (1 << 35, 5)] {
            let lanes = Lanes::new(1 << 20, 2, core_blocks);
            let each = lanes.memory_bytes() as f64 / f64::from(1 << 20);
            let bytes = f64::from(bytes);
            assert!(each >= bytes && each < bytes * 1.02, "{each} for {core_blocks} blocks");
        }
    }
}
