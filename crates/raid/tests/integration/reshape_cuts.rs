//! Power cuts while an array is given more members.

use std::pin::Pin;
use std::rc::Rc;

use crate::support::journal::{Judge, step};
use crate::support::machine::{Devices, Machine, attempt};
use crate::support::{STRIP, options, read};
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, RequestKind};
use headpond_raid::superblock::DATA_OFFSET_MIN;
use headpond_raid::{
    Addition, Array, ArrayState, AssembleError, CreateOptions, Grown, Inspection, Integrity,
    Intent, Level, Scrubbed, create, inspect,
};
use headpond_sim::{Ended, Medium, Power, Random};
use uuid::Uuid;

const ROWS: u64 = 40;
const DISK_BYTES: u64 = DATA_OFFSET_MIN + ROWS * STRIP as u64;
/// With an integrity region, data begins there.
const DATA_BEHIND_CHECKSUMS: u64 = 2 << 20;

/// Level, members before and after, groups before.
type Shape = (Level, usize, usize, usize);

const SHAPES: [Shape; 5] = [
    (Level::Raid5, 3, 4, 1),
    (Level::Raid6, 5, 7, 1),
    (Level::Raid0, 2, 3, 1),
    (Level::Raid10, 4, 6, 2),
    (Level::Raid5, 5, 6, 1),
];

/// What befalls one life, in which the array is to grow.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    seed: u64,
    cut_after: Option<u64>,
    /// Steps of a user beside the growth.
    steps: u64,
    /// A member that takes no more writes after so many.
    failing: Option<(usize, u64)>,
}

type End = Ended<Result<ArrayState, AssembleError>>;

struct Story {
    machine: Machine,
    shape: Shape,
    disk_bytes: u64,
    judge: Judge,
}

impl Story {
    fn new(shape: Shape) -> Story {
        Story::with(shape, Integrity::None)
    }

    fn with(shape: Shape, integrity: Integrity) -> Story {
        let (level, before, after, groups) = shape;
        let disk_bytes = match integrity {
            Integrity::None => DISK_BYTES,
            Integrity::Region => DISK_BYTES - DATA_OFFSET_MIN + DATA_BEHIND_CHECKSUMS,
        };
        let member = |index| Medium::flushable(format!("m{index}").as_str(), disk_bytes);
        let members = (0..after).map(member).map(Rc::new).collect();
        let machine = Machine { members, power: Power::on() };
        let old: Vec<usize> = (0..before).collect();
        let size = machine.live_to_the_end(&old, async |devices: Devices| {
            let usual = options(level, groups);
            let options = CreateOptions { intent: Intent::Bitmap, integrity, ..usual };
            let record = create(&devices, &options).await.expect("created");
            record.layout().expect("a shape").array_bytes()
        });
        Story { machine, shape, disk_bytes, judge: Judge::new(size) }
    }

    /// Writes here and there, and shuts down cleanly.
    fn fill(&self, seed: u64) {
        let before: Vec<usize> = (0..self.shape.1).collect();
        self.machine.live_to_the_end(&before, async |devices| {
            let array = attempt(devices).await.expect("opened").array;
            let mut random = Random::new(seed);
            for _ in 0..80 {
                step(&array, &self.judge, &mut random).await;
            }
            array.stop().await.expect("stopped");
            self.judge.flushed();
        });
    }

    /// Has a scrub sign all that is there, or find that checksums speak against it.
    fn sign(&self, present: &[usize]) {
        self.machine.live_to_the_end(present, async |devices| {
            let array = attempt(devices).await.expect("opened").array;
            assert_eq!(array.scrub(async || true).await, Ok(Scrubbed::Whole));
            let status = array.status();
            let integrity = status.integrity.expect("there is an integrity region");
            assert_eq!(integrity.regions_signed, integrity.regions, "{:?}", self.shape);
            let (scrub, shape) = (status.scrub_report(), self.shape);
            assert_eq!((scrub.corrected_sectors, scrub.unexplained_sectors), (0, 0), "{shape:?}");
            array.stop().await.expect("stopped");
        });
    }

    /// Starts a reshape, and shuts the array down cleanly.
    fn begin(&self) {
        self.machine.live_to_the_end(&self.all(), async |devices| {
            let array = self.open(devices).await.expect("opened");
            assert!(array.is_growing());
            array.stop().await.expect("stopped");
        });
    }

    /// One life: what is there is checked, the array grows beside its users, and is stopped.
    fn live(&self, present: &[usize], fate: Fate) -> End {
        let context = format!("{:?}, {fate:?}", self.shape);
        fate.cut_after.inspect(|operations| self.machine.power.cut_after(*operations));
        self.machine.live(fate.seed, present, async |mut devices, runtime| {
            if let Some((place, after)) = fate.failing {
                let control = FaultControl::default();
                let rule = FaultRule::on(RequestKind::Write, Fault::Media);
                control.add(FaultRule { after, ..rule });
                let device = devices[place].clone();
                devices[place] = Rc::new(FaultDevice::new(device, control, runtime));
            }
            let array = self.open(devices).await?;
            self.judge.check(&array, &format!("{context}, found")).await;
            let users = async {
                let mut random = Random::new(fate.seed);
                for _ in 0..fate.steps {
                    step(&array, &self.judge, &mut random).await;
                }
            };
            let work = async {
                assert_eq!(array.grow(async || true).await, Ok(Grown::Whole), "{context}");
            };
            let both: [Pin<Box<dyn Future<Output = ()> + '_>>; 2] =
                [Box::pin(work), Box::pin(users)];
            join_all(both.into()).await;
            array.stop().await.expect("stopped");
            self.judge.check(&array, &format!("{context}, grown")).await;
            Ok(array.state())
        })
    }

    /// An open period without a cut.
    fn live_to_the_end(&self, present: &[usize], fate: Fate) -> Result<ArrayState, AssembleError> {
        let Ended::Finished(end) = self.live(present, fate) else { panic!("nobody cut the power") };
        end
    }

    /// Opens the array, and has it begin to grow where it has not and can.
    async fn open(&self, devices: Devices) -> Result<Array, AssembleError> {
        let (all, runtime) = (devices.to_vec(), devices.runtime.clone());
        let mut known = Vec::new();
        for device in &all {
            if matches!(inspect(&**device).await, Ok(Inspection::Member(_))) {
                known.push(device.clone());
            }
        }
        let is_known = |name: &str| known.iter().any(|device| device.name().as_str() == name);
        let new = all.iter().filter(|device| !is_known(device.name().as_str())).cloned();
        let new: Vec<Rc<dyn BlockDevice>> = new.collect();
        let array = attempt(Devices::new(known.clone(), &runtime)).await?.array;
        let has_begun = array.is_growing() || array.layout().members() == self.shape.2;
        if has_begun || array.state() == ArrayState::Degraded {
            return Ok(array);
        }
        let spares = array.status().spares;
        let stands_by = |it: &&Rc<dyn BlockDevice>| {
            spares.iter().any(|spare| spare.device == it.name().as_str())
        };
        let additions = new.iter().chain(known.iter().filter(stands_by)).map(|device| {
            let number: u128 = device.name().as_str()[1..].parse().expect("m and a number");
            Addition { device: device.clone(), uuid: Uuid::from_u128(0x900 + number) }
        });
        let additions: Vec<Addition> = additions.collect();
        array.begin_reshape(&additions).await.expect("possible");
        array.stop().await.expect("stopped");
        Ok(attempt(Devices::new(all, &runtime)).await?.array)
    }

    fn all(&self) -> Vec<usize> {
        self.machine.all()
    }

    /// The array has grown, and any member of it may be lost where the level allows one.
    fn check_redundancy(&self) {
        let (level, _, after, _) = self.shape;
        let members = &self.machine.members;
        let images: Vec<Vec<u8>> =
            members.iter().map(|it| it.peek(0, self.disk_bytes as usize)).collect();
        let first = if level == Level::Raid0 { after } else { 0 };
        for lost in first..=after {
            let present: Vec<usize> = (0..after).filter(|index| *index != lost).collect();
            self.machine.live_to_the_end(&present, async |devices| {
                let array = attempt(devices).await.expect("opened").array;
                assert_eq!((array.layout().members(), array.is_growing()), (after, false));
                self.judge.check(&array, &format!("{:?} without {lost}", self.shape)).await;
                let size = array.geometry().size_bytes as usize;
                assert!(size > self.judge.allowed.borrow().len() * 512);
                read(&array, 0, size).await.expect("all of it can be read");
            });
            members.iter().zip(&images).for_each(|(member, image)| member.poke(0, image));
        }
    }
}

/// Cuts a life after ever more operations, until it is over before the cut; says how many it were.
fn sweep(shape: Shape, stride: u64) -> u64 {
    let mut cuts = 0;
    for cut_after in (stride % 7..).step_by(stride as usize) {
        let story = Story::new(shape);
        let fate = Fate { seed: cut_after, steps: 30, ..Fate::default() };
        match story.live(&story.all(), Fate { cut_after: Some(cut_after), ..fate }) {
            Ended::Cut => cuts += 1,
            Ended::Finished(end) => {
                assert_eq!(end, Ok(ArrayState::Optimal));
                break;
            }
        }
        let end = story.live_to_the_end(&story.all(), Fate { steps: 10, ..fate });
        assert_eq!(end, Ok(ArrayState::Optimal), "{shape:?}, cut after {cut_after}");
        if cut_after % 5 == 0 {
            story.check_redundancy();
        }
    }
    cuts
}

#[test]
fn wherever_the_power_is_cut_the_array_has_what_it_promised_and_grows_on() {
    for (shape, stride) in SHAPES.into_iter().zip([5, 29, 7, 17, 37]) {
        let cuts = sweep(shape, stride);
        assert!(cuts > 20, "{shape:?}: {cuts} cuts");
    }
}

#[test]
fn however_often_the_power_is_cut_while_it_grows_nothing_is_lost() {
    let mut cuts = 0;
    for seed in 0..80 {
        let mut random = Random::new(seed);
        let story = Story::new(*random.pick(&SHAPES));
        for life in 0..1 + random.below(5) {
            let cut_after = Some(random.below(1200));
            let (seed, steps) = (seed + life, random.below(60));
            let fate = Fate { seed, cut_after, steps, ..Fate::default() };
            cuts += u64::from(story.live(&story.all(), fate).was_cut());
        }
        let end = story.live_to_the_end(&story.all(), Fate { seed, steps: 10, ..Fate::default() });
        assert_eq!(end, Ok(ArrayState::Optimal), "seed {seed}");
        story.check_redundancy();
    }
    assert!(cuts > 120, "{cuts} cuts");
}

#[test]
fn checksums_of_the_former_shape_speak_against_nothing_wherever_the_power_is_cut() {
    let mut cuts = 0;
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let shapes: Vec<Shape> = SHAPES.into_iter().filter(|it| it.0 != Level::Raid0).collect();
        let story = Story::with(*random.pick(&shapes), Integrity::Region);
        let former: Vec<usize> = (0..story.shape.1).collect();
        story.fill(seed);
        story.sign(&former);
        for life in 0..random.below(4) {
            let cut_after = Some(random.below(900));
            let (seed, steps) = (seed + life, random.below(30));
            let fate = Fate { seed, cut_after, steps, ..Fate::default() };
            cuts += u64::from(story.live(&story.all(), fate).was_cut());
        }
        let end = story.live_to_the_end(&story.all(), Fate { seed, steps: 10, ..Fate::default() });
        assert_eq!(end, Ok(ArrayState::Optimal), "seed {seed}");
        story.sign(&story.all());
        story.sign(&story.all());
        story.check_redundancy();
    }
    assert!(cuts > 50, "{cuts} cuts");
}

/// How lives ended in which a member was lost.
#[derive(Debug, Default)]
struct Tally {
    cut: u32,
    degraded: u32,
}

/// No writes meanwhile: where clients do, what a cut tears in a degraded array refuses the start,
/// growing or not.
fn lose_a_member(seed: u64, tally: &mut Tally) {
    let mut random = Random::new(seed);
    let shapes: Vec<Shape> = SHAPES.into_iter().filter(|it| it.0 != Level::Raid0).collect();
    let story = Story::new(*random.pick(&shapes));
    story.fill(seed);
    let mut present = story.all();
    let victim = random.below(present.len() as u64) as usize;
    story.begin();
    for life in 0..1 + random.below(4) {
        let failing = (life == 0).then(|| (victim, random.below(60)));
        if life == 1 {
            present.retain(|index| *index != victim);
        }
        let cut_after = Some(random.below(800));
        match story.live(&present, Fate { seed: seed + life, cut_after, steps: 0, failing }) {
            Ended::Cut => tally.cut += 1,
            Ended::Finished(end) => {
                let end = end.unwrap_or_else(|error| panic!("{:?}, {seed}: {error}", story.shape));
                tally.degraded += u32::from(end == ArrayState::Degraded);
            }
        }
    }
    present.retain(|index| *index != victim);
    let end = story.live_to_the_end(&present, Fate { seed, ..Fate::default() });
    assert_eq!(end, Ok(ArrayState::Degraded), "{:?}, seed {seed}", story.shape);
}

#[test]
fn a_member_that_is_lost_between_the_cuts_costs_nothing_either() {
    let mut tally = Tally::default();
    for seed in 0..250 {
        lose_a_member(seed, &mut tally);
    }
    assert!(tally.cut > 200 && tally.degraded > 50, "{tally:?}");
}
