//! FLUSH: everything acknowledged before it is stable after it.

use crate::cleaner::Drainer;
use crate::engine::{CacheError, Engine};
use crate::error::CleanError;
use crate::types::Sequence;
use headpond_block::{DeviceError, Outcome, Stability, defect};
use std::rc::Rc;

impl Engine {
    pub(crate) async fn flush(self: &Rc<Self>) -> Outcome {
        {
            let mut log = self.log.borrow_mut();
            log.counters.flushes += 1;
            log.end_epoch();
        }
        let begun = self.latencies.begin(None);
        let outcome = self.make_stable().await;
        if outcome.is_ok() {
            self.latencies.note_flush(begun);
        }
        outcome
    }

    async fn make_stable(self: &Rc<Self>) -> Outcome {
        if self.cache_is_volatile() && !defect!(FlushIntoMemory) {
            // Nothing in the cache is stable, so everything goes on to what is.
            return match self.clean_all(Drainer::Client).await {
                Ok(()) => self.tell_of_loss(),
                Err(CleanError::Core { source, .. }) => Err(source),
                Err(CleanError::Ended { .. }) => unreachable!("only commands are ended"),
            };
        }
        if let Err(error) = self.flush_log().await {
            self.outlive_log(error).await?;
        }
        // A flush of the core that is still on its way is no answer for this one.
        if !self.core_changes.are_flushed() && !defect!(SkipCoreFlush) {
            let outcome = self.flush_core().await;
            // This error says it.
            outcome.inspect_err(|_| drop(self.past_loss.take()))?;
        }
        self.clean_unrecorded().await?;
        self.tell_of_loss()?;
        self.ensure_disowned().await?;
        self.seal_when_idle();
        Ok(())
    }

    /// The log could not be flushed. Where its device is gone that is no loss as long as the core
    /// has everything; where it has not, the device may still come back with what is dirty.
    async fn outlive_log(self: &Rc<Self>, error: DeviceError) -> Outcome {
        let is_gone = self.is_failed.get() || error.is_gone();
        if !is_gone || self.log.borrow().dirty_now() > 0 {
            return Err(error);
        }
        if !self.is_failed.get() {
            self.fail().await?;
        }
        self.flush_core().await
    }

    /// Makes every record that was formed by now stable.
    pub(crate) async fn flush_log(&self) -> Outcome {
        let (next, head) = {
            let log = self.log.borrow();
            (log.next(), log.head())
        };
        while self.log.borrow().settled() < next {
            self.records_done.wait().await;
        }
        let outcome = match defect!(SkipLogFlush) {
            true => Ok(()),
            false => self.cache.flush().await,
        };
        match &outcome {
            Ok(()) => {
                let mut log = self.log.borrow_mut();
                log.raise_flush_mark(Sequence(next.0 - 1));
                log.stabilise(head);
            }
            Err(error) => self.note_cache_error(CacheError::Flush(error), None),
        }
        outcome
    }

    /// Flushes the log until `are_stable` says that what the caller is about to write to the core
    /// cannot be lost, whatever happens there. A device that never is stable is left alone.
    pub(crate) async fn stabilise(&self, are_stable: impl Fn() -> bool) -> Outcome {
        if self.cache.geometry().stability != Stability::Flushable {
            return Ok(());
        }
        while !are_stable() {
            if self.is_log_flushing.replace(true) {
                self.log_flushed.wait().await;
                continue;
            }
            // Apart, so that who waits for nothing is little memory.
            let outcome = Box::pin(self.flush_log()).await;
            self.is_log_flushing.set(false);
            self.log_flushed.notify_all();
            outcome?;
        }
        Ok(())
    }

    /// Writes the mark of a flush to the log where no record carries it soon.
    pub(crate) fn seal_when_idle(self: &Rc<Self>) {
        if !self.log.borrow().wants_seal() || self.is_seal_due.replace(true) {
            return;
        }
        let delay = self.config.borrow().seal_delay;
        self.later(delay, async |engine| {
            engine.is_seal_due.set(false);
            if engine.log.borrow().wants_seal() && !engine.is_stopping.get() {
                engine.append_seal().await;
                // Who came meanwhile may have found no record free.
                engine.pump();
            }
        });
    }

    /// Appends a record without entries; answers whether it was written.
    pub(crate) async fn append_seal(self: &Rc<Self>) -> bool {
        let formed = self.log.borrow_mut().form_seal();
        let Ok(formed) = formed else { return false };
        let outcome = self.cache.submit(formed.request.clone()).await;
        self.settle_record(&formed, &outcome)
    }
}
