//! Jobs: long operations, and their progress.
//!
//! **Invariant**: a job is reported as long as a command waits for it or it runs in the background,
//! and no longer.

use headpond_block::{Instant, Runtime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cell::Cell;

/// Kind of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// All dirty data is written to the array: for a flush, before a cache is detached, or since a
    /// mode without dirty data is set.
    Cleaning,
    /// The contents of the cache are read.
    Scrubbing,
    /// Initial sync of the parity.
    Parity,
    /// A spare is rebuilt.
    Rebuild,
    /// Distributed spare space is rebuilt for a lost member.
    StandIn,
    /// Every stripe of the array is checked.
    ArrayScrub,
    /// The data of the array moves to more members.
    Reshape,
}

/// A job in progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobStatus {
    pub job: JobKind,
    /// The core concerned; `None` for the first, or all of them.
    pub core: Option<String>,
    pub done_bytes: u64,
    pub total_bytes: u64,
    pub elapsed_s: f64,
    /// At the present rate; `None` before any progress, and while paused.
    pub left_s: Option<f64>,
}

/// When a job began, and its size then.
#[derive(Default)]
pub(crate) struct Begun(Cell<Option<(Instant, u64)>>);

/// Ends the job when dropped.
pub(crate) struct Job<'a>(Option<&'a Begun>);

impl Begun {
    /// A job within another one of its kind is part of that.
    pub fn begin(&self, runtime: &Runtime, total_bytes: u64) -> Job<'_> {
        if self.0.get().is_some() {
            return Job(None);
        }
        self.0.set(Some((runtime.now(), total_bytes)));
        Job(Some(self))
    }

    /// Of background work: begins when bytes are left, and ends when none are.
    pub fn follow(&self, runtime: &Runtime, left_bytes: u64) {
        let since = self.0.get().unwrap_or_else(|| (runtime.now(), left_bytes));
        self.0.set((left_bytes > 0).then_some(since));
    }

    /// Its progress, with `left_bytes` left.
    pub fn status(&self, runtime: &Runtime, job: JobKind, left_bytes: u64) -> Option<JobStatus> {
        let (since, total_bytes) = self.0.get()?;
        let done_bytes = total_bytes.saturating_sub(left_bytes);
        let elapsed_s = runtime.now().since(since).as_secs_f64();
        Some(JobStatus::new(job, (done_bytes, total_bytes), elapsed_s))
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        if let Some(begun) = self.0 {
            begun.0.set(None);
        }
    }
}

impl JobStatus {
    fn new(job: JobKind, (done_bytes, total_bytes): (u64, u64), elapsed_s: f64) -> Self {
        Self::gone_on(job, 0, (done_bytes, total_bytes), elapsed_s)
    }

    /// Of which `begun_bytes` had been done before the time that has elapsed.
    pub(crate) fn gone_on(
        job: JobKind,
        begun_bytes: u64,
        (done_bytes, total_bytes): (u64, u64),
        elapsed_s: f64,
    ) -> Self {
        let left = total_bytes.saturating_sub(done_bytes) as f64;
        let done = done_bytes.saturating_sub(begun_bytes);
        let left_s = (done > 0).then(|| elapsed_s * left / done as f64);
        Self { job, core: None, done_bytes, total_bytes, elapsed_s, left_s }
    }
}
