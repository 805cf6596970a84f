//! The disks of a case, which outlive the lives that use them.

mod aim;
mod copies;
mod copy_count;
mod existing;
mod images;
mod journals;
mod pages;
mod reshape;
mod rot;

pub(crate) use aim::Aim;
pub(crate) use images::{Disks, Image};
pub(crate) use pages::{Face, Pages};

use crate::faults::Damage;
use crate::tally::Tally;
use crate::topology::{
    BESIDE_BYTES, CACHE, IDLE_MEMBERS, IdleCore, MIRROR, Topology, WINDOW_GROWS_BYTES,
};
use copy_count::CopyCount;
use headpond_block::decorators::{FaultControl, FaultDevice};
use headpond_block::devices::RamDevice;
use headpond_block::{
    BlockDevice, BufferPool, DeviceName, Geometry, PoolConfig, Runtime, Stability,
};
use headpond_raid::superblock::{COPY_OFFSETS, SUPERBLOCK_BYTES, decode};
use headpond_sim::{Medium, OperationTime, Power, Random, Sim, SimDisk, run_until_cut};
use headpond_volume::{
    BackgroundRate, CacheDescription, CacheSettings, CreateError, Description, Devices,
    FurtherCoreDescription, OpenOptions, Tolerance, Volume,
};
use headpond_witness::Witness;
use reshape::Reshape;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

const CACHE_NAME: &str = "cache";
const SPARE_NAME: &str = "spare";
const JOURNAL_NAMES: [&str; 2] = ["journal", "journal2"];

/// Disks, the switch, and the witness.
pub(crate) struct Machine {
    pub topology: Topology,
    pub cache: Option<Rc<Medium>>,
    /// As large: what a cache may be replaced with.
    spare: Option<Rc<Medium>>,
    is_on_spare: Cell<bool>,
    /// What the cache lies on where that is several devices: those it is made on, and behind them
    /// others that may take the place of any.
    pub copies: Vec<Rc<Medium>>,
    /// What the copies call themselves.
    mirror: Cell<Uuid>,
    /// Whether there was ever anything on the spare one.
    was_on_spare: Cell<bool>,
    /// As many as the array has, behind them one that may take the place of any, and those that
    /// it may be given to grow.
    pub members: Vec<Rc<Medium>>,
    /// So many of them, the first ones, may have been written to.
    used_members: Cell<usize>,
    /// Whether one of them was put in the place of another: whoever was replaced may carry nothing.
    pub has_exchanged: Cell<bool>,
    /// Members that a command may have made something of that nobody waits for any more: the
    /// place of some was given to others, and a cut may have met some on their way back.
    pub displaced: RefCell<BTreeSet<usize>>,
    /// Those of a core of which nothing is asked.
    pub idle_members: Vec<Rc<Medium>>,
    /// Where there is a stripe journal: the one that it is made on, and another that may take its
    /// place.
    pub journals: Vec<Rc<Medium>>,
    pub power: Power,
    /// What the witness can know of, from the start of the window on.
    witnessed_bytes: u64,
    pub witness: Rc<RefCell<Witness>>,
    /// Of the other core, where something is asked of that one.
    pub beside: Option<Rc<RefCell<Witness>>>,
    /// Whether the description that is kept names the cache: it may be detached.
    pub names_cache: Cell<bool>,
    /// Whether it names the core that may be taken away.
    pub names_core: Cell<bool>,
    /// Who that is, where it was made anew.
    pub core_uuid: Cell<Option<Uuid>>,
    /// How far the array is on its way to more members, and how large it is.
    pub reshape: Reshape,
    /// How many copies a RAID 1 has.
    pub copy_count: CopyCount,
    /// Whether the array has a stripe journal, where that is known.
    pub has_journal: Cell<Option<bool>>,
    /// Of the work on the array beside the requests.
    pub pace: Cell<BackgroundRate>,
    /// How many identities were given to devices and arrays.
    identities: Cell<u64>,
}

/// What may be told to the devices of one life.
#[derive(Clone, Default)]
pub(crate) struct Controls {
    pub cache: FaultControl,
    pub copies: Vec<FaultControl>,
    pub members: Vec<FaultControl>,
    pub journal: FaultControl,
}

/// Devices that are not there when a volume is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Absent {
    pub members: BTreeSet<usize>,
    pub cache: bool,
    /// Of a cache that lies on several.
    pub copies: BTreeSet<usize>,
    pub journal: bool,
}

const FAST: OperationTime =
    OperationTime { shortest: Duration::from_micros(10), longest: Duration::from_micros(300) };
const SLOW: OperationTime =
    OperationTime { shortest: Duration::from_micros(50), longest: Duration::from_millis(2) };

impl Machine {
    /// New disks with a new volume on them.
    ///
    /// # Errors
    /// Where the volume cannot be created: the topology is one that is refused.
    pub fn new(topology: Topology, seed: u64) -> Result<Self, CreateError> {
        let machine = Self::blank(topology, seed);
        machine.create(seed)?;
        Ok(machine)
    }

    /// New disks with nothing on them.
    pub fn blank(topology: Topology, seed: u64) -> Self {
        let stability = topology.members_are;
        let size = topology.member_bytes();
        let member = |index: usize| {
            let geometry = Geometry { stability, ..Geometry::of_size(size) };
            // Past the cache a write of a whole block is one piece on the disk, or none.
            Rc::new(Medium::new(DeviceName::new(format!("m{index}")), geometry).with_atoms(4096))
        };
        let idle = |name: &str| {
            let geometry =
                Geometry { stability, ..Geometry::of_size(topology.idle_member_bytes(name)) };
            Rc::new(Medium::new(name, geometry).with_atoms(4096))
        };
        let disk = |name: &str| {
            let shape = topology.cache.as_ref().filter(|shape| shape.copies == 1)?;
            let geometry = Geometry::of_size(shape.bytes);
            let geometry = Geometry { stability: shape.stability, ..geometry };
            Some(Rc::new(Medium::new(name, geometry)))
        };
        let (cache, spare) = (disk(CACHE_NAME), disk(SPARE_NAME));
        let journals = topology.journal.iter().flat_map(|_| JOURNAL_NAMES).map(|name| {
            let geometry = Geometry { stability, ..Geometry::of_size(topology.journal_bytes()) };
            Rc::new(Medium::new(name, geometry))
        });
        let witnessed_bytes = topology.window_bytes + WINDOW_GROWS_BYTES;
        Self {
            journals: journals.collect(),
            names_cache: Cell::new(topology.cache.is_some()),
            names_core: Cell::new(topology.idle_core.is_some()),
            core_uuid: Cell::default(),
            copies: copies::blank(&topology),
            mirror: Cell::new(MIRROR),
            cache,
            spare,
            is_on_spare: Cell::new(false),
            was_on_spare: Cell::new(false),
            members: (0..=topology.members + topology.further_disks()).map(member).collect(),
            used_members: Cell::new(topology.members),
            has_exchanged: Cell::new(false),
            displaced: RefCell::default(),
            idle_members: topology
                .idle_core
                .map_or_else(Vec::new, |_| IDLE_MEMBERS.map(idle).into()),
            power: Power::on(),
            witnessed_bytes,
            witness: Rc::new(RefCell::new(Witness::new(witnessed_bytes, seed))),
            beside: topology
                .works_beside
                .then(|| Rc::new(RefCell::new(Witness::new(BESIDE_BYTES, seed ^ 0xbe51de)))),
            reshape: Reshape::default(),
            copy_count: CopyCount::default(),
            has_journal: Cell::new(Some(topology.journal.is_some())),
            pace: Cell::default(),
            identities: Cell::default(),
            topology,
        }
    }

    fn create(&self, seed: u64) -> Result<(), CreateError> {
        let settings = crate::topology::draw_settings(&mut Random::new(seed));
        let main = async |runtime: Runtime, sim: Sim| {
            let blank = self.blank_copies(&runtime, &sim);
            let devices = self.devices(&runtime, &sim, &Absent::default(), &self.controls());
            let mut devices = Devices { copies: blank, ..devices };
            self.take_existing(&mut devices, &runtime, &sim).await;
            let description = self.description(&settings);
            let options = self.topology.create_options();
            Volume::create(&description, &devices, &options).await.map(drop)
        };
        match run_until_cut(seed, &self.power, main).expect("creating ends") {
            headpond_sim::Ended::Finished(created) => created?,
            headpond_sim::Ended::Cut => unreachable!("the power is on"),
        }
        self.media().for_each(Medium::rest);
        Ok(())
    }

    /// The same disks once more, at rest, with what is on them and what is known of it.
    pub fn duplicate(&self) -> Self {
        let copy = |medium: &Rc<Medium>| Rc::new(medium.duplicate());
        let witness = self.witness.borrow().clone();
        Self {
            journals: self.journals.iter().map(copy).collect(),
            topology: self.topology.clone(),
            cache: self.cache.as_ref().map(copy),
            spare: self.spare.as_ref().map(copy),
            is_on_spare: self.is_on_spare.clone(),
            was_on_spare: self.was_on_spare.clone(),
            copies: self.copies.iter().map(copy).collect(),
            mirror: self.mirror.clone(),
            members: self.members.iter().map(copy).collect(),
            used_members: self.used_members.clone(),
            has_exchanged: self.has_exchanged.clone(),
            displaced: self.displaced.clone(),
            idle_members: self.idle_members.iter().map(copy).collect(),
            power: Power::on(),
            witness: Rc::new(RefCell::new(witness)),
            beside: self.beside.as_ref().map(|beside| {
                let beside = beside.borrow().clone();
                Rc::new(RefCell::new(beside))
            }),
            witnessed_bytes: self.witnessed_bytes,
            names_cache: self.names_cache.clone(),
            names_core: self.names_core.clone(),
            core_uuid: self.core_uuid.clone(),
            reshape: self.reshape.clone(),
            copy_count: self.copy_count.clone(),
            has_journal: self.has_journal.clone(),
            pace: self.pace.clone(),
            identities: self.identities.clone(),
        }
    }

    /// The array has more members from here on, where it was opened as one that has; says whether
    /// it was.
    pub fn take_new_shape(&mut self) -> bool {
        let Some(more) = self.reshape.take_more() else { return false };
        self.topology.window_bytes = self.wider_window_bytes();
        self.topology = self.topology.with_more_members(more);
        true
    }

    /// Copies that have everything are what may be lost, but for one.
    pub fn take_new_count(&mut self) {
        self.topology.members = self.copy_count.whole().unwrap_or(self.topology.members);
    }

    /// The number of one more.
    pub fn count_identity(&self) -> u64 {
        self.identities.update(|count| count + 1);
        self.identities.get()
    }

    /// Members that may be lost at once, whichever they are.
    pub fn redundancy(&self) -> usize {
        self.copy_count.whole().map_or(self.topology.redundancy(), |whole| whole - 1)
    }

    /// The window that is worked in now.
    pub fn window_bytes(&self) -> u64 {
        match self.reshape.has_more() {
            Some(_) => self.wider_window_bytes(),
            None => self.topology.window_bytes,
        }
    }

    /// What the new size has room for: it reaches over the end that there was.
    fn wider_window_bytes(&self) -> u64 {
        let beyond = self.reshape.size_bytes().expect("it was opened") - self.topology.window_start;
        self.witnessed_bytes.min(beyond / 4096 * 4096)
    }

    /// The description as it is kept.
    pub fn description(&self, settings: &CacheSettings) -> Description {
        let mut description = self.topology.description(settings);
        match self.topology.worked_on() {
            0 => description.core.background = self.pace.get(),
            further => description.further_cores[further - 1].core.background = self.pace.get(),
        }
        let cache = description.cache.filter(|_| self.names_cache.get());
        let cache = cache.map(|cache| self.on_this(cache));
        let further = description.further_cores.into_iter().filter(|_| self.names_core.get());
        let further_cores = further.map(|core| self.as_made(core)).collect();
        Description { cache, further_cores, ..description }
    }

    /// The core as it was made last.
    pub fn as_made(&self, core: FurtherCoreDescription) -> FurtherCoreDescription {
        let uuid = self.core_uuid.get().unwrap_or(core.uuid);
        FurtherCoreDescription { uuid, ..core }
    }

    /// Keeps which cache a description names.
    pub fn keep(&self, description: &Description) {
        self.names_cache.set(description.cache.is_some());
        if let Some(cache) = &description.cache {
            self.is_on_spare.set(cache.device == SPARE_NAME);
            self.was_on_spare.set(self.was_on_spare.get() || self.is_on_spare.get());
        }
    }

    /// The same cache on the device that is not in use.
    pub fn on_the_other(&self, cache: CacheDescription) -> CacheDescription {
        // From here on it may be written to, before anything names it.
        self.was_on_spare.set(true);
        self.on(!self.is_on_spare.get(), cache)
    }

    /// The cache on the device that is in use.
    pub fn on_this(&self, cache: CacheDescription) -> CacheDescription {
        self.on(self.is_on_spare.get(), cache)
    }

    fn on(&self, is_spare: bool, cache: CacheDescription) -> CacheDescription {
        if cache.mirror.is_some() {
            return self.on_copies(cache);
        }
        let device = if is_spare { SPARE_NAME } else { CACHE_NAME }.into();
        CacheDescription { device, ..cache }
    }

    /// The disk that is the cache, or would be.
    pub fn cache_disk(&self) -> Option<&Rc<Medium>> {
        if self.is_on_spare.get() { self.spare.as_ref() } else { self.cache.as_ref() }
    }

    fn other_disk(&self) -> Option<&Rc<Medium>> {
        if self.is_on_spare.get() { self.cache.as_ref() } else { self.spare.as_ref() }
    }

    /// A disk that may become a member: it belongs to nobody.
    pub fn free_member(
        &self,
        index: usize,
        runtime: &Runtime,
        sim: &Sim,
        controls: &Controls,
    ) -> Rc<dyn BlockDevice> {
        // From here on it may be written to.
        self.has_exchanged.set(true);
        let used = self.used_members.get().max(self.topology.members + 1);
        self.used_members.set(used.max(index + 1));
        self.device(&self.members[index], &controls.members[index], SLOW, runtime, sim)
    }

    /// By index, the disks that carry a superblock; a member that never was replaced is given
    /// whatever it carries.
    fn belonging(&self) -> impl Iterator<Item = Option<&Rc<Medium>>> {
        let count = self.topology.members;
        self.members.iter().enumerate().map(move |(index, medium)| {
            let belongs = match self.has_exchanged.get() {
                true => carries_superblock(medium),
                false => index < count,
            };
            belongs.then_some(medium)
        })
    }

    /// The indexes of those.
    pub fn belonging_members(&self) -> Vec<usize> {
        let belonging = self.belonging().enumerate();
        belonging.filter_map(|(index, medium)| medium.map(|_| index)).collect()
    }

    fn used_members(&self) -> impl Iterator<Item = &Rc<Medium>> {
        self.members.iter().take(self.used_members.get())
    }

    pub fn controls(&self) -> Controls {
        let each = |media: &[Rc<Medium>]| media.iter().map(|_| FaultControl::default()).collect();
        let (copies, members) = (each(&self.copies), each(&self.members));
        Controls { copies, members, ..Controls::default() }
    }

    pub fn devices(
        &self,
        runtime: &Runtime,
        sim: &Sim,
        absent: &Absent,
        controls: &Controls,
    ) -> Devices {
        let attach = |medium: &Rc<Medium>, control: &FaultControl, time| {
            self.device(medium, control, time, runtime, sim)
        };
        let present = self.belonging().zip(&controls.members).enumerate();
        let present = present.filter_map(|(index, (medium, control))| {
            let is_absent = absent.members.contains(&index);
            Some((medium?, control)).filter(|_| !is_absent)
        });
        let members = present.map(|(medium, control)| attach(medium, control, SLOW));
        // An existing one is opened with its head.
        let is_plain = self.names_core.get() && !self.topology.existing_beside;
        let idle = self.idle_devices(runtime, sim).filter(|_| is_plain);
        let cache = self.cache_disk().filter(|_| !absent.cache && self.names_cache.get());
        let journal = self.journal_disk(absent).filter(|_| !absent.journal);
        Devices {
            tier: self.tier_device(),
            cache: cache.map(|medium| attach(medium, &controls.cache, FAST)),
            copies: self.present_copies(absent, runtime, sim, controls),
            members: match self.topology.idle_core {
                Some(IdleCore::First) => idle.chain(members).collect(),
                _ => members.chain(idle).collect(),
            },
            journals: journal
                .map(|medium| attach(medium, &controls.journal, FAST))
                .into_iter()
                .collect(),
            ..Devices::default()
        }
    }

    /// The members of the core of which nothing is asked; nothing befalls them.
    pub fn idle_devices(
        &self,
        runtime: &Runtime,
        sim: &Sim,
    ) -> impl Iterator<Item = Rc<dyn BlockDevice>> {
        let healthy = FaultControl::default();
        let media = self.idle_members.iter();
        media.map(move |medium| self.device(medium, &healthy, SLOW, runtime, sim))
    }

    /// Memory is new whenever a program begins.
    pub fn tier_device(&self) -> Option<Rc<dyn BlockDevice>> {
        let tier = self.topology.tier.as_ref()?;
        Some(Rc::new(RamDevice::new("tier", tier.bytes)))
    }

    /// The cache's disk, as a device that may be attached.
    pub fn cache_device(
        &self,
        runtime: &Runtime,
        sim: &Sim,
        controls: &Controls,
    ) -> Option<Rc<dyn BlockDevice>> {
        let cache = self.cache_disk()?;
        Some(self.device(cache, &controls.cache, FAST, runtime, sim))
    }

    /// Both disks that may be the cache: the usual one, and the spare.
    pub fn cache_devices(
        &self,
        runtime: &Runtime,
        sim: &Sim,
        controls: &Controls,
    ) -> Vec<Rc<dyn BlockDevice>> {
        let disks = self.cache.iter().chain(&self.spare);
        disks.map(|disk| self.device(disk, &controls.cache, FAST, runtime, sim)).collect()
    }

    pub fn is_on_spare(&self) -> bool {
        self.is_on_spare.get()
    }

    fn device(
        &self,
        medium: &Rc<Medium>,
        control: &FaultControl,
        time: OperationTime,
        runtime: &Runtime,
        sim: &Sim,
    ) -> Rc<dyn BlockDevice> {
        let disk = SimDisk::attach(Rc::clone(medium), &self.power, runtime, sim, time);
        Rc::new(FaultDevice::new(Rc::new(disk), control.clone(), runtime.clone()))
    }

    /// The power goes, or only the program; the disks keep what they keep.
    pub fn crash(&self, is_power_cut: bool, random: &mut Random, tally: &mut Tally) {
        let torn = match is_power_cut {
            true => {
                if self.members.iter().any(|member| member.undurable_writes() > 0) {
                    tally.row(6);
                }
                let torn = self.cache_disk().map_or(0, |cache| cache.lose_power(random));
                if self.was_on_spare.get() {
                    self.other_disk().map(|disk| disk.lose_power(random));
                }
                for member in self.used_members().chain(&self.idle_members).chain(&self.journals) {
                    member.lose_power(random);
                }
                torn + self.copies.iter().map(|copy| copy.lose_power(random)).sum::<usize>()
            }
            false => {
                self.media().for_each(|medium| medium.lose_program(random));
                0
            }
        };
        if torn > 0 {
            tally.row(2);
        }
        self.power.restore();
        self.witnesses().for_each(|witness| witness.borrow_mut().crash());
    }

    /// Damages a page of the cache while nothing runs, on this one of several copies, and tells
    /// how, by which aim, and which.
    pub fn rot(&self, copy: Option<usize>, random: &mut Random) -> Option<(Damage, Aim, u64)> {
        let face = self.face(copy)?;
        let (aim, damage) = (Aim::draw(random), *random.pick(&[Damage::Flip, Damage::Misplace]));
        // What was merely written last may be what nothing on the disk promises yet.
        let targets = aim.targets(&face);
        let pages = Pages::at(&face, targets.iter().map(|target| target.address));
        let address = pages.damage(&face, damage, None, random)?;
        Some((damage, aim, address))
    }

    /// Where the cache lies, on this one of several copies; `None` where it is in memory, or
    /// nowhere.
    pub fn face(&self, copy: Option<usize>) -> Option<Face<'_>> {
        match copy {
            Some(copy) => Some(Face::of_copy(&self.copies[copy])),
            None => {
                let cache = self.cache_disk().filter(|cache| !is_memory(cache))?;
                Some(Face::of_disk(cache))
            }
        }
    }

    /// Of every core that something is asked of.
    pub fn witnesses(&self) -> impl Iterator<Item = &Rc<RefCell<Witness>>> {
        std::iter::once(&self.witness).chain(&self.beside)
    }

    pub fn media(&self) -> impl Iterator<Item = &Medium> {
        let spare = self.spare.iter().filter(|_| self.was_on_spare.get());
        let members = self.used_members().chain(&self.idle_members);
        let caches_and_members =
            self.cache.iter().chain(members).chain(&self.journals).chain(spare);
        caches_and_members.chain(&self.copies).map(|medium| &**medium)
    }
}

fn carries_superblock(medium: &Medium) -> bool {
    let copy = |offset| decode(&medium.peek(offset, SUPERBLOCK_BYTES)).is_ok();
    COPY_OFFSETS.into_iter().any(copy)
}

/// Nothing is forced.
pub(crate) fn careful() -> OpenOptions {
    let pool = BufferPool::new(&PoolConfig::small());
    OpenOptions {
        tolerance: Tolerance::Careful,
        pool,
        new_cache: CACHE,
        around_core: None,
        watch_load: None,
        claimant: None,
    }
}

/// Whether a device forgets everything without power.
pub(crate) fn is_memory(medium: &Medium) -> bool {
    medium.geometry().stability == Stability::LostOnPower
}
