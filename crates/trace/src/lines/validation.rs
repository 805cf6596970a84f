//! The measurements that DiskSim was validated with: `R|W Hit|Miss sector sectors service
//! interval`, times in microseconds. One request was in flight at a time; the interval runs from
//! its end to the start of the next, so the times of issue follow from all lines before.
//!
//! **Source**: DiskSim 4.0, folder `valid`.

use super::{Columns, LineFormat, operation};
use crate::arrivals::{Arrival, Entry};
use crate::event::SECTOR_BYTES;
use crate::format::TraceFormat;

#[derive(Default)]
pub(super) struct Validation {
    next_ns: u64,
}

impl LineFormat for Validation {
    const FORMAT: TraceFormat = TraceFormat::DisksimValidation;
    const EXPECTED: &'static str =
        "`R|W Hit|Miss sector sectors service interval`, times in microseconds";

    fn entry<'a>(&mut self, line: &'a [u8]) -> Entry<'a> {
        self.arrival(line).map_or(Entry::Damaged, Arrival::checked)
    }
}

impl Validation {
    fn arrival<'a>(&mut self, line: &'a [u8]) -> Option<Arrival<'a>> {
        let mut columns = Columns::<b' '>::of(line);
        let op = operation(columns.word()?)?;
        if !matches!(columns.word()?, b"Hit" | b"Miss") {
            return None;
        }
        let offset_bytes = columns.number()?.checked_mul(SECTOR_BYTES)?;
        let length_bytes = columns.number()?.checked_mul(SECTOR_BYTES)?;
        let (service_ns, interval_ns) = (columns.decimal(3)?, columns.decimal(3)?);
        let mut arrival = Arrival::new(self.next_ns, op, offset_bytes, length_bytes);
        arrival.queue_ns = Some(0);
        arrival.response_ns = Some(service_ns);
        let pause_ns = service_ns.checked_add(interval_ns)?;
        self.next_ns = self.next_ns.checked_add(pause_ns).filter(|_| columns.is_over())?;
        Some(arrival)
    }
}
