//! MQSim's traces: `time device sector sectors type`, time in whole nanoseconds, 0 a write, 1 a
//! read.
//!
//! **Source**: the README of MQSim (A. Tavakkol et al., FAST '18).

use super::{Columns, LineFormat, device};
use crate::arrivals::{Arrival, Entry};
use crate::event::SECTOR_BYTES;
use crate::format::TraceFormat;
use crate::record::Op;

#[derive(Default)]
pub(super) struct Mqsim;

impl LineFormat for Mqsim {
    const FORMAT: TraceFormat = TraceFormat::Mqsim;
    const EXPECTED: &'static str = "`nanoseconds device sector sectors 0|1`, 1 for a read";

    #[inline]
    fn entry<'a>(&mut self, line: &'a [u8]) -> Entry<'a> {
        arrival(line).map_or(Entry::Damaged, Arrival::checked)
    }
}

fn arrival(line: &[u8]) -> Option<Arrival<'_>> {
    let mut columns = Columns::<b' '>::of(line);
    let at_ns = columns.number()?;
    let name = device(columns.word()?)?;
    let offset_bytes = columns.number()?.checked_mul(SECTOR_BYTES)?;
    let length_bytes = columns.number()?.checked_mul(SECTOR_BYTES)?;
    let op = match columns.number()? {
        0 => Op::Write,
        1 => Op::Read,
        _ => return None,
    };
    let arrival = Arrival { device: name, ..Arrival::new(at_ns, op, offset_bytes, length_bytes) };
    columns.is_over().then_some(arrival)
}
