//! Consistency checks of the parts of a log.

use super::Log;
use crate::cleaning::Chunks;
use crate::line_map::{Marks, State, Version};

impl Log {
    /// Checks what is cheap to check only now and then; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn self_check(&self) {
        self.map.self_check();
        assert!(self.ring.free() + self.ring.used() == self.layout.segments());
        let is_behind = |version: Version| self.is_behind_head(version.slot, version.unit);
        assert!(self.map.iter().all(is_behind), "mapped where the log goes on");
        self.check_indexes();
        self.check_eviction();
        self.check_epochs();
        self.check_parts();
        self.check_stability();
        self.ring.self_check();
        self.records.self_check();
    }

    fn check_indexes(&self) {
        self.dirty.self_check();
        self.replayed.self_check();
        self.chunks.iter().for_each(Chunks::self_check);
        let waits = |version: &Version| {
            version.state == State::Dirty && !version.marks.contains(Marks::CLEANING)
        };
        for version in self.map.iter().filter(waits) {
            let (block, marks) = (version.block, version.marks);
            let is_known = self.dirty.contains(block) || self.replayed.contains(block);
            assert!(is_known || !marks.contains(Marks::INDEXED), "{block:?} is never cleaned");
            let is_known = self.replayed.contains(block) || !marks.contains(Marks::REPLAYED);
            assert!(is_known, "{block:?} owes parity and is not cleaned unasked");
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::classes::{ClassId, Classes};
    use crate::dirty_index::DirtyIndex;
    use crate::eviction::EvictionPolicy;
    use crate::layout::SliceLayout;
    use crate::log::{Identity, Intake, Purpose};
    use crate::ring::Ring;
    use crate::types::{BlockRun, CoreBlock, Epoch, Sectors, SegmentIndex, Sequence};
    use headpond_block::{BLOCK_BYTES, Buffer, Buffers, ByteRange};
    use headpond_testkit::{Break, assert_trips};
    use uuid::Uuid;

    const CORE_BLOCKS: u64 = 1 << 16;

    fn empty() -> Log {
        let layout = SliceLayout::new(ByteRange::at(0, 16 << 20), 256 << 10, 4096).unwrap();
        let (firsts, first) = (vec![Sequence(0); layout.segments() as usize], SegmentIndex(0));
        let ring = Ring::new(&layout, &firsts, first, first, layout.segment_start(first));
        let identity = Identity {
            cache: Uuid::nil(),
            slice: 0,
            epoch: Epoch(1),
            keeps_classes: true,
            keeps_parts: true,
            keeps_order: true,
            keeps_given: true,
        };
        let mut log = Log::new(identity, layout, ring, Sequence(1), Sequence(1), CORE_BLOCKS, 0);
        log.set_eviction(EvictionPolicy::Lru, &Classes::default());
        log
    }

    fn write(log: &mut Log, purpose: Purpose, first: u64, count: u64) {
        let buffers = Buffers::from(Buffer::zeroed((count * BLOCK_BYTES) as usize));
        let run = BlockRun { first: CoreBlock(first), count };
        let class = ClassId::UNCLASSIFIED;
        let intake =
            Intake { run, purpose, buffers: &buffers, is_promise: true, guard: None, class };
        let formed = log.form(&[intake]).expect("there is room");
        log.complete(&formed, true);
    }

    /// A log in which everything has happened.
    pub(in crate::log) fn lived() -> Log {
        let mut log = empty();
        log.set_ordered(true);
        log.count_chunks(true);
        write(&mut log, Purpose::WriteBack, 0, 8);
        write(&mut log, Purpose::WriteBack, 4, 8);
        write(&mut log, Purpose::ReadInsert, 100, 8);
        write(&mut log, Purpose::Part(Sectors::new(3).unwrap()), 50, 1);
        log.raise_flush_mark(Sequence(log.next().0 - 1));
        log
    }

    #[test]
    fn check_notices_dirty_blocks_and_residents_that_nobody_would_find() {
        let breaks: [Break<Log>; 5] = [
            ("is never cleaned", |log| log.dirty = DirtyIndex::new(CORE_BLOCKS, 1 << 12, 1)),
            ("residents are in", |log| log.eviction.policy.remove(log.map.line_of(CoreBlock(100)))),
            ("nobody else is", |log| log.map.cool(log.map.line_of(CoreBlock(100)))),
            ("more residents than", |log| log.eviction.capacity = 1),
            ("mapped where the log goes on", |log| {
                log.ring.open_next(&log.layout, Sequence(99));
                log.ring.free_tail();
            }),
        ];
        assert_trips(lived, Log::self_check, &breaks);
    }

    /// A cleaner that believes it writes to the core what the log may lose with the power.
    #[test]
    fn a_flush_of_what_the_tail_has_passed_says_nothing_of_later_records() {
        let mut log = lived();
        log.stabilise(log.head());
        let version = |log: &Log, block| {
            let is_it = |version: &Version| version.block == CoreBlock(block);
            log.map.iter().find(is_it).expect("it is mapped")
        };
        assert!(log.is_stable(&version(&log, 4)));
        log.ring.open_next(&log.layout, Sequence(99));
        write(&mut log, Purpose::WriteBack, 4, 1);
        assert!(!log.is_stable(&version(&log, 4)));
        log.ring.free_tail();
        assert!(!log.is_stable(&version(&log, 4)), "the tail is ahead of the flush");
        log.stabilise(log.head());
        assert!(log.is_stable(&version(&log, 4)));
    }

    #[test]
    fn check_notices_marks_that_the_log_does_not_keep() {
        let breaks: [Break<Log>; 6] = [
            ("a promise of what is not settled", |log| log.flush_mark = log.next()),
            ("a record carries what is not so yet", |log| log.carried_mark.0 = 99),
            ("data of a record that is still to come", |log| log.newest_data = log.next()),
            ("the tail is ahead of the log", |log| log.tail.0 = 99),
            ("a record is void that is still to come", |log| log.voids.push(Sequence(99))),
            ("stable behind the head", |log| log.stable.1.0 = u64::MAX),
        ];
        assert_trips(lived, Log::self_check, &breaks);
    }
}
