//! What the server counts.

use std::cell::{Cell, RefCell};

/// Counters of one connection, shared by its tasks.
#[derive(Debug, Default)]
pub struct ConnectionStats {
    peer: String,
    export: RefCell<Option<String>>,
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
}

/// One connection at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionReport {
    pub peer: String,
    /// `None` while the client still haggles.
    pub export: Option<String>,
    pub in_flight: usize,
    pub totals: Totals,
}

/// The server at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerReport {
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Connections closed unanswered because there were too many.
    pub refused: u64,
    /// Connections that never got past the handshake.
    pub failed_handshakes: u64,
    /// Over all connections, open and closed.
    pub totals: Totals,
    pub connections: Vec<ConnectionReport>,
}

impl ConnectionStats {
    pub fn new(peer: String) -> Self {
        Self { peer, ..Self::default() }
    }

    pub fn serves(&self, export: &str) {
        *self.export.borrow_mut() = Some(export.to_owned());
    }

    pub fn totals(&self) -> Totals {
        self.totals.get()
    }

    pub fn report(&self, in_flight: usize) -> ConnectionReport {
        let (peer, export) = (self.peer.clone(), self.export.borrow().clone());
        ConnectionReport { peer, export, in_flight, totals: self.totals.get() }
    }

    pub fn received(&self) {
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
        }
    }
}
