//! Queues of line numbers in one shared allocation.
//!
//! **Not here**: which of the lines are still resident.

use crate::types::{CoreLine, number_bits};

const NONE: u32 = u32::MAX;
/// Entries are read and written as words, whatever they take: so much follows the last one.
const WORD_BYTES: usize = size_of::<u64>();
/// Entries of one chunk: few beside all there are, for every two lanes.
const CHUNKS_WANTED: u64 = 256;
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
    /// Of an entry: as few as name every line of the core.
    bits: u32,
    chunk_entries: u32,
    len: u64,
    len_max: u64,
}

/// A place: chunk, and entry within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChunkPosition {
    chunk: u32,
    entry: u32,
}

/// One queue.
pub struct Lane {
    front: ChunkPosition,
    /// Behind the last entry.
    back: ChunkPosition,
    len: u64,
}

impl Lane {
    pub fn new() -> Self {
        let nowhere = ChunkPosition { chunk: NONE, entry: 0 };
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
        let bits = number_bits(core_lines).max(1);
        assert!(bits + u8::BITS <= u64::BITS, "an entry lies in one word");
        let chunks = u32::try_from(chunks).expect("a slice has fewer places");
        let next = (1..=chunks).map(|next| if next < chunks { next } else { NONE });
        Self {
            bytes: vec![0; bytes_of(u64::from(chunks) * each, bits) + WORD_BYTES].into(),
            next: next.collect(),
            free: 0,
            bits,
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
        self.set_entry(lane.back, line);
        lane.back.entry += 1;
        (lane.len, self.len) = (lane.len + 1, self.len + 1);
    }

    /// Puts a free chunk behind the last one of a lane.
    fn open_chunk(&mut self, lane: &mut Lane) {
        let chunk = self.free;
        assert!(chunk != NONE, "chunks for as many entries as there may be");
        self.free = std::mem::replace(&mut self.next[chunk as usize], NONE);
        match lane.back.chunk {
            NONE => lane.front = ChunkPosition { chunk, entry: 0 },
            last => self.next[last as usize] = chunk,
        }
        lane.back = ChunkPosition { chunk, entry: 0 };
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
                next => lane.front = ChunkPosition { chunk: next, entry: 0 },
            }
        }
        Some(line)
    }

    /// What would be popped after so many others, where that lies beside the first.
    #[inline]
    pub fn ahead(&self, lane: &Lane, others: u32) -> Option<CoreLine> {
        let entry = lane.front.entry + others;
        let is_there = u64::from(others) < lane.len && entry < self.chunk_entries;
        is_there.then(|| self.entry(ChunkPosition { entry, ..lane.front }))
    }

    /// What is in a queue, first to last.
    ///
    /// # Panics
    /// Where it is not as long as it says, or does not end where it says.
    pub fn lines(&self, lane: &Lane) -> Vec<CoreLine> {
        let mut place = lane.front;
        let mut step = |_| {
            if place.entry == self.chunk_entries {
                place = ChunkPosition { chunk: self.next[place.chunk as usize], entry: 0 };
            }
            assert!(place.chunk != NONE, "a queue ends before its end");
            let line = self.entry(place);
            place.entry += 1;
            line
        };
        let lines = (0..lane.len).map(&mut step).collect();
        assert_eq!(place, lane.back, "a queue is as long as it says");
        lines
    }

    /// Checks that these, which are all queues, share the memory; for tests and simulation.
    ///
    /// # Panics
    /// Where an entry or a chunk is lost.
    pub fn self_check<'a>(&self, lanes: impl Iterator<Item = &'a Lane>) {
        let (mut len, mut chunks) = (0, self.chunks_from(self.free));
        for lane in lanes {
            len += lane.len;
            chunks += self.chunks_from(lane.front.chunk);
        }
        assert_eq!(len, self.len, "the queues have all entries");
        assert_eq!(chunks, self.next.len(), "each chunk is in one queue or free");
    }

    fn chunks_from(&self, chunk: u32) -> usize {
        let next = |chunk: &u32| Some(self.next[*chunk as usize]).filter(|next| *next != NONE);
        let chain = std::iter::successors(Some(chunk).filter(|chunk| *chunk != NONE), next);
        chain.take(self.next.len() + 1).count()
    }

    #[inline]
    fn entry(&self, place: ChunkPosition) -> CoreLine {
        let (at, shift) = self.offset(place);
        let word: [u8; WORD_BYTES] = self.bytes[at..at + WORD_BYTES].try_into().expect("a word");
        CoreLine(u64::from_le_bytes(word) >> shift & self.mask())
    }

    /// Nothing but the entry itself changes.
    #[inline]
    fn set_entry(&mut self, place: ChunkPosition, line: CoreLine) {
        let ((at, shift), mask) = (self.offset(place), self.mask());
        assert!(line.0 & !mask == 0, "a line of the core");
        let word: &mut [u8; WORD_BYTES] =
            (&mut self.bytes[at..at + WORD_BYTES]).try_into().expect("a word");
        let others = u64::from_le_bytes(*word) & !(mask << shift);
        *word = (others | line.0 << shift).to_le_bytes();
    }

    /// The bits of an entry.
    #[inline]
    fn mask(&self) -> u64 {
        u64::MAX >> (u64::BITS - self.bits)
    }

    /// The byte in which an entry begins, and the bit in that.
    #[inline]
    fn offset(&self, place: ChunkPosition) -> (usize, u32) {
        let entry = u64::from(place.chunk) * u64::from(self.chunk_entries) + u64::from(place.entry);
        let bit = entry * u64::from(self.bits);
        ((bit / u64::from(u8::BITS)) as usize, (bit % u64::from(u8::BITS)) as u32)
    }
}

/// Of so many entries.
fn bytes_of(entries: u64, bits: u32) -> usize {
    (entries * u64::from(bits)).div_ceil(u8::BITS.into()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_testkit::{Break, assert_trips};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn lanes_are_queues(
            core_lines in (10u32..40).prop_map(|bits| 1u64 << bits),
            steps in prop::collection::vec((0usize..2, any::<bool>()), 1..600),
        ) {
            let mut lanes = Lanes::new(40, 2, core_lines);
            let mut ours = [Lane::new(), Lane::new()];
            let mut twins = [VecDeque::new(), VecDeque::new()];
            for (index, (lane, is_push)) in steps.into_iter().enumerate() {
                if is_push && !lanes.is_full() {
                    let line = CoreLine(core_lines - 1 - index as u64);
                    lanes.push(&mut ours[lane], line);
                    twins[lane].push_back(line);
                } else {
                    prop_assert_eq!(lanes.pop(&mut ours[lane]), twins[lane].pop_front());
                }
                prop_assert_eq!(ours[lane].len(), twins[lane].len() as u64);
                prop_assert_eq!(lanes.is_full(), twins[0].len() + twins[1].len() == 40);
                lanes.self_check(ours.iter());
                prop_assert!(lanes.lines(&ours[lane]).iter().eq(&twins[lane]));
            }
        }
    }

    #[test]
    fn check_notices_what_is_wrong_with_queues() {
        type All = (Lanes, [Lane; 2]);
        let make = || {
            let (mut lanes, mut ours) = (Lanes::new(40, 2, 64), [Lane::new(), Lane::new()]);
            (0..20).for_each(|line| lanes.push(&mut ours[line as usize % 2], CoreLine(line)));
            (lanes, ours)
        };
        let check = |(lanes, ours): &All| {
            lanes.self_check(ours.iter());
            ours.iter().for_each(|lane| _ = lanes.lines(lane));
        };
        let breaks: [Break<All>; 5] = [
            ("the queues have all entries", |(lanes, _)| lanes.len += 1),
            ("each chunk is in one queue", |(lanes, _)| lanes.free = NONE),
            ("each chunk is in one queue", |(lanes, _)| lanes.next[lanes.free as usize] = 0),
            ("as long as it says", |(_, ours)| ours[0].back.entry -= 1),
            ("as long as it says", |(_, ours)| ours[0].front.entry += 1),
        ];
        assert_trips(make, check, &breaks);
    }

    #[test]
    fn an_entry_takes_as_many_bits_as_the_core_needs() {
        for (core_lines, bits) in [(1 << 20, 20), ((1 << 24) - 1, 24), (1 << 31, 31), (1 << 35, 35)]
        {
            let lanes = Lanes::new(1 << 20, 2, core_lines);
            let each = lanes.memory_bytes() as f64 * 8.0 / f64::from(1 << 20);
            let bits = f64::from(bits);
            assert!(each >= bits && each < bits * 1.02, "{each} for {core_lines} lines");
        }
    }
}
