//! Statistics of the server.

use headpond_block::Instant;
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// Counters of one connection, shared by its tasks.
#[derive(Debug)]
pub struct ConnectionStats {
    peer: String,
    export: RefCell<Option<String>>,
    accepted: Instant,
    last_request: Cell<Instant>,
    totals: Cell<Totals>,
}

/// Sums over requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Requests of every kind that were received.
    pub requests: u64,
    /// Payload of successful reads.
    pub read_bytes: u64,
    /// Payload of successful writes.
    pub written_bytes: u64,
    /// Requests that were answered with an error.
    pub errors: u64,
    /// Requests that were received but not executed because the client disconnected. Those still in
    /// the socket's buffer are not counted.
    pub dropped: u64,
}

/// A snapshot of one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionReport {
    pub peer: String,
    /// `None` until the end of the handshake.
    pub export: Option<String>,
    /// Since it was accepted.
    pub age: Duration,
    /// Since its last request, or since it was accepted.
    pub idle: Duration,
    /// Requests from admission until their replies are sent.
    pub in_flight: usize,
    /// Server memory that these hold.
    pub in_flight_bytes: u64,
    pub totals: Totals,
}

/// A snapshot of the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerReport {
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Connections refused for lack of places: most with an error reply, the others closed
    /// immediately.
    pub refused: u64,
    /// Connections dropped for a newer one before their first request.
    pub gave_way: u64,
    /// Connections dropped because they neither read nor sent while others waited for the memory
    /// that they held.
    pub stalled: u64,
    /// Connections that never got past the handshake.
    pub failed_handshakes: u64,
    /// Memory that the requests of all connections hold.
    pub memory_held_bytes: u64,
    /// The limit of that memory.
    pub memory_bytes_max: u64,
    /// Connections whose next request waits for memory.
    pub waiting_for_memory: usize,
    /// Over all connections, open and closed.
    pub totals: Totals,
    pub connections: Vec<ConnectionReport>,
}

impl ConnectionStats {
    pub fn new(peer: String, accepted: Instant) -> Self {
        let (last_request, totals) = (Cell::new(accepted), Cell::default());
        Self { peer, export: RefCell::default(), accepted, last_request, totals }
    }

    pub fn serves(&self, export: &str) {
        *self.export.borrow_mut() = Some(export.to_owned());
    }

    pub fn totals(&self) -> Totals {
        self.totals.get()
    }

    pub fn report(&self, now: Instant, in_flight: usize, in_flight_bytes: u64) -> ConnectionReport {
        ConnectionReport {
            peer: self.peer.clone(),
            export: self.export.borrow().clone(),
            age: now.since(self.accepted),
            idle: now.since(self.last_request.get()),
            in_flight,
            in_flight_bytes,
            totals: self.totals.get(),
        }
    }

    pub fn received(&self, now: Instant) {
        self.last_request.set(now);
        self.add(Totals { requests: 1, ..Totals::default() });
    }

    pub fn read(&self, bytes: u64) {
        self.add(Totals { read_bytes: bytes, ..Totals::default() });
    }

    pub fn written(&self, bytes: u64) {
        self.add(Totals { written_bytes: bytes, ..Totals::default() });
    }

    pub fn failed(&self) {
        self.add(Totals { errors: 1, ..Totals::default() });
    }

    /// Counts a received request that is not executed.
    pub fn dropped(&self) {
        self.add(Totals { dropped: 1, ..Totals::default() });
    }

    fn add(&self, more: Totals) {
        self.totals.set(self.totals.get().plus(more));
    }
}

impl Totals {
    #[must_use]
    pub fn plus(self, other: Totals) -> Totals {
        Totals {
            requests: self.requests + other.requests,
            read_bytes: self.read_bytes + other.read_bytes,
            written_bytes: self.written_bytes + other.written_bytes,
            errors: self.errors + other.errors,
            dropped: self.dropped + other.dropped,
        }
    }
}
