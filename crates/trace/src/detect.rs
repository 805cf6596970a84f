//! Recognises a format by its content.
//!
//! 1. A magic number or a first word settles it. 2. Records without any are recognised by whether
//!    their numbers make sense. 3. A text is read in every format of lines; the one that knows most
//!    of its lines is it. Where several know as many, more of the text is looked at; if that does
//!    not settle it, the user is asked.
//!
//! **Invariants**: nothing is consumed; at most the source's buffer is looked at.

use crate::blkparse::BLKPARSE_TEXT;
use crate::blktrace::{self, Decoded, decode_header};
use crate::error::{Position, TraceError, preview};
use crate::event_lines::{EventText, Line};
use crate::fixed::FIXED_FORMATS;
use crate::format::TraceFormat;
use crate::iolog;
use crate::lines::{Fit, LINE_FORMATS};
use crate::octf;
use crate::recording;
use crate::source::{BUFFER_BYTES, ByteSource};
use crate::tracepoints::TRACEPOINTS;

/// How much is looked at first.
const DETECTION_BYTES: usize = 16 * 1024;

/// Formats of an event a line.
const EVENT_TEXTS: [(TraceFormat, EventText); 2] =
    [(TraceFormat::BlkparseText, BLKPARSE_TEXT), (TraceFormat::Tracepoints, TRACEPOINTS)];

/// Recognises what `source` holds.
///
/// # Errors
/// [`TraceError::Empty`], [`TraceError::Unrecognised`], [`TraceError::UnsupportedVersion`],
/// [`TraceError::Ambiguous`], [`TraceError::Read`].
pub(crate) fn detect(source: &mut ByteSource) -> Result<TraceFormat, TraceError> {
    let head = beginning(source, DETECTION_BYTES)?;
    if head.is_empty() {
        return Err(TraceError::Empty { name: source.name().to_owned() });
    }
    if let Some(format) = by_first_bytes(head) {
        return Ok(format);
    }
    if let Decoded::Version(found) = decode_header(head) {
        return Err(TraceError::UnsupportedVersion {
            name: source.name().to_owned(),
            format: TraceFormat::Blktrace.words(),
            at: Position::Byte(0),
            found,
            supported: blktrace::VERSIONS,
        });
    }
    let mut candidates = by_numbers(head);
    if candidates.is_empty() {
        candidates = by_lines(source)?;
    }
    let name = source.name().to_owned();
    match candidates.as_slice() {
        [only] => Ok(*only),
        [] => {
            let found = preview(beginning(source, DETECTION_BYTES)?);
            Err(TraceError::Unrecognised { name, found })
        }
        _ => Err(TraceError::Ambiguous { name, candidates }),
    }
}

/// The next bytes, at most so many.
fn beginning(source: &mut ByteSource, bytes: usize) -> Result<&[u8], TraceError> {
    let head = source.require(bytes)?;
    Ok(&head[..head.len().min(bytes)])
}

fn by_first_bytes(head: &[u8]) -> Option<TraceFormat> {
    let is_blktrace = match decode_header(head) {
        Decoded::Header(_) => true,
        Decoded::Short(_) => head.len() >= 4,
        Decoded::Version(_) | Decoded::ForeignMagic(_) => false,
    };
    let known = [
        (head.starts_with(recording::MAGIC), TraceFormat::Recording),
        (head.starts_with(iolog::HEAD), TraceFormat::FioIolog),
        (is_blktrace, TraceFormat::Blktrace),
        (octf::is_archive(head) || octf::begins_queue(head), TraceFormat::Octf),
    ];
    known.into_iter().find_map(|(is_it, format)| is_it.then_some(format))
}

fn by_numbers(head: &[u8]) -> Vec<TraceFormat> {
    FIXED_FORMATS.iter().filter(|known| (known.fits)(head)).map(|known| known.format).collect()
}

/// The formats that know most of the lines.
fn by_lines(source: &mut ByteSource) -> Result<Vec<TraceFormat>, TraceError> {
    let mut found = Vec::new();
    for bytes in [DETECTION_BYTES, BUFFER_BYTES] {
        found = best(whole_lines(beginning(source, bytes)?, bytes));
        if found.len() == 1 {
            break;
        }
    }
    Ok(found)
}

/// Where the beginning ends in the middle of a line, that line is left out.
fn whole_lines(beginning: &[u8], asked_bytes: usize) -> &[u8] {
    if beginning.len() < asked_bytes {
        return beginning;
    }
    let end = memchr::memrchr(b'\n', beginning).map_or(beginning.len(), |at| at + 1);
    &beginning[..end]
}

fn best(lines: &[u8]) -> Vec<TraceFormat> {
    let known = LINE_FORMATS.iter().map(|known| (known.format, (known.fit)(lines)));
    let mut fits: Vec<_> =
        known.chain(EVENT_TEXTS.map(|(format, text)| (format, event_fit(lines, text)))).collect();
    fits.retain(|(_, fit)| fit.requests > 0 && fit.misfits <= fit.requests);
    let fewest = fits.iter().map(|(_, fit)| fit.misfits).min();
    fits.retain(|(_, fit)| Some(fit.misfits) == fewest);
    fits.into_iter().map(|(format, _)| format).collect()
}

/// No line of another format reads as an event: one is enough, whatever else was printed between.
fn event_fit(lines: &[u8], text: EventText) -> Fit {
    let is_event = |line: &&[u8]| matches!((text.parse)(line), Line::Event(..) | Line::Passing);
    let requests = lines.split(|&byte| byte == b'\n').filter(is_event).count();
    Fit { requests, misfits: 0 }
}

#[cfg(test)]
mod tests;
