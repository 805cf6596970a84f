//! The table of MSR Cambridge, which most programs read: `time,host,disk,Read|Write,offset,size,
//! response`, times in 100 ns; a response of 0 is one that is not known.

use std::io::{self, BufWriter, Write};

use super::{Export, plain_name};
use crate::names::Names;
use crate::record::{Op, RecordFlags, TraceRecord};

/// 1970 in the clock of Windows, which begins with 1601.
const EPOCH_TICKS: u64 = 116_444_736_000_000_000;
const TICK_NS: u64 = 100;

pub(super) struct Csv<W: Write> {
    output: BufWriter<W>,
}

impl<W: Write> Csv<W> {
    pub(super) fn new(output: W) -> Self {
        Self { output: BufWriter::new(output) }
    }
}

impl<W: Write> Export for Csv<W> {
    fn push(&mut self, record: &TraceRecord, names: &Names) -> io::Result<bool> {
        // It comes again in parts, and nothing here would say that it is the same.
        if record.flags.contains(RecordFlags::RETRIED) {
            return Ok(false);
        }
        let word = match record.op {
            Op::Read => "Read",
            Op::Write => "Write",
            Op::Flush | Op::Discard | Op::WriteZeroes => return Ok(false),
        };
        let at = EPOCH_TICKS + record.issued_ns / TICK_NS;
        let response = record.response_ns().unwrap_or(0) / TICK_NS;
        let (from, length) = (record.offset_bytes, record.length_bytes);
        let device = host_and_disk(names, record.device);
        writeln!(self.output, "{at},{device},{word},{from},{length},{response}")?;
        Ok(true)
    }

    fn finish(mut self: Box<Self>, _: &Names) -> io::Result<()> {
        self.output.flush()
    }
}

/// A name that is two already stays as it is.
fn host_and_disk(names: &Names, device: u16) -> String {
    let name = names.device(device).unwrap_or_default();
    let is_two = name.matches(',').count() == 1 && !name.contains(char::is_whitespace);
    if is_two { name.to_owned() } else { format!("{},0", plain_name(names, device)) }
}
