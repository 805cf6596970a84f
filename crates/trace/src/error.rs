//! Errors of a trace, with their position.

use std::fmt;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::format::{Lacks, TraceFormat};

/// Why a trace could not be opened or read on. Every variant that concerns content says where it is
/// and what was expected there.
#[derive(Debug, Error)]
pub enum TraceError {
    #[error("cannot open trace {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },

    #[error("{name}: reading failed at {at}: {source}")]
    Read { name: String, at: Position, source: io::Error },

    #[error("{name}: the trace is empty")]
    Empty { name: String },

    #[error("{name}: no request in this {}: {why}", format.words())]
    NoRequests { name: String, format: TraceFormat, why: String },

    #[error(
        "{name}: not a known trace format; it starts with {found}. Known: {}; each plain, gzip, \
        zstd or xz. \
         If it is one of these, give --format NAME",
        known_formats()
    )]
    Unrecognised { name: String, found: String },

    #[error(
        "{name}: may be {}, and its beginning does not distinguish them: choose with --format NAME",
        either(candidates)
    )]
    Ambiguous { name: String, candidates: Vec<TraceFormat> },

    #[error(
        "{name}: {} records {}, only the requested blocks; `headpond analyze` reports their reuse, \
        `trace stats` and `trace convert` accept it, but requests are required here",
        format.words(),
        lacks.words()
    )]
    Lacking { name: String, format: TraceFormat, lacks: Lacks },

    #[error("{name}: is no {}: {why}", format.words())]
    NotThat { name: String, format: TraceFormat, why: &'static str },

    #[error("{name}: contains several traces ({traces}): name one of them")]
    SeveralTraces { name: String, traces: String },

    #[error(
        "{name}: has more than {} MiB of queues, which must fit in memory to be merged: unpack it \
        and name its folder",
        bytes_max >> 20
    )]
    Oversized { name: String, bytes_max: u64 },

    #[error("{name}: {format} version {found} at {at} is not supported (supported: {supported})")]
    UnsupportedVersion {
        name: String,
        format: &'static str,
        at: Position,
        found: u32,
        supported: &'static str,
    },

    #[error("{name}: damaged {format} at {at}: expected {expected}, found {found}")]
    Damaged {
        name: String,
        format: &'static str,
        at: Position,
        expected: &'static str,
        found: String,
    },

    #[error(
        "{name}: truncated {format}: {part} at {at} needs {needed_bytes} bytes, only \
        {available_bytes} are left"
    )]
    Truncated {
        name: String,
        format: &'static str,
        part: &'static str,
        at: Position,
        needed_bytes: u64,
        available_bytes: u64,
    },

    #[error(
        "{name}: recording was not finished: no end block at {at} ({records} records before it are \
        good; read \
         it leniently to use them)"
    )]
    Unfinished { name: String, at: Position, records: u64 },
}

impl TraceError {
    /// True when skipping ahead in the same input may find more good records.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            TraceError::Damaged { .. }
                | TraceError::Truncated { .. }
                | TraceError::Unfinished { .. }
        )
    }

    /// Where in the input the problem lies, where one place can be named.
    pub fn position(&self) -> Option<Position> {
        match self {
            TraceError::Open { .. }
            | TraceError::Empty { .. }
            | TraceError::NoRequests { .. }
            | TraceError::Ambiguous { .. }
            | TraceError::Lacking { .. }
            | TraceError::NotThat { .. }
            | TraceError::SeveralTraces { .. }
            | TraceError::Oversized { .. } => None,
            TraceError::Unrecognised { .. } => Some(Position::Byte(0)),
            TraceError::Read { at, .. }
            | TraceError::UnsupportedVersion { at, .. }
            | TraceError::Damaged { at, .. }
            | TraceError::Truncated { at, .. }
            | TraceError::Unfinished { at, .. } => Some(*at),
        }
    }
}

/// A place in an input: a byte of a binary format (after decompression), a line (from 1) of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Position {
    Byte(u64),
    Line(u64),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Byte(offset) => write!(f, "byte {offset}"),
            Position::Line(number) => write!(f, "line {number}"),
        }
    }
}

fn known_formats() -> String {
    TraceFormat::ALL.map(TraceFormat::name).join(", ")
}

fn either(candidates: &[TraceFormat]) -> String {
    let named = |format: &TraceFormat| format!("{} ({})", format.words(), format.name());
    candidates.iter().map(named).collect::<Vec<_>>().join(" or ")
}

/// Shows the first bytes of something unexpected, shortened and printable.
pub(crate) fn preview(bytes: &[u8]) -> String {
    const SHOWN_BYTES: usize = 48;
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
    let dots = if bytes.len() > SHOWN_BYTES { "..." } else { "" };
    format!("\"{}{dots}\"", shown.escape_ascii())
}
