//! A machine put together from models: the array and the cache are the real ones.

use crate::stack::{CacheStack, Parts, Stack};
use headpond_block::decorators::ProbeDevice;
use headpond_block::{
    BlockDevice, BufferPool, Geometry, PoolClass, PoolConfig, Runtime, Stability,
};
use headpond_raid::{Contents, Intent, Occupied};
use headpond_sim::ssd::State;
use headpond_sim::{
    Controller, FixedLatency, FixedLatencyDevice, Model, ModelDevice, NetworkLink, Random, Sim,
    SparseDevice,
};
use headpond_volume::{
    CreateError, CreateOptions, Devices, OpenError, OpenOptions, Tolerance, Volume,
};
use std::rc::Rc;
use uuid::Uuid;

/// Every machine is alone in its world, so its cache needs no identity that nobody else has.
const CACHE: Uuid = Uuid::from_u128(0xcac4e);

/// A running machine; its devices are watched.
pub(crate) struct Machine {
    pub volume: Rc<Volume>,
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
}

impl Machine {
    /// Creates the volume on new devices, whose parity is right, and opens it.
    ///
    /// # Errors
    /// Where the description does not fit the devices.
    pub async fn start(
        stack: &Stack,
        parts: &Parts,
        runtime: &Runtime,
        sim: &Sim,
    ) -> Result<Self, MachineError> {
        let mut chance = sim.random();
        let controller = parts.controller.clone().map(|model| Controller::new(model, runtime));
        let network =
            parts.network.clone().map(|model| NetworkLink::new(model, chance.fork(), runtime));
        let drive = |number| {
            let name = format!("drive{number:02}");
            let state = stack.core.drive_state;
            let drive = modelled(&name, &parts.drive, u64::MAX, state, &mut chance, runtime);
            let drive: Rc<dyn BlockDevice> = match &controller {
                Some(controller) => controller.attach(drive),
                None => drive,
            };
            let drive = match &network {
                Some(network) => network.attach(drive),
                None => drive,
            };
            Rc::new(ProbeDevice::new(drive, runtime.clone()))
        };
        let drives: Vec<_> = (0..stack.core.drives).map(drive).collect();
        let cache = stack.cache.as_ref().map(|cache| match &parts.cache {
            Some(model) => {
                let (size, state) = (cache.size.bytes(), cache.state);
                let device = modelled("cache", model, size, state, &mut chance, runtime);
                Rc::new(ProbeDevice::new(device, runtime.clone()))
            }
            None => cache_device(cache, runtime),
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
        let options = OpenOptions { tolerance, pool: small_pool(), new_cache: CACHE };
        let volume = Volume::open(runtime, &description, devices(), options).await?;
        Ok(Self { volume: Rc::new(volume), drives, cache })
    }

    /// Everything seen so far is forgotten.
    pub fn reset_probes(&self) {
        self.drives.iter().chain(&self.cache).for_each(|probe| probe.reset());
    }
}

/// A drive of a model, of which at most `size_bytes` are used.
fn modelled(
    name: &str,
    model: &Model,
    size_bytes: u64,
    state: State,
    chance: &mut Random,
    runtime: &Runtime,
) -> Rc<dyn BlockDevice> {
    let capacity_bytes = model.capacity_bytes().expect("a stack's drives store something");
    let size_bytes = capacity_bytes.min(size_bytes);
    let store = Rc::new(SparseDevice::new(name, Geometry::of_size(size_bytes)));
    match model {
        Model::Hdd(model) => {
            let phase_ns = chance.below(model.revolution_ns());
            Rc::new(ModelDevice::new(store, Rc::clone(model), phase_ns, runtime))
        }
        Model::Ssd(model) => {
            let seed = chance.number();
            Rc::new(ModelDevice::ssd(store, Rc::clone(model), state, seed, runtime))
        }
        Model::Controller(_) | Model::Network(_) => unreachable!("checked with the stack"),
    }
}

fn cache_device(cache: &CacheStack, runtime: &Runtime) -> Rc<ProbeDevice> {
    let geometry = Geometry::of_size(cache.size.bytes());
    let store = Rc::new(SparseDevice::new("cache", geometry));
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
