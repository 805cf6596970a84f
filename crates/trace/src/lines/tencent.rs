//! The traces of Tencent's cloud block storage: `time,offset,size,type,volume`, time in seconds
//! since 1970, offset and size in sectors, 0 a read and 1 a write.
//!
//! **Source**: Y. Zhang et al., "OSCA: An Online-Model Based Cache Allocation Scheme in Cloud Block
//! Storage Systems", ATC '20, and the README of the traces (SNIA IOTTA 27917).

use super::{Columns, LineFormat, device};
use crate::arrivals::{Arrival, Entry};
use crate::event::SECTOR_BYTES;
use crate::format::TraceFormat;
use crate::record::Op;

#[derive(Default)]
pub(super) struct Tencent;

impl LineFormat for Tencent {
    const FORMAT: TraceFormat = TraceFormat::Tencent;
    const EXPECTED: &'static str = "`seconds,offset in sectors,sectors,0|1,volume`, 0 for a read";

    #[inline]
    fn entry<'a>(&mut self, line: &'a [u8]) -> Entry<'a> {
        arrival(line).map_or(Entry::Damaged, Arrival::checked)
    }
}

fn arrival(line: &[u8]) -> Option<Arrival<'_>> {
    let mut columns = Columns::<b','>::of(line);
    let at_ns = columns.number()?.checked_mul(1_000_000_000)?;
    let offset_bytes = columns.number()?.checked_mul(SECTOR_BYTES)?;
    let length_bytes = columns.number()?.checked_mul(SECTOR_BYTES)?;
    let op = match columns.number()? {
        0 => Op::Read,
        1 => Op::Write,
        _ => return None,
    };
    let name = device(columns.word()?)?;
    let arrival = Arrival { device: name, ..Arrival::new(at_ns, op, offset_bytes, length_bytes) };
    (columns.is_over() && !name.is_empty()).then_some(arrival)
}
