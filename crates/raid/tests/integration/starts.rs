//! Putting arrays together: after orderly and other stops, and when it must be refused.

use std::rc::Rc;

use crate::support::*;
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, Buffer, Cause, Geometry, Request, RequestFlags, RequestKind};
use headpond_raid::layout::{Role, Strip, Stripe};
use headpond_raid::{
    AfterUncleanStop, ArrayState, AssembleError, AssembleOptions, Assembled, CreateError,
    CreateOptions, Force, Inspection, Integrity, Intent, Level, Occupied, Scrubbed, Warning,
    assemble, create, erase, inspect,
};
use uuid::Uuid;

async fn attempt(members: &[Rc<TestDevice>]) -> Result<Assembled, AssembleError> {
    assemble(&members[0].runtime, as_devices(members), AssembleOptions::default()).await
}

fn error(result: Result<Assembled, AssembleError>) -> AssembleError {
    result.err().expect("refused")
}

#[test]
fn strangers_and_doubles_are_refused_by_name() {
    run(1, |runtime| async move {
        let members = devices(4, 8, &runtime);
        create(&as_devices(&members), &options(Level::Raid5, 1)).await.unwrap();
        let mut with_stranger = members.clone();
        with_stranger.push(TestDevice::new(9, 2 << 20, &runtime));
        let refused = error(attempt(&with_stranger).await);
        assert!(matches!(&refused, AssembleError::Foreign { device } if device.as_str() == "m9"));
        let mut with_copy = members.clone();
        with_copy.push(members[2].copy(7, &runtime));
        assert!(matches!(error(attempt(&with_copy).await), AssembleError::Duplicate { .. }));
        let others = devices(4, 8, &runtime);
        let other = CreateOptions { uuid: Uuid::from_u128(9), ..options(Level::Raid5, 1) };
        create(&as_devices(&others), &other).await.unwrap();
        let mixed = [&members[..3], &others[..1]].concat();
        assert!(matches!(error(attempt(&mixed).await), AssembleError::OtherArray { .. }));
        let none = assemble(&runtime, Vec::new(), AssembleOptions::default()).await;
        assert!(matches!(error(none), AssembleError::NoDevices));
        assert_eq!(attempt(&members).await.unwrap().array.state(), ArrayState::Optimal);
    });
}

#[test]
fn too_few_members_and_small_ones_are_refused() {
    run(2, |runtime| async move {
        let members = devices(6, 8, &runtime);
        create(&as_devices(&members), &options(Level::Raid50, 2)).await.unwrap();
        let few = error(attempt(&members[2..]).await);
        assert!(matches!(few, AssembleError::TooFew { group: 0, lost: 2, redundancy: 1, .. }));
        let small = RamDevice::with_geometry("small", Geometry::of_size((1 << 20) + 4096));
        small.memory().copy_from_buffer(&members[0].memory().slice(0..(1 << 20) + 4096));
        let mut with_small = as_devices(&members[1..]);
        with_small.push(Rc::new(small));
        let refused = assemble(&runtime, with_small, AssembleOptions::default()).await;
        assert!(matches!(error(refused), AssembleError::TooSmall { .. }));
    });
}

#[test]
fn a_damaged_copy_is_bridged_and_two_are_refused() {
    run(3, |runtime| async move {
        let members = devices(4, 8, &runtime);
        let array = new_array(&members, &options(Level::Raid5, 1)).await;
        array.stop().await.unwrap();
        members[1].memory().slice(100..200).fill(0xff);
        assert_eq!(attempt(&members).await.unwrap().array.state(), ArrayState::Optimal);
        members[2].memory().slice(100..200).fill(0xff);
        members[2].memory().slice(65636..65736).fill(0xff);
        let refused = error(attempt(&members).await);
        assert!(matches!(&refused, AssembleError::Unusable { device, .. }
            if device.as_str() == "m2"));
    });
}

#[test]
fn occupied_devices_are_not_overwritten_unless_forced() {
    run(4, |runtime| async move {
        let members = devices(4, 8, &runtime);
        let array = options(Level::Raid5, 1);
        create(&as_devices(&members), &array).await.unwrap();
        let again = create(&as_devices(&members), &array).await.unwrap_err();
        assert!(matches!(again, CreateError::Member { .. }));
        erase(&*members[0]).await.unwrap();
        members[0].memory().slice(1024..1100).fill(0x53);
        let again = create(&as_devices(&members), &array).await.unwrap_err();
        assert!(matches!(again, CreateError::Foreign { .. }));
        let force = CreateOptions { occupied: Occupied::Overwrite, ..array.clone() };
        create(&as_devices(&members), &force).await.unwrap();
        let twice = vec![members[0].clone(), members[1].clone(), members[0].clone()];
        let refused = create(&as_devices(&twice), &force).await.unwrap_err();
        assert!(matches!(refused, CreateError::Duplicate { .. }));
        let tiny = vec![TestDevice::new(0, 1 << 20, &runtime); 3];
        let refused = create(&as_devices(&tiny), &array).await.unwrap_err();
        assert!(matches!(refused, CreateError::TooSmall { .. }));
    });
}

/// Cuts the power at every device write of creating an array over an older one.
#[test]
fn creation_cut_anywhere_leaves_no_array_or_the_new_one() {
    let mut born = 0;
    for cut in 0..40 {
        born += u32::from(run(5, |runtime| async move {
            let members = devices(3, 4, &runtime);
            create(&as_devices(&members), &options(Level::Raid5, 1)).await.unwrap();
            let new = CreateOptions {
                uuid: Uuid::from_u128(77),
                occupied: Occupied::Overwrite,
                intent: Intent::Bitmap,
                ..options(Level::Raid5, 1)
            };
            cut_after(&members, &new, cut).await
        }));
    }
    assert!(born > 0, "the sweep reaches the end");
}

/// Lets `cut` writes of a creation through, and says whether there is a new array then.
async fn cut_after(members: &[Rc<TestDevice>], new: &CreateOptions, cut: u64) -> bool {
    // Creation goes member by member, so a budget for all is dealt out in its order: 2 zeroed
    // copies and one page each, then one superblock each, then another.
    let first_pass = |index: u64| cut.saturating_sub(index * 3).min(3);
    let later = |index: u64, pass: u64| u64::from(cut > 9 + pass * 3 + index);
    for (index, member) in (0..).zip(members) {
        member.writes_left.set(first_pass(index) + later(index, 0) + later(index, 1));
    }
    let done = create(&as_devices(members), new).await.is_ok();
    members.iter().for_each(|member| member.writes_left.set(u64::MAX));
    match attempt(members).await {
        Ok(assembled) => {
            assert_eq!(assembled.missing, []);
            let uuid = assembled.array.status().uuid;
            // With one copy gone of one member the old array is still whole.
            assert!(cut <= 1 || uuid == new.uuid);
            uuid == new.uuid
        }
        Err(error) => {
            assert!(!done, "{error}");
            false
        }
    }
}

#[test]
fn an_unclean_stop_without_a_bitmap_costs_the_trust_in_the_parity() {
    run(6, |runtime| async move {
        let members = devices(8, 8, &runtime);
        drop(new_array(&members, &options(Level::Raid6, 1)).await);
        let assembled = attempt(&members).await.unwrap();
        assert_eq!(assembled.warnings, [Warning::Unclean, Warning::ParityUntrusted]);
        assert!(!assembled.array.status().parity_initialised);
        drop(assembled);
    });
    run(7, |runtime| async move {
        let members = devices(8, 8, &runtime);
        drop(new_array(&members, &options(Level::Raid6, 1)).await);
        let options = AssembleOptions {
            after_unclean_stop: AfterUncleanStop::LogRecomputes,
            ..AssembleOptions::default()
        };
        let assembled = assemble(&runtime, as_devices(&members), options).await.unwrap();
        assert_eq!(assembled.warnings, [Warning::Unclean]);
        assert!(assembled.array.status().parity_initialised);
    });
}

#[test]
fn degraded_and_unclean_is_refused_unless_forced() {
    run(8, |runtime| async move {
        let members = devices(5, 8, &runtime);
        drop(new_array(&members, &options(Level::Raid6, 1)).await);
        let refused = error(attempt(&members[1..]).await);
        assert!(matches!(refused, AssembleError::DegradedAndUnclean { .. }), "{refused}");
        let force = AssembleOptions { force: Force::AcceptParity, ..AssembleOptions::default() };
        let forced = assemble(&runtime, as_devices(&members[1..]), force).await.unwrap();
        assert!(forced.warnings.contains(&Warning::ParityAccepted { lost: 1 }));
        write(&forced.array, 0, &[1; 512]).await.unwrap();
        assert_eq!(read(&forced.array, 0, 512).await.unwrap(), [1; 512]);
    });
    run(9, |runtime| async move {
        let members = devices(3, 8, &runtime);
        drop(new_array(&members, &options(Level::Raid1, 1)).await);
        assert!(attempt(&members[1..]).await.is_ok(), "one copy is right by itself");
    });
}

/// The power goes in the middle of many writes; afterwards no stripe's parity is torn.
#[test]
fn the_intent_bitmap_finds_every_torn_stripe() {
    let mut resynchronised = 0;
    for (seed, level, count, groups) in (0..30_u64).map(|seed| match seed % 3 {
        0 => (seed, Level::Raid5, 4, 1),
        1 => (seed, Level::Raid60, 8, 2),
        _ => (seed, Level::Raid10, 4, 2),
    }) {
        let members = {
            let executor = executor(seed);
            let runtime = executor.runtime();
            let members = devices(count, 16, &runtime);
            let options = CreateOptions { intent: Intent::Bitmap, ..options(level, groups) };
            let inner = members.clone();
            let stopped = executor.block_on(async {
                let array = Rc::new(new_array(&inner, &options).await);
                for index in 0..80 {
                    let (array, random) = (Rc::clone(&array), Random::new(seed * 1000 + index));
                    runtime.spawn(async move {
                        let start = random.below(array.geometry().size_bytes / 512 - 8) * 512;
                        let data = Buffer::from_slice(&random.bytes(512 * 8));
                        array.submit(Request::write(start, data)).await.unwrap();
                    });
                }
                runtime.sleep(std::time::Duration::from_nanos(3000 + seed * 300)).await;
            });
            stopped.unwrap();
            members
        };
        run(seed, |runtime| async move {
            let copies: Vec<_> =
                members.iter().enumerate().map(|(i, member)| member.copy(i, &runtime)).collect();
            let assembled = start(&copies).await;
            check_redundancy(&assembled.array, &copies);
            assert!(assembled.array.status().parity_initialised);
            assembled.warnings.contains(&Warning::Resynchronised { regions: 1 })
        })
        .then(|| resynchronised += 1);
    }
    assert!(resynchronised > 10, "the cuts hit writes");
}

#[test]
fn marks_are_cleared_when_idle_and_an_idle_degraded_array_may_start() {
    run(10, |runtime| async move {
        let members = devices(5, 8, &runtime);
        let options = CreateOptions { intent: Intent::Bitmap, ..options(Level::Raid6, 1) };
        let array = new_array(&members, &options).await;
        for _ in 0..20 {
            write(&array, 0, &[1; 512]).await.unwrap();
        }
        assert_eq!(array.status().counts.intent_pages, 1);
        let marked = error(attempt_copies(&members[1..]).await);
        assert!(matches!(marked, AssembleError::DegradedAndUnclean { .. }));
        array.stop().await.unwrap();
        assert_eq!(array.status().counts.intent_pages, 2);
        let assembled = attempt(&members[1..]).await.unwrap();
        assert_eq!(assembled.missing.len(), 1);
        drop(assembled);
        // Unclean, but nothing was being written.
        assert!(attempt(&members[1..]).await.is_ok());
    });
}

#[test]
fn a_device_that_cannot_be_read_is_done_without_and_named() {
    run(15, |runtime| async move {
        let members = devices(4, 8, &runtime);
        new_array(&members, &options(Level::Raid5, 1)).await.stop().await.unwrap();
        members[1].gone.set(true);
        let assembled = attempt(&members).await.unwrap();
        assert_eq!(assembled.array.state(), ArrayState::Degraded);
        let [warning @ Warning::Unreadable { .. }] = &assembled.warnings[..] else {
            panic!("{:?}", assembled.warnings)
        };
        assert!(warning.to_string().starts_with("m1: "), "{warning}");
        members.iter().for_each(|member| member.gone.set(true));
        assert!(matches!(error(attempt(&members).await), AssembleError::Device(_)));
    });
}

#[test]
fn devices_that_hang_are_waited_for_side_by_side_and_then_done_without_and_named() {
    run(16, |runtime| async move {
        let members = devices(5, 8, &runtime);
        new_array(&members, &options(Level::Raid6, 1)).await.stop().await.unwrap();
        let mut given = as_devices(&members);
        for hung in [1, 3] {
            let control = FaultControl::default();
            control.add(FaultRule::on(RequestKind::Read, Fault::Hang));
            let device = Rc::clone(&given[hung]);
            given[hung] = Rc::new(FaultDevice::new(device, control, runtime.clone()));
        }
        let (options, begun) = (AssembleOptions::default(), runtime.now());
        let deadline = options.tuning.deadlines.unwrap().deadline.unwrap();
        let assembled = assemble(&runtime, given, options).await.unwrap();
        let waited = runtime.now().since(begun);
        assert!(waited >= deadline && waited < deadline * 3 / 2, "{waited:?} of {deadline:?}");
        assert_eq!(assembled.missing, [Role(1), Role(3)]);
        let told: Vec<_> = assembled.warnings.iter().map(ToString::to_string).collect();
        assert!(told[0].starts_with("m1: timed out after 30s"), "{told:?}");
        assert!(told[1].starts_with("m3: timed out after 30s"), "{told:?}");
    });
}

#[test]
fn an_unreadable_block_of_a_torn_stripe_is_an_error_and_the_array_starts() {
    run(16, |runtime| async move {
        let members = devices(4, 8, &runtime);
        let options = CreateOptions { intent: Intent::Bitmap, ..options(Level::Raid5, 1) };
        create(&as_devices(&members), &options).await.unwrap();
        members.iter().for_each(|member| member.refine(2));
        let array = start(&members).await.array;
        let stripe_bytes = array.layout().stripe_bytes();
        let bytes = Random::new(3).bytes(stripe_bytes as usize);
        write(&array, 0, &bytes).await.unwrap();
        let cell = array.layout().cell(Stripe(0), Strip::Data(0));
        members[cell.role.index()].make_bad(array.layout().row_start(cell.row), 512);
        let array = attempt(&members).await.unwrap().array;
        let refused = read(&array, 0, 512).await.unwrap_err();
        assert!(matches!(refused.cause(), Cause::Media { .. }), "{refused}");
        assert_eq!(read(&array, 512, 512).await.unwrap(), bytes[512..1024]);
        for region in 1..4 {
            for _ in 0..3 {
                array.submit(Request::flush()).await.unwrap();
            }
            // In another region, with whose mark others go.
            write(&array, region * 2 * stripe_bytes, &[1; 512]).await.unwrap();
        }
        let array = attempt(&members).await.unwrap().array;
        assert!(read(&array, 0, 512).await.is_err(), "it is torn after another cut too");
        write(&array, 0, &bytes).await.unwrap();
        array.stop().await.unwrap();
        let array = attempt(&members).await.unwrap().array;
        assert_eq!(read(&array, 0, bytes.len()).await.unwrap(), bytes);
    });
}

/// Signed regions are not resynced: so none is torn.
#[test]
fn a_region_with_a_torn_stripe_is_not_signed_and_stays_torn() {
    run(17, |runtime| async move {
        const REGION_BYTES: u64 = 1 << 20;
        let members = devices(4, 8 + REGION_BYTES / u64::from(STRIP), &runtime);
        let (intent, integrity) = (Intent::Bitmap, Integrity::Region);
        let options = CreateOptions { intent, integrity, ..options(Level::Raid5, 1) };
        create(&as_devices(&members), &options).await.unwrap();
        members.iter().for_each(|member| member.refine(2));
        let array = start(&members).await.array;
        let bytes = Random::new(3).bytes(array.layout().stripe_bytes() as usize);
        write(&array, 0, &bytes).await.unwrap();
        let cell = array.layout().cell(Stripe(0), Strip::Data(0));
        let place = REGION_BYTES + array.layout().row_start(cell.row);
        members[cell.role.index()].make_bad(place, 512);
        let array = attempt(&members).await.unwrap().array;
        assert!(read(&array, 0, 512).await.is_err());
        assert_eq!(array.scrub(async || true).await, Ok(Scrubbed::Whole));
        let signed = array.status().integrity.expect("there is a region").regions_signed;
        assert_eq!(signed, 3);
        array.stop().await.unwrap();
        let array = attempt(&members).await.unwrap().array;
        assert!(read(&array, 0, 512).await.is_err(), "it is torn after a scrub too");
        write(&array, 0, &bytes).await.unwrap();
        assert_eq!(array.scrub(async || true).await, Ok(Scrubbed::Whole));
        assert_eq!(array.status().integrity.expect("there is a region").regions_signed, 4);
    });
}

#[test]
fn a_stop_waits_for_the_writes_in_flight_and_refuses_later_ones() {
    run(14, |runtime| async move {
        let members = devices(5, 8, &runtime);
        let options = CreateOptions { intent: Intent::Bitmap, ..options(Level::Raid6, 1) };
        let array = Rc::new(new_array(&members, &options).await);
        let writer = Rc::clone(&array);
        let task = runtime.spawn(async move { write(&writer, 512, &[4; 512]).await });
        runtime.sleep(std::time::Duration::from_nanos(100)).await;
        array.stop().await.unwrap();
        let early = task.await.is_ok();
        assert!(write(&array, 0, &[5; 512]).await.is_err());
        check_redundancy(&array, &members);
        let again = attempt(&members).await.unwrap();
        assert_eq!(again.warnings, []);
        assert_eq!(read(&again.array, 512, 512).await.unwrap() == [4; 512], early);
    });
}

/// A log above noted a write that the bitmap does not know, and the power went.
#[test]
fn writes_that_only_a_log_noted_leave_the_parity_in_doubt() {
    run(12, |runtime| async move {
        let members = devices(5, 8, &runtime);
        let options = CreateOptions { intent: Intent::Bitmap, ..options(Level::Raid6, 1) };
        let array = new_array(&members, &options).await;
        let request = Request::write(0, Buffer::from_slice(&[1; 512]));
        array.submit(request.with_flags(RequestFlags::LOGGED)).await.unwrap();
        assert_eq!(array.status().counts.intent_pages, 0);
        let refused = error(attempt_copies(&members[1..]).await);
        assert!(matches!(refused, AssembleError::DegradedAndUnclean { .. }));
        let distrusted = attempt_copies(&members).await.unwrap();
        assert!(distrusted.warnings.contains(&Warning::ParityUntrusted));
        array.stop().await.unwrap();
        assert!(attempt_copies(&members[1..]).await.is_ok());
    });
}

#[test]
fn a_second_unclean_stop_does_not_forget_what_the_log_has_still_to_write() {
    run(14, |runtime| async move {
        let members = devices(5, 8, &runtime);
        let options = CreateOptions { intent: Intent::Bitmap, ..options(Level::Raid6, 1) };
        let array = new_array(&members, &options).await;
        let request = Request::write(0, Buffer::from_slice(&[1; 512]));
        array.submit(request.with_flags(RequestFlags::LOGGED)).await.unwrap();
        drop(array);
        let after_unclean_stop = AfterUncleanStop::LogRecomputes;
        let options = AssembleOptions { after_unclean_stop, ..AssembleOptions::default() };
        let reopened = assemble(&runtime, as_devices(&members), options).await.unwrap();
        drop(reopened);
        let refused = error(attempt_copies(&members[1..]).await);
        assert!(matches!(refused, AssembleError::DegradedAndUnclean { .. }));
    });
}

#[test]
fn the_owners_generation_is_on_every_member_when_it_was_raised() {
    run(13, |runtime| async move {
        let members = devices(4, 8, &runtime);
        let array = new_array(&members, &options(Level::Raid5, 1)).await;
        assert_eq!(array.owner_generation(), 0);
        array.raise_owner_generation(1).await.unwrap();
        for member in &members {
            let Inspection::Member(found) = inspect(&**member).await.unwrap() else {
                panic!("a member")
            };
            assert_eq!(found.array.owner_generation, 1);
        }
        array.stop().await.unwrap();
        assert_eq!(start(&members).await.array.owner_generation(), 1);
    });
}

async fn attempt_copies(members: &[Rc<TestDevice>]) -> Result<Assembled, AssembleError> {
    let devices = members.iter().map(|member| {
        let copy = RamDevice::with_geometry(member.name().clone(), member.geometry().clone());
        copy.memory().copy_from_buffer(member.memory());
        Rc::new(copy) as Rc<dyn BlockDevice>
    });
    assemble(&members[0].runtime, devices.collect(), AssembleOptions::default()).await
}

/// RAID 6 of 5 with a strip of 4 KiB, as md lays it out: row 1 is `3 4 5 P Q`. Data strip 3 holds
/// 0x01, 4 holds 0x80 and 5 holds 0x03 throughout, so that P is 0x82 and Q is 01 + 2 x 80 + 4 x 03,
/// that is 01 ^ 1d ^ 0c = 10.
#[test]
fn a_small_raid6_is_byte_for_byte_that_of_md() {
    run(11, |runtime| async move {
        let members = devices(5, 8, &runtime);
        let array = new_array(&members, &options(Level::Raid6, 1)).await;
        for (strip, byte) in [(3, 0x01), (4, 0x80), (5, 0x03)] {
            write(&array, strip * u64::from(STRIP), &[byte; STRIP as usize]).await.unwrap();
        }
        let row = |member: usize| members[member].data(u64::from(STRIP), STRIP as usize);
        for (member, byte) in [0x01, 0x80, 0x03, 0x82, 0x10].into_iter().enumerate() {
            assert_eq!(row(member), [byte; STRIP as usize], "member {member}");
        }
        assert_eq!(array.layout().place(3 * u64::from(STRIP)).stripe, Stripe(1));
    });
}
