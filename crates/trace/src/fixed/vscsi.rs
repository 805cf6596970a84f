//! The binary traces of VMware's virtual SCSI disks, little-endian, sectors of 512 bytes, times in
//! microseconds.
//!
//! ```text
//! version 1, 32 bytes: u32 number | u32 bytes | u32 pieces | u16 command | u16 version
//!                      | u64 sector | u64 time
//! version 2, 40 bytes: u16 command | u16 version | u32 number | u32 bytes | u32 pieces
//!                      | u64 sector | u64 time | u64 response
//! ```
//!
//! The upper byte of `version` is the version.
//!
//! **Source**: C. Waldspurger et al., "Efficient MRC Construction with SHARDS", FAST '15, and
//! libCacheSim's reader of its traces.

use super::{FixedFormat, bytes_at, scsi};
use crate::arrivals::{Arrival, Entry};
use crate::event::SECTOR_BYTES;
use crate::format::TraceFormat;
use crate::record::Op;

#[derive(Default)]
pub(super) struct Vscsi1;

#[derive(Default)]
pub(super) struct Vscsi2;

/// The fields that both versions have.
struct Fields {
    version: u16,
    command: u16,
    bytes: u32,
    sector: u64,
    time_us: u64,
}

impl FixedFormat for Vscsi1 {
    const FORMAT: TraceFormat = TraceFormat::Vscsi1;
    const RECORD_BYTES: usize = 32;
    const EXPECTED: &'static str = "a record with version 1 in bytes 14 and 15";

    fn entry(&mut self, record: &[u8]) -> Entry<'static> {
        let fields = Fields {
            version: u16::from_le_bytes(bytes_at(record, 14)),
            command: u16::from_le_bytes(bytes_at(record, 12)),
            bytes: u32::from_le_bytes(bytes_at(record, 4)),
            sector: u64::from_le_bytes(bytes_at(record, 16)),
            time_us: u64::from_le_bytes(bytes_at(record, 24)),
        };
        fields.entry(1, None).unwrap_or(Entry::Damaged)
    }
}

impl FixedFormat for Vscsi2 {
    const FORMAT: TraceFormat = TraceFormat::Vscsi2;
    const RECORD_BYTES: usize = 40;
    const EXPECTED: &'static str = "a record with version 2 in bytes 2 and 3";

    fn entry(&mut self, record: &[u8]) -> Entry<'static> {
        let fields = Fields {
            version: u16::from_le_bytes(bytes_at(record, 2)),
            command: u16::from_le_bytes(bytes_at(record, 0)),
            bytes: u32::from_le_bytes(bytes_at(record, 8)),
            sector: u64::from_le_bytes(bytes_at(record, 16)),
            time_us: u64::from_le_bytes(bytes_at(record, 24)),
        };
        let response_us = u64::from_le_bytes(bytes_at(record, 32));
        fields.entry(2, Some(response_us)).unwrap_or(Entry::Damaged)
    }
}

impl Fields {
    fn entry(&self, version: u16, response_us: Option<u64>) -> Option<Entry<'static>> {
        if self.version >> 8 != version || !scsi::is_command(self.command) {
            return None;
        }
        let at_ns = self.time_us.checked_mul(1000)?;
        let offset_bytes = self.sector.checked_mul(SECTOR_BYTES)?;
        let Some(op) = scsi::operation(self.command) else {
            return Some(Entry::OtherCommand);
        };
        let (offset_bytes, length_bytes) =
            if op == Op::Flush { (0, 0) } else { (offset_bytes, u64::from(self.bytes)) };
        let mut arrival = Arrival::new(at_ns, op, offset_bytes, length_bytes);
        arrival.response_ns = response_us.map(|micros| micros.checked_mul(1000)).unwrap_or(None);
        Some(arrival.checked())
    }
}
