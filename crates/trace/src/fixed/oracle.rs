//! libCacheSim's `oracleGeneral`: `u32 time in seconds | u64 object | u32 bytes | i64 next`,
//! packed, little-endian; `next` is the number of the request that asks for the object again, -1
//! for none. It tells no operations: it is good for reuse only.
//!
//! Objects of block traces are sectors. Where they are numbers from a hash, only the lower 54 bits
//! are kept: as many sectors as there are addresses.
//!
//! **Source**: libCacheSim, `doc/quickstart_plugin.md` and `traceReader/customizedReader`.

use super::{FixedFormat, bytes_at};
use crate::arrivals::{Arrival, Entry};
use crate::event::SECTOR_BYTES;
use crate::format::TraceFormat;
use crate::record::Op;

/// No object of a block trace is longer.
const OBJECT_BYTES_MAX: u32 = 1 << 30;

/// No trace has more requests.
const REQUESTS_MAX: i64 = 1 << 40;

const SECTOR_MASK: u64 = (1 << 54) - 1;

#[derive(Default)]
pub(super) struct Oracle {
    requests: i64,
}

impl FixedFormat for Oracle {
    const FORMAT: TraceFormat = TraceFormat::OracleGeneral;
    const RECORD_BYTES: usize = 24;
    const EXPECTED: &'static str =
        "1 byte to 1 GiB, and the number of a later request or -1 as the next";

    fn entry(&mut self, record: &[u8]) -> Entry<'static> {
        self.requests += 1;
        let seconds = u32::from_le_bytes(bytes_at(record, 0));
        let object = u64::from_le_bytes(bytes_at(record, 4));
        let bytes = u32::from_le_bytes(bytes_at(record, 12));
        let next = i64::from_le_bytes(bytes_at(record, 16));
        let later = next == -1 || (self.requests..REQUESTS_MAX).contains(&next);
        if !later || !(1..=OBJECT_BYTES_MAX).contains(&bytes) {
            return Entry::Damaged;
        }
        let offset_bytes = (object & SECTOR_MASK) * SECTOR_BYTES;
        let at_ns = u64::from(seconds) * 1_000_000_000;
        Arrival::new(at_ns, Op::Read, offset_bytes, u64::from(bytes)).checked()
    }
}
