//! The NBD server: named block devices for any number of clients, on the devices' thread and on
//! further ones.
//!
//! 1. [`Server::new`] with the exports; [`Server::serve`] for each listener.
//! 2. Each connection is one task: the handshake machine, then the transmission loop. A request
//!    that its device does not complete immediately is awaited by a task of its own.
//! 3. Under load a connection moves to another thread, where there are some ([`threads`]).
//! 4. [`Server::stop`] refuses new requests, completes the others, flushes, and closes.
//!
//! **Invariants**
//! - [`Limits`] bounds everything that one client, and that all clients together, can make the
//!   server hold.
//! - Requests of a disconnected client that are at the device complete, and then free their memory;
//!   other clients are not affected. Its other requests are dropped.
//!
//! **Not here**: sockets (a runtime crate makes [`Listener`]s), TLS, access control.

mod check;
mod connection;
mod export;
pub mod handshake;
mod serving;
mod shortage;
mod stats;
mod stop;
mod threads;
mod transmission;

pub use check::{Operation, check};
pub use connection::ConnectionError;
pub use export::{Export, Exports, NameTaken};
pub use stats::{ConnectionReport, ServerReport, Totals};
pub use stop::StopError;
pub use threads::ThreadEnd;
pub use transmission::TransmissionError;

use crate::limits::Limits;
use crate::link::{MemoryBudget, MemoryGauges, ReceivePool};
use connection::{Connection, Standing};
use handshake::Agreement;
use headpond_block::sync::{Notify, Receiver, oneshot};
use headpond_block::{BufferPool, Listener, Runtime, Stream};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use threads::ThreadHandle;

/// Pause after a failed accept, so that a lack of file descriptors does not become a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Consecutive failed accepts after which the listener is closed.
const ACCEPT_FAILURES_MAX: u32 = 100;

/// A server and its connections. Cloning shares it.
#[derive(Clone)]
pub struct Server {
    shared: Rc<Shared>,
}

/// State that all connections of a server share.
struct Shared {
    runtime: Runtime,
    pool: BufferPool,
    receive_pool: ReceivePool,
    memory: Rc<MemoryBudget>,
    /// Of this thread and the others.
    memory_bytes_max: Cell<u64>,
    threads: RefCell<Vec<Rc<ThreadHandle>>>,
    exports: Rc<Exports>,
    limits: Limits,
    connections: RefCell<BTreeMap<u64, Rc<Connection>>>,
    /// Of the connection that came last.
    last_id: Cell<u64>,
    is_stopping: Cell<bool>,
    /// Connections were opened or closed, or the server is stopping.
    changed: Notify,
    closed: RefCell<ServerReport>,
    last_error: RefCell<Option<ConnectionError>>,
}

impl Server {
    /// A server that takes memory for requests from `pool`.
    pub fn new(runtime: Runtime, pool: BufferPool, exports: Rc<Exports>, limits: Limits) -> Self {
        let memory = Rc::new(MemoryBudget::new(limits.memory_bytes_max));
        Self { shared: Rc::new(Shared::new(runtime, pool, memory, exports, limits)) }
    }

    pub fn exports(&self) -> &Rc<Exports> {
        &self.shared.exports
    }

    /// Accepts clients until the server is stopped. May run for several listeners concurrently.
    ///
    /// # Errors
    /// The listener's error, when it keeps failing; existing connections stay.
    pub async fn serve(&self, listener: Rc<dyn Listener>) -> io::Result<()> {
        let mut failures = 0;
        while let Some(accepted) = self.accept_unless_stopping(&*listener).await {
            match accepted {
                Ok(stream) => {
                    failures = 0;
                    self.serve_stream(stream);
                }
                Err(error) if failures == ACCEPT_FAILURES_MAX => return Err(error),
                Err(_) => {
                    failures += 1;
                    self.shared.runtime.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        Ok(())
    }

    /// Serves one client that is already connected, in a task of its own.
    pub fn serve_stream(&self, stream: Rc<dyn Stream>) {
        let shared = &self.shared;
        let place = shared.place_for_newcomer();
        if place != Some(Standing::Served) {
            shared.closed.borrow_mut().refused += 1;
        }
        let Some(standing) = place else { return stream.shutdown() };
        let connection = Rc::new(Connection::new(stream, standing, shared));
        let id = shared.enlist(Rc::clone(&connection));
        let shared = Rc::clone(shared);
        self.shared.runtime.spawn(async move {
            let outcome = connection.run(&shared).await;
            shared.strike_off(id, &connection, outcome);
        });
    }

    /// Serves a client that has no handshake and needs none, as the kernel's, in a task of its own.
    /// The result completes when the connection has ended, and with it all that it had at the
    /// device. `None` where all places are taken or the server stops: the stream is shut down.
    ///
    /// # Panics
    /// Where there is no such export.
    pub fn serve_agreed(&self, stream: Rc<dyn Stream>, terms: Agreement) -> Option<Receiver<()>> {
        let shared = &self.shared;
        assert!(shared.exports.get(&terms.export).is_some(), "an export that is offered");
        if shared.place_for_newcomer() != Some(Standing::Served) {
            stream.shutdown();
            return None;
        }
        let connection = Rc::new(Connection::agreed(stream, terms, shared));
        let id = shared.enlist(Rc::clone(&connection));
        let (ended, end) = oneshot();
        let shared = Rc::clone(shared);
        drop(self.shared.runtime.spawn(async move {
            let outcome = connection.run(&shared).await;
            shared.strike_off(id, &connection, outcome);
            ended.send(());
        }));
        Some(end)
    }

    /// Current counters and connections.
    pub fn report(&self) -> ServerReport {
        let (shared, now) = (&self.shared, self.shared.runtime.now());
        let mut report = shared.closed.borrow().clone();
        let threads = shared.threads.borrow();
        let of_threads = threads.iter().map(|thread| &*thread.memory);
        let memory = of_threads.chain([&**shared.memory.gauges()]);
        report.memory_held_bytes = memory.clone().map(MemoryGauges::held_bytes).sum();
        report.memory_bytes_max = shared.memory_bytes_max.get();
        report.threads = threads.len();
        report.waiting_for_memory = memory.map(MemoryGauges::waiting).sum();
        for connection in shared.connections.borrow().values() {
            report.totals = report.totals.plus(connection.stats.totals());
            if connection.standing() != Standing::TurnedAway {
                report.connections.push(connection.report(now));
            }
        }
        report
    }

    /// Changes [`Limits::memory_bytes_max`]. Where more is held, nothing is aborted: requests wait
    /// until enough is released.
    pub fn set_memory(&self, bytes_max: u64) {
        self.shared.memory_bytes_max.set(bytes_max);
        self.shared.share_memory();
    }

    /// Takes the reason of the latest connection that the server had to close.
    pub fn take_last_error(&self) -> Option<ConnectionError> {
        self.shared.last_error.borrow_mut().take()
    }

    async fn accept_unless_stopping(
        &self,
        listener: &dyn Listener,
    ) -> Option<io::Result<Rc<dyn Stream>>> {
        let mut accepting = listener.accept();
        let mut changed = pin!(self.shared.wait_for_stop());
        poll_fn(|context| {
            if changed.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            accepting.as_mut().poll(context).map(Some)
        })
        .await
    }
}

impl Shared {
    fn new(
        runtime: Runtime,
        pool: BufferPool,
        memory: Rc<MemoryBudget>,
        exports: Rc<Exports>,
        limits: Limits,
    ) -> Self {
        let connections_max = limits.connections_max + limits.turned_away_max;
        Self {
            runtime,
            pool,
            receive_pool: ReceivePool::new(connections_max.max(1)),
            memory,
            memory_bytes_max: Cell::new(limits.memory_bytes_max),
            threads: RefCell::default(),
            exports,
            limits,
            connections: RefCell::default(),
            last_id: Cell::default(),
            is_stopping: Cell::new(false),
            changed: Notify::new(),
            closed: RefCell::default(),
            last_error: RefCell::default(),
        }
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.get()
    }

    async fn wait_for_stop(&self) {
        while !self.is_stopping() {
            self.changed.wait().await;
        }
    }

    fn enlist(&self, connection: Rc<Connection>) -> u64 {
        if connection.standing() == Standing::Served {
            self.closed.borrow_mut().accepted += 1;
        }
        self.insert(connection)
    }

    /// Gives a connection its number.
    fn insert(&self, connection: Rc<Connection>) -> u64 {
        let id = self.last_id.get() + 1;
        self.last_id.set(id);
        self.connections.borrow_mut().insert(id, connection);
        id
    }

    fn strike_off(&self, id: u64, connection: &Connection, outcome: Result<(), ConnectionError>) {
        self.connections.borrow_mut().remove(&id).expect("a connection is struck off once");
        let mut closed = self.closed.borrow_mut();
        closed.totals = closed.totals.plus(connection.stats.totals());
        let was_served = connection.standing() == Standing::Served;
        if was_served && !connection.is_established() {
            closed.failed_handshakes += 1;
        }
        drop(closed);
        if was_served && let Err(error) = outcome {
            *self.last_error.borrow_mut() = Some(error);
        }
        self.changed.notify_all();
    }
}
