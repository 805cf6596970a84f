//! The errors of one device: how many of each kind, and the newest.
//!
//! **Not here**: which device it is, and where its errors are kept over restarts (the layers
//! above).

use crate::{Cause, DeviceError, RequestKind, UtcTime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

/// Operations of a device that failed, until they are cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DeviceErrors {
    pub read: u64,
    /// Writes, and writes of zeros.
    pub write: u64,
    pub flush: u64,
    /// Contents that did not match their checksum, or their redundancy.
    pub checksum: u64,
    /// Not completed within the timeout.
    pub timeout: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    Read,
    Write,
    Flush,
    Checksum,
    Timeout,
}

/// Causes that have a way out of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCause {
    /// The file system that holds it has no space left, or does not allow a file of that size.
    Full,
    /// It, or the file system that holds it, is read-only.
    ReadOnly,
    #[default]
    Other,
}

/// The newest error of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastError {
    pub kind: ErrorKind,
    pub cause: ErrorCause,
    /// In the words of the operating system, where it said so.
    pub text: String,
    pub at: UtcTime,
}

/// Counts the errors of a device.
#[derive(Default)]
pub struct ErrorLog {
    counts: Cell<DeviceErrors>,
    last: RefCell<Option<LastError>>,
    on_change: RefCell<Option<Rc<dyn Fn()>>>,
}

impl DeviceErrors {
    pub fn total(self) -> u64 {
        self.by_kind().iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Those since earlier counts; nothing of a count that was cleared in between.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            read: self.read.saturating_sub(earlier.read),
            write: self.write.saturating_sub(earlier.write),
            flush: self.flush.saturating_sub(earlier.flush),
            checksum: self.checksum.saturating_sub(earlier.checksum),
            timeout: self.timeout.saturating_sub(earlier.timeout),
        }
    }

    /// Each kind with its count.
    pub fn by_kind(self) -> [(ErrorKind, u64); 5] {
        let Self { read, write, flush, checksum, timeout } = self;
        [
            (ErrorKind::Read, read),
            (ErrorKind::Write, write),
            (ErrorKind::Flush, flush),
            (ErrorKind::Checksum, checksum),
            (ErrorKind::Timeout, timeout),
        ]
    }

    fn add(&mut self, kind: ErrorKind, count: u64) {
        let field = match kind {
            ErrorKind::Read => &mut self.read,
            ErrorKind::Write => &mut self.write,
            ErrorKind::Flush => &mut self.flush,
            ErrorKind::Checksum => &mut self.checksum,
            ErrorKind::Timeout => &mut self.timeout,
        };
        *field = field.saturating_add(count);
    }
}

impl fmt::Display for DeviceErrors {
    /// `3 read errors, 1 flush error`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = self.by_kind().into_iter().filter(|(_, count)| *count > 0);
        let told = told.map(|(kind, count)| {
            let plural = if count == 1 { "" } else { "s" };
            match kind {
                ErrorKind::Timeout => format!("{count} timeout{plural}"),
                kind => format!("{count} {kind} error{plural}"),
            }
        });
        f.write_str(&told.collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Checksum => "checksum",
            Self::Timeout => "timeout",
        })
    }
}

impl From<RequestKind> for ErrorKind {
    fn from(kind: RequestKind) -> Self {
        match kind {
            RequestKind::Read => Self::Read,
            RequestKind::Flush => Self::Flush,
            RequestKind::Write | RequestKind::WriteZeroes | RequestKind::Discard => Self::Write,
        }
    }
}

impl fmt::Display for LastError {
    /// `write: No space left on device, 2026-11-22 00:12:05 UTC`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, {}", self.kind, self.text, self.at)
    }
}

impl ErrorLog {
    /// Has `tell` called at each change.
    pub fn when_changed(&self, tell: Rc<dyn Fn()>) {
        self.on_change.replace(Some(tell));
    }

    /// An operation failed. What a device does not support is no error of it.
    #[cold]
    pub fn note(&self, kind: impl Into<ErrorKind>, error: &DeviceError, at: UtcTime) {
        let cause = match error.cause() {
            Cause::Unsupported { .. } => return,
            Cause::NoSpace => ErrorCause::Full,
            Cause::ReadOnly => ErrorCause::ReadOnly,
            _ => ErrorCause::Other,
        };
        let kind = match error.cause() {
            Cause::Timeout { .. } => ErrorKind::Timeout,
            _ => kind.into(),
        };
        self.enter(LastError { kind, cause, text: error.in_words(), at });
    }

    /// Contents did not match their checksum, or their redundancy.
    #[cold]
    pub fn note_checksum(&self, at: UtcTime) {
        let (kind, cause) = (ErrorKind::Checksum, ErrorCause::Other);
        self.enter(LastError { kind, cause, text: "its contents had changed".into(), at });
    }

    fn enter(&self, error: LastError) {
        let mut counts = self.counts.get();
        counts.add(error.kind, 1);
        self.counts.set(counts);
        self.last.replace(Some(error));
        self.tell();
    }

    /// Adds what was counted before a restart.
    pub fn restore(&self, counts: DeviceErrors, last: Option<LastError>) {
        let mut sum = self.counts.get();
        counts.by_kind().into_iter().for_each(|(kind, count)| sum.add(kind, count));
        self.counts.set(sum);
        let newest = self.last.take().or(last);
        self.last.replace(newest);
    }

    /// The counts begin at zero again.
    pub fn clear(&self) {
        self.last.take();
        if self.counts.take() != DeviceErrors::default() {
            self.tell();
        }
    }

    pub fn counts(&self) -> DeviceErrors {
        self.counts.get()
    }

    pub fn last(&self) -> Option<LastError> {
        self.last.borrow().clone()
    }

    fn tell(&self) {
        let tell = self.on_change.borrow().clone();
        tell.inspect(|tell| tell());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn error(cause: Cause) -> DeviceError {
        DeviceError::new(&"m1".into(), cause)
    }

    #[test]
    fn errors_are_counted_by_kind_and_the_newest_names_its_cause() {
        let (log, at) = (ErrorLog::default(), UtcTime::from_unix_s(1_795_307_525));
        log.note(RequestKind::Read, &error(Cause::Gone), at);
        log.note(RequestKind::Flush, &error(Cause::Timeout { after: Duration::ZERO }), at);
        log.note(RequestKind::Discard, &error(Cause::Unsupported { operation: "discard" }), at);
        log.note_checksum(at);
        log.note(RequestKind::WriteZeroes, &error(Cause::NoSpace).with_errno(28), at);
        let counts = log.counts();
        assert_eq!((counts.read, counts.write, counts.flush), (1, 1, 0));
        assert_eq!((counts.checksum, counts.timeout, counts.total()), (1, 1, 4));
        assert_eq!(counts.to_string(), "1 read error, 1 write error, 1 checksum error, 1 timeout");
        let last = log.last().unwrap();
        assert_eq!(last.cause, ErrorCause::Full);
        assert_eq!(last.to_string(), "write: No space left on device, 2026-11-22 00:32:05 UTC");
    }

    #[test]
    fn what_was_counted_before_is_added_until_all_is_cleared() {
        let (before, log, at) = (ErrorLog::default(), ErrorLog::default(), UtcTime::default());
        before.note(RequestKind::Write, &error(Cause::ReadOnly), at);
        log.restore(before.counts(), before.last());
        assert_eq!(log.last().map(|last| last.cause), Some(ErrorCause::ReadOnly));
        let told = Rc::new(Cell::new(0));
        let tell = Rc::clone(&told);
        log.when_changed(Rc::new(move || tell.set(tell.get() + 1)));
        log.note(RequestKind::Write, &error(Cause::Gone), at);
        assert_eq!((log.counts().write, told.get()), (2, 1));
        log.clear();
        log.clear();
        assert_eq!((log.counts().total(), log.last(), told.get()), (0, None, 2));
    }
}
