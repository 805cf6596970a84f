//! Whether data is still dirty from before a mode without dirty data was set. Writes of such a mode
//! are briefly dirty as well, and do not count.

use crate::engine::Engine;

#[derive(Clone, Copy, Default, PartialEq)]
pub(super) enum Draining {
    #[default]
    Done,
    /// Some of it is dirty.
    Cleaning,
    /// The core has all of it, and has not flushed it before so many flushes had begun.
    Flushing(u64),
}

impl Engine {
    /// The mode was set, or the cache opened.
    pub(crate) fn begin_draining(&self) {
        let draining = if self.may_drain() { Draining::Cleaning } else { Draining::Done };
        self.cleaning.draining.set(draining);
    }

    pub(crate) fn is_draining(&self) -> bool {
        let mut draining = self.cleaning.draining.get();
        if draining == Draining::Cleaning && self.has_cleaned_all() {
            draining = Draining::Flushing(self.written.borrow().begun());
        }
        if let Draining::Flushing(begun) = draining {
            draining = match (self.has_cleaned_all(), self.written.borrow().flushed() > begun) {
                (true, true) => Draining::Done,
                (true, false) => draining,
                // A flush has failed.
                (false, _) => Draining::Cleaning,
            };
        }
        let draining = if self.may_drain() { draining } else { Draining::Done };
        self.cleaning.draining.set(draining);
        draining != Draining::Done
    }

    /// Whether the mode makes no dirty data, and there is some.
    fn may_drain(&self) -> bool {
        let log = self.log.borrow();
        !self.mode().is_write_back() && log.dirty_now() + log.map.counts().written > 0
    }

    /// Whether nothing waits for the cleaner, or is on its way to the core.
    fn has_cleaned_all(&self) -> bool {
        let log = self.log.borrow();
        let is_chosen = match log.order_stats() {
            Some(_) => log.dirty_now() == 0,
            None => log.dirty.is_empty(),
        };
        let is_whole = log.part_blocks().is_empty();
        is_chosen && is_whole && log.replayed.is_empty() && self.cleaning.is_at_rest()
    }
}
