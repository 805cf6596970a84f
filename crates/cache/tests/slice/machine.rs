//! A simulated machine with a cache, a core and a witness.

use headpond_block::{BlockDevice, Geometry, Runtime, Stability};
use headpond_cache::{
    CleaningConfig, CreateOptions, Expected, Foundation, Mode, Recovery, Slice, SliceConfig,
    create, load,
};
use headpond_sim::{Ended, Medium, OperationTime, Power, Sim, SimDisk, run_until_cut};
use headpond_witness::{Client, Tally, Verdict, Witness, Workload};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

pub const VOLUME: Uuid = Uuid::from_u128(0x5eed);
pub const EXPECTED: Expected = Expected { volume: VOLUME, generation: 1 };
pub const CORE_BYTES: u64 = 64 << 20;
pub const CACHE_BYTES: u64 = 12 << 20;

pub struct Machine {
    pub cache: Rc<Medium>,
    pub core: Rc<Medium>,
    pub power: Power,
    pub witness: Rc<RefCell<Witness>>,
    pub config: SliceConfig,
    pub unit_bytes: u32,
    pub line_bytes: u32,
    pub cache_time: OperationTime,
    /// While it works the mode goes round these.
    pub modes: Vec<Mode>,
    /// Of so many flushes of the core one fails.
    pub core_flushes_fail: Option<u64>,
    pub core_keeps_discarded: bool,
}

pub fn small_cleaning() -> CleaningConfig {
    CleaningConfig { in_flight_max: 8, ..CleaningConfig::default() }
}

impl Machine {
    pub fn new(config: SliceConfig, unit_bytes: u32, seed: u64) -> Self {
        let geometry = Geometry {
            stability: Stability::Flushable,
            logical_block_bytes: unit_bytes,
            ..Geometry::of_size(CACHE_BYTES)
        };
        Self {
            cache: Rc::new(Medium::new("cache", geometry)),
            core: Rc::new(Medium::flushable("core", CORE_BYTES).with_atoms(4096)),
            power: Power::on(),
            witness: Rc::new(RefCell::new(Witness::new(CORE_BYTES, seed))),
            config,
            unit_bytes,
            line_bytes: 4096,
            cache_time: OperationTime::SOME,
            modes: Vec::new(),
            core_flushes_fail: None,
            core_keeps_discarded: seed % 2 == 1,
        }
    }

    pub fn with_lines(self, line_bytes: u32) -> Self {
        Self { line_bytes, ..self }
    }

    pub fn disk(&self, medium: &Rc<Medium>, runtime: &Runtime, sim: &Sim) -> Rc<dyn BlockDevice> {
        let is_cache = Rc::ptr_eq(medium, &self.cache);
        let time = if is_cache { self.cache_time } else { OperationTime::SOME };
        let disk = SimDisk::attach(Rc::clone(medium), &self.power, runtime, sim, time);
        let disk = match self.core_flushes_fail.filter(|_| !is_cache) {
            Some(one_of) => disk.with_failing_flushes(one_of),
            None => disk,
        };
        Rc::new(match self.core_keeps_discarded && !is_cache {
            true => disk.that_keeps_discarded(),
            false => disk,
        })
    }

    /// Makes the cache.
    pub fn create(&self, seed: u64) {
        let main = async |runtime, sim: Sim| {
            let cache = self.disk(&self.cache, &runtime, &sim);
            let line_bytes = self.line_bytes;
            let options = CreateOptions { line_bytes, ..options(self.unit_bytes) };
            create(&*cache, &options).await.expect("a cache that fits");
        };
        assert!(!run_until_cut(seed, &self.power, main).expect("no deadlock").was_cut());
    }

    pub async fn open(&self, runtime: &Runtime, sim: &Sim) -> (Slice, Recovery) {
        let cache = self.disk(&self.cache, runtime, sim);
        let core = self.disk(&self.core, runtime, sim);
        let superblock = load(&*cache).await.expect("a cache");
        let foundation = Foundation::new(runtime.clone(), cache, core);
        let config = self.config.clone();
        let opened = Slice::open(foundation, &superblock, EXPECTED, 0, config).await;
        let (slice, recovery) = opened.expect("opens");
        slice.self_check();
        (slice, recovery)
    }

    /// Opens, checks everything, works, and stops cleanly where asked to.
    pub fn work(&self, seed: u64, workload: &Workload, stop: bool) -> Ended<Work> {
        let main = async |runtime: Runtime, sim: Sim| {
            let (slice, recovery) = self.open(&runtime, &sim).await;
            assert_eq!(recovery.lost_blocks, 0, "an honest device loses nothing");
            let client = Client::new(Rc::new(slice.clone()), Rc::clone(&self.witness), &runtime);
            let verdict = async {
                client.check_all().await?;
                self.keep_switching(&slice, &runtime);
                client.run(workload, seed).await?;
                slice.self_check();
                client.check_all().await
            };
            let verdict = verdict.await;
            if stop {
                slice.stop().await.expect("stops");
            }
            Work { verdict, tally: client.tally(), recovery, stats: slice.stats() }
        };
        run_until_cut(seed, &self.power, main).expect("no deadlock")
    }

    /// Switches the mode every few milliseconds, where there are modes to switch between.
    fn keep_switching(&self, slice: &Slice, runtime: &Runtime) {
        if self.modes.is_empty() {
            return;
        }
        let (slice, modes, runtime) = (slice.clone(), self.modes.clone(), runtime.clone());
        drop(runtime.clone().spawn(async move {
            for mode in modes.into_iter().cycle() {
                let config = SliceConfig { mode, ..slice.config() };
                slice.set_config(config).expect("a mode that is allowed");
                runtime.sleep(Duration::from_millis(4)).await;
            }
        }));
    }

    pub fn crash(&self, seed: u64) {
        self.power.come_back([&self.cache, &self.core], seed);
        self.witness.borrow_mut().crash();
    }
}

#[derive(Debug)]
pub struct Work {
    pub verdict: Result<(), Box<Verdict>>,
    pub tally: Tally,
    pub recovery: Recovery,
    pub stats: headpond_cache::SliceStats,
}

pub fn options(unit_bytes: u32) -> CreateOptions {
    CreateOptions {
        cache: Uuid::from_u128(0xcac4e),
        volume: VOLUME,
        core: Uuid::from_u128(0xc04e),
        core_bytes: CORE_BYTES,
        generation: 1,
        slices: 1,
        line_bytes: 4096,
        device_bytes: None,
        unit_bytes: Some(unit_bytes),
    }
}
