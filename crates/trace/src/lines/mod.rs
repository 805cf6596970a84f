//! Formats of one request a line. Each is a file here: how its lines read, as a [`LineFormat`];
//! detection, counting, damage and order are common to all.
//!
//! 1. [`LINE_FORMATS`] counts for each format the lines of a beginning that match (`detect.rs`). 2.
//!    [`LineReader`] continues with the detected one.
//!
//! **Invariants**: memory is one line and one window of requests, for any input.

mod alibaba;
mod arc;
mod biosnoop;
mod blkreplay;
mod columns;
mod disksim;
mod fio_latency;
mod mqsim;
mod msr;
mod reader;
mod spc;
mod systor;
mod tencent;
mod validation;
mod vscsi_csv;

pub(crate) use columns::Columns;
pub(crate) use reader::LineReader;

use crate::arrivals::{Arrival, Entry};
use crate::damage::Damage;
use crate::format::TraceFormat;
use crate::record::Op;
use crate::record_source::RecordSource;
use crate::source::ByteSource;

/// The longest name of a device.
const NAME_BYTES_MAX: usize = 255;

/// Added to times of completions that count from the start of a trace: the first request began
/// before.
const BEFORE_NS: u64 = 24 * 3600 * 1_000_000_000;

/// One format of lines, with its state between lines.
pub(crate) trait LineFormat: Send + 'static {
    const FORMAT: TraceFormat;
    /// The shape of a line, for messages.
    const EXPECTED: &'static str;

    /// Parses `line`, without its end.
    fn entry<'a>(&mut self, line: &'a [u8]) -> Entry<'a>;

    /// True for a heading above the first request: a line of column names.
    fn is_heading(line: &[u8]) -> bool {
        is_text(line) && !line.iter().any(u8::is_ascii_digit)
    }

    /// False where the request makes no sense in this format: then its numbers are likely in the
    /// units of another one. Used only for detection.
    fn is_plausible(&self, _: &Arrival<'_>) -> bool {
        true
    }
}

/// One format among those that may be recognised.
pub(crate) struct LineCandidate {
    pub(crate) format: TraceFormat,
    pub(crate) fit: fn(&[u8]) -> Fit,
    pub(crate) open: fn(ByteSource, Damage) -> Box<dyn RecordSource>,
}

/// How the lines of a beginning read in one format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fit {
    pub(crate) requests: usize,
    pub(crate) misfits: usize,
}

/// Every format of lines but those that begin with a word of their own (fio's) or hold events
/// (blkparse's).
pub(crate) const LINE_FORMATS: [LineCandidate; 14] = [
    candidate::<msr::Cambridge>(),
    candidate::<msr::Window>(),
    candidate::<alibaba::Alibaba>(),
    candidate::<tencent::Tencent>(),
    candidate::<spc::Spc>(),
    candidate::<systor::Systor>(),
    candidate::<vscsi_csv::VscsiCsv>(),
    candidate::<blkreplay::Blkreplay>(),
    candidate::<disksim::Disksim>(),
    candidate::<validation::Validation>(),
    candidate::<mqsim::Mqsim>(),
    candidate::<arc::Arc>(),
    candidate::<biosnoop::Biosnoop>(),
    candidate::<fio_latency::FioLatency>(),
];

const fn candidate<F: LineFormat + Default>() -> LineCandidate {
    LineCandidate { format: F::FORMAT, fit: fit::<F>, open: open::<F> }
}

fn open<F: LineFormat + Default>(source: ByteSource, damage: Damage) -> Box<dyn RecordSource> {
    Box::new(LineReader::new(source, damage, F::default()))
}

/// Reads whole lines.
fn fit<F: LineFormat + Default>(lines: &[u8]) -> Fit {
    let mut format = F::default();
    let mut fit = Fit::default();
    for line in lines.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if is_blank(line) || (fit.requests == 0 && F::is_heading(line)) {
            continue;
        }
        match format.entry(line) {
            Entry::Request(arrival) if format.is_plausible(&arrival) => fit.requests += 1,
            Entry::Request(_) | Entry::Damaged => fit.misfits += 1,
            Entry::Remark | Entry::OtherCommand => {}
        }
    }
    fit
}

/// No control characters: those are of a binary format.
fn is_text(line: &[u8]) -> bool {
    !line.iter().any(|&byte| byte < b' ' && byte != b'\t')
}

/// Nothing, or a comment.
fn is_blank(line: &[u8]) -> bool {
    matches!(line.trim_ascii_start().first(), None | Some(b'#'))
}

/// Read or write, in whatever word.
#[inline]
fn operation(word: &[u8]) -> Option<Op> {
    match word {
        b"R" | b"r" | b"Read" | b"read" | b"READ" => Some(Op::Read),
        b"W" | b"w" | b"Write" | b"write" | b"WRITE" => Some(Op::Write),
        _ => None,
    }
}

/// A device's name as it stands in a column.
#[inline]
fn device(word: &[u8]) -> Option<&[u8]> {
    (word.len() <= NAME_BYTES_MAX).then_some(word)
}

#[cfg(test)]
mod tests;
