//! Power cuts while an array grows behind a cache, judged by the witness.
//!
//! 1. A volume is asked to grow in the thick of writing and cleaning, until the power goes.
//! 2. It is opened again (and perhaps cut again), and grows to its end.
//! 3. It is opened with a member missing: what the parity gives back must be right in the shape
//!    that it has now.

use crate::support::lives;
use crate::support::{CREATE, careful, description};
use headpond_block::decorators::WindowDevice;
use headpond_block::{BlockDevice, JoinHandle, Runtime};
use headpond_cache::Mode;
use headpond_raid::{Inspection, Occupied, inspect};
use headpond_sim::{Ended, Medium, Power, Sim};
use headpond_volume::{
    BackgroundRate, ChangeMembersError, CoreDescription, Description, Devices, GrowBy, NewMember,
    Size, Volume,
};
use headpond_witness::{Client, Witness, Workload};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

/// So many that a short write patches the parity where nothing says that it may be torn.
const MEMBERS: usize = 6;
const MEMBER_BYTES: u64 = (1 << 20) + (1 << 20);
/// What an integrity region takes of a member that is so small.
const CHECKSUMS_BYTES: u64 = 1 << 20;
const SIZE_BEFORE: u64 = 5 << 20;
const SIZE_AFTER: u64 = 6 << 20;
const CACHE_BYTES: u64 = 20 << 20;
const BUSY: Workload = Workload {
    requests: 60,
    depth: 6,
    blocks: SIZE_AFTER / 4096,
    blocks_max: 10,
    read_percent: 15,
    flush_percent: 10,
    ..Workload::BUSY
};

struct Machine {
    cache: Rc<Medium>,
    members: Vec<Rc<Medium>>,
    power: Power,
    witness: Rc<RefCell<Witness>>,
    has_integrity: bool,
}

impl Machine {
    fn new(seed: u64, has_integrity: bool) -> Self {
        let bytes = MEMBER_BYTES + if has_integrity { CHECKSUMS_BYTES } else { 0 };
        let member = |index: usize| {
            Rc::new(Medium::flushable(&*format!("m{index}"), bytes).with_atoms(4096))
        };
        let machine = Self {
            cache: Rc::new(Medium::flushable("cache", CACHE_BYTES)),
            members: (0..=MEMBERS).map(member).collect(),
            power: Power::on(),
            witness: Rc::new(RefCell::new(Witness::new(SIZE_AFTER, seed))),
            has_integrity,
        };
        lives::live_to_the_end(seed, &machine.power, async |runtime, sim| {
            let members = machine.disks(&runtime, &sim)[..MEMBERS].to_vec();
            let devices = machine.devices(&runtime, &sim, members);
            let described = machine.description(Mode::WriteBack);
            Volume::create(&described, &devices, &CREATE).await.expect("created");
        });
        machine
    }

    fn description(&self, mode: Mode) -> Description {
        let usual = description(mode, 1);
        let core = CoreDescription { integrity: self.has_integrity, ..usual.core };
        Description { core, ..usual }
    }

    fn disks(&self, runtime: &Runtime, sim: &Sim) -> Vec<Rc<dyn BlockDevice>> {
        lives::disks(&self.members, &self.power, runtime, sim)
    }

    fn devices(&self, runtime: &Runtime, sim: &Sim, members: Vec<Rc<dyn BlockDevice>>) -> Devices {
        let cache = Some(lives::disk(&self.cache, &self.power, runtime, sim));
        Devices { tier: None, cache, members, journals: Vec::new(), ..Devices::default() }
    }

    /// Opens what belongs to the volume, grows it under load, and stops it when it has grown.
    fn grow(&self, seed: u64) -> Ended<()> {
        lives::live(seed, &self.power, async |runtime, sim| {
            let disks = self.disks(&runtime, &sim);
            let mut known = Vec::new();
            for disk in &disks {
                if matches!(inspect(&**disk).await, Ok(Inspection::Member(_))) {
                    known.push(Rc::clone(disk));
                }
            }
            let devices = self.devices(&runtime, &sim, known);
            let volume = open(&runtime, &self.description(Mode::WriteBack), devices).await;
            let client = self.client(&volume, &runtime);
            client.check_all().await.unwrap_or_else(|verdict| panic!("seed {seed}: {verdict}"));
            let pace = BackgroundRate { min: Size(32 << 20), max: Some(Size(64 << 20)) };
            volume.set_background_rate(None, |_| pace).expect("there is a core");
            let is_over = Rc::new(Cell::new(false));
            let cleaner = clean_again_and_again(&volume, &is_over, &runtime);
            begin(&volume, &disks[MEMBERS], &runtime).await;
            let worked = client.run(&BUSY, seed).await;
            worked.unwrap_or_else(|verdict| panic!("seed {seed}: {verdict}"));
            while volume.status().array.reshape.is_some() {
                runtime.sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(volume.geometry().size_bytes, SIZE_AFTER);
            is_over.set(true);
            cleaner.await;
            let client = self.client(&volume, &runtime);
            let worked = client.run(&BUSY, seed + 1).await;
            worked.unwrap_or_else(|verdict| panic!("seed {seed}, in the new room: {verdict}"));
            assert_eq!(client.tally().failed_reads + client.tally().failed_others, 0);
            volume.self_check();
            volume.stop().await.expect("stops");
        })
    }

    /// Opens it without one member and its cache's help, and looks at everything.
    fn check_without(&self, missing: usize, context: &str) {
        lives::live_to_the_end(1, &self.power, async |runtime, sim| {
            let mut members = self.disks(&runtime, &sim);
            members.remove(missing);
            let devices = self.devices(&runtime, &sim, members);
            let volume = open(&runtime, &self.description(Mode::PassThrough), devices).await;
            assert_eq!(volume.geometry().size_bytes, SIZE_AFTER, "{context}");
            let client = self.client(&volume, &runtime);
            let checked = client.check_all().await;
            checked.unwrap_or_else(|verdict| panic!("{context}, without {missing}: {verdict}"));
            assert_eq!(client.tally().failed_reads, 0, "{context}");
            volume.stop().await.expect("stops");
        });
    }

    /// On all of the volume, as large as it is now.
    fn client(&self, volume: &Rc<Volume>, runtime: &Runtime) -> Client {
        let size_bytes = volume.geometry().size_bytes;
        assert!([SIZE_BEFORE, SIZE_AFTER].contains(&size_bytes));
        let window = Rc::new(WindowDevice::new(volume.clone(), 0, size_bytes));
        Client::new(window, Rc::clone(&self.witness), runtime)
    }

    fn crash(&self, seed: u64) {
        self.power.come_back([&self.cache].into_iter().chain(&self.members), seed);
        self.witness.borrow_mut().crash();
    }
}

async fn open(runtime: &Runtime, description: &Description, devices: Devices) -> Rc<Volume> {
    let volume = Volume::open(runtime, description, devices, careful()).await;
    Rc::new(volume.expect("opens after any cut"))
}

fn clean_again_and_again(
    volume: &Rc<Volume>,
    is_over: &Rc<Cell<bool>>,
    runtime: &Runtime,
) -> JoinHandle<()> {
    let (volume, is_over, clock) = (Rc::clone(volume), Rc::clone(is_over), runtime.clone());
    runtime.spawn(async move {
        while !is_over.get() {
            clock.sleep(Duration::from_millis(6)).await;
            volume.clean_all().await.expect("healthy disks take what is dirty");
        }
    })
}

/// Gives it the last disk, unless it has that. A cut may have left it as a spare.
async fn begin(volume: &Volume, disk: &Rc<dyn BlockDevice>, runtime: &Runtime) {
    if volume.status().array.members.len() > MEMBERS {
        return;
    }
    loop {
        let by = match volume.is_spare(None, disk.name().as_str()) {
            true => GrowBy::Spare(disk.name().to_string()),
            false => GrowBy::New(NewMember {
                word: "new".into(),
                device: Rc::clone(disk),
                uuid: Uuid::from_u128(0x333),
                occupied: Occupied::Overwrite,
            }),
        };
        match volume.grow_array(None, vec![by], lives::pool()).await {
            Err(ChangeMembersError::Replayed { .. }) => {
                runtime.sleep(Duration::from_millis(1)).await;
            }
            grown => return grown.expect("nothing speaks against it"),
        }
    }
}

/// Cuts ever later, until it has grown before that; says how many cuts it were.
fn sweep(has_integrity: bool, stride: u64) -> u64 {
    let (mut cuts, mut at) = (0, 40);
    loop {
        let machine = Machine::new(5, has_integrity);
        let context = format!("cut {at}, {has_integrity}");
        machine.power.cut_after(at);
        if !machine.grow(at).was_cut() {
            return cuts;
        }
        machine.crash(at);
        cuts += 1;
        if cuts % 2 == 1 {
            machine.power.cut_after(at * 7 % 400);
            machine.grow(at + 1);
            machine.crash(at + 2);
        }
        assert!(!machine.grow(at + 3).was_cut(), "{context}");
        machine.check_without((at % 7) as usize, &context);
        at += stride;
    }
}

#[test]
fn an_array_that_grows_behind_a_write_back_cache_loses_nothing_wherever_the_power_is_cut() {
    let cuts = sweep(false, 31);
    assert!(cuts > 20, "only {cuts} cuts");
}

#[test]
fn nor_does_one_with_an_integrity_region() {
    let cuts = sweep(true, 67);
    assert!(cuts > 10, "only {cuts} cuts");
}
