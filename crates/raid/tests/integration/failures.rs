//! What an array does when its members fail, one story a test.

use std::cell::Cell;
use std::rc::Rc;

use crate::support::*;
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, Buffer, Cause, Request, RequestFlags, RequestKind};
use headpond_raid::layout::{Strip, Stripe};
use headpond_raid::superblock::RoleState;
use headpond_raid::{ArrayState, AssembleOptions, Contents, Level, Role, Tuning, assemble, create};
use uuid::Uuid;

#[test]
fn a_member_that_refuses_a_write_is_out_before_the_write_is_acknowledged() {
    run(1, |runtime| async move {
        let members = devices(5, 8, &runtime);
        let array = new_array(&members, &options(Level::Raid6, 1)).await;
        let role = array.layout().cell(Stripe(0), Strip::Data(1)).role;
        members[role.index()].writes_left.set(0);
        let before = array.status().event_count;
        write(&array, u64::from(STRIP), &[7; 512]).await.unwrap();
        assert_eq!(array.state(), ArrayState::Degraded);
        assert_eq!(array.status().members[role.index()].state, RoleState::Failed);
        assert_eq!(read(&array, u64::from(STRIP), 512).await.unwrap(), [7; 512]);
        // The power goes now: the survivors have it recorded, and the re-attached member is stale.
        let copies: Vec<_> = (0..5).map(|index| members[index].copy(index, &runtime)).collect();
        let survivors = copies.iter().filter(|copy| copy.name() != members[role.index()].name());
        for survivor in survivors {
            let found = headpond_raid::inspect(&**survivor).await.unwrap();
            let headpond_raid::Inspection::Member(superblock) = found else { panic!("a member") };
            assert!(superblock.array.event_count > before);
            assert_eq!(superblock.array.roles[role.index()].state, RoleState::Failed);
        }
        array.stop().await.unwrap();
        members[role.index()].writes_left.set(u64::MAX);
        let assembled = start(&members).await;
        assert_eq!(assembled.missing, [role]);
        assert_eq!(assembled.stale, [members[role.index()].name().clone()]);
        assert_eq!(read(&assembled.array, u64::from(STRIP), 512).await.unwrap(), [7; 512]);
    });
}

/// Asked twice it is not there either: a cache would be given up, and its owner not.
#[test]
fn an_owner_that_a_failed_array_cannot_record_is_an_error_each_time() {
    run(1, |runtime| async move {
        let members = devices(3, 8, &runtime);
        let array = new_array(&members, &options(Level::Raid5, 1)).await;
        array.set_owner(Some(Uuid::from_u128(7))).await.unwrap();
        members.iter().for_each(|member| member.gone.set(true));
        for _ in 0..2 {
            array.set_owner(None).await.unwrap_err();
        }
        assert_eq!(array.state(), ArrayState::Failed);
    });
}

/// As a device that has no other beside it: an error is an error of that write.
#[test]
fn the_last_copy_of_a_mirror_stays_in_use_whatever_it_refuses() {
    run(5, |runtime| async move {
        let members = devices(2, 8, &runtime);
        let array = new_array(&members, &options(Level::Raid1, 1)).await;
        write(&array, 0, &[1; 8192]).await.unwrap();
        array.fail(Role(0)).await.unwrap();
        let last = &members[1];
        last.writes_left.set(0);
        let refused = write(&array, 4096, &[2; 4096]).await.unwrap_err();
        assert!(matches!(refused.cause(), Cause::Media { .. }), "{refused}");
        last.writes_left.set(u64::MAX);
        assert_eq!(array.state(), ArrayState::Degraded);
        assert_eq!(read(&array, 0, 4096).await.unwrap(), [1; 4096]);
        write(&array, 4096, &[3; 4096]).await.unwrap();
        array.stop().await.unwrap();
        let array = start(&members).await.array;
        assert_eq!(read(&array, 0, 4096).await.unwrap(), [1; 4096]);
        assert_eq!(read(&array, 4096, 4096).await.unwrap(), [3; 4096]);
        // One that is not there any more is no copy.
        members[1].gone.set(true);
        write(&array, 0, &[4; 4096]).await.unwrap_err();
        assert_eq!(array.state(), ArrayState::Failed);
    });
}

#[test]
fn a_strip_that_cannot_be_read_is_computed_and_rewritten() {
    for (level, count, groups) in [(Level::Raid1, 3, 1), (Level::Raid5, 4, 1), (Level::Raid6, 5, 1)]
    {
        run(2, |runtime| async move {
            let members = devices(count, 8, &runtime);
            let array = new_array(&members, &options(level, groups)).await;
            let bytes = Random::new(2).bytes(array.layout().array_bytes() as usize);
            write(&array, 0, &bytes).await.unwrap();
            let role = array.layout().cell(Stripe(0), Strip::Data(0)).role;
            members[role.index()].make_bad(512, 1024);
            assert!(read(&array, 0, bytes.len()).await.unwrap() == bytes);
            assert_eq!(array.state(), ArrayState::Optimal);
            assert!(members[role.index()].bad.borrow().is_empty(), "rewritten");
            assert_eq!(array.status().counts.rewritten_strips, 1);
            check_redundancy(&array, &members);
        });
    }
}

#[test]
fn a_bad_strip_met_by_a_write_is_repaired_first() {
    for strip in [Strip::Data(0), Strip::P, Strip::Q] {
        run(3, |runtime| async move {
            let members = devices(8, 8, &runtime);
            let array = new_array(&members, &options(Level::Raid6, 1)).await;
            let mut bytes = Random::new(3).bytes(array.layout().array_bytes() as usize);
            write(&array, 0, &bytes).await.unwrap();
            let role = array.layout().cell(Stripe(1), strip).role;
            members[role.index()].make_bad(array.layout().row_start(1), 4096);
            let at = array.layout().stripe_start(Stripe(1)) as usize;
            write(&array, at as u64, &[9; 1024]).await.unwrap();
            bytes[at..at + 1024].fill(9);
            assert!(read(&array, 0, bytes.len()).await.unwrap() == bytes);
            assert_eq!(array.state(), ArrayState::Optimal);
            members.iter().for_each(|member| member.bad.borrow_mut().clear());
            check_redundancy(&array, &members);
        });
    }
}

/// Found by the swarm: a second sector went bad while the first was repaired, and the member was
/// out. One that fails again and again is.
#[test]
fn a_strip_that_cannot_be_read_again_is_repaired_again_and_its_member_given_up_late() {
    for (failures, state) in [(2, ArrayState::Optimal), (50, ArrayState::Degraded)] {
        run(11, |runtime| async move {
            let members = devices(8, 8, &runtime);
            create(&as_devices(&members), &options(Level::Raid6, 1)).await.unwrap();
            let controls = [(); 8].map(|()| FaultControl::default());
            let faulty =
                as_devices(&members).into_iter().zip(&controls).map(|(device, control)| {
                    Rc::new(FaultDevice::new(device, control.clone(), runtime.clone())) as Rc<_>
                });
            let options = AssembleOptions::default();
            let array = assemble(&runtime, faulty.collect(), options).await.unwrap().array;
            let role = array.layout().cell(Stripe(0), Strip::Data(0)).role;
            let rule = FaultRule::on(RequestKind::Read, Fault::Media);
            controls[role.index()].add(FaultRule { times: Some(failures), ..rule });
            // Part of the strip, so that the old contents are read.
            write(&array, 0, &[7; 512]).await.unwrap();
            assert_eq!(array.state(), state);
            assert_eq!(read(&array, 0, 512).await.unwrap(), [7; 512]);
        });
    }
}

#[test]
fn a_member_lost_in_the_middle_of_many_writes_costs_no_data() {
    for seed in 0..12 {
        run(seed, |runtime| async move {
            let random = Random::new(seed);
            let members = devices(8, 8, &runtime);
            let array = new_array(&members, &options(Level::Raid60, 2)).await;
            let blocks = array.layout().array_bytes() / 512;
            let mut expected = random.bytes(array.layout().array_bytes() as usize);
            write(&array, 0, &expected).await.unwrap();
            for member in [seed as usize % 4, 4 + seed as usize % 3] {
                members[member].writes_left.set(random.below(10));
            }
            let mut writes = Vec::new();
            for block in (0..blocks).filter(|_| random.below(3) == 0) {
                let bytes = random.bytes(512);
                let at = block as usize * 512;
                expected[at..at + 512].copy_from_slice(&bytes);
                writes.push(array.submit(Request::write(at as u64, Buffer::from_slice(&bytes))));
            }
            join_all(writes).await.into_iter().for_each(|outcome| outcome.unwrap());
            assert_eq!(array.state(), ArrayState::Degraded);
            assert!(read(&array, 0, expected.len()).await.unwrap() == expected);
            array.stop().await.unwrap();
            let assembled = start(&members).await;
            assert_eq!(assembled.stale.len(), 2);
            assert!(read(&assembled.array, 0, expected.len()).await.unwrap() == expected);
        });
    }
}

#[test]
fn beyond_the_redundancy_writes_stop_and_intact_strips_are_still_read() {
    run(4, |runtime| async move {
        let members = devices(4, 8, &runtime);
        let array = new_array(&members, &options(Level::Raid5, 1)).await;
        let bytes = Random::new(4).bytes(array.layout().array_bytes() as usize);
        write(&array, 0, &bytes).await.unwrap();
        let lost = [Strip::Data(0), Strip::Data(1)];
        for strip in lost {
            members[array.layout().cell(Stripe(0), strip).role.index()].gone.set(true);
        }
        assert!(read(&array, 0, 4096).await.is_err());
        assert!(write(&array, 0, &[1; 512]).await.is_err());
        assert_eq!(array.state(), ArrayState::Failed);
        let written: u64 = members.iter().map(|member| member.writes.get()).sum();
        assert!(write(&array, 8192, &[1; 512]).await.is_err());
        assert_eq!(members.iter().map(|member| member.writes.get()).sum::<u64>(), written);
        assert!(array.submit(Request::flush()).await.is_err());
        assert!(read(&array, 8192, 4096).await.unwrap() == bytes[8192..12288]);
        // The last member to go is not recorded as failed: with it back there is an array again.
        members.iter().for_each(|member| member.gone.set(false));
    });
}

#[test]
fn a_member_that_cannot_flush_is_taken_out() {
    run(5, |runtime| async move {
        let members = devices(4, 8, &runtime);
        let array = new_array(&members, &options(Level::Raid5, 1)).await;
        write(&array, 0, &[3; 4096]).await.unwrap();
        let role = array.layout().cell(Stripe(0), Strip::Data(0)).role;
        members[role.index()].writes_left.set(0);
        array.submit(Request::flush()).await.unwrap();
        assert_eq!(array.status().members[role.index()].state, RoleState::Failed);
        assert_eq!(read(&array, 0, 4096).await.unwrap(), [3; 4096]);
    });
}

#[test]
fn a_full_member_is_no_failed_member_and_its_stripe_is_made_right_later() {
    run(6, |runtime| async move {
        let members = devices(8, 8, &runtime);
        let array = new_array(&members, &options(Level::Raid6, 1)).await;
        let p = array.layout().cell(Stripe(0), Strip::P).role;
        members[p.index()].full.set(true);
        let refused = write(&array, 0, &[1; 4096]).await.unwrap_err();
        assert!(matches!(refused.cause(), Cause::NoSpace));
        assert_eq!(array.state(), ArrayState::Optimal);
        members[p.index()].full.set(false);
        write(&array, 4096, &[2; 4096]).await.unwrap();
        assert_eq!(array.status().counts.reconstruct_writes, 1);
        check_redundancy(&array, &members);
    });
}

#[test]
fn stale_parity_is_replaced_where_asked_and_never_used() {
    run(7, |runtime| async move {
        let members = devices(8, 8, &runtime);
        let array = new_array(&members, &options(Level::Raid6, 1)).await;
        let p = array.layout().cell(Stripe(0), Strip::P).role;
        members[p.index()].memory().slice(1 << 20..(1 << 20) + 4096).fill(0xee);
        let request = Request::write(0, Buffer::from_slice(&[5; 4096]));
        let request = request.with_flags(RequestFlags::RECOMPUTE_PARITY);
        array.submit(request.clone()).await.unwrap();
        check_redundancy(&array, &members);
        let other = array.layout().cell(Stripe(0), Strip::Data(3)).role;
        members[other.index()].gone.set(true);
        assert!(array.submit(request).await.is_err(), "a lost strip cannot come from torn parity");
    });
}

#[test]
fn parity_that_was_never_initialised_is_written_by_reconstruct_until_it_is() {
    run(8, |runtime| async move {
        let members = devices(8, 40, &runtime);
        let junk = Random::new(8);
        for member in &members {
            let data = member.memory().slice(1 << 20..(1 << 20) + 40 * 4096);
            data.copy_from(&junk.bytes(40 * 4096));
        }
        let mut options = options(Level::Raid6, 1);
        options.contents = Contents::Unknown;
        create(&as_devices(&members), &options).await.unwrap();
        let assembled = start(&members).await;
        assert_eq!(assembled.warnings.len(), 1);
        let array = assembled.array;
        write(&array, 0, &[1; 512]).await.unwrap();
        let counts = array.status().counts;
        assert_eq!((counts.reconstruct_writes, counts.read_modify_writes), (1, 0));
        assert!(!array.status().parity_initialised);
        assert!(array.initialise(async || false).await.is_ok());
        assert!(!array.status().parity_initialised, "it was told to end early");
        let seen = Cell::new(0);
        let watch = async || {
            seen.set(
                array.status().progress.initialising.unwrap().stripes_done.max(seen.get()) + 1,
            );
            true
        };
        array.initialise(watch).await.unwrap();
        assert!(seen.get() > 0 && array.status().progress.initialising.is_none());
        check_redundancy(&array, &members);
        write(&array, 0, &[2; 512]).await.unwrap();
        assert_eq!(array.status().counts.read_modify_writes, 1);
        array.stop().await.unwrap();
        assert!(start(&members).await.array.status().parity_initialised);
    });
}

#[test]
fn little_scratch_memory_slows_down_and_does_not_stop() {
    run(9, |runtime| async move {
        let members = devices(8, 8, &runtime);
        create(&as_devices(&members), &options(Level::Raid6, 1)).await.unwrap();
        let tuning = Tuning { scratch_bytes_max: 6000, ..Tuning::default() };
        let options = AssembleOptions { tuning, ..AssembleOptions::default() };
        let array = assemble(&runtime, as_devices(&members), options).await.unwrap().array;
        let blocks = array.layout().array_bytes() / 512;
        let data = Buffer::from_slice(&[1; 512]);
        let writes = (0..blocks).map(|block| array.submit(Request::write(block * 512, &data)));
        join_all(writes.collect()).await.into_iter().for_each(|outcome| outcome.unwrap());
        check_redundancy(&array, &members);
    });
}

#[test]
fn a_request_without_payload_takes_the_same_steps() {
    run(10, |runtime| async move {
        let members = devices(8, 8, &runtime);
        let array = new_array(&members, &options(Level::Raid6, 1)).await;
        let operations = || members.iter().map(|m| m.reads.get() + m.writes.get()).sum::<u64>();
        let before = operations();
        array.submit(Request::write(0, Buffer::payload_free(4096))).await.unwrap();
        assert_eq!(operations() - before, 6);
        array.submit(Request::read(0, Buffer::payload_free(65536))).await.unwrap();
        members[Role(3).index()].gone.set(true);
        array.submit(Request::read(0, Buffer::payload_free(65536))).await.unwrap();
    });
}

/// Unreadable data of a member was reconstructed from the others, and not reported.
#[test]
fn errors_of_each_member_are_counted_by_kind_and_kept_when_it_has_failed() {
    run(1, |runtime| async move {
        for level in [Level::Raid5, Level::Raid6, Level::Raid1, Level::Raid0] {
            let members = devices(4, 8, &runtime);
            let control = FaultControl::default();
            let mut of_array = as_devices(&members);
            of_array[0] =
                Rc::new(FaultDevice::new(of_array[0].clone(), control.clone(), runtime.clone()));
            create(&of_array, &options(level, 1)).await.unwrap();
            let assembled = assemble(&runtime, of_array, AssembleOptions::default()).await.unwrap();
            let array = assembled.array;
            let errors = || array.status().members[0].errors;
            write(&array, 0, &[7; 4096]).await.unwrap();
            assert_eq!(errors().total(), 0, "{level:?}");
            control.add(FaultRule {
                times: Some(1),
                ..FaultRule::on(RequestKind::Read, Fault::Media)
            });
            for strip in 0..8 {
                let found = read(&array, strip * u64::from(STRIP), 4096).await;
                assert!(found.is_ok() || level == Level::Raid0, "{level:?}");
            }
            assert_eq!((errors().read, errors().total()), (1, 1), "{level:?}");
            array.reset_counts();
            assert_eq!(errors().total(), 1, "{level:?}: they are no statistics");
            array.history().errors_of(array.status().members[0].uuid).clear();
            assert_eq!(errors().total(), 0, "{level:?}");
            control.add(FaultRule::on(RequestKind::Write, Fault::Media));
            for strip in 0..8 {
                let written = write(&array, strip * u64::from(STRIP), &[8; 4096]).await;
                assert!(written.is_ok() || level == Level::Raid0, "{level:?}");
            }
            assert!(errors().write > 0 && errors().read == 0, "{level:?}: {}", errors());
            let failed = array.status().members[0].state == RoleState::Failed;
            assert_eq!(failed, level != Level::Raid0, "{level:?}");
        }
    });
}
