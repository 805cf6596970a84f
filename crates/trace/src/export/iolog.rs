//! fio's log, version 3.
//!
//! **Source**: fio HOWTO, "Trace file format v3".

use std::io::{self, BufWriter, Write};

use super::{Export, plain_name};
use crate::names::Names;
use crate::record::{Op, RecordFlags, TraceRecord};

/// A file is added and opened before its first request, and closed at the end.
pub(super) struct FioIolog<W: Write> {
    output: BufWriter<W>,
    files: Vec<Option<String>>,
    last_us: u64,
}

impl<W: Write> FioIolog<W> {
    pub(super) fn new(output: W) -> io::Result<Self> {
        let mut output = BufWriter::new(output);
        writeln!(output, "fio version 3 iolog")?;
        Ok(Self { output, files: Vec::new(), last_us: 0 })
    }

    fn open(&mut self, device: u16, names: &Names) -> io::Result<()> {
        let index = usize::from(device);
        if self.files.len() <= index {
            self.files.resize(index + 1, None);
        }
        if self.files[index].is_none() {
            let name = plain_name(names, device);
            let at_us = self.last_us;
            writeln!(self.output, "{at_us} {name} add\n{at_us} {name} open")?;
            self.files[index] = Some(name);
        }
        Ok(())
    }
}

impl<W: Write> Export for FioIolog<W> {
    fn push(&mut self, record: &TraceRecord, names: &Names) -> io::Result<bool> {
        // It comes again in parts, and nothing here would say that it is the same.
        if record.flags.contains(RecordFlags::RETRIED) {
            return Ok(false);
        }
        let action = match record.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Discard => "trim",
            Op::Flush => "sync",
            Op::WriteZeroes => return Ok(false),
        };
        // fio's times do not go back.
        self.last_us = self.last_us.max(record.issued_ns / 1000);
        self.open(record.device, names)?;
        let name = self.files[usize::from(record.device)].as_deref().unwrap_or_default();
        let (at_us, from, length) = (self.last_us, record.offset_bytes, record.length_bytes);
        writeln!(self.output, "{at_us} {name} {action} {from} {length}")?;
        Ok(true)
    }

    fn finish(mut self: Box<Self>, _: &Names) -> io::Result<()> {
        for name in self.files.iter().flatten() {
            writeln!(self.output, "{} {name} close", self.last_us)?;
        }
        self.output.flush()
    }
}
