//! What a disk holds and what it would still hold without power.
//!
//! 1. A write is *in flight* from its submission, *completed* when acknowledged, and *durable* when
//!    a flush that began after that has ended, or by its own FUA.
//! 2. At a power cut every write that is not durable happens wholly, not at all, or in part (a
//!    prefix or any set of 512-byte sectors), in any order: of several writes of a sector any may
//!    be the last.
//! 3. A medium outlives the run that used it; the next run attaches a new `SimDisk` to it.
//!
//! **Invariants**: a flush covers what was completed when it was submitted, and nothing else: a
//! caller that does not wait for its writes is found out. Memory is taken for what was written
//! only.

use crate::Random;
use crate::sparse::SparseStore;
use headpond_block::{ByteRange, DeviceName, Geometry, SECTOR_BYTES, Stability};
use std::cell::{Ref, RefCell};
use std::collections::{BTreeMap, VecDeque};

/// Writes whose places are remembered.
const LATEST_MAX: usize = 64;

/// Whether the disk does what FLUSH and FUA ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Flushes {
    #[default]
    Honoured,
    /// Answered and forgotten: the disk lies.
    Ignored,
}

/// What a power cut takes of the writes that were not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    Nothing,
    Everything,
    /// The write that began last.
    TheLast,
    /// The second half of the write that began last.
    HalfOfTheLast,
    /// All but the write that began last.
    AllButTheLast,
}

impl Loss {
    fn keeps_others(self) -> bool {
        !matches!(self, Self::Everything | Self::AllButTheLast)
    }
}

/// The platters and the cache of one simulated disk.
pub struct Medium {
    name: DeviceName,
    geometry: Geometry,
    flushes: Flushes,
    atom_bytes: u64,
    state: RefCell<State>,
}

/// What a medium held at some time.
pub struct Picture(SparseStore);

impl Picture {
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.read(offset, &mut bytes);
        bytes
    }
}

/// A point in the order of submissions and completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

#[derive(Default)]
struct State {
    durable: SparseStore,
    /// What reads see: the durable image and all completed writes.
    current: SparseStore,
    undurable: BTreeMap<Moment, Write>,
    /// Where the last writes went, the newest last.
    latest: VecDeque<ByteRange>,
    now: u64,
}

/// What a write leaves behind.
pub(crate) enum Data {
    /// Pieces of the range, by their distance from its start. Of what came without payload nothing
    /// is kept.
    Parts(Vec<(u64, Vec<u8>)>),
    Zeroes,
}

struct Write {
    range: ByteRange,
    data: Data,
    completed: Option<Moment>,
    /// The parts of the range that no later durable write has replaced.
    alive: Vec<ByteRange>,
}

impl Medium {
    /// A blank disk. Its stability decides what it loses: nothing that was acknowledged, what was
    /// not flushed, or everything.
    pub fn new(name: impl Into<DeviceName>, geometry: Geometry) -> Self {
        let (flushes, state) = (Flushes::default(), RefCell::default());
        Self { name: name.into(), geometry, flushes, atom_bytes: SECTOR_BYTES, state }
    }

    /// A blank disk with a volatile cache that honours FLUSH, of `size_bytes` and 512-byte blocks.
    pub fn flushable(name: impl Into<DeviceName>, size_bytes: u64) -> Self {
        let geometry = Geometry::of_size(size_bytes);
        Self::new(name, Geometry { stability: Stability::Flushable, ..geometry })
    }

    pub fn with_flushes(mut self, flushes: Flushes) -> Self {
        self.flushes = flushes;
        self
    }

    /// The disk never tears an aligned piece of so many bytes, as one with 4 KiB physical sectors.
    pub fn with_atoms(mut self, atom_bytes: u64) -> Self {
        assert!(atom_bytes.is_power_of_two() && atom_bytes >= SECTOR_BYTES);
        self.atom_bytes = atom_bytes;
        self
    }

    pub fn name(&self) -> &DeviceName {
        &self.name
    }

    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Cuts the power: decides what is left of everything that was not durable. In-flight
    /// operations of a run that still goes on are lost; drop that run first. Tells how many writes
    /// were torn.
    pub fn lose_power(&self, random: &mut Random) -> usize {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let mut writes: Vec<Write> = std::mem::take(&mut state.undurable).into_values().collect();
        random.shuffle(&mut writes);
        // Some cuts come early and leave of all that was in the cache next to nothing.
        let odds = *random.pick(&[1, 1, 4, 32]);
        writes.retain(|_| random.one_in(odds));
        let mut torn = 0;
        for write in &writes {
            let kept = survivors(write, self.atom_bytes, random);
            let kept_bytes: u64 = kept.iter().map(|part| part.len()).sum();
            torn += usize::from(kept_bytes > 0 && kept_bytes < write.range.len());
            kept.into_iter().for_each(|part| write.apply(&mut state.durable, part));
        }
        if self.geometry.stability == Stability::LostOnPower {
            state.durable = SparseStore::default();
        }
        state.current = state.durable.clone();
        torn
    }

    /// Cuts the power with a chosen outcome instead of a drawn one.
    pub fn lose_power_as(&self, loss: Loss) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let mut writes: Vec<Write> = std::mem::take(&mut state.undurable).into_values().collect();
        let last = writes.pop().filter(|_| loss != Loss::Everything);
        let others = if loss.keeps_others() { writes } else { Vec::new() };
        for write in others.iter().chain(&last) {
            let is_last = last.as_ref().is_some_and(|last| std::ptr::eq(last, write));
            let len = match (is_last, loss) {
                (true, Loss::TheLast) => 0,
                (true, Loss::HalfOfTheLast) => {
                    write.range.len() / 2 / self.atom_bytes * self.atom_bytes
                }
                _ => write.range.len(),
            };
            let kept = ByteRange::at(write.range.start(), len);
            for part in write.alive.iter().map(|part| part.intersect(kept)) {
                write.apply(&mut state.durable, part);
            }
        }
        if self.geometry.stability == Stability::LostOnPower {
            state.durable = SparseStore::default();
        }
        state.current = state.durable.clone();
    }

    /// The program that used the disk dies, the disk does not: of what was in flight each write
    /// happens or not, and until somebody uses the disk again it has made everything durable.
    pub fn lose_program(&self, random: &mut Random) {
        if self.geometry.stability == Stability::LostOnPower {
            self.lose_power(random);
            return;
        }
        let in_flight: Vec<Moment> = {
            let state = self.state.borrow();
            let writes = state.undurable.iter();
            writes.filter(|(_, write)| write.completed.is_none()).map(|(at, _)| *at).collect()
        };
        for begun in in_flight {
            match random.one_in(2) {
                true => self.complete_write(begun),
                false => drop(self.state.borrow_mut().undurable.remove(&begun)),
            }
        }
        self.rest();
    }

    /// What a program reads of it now, as a disk of its own.
    pub fn image(&self) -> Self {
        let current = self.state.borrow().current.clone();
        let copy = State { durable: current.clone(), current, ..State::default() };
        let Self { name, geometry, flushes, atom_bytes, .. } = self;
        let (name, geometry, state) = (name.clone(), geometry.clone(), RefCell::new(copy));
        Self { name, geometry, flushes: *flushes, atom_bytes: *atom_bytes, state }
    }

    /// Another disk that holds the same, durably.
    ///
    /// # Panics
    /// Where something is not durable yet.
    pub fn duplicate(&self) -> Self {
        let state = self.state.borrow();
        assert!(state.undurable.is_empty(), "a disk at rest");
        let copy = State {
            durable: state.durable.clone(),
            current: state.current.clone(),
            undurable: BTreeMap::new(),
            latest: state.latest.clone(),
            now: state.now,
        };
        let Self { name, geometry, flushes, atom_bytes, .. } = self;
        let (name, geometry, state) = (name.clone(), geometry.clone(), RefCell::new(copy));
        Self { name, geometry, flushes: *flushes, atom_bytes: *atom_bytes, state }
    }

    /// Makes everything that was written durable, as a disk does that is switched off in order.
    pub fn rest(&self) {
        let mut state = self.state.borrow_mut();
        assert!(state.undurable.values().all(|write| write.completed.is_some()), "in flight");
        state.undurable.clear();
        state.durable = state.current.clone();
    }

    /// What reads see now, to be compared with later.
    pub fn picture(&self) -> Picture {
        Picture(self.state.borrow().current.clone())
    }

    /// Where the last writes went, the newest last.
    pub fn latest_writes(&self) -> Vec<ByteRange> {
        self.state.borrow().latest.iter().copied().collect()
    }

    /// Writes that a power cut could still undo.
    pub fn undurable_writes(&self) -> usize {
        self.state.borrow().undurable.len()
    }

    /// What a read would return, looked at from outside.
    pub fn peek(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.state.borrow().current.read(offset, &mut bytes);
        bytes
    }

    /// Changes the disk behind everybody's back, durably: damage, or a stale copy put back.
    pub fn poke(&self, offset: u64, bytes: &[u8]) {
        let mut state = self.state.borrow_mut();
        state.supersede(ByteRange::at(offset, bytes.len() as u64), Moment(u64::MAX));
        state.current.write(offset, bytes);
        state.durable.write(offset, bytes);
    }

    pub(crate) fn begin_write(&self, range: ByteRange, data: Data) -> Moment {
        let mut state = self.state.borrow_mut();
        let begun = state.tick();
        state.latest.push_back(range);
        if state.latest.len() > LATEST_MAX {
            state.latest.pop_front();
        }
        let write = Write { range, data, completed: None, alive: vec![range] };
        state.undurable.insert(begun, write);
        begun
    }

    /// The write that began then is acknowledged.
    pub(crate) fn complete_write(&self, begun: Moment) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let completed = state.tick();
        let write = state.undurable.get_mut(&begun).expect("a write in flight");
        write.completed = Some(completed);
        write.apply(&mut state.current, write.range);
        if self.geometry.stability == Stability::StableOnCompletion {
            state.make_durable(begun);
        }
    }

    /// The completed write that began then is stable (FUA).
    pub(crate) fn complete_fua(&self, begun: Moment) {
        if self.flushes == Flushes::Honoured {
            self.state.borrow_mut().make_durable(begun);
        }
    }

    pub(crate) fn begin_flush(&self) -> Moment {
        self.state.borrow_mut().tick()
    }

    pub(crate) fn complete_flush(&self, begun: Moment) {
        if self.flushes == Flushes::Ignored {
            return;
        }
        let mut state = self.state.borrow_mut();
        let is_covered = |write: &Write| write.completed.is_some_and(|at| at < begun);
        let mut covered: Vec<(Moment, Moment)> = (state.undurable.iter())
            .filter(|(_, write)| is_covered(write))
            .map(|(begun, write)| (write.completed.expect("completed"), *begun))
            .collect();
        covered.sort_unstable();
        for (_, begun) in covered {
            state.make_durable(begun);
        }
    }

    /// A flush has failed: what was completed is durable by now or never will be, though reads see
    /// it until the power is cut, and no later flush covers it (as Linux does with its pages).
    pub(crate) fn fail_flush(&self, random: &mut Random) {
        let mut state = self.state.borrow_mut();
        let is_completed = |write: &Write| write.completed.is_some();
        let completed = state.undurable.iter().filter(|(_, write)| is_completed(write));
        let completed: Vec<Moment> = completed.map(|(begun, _)| *begun).collect();
        let odds = *random.pick(&[1, 2, 8]);
        for begun in completed {
            match odds > 1 && random.one_in(odds) {
                true => state.make_durable(begun),
                false => drop(state.undurable.remove(&begun)),
            }
        }
    }

    pub(crate) fn current(&self) -> Ref<'_, SparseStore> {
        Ref::map(self.state.borrow(), |state| &state.current)
    }
}

impl State {
    fn tick(&mut self) -> Moment {
        self.now += 1;
        Moment(self.now)
    }

    /// Puts a completed write on the platter; what it replaces there can never come back.
    fn make_durable(&mut self, begun: Moment) {
        let Some(write) = self.undurable.remove(&begun) else { return };
        for part in &write.alive {
            write.apply(&mut self.durable, *part);
        }
        self.supersede(write.range, write.completed.expect("completed"));
    }

    /// Of the writes completed before `completed`, whenever they began, the parts in `range` are
    /// past: reads have shown since what replaced them.
    fn supersede(&mut self, range: ByteRange, completed: Moment) {
        let older = |write: &&mut Write| write.completed.is_some_and(|at| at < completed);
        for write in self.undurable.values_mut().filter(older) {
            write.alive = write.alive.iter().flat_map(|part| without(*part, range)).collect();
        }
        self.undurable.retain(|_, write| !write.alive.is_empty());
    }
}

impl Write {
    /// Writes the part of itself that lies in `part`.
    fn apply(&self, store: &mut SparseStore, part: ByteRange) {
        let part = part.intersect(self.range);
        match &self.data {
            Data::Parts(parts) => {
                for (at, bytes) in parts {
                    let place = ByteRange::at(self.range.start() + at, bytes.len() as u64);
                    let kept = place.intersect(part);
                    if !kept.is_empty() {
                        let start = (kept.start() - place.start()) as usize;
                        store.write(kept.start(), &bytes[start..start + kept.len() as usize]);
                    }
                }
            }
            Data::Zeroes => store.erase(part.start(), part.len()),
        }
    }
}

/// The two sides of `range` that `hole` leaves.
fn without(range: ByteRange, hole: ByteRange) -> impl Iterator<Item = ByteRange> {
    let before =
        ByteRange::between(range.start(), range.end().min(hole.start()).max(range.start()));
    let after = ByteRange::between(range.start().max(hole.end()).min(range.end()), range.end());
    let sides = if range.overlaps(hole) { [before, after] } else { [range, ByteRange::EMPTY] };
    sides.into_iter().filter(|side| !side.is_empty())
}

/// Longer writes are torn in two only, not sector by sector.
const SHREDDED_BYTES_MAX: u64 = 1 << 20;

/// The parts of a write that reach the medium while the power goes.
fn survivors(write: &Write, atom_bytes: u64, random: &mut Random) -> Vec<ByteRange> {
    let within = |range: ByteRange| {
        let parts = write.alive.iter().map(move |part| part.intersect(range));
        parts.filter(|part| !part.is_empty()).collect::<Vec<_>>()
    };
    match random.below(4) {
        0 => Vec::new(),
        1 => within(write.range),
        2 if write.range.len() <= SHREDDED_BYTES_MAX => {
            let pieces = write.range.split_at_multiples(atom_bytes);
            let kept: Vec<ByteRange> = pieces.filter(|_| random.one_in(2)).collect();
            kept.into_iter().flat_map(within).collect()
        }
        _ => {
            let atoms = write.range.split_at_multiples(atom_bytes).count() as u64;
            let prefix = random.below(atoms + 1) as usize;
            let pieces = write.range.split_at_multiples(atom_bytes).take(prefix);
            pieces.flat_map(within).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn write(medium: &Medium, byte: u8) -> Moment {
        let range = ByteRange::at(0, 1024);
        medium.begin_write(range, Data::Parts(vec![(0, vec![byte; 1024])]))
    }

    /// What the first two sectors may hold after a power cut.
    fn outcomes(prepare: impl Fn(&Medium)) -> BTreeSet<(u8, u8)> {
        let outcome = |seed| {
            let medium = Medium::flushable("disk", 4096);
            prepare(&medium);
            medium.lose_power(&mut Random::new(seed));
            let bytes = medium.peek(0, 1024);
            assert_eq!(bytes[..512], [bytes[0]; 512]);
            (bytes[0], bytes[512])
        };
        (0..200).map(outcome).collect()
    }

    #[test]
    fn unflushed_writes_happen_torn_or_not_in_any_order() {
        let found = outcomes(|medium| {
            for byte in [1, 2] {
                let begun = write(medium, byte);
                medium.complete_write(begun);
            }
        });
        let all = (0..3).flat_map(|a| (0..3).map(move |b| (a, b))).collect();
        assert_eq!(found, all);
    }

    #[test]
    fn what_a_stable_write_has_replaced_never_comes_back_though_both_were_in_flight() {
        let found = outcomes(|medium| {
            let (first, second) = (write(medium, 1), write(medium, 2));
            medium.complete_write(first);
            medium.complete_write(second);
            medium.complete_fua(second);
        });
        assert_eq!(found, BTreeSet::from([(2, 2)]));
    }

    #[test]
    fn a_flush_covers_what_was_completed_when_it_began() {
        let found = outcomes(|medium| {
            let first = write(medium, 1);
            medium.complete_write(first);
            let second = write(medium, 2);
            let flush = medium.begin_flush();
            medium.complete_write(second);
            medium.complete_flush(flush);
        });
        assert_eq!(found, [(1, 1), (1, 2), (2, 1), (2, 2)].into());
    }

    #[test]
    fn fua_is_durable_and_buries_what_came_before() {
        let found = outcomes(|medium| {
            let first = write(medium, 1);
            medium.complete_write(first);
            let second = write(medium, 2);
            medium.complete_write(second);
            medium.complete_fua(second);
        });
        assert_eq!(found, [(2, 2)].into());
    }

    #[test]
    fn a_liar_keeps_nothing_safe() {
        let liar = || Medium::flushable("liar", 4096).with_flushes(Flushes::Ignored);
        let lost = (0..50).any(|seed| {
            let medium = liar();
            let begun = write(&medium, 1);
            medium.complete_write(begun);
            let flush = medium.begin_flush();
            medium.complete_flush(flush);
            medium.lose_power(&mut Random::new(seed));
            medium.peek(0, 1)[0] == 0
        });
        assert!(lost);
    }

    #[test]
    fn stability_decides_what_is_lost() {
        for (stability, left) in [(Stability::StableOnCompletion, 1), (Stability::LostOnPower, 0)] {
            let geometry = Geometry { stability, ..Geometry::of_size(4096) };
            let medium = Medium::new("disk", geometry);
            let begun = write(&medium, 1);
            medium.complete_write(begun);
            let flush = medium.begin_flush();
            medium.complete_flush(flush);
            medium.lose_power(&mut Random::new(1));
            assert_eq!(medium.peek(0, 1024), [left; 1024], "{stability:?}");
        }
    }
}
