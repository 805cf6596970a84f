//! Which class each block is of, a byte for each place, and what the classes hold.
//!
//! A place takes its class when a request's blocks are mapped there, and gives it to the copy that
//! reclaim makes. What is not told a class is of none that is known: its figures are what the
//! others leave of the map's.
//!
//! **Invariants**
//! - What is free has no class.
//!
//! **Not here**: who may hold how much (`eviction`).

use super::{Counts, LineMap, Tag};
use crate::eviction::{ClassKey, Group, Heat, Held, KEYS};
use crate::types::SlotIndex;

/// What the blocks of one class are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClassHeld {
    pub counts: Counts,
    pub resident: u64,
}

pub(super) struct ClassTable {
    keys: Box<[u8]>,
    group_of: [Group; KEYS],
    /// Of known classes.
    counts: [Counts; KEYS],
    resident: [u64; KEYS],
    /// By group; what is not known stands alone in the first.
    held: [Held; KEYS],
}

impl ClassTable {
    #[inline]
    fn key(&self, place: u32) -> usize {
        usize::from(self.keys[place as usize])
    }

    #[inline]
    pub(super) fn group(&self, place: u32) -> Group {
        self.group_of[self.key(place)]
    }

    #[cold]
    pub(super) fn release(&mut self, place: u32, tag: Tag) {
        let key = self.key(place);
        if key > 0 {
            self.counts[key].subtract(tag);
            self.keys[place as usize] = 0;
        }
    }

    #[cold]
    pub(super) fn retag(&mut self, place: u32, old: Tag, new: Tag) {
        let key = self.key(place);
        if key > 0 {
            self.counts[key].subtract(old);
            self.counts[key].add(new);
        }
    }

    #[cold]
    pub(super) fn reheat(&mut self, place: u32, before: Heat, heat: Heat) {
        let key = self.key(place);
        if key > 0 {
            let held = &mut self.held[self.group_of[key].index()];
            held.subtract(before);
            held.add(heat);
            self.resident[key] += u64::from(heat.is_resident());
            self.resident[key] -= u64::from(before.is_resident());
        }
    }

    /// Of a place with this tag that holds no resident.
    fn assign(&mut self, place: u32, key: ClassKey, tag: Tag) {
        self.release(place, tag);
        if key != ClassKey::UNKNOWN {
            self.counts[key.index()].add(tag);
            self.keys[place as usize] = key.0;
        }
    }
}

impl LineMap {
    /// Keeps classes from now on, in these groups, or none. Who is of a class that there still is
    /// stays of it.
    ///
    /// # Panics
    /// Where anybody is resident.
    pub fn classify(&mut self, groups: Option<&[Option<Group>; KEYS]>) {
        assert_eq!(self.held.all, 0, "groups are made while nobody is in one");
        let Some(groups) = groups else {
            self.by_class = None;
            return;
        };
        let old = self.by_class.take().map(|table| table.keys);
        let places = self.extents.places();
        let mut table = ClassTable {
            keys: vec![0; places as usize].into(),
            group_of: groups.map(Option::unwrap_or_default),
            counts: [Counts::default(); KEYS],
            resident: [0; KEYS],
            held: [Held::default(); KEYS],
        };
        for (place, key) in (0..places).zip(old.iter().flatten()) {
            let tag = self.extents.tag(place);
            if tag.is_mapped() && groups[usize::from(*key)].is_some() {
                table.assign(place, ClassKey(*key), tag);
            }
        }
        self.by_class = Some(Box::new(table));
    }

    pub fn has_classes(&self) -> bool {
        self.by_class.is_some()
    }

    pub fn class_at(&self, slot: SlotIndex) -> ClassKey {
        self.by_class
            .as_ref()
            .map_or(ClassKey::UNKNOWN, |table| ClassKey(table.keys[slot.0 as usize]))
    }

    pub fn group_at(&self, slot: SlotIndex) -> Group {
        self.by_class.as_ref().map_or(Group::FIRST, |table| table.group(slot.0))
    }

    /// The blocks at these places are of a class from now on.
    ///
    /// # Panics
    /// Where one is resident.
    pub fn set_class(&mut self, slot: SlotIndex, count: u32, key: ClassKey) {
        let Some(table) = &mut self.by_class else { return };
        for place in slot.0..slot.0 + count {
            assert!(!self.extents.heat(place).is_resident(), "residents are evicted first");
            let tag = self.extents.tag(place);
            if tag.is_mapped() {
                table.assign(place, key, tag);
            }
        }
    }

    /// What the blocks of a class are; `None` where classes are not kept.
    pub fn held_by_class(&self, key: ClassKey) -> Option<ClassHeld> {
        let table = self.by_class.as_ref()?;
        if key != ClassKey::UNKNOWN {
            let (counts, resident) = (table.counts[key.index()], table.resident[key.index()]);
            return Some(ClassHeld { counts, resident });
        }
        let mut held = ClassHeld { counts: self.counts, resident: self.held.all };
        for (counts, resident) in table.counts.iter().zip(&table.resident) {
            held.counts.subtract_all(counts);
            held.resident -= resident;
        }
        Some(held)
    }

    pub fn class_bytes(&self) -> u64 {
        let bytes = |table: &ClassTable| size_of::<ClassTable>() + table.keys.len();
        self.by_class.as_deref().map_or(0, bytes) as u64
    }

    /// Residents of a group.
    pub(super) fn held_by(&self, group: Group) -> Held {
        let Some(table) = &self.by_class else { return self.held };
        if group != Group::FIRST {
            return table.held[group.index()];
        }
        table.held.iter().fold(self.held, |left, held| Held {
            all: left.all - held.all,
            main: left.main - held.main,
        })
    }

    /// A newer version is about to take the place of an older one. A copy takes over the class; who
    /// was written anew is of the class that wrote it, and leaves its group.
    #[cold]
    pub(super) fn hand_class_over(&mut self, older: u32, newer: u32, is_moved: bool) {
        let Some(table) = &mut self.by_class else { return };
        if !self.extents.tag(older).is_published() {
            // A hole in an extent, or a version that was never there, has no class to give.
            return;
        }
        if is_moved {
            let (key, tag) = (ClassKey(table.keys[older as usize]), self.extents.tag(newer));
            table.assign(newer, key, tag);
        }
        if table.group(older) != table.group(newer) {
            self.cool(older);
        } else {
            // Of one group, and perhaps of two classes.
            let is_resident = u64::from(self.extents.heat(older).is_resident());
            let (old, new) = (table.key(older), table.key(newer));
            if old != new {
                table.resident[old] -= is_resident;
                table.resident[new] += is_resident;
            }
        }
    }

    pub(super) fn check_classes(&self) {
        let Some(table) = &self.by_class else { return };
        let (mut counts, mut resident) = ([Counts::default(); KEYS], [0; KEYS]);
        let mut held = [Held::default(); KEYS];
        for place in 0..self.extents.places() {
            let (key, tag) = (table.key(place), self.extents.tag(place));
            assert!(tag.is_mapped() || key == 0, "what is free has no class");
            let heat = self.extents.heat(place);
            held[table.group(place).index()].add(heat);
            if key > 0 {
                counts[key].add(tag);
                resident[key] += u64::from(heat.is_resident());
            }
        }
        assert_eq!((counts, resident), (table.counts, table.resident), "classes hold what they do");
        for group in (0..KEYS as u8).map(Group) {
            assert_eq!(held[group.index()], self.held_by(group), "{group:?}");
        }
    }
}
