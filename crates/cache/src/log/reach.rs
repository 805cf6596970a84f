//! What a checkpoint covers, and how far the log may advance after it.
//!
//! After an unclean shutdown only the segments that the current header names are read. So the log
//! opens no other one until a later header is stable.

use super::{Log, Part};
use crate::eviction::{ClassKey, Heat};
use crate::format::checkpoint::{CheckpointKind, CheckpointRun, RUN_BLOCKS_MAX};
use crate::layout::SliceLayout;
use crate::line_map::{Marks, State, Version};
use crate::types::{CoreBlock, Position, SegmentIndex, Sequence, SlotIndex};
use headpond_block::defect;

/// A checkpoint takes so little of what is written in all: one byte in so many.
const BYTES_PER_CHECKPOINT_BYTE: u64 = 8;
/// Segments beyond an interval and a half: the log goes on while a checkpoint is written.
const SLACK_SEGMENTS: u64 = 8;

/// Which segments may be opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reach {
    /// Segments opened since the log was built.
    pub opened: u64,
    /// As many as may have been opened before another header is stable; `None` = all.
    limit: Option<u64>,
    /// As many as may have been opened before a checkpoint is wanted.
    wanted_at: Option<u64>,
}

impl Reach {
    /// Whether one more segment may be opened by somebody who leaves so many to others.
    pub fn allows(&self, reserve: u32) -> bool {
        self.limit.is_none_or(|limit| self.opened + u64::from(reserve) < limit)
    }
}

/// What a checkpoint holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    All,
    /// What the core lacks: enough for an open after an unclean stop, which forgets the rest.
    Unsafe,
}

/// A moment of the log: the records before it are spoken of by the checkpoint, and all others are
/// replayed over that.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    pub next: Sequence,
    pub tail: Sequence,
    pub tail_segment: SegmentIndex,
    pub head: Position,
    pub head_segment: SegmentIndex,
    /// First record of each segment.
    pub firsts: Vec<Sequence>,
    pub opened: u64,
    /// As a record would have carried it, and the ends of the epochs behind that.
    pub order: Option<Position>,
    pub ends: Vec<Position>,
    /// How often the core had become a mixture.
    pub mixtures: u64,
}

/// Segments between two checkpoints, and segments from one on that may hold records before the next
/// one; `None` where that would be most of the log anyway.
pub(crate) fn plan(layout: &SliceLayout, every: u64, last_bytes: u64) -> Option<(u64, u32)> {
    if every == 0 {
        return None;
    }
    let bytes = every.max(last_bytes.saturating_mul(BYTES_PER_CHECKPOINT_BYTE));
    let interval = bytes.div_ceil(layout.segment_bytes());
    let reach = interval.saturating_add(interval / 2).saturating_add(SLACK_SEGMENTS);
    let reach = u32::try_from(reach).ok()?;
    (reach < layout.segments()).then_some((interval, reach))
}

impl Log {
    /// The present moment.
    pub(crate) fn cut(&self) -> Cut {
        Cut {
            next: self.next(),
            tail: self.ring.first_record(self.ring.tail()),
            tail_segment: self.ring.tail(),
            head: self.ring.position(),
            head_segment: self.ring.head(),
            firsts: self.ring.firsts(),
            opened: self.reach.opened,
            order: self.order_mark(),
            ends: self.places_of_ends(),
            mixtures: self.mixtures(),
        }
    }

    /// A header is in force that was made at `opened`: the log may run as far as it says.
    pub(crate) fn set_reach(&mut self, opened: u64, plan: Option<(u64, u32)>) {
        self.reach.limit = plan.map(|(_, reach)| opened + u64::from(reach) - 1);
        self.reach.wanted_at = plan.map(|(interval, _)| opened + interval);
    }

    /// Whether the log has run so far that a checkpoint is due.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.reach.wanted_at.is_some_and(|at| self.reach.opened >= at)
    }

    /// Whether the header in force says how far the log may run.
    pub(crate) fn is_bounded(&self) -> bool {
        self.reach.limit.is_some()
    }

    /// Whether refused writes have to wait for a checkpoint.
    pub(crate) fn is_at_reach(&self) -> bool {
        !self.reach.allows(super::RESERVE_FOR_CLIENTS)
    }

    /// Visits what of some places belongs into a checkpoint, in their order, as runs.
    pub(crate) fn each_run(
        &self,
        places: std::ops::Range<u32>,
        cut: &Cut,
        content: Content,
        visit: impl FnMut(&CheckpointRun, &[u32]),
    ) {
        let (each, parts) = (self.layout.units_per_block(), self.part_places());
        let mut runs = Runs { each, open: None, checksums: Vec::new(), visit };
        let kept = self.kept_runs(places.clone(), cut);
        let mut kept = kept.iter().peekable();
        self.map.each_mapped(places, |version, all| {
            let position = self.layout.position_of(version.slot, version.unit);
            // Where something is kept, nothing is mapped.
            while let Some((run, checksum)) = kept.next_if(|(run, _)| run.position < position) {
                runs.add(run, &[*checksum]);
            }
            let Some(kind) = kind_of(&version, content) else { return };
            let is_given = self.identity.keeps_given && version.marks.contains(Marks::GIVEN);
            let mut left = &all[..self.before(cut, &version, position, all.len() as u64)];
            let heat = match content {
                Content::All => self.kept_heat_at(version.slot),
                Content::Unsafe => Heat::NONE,
            };
            while !left.is_empty() {
                let done = (all.len() - left.len()) as u64;
                let slot = SlotIndex(version.slot.0 + done as u32);
                let first = CoreBlock(version.block.0 + done);
                let at = Version { slot, block: first, ..version };
                let (most, part) = self.split_at_parts(&parts, at, left.len());
                let part = part.filter(|_| !defect!(SavePartAsWhole));
                let kind = part.map_or(kind, |part| CheckpointKind::Part(part.sectors));
                let (class, count) = self.alike(slot.0, most);
                let position = Position(position.0 + done * each);
                let (checksums, rest) = left.split_at(count);
                let count = count as u32;
                left = rest;
                // The core has them, and the rest of their blocks is not here.
                if part.is_some() && version.state == State::Clean {
                    continue;
                }
                let is_given = is_given && part.is_none();
                let run = CheckpointRun { first, count, kind, position, class, heat, is_given };
                runs.add(&run, checksums);
            }
        });
        kept.for_each(|(run, checksum)| runs.add(run, &[*checksum]));
        runs.end();
    }

    /// How many of so many from a place on are whole, and what is there where none is.
    fn split_at_parts(&self, parts: &[u32], at: Version, most: usize) -> (usize, Option<&Part>) {
        let next = parts.partition_point(|place| *place < at.slot.0);
        match parts.get(next).map(|place| (place - at.slot.0) as usize) {
            Some(0) => (1, self.part_of(&at)),
            Some(whole) => (whole.min(most), None),
            None => (most, None),
        }
    }

    /// Of which class the block at a place is, as the device is told, and how many of so many from
    /// there on are.
    fn alike(&self, place: u32, most: usize) -> (ClassKey, usize) {
        let class_at = |place| self.kept_class_at(SlotIndex(place));
        let class = class_at(place);
        if !self.map.has_classes() || !self.identity.keeps_classes {
            return (class, most);
        }
        let others = (place..place + most as u32).skip(1);
        (class, 1 + others.take_while(|other| class_at(*other) == class).count())
    }

    /// The lost blocks as runs.
    pub(crate) fn lost_runs(&self) -> Vec<CheckpointRun> {
        let (kind, position) = (CheckpointKind::Lost, Position(0));
        let (class, heat) = (ClassKey::UNKNOWN, Heat::NONE);
        let mut runs: Vec<CheckpointRun> = Vec::new();
        for &first in &self.lost {
            match runs.last_mut() {
                Some(run)
                    if CoreBlock(run.first.0 + u64::from(run.count)) == first
                        && run.count < RUN_BLOCKS_MAX =>
                {
                    run.count += 1
                }
                _ => {
                    let is_given = false;
                    let count = 1;
                    runs.push(CheckpointRun {
                        first,
                        count,
                        kind,
                        position,
                        class,
                        heat,
                        is_given,
                    });
                }
            }
        }
        runs
    }

    /// How many of so many versions in a row came into the log before the cut: the record of each
    /// other one is replayed.
    pub(super) fn before(
        &self,
        cut: &Cut,
        first: &Version,
        position: Position,
        count: u64,
    ) -> usize {
        let segment = self.layout.segment_of_slot(first.slot);
        let before = if self.ring.first_record(segment) >= cut.next {
            0
        } else if segment == cut.head_segment {
            let units = cut.head.0.saturating_sub(position.0);
            units.div_ceil(self.layout.units_per_block()).min(count)
        } else {
            count
        };
        before as usize
    }
}

/// Joins what lies in a row and is alike.
struct Runs<V> {
    /// Units of a block.
    each: u64,
    open: Option<CheckpointRun>,
    checksums: Vec<u32>,
    visit: V,
}

impl<V: FnMut(&CheckpointRun, &[u32])> Runs<V> {
    fn add(&mut self, run: &CheckpointRun, checksums: &[u32]) {
        match &mut self.open {
            Some(open) if goes_on(open, run, self.each) => open.count += run.count,
            _ => {
                self.end();
                self.open = Some(*run);
            }
        }
        self.checksums.extend_from_slice(checksums);
    }

    fn end(&mut self) {
        if let Some(run) = self.open.take() {
            (self.visit)(&run, &self.checksums);
            self.checksums.clear();
        }
    }
}

fn goes_on(open: &CheckpointRun, run: &CheckpointRun, each: u64) -> bool {
    let before = u64::from(open.count);
    run.kind.sectors().is_none()
        && (open.kind, open.class, open.heat) == (run.kind, run.class, run.heat)
        && open.is_given == run.is_given
        && open.count + run.count <= RUN_BLOCKS_MAX
        && open.first.0 + before == run.first.0
        && open.position.0 + before * each == run.position.0
}

fn kind_of(version: &Version, content: Content) -> Option<CheckpointKind> {
    // What came without payload has nothing to come back to in another life.
    if version.is_payload_free() {
        return None;
    }
    match version.state {
        State::Free | State::Pending => None,
        State::Clean => (content == Content::All).then_some(CheckpointKind::Clean),
        _ if defect!(ForgetDirtyAtStop) && version.block.0.is_multiple_of(3) => None,
        _ if version.marks.contains(Marks::REPLAYED) => Some(CheckpointKind::DirtyReplayed),
        State::Dirty | State::Written => Some(CheckpointKind::Dirty),
    }
}
