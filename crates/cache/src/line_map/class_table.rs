//! Which class each block is of, a byte for each place, for which class each line is resident, a
//! byte for each extent, and the occupancy of the classes.
//!
//! A place gets its class when a request's blocks are mapped there, and passes it to the copy that
//! reclaim makes. A line is resident for the class of its last request. Blocks without a class are
//! not counted: their figures are the map's minus those of the classes.
//!
//! **Invariants**
//! - Free places have no class, nor has an extent that is no bearer.
//!
//! **Not here**: limits of occupancy (`eviction`).

use super::span::Span;
use super::{Counts, LineMap, Tag};
use crate::eviction::{ClassKey, Group, Heat, Held, KEYS};
use crate::types::{CoreBlock, CoreLine, SlotIndex};
use std::ops::Range;

/// What the blocks of one class are, and how many lines are resident for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClassHeld {
    pub counts: Counts,
    pub resident: u64,
}

pub(super) struct ClassTable {
    keys: Box<[u8]>,
    /// By extent, of bearers.
    bearers: Box<[u8]>,
    group_of: [Group; KEYS],
    /// Of known classes.
    counts: [Counts; KEYS],
    resident: [u64; KEYS],
    /// By group; what is not known stands alone in the first.
    held: [Held; KEYS],
}

impl ClassTable {
    fn new(places: u32, extents: usize, group_of: [Group; KEYS]) -> Self {
        Self {
            keys: vec![0; places as usize].into(),
            bearers: vec![0; extents].into(),
            group_of,
            counts: [Counts::default(); KEYS],
            resident: [0; KEYS],
            held: [Held::default(); KEYS],
        }
    }

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

    #[inline]
    pub(super) fn group_of_line(&self, bearer: u32) -> Group {
        self.group_of[usize::from(self.bearers[bearer as usize])]
    }

    /// An extent is about to be the bearer of its line, for the class of a place.
    #[cold]
    pub(super) fn stand_for(&mut self, at: u32, place: u32) {
        self.bearers[at as usize] = self.keys[place as usize];
    }

    #[cold]
    pub(super) fn hand_on(&mut self, at: u32, heir: u32) {
        self.bearers[heir as usize] = std::mem::take(&mut self.bearers[at as usize]);
    }

    /// A line is resident for another class of its group.
    fn rekey(&mut self, bearer: u32, key: usize) {
        let old = std::mem::replace(&mut self.bearers[bearer as usize], key as u8);
        if usize::from(old) != key {
            self.resident[usize::from(old)] -= 1;
            self.resident[key] += 1;
        }
    }

    /// The mark of a bearer changes.
    #[cold]
    pub(super) fn reheat(&mut self, at: u32, before: Heat, heat: Heat) {
        let key = usize::from(self.bearers[at as usize]);
        if !heat.is_resident() {
            self.bearers[at as usize] = 0;
        }
        if key > 0 {
            let held = &mut self.held[self.group_of[key].index()];
            held.subtract(before);
            held.add(heat);
            self.resident[key] += u64::from(heat.is_resident());
            self.resident[key] -= u64::from(before.is_resident());
        }
    }

    /// Nobody is resident from now on.
    pub(super) fn cool_all(&mut self) {
        self.bearers.fill(0);
        (self.resident, self.held) = ([0; KEYS], [Held::default(); KEYS]);
    }

    /// Of a place with this tag.
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
    /// Where any line is resident.
    pub fn classify(&mut self, groups: Option<&[Option<Group>; KEYS]>) {
        assert_eq!(self.held.all, 0, "groups are made while nobody is in one");
        let Some(groups) = groups else {
            self.by_class = None;
            return;
        };
        let old = self.by_class.take().map(|table| table.keys);
        let places = self.extents.places();
        let group_of = groups.map(Option::unwrap_or_default);
        let mut table = ClassTable::new(places, self.extents.len(), group_of);
        for (place, key) in (0..places).zip(old.iter().flatten()) {
            let tag = self.extents.tag(place);
            if tag.is_mapped() && groups[usize::from(*key)].is_some() {
                table.assign(place, ClassKey(*key), tag);
            }
        }
        self.by_class = Some(Box::new(table));
    }

    /// Blocks of another life are of a class. Until groups are made they are in one that nobody
    /// asks about.
    pub fn remember_class(&mut self, slot: SlotIndex, count: u32, key: ClassKey) {
        if self.by_class.is_none() {
            let (places, extents) = (self.extents.places(), self.extents.len());
            let table = ClassTable::new(places, extents, [Group(1); KEYS]);
            self.by_class = Some(Box::new(table));
        }
        self.set_class(slot, count, key);
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

    /// For which class a line is resident, where it is.
    pub fn class_of_line(&self, line: CoreLine) -> Option<ClassKey> {
        let (table, at) = (self.by_class.as_ref()?, self.extents.bearer(line)?);
        Some(ClassKey(table.bearers[at as usize]))
    }

    /// The blocks at these places are of a class from now on.
    pub fn set_class(&mut self, slot: SlotIndex, count: u32, key: ClassKey) {
        let Some(table) = &mut self.by_class else { return };
        for place in slot.0..slot.0 + count {
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
        let bytes =
            |table: &ClassTable| size_of::<ClassTable>() + table.keys.len() + table.bearers.len();
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

    /// What is about to be published at a place was asked for by another class, perhaps: then its
    /// line is resident for that one, or, in another group, not any more.
    #[cold]
    pub(super) fn give_class(&mut self, line: CoreLine, place: u32) {
        let Some(at) = self.extents.bearer(line) else { return };
        let Some(table) = &mut self.by_class else { return };
        if table.group_of_line(at) == table.group(place) {
            return table.rekey(at, table.key(place));
        }
        self.set_mark(at, Heat::NONE);
    }

    /// Copies that are about to be published are of the classes of what they are copies of.
    #[cold]
    pub(super) fn hand_classes_on(&mut self, span: &Span, places: Range<u32>) {
        for place in places.filter(|place| self.extents.tag(*place).is_pending()) {
            let block = CoreBlock(span.block + u64::from(place - span.place));
            let Some(older) = self.published(block) else { continue };
            let (key, tag) = (self.class_at(older.slot), self.extents.tag(place));
            if let Some(table) = &mut self.by_class {
                table.assign(place, key, tag);
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
            if key > 0 {
                counts[key].add(tag);
            }
        }
        for (at, key) in (0..).zip(&table.bearers) {
            let heat = self.extents.heat(at);
            assert!(heat.is_resident() || *key == 0, "who is no bearer has no class");
            held[table.group_of_line(at).index()].add(heat);
            if *key > 0 {
                resident[usize::from(*key)] += u64::from(heat.is_resident());
            }
        }
        assert_eq!((counts, resident), (table.counts, table.resident), "classes hold what they do");
        for group in (0..KEYS as u8).map(Group) {
            assert_eq!(held[group.index()], self.held_by(group), "{group:?}");
        }
    }
}
