//! Members that come back: what they lack is written to them, and nothing else.

use std::cell::RefCell;
use std::rc::Rc;

use crate::support::machine::*;
use crate::support::*;
use headpond_block::{BlockDevice, Buffer, Outcome, Request, RequestFlags};
use headpond_raid::layout::Role;
use headpond_raid::{
    Array, ArrayState, AssembleError, CreateOptions, Filled, Intent, Level, ReturnError, create,
};
use headpond_sim::{Ended, Loss};
use uuid::Uuid;

const ROWS: u64 = 60;
/// Stripes to a region of the bitmaps here: a few rows each.
const REGION: u64 = 4;
const AGAIN: Uuid = Uuid::from_u128(78);

async fn fine_array(members: &[Rc<TestDevice>], level: Level, groups: usize) -> Array {
    let options = CreateOptions { intent: Intent::Bitmap, ..options(level, groups) };
    create(&as_devices(members), &options).await.unwrap();
    members.iter().for_each(|member| member.refine(REGION));
    start(members).await.array
}

fn fill_whole(filled: Result<Filled, headpond_block::DeviceError>) {
    assert!(matches!(filled, Ok(Filled::Whole { .. })));
}

#[test]
fn a_member_that_comes_back_is_given_what_was_written_without_it_and_nothing_else() {
    let shapes = [
        (Level::Raid1, 2, 1),
        (Level::Raid10, 4, 2),
        (Level::Raid5, 4, 1),
        (Level::Raid6, 5, 1),
        (Level::Raid60, 8, 2),
    ];
    for (index, (level, count, groups)) in shapes.into_iter().enumerate() {
        for stops in [false, true] {
            run(index as u64, |runtime| async move {
                let random = Random::new(index as u64 + 5);
                let members = devices(count, ROWS, &runtime);
                let mut array = fine_array(&members, level, groups).await;
                let mut bytes = random.bytes(array.layout().array_bytes() as usize);
                write(&array, 0, &bytes).await.unwrap();
                // Twice: what was written long ago is known to be stable everywhere.
                for _ in 0..2 {
                    array.submit(Request::flush()).await.unwrap();
                }
                let (role, lost) = (Role(1), members[1].clone());
                array.fail(role).await.unwrap();
                let at = bytes.len() / 2 / 512 * 512;
                let new = random.bytes(1024);
                bytes[at..at + 1024].copy_from_slice(&new);
                write(&array, at as u64, &new).await.unwrap();
                if stops {
                    array.stop().await.unwrap();
                    let assembled = start(&members).await;
                    assert_eq!(assembled.stale, [lost.name().clone()]);
                    array = assembled.array;
                }
                let before = lost.writes.get();
                let rows = array.re_add(lost.clone(), AGAIN).await.unwrap();
                assert!((1..=2 * REGION + 2).contains(&rows), "{level}: {rows} of {ROWS} rows");
                fill_whole(array.fill(role, async || true).await);
                assert_eq!(array.state(), ArrayState::Optimal);
                // Each event is written twice.
                let superblocks_and_pages = 11;
                let written = lost.writes.get() - before;
                assert!(written <= rows + superblocks_and_pages, "{level}: {written} of {rows}");
                let found = read(&array, 0, bytes.len()).await.unwrap();
                assert!(found == bytes, "{level}");
                array.stop().await.unwrap();
                check_redundancy(&array, &members);
            });
        }
    }
}

#[test]
fn a_refused_re_add_gives_the_reason_and_changes_nothing() {
    run(3, |runtime| async move {
        let members = devices(4, ROWS, &runtime);
        let old_image = members[1].copy(70, &runtime);
        let array = fine_array(&members, Level::Raid5, 1).await;
        let refused = async |device: &Rc<TestDevice>| {
            let before = device.writes.get();
            let error = array.re_add(device.clone(), AGAIN).await.unwrap_err();
            assert_eq!(device.writes.get(), before, "{error}");
            error
        };
        let error = refused(&members[1]).await;
        assert!(matches!(error, ReturnError::InUse { .. }), "{error}");
        let empty = TestDevice::new(60, members[0].geometry().size_bytes, &runtime);
        let error = refused(&empty).await;
        assert!(matches!(error, ReturnError::Foreign { .. }), "{error}");
        old_image.memory().copy_from_buffer(members[1].memory());
        for _ in 0..3 {
            array.raise_owner_generation(1).await.unwrap();
        }
        array.fail(Role(1)).await.unwrap();
        let error = refused(&old_image).await;
        assert!(matches!(error, ReturnError::TooOld { .. }), "{error}");
        let spare = TestDevice::new(50, members[0].geometry().size_bytes, &runtime);
        array.add_spare(spare, Uuid::from_u128(77)).await.unwrap();
        array.assign_spare(Role(1), None).await.unwrap();
        fill_whole(array.fill(Role(1), async || true).await);
        let error = refused(&members[1]).await;
        assert!(matches!(error, ReturnError::Replaced { .. }), "{error}");
    });
}

#[test]
fn a_member_that_was_used_by_itself_meanwhile_is_refused() {
    run(4, |runtime| async move {
        let members = devices(2, ROWS, &runtime);
        let array = fine_array(&members, Level::Raid1, 1).await;
        array.stop().await.unwrap();
        let alone = start(&members[1..]).await.array;
        write(&alone, 0, &[9; 512]).await.unwrap();
        alone.stop().await.unwrap();
        let array = start(&members[..1]).await.array;
        let error = array.re_add(members[1].clone(), AGAIN).await.unwrap_err();
        assert!(matches!(error, ReturnError::Diverged { .. }), "{error}");
    });
}

#[test]
fn an_array_without_a_bitmap_says_that_it_does_not_know() {
    run(5, |runtime| async move {
        let members = devices(3, ROWS, &runtime);
        let array = new_array(&members, &options(Level::Raid5, 1)).await;
        array.fail(Role(2)).await.unwrap();
        let error = array.re_add(members[2].clone(), AGAIN).await.unwrap_err();
        assert!(matches!(error, ReturnError::Unmarked { .. }), "{error}");
    });
}

/// Places in regions of their own.
fn places(array: &Array) -> [u64; 6] {
    let region = REGION * array.layout().stripe_bytes();
    [0, 2, 5, 7, 3, 9].map(|index| index * region)
}

async fn put(array: &Array, at: u64, value: u8, flags: RequestFlags) -> Outcome {
    array.submit(Request::write(at, Buffer::from_slice(&[value; 512])).with_flags(flags)).await
}

/// What was acknowledged, by place: the value that is stable, and the newest.
type Newest = RefCell<[(u8, u8); 6]>;

/// One life: a member forgets what no flush had covered, is failed and re-added, beside writes of
/// all kinds.
async fn come_and_go(devices: Devices, machine: &Machine, newest: &Newest) {
    let runtime = devices.runtime.clone();
    let returning = devices[1].clone();
    let array = attempt(devices).await.unwrap().array;
    let places = places(&array);
    let kinds = [RequestFlags::empty(), RequestFlags::LOGGED];
    let mut value = 0;
    let mut rising = async |which: &[usize]| {
        value += 1;
        for &place in which {
            put(&array, places[place], value, kinds[place % 2]).await.unwrap();
            newest.borrow_mut()[place].1 = value;
        }
    };
    let flush = async || {
        let at_least = *newest.borrow();
        array.submit(Request::flush()).await.unwrap();
        for (place, (_, value)) in at_least.into_iter().enumerate() {
            newest.borrow_mut()[place].0 = value;
        }
    };
    rising(&[0, 1, 2, 3, 4, 5]).await;
    flush().await;
    flush().await;
    // The second time there are marks of the first on the members, which say nothing any more.
    for (round, unsettled) in [(0, [0, 1]), (1, [4, 5])] {
        rising(&unsettled).await;
        array.fail(Role(1)).await.unwrap();
        machine.members[1].lose_power_as(Loss::Everything);
        rising(&[2]).await;
        flush().await;
        flush().await;
        array.re_add(returning.clone(), Uuid::from_u128(80 + round)).await.unwrap();
        let go_on = async || {
            rising(&[0, 3]).await;
            runtime.sleep(std::time::Duration::from_secs(20)).await;
            true
        };
        fill_whole(array.fill(Role(1), go_on).await);
        flush().await;
        flush().await;
    }
}

/// No cut marks what was being written, no log repeats it, and the marks of an absence before do
/// not tell of it.
#[test]
fn unflushed_writes_of_a_lost_member_are_resynced_after_a_clean_shutdown() {
    let machine = Machine::with_array_of_many_rows(3, Level::Raid5);
    machine.refine(REGION);
    let forgotten = [4, 5];
    machine.live_to_the_end(&machine.all(), async |devices| {
        let returning = devices[1].clone();
        let array = attempt(devices).await.unwrap().array;
        array.fail(Role(1)).await.unwrap();
        put(&array, 0, 1, RequestFlags::empty()).await.unwrap();
        array.re_add(returning, AGAIN).await.unwrap();
        fill_whole(array.fill(Role(1), async || true).await);
        for _ in 0..2 {
            array.submit(Request::flush()).await.unwrap();
        }
        for place in forgotten {
            let flags = [RequestFlags::empty(), RequestFlags::LOGGED][place % 2];
            put(&array, places(&array)[place], 9, flags).await.unwrap();
        }
        array.fail(Role(1)).await.unwrap();
        machine.members[1].lose_power_as(Loss::Everything);
        array.stop().await.unwrap();
    });
    machine.live_to_the_end(&machine.all(), async |devices| {
        let returning = devices[1].clone();
        let array = attempt(devices).await.unwrap().array;
        let rows = array.re_add(returning, Uuid::from_u128(79)).await.unwrap();
        assert_eq!(rows, 2 * REGION, "two regions, and not those of the absence before");
        fill_whole(array.fill(Role(1), async || true).await);
        array.fail(Role(0)).await.unwrap();
        for place in forgotten {
            assert_eq!(read(&array, places(&array)[place], 512).await.unwrap()[0], 9);
        }
    });
}

#[test]
fn however_a_return_is_cut_what_was_flushed_is_there_and_on_the_member_too() {
    for (level, count) in [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid6, 4)] {
        let mut cut_at = 0;
        loop {
            let machine = Machine::with_array_of_many_rows(count, level);
            machine.refine(REGION);
            let newest = Newest::default();
            machine.power.cut_after(cut_at);
            let life = async |devices, _| come_and_go(devices, &machine, &newest).await;
            let ended = machine.live(cut_at + 1, &machine.all(), life);
            let context = format!("{level} of {count}, cut at {cut_at}");
            let newest = newest.into_inner();
            machine.live_to_the_end(&machine.all(), async |devices| {
                check_after(devices, newest, &context).await;
            });
            if matches!(ended, Ended::Finished(())) {
                break;
            }
            cut_at += 1;
        }
        assert!(cut_at > 60, "the sweep reaches the filling: {cut_at}");
    }
}

/// The next open period: the member is re-added, if it was not, and then the others are not needed.
async fn check_after(devices: Devices, newest: [(u8, u8); 6], context: &str) {
    let returning = devices[1].clone();
    let assembled = match attempt(devices).await {
        Ok(assembled) => assembled,
        Err(AssembleError::DegradedAndUnclean { .. }) => return,
        Err(error) => panic!("{context}: {error}"),
    };
    let array = assembled.array;
    // A log above repeats what it had noted and no flush had covered.
    for (place, at) in places(&array).into_iter().enumerate().filter(|(place, _)| place % 2 == 1) {
        put(&array, at, newest[place].1, RequestFlags::RECOMPUTE_PARITY).await.unwrap();
    }
    let check = async |when: &str| {
        for ((stable, _), at) in newest.into_iter().zip(places(&array)) {
            let found = read(&array, at, 512).await.unwrap();
            assert!(found[0] >= stable, "{context}, {when}: {} of {stable}", found[0]);
        }
    };
    check("after the start").await;
    if !assembled.stale.is_empty() {
        match array.re_add(returning, AGAIN).await {
            Ok(_) => {}
            // A log has repeated unmarked writes.
            Err(ReturnError::Unmarked { .. } | ReturnError::Replaced { .. }) => return,
            Err(error) => panic!("{context}: {error}"),
        }
    }
    for role in array.filling_roles() {
        fill_whole(array.fill(role, async || true).await);
    }
    check("when filled").await;
    if array.state() == ArrayState::Optimal && array.status().parity_initialised {
        array.fail(Role(0)).await.unwrap();
        check("without another member").await;
    }
}
