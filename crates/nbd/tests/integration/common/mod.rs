//! A server in virtual time.

use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, BufferPool, PoolClass, PoolConfig, Runtime};
use headpond_nbd::client::{ConnectError, NbdDevice};
use headpond_nbd::limits::Limits;
use headpond_nbd::server::{Export, Exports, Server};
use headpond_sim::net::{Link, SimListener, SimStream};
use headpond_sim::{Sim, run};
use std::rc::Rc;

pub const SIZE_BYTES: u64 = 4 << 20;

/// A server that serves one export, the default, on a simulated network.
pub struct Stage {
    pub runtime: Runtime,
    pub sim: Sim,
    pub pool: BufferPool,
    pub server: Server,
    listener: SimListener,
}

impl Stage {
    /// Serves `device` under `limits`.
    pub fn new(runtime: Runtime, sim: Sim, device: Rc<dyn BlockDevice>, limits: Limits) -> Self {
        let class = |buffer_bytes, count| PoolClass { buffer_bytes, count };
        let classes = vec![class(4096, 64), class(64 << 10, 16), class(1 << 20, 4)];
        let pool = BufferPool::new(&PoolConfig { classes });
        let exports = Rc::new(Exports::new());
        exports.add(Export::new("", device)).expect("the first export");
        let server = Server::new(runtime.clone(), pool.clone(), exports, limits);
        let listener = SimListener::new(&runtime, sim.random());
        let (serving, place) = (server.clone(), listener.clone());
        drop(runtime.spawn(async move { serving.serve(Rc::new(place)).await }));
        Self { runtime, sim, pool, server, listener }
    }

    pub fn dial(&self) -> Rc<SimStream> {
        self.listener.connect(Link::LOCAL)
    }

    /// Our own client, connected.
    pub async fn client(&self) -> NbdDevice {
        self.try_client("").await.expect("a connection")
    }

    pub async fn try_client(&self, export: &str) -> Result<NbdDevice, ConnectError> {
        NbdDevice::connect(&self.runtime, &self.pool, self.dial(), export).await
    }
}

/// Runs a story about a RAM device under default limits.
pub fn story<T>(seed: u64, tell: impl AsyncFnOnce(Stage) -> T) -> T {
    run(seed, |runtime, sim| async move {
        let device = Rc::new(RamDevice::new("ram", SIZE_BYTES));
        tell(Stage::new(runtime, sim, device, Limits::default())).await
    })
    .expect("the story comes to its end")
}
