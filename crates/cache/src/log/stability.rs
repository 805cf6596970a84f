//! The stable part of the log: marks, flushed positions, the tail, and the records that only carry
//! them.

use super::{Formed, HEADER_UNITS, Log, Refusal};
use crate::format::record::{Draft, Header};
use crate::line_map::Version;
use crate::types::{Position, Promise, SegmentIndex, Sequence};
use headpond_block::{Buffer, Request, RequestFlags};

impl Log {
    /// Every record below this one is done, well or void.
    pub fn settled(&self) -> Sequence {
        let (oldest, void) = (self.records.oldest(), self.voids.iter().map(|void| void.0).min());
        Sequence(void.map_or(oldest, |void| void.min(oldest)))
    }

    /// Where a flush that begins now will have made the log stable.
    pub fn head(&self) -> (SegmentIndex, Position) {
        (self.ring.head(), self.ring.position())
    }

    /// A flush that began with the head at `head` has ended.
    pub fn stabilise(&mut self, head: (SegmentIndex, Position)) {
        let Some(order) = self.order_in_use(head.0) else { return };
        if self.order_in_use(self.stable.0).is_none_or(|stable| stable <= order) {
            self.stable = head;
        }
    }

    /// Whether the record of a published version is known to be stable.
    pub fn is_stable(&self, version: &Version) -> bool {
        let segment = self.layout.segment_of_slot(version.slot);
        let position = self.layout.position_of(version.slot, version.unit);
        let order = self.ring_order(segment);
        let is_before = |stable| order < stable || order == stable && position < self.stable.1;
        self.order_in_use(self.stable.0).is_some_and(is_before)
    }

    /// Segments from the tail to this one; `None` where it is free. The tail passes what is known
    /// to be stable where segments are freed after a stable write instead of a flush.
    fn order_in_use(&self, segment: SegmentIndex) -> Option<u32> {
        let order = self.ring_order(segment);
        (order <= self.ring_order(self.ring.head())).then_some(order)
    }

    /// Segments from the tail to this one.
    pub(super) fn ring_order(&self, segment: SegmentIndex) -> u32 {
        let segments = self.layout.segments();
        (segment.0 + segments - self.ring.tail().0) % segments
    }

    /// Every record up to `mark` has been flushed.
    pub fn raise_flush_mark(&mut self, mark: Sequence) {
        assert!(mark < self.settled() || mark == self.flush_mark, "a promise needs its records");
        self.flush_mark = self.flush_mark.max(mark);
    }

    /// The last flushed record, by a flush or by FUA.
    pub fn promised(&self) -> Promise {
        let record = self.flush_mark.max(self.promises.newest());
        Promise { epoch: self.identity.epoch, record }
    }

    /// Whether a promise is on the device only as long as nothing happens to the records
    /// themselves, or the newest one tells of an order that is none any more.
    pub fn wants_seal(&self) -> bool {
        self.carried_mark < self.newest_data.min(self.flush_mark)
            || self.carried_promise < self.promises.newest()
            || self.has_lost_order()
    }

    /// New records carry this tail from now on, or the present one where that is further.
    pub fn announce_tail(&mut self, tail: Sequence) {
        assert!(tail <= self.next());
        self.tail = self.tail.max(tail);
    }

    /// Forms a record without entries, which carries tail and mark. It may use the reserve.
    ///
    /// # Errors
    /// `NoSpace`; nothing was changed.
    pub fn form_seal(&mut self) -> Result<Formed, Refusal> {
        self.draft.clear();
        let units = self.take_room(self.descriptor_units(0), 0, 0)?;
        let data = Position(self.ring.position().0 + units);
        self.counters.seals += 1;
        Ok(self.seal_off(data, 0, false, std::iter::empty()))
    }

    /// A record that failed, and must be replaced by a void one before any flush covers it.
    pub fn void_wanted(&self) -> Option<Sequence> {
        self.voids.first().copied()
    }

    /// The write that puts an empty record in the place of the failed `sequence`, stable when it is
    /// answered: a stable write past the cache waits for it, and flushes nothing.
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn form_void(&mut self, sequence: Sequence) -> Result<Request, Refusal> {
        let units = self.take_room(HEADER_UNITS, 0, 0)?;
        // Whether one ended nobody knows any more; one too many costs a flush of the core.
        let is_behind_an_end = self.identity.keeps_order;
        let header = Header { is_behind_an_end, ..self.header(sequence) };
        let mut bytes = vec![0; (units * self.layout.unit_bytes()) as usize];
        Draft::default().encode(&header, &mut bytes);
        let range = self.layout.range_at(self.ring.position(), bytes.len() as u64);
        self.ring.advance(units);
        self.counters.log_bytes += range.len();
        self.counters.descriptor_bytes += range.len();
        self.counters.traffic.cache.written_marks += range.len();
        let request = Request::write(range.start(), Buffer::from_slice(&bytes));
        Ok(request.with_flags(RequestFlags::FUA))
    }

    /// The void record is on the device.
    pub fn void_done(&mut self, sequence: Sequence) {
        self.voids.retain(|void| *void != sequence);
    }

    pub(super) fn check_stability(&self) {
        let (next, newest) = (self.next(), self.promises.newest());
        assert!(self.flush_mark < self.settled(), "a promise of what is not settled");
        let carries = self.carried_mark <= self.flush_mark && self.carried_promise <= newest;
        assert!(carries, "a record carries what is not so yet");
        let comes_later = |sequence: &Sequence| *sequence >= next;
        assert!(!comes_later(&self.newest_data), "data of a record that is still to come");
        assert!(!self.voids.iter().any(comes_later), "a record is void that is still to come");
        assert!(self.tail <= next, "the tail is ahead of the log");
        let is_behind = self.stable.0 != self.ring.head() || self.stable.1 <= self.ring.position();
        assert!(is_behind, "stable behind the head");
    }
}
