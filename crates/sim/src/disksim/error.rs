//! Where something stands, and what is wrong there.

use crate::hdd::ModelError;
use std::fmt;
use std::io;
use std::sync::Arc;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    pub file: Arc<str>,
    /// From 1.
    pub line: u32,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Why files describe no drive that we can model.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("{file}: cannot be read: {source}")]
    Read { file: String, source: io::Error },
    /// A file that another one names.
    #[error("{at}: cannot read {file}: {source}")]
    Sourced { at: Location, file: String, source: io::Error },
    #[error("{at}: {what}")]
    Syntax { at: Location, what: String },
    #[error("{at}: {field}: {what}")]
    Field { at: Location, field: String, what: String },
    #[error("{file}: describes no drive: there is no disksim_disk in it or in what it sources")]
    NoDrive { file: String },
    #[error("{file}: describes several drives, name one: {names}")]
    SeveralDrives { file: String, names: String },
    #[error("{at}: {drive}: {source}")]
    Model { at: Location, drive: String, source: Box<ModelError> },
}

impl ImportError {
    pub(super) fn field(at: &Location, field: &str, what: impl Into<String>) -> Self {
        Self::Field { at: at.clone(), field: field.to_owned(), what: what.into() }
    }
}

/// Something that the importer decided, assumed or left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub at: Location,
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.text)
    }
}
