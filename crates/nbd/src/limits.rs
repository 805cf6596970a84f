//! The limits that keep one client from harming the others.

use std::time::Duration;

/// Bounds on a client's requests and memory; every queue of the server is bounded by one of these.
///
/// **Source**: the numbers follow those of other servers after option floods (CVE-2017-15119) and
/// handshakes that never ended (CVE-2024-7409).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Options that one handshake may send.
    pub options_max: u32,
    /// Data of one option that is decoded; longer data is skipped and the option refused.
    pub option_bytes_max: u32,
    /// Data of one option that is skipped; a client that announces more is disconnected.
    pub option_skip_bytes_max: u32,
    /// From the first byte to the transmission phase.
    pub handshake_time_max: Duration,
    /// Concurrent connections. Where all are in use a new one replaces an unfinished handshake, or
    /// a client that has sent no request for [`Self::unused_time_max`]; never one that has been
    /// served.
    pub connections_max: usize,
    /// Further connections that are refused in the handshake; those beyond are closed without a
    /// reply.
    pub turned_away_max: usize,
    /// From the end of the handshake; after that a client without requests is replaced by a new one
    /// where places are short.
    pub unused_time_max: Duration,
    /// Payload of a refused write that is skipped; a client that announces more is disconnected.
    pub payload_skip_bytes_max: u32,
    /// Requests of one connection between their arrival and the end of sending their reply.
    pub in_flight_requests_max: usize,
    /// Payload bytes of these requests. A single request always fits.
    pub in_flight_bytes_max: u64,
    /// Payload bytes of the requests of all connections, from their admission until their replies
    /// are sent: one budget, for which their next requests wait in order, and are never refused.
    /// Threads of connections have equal shares of it. A single request always fits where nothing
    /// else is held.
    ///
    /// In addition a connection has its receive buffer of 256 KiB, on each of its threads, earlier
    /// ones as long as small payloads in them are at the device, and one reply header for each
    /// request in flight.
    pub memory_bytes_max: u64,
    /// How long a client that holds memory may take to read one batch of replies (2 MiB, or one
    /// longer reply), or to send one payload, before it is disconnected where others wait for
    /// memory: the only way to reclaim that memory.
    pub stall_time_max: Duration,
    /// How long a client may take to read its last replies when its connection ends, or the server
    /// stops.
    pub stop_time_max: Duration,
    /// When a connection moves to another thread, where there are some.
    pub moves: Moves,
}

/// When a connection moves to a thread of connections, and back: by what it has in flight, in the
/// mean over a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moves {
    /// Requests.
    pub window: u32,
    /// With so many requests it moves; a crossing costs more than it brings with fewer.
    pub busy: f64,
    /// With fewer it returns, and with less than half of the bytes.
    pub calm: f64,
    /// With so many bytes it moves as well: copies are most of the work.
    pub busy_bytes: f64,
}

impl Moves {
    /// By bytes alone: where client, sockets and devices have no processor each, crossings of small
    /// requests cost more than they bring.
    #[must_use]
    pub fn by_bytes(self) -> Self {
        Self { busy: f64::INFINITY, calm: f64::INFINITY, ..self }
    }
}

impl Default for Moves {
    fn default() -> Self {
        Self { window: 1024, busy: 6.0, calm: 3.0, busy_bytes: (2 << 20) as f64 }
    }
}

/// The longest payload of one request, which exports advertise, in bytes; longer reads and writes
/// are errors.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// The smallest useful [`Limits::memory_bytes_max`]: two of the longest requests, in bytes.
pub const MEMORY_BYTES_MIN: u64 = 2 * PAYLOAD_BYTES_MAX as u64;

impl Default for Limits {
    fn default() -> Self {
        Self {
            options_max: 32,
            option_bytes_max: 16 * 1024,
            option_skip_bytes_max: 64 * 1024,
            handshake_time_max: Duration::from_secs(10),
            connections_max: 128,
            turned_away_max: 16,
            unused_time_max: Duration::from_secs(60),
            payload_skip_bytes_max: 64 << 20,
            in_flight_requests_max: 256,
            in_flight_bytes_max: 64 << 20,
            memory_bytes_max: 1 << 30,
            stall_time_max: Duration::from_secs(30),
            stop_time_max: Duration::from_secs(10),
            moves: Moves::default(),
        }
    }
}

// A GO with the longest name and a generous list of information types is still looked at.
const _: () = assert!(crate::codec::wire::STRING_BYTES_MAX + 1024 < 16 * 1024);
