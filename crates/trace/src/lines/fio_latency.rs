//! fio's latency logs with offsets (`write_lat_log`, `log_offset=1`): `time, latency, direction,
//! block size, offset, priority` and perhaps the time of issue; the time, of the completion, in
//! milliseconds, latency and time of issue in nanoseconds, 0 a read, 1 a write, 2 a trim.
//!
//! **Source**: fio HOWTO, "Log File Formats", `log_offset`, `log_issue_time`.

use super::{BEFORE_NS, Columns, LineFormat};
use crate::arrivals::{Arrival, Entry};
use crate::format::TraceFormat;
use crate::record::Op;

#[derive(Default)]
pub(super) struct FioLatency;

impl LineFormat for FioLatency {
    const FORMAT: TraceFormat = TraceFormat::FioLatency;
    const EXPECTED: &'static str =
        "`ms, latency in ns, 0|1|2, block size, offset, priority`, as log_offset=1 writes them";

    #[inline]
    fn entry<'a>(&mut self, line: &'a [u8]) -> Entry<'a> {
        arrival(line).map_or(Entry::Damaged, Arrival::checked)
    }
}

fn arrival(line: &[u8]) -> Option<Arrival<'_>> {
    let mut columns = Columns::<b','>::of(line);
    let completed_ns = columns.number()?.checked_mul(1_000_000)?.checked_add(BEFORE_NS)?;
    let latency_ns = columns.number()?;
    let op = match columns.number()? {
        0 => Op::Read,
        1 => Op::Write,
        2 => Op::Discard,
        _ => return None,
    };
    let (length_bytes, offset_bytes) = (columns.number()?, columns.number()?);
    // Priorities are printed as numbers, in hexadecimal by some versions.
    columns.word()?;
    let at_ns = match columns.is_over() {
        true => completed_ns.checked_sub(latency_ns)?,
        false => columns.number()?.checked_add(BEFORE_NS)?,
    };
    let arrival = Arrival::new(at_ns, op, offset_bytes, length_bytes);
    columns.is_over().then_some(Arrival { response_ns: Some(latency_ns), ..arrival })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_completion_and_perhaps_the_issue() {
        let plain = arrival(b"1, 30000, 1, 4096, 3104768, 0").unwrap();
        assert_eq!(
            (plain.op, plain.offset_bytes, plain.length_bytes),
            (Op::Write, 3_104_768, 4096)
        );
        assert_eq!((plain.at_ns, plain.response_ns), (BEFORE_NS + 970_000, Some(30_000)));
        let issued = arrival(b"1, 30000, 0, 4096, 3104768, 0x4001, 969123").unwrap();
        assert_eq!((issued.at_ns, issued.response_ns), (BEFORE_NS + 969_123, Some(30_000)));
    }

    #[test]
    fn logs_without_offsets_are_no_trace() {
        for line in ["1, 30000, 1, 4096, 0", "1, 30000, 1, 4096", "1, 30000, 7, 4096, 0, 0"] {
            assert_eq!(arrival(line.as_bytes()), None, "{line}");
        }
    }
}
