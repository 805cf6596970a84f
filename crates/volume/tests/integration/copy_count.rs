//! A RAID 1 of a served volume that is given more copies, and gives some up: under load, and with
//! the power cut at any device operation, judged by the witness.
//!
//! 1. A volume of two copies is asked for a third one in the thick of writing, and when that holds
//!    everything to give up the first one, until the power goes; 2. it is opened again as its
//!    description was kept, and goes on to the end; 3. each of its copies is looked at alone: it
//!    has all that was promised.

use crate::support::lives;
use crate::support::lives::pool;
use crate::support::{CREATE, careful, description};
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::{BlockDevice, RequestKind, Runtime};
use headpond_cache::Mode;
use headpond_raid::{
    ArrayState, GrowError, Inspection, Level, MemberError, Occupied, WhichCopy, inspect,
};
use headpond_sim::{Ended, Medium, Power, Sim};
use headpond_volume::{
    BackgroundRate, ChangeMembersError, CoreDescription, Description, Devices, GrowBy, LeavingCopy,
    NewMember, Size, Volume,
};
use headpond_witness::{Client, Witness, Workload};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

const MEMBER_BYTES: u64 = (1 << 20) + (1 << 20);
const SIZE: u64 = 1 << 20;
const FIRST: &str = "m0";
const BUSY: Workload = Workload {
    requests: 40,
    depth: 4,
    blocks: SIZE / 4096,
    blocks_max: 6,
    read_percent: 20,
    flush_percent: 15,
    ..Workload::BUSY
};

struct Machine {
    members: Vec<Rc<Medium>>,
    power: Power,
    witness: Rc<RefCell<Witness>>,
    kept: Rc<RefCell<Description>>,
    /// The program ends instead of keeping that this device is listed no more.
    ends_unkept: Cell<Option<&'static str>>,
}

fn mirrored() -> Description {
    let usual = description(Mode::PassThrough, 1);
    let members = ["m0", "m1"].map(String::from).into();
    let core = CoreDescription { raid: Level::Raid1, groups: 1, members, ..usual.core };
    Description { cache: None, core, ..usual }
}

impl Machine {
    fn new(seed: u64) -> Self {
        let member = |index: usize| {
            Rc::new(Medium::flushable(&*format!("m{index}"), MEMBER_BYTES).with_atoms(4096))
        };
        let machine = Self {
            members: (0..3).map(member).collect(),
            power: Power::on(),
            witness: Rc::new(RefCell::new(Witness::new(SIZE, seed))),
            kept: Rc::new(RefCell::new(mirrored())),
            ends_unkept: Cell::new(None),
        };
        machine.live_to_the_end(seed, async |runtime, sim| {
            let members = machine.disks(&runtime, &sim)[..2].to_vec();
            let devices = Devices { members, ..Devices::default() };
            Volume::create(&mirrored(), &devices, &CREATE).await.expect("created");
        });
        machine
    }

    fn live(&self, seed: u64, main: impl AsyncFnOnce(Runtime, Sim)) -> Ended<()> {
        lives::live(seed, &self.power, main)
    }

    fn live_to_the_end(&self, seed: u64, main: impl AsyncFnOnce(Runtime, Sim)) {
        lives::live_to_the_end(seed, &self.power, main);
    }

    fn disks(&self, runtime: &Runtime, sim: &Sim) -> Vec<Rc<dyn BlockDevice>> {
        lives::disks(&self.members, &self.power, runtime, sim)
    }

    /// From two copies by way of three to two others, with work at every stage.
    fn exchange(&self, seed: u64) -> Ended<()> {
        self.live(seed, async |runtime, sim| {
            let disks = self.disks(&runtime, &sim);
            let volume = self.open_as_kept(&runtime, &disks).await;
            let client = Client::new(volume.clone(), Rc::clone(&self.witness), &runtime);
            client.check_all().await.unwrap_or_else(|verdict| panic!("seed {seed}: {verdict}"));
            let pace = BackgroundRate { min: Size(32 << 20), max: Some(Size(64 << 20)) };
            volume.set_background_rate(None, |_| pace).expect("there is a core");
            let worker = {
                let (witness, volume, clock) =
                    (Rc::clone(&self.witness), volume.clone(), runtime.clone());
                runtime.spawn(async move {
                    let client = Client::new(volume, witness, &clock);
                    client.run(&BUSY, seed).await
                })
            };
            if has_role(&volume, FIRST) {
                let uuid = Uuid::from_u128(0x333 + u128::from(seed));
                add_third(&volume, third(&disks[2], uuid), &runtime).await;
            }
            let label = inspect(&*disks[0]).await.expect("it can be read");
            if lists(&volume, FIRST) || label != Inspection::Empty {
                let device = Rc::clone(&disks[0]);
                let device = Some(device).filter(|_| !volume.has_device(None, FIRST));
                let leaving = LeavingCopy { device, ..on(FIRST) };
                let dropped = volume.drop_copy(None, leaving, pool()).await;
                dropped.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                assert!(!lists(&volume, FIRST));
            }
            let label = inspect(&*disks[0]).await.expect("it can be read");
            assert_eq!(label, Inspection::Empty, "seed {seed}: it is free");
            let worked = worker.await;
            worked.unwrap_or_else(|verdict| panic!("seed {seed}: {verdict}"));
            until_healthy(&volume, &runtime).await;
            assert_eq!(volume.status().array.members.len(), 2);
            client.run(&BUSY, seed + 1).await.unwrap_or_else(|verdict| panic!("{seed}: {verdict}"));
            assert_eq!(client.tally().failed_reads + client.tally().failed_others, 0);
            volume.self_check();
            volume.stop().await.expect("stops");
        })
    }

    async fn open_as_kept(&self, runtime: &Runtime, disks: &[Rc<dyn BlockDevice>]) -> Rc<Volume> {
        let described = self.kept.borrow().clone();
        let named: Vec<&str> = described.members().collect();
        let is_named = |disk: &&Rc<dyn BlockDevice>| named.contains(&disk.name().as_str());
        let members = disks.iter().filter(is_named).cloned().collect();
        let devices = Devices { members, ..Devices::default() };
        let volume = Volume::open(runtime, &described, devices, careful()).await;
        let volume = volume.expect("opens after any cut");
        let ends_unkept = self.ends_unkept.take();
        lives::keep(&volume, &self.kept, &self.power, move |description| {
            ends_unkept.is_some_and(|name| description.members().all(|word| word != name))
        });
        Rc::new(volume)
    }

    /// Looks at one copy alone, with what a program does to it that starts so.
    fn check_alone(&self, index: usize, context: &str) {
        self.members.iter().for_each(|medium| medium.rest());
        let alone = Self {
            members: self.members.iter().map(|it| Rc::new(it.duplicate())).collect(),
            power: Power::on(),
            witness: Rc::new(RefCell::new(self.witness.borrow().clone())),
            kept: Rc::clone(&self.kept),
            ends_unkept: Cell::new(None),
        };
        alone.live_to_the_end(1, async |runtime, sim| {
            let volume = open(&runtime, vec![alone.disks(&runtime, &sim).remove(index)]).await;
            let client = Client::new(volume.clone(), Rc::clone(&alone.witness), &runtime);
            let checked = client.check_all().await;
            checked.unwrap_or_else(|verdict| panic!("{context}, copy {index}: {verdict}"));
            assert_eq!(client.tally().failed_reads, 0, "{context}");
            volume.self_check();
            volume.stop().await.expect("stops");
        });
    }

    fn crash(&self, seed: u64) {
        self.power.come_back(&self.members, seed);
        self.witness.borrow_mut().crash();
    }
}

fn on(device: &str) -> LeavingCopy {
    LeavingCopy { copy: WhichCopy::On(device.into()), device: None }
}

async fn open(runtime: &Runtime, members: Vec<Rc<dyn BlockDevice>>) -> Rc<Volume> {
    let devices = Devices { members, ..Devices::default() };
    let volume = Volume::open(runtime, &mirrored(), devices, careful()).await;
    Rc::new(volume.expect("opens after any cut"))
}

fn lists(volume: &Volume, name: &str) -> bool {
    volume.description().members().any(|word| word == name)
}

fn has_role(volume: &Volume, name: &str) -> bool {
    let members = volume.status().array.members;
    members.iter().any(|member| member.device.as_deref() == Some(name))
}

fn third(disk: &Rc<dyn BlockDevice>, uuid: Uuid) -> NewMember {
    NewMember {
        word: disk.name().to_string(),
        device: Rc::clone(disk),
        uuid,
        occupied: Occupied::Overwrite,
    }
}

/// A cut may have left it a spare, or given it a role.
async fn add_third(volume: &Volume, new: NewMember, runtime: &Runtime) {
    if volume.status().array.members.len() == 2 {
        let by = match volume.is_spare(None, "m2") {
            true => GrowBy::Spare("m2".into()),
            false => GrowBy::New(new),
        };
        volume.grow_array(None, vec![by], pool()).await.expect("nothing speaks against it");
    }
    until_healthy(volume, runtime).await;
}

async fn until_healthy(volume: &Volume, runtime: &Runtime) {
    for _ in 0..20_000 {
        if volume.status().array.state == ArrayState::Optimal {
            return;
        }
        runtime.sleep(Duration::from_millis(1)).await;
    }
    panic!("still at it: {:?}", volume.status());
}

#[test]
fn copies_come_and_go_under_load_and_lose_nothing_wherever_the_power_is_cut() {
    let (mut cuts, mut at) = (0, 3);
    loop {
        let machine = Machine::new(5);
        let context = format!("cut {at}");
        machine.power.cut_after(at);
        let was_cut = machine.exchange(at).was_cut();
        if was_cut {
            machine.crash(at);
            cuts += 1;
            assert!(!machine.exchange(at + 1).was_cut(), "{context}");
        }
        [1, 2].into_iter().for_each(|index| machine.check_alone(index, &context));
        if !was_cut {
            break;
        }
        at += 3;
    }
    assert!(cuts > 80, "only {cuts} cuts");
}

#[test]
fn the_last_two_copies_and_those_of_other_levels_stay() {
    let machine = Machine::new(7);
    machine.live_to_the_end(7, async |runtime, sim| {
        let disks = machine.disks(&runtime, &sim);
        let volume = open(&runtime, disks[..2].to_vec()).await;
        let dropped = volume.drop_copy(None, on("m1"), pool()).await;
        let is_last = |error: &ChangeMembersError| {
            matches!(error, ChangeMembersError::Member(MemberError::LastCopies { .. }))
        };
        assert!(dropped.as_ref().is_err_and(is_last), "{dropped:?}");
        until_healthy(&volume, &runtime).await;
        add_third(&volume, third(&disks[2], Uuid::from_u128(0x333)), &runtime).await;
        volume.fail_member(None, "m0").await.expect("three copies");
        let again = vec![GrowBy::New(third(&disks[0], Uuid::from_u128(0x444)))];
        let grown = volume.grow_array(None, again, pool()).await;
        let is_degraded = |error: &ChangeMembersError| {
            matches!(error, ChangeMembersError::Grow(GrowError::Degraded { .. }))
        };
        assert!(grown.as_ref().is_err_and(is_degraded), "{grown:?}");
        volume.drop_copy(None, on("m0"), pool()).await.expect("one that is lost goes as well");
        assert_eq!(volume.status().array.state, ArrayState::Optimal);
        volume.self_check();
        volume.stop().await.expect("stops");
    });
}

/// Three copies of which the first is lost, and nobody knows any more on which device it was.
fn without_its_first(seed: u64) -> Machine {
    let machine = Machine::new(seed);
    machine.live_to_the_end(seed, async |runtime, sim| {
        let disks = machine.disks(&runtime, &sim);
        let volume = machine.open_as_kept(&runtime, &disks).await;
        until_healthy(&volume, &runtime).await;
        add_third(&volume, third(&disks[2], Uuid::from_u128(0x333)), &runtime).await;
        volume.fail_member(None, FIRST).await.expect("three copies");
        volume.self_check();
        volume.stop().await.expect("stops");
    });
    machine
}

fn copies(volume: &Volume) -> usize {
    volume.status().array.members.len()
}

#[test]
fn a_mistyped_device_gives_up_no_copy_and_missing_the_one_that_nobody_has() {
    let machine = without_its_first(8);
    machine.live_to_the_end(8, async |runtime, sim| {
        let disks = machine.disks(&runtime, &sim);
        let volume = machine.open_as_kept(&runtime, &disks).await;
        for word in ["m9", "mising", FIRST] {
            let dropped = volume.drop_copy(None, on(word), pool()).await;
            let error = dropped.expect_err("it is no copy that is known").to_string();
            assert!(error.contains(word) && error.contains("`missing`"), "{error}");
            assert_eq!(copies(&volume), 3);
        }
        let leaving = LeavingCopy { copy: WhichCopy::Missing, device: None };
        volume.drop_copy(None, leaving, pool()).await.expect("one is missing");
        assert_eq!((copies(&volume), volume.status().array.state), (2, ArrayState::Optimal));
        let leaving = LeavingCopy { copy: WhichCopy::Missing, device: None };
        let error = volume.drop_copy(None, leaving, pool()).await.expect_err("none is");
        assert!(error.to_string().contains("no copy without a known device"), "{error}");
        volume.self_check();
        volume.stop().await.expect("stops");
    });
}

#[test]
fn a_copy_is_given_up_by_its_uuid_or_by_the_label_on_its_device() {
    for by_label in [false, true] {
        let machine = without_its_first(9);
        machine.live_to_the_end(9, async |runtime, sim| {
            let disks = machine.disks(&runtime, &sim);
            let volume = machine.open_as_kept(&runtime, &disks).await;
            let lost = volume.status().array.members[0].uuid;
            let leaving = match by_label {
                true => LeavingCopy { device: Some(Rc::clone(&disks[0])), ..on("another name") },
                false => LeavingCopy { copy: WhichCopy::Member(lost), device: None },
            };
            volume.drop_copy(None, leaving, pool()).await.expect("it is known");
            assert_eq!((copies(&volume), volume.status().array.state), (2, ArrayState::Optimal));
            let is_free = inspect(&*disks[0]).await.expect("reads") == Inspection::Empty;
            assert_eq!(is_free, by_label);
            volume.self_check();
            volume.stop().await.expect("stops");
        });
    }
}

#[test]
fn a_duplicate_of_a_copy_in_use_is_not_taken_for_it() {
    let machine = without_its_first(10);
    machine.live_to_the_end(10, async |runtime, sim| {
        let disks = machine.disks(&runtime, &sim);
        let volume = machine.open_as_kept(&runtime, &disks).await;
        let copy = Rc::new(machine.members[1].duplicate());
        let duplicate = lives::disk(&copy, &machine.power, &runtime, &sim);
        let leaving = LeavingCopy { device: Some(Rc::clone(&duplicate)), ..on("m9") };
        volume.drop_copy(None, leaving, pool()).await.expect_err("it is a copy of a copy");
        assert_eq!(copies(&volume), 3);
        let found = inspect(&*duplicate).await.expect("reads");
        assert!(matches!(found, Inspection::Member(_)), "{found:?}");
        volume.self_check();
        volume.stop().await.expect("stops");
    });
}

#[test]
fn work_that_rests_still_does_when_a_copy_has_gone() {
    let machine = without_its_first(11);
    machine.live_to_the_end(11, async |runtime, sim| {
        let disks = machine.disks(&runtime, &sim);
        let volume = machine.open_as_kept(&runtime, &disks).await;
        volume.pause_background(None, true).expect("there is a core");
        volume.scrub_array(None).expect("it has copies");
        let leaving = LeavingCopy { copy: WhichCopy::Missing, device: None };
        volume.drop_copy(None, leaving, pool()).await.expect("one is missing");
        let background = volume.status().cores[0].background.clone();
        assert!(background.paused && background.scrub_wanted, "{background:?}");
        volume.self_check();
        volume.stop().await.expect("stops");
    });
}

/// A start refuses a device that is listed and carries no label.
#[test]
fn whatever_is_listed_carries_a_label_though_the_program_ended_before_the_list_was_kept() {
    for name in ["m0", "m2"] {
        let machine = Machine::new(12);
        machine.live_to_the_end(12, async |runtime, sim| {
            let disks = machine.disks(&runtime, &sim);
            let volume = machine.open_as_kept(&runtime, &disks).await;
            let new = third(&disks[2], Uuid::from_u128(0x333));
            match name {
                "m0" => add_third(&volume, new, &runtime).await,
                _ => volume.add_spare(None, new).await.expect("it may be a spare"),
            }
            machine.kept.replace(volume.description());
            volume.self_check();
            volume.stop().await.expect("stops");
        });
        machine.ends_unkept.set(Some(name));
        let ended = machine.live(13, async |runtime, sim| {
            let disks = machine.disks(&runtime, &sim);
            let volume = machine.open_as_kept(&runtime, &disks).await;
            match name {
                "m0" => volume.drop_copy(None, on(name), pool()).await.expect("three copies"),
                _ => volume.remove_member(None, name).await.expect("a spare"),
            }
            runtime.sleep(Duration::from_millis(1)).await;
        });
        assert!(ended.was_cut());
        machine.crash(14);
        machine.live_to_the_end(15, async |runtime, sim| {
            let disks = machine.disks(&runtime, &sim);
            let volume = machine.open_as_kept(&runtime, &disks).await;
            assert!(lists(&volume, name));
            volume.self_check();
            volume.stop().await.expect("stops");
        });
    }
}

/// The new disk takes so many writes and answers no more.
#[test]
fn a_disk_that_hangs_while_it_is_to_become_a_copy_holds_nobody_up() {
    for after in 0..12 {
        let machine = Machine::new(16);
        machine.live_to_the_end(16, async |runtime, sim| {
            let disks = machine.disks(&runtime, &sim);
            let volume = machine.open_as_kept(&runtime, &disks).await;
            let faults = FaultControl::default();
            let rule = FaultRule::on(RequestKind::Write, Fault::Hang);
            faults.add(FaultRule { after, ..rule });
            let hangs: Rc<dyn BlockDevice> =
                Rc::new(FaultDevice::new(Rc::clone(&disks[2]), faults, runtime.clone()));
            let by = vec![GrowBy::New(third(&hangs, Uuid::from_u128(0x333)))];
            let growing = {
                let volume = Rc::clone(&volume);
                async move { volume.grow_array(None, by, pool()).await.is_ok() }
            };
            let longest = runtime.now() + Duration::from_secs(300);
            let grown = runtime.deadline(longest, growing).await;
            assert!(grown.is_ok(), "after {after} writes it goes on for ever");
            let client = Client::new(volume.clone(), Rc::clone(&machine.witness), &runtime);
            client.run(&BUSY, after).await.unwrap_or_else(|verdict| panic!("{after}: {verdict}"));
            assert_eq!(client.tally().failed_reads + client.tally().failed_others, 0);
            volume.self_check();
            volume.stop().await.expect("stops");
        });
    }
}
