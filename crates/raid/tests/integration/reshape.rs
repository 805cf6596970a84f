//! Arrays that are given more members while they serve.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;

use crate::support::*;
use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, ByteRange, Request, Runtime};
use headpond_raid::intent::{IntentBitmap, PAGE_BYTES, region_stripes};
use headpond_raid::superblock::{INTENT_OFFSET, RoleState};
use headpond_raid::{
    Addition, Array, ArrayState, Assembled, Contents, CreateOptions, GrowError, Grown, Inspection,
    Intent, JournalOptions, JournalWhen, Level, MemberError, ReturnError, Role, Spread, Striping,
    inspect,
};
use uuid::Uuid;

const ROWS: u64 = 60;

/// Level, members before and after, groups before.
const SHAPES: [(Level, usize, usize, usize); 7] = [
    (Level::Raid0, 2, 3, 1),
    (Level::Raid5, 3, 4, 1),
    (Level::Raid5, 6, 7, 1),
    (Level::Raid6, 5, 7, 1),
    (Level::Raid10, 4, 6, 2),
    (Level::Raid50, 6, 9, 2),
    (Level::Raid60, 4, 12, 1),
];

fn bitmap(level: Level, groups: usize) -> CreateOptions {
    CreateOptions { intent: Intent::Bitmap, ..options(level, groups) }
}

fn additions(devices: &[Rc<TestDevice>]) -> Vec<Addition> {
    let uuid = |device: &TestDevice| {
        let number: u128 = device.name().as_str()[1..].parse().expect("m and a number");
        Uuid::from_u128(0x700 + number)
    };
    let addition = |it: &Rc<TestDevice>| Addition { device: it.clone(), uuid: uuid(it) };
    devices.iter().map(addition).collect()
}

async fn begin(array: Array, members: &[Rc<TestDevice>], before: usize) -> Array {
    array.begin_reshape(&additions(&members[before..])).await.unwrap();
    array.stop().await.unwrap();
    start(members).await.array
}

/// Writes, zeroes and reads anywhere, one after the other, beside which others may go on elsewhere.
async fn use_it(array: &Array, twin: &RefCell<Vec<u8>>, random: &Random, runtime: &Runtime) {
    let sectors = twin.borrow().len() as u64 / 512;
    for _ in 0..120 {
        let len = 1 + random.below([1, 8, 40][random.below(3) as usize]).min(sectors - 1);
        let start = random.below(sectors - len + 1) * 512;
        let (at, len) = (start as usize, len as usize * 512);
        match random.below(4) {
            0 => {
                let found = read(array, start, len).await.unwrap();
                assert!(found == twin.borrow()[at..at + len], "{start} + {len}");
            }
            1 => {
                twin.borrow_mut()[at..at + len].fill(0);
                let range = ByteRange::at(start, len as u64);
                array.submit(Request::write_zeroes(range)).await.unwrap();
            }
            _ => {
                let bytes = random.bytes(len);
                twin.borrow_mut()[at..at + len].copy_from_slice(&bytes);
                write(array, start, &bytes).await.unwrap();
            }
        }
        if random.below(9) == 0 {
            array.submit(Request::flush()).await.unwrap();
        }
        runtime.sleep(std::time::Duration::from_nanos(random.below(4000))).await;
    }
}

#[test]
fn an_array_that_grows_under_writes_holds_what_was_written_and_has_more_room_after_that() {
    for (seed, (level, before, after, groups)) in (0..).zip(SHAPES.into_iter().cycle().take(28)) {
        run(seed, |runtime| async move {
            let members = devices(after, ROWS, &runtime);
            let random = Random::new(seed);
            let array = new_array(&members[..before], &bitmap(level, groups)).await;
            let twin = RefCell::new(random.bytes(array.geometry().size_bytes as usize));
            let bytes = twin.borrow().clone();
            write(&array, 0, &bytes).await.unwrap();
            let array = begin(array, &members, before).await;
            assert_eq!(array.geometry().size_bytes, bytes.len() as u64);
            let mut steps = 0;
            grow_beside(&array, (&twin, &random), &runtime, |step| steps = step).await;
            assert!(steps > 3, "{level}: {steps} steps");
            let found = read(&array, 0, bytes.len()).await.unwrap();
            assert!(found == *twin.borrow(), "{level}");
            let size = array.geometry().size_bytes as usize;
            assert_eq!(size, array.layout().array_bytes() as usize, "{level}, at once");
            assert!(size > bytes.len());
            let found = read(&array, bytes.len() as u64, size - bytes.len()).await.unwrap();
            assert!(found.iter().all(|byte| *byte == 0), "{level}");
            let new = random.bytes(size - bytes.len());
            write(&array, bytes.len() as u64, &new).await.unwrap();
            array.stop().await.unwrap();
            let array = start(&members).await.array;
            assert_eq!((array.layout().members(), array.is_growing()), (after, false));
            assert_eq!(array.geometry().size_bytes as usize, size, "{level}");
            let found = read(&array, 0, size).await.unwrap();
            assert!(found[..bytes.len()] == *twin.borrow(), "{level}");
            assert!(found[bytes.len()..] == new, "{level}");
            check_redundancy(&array, &members);
        });
    }
}

/// Runs a growth beside users, and something that befalls a member on the way.
async fn grow_beside(
    array: &Array,
    (twin, random): (&RefCell<Vec<u8>>, &Random),
    runtime: &Runtime,
    mut befall: impl FnMut(usize),
) {
    let mut steps = 0;
    let work = async {
        let grown = array.grow(async || {
            steps += 1;
            befall(steps);
            true
        });
        assert_eq!(grown.await, Ok(Grown::Whole));
    };
    let users = use_it(array, twin, random, runtime);
    let both: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = vec![Box::pin(work), Box::pin(users)];
    join_all(both).await;
}

#[test]
fn a_member_old_or_new_that_fails_on_the_way_costs_nothing_that_the_level_replaces() {
    for (seed, (level, before, after, groups)) in (0..).zip(SHAPES[1..].iter().copied()) {
        for victim in [0, before - 1, after - 1] {
            run(seed, |runtime| async move {
                let members = devices(after, ROWS, &runtime);
                let random = Random::new(seed + 100);
                let array = new_array(&members[..before], &bitmap(level, groups)).await;
                let twin = RefCell::new(random.bytes(array.geometry().size_bytes as usize));
                let bytes = twin.borrow().clone();
                write(&array, 0, &bytes).await.unwrap();
                let array = begin(array, &members, before).await;
                let fails_at = 1 + random.below(4) as usize;
                grow_beside(&array, (&twin, &random), &runtime, |step| {
                    members[victim].gone.set(step >= fails_at);
                })
                .await;
                assert_eq!(array.state(), ArrayState::Degraded, "{level}, {victim}");
                assert!(read(&array, 0, bytes.len()).await.unwrap() == *twin.borrow(), "{level}");
                array.stop().await.unwrap();
                let mut left = members.clone();
                left.remove(victim);
                let array = start(&left).await.array;
                let size = array.layout().array_bytes() as usize;
                let found = read(&array, 0, size).await.unwrap();
                assert!(found[..bytes.len()] == *twin.borrow(), "{level} without {victim}");
                let spare = TestDevice::new(90, members[0].geometry().size_bytes, &runtime);
                array.add_spare(spare.clone(), Uuid::from_u128(90)).await.unwrap();
                array.assign_spare(Role(victim as u16), None).await.unwrap();
                array.fill(Role(victim as u16), async || true).await.unwrap();
                array.stop().await.unwrap();
                left.insert(victim, spare);
                check_redundancy(&array, &left);
            });
        }
    }
}

#[test]
fn a_growth_that_is_paused_or_stopped_goes_on_where_it_was() {
    run(9, |runtime| async move {
        let members = devices(4, ROWS, &runtime);
        let random = Random::new(9);
        let array = new_array(&members[..3], &bitmap(Level::Raid5, 1)).await;
        let bytes = random.bytes(array.geometry().size_bytes as usize);
        write(&array, 0, &bytes).await.unwrap();
        let mut array = begin(array, &members, 3).await;
        let mut before = array.status().reshape.expect("it grows");
        assert_eq!((before.rows_done, before.rows, before.members_before), (0, ROWS, 3));
        for life in 0.. {
            let grown = array.grow(async || false).await.unwrap();
            assert!(read(&array, 0, bytes.len()).await.unwrap() == bytes, "life {life}");
            if grown == Grown::Whole {
                break;
            }
            let status = array.status().reshape.expect("it still grows");
            assert!(status.rows_done > before.rows_done, "life {life}");
            before = status;
            if life % 2 == 0 {
                array.stop().await.unwrap();
                array = start(&members).await.array;
                assert_eq!(array.status().reshape, Some(status));
            }
        }
        assert!(before.rows_done > ROWS / 2);
        assert_eq!(before.size_bytes_after, array.layout().array_bytes());
        assert_eq!(array.status().reshape, None);
    });
}

#[test]
fn a_refused_reshape_gives_the_reason_and_changes_nothing() {
    run(4, |runtime| async move {
        let members = devices(7, ROWS, &runtime);
        let refused = async |array: &Array, by: &[Rc<TestDevice>]| {
            let event = array.status().event_count;
            let error = array.begin_reshape(&additions(by)).await.expect_err("refused");
            assert_eq!(array.status().event_count, event, "{error}");
            error
        };
        let by = &members[6..];
        let make = async |options: CreateOptions| {
            let options = CreateOptions { occupied: headpond_raid::Occupied::Overwrite, ..options };
            new_array(&members[..4], &options).await
        };
        let none = make(options(Level::Raid5, 1)).await;
        assert!(matches!(refused(&none, by).await, GrowError::NoBitmap { .. }));
        let groups = make(bitmap(Level::Raid10, 2)).await;
        assert!(matches!(refused(&groups, by).await, GrowError::Groups { width: 2, .. }));
        let contents = Contents::Unknown;
        let fresh = make(CreateOptions { contents, ..bitmap(Level::Raid5, 1) }).await;
        assert!(matches!(refused(&fresh, by).await, GrowError::Uninitialised { .. }));
        let declustered = Some(Spread { width: 3, spares: 0 });
        let spread = make(CreateOptions { declustered, ..bitmap(Level::Raid5, 1) }).await;
        assert!(matches!(refused(&spread, by).await, GrowError::Declustered { .. }));
        let weights = Striping::Weighted(vec![3, 1, 2, 2].try_into().unwrap());
        let weighted = CreateOptions { striping: weights, ..options(Level::Raid0, 1) };
        assert!(matches!(refused(&make(weighted).await, by).await, GrowError::Weighted { .. }));
        let when = JournalWhen::Degraded;
        let journal = Some(JournalOptions { uuid: Uuid::from_u128(3), when });
        let journalled = make(CreateOptions { journal, ..bitmap(Level::Raid5, 1) }).await;
        assert!(matches!(refused(&journalled, by).await, GrowError::Journal { .. }));
        let array = make(bitmap(Level::Raid5, 1)).await;
        assert!(matches!(refused(&array, &[]).await, GrowError::NoDevices { .. }));
        let twice = [by[0].clone(), by[0].clone()];
        assert!(matches!(refused(&array, &twice).await, GrowError::Member(_)));
        assert!(matches!(refused(&array, &members[..1]).await, GrowError::Member(_)));
        let small = TestDevice::new(20, members[0].geometry().size_bytes - 4096, &runtime);
        assert!(matches!(refused(&array, &[small]).await, GrowError::Member(_)));
        let size_bytes = members[0].geometry().size_bytes;
        let many: Vec<Rc<TestDevice>> =
            (30..47).map(|index| TestDevice::new(index, size_bytes, &runtime)).collect();
        assert!(matches!(refused(&array, &many).await, GrowError::TooMany { most: 16, .. }));
        array.add_spare(members[5].clone(), Uuid::from_u128(55)).await.unwrap();
        assert!(matches!(refused(&array, by).await, GrowError::Spare { .. }));
        array.fail(Role(2)).await.unwrap();
        assert!(matches!(refused(&array, by).await, GrowError::Degraded { .. }));
    });
}

#[test]
fn while_an_array_grows_nothing_else_changes_its_members() {
    run(5, |runtime| async move {
        let members = devices(5, ROWS, &runtime);
        let array = new_array(&members[..3], &bitmap(Level::Raid5, 1)).await;
        array.add_spare(members[3].clone(), Uuid::from_u128(33)).await.unwrap();
        array.begin_reshape(&additions(&members[3..4])).await.unwrap();
        let is_refused = async |array: &Array| {
            let added = array.add_spare(members[4].clone(), Uuid::from_u128(44)).await;
            assert!(matches!(added, Err(MemberError::Growing { .. })));
            let assigned = array.assign_spare(Role(0), None).await;
            assert!(matches!(assigned, Err(MemberError::Growing { .. })));
            let again = array.begin_reshape(&additions(&members[4..])).await;
            assert!(matches!(again, Err(GrowError::Growing { .. })));
            assert!(array.scrub(async || true).await.is_err());
            assert!(array.initialise(async || true).await.is_err());
        };
        is_refused(&array).await;
        let owner = Some(Uuid::from_u128(1));
        assert!(array.set_owner(owner).await.is_err(), "the second halves would not have it");
        assert!(array.raise_owner_generation(1).await.is_err());
        array.stop().await.unwrap();
        let array = start(&members[..4]).await.array;
        is_refused(&array).await;
        array.set_owner(owner).await.unwrap();
        array.raise_owner_generation(1).await.unwrap();
        array.fail(Role(1)).await.unwrap();
        assert_eq!(array.grow(async || true).await, Ok(Grown::Whole));
        let back = array.re_add(members[1].clone(), Uuid::from_u128(46)).await;
        assert!(matches!(back, Err(ReturnError::Unmarked { .. })), "{back:?}");
        array.stop().await.unwrap();
        let assembled = start(&members[..4]).await;
        assert_eq!(assembled.stale, [members[1].name().clone()]);
        let array = &assembled.array;
        assert_eq!((array.owner(), array.owner_generation()), (owner, 1));
        array_works(&assembled.array).await;
    });
}

/// It can be given a member again, and looked at.
async fn array_works(array: &Array) {
    assert_eq!(array.state(), ArrayState::Degraded);
    assert!(array.scrub(async || true).await.is_ok());
    write(array, 0, &[7; 4096]).await.unwrap();
    assert_eq!(read(array, 0, 4096).await.unwrap(), [7; 4096]);
}

#[test]
fn an_unreadable_location_stops_the_reshape_until_it_is_written() {
    run(6, |runtime| async move {
        let members = devices(3, ROWS, &runtime);
        let array = new_array(&members[..2], &options(Level::Raid0, 1)).await;
        let array = begin(array, &members, 2).await;
        members[1].make_bad(30 * u64::from(STRIP), 512);
        let at = 61 * u64::from(STRIP);
        for _ in 0..2 {
            assert!(array.grow(async || true).await.is_err());
            assert!(array.is_growing());
        }
        write(&array, at, &[3; 512]).await.unwrap();
        assert_eq!(array.grow(async || true).await, Ok(Grown::Whole));
        assert_eq!(read(&array, at, 512).await.unwrap(), [3; 512]);
    });
}

#[test]
fn an_array_grows_again_and_again() {
    run(8, |runtime| async move {
        let members = devices(6, ROWS, &runtime);
        let mut array = new_array(&members[..3], &bitmap(Level::Raid5, 1)).await;
        let bytes = Random::new(8).bytes(array.geometry().size_bytes as usize);
        write(&array, 0, &bytes).await.unwrap();
        for after in 4..=6 {
            // More superblocks of the smaller array than the larger one comes to.
            for _ in 0..60 {
                array.raise_owner_generation(1).await.unwrap();
            }
            array.begin_reshape(&additions(&members[after - 1..after])).await.unwrap();
            array.stop().await.unwrap();
            array = start(&members[..after]).await.array;
            assert_eq!(array.grow(async || true).await, Ok(Grown::Whole));
            for member in &members[..after] {
                let Ok(Inspection::Member(newest)) = inspect(&**member).await else {
                    panic!("{} is a member", member.name())
                };
                assert_eq!((newest.array.reshape, newest.array.roles.len()), (None, after));
            }
            array.stop().await.unwrap();
            array = start(&members[..after]).await.array;
            assert!(read(&array, 0, bytes.len()).await.unwrap() == bytes);
            check_redundancy(&array, &members[..after]);
        }
    });
}

#[test]
fn a_member_that_one_of_the_two_shapes_has_given_up_is_not_used_by_the_larger_one() {
    run(12, |runtime| async move {
        let members = devices(5, ROWS, &runtime);
        let array = new_array(&members[..4], &bitmap(Level::Raid5, 1)).await;
        let array = begin(array, &members, 4).await;
        assert_eq!(array.grow(async || false).await, Ok(Grown::Paused));
        let end = array.geometry().size_bytes - 4096;
        members[2].writes_left.set(0);
        for strip in 0..4 {
            write(&array, end - strip * u64::from(STRIP), &[5; 4096]).await.unwrap();
        }
        members[2].writes_left.set(u64::MAX);
        assert_eq!(array.status().members[2].state, RoleState::Active, "it may be read there");
        assert_eq!(array.grow(async || false).await, Ok(Grown::Paused));
        assert_eq!(array.status().members[2].state, RoleState::Failed);
        assert_eq!(array.grow(async || true).await, Ok(Grown::Whole));
        assert_eq!(read(&array, end, 4096).await.unwrap(), [5; 4096]);
    });
}

#[test]
fn a_device_that_an_earlier_growth_left_behind_is_named_and_not_taken_for_the_array() {
    run(13, |runtime| async move {
        let members = devices(6, ROWS, &runtime);
        let array = new_array(&members[..3], &bitmap(Level::Raid5, 1)).await;
        let array = begin(array, &members[..4], 3).await;
        array.fail(Role(1)).await.unwrap();
        assert_eq!(array.grow(async || true).await, Ok(Grown::Whole));
        array.add_spare(members[4].clone(), Uuid::from_u128(44)).await.unwrap();
        array.assign_spare(Role(1), None).await.unwrap();
        array.fill(Role(1), async || true).await.unwrap();
        array.begin_reshape(&additions(&members[5..])).await.unwrap();
        array.stop().await.unwrap();
        let left = members[1].name();
        let Assembled { array, stale, .. } = start(&members).await;
        assert_eq!(stale, std::slice::from_ref(left));
        assert_eq!(array.grow(async || true).await, Ok(Grown::Whole));
    });
}

#[test]
fn marks_that_count_when_all_has_moved_are_where_the_next_start_looks_for_them() {
    run(14, |runtime| async move {
        let members = devices(4, ROWS, &runtime);
        let array = new_array(&members[..3], &bitmap(Level::Raid5, 1)).await;
        let array = begin(array, &members, 3).await;
        while array.status().reshape.is_some_and(|it| it.rows_done < it.rows) {
            array.grow(async || false).await.unwrap();
        }
        write(&array, 0, &[1; 512]).await.unwrap();
        assert_eq!(array.grow(async || true).await, Ok(Grown::Whole));
        for member in &members {
            let start = INTENT_OFFSET as usize;
            let page = member.memory().slice(start..start + PAGE_BYTES).to_vec();
            let stripes = array.layout().stripes();
            let region = region_stripes(array.layout());
            let mut found = IntentBitmap::new(array.uuid(), stripes, region);
            found.merge(0, &page).expect("a page of this array");
            assert!(!found.marked(stripes).is_empty(), "{}", member.name());
        }
    });
}
