//! The output of biosnoop, of BCC and of libbpf-tools: `time, process, its id, disk, RWBS, sector,
//! bytes`, then with `-Q` the time in the queue, and the response of the device; times in seconds
//! and milliseconds. A line is printed, and its time taken, when the request has completed.
//!
//! **Source**: `tools/biosnoop.py` and `libbpf-tools/biosnoop.c` of BCC, and their man page.

use super::{BEFORE_NS, Columns, LineFormat, device};
use crate::arrivals::{Arrival, Entry};
use crate::blkparse::parse_category;
use crate::event::{Action, BlockEvent};
use crate::format::TraceFormat;

/// A name has at most 16 bytes, so at most 8 words.
const COLUMNS_MAX: usize = 16;

#[derive(Default)]
pub(super) struct Biosnoop;

impl LineFormat for Biosnoop {
    const FORMAT: TraceFormat = TraceFormat::Biosnoop;
    const EXPECTED: &'static str =
        "`seconds process id disk R|W sector bytes [queue ms] response ms`";

    #[inline]
    fn entry<'a>(&mut self, line: &'a [u8]) -> Entry<'a> {
        entry(line).unwrap_or(Entry::Damaged)
    }
}

/// Columns are counted from the end: names of processes have blanks.
fn entry(line: &[u8]) -> Option<Entry<'_>> {
    let mut words = [&b""[..]; COLUMNS_MAX];
    let mut count = 0;
    for word in line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
        *words.get_mut(count)? = word;
        count += 1;
    }
    let words = &words[..count];
    // The last is a time in any case; the one before it is one where it has a point.
    let times = 1 + usize::from(words.len() > 2 && words[words.len() - 2].contains(&b'.'));
    let (front, times) = words.split_at(words.len().checked_sub(times)?);
    let [at, _, .., _, disk, letters, sector, bytes] = front else {
        return None;
    };
    let milliseconds = |word: &&[u8]| Columns::<b' '>::of(word).pointed(6);
    let mut spans = times.iter().map(milliseconds);
    let (first, second) = (spans.next()??, spans.next());
    let (queue_ns, device_ns) = match second {
        Some(device_ns) => (Some(first), device_ns?),
        None => (None, first),
    };
    let completed_ns = Columns::<b' '>::of(at).pointed(9)?.checked_add(BEFORE_NS)?;
    let response_ns = device_ns.checked_add(queue_ns.unwrap_or(0))?;
    let number = |word| Columns::<b' '>::of(word).number();
    let request = BlockEvent {
        time_ns: completed_ns.checked_sub(response_ns)?,
        sector: number(sector)?,
        bytes: u32::try_from(number(bytes)?).ok()?,
        // BCC prints one letter, libbpf-tools all of them.
        category: parse_category(letters)?,
        action: Action::Queue,
        ..BlockEvent::default()
    };
    let Some(op) = request.op() else {
        return Some(Entry::OtherCommand);
    };
    let offset_bytes = request.end_bytes()? - u64::from(request.bytes);
    let arrival = Arrival::new(request.time_ns, op, offset_bytes, u64::from(request.bytes));
    Some(Entry::Request(Arrival {
        device: device(disk)?,
        flags: request.flags(),
        queue_ns: Some(queue_ns.unwrap_or(0)),
        response_ns: Some(response_ns),
        ..arrival
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Op, RecordFlags};

    fn arrival(line: &[u8]) -> Option<Arrival<'_>> {
        match entry(line) {
            Some(Entry::Request(arrival)) => Some(arrival),
            _ => None,
        }
    }

    #[test]
    fn times_are_counted_back_from_the_completion() {
        let plain = arrival(b"0.000004    app   100    sda  W 2048   4096   0.74").unwrap();
        assert_eq!((plain.op, plain.offset_bytes, plain.length_bytes), (Op::Write, 1 << 20, 4096));
        assert_eq!((plain.queue_ns, plain.response_ns), (Some(0), Some(740_000)));
        assert_eq!((plain.at_ns, plain.device), (BEFORE_NS + 4000 - 740_000, &b"sda"[..]));
        let queued = arrival(b"1.5 my app 7 nvme0n1 RS 8 512 0.25 0.5").unwrap();
        assert_eq!((queued.queue_ns, queued.response_ns), (Some(250_000), Some(750_000)));
        assert_eq!((queued.op, queued.flags), (Op::Read, RecordFlags::SYNC));
    }

    #[test]
    fn lines_of_another_shape_are_damage() {
        for line in ["1.5 a 7 sda R 8 512", "1.5 a 7 sda X 8 512 0.5", "1.5 sda R 8 512 0.5", ""] {
            assert_eq!(arrival(line.as_bytes()), None, "{line}");
        }
    }
}
