//! VMware's SCSI traces as a table: `version,time,op,size,lbn`, time in seconds, the SCSI command
//! in hexadecimal, size in bytes, the block number in sectors.

use super::{Columns, LineFormat};
use crate::arrivals::{Arrival, Entry};
use crate::event::SECTOR_BYTES;
use crate::fixed::scsi;
use crate::format::TraceFormat;

#[derive(Default)]
pub(super) struct VscsiCsv;

impl LineFormat for VscsiCsv {
    const FORMAT: TraceFormat = TraceFormat::VscsiCsv;
    const EXPECTED: &'static str = "`1|2,seconds,SCSI command in hex,size in bytes,sector`";

    #[inline]
    fn entry<'a>(&mut self, line: &'a [u8]) -> Entry<'a> {
        entry(line).unwrap_or(Entry::Damaged)
    }

    /// Its lines of numbers are like Tencent's; a drive moves whole sectors.
    fn is_plausible(&self, arrival: &Arrival<'_>) -> bool {
        arrival.length_bytes > 0 && arrival.length_bytes.is_multiple_of(SECTOR_BYTES)
    }
}

fn entry(line: &[u8]) -> Option<Entry<'_>> {
    let mut columns = Columns::<b','>::of(line);
    if !matches!(columns.number()?, 1 | 2) {
        return None;
    }
    let at_ns = columns.number()?.checked_mul(1_000_000_000)?;
    let command = hexadecimal(columns.word()?)?;
    let length_bytes = columns.number()?;
    let offset_bytes = columns.number()?.checked_mul(SECTOR_BYTES)?;
    if !columns.is_over() {
        return None;
    }
    let Some(op) = scsi::operation(command) else {
        return Some(Entry::OtherCommand);
    };
    Some(Arrival::new(at_ns, op, offset_bytes, length_bytes).checked())
}

fn hexadecimal(word: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(word.strip_prefix(b"0x").unwrap_or(word)).ok()?;
    let plain = !text.starts_with('+');
    u16::from_str_radix(text, 16).ok().filter(|_| plain)
}
