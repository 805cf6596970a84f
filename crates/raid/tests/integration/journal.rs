//! Arrays with a stripe journal: cut while a member is missing, and without another one after the
//! cut; judged by what was acknowledged.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use crate::support;
use crate::support::journal::{Judge, ROWS, SECTOR, Story, create_options, open, step};
use crate::support::machine::Devices;
use crate::support::{STRIP, read};
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::devices::RamDevice;
use headpond_block::sync::join_all;
use headpond_block::{
    BlockDevice, Buffer, ByteRange, Cause, Geometry, Request, RequestFlags, RequestKind, Runtime,
    Stability,
};
use headpond_raid::layout::{Strip, Stripe};
use headpond_raid::{
    Array, ArrayState, AssembleError, Assembled, CreateError, CreateOptions, Filled, Force, Intent,
    JournalWhen, Level, Occupied, Warning, create_journal, journal,
};
use headpond_sim::{Ended, Random};
use uuid::Uuid;

fn is_replayed(assembled: &Assembled) -> bool {
    assembled.warnings.iter().any(|it| matches!(it, Warning::Replayed { .. }))
}

#[derive(Default, Debug)]
struct Tally {
    whole: u32,
    replayed: u32,
    degraded_and_unclean: u32,
    refused: u32,
}

/// Lives in which members are lost one after the other and the power goes.
fn lives(seed: u64, story: &Story, tally: &mut Tally) {
    let mut random = Random::new(seed);
    let judge = Judge::new(ROWS * u64::from(STRIP) * (story.members - story.redundancy()) as u64);
    let mut lost = BTreeSet::new();
    let mut was_cut = false;
    let mut may_refuse = false;
    for number in 0..6 {
        let context = format!(
            "{:?} {:?}, seed {seed}, life {number}, without {lost:?}",
            story.level, story.when
        );
        let present = story.without(&lost);
        let spare = story.redundancy() - lost.len();
        let failing = (spare > 0 && random.one_in(3)).then(|| {
            let at = random.below((present.len() - 1) as u64) as usize;
            let kind = *random.pick(&[RequestKind::Write, RequestKind::Write, RequestKind::Flush]);
            (at, kind, random.below(60))
        });
        may_refuse |= was_cut && failing.is_some();
        if !random.one_in(4) {
            let most = *random.pick(&[30, 200, 200, 1000]);
            story.machine.power.cut_after(random.below(most));
        }
        let mut inner = random.fork();
        let steps = 1 + inner.below(40);
        let ended =
            story.machine.live(seed * 7 + number, &present, async |mut devices, runtime| {
                if let Some((at, kind, after)) = failing {
                    let control = FaultControl::default();
                    control.add(FaultRule { after, ..FaultRule::on(kind, Fault::Media) });
                    devices[at] =
                        Rc::new(FaultDevice::new(devices[at].clone(), control, runtime.clone()));
                }
                let assembled = open(&runtime, devices.to_vec(), Force::No).await?;
                let replayed = is_replayed(&assembled);
                let array = assembled.array;
                judge.check(&array, &context).await;
                for _ in 0..steps {
                    step(&array, &judge, &mut inner).await;
                }
                if inner.one_in(3) {
                    array.stop().await.unwrap_or_else(|error| panic!("{context}: {error}"));
                    judge.flushed();
                }
                Ok(replayed)
            });
        match ended {
            Ended::Finished(Ok(replayed)) => {
                tally.replayed += u32::from(replayed);
                tally.degraded_and_unclean += u32::from(was_cut && !lost.is_empty());
                may_refuse = false;
            }
            Ended::Finished(Err(AssembleError::DegradedAndUnclean { .. })) if may_refuse => {
                tally.refused += 1;
                return;
            }
            Ended::Finished(Err(error)) => panic!("{context}: {error}"),
            Ended::Cut => {}
        }
        was_cut = true;
        let was_whole = lost.is_empty();
        lost.extend(failing.map(|(at, ..)| present[at]));
        if lost.len() < story.redundancy() && random.one_in(3) {
            lost.insert(random.below(story.members as u64) as usize);
        }
        // A member that is lost with the crash of a whole array, or in the start after it, is
        // covered only where all writes are.
        may_refuse |= was_whole && !lost.is_empty() && story.when == JournalWhen::Degraded;
    }
}

#[test]
fn after_losses_and_a_cut_every_block_is_old_or_new_and_flushed_data_is_there() {
    let mut tally = Tally::default();
    for seed in 0..500 {
        for when in [JournalWhen::Degraded, JournalWhen::Always] {
            lives(seed, &Story::new(Level::Raid5, 4, when), &mut tally);
            lives(seed, &Story::new(Level::Raid6, 5, when), &mut tally);
        }
    }
    let Tally { replayed, degraded_and_unclean, refused, .. } = tally;
    assert!(replayed > 1000 && degraded_and_unclean > 1000 && refused > 100, "{tally:?}");
}

/// A member is lost; while its role is given to a spare and after it, the power goes.
fn a_rebuild(seed: u64, when: JournalWhen, tally: &mut Tally) {
    let story = Story::with_spare(Level::Raid6, 5, when);
    let mut random = Random::new(seed);
    let judge = Judge::new(ROWS * u64::from(STRIP) * 3);
    let mut lost = BTreeSet::from([0]);
    for number in 0..5 {
        let context = format!("{when:?}, seed {seed}, life {number}, without {lost:?}");
        if !random.one_in(4) {
            story.machine.power.cut_after(random.below(*random.clone().pick(&[100, 400, 1500])));
        }
        let mut inner = random.fork();
        let present = story.without(&lost);
        let ended = story.machine.live(seed * 5 + number, &present, async |devices, runtime| {
            let mut devices = devices.to_vec();
            let spare = devices.remove(devices.len() - 2);
            let carries = headpond_raid::inspect(&*spare).await.expect("readable");
            let is_new = !matches!(carries, headpond_raid::Inspection::Member(_));
            if !is_new {
                devices.insert(0, Rc::clone(&spare));
            }
            let assembled = open(&runtime, devices, Force::No).await?;
            tally.replayed += u32::from(is_replayed(&assembled));
            let array = assembled.array;
            judge.check(&array, &context).await;
            let filling = async {
                if is_new && array.add_spare(spare, Uuid::from_u128(0x5a)).await.is_err() {
                    return;
                }
                if let Some(role) = array.vacant_role()
                    && array.has_spare()
                {
                    array.assign_spare(role, None).await.expect("possible");
                }
                for role in array.filling_roles() {
                    let go_on = async || true;
                    drop(array.fill(role, go_on).await.expect("filled"));
                }
            };
            let work = async {
                for _ in 0..1 + inner.below(60) {
                    step(&array, &judge, &mut inner).await;
                }
            };
            let both: Vec<std::pin::Pin<Box<dyn Future<Output = ()>>>> =
                vec![Box::pin(filling), Box::pin(work)];
            join_all(both).await;
            Ok::<_, AssembleError>(array.state())
        });
        match ended {
            Ended::Finished(Ok(ArrayState::Optimal)) => tally.whole += 1,
            Ended::Finished(Err(AssembleError::DegradedAndUnclean { .. }))
                if lost.len() > 1 && when == JournalWhen::Degraded =>
            {
                tally.refused += 1;
                return;
            }
            Ended::Finished(Err(error)) => panic!("{context}: {error}"),
            Ended::Finished(Ok(_)) | Ended::Cut => {}
        }
        if number == 2 {
            lost.insert(1);
        }
    }
}

#[test]
fn a_role_that_is_given_to_a_spare_is_covered_before_meanwhile_and_after_it() {
    let mut tally = Tally::default();
    for seed in 0..300 {
        a_rebuild(seed, JournalWhen::Degraded, &mut tally);
        a_rebuild(seed, JournalWhen::Always, &mut tally);
    }
    let Tally { replayed, whole, .. } = tally;
    assert!(replayed > 300 && whole > 100, "{tally:?}");
}

/// An array without its first member, in use; the disks are as the power left them.
async fn degraded(devices: Devices, runtime: &Runtime) -> Array {
    open(runtime, devices.to_vec(), Force::No).await.expect("opened").array
}

fn lost_first() -> BTreeSet<usize> {
    BTreeSet::from([0])
}

/// Seed 155000577: a record had missing parity, updated from nothing; a spare was given what that
/// role holds, and after a cut the record was written over it. Seed 200000001: the parity was of a
/// record from before its holder was lost, and those after that had none.
#[test]
fn a_record_of_a_stripe_without_its_parity_does_no_harm_to_whoever_is_given_that() {
    let always = [Strip::P, Strip::Q].map(|lost| (lost, JournalWhen::Always));
    let degraded = [Strip::P, Strip::Q].map(|lost| (lost, JournalWhen::Degraded));
    for (lost, when) in always.into_iter().chain(degraded) {
        let story = Story::with_spare(Level::Raid6, 7, when);
        let is_spare = |device: &Rc<dyn BlockDevice>| device.name().as_str() == "m7";
        let life = async |mut devices: Devices| {
            let runtime = devices.runtime.clone();
            let spare = devices.iter().position(is_spare).expect("the spare");
            let spare = devices.remove(spare);
            let array = open(&runtime, devices.to_vec(), Force::No).await.expect("opened").array;
            let role = array.layout().cell(Stripe(0), lost).role;
            let beside = u64::from(STRIP) + 512;
            array.submit(Request::write(beside, Buffer::from_slice(&[9; 512]))).await.unwrap();
            array.fail(role).await.unwrap();
            array.submit(Request::write(512, Buffer::from_slice(&[7; 512]))).await.unwrap();
            array.add_spare(spare, Uuid::from_u128(77)).await.unwrap();
            array.assign_spare(role, None).await.unwrap();
            assert!(matches!(array.fill(role, async || false).await, Ok(Filled::Paused)));
            role.index()
        };
        let role = story.machine.live_to_the_end(&story.all(), life);
        let present = story.without(&BTreeSet::from([role]));
        story.machine.live_to_the_end(&present, async |devices| {
            let runtime = devices.runtime.clone();
            let array = open(&runtime, devices.to_vec(), Force::No).await.expect("opened").array;
            for role in array.filling_roles() {
                let filled = array.fill(role, async || true).await;
                assert!(matches!(filled, Ok(Filled::Whole { .. })));
            }
            let holder = |strip| array.layout().cell(Stripe(0), strip).role;
            let others = [Strip::P, Strip::Q].into_iter().filter(|strip| *strip != lost);
            for strip in [Strip::Data(0)].into_iter().chain(others) {
                array.fail(holder(strip)).await.unwrap();
            }
            assert_eq!(read(&array, 512, 512).await.unwrap(), [7; 512], "without {lost:?}");
        });
    }
}

#[test]
fn the_ring_goes_round_and_a_cut_anywhere_finds_what_counts() {
    let mut laps = 0;
    for seed in 0..12 {
        let story = Story::new(Level::Raid5, 4, JournalWhen::Degraded);
        let judge = Judge::new(ROWS * u64::from(STRIP) * 3);
        let mut random = Random::new(seed);
        let present = story.without(&lost_first());
        story.machine.power.cut_after(4000 + random.below(4000));
        let written = Cell::new(0);
        let ended = story.machine.live(seed, &present, async |devices, runtime| {
            let array = degraded(devices, &runtime).await;
            loop {
                step(&array, &judge, &mut random).await;
                let status = array.status().journal.expect("a journal");
                written.set(status.records * 8192);
            }
        });
        let ended: Ended<()> = ended;
        assert!(ended.was_cut());
        laps += written.get() / (1 << 20);
        story.machine.live_to_the_end(&present, async |devices| {
            let runtime = devices.runtime.clone();
            judge.check(&degraded(devices, &runtime).await, &format!("seed {seed}")).await;
        });
    }
    assert!(laps > 24, "{laps} laps");
}

#[test]
fn writes_that_come_together_share_a_record() {
    let story = Story::new(Level::Raid5, 4, JournalWhen::Always);
    story.machine.live_to_the_end(&story.all(), async |devices| {
        let runtime = devices.runtime.clone();
        let array = degraded(devices, &runtime).await;
        let stripe_bytes = array.layout().stripe_bytes();
        let write = |row| array.submit(Request::write(row * stripe_bytes, Buffer::zeroed(512)));
        join_all((0..ROWS).map(write).collect()).await.into_iter().for_each(|it| it.unwrap());
        let journal = array.status().journal.expect("a journal");
        assert_eq!(journal.writes, ROWS);
        assert!(journal.records < ROWS / 2, "{} records", journal.records);
    });
}

/// From the swarm, seed 152000012: they woke each other for ever.
#[test]
fn more_writers_than_the_ring_has_room_for_take_turns() {
    let story = Story::new(Level::Raid5, 4, JournalWhen::Always);
    story.machine.live_to_the_end(&story.all(), async |devices| {
        let runtime = devices.runtime.clone();
        let array = degraded(devices, &runtime).await;
        let sectors = array.geometry().size_bytes / SECTOR;
        for _ in 0..4 {
            let write = |at| array.submit(Request::write(at * SECTOR, Buffer::zeroed(512)));
            let writes = (0..sectors).rev().map(write).collect();
            join_all(writes).await.into_iter().for_each(|it| it.unwrap());
        }
    });
}

#[test]
fn nothing_is_journalled_while_a_journal_for_degraded_groups_is_not_needed() {
    let story = Story::new(Level::Raid5, 4, JournalWhen::Degraded);
    story.machine.live_to_the_end(&story.all(), async |devices| {
        let runtime = devices.runtime.clone();
        let array = degraded(devices, &runtime).await;
        support::write(&array, 0, &[1; 4096]).await.unwrap();
        assert_eq!(array.status().journal.expect("a journal").writes, 0);
        array.fail(headpond_raid::Role(2)).await.unwrap();
        support::write(&array, 0, &[2; 4096]).await.unwrap();
        assert_eq!(array.status().journal.expect("a journal").writes, 1);
    });
}

/// Leaves an array without its first member in the middle of its work.
fn unclean(story: &Story, seed: u64) {
    let judge = Judge::new(ROWS * u64::from(STRIP) * 3);
    let mut random = Random::new(seed);
    story.machine.power.cut_after(400);
    let ended: Ended<()> =
        story.machine.live(seed, &story.without(&lost_first()), async |devices, runtime| {
            let array = degraded(devices, &runtime).await;
            loop {
                step(&array, &judge, &mut random).await;
            }
        });
    assert!(ended.was_cut());
}

/// A journal holds what was written over since: whoever writes that again has taken back what was
/// flushed, should the power and the journal go before he is done.
#[test]
fn a_replay_that_is_cut_takes_nothing_back_though_the_journal_is_lost_then() {
    let mut cuts = 0;
    for cut_after in 0..60 {
        let story = Story::new(Level::Raid5, 4, JournalWhen::Always);
        let judge = Judge::new(ROWS * u64::from(STRIP) * 3);
        let mut random = Random::new(cut_after);
        story.machine.live_to_the_end(&story.all(), async |devices| {
            let array = open(&devices.runtime, devices.to_vec(), Force::No).await.unwrap().array;
            for _ in 0..30 {
                step(&array, &judge, &mut random).await;
            }
            array.submit(Request::flush()).await.expect("flushed");
            judge.flushed();
        });
        story.machine.power.cut_after(cut_after);
        let ended = story.machine.live(cut_after, &story.all(), async |devices, runtime| {
            open(&runtime, devices.to_vec(), Force::No).await.map(drop)
        });
        cuts += u32::from(ended.was_cut());
        let members: Vec<usize> = (0..story.members).collect();
        story.machine.live_to_the_end(&members, async |devices| {
            let array = open(&devices.runtime, devices.to_vec(), Force::No).await.unwrap().array;
            judge.check(&array, &format!("cut after {cut_after}")).await;
        });
    }
    assert!(cuts > 30, "{cuts}");
}

#[test]
fn without_its_journal_an_array_that_is_degraded_and_unclean_is_refused_unless_forced() {
    let story = Story::new(Level::Raid5, 4, JournalWhen::Degraded);
    unclean(&story, 3);
    let without = [1, 2, 3];
    story.machine.live_to_the_end(&without, async |devices| {
        let refused = open(&devices.runtime, devices.to_vec(), Force::No).await.err();
        let Some(error @ AssembleError::DegradedWithoutJournal { .. }) = refused else {
            panic!("{refused:?}")
        };
        assert!(error.to_string().contains("it is not attached"), "{error}");
    });
    story.machine.live_to_the_end(&without, async |devices| {
        let forced = open(&devices.runtime, devices.to_vec(), Force::GiveUp).await.unwrap();
        assert!(forced.warnings.iter().any(|it| matches!(it, Warning::Forced { lost: 1 })));
        support::write(&forced.array, 0, &[7; 512]).await.unwrap();
        assert_eq!(forced.array.status().journal, None, "it is without one from then on");
        forced.array.stop().await.unwrap();
    });
    story.machine.live_to_the_end(&[1, 2, 3, 4], async |devices| {
        let assembled = open(&devices.runtime, devices.to_vec(), Force::No).await.unwrap();
        assert!(matches!(assembled.warnings[..], [Warning::JournalUnknown { .. }]));
        assert_eq!(assembled.array.status().journal, None);
    });
}

#[test]
fn a_start_by_force_drops_a_journal_that_is_missing_and_writes_are_taken_again() {
    let story = Story::new(Level::Raid5, 4, JournalWhen::Degraded);
    story.machine.live_to_the_end(&[1, 2, 3], async |devices| {
        let runtime = devices.runtime.clone();
        let array = degraded(devices, &runtime).await;
        let refused = support::write(&array, 0, &[1; 4096]).await.unwrap_err();
        assert_eq!(*refused.cause(), Cause::ReadOnly);
        array.stop().await.unwrap();
    });
    story.machine.live_to_the_end(&[1, 2, 3], async |devices| {
        let forced = open(&devices.runtime, devices.to_vec(), Force::GiveUp).await.unwrap();
        support::write(&forced.array, 0, &[1; 4096]).await.unwrap();
        assert_eq!(forced.array.status().journal, None);
    });
}

/// Seed 163000952: the groups that lacked no member wrote their part of a write that failed.
#[test]
fn a_write_that_is_refused_in_part_is_refused_whole() {
    let story = Story::new(Level::Raid50, 6, JournalWhen::Degraded);
    story.machine.live_to_the_end(&[1, 2, 3, 4, 5], async |devices| {
        let runtime = devices.runtime.clone();
        let array = degraded(devices, &runtime).await;
        let both = 2 * array.layout().stripe_bytes();
        let write = Request::write(0, Buffer::from_slice(&vec![7; both as usize]));
        let zeros = Request::write_zeroes(ByteRange::at(0, both));
        let whole = both / 2;
        support::write(&array, whole, &[5; 512]).await.unwrap();
        for refused in [write, zeros] {
            let error = array.submit(refused).await.unwrap_err();
            assert!(matches!(error.cause(), Cause::ReadOnly), "{error}");
            assert_eq!(read(&array, whole, 512).await.unwrap(), [5; 512]);
        }
    });
}

#[test]
fn a_damaged_journal_is_as_good_as_none() {
    let story = Story::new(Level::Raid5, 4, JournalWhen::Degraded);
    unclean(&story, 5);
    let disk = &story.machine.members[4];
    let labels =
        journal::label::COPY_OFFSETS.map(|copy| journal::label::decode(&disk.peek(copy, 4096)));
    let newest = labels.into_iter().flatten().max_by_key(|label| label.sequence).expect("a label");
    // The header of the first record that counts.
    let at = journal::label::RING_OFFSET + newest.tail.offset + 100;
    disk.poke(at, &disk.peek(at, 8).iter().map(|it| !it).collect::<Vec<u8>>());
    story.machine.live_to_the_end(&story.without(&lost_first()), async |devices| {
        let refused = open(&devices.runtime, devices.to_vec(), Force::No).await.err();
        let Some(error @ AssembleError::DegradedWithoutJournal { .. }) = refused else {
            panic!("{refused:?}")
        };
        assert!(error.to_string().contains("damaged or missing"), "{error}");
    });
}

#[test]
fn the_journal_of_another_array_and_an_older_image_of_the_right_one_are_refused() {
    let story = Story::new(Level::Raid5, 4, JournalWhen::Degraded);
    let other = Story::new(Level::Raid5, 4, JournalWhen::Degraded);
    let bytes = story.machine.members[4].geometry().size_bytes as usize;
    let older = story.machine.members[4].peek(0, bytes);
    unclean(&story, 7);
    let newer = story.machine.members[4].peek(0, bytes);
    let attempt = || {
        story.machine.live_to_the_end(&story.without(&lost_first()), async |devices| {
            open(&devices.runtime, devices.to_vec(), Force::No).await.err()
        })
    };
    story.machine.members[4].poke(0, &older);
    assert!(matches!(attempt(), Some(AssembleError::StaleJournal { .. })));
    let mut forged = other.machine.members[4].peek(0, bytes);
    let label = journal::label::decode(&forged[65536..65536 + 4096]).expect("a label");
    let label = journal::label::Label { journal: Uuid::from_u128(0x99), ..label };
    forged[65536..65536 + 4096].copy_from_slice(&journal::label::encode(&label));
    story.machine.members[4].poke(0, &forged);
    assert!(matches!(attempt(), Some(AssembleError::OtherJournal { .. })));
    story.machine.members[4].poke(0, &newer);
    assert!(attempt().is_none(), "with the right one it starts");
}

/// The journal fails while the array is healthy, and while it is degraded.
#[test]
fn a_journal_that_fails_is_used_no_more_and_where_it_was_needed_writes_are_refused() {
    for when in [JournalWhen::Degraded, JournalWhen::Always] {
        let story = Story::new(Level::Raid5, 4, when);
        let life = async |mut devices: Devices, runtime: Runtime| {
            let control = FaultControl::default();
            devices[4] =
                Rc::new(FaultDevice::new(devices[4].clone(), control.clone(), runtime.clone()));
            let array = degraded(devices, &runtime).await;
            support::write(&array, 0, &[1; 4096]).await.unwrap();
            control.add(FaultRule::on(RequestKind::Write, Fault::Media));
            support::write(&array, 4096, &[2; 4096]).await.unwrap();
            let is_lost = array.status().journal.expect("recorded").device.is_none();
            assert_eq!(is_lost, when == JournalWhen::Always, "it is noticed when it is used");
            array.fail(headpond_raid::Role(2)).await.unwrap();
            let refused = support::write(&array, 0, &[3; 4096]).await.unwrap_err();
            assert_eq!(*refused.cause(), Cause::ReadOnly);
            assert_eq!(read(&array, 0, 4096).await.unwrap(), [1; 4096]);
            assert_eq!(read(&array, 4096, 4096).await.unwrap(), [2; 4096]);
        };
        assert!(!story.machine.live(1, &story.all(), life).was_cut());
        // Nothing was written since: what was recorded then is enough to start without it.
        story.machine.live_to_the_end(&[0, 1, 3], async |devices| {
            let assembled = open(&devices.runtime, devices.to_vec(), Force::No).await.unwrap();
            let is_told = |it: &Warning| matches!(it, Warning::JournalLost { .. });
            assert!(assembled.warnings.iter().any(is_told));
            assert_eq!(read(&assembled.array, 0, 4096).await.unwrap(), [1; 4096]);
            let refused = support::write(&assembled.array, 0, &[3; 4096]).await.unwrap_err();
            assert_eq!(*refused.cause(), Cause::ReadOnly);
        });
        // It is back, and taken up again, without what it held.
        story.machine.live_to_the_end(&[0, 1, 3, 4], async |devices| {
            let runtime = devices.runtime.clone();
            let array = degraded(devices, &runtime).await;
            assert_eq!(read(&array, 0, 4096).await.unwrap(), [1; 4096]);
            support::write(&array, 0, &[4; 4096]).await.unwrap();
            assert_eq!(array.status().journal.expect("a journal").writes, 1);
        });
    }
}

/// Seeds 940003419 and 940001126: the array had been shut down cleanly for another journal when the
/// power went, and the cache had not: what that wrote again was refused until a rebuild.
#[test]
fn a_log_may_write_again_to_an_array_that_lacks_a_member_and_was_stopped_in_order() {
    for when in [JournalWhen::Degraded, JournalWhen::Always] {
        let story = Story::new(Level::Raid5, 4, when);
        let strips = || (0..4 * 3).map(|strip| strip * u64::from(STRIP));
        story.machine.live_to_the_end(&story.all(), async |devices| {
            let runtime = devices.runtime.clone();
            let array = degraded(devices, &runtime).await;
            for at in strips() {
                support::write(&array, at, &[1; 4096]).await.unwrap();
            }
            array.fail(headpond_raid::Role(0)).await.unwrap();
            array.stop().await.unwrap();
        });
        story.machine.live_to_the_end(&story.without(&lost_first()), async |devices| {
            let runtime = devices.runtime.clone();
            let array = degraded(devices, &runtime).await;
            for at in strips() {
                let again = Request::write(at, Buffer::from_slice(&[2; 512]));
                let flags = RequestFlags::RECOMPUTE_PARITY | RequestFlags::LOGGED;
                array.submit(again.with_flags(flags)).await.unwrap();
            }
            for at in strips() {
                let expected = [[2; 512].as_slice(), &[1; 4096 - 512]].concat();
                assert_eq!(read(&array, at, 4096).await.unwrap(), expected, "{when:?}, {at}");
            }
        });
    }
}

#[test]
fn an_array_that_was_stopped_starts_without_its_journal_and_says_so() {
    let story = Story::new(Level::Raid5, 4, JournalWhen::Degraded);
    story.machine.live_to_the_end(&story.all(), async |devices| {
        let runtime = devices.runtime.clone();
        let array = degraded(devices, &runtime).await;
        support::write(&array, 0, &[1; 4096]).await.unwrap();
        array.stop().await.unwrap();
    });
    story.machine.live_to_the_end(&[0, 1, 2, 3], async |devices| {
        let assembled = open(&devices.runtime, devices.to_vec(), Force::No).await.unwrap();
        assert!(matches!(assembled.warnings[..], [Warning::JournalLost { .. }]));
        support::write(&assembled.array, 0, &[2; 4096]).await.unwrap();
    });
}

#[test]
fn a_journal_is_refused_where_it_makes_no_sense() {
    support::run(1, |runtime| async move {
        let members = support::as_devices(&support::devices(4, 8, &runtime));
        let plan = |options: CreateOptions| headpond_raid::create::plan(&members, &options);
        let mirrored = plan(create_options(Level::Raid1, JournalWhen::Always));
        assert!(matches!(mirrored, Err(CreateError::JournalWithoutParity(_))));
        let options = create_options(Level::Raid5, JournalWhen::Degraded);
        let blind = plan(CreateOptions { intent: Intent::None, ..options.clone() });
        assert!(matches!(blind, Err(CreateError::JournalWithoutIntent)));
        let record = plan(options).unwrap();
        let sized = |bytes, stability| {
            let geometry = Geometry { stability, ..Geometry::of_size(bytes) };
            RamDevice::with_geometry("journal", geometry)
        };
        let small = sized(1 << 20, Stability::Flushable);
        let refused = create_journal(&small, &record, Occupied::Refuse).await;
        assert!(matches!(refused, Err(CreateError::JournalTooSmall { .. })), "{refused:?}");
        let memory = sized(8 << 20, Stability::LostOnPower);
        let refused = create_journal(&memory, &record, Occupied::Refuse).await;
        assert!(matches!(refused, Err(CreateError::JournalInMemory { .. })), "{refused:?}");
        let good = sized(8 << 20, Stability::Flushable);
        create_journal(&good, &record, Occupied::Refuse).await.unwrap();
        let again = create_journal(&good, &record, Occupied::Refuse).await;
        assert!(matches!(again, Err(CreateError::Journal { .. })), "{again:?}");
        let member = create_journal(&*members[0], &record, Occupied::Refuse).await;
        assert!(member.is_err(), "too small, or a member");
    });
}
