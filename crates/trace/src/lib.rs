//! Block traces: one record type, readers of the common formats, Headpond's compact format, and
//! live capture.
//!
//! 1. [`TraceReader::open`] recognises a format by its content and yields [`TraceRecord`]s in order
//!    of issue.
//! 2. [`TraceStats`] sums them up; the `advise` crate draws a signature from them.
//! 3. [`RecordingWriter`] writes records, [`convert`] also other formats; [`CaptureDevice`] records
//!    live requests. 4. [`ParquetTable`] writes tables for other engines.
//!
//! **Invariants**: readers stream in bounded memory; traces are untrusted, and damage is an error
//! with its position.
//!
//! **Not here**: analysis of workloads (`advise`).

#![forbid(unsafe_code)]

mod arrivals;
mod blkparse;
mod blktrace;
mod capture;
mod damage;
mod detect;
mod error;
mod event;
mod event_lines;
mod export;
mod fixed;
mod format;
mod iolog;
mod lines;
mod meter;
mod names;
mod octf;
mod order;
mod pair;
mod paired;
mod parquet_table;
mod reader;
mod record;
mod record_source;
mod recording;
mod source;
mod stats;
mod tally;
#[cfg(test)]
mod testing;
mod tracepoints;
mod waiting;

pub use blktrace::decode_header as decode_blktrace_header;
pub use blktrace::{Decoded as BlktraceDecoded, Header as BlktraceHeader};
pub use capture::{CaptureDevice, CaptureSummary, Drain, Recorder, capture};
pub use damage::{Damage, DamageCount, DamageCounts, DamageKind};
pub use error::{Position, TraceError};
pub use event::{Action, BlockEvent, Category};
pub use export::{Conversion, ConvertError, ExportFormat, convert};
pub use format::{Lacks, TraceFormat, UnknownFormat};
pub use iolog::{IologVersion, Line as IologLine, parse_line as parse_iolog_line};
pub use meter::Progress;
pub use names::Names;
pub use parquet_table::{Cell, ColumnKind, ParquetTable};
pub use reader::{Demand, ReadOptions, TraceReader};
pub use record::{Op, RecordFlags, TraceRecord};
pub use recording::{BlockDecoder, BlockError, BlockKind, RecordingWriter};
pub use source::ByteSource;
pub use stats::{OpStats, StatsBuilder, TraceStats};
pub use tally::Tally;
