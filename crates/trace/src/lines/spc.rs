//! Traces in the form of the Storage Performance Council (also those of UMass): `unit,address,
//! size,R|W,time`, the address in sectors, the size in bytes, time in seconds from the start;
//! further columns are the traced program's own.
//!
//! **Source**: Storage Performance Council, "SPC Trace File Format Specification", revision 1.0.1.

use super::{Columns, LineFormat, device};
use crate::arrivals::{Arrival, Entry};
use crate::event::SECTOR_BYTES;
use crate::format::TraceFormat;
use crate::record::Op;

#[derive(Default)]
pub(super) struct Spc;

impl LineFormat for Spc {
    const FORMAT: TraceFormat = TraceFormat::Spc;
    const EXPECTED: &'static str = "`unit,address in sectors,size in bytes,R|W,seconds`";

    #[inline]
    fn entry<'a>(&mut self, line: &'a [u8]) -> Entry<'a> {
        arrival(line).map_or(Entry::Damaged, Arrival::checked)
    }
}

fn arrival(line: &[u8]) -> Option<Arrival<'_>> {
    let mut columns = Columns::<b','>::of(line);
    let name = device(columns.word()?)?;
    let offset_bytes = columns.number()?.checked_mul(SECTOR_BYTES)?;
    let length_bytes = columns.number()?;
    let op = match columns.word()? {
        b"R" | b"r" => Op::Read,
        b"W" | b"w" => Op::Write,
        _ => return None,
    };
    let at_ns = columns.decimal(9)?;
    Some(Arrival { device: name, ..Arrival::new(at_ns, op, offset_bytes, length_bytes) })
}
