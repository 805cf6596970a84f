//! Opens a trace, whatever its format, and reads it as records.
//!
//! 1. Compression is looked through. 2. The format is recognised by content, never by name; files
//!    of a per-CPU set are found beside each other. 3. Records are read one at a time, in bounded
//!    memory.
//!
//! **Not here**: the formats themselves, one module each.

use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::blkparse::{self, BlkparseText, Line};
use crate::blktrace::{self, BlktraceStream, Decoded, MergedEvents, decode_header, siblings};
use crate::error::{Position, TraceError, preview};
use crate::event::{BlockEvent, EventLosses, EventSource};
use crate::iolog::{self, Iolog};
use crate::names::Names;
use crate::pair::Pairer;
use crate::record::TraceRecord;
use crate::recording::{self, RecordingStream};
use crate::source::ByteSource;
use crate::tally::Tally;

/// How much of a text is looked at to recognise it.
const DETECTION_BYTES: usize = 16 * 1024;

/// A trace being read: an iterator over its records.
///
/// After an error nothing more comes.
pub struct TraceReader {
    format: TraceFormat,
    source: Box<dyn RecordSource>,
    failed: bool,
}

/// The formats that are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceFormat {
    Blktrace,
    BlkparseText,
    FioIolog,
    Recording,
}

/// What to do at damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Damage {
    /// Stop with an error that says where it is.
    #[default]
    Fail,
    /// Skip to the next thing that looks sound, and count.
    Skip,
}

/// How to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    pub damage: Damage,
}

/// One format's reader.
pub(crate) trait RecordSource: Send {
    fn next_record(&mut self) -> Result<Option<TraceRecord>, TraceError>;
    fn names(&self) -> &Names;
    fn tally(&self) -> Tally;
}

impl TraceReader {
    /// Opens the trace at `path`; `-` is standard input; one file of a per-CPU blktrace set, or the
    /// set's base name, stands for the whole set.
    ///
    /// # Errors
    /// [`TraceError`]: the file cannot be opened or read, is empty, or is of no known format or
    /// version.
    pub fn open(path: &Path, options: ReadOptions) -> Result<Self, TraceError> {
        if path == Path::new("-") {
            return Self::from_source(ByteSource::open(path)?, options);
        }
        let files = siblings(path);
        match files.as_slice() {
            [] => Self::from_source(ByteSource::open(path)?, options),
            [only] => Self::from_source(ByteSource::open(only)?, options),
            set => Self::from_set(set.iter().map(|file| ByteSource::open(file)), options),
        }
    }

    /// Reads a trace from any input; `name` stands in messages.
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
        let format = detect(&mut source)?;
        let damage = options.damage;
        let source: Box<dyn RecordSource> = match format {
            TraceFormat::Blktrace => {
                Box::new(PairedEvents::new(Box::new(BlktraceStream::new(source, damage))))
            }
            TraceFormat::BlkparseText => {
                Box::new(PairedEvents::new(Box::new(BlkparseText::new(source, damage))))
            }
            TraceFormat::FioIolog => Box::new(Iolog::new(source, damage)?),
            TraceFormat::Recording => Box::new(RecordingStream::new(source, damage)?),
        };
        Ok(Self { format, source, failed: false })
    }

    /// Joins the files of one capture; a CPU without events leaves an empty file.
    fn from_set(
        files: impl Iterator<Item = Result<ByteSource, TraceError>>,
        options: ReadOptions,
    ) -> Result<Self, TraceError> {
        let mut streams: Vec<Box<dyn EventSource>> = Vec::new();
        let mut empty = None;
        for file in files {
            let mut file = file?;
            match detect(&mut file) {
                Ok(TraceFormat::Blktrace) => {
                    streams.push(Box::new(BlktraceStream::new(file, options.damage)));
                }
                Ok(_) => return Err(foreign_member(&file)),
                Err(TraceError::Empty { name }) => empty = Some(TraceError::Empty { name }),
                Err(error) => return Err(error),
            }
        }
        if let (true, Some(empty)) = (streams.is_empty(), empty) {
            return Err(empty);
        }
        let source = Box::new(PairedEvents::new(Box::new(MergedEvents::new(streams))));
        Ok(Self { format: TraceFormat::Blktrace, source, failed: false })
    }

    /// The format that was recognised.
    pub fn format(&self) -> TraceFormat {
        self.format
    }

    /// Names met so far.
    pub fn names(&self) -> &Names {
        self.source.names()
    }

    /// Counts so far.
    pub fn tally(&self) -> Tally {
        self.source.tally()
    }

    /// The next record, or `None` at the end.
    ///
    /// # Errors
    /// [`TraceError`], with the place; nothing can be read after it.
    pub fn next_record(&mut self) -> Result<Option<TraceRecord>, TraceError> {
        if self.failed {
            return Ok(None);
        }
        let next = self.source.next_record();
        self.failed = next.is_err();
        next
    }
}

impl Iterator for TraceReader {
    type Item = Result<TraceRecord, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_record().transpose()
    }
}

impl TraceFormat {
    /// The words a person reads.
    pub fn words(self) -> &'static str {
        match self {
            TraceFormat::Blktrace => blktrace::FORMAT,
            TraceFormat::BlkparseText => blkparse::FORMAT,
            TraceFormat::FioIolog => iolog::FORMAT,
            TraceFormat::Recording => recording::FORMAT,
        }
    }
}

/// Events paired into requests.
struct PairedEvents {
    events: Box<dyn EventSource>,
    pairer: Pairer,
    names: Names,
    tally: Tally,
    ended: bool,
}

impl PairedEvents {
    fn new(events: Box<dyn EventSource>) -> Self {
        let (pairer, names, tally) = (Pairer::new(), Names::default(), Tally::default());
        Self { events, pairer, names, tally, ended: false }
    }

    fn next_event(&mut self) -> Result<Option<BlockEvent>, TraceError> {
        let event = self.events.next_event(&mut self.names)?;
        if event.is_none() {
            self.ended = true;
            self.take_losses();
        }
        Ok(event)
    }

    fn take_losses(&mut self) {
        let EventLosses { events, skipped_bytes, damaged, out_of_order } =
            self.events.take_losses();
        self.tally.events += events;
        self.tally.skipped_bytes += skipped_bytes;
        self.tally.damaged += damaged;
        self.tally.out_of_order += out_of_order;
    }
}

impl RecordSource for PairedEvents {
    fn next_record(&mut self) -> Result<Option<TraceRecord>, TraceError> {
        loop {
            if let Some(record) = self.pairer.ready(&mut self.tally) {
                return Ok(Some(record));
            }
            if self.ended {
                return Ok(self.pairer.leave(&mut self.tally));
            }
            if let Some(event) = self.next_event()? {
                self.pairer.take(&event, &mut self.names, &mut self.tally);
            }
        }
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}

/// Recognises the format by content.
fn detect(source: &mut ByteSource) -> Result<TraceFormat, TraceError> {
    let head = source.require(DETECTION_BYTES)?;
    let head = &head[..head.len().min(DETECTION_BYTES)];
    if head.is_empty() {
        return Err(TraceError::Empty { name: source.name().to_owned() });
    }
    if head.starts_with(recording::MAGIC) {
        return Ok(TraceFormat::Recording);
    }
    if head.starts_with(iolog::HEAD) {
        return Ok(TraceFormat::FioIolog);
    }
    match decode_header(head) {
        Decoded::Header(_) => return Ok(TraceFormat::Blktrace),
        Decoded::Short(_) if head.len() >= 4 => return Ok(TraceFormat::Blktrace),
        Decoded::Version(found) => {
            return Err(TraceError::UnsupportedVersion {
                name: source.name().to_owned(),
                format: blktrace::FORMAT,
                at: Position::Byte(0),
                found,
                supported: blktrace::VERSIONS,
            });
        }
        Decoded::Short(_) | Decoded::ForeignMagic(_) => {}
    }
    if holds_blkparse_lines(head) {
        return Ok(TraceFormat::BlkparseText);
    }
    let found = preview(head);
    Err(TraceError::Unrecognised { name: source.name().to_owned(), found })
}

fn holds_blkparse_lines(head: &[u8]) -> bool {
    head.split(|&byte| byte == b'\n')
        .any(|line| matches!(blkparse::parse_line(line), Line::Event(..) | Line::Passing))
}

fn foreign_member(file: &ByteSource) -> TraceError {
    TraceError::Damaged {
        name: file.name().to_owned(),
        format: blktrace::FORMAT,
        at: Position::Byte(0),
        expected: "a file of the same capture",
        found: preview(&file.buffered()[..file.buffered().len().min(8)]),
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
