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
    /// Connections served at once; further ones are closed unanswered.
    pub connections_max: usize,
    /// Payload of a refused write that is skipped; a client that announces more is cut off.
    pub payload_skip_bytes_max: u32,
    /// Requests of one connection between their arrival and the end of sending their reply.
    pub in_flight_requests_max: usize,
    /// Payload bytes of these requests. A single request always fits.
    pub in_flight_bytes_max: u64,
    /// How long a client may take to read its last answers once its connection, or the server,
    /// comes to its end.
    pub stop_time_max: Duration,
}

/// The longest payload of one request, which exports advertise, in bytes; longer reads and writes
/// are errors.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

impl Default for Limits {
    fn default() -> Self {
        Self {
            options_max: 32,
            option_bytes_max: 16 * 1024,
            option_skip_bytes_max: 64 * 1024,
            handshake_time_max: Duration::from_secs(10),
            connections_max: 128,
            payload_skip_bytes_max: 64 << 20,
            in_flight_requests_max: 256,
            in_flight_bytes_max: 64 << 20,
            stop_time_max: Duration::from_secs(10),
        }
    }
}

// A GO with the longest name and a generous list of information types is still looked at.
const _: () = assert!(crate::codec::wire::STRING_BYTES_MAX + 1024 < 16 * 1024);
