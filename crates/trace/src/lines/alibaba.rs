//! The block traces of Alibaba's cloud: `device,R|W,offset,length,time`, offset and length in
//! bytes, time in microseconds since 1970.
//!
//! **Source**: J. Li et al., "An In-Depth Analysis of Cloud Block Storage Workloads in Large-Scale
//! Production", IISWC '20, and the README of the traces.

use super::{Columns, LineFormat, device, operation};
use crate::arrivals::{Arrival, Entry};
use crate::format::TraceFormat;

#[derive(Default)]
pub(super) struct Alibaba;

impl LineFormat for Alibaba {
    const FORMAT: TraceFormat = TraceFormat::Alibaba;
    const EXPECTED: &'static str =
        "`device,R|W,offset in bytes,length in bytes,time in microseconds`";

    #[inline]
    fn entry<'a>(&mut self, line: &'a [u8]) -> Entry<'a> {
        arrival(line).map_or(Entry::Damaged, Arrival::checked)
    }
}

fn arrival(line: &[u8]) -> Option<Arrival<'_>> {
    let mut columns = Columns::<b','>::of(line);
    let name = device(columns.word()?)?;
    let op = operation(columns.word()?)?;
    let (offset_bytes, length_bytes) = (columns.number()?, columns.number()?);
    let at_ns = columns.number()?.checked_mul(1000)?;
    let arrival = Arrival { device: name, ..Arrival::new(at_ns, op, offset_bytes, length_bytes) };
    columns.is_over().then_some(arrival)
}
