//! Two devices in memory, with faults on command, and a slice on them.

use crate::machine::{CACHE_BYTES, CORE_BYTES, EXPECTED, options, small_cleaning};
use headpond_block::decorators::{FaultControl, FaultDevice};
use headpond_block::devices::RamDevice;
use headpond_block::{
    BlockDevice, Buffer, ByteRange, Cause, DeviceError, DeviceName, Geometry, LocalFuture, Outcome,
    Runtime, Stability,
};
use headpond_cache::{
    CleaningConfig, CleaningPolicy, CoreLabel, CreateOptions, Foundation, Slice, SliceConfig,
    create, load, write_superblock,
};
use std::cell::Cell;
use std::rc::Rc;

/// A cache and a core in memory that claim to be flushable, with faults on command.
#[derive(Clone)]
pub struct Bench {
    pub runtime: Runtime,
    pub cache: Rc<RamDevice>,
    pub core: Rc<RamDevice>,
    pub cache_faults: FaultControl,
    pub core_faults: FaultControl,
    pub label: Rc<Label>,
}

/// How often the cache was disowned, and how often that is still to fail.
#[derive(Default)]
pub struct Label {
    pub disowned: Cell<u32>,
    pub failures: Cell<u32>,
}

impl CoreLabel for Label {
    fn disown_cache(&self) -> LocalFuture<'_, Outcome> {
        let failures = self.failures.get();
        if failures > 0 {
            self.failures.set(failures - 1);
            let (device, range) = (DeviceName::new("label"), ByteRange::at(0, 4096));
            return Box::pin(async move { Err(DeviceError::new(&device, Cause::Media { range })) });
        }
        self.disowned.set(self.disowned.get() + 1);
        Box::pin(async { Ok(()) })
    }
}

pub fn flushable(name: &str, size_bytes: u64) -> Rc<RamDevice> {
    let geometry = Geometry { stability: Stability::Flushable, ..Geometry::of_size(size_bytes) };
    Rc::new(RamDevice::with_geometry(name, geometry))
}

impl Bench {
    pub async fn new(runtime: &Runtime) -> Self {
        Self::with_lines(runtime, 4096).await
    }

    pub async fn with_lines(runtime: &Runtime, line_bytes: u32) -> Self {
        let bench = Self {
            runtime: runtime.clone(),
            cache: flushable("cache", CACHE_BYTES),
            core: flushable("core", CORE_BYTES),
            cache_faults: FaultControl::default(),
            core_faults: FaultControl::default(),
            label: Rc::default(),
        };
        let options = CreateOptions { line_bytes, ..options(4096) };
        create(&*bench.cache, &options).await.unwrap();
        bench
    }

    pub fn foundation(&self) -> Foundation {
        let faulty = |inner: &Rc<RamDevice>, control: &FaultControl| -> Rc<dyn BlockDevice> {
            let inner = Rc::clone(inner) as Rc<dyn BlockDevice>;
            Rc::new(FaultDevice::new(inner, control.clone(), self.runtime.clone()))
        };
        Foundation {
            label: Some(Rc::clone(&self.label) as Rc<dyn CoreLabel>),
            ..Foundation::new(
                self.runtime.clone(),
                faulty(&self.cache, &self.cache_faults),
                faulty(&self.core, &self.core_faults),
            )
        }
    }

    /// Makes the cache one of before classes and residents were kept.
    pub async fn forget_classes(&self) {
        let mut superblock = load(&*self.cache).await.unwrap();
        superblock.features.incompat = 0;
        write_superblock(&*self.cache, &mut superblock).await.unwrap();
    }

    pub async fn open(&self, config: SliceConfig) -> Slice {
        let superblock = load(&*self.cache).await.unwrap();
        Slice::open(self.foundation(), &superblock, EXPECTED, 0, config).await.unwrap().0
    }
}

pub fn nop() -> SliceConfig {
    let cleaning = CleaningConfig { policy: CleaningPolicy::Nop, ..small_cleaning() };
    SliceConfig { cleaning, ..SliceConfig::default() }
}

pub fn block(byte: u8) -> Buffer {
    Buffer::from_slice(&[byte; 4096])
}

pub async fn byte_at(device: &dyn BlockDevice, offset: u64) -> Result<u8, DeviceError> {
    let buffer = Buffer::zeroed(512);
    device.read(offset, &buffer).await?;
    Ok(buffer.to_vec()[0])
}

pub fn simulate<F: Future<Output = ()>>(main: impl FnOnce(Runtime) -> F) {
    headpond_sim::run(1, |runtime, _| main(runtime)).expect("no deadlock");
}
