//! Copies without an intent bitmap after a power cut: it is unknown which of them a write has
//! reached, so all of them are made alike beside the requests, and what is read until then is what
//! is read afterwards.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::support::journal::{Judge, step};
use crate::support::machine::{Machine, attempt};
use crate::support::{STRIP, options};
use headpond_raid::superblock::DATA_OFFSET_MIN;
use headpond_raid::{Level, MemberError, Warning, WhichCopy, create};
use headpond_sim::{Ended, Medium, Power, Random};

const ROWS: u64 = 16;

struct Story {
    machine: Machine,
    judge: Judge,
    copies: usize,
}

impl Story {
    fn new(level: Level, members: usize, groups: usize) -> Story {
        let member = |index| Medium::flushable(format!("m{index}").as_str(), member_bytes());
        let members: Vec<_> = (0..members).map(member).map(Rc::new).collect();
        let copies = members.len() / groups;
        let machine = Machine { members, power: Power::on() };
        machine.live_to_the_end(&machine.all(), async |devices| {
            create(&devices, &options(level, groups)).await.expect("created");
        });
        let judge = Judge::new(ROWS * u64::from(STRIP) * groups as u64);
        Story { machine, judge, copies }
    }

    /// Writes until the power goes, or to the end, which is no orderly stop either.
    fn write(&self, seed: u64, cut_after: u64) {
        self.machine.power.cut_after(cut_after);
        self.machine.live(seed, &self.machine.all(), async |devices, _| {
            let array = attempt(devices).await.expect("opened").array;
            let mut random = Random::new(seed);
            for _ in 0..12 {
                step(&array, &self.judge, &mut random).await;
            }
        });
    }

    /// Opens it, and makes the copies alike from where that had come to, until the power goes; says
    /// whether that was later than the end.
    fn make_alike(&self, seed: u64, cut_after: Option<u64>, context: &str) -> bool {
        cut_after.inspect(|operations| self.machine.power.cut_after(*operations));
        let ended = self.machine.live(seed, &self.machine.all(), async |devices, _| {
            let assembled = attempt(devices).await.expect("opened");
            let array = assembled.array;
            let is_unclean = assembled.warnings.contains(&Warning::Unclean);
            assert_eq!(!array.is_parity_initialised(), is_unclean, "{context}: they may differ");
            self.judge.check(&array, &format!("{context}, found")).await;
            array.set_rows_at_a_time(Some(4));
            array.initialise(async || true).await.expect("made alike");
            self.judge.check(&array, &format!("{context}, made alike")).await;
            assert!(array.is_parity_initialised());
            array.stop().await.expect("stopped");
        });
        matches!(ended, Ended::Finished(()))
    }

    /// Every set of one copy of each group holds the same.
    fn check_each_copy(&self, context: &str) {
        for copy in 0..self.copies {
            let is_it = |index: &usize| index % self.copies == copy;
            let present: Vec<usize> = self.machine.all().into_iter().filter(is_it).collect();
            let images: Vec<Vec<u8>> =
                self.machine.members.iter().map(|it| it.peek(0, member_bytes() as usize)).collect();
            self.machine.live_to_the_end(&present, async |devices| {
                let array = attempt(devices).await.expect("opened").array;
                self.judge.check(&array, &format!("{context}, copy {copy}")).await;
            });
            // The others were not left out by that.
            self.machine.members.iter().zip(images).for_each(|(it, image)| it.poke(0, &image));
        }
    }
}

fn member_bytes() -> u64 {
    DATA_OFFSET_MIN + ROWS * u64::from(STRIP)
}

#[test]
fn copies_without_a_bitmap_are_made_alike_after_a_cut_and_show_one_content_meanwhile() {
    let mut differing = BTreeSet::new();
    for seed in 0..60 {
        for (level, members, groups) in
            [(Level::Raid1, 2, 1), (Level::Raid1, 3, 1), (Level::Raid10, 4, 2)]
        {
            let context = format!("{level} of {members}, seed {seed}");
            let story = Story::new(level, members, groups);
            story.write(seed, 20 + seed % 50);
            let data = |medium: &Rc<Medium>| {
                medium.peek(DATA_OFFSET_MIN, (ROWS * u64::from(STRIP)) as usize)
            };
            if data(&story.machine.members[0]) != data(&story.machine.members[1]) {
                differing.insert((seed, members));
            }
            let cut_after = seed.is_multiple_of(2).then_some(10 + seed);
            if !story.make_alike(seed, cut_after, &context) {
                assert!(story.make_alike(seed + 1, None, &context), "{context}");
            }
            story.check_each_copy(&context);
        }
    }
    assert!(differing.len() > 60, "only {} cuts left copies that differ", differing.len());
}

#[test]
fn copies_that_were_stopped_in_order_are_alike() {
    let story = Story::new(Level::Raid1, 2, 1);
    story.machine.live_to_the_end(&story.machine.all(), async |devices| {
        let array = attempt(devices).await.expect("opened").array;
        step(&array, &story.judge, &mut Random::new(1)).await;
        array.stop().await.expect("stopped");
    });
    story.machine.live_to_the_end(&story.machine.all(), async |devices| {
        let array = attempt(devices).await.expect("opened").array;
        assert!(array.is_parity_initialised());
    });
}

#[test]
fn no_copy_is_given_up_while_another_may_say_something_else() {
    let story = Story::new(Level::Raid1, 3, 1);
    story.write(7, 30);
    story.machine.live_to_the_end(&story.machine.all(), async |devices| {
        let name = devices[0].name().to_string();
        let array = attempt(devices).await.expect("opened").array;
        story.judge.check(&array, "found").await;
        let refused = array.drop_copy(&WhichCopy::On(name.clone())).await.err();
        assert!(matches!(refused, Some(MemberError::Unalike { .. })), "{refused:?}");
        story.judge.check(&array, "refused").await;
        array.initialise(async || true).await.expect("made alike");
        let left = array.drop_copy(&WhichCopy::On(name)).await.expect("now it may");
        assert!(left.is_some());
        story.judge.check(&array, "without it").await;
    });
}
