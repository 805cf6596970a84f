//! Headpond's recording.

use std::io::{self, Write};

use super::Export;
use crate::format::Lacks;
use crate::names::Names;
use crate::record::TraceRecord;
use crate::recording::RecordingWriter;

/// Names are written as they occur, so that a reader has them before it needs them.
pub(super) struct Recording<W: Write> {
    writer: RecordingWriter<W>,
    devices: u16,
}

impl<W: Write> Recording<W> {
    /// The start time of the trace is unknown.
    pub(super) fn new(output: W, lacks: Lacks) -> io::Result<Self> {
        Ok(Self { writer: RecordingWriter::lacking(output, 0, lacks)?, devices: 0 })
    }

    fn name_devices(&mut self, names: &Names) -> io::Result<()> {
        while let Some(name) = names.device(self.devices) {
            self.writer.name_device(self.devices, name)?;
            self.devices += 1;
        }
        Ok(())
    }
}

impl<W: Write> Export for Recording<W> {
    fn push(&mut self, record: &TraceRecord, names: &Names) -> io::Result<bool> {
        self.name_devices(names)?;
        self.writer.push(*record)?;
        Ok(true)
    }

    fn finish(mut self: Box<Self>, names: &Names) -> io::Result<()> {
        self.name_devices(names)?;
        for (id, name) in names.processes() {
            self.writer.name_process(id, name)?;
        }
        self.writer.finish().map(drop)
    }
}
