//! The whole stack under power cuts at every device operation, judged by the witness.
//!
//! 1. A volume works through a short workload until the power goes; disks tear and reorder what was
//!    not flushed.
//! 2. It is opened again (and perhaps cut again while it recovers), judged and stopped.
//! 3. It is opened with a member missing and judged once more: what the parity gives back must be
//!    right too.

use crate::support::{CREATE, careful, description};
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule, WindowDevice};
use headpond_block::{BlockDevice, DeviceName, Geometry, RequestKind, Runtime, Stability};
use headpond_cache::Mode;
use headpond_raid::AssembleError;
use headpond_sim::{Ended, Medium, OperationTime, Power, Random, Sim, SimDisk, run_until_cut};
use headpond_volume::{Devices, OpenError, StopError, Volume};
use headpond_witness::{Client, Tally, Verdict, Witness, Workload};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

const MEMBERS: usize = 3;
/// So many that a short write patches the parity where nothing says that it may be torn.
const WIDE_MEMBERS: usize = 6;
const CACHE_BYTES_PER_SLICE: u64 = 12 << 20;
/// A volume of 12 MiB: extents of 4 MiB go to the slices in turn.
const MEMBER_BYTES: u64 = (1 << 20) + (6 << 20);
/// The workload's window, which lies across the border between two slices.
const WINDOW_BYTES: u64 = 256 << 10;
const WINDOW_START: u64 = (4 << 20) - WINDOW_BYTES / 2;

const BUSY: Workload = Workload {
    requests: 70,
    depth: 6,
    blocks: WINDOW_BYTES / 4096,
    blocks_max: 10,
    read_percent: 15,
    flush_percent: 10,
    discard_percent: 4,
    fua_percent: 20,
    sector_percent: 20,
    ..Workload::BUSY
};
/// Past the cache a disk may put an older part of a block over a newer whole.
const BUSY_WHOLE_BLOCKS: Workload = Workload { sector_percent: 0, ..BUSY };

struct Machine {
    cache: Rc<Medium>,
    members: Vec<Rc<Medium>>,
    power: Power,
    witness: Rc<RefCell<Witness>>,
    slices: u16,
}

/// Which devices a life finds and what it does.
#[derive(Clone, Copy)]
struct Life {
    mode: Mode,
    seed: u64,
    missing: Option<usize>,
    workload: Option<Workload>,
}

#[derive(Debug)]
struct Lived {
    verdict: Result<(), Box<Verdict>>,
    tally: Tally,
}

impl Machine {
    fn new(slices: u16, members: usize, seed: u64) -> Self {
        let geometry = Geometry {
            stability: Stability::Flushable,
            ..Geometry::of_size(CACHE_BYTES_PER_SLICE * u64::from(slices) + (2 << 20))
        };
        let member = |index: usize| {
            let name = DeviceName::new(format!("m{index}"));
            Rc::new(Medium::flushable(name, MEMBER_BYTES).with_atoms(4096))
        };
        let machine = Self {
            cache: Rc::new(Medium::new("cache", geometry)),
            members: (0..members).map(member).collect(),
            power: Power::on(),
            witness: Rc::new(RefCell::new(Witness::new(WINDOW_BYTES, seed))),
            slices,
        };
        let main = async |runtime, sim| {
            let devices = machine.devices(&runtime, &sim, seed, None);
            let description = description(Mode::WriteBack, slices);
            Volume::create(&description, &devices, &CREATE).await.expect("created");
        };
        assert!(!run_until_cut(seed, &machine.power, main).expect("no deadlock").was_cut());
        machine
    }

    /// The members in an order that depends on the seed, except while the volume is created.
    fn devices(&self, runtime: &Runtime, sim: &Sim, seed: u64, missing: Option<usize>) -> Devices {
        let disk = |medium: &Rc<Medium>| -> Rc<dyn BlockDevice> {
            let (medium, time) = (Rc::clone(medium), OperationTime::SOME);
            Rc::new(SimDisk::attach(medium, &self.power, runtime, sim, time))
        };
        let present = self.members.iter().enumerate().filter(|(index, _)| Some(*index) != missing);
        let mut members: Vec<_> = present.map(|(_, medium)| disk(medium)).collect();
        Random::new(seed).shuffle(&mut members);
        Devices {
            tier: None,
            cache: Some(disk(&self.cache)),
            members,
            journals: Vec::new(),
            absent: Vec::new(),
            changed: Vec::new(),
            copies: Vec::new(),
        }
    }

    /// Opens, checks everything, works, cleans meanwhile, checks again and stops.
    fn live(&self, life: Life) -> Ended<Lived> {
        let main = async |runtime: Runtime, sim: Sim| {
            let (volume, client) = self.open(&runtime, &sim, life).await;
            let verdict = work(&volume, &client, &runtime, life).await;
            volume.self_check();
            volume.stop().await.expect("stops");
            Lived { verdict, tally: client.tally() }
        };
        run_until_cut(life.seed, &self.power, main).expect("no deadlock")
    }

    /// Opens and does what `then` says, nothing before and nothing after.
    fn live_and_let<F: Future<Output = ()>>(
        &self,
        life: Life,
        then: impl FnOnce(Rc<Volume>, Client, Runtime) -> F,
    ) {
        let main = async |runtime: Runtime, sim: Sim| {
            let (volume, client) = self.open(&runtime, &sim, life).await;
            then(volume, client, runtime).await;
        };
        let ended = run_until_cut(life.seed, &self.power, main).expect("no deadlock");
        assert!(!ended.was_cut());
    }

    async fn open(&self, runtime: &Runtime, sim: &Sim, life: Life) -> (Rc<Volume>, Client) {
        let devices = self.devices(runtime, sim, life.seed, life.missing);
        let description = description(life.mode, self.slices);
        let opening = Volume::open(runtime, &description, devices, careful());
        let volume = Rc::new(opening.await.expect("opens after any cut"));
        let whole: Rc<dyn BlockDevice> = volume.clone();
        let window = Rc::new(WindowDevice::new(whole, WINDOW_START, WINDOW_BYTES));
        let client = Client::new(window, Rc::clone(&self.witness), runtime);
        (volume, client)
    }

    fn crash(&self, seed: u64) {
        self.power.come_back([&self.cache].into_iter().chain(&self.members), seed);
        self.witness.borrow_mut().crash();
    }

    /// The members' bytes of every stripe that the window touches sum to zero.
    fn check_parity(&self, context: &str) {
        let data_members = self.members.len() as u64 - 1;
        let start = (1 << 20) + WINDOW_START / data_members;
        let len = (WINDOW_BYTES / data_members) as usize;
        let mut sum = vec![0; len];
        for member in &self.members {
            let bytes = member.peek(start, len);
            sum.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte);
        }
        let wrong = sum.iter().position(|byte| *byte != 0);
        assert_eq!(wrong, None, "{context}: first byte of a stripe with wrong parity");
    }
}

async fn work(
    volume: &Rc<Volume>,
    client: &Client,
    runtime: &Runtime,
    life: Life,
) -> Result<(), Box<Verdict>> {
    client.check_all().await?;
    let Some(workload) = life.workload else { return Ok(()) };
    let is_over = Rc::new(Cell::new(false));
    let cleaner = {
        let (volume, is_over, runtime) = (Rc::clone(volume), is_over.clone(), runtime.clone());
        runtime.clone().spawn(async move {
            while !is_over.get() {
                runtime.sleep(Duration::from_millis(6)).await;
                volume.clean_all().await.expect("healthy disks take what is dirty");
            }
        })
    };
    let verdict = client.run(&workload, life.seed).await;
    is_over.set(true);
    cleaner.await;
    verdict?;
    volume.self_check();
    client.check_all().await
}

fn judge(ended: &Ended<Lived>, context: &str) {
    let Ended::Finished(lived) = ended else { return };
    if let Err(verdict) = &lived.verdict {
        panic!("{context}: {verdict}");
    }
    let failures = lived.tally.failed_reads + lived.tally.failed_others;
    assert_eq!(failures, 0, "{context}: requests failed on healthy disks");
}

#[derive(Clone, Copy)]
struct Sweep {
    mode: Mode,
    slices: u16,
    workload: Workload,
    seed: u64,
    step: usize,
}

impl Sweep {
    fn run(self) {
        let mut cuts = 0;
        for at in (0..).step_by(self.step) {
            if !self.cut(at) {
                break;
            }
            cuts += 1;
        }
        assert!(cuts > 10, "the sweep cut only {cuts} times");
    }

    /// One machine, cut after `at` operations; false where it was done before.
    fn cut(self, at: u64) -> bool {
        let Self { mode, seed, .. } = self;
        let context = format!("{mode:?}, {} slices, seed {seed}, cut {at}", self.slices);
        let machine = Machine::new(self.slices, MEMBERS, seed);
        let life = Life { mode, seed, missing: None, workload: Some(self.workload) };
        machine.power.cut_after(at);
        let first = machine.live(life);
        judge(&first, &context);
        machine.crash(seed + at);
        // Every second recovery is cut as well.
        let recovery = Life { seed: seed + at + 1, workload: None, ..life };
        if at % 2 == 1 {
            machine.power.cut_after(at * 7 % 90);
            judge(&machine.live(recovery), &context);
            machine.crash(seed + at + 2);
        }
        let recovered = machine.live(recovery);
        judge(&recovered, &format!("{context}, recovered"));
        assert!(!recovered.was_cut());
        machine.check_parity(&context);
        self.fail_a_member(&machine, at, &context);
        first.was_cut()
    }

    /// What was never in danger stays dirty over the stop; the rest is there without one member.
    fn fail_a_member(self, machine: &Machine, at: u64, context: &str) {
        let missing = Some((at % MEMBERS as u64) as usize);
        let seed = self.seed + at + 3;
        // Past the cache: only what is dirty is read from there.
        let life = Life { mode: Mode::PassThrough, seed, missing, workload: None };
        judge(&machine.live(life), &format!("{context}, without {missing:?}"));
    }
}

#[test]
fn write_back_keeps_its_promises_at_every_cut() {
    let (mode, workload) = (Mode::WriteBack, BUSY);
    Sweep { mode, slices: 1, workload, seed: 1, step: 1 }.run();
}

#[test]
fn write_back_over_two_slices_keeps_its_promises_at_every_cut() {
    let (mode, workload) = (Mode::WriteBack, BUSY);
    Sweep { mode, slices: 2, workload, seed: 2, step: 7 }.run();
}

#[test]
fn write_through_keeps_its_promises_at_every_cut() {
    let (mode, workload) = (Mode::WriteThrough, BUSY_WHOLE_BLOCKS);
    Sweep { mode, slices: 1, workload, seed: 3, step: 7 }.run();
    Sweep { mode, slices: 2, workload, seed: 4, step: 13 }.run();
}

#[test]
fn pass_through_with_the_intent_bitmap_keeps_its_promises_at_every_cut() {
    let (mode, workload) = (Mode::PassThrough, BUSY_WHOLE_BLOCKS);
    Sweep { mode, slices: 1, workload, seed: 5, step: 7 }.run();
    Sweep { mode, slices: 2, workload, seed: 6, step: 13 }.run();
}

/// Machines whose power went in the thick of writing and cleaning, the life that comes after, and
/// where the cut was.
fn cut_machines(mode: Mode, seed: u64) -> impl Iterator<Item = (Machine, Life, u64)> {
    let after_a_cut = move |at| {
        let machine = Machine::new(1, WIDE_MEMBERS, seed);
        let life = Life { mode: Mode::WriteBack, seed, missing: None, workload: Some(BUSY) };
        machine.power.cut_after(at);
        let was_cut = machine.live(life).was_cut();
        machine.crash(seed + at);
        let next = Life { mode, seed: seed + at, workload: None, ..life };
        was_cut.then_some((machine, next, at))
    };
    (20..).step_by(7).map_while(after_a_cut)
}

#[test]
fn parity_is_right_soon_after_a_cut_though_nobody_asks() {
    let mut replayed = 0;
    for (machine, life, at) in cut_machines(Mode::WriteBack, 7) {
        let before = Cell::new(0);
        machine.live_and_let(life, async |volume, _client, runtime| {
            let owed = || volume.status().cache.expect("a cache").replayed_blocks;
            before.set(owed());
            runtime.sleep(Duration::from_secs(1)).await;
            assert_eq!(owed(), 0, "cut {at}");
        });
        replayed += before.get();
        machine.check_parity(&format!("cut {at}, a second later"));
    }
    assert!(replayed > 100, "{replayed} blocks in all were to be cleaned");
}

#[test]
fn writes_past_the_cache_right_after_a_cut_leave_no_torn_parity() {
    for (mode, seed) in [(Mode::PassThrough, 8), (Mode::WriteThrough, 9)] {
        for (machine, life, at) in cut_machines(mode, seed) {
            let context = format!("{mode:?}, seed {seed}, cut {at}");
            machine.live_and_let(life, async |volume, client, _| {
                let written = client.run(&Workload { requests: 30, ..BUSY_WHOLE_BLOCKS }, at).await;
                written.unwrap_or_else(|verdict| panic!("{context}: {verdict}"));
                let judged = client.check_all().await;
                judged.unwrap_or_else(|verdict| panic!("{context}: {verdict}"));
                volume.self_check();
                volume.stop().await.expect("stops");
            });
            machine.check_parity(&context);
        }
    }
}

/// What a lost member held comes from parity that may be torn: no guess is made unless it is asked
/// for.
#[test]
fn replayed_blocks_that_only_torn_parity_could_complete_stay_and_are_counted() {
    let mut kept = 0;
    for (machine, life, at) in cut_machines(Mode::WriteBack, 10).step_by(3) {
        let left = Cell::new(0);
        let main = async |runtime: Runtime, sim: Sim| {
            let mut devices = machine.devices(&runtime, &sim, life.seed, None);
            let control = FaultControl::default();
            let member = Rc::clone(&devices.members[0]);
            devices.members[0] =
                Rc::new(FaultDevice::new(member, control.clone(), runtime.clone()));
            let description = description(life.mode, 1);
            let volume = Volume::open(&runtime, &description, devices, careful()).await.unwrap();
            control.add(FaultRule { kind: None, ..FaultRule::on(RequestKind::Read, Fault::Gone) });
            runtime.sleep(Duration::from_secs(2)).await;
            left.set(volume.status().cache.expect("a cache").replayed_blocks);
            let stopped = volume.stop().await;
            let is_refused = matches!(stopped, Err(StopError::Parity(_)));
            assert_eq!(is_refused, left.get() > 0, "cut {at}: {stopped:?}");
        };
        assert!(!run_until_cut(at, &machine.power, main).expect("no deadlock").was_cut());
        kept += left.get();
    }
    assert!(kept > 0, "no block needed the lost member");
}

/// Whatever the log has not yet written again by then: what only torn parity could tell of the lost
/// member is an error, and everything that is read is right.
#[test]
fn a_member_that_is_lost_right_after_a_cut_costs_errors_at_most_and_shows_nothing_wrong() {
    let (mut suspect, mut failed) = (0, 0);
    for (machine, life, at) in cut_machines(Mode::WriteBack, 11) {
        let main = async |runtime: Runtime, sim: Sim| {
            let mut devices = machine.devices(&runtime, &sim, life.seed, None);
            let control = FaultControl::default();
            let lost = at as usize % WIDE_MEMBERS;
            let member = Rc::clone(&devices.members[lost]);
            devices.members[lost] =
                Rc::new(FaultDevice::new(member, control.clone(), runtime.clone()));
            let description = description(life.mode, 1);
            let volume = Volume::open(&runtime, &description, devices, careful()).await.unwrap();
            let volume = Rc::new(volume);
            control.add(FaultRule { kind: None, ..FaultRule::on(RequestKind::Read, Fault::Gone) });
            let window = WindowDevice::new(volume.clone(), WINDOW_START, WINDOW_BYTES);
            let client = Client::new(Rc::new(window), Rc::clone(&machine.witness), &runtime);
            let judged = client.check_all().await;
            judged.unwrap_or_else(|verdict| panic!("cut {at}: {verdict}"));
            (volume.status().array.suspect_parity_blocks, client.tally().failed_reads)
        };
        let ended = run_until_cut(at, &machine.power, main).expect("no deadlock");
        let Ended::Finished((blocks, reads)) = ended else { panic!("nobody cut the power") };
        suspect += blocks;
        failed += reads;
    }
    assert!(suspect > 20, "{suspect} blocks beside parity that may be torn");
    assert!(failed > 0, "nothing depended on the parity");
}

/// Found by sweeps: both cuts fall on the superblocks of the array, and a member that had missed no
/// more than the others was left out.
#[test]
fn two_lives_cut_at_their_superblocks_cost_no_member() {
    for seed in [102, 118, 128] {
        let (mode, workload) = (Mode::WriteBack, BUSY);
        Sweep { mode, slices: 2, workload, seed, step: 13 }.cut(143);
    }
}

/// The swarm, seed 82002825: the log spoke of a write-through that had not begun at the array, its
/// parity was to be recomputed without the member, and the volume did not start.
#[test]
fn degraded_volume_cut_while_it_writes_through_starts_or_says_that_parity_may_be_torn() {
    let (started, refused) = (Cell::new(0), Cell::new(0));
    let workload = Some(Workload { requests: 12, flush_percent: 0, ..BUSY_WHOLE_BLOCKS });
    for at in 0..160 {
        let machine = Machine::new(1, WIDE_MEMBERS, at);
        let life = Life { mode: Mode::WriteThrough, seed: at, missing: Some(0), workload };
        machine.power.cut_after(at);
        machine.live(life);
        machine.crash(at);
        let main = async |runtime: Runtime, sim: Sim| {
            let devices = machine.devices(&runtime, &sim, at, Some(0));
            let description = description(life.mode, 1);
            match Volume::open(&runtime, &description, devices, careful()).await {
                Ok(volume) => {
                    let volume = Rc::new(volume);
                    let window = WindowDevice::new(volume.clone(), WINDOW_START, WINDOW_BYTES);
                    let client =
                        Client::new(Rc::new(window), Rc::clone(&machine.witness), &runtime);
                    client.check_all().await.unwrap_or_else(|told| panic!("cut {at}: {told}"));
                    volume.self_check();
                    started.set(started.get() + 1);
                }
                Err(OpenError::Array(AssembleError::DegradedAndUnclean { .. })) => {
                    refused.set(refused.get() + 1);
                }
                Err(error) => panic!("cut {at}: {error}"),
            }
        };
        assert!(!run_until_cut(at, &machine.power, main).expect("no deadlock").was_cut());
    }
    assert!(started.get() > 5 && refused.get() > 5, "{started:?} {refused:?}");
}
