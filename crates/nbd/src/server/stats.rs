//! Statistics of the server.

use crate::link::InFlight;
use headpond_block::Instant;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Counters of one connection. The thread that serves it writes them, all read them.
#[derive(Debug)]
pub struct ConnectionStats {
    peer: String,
    export: OnceLock<String>,
    accepted: Instant,
    last_request_ns: AtomicU64,
    requests: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    errors: AtomicU64,
    dropped: AtomicU64,
    pub in_flight: Arc<InFlight>,
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
    /// Whether it is served on a thread of connections.
    pub on_thread: bool,
    pub totals: Totals,
}

/// A snapshot of the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerReport {
    /// Of connections, beside the server's own.
    pub threads: usize,
    /// Of connections to one of these.
    pub moves: u64,
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
        Self {
            peer,
            export: OnceLock::new(),
            accepted,
            last_request_ns: AtomicU64::new(accepted.as_nanos()),
            requests: AtomicU64::default(),
            read_bytes: AtomicU64::default(),
            written_bytes: AtomicU64::default(),
            errors: AtomicU64::default(),
            dropped: AtomicU64::default(),
            in_flight: Arc::default(),
        }
    }

    /// Once.
    pub fn serves(&self, export: &str) {
        self.export.set(export.to_owned()).expect("a connection has one export");
    }

    pub fn totals(&self) -> Totals {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Totals {
            requests: of(&self.requests),
            read_bytes: of(&self.read_bytes),
            written_bytes: of(&self.written_bytes),
            errors: of(&self.errors),
            dropped: of(&self.dropped),
        }
    }

    pub fn report(&self, now: Instant, on_thread: bool) -> ConnectionReport {
        let last_request = Instant::from_nanos(self.last_request_ns.load(Ordering::Relaxed));
        ConnectionReport {
            peer: self.peer.clone(),
            export: self.export.get().cloned(),
            age: now.since(self.accepted),
            idle: now.since(last_request),
            in_flight: self.in_flight.requests() as usize,
            in_flight_bytes: self.in_flight.bytes(),
            on_thread,
            totals: self.totals(),
        }
    }

    pub fn received(&self, now: Instant) {
        self.last_request_ns.store(now.as_nanos(), Ordering::Relaxed);
        add(&self.requests, 1);
    }

    pub fn read(&self, bytes: u64) {
        add(&self.read_bytes, bytes);
    }

    pub fn written(&self, bytes: u64) {
        add(&self.written_bytes, bytes);
    }

    pub fn failed(&self) {
        add(&self.errors, 1);
    }

    /// Counts a received request that is not executed.
    pub fn dropped(&self) {
        add(&self.dropped, 1);
    }
}

/// Only one thread writes a counter at a time.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
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
