//! From data threads to a file: chunks of records through a bounded channel.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::TraceRecord;
use crate::recording::RecordingWriter;

/// Records that a data thread gathers before it hands them over.
const CHUNK_RECORDS: usize = 1024;

/// A chunk is handed over when its first record is this old, full or not.
const CHUNK_AGE_NS: u64 = 100_000_000;

/// Chunks on their way to the drain.
const CHUNKS_MAX: usize = 256;

/// Where data threads leave their records. Cheap to clone and to send.
#[derive(Clone)]
pub struct Recorder {
    sender: SyncSender<Vec<TraceRecord>>,
    dropped: Arc<AtomicU64>,
}

/// Writes what the recorders were given. Runs until the last [`Recorder`] is gone.
pub struct Drain {
    receiver: Receiver<Vec<TraceRecord>>,
    dropped: Arc<AtomicU64>,
}

/// What a capture came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaptureSummary {
    pub records: u64,
    /// Records that found the channel full.
    pub dropped: u64,
}

/// One thread's end of a capture.
pub(super) struct Session {
    recorder: Recorder,
    chunk: Vec<TraceRecord>,
}

/// Starts a capture.
pub fn capture() -> (Recorder, Drain) {
    let (sender, receiver) = sync_channel(CHUNKS_MAX);
    let dropped = Arc::new(AtomicU64::new(0));
    (Recorder { sender, dropped: dropped.clone() }, Drain { receiver, dropped })
}

impl Recorder {
    /// Records dropped so far, over all threads.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn hand_over(&self, chunk: Vec<TraceRecord>) {
        let count = chunk.len() as u64;
        if count > 0 && self.sender.try_send(chunk).is_err() {
            self.dropped.fetch_add(count, Ordering::Relaxed);
        }
    }
}

impl Drain {
    /// Writes a recording of `device` to `output` until every recorder is gone; gives the output
    /// back. `started_unix_ns` is the wall-clock time of the capture's start.
    ///
    /// # Errors
    /// What `output` reports; recorders then drop and count what they are given.
    pub fn run<W: Write>(
        self,
        output: W,
        device: &str,
        started_unix_ns: u64,
    ) -> io::Result<(W, CaptureSummary)> {
        let mut writer = RecordingWriter::new(output, started_unix_ns)?;
        writer.name_device(0, device)?;
        for chunk in &self.receiver {
            chunk.into_iter().try_for_each(|record| writer.push(record))?;
        }
        let records = writer.records();
        let output = writer.finish()?;
        Ok((output, CaptureSummary { records, dropped: self.dropped.load(Ordering::Relaxed) }))
    }
}

impl Session {
    pub(super) fn new(recorder: Recorder) -> Self {
        Self { recorder, chunk: Vec::with_capacity(CHUNK_RECORDS) }
    }

    pub(super) fn push(&mut self, record: TraceRecord, now_ns: u64) {
        self.chunk.push(record);
        let oldest_ns = self.chunk[0].issued_ns;
        if self.chunk.len() == CHUNK_RECORDS || now_ns.saturating_sub(oldest_ns) > CHUNK_AGE_NS {
            let next = Vec::with_capacity(CHUNK_RECORDS);
            self.recorder.hand_over(std::mem::replace(&mut self.chunk, next));
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.recorder.hand_over(std::mem::take(&mut self.chunk));
    }
}
