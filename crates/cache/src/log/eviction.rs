//! Resident lines of the log: connects the map, which marks them, and the policy, which decides.

use super::copies::CopyBudget;
use super::{Intake, Log};
use crate::classes::{ClassId, Classes};
use crate::eviction::{EvictionPolicy, EvictionStats, Group, Heat, Hits, Policy, Shadows, Shares};
use crate::fit::{can_have, policy_bytes};
use crate::line_map::{Asked, Bearer, FoundVersion, Heats, State, Version};
use crate::types::{BlockRun, CoreBlock, CoreLine, SlotIndex, number_bits};
use std::ops::Range;

/// Share of the places that new data finds which is given to residents. Where all of them are
/// carried on for ever, reclaim writes 1 / (1 - share) times what enters, at most: 3.3 times.
pub(super) const RESIDENT_PERCENT: u64 = 70;
/// What must be carried on and what should be, together; above it residents are dropped, so that
/// reclaim never writes more than five times what enters for their sake.
pub(super) const CARRIED_PERCENT: u64 = 80;

/// The policy at work.
pub struct Eviction {
    setting: EvictionPolicy,
    is_set: bool,
    /// Never `Adaptive`.
    current: EvictionPolicy,
    pub(super) policy: Box<dyn Policy>,
    /// Whose blocks leave for whom, where classes say so.
    pub(super) shares: Option<Shares>,
    shadows: Option<Shadows>,
    /// Whether a hit only raises the frequency, and need not be reported.
    is_plain: bool,
    changes: u64,
    /// In lines.
    pub(super) capacity: u64,
    /// In blocks.
    carried_max: u64,
    pub(super) copies: CopyBudget,
    line_blocks: u64,
    core_lines: u64,
    /// Hit by the last read.
    last_hit: Option<CoreLine>,
    /// Who was resident before the stop, until a policy is set.
    remembered: Option<Heats>,
}

/// Which lines a policy begins with, beside those that were resident.
enum Others {
    None,
    AllButOldest(u64),
}

impl Eviction {
    /// For a log with so many places for new data. Nobody is resident until a policy is set, which
    /// takes the memory for its queues then.
    pub fn new(usable_places: u64, core_blocks: u64, line_blocks: u64) -> Self {
        let policy = EvictionPolicy::Fifo;
        let capacity = (usable_places * RESIDENT_PERCENT / 100 / line_blocks).max(1);
        let core_lines = core_blocks.div_ceil(line_blocks);
        Self {
            setting: policy,
            is_set: false,
            current: policy,
            policy: policy.make(1, core_lines, 1),
            shares: None,
            shadows: None,
            is_plain: true,
            changes: 0,
            capacity,
            carried_max: usable_places * CARRIED_PERCENT / 100,
            copies: CopyBudget::new(usable_places),
            line_blocks,
            core_lines,
            last_hit: None,
            remembered: None,
        }
    }

    pub fn is_ordered(&self) -> bool {
        self.policy.hits() == Hits::Ordered
    }

    /// Bytes of the queues and of the ghosts; shadows have both.
    pub fn memory_bytes(&self) -> (u64, u64) {
        let memory = self.policy.memory();
        (memory.queues, memory.ghosts + self.shadows.as_ref().map_or(0, Shadows::memory_bytes))
    }
}

impl Log {
    /// Changes the policy, or the standing of classes; what is mapped is taken in anew, oldest
    /// first. Nothing happens where neither changes.
    pub fn set_eviction(&mut self, setting: EvictionPolicy, classes: &Classes) {
        let it = &mut self.eviction;
        let shares = Shares::new(classes, it.capacity);
        if it.is_set && it.setting == setting && it.shares == shares {
            return;
        }
        if !it.is_set || it.setting != setting {
            it.setting = setting;
            it.shadows = None;
            if setting == EvictionPolicy::Adaptive {
                it.shadows = Some(Shadows::new(it.capacity, it.core_lines));
            } else {
                it.current = setting;
            }
        }
        (it.is_set, it.shares) = (true, shares);
        self.renew_policy();
    }

    /// The core has so many blocks from now on. What is kept of lines by their numbers begins anew
    /// where these have become longer.
    pub fn lengthen_core(&mut self, core_blocks: u64) {
        self.map.lengthen(core_blocks);
        self.dirty.lengthen(core_blocks);
        self.replayed.lengthen(core_blocks);
        let it = &mut self.eviction;
        let core_lines = core_blocks.div_ceil(it.line_blocks);
        let has_longer_numbers = number_bits(core_lines) > number_bits(it.core_lines);
        it.core_lines = core_lines;
        if has_longer_numbers {
            it.shadows = it.shadows.take().map(|_| Shadows::new(it.capacity, core_lines));
            self.renew_policy();
        }
    }

    pub fn eviction_stats(&self) -> EvictionStats {
        let it = &self.eviction;
        let line_bytes = it.line_blocks * headpond_block::BLOCK_BYTES;
        EvictionStats {
            setting: it.setting,
            policy: it.current,
            resident_bytes: self.map.residents() * line_bytes,
            resident_bytes_max: it.capacity * line_bytes,
            changes: it.changes,
            sampled: it.shadows.as_ref().map(Shadows::stats).unwrap_or_default(),
        }
    }

    /// Whether for each line that enters another one leaves.
    pub(super) fn is_full_of_residents(&self) -> bool {
        self.map.residents() >= self.eviction.capacity
    }

    /// A read of this class found this.
    #[inline]
    pub(crate) fn refer(&mut self, found: &FoundVersion, class: ClassId) {
        self.refer_by(found.slot, found.block, found.bearer, class);
    }

    #[inline]
    fn refer_by(
        &mut self,
        slot: SlotIndex,
        block: CoreBlock,
        bearer: Option<Bearer>,
        class: ClassId,
    ) {
        if self.eviction.line_blocks > 1 && self.goes_on(block) && bearer.is_some() {
            return self.join_class(slot, block, class);
        }
        match bearer {
            Some(bearer) if self.eviction.is_plain => self.map.warm(bearer),
            _ => self.refer_slowly(slot, block, bearer, class),
        }
    }

    fn refer_to(&mut self, slot: SlotIndex, block: CoreBlock, class: ClassId) {
        self.refer_by(slot, block, self.map.bearer_at(slot), class);
    }

    /// Whether a reader goes on within a long line that it has hit already: what is read once,
    /// piece by piece, is not asked for again and again.
    #[inline]
    fn goes_on(&mut self, block: CoreBlock) -> bool {
        let line = self.map.line_of(block);
        let is_last = self.eviction.last_hit.replace(line) == Some(line);
        is_last && !block.0.is_multiple_of(self.eviction.line_blocks)
    }

    /// A read found these versions, whose blocks ascend: a hit of each of their lines.
    pub(crate) fn refer_to_each<'a>(
        &mut self,
        versions: impl Iterator<Item = &'a Version>,
        class: ClassId,
    ) {
        let mut last = None;
        for version in versions {
            let line = self.map.line_of(version.block);
            match last.replace(line) == Some(line) {
                false => self.refer_to(version.slot, version.block, class),
                true => self.join_class(version.slot, version.block, class),
            }
        }
    }

    /// The same of blocks that are contiguous.
    #[inline]
    pub(crate) fn refer_to_row(&mut self, found: &FoundVersion, count: u64, class: ClassId) {
        let first = *found;
        for piece in self.map.lines_of(BlockRun { first: first.block, count }) {
            let slot =
                |block: CoreBlock| SlotIndex(first.slot.0 + (block.0 - first.block.0) as u32);
            match piece.first == first.block {
                true => self.refer(&first, class),
                false => self.refer_to(slot(piece.first), piece.first, class),
            }
            if self.eviction.shares.is_some() {
                let others = piece.without_first(1).blocks();
                others.for_each(|block| self.join_class(slot(block), block, class));
            }
        }
    }

    /// The same of those blocks of a run that there are.
    pub(crate) fn refer_to_run(&mut self, run: BlockRun, class: ClassId) {
        let mut versions = Vec::new();
        self.map.each_published(run, |_, version| versions.extend(version));
        self.refer_to_each(versions.iter(), class);
    }

    fn refer_slowly(
        &mut self,
        slot: SlotIndex,
        block: CoreBlock,
        bearer: Option<Bearer>,
        class: ClassId,
    ) {
        self.counters.readmitted_blocks += u64::from(bearer.is_none());
        self.join_class(slot, block, class);
        // Of another class it is not resident any more.
        match bearer.and_then(|_| self.map.bearer_at(slot)) {
            None => self.take_in(slot, block),
            Some(bearer) => {
                self.map.warm(bearer);
                if self.eviction.is_ordered() {
                    self.eviction.policy.hit(self.map.line_of(block));
                }
            }
        }
        self.sample(self.map.line_of(block));
    }

    /// With the mark that it had, if there was one.
    fn take_in_again(&mut self, slot: SlotIndex, block: CoreBlock, was: Heat) {
        if self.eviction.shares.is_some() {
            return self.take_in_by_class(slot, block, was);
        }
        let (line, it) = (self.map.line_of(block), &mut self.eviction);
        let heat = it.policy.insert_again(line, Group::FIRST, was, &mut self.map);
        self.map.admit(slot, heat);
    }

    #[inline]
    fn take_in(&mut self, slot: SlotIndex, block: CoreBlock) {
        if self.eviction.shares.is_some() {
            return self.take_in_by_class(slot, block, Heat::NONE);
        }
        let line = self.map.line_of(block);
        let heat = self.eviction.policy.insert(line, Group::FIRST, &mut self.map);
        self.map.admit(slot, heat);
    }

    /// The lines of these will be resident when their record has been written.
    #[inline]
    pub(super) fn prefetch_residents(&self, intakes: &[Intake]) {
        for intake in intakes.iter().filter(|intake| !intake.buffers.is_empty()) {
            let lines = self.map.lines_of(intake.run).map(|piece| self.map.line_of(piece.first));
            lines.for_each(|line| self.eviction.policy.prefetch(line));
        }
    }

    /// The policy learns what has just been published.
    #[inline]
    pub(super) fn note_published(&mut self) {
        let asked = self.map.take_asked();
        if self.eviction.shares.is_some() && self.eviction.is_ordered() {
            self.note_left(&asked);
        }
        // Of several requests of one record one may have superseded another.
        let are_there = asked.is_sorted_by(|one, next| one.block < next.block);
        for asked in &asked {
            self.take_in_or_hit(asked, are_there);
        }
        self.map.return_asked(asked);
    }

    #[inline]
    fn take_in_or_hit(&mut self, asked: &Asked, is_there: bool) {
        let Asked { slot, block, is_hit } = *asked;
        let is_there = is_there || self.map.state_of(slot, block) != State::Free;
        // Others may have driven the line out, or taken it in, or renewed the policy.
        if is_there && !self.map.heat_at(slot).is_resident() {
            self.take_in(slot, block);
        } else if is_there && is_hit && self.eviction.is_ordered() {
            self.eviction.policy.hit(self.map.line_of(block));
        }
        if self.eviction.shadows.is_some() {
            self.sample(self.map.line_of(block));
        }
    }

    /// A block was dropped for good.
    #[inline]
    fn note_end(&mut self, block: CoreBlock) {
        let line = self.map.line_of(block);
        if let Some(shadows) = &mut self.eviction.shadows
            && !self.map.has_line(line)
        {
            shadows.remove(line);
        }
    }

    /// Policies with an order of their own learn which lines are resident no more, because nothing
    /// of them is mapped.
    #[inline]
    pub(super) fn note_ended(&mut self) {
        while let Some(line) = self.map.take_ended() {
            self.eviction.policy.remove(line);
        }
    }

    /// Whether residents are carried on: not where there is hardly room for what must be.
    pub(crate) fn carries_residents(&self) -> bool {
        let must = self.dirty_now() + self.map.counts().written;
        must + self.map.held_clean() <= self.eviction.carried_max
            && self.ring.free() > 2
            && !self.is_scattered()
    }

    /// Drops blocks that nobody looks at from now on: among them residents, for which there was no
    /// room.
    pub(crate) fn drop_places(&mut self, places: Range<u32>) {
        if self.map.residents() > 0 {
            let mut residents = 0;
            let count = |_, _, heat: Heat| residents += u64::from(heat.is_resident());
            self.map.each_place(places.clone(), count);
            self.counters.dropped_resident_blocks += residents;
        }
        self.map.remove(SlotIndex(places.start), places.len() as u32);
        self.note_ended();
    }

    /// Drops the mappings of a run from memory.
    pub(super) fn unmap(&mut self, run: BlockRun) {
        for block in run.blocks() {
            if self.map.remove_block(block) {
                self.note_end(block);
            }
            self.lost.remove(&block);
        }
        self.note_ended();
    }

    fn sample(&mut self, line: CoreLine) {
        let it = &mut self.eviction;
        let better = it.shadows.as_mut().and_then(|shadows| shadows.access(line, it.current));
        // Where there is no memory for it, it is tried again when it has been better once more.
        let has_memory = |better: &_| can_have(policy_bytes(&self.layout, *better));
        if let Some(better) = better.filter(has_memory) {
            it.current = better;
            it.changes += 1;
            self.renew_policy();
        }
    }

    /// The mark of the line of which something is at a place, as the device is told.
    pub(super) fn kept_heat_at(&self, slot: SlotIndex) -> Heat {
        if self.identity.keeps_classes { self.map.heat_at(slot) } else { Heat::NONE }
    }

    /// Begins anew with what is mapped, in the order of the log: with who was resident, and where
    /// that leaves room with others. The oldest of these that would leave again for the rest do not
    /// enter: an open takes in hundreds of millions.
    fn renew_policy(&mut self) {
        let it = &mut self.eviction;
        let groups = it.shares.as_ref().map_or(1, Shares::groups);
        it.policy = it.current.make(it.capacity, it.core_lines, groups);
        let wants_hits = it.policy.hits() == Hits::Ordered || it.shadows.is_some();
        it.is_plain = !wants_hits && it.shares.is_none();
        self.map.note_hits(wants_hits);
        let heats = match it.remembered.take() {
            Some(heats) => heats,
            None => self.map.take_heats(),
        };
        self.map.classify(self.eviction.shares.as_ref().map(Shares::group_table));
        let mut others = self.others_beside(&heats);
        let (mut segment, mut mapped) = (self.ring.tail(), Vec::new());
        loop {
            let places = self.layout.places_of(segment);
            let take = |slot, block| mapped.push((slot, block));
            match others {
                Others::None => self.map.each_heated(places, &heats, take),
                Others::AllButOldest(_) => self.map.each_line(places, take),
            }
            for (slot, block) in mapped.drain(..) {
                let was = heats.of(&self.map, slot);
                match &mut others {
                    Others::AllButOldest(left @ 1..) if !was.is_resident() => *left -= 1,
                    _ => self.take_in_again(slot, block, was),
                }
            }
            if segment == self.ring.head() {
                break;
            }
            segment = self.ring.after(segment);
        }
    }

    fn others_beside(&self, heats: &Heats) -> Others {
        let (capacity, residents) = (self.eviction.capacity, heats.residents());
        let has_shares = self.eviction.shares.is_some();
        if residents >= capacity || has_shares && residents > 0 {
            return Others::None;
        }
        // Of some classes the oldest may well stay.
        let surplus = || self.map.lines().saturating_sub(capacity);
        Others::AllButOldest(if has_shares { 0 } else { surplus() })
    }

    /// The line of which something is at a place was resident in another life: it will be again
    /// when the policy is set.
    pub(crate) fn remember_resident(&mut self, slot: SlotIndex, heat: Heat) {
        let remembered = self.eviction.remembered.get_or_insert_default();
        remembered.add(&self.map, slot, heat);
    }

    pub(super) fn check_eviction(&self) {
        assert!(self.map.residents() <= self.eviction.capacity, "more residents than there may be");
        self.check_shares();
        self.eviction.policy.self_check(&self.map);
        self.eviction.shadows.iter().for_each(Shadows::self_check);
    }
}
