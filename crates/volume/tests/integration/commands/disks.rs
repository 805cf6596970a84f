//! The disks of a volume and of what may be added to it, which outlive those who use them.

use crate::commands::jobs::Command;
use crate::support::{CREATE, careful, core, description};
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, Buffer, DeviceName, RequestKind, Runtime};
use headpond_cache::{CleaningPolicy, Mode};
use headpond_raid::Level;
use headpond_sim::{Medium, OperationTime, Power, Sim, SimDisk, run_until_cut};
use headpond_volume::{
    CacheDescription, Description, DescriptionKeeper, Devices, FurtherCoreDescription,
    MirrorDescription, Size, TierDescription, TierSettings, Volume,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use uuid::Uuid;

const MIB: u64 = 1 << 20;
const CACHE_BYTES: u64 = 9 * MIB;
const TIER_BYTES: u64 = 10 * MIB;
/// Written to each core.
const BLOCKS: u64 = 6;

/// What happens to a command, counted from its beginning.
#[derive(Clone, Copy, Debug)]
pub enum Blow {
    /// The write after so many fails, whichever device it is for.
    Write(u64),
    /// The power is cut after so many operations.
    Cut(u64),
}

impl Blow {
    pub fn number(self) -> u64 {
        match self {
            Self::Write(number) | Self::Cut(number) => number,
        }
    }
}

/// Disks by the names that descriptions have for them.
pub struct Disks {
    media: BTreeMap<String, Rc<Medium>>,
    power: Power,
    /// Of all of them.
    faults: FaultControl,
    pub kept: Rc<RefCell<Description>>,
    lives: Cell<u64>,
}

pub fn further() -> FurtherCoreDescription {
    let members = ["c0", "c1"].map(String::from).into();
    let core = core(Level::Raid1, Size(64 << 10), members);
    FurtherCoreDescription { name: "further".into(), id: 2, uuid: Uuid::from_u128(0xc0de), core }
}

/// The cache on one device.
pub fn cache(device: &str) -> CacheDescription {
    let mut cache = description(Mode::WriteBack, 1).cache.expect("it has a cache");
    cache.settings.cleaning.policy = CleaningPolicy::Nop;
    CacheDescription { device: device.into(), ..cache }
}

/// The cache on two.
pub fn copies() -> CacheDescription {
    let (uuid, copies) = (Uuid::from_u128(0xc0b1e5), vec!["k1".into()]);
    let mirror = Some(MirrorDescription { uuid, copies, spares: Vec::new() });
    CacheDescription { mirror, ..cache("k0") }
}

pub fn tier() -> TierDescription {
    let settings = TierSettings { mode: Mode::WriteBack, ..TierSettings::default() };
    TierDescription { device: "ram".into(), line: Size(4096), settings, volatile_allowed: true }
}

pub fn memory() -> Rc<dyn BlockDevice> {
    Rc::new(RamDevice::new("ram", TIER_BYTES))
}

impl Disks {
    /// A volume as it is when the command is given, stopped in order.
    pub fn new(command: Command) -> Self {
        let disk = |(name, bytes): (&str, u64)| {
            let medium = Medium::flushable(DeviceName::new(name), bytes).with_atoms(4096);
            (name.to_owned(), Rc::new(medium))
        };
        let members = ["m0", "m1", "m2", "c0", "c1"].map(|name| (name, 3 * MIB));
        let caches = ["cache", "other"].map(|name| (name, CACHE_BYTES));
        let copies = ["k0", "k1", "k2"].map(|name| (name, MIB + CACHE_BYTES));
        let journals = ["j0", "j1"].map(|name| (name, 6 * MIB));
        let all = members.into_iter().chain(caches).chain(copies).chain(journals);
        let description =
            command.before(Description { cache: None, ..description(Mode::WriteBack, 1) });
        let disks = Self {
            media: all.map(disk).collect(),
            power: Power::on(),
            faults: FaultControl::default(),
            kept: Rc::new(RefCell::new(description)),
            lives: Cell::new(0),
        };
        assert!(disks.live(async |runtime, sim| {
            let kept = disks.kept.borrow().clone();
            let devices = disks.devices(&runtime, &sim, &kept);
            Volume::create(&kept, &devices, &CREATE).await.expect("created");
            let volume = disks.open(&runtime, &sim).await;
            for (byte, core) in (1..).zip(&cores(&volume)) {
                for block in 0..BLOCKS {
                    let data = Buffer::from_slice(&[byte; 4096]);
                    core.write(block * 8192, data).await.expect("takes writes");
                }
                core.flush().await.expect("flushes");
            }
            volume.stop().await.expect("stops");
        }));
        disks.media.values().for_each(|medium| medium.rest());
        disks
    }

    pub fn duplicate(&self) -> Self {
        let copy =
            |(name, medium): (&String, &Rc<Medium>)| (name.clone(), Rc::new(medium.duplicate()));
        Self {
            media: self.media.iter().map(copy).collect(),
            power: Power::on(),
            faults: FaultControl::default(),
            kept: Rc::new(RefCell::clone(&self.kept)),
            lives: self.lives.clone(),
        }
    }

    /// A disk as a device.
    pub fn device(&self, name: &str, runtime: &Runtime, sim: &Sim) -> Rc<dyn BlockDevice> {
        let (medium, time) = (Rc::clone(&self.media[name]), OperationTime::SOME);
        let disk = SimDisk::attach(medium, &self.power, runtime, sim, time);
        Rc::new(FaultDevice::new(Rc::new(disk), self.faults.clone(), runtime.clone()))
    }

    fn devices(&self, runtime: &Runtime, sim: &Sim, kept: &Description) -> Devices {
        let all = |names: Vec<String>| -> Vec<Rc<dyn BlockDevice>> {
            names.iter().map(|name| self.device(name, runtime, sim)).collect()
        };
        let further = kept.further_cores.iter().flat_map(|core| core.core.members.clone());
        let mut devices = Devices {
            tier: kept.tier.as_ref().map(|_| memory()),
            members: all(kept.core.members.iter().cloned().chain(further).collect()),
            journals: all(kept.journals().map(str::to_owned).collect()),
            ..Devices::default()
        };
        if let Some(cache) = &kept.cache {
            let device = std::iter::once(cache.device.clone());
            match &cache.mirror {
                None => devices.cache = all(device.collect()).pop(),
                Some(mirror) => {
                    let others = mirror.copies.iter().chain(&mirror.spares).cloned();
                    devices.copies = all(device.chain(others).collect());
                }
            }
        }
        devices
    }

    /// As it is kept; from here on what is kept follows the volume.
    pub async fn open(&self, runtime: &Runtime, sim: &Sim) -> Rc<Volume> {
        let kept = self.kept.borrow().clone();
        let devices = self.devices(runtime, sim, &kept);
        let opened = Volume::open(runtime, &kept, devices, careful()).await;
        let volume = opened.unwrap_or_else(|error| panic!("it opens: {error}"));
        let follows = Rc::clone(&self.kept);
        volume.keep_description(DescriptionKeeper {
            keep: Box::new(move |description| {
                follows.replace(description.clone());
                Box::pin(std::future::ready(()))
            }),
            name_of: Box::new(str::to_owned),
        });
        Rc::new(volume)
    }

    /// Keeps a description, as whoever gives commands does.
    pub fn keep(&self, description: &Description) {
        self.kept.replace(description.clone());
    }

    pub fn arm(&self, blow: Blow) {
        match blow {
            Blow::Cut(operations) => self.power.cut_after(operations),
            Blow::Write(writes) => {
                let rule = FaultRule::on(RequestKind::Write, Fault::Media);
                self.faults.add(FaultRule { after: writes, times: Some(1), ..rule });
            }
        }
    }

    /// No blow comes any more; whether a write has failed.
    pub fn disarm(&self) -> bool {
        self.faults.clear();
        self.power.restore();
        self.faults.struck() > 0
    }

    /// What happens until the power is cut, or to the end; false where it was cut.
    pub fn live(&self, main: impl AsyncFnOnce(Runtime, Sim)) -> bool {
        self.lives.set(self.lives.get() + 1);
        let run = async |runtime, sim| main(runtime, sim).await;
        !run_until_cut(self.lives.get(), &self.power, run).expect("no deadlock").was_cut()
    }

    pub fn lose_power(&self, seed: u64) {
        self.power.come_back(self.media.values(), seed);
    }
}

/// Every core of a volume as a device.
fn cores(volume: &Rc<Volume>) -> Vec<Rc<dyn BlockDevice>> {
    let first: Rc<dyn BlockDevice> = volume.clone();
    let further = volume.core_device("further").map(|core| -> Rc<dyn BlockDevice> { core });
    std::iter::once(first).chain(further).collect()
}

/// What was written before the command is there.
pub async fn check_data(command: Command, volume: &Rc<Volume>, context: &str) {
    for (byte, core) in (1..).zip(&cores(volume)) {
        let is_new = matches!(command, Command::AddCore | Command::AddCoreBelow);
        let byte = if byte == 2 && is_new { 0 } else { byte };
        for block in 0..BLOCKS {
            let back = Buffer::zeroed(4096);
            let read = core.read(block * 8192, &back).await;
            read.unwrap_or_else(|error| panic!("{context}, block {block}: {error}"));
            let is_timed_out = command.gives_up() && back.to_vec() == [0; 4096];
            assert!(is_timed_out || back.to_vec() == [byte; 4096], "{context}, block {block}");
        }
    }
}
