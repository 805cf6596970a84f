//! Who is resident in the log: between the map, where it is marked, and the policy, which decides.

use super::{Intake, Log};
use crate::classes::{ClassId, Classes};
use crate::eviction::{EvictionPolicy, Group, Heat, Hits, Policy, ShadowStats, Shadows, Shares};
use crate::line_map::{Asked, State, Version};
use crate::types::{BlockRun, CoreBlock, SlotIndex};
use serde::Serialize;

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
    /// Whether a hit only raises the frequency, and nobody else wants to know of it.
    is_plain: bool,
    changes: u64,
    pub(super) capacity: u64,
    carried_max: u64,
    core_blocks: u64,
}

/// Who stays in the cache, by which policy, and why that one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EvictionStats {
    pub setting: EvictionPolicy,
    /// In use.
    pub policy: EvictionPolicy,
    pub resident_bytes: u64,
    pub resident_bytes_max: u64,
    /// How often `adaptive` has chosen another one.
    pub changes: u64,
    /// How each would have done on a sample of the requests, where `adaptive` compares them.
    pub sampled: Vec<ShadowStats>,
}

impl Eviction {
    /// For a log with so many places for new data. Nobody is resident until a policy is set, which
    /// takes the memory for its queues then.
    pub fn new(usable_places: u64, core_blocks: u64) -> Self {
        let policy = EvictionPolicy::Fifo;
        let capacity = (usable_places * RESIDENT_PERCENT / 100).max(1);
        Self {
            setting: policy,
            is_set: false,
            current: policy,
            policy: policy.make(1, core_blocks, 1),
            shares: None,
            shadows: None,
            is_plain: true,
            changes: 0,
            capacity,
            carried_max: usable_places * CARRIED_PERCENT / 100,
            core_blocks,
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
                it.shadows = Some(Shadows::new(it.capacity, it.core_blocks));
            } else {
                it.current = setting;
            }
        }
        (it.is_set, it.shares) = (true, shares);
        self.renew_policy();
    }

    /// The core has so many blocks from now on. What is kept of blocks by their numbers begins anew
    /// where these have become longer.
    pub fn lengthen_core(&mut self, core_blocks: u64) {
        self.dirty.lengthen(core_blocks);
        self.replayed.lengthen(core_blocks);
        let it = &mut self.eviction;
        let bits = |blocks: u64| u64::BITS - blocks.leading_zeros();
        let has_longer_numbers = bits(core_blocks) > bits(it.core_blocks);
        it.core_blocks = core_blocks;
        if has_longer_numbers {
            it.shadows = it.shadows.take().map(|_| Shadows::new(it.capacity, core_blocks));
            self.renew_policy();
        }
    }

    pub fn eviction_stats(&self) -> EvictionStats {
        let it = &self.eviction;
        EvictionStats {
            setting: it.setting,
            policy: it.current,
            resident_bytes: self.map.residents() * headpond_block::BLOCK_BYTES,
            resident_bytes_max: it.capacity * headpond_block::BLOCK_BYTES,
            changes: it.changes,
            sampled: it.shadows.as_ref().map(Shadows::stats).unwrap_or_default(),
        }
    }

    /// Whether for each block that enters another one leaves.
    pub(super) fn is_full_of_residents(&self) -> bool {
        self.map.residents() >= self.eviction.capacity
    }

    /// A read found this version.
    #[inline]
    pub(crate) fn refer_to(&mut self, version: Version, class: ClassId) {
        self.refer(version.slot, version.block, class);
    }

    /// A read of this class found this block there.
    #[inline]
    pub(crate) fn refer(&mut self, slot: SlotIndex, block: CoreBlock, class: ClassId) {
        let heat = self.map.heat_at(slot);
        match heat.is_resident() && self.eviction.is_plain {
            true => self.map.warm(slot, heat),
            false => self.refer_slowly(slot, block, class),
        }
    }

    /// As [`Log::refer`], wherever the blocks of a run are.
    pub(crate) fn refer_to_run(&mut self, run: BlockRun, class: ClassId) {
        for block in run.blocks() {
            if let Some(version) = self.map.published(block) {
                self.refer_to(version, class);
            }
        }
    }

    fn refer_slowly(&mut self, slot: SlotIndex, block: CoreBlock, class: ClassId) {
        let is_back = !self.map.heat_at(slot).is_resident();
        self.counters.readmitted_blocks += u64::from(is_back);
        if self.eviction.shares.is_some() {
            self.change_class(slot, block, class);
        }
        let heat = self.map.heat_at(slot);
        if !heat.is_resident() {
            self.take_in(slot, block);
        } else if self.eviction.is_ordered() {
            self.eviction.policy.hit(block);
        } else {
            self.map.warm(slot, heat);
        }
        self.sample(block);
    }

    #[inline]
    fn take_in(&mut self, slot: SlotIndex, block: CoreBlock) {
        if self.eviction.shares.is_some() {
            return self.take_in_by_class(slot, block);
        }
        let heat = self.eviction.policy.insert(block, Group::FIRST, &mut self.map);
        self.map.set_heat_at(slot, heat);
    }

    /// The blocks of these will be resident when their record has been written.
    #[inline]
    pub(super) fn foresee_residents(&self, intakes: &[Intake], step: u32) {
        for intake in intakes.iter().filter(|intake| !intake.buffers.is_empty()) {
            self.eviction.policy.foresee(intake.run, step);
        }
    }

    /// The policy learns what has just been published.
    #[inline]
    pub(super) fn note_published(&mut self) {
        let asked = self.map.take_asked();
        if self.eviction.shares.is_some() && self.eviction.is_ordered() {
            self.note_left(&asked);
        }
        let is_alone = self.eviction.shares.is_none() && self.eviction.shadows.is_none();
        for asked in &asked {
            match is_alone {
                true => self.take_in_or_hit(asked),
                false => self.take_in_each(asked),
            }
        }
        self.map.return_asked(asked);
    }

    /// Where nobody but the policy wants to know.
    #[inline]
    fn take_in_or_hit(&mut self, asked: &Asked) {
        let Asked { run: mut left, mut slot, .. } = *asked;
        while left.count > 0 {
            // Others of the same record may have driven some out.
            let cold = self.map.cold_from(slot, left.count);
            let count = if cold > 0 {
                let it = &mut self.eviction.policy;
                let run = BlockRun { count: cold, ..left };
                let (count, heat) = it.insert_run(run, Group::FIRST, &mut self.map);
                self.map.set_heats_at(slot, count, heat);
                count
            } else {
                if self.eviction.is_ordered() {
                    self.eviction.policy.hit(left.first);
                }
                1
            };
            (slot, left) = (SlotIndex(slot.0 + count as u32), left.without_first(count));
        }
    }

    #[cold]
    fn take_in_each(&mut self, asked: &Asked) {
        for (slot, block) in (asked.slot.0..).map(SlotIndex).zip(asked.run.blocks()) {
            // Others of the same record may have driven it out, or renewed the policy, which took
            // it in.
            if !self.map.heat_at(slot).is_resident() {
                self.take_in(slot, block);
            } else if self.eviction.is_ordered() {
                self.eviction.policy.hit(block);
            }
            self.sample(block);
        }
    }

    /// The mapping of a block has ended.
    #[inline]
    pub(super) fn note_end(&mut self, block: CoreBlock) {
        if self.eviction.is_ordered() {
            self.eviction.policy.remove(block);
        }
        if let Some(shadows) = &mut self.eviction.shadows {
            shadows.remove(block);
        }
    }

    /// Whether residents are carried on: not where there is hardly room for what must be.
    pub(crate) fn carries_residents(&self) -> bool {
        let must = self.dirty_now() + self.map.counts().written;
        must + self.map.held_clean() <= self.eviction.carried_max
            && self.ring.free() > 2
            && !self.is_scattered()
    }

    /// Clean blocks of a segment are about to be dropped, and with them those residents for which
    /// there was no room.
    pub(crate) fn note_dropped(&mut self, slots: impl Iterator<Item = SlotIndex>) {
        for slot in slots {
            if self.map.heat_at(slot).is_resident() {
                self.counters.dropped_resident_blocks += 1;
                let block = self.map.version(slot).block;
                self.map.set_heat_at(slot, Heat::NONE);
                self.eviction.policy.remove(block);
            }
        }
    }

    /// Drops the mappings of a run from memory.
    pub(super) fn unmap(&mut self, run: BlockRun) {
        for block in run.blocks() {
            if self.map.remove_block(block) {
                self.note_end(block);
            }
            self.lost.remove(&block);
        }
    }

    fn sample(&mut self, block: CoreBlock) {
        let it = &mut self.eviction;
        let better = it.shadows.as_mut().and_then(|shadows| shadows.access(block, it.current));
        if let Some(better) = better {
            it.current = better;
            it.changes += 1;
            self.renew_policy();
        }
    }

    /// Begins anew with what is mapped, in the order of the log. The oldest that would leave again
    /// for the others do not enter: an open takes in hundreds of millions.
    fn renew_policy(&mut self) {
        let it = &mut self.eviction;
        let groups = it.shares.as_ref().map_or(1, Shares::groups);
        it.policy = it.current.make(it.capacity, it.core_blocks, groups);
        let wants_hits = it.policy.hits() == Hits::Ordered || it.shadows.is_some();
        it.is_plain = !wants_hits && it.shares.is_none();
        self.map.note_hits(wants_hits);
        let was_set = self.map.residents() > 0;
        for slot in (0..self.layout.slots()).filter(|_| was_set).map(SlotIndex) {
            if self.map.heat_at(slot).is_resident() {
                self.map.set_heat_at(slot, Heat::NONE);
            }
        }
        // With shares the oldest may well stay.
        let is_shared = self.eviction.shares.is_some();
        let surplus = self.map.counts().mapped().saturating_sub(self.eviction.capacity);
        let mut surplus = if is_shared { 0 } else { surplus };
        self.map.classify(self.eviction.shares.as_ref().map(Shares::group_table));
        let (mut segment, mut mapped) = (self.ring.tail(), Vec::new());
        loop {
            let each = self.layout.slots_per_segment() as u32;
            let places = segment.0 * each..(segment.0 + 1) * each;
            self.map.each_mapped(places, |first, checksums| {
                if first.state != State::Pending {
                    mapped.push((first.slot, first.block, checksums.len() as u64));
                }
            });
            for (slot, block, count) in mapped.drain(..) {
                let left_out = surplus.min(count);
                surplus -= left_out;
                for at in left_out..count {
                    self.take_in(SlotIndex(slot.0 + at as u32), CoreBlock(block.0 + at));
                }
            }
            if segment == self.ring.head() {
                break;
            }
            segment = self.ring.after(segment);
        }
    }

    pub(super) fn check_eviction(&self) {
        assert!(self.map.residents() <= self.eviction.capacity, "more residents than there may be");
        self.check_shares();
    }
}
