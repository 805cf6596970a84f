//! Flushes of a core: one at a time.
//!
//! A caller during a flush, which may not cover the latest writes, waits for the next one, together
//! with all later callers. So a failed flush never completes after a concurrent one that succeeded,
//! and data that it lost never counts as flushed. The kernel serialises flushes of a block device
//! in the same way. Where a caller is dropped during its flush, the next one runs concurrently.

use crate::under_way::Failures;
use headpond_block::sync::Notify;
use headpond_block::{BlockDevice, Outcome, Request};
use std::cell::Cell;

/// What the slices of a core know of its flushes.
#[derive(Default)]
pub struct CoreFlushes {
    begun: Cell<u64>,
    /// The newest that has been answered.
    answered: Cell<u64>,
    is_under_way: Cell<bool>,
    /// One has ended.
    ended: Notify,
    failures: Failures,
}

/// The one that is under way, until this is dropped.
struct FlushTurn<'a>(&'a CoreFlushes);

impl CoreFlushes {
    /// Flushes the core: what it has taken by now is stable. `note` is called with what the core
    /// answers to a flush that was begun for this caller.
    ///
    /// # Errors
    /// Where one has failed since: the core may have lost what the caller relies on.
    pub(crate) async fn flush(
        &self,
        core: &dyn BlockDevice,
        note: impl FnOnce(&Outcome),
    ) -> Outcome {
        let failures = self.failures();
        let wanted = self.begun.get() + 1;
        while self.is_under_way.get() && self.answered.get() < wanted {
            self.ended.wait().await;
            self.failed_since(failures)?;
        }
        if self.answered.get() >= wanted {
            return Ok(());
        }
        let turn = self.begin();
        let outcome = core.submit(Request::flush()).await;
        note(&outcome);
        turn.end(&outcome);
        outcome
    }

    /// How many have failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.count()
    }

    /// # Errors
    /// Where one has failed since there were so many failures.
    pub(crate) fn failed_since(&self, failures: u64) -> Outcome {
        self.failures.since(failures)
    }

    /// Checks the order of what was begun and answered; for tests and simulation.
    ///
    /// # Panics
    /// Where it is wrong.
    pub(crate) fn self_check(&self) {
        let (begun, answered) = (self.begun.get(), self.answered.get());
        assert!(answered <= begun, "answered is what was begun");
        assert!(!self.is_under_way.get() || answered < begun, "who is under way has no answer");
        assert!(self.failures() <= answered, "each failure is an answer");
    }

    fn begin(&self) -> FlushTurn<'_> {
        self.is_under_way.set(true);
        self.begun.set(self.begun.get() + 1);
        FlushTurn(self)
    }
}

impl FlushTurn<'_> {
    fn end(self, outcome: &Outcome) {
        let flushes = self.0;
        flushes.answered.set(flushes.begun.get());
        flushes.failures.note(outcome);
    }
}

impl Drop for FlushTurn<'_> {
    fn drop(&mut self) {
        self.0.is_under_way.set(false);
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_testkit::{Break, assert_trips};

    #[test]
    fn check_notices_what_is_wrong_with_flushes() {
        let make = || {
            let flushes = CoreFlushes::default();
            flushes.begin().end(&Ok(()));
            flushes
        };
        let breaks: [Break<CoreFlushes>; 3] = [
            ("answered is what was begun", |it| it.answered.set(2)),
            ("who is under way has no answer", |it| it.is_under_way.set(true)),
            ("each failure is an answer", |it| {
                let error = headpond_block::Cause::Gone;
                let error = headpond_block::DeviceError::new(&"core".into(), error);
                (0..2).for_each(|_| it.failures.note(&Err(error.clone())));
            }),
        ];
        assert_trips(make, CoreFlushes::self_check, &breaks);
    }
}
