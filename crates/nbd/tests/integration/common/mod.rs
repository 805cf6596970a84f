//! A server in virtual time, whose connections stay on its thread, or move to another one and back
//! all the time.

use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, BufferPool, PoolClass, PoolConfig, Runtime};
use headpond_nbd::client::{ConnectError, NbdDevice};
use headpond_nbd::limits::{Limits, Moves};
use headpond_nbd::server::{Export, Exports, Server};
use headpond_sim::net::{Link, SimListener, SimStream};
use headpond_sim::{Sim, run, run_threads};
use std::cell::RefCell;
use std::rc::Rc;

pub const SIZE_BYTES: u64 = 4 << 20;

/// Connections move after each request, at first, whatever is in flight.
pub const RESTLESS: Moves =
    Moves { window: 1, busy: 0.0, calm: f64::INFINITY, busy_bytes: f64::INFINITY };

/// Connections move after their first request, and stay there.
const SETTLED: Moves = Moves { window: 1, busy: 0.0, calm: 0.0, busy_bytes: 0.0 };

thread_local! {
    /// The executor that connections of a new stage move to, and when.
    static OTHER: RefCell<Option<(Runtime, Moves)>> = const { RefCell::new(None) };
}

/// A server that serves one export, the default, on a simulated network.
pub struct Stage {
    pub runtime: Runtime,
    pub sim: Sim,
    pub pool: BufferPool,
    pub server: Server,
    /// Whether there is a thread for connections.
    pub has_thread: bool,
    listener: SimListener,
}

impl Stage {
    /// Serves `device` under `limits`.
    pub fn new(runtime: Runtime, sim: Sim, device: Rc<dyn BlockDevice>, limits: Limits) -> Self {
        let other = OTHER.take();
        let has_thread = other.is_some();
        let moves = other.as_ref().map_or(limits.moves, |(_, moves)| *moves);
        let (pool, limits) = (pool(), Limits { moves, ..limits });
        let exports = Rc::new(Exports::new());
        exports.add(Export::new("", device)).expect("the first export");
        let server = Server::new(runtime.clone(), pool.clone(), exports, limits);
        if let Some((other, _)) = other {
            let end = server.add_thread();
            drop(other.spawn(end.serve(other.clone(), self::pool(), Rc::new(()))));
        }
        let listener = SimListener::new(&runtime, sim.random());
        let (serving, place) = (server.clone(), listener.clone());
        drop(runtime.spawn(async move { serving.serve(Rc::new(place)).await }));
        Self { runtime, sim, pool, server, has_thread, listener }
    }

    /// How many connections are on the other executor now.
    pub fn on_thread(&self) -> usize {
        self.server.report().connections.iter().filter(|it| it.on_thread).count()
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

fn pool() -> BufferPool {
    let class = |buffer_bytes, count| PoolClass { buffer_bytes, count };
    let classes = vec![class(4096, 64), class(64 << 10, 16), class(1 << 20, 4)];
    BufferPool::new(&PoolConfig { classes })
}

/// Runs a test on one executor.
pub fn on_one<T, F: Future<Output = T>>(seed: u64, tell: impl FnOnce(Runtime, Sim) -> F) {
    run(seed, tell).expect("it comes to its end");
}

/// Runs a test on one executor, and once more with a second one that connections move to.
pub fn on_both<T, F: Future<Output = T>>(seed: u64, tell: impl Fn(Runtime, Sim) -> F) {
    on_one(seed, &tell);
    on_two(seed, RESTLESS, tell);
}

/// Runs a test with a second executor, where connections stay after their first request.
pub fn on_thread<T, F: Future<Output = T>>(seed: u64, tell: impl FnOnce(Runtime, Sim) -> F) {
    on_two(seed, SETTLED, tell);
}

fn on_two<T, F: Future<Output = T>>(seed: u64, moves: Moves, tell: impl FnOnce(Runtime, Sim) -> F) {
    let start = |runtimes: Vec<Runtime>, sim| {
        OTHER.set(Some((runtimes[1].clone(), moves)));
        tell(runtimes[0].clone(), sim)
    };
    run_threads(seed, 2, start).expect("it comes to its end on two executors");
}

/// Runs a story about a RAM device under default limits.
pub fn story<T>(seed: u64, tell: impl AsyncFn(Stage) -> T) {
    on_both(seed, |runtime, sim| async {
        let device = Rc::new(RamDevice::new("ram", SIZE_BYTES));
        tell(Stage::new(runtime, sim, device, Limits::default())).await
    });
}
