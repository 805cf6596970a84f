//! A copy of the cache leaves, and the power goes at any device operation from there on: whoever
//! starts the volume with one copy, with the other, or with both, finds what was promised, or a
//! refusal.

use crate::support::{CREATE, careful, description};
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::{BlockDevice, Geometry, RequestKind, Runtime, Stability};
use headpond_cache::{CleaningConfig, CleaningPolicy, Mode};
use headpond_raid::ArrayState;
use headpond_sim::{Ended, Medium, OperationTime, Power, Sim, SimDisk, run_until_cut};
use headpond_volume::{
    CACHE_COPIES, Description, Devices, Dirty, MirrorDescription, OpenOptions, ReturningMember,
    Tolerance, Volume,
};
use headpond_witness::{Client, Witness, Workload};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

const COPY_BYTES: u64 = 16 << 20;
const MEMBER_BYTES: u64 = (1 << 20) + (6 << 20);
const WINDOW_BYTES: u64 = 128 << 10;
const BOTH: [usize; 2] = [0, 1];
/// Which copy leaves.
const LOST: usize = 1;
const LEFT: usize = 0;

const FEW: Workload = Workload {
    requests: 30,
    depth: 3,
    blocks: WINDOW_BYTES / 4096,
    blocks_max: 4,
    read_percent: 0,
    flush_percent: 20,
    discard_percent: 0,
    fua_percent: 20,
    sector_percent: 0,
    ..Workload::BUSY
};

struct Machine {
    copies: [Rc<Medium>; 2],
    members: Vec<Rc<Medium>>,
    power: Power,
    witness: Rc<RefCell<Witness>>,
}

/// What a life does once the volume is open.
#[derive(Clone, Copy)]
enum Job {
    /// A little work with both copies, and some more with the one that is left.
    LoseOne,
    /// The same; then that one comes back, and is given everything beside more work.
    TakeBack,
    /// A copy that nobody has noticed is lost when the cache is detached, under load.
    Detach,
    /// Everything is looked at, and some of it written.
    CheckAndWrite,
}

fn mirrored() -> Description {
    let mut description = description(Mode::WriteBack, 1);
    let cache = description.cache.as_mut().expect("a cache");
    cache.settings.cleaning = CleaningConfig { policy: CleaningPolicy::Nop, ..Default::default() };
    let (uuid, copies) = (Uuid::from_u128(0xc0b1e5), vec!["copy1".into()]);
    cache.device = "copy0".into();
    cache.mirror = Some(MirrorDescription { uuid, copies, spares: Vec::new() });
    description
}

impl Machine {
    fn new() -> Self {
        let copy = |name: &str| {
            let geometry = Geometry::of_size(COPY_BYTES);
            Rc::new(Medium::new(name, Geometry { stability: Stability::Flushable, ..geometry }))
        };
        let member = |name: &str| Rc::new(Medium::flushable(name, MEMBER_BYTES).with_atoms(4096));
        let machine = Self {
            copies: ["copy0", "copy1"].map(copy),
            members: ["m0", "m1", "m2"].map(member).into(),
            power: Power::on(),
            witness: Rc::new(RefCell::new(Witness::new(WINDOW_BYTES, 5))),
        };
        let main = async |runtime, sim| {
            let devices = machine.devices(&BOTH, &FaultControl::default(), &runtime, &sim);
            Volume::create(&mirrored(), &devices, &CREATE).await.expect("created");
        };
        assert!(!run_until_cut(1, &machine.power, main).expect("no deadlock").was_cut());
        machine
    }

    /// The same disks once more, and what is known of them.
    fn duplicate(&self) -> Self {
        let copy = |medium: &Rc<Medium>| Rc::new(medium.duplicate());
        Self {
            copies: self.copies.each_ref().map(copy),
            members: self.members.iter().map(copy).collect(),
            power: Power::on(),
            witness: Rc::new(RefCell::new(self.witness.borrow().clone())),
        }
    }

    fn disk(&self, medium: &Rc<Medium>, runtime: &Runtime, sim: &Sim) -> Rc<dyn BlockDevice> {
        let (medium, time) = (Rc::clone(medium), OperationTime::SOME);
        Rc::new(SimDisk::attach(medium, &self.power, runtime, sim, time))
    }

    fn devices(
        &self,
        present: &[usize],
        loss: &FaultControl,
        runtime: &Runtime,
        sim: &Sim,
    ) -> Devices {
        let disk = |medium: &Rc<Medium>| self.disk(medium, runtime, sim);
        let copy = |index: &usize| -> Rc<dyn BlockDevice> {
            let control = if *index == LOST { loss.clone() } else { FaultControl::default() };
            Rc::new(FaultDevice::new(disk(&self.copies[*index]), control, runtime.clone()))
        };
        Devices {
            copies: present.iter().map(copy).collect(),
            members: self.members.iter().map(disk).collect(),
            ..Devices::default()
        }
    }

    /// Where it is not cut: whether the volume opened, and at which operation what matters began.
    fn live(&self, present: &[usize], job: Job) -> Ended<(bool, u64)> {
        let begun = Cell::new(0);
        let main = async |runtime: Runtime, sim: Sim| {
            let loss = FaultControl::default();
            let devices = self.devices(present, &loss, &runtime, &sim);
            let opened = Volume::open(&runtime, &mirrored(), devices, careful()).await;
            let volume = match opened {
                Ok(volume) => Rc::new(volume),
                Err(error) => {
                    assert!(error.is_refusal(), "{error}");
                    return (false, 0);
                }
            };
            let client = Client::new(volume.clone(), Rc::clone(&self.witness), &runtime);
            client.check_all().await.unwrap_or_else(|wrong| panic!("{present:?}: {wrong:?}"));
            volume.self_check();
            client.run(&FEW, 7).await.expect("works");
            if matches!(job, Job::Detach) {
                // It has nothing to write before it is left.
                volume.clean_all().await.expect("the array takes it");
            }
            begun.set(self.power.operations());
            if !matches!(job, Job::CheckAndWrite) {
                let gone = FaultRule::on(RequestKind::Read, Fault::Gone);
                loss.add(FaultRule { kind: None, ..gone });
            }
            if matches!(job, Job::Detach) {
                detach(&volume, &client, &runtime).await;
            }
            if matches!(job, Job::LoseOne | Job::TakeBack) {
                client.run(&FEW, 8).await.expect("goes on with the other");
            }
            if matches!(job, Job::TakeBack) {
                begun.set(self.power.operations());
                let device = self.disk(&self.copies[LOST], &runtime, &sim);
                take_back(&volume, &client, device).await;
            }
            (true, begun.get())
        };
        run_until_cut(3, &self.power, main).expect("no deadlock")
    }

    /// By force, and whatever copies are there: none of them is used.
    fn go_on_without_cache(&self, present: &[usize]) {
        let main = async |runtime: Runtime, sim: Sim| {
            let devices = self.devices(present, &FaultControl::default(), &runtime, &sim);
            let devices = Devices { absent: vec!["the cache".into()], ..devices };
            let forced = OpenOptions { tolerance: Tolerance::Forced, ..careful() };
            let volume = Volume::open(&runtime, &mirrored(), devices, forced).await;
            let volume = volume.expect("opens without its cache");
            assert!(volume.status().cache.is_none(), "{present:?}");
        };
        assert!(!run_until_cut(3, &self.power, main).expect("no deadlock").was_cut());
    }

    fn crash(&self, seed: u64) {
        self.power.come_back(self.copies.iter().chain(&self.members), seed);
        self.witness.borrow_mut().crash();
    }

    /// Whether the volume opens with these copies; what it then shows is right.
    fn opens(&self, present: &[usize]) -> bool {
        match self.live(present, Job::CheckAndWrite) {
            Ended::Finished((opened, _)) => opened,
            Ended::Cut => panic!("nobody cut the power"),
        }
    }
}

/// Clients are there as soon as there is no cache.
async fn detach(volume: &Rc<Volume>, client: &Client, runtime: &Runtime) {
    let detaching = {
        let volume = Rc::clone(volume);
        runtime.spawn(async move { volume.detach(Dirty::Clean).await })
    };
    while volume.status().cache.is_some() {
        runtime.sleep(Duration::from_micros(1)).await;
    }
    client.run(&FEW, 8).await.expect("goes past it");
    detaching.await.expect("detached");
}

async fn take_back(volume: &Volume, client: &Client, device: Rc<dyn BlockDevice>) {
    let returning = ReturningMember { word: "copy1".into(), device, uuid: Uuid::from_u128(7) };
    volume.re_add_member(Some(CACHE_COPIES), returning).await.expect("comes back");
    let is_whole = || {
        let mirror = volume.status().cache.expect("a cache").mirror.expect("copies");
        mirror.array.state == ArrayState::Optimal
    };
    let mut rounds = 9;
    while !is_whole() {
        client.run(&FEW, rounds).await.expect("works beside it");
        rounds += 1;
        assert!(rounds < 1000, "it never holds everything");
    }
    client.run(&FEW, rounds).await.expect("works with both");
}

/// Cuts a life at operations from where what matters begins, and starts what is left in every way;
/// how often each copy started alone, and of how many times.
fn sweep(job: Job, cuts: impl Fn(Range<u64>) -> Vec<u64>) -> ([u64; 2], u64) {
    let before = Machine::new();
    let whole = before.duplicate();
    let Ended::Finished((true, first)) = whole.live(&BOTH, job) else {
        panic!("nobody cut the power");
    };
    let last = whole.power.operations();
    assert!(last > first + 30, "from {first} to {last}");
    let (mut alone, mut times) = ([0, 0], 0);
    for cut_after in cuts(first..last) {
        times += 1;
        let machine = before.duplicate();
        machine.power.cut_after(cut_after);
        assert!(machine.live(&BOTH, job).was_cut(), "cut after {cut_after}");
        machine.crash(cut_after);
        assert!(machine.duplicate().opens(&BOTH), "cut after {cut_after}");
        let started = machine.duplicate();
        started.go_on_without_cache(&[]);
        BOTH.into_iter().for_each(|only| started.go_on_without_cache(&[only]));
        for only in BOTH {
            let started = machine.duplicate();
            let opened = started.opens(&[only]);
            assert!(opened || only == LOST, "cut after {cut_after}");
            alone[only] += u64::from(opened);
            started.crash(cut_after);
            // The other one has missed what was written since.
            assert!(!opened || !started.opens(&[1 - only]), "cut after {cut_after}");
        }
    }
    (alone, times)
}

#[test]
fn whichever_copy_starts_after_a_cut_beside_a_loss_has_what_was_promised_or_is_refused() {
    let (alone, times) = sweep(Job::LoseOne, |range| range.collect());
    assert_eq!(alone[LEFT], times);
    assert!(alone[LOST] > 0, "before a write was acknowledged without it");
    assert!(alone[LOST] < times, "and no more after one was");
}

/// What the copies say of the one that is lost is not to make a cache fit that clients write past.
#[test]
fn whichever_copy_starts_after_a_cut_in_a_detach_beside_a_loss_shows_nothing_old() {
    let before = Machine::new();
    let whole = before.duplicate();
    let Ended::Finished((true, first)) = whole.live(&BOTH, Job::Detach) else {
        panic!("nobody cut the power");
    };
    for cut_after in first..whole.power.operations() {
        let machine = before.duplicate();
        machine.power.cut_after(cut_after);
        assert!(machine.live(&BOTH, Job::Detach).was_cut(), "cut after {cut_after}");
        machine.crash(cut_after);
        assert!(machine.duplicate().opens(&BOTH), "cut after {cut_after}");
        for only in BOTH {
            machine.duplicate().opens(&[only]);
        }
    }
}

#[test]
fn whichever_copy_starts_after_a_cut_beside_a_return_has_what_was_promised_or_is_refused() {
    // A few while it is filled, and most when that ends.
    let (alone, times) = sweep(Job::TakeBack, |range| {
        let end = range.end - 120..range.end;
        range.step_by(701).chain(end.step_by(11)).collect()
    });
    assert_eq!(alone[LEFT], times);
    assert!(alone[LOST] > 0, "once it had everything");
    assert!(alone[LOST] < times, "and not before");
}
