//! The disks of a volume of several cores, and the clients of each.

use crate::support::{CREATE, careful, core, description};
use headpond_block::decorators::WindowDevice;
use headpond_block::{BlockDevice, Buffer, DeviceName, Runtime};
use headpond_cache::{CleaningPolicy, Mode};
use headpond_raid::{Inspection, Level, inspect};
use headpond_sim::{Medium, OperationTime, Power, Random, Sim, SimDisk, run_until_cut};
use headpond_volume::{Description, Devices, FurtherCoreDescription, Size, Volume};
use headpond_witness::{Client, Witness, Workload};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use uuid::Uuid;

pub const MIB: u64 = 1 << 20;
pub const WINDOW_BYTES: u64 = 128 << 10;
/// Near the end of the smaller core.
pub const WINDOW_START: u64 = 3 * MIB - 2 * WINDOW_BYTES;
/// Members of the first core, and of the further ones.
pub const MEMBERS: [usize; 3] = [3, 2, 2];

/// Disks of a volume of up to three cores, which outlive those who use them.
pub struct Machine {
    pub cache: Rc<Medium>,
    /// Of all cores.
    pub members: Vec<Rc<Medium>>,
    pub power: Power,
    pub cores: usize,
    pub slices: u16,
    /// Whether the description that is kept names the cache.
    pub names_cache: Cell<bool>,
}

pub fn further(index: usize) -> FurtherCoreDescription {
    let members = (0..2).map(|member| format!("core{index}-{member}")).collect();
    let core = core(Level::Raid1, Size(64 << 10), members);
    let (name, uuid) = (format!("c{index}"), Uuid::from_u128(0xc0de + index as u128));
    FurtherCoreDescription { name, id: index as u16 + 1, uuid, core }
}

impl Machine {
    pub fn new(cores: usize, slices: u16) -> Self {
        let medium = |name: String, bytes| {
            Rc::new(Medium::flushable(DeviceName::new(name), bytes).with_atoms(4096))
        };
        let member = |index: usize| medium(format!("m{index}"), 4 * MIB);
        let cache = Medium::flushable("cache", 12 * MIB * u64::from(slices) + 2 * MIB);
        let machine = Self {
            cache: Rc::new(cache),
            members: (0..MEMBERS[..cores].iter().sum()).map(member).collect(),
            power: Power::on(),
            cores,
            slices,
            names_cache: Cell::new(true),
        };
        machine.live(async |runtime, sim| {
            let devices = machine.devices(&runtime, &sim, 0);
            Volume::create(&machine.described(), &devices, &CREATE).await.expect("created");
        });
        machine
    }

    pub fn duplicate(&self) -> Self {
        let copy = |medium: &Rc<Medium>| Rc::new(medium.duplicate());
        Self {
            cache: copy(&self.cache),
            members: self.members.iter().map(copy).collect(),
            power: Power::on(),
            names_cache: self.names_cache.clone(),
            ..*self
        }
    }

    pub fn described(&self) -> Description {
        let mut described = description(Mode::WriteBack, self.slices);
        described.further_cores = (1..self.cores).map(further).collect();
        let settings = &mut described.cache.as_mut().unwrap().settings;
        settings.cleaning.policy = CleaningPolicy::Nop;
        described
    }

    /// As it is kept.
    pub fn kept(&self) -> Description {
        let described = self.described();
        let cache = described.cache.filter(|_| self.names_cache.get());
        Description { cache, ..described }
    }

    pub fn disk(&self, medium: &Rc<Medium>, runtime: &Runtime, sim: &Sim) -> Rc<dyn BlockDevice> {
        let (medium, time) = (Rc::clone(medium), OperationTime::SOME);
        Rc::new(SimDisk::attach(medium, &self.power, runtime, sim, time))
    }

    /// The members in an order that depends on the seed, those of all cores mixed.
    pub fn devices(&self, runtime: &Runtime, sim: &Sim, seed: u64) -> Devices {
        let mut members: Vec<_> =
            self.members.iter().map(|medium| self.disk(medium, runtime, sim)).collect();
        if seed > 0 {
            Random::new(seed).shuffle(&mut members);
        }
        let cache = self.names_cache.get().then(|| self.disk(&self.cache, runtime, sim));
        Devices { tier: None, cache, members, journals: Vec::new(), ..Devices::default() }
    }

    pub async fn open(&self, runtime: &Runtime, sim: &Sim, seed: u64) -> Rc<Volume> {
        let devices = self.devices(runtime, sim, seed);
        let opened = Volume::open(runtime, &self.kept(), devices, careful()).await;
        Rc::new(opened.expect("opens after any cut"))
    }

    /// What happens until the power is cut, or to the end; false where it was cut.
    pub fn live(&self, main: impl AsyncFnOnce(Runtime, Sim)) -> bool {
        let seed = self.power.operations() + 1;
        let ended = run_until_cut(seed, &self.power, async |runtime, sim| main(runtime, sim).await);
        !ended.expect("no deadlock").was_cut()
    }

    /// What the first core records decides: none of the others has let go of a cache that it names.
    pub fn check_labels(&self, context: &str) {
        let copy = self.duplicate();
        copy.live(async |runtime, sim| {
            let (mut owners, mut rest) = (Vec::new(), &copy.members[..]);
            for count in &MEMBERS[..copy.cores] {
                let (members, others) = rest.split_at(*count);
                rest = others;
                let mut newest = (0, None);
                for medium in members {
                    let found = inspect(&*copy.disk(medium, &runtime, &sim)).await.unwrap();
                    let Inspection::Member(found) = found else { panic!("{context}: {found:?}") };
                    let array = found.array;
                    newest = newest.max((array.event_count, array.owner));
                }
                owners.push(newest.1);
            }
            if owners[0].is_some() {
                assert!(owners.iter().all(|owner| *owner == owners[0]), "{context}: {owners:?}");
            }
        });
    }

    pub fn lose_power(&self, seed: u64) {
        self.power.come_back(self.members.iter().chain([&self.cache]), seed);
    }
}

/// Every core of a volume as a device.
pub fn devices_of(volume: &Rc<Volume>) -> Vec<Rc<dyn BlockDevice>> {
    let first: Rc<dyn BlockDevice> = volume.clone();
    let names: Vec<String> =
        volume.description().further_cores.iter().map(|core| core.name.clone()).collect();
    let device = |name: &String| -> Rc<dyn BlockDevice> { volume.core_device(name).unwrap() };
    std::iter::once(first).chain(names.iter().map(device)).collect()
}

pub async fn write(device: &Rc<dyn BlockDevice>, offset: u64, byte: u8) {
    device.write(offset, Buffer::from_slice(&[byte; 4096])).await.unwrap();
}

pub async fn read(device: &Rc<dyn BlockDevice>, offset: u64) -> u8 {
    let back = Buffer::zeroed(4096);
    device.read(offset, &back).await.unwrap();
    let bytes = back.to_vec();
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    bytes[0]
}

pub const BUSY: Workload = Workload {
    requests: 50,
    depth: 4,
    blocks: WINDOW_BYTES / 4096,
    blocks_max: 8,
    read_percent: 15,
    flush_percent: 10,
    discard_percent: 4,
    fua_percent: 20,
    sector_percent: 20,
    ..Workload::BUSY
};

/// A client on each core, whose every answer is judged.
pub struct Clients(Vec<Rc<RefCell<Witness>>>);

impl Clients {
    pub fn new(cores: usize, seed: u64) -> Self {
        let witness = |core| Rc::new(RefCell::new(Witness::new(WINDOW_BYTES, seed * 10 + core)));
        Self((0..cores as u64).map(witness).collect())
    }

    pub fn on(&self, volume: &Rc<Volume>, runtime: &Runtime) -> Vec<Client> {
        let window = |core: Rc<dyn BlockDevice>| -> Rc<dyn BlockDevice> {
            Rc::new(WindowDevice::new(core, WINDOW_START, WINDOW_BYTES))
        };
        let cores = devices_of(volume).into_iter().map(window);
        cores.zip(&self.0).map(|(core, it)| Client::new(core, Rc::clone(it), runtime)).collect()
    }

    pub async fn work(&self, volume: &Rc<Volume>, runtime: &Runtime, seed: u64, context: &str) {
        self.check(volume, runtime, context).await;
        let mut tasks = Vec::new();
        for (index, client) in (0..).zip(self.on(volume, runtime)) {
            tasks.push(runtime.spawn(async move { client.run(&BUSY, seed + index).await }));
        }
        volume.clean_all().await.unwrap();
        for task in tasks {
            task.await.unwrap_or_else(|verdict| panic!("{context}: {verdict}"));
        }
        volume.clean_all().await.unwrap();
        self.check(volume, runtime, context).await;
    }

    pub async fn check(&self, volume: &Rc<Volume>, runtime: &Runtime, context: &str) {
        for (core, client) in self.on(volume, runtime).into_iter().enumerate() {
            let checked = client.check_all().await;
            checked.unwrap_or_else(|verdict| panic!("{context}, core {core}: {verdict}"));
            let tally = client.tally();
            assert_eq!(tally.failed_reads + tally.failed_others, 0, "{context}, core {core}");
        }
    }

    pub fn crash(&self) {
        self.0.iter().for_each(|witness| witness.borrow_mut().crash());
    }
}

/// What is on each core before its cache is touched: its number.
pub const BLOCKS: u64 = 6;

pub async fn dirty(volume: &Rc<Volume>) {
    for (byte, core) in (1..).zip(&devices_of(volume)) {
        for block in 0..BLOCKS {
            write(core, block * 8192, byte).await;
        }
        core.flush().await.unwrap();
    }
}

pub async fn check_dirty_data(volume: &Rc<Volume>, context: &str) {
    for (byte, core) in (1..).zip(&devices_of(volume)) {
        for block in 0..BLOCKS {
            assert_eq!(read(core, block * 8192).await, byte, "{context}, block {block}");
        }
    }
}
