//! Background work on the whole array: how much of it runs at a time, and its effect on the
//! requests.
//!
//! **Not here**: its rate, which is for the caller to limit.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use headpond_block::{Instant, Submission};

use super::Array;

/// Default of rows, or stripes, processed concurrently: neighbours on each member, so that its
/// queue is served in one sweep.
pub(super) const ROWS_AT_A_TIME: u64 = 16;
/// Of the scratch memory, what such work may take; the rest is for clients.
pub(super) const SCRATCH_SHARE: u64 = 2;

/// Called with the submission time of a completed request.
pub type OnAnswer = Rc<dyn Fn(Instant)>;

/// State of background work.
pub(super) struct Beside {
    /// Concurrently; `None` without client load.
    rows: Cell<Option<u64>>,
    is_heard: Cell<bool>,
    on_answer: RefCell<Option<OnAnswer>>,
}

impl Default for Beside {
    fn default() -> Self {
        Beside { rows: Cell::new(None), is_heard: Cell::new(false), on_answer: RefCell::default() }
    }
}

impl Array {
    /// Sets how many rows a rebuild, an initial sync and a scrub process concurrently, as far as
    /// memory goes: few trouble requests little, many get more done where requests stand in the
    /// way. `None`: no client load, and as many as keep the members busy.
    pub fn set_rows_at_a_time(&self, rows: Option<u64>) {
        self.beside.rows.set(rows.map(|rows| rows.max(1)));
    }

    /// Reports every read and write that completes from now on; one that completes at once does not
    /// wait, and is not reported.
    pub fn hear(&self, on_answer: Option<OnAnswer>) {
        self.beside.is_heard.set(on_answer.is_some());
        self.beside.on_answer.replace(on_answer);
    }

    pub(super) fn rows_at_a_time(&self) -> u64 {
        let rows_max = self.scratch.bytes_max() / SCRATCH_SHARE / self.row_bytes();
        self.beside.rows.get().unwrap_or(ROWS_AT_A_TIME).min(rows_max.max(ROWS_AT_A_TIME))
    }

    /// The same for rows on all members, each of which is to be busy.
    pub(super) fn spread_rows_at_a_time(&self) -> u64 {
        let bytes = self.scratch.bytes_max() / SCRATCH_SHARE + self.scratch.spread_bytes();
        let rows_max = (bytes / self.row_bytes()).max(ROWS_AT_A_TIME);
        self.beside.rows.get().unwrap_or(rows_max).min(rows_max)
    }

    /// Whether there is no client load.
    pub(super) fn is_alone(&self) -> bool {
        self.beside.rows.get().is_none()
    }

    fn row_bytes(&self) -> u64 {
        self.layout.width() as u64 * u64::from(self.layout.strip_bytes())
    }

    /// Tells how long a request took, where anybody wants to know.
    #[inline]
    pub(super) fn heard<'a>(&'a self, submission: Submission<'a>) -> Submission<'a> {
        if !self.beside.is_heard.get() || matches!(submission, Submission::Ready(_)) {
            return submission;
        }
        let begun = self.runtime.now();
        Submission::pending(async move {
            let outcome = submission.await;
            let on_answer = self.beside.on_answer.borrow().clone();
            if let (Ok(()), Some(tell)) = (&outcome, on_answer) {
                tell(begun);
            }
            outcome
        })
    }
}
