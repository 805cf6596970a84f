//! DiskSim's ASCII traces: `time device sector sectors flags`, time in milliseconds, flags in
//! hexadecimal, of which the lowest bit is a read.
//!
//! **Source**: J. Bucy et al., "The DiskSim Simulation Environment Version 4.0 Reference Manual",
//! CMU-PDL-08-101, section on input traces.

use super::{Columns, LineFormat, device};
use crate::arrivals::{Arrival, Entry};
use crate::event::SECTOR_BYTES;
use crate::format::TraceFormat;
use crate::record::Op;

/// No request of a trace that was made for drives is longer.
const PLAUSIBLE_BYTES_MAX: u64 = 8 << 20;

#[derive(Default)]
pub(super) struct Disksim;

impl LineFormat for Disksim {
    const FORMAT: TraceFormat = TraceFormat::Disksim;
    const EXPECTED: &'static str =
        "`milliseconds.fraction device sector sectors flags`, flags in hex, bit 0 for a read";

    #[inline]
    fn entry<'a>(&mut self, line: &'a [u8]) -> Entry<'a> {
        arrival(line).map_or(Entry::Damaged, Arrival::checked)
    }

    /// Windows of MSR's traces have such lines, in bytes instead of sectors.
    fn is_plausible(&self, arrival: &Arrival<'_>) -> bool {
        arrival.length_bytes <= PLAUSIBLE_BYTES_MAX
    }
}

fn arrival(line: &[u8]) -> Option<Arrival<'_>> {
    let mut columns = Columns::<b' '>::of(line);
    let at_ns = columns.pointed(6)?;
    let name = device(columns.word()?)?;
    let offset_bytes = columns.number()?.checked_mul(SECTOR_BYTES)?;
    let length_bytes = columns.number()?.checked_mul(SECTOR_BYTES)?;
    let op = operation(columns.word()?)?;
    let arrival = Arrival { device: name, ..Arrival::new(at_ns, op, offset_bytes, length_bytes) };
    columns.is_over().then_some(arrival)
}

fn operation(flags: &[u8]) -> Option<Op> {
    let digits = flags.strip_prefix(b"0x").unwrap_or(flags);
    let last = (*digits.last()? as char).to_digit(16)?;
    let sound = digits.len() <= 8 && digits.iter().all(u8::is_ascii_hexdigit);
    sound.then_some(if last & 1 == 1 { Op::Read } else { Op::Write })
}
