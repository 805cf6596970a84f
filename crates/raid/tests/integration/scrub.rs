//! What a scrub finds, what it puts right, and what it leaves alone; and parity that is computed
//! for the first time.

use std::rc::Rc;

use crate::support::*;
use headpond_raid::layout::{Strip, Stripe};
use headpond_raid::superblock::DATA_OFFSET_MIN;
use headpond_raid::{
    Array, AssembleOptions, Contents, CreateOptions, Level, Scrubbed, Trouble, Tuning, assemble,
};

const ROWS: u64 = 40;

async fn filled(level: Level, members: &[Rc<TestDevice>], random: &Random) -> (Array, Vec<u8>) {
    let groups = if level.has_groups() { 2 } else { 1 };
    let array = new_array(members, &options(level, groups)).await;
    let bytes = random.bytes(array.layout().array_bytes() as usize);
    write(&array, 0, &bytes).await.unwrap();
    (array, bytes)
}

/// Changes bytes of a member silently.
fn corrupt(member: &TestDevice, offset: u64, bytes: &[u8]) {
    let start = (DATA_OFFSET_MIN + offset) as usize;
    let part = member.memory().slice(start..start + bytes.len());
    let changed: Vec<u8> = part.to_vec().iter().zip(bytes).map(|(old, new)| old ^ new).collect();
    part.copy_from(&changed);
}

async fn scrub(array: &Array) {
    assert_eq!(array.scrub(async || true).await, Ok(Scrubbed::Whole));
}

async fn whole(array: &Array) -> Vec<u8> {
    read(array, 0, array.layout().array_bytes() as usize).await.unwrap()
}

#[test]
fn silent_corruption_of_one_strip_is_found_and_put_right_where_two_equations_or_copies_tell() {
    for (level, count) in
        [(Level::Raid6, 5), (Level::Raid6, 7), (Level::Raid60, 8), (Level::Raid1, 3)]
    {
        run(1, |runtime| async move {
            let random = Random::new(count as u64);
            let members = devices(count, ROWS, &runtime);
            let (array, bytes) = filled(level, &members, &random).await;
            for turn in 0..20 {
                let member = &members[random.below(count as u64) as usize];
                let at = turn * 2 * u64::from(STRIP) + random.below(u64::from(STRIP) - 100);
                corrupt(member, at, &random.bytes(1 + random.below(99) as usize));
            }
            scrub(&array).await;
            let report = array.status().scrub_report();
            assert_eq!(report.stripes, array.layout().stripes());
            assert!((20..=40).contains(&report.corrected_sectors), "{report:?}");
            assert_eq!((report.unexplained_sectors, report.unreadable_stripes), (0, 0));
            check_redundancy(&array, &members);
            assert!(whole(&array).await == bytes);
            scrub(&array).await;
            assert_eq!(array.status().scrub_report().corrected_sectors, 0, "nothing is left");
        });
    }
}

#[test]
fn where_nobody_can_tell_who_is_wrong_it_is_reported_and_nothing_changed() {
    for (level, count) in [(Level::Raid5, 4), (Level::Raid1, 2)] {
        run(2, |runtime| async move {
            let members = devices(count, ROWS, &runtime);
            let (array, _) = filled(level, &members, &Random::new(2)).await;
            corrupt(&members[1], 5 * u64::from(STRIP) + 700, &[1, 2, 3]);
            let before: Vec<_> = members.iter().map(|it| it.data(0, 40 * 4096)).collect();
            scrub(&array).await;
            let report = array.status().scrub_report();
            assert_eq!((report.corrected_sectors, report.unexplained_sectors), (0, 1));
            let finding = &report.findings[0];
            assert_eq!(finding.what, Trouble::Unexplained);
            assert_eq!(finding.stripe_start, array.layout().stripe_start(Stripe(5)));
            let after: Vec<_> = members.iter().map(|it| it.data(0, 40 * 4096)).collect();
            assert!(before == after);
        });
    }
}

#[test]
fn two_wrong_strips_of_a_raid6_are_reported_and_left() {
    run(3, |runtime| async move {
        let members = devices(6, ROWS, &runtime);
        let (array, _) = filled(Level::Raid6, &members, &Random::new(3)).await;
        for k in 0..2 {
            let role = array.layout().cell(Stripe(7), Strip::Data(k)).role;
            let error: Vec<u8> = (0..64_u8).map(|byte| byte * 3 + k as u8 + 1).collect();
            corrupt(&members[role.index()], 7 * u64::from(STRIP), &error);
        }
        scrub(&array).await;
        let report = array.status().scrub_report();
        assert_eq!((report.corrected_sectors, report.unexplained_sectors), (0, 1));
    });
}

#[test]
fn latent_errors_are_rewritten_and_those_beyond_the_redundancy_told() {
    for (level, count, beyond) in [(Level::Raid5, 4, 2), (Level::Raid6, 6, 3), (Level::Raid1, 2, 2)]
    {
        run(4, |runtime| async move {
            let members = devices(count, ROWS, &runtime);
            let (array, bytes) = filled(level, &members, &Random::new(4)).await;
            members[0].make_bad(3 * u64::from(STRIP), 512);
            members[1].make_bad(9 * u64::from(STRIP) + 1024, 1024);
            scrub(&array).await;
            let report = array.status().scrub_report();
            assert_eq!((report.rewritten, report.unreadable_stripes), (2, 0), "{level}");
            assert!(members.iter().all(|member| member.bad.borrow().is_empty()));
            assert!(whole(&array).await == bytes);
            for member in &members[..beyond] {
                member.make_bad(11 * u64::from(STRIP), 512);
            }
            scrub(&array).await;
            let report = array.status().scrub_report();
            assert_eq!((report.rewritten, report.unreadable_stripes), (0, 1), "{level}");
            assert_eq!(report.findings[0].what, Trouble::Unreadable);
        });
    }
}

#[test]
fn a_scrub_goes_on_after_a_restart_where_it_was_left() {
    run(5, |runtime| async move {
        let members = devices(5, ROWS, &runtime);
        let (array, _) = filled(Level::Raid6, &members, &Random::new(5)).await;
        assert_eq!(array.scrub(async || false).await, Ok(Scrubbed::Paused));
        array.stop().await.unwrap();
        let array = start(&members).await.array;
        assert!(array.is_scrub_begun());
        scrub(&array).await;
        assert_eq!(array.status().scrub_report().stripes, ROWS - 16);
        assert!(!array.is_scrub_begun());
    });
}

#[test]
fn a_scrub_beside_writes_takes_nothing_for_damage() {
    run(6, |runtime| async move {
        let random = Random::new(6);
        let members = devices(6, ROWS, &runtime);
        let (array, _) = filled(Level::Raid6, &members, &random).await;
        let beside = async || {
            for _ in 0..20 {
                let at = random.below(array.layout().array_bytes() / 512) * 512;
                write(&array, at, &random.bytes(512)).await.unwrap();
            }
            true
        };
        assert_eq!(array.scrub(beside).await, Ok(Scrubbed::Whole));
        let report = array.status().scrub_report();
        assert_eq!((report.corrected_sectors, report.unexplained_sectors), (0, 0));
        check_redundancy(&array, &members);
    });
}

/// Every stripe that is looked at has its memory, and asks for more when the member is gone.
#[test]
fn a_scrub_with_little_memory_ends_although_a_member_dies_in_it() {
    run(8, |runtime| async move {
        let members = devices(6, ROWS, &runtime);
        let (array, bytes) = filled(Level::Raid6, &members, &Random::new(8)).await;
        array.stop().await.unwrap();
        let tuning = Tuning { scratch_bytes_max: 40 * 4096, ..Tuning::default() };
        let options = AssembleOptions { tuning, ..AssembleOptions::default() };
        let array = assemble(&runtime, as_devices(&members), options).await.unwrap().array;
        members[2].gone.set(true);
        scrub(&array).await;
        assert!(whole(&array).await == bytes);
    });
}

/// With garbage on the members, parity is right behind the mark and nowhere else.
#[test]
fn first_parity_goes_on_after_a_restart_and_is_trusted_as_far_as_it_is() {
    run(7, |runtime| async move {
        let random = Random::new(7);
        let members = devices(5, ROWS, &runtime);
        for member in &members {
            corrupt(member, 0, &random.bytes(ROWS as usize * STRIP as usize));
        }
        let options = CreateOptions { contents: Contents::Unknown, ..options(Level::Raid6, 1) };
        let array = new_array(&members, &options).await;
        array.initialise(async || false).await.unwrap();
        array.stop().await.unwrap();
        let array = start(&members).await.array;
        array.initialise(async || false).await.unwrap();
        assert!(!array.status().parity_initialised);
        let first_not_done = 2 * 16;
        for stripe in (0..40).map(Stripe) {
            let role = array.layout().cell(stripe, Strip::Data(0)).role;
            let offset = array.layout().row_start(stripe.0);
            members[role.index()].make_bad(offset, 512);
            let at = array.layout().stripe_start(stripe);
            assert_eq!(
                read(&array, at, 512).await.is_ok(),
                stripe.0 < first_not_done,
                "{stripe:?}"
            );
        }
    });
}
