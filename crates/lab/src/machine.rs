//! A machine put together from models: the array and the cache are the real ones.

use crate::engine::{CleanerCeiling, EngineDevice, EngineError, EngineModel};
use crate::stack::{CacheStack, Stack};
use headpond_block::decorators::ProbeDevice;
use headpond_block::{
    BlockDevice, BufferPool, Geometry, PoolClass, PoolConfig, Runtime, Stability,
};
use headpond_raid::{Contents, Intent, Occupied};
use headpond_sim::hdd::HddModel;
use headpond_sim::{FixedLatency, FixedLatencyDevice, ModelDevice, Sim, SparseDevice};
use headpond_volume::{
    CreateError, CreateOptions, Decorator, Devices, OpenError, OpenOptions, Tolerance, Volume,
};
use std::rc::Rc;
use uuid::Uuid;

/// Every machine is alone in its world, so its cache needs no identity that nobody else has.
const CACHE: Uuid = Uuid::from_u128(0xcac4e);

/// A running machine; its devices are watched.
pub(crate) struct Machine {
    pub volume: Rc<Volume>,
    /// What clients see: the volume, behind what serving costs.
    pub front: Rc<dyn BlockDevice>,
    pub engine: Option<Rc<EngineDevice>>,
    pub drives: Vec<Rc<ProbeDevice>>,
    pub cache: Option<Rc<ProbeDevice>>,
}

/// Why there is no machine.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error(transparent)]
    Create(#[from] CreateError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl Machine {
    /// Creates the volume on new devices, whose parity is right, and opens it.
    ///
    /// # Errors
    /// Where the description does not fit the devices.
    pub async fn start(
        stack: &Stack,
        model: &Rc<HddModel>,
        runtime: &Runtime,
        sim: &Sim,
    ) -> Result<Self, MachineError> {
        let mut phases = sim.random();
        let mut stores = Vec::new();
        let mut store = |name: &str, size_bytes| {
            let store = Rc::new(SparseDevice::new(name, Geometry::of_size(size_bytes)));
            stores.push(Rc::clone(&store));
            store
        };
        let drive = |number| {
            let phase_ns = phases.below(model.revolution_ns());
            let store = store(&format!("drive{number:02}"), model.size_bytes());
            let drive = ModelDevice::new(store, Rc::clone(model), phase_ns, runtime);
            Rc::new(ProbeDevice::new(Rc::new(drive), runtime.clone()))
        };
        let drives: Vec<_> = (0..stack.core.drives).map(drive).collect();
        let cache = stack.cache.as_ref().map(|cache| {
            let store = store("cache", cache.size.bytes());
            cache_device(cache, store, runtime)
        });
        let devices = || Devices {
            cache: cache.clone().map(|cache| cache as Rc<dyn BlockDevice>),
            members: drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect(),
            absent: Vec::new(),
        };
        let description = stack.description();
        let intent = if stack.core.intent { Intent::Bitmap } else { Intent::None };
        let (contents, occupied) = (Contents::Zeros, Occupied::Overwrite);
        let options = CreateOptions { contents, intent, occupied, cache: CACHE };
        Volume::create(&description, &devices(), &options).await?;
        let tolerance = Tolerance::Careful;
        let engine = stack.engine_model()?;
        let around_core = engine.as_ref().and_then(|engine| ceiling(engine, runtime));
        let options = OpenOptions { tolerance, pool: small_pool(), new_cache: CACHE, around_core };
        let volume = Volume::open(runtime, &description, devices(), options).await?;
        // Nobody opens this machine again.
        stores.iter().for_each(|store| store.keep_no_more());
        let volume = Rc::new(volume);
        let served = |model| Rc::new(EngineDevice::new(volume.clone(), model, runtime));
        let engine = engine.map(served);
        let front = match &engine {
            Some(engine) => Rc::clone(engine) as Rc<dyn BlockDevice>,
            None => volume.clone(),
        };
        Ok(Self { volume, front, engine, drives, cache })
    }

    /// Everything seen so far is forgotten.
    pub fn reset_probes(&self) {
        self.drives.iter().chain(&self.cache).for_each(|probe| probe.reset());
        self.engine.iter().for_each(|engine| engine.reset());
    }
}

/// What holds back the engine's cleaner, where something does.
fn ceiling(engine: &EngineModel, runtime: &Runtime) -> Option<Decorator> {
    let (cost, runtime) = (engine.cleaner?, runtime.clone());
    let decorate = move |core| Rc::new(CleanerCeiling::new(core, cost, &runtime));
    Some(Rc::new(move |core| decorate(core) as Rc<dyn BlockDevice>))
}

fn cache_device(cache: &CacheStack, store: Rc<SparseDevice>, runtime: &Runtime) -> Rc<ProbeDevice> {
    let latency = CacheStack::latency;
    let figures = FixedLatency {
        read: latency(cache.read_us),
        write: latency(cache.write_us),
        flush: latency(cache.flush_us),
        bytes_per_s: (cache.mb_per_s * 1e6) as u64,
        stability: Stability::Flushable,
    };
    let device = FixedLatencyDevice::new(store, figures, runtime.clone());
    Rc::new(ProbeDevice::new(Rc::new(device), runtime.clone()))
}

/// Requests bring no payload, so little is borrowed.
fn small_pool() -> BufferPool {
    let class = |buffer_bytes, count| PoolClass { buffer_bytes, count };
    BufferPool::new(&PoolConfig { classes: vec![class(4096, 64), class(64 << 10, 8)] })
}
