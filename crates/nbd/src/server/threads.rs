//! Connections on threads of their own, beside the one of the devices.
//!
//! 1. [`Server::add_thread`] makes a place for one; its end runs there ([`ThreadEnd::serve`]), with
//!    a ring and memory of its own. 2. A connection begins on the server's thread. Where it has
//!    been busy over a window of requests, it *moves*: it takes no more requests until all are
//!    answered, and then stream, agreement and received bytes go to the thread with the fewest
//!    connections, which serves them with a device that crosses (`block::channel`). 3. Where it has
//!    been calm there for a window, it returns in the same way.
//!
//! On the server's thread the task of the connection waits meanwhile: it keeps its place, its
//! counters are the same, and the server may cut its stream off.
//!
//! **Invariants**
//! - Nothing is in flight while a connection moves, and one thread at a time uses its stream.
//! - Where the thread has ended the connection stays.
//! - Each thread has an equal share of the memory for requests, and at least as much as the longest
//!   one takes: where there is less, fewer threads are used.

use super::connection::Connection;
use super::export::{Export, Exports};
use super::handshake::Agreement;
use super::stats::ConnectionStats;
use super::{Server, Shared, TransmissionError};
use crate::export_info::ExportInfo;
use crate::limits::{Limits, Moves, PAYLOAD_BYTES_MAX};
use crate::link::{InFlight, MemoryBudget, MemoryGauges};
use headpond_block::channel::{ClientEnd, Receiver, Sender, mailbox};
use headpond_block::{BufferPool, MovedStream, Runtime};
use std::any::Any;
use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A window grows by this after a return, unless the stay was long, so that a connection does not
/// go to and fro.
const WINDOW_GROWTH: u32 = 4;
const WINDOW_MAX: u32 = 1 << 20;
/// A window of long requests is over after so much for each of its requests.
const WINDOW_BYTES: u64 = 64 << 10;
/// In windows.
const LONG_STAY: u64 = 16;
/// How often a thread that ends looks at what is left of its connections.
const PAUSE: Duration = Duration::from_millis(5);

/// A thread, as the server knows it.
pub(super) struct ThreadHandle {
    messages: Sender<ToThread>,
    pub memory: Arc<MemoryGauges>,
    pub connections: Cell<usize>,
}

/// A thread's end, on its way there.
pub struct ThreadEnd {
    messages: Receiver<ToThread>,
    memory: Arc<MemoryGauges>,
    limits: Limits,
}

pub(super) enum ToThread {
    Serve(Box<Moving>),
    /// New requests are refused from now on; told when that holds.
    Stop(Sender<()>),
}

/// A connection on its way.
pub(super) struct Moving {
    pub stream: MovedStream,
    /// And not used yet.
    pub received: Vec<u8>,
    pub agreement: Agreement,
    pub export: ExportInfo,
    pub device: ClientEnd,
    pub window: u32,
    pub stats: Arc<ConnectionStats>,
    pub back: Sender<Back>,
}

/// What became of a connection on a thread.
pub(super) enum Back {
    /// It is calm, after so many requests.
    Returned {
        /// And not used yet.
        received: Vec<u8>,
        requests: u64,
    },
    Ended {
        outcome: Result<(), TransmissionError>,
        /// It was disconnected as one that held memory and did not move.
        has_stalled: bool,
    },
}

/// How busy a connection is.
pub(super) struct Load {
    moves: Moves,
    window: u32,
    requests: u32,
    bytes: u64,
    /// At the arrival of each of these, added up.
    in_flight: u64,
    in_flight_bytes: f64,
    /// It moves where it is at least as busy, or where it is less busy.
    moves_when_busy: bool,
}

impl Load {
    /// On the server's thread.
    pub fn beside_devices(moves: Moves) -> Self {
        Self {
            moves,
            window: moves.window,
            requests: 0,
            bytes: 0,
            in_flight: 0,
            in_flight_bytes: 0.0,
            moves_when_busy: true,
        }
    }

    /// On a thread of connections, with this window.
    pub fn on_thread(moves: Moves, window: u32) -> Self {
        Self { moves_when_busy: false, window, ..Self::beside_devices(moves) }
    }

    pub fn window(&self) -> u32 {
        self.window
    }

    /// A request of so many bytes has come, beside these others.
    pub fn note(&mut self, bytes: u64, in_flight: &InFlight) {
        self.requests += 1;
        self.bytes += bytes;
        self.in_flight += in_flight.requests();
        self.in_flight_bytes += in_flight.bytes() as f64;
    }

    /// Whether the connection is to move, asked between two requests.
    pub fn is_to_move(&mut self) -> bool {
        if self.requests < self.window && self.bytes < u64::from(self.window) * WINDOW_BYTES {
            return false;
        }
        let Moves { busy, calm, busy_bytes, .. } = self.moves;
        let requests = f64::from(self.requests);
        let (mean, bytes) = (self.in_flight as f64 / requests, self.in_flight_bytes / requests);
        (self.requests, self.bytes, self.in_flight, self.in_flight_bytes) = (0, 0, 0, 0.0);
        match self.moves_when_busy {
            true => mean >= busy || bytes >= busy_bytes,
            false => mean < calm && bytes < busy_bytes / 2.0,
        }
    }

    /// The connection has returned after so many requests.
    pub fn returned(&mut self, after: u64) {
        match after >= LONG_STAY * u64::from(self.window) {
            true => self.window = self.moves.window,
            false => self.be_slower(),
        }
    }

    /// It could not be moved, or not for long.
    pub fn be_slower(&mut self) {
        self.window = self.window.saturating_mul(WINDOW_GROWTH).min(WINDOW_MAX);
    }
}

impl Server {
    /// Has connections served on one more thread, where the result is to run.
    pub fn add_thread(&self) -> ThreadEnd {
        let shared = &self.shared;
        // A message for each connection, and the stop.
        let places = shared.limits.connections_max + 1;
        let (sender, messages) = mailbox(places.next_power_of_two());
        let memory = Arc::new(MemoryGauges::new(0));
        let handle = ThreadHandle {
            messages: sender,
            memory: Arc::clone(&memory),
            connections: Cell::new(0),
        };
        shared.threads.borrow_mut().push(Rc::new(handle));
        shared.share_memory();
        ThreadEnd { messages, memory, limits: shared.limits }
    }
}

impl ThreadHandle {
    /// Hands a connection over; returns it where the thread has ended.
    pub fn serve(&self, moving: Box<Moving>) -> Result<(), Box<Moving>> {
        self.messages.send(ToThread::Serve(moving)).map_err(|message| match message {
            ToThread::Serve(moving) => moving,
            ToThread::Stop(_) => unreachable!("it was a connection"),
        })
    }

    /// Has new requests refused; waits until that holds.
    pub async fn refuse_requests(&self) {
        let (done, told) = mailbox(1);
        if self.messages.send(ToThread::Stop(done)).is_ok() {
            poll_fn(|context| told.poll_receive(context)).await;
        }
    }
}

impl ThreadEnd {
    /// Serves connections, until the server is gone. Streams open at `place`.
    pub async fn serve(self, runtime: Runtime, pool: BufferPool, place: Rc<dyn Any>) {
        let Self { messages, memory, limits } = self;
        let memory = Rc::new(MemoryBudget::of(memory));
        let exports = Rc::new(Exports::new());
        let shared = Rc::new(Shared::new(runtime.clone(), pool, memory, exports, limits));
        while let Some(message) = poll_fn(|context| messages.poll_receive(context)).await {
            match message {
                ToThread::Serve(moving) => shared.adopt(*moving, &*place),
                ToThread::Stop(done) => {
                    shared.is_stopping.set(true);
                    shared.changed.notify_all();
                    // A server that is gone needs no answer.
                    let _ = done.send(());
                }
            }
        }
        let connections: Vec<_> = shared.connections.borrow().values().map(Rc::clone).collect();
        connections.iter().for_each(|connection| connection.cut_off());
        drop(connections);
        while !shared.connections.borrow().is_empty() {
            runtime.sleep(PAUSE).await;
        }
    }
}

impl Shared {
    /// Serves a connection that another thread has begun.
    fn adopt(self: &Rc<Self>, moving: Moving, place: &dyn Any) {
        let Moving { stream, received, agreement, export, device, window, stats, back } = moving;
        let load = Load::on_thread(self.limits.moves, window);
        let device = Rc::new(device.open(&self.runtime, agreement.export.as_str()));
        let export = Rc::new(Export::elsewhere(export, device));
        let connection = Rc::new(Connection::adopted(stream(place), stats, self));
        let id = self.insert(Rc::clone(&connection));
        let shared = Rc::clone(self);
        drop(self.runtime.spawn(async move {
            let became = connection.go_on(&shared, export, &agreement, (received, load)).await;
            shared.connections.borrow_mut().remove(&id);
            // Before the answer: then the stream is the other thread's alone.
            drop(connection);
            // A server that is gone needs no answer.
            let _ = back.send(became);
        }));
    }

    /// Gives each thread its share of the memory for requests. On one that is not used, since there
    /// is not enough for all, a connection soon is calm.
    pub(super) fn share_memory(&self) {
        let (threads, used) = (self.threads.borrow(), self.threads_in_use());
        let share = self.memory_bytes_max.get() / (used as u64 + 1);
        self.memory.set(share);
        for (at, thread) in threads.iter().enumerate() {
            thread.memory.set(if at < used { share } else { 0 });
        }
    }

    /// Each thread has memory for one of the longest requests at least.
    pub(super) fn threads_in_use(&self) -> usize {
        let shares = self.memory_bytes_max.get() / u64::from(PAYLOAD_BYTES_MAX);
        let most = usize::try_from(shares).unwrap_or(usize::MAX).saturating_sub(1);
        self.threads.borrow().len().min(most)
    }

    /// The thread with the fewest connections, where there are any.
    pub(super) fn thread_for_connection(&self) -> Option<Rc<ThreadHandle>> {
        let threads = self.threads.borrow();
        let used = threads.iter().take(self.threads_in_use());
        let running = used.filter(|thread| !thread.messages.is_closed());
        running.min_by_key(|thread| thread.connections.get()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_busy_moves_and_who_is_calm_returns_more_rarely_each_time() {
        let moves = Moves { window: 10, busy: 4.0, calm: 2.0, busy_bytes: 1e6 };
        let (mut here, mut there) = (Load::beside_devices(moves), Load::on_thread(moves, 10));
        let over = |load: &mut Load, requests: u32, in_flight: u64| {
            (0..requests).for_each(|_| load.note(0, &InFlight::of(in_flight, 0)));
            load.is_to_move()
        };
        assert!(!over(&mut here, 9, 32), "the window is not over");
        assert!(over(&mut here, 1, 32));
        assert!(!over(&mut here, 10, 3) && over(&mut here, 10, 4));
        assert!(!over(&mut there, 10, 2) && over(&mut there, 10, 1));
        here.returned(159);
        assert!(!over(&mut here, 39, 32) && over(&mut here, 1, 32), "it was there for 16 windows");
        here.returned(640);
        assert!(over(&mut here, 10, 32), "it was there for long");
    }

    #[test]
    fn long_requests_move_a_connection_where_small_ones_do_not() {
        let moves = Moves { window: 1, ..Moves::default() }.by_bytes();
        let (here, there) = (Load::beside_devices(moves), Load::on_thread(moves, 1));
        let moves = |mut load: Load, requests, bytes| {
            load.note(0, &InFlight::of(requests, bytes));
            load.is_to_move()
        };
        assert!(!moves(Load { ..here }, 255, 255 << 12) && moves(here, 7, 7 << 20));
        assert!(moves(Load { ..there }, 31, 31 << 12) && !moves(there, 7, 7 << 20));
    }
}
