//! Where the stripe journal, the marks of an absence, lost blocks and spare space meet.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use crate::support;
use crate::support::journal::{Story, open};
use crate::support::machine::{Devices, Machine, attempt, write_stable};
use crate::support::{STRIP, read};
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::sync::join_all;
use headpond_block::{
    BlockDevice, Buffer, ByteRange, Request, RequestFlags, RequestKind, Runtime, Submission,
};
use headpond_raid::layout::{Layout, Strip, Stripe};
use headpond_raid::superblock::DATA_OFFSET_MIN;
use headpond_raid::{Array, ArrayState, Filled, Force, JournalWhen, Level, Role, Spread};
use headpond_sim::Loss;
use uuid::Uuid;

const AGAIN: Uuid = Uuid::from_u128(78);

async fn begin(devices: &Devices) -> Array {
    open(&devices.runtime, devices.to_vec(), Force::No).await.expect("opened").array
}

async fn fill_whole(array: &Array, role: Role) {
    let filled = array.fill(role, async || true).await;
    assert!(matches!(filled, Ok(Filled::Whole { .. })));
}

fn holder(layout: &Layout, strip: Strip) -> Role {
    layout.cell(Stripe(0), strip).role
}

fn faulty(device: &mut Rc<dyn BlockDevice>, runtime: &Runtime) -> FaultControl {
    let control = FaultControl::default();
    *device = Rc::new(FaultDevice::new(device.clone(), control.clone(), runtime.clone()));
    control
}

#[test]
fn zeros_that_a_whole_group_was_given_are_not_given_again_over_what_passed_the_journal_by() {
    let story = Story::new(Level::Raid50, 6, JournalWhen::Degraded);
    story.machine.live_to_the_end(&story.all(), async |devices| {
        let array = begin(&devices).await;
        array.fail(Role(0)).await.unwrap();
        let whole = ByteRange::at(0, array.layout().array_bytes());
        array.submit(Request::write_zeroes(whole)).await.unwrap();
        write_stable(&array, array.layout().stripe_bytes(), 7).await.unwrap();
    });
    let present = story.without(&BTreeSet::from([0]));
    story.machine.live_to_the_end(&present, async |devices| {
        let array = begin(&devices).await;
        let at = array.layout().stripe_bytes();
        assert_eq!(read(&array, at, 512).await.unwrap(), [7; 512]);
        assert_eq!(read(&array, 0, 512).await.unwrap(), [0; 512]);
    });
}

/// It waited for ever for a mark that was not needed any more.
#[test]
fn a_writer_that_waits_for_a_mark_goes_on_when_everybody_is_back() {
    for seed in 0..400 {
        let (start, apart) = (seed * 37 % 2000, seed * 13 % 150);
        let machine = Machine::with_array_of_many_rows(3, Level::Raid5);
        machine.refine(4);
        machine.live_to_the_end(&machine.all(), async |devices| {
            let (runtime, returning) = (devices.runtime.clone(), devices[1].clone());
            let array = attempt(devices).await.unwrap().array;
            array.fail(Role(1)).await.unwrap();
            let at = |region: u64| region * 4 * array.layout().stripe_bytes();
            write_stable(&array, at(9), 7).await.unwrap();
            array.re_add(returning, AGAIN).await.unwrap();
            let fill = async {
                fill_whole(&array, Role(1)).await;
                Ok(())
            };
            let mut all = vec![Submission::pending(fill)];
            all.extend((0..9).map(|region| {
                let (array, at) = (&array, at(region));
                let pause = Duration::from_micros(start + region * apart);
                let sleep = runtime.sleep(pause);
                Submission::pending(async move {
                    sleep.await;
                    write_stable(array, at, 7).await
                })
            }));
            join_all(all).await.into_iter().for_each(|it| it.unwrap());
            assert_eq!(array.state(), ArrayState::Optimal);
        });
    }
}

/// What a log above would repeat is not marked while it is written.
#[test]
fn a_member_that_fails_after_a_replay_is_given_what_that_wrote_when_it_comes_back() {
    let story = Story::new(Level::Raid6, 5, JournalWhen::Always);
    let forgetful = story.machine.live_to_the_end(&story.all(), async |devices| {
        let array = begin(&devices).await;
        let write = Request::write(0, Buffer::from_slice(&[7; 512]));
        array.submit(write.with_flags(RequestFlags::LOGGED)).await.unwrap();
        holder(array.layout(), Strip::Data(0))
    });
    story.machine.live_to_the_end(&story.all(), async |mut devices| {
        let (runtime, at) = (devices.runtime.clone(), forgetful.index());
        let returning = devices[at].clone();
        let control = faulty(&mut devices[at], &runtime);
        control.add(FaultRule::on(RequestKind::Flush, Fault::Media));
        let array = begin(&devices).await;
        story.machine.members[at].lose_power_as(Loss::Everything);
        array.submit(Request::flush()).await.unwrap();
        assert_eq!(array.state(), ArrayState::Degraded);
        array.re_add(returning, AGAIN).await.unwrap();
        fill_whole(&array, forgetful).await;
        assert_eq!(read(&array, 0, 512).await.unwrap(), [7; 512]);
    });
}

#[test]
fn parity_that_a_member_had_not_made_stable_when_it_left_is_given_to_it_again() {
    let machine = Machine::with_array_of_many_rows(3, Level::Raid5);
    machine.refine(4);
    for (index, medium) in machine.members.iter().enumerate() {
        let content = vec![1 << index; 40 * STRIP as usize];
        medium.poke(DATA_OFFSET_MIN, &content);
    }
    machine.live_to_the_end(&machine.all(), async |devices| {
        let devices_of = devices.to_vec();
        let array = attempt(devices).await.unwrap().array;
        let p = holder(array.layout(), Strip::P);
        let other = holder(array.layout(), Strip::Data(0));
        let before = read(&array, 0, STRIP as usize).await.unwrap();
        let is_first = Cell::new(true);
        let go_on = async || {
            if is_first.replace(false) {
                array.fail(p).await.unwrap();
                machine.members[p.index()].lose_power_as(Loss::Everything);
                array.re_add(devices_of[p.index()].clone(), AGAIN).await.unwrap();
                fill_whole(&array, p).await;
            }
            true
        };
        array.initialise(go_on).await.unwrap();
        array.fail(other).await.unwrap();
        assert!(read(&array, 0, STRIP as usize).await.unwrap() == before);
    });
}

/// One block of a stripe that is unreadable on two members while a third is lost.
#[test]
fn a_replay_of_what_came_before_lost_blocks_were_made_up_leaves_the_stripe_as_it_is_now() {
    let story = Story::new(Level::Raid6, 6, JournalWhen::Degraded);
    let at = 3 * u64::from(STRIP);
    let roles = story.machine.live_to_the_end(&story.all(), async |devices| {
        let array = begin(&devices).await;
        let bytes = support::Random::new(5).bytes(array.layout().stripe_bytes() as usize);
        support::write(&array, 0, &bytes).await.unwrap();
        array.stop().await.unwrap();
        let strips = [Strip::Data(0), Strip::Data(1), Strip::P, Strip::Data(3)];
        strips.map(|strip| holder(array.layout(), strip))
    });
    story.machine.live_to_the_end(&story.all(), async |mut devices| {
        let runtime = devices.runtime.clone();
        let mut faulty_at = |role: &Role| faulty(&mut devices[role.index()], &runtime);
        let controls = roles[1..3].iter().map(&mut faulty_at).collect::<Vec<_>>();
        let array = begin(&devices).await;
        array.fail(roles[0]).await.unwrap();
        write_stable(&array, at, 7).await.unwrap();
        let range = Some(ByteRange::at(DATA_OFFSET_MIN, 512));
        for control in controls {
            control.add(FaultRule { range, ..FaultRule::on(RequestKind::Read, Fault::Latent) });
        }
        array.scrub(async || true).await.unwrap();
        assert_eq!(array.status().lost.bytes, 2 * 512);
    });
    let present = story.without(&BTreeSet::from([roles[0].index()]));
    story.machine.live_to_the_end(&present, async |devices| {
        let array = begin(&devices).await;
        assert_eq!(read(&array, at, 512).await.unwrap(), [7; 512]);
        array.fail(roles[3]).await.unwrap();
        assert_eq!(read(&array, at, 512).await.unwrap(), [7; 512], "by the others");
    });
}

/// Of a declustered array: a member, and the device that has it.
async fn lose_one_and_fill_its_slot(array: &Array, role: Role) {
    array.fail(role).await.unwrap();
    assert_eq!(array.lend_slot().await.unwrap(), Some(role));
    let filled = array.fill_slot(role, async || true).await;
    assert!(matches!(filled, Ok(Filled::Whole { .. })));
}

#[test]
fn a_member_that_left_after_spare_space_had_replaced_another_may_come_back() {
    let spread = Spread { width: 3, spares: 2 };
    let machine = Machine::with_spread_and_spare(6, Level::Raid5, spread);
    let members: Vec<usize> = (0..6).collect();
    machine.live_to_the_end(&members, async |devices| {
        let array = attempt(devices).await.unwrap().array;
        lose_one_and_fill_its_slot(&array, Role(0)).await;
        array.stop().await.unwrap();
    });
    machine.live_to_the_end(&members, async |devices| {
        let returning = devices[2].clone();
        let array = attempt(devices).await.unwrap().array;
        array.fail(Role(2)).await.unwrap();
        write_stable(&array, 0, 7).await.unwrap();
        array.re_add(returning, AGAIN).await.unwrap();
        fill_whole(&array, Role(2)).await;
        assert_eq!(array.state(), ArrayState::Optimal);
    });
}
