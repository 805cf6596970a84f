//! The positions of records in the ring, and which of them are live.
//!
//! Records follow each other; one that does not fit before the end of the ring begins at its start.
//! A writer *reserves* space for a record before, so that no task waits for space while it holds
//! something that others wait for.
//!
//! **Invariants**: the records from the tail on do not overlap, nor will reserved ones have to. A
//! record is live until the tail has passed it; the tail passes only records that are *done*:
//! written to the members.

use std::collections::VecDeque;

use super::label::Tail;

/// What is gathered for one record at most, where no single write is larger.
pub const BATCH_BYTES_MAX: u64 = 256 << 10;

/// The ring in memory.
#[derive(Debug)]
pub struct Ring {
    bytes: u64,
    /// The largest record.
    record_bytes_max: u64,
    /// Offset of the next record, if it fits there.
    head: u64,
    next_sequence: u64,
    live: VecDeque<Live>,
    live_bytes: u64,
    reserved_bytes: u64,
    /// Those before it are done, and were flushed since.
    flushed: u64,
}

/// A record that counts.
#[derive(Debug)]
struct Live {
    sequence: u64,
    offset: u64,
    bytes: u64,
    /// Writes of it that the members do not have yet.
    pending: u32,
}

/// A record that may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    pub sequence: u64,
    /// From the start of the ring.
    pub offset: u64,
}

impl Ring {
    /// A ring without records, for records of up to so many bytes, a batch at least.
    ///
    /// # Panics
    /// Where it has not room for two.
    pub fn new(bytes: u64, record_bytes_max: u64) -> Ring {
        let record_bytes_max = record_bytes_max.max(BATCH_BYTES_MAX);
        assert!(bytes >= 2 * record_bytes_max, "a ring of {bytes} bytes");
        Ring {
            bytes,
            record_bytes_max,
            head: 0,
            next_sequence: Tail::START.sequence,
            live: VecDeque::new(),
            live_bytes: 0,
            reserved_bytes: 0,
            flushed: Tail::START.sequence,
        }
    }

    /// Reserves room for a record, where there is any. What is left at the end of the ring is
    /// shorter than a record, and may be lost.
    pub fn reserve(&mut self, bytes: u64) -> bool {
        assert!(bytes <= self.record_bytes_max, "a record of {bytes} bytes");
        let room = self.bytes - self.record_bytes_max;
        let fits = self.live_bytes + self.reserved_bytes + bytes <= room;
        if fits {
            self.reserved_bytes += bytes;
        }
        fits
    }

    /// Gives back what was reserved.
    pub fn release(&mut self, bytes: u64) {
        assert!(bytes <= self.reserved_bytes, "released is what was reserved");
        self.reserved_bytes -= bytes;
    }

    /// Places the next record, of `writes` writes.
    pub fn place(&mut self, bytes: u64, writes: u32) -> Placed {
        assert!(bytes <= self.record_bytes_max && writes > 0);
        let offset = if self.head + bytes <= self.bytes { self.head } else { 0 };
        let sequence = self.next_sequence;
        self.live.push_back(Live { sequence, offset, bytes, pending: writes });
        self.live_bytes += bytes;
        self.next_sequence += 1;
        self.head = offset + bytes;
        Placed { sequence, offset }
    }

    /// The members have one write of a record.
    pub fn done(&mut self, sequence: u64) {
        let first = self.live.front().expect("a record counts until it is done").sequence;
        let record = &mut self.live[(sequence - first) as usize];
        record.pending -= 1;
    }

    /// The first record that is not done: a flush of the members that begins now covers those
    /// before it.
    pub fn done_up_to(&self) -> u64 {
        let pending = self.live.iter().find(|record| record.pending > 0);
        pending.map_or(self.next_sequence, |record| record.sequence)
    }

    /// A flush has succeeded that began when the records before `sequence` were done.
    pub fn note_flushed(&mut self, sequence: u64) {
        self.flushed = self.flushed.max(sequence);
    }

    /// The tail that leaves out what was flushed; `None` where nothing would be left out.
    pub fn next_tail(&self) -> Option<Tail> {
        let first = self.live.front()?.sequence;
        if self.flushed <= first {
            return None;
        }
        let kept = self.live.iter().find(|record| record.sequence >= self.flushed);
        let sequence = kept.map_or(self.next_sequence, |record| record.sequence);
        // Without records it is where the next one may begin, or at the start if it does not fit.
        let offset = kept.map_or(self.head % self.bytes, |record| record.offset);
        Some(Tail { sequence, offset })
    }

    /// The label with this tail is stable: the room before it is free.
    pub fn retire(&mut self, tail: Tail) {
        while let Some(record) = self.live.front()
            && record.sequence < tail.sequence
        {
            assert!(record.pending == 0, "only what is done is given up");
            self.live_bytes -= record.bytes;
            self.live.pop_front();
        }
    }

    /// Whether a flush of the members that begins now would make room.
    pub fn is_oldest_done(&self) -> bool {
        self.live.front().is_some_and(|record| record.pending == 0)
    }

    /// What the next record is to be called.
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Whether a record before this one counts.
    pub fn holds_before(&self, sequence: u64) -> bool {
        self.live.front().is_some_and(|record| record.sequence < sequence)
    }

    /// Whether any record counts.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Bytes of the records that count.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Bytes for records that are still to be placed.
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }

    /// Writes that the members do not have yet, of all records that count.
    pub fn pending(&self) -> u64 {
        self.live.iter().map(|record| u64::from(record.pending)).sum()
    }

    /// Checks that the records that count have their room; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn self_check(&self) {
        let numbers = self.next_sequence - self.live.len() as u64..self.next_sequence;
        let is_in_order = numbers.eq(self.live.iter().map(|record| record.sequence));
        assert!(is_in_order, "records follow each other");
        let bytes: u64 = self.live.iter().map(|record| record.bytes).sum();
        assert_eq!(bytes, self.live_bytes, "what counts is added up");
        let room = self.bytes - self.record_bytes_max;
        assert!(bytes + self.reserved_bytes <= room, "more is reserved than there is room for");
        let mut places: Vec<(u64, u64)> =
            self.live.iter().map(|it| (it.offset, it.offset + it.bytes)).collect();
        places.sort_unstable();
        assert!(places.is_sorted_by(|one, next| one.1 <= next.0), "records overlap");
        assert!(places.last().is_none_or(|last| last.1 <= self.bytes), "behind the ring");
        let is_open = |it: &Live| it.sequence < self.flushed && it.pending > 0;
        assert!(!self.live.iter().any(is_open), "flushed before it was done");
    }

    /// Whether to flush the members now, before a writer has to wait for it.
    pub fn is_half_full(&self) -> bool {
        self.live_bytes + self.reserved_bytes > (self.bytes - self.record_bytes_max) / 2
    }
}

/// The places at which the record behind `end` may begin, in a ring of so many bytes.
pub fn next_places(end: u64, ring_bytes: u64) -> impl Iterator<Item = u64> {
    let there = (end < ring_bytes).then_some(end);
    there.into_iter().chain((end > 0).then_some(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::record::UNIT_BYTES;
    use headpond_testkit::{Break, assert_trips};
    use proptest::prelude::*;

    const RECORD_MAX: u64 = BATCH_BYTES_MAX;
    const RING: u64 = 5 * RECORD_MAX / 2 / UNIT_BYTES * UNIT_BYTES;

    /// The last writer of each unit of the ring.
    struct Twin {
        units: Vec<u64>,
        /// Number, first unit, units, writes not done.
        records: Vec<(u64, usize, usize, u32)>,
        stable: Tail,
    }

    impl Twin {
        /// What replay finds from the tail on.
        fn replayed(&self) -> Vec<u64> {
            let mut found = Vec::new();
            let (mut end, mut sequence) = (self.stable.offset, self.stable.sequence);
            'records: loop {
                for place in next_places(end, RING) {
                    let first = (place / UNIT_BYTES) as usize;
                    let record = self.records.iter().find(|it| (it.0, it.1) == (sequence, first));
                    let Some((_, first, units, _)) = record else { continue };
                    if self.units[*first..first + units].iter().all(|by| *by == sequence) {
                        found.push(sequence);
                        end = (first + units) as u64 * UNIT_BYTES;
                        sequence += 1;
                        continue 'records;
                    }
                }
                return found;
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn every_record_that_counts_is_found_however_often_the_ring_goes_round(
            steps in prop::collection::vec((0_u8..10, any::<prop::sample::Index>(), 1_u64..=64), 1..400),
        ) {
            let mut ring = Ring::new(RING, RECORD_MAX);
            let units = vec![0; (RING / UNIT_BYTES) as usize];
            let mut twin = Twin { units, records: Vec::new(), stable: Tail::START };
            for (kind, which, size) in steps {
                match kind {
                    0..5 => {
                        let (bytes, writes) = (size * UNIT_BYTES, 1 + size as u32 % 3);
                        if !ring.reserve(bytes) {
                            continue;
                        }
                        ring.release(bytes);
                        let placed = ring.place(bytes, writes);
                        let first = (placed.offset / UNIT_BYTES) as usize;
                        for unit in &mut twin.units[first..first + size as usize] {
                            prop_assert!(*unit < twin.stable.sequence, "still counts");
                            *unit = placed.sequence;
                        }
                        twin.records.push((placed.sequence, first, size as usize, writes));
                    }
                    5..8 => {
                        let mut open: Vec<_> = twin.records.iter_mut().filter(|it| it.3 > 0).collect();
                        if !open.is_empty() {
                            let at = which.index(open.len());
                            open[at].3 -= 1;
                            ring.done(open[at].0);
                        }
                    }
                    _ => {
                        let done = ring.done_up_to();
                        let first_open = twin.records.iter().find(|it| it.3 > 0).map(|it| it.0);
                        let past = twin.records.last().map_or(1, |it| it.0 + 1);
                        prop_assert_eq!(done, first_open.unwrap_or(past));
                        ring.note_flushed(done);
                        if let Some(tail) = ring.next_tail() {
                            twin.stable = tail;
                            ring.retire(tail);
                        }
                    }
                }
                let counting: Vec<u64> = twin.records.iter().map(|it| it.0)
                    .filter(|sequence| *sequence >= twin.stable.sequence).collect();
                prop_assert_eq!(twin.replayed(), counting);
                ring.self_check();
            }
        }
    }

    #[test]
    fn check_notices_what_is_wrong_with_a_ring() {
        let make = || {
            let mut ring = Ring::new(RING, RECORD_MAX);
            (0..3).for_each(|_| _ = ring.place(4 * UNIT_BYTES, 1));
            ring.done(1);
            ring.note_flushed(2);
            ring
        };
        let breaks: [Break<Ring>; 7] = [
            ("records follow each other", |it| _ = it.live.remove(1)),
            ("what counts is added up", |it| it.live_bytes += UNIT_BYTES),
            ("than there is room for", |it| it.reserved_bytes = RING),
            ("records overlap", |it| it.live[2].offset = UNIT_BYTES),
            ("behind the ring", |it| it.live[2].offset = RING),
            ("flushed before it was done", |it| it.flushed = 3),
            ("flushed before it was done", |it| it.live[0].pending += 1),
        ];
        assert_trips(make, Ring::self_check, &breaks);
    }

    #[test]
    fn a_writer_without_space_gets_some_when_records_are_released() {
        let mut ring = Ring::new(2 * RECORD_MAX, RECORD_MAX);
        assert!(ring.reserve(RECORD_MAX));
        assert!(!ring.reserve(UNIT_BYTES), "the room is another's");
        ring.release(RECORD_MAX);
        let placed = ring.place(RECORD_MAX, 1);
        assert!(!ring.is_oldest_done(), "a flush would not help");
        ring.done(placed.sequence);
        assert!(!ring.reserve(UNIT_BYTES) && ring.next_tail().is_none());
        assert!(ring.is_oldest_done());
        ring.note_flushed(ring.done_up_to());
        let tail = ring.next_tail().expect("flushed");
        ring.retire(tail);
        assert!(ring.reserve(RECORD_MAX) && ring.is_empty());
    }
}
