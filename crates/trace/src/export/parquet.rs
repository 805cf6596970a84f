//! A row a request, for any engine that reads Parquet. Values that the trace lacks are absent in
//! the row; the names of processes are in the file's metadata, because a reader may know them only
//! at its end.

use std::io::{self, Write};

use super::Export;
use crate::format::Lacks;
use crate::names::Names;
use crate::parquet_table::{Cell, ColumnKind, ParquetTable};
use crate::record::{RecordFlags, TraceRecord};

/// The columns before the flags.
const COLUMNS: [(&str, ColumnKind); 9] = [
    ("issued_ns", ColumnKind::Growing),
    ("op", ColumnKind::Text),
    ("offset_bytes", ColumnKind::Growing),
    ("length_bytes", ColumnKind::Unsigned),
    ("dispatched_ns", ColumnKind::Growing),
    ("completed_ns", ColumnKind::Growing),
    ("device", ColumnKind::Text),
    ("process", ColumnKind::Unsigned),
    ("queue", ColumnKind::Unsigned),
];

/// A column each.
const FLAGS: [(&str, RecordFlags); 11] = [
    ("fua", RecordFlags::FUA),
    ("sync", RecordFlags::SYNC),
    ("metadata", RecordFlags::METADATA),
    ("preflush", RecordFlags::PREFLUSH),
    ("readahead", RecordFlags::READAHEAD),
    ("failed", RecordFlags::FAILED),
    ("retried", RecordFlags::RETRIED),
    ("split", RecordFlags::SPLIT),
    ("merged", RecordFlags::MERGED),
    ("remapped", RecordFlags::REMAPPED),
    ("requeued", RecordFlags::REQUEUED),
];

pub(super) struct Parquet<W: Write + Send> {
    table: ParquetTable<W>,
    lacks: Lacks,
    /// Names of devices as the rows have them, by their numbers.
    devices: Vec<String>,
}

impl<W: Write + Send> Parquet<W> {
    pub(super) fn new(output: W, lacks: Lacks) -> io::Result<Self> {
        let flags = FLAGS.map(|(name, _)| (name, ColumnKind::Flag));
        let columns: Vec<_> = COLUMNS.into_iter().chain(flags).collect();
        Ok(Self { table: ParquetTable::new(output, &columns)?, lacks, devices: Vec::new() })
    }

    fn learn_devices(&mut self, names: &Names, up_to: u16) {
        let known = self.devices.len() as u16;
        let name = |device| match names.device(device) {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => format!("device{device}"),
        };
        self.devices.extend((known..=up_to).map(name));
    }
}

impl<W: Write + Send> Export for Parquet<W> {
    fn push(&mut self, record: &TraceRecord, names: &Names) -> io::Result<bool> {
        self.learn_devices(names, record.device);
        let told = |lack, cell| if self.lacks.contains(lack) { Cell::Absent } else { cell };
        let time = |at: Option<u64>| at.map_or(Cell::Absent, Cell::Unsigned);
        let process = (record.process != 0).then_some(u64::from(record.process));
        let cells = [
            told(Lacks::TIMES, Cell::Unsigned(record.issued_ns)),
            told(Lacks::OPERATIONS, Cell::Text(record.op.word())),
            Cell::Unsigned(record.offset_bytes),
            Cell::Unsigned(record.length_bytes),
            time(record.dispatched_ns),
            time(record.completed_ns),
            Cell::Text(&self.devices[usize::from(record.device)]),
            process.map_or(Cell::Absent, Cell::Unsigned),
            Cell::Unsigned(u64::from(record.queue)),
        ];
        let mut row = [Cell::Absent; COLUMNS.len() + FLAGS.len()];
        row[..COLUMNS.len()].copy_from_slice(&cells);
        for (cell, (_, flag)) in row[COLUMNS.len()..].iter_mut().zip(FLAGS) {
            *cell = Cell::Flag(record.flags.contains(flag));
        }
        self.table.push(&row)?;
        Ok(true)
    }

    fn finish(self: Box<Self>, names: &Names) -> io::Result<()> {
        let processes = names.processes();
        let notes =
            processes.into_iter().map(|(id, name)| (format!("process {id}"), name.to_owned()));
        self.table.finish(notes.collect())
    }
}
