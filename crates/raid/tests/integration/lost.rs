//! Lost blocks: exactly those are errors until they are written, through rebuilds, scrubs, restarts
//! and cuts.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use crate::support::lost::*;
use crate::support::*;
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::sync::join_all;
use headpond_block::{
    BlockDevice, Buffer, ByteRange, Cause, DeviceError, Request, RequestKind, Runtime, Submission,
};
use headpond_raid::layout::{Role, Strip, Stripe};
use headpond_raid::lost::COPY_OFFSETS;
use headpond_raid::superblock::DATA_OFFSET_MIN;
use headpond_raid::{
    Array, ArrayState, AssembleError, AssembleOptions, Filled, Inspection, Level, Tuning, assemble,
    inspect,
};
use proptest::prelude::*;
use uuid::Uuid;

const ROWS: u64 = 40;
const SPARES: [Uuid; 2] = [Uuid::from_u128(77), Uuid::from_u128(78)];

/// What an array holds, its members, and what is to be lost of it.
struct Story {
    array: Array,
    members: Vec<Rc<TestDevice>>,
    bytes: Vec<u8>,
    runtime: Runtime,
}

impl Story {
    async fn begin(level: Level, count: usize, groups: usize, runtime: &Runtime) -> Story {
        let members = devices(count, ROWS, runtime);
        let array = new_array(&members, &options(level, groups)).await;
        let bytes = Random::new(count as u64).bytes(array.layout().array_bytes() as usize);
        write(&array, 0, &bytes).await.unwrap();
        Story { array, members, bytes, runtime: runtime.clone() }
    }

    /// Gives a role to a new member.
    async fn fill(&mut self, role: Role, spare: Uuid) -> Result<(), DeviceError> {
        let size_bytes = self.members[0].geometry().size_bytes;
        let device = TestDevice::new(50 + role.index(), size_bytes, &self.runtime);
        self.array.add_spare(device.clone(), spare).await.unwrap();
        self.array.assign_spare(role, Some(spare)).await.unwrap();
        let filled = self.array.fill(role, async || true).await?;
        assert!(matches!(filled, Filled::Whole { .. }));
        self.members[role.index()] = device;
        Ok(())
    }

    async fn restart(self) -> Story {
        self.array.stop().await.unwrap();
        let array = start(&self.members).await.array;
        Story { array, ..self }
    }

    /// Every sector holds what it held, but for the lost ones, which are errors.
    async fn check(&self, lost: &BTreeSet<u64>, when: &str) {
        for sector in 0..self.bytes.len() as u64 / SECTOR {
            let expected = &self.bytes[(sector * SECTOR) as usize..][..SECTOR as usize];
            match read(&self.array, sector * SECTOR, SECTOR as usize).await {
                Ok(found) => {
                    assert!(!lost.contains(&sector), "{when}: sector {sector} was made up");
                    assert!(found == expected, "{when}: sector {sector} is wrong");
                }
                Err(error) => {
                    assert!(lost.contains(&sector), "{when}: sector {sector}: {error}");
                    let is_told = matches!(error.cause(), Cause::Media { .. });
                    assert!(is_told, "{when}: sector {sector}: {error}");
                }
            }
        }
        let status = self.array.status().lost;
        assert_eq!(status.bytes, lost.len() as u64 * SECTOR, "{when}");
        let listed = status
            .first
            .iter()
            .flat_map(|range| range.start / SECTOR..(range.start + range.bytes) / SECTOR);
        assert!(listed.eq(lost.iter().copied().take(64)) || status.ranges > 64, "{when}");
    }

    /// Writes the lost sectors again, and something else that is not beside them.
    async fn rewrite(&mut self, lost: &BTreeSet<u64>) {
        for sector in lost {
            let new = Random::new(*sector + 1000).bytes(SECTOR as usize);
            write(&self.array, sector * SECTOR, &new).await.unwrap();
            self.bytes[(sector * SECTOR) as usize..][..SECTOR as usize].copy_from_slice(&new);
        }
    }

    async fn has_feature(&self) -> bool {
        let Inspection::Member(found) = inspect(&*self.members[0]).await.unwrap() else {
            panic!("a member")
        };
        found.array.has_lost_blocks
    }
}

/// A shape, and the roles that are lost in one of its groups.
const REBUILDS: [(Level, usize, usize, &[u16]); 8] = [
    (Level::Raid1, 2, 1, &[1]),
    (Level::Raid1, 3, 1, &[0, 2]),
    (Level::Raid10, 4, 2, &[2]),
    (Level::Raid5, 4, 1, &[1]),
    (Level::Raid5, 3, 1, &[0]),
    (Level::Raid6, 5, 1, &[1, 2]),
    (Level::Raid50, 6, 2, &[4]),
    (Level::Raid60, 8, 2, &[0, 3]),
];

#[test]
fn a_rebuild_goes_on_past_unreadable_sectors_and_exactly_what_depends_on_them_is_lost() {
    for (level, count, groups, gone) in REBUILDS {
        run(1, |runtime| async move {
            let mut story = Story::begin(level, count, groups, &runtime).await;
            let gone: Vec<Role> = gone.iter().map(|role| Role(*role)).collect();
            let width = story.array.layout().width();
            let group = gone[0].index() / width;
            let is_left = |index: &usize| !gone.contains(&Role(*index as u16));
            let left = (group * width..(group + 1) * width).find(is_left).unwrap();
            // In several rows, so that it is data in some of them and parity in others.
            for row in 3..9 {
                story.members[left].make_bad(row * u64::from(STRIP) + 1024, 1024);
            }
            let lost = expected_lost(story.array.layout(), &gone, |role, place| {
                let within = place % 8;
                role.index() == left && (3..9).contains(&(place / 8)) && (2..4).contains(&within)
            });
            assert!(!lost.is_empty());
            for role in &gone {
                story.members[role.index()].gone.set(true);
                story.array.fail(*role).await.unwrap();
            }
            for (role, spare) in gone.iter().zip(SPARES) {
                story.fill(*role, spare).await.unwrap();
            }
            assert_eq!(story.array.state(), ArrayState::Optimal);
            story.check(&lost, "after the rebuild").await;
            check_redundancy(&story.array, &story.members);
            let mut story = story.restart().await;
            story.check(&lost, "after a restart").await;
            assert!(story.has_feature().await, "an older program must not read that");
            story.rewrite(&lost).await;
            story.check(&BTreeSet::new(), "when written again").await;
            check_redundancy(&story.array, &story.members);
            let story = story.restart().await;
            story.check(&BTreeSet::new(), "at the end").await;
            assert!(!story.has_feature().await, "an older program may use it again");
        });
    }
}

#[test]
fn a_member_that_is_replaced_takes_what_nobody_can_read_with_it_as_lost() {
    run(2, |runtime| async move {
        let mut story = Story::begin(Level::Raid5, 4, 1, &runtime).await;
        for member in [1, 2] {
            story.members[member].make_bad(4 * u64::from(STRIP), SECTOR);
        }
        let bad = |role: Role, place| [1, 2].contains(&role.index()) && place == 4 * 8;
        let lost = expected_lost(story.array.layout(), &[], bad);
        assert_eq!(lost.len(), 2);
        story.fill(Role(1), SPARES[0]).await.unwrap();
        story.check(&lost, "after the exchange").await;
        check_redundancy(&story.array, &story.members);
    });
}

#[test]
fn a_scrub_repairs_what_it_can_block_by_block_and_lists_only_the_rest() {
    run(3, |runtime| async move {
        let story = Story::begin(Level::Raid6, 5, 1, &runtime).await;
        // Three strips of one stripe, no three in one place; then three in one place.
        for (member, sector) in [(0, 1), (1, 2), (2, 3), (0, 5), (1, 5), (2, 5)] {
            story.members[member].make_bad(7 * u64::from(STRIP) + sector * SECTOR, SECTOR);
        }
        let bad = |role: Role, place| role.index() < 3 && place == 7 * 8 + 5;
        let lost = expected_lost(story.array.layout(), &[], bad);
        story.array.scrub(async || true).await.unwrap();
        story.check(&lost, "after the scrub").await;
        assert!(story.members.iter().all(|member| member.bad.borrow().is_empty()));
        check_redundancy(&story.array, &story.members);
    });
}

/// The data of the lost sectors' neighbours is solved right when members are lost later: what
/// stands in their places fits.
#[test]
fn data_beside_lost_sectors_survives_later_losses() {
    run(4, |runtime| async move {
        let mut story = Story::begin(Level::Raid5, 4, 1, &runtime).await;
        for member in [1, 2] {
            story.members[member].make_bad(4 * u64::from(STRIP), SECTOR);
        }
        let bad = |role: Role, place| [1, 2].contains(&role.index()) && place == 4 * 8;
        let lost = expected_lost(story.array.layout(), &[], bad);
        story.array.scrub(async || true).await.unwrap();
        let first: BTreeSet<u64> = lost.iter().copied().take(1).collect();
        story.rewrite(&first).await;
        let left: BTreeSet<u64> = lost.difference(&first).copied().collect();
        for index in 0..4 {
            story.array.fail(Role(index)).await.unwrap();
            story.check(&left, "degraded").await;
            story.fill(Role(index), Uuid::from_u128(100 + u128::from(index))).await.unwrap();
            story.check(&left, "rebuilt").await;
        }
    });
}

#[test]
fn zeroing_lost_sectors_brings_them_back_and_discarding_them_does_not() {
    for (level, count) in [(Level::Raid5, 4), (Level::Raid1, 2)] {
        run(5, |runtime| async move {
            let mut story = Story::begin(level, count, 1, &runtime).await;
            for member in [0, 1] {
                story.members[member].make_bad(6 * u64::from(STRIP), u64::from(STRIP));
            }
            let bad = |role: Role, place: u64| role.index() < 2 && place / 8 == 6;
            let lost = expected_lost(story.array.layout(), &[], bad);
            story.array.scrub(async || true).await.unwrap();
            story.check(&lost, "after the scrub").await;
            let all = ByteRange::at(0, story.bytes.len() as u64);
            let sector = lost.first().unwrap() * SECTOR;
            story.array.submit(Request::discard(ByteRange::at(sector, SECTOR))).await.unwrap();
            assert!(read(&story.array, sector, SECTOR as usize).await.is_err());
            let part = ByteRange::at(sector, SECTOR);
            story.array.submit(Request::write_zeroes(part)).await.unwrap();
            let zeros = vec![0; SECTOR as usize];
            assert!(read(&story.array, sector, SECTOR as usize).await.unwrap() == zeros);
            story.array.submit(Request::write_zeroes(all)).await.unwrap();
            story.bytes.fill(0);
            story.check(&BTreeSet::new(), "when zeroed").await;
        });
    }
}

#[test]
fn a_member_that_reads_almost_nothing_ends_the_rebuild_with_that_reason() {
    run(6, |runtime| async move {
        let mut story = Story::begin(Level::Raid5, 4, 1, &runtime).await;
        story.members[2].make_bad(0, ROWS * u64::from(STRIP));
        story.array.fail(Role(1)).await.unwrap();
        let ended = story.fill(Role(1), SPARES[0]).await.unwrap_err();
        assert!(ended.to_string().contains("the list of lost blocks"), "{ended}");
        let status = story.array.status();
        assert!(status.lost.bytes <= 16 * u64::from(STRIP));
        assert_eq!(status.state, ArrayState::Degraded);
    });
}

#[test]
fn a_member_that_does_not_answer_costs_nothing_on_the_list() {
    run(7, |runtime| async move {
        let story = Story::begin(Level::Raid5, 4, 1, &runtime).await;
        story.array.fail(Role(1)).await.unwrap();
        let spare = TestDevice::new(50, story.members[0].geometry().size_bytes, &runtime);
        story.array.add_spare(spare, SPARES[0]).await.unwrap();
        story.array.assign_spare(Role(1), None).await.unwrap();
        let go_away = async || {
            story.members[2].gone.set(true);
            true
        };
        assert!(story.array.fill(Role(1), go_away).await.is_err());
        assert_eq!(story.array.status().lost.bytes, 0);
        assert_eq!(story.array.state(), ArrayState::Failed);
    });
}

/// A controller that answers everything with an error for a while: nothing is lost by that.
#[test]
fn members_that_do_not_even_read_their_superblocks_cost_nothing_on_the_list() {
    run(11, |runtime| async move {
        let story = Story::begin(Level::Raid5, 4, 1, &runtime).await;
        for member in &story.members[..2] {
            member.bad.borrow_mut().extend(0..member.geometry().size_bytes / SECTOR);
        }
        let _ = story.array.scrub(async || true).await;
        assert_eq!(story.array.status().lost.bytes, 0);
        story.members.iter().for_each(|member| member.bad.borrow_mut().clear());
        story.check(&BTreeSet::new(), "when it has passed").await;
    });
}

#[test]
fn the_list_is_on_every_member_and_an_array_without_it_is_refused() {
    run(8, |runtime| async move {
        let mut story = Story::begin(Level::Raid1, 2, 1, &runtime).await;
        story.members[0].make_bad(5 * u64::from(STRIP), SECTOR);
        story.array.fail(Role(1)).await.unwrap();
        story.fill(Role(1), SPARES[0]).await.unwrap();
        let lost = BTreeSet::from([5 * 8]);
        story.check(&lost, "after the rebuild").await;
        let wipe = |member: &TestDevice| {
            let copy = |start: u64| member.memory().slice(start as usize..start as usize + 4096);
            COPY_OFFSETS.into_iter().for_each(|start| copy(start).fill(0));
        };
        story.array.stop().await.unwrap();
        wipe(&story.members[0]);
        let story = Story { array: start(&story.members).await.array, ..story };
        story.array.stop().await.unwrap();
        let alone = start(&story.members[..1]).await.array;
        assert!(read(&alone, 5 * u64::from(STRIP), 512).await.is_err(), "it was given the list");
        alone.stop().await.unwrap();
        wipe(&story.members[0]);
        let devices = as_devices(&story.members[..1]);
        let refused = assemble(&runtime, devices, AssembleOptions::default()).await;
        assert!(matches!(refused, Err(AssembleError::LostUnreadable { .. })));
    });
}

#[test]
fn a_device_that_joins_is_given_the_list() {
    run(10, |runtime| async move {
        let mut story = Story::begin(Level::Raid1, 2, 1, &runtime).await;
        for member in &story.members {
            member.make_bad(5 * u64::from(STRIP), SECTOR);
        }
        story.array.scrub(async || true).await.unwrap();
        story.array.fail(Role(1)).await.unwrap();
        story.fill(Role(1), SPARES[0]).await.unwrap();
        story.array.stop().await.unwrap();
        let alone = start(&story.members[1..]).await.array;
        assert!(read(&alone, 5 * u64::from(STRIP), 512).await.is_err());
        assert_eq!(alone.status().lost.bytes, SECTOR);
    });
}

/// A drive may answer a read when what stands in the place of lost data has been written already.
#[test]
fn a_read_that_was_under_way_when_its_sector_was_lost_does_not_show_what_stands_there() {
    for late in [Duration::from_millis(1), Duration::from_millis(100)] {
        run(9, |runtime| async move {
            let mut story = Story::begin(Level::Raid5, 4, 1, &runtime).await;
            story.array.stop().await.unwrap();
            let place = story.array.layout().cell(Stripe(6), Strip::Data(0)).role;
            let other = story.array.layout().cell(Stripe(6), Strip::Data(1)).role;
            let at = 6 * u64::from(STRIP);
            story.members[place.index()].make_bad(at, SECTOR);
            let control = FaultControl::default();
            let mut devices = as_devices(&story.members);
            let slow = devices[place.index()].clone();
            devices[place.index()] =
                Rc::new(FaultDevice::new(slow, control.clone(), runtime.clone()));
            let tuning = Tuning { deadlines: None, ..Tuning::default() };
            let options = AssembleOptions { tuning, ..AssembleOptions::default() };
            story.array = assemble(&runtime, devices, options).await.unwrap().array;
            story.array.fail(other).await.unwrap();
            let rule = FaultRule::on(RequestKind::Read, Fault::Delay(late));
            let sector = ByteRange::at(DATA_OFFSET_MIN + at, SECTOR);
            control.add(FaultRule { range: Some(sector), times: Some(1), ..rule });
            let start = story.array.layout().stripe_start(Stripe(6));
            let buffer = Buffer::from_slice(&[0xa5; 512]);
            let reading = story.array.submit(Request::read(start, &buffer));
            let spare = TestDevice::new(50, story.members[0].geometry().size_bytes, &runtime);
            story.array.add_spare(spare, SPARES[0]).await.unwrap();
            story.array.assign_spare(other, None).await.unwrap();
            let array = &story.array;
            let fill = async move { array.fill(other, async || true).await.map(drop) };
            let ends = join_all(vec![reading, Submission::pending(fill)]).await;
            assert!(ends[0].is_err(), "it read {:?}", &buffer.to_vec()[..4]);
            assert_eq!(ends[1], Ok(()));
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn reads_are_correct_and_errors_are_beyond_the_redundancy(
        shape in 0..REBUILDS.len(), seed in any::<u64>(), errors in 1_u64..25, is_scrubbed in any::<bool>(),
    ) {
        let (level, count, groups, gone) = REBUILDS[shape];
        run(seed, |runtime| async move {
            let random = Random::new(seed);
            let mut story = Story::begin(level, count, groups, &runtime).await;
            let lost_count = random.below(gone.len() as u64 + 1) as usize;
            let gone: Vec<Role> = gone[..lost_count].iter().map(|role| Role(*role)).collect();
            let mut bad = BTreeSet::new();
            for _ in 0..errors {
                // Few rows, so that they meet.
                let (member, sector) = (random.below(count as u64), random.below(3 * 8));
                if !gone.contains(&Role(member as u16)) {
                    story.members[member as usize].make_bad((5 * 8 + sector) * SECTOR, SECTOR);
                    bad.insert((member as u16, 5 * 8 + sector));
                }
            }
            let is_bad = |role: Role, place| bad.contains(&(role.0, place));
            let lost = expected_lost(story.array.layout(), &gone, is_bad);
            for role in &gone {
                story.members[role.index()].gone.set(true);
                story.array.fail(*role).await.unwrap();
            }
            if is_scrubbed {
                story.array.scrub(async || true).await.unwrap();
            }
            for (role, spare) in gone.iter().zip(SPARES) {
                story.fill(*role, spare).await.unwrap();
            }
            story.array.scrub(async || true).await.unwrap();
            story.check(&lost, "healed").await;
            check_redundancy(&story.array, &story.members);
            let mut story = story.restart().await;
            story.check(&lost, "restarted").await;
            let new = random.bytes(story.bytes.len());
            write(&story.array, 0, &new).await.unwrap();
            story.bytes = new;
            story.check(&BTreeSet::new(), "written").await;
            check_redundancy(&story.array, &story.members);
        });
    }
}
