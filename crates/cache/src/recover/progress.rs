//! Progress of an open.

use super::Source;
use crate::format::slice_header::SliceHeader;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cell::Cell;

/// Progress of an open's reads. The writes after that take less time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoadProgress {
    /// Segments of the log; none after a clean shutdown.
    pub segments_read: u32,
    pub segments: u32,
    /// Of the log, and of the checkpoint, which is read twice.
    pub read_bytes: u64,
    pub bytes: u64,
}

/// Receives progress repeatedly.
pub(crate) struct Watch<'a> {
    told: &'a dyn Fn(LoadProgress),
    progress: Cell<LoadProgress>,
}

impl<'a> Watch<'a> {
    pub fn new(told: &'a dyn Fn(LoadProgress)) -> Self {
        Self { told, progress: Cell::default() }
    }

    fn set(&self, progress: LoadProgress) {
        assert!(progress.segments_read <= progress.segments);
        assert!(progress.read_bytes <= progress.bytes, "{progress:?}");
        self.progress.set(progress);
        (self.told)(progress);
    }
}

impl Source<'_> {
    /// So many segments are to be read, and what the header names.
    pub(super) fn begin_reading(&self, segments: u32, header: &SliceHeader) {
        let log = u64::from(segments) * self.layout.segment_bytes();
        let area = self.layout.checkpoint(header.checkpoint.area).len();
        let bytes = log + 2 * header.checkpoint.bytes.min(area);
        self.watch.set(LoadProgress { segments, bytes, ..LoadProgress::default() });
    }

    pub(super) fn has_read_segment(&self) {
        let LoadProgress { segments_read, read_bytes, .. } = self.watch.progress.get();
        let (segments_read, read_bytes) =
            (segments_read + 1, read_bytes + self.layout.segment_bytes());
        let progress = LoadProgress { segments_read, read_bytes, ..self.watch.progress.get() };
        self.watch.set(progress);
    }

    pub(super) fn has_read_checkpoint(&self, bytes: u64) {
        let progress = self.watch.progress.get();
        self.watch.set(LoadProgress { read_bytes: progress.read_bytes + bytes, ..progress });
    }
}
