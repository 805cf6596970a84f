//! blkparse's text: of each request its queue, and its dispatch and completion where they are
//! known, in order of time.
//!
//! **Source**: blktrace 1.3 `blkparse_fmt.c`; Linux `blk_fill_rwbs` for the letters.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, BufWriter, Write};

use super::Export;
use crate::event::SECTOR_BYTES;
use crate::names::Names;
use crate::record::{Op, RecordFlags, TraceRecord};

/// Events that wait for earlier ones.
const WAITING_MAX: usize = 128 * 1024;

pub(super) struct Blkparse<W: Write> {
    output: BufWriter<W>,
    /// By time, then as their requests came.
    waiting: BinaryHeap<Reverse<(u64, u64, Line)>>,
    requests: u64,
    written: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Queued,
    Dispatched,
    Completed,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    step: Step,
    device: String,
    queue: u16,
    process: u32,
    letters: String,
    range: Option<(u64, u64)>,
    /// The process's name, or the error of a completion.
    remark: String,
}

impl<W: Write> Blkparse<W> {
    pub(super) fn new(output: W) -> Self {
        Self { output: BufWriter::new(output), waiting: BinaryHeap::new(), requests: 0, written: 0 }
    }

    /// The steps of a request at the same time stay in their order.
    fn wait(&mut self, at_ns: u64, line: Line) {
        self.waiting.push(Reverse((at_ns, self.requests, line)));
    }

    /// Records come in order of issue: what is earlier than this one can go.
    fn write_until(&mut self, at_ns: u64) -> io::Result<()> {
        while let Some(Reverse((time_ns, ..))) = self.waiting.peek()
            && (*time_ns < at_ns || self.waiting.len() > WAITING_MAX)
        {
            self.write_first()?;
        }
        Ok(())
    }

    fn write_first(&mut self) -> io::Result<()> {
        let Some(Reverse((at_ns, _, line))) = self.waiting.pop() else {
            return Ok(());
        };
        self.written += 1;
        let number = self.written;
        let Line { step, device, queue, process, letters, range, remark } = line;
        let (seconds, nanos) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000);
        let action = match step {
            Step::Queued => 'Q',
            Step::Dispatched => 'D',
            Step::Completed => 'C',
        };
        write!(
            self.output,
            "{device:>7} {queue:>2} {number:>8} {seconds:>5}.{nanos:09} {process:>5}  {action} {letters:>3} "
        )?;
        if let Some((sector, sectors)) = range {
            write!(self.output, "{sector} + {sectors} ")?;
        }
        writeln!(self.output, "[{remark}]")
    }
}

impl<W: Write> Export for Blkparse<W> {
    fn push(&mut self, record: &TraceRecord, names: &Names) -> io::Result<bool> {
        self.write_until(record.issued_ns)?;
        let is_whole = (record.offset_bytes | record.length_bytes).is_multiple_of(SECTOR_BYTES);
        if !is_whole || record.length_bytes > u64::from(u32::MAX) {
            return Ok(false);
        }
        self.requests += 1;
        let queued = Line {
            step: Step::Queued,
            device: number(names, record.device),
            queue: record.queue,
            process: record.process,
            letters: letters(record),
            range: range(record),
            remark: names.process(record.process).unwrap_or("(null)").to_owned(),
        };
        let dispatched = record.dispatched_ns.map(|at_ns| (at_ns, Step::Dispatched));
        let completed = record.completed_ns.map(|at_ns| (at_ns, Step::Completed));
        for (at_ns, step) in dispatched.into_iter().chain(completed) {
            let is_end = step == Step::Completed;
            let remark = if is_end { error(record.flags).into() } else { queued.remark.clone() };
            self.wait(at_ns, Line { step, remark, ..queued.clone() });
        }
        self.wait(record.issued_ns, queued);
        Ok(true)
    }

    fn finish(mut self: Box<Self>, _: &Names) -> io::Result<()> {
        while !self.waiting.is_empty() {
            self.write_first()?;
        }
        self.output.flush()
    }
}

/// `major,minor`: the device's own where it is called so.
fn number(names: &Names, device: u16) -> String {
    let is_number = |name: &&str| {
        name.split_once(',').is_some_and(|(major, minor)| {
            major.parse::<u16>().is_ok_and(|major| major < 1 << 12) && minor.parse::<u16>().is_ok()
        })
    };
    names.device(device).filter(is_number).map_or_else(|| format!("259,{device}"), str::to_owned)
}

fn letters(record: &TraceRecord) -> String {
    let mut letters = String::new();
    let flags = record.flags;
    if record.op == Op::Flush || flags.contains(RecordFlags::PREFLUSH) {
        letters.push('F');
    }
    letters.push_str(match record.op {
        Op::Read => "R",
        Op::Write | Op::Flush => "W",
        Op::Discard => "D",
        Op::WriteZeroes => "WZ",
    });
    for (flag, letter) in [
        (RecordFlags::FUA, 'F'),
        (RecordFlags::READAHEAD, 'A'),
        (RecordFlags::SYNC, 'S'),
        (RecordFlags::METADATA, 'M'),
    ] {
        if flags.contains(flag) {
            letters.push(letter);
        }
    }
    letters
}

fn range(record: &TraceRecord) -> Option<(u64, u64)> {
    let has_range = record.op != Op::Flush;
    has_range.then_some((record.offset_bytes / SECTOR_BYTES, record.length_bytes / SECTOR_BYTES))
}

/// The error number of a completion: 0, try again, or an I/O error.
fn error(flags: RecordFlags) -> &'static str {
    if flags.contains(RecordFlags::RETRIED) {
        "11"
    } else if flags.contains(RecordFlags::FAILED) {
        "5"
    } else {
        "0"
    }
}
