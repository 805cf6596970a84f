//! A small volume for one fault: every block of a scenario holds one byte, 4096 times.
//!
//! 1. [`Rig::live`] opens the volume and lets the scenario act; 2. in the end [`Rig::halt`] or
//!    [`Rig::cut`] says what becomes of what was not stable; 3. the next life finds that.

use crate::machine::{Absent, Controls, Machine, careful};
use crate::tally::Tally;
use crate::topology::{CacheShape, Topology};
use headpond_block::decorators::{Fault, FaultRule};
use headpond_block::{
    BLOCK_BYTES, BlockDevice, Buffer, DeviceError, Outcome, Request, RequestFlags, RequestKind,
    Runtime, Stability,
};
use headpond_cache::format::superblock::Superblock as CacheSuperblock;
use headpond_cache::{CleaningConfig, CleaningPolicy, Mode};
use headpond_raid::Level;
use headpond_sim::{Ended, Medium, Random, Sim, run_until_cut};
use headpond_volume::{
    Alert, AlertKind, CacheSettings, CacheStatus, Claimant, Description, Host, OpenError, Process,
    Tolerance, Volume,
};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

/// Longer than an idle log waits before it is sealed, and than marks and cleaning take.
pub(super) const A_WHILE: Duration = Duration::from_secs(2);

/// The machine of a scenario, and how its volume is opened.
pub(super) struct Rig {
    pub machine: Machine,
    pub description: Description,
    pub absent: Absent,
    pub tolerance: Tolerance,
    /// Who opens it, where the devices are to say so.
    pub claimant: Option<Claimant>,
    lives: Cell<u64>,
}

/// An open volume.
pub(super) struct Scene {
    pub volume: Rc<Volume>,
    pub runtime: Runtime,
    pub controls: Controls,
}

/// RAID 5 of three members behind a cache, nothing cleaned unasked.
pub(super) fn cached_raid5() -> Topology {
    let bytes = (2 << 20) + (12 << 20);
    Topology {
        level: Level::Raid5,
        groups: 1,
        spread: None,
        weights: None,
        members: 3,
        strip_bytes: 16 << 10,
        has_intent: true,
        has_integrity: false,
        is_initialised: true,
        members_are: Stability::Flushable,
        slices: 1,
        cache: Some(CacheShape {
            bytes,
            line_bytes: 4096,
            stability: Stability::Flushable,
            copies: 1,
        }),
        tier: None,
        idle_core: None,
        works_beside: false,
        existing_beside: false,
        journal: None,
        window_start: 0,
        window_bytes: 1 << 20,
    }
}

impl Rig {
    /// In write-back mode, where there is a cache.
    pub fn new(topology: Topology) -> Self {
        Self::of(Machine::new(topology, 1).expect("the volume can be made"))
    }

    pub fn of(machine: Machine) -> Self {
        let settings = CacheSettings {
            mode: Mode::WriteBack,
            cleaning: CleaningConfig { policy: CleaningPolicy::Nop, ..Default::default() },
            ..CacheSettings::default()
        };
        let description = machine.topology.description(&settings);
        let (absent, tolerance) = (Absent::default(), Tolerance::Careful);
        Self { machine, description, absent, tolerance, claimant: None, lives: Cell::new(0) }
    }

    /// With a cache, in this mode.
    pub fn in_mode(mode: Mode) -> Self {
        let mut rig = Self::new(cached_raid5());
        rig.set_mode(mode);
        rig
    }

    /// Of this level and without a cache.
    pub fn uncached(level: Level, members: usize) -> Self {
        Self::new(Topology { level, members, cache: None, ..cached_raid5() })
    }

    /// The devices say from now on who has the volume, and what its cache has promised.
    pub fn with_owner(mut self) -> Self {
        self.description.heartbeat_ms = 1000;
        // Whoever had it before is known to be gone.
        self.claimant = Some(Claimant { is_running: Rc::new(|_| false), ..claimant(1) });
        self
    }

    pub fn set_mode(&mut self, mode: Mode) {
        self.description.cache.as_mut().expect("a cache").settings.mode = mode;
    }

    pub fn cache(&self) -> &Medium {
        self.machine.cache.as_deref().expect("a cache")
    }

    /// One life that must begin and end.
    pub fn live<T>(&self, act: impl AsyncFnOnce(&Scene) -> T) -> T {
        match self.try_live(act) {
            Ended::Finished(Ok(end)) => end,
            Ended::Finished(Err(error)) => panic!("the volume refuses to open: {error}"),
            Ended::Cut => panic!("nobody cut the power"),
        }
    }

    /// A start that must be refused, without a trace on any device.
    pub fn refusal(&self) -> OpenError {
        let before = self.images();
        let error = self.late_refusal();
        assert!(self.images() == before, "a refusal changes nothing: {error}");
        error
    }

    /// A start that must be refused, but has recorded the array as in use by then.
    pub fn late_refusal(&self) -> OpenError {
        let error = match self.try_live(async |_: &Scene| ()) {
            Ended::Finished(Err(error)) => error,
            Ended::Finished(Ok(())) => panic!("the volume opens"),
            Ended::Cut => panic!("nobody cut the power"),
        };
        assert!(error.is_refusal(), "{error}");
        error
    }

    /// One life that may be cut, or not begin.
    pub fn try_live<T>(&self, act: impl AsyncFnOnce(&Scene) -> T) -> Ended<Result<T, OpenError>> {
        self.lives.set(self.lives.get() + 1);
        let main = async |runtime: Runtime, sim: Sim| {
            let controls = self.machine.controls();
            let devices = self.machine.devices(&runtime, &sim, &self.absent, &controls);
            let (tolerance, claimant) = (self.tolerance, self.claimant.clone());
            let options = headpond_volume::OpenOptions { tolerance, claimant, ..careful() };
            let volume = Volume::open(&runtime, &self.description, devices, options).await?;
            volume.self_check();
            let scene = Scene { volume: Rc::new(volume), runtime, controls };
            Ok(act(&scene).await)
        };
        run_until_cut(self.lives.get(), &self.machine.power, main).expect("no deadlock")
    }

    /// The program dies, the disks do not: all that they acknowledged is there.
    pub fn halt(&self) {
        self.machine.crash(false, &mut Random::new(self.lives.get()), &mut Tally::default());
    }

    /// The power goes; what was not stable is there, or not, or in part, as the seed says.
    pub fn cut(&self, seed: u64) {
        self.machine.crash(true, &mut Random::new(seed), &mut Tally::default());
    }

    /// What every device shows.
    pub fn images(&self) -> Vec<Vec<u8>> {
        let image = |medium: &Medium| medium.peek(0, medium.geometry().size_bytes as usize);
        self.machine.media().map(image).collect()
    }

    /// Where the cache holds blocks of `byte`.
    pub fn places(&self, byte: u8) -> Vec<u64> {
        places_on(self.cache(), byte)
    }

    /// Writes over the end of every block of `byte` in the cache, so that half of it is torn off.
    pub fn tear(&self, byte: u8) {
        let places = self.places(byte);
        assert!(!places.is_empty(), "{byte} is in the cache");
        places.iter().for_each(|place| self.cache().poke(place + 2048, &[0; 2048]));
    }

    pub fn cache_superblock(&self) -> CacheSuperblock {
        CacheSuperblock::decode(&self.cache().peek(0, 4096)).expect("a cache")
    }
}

/// A host that opens volumes.
pub(super) fn claimant(host: u128) -> Claimant {
    let process = Process { number: 1, started: 1 };
    let (machine, boot) = (Uuid::from_u128(host), Uuid::from_u128(host));
    Claimant {
        host: Host { name: format!("host {host}"), machine, boot, process },
        token: Uuid::from_u128(host),
        is_running: Rc::new(|_| true),
        watch: None,
    }
}

/// Where a device holds blocks of `byte`.
pub(super) fn places_on(medium: &Medium, byte: u8) -> Vec<u64> {
    let image = medium.peek(0, medium.geometry().size_bytes as usize);
    let is_block = |place: &usize| {
        image[*place] == byte && image[*place..*place + 4096].iter().all(|other| *other == byte)
    };
    (0..=image.len() - 4096).step_by(512).filter(is_block).map(|place| place as u64).collect()
}

impl Scene {
    /// A setting, as a user would write it.
    pub async fn set(&self, text: &str) {
        self.volume.set(&[text.parse().expect("key=value")]).await.expect("it is possible");
    }

    /// As an alert tells to.
    pub async fn clear_errors(&self) {
        self.volume.clear_errors(None).await.expect("all devices are known");
    }

    pub async fn write(&self, block: u64, byte: u8) -> Outcome {
        self.write_with(block, byte, RequestFlags::empty()).await
    }

    pub async fn write_with(&self, block: u64, byte: u8, flags: RequestFlags) -> Outcome {
        let data = Buffer::from_slice(&[byte; BLOCK_BYTES as usize]);
        let request = Request::write(block * BLOCK_BYTES, data);
        self.volume.submit(request.with_flags(flags)).await
    }

    /// Writes, flushes, and waits until the log says of itself that this is stable.
    pub async fn promise(&self, block: u64, byte: u8) {
        self.write(block, byte).await.expect("takes the write");
        self.flush().await.expect("flushes");
        self.runtime.sleep(Duration::from_millis(100)).await;
    }

    pub async fn flush(&self) -> Outcome {
        self.volume.submit(Request::flush()).await
    }

    /// What a block holds; it is never a mixture.
    pub async fn read(&self, block: u64) -> Result<u8, DeviceError> {
        let buffer = Buffer::zeroed(BLOCK_BYTES as usize);
        self.volume.submit(Request::read(block * BLOCK_BYTES, &buffer)).await?;
        let bytes = buffer.to_vec();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "block {block} holds a mixture");
        Ok(bytes[0])
    }

    pub async fn expect(&self, block: u64, byte: u8) {
        assert_eq!(self.read(block).await.expect("can be read"), byte, "block {block}");
    }

    pub fn cache(&self) -> CacheStatus {
        self.volume.status().cache.expect("a cache")
    }

    /// The alert of this kind in the status.
    pub fn alert(&self, kind: AlertKind) -> Alert {
        let alerts = self.volume.status().alerts;
        let found = alerts.iter().find(|alert| alert.kind == kind).cloned();
        found.unwrap_or_else(|| panic!("no {kind:?} in {alerts:?}"))
    }

    /// Whether a warning of the status contains these words.
    pub fn warns(&self, words: &str) -> bool {
        self.volume.status().warnings.iter().any(|warning| warning.contains(words))
    }

    /// The cache device is gone from here on.
    pub fn lose_cache(&self) {
        self.controls.cache.add(gone());
    }

    pub fn lose_member(&self, member: usize) {
        self.controls.members[member].add(gone());
    }
}

fn gone() -> FaultRule {
    FaultRule { kind: None, ..FaultRule::on(RequestKind::Read, Fault::Gone) }
}

/// `fault` for the next operation of this kind.
pub(super) fn once(kind: RequestKind, fault: Fault) -> FaultRule {
    FaultRule { times: Some(1), ..FaultRule::on(kind, fault) }
}
