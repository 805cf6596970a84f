//! Opens a trace of any format, and reads it as records.
//!
//! 1. The input is decompressed (`source.rs`). 2. The format is detected by content, never by name
//!    (`detect.rs`), or given; files of a set are found next to each other. 3. Records are read one
//!    at a time, in bounded memory.
//!
//! **Not here**: the formats themselves, one module each.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::blkparse::BLKPARSE_TEXT;
use crate::blktrace::{BlktraceStream, MergedEvents, siblings};
use crate::damage::Damage;
use crate::detect::detect;
use crate::error::{Position, TraceError, preview};
use crate::event::{BATCH, EventSource};
use crate::event_lines::EventLines;
use crate::fixed::FIXED_FORMATS;
use crate::format::{Lacks, TraceFormat};
use crate::iolog;
use crate::lines::LINE_FORMATS;
use crate::meter::{Meter, Progress};
use crate::names::Names;
use crate::octf::{self, OctfEvents, OctfQueue};
use crate::paired::PairedEvents;
use crate::record::TraceRecord;
use crate::record_source::RecordSource;
use crate::recording::RecordingStream;
use crate::source::ByteSource;
use crate::tally::Tally;
use crate::tracepoints::TRACEPOINTS;

/// A trace being read: an iterator over its records.
///
/// After an error nothing more comes.
pub struct TraceReader {
    format: TraceFormat,
    source: Box<dyn RecordSource>,
    meters: Vec<Meter>,
    batch: Vec<TraceRecord>,
    next: usize,
    /// Comes after the records of the batch.
    failure: Option<TraceError>,
    /// For the message where no record comes.
    name: String,
    is_empty: bool,
    ended: bool,
}

/// What a trace must contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Demand {
    /// Operations and times: a trace without them is refused.
    #[default]
    Requests,
    /// The requested blocks, in order: any trace has them.
    References,
}

/// How to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    pub damage: Damage,
    pub demand: Demand,
    /// The format, where it is not to be detected.
    pub format: Option<TraceFormat>,
}

impl TraceReader {
    /// Opens the trace at `path`; `-` is standard input; one file of a per-CPU blktrace set, or the
    /// set's base name, stands for the whole set, as does a queue of an OCTF trace or its folder.
    ///
    /// # Errors [`TraceError`]: the file cannot be opened or read, is empty, is of no known format
    /// or version, may be of several, or lacks what is demanded.
    pub fn open(path: &Path, options: ReadOptions) -> Result<Self, TraceError> {
        let is_alone = options.format.is_some_and(|format| !format.has_sets());
        if path == Path::new("-") || is_alone {
            return Self::from_source(ByteSource::open(path)?, options);
        }
        if let Some(queues) = octf::queues_of(path)? {
            return Self::from_queues(queues.iter().map(|queue| ByteSource::open(queue)), options);
        }
        match siblings(path).as_slice() {
            [] => Self::from_source(ByteSource::open(path)?, options),
            [only] => Self::from_source(ByteSource::open(only)?, options),
            set => Self::from_set(set, options),
        }
    }

    /// Reads a trace from any input; `name` is for messages.
    ///
    /// # Errors
    /// As [`TraceReader::open`].
    pub fn from_input(
        name: &str,
        input: Box<dyn Read + Send>,
        options: ReadOptions,
    ) -> Result<Self, TraceError> {
        Self::from_source(ByteSource::new(name, input)?, options)
    }

    fn from_source(mut source: ByteSource, options: ReadOptions) -> Result<Self, TraceError> {
        let format = match options.format {
            Some(format) => told(&mut source, format)?,
            None => detect(&mut source)?,
        };
        let (name, meter) = (source.name().to_owned(), source.meter());
        let damage = options.damage;
        let records = match format {
            TraceFormat::Blktrace => paired(BlktraceStream::new(source, damage)),
            TraceFormat::BlkparseText => paired(EventLines::new(BLKPARSE_TEXT, source, damage)),
            TraceFormat::Tracepoints => paired(EventLines::new(TRACEPOINTS, source, damage)),
            TraceFormat::FioIolog => iolog::open(source, damage)?,
            TraceFormat::Recording => Box::new(RecordingStream::new(source, damage)?),
            TraceFormat::Octf => paired(octf_events(source, damage)?),
            other => open_table_format(other, source, damage),
        };
        Self::checked(&name, format, records, vec![meter], options.demand)
    }

    /// Joins the files of one capture; a CPU without events leaves an empty file.
    fn from_set(files: &[PathBuf], options: ReadOptions) -> Result<Self, TraceError> {
        let mut streams: Vec<Box<dyn EventSource>> = Vec::new();
        let mut meters = Vec::new();
        let mut empty = None;
        for file in files {
            let mut file = ByteSource::open(file)?;
            match detect(&mut file) {
                Ok(TraceFormat::Blktrace) => {
                    meters.push(file.meter());
                    streams.push(Box::new(BlktraceStream::new(file, options.damage)));
                }
                Ok(_) => return Err(foreign_member(&file, TraceFormat::Blktrace)),
                Err(TraceError::Empty { name }) => empty = Some(TraceError::Empty { name }),
                Err(error) => return Err(error),
            }
        }
        if let (true, Some(empty)) = (streams.is_empty(), empty) {
            return Err(empty);
        }
        let name = files.first().map_or_else(String::new, |file| file.display().to_string());
        let (format, records) = (TraceFormat::Blktrace, paired(MergedEvents::new(streams)));
        Ok(Self::of(name, format, records, meters))
    }

    /// Joins the queues of one OCTF trace.
    fn from_queues(
        queues: impl Iterator<Item = Result<ByteSource, TraceError>>,
        options: ReadOptions,
    ) -> Result<Self, TraceError> {
        let mut meters = Vec::new();
        let mut opened = Vec::new();
        let mut name = String::new();
        for queue in queues {
            let mut queue = queue?;
            if name.is_empty() {
                name = queue.name().to_owned();
            }
            let head = queue.require(octf::HEAD_BYTES)?;
            if !head.is_empty() && !octf::begins_queue(head) {
                return Err(foreign_member(&queue, TraceFormat::Octf));
            }
            meters.push(queue.meter());
            opened.push(OctfQueue::new(queue, options.damage));
        }
        let (format, records) = (TraceFormat::Octf, paired(OctfEvents::new(opened)));
        Ok(Self::of(name, format, records, meters))
    }

    fn of(
        name: String,
        format: TraceFormat,
        source: Box<dyn RecordSource>,
        meters: Vec<Meter>,
    ) -> Self {
        let batch = Vec::with_capacity(BATCH);
        let (failure, is_empty, ended) = (None, true, false);
        Self { format, source, meters, batch, next: 0, failure, name, is_empty, ended }
    }

    fn checked(
        name: &str,
        format: TraceFormat,
        source: Box<dyn RecordSource>,
        meters: Vec<Meter>,
        demand: Demand,
    ) -> Result<Self, TraceError> {
        let reader = Self::of(name.to_owned(), format, source, meters);
        let lacks = reader.lacks();
        if demand == Demand::Requests && !lacks.is_empty() {
            return Err(TraceError::Lacking { name: name.to_owned(), format, lacks });
        }
        Ok(reader)
    }

    /// The detected format.
    pub fn format(&self) -> TraceFormat {
        self.format
    }

    /// What the trace lacks.
    pub fn lacks(&self) -> Lacks {
        self.format.lacks() | self.source.lacks()
    }

    /// Names so far; reading is ahead of the records by a batch.
    pub fn names(&self) -> &Names {
        self.source.names()
    }

    /// Counts so far, likewise.
    pub fn tally(&self) -> Tally {
        self.source.tally()
    }

    /// Position in its files.
    pub fn progress(&self) -> Progress {
        Meter::sum(&self.meters)
    }

    /// The next record, or `None` at the end.
    ///
    /// # Errors
    /// [`TraceError`], with the place; nothing can be read after it.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<TraceRecord>, TraceError> {
        if self.next == self.batch.len() && !self.ended && self.failure.is_none() {
            self.fill();
        }
        if let Some(record) = self.batch.get(self.next) {
            self.next += 1;
            return Ok(Some(*record));
        }
        self.failure.take().map_or(Ok(None), Err)
    }

    /// Replaces the consumed batch.
    fn fill(&mut self) {
        self.batch.clear();
        self.next = 0;
        let filled = self.source.fill(&mut self.batch);
        self.ended = !matches!(filled, Ok(true));
        self.is_empty &= self.batch.is_empty();
        self.failure = match filled {
            // A recording of a volume without load is whole.
            Ok(false) if self.is_empty && self.format != TraceFormat::Recording => {
                let (name, format) = (self.name.clone(), self.format);
                Some(TraceError::NoRequests { name, format, why: why_none(&self.tally()) })
            }
            other => other.err(),
        };
    }
}

impl Iterator for TraceReader {
    type Item = Result<TraceRecord, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_record().transpose()
    }
}

/// The format that the user gave; empty input is an error in each.
fn told(source: &mut ByteSource, format: TraceFormat) -> Result<TraceFormat, TraceError> {
    if source.require(1)?.is_empty() {
        return Err(TraceError::Empty { name: source.name().to_owned() });
    }
    Ok(format)
}

/// Why a trace has come to nothing.
fn why_none(tally: &Tally) -> String {
    let Tally { events, damaged, other_commands, impossible_ranges, .. } = *tally;
    if damaged > 0 {
        format!("{damaged} damaged places were skipped, and nothing else is there")
    } else if impossible_ranges > 0 {
        format!("all {impossible_ranges} ranges end beyond 2^64 bytes")
    } else if other_commands > 0 {
        format!("its {other_commands} commands move no data")
    } else if events > 0 {
        format!("none of its {events} events or lines queues, dispatches or completes one")
    } else {
        "it has neither events nor lines of requests".to_owned()
    }
}

fn paired(events: impl EventSource + 'static) -> Box<dyn RecordSource> {
    Box::new(PairedEvents::new(Box::new(events)))
}

/// The queues of a tar, or one queue alone.
fn octf_events(mut source: ByteSource, damage: Damage) -> Result<OctfEvents, TraceError> {
    let queues = match octf::is_archive(source.require(octf::HEAD_BYTES)?) {
        true => octf::unpack(source)?,
        false => vec![source],
    };
    let open = |queue| OctfQueue::new(queue, damage);
    Ok(OctfEvents::new(queues.into_iter().map(open).collect()))
}

/// A format of one of the tables.
fn open_table_format(
    format: TraceFormat,
    source: ByteSource,
    damage: Damage,
) -> Box<dyn RecordSource> {
    let lines = LINE_FORMATS.iter().map(|known| (known.format, known.open));
    let fixed = FIXED_FORMATS.iter().map(|known| (known.format, known.open));
    let found = lines.chain(fixed).find(|(known, _)| *known == format);
    let (_, open) = found.expect("every format has a reader");
    open(source, damage)
}

fn foreign_member(file: &ByteSource, format: TraceFormat) -> TraceError {
    TraceError::Damaged {
        name: file.name().to_owned(),
        format: format.words(),
        at: Position::Byte(0),
        expected: "a file of the same capture",
        found: preview(&file.buffered()[..file.buffered().len().min(8)]),
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
