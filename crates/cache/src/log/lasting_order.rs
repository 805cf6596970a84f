//! The persisted part of the flush order.
//!
//! On the device the order is stored as positions in the log: a *mark*, before which everything is
//! durable on the core; the ends of the epochs after it; and the kept versions after it. Every
//! record carries the mark, and whether an epoch ended before it; to avoid waiting for a record,
//! the mark is also stored separately. A checkpoint has the ends and the kept versions, and its
//! header the mark at that time.
//!
//! **Invariants**
//! - The mark of an epoch is stable before anything of the next one goes to the core. So a start
//!   from it finds a core with any part of one epoch more; this holds for the previous mark as
//!   well, where the last one is unreadable.
//! - No mark is written while the core is inconsistent.
//!
//! **Not here**: making the mark stable (`cleaner`), replay of the records (`replay`).

use super::flush_epochs::{FlushEpochs, KeptVersion};
use super::{Cut, Identity, Log};
use crate::cleaning::Age;
use crate::format::checkpoint::{CheckpointKind, CheckpointRun};
use crate::format::order_mark::OrderMark;
use crate::line_map::{Marks, State, Version};
use crate::types::{CoreBlock, Position, SegmentIndex, SlotIndex};

/// The order as the device tells of it.
#[derive(Debug, Default)]
pub(crate) struct FoundOrder {
    pub mark: Position,
    /// What its own place says.
    pub noted: Option<OrderMark>,
    /// Where the checkpoint was cut, if that does not know the order: then it counts only where
    /// the core has everything up to there.
    pub unknown_until: Option<Position>,
    /// Where epochs ended, in no order.
    pub ends: Vec<Position>,
    pub superseded: Vec<Superseded>,
}

/// A version that is not current, and was not at the core when it was superseded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superseded {
    pub block: CoreBlock,
    pub position: Position,
    pub checksum: u32,
    /// Where the next version lies; `None` where this one is known to be kept.
    pub next: Option<Position>,
}

/// What was written to the mark's own place last.
#[derive(Clone, Copy, Default)]
pub(super) struct Noted {
    age: Option<Age>,
    sequence: u64,
}

impl Log {
    /// The mark that a record carries now.
    pub(crate) fn order_mark(&self) -> Option<Position> {
        self.order_age().map(|age| self.place_at(age))
    }

    fn order_age(&self) -> Option<Age> {
        let epochs = self.epochs.as_ref().filter(|_| self.identity.keeps_order)?;
        let mark = match epochs.is_mixed() {
            false => epochs.mark(),
            true if self.lacks_core_any() => return None,
            true => self.age_now(),
        };
        // What lies before the tail is at the core as well.
        Some(mark.max(Age { segment: self.tail, slot: 0 }))
    }

    /// The mark for a checkpoint that was cut then and is complete now. Not the one of then: of
    /// what has become clean since, it may have what was kept and not what came after it.
    pub(crate) fn order_mark_since(&self, cut: &Cut) -> Option<Position> {
        self.order_mark().filter(|_| cut.order.is_some() && cut.mixtures == self.mixtures())
    }

    pub(super) fn mixtures(&self) -> u64 {
        self.epochs.as_ref().map_or(0, FlushEpochs::mixtures)
    }

    /// Where the epochs ended that the core lacks.
    pub(super) fn places_of_ends(&self) -> Vec<Position> {
        let epochs = self.epochs.as_ref().filter(|_| self.identity.keeps_order);
        epochs.iter().flat_map(|it| it.ends()).map(|end| self.place_at(end)).collect()
    }

    /// The mark, to be written to its own place, where it is a new one.
    pub(crate) fn next_mark(&mut self) -> Option<OrderMark> {
        let age = self.order_age().filter(|age| self.noted.age != Some(*age))?;
        self.noted = Noted { age: Some(age), sequence: self.noted.sequence + 1 };
        let Identity { cache, slice, epoch, .. } = self.identity;
        let (sequence, place) = (self.noted.sequence, self.place_at(age));
        let next_record = self.next();
        Some(OrderMark { cache, slice, epoch, sequence, place, next_record })
    }

    /// Whether the newest record, or the header, carries a mark, and nothing more is to.
    pub(crate) fn has_lost_order(&self) -> bool {
        self.carries_order && self.order_age().is_none()
    }

    /// A header is in force with a mark, or without one.
    pub(crate) fn note_header_order(&mut self, has_mark: bool) {
        self.carries_order |= has_mark;
    }

    /// Whether the core is kept in order, and is no mixture.
    pub(crate) fn is_in_order(&self) -> bool {
        self.epochs.as_ref().is_some_and(|epochs| !epochs.is_mixed())
    }

    /// Visits what is kept at some places, as a checkpoint has it, in their order.
    pub(super) fn kept_runs(
        &self,
        places: std::ops::Range<u32>,
        cut: &Cut,
    ) -> Vec<(CheckpointRun, u32)> {
        let mut runs = Vec::new();
        let is_told = |epochs: &&FlushEpochs| self.identity.keeps_order && epochs.keeps_any();
        let Some(epochs) = self.epochs.as_ref().filter(is_told) else { return runs };
        let mut place = places.start;
        while place < places.end {
            let segment = self.layout.segment_of_slot(SlotIndex(place));
            let all = self.layout.places_of(segment);
            let until = all.end.min(places.end);
            let age = |place: u32| Age {
                segment: self.ring.first_record(segment),
                slot: place - all.start,
            };
            for version in epochs.kept_between(age(place), age(until)) {
                let position = self.layout.position_of(version.slot, version.unit);
                if !version.is_payload_free() && self.before(cut, version, position, 1) > 0 {
                    runs.push((self.kept_run(version, position), self.map.checksum(version.slot)));
                }
            }
            place = until;
        }
        runs
    }

    fn kept_run(&self, version: &Version, position: Position) -> CheckpointRun {
        CheckpointRun {
            first: version.block,
            count: 1,
            kind: CheckpointKind::Kept,
            position,
            class: crate::eviction::ClassKey::UNKNOWN,
            heat: crate::eviction::Heat::NONE,
            is_given: false,
        }
    }

    /// Goes on in an order that another life has left, as far as the device tells enough of it.
    pub(crate) fn resume_order(&mut self, found: &FoundOrder) {
        let noted = found.noted.and_then(|noted| self.age_of_mark(&noted));
        // Records before either may be gone that nothing had promised.
        let now = self.age_now();
        let Some(mark) = self.age_at(found.mark) else { return };
        let mark = noted.map_or(mark, |noted| mark.max(noted)).min(now);
        let known_from = found.unknown_until.map(|until| self.age_at(until).unwrap_or_default());
        if known_from.is_some_and(|from| mark < from) {
            return;
        }
        let ends = found.ends.iter().filter_map(|end| self.age_at(*end));
        let mut ends: Vec<Age> = ends.filter(|end| *end > mark && *end < now).collect();
        ends.sort_unstable();
        ends.dedup();
        let mut epochs = FlushEpochs::resumed(mark, ends);
        for superseded in &found.superseded {
            let Superseded { block, position, checksum, next } = *superseded;
            let Some(version) = self.version_of_old(block, position) else { continue };
            let from = self.age_of(version.slot);
            let to = next.map(|next| self.age_at(next).unwrap_or_default());
            if from >= mark && to.is_none_or(|to| epochs.is_end_between(from, to)) {
                self.map.set_checksum(version.slot, checksum);
                epochs.keep(from, KeptVersion::new(version));
            }
        }
        // Whoever goes on from here has seen what came back.
        epochs.end(now);
        self.epochs = Some(epochs);
        self.carries_order = true;
    }

    /// The age of a mark, unless what it was written of has been freed since. Where the log ends
    /// before it, everything counts as before it.
    fn age_of_mark(&self, mark: &OrderMark) -> Option<Age> {
        match self.age_of_used(mark.place) {
            Some(age) => Some(age).filter(|age| age.segment < mark.next_record),
            None => (mark.next_record >= self.next()).then(|| self.age_now()),
        }
    }

    /// A version of which the map knows nothing, where its place is one, and there is a newer one
    /// of the block that the core lacks: whoever writes the one will write the other.
    fn version_of_old(&self, block: CoreBlock, position: Position) -> Option<Version> {
        let last = Position(position.0.checked_add(self.layout.units_per_block() - 1)?);
        if !self.layout.contains(last) {
            return None;
        }
        let (slot, unit) = self.layout.slot_at(position);
        let newest = self.map.newest(block).filter(|newest| newest.state == State::Dirty)?;
        let is_older = self.age_of(slot) < self.age_of(newest.slot);
        let is_possible = self.is_behind_head(slot, unit) && self.map.state(slot) == State::Free;
        // With it the parity is recomputed as well.
        let needs_parity = newest.marks.contains(Marks::REPLAYED);
        let marks = if needs_parity { Marks::REPLAYED } else { Marks::NONE } | Marks::INDEXED;
        let (state, target) = (State::Dirty, State::Dirty);
        let version = Version { slot, block, state, target, unit, marks };
        (is_possible && is_older).then_some(version)
    }

    /// Where a place of that age is; the end of a segment is the start of the next one.
    fn place_at(&self, age: Age) -> Position {
        let segment = self.ring.first_from(age.segment);
        let is_there = self.ring.first_record(segment) == age.segment;
        let units = if is_there { u64::from(age.slot) * self.layout.units_per_block() } else { 0 };
        Position((self.layout.segment_start(segment).0 + units) % self.units())
    }

    fn units(&self) -> u64 {
        u64::from(self.layout.segments()) * self.layout.units_per_segment()
    }

    /// The age of a place that is used, or is the next to be.
    fn age_at(&self, place: Position) -> Option<Age> {
        let after_head = self.layout.segment_start(self.ring.after(self.ring.head()));
        let is_next = place.0 % self.units() == after_head.0;
        self.age_of_used(place).or_else(|| is_next.then(|| self.age_now()))
    }

    fn age_of_used(&self, place: Position) -> Option<Age> {
        let units = place.0 % self.layout.units_per_segment();
        let segment = SegmentIndex(self.layout.segment_of(place).0 % self.layout.segments());
        let slot = (units / self.layout.units_per_block()) as u32;
        let is_used = self.ring_order(segment) < self.ring.used();
        is_used.then(|| Age { segment: self.ring.first_record(segment), slot })
    }
}
