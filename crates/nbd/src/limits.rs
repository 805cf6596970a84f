//! The limits that keep one client from harming the others.

use std::time::Duration;

/// Bounds on what a client may ask for and hold; every queue of the server ends at one of these.
///
/// **Source**: the numbers are those that served other servers well after option floods
/// (CVE-2017-15119) and handshakes that never ended (CVE-2024-7409).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Options that one handshake may send.
    pub options_max: u32,
    /// Data of one option that is looked at; longer data is skipped and the option refused.
    pub option_bytes_max: u32,
    /// Data of one option that is skipped; a client that announces more is cut off.
    pub option_skip_bytes_max: u32,
    /// From the first byte to the transmission phase.
    pub handshake_time_max: Duration,
    /// Connections served at once. Where all places are taken a new one gets that of a handshake
    /// that is not finished, or of a client that has asked for nothing for
    /// [`Self::unused_time_max`]; never of one that has been served.
    pub connections_max: usize,
    /// Connections beyond these that are told, in the handshake, that there is no place for them;
    /// further ones are closed unanswered.
    pub turned_away_max: usize,
    /// From the end of the handshake; after that a client that has never asked for anything gives
    /// way to a new one where places are short.
    pub unused_time_max: Duration,
    /// Payload of a refused write that is skipped; a client that announces more is cut off.
    pub payload_skip_bytes_max: u32,
    /// Requests of one connection between their arrival and the end of sending their reply.
    pub in_flight_requests_max: usize,
    /// Payload bytes of these requests. A single request always fits.
    pub in_flight_bytes_max: u64,
    /// Payload bytes of the requests of all connections, from their admission until their answers
    /// are sent: one budget, for which their next requests wait in turn, and are never refused. A
    /// single request always fits where nothing else is held.
    ///
    /// Beside it a connection has its receive buffer of 256 KiB, and for small payloads that were
    /// received there and are at the device the earlier buffers that they lie in; and headers of
    /// answers, one for each request in flight.
    pub memory_bytes_max: u64,
    /// How long a client that holds memory may take to read one batch of answers (2 MiB, or one
    /// longer answer), or to send one payload, before it is cut off where others wait for memory:
    /// it is the only way to get back what such a client holds.
    pub stall_time_max: Duration,
    /// How long a client may take to read its last answers once its connection, or the server,
    /// comes to its end.
    pub stop_time_max: Duration,
}

/// The longest payload of one request, which exports advertise, in bytes; longer reads and writes
/// are errors.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// The least that [`Limits::memory_bytes_max`] is of use with: two of the longest requests, in
/// bytes.
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
        }
    }
}

// A GO with the longest name and a generous list of information types is still looked at.
const _: () = assert!(crate::codec::wire::STRING_BYTES_MAX + 1024 < 16 * 1024);
