//! That the check notices what is wrong with a map.

use super::*;
use crate::eviction::{ClassKey, Group, KEYS};
use headpond_testkit::{Break, assert_trips};

/// Lines of 16 blocks on two cores, of two classes; one is in two pieces, and resident.
pub(super) fn lived() -> LineMap {
    let mut map = LineMap::new(64, 16, 0, 4, 1 << 16);
    let mut groups = [None; KEYS];
    (groups[0], groups[2]) = (Some(Group::FIRST), Some(Group(1)));
    map.classify(Some(&groups));
    map.divide(&[CoreBlock(0), CoreBlock(1 << 10)]);
    for (slot, first, count) in [(0, 0, 16), (20, 5, 1), (24, 1 << 10, 4)] {
        let run = BlockRun { first: CoreBlock(first), count };
        let (slot, checksums) = (SlotIndex(slot), vec![0; count as usize]);
        let (marks, target) = (Marks::INDEXED, State::Dirty);
        map.insert_run(&Insertion { run, slot, unit: 3, target, marks, checksums: &checksums });
        map.set_class(slot, count as u32, ClassKey(2));
        map.publish(slot, count as u32);
    }
    map.admit(SlotIndex(20), Heat::SMALL);
    map
}

fn tag(state: State, marks: Marks) -> Tag {
    Tag::new(state, State::Dirty, marks)
}

#[test]
fn check_notices_counts_that_are_wrong() {
    let breaks: [Break<LineMap>; 5] = [
        ("the map counts its versions", |map| map.counts.dirty += 1),
        ("residents are counted", |map| map.held.all += 1),
        ("residents are counted", |map| map.held_clean += 1),
        ("classes hold what they do", |map| {
            let (old, new) = (map.extents.tag(0), tag(State::Clean, Marks::NONE));
            map.by_class.as_mut().expect("there are classes").retag(0, old, new);
        }),
        ("cores hold what they do", |map| {
            let (run, tag) = (BlockRun { first: CoreBlock(0), count: 1 }, map.extents.tag(0));
            map.count_mapped(run, tag);
            map.recount_all(1, tag, Tag::FREE);
        }),
    ];
    assert_trips(lived, LineMap::self_check, &breaks);
}

#[test]
fn check_notices_versions_and_marks_that_are_wrong() {
    let breaks: [Break<LineMap>; 4] = [
        // As if the write over it had not ended it.
        ("two published versions of a block", |map| {
            map.extents.set_tag(5, tag(State::Dirty, Marks::INDEXED));
        }),
        ("parity is owed", |map| map.extents.set_tag(0, tag(State::Pending, Marks::REPLAYED))),
        ("two bearers of a line", |map| map.extents.set_heat(0, Heat::SMALL)),
        ("a mark of a line that is not resident", |map| {
            map.extents.set_heat(0, Heat::from_bits(1));
        }),
    ];
    assert_trips(lived, LineMap::self_check, &breaks);
}
