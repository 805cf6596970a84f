//! Who is a member, after lives of an array that ended anywhere and in which any of them were
//! there.

use std::cell::Cell;
use std::rc::Rc;

use crate::support::machine::{Devices, Machine, attempt, make_array};
use crate::support::{read, write};
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::{BlockDevice, Buffer, Request, RequestFlags, RequestKind, Runtime};
use headpond_raid::superblock::RoleState;
use headpond_raid::{AssembleError, Assembled, Level, Role};
use headpond_sim::Ended;

/// A life with every update of the superblocks but that for a failure.
async fn uneventful(devices: Devices) -> Result<(), AssembleError> {
    let Assembled { array, missing, stale, .. } = attempt(devices).await?;
    assert_eq!((missing, stale), (Vec::new(), Vec::new()));
    array.raise_owner_generation(1).await.unwrap();
    write(&array, 0, &[1; 512]).await.unwrap();
    array.stop().await.unwrap();
    Ok(())
}

/// Starts an array, writes its first sector and stops it.
async fn write_first(devices: Devices, byte: u8) {
    let array = attempt(devices).await.unwrap().array;
    write(&array, 0, &[byte; 512]).await.unwrap();
    array.stop().await.unwrap();
}

fn names(assembled: &Assembled) -> Vec<&str> {
    assembled.stale.iter().map(|name| name.as_str()).collect()
}

/// All orders of three.
fn orders() -> [[usize; 3]; 6] {
    [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]
}

/// Cuts two lives one after the other, each at every operation of its devices.
#[test]
fn members_that_missed_nothing_stay_members_however_two_lives_are_cut() {
    for seed in 0..8 {
        let (level, count) = [(Level::Raid5, 3), (Level::Raid1, 2)][seed as usize % 2];
        let two_lives = |cuts: [u64; 2]| {
            let context = format!("seed {seed}, cut at {cuts:?}");
            let machine = Machine::with_array(count, level);
            let was_cut = cuts.map(|cut| {
                machine.power.cut_after(cut);
                let life = async |devices: Devices, _| uneventful(devices).await;
                let ended = machine.live(seed, &machine.all(), life);
                let counts = machine.event_counts();
                assert!(!matches!(ended, Ended::Finished(Err(_))), "{context}: {ended:?}");
                assert!(counts.iter().all(|count| count.abs_diff(counts[0]) <= 1), "{context}");
                ended.was_cut()
            });
            let last = machine.live_to_the_end(&machine.all(), uneventful);
            assert_eq!(last, Ok(()), "{context}");
            was_cut
        };
        for first in 0.. {
            let mut second = (0..).map(|second| two_lives([first, second]));
            if !second.find(|was_cut| !was_cut[1]).expect("every life ends")[0] {
                break;
            }
        }
    }
}

/// The last pass of a creation is an update like any other.
#[test]
fn a_new_array_has_all_its_members_however_its_creation_and_first_life_are_cut() {
    let mut born = 0;
    let mut two_lives = |seed, cuts: [u64; 2]| {
        let machine = Machine::new(3);
        machine.power.cut_after(cuts[0]);
        let creation = async |devices: Devices, _| make_array(devices, Level::Raid5).await;
        let created = machine.live(seed, &machine.all(), creation);
        machine.power.cut_after(cuts[1]);
        let life = async |devices: Devices, _| uneventful(devices).await;
        let first = machine.live(seed, &machine.all(), life);
        let last = Ended::Finished(machine.live_to_the_end(&machine.all(), uneventful));
        for ended in [&first, &last] {
            let Ended::Finished(Err(error)) = ended else { continue };
            let unborn = matches!(
                error,
                AssembleError::Unborn { .. }
                    | AssembleError::Foreign { .. }
                    | AssembleError::Unusable { .. }
            );
            assert!(created.was_cut() && unborn, "seed {seed}, cut at {cuts:?}: {error}");
        }
        born += u32::from(created.was_cut() && last == Ended::Finished(Ok(())));
        [created.was_cut(), first.was_cut()]
    };
    for seed in 0..4 {
        for first in 0.. {
            let mut second = (0..).map(|second| two_lives(seed, [first, second]));
            if !second.find(|was_cut| !was_cut[1]).expect("every life ends")[0] {
                break;
            }
        }
    }
    assert!(born > 0, "the last pass was cut");
}

/// Cuts a life in which a member fails, and the start after it, each at every operation.
#[test]
fn a_failed_member_never_hides_what_was_acknowledged_however_its_recording_is_cut() {
    let mut acknowledged = 0;
    let mut two_lives = |seed, cuts: [u64; 2]| {
        let context = format!("seed {seed}, cut at {cuts:?}");
        let machine = Machine::with_array(3, Level::Raid1);
        let newest = Cell::new(0);
        let failing = async |mut devices: Devices, runtime: Runtime| {
            let control = FaultControl::default();
            devices[1] = Rc::new(FaultDevice::new(devices[1].clone(), control.clone(), runtime));
            let array = attempt(devices).await.unwrap().array;
            for value in 1..4 {
                let data = Buffer::from_slice(&[value; 512]);
                let stable = Request::write(0, data).with_flags(RequestFlags::FUA);
                array.submit(stable).await.unwrap();
                newest.set(value);
                control.add(FaultRule::on(RequestKind::Write, Fault::Media));
            }
        };
        machine.power.cut_after(cuts[0]);
        let first = machine.live(seed, &machine.all(), failing).was_cut();
        machine.power.cut_after(cuts[1]);
        let start = async |devices, _| drop(attempt(devices).await.unwrap());
        let second = machine.live(seed, &machine.all(), start).was_cut();
        machine.live_to_the_end(&machine.all(), async |devices| {
            let assembled = attempt(devices).await.unwrap();
            let first = read(&assembled.array, 0, 512).await.unwrap();
            assert!(first[0] >= newest.get(), "{context}: {} of {}", first[0], newest.get());
            for _ in 0..3 {
                assert_eq!(read(&assembled.array, 0, 512).await.unwrap(), first, "{context}");
            }
            assert!(newest.get() < 2 || names(&assembled) == ["m1"], "{context}");
        });
        acknowledged += u32::from(newest.get() >= 2);
        [first, second]
    };
    for seed in 0..4 {
        for first in 0.. {
            let mut second = (0..).map(|second| two_lives(seed, [first, second]));
            if !second.find(|was_cut| !was_cut[1]).expect("every life ends")[0] {
                break;
            }
        }
    }
    assert!(acknowledged > 0, "some cuts came after the failure was recorded");
}

/// One member was not reached by the last update, and now takes no superblock at all.
#[test]
fn a_member_that_cannot_be_brought_up_is_out_before_the_array_starts() {
    let one_is_behind = |seed| {
        let machine = Machine::with_array(3, Level::Raid5);
        machine.power.cut_after(seed % 30);
        let start = async |it, _| drop(attempt(it).await.unwrap());
        let _ = machine.live(seed, &machine.all(), start);
        let counts = machine.event_counts();
        (counts[1] + 1 == counts[0]).then_some(machine)
    };
    let machine = (0..1000).find_map(one_is_behind).expect("a cut within an event");
    let life = async |mut devices: Devices, runtime: Runtime| {
        let control = FaultControl::default();
        control.add(FaultRule::on(RequestKind::Write, Fault::Media));
        devices[1] = Rc::new(FaultDevice::new(Rc::clone(&devices[1]), control, runtime));
        let array = attempt(devices).await.unwrap().array;
        assert_eq!(array.status().members[1].state, RoleState::Failed);
        write(&array, 0, &[3; 512]).await.unwrap();
        array.stop().await.unwrap();
    };
    assert!(!machine.live(1, &machine.all(), life).was_cut());
    machine.live_to_the_end(&machine.all(), async |devices| {
        let assembled = attempt(devices).await.unwrap();
        assert_eq!(names(&assembled), ["m1"]);
        assert_eq!(read(&assembled.array, 0, 512).await.unwrap(), [3; 512]);
    });
}

/// A start is cut when its update has reached one member only; that member is away while the others
/// go on, to the same event count.
#[test]
fn a_member_that_was_away_is_stale_although_a_cut_start_had_counted_it_as_far() {
    for away in 0..3 {
        let machine = Machine::with_array(3, Level::Raid1);
        machine.live_to_the_end(&machine.all(), async |it| write_first(it, 1).await);
        let before = machine.images();
        machine.live_to_the_end(&machine.all(), async |it| drop(attempt(it).await.unwrap()));
        let others: Vec<usize> = machine.all().into_iter().filter(|it| *it != away).collect();
        others.iter().for_each(|member| machine.put_back(*member, &before[*member]));
        machine.live_to_the_end(&others, async |devices| {
            let array = attempt(devices).await.unwrap().array;
            write(&array, 0, &[2; 512]).await.unwrap();
        });
        let counts = machine.event_counts();
        assert_eq!(counts, [counts[0]; 3], "the trap is set");
        let after = machine.images();
        for order in orders() {
            after.iter().enumerate().for_each(|(index, image)| machine.put_back(index, image));
            machine.live_to_the_end(&order, async |devices| {
                let assembled = attempt(devices).await.unwrap();
                assert_eq!(names(&assembled), [format!("m{away}")], "given in order {order:?}");
                assert_eq!(assembled.missing, [Role(away as u16)]);
                for _ in 0..3 {
                    assert_eq!(read(&assembled.array, 0, 512).await.unwrap(), [2; 512]);
                }
            });
        }
    }
}

/// Each copy went on without the other: whichever is taken, writes that were acknowledged are lost.
#[test]
fn two_histories_of_one_array_are_refused_not_chosen_from() {
    for longer_lives in 0..2 {
        let machine = Machine::with_array(2, Level::Raid1);
        for _ in 0..1 + longer_lives {
            machine.live_to_the_end(&[0], async |it| write_first(it, 1).await);
        }
        machine.live_to_the_end(&[1], async |it| write_first(it, 2).await);
        let before = machine.images();
        for both in [[0, 1], [1, 0]] {
            let refused = machine.live_to_the_end(&both, async |it| attempt(it).await.err());
            assert!(matches!(refused, Some(AssembleError::Diverged { .. })), "{refused:?}");
        }
        assert!(machine.images() == before, "a refusal leaves everything as it was");
        for one in [0, 1] {
            machine.live_to_the_end(&[one], async |devices| {
                let array = attempt(devices).await.unwrap().array;
                assert_eq!(read(&array, 0, 512).await.unwrap(), [one as u8 + 1; 512]);
            });
        }
    }
}

/// A start without one member is cut when it has reached one other only, and the next goes on
/// without that one and with the first.
#[test]
fn a_member_that_calls_another_out_and_is_called_out_itself_is_refused() {
    let machine = Machine::with_array(5, Level::Raid6);
    let before = machine.images();
    machine.live_to_the_end(&[0, 1, 2, 3], async |it| drop(attempt(it).await.unwrap()));
    (1..4).for_each(|member| machine.put_back(member, &before[member]));
    machine.live_to_the_end(&[1, 2, 3, 4], async |it| write_first(it, 1).await);
    let refused = machine.live_to_the_end(&machine.all(), async |it| attempt(it).await.err());
    let Some(AssembleError::Diverged { device, other }) = &refused else { panic!("{refused:?}") };
    assert_eq!((device.as_str(), other.as_str()), ("m0", "m4"));
    machine.live_to_the_end(&[1, 2, 3, 4], async |devices| {
        let array = attempt(devices).await.unwrap().array;
        assert_eq!(read(&array, 0, 512).await.unwrap(), [1; 512]);
    });
}

/// It is not excluded: its superblock is as valid as it was when the image was made.
#[test]
fn a_member_put_back_from_an_older_image_is_stale() {
    let machine = Machine::with_array(3, Level::Raid5);
    let older = machine.image(1);
    machine.live_to_the_end(&machine.all(), async |it| write_first(it, 1).await);
    machine.put_back(1, &older);
    machine.live_to_the_end(&machine.all(), async |devices| {
        let assembled = attempt(devices).await.unwrap();
        assert_eq!(names(&assembled), ["m1"]);
        assert_eq!(read(&assembled.array, 0, 512).await.unwrap(), [1; 512]);
    });
}

/// Copies that differ after an unclean shutdown are made equal before they are read; what a read
/// has shown is lost with no one member, even if the power goes right after it.
#[test]
fn copies_made_equal_at_the_start_are_stable_before_one_of_them_is_read() {
    let start = headpond_raid::superblock::DATA_OFFSET_MIN;
    for seed in 0..40 {
        let machine = Machine::with_array(2, Level::Raid1);
        let unclean = async |devices: Devices, _| {
            let array = attempt(devices).await.unwrap().array;
            write(&array, 0, &[1; 512]).await.unwrap();
            array.submit(Request::flush()).await.unwrap();
        };
        assert!(!machine.live(seed, &machine.all(), unclean).was_cut());
        // A write that reached the first copy only before the power went.
        let reached = seed as usize % 2;
        machine.members[reached].poke(start, &[2; 512]);
        let look = async |devices: Devices, _| {
            let array = attempt(devices).await.unwrap().array;
            read(&array, 0, 512).await.unwrap()[0]
        };
        let Ended::Finished(seen) = machine.live(seed, &machine.all(), look) else { panic!("cut") };
        for one in [0, 1] {
            let left = machine.live_to_the_end(&[one], async |devices| {
                let array = attempt(devices).await.unwrap().array;
                read(&array, 0, 512).await.unwrap()[0]
            });
            assert_eq!(left, seen, "seed {seed}: member {one} alone");
        }
    }
}
