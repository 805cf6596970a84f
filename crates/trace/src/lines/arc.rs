//! The traces that ARC was evaluated with: `first block, blocks, anything, number`, blocks of 512
//! bytes, numbers rising. They have neither operations nor times: they serve for reuse only.
//!
//! **Source**: N. Megiddo, D. Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST
//! '03.

use super::{Columns, LineFormat};
use crate::arrivals::{Arrival, Entry};
use crate::event::SECTOR_BYTES;
use crate::format::TraceFormat;
use crate::record::Op;

#[derive(Default)]
pub(super) struct Arc {
    number: u64,
    /// The last line's number was higher than that of the line before.
    rising: bool,
}

impl LineFormat for Arc {
    const FORMAT: TraceFormat = TraceFormat::Arc;
    const EXPECTED: &'static str = "`first block, blocks, anything, number of the request`";

    fn entry<'a>(&mut self, line: &'a [u8]) -> Entry<'a> {
        self.arrival(line).map_or(Entry::Damaged, Arrival::checked)
    }

    /// Four numbers a line may be anything; these are numbered.
    fn is_plausible(&self, _: &Arrival<'_>) -> bool {
        self.rising
    }
}

impl Arc {
    fn arrival<'a>(&mut self, line: &'a [u8]) -> Option<Arrival<'a>> {
        let mut columns = Columns::<b' '>::of(line);
        let offset_bytes = columns.number()?.checked_mul(SECTOR_BYTES)?;
        let length_bytes = columns.number()?.checked_mul(SECTOR_BYTES)?;
        let (_, number) = (columns.number()?, columns.number()?);
        // Numbers begin at 0.
        self.rising = number > self.number || number == 0;
        self.number = number;
        let arrival = Arrival::new(0, Op::Read, offset_bytes, length_bytes);
        columns.is_over().then_some(arrival)
    }
}
