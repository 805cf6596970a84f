//! Classes of blocks and their residency: connects the map, which stores the class, and the shares,
//! which decide. Only where classes are set.

use super::{Log, id_of};
use crate::classes::ClassId;
use crate::eviction::{ClassKey, Heat, Shares};
use crate::line_map::{Asked, ClassHeld};
use crate::stats::{BypassReason, ClassUsage};
use crate::types::{BlockRun, CoreBlock, SlotIndex};
use headpond_block::{Request, RequestKind};

impl Log {
    /// Why a request of this class does not enter, whatever its blocks are: what is read has no
    /// place, or as much of what its class wrote is dirty as its share is of what may be.
    #[inline]
    pub(crate) fn refuses_class(&self, request: &Request) -> Option<BypassReason> {
        let shares = self.eviction.shares.as_ref()?;
        self.refuses_by(shares, request)
    }

    #[cold]
    fn refuses_by(&self, shares: &Shares, request: &Request) -> Option<BypassReason> {
        let key = shares.key_of(id_of(request));
        let group = shares.group_of(key).expect("a known class");
        let refuses = match request.kind {
            RequestKind::Read => !shares.has_place(group, &self.map),
            _ => {
                let most = shares.part_of(group, self.dirty_max());
                let blocks = BlockRun::touching(request.range).count;
                most < self.dirty_max() && self.unclean_of(key) + blocks > most
            }
        };
        refuses.then_some(BypassReason::ClassShare)
    }

    /// Blocks of a class that the core lacks, or has not flushed.
    fn unclean_of(&self, key: ClassKey) -> u64 {
        let ClassHeld { counts, .. } = self.map.held_by_class(key).unwrap_or_default();
        counts.dirty + counts.pending_dirty + counts.written
    }

    /// What a class holds. What was there before its class was known counts as class 0, and so does
    /// everything where there are no classes.
    pub fn usage_of(&self, class: ClassId) -> ClassUsage {
        let is_first = class == ClassId::UNCLASSIFIED;
        if !self.map.has_classes() {
            let resident = self.map.residents();
            let all = ClassHeld { counts: self.map.counts(), resident };
            return if is_first { self.usage(&all) } else { ClassUsage::default() };
        }
        let held = |key| self.usage(&self.map.held_by_class(key).unwrap_or_default());
        let mut found = held(ClassKey::of(class));
        if is_first {
            found += held(ClassKey::UNKNOWN);
        }
        found
    }

    /// Of a block that the map knows; of one that it does not know, none.
    pub(crate) fn class_of_slot(&self, slot: SlotIndex) -> ClassId {
        self.map.class_at(slot).class().unwrap_or_default()
    }

    /// What the device is told of the class of what enters.
    #[inline]
    pub(super) fn kept_class(&self, class: ClassId) -> ClassKey {
        match &self.eviction.shares {
            Some(shares) if self.identity.keeps_classes => shares.key_of(class),
            _ => ClassKey::UNKNOWN,
        }
    }

    /// The same of a block that is there.
    #[inline]
    pub(super) fn kept_class_at(&self, slot: SlotIndex) -> ClassKey {
        match self.identity.keeps_classes {
            true => self.map.class_at(slot),
            false => ClassKey::UNKNOWN,
        }
    }

    /// The blocks that have just been mapped there were brought in by a request of this class.
    pub(super) fn set_class(&mut self, slot: SlotIndex, count: u32, class: ClassId) {
        let shares = self.eviction.shares.as_ref().expect("there are classes");
        self.map.set_class(slot, count, shares.key_of(class));
    }

    /// A hit makes a block one of the class that asked for it, and has its line resident for that,
    /// where that may hold any.
    #[inline]
    pub(super) fn join_class(&mut self, slot: SlotIndex, block: CoreBlock, class: ClassId) {
        if self.eviction.shares.is_some() {
            self.change_class(slot, block, class);
        }
    }

    #[cold]
    fn change_class(&mut self, slot: SlotIndex, block: CoreBlock, class: ClassId) {
        let shares = self.eviction.shares.as_ref().expect("there are classes");
        let (key, line) = (shares.key_of(class), self.map.line_of(block));
        let has_left = self.map.class_of_line(line).is_some_and(|before| before != key);
        let group = shares.group_of(key).expect("a known class");
        let is_of_it = key == self.map.class_at(slot) && !has_left;
        if is_of_it || !shares.has_place(group, &self.map) {
            return;
        }
        if has_left {
            self.map.cool(line);
            self.eviction.policy.remove(line);
        }
        self.map.set_class(slot, 1, key);
    }

    #[cold]
    pub(super) fn take_in_by_class(&mut self, slot: SlotIndex, block: CoreBlock, was: Heat) {
        let it = &mut self.eviction;
        let shares = it.shares.as_ref().expect("there are classes");
        let group = self.map.group_at(slot);
        if shares.make_room(group, &mut *it.policy, &mut self.map) {
            let line = self.map.line_of(block);
            let heat = it.policy.insert_again(line, group, was, &mut self.map);
            self.map.admit(slot, heat);
        }
    }

    /// Policies that know who is resident learn who was written by another class.
    #[cold]
    pub(super) fn note_left(&mut self, asked: &[Asked]) {
        for asked in asked.iter().filter(|asked| !asked.is_hit) {
            self.eviction.policy.remove(self.map.line_of(asked.block));
        }
    }

    fn usage(&self, held: &ClassHeld) -> ClassUsage {
        let ClassHeld { counts, resident } = held;
        ClassUsage {
            clean_blocks: counts.clean,
            dirty_blocks: counts.dirty + counts.pending_dirty + counts.written,
            resident_blocks: *resident * self.map.line_blocks(),
        }
    }

    pub(super) fn check_shares(&self) {
        if let Some(shares) = &self.eviction.shares {
            shares.self_check(&self.map);
        }
    }
}
