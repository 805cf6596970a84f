//! An older image of a member is put back: a drive that was cloned while it failed, one virtual
//! disk that was restored, a cable that was moved.
//!
//! Every history of up to four steps between the copy and its return is tried. Where a start, a
//! stop or an event lies between the two, nothing old is read as new: the image is left out, or the
//! start refused. Where nothing does, the image is the member. In between, within one opening, an
//! image is not detected (docs/array.md).

use crate::support::machine::{Devices, Machine, attempt, write_stable};
use crate::support::read;
use headpond_block::{BlockDevice, Request, Runtime};
use headpond_raid::{Array, AssembleError, Level};
use headpond_sim::Ended;
use std::cell::RefCell;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Start,
    /// Of every strip of data, acknowledged and perhaps not stable.
    Write,
    Flush,
    Event,
    Stop,
    Kill,
    /// An image of a member is made here.
    Copy,
}

const STEPS_MAX: usize = 4;
const LEVELS: [(Level, usize); 6] = [
    (Level::Raid0, 2),
    (Level::Raid1, 2),
    (Level::Raid1, 3),
    (Level::Raid10, 4),
    (Level::Raid5, 3),
    (Level::Raid6, 4),
];

/// What can happen in so many steps to an array that is open, or not.
fn histories(is_open: bool, steps_max: usize) -> Vec<Vec<Step>> {
    let mut all = vec![Vec::new()];
    if steps_max == 0 {
        return all;
    }
    let possible: &[Step] = match is_open {
        true => &[Step::Write, Step::Flush, Step::Event, Step::Stop, Step::Kill],
        false => &[Step::Start],
    };
    for &step in possible {
        let opens = match step {
            Step::Start => true,
            Step::Stop | Step::Kill => false,
            _ => is_open,
        };
        let then = histories(opens, steps_max - 1);
        all.extend(then.into_iter().map(|rest| [vec![step], rest].concat()));
    }
    all
}

/// What every strip may hold.
#[derive(Debug)]
struct Allowed {
    written: u8,
    oldest: u8,
    /// Of what was written last it is not known whether a kill took it.
    is_uncertain: bool,
}

impl Allowed {
    /// What was written is on the members and stable.
    fn promise(&mut self) {
        if !self.is_uncertain {
            self.oldest = self.written;
        }
    }
}

struct History<'a> {
    machine: &'a Machine,
    member: usize,
    allowed: RefCell<Allowed>,
    image: RefCell<Vec<u8>>,
}

impl History<'_> {
    /// Carries the steps out, a life after the other; one that is still going on at the end is
    /// killed.
    fn carry_out(&self, steps: &[Step]) {
        let mut steps = steps.iter().copied().peekable();
        while let Some(step) = steps.next() {
            match step {
                Step::Copy => self.copy(),
                Step::Start => {
                    let mut life = Vec::new();
                    while let Some(step) = steps.next_if(|it| *it != Step::Start) {
                        life.push(step);
                        if matches!(step, Step::Stop | Step::Kill) {
                            break;
                        }
                    }
                    self.live(&life);
                }
                other => unreachable!("{other:?} of an array that is not open"),
            }
        }
    }

    fn copy(&self) {
        self.image.replace(self.machine.image(self.member));
    }

    fn live(&self, steps: &[Step]) {
        self.allowed.borrow_mut().is_uncertain = true;
        self.machine.live_to_the_end(&self.machine.all(), async |devices| {
            let array = attempt(devices).await.expect("all are there").array;
            for step in steps {
                match step {
                    Step::Write => self.write(&array).await,
                    Step::Flush => self.flush(&array).await,
                    Step::Event => array.raise_owner_generation(1).await.unwrap(),
                    Step::Stop => {
                        array.stop().await.unwrap();
                        self.allowed.borrow_mut().promise();
                    }
                    Step::Copy => self.copy(),
                    Step::Kill | Step::Start => {}
                }
            }
        });
    }

    async fn write(&self, array: &Array) {
        let value = self.allowed.borrow().written + 1;
        self.allowed.borrow_mut().written = value;
        self.allowed.borrow_mut().is_uncertain = false;
        for at in places(array) {
            let data = headpond_block::Buffer::from_slice(&[value; 512]);
            array.submit(Request::write(at, data)).await.unwrap();
        }
    }

    async fn flush(&self, array: &Array) {
        array.submit(Request::flush()).await.unwrap();
        self.allowed.borrow_mut().promise();
    }

    /// The next start reads what is allowed, whoever answers; whether it left a member out.
    fn look(&self, context: &str) -> Result<bool, AssembleError> {
        let allowed = self.allowed.borrow();
        self.machine.live_to_the_end(&self.machine.all(), async |devices| {
            let assembled = attempt(devices).await?;
            let array = assembled.array;
            for _ in 0..2 {
                for at in places(&array) {
                    let found = read(&array, at, 512).await.unwrap()[0];
                    let range = allowed.oldest..=allowed.written;
                    assert!(range.contains(&found), "{context}: {found} at {at}, not {range:?}");
                }
            }
            Ok(!assembled.stale.is_empty())
        })
    }
}

/// The first bytes of every strip.
fn places(array: &Array) -> impl Iterator<Item = u64> + use<> {
    (0..array.geometry().size_bytes).step_by(crate::support::STRIP as usize)
}

/// Whether the image may pass for the member: no detected event is between.
fn is_told(between: &[Step]) -> bool {
    between.iter().any(|it| matches!(it, Step::Start | Step::Stop | Step::Event))
}

#[test]
fn an_older_image_put_back_is_never_read_as_new() {
    let (mut told, mut left_out, mut refused) = (0, 0, 0);
    for (level, members) in LEVELS {
        for (before, is_open) in [
            (&[Step::Start, Step::Write, Step::Flush][..], true),
            (&[Step::Start, Step::Write, Step::Stop], false),
        ] {
            for between in histories(is_open, STEPS_MAX) {
                let machine = Machine::with_array(members, level);
                let allowed = RefCell::new(Allowed { written: 0, oldest: 0, is_uncertain: true });
                let history =
                    History { machine: &machine, member: 1, allowed, image: RefCell::default() };
                history.carry_out(&[before, &[Step::Copy], &between].concat());
                machine.put_back(1, &history.image.borrow());
                let context = format!("{level:?} of {members}, {before:?}, {between:?}");
                if !is_told(&between) {
                    // Within one opening: an image is not detected, and a copy that was made with
                    // nothing since is the member.
                    if between.is_empty() && !is_open {
                        assert_eq!(history.look(&context), Ok(false), "{context}");
                    }
                    continue;
                }
                told += 1;
                match history.look(&context) {
                    Ok(true) => left_out += 1,
                    Ok(false) => panic!("{context}: the image was taken for the member"),
                    Err(_) => refused += 1,
                }
            }
        }
    }
    println!("{told} histories: {left_out} left the image out, {refused} were refused");
    assert!(left_out > 0 && refused > 0);
}

/// Where a cut in a start, an event or a stop leaves members an event behind, they are members all
/// the same.
#[test]
fn no_cut_within_a_start_an_event_or_a_stop_makes_a_member_stale() {
    for (level, members) in LEVELS {
        for operations in 0..200 {
            let machine = Machine::with_array(members, level);
            machine.power.cut_after(operations);
            let life = async |devices: Devices, _: Runtime| {
                let array = attempt(devices).await.expect("all are there").array;
                array.raise_owner_generation(1).await.unwrap();
                write_stable(&array, 0, 1).await.unwrap();
                array.stop().await.unwrap();
            };
            let was_cut = matches!(machine.live(operations, &machine.all(), life), Ended::Cut);
            let stale = machine.live_to_the_end(&machine.all(), async |devices| {
                attempt(devices).await.map(|assembled| assembled.stale)
            });
            assert_eq!(stale, Ok(Vec::new()), "{level:?} of {members}, cut after {operations}");
            if !was_cut {
                break;
            }
            assert!(operations < 199, "the sweep goes to the end");
        }
    }
}
