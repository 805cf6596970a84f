//! Starts by force: data that the parity cannot verify is an error, and never something else,
//! however the array goes on.

use std::collections::BTreeSet;

use crate::support::journal::{Judge, ROWS, SECTOR, Story, open, step};
use crate::support::{self, STRIP};
use headpond_block::{BlockDevice, ByteRange, Request};
use headpond_raid::layout::Role;
use headpond_raid::{AssembleError, Force, JournalOptions, JournalWhen, Level, Occupied, Warning};
use headpond_sim::Random;
use uuid::Uuid;

const LEVELS: [(Level, usize); 3] = [(Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid60, 10)];

#[derive(Debug, Default)]
struct Tally {
    forced: u32,
    /// Sectors.
    errors: usize,
    /// Starts after which all of the lost member was proven by the other parity.
    proven: u32,
    /// Contents that were read but never written.
    mixtures: Vec<String>,
}

/// An array without a journal loses a member and is cut; it is started by force, and given a
/// journal; then another member goes, and the power.
struct Life<'a> {
    story: Story,
    judge: Judge,
    random: Random,
    seed: u64,
    force: Force,
    tally: &'a mut Tally,
}

impl Life<'_> {
    fn live(seed: u64, (level, members): (Level, usize), force: Force, tally: &mut Tally) {
        let story = Story::new(level, members, JournalWhen::Degraded);
        let data = members - story.redundancy() * groups(level);
        let judge = Judge::new(ROWS * u64::from(STRIP) * data as u64);
        let mut life = Life { story, judge, random: Random::new(seed), seed, force, tally };
        life.use_and_cut();
        if life.is_refused() {
            life.tally.forced += 1;
            if life.start_by_force() {
                life.lose_another();
                life.look_again();
            }
        }
    }

    fn without_first(&self) -> Vec<usize> {
        (1..self.story.members).collect()
    }

    fn use_and_cut(&mut self) {
        let Life { story, judge, random, .. } = self;
        story.machine.live_to_the_end(&story.all(), async |devices| {
            let array = open(&devices.runtime, devices.to_vec(), Force::No).await.unwrap().array;
            for _ in 0..20 {
                step(&array, judge, random).await;
            }
            array.change_journal(None).await.unwrap();
            judge.flushed();
        });
        self.work_until_cut(self.without_first(), 20);
    }

    /// Opens the array with these devices, and uses it until the power goes.
    fn work_until_cut(&mut self, present: Vec<usize>, at_least: u64) {
        let may_lose = present.contains(&self.story.members) && self.story.level.parity() > 1;
        let Life { story, judge, random, seed, .. } = self;
        story.machine.power.cut_after(at_least + random.below(150));
        let ended = story.machine.live(*seed, &present, async |devices, runtime| {
            let array = open(&runtime, devices.to_vec(), Force::No).await.unwrap().array;
            if may_lose {
                array.fail(Role(1)).await.unwrap();
            }
            for _ in 0..1000 {
                step(&array, judge, random).await;
            }
        });
        assert!(ended.was_cut());
    }

    fn is_refused(&self) -> bool {
        let refused = self.story.machine.live_to_the_end(&self.without_first(), async |devices| {
            open(&devices.runtime, devices.to_vec(), Force::No).await.err()
        });
        let is_refused = matches!(refused, Some(AssembleError::DegradedAndUnclean { .. }));
        assert!(is_refused || refused.is_none(), "{refused:?}");
        is_refused
    }

    /// Whether all that could be read was right.
    fn start_by_force(&mut self) -> bool {
        let present: Vec<usize> = (1..=self.story.members).collect();
        let new = JournalOptions { uuid: Uuid::from_u128(0x11), when: JournalWhen::Degraded };
        let Life { story, judge, random, tally, force, .. } = self;
        let told = story.machine.live_to_the_end(&present, async |devices| {
            let (journal, others) = devices.split_last().expect("the journal's is the last");
            let forced = open(&devices.runtime, others.to_vec(), *force).await.unwrap();
            assert!(forced.warnings.iter().any(|it| {
                matches!(it, Warning::Forced { lost: 1 } | Warning::ParityAccepted { lost: 1 })
            }));
            let array = forced.array;
            let errors = judge.check_but_errors(&array).await?;
            assert_eq!(array.status().lost.bytes, errors as u64 * SECTOR);
            tally.errors += errors;
            tally.proven += u32::from(errors == 0);
            step(&array, judge, random).await;
            array.make_journal(&**journal, new, Occupied::Overwrite).await.unwrap();
            array.change_journal(Some(new)).await.unwrap();
            judge.flushed();
            Ok::<_, String>(())
        });
        let is_right = told.is_ok();
        self.tally.mixtures.extend(told.err());
        is_right
    }

    fn lose_another(&mut self) {
        self.work_until_cut((1..=self.story.members).collect(), 60);
    }

    /// It starts without force, for the journal has all that may be torn.
    fn look_again(&mut self) {
        let lost = match self.story.level.parity() {
            1 => BTreeSet::from([0]),
            _ => BTreeSet::from([0, 1]),
        };
        let Life { story, judge, .. } = self;
        let told = story.machine.live_to_the_end(&story.without(&lost), async |devices| {
            let array = open(&devices.runtime, devices.to_vec(), Force::No).await.unwrap().array;
            judge.check_but_errors(&array).await?;
            // What is written again is known again.
            let everything = ByteRange::at(0, array.geometry().size_bytes);
            array.submit(Request::write_zeroes(everything)).await.unwrap();
            assert_eq!(array.status().lost.bytes, 0);
            Ok::<_, String>(())
        });
        self.tally.mixtures.extend(told.err());
    }
}

fn groups(level: Level) -> usize {
    if level == Level::Raid60 { 2 } else { 1 }
}

#[test]
fn data_that_parity_cannot_verify_is_an_error_whatever_comes_after() {
    for shape in LEVELS {
        let mut tally = Tally::default();
        for seed in 0..60 {
            Life::live(seed, shape, Force::GiveUp, &mut tally);
        }
        assert_eq!(tally.mixtures, Vec::<String>::new(), "{shape:?}");
        assert!(tally.forced > 30 && tally.errors > 100, "{shape:?}: {tally:?}");
        let is_proven = shape.0.parity() > 1;
        assert_eq!(tally.proven > 5, is_proven, "{shape:?}: {tally:?}");
    }
}

/// Otherwise the test above would prove nothing.
#[test]
fn parity_that_is_accepted_as_it_is_tells_mixtures() {
    let mut tally = Tally::default();
    for seed in 0..60 {
        Life::live(seed, LEVELS[1], Force::AcceptParity, &mut tally);
    }
    assert!(tally.mixtures.len() > 3, "{tally:?}");
    assert_eq!(tally.errors, 0);
}

/// Nothing says where it was being written.
#[test]
fn without_an_intent_bitmap_everything_is_unvouched_and_has_to_be_accepted() {
    support::run(1, |runtime| async move {
        let members = support::devices(5, 8, &runtime);
        drop(support::new_array(&members, &support::options(Level::Raid6, 1)).await);
        let attempt = async |force| {
            let devices = support::as_devices(&members[1..]);
            open(&runtime, devices, force).await.map(|assembled| assembled.warnings)
        };
        let refused = attempt(Force::GiveUp).await.unwrap_err();
        assert!(matches!(refused, AssembleError::UnverifiedEverywhere { .. }), "{refused}");
        let warnings = attempt(Force::AcceptParity).await.unwrap();
        assert!(warnings.contains(&Warning::ParityAccepted { lost: 1 }));
    });
}
