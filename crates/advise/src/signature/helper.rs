//! A second thread, which counts what is of all streams together.
//!
//! Both threads get all requests in the same order and have nothing in common, so what they count
//! does not depend on who is faster.
//!
//! 1. [`Helper::start`]. 2. [`Helper::hand`], batch by batch. 3. [`Helper::finish`].

use std::io;
use std::mem;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use headpond_trace::TraceRecord;

use super::BATCH;
use super::spatial_sample::Sampling;
use super::whole::{Whole, WholeCounts};

/// Requests handed over at once: waking a thread costs as much as counting a few dozen.
pub(super) const HANDED: usize = 16 * BATCH;

/// Batches on their way, in either direction.
const UNDER_WAY: usize = 4;

/// The thread, seen from the other one.
#[derive(Debug)]
pub(super) struct Helper {
    batches: SyncSender<Vec<TraceRecord>>,
    /// Batches that come back empty.
    spare: Receiver<Vec<TraceRecord>>,
    thread: JoinHandle<WholeCounts>,
}

impl Helper {
    /// # Errors
    /// Where the system gives no thread.
    pub(super) fn start(sampling: Sampling, source: &str) -> io::Result<Self> {
        let (batches, full) = sync_channel(UNDER_WAY);
        let (empty, spare) = sync_channel(UNDER_WAY);
        let source = source.to_owned();
        let work = move || count(Whole::new(sampling, &source), &full, &empty);
        let thread = Builder::new().name("signature".to_owned()).spawn(work)?;
        Ok(Self { batches, spare, thread })
    }

    /// Hands a batch over, and leaves an empty one.
    pub(super) fn hand(&mut self, batch: &mut Vec<TraceRecord>) {
        let full = mem::replace(batch, self.spare.try_recv().unwrap_or_default());
        assert!(batch.is_empty(), "batches come back empty");
        // Where the other thread has come to grief, `finish` says so.
        let _ = self.batches.send(full);
    }

    /// What was counted.
    ///
    /// # Panics
    /// Where the thread has.
    pub(super) fn finish(self) -> WholeCounts {
        drop(self.batches);
        self.thread.join().unwrap_or_else(|grief| resume_unwind(grief))
    }
}

fn count(
    mut whole: Whole,
    full: &Receiver<Vec<TraceRecord>>,
    empty: &SyncSender<Vec<TraceRecord>>,
) -> WholeCounts {
    for mut batch in full {
        batch.chunks(BATCH).for_each(|chunk| whole.add(chunk, &mut |_| {}));
        batch.clear();
        // One too many is let go.
        let _ = empty.try_send(batch);
    }
    whole.finish()
}
