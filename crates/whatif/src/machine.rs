//! A machine put together from models: the array and the cache are the real ones.

use crate::condition::SPARE;
use crate::engine::{CleanerCeiling, Core, EngineDevice, EngineError, EngineModel};
use crate::stack::{CacheStack, Parts, Stack};
use headpond_block::decorators::ProbeDevice;
use headpond_block::{BlockDevice, BufferPool, Geometry, PoolConfig, Runtime, Stability};
use headpond_raid::{Intent, Occupied};
use headpond_sim::ssd::State;
use headpond_sim::{
    Controller, FixedLatency, FixedLatencyDevice, Model, ModelDevice, NetworkLink, Random, Sim,
    SparseDevice,
};
use headpond_volume::{
    ChangeMembersError, CreateError, CreateOptions, Decorator, Devices, OpenError, OpenOptions,
    Tolerance, Volume,
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
    /// The last is the one that is rebuilt, where one is.
    pub drives: Vec<Rc<ProbeDevice>>,
    pub cache: Option<Rc<ProbeDevice>>,
    /// Whether an operating system would send flushes to what it is made of.
    pub takes_flushes: bool,
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
    #[error("the array cannot lose a drive: {0}")]
    Condition(#[from] ChangeMembersError),
}

impl Machine {
    /// Creates the volume on new devices, opens it, and brings its array into its condition.
    ///
    /// # Errors
    /// Where the description does not fit the devices.
    pub async fn start(
        stack: &Stack,
        parts: &Parts,
        runtime: &Runtime,
        sim: &Sim,
    ) -> Result<Self, MachineError> {
        let path = Path::new(parts, runtime, sim);
        Self::start_on(stack, parts, &path, sim, runtime).await
    }

    /// As many machines as the stack says, behind one controller and one network.
    ///
    /// # Errors
    /// As [`Machine::start`].
    pub async fn start_all(
        stack: &Stack,
        parts: &Parts,
        runtime: &Runtime,
        sim: &Sim,
    ) -> Result<Vec<Self>, MachineError> {
        let path = Path::new(parts, runtime, sim);
        let mut all = Vec::new();
        for _ in 0..stack.arrays {
            all.push(Self::start_on(stack, parts, &path, sim, runtime).await?);
        }
        Ok(all)
    }

    async fn start_on(
        stack: &Stack,
        parts: &Parts,
        path: &Path,
        sim: &Sim,
        runtime: &Runtime,
    ) -> Result<Self, MachineError> {
        let Hardware { mut drives, spare, cache, stores } =
            Hardware::new(stack, parts, path, runtime, sim);
        let devices = || Devices {
            tier: None,
            cache: cache.clone().map(|cache| cache as Rc<dyn BlockDevice>),
            members: drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect(),
            journals: Vec::new(),
            ..Devices::default()
        };
        let description = stack.description();
        let intent = if stack.core.intent { Intent::Bitmap } else { Intent::None };
        let condition = stack.core.condition;
        let (contents, occupied) = (condition.contents(), Occupied::Overwrite);
        let options = CreateOptions { contents, intent, occupied, cache: CACHE, journal: CACHE };
        Volume::create(&description, &devices(), &options).await?;
        let tolerance = Tolerance::Careful;
        let engine = stack.engine_model()?;
        let core = Rc::new(engine.as_ref().map(Core::of).unwrap_or_default());
        let around_core = engine.as_ref().and_then(|engine| ceiling(engine, &core, runtime));
        let options = OpenOptions {
            tolerance,
            pool: BufferPool::new(&PoolConfig::small()),
            new_cache: CACHE,
            around_core,
            watch_load: None,
            claimant: None,
        };
        let volume = Volume::open(runtime, &description, devices(), options).await?;
        let device = |drive: &Rc<ProbeDevice>| Rc::clone(drive) as Rc<dyn BlockDevice>;
        condition.bring_about(&volume, spare.as_ref().map(device)).await?;
        drives.extend(spare);
        // Nobody opens this machine again.
        stores.iter().for_each(|store| store.keep_no_more());
        let volume = Rc::new(volume);
        let served = |model| Rc::new(EngineDevice::new(volume.clone(), model, core, runtime));
        let engine = engine.map(served);
        let front = match &engine {
            Some(engine) => Rc::clone(engine) as Rc<dyn BlockDevice>,
            None => volume.clone(),
        };
        let takes_flushes = cache.is_some() || parts.report_a_cache();
        Ok(Self { volume, front, engine, drives, cache, takes_flushes })
    }

    /// Everything seen so far is forgotten.
    pub fn reset_probes(&self) {
        self.drives.iter().chain(&self.cache).for_each(|probe| probe.reset());
        self.engine.iter().for_each(|engine| engine.reset());
    }
}

/// What lies between the host and its drives.
struct Path {
    controller: Option<Controller>,
    network: Option<NetworkLink>,
}

impl Path {
    fn new(parts: &Parts, runtime: &Runtime, sim: &Sim) -> Self {
        let controller = parts.controller.clone().map(|model| Controller::new(model, runtime));
        let network = parts.network.clone();
        let network = network.map(|model| NetworkLink::new(model, sim.random(), runtime));
        Self { controller, network }
    }

    fn attach(&self, drive: Rc<dyn BlockDevice>) -> Rc<dyn BlockDevice> {
        let drive = match &self.controller {
            Some(controller) => controller.attach(drive),
            None => drive,
        };
        match &self.network {
            Some(network) => network.attach(drive),
            None => drive,
        }
    }
}

/// The drives and the cache device of a machine, new.
struct Hardware {
    drives: Vec<Rc<ProbeDevice>>,
    /// For a rebuild, where it needs one.
    spare: Option<Rc<ProbeDevice>>,
    cache: Option<Rc<ProbeDevice>>,
    /// What lies under them.
    stores: Vec<Rc<SparseDevice>>,
}

impl Hardware {
    fn new(stack: &Stack, parts: &Parts, path: &Path, runtime: &Runtime, sim: &Sim) -> Self {
        let mut chance = sim.random();
        let mut stores = Vec::new();
        let mut store = |name: &str, size_bytes| {
            let store = Rc::new(SparseDevice::new(name, Geometry::of_size(size_bytes)));
            stores.push(Rc::clone(&store));
            store
        };
        let capacity_bytes =
            |model: &Model| model.capacity_bytes().expect("a stack's drives store something");
        let mut drive = |name: &str| {
            let store = store(name, capacity_bytes(&parts.drive));
            let state = stack.core.drive_state;
            let drive = modelled(store, &parts.drive, state, &mut chance, runtime);
            Rc::new(ProbeDevice::new(path.attach(drive), runtime.clone()))
        };
        let names = (0..stack.core.drives).map(|number| format!("drive{number:02}"));
        let drives: Vec<_> = names.map(|name| drive(&name)).collect();
        let spare = stack.core.needs_spare().then(|| drive(SPARE));
        let cache = stack.cache.as_ref().map(|cache| match &parts.cache {
            Some(model) => {
                let store = store("cache", cache.size.bytes().min(capacity_bytes(model)));
                let device = modelled(store, model, cache.state, &mut chance, runtime);
                Rc::new(ProbeDevice::new(device, runtime.clone()))
            }
            None => cache_device(cache, store("cache", cache.size.bytes()), runtime),
        });
        Self { drives, spare, cache, stores }
    }
}

/// A drive of a model.
pub(crate) fn modelled(
    store: Rc<SparseDevice>,
    model: &Model,
    state: State,
    chance: &mut Random,
    runtime: &Runtime,
) -> Rc<dyn BlockDevice> {
    match model {
        Model::Hdd(model) => {
            let phase_ns = chance.below(model.revolution_ns());
            Rc::new(ModelDevice::new(store, Rc::clone(model), phase_ns, runtime))
        }
        Model::Ssd(model) => {
            let seed = chance.number();
            Rc::new(ModelDevice::ssd(store, Rc::clone(model), state, seed, runtime))
        }
        Model::Remote(model) => {
            Rc::new(ModelDevice::remote(store, Rc::clone(model), chance.number(), runtime))
        }
        Model::Controller(_) | Model::Network(_) => unreachable!("checked with the stack"),
    }
}

/// What holds back the engine's cleaner, where something does.
fn ceiling(engine: &EngineModel, core: &Rc<Core>, runtime: &Runtime) -> Option<Decorator> {
    let (cost, core, runtime) = (engine.cleaner?, Rc::clone(core), runtime.clone());
    let decorate =
        move |array| Rc::new(CleanerCeiling::new(array, cost, Rc::clone(&core), &runtime));
    Some(Rc::new(move |array| decorate(array) as Rc<dyn BlockDevice>))
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
