//! The block traces of Microsoft Research Cambridge, as published and as cut into windows.
//!
//! Published: `time,host,disk,Read|Write,offset,size,response`, time and response in 100 ns (time
//! since 1601; a response of 0 is not known), offset and size in bytes. Windows of them are also
//! passed around as `time device offset size type`, time in milliseconds from the window's start, 1
//! a read, 0 a write.
//!
//! **Source**: D. Narayanan, A. Donnelly, A. Rowstron, "Write Off-Loading", FAST '08, and the
//! README of the traces (SNIA IOTTA 388).

use super::{Columns, LineFormat, device, operation};
use crate::arrivals::{Arrival, Entry};
use crate::event::SECTOR_BYTES;
use crate::format::TraceFormat;
use crate::record::Op;

/// The clock of Windows ticks so often.
const TICK_NS: u64 = 100;

#[derive(Default)]
pub(super) struct Cambridge;

#[derive(Default)]
pub(super) struct Window;

impl LineFormat for Cambridge {
    const FORMAT: TraceFormat = TraceFormat::MsrCambridge;
    const EXPECTED: &'static str =
        "`100-ns time,host,disk,Read|Write,offset in bytes,size in bytes,response in 100 ns`";

    #[inline]
    fn entry<'a>(&mut self, line: &'a [u8]) -> Entry<'a> {
        cambridge(line).map_or(Entry::Damaged, Arrival::checked)
    }
}

impl LineFormat for Window {
    const FORMAT: TraceFormat = TraceFormat::MsrWindow;
    const EXPECTED: &'static str =
        "`milliseconds.fraction device offset in bytes size in bytes 0|1`, 1 for a read";

    #[inline]
    fn entry<'a>(&mut self, line: &'a [u8]) -> Entry<'a> {
        window(line).map_or(Entry::Damaged, Arrival::checked)
    }

    /// Its lines are like DiskSim's, in bytes instead of sectors.
    fn is_plausible(&self, arrival: &Arrival<'_>) -> bool {
        (arrival.offset_bytes | arrival.length_bytes).is_multiple_of(SECTOR_BYTES)
    }
}

fn cambridge(line: &[u8]) -> Option<Arrival<'_>> {
    let mut columns = Columns::<b','>::of(line);
    let at_ns = columns.number()?.checked_mul(TICK_NS)?;
    let host_and_disk = columns.two_words()?;
    let op = operation(columns.word()?)?;
    let (offset_bytes, length_bytes) = (columns.number()?, columns.number()?);
    let response_ns = columns.number()?.checked_mul(TICK_NS)?;
    let mut arrival = Arrival::new(at_ns, op, offset_bytes, length_bytes);
    arrival.response_ns = (response_ns > 0).then_some(response_ns);
    arrival.device = device(host_and_disk)?;
    columns.is_over().then_some(arrival)
}

fn window(line: &[u8]) -> Option<Arrival<'_>> {
    let mut columns = Columns::<b' '>::of(line);
    let at_ns = columns.pointed(6)?;
    let name = device(columns.word()?)?;
    let (offset_bytes, length_bytes) = (columns.number()?, columns.number()?);
    let op = match columns.number()? {
        0 => Op::Write,
        1 => Op::Read,
        _ => return None,
    };
    let arrival = Arrival { device: name, ..Arrival::new(at_ns, op, offset_bytes, length_bytes) };
    columns.is_over().then_some(arrival)
}
