//! Writes the records of a reader in another format.
//!
//! 1. [`convert`] reads to the end and gives every record to the writer of the wanted format. 2.
//!    What that format cannot express is left out and counted, never altered.
//!
//! **Invariants**: memory is a window of records, for any length of the trace.
//!
//! **Not here**: files; the caller gives the output.

mod blkparse;
mod csv;
mod iolog;
mod parquet;
mod recording;

use std::io::{self, Write};
use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;

use crate::error::TraceError;
use crate::format::{Lacks, TraceFormat};
use crate::names::Names;
use crate::reader::TraceReader;
use crate::record::TraceRecord;

/// Interval of progress reports.
const RECORDS_BETWEEN_REPORTS: u64 = 16 * 1024;

/// The formats that are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExportFormat {
    /// Headpond's own; lossless.
    #[default]
    Recording,
    /// fio's log, version 3: no completions, processes and flags.
    FioIolog,
    /// blkparse's text: queue, dispatch and completion of each request; whole sectors only.
    BlkparseText,
    /// The table of MSR Cambridge: reads and writes with their responses.
    Csv,
    /// A row a request in Parquet; lossless, and cannot be read back.
    Parquet,
}

/// Result of a conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Conversion {
    pub records: u64,
    /// Requests that the format cannot express.
    pub left_out: u64,
}

/// Why a conversion ended early.
#[derive(Debug, Error)]
pub enum ConvertError {
    #[error(transparent)]
    Read(#[from] TraceError),

    #[error("writing failed: {0}")]
    Write(#[from] io::Error),

    #[error(
        "{} records {}, which {} requires: only recording and parquet do not (--to recording)",
        format.words(),
        lacks.words(),
        to.name()
    )]
    Lacking { format: TraceFormat, lacks: Lacks, to: ExportFormat },
}

/// One format's writer.
trait Export {
    /// Writes one record; false where the format cannot express it.
    fn push(&mut self, record: &TraceRecord, names: &Names) -> io::Result<bool>;

    /// Writes the pending records, and the end.
    fn finish(self: Box<Self>, names: &Names) -> io::Result<()>;
}

impl ExportFormat {
    pub const ALL: [ExportFormat; 5] = [
        ExportFormat::Recording,
        ExportFormat::FioIolog,
        ExportFormat::BlkparseText,
        ExportFormat::Csv,
        ExportFormat::Parquet,
    ];

    /// The word a command line takes.
    pub fn name(self) -> &'static str {
        match self {
            ExportFormat::Recording => "recording",
            ExportFormat::FioIolog => "fio-iolog",
            ExportFormat::BlkparseText => "blkparse-text",
            ExportFormat::Csv => "csv",
            ExportFormat::Parquet => "parquet",
        }
    }
}

impl FromStr for ExportFormat {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|format| format.name() == word);
        known.ok_or_else(|| format!("one of {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// Writes all records of `reader` to `output`; `report` receives progress.
///
/// # Errors
/// [`ConvertError`]; the part written until then is in `output`, without an end.
pub fn convert<'a, W: Write + Send + 'a>(
    reader: &mut TraceReader,
    output: W,
    to: ExportFormat,
    mut report: impl FnMut(&TraceReader),
) -> Result<Conversion, ConvertError> {
    let mut export = exporter(reader, output, to)?;
    let mut conversion = Conversion::default();
    let mut read = 0u64;
    while let Some(record) = reader.next_record()? {
        let told = export.push(&record, reader.names())?;
        conversion.records += u64::from(told);
        conversion.left_out += u64::from(!told);
        read += 1;
        if read.is_multiple_of(RECORDS_BETWEEN_REPORTS) {
            report(reader);
        }
    }
    export.finish(reader.names())?;
    Ok(conversion)
}

fn exporter<'a, W: Write + Send + 'a>(
    reader: &TraceReader,
    output: W,
    to: ExportFormat,
) -> Result<Box<dyn Export + 'a>, ConvertError> {
    let (format, lacks) = (reader.format(), reader.lacks());
    let tells_absence = matches!(to, ExportFormat::Recording | ExportFormat::Parquet);
    if !tells_absence && !lacks.is_empty() {
        return Err(ConvertError::Lacking { format, lacks, to });
    }
    Ok(match to {
        ExportFormat::Recording => Box::new(recording::Recording::new(output, lacks)?),
        ExportFormat::FioIolog => Box::new(iolog::FioIolog::new(output)?),
        ExportFormat::BlkparseText => Box::new(blkparse::Blkparse::new(output)),
        ExportFormat::Csv => Box::new(csv::Csv::new(output)),
        ExportFormat::Parquet => Box::new(parquet::Parquet::new(output, lacks)?),
    })
}

/// What a column takes for a device: its name without blanks and commas, or its number.
fn plain_name(names: &Names, device: u16) -> String {
    let plain = |letter: char| if letter.is_whitespace() || letter == ',' { '_' } else { letter };
    match names.device(device) {
        Some(name) if !name.is_empty() => name.chars().map(plain).collect(),
        _ => format!("device{device}"),
    }
}

#[cfg(test)]
mod tests;
