//! The traces of virtual desktops of SYSTOR '17: `time,response,R|W,unit,offset,size`, times in
//! seconds (since 1970), offset and size in bytes; the response may be empty.
//!
//! **Source**: C. Lee et al., "Understanding storage traffic characteristics on enterprise virtual
//! desktop infrastructure", SYSTOR '17, and the README of the traces (SNIA IOTTA 4964).

use super::{Columns, LineFormat, device, operation};
use crate::arrivals::{Arrival, Entry};
use crate::format::TraceFormat;

#[derive(Default)]
pub(super) struct Systor;

impl LineFormat for Systor {
    const FORMAT: TraceFormat = TraceFormat::Systor17;
    const EXPECTED: &'static str =
        "`seconds,response in seconds,R|W,unit,offset in bytes,size in bytes`";

    #[inline]
    fn entry<'a>(&mut self, line: &'a [u8]) -> Entry<'a> {
        arrival(line).map_or(Entry::Damaged, Arrival::checked)
    }
}

fn arrival(line: &[u8]) -> Option<Arrival<'_>> {
    let mut columns = Columns::<b','>::of(line);
    let at_ns = columns.decimal(9)?;
    let response_ns = response(columns.word()?)?;
    let op = operation(columns.word()?)?;
    let name = device(columns.word()?)?;
    let arrival = Arrival::new(at_ns, op, columns.number()?, columns.number()?);
    columns.is_over().then_some(Arrival { device: name, response_ns, ..arrival })
}

/// The outer `None` is damage, the inner one a response that was not noted.
#[inline]
fn response(word: &[u8]) -> Option<Option<u64>> {
    if word.is_empty() {
        return Some(None);
    }
    Columns::<b','>::of(word).decimal(9).map(Some)
}
