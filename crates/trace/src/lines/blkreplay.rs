//! Loads for `blkreplay`: prose, a line of column names, then `start ; sector ; length ; op`, start
//! in seconds, length in sectors, the operation a letter with those of blkparse behind it. What a
//! replay wrote has two more columns: the delay of the request against its plan and how long it
//! took, in seconds; zeros are a load that was not replayed.
//!
//! **Source**: blkreplay's manual, "input files".

use super::{Columns, LineFormat, is_text};
use crate::arrivals::{Arrival, Entry};
use crate::event::SECTOR_BYTES;
use crate::format::TraceFormat;
use crate::record::{Op, RecordFlags};

#[derive(Default)]
pub(super) struct Blkreplay;

impl LineFormat for Blkreplay {
    const FORMAT: TraceFormat = TraceFormat::Blkreplay;
    const EXPECTED: &'static str = "`seconds ; sector ; sectors ; R|W[A|F|M|S] ; ...`";

    #[inline]
    fn entry<'a>(&mut self, line: &'a [u8]) -> Entry<'a> {
        arrival(line).map_or(Entry::Damaged, Arrival::checked)
    }

    /// Prose, and the names of the columns.
    fn is_heading(line: &[u8]) -> bool {
        let begins_as_time = line.trim_ascii_start().first().is_some_and(u8::is_ascii_digit);
        is_text(line) && !(begins_as_time && line.contains(&b';'))
    }
}

fn arrival(line: &[u8]) -> Option<Arrival<'_>> {
    let mut columns = Columns::<b';'>::of(line);
    let at_ns = columns.decimal(9)?;
    let offset_bytes = columns.number()?.checked_mul(SECTOR_BYTES)?;
    let length_bytes = columns.number()?.checked_mul(SECTOR_BYTES)?;
    let (op, flags) = operation(columns.word()?)?;
    let arrival = Arrival::new(at_ns, op, offset_bytes, length_bytes);
    let mut arrival = Arrival { flags, ..arrival };
    if let (Some(delay_ns), Some(took_ns)) = (columns.decimal(9), columns.decimal(9))
        && took_ns > 0
    {
        arrival.queue_ns = Some(delay_ns);
        arrival.response_ns = Some(delay_ns.saturating_add(took_ns));
    }
    Some(arrival)
}

/// R or W, and what blkparse says behind them.
fn operation(word: &[u8]) -> Option<(Op, RecordFlags)> {
    let (direction, rest) = word.split_first()?;
    let op = match direction {
        b'R' => Op::Read,
        b'W' => Op::Write,
        _ => return None,
    };
    let mut flags = RecordFlags::empty();
    for letter in rest {
        flags |= match letter {
            b'A' => RecordFlags::READAHEAD,
            b'F' => RecordFlags::FUA,
            b'M' => RecordFlags::METADATA,
            b'S' => RecordFlags::SYNC,
            _ => return None,
        };
    }
    Some((op, flags))
}
