use super::*;
use crate::dirty_index::DirtyIndex;
use crate::eviction::{ClassKey, EvictionPolicy, Group, Heat, KEYS};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const SEGMENT: u32 = 64;
const SEGMENTS: u32 = 4;
const BLOCKS: u64 = 48;
const CORE_BLOCKS: u64 = 1 << 16;

fn run(first: u64, count: u64) -> BlockRun {
    BlockRun { first: CoreBlock(first), count }
}

fn pending(map: &mut LineMap, slot: u32, run: BlockRun, target: State) {
    pending_at(map, slot, 3, run, target);
}

fn pending_at(map: &mut LineMap, slot: u32, unit: u8, run: BlockRun, target: State) {
    let checksums: Vec<u32> = (slot..slot + run.count as u32).collect();
    let (slot, marks) = (SlotIndex(slot), Marks::NONE);
    map.insert_run(&Insertion { run, slot, unit, target, marks, checksums: &checksums });
}

fn slot_of(version: Option<Version>) -> Option<u32> {
    version.map(|version| version.slot.0)
}

#[test]
fn reader_sees_the_old_version_until_the_new_one_is_written() {
    for line in [1, 16] {
        let mut map = LineMap::new(64, line, 0, 0, CORE_BLOCKS);
        pending(&mut map, 0, run(5, 1), State::Dirty);
        map.publish(SlotIndex(0), 1);
        pending(&mut map, 1, run(5, 1), State::Dirty);
        assert_eq!(slot_of(map.published(CoreBlock(5))), Some(0));
        assert_eq!(slot_of(map.newest(CoreBlock(5))), Some(1));
        map.publish(SlotIndex(1), 1);
        assert_eq!(slot_of(map.published(CoreBlock(5))), Some(1));
        assert_eq!(map.counts().dirty, 1);
    }
}

#[test]
fn failed_version_brings_the_older_one_back() {
    let mut map = LineMap::new(64, 1, 0, 0, CORE_BLOCKS);
    pending(&mut map, 0, run(5, 1), State::Dirty);
    map.publish(SlotIndex(0), 1);
    pending(&mut map, 1, run(5, 1), State::Dirty);
    map.remove(SlotIndex(1), 1);
    assert_eq!(slot_of(map.newest(CoreBlock(5))), Some(0));
}

#[test]
fn later_record_that_is_written_first_wins() {
    let mut map = LineMap::new(64, 1, 0, 0, CORE_BLOCKS);
    pending(&mut map, 0, run(5, 1), State::Dirty);
    pending(&mut map, 1, run(5, 1), State::Dirty);
    assert_eq!(map.publish(SlotIndex(1), 1), 1);
    assert_eq!(map.publish(SlotIndex(0), 1), 0, "superseded while it was on its way");
    assert_eq!(slot_of(map.published(CoreBlock(5))), Some(1));
}

/// The hole was taken for the older version, and its class, which is none, for that of the copy.
#[test]
fn a_copy_keeps_its_class_where_an_older_extent_has_a_hole() {
    let mut map = LineMap::new(64, 16, 0, 0, CORE_BLOCKS);
    let mut groups = [None; KEYS];
    (groups[0], groups[2]) = (Some(Group::FIRST), Some(Group(1)));
    map.classify(Some(&groups));
    let class = ClassKey(2);
    for (slot, run) in [(0, run(0, 16)), (20, run(5, 1))] {
        pending(&mut map, slot, run, State::Dirty);
        map.set_class(SlotIndex(slot), run.count as u32, class);
        map.publish(SlotIndex(slot), run.count as u32);
    }
    map.admit(SlotIndex(20), Heat::SMALL);
    pending(&mut map, 40, run(5, 1), State::Dirty);
    map.publish_moved(SlotIndex(40), 1);
    assert_eq!(slot_of(map.published(CoreBlock(5))), Some(40));
    assert_eq!(map.class_at(SlotIndex(40)), class);
    assert_eq!(map.held_by_class(class).unwrap().resident, 1);
    map.self_check();
}

#[test]
fn whole_lines_take_nothing_from_the_pool() {
    let mut map = LineMap::new(1024, 16, 0, 0, CORE_BLOCKS);
    let (pool, _) = map.pool();
    for line in 0..60u64 {
        // A descriptor stands in front of each.
        pending(&mut map, line as u32 * 17, run(line * 160, 16), State::Dirty);
    }
    map.self_check();
    assert_eq!(map.pool(), (pool, pool));
    pending(&mut map, 1020, run(1, 1), State::Dirty);
    pending(&mut map, 1022, run(5, 1), State::Dirty);
    assert_eq!(map.pool(), (pool, pool - 1), "the second one that starts in its window");
    map.remove(SlotIndex(1022), 1);
    assert_eq!(map.pool(), (pool, pool));
}

#[test]
fn memory_is_within_the_bounds_of_the_issue() {
    // Caches of 16 GiB, and of 64 with long lines, before arrays of 64 GiB, of a tebibyte, of 16,
    // of 256, and of four pebibytes; seven in ten are resident. What else is counted is less than
    // a tenth of a byte.
    for (core_bits, by_block, by_line) in
        [(24, 15.0, 1.95), (28, 15.5, 1.97), (32, 15.9, 2.0), (36, 15.8, 2.0), (40, 16.2, 2.1)]
    {
        for (line, places, most) in [(1, 1 << 22, by_block), (16, 1 << 24, by_line)] {
            let core_blocks = 1 << core_bits;
            let map = LineMap::new(places, line, 0, 83, core_blocks);
            let residents = u64::from(places) * 7 / 10 / line;
            let policy = EvictionPolicy::S3Fifo.make(residents, core_blocks / line, 1);
            let dirty = DirtyIndex::new(core_blocks, u64::from(places), line).memory_bytes();
            let all = map.memory_bytes() + policy.memory().queues + dirty;
            let each = all as f64 / f64::from(places);
            assert!(each <= most, "{each} bytes for each place, lines of {line} blocks");
            assert_eq!(map.checksum_bytes(), 4 * u64::from(places));
        }
    }
}

/// What is mapped stays that when the core grows beyond the numbers there was room for.
#[test]
fn blocks_of_a_core_that_grew_are_mapped_beside_the_others() {
    for line in [1, 16, 64] {
        let mut map = LineMap::new(128, line, 8, 0, 1 << 8);
        pending(&mut map, 0, run(255, 1), State::Dirty);
        map.publish(SlotIndex(0), 1);
        map.admit(SlotIndex(0), Heat::SMALL);
        map.lengthen(1 << 40);
        pending(&mut map, 64, run((1 << 40) - 1, 1), State::Clean);
        map.publish(SlotIndex(64), 1);
        for (block, slot) in [(255, 0), ((1 << 40) - 1, 64)] {
            assert_eq!(slot_of(map.published(CoreBlock(block))), Some(slot));
            assert_eq!(map.version(SlotIndex(slot)).block, CoreBlock(block));
        }
        assert_eq!(map.heat_at(SlotIndex(0)), Heat::SMALL);
        map.self_check();
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Blocks, whether they become dirty, and the places of the descriptor.
    Insert(u64, u64, bool, u32),
    Publish(usize),
    Fail(usize),
    RemoveBlock(u64),
    /// As after an unclean stop, where nothing is mapped yet, with holes.
    Replay(u64, u64, u64),
    /// The core has a version of the block, its parity recomputed.
    Settle(u64),
    /// The line of a block is resident, or not any more.
    Admit(u64),
    Cool(u64),
    /// Blocks in a row were written to the core, or flushed, or are to be written again.
    MoveOn(u64, u64, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..BLOCKS, 1u64..20, any::<bool>(), 0u32..2)
            .prop_map(|(block, count, dirty, gap)| Step::Insert(block, count, dirty, gap)),
        5 => any::<usize>().prop_map(Step::Publish),
        1 => any::<usize>().prop_map(Step::Fail),
        2 => (0..BLOCKS).prop_map(Step::RemoveBlock),
        2 => (0..BLOCKS, 1u64..12, 1u64..3)
            .prop_map(|(block, count, each)| Step::Replay(block, count, each)),
        1 => (0..BLOCKS).prop_map(Step::Settle),
        3 => (0..BLOCKS).prop_map(Step::Admit),
        1 => (0..BLOCKS).prop_map(Step::Cool),
        4 => (0..BLOCKS, 1u64..20, 0usize..3)
            .prop_map(|(block, count, which)| Step::MoveOn(block, count, which)),
    ]
}

/// Keeps for each block the list of its versions, oldest first, and whether they are published.
struct Twin {
    map: LineMap,
    versions: BTreeMap<u64, Vec<(u32, bool)>>,
    residents: BTreeSet<CoreLine>,
    on_the_way: Vec<(u32, BlockRun)>,
    head: u32,
    /// Of the last record.
    unit: u8,
    /// By place.
    units: Vec<u8>,
}

impl Twin {
    fn new(line: u64) -> Self {
        let places = SEGMENTS * SEGMENT;
        let map = LineMap::new(places, line, places, 0, CORE_BLOCKS);
        Self {
            map,
            versions: BTreeMap::new(),
            residents: BTreeSet::new(),
            on_the_way: Vec::new(),
            head: 0,
            unit: 0,
            units: vec![0; places as usize],
        }
    }

    /// Places at the head; a segment is emptied before it is entered.
    fn take(&mut self, count: u32) -> u32 {
        if self.head / SEGMENT != (self.head + count - 1) / SEGMENT {
            self.head = (self.head / SEGMENT + 1) % SEGMENTS * SEGMENT;
        }
        if self.head.is_multiple_of(SEGMENT) {
            let segment = self.head..self.head + SEGMENT;
            // What owes parity is cleaned before its segment is reclaimed.
            for slot in segment.clone().map(SlotIndex) {
                let version = self.map.version(slot);
                if version.state != State::Free {
                    self.map.unmark_replayed(version.block);
                }
            }
            self.map.remove(SlotIndex(segment.start), SEGMENT);
            for versions in self.versions.values_mut() {
                versions.retain(|(slot, _)| !segment.contains(slot));
            }
            self.on_the_way.retain(|(slot, _)| !segment.contains(slot));
            self.forget_residents();
            // The first record's descriptor.
            self.head += 1;
        }
        let place = self.head;
        self.head = (self.head + count) % (SEGMENTS * SEGMENT);
        place
    }

    /// Behind a descriptor of so many places, or of an eighth of one.
    fn insert(&mut self, run: BlockRun, is_dirty: bool, gap: u32) {
        let has_short = gap == 0;
        self.unit = (self.unit + u8::from(has_short)) % 8;
        let (gap, unit) = (gap + u32::from(has_short && self.unit == 0), self.unit);
        let slot = self.take(gap + run.count as u32) + gap;
        let target = if is_dirty { State::Dirty } else { State::Clean };
        let mut has_pending = false;
        self.map.each_newest(run, |_, older| {
            has_pending |= older.is_some_and(|older| older.marks.contains(Marks::REPLAYED));
        });
        for (place, block) in (slot..).zip(run.blocks()) {
            self.versions.entry(block.0).or_default().push((place, false));
            self.units[place as usize] = unit;
        }
        self.on_the_way.push((slot, run));
        if !has_pending {
            return pending_at(&mut self.map, slot, unit, run, target);
        }
        for (place, block) in (slot..).zip(run.blocks()) {
            let older = self.map.newest(block);
            let inherits = is_dirty
                && older.is_some_and(|it| {
                    it.target == State::Dirty && it.marks.contains(Marks::REPLAYED)
                });
            let marks = if inherits { Marks::REPLAYED } else { Marks::NONE };
            let (slot, state, checksum) = (SlotIndex(place), State::Pending, place);
            self.map.insert(Version { slot, block, state, target, unit, marks }, checksum);
        }
    }

    fn replay(&mut self, first: u64, count: u64, each: u64) {
        let start = self.take((count * each) as u32);
        for index in (0..count * each).step_by(each as usize) {
            let block = first + index;
            if self.map.newest(CoreBlock(block)).is_some() {
                continue;
            }
            let (slot, block) = (SlotIndex(start + index as u32), CoreBlock(block));
            let (state, target, marks) = (State::Dirty, State::Dirty, Marks::REPLAYED);
            let (unit, checksum) = (0, slot.0);
            self.map.insert(Version { slot, block, state, target, unit, marks }, checksum);
            self.versions.entry(block.0).or_default().push((slot.0, true));
            self.units[slot.0 as usize] = unit;
        }
    }

    fn publish(&mut self, index: usize) {
        let (slot, run) = self.on_the_way.remove(index % self.on_the_way.len());
        let mut left = 0;
        for (place, block) in (slot..).zip(run.blocks()) {
            let versions = self.versions.entry(block.0).or_default();
            if let Some(at) = versions.iter().position(|(used, _)| *used == place) {
                versions[at].1 = true;
                versions.drain(..at);
                left += 1;
            }
        }
        let publish =
            if index.is_multiple_of(2) { LineMap::publish } else { LineMap::publish_moved };
        assert_eq!(publish(&mut self.map, SlotIndex(slot), run.count as u32), left);
    }

    fn fail(&mut self, index: usize) {
        let (slot, run) = self.on_the_way.remove(index % self.on_the_way.len());
        self.map.remove(SlotIndex(slot), run.count as u32);
        for (place, block) in (slot..).zip(run.blocks()) {
            self.versions.entry(block.0).or_default().retain(|(used, _)| *used != place);
        }
    }

    /// From where the first block is on, whatever lies there and behind it.
    fn move_on(&mut self, block: u64, count: u64, which: usize) {
        const STEPS: [(State, State); 3] = [
            (State::Dirty, State::Written),
            (State::Written, State::Clean),
            (State::Written, State::Dirty),
        ];
        let ((from, to), all) = (STEPS[which], 0..SEGMENTS * SEGMENT);
        let Some(first) = self.map.published(CoreBlock(block)) else { return };
        // Perhaps from further in front, where something else lies.
        let shift = (count % 4).min(block).min(first.slot.0.into());
        let (block, start) = (block - shift, first.slot.0 - shift as u32);
        let places = start..(start + count as u32).min(all.end);
        let has_pending = |place| self.map.marks(SlotIndex(place)).contains(Marks::REPLAYED);
        if places.clone().any(has_pending) {
            return;
        }
        let states = |map: &LineMap| -> Vec<State> {
            all.clone().map(|place| map.state(SlotIndex(place))).collect()
        };
        let mut expected = states(&self.map);
        for (place, block) in places.clone().zip(block..) {
            if self.map.state_of(SlotIndex(place), CoreBlock(block)) == from {
                expected[place as usize] = to;
            }
        }
        self.map.move_on(CoreBlock(block), places, from, to);
        assert_eq!(states(&self.map), expected);
    }

    fn take_step(&mut self, step: Step) {
        match step {
            Step::Insert(block, count, dirty, gap) => self.insert(run(block, count), dirty, gap),
            Step::Replay(block, count, each) => self.replay(block, count, each),
            Step::Settle(block) => {
                let before = self.map.counts().replayed;
                let published = self.map.published(CoreBlock(block));
                let pending = published.is_some_and(|it| {
                    it.state == State::Dirty && it.marks.contains(Marks::REPLAYED)
                });
                self.map.unmark_replayed(CoreBlock(block));
                assert_eq!(self.map.counts().replayed, before - u64::from(pending));
            }
            Step::RemoveBlock(block) => {
                let there = self.versions.remove(&block).is_some_and(|v| !v.is_empty());
                assert_eq!(self.map.remove_block(CoreBlock(block)), there);
            }
            Step::Admit(block) => {
                let line = self.map.line_of(CoreBlock(block));
                if let Some(version) = self.map.published(CoreBlock(block))
                    && self.residents.insert(line)
                {
                    self.map.admit(version.slot, Heat::SMALL);
                }
            }
            Step::Cool(block) => {
                let line = self.map.line_of(CoreBlock(block));
                self.map.cool(line);
                self.residents.remove(&line);
            }
            Step::MoveOn(block, count, which) => self.move_on(block, count, which),
            Step::Publish(index) if !self.on_the_way.is_empty() => self.publish(index),
            Step::Fail(index) if !self.on_the_way.is_empty() => self.fail(index),
            Step::Publish(_) | Step::Fail(_) => {}
        }
    }

    /// Lines with something published.
    fn lines(&self) -> BTreeSet<CoreLine> {
        let published = self.versions.iter().filter(|(_, all)| all.iter().any(|(_, it)| *it));
        published.map(|(block, _)| self.map.line_of(CoreBlock(*block))).collect()
    }

    /// A line is resident as long as anything of it is published.
    fn forget_residents(&mut self) {
        let lines = self.lines();
        self.residents.retain(|line| lines.contains(line));
    }

    fn check_residents(&mut self) {
        self.forget_residents();
        let (lines, map) = (self.lines(), &self.map);
        for line in &lines {
            let expected = self.residents.contains(line);
            assert_eq!(map.heat_of(*line).is_resident(), expected, "{line:?}");
        }
        assert_eq!(map.lines(), lines.len() as u64);
        assert_eq!(map.residents(), self.residents.len() as u64);
    }

    fn check_found(&self, block: CoreBlock) {
        let found = self.map.found(block);
        let version = found.map(|found| self.map.version_of(&found));
        assert_eq!(version, self.map.published(block));
        if let Some(found) = found {
            let is_resident = self.residents.contains(&self.map.line_of(block));
            assert_eq!(found.bearer.is_some(), is_resident);
        }
    }

    /// Side by side, in runs that begin anywhere.
    fn check_waiting(&self) {
        let runs = [run(3, 20), run(25, 1), run(26, 30), run(BLOCKS - 3, 13)];
        assert_eq!(runs.iter().map(|run| run.count).sum::<u64>(), 64);
        let mut waiting = Vec::new();
        self.map.each_waiting(&runs, |block| waiting.push(block));
        let waits =
            |block: &CoreBlock| self.map.newest(*block).is_some_and(|it| it.waits_or_will());
        let expected: Vec<_> = runs.iter().flat_map(|run| run.blocks()).filter(waits).collect();
        assert_eq!(waiting, expected);
    }

    fn check(&self) {
        let all = run(0, BLOCKS + 40);
        let (mut newest, mut published) = (Vec::new(), Vec::new());
        self.map.each_newest(all, |_, version| newest.push(slot_of(version)));
        self.map.each_published(all, |_, version| published.push(slot_of(version)));
        self.check_waiting();
        for block in all.blocks() {
            let versions = self.versions.get(&block.0).map_or(&[][..], |all| all);
            let expected = versions.last().map(|(slot, _)| *slot);
            assert_eq!(slot_of(self.map.newest(block)), expected);
            assert_eq!(newest[block.0 as usize], expected);
            let expected = versions.iter().rev().find(|(_, published)| *published);
            let expected = expected.map(|(slot, _)| *slot);
            assert_eq!(slot_of(self.map.published(block)), expected);
            assert_eq!(published[block.0 as usize], expected);
            self.check_found(block);
            for &(slot, is_published) in versions {
                let version = self.map.version(SlotIndex(slot));
                assert_eq!((version.block, self.map.checksum(version.slot)), (block, slot));
                assert_eq!(version.unit, self.units[slot as usize]);
                assert_eq!(version.state != State::Pending, is_published);
            }
        }
    }
}

#[test]
fn extents_within_a_run_are_free_once_it_is_superseded() {
    let mut map = LineMap::new(1024, 16, 0, 0, CORE_BLOCKS);
    // Four extents start in the first window, which has one of its own.
    for (slot, first, count) in [(0, 100, 1), (1, 200, 1), (2, 300, 2), (4, 400, 3)] {
        pending(&mut map, slot, run(first, count), State::Dirty);
        map.publish(SlotIndex(slot), count as u32);
    }
    let of = |map: &LineMap, first, count| map.extents_within(run(first, count));
    assert_eq!(of(&map, 100, 1), 0, "the window's own");
    assert_eq!((of(&map, 200, 1), of(&map, 300, 2), of(&map, 400, 3)), (1, 1, 1));
    assert_eq!((of(&map, 300, 1), of(&map, 401, 2)), (0, 0), "parts of them");
    assert_eq!(of(&map, 200, 202), 2, "the last of them in part");
    for (slot, run) in [(512, run(200, 1)), (576, run(301, 1)), (640, run(400, 3))] {
        let (expected, (_, before)) = (map.extents_within(run), map.pool());
        pending(&mut map, slot, run, State::Dirty);
        map.publish(SlotIndex(slot), run.count as u32);
        assert_eq!(u64::from(map.pool().1 - before), expected);
    }
    map.self_check();
}

/// Reclaim went through the log for their sake, and had fewer of them afterwards.
#[test]
fn copies_of_blocks_that_lie_alone_take_extents_that_the_originals_do_not_hold() {
    let mut map = LineMap::new(128, 8, 0, 64, CORE_BLOCKS);
    let alone = [(0, 5), (8, 100), (16, 201), (24, 302)];
    for (slot, block) in alone {
        pending(&mut map, slot, run(block, 1), State::Dirty);
        map.publish(SlotIndex(slot), 1);
    }
    pending(&mut map, 32, run(400, 4), State::Dirty);
    map.publish(SlotIndex(32), 4);
    let versions = |slots: &[u32]| -> Vec<Version> {
        slots.iter().map(|slot| map.version(SlotIndex(*slot))).collect()
    };
    let (single, row) = (versions(&[0, 8, 16, 24]), versions(&[32, 33, 34, 35]));
    assert_eq!(map.pooled_in(0..64), 0);
    assert_eq!((map.extents_of_copies(&single), map.extents_of_copies(&row)), (4, 1));
    let (_, before) = map.pool();
    for (slot, (_, block)) in (64..).zip(alone) {
        pending(&mut map, slot, run(block, 1), State::Dirty);
    }
    assert_eq!(before - map.pool().1, 3, "the first one has that of its window");
    assert_eq!(map.pooled_in(64..72), 3);
}

/// Found by the test below: an extent reached over a descriptor into the next segment, and was in
/// the way when the first of the two was filled anew.
#[test]
fn extents_with_holes_stay_within_their_segment() {
    use Step::{Insert, Replay};
    let steps = [
        Insert(0, 6, false, 1),
        Insert(0, 17, false, 0),
        Insert(0, 17, false, 1),
        Replay(0, 5, 1),
        Replay(27, 4, 2),
        Replay(44, 9, 2),
        Replay(0, 5, 2),
        Replay(0, 9, 1),
        Insert(0, 10, false, 1),
        Insert(0, 3, false, 1),
        Insert(0, 13, false, 0),
        Insert(0, 13, false, 0),
        Insert(0, 11, false, 0),
        Insert(0, 9, false, 0),
        Insert(0, 18, false, 1),
        Insert(0, 14, false, 1),
        Replay(0, 9, 1),
        Insert(0, 5, false, 1),
        Insert(0, 15, false, 1),
        Replay(0, 6, 2),
        Insert(0, 12, false, 0),
        Replay(0, 4, 1),
        Insert(0, 10, false, 0),
    ];
    let mut twin = Twin::new(32);
    for step in steps {
        twin.take_step(step);
        twin.map.self_check();
        twin.check_residents();
        twin.check();
    }
}

proptest! {
    #[test]
    fn map_agrees_with_a_plain_twin_at_every_line_size(
        line in (0u32..7).prop_map(|power| 1u64 << power),
        has_cores: bool,
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut twin = Twin::new(line);
        if has_cores {
            // No request reaches from one core into the next.
            twin.map.divide(&[CoreBlock(0), CoreBlock(CORE_BLOCKS / 2)]);
        }
        for step in steps {
            twin.take_step(step);
            twin.map.self_check();
            twin.check_residents();
            twin.check();
        }
    }

    /// Recovery asks how large the pool has to be, and then the same blocks must fit.
    #[test]
    fn recovered_blocks_fit_the_pool_that_was_counted_for_them(
        line in (1u32..7).prop_map(|power| 1u64 << power),
        shift in 0u64..64,
        in_runs: bool,
        places in prop::collection::btree_map(0u32..256, (0u64..600, 0u8..2, any::<bool>()), 0..200),
    ) {
        // Neighbours by place are neighbours by block often enough, and lines begin anywhere.
        let block = |place: u32, jump: u64| {
            CoreBlock(if jump < 500 { u64::from(place) + shift } else { 1000 * (jump - 499) })
        };
        let mut seen = std::collections::BTreeSet::new();
        let blocks: Vec<_> = places
            .into_iter()
            .map(|(place, (jump, unit, steps))| {
                let unit = if steps { (place % 8) as u8 } else { unit };
                (SlotIndex(place), unit, block(place, jump))
            })
            .filter(|(_, _, block)| seen.insert(*block))
            .collect();
        let joins = |last: &(SlotIndex, u8, BlockRun), (slot, unit, block): (SlotIndex, u8, CoreBlock)| {
            in_runs && unit == last.1 && block == last.2.end() && block.0 % line != 0
                && u64::from(slot.0) == u64::from(last.0.0) + last.2.count
        };
        let mut runs: Vec<(SlotIndex, u8, BlockRun)> = Vec::new();
        for &(slot, unit, first) in &blocks {
            match runs.last_mut() {
                Some(last) if joins(last, (slot, unit, first)) => last.2.count += 1,
                _ => runs.push((slot, unit, BlockRun { first, count: 1 })),
            }
        }
        let mut scattering = Scattering::new(line);
        runs.iter().for_each(|&(slot, unit, run)| scattering.add(slot, unit, run));
        let needed = scattering.extents();
        let mut map = LineMap::new(256, line, needed, 0, 1 << 40);
        for (slot, unit, run) in runs {
            let (target, marks, checksums) = (State::Dirty, Marks::NONE, vec![0; run.count as usize]);
            let checksums = &checksums;
            map.restore(&Insertion { run, slot, unit, target, marks, checksums });
        }
        map.self_check();
        let (pool, free) = map.pool();
        prop_assert_eq!(pool - free, needed);
    }
}
