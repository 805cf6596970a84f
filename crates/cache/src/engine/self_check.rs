//! Consistency checks of a slice's shared state.

use super::{CoreWrites, Engine};
use crate::stats::{ClassStats, CoreStats};

impl Engine {
    /// Checks the log and what stands beside it; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub(crate) fn self_check(&self) {
        let log = self.log.borrow();
        log.self_check();
        log.classes.iter().for_each(ClassStats::self_check);
        log.cores.iter().for_each(CoreStats::self_check);
        let arrived = self.requests.get() - self.requests_before.get();
        assert!(log.totals().requests() <= arrived, "no request counts twice");
        let is_refused = !self.is_failed.get() || self.queue.len() == 0;
        assert!(is_refused, "nobody waits for a log that was given up");
        assert!(self.heeded.get() <= self.core_flushes.failures(), "heeded is what has failed");
        self.admission.borrow().self_check();
        self.core_writes.self_check();
        self.throughs.self_check();
        self.core_flushes.self_check();
        self.core_changes.self_check();
        self.past_changes.self_check();
        self.written.borrow().self_check(&log);
        self.cleaning.self_check(&log);
    }
}

impl CoreWrites {
    fn self_check(&self) {
        let active = self.active.borrow();
        for (at, run) in active.iter().enumerate() {
            assert!(!self.is_free(*run), "the core is written to without the lock");
            let is_apart = active[..at].iter().all(|other| !other.overlaps(*run));
            assert!(is_apart, "two writes to the core on one block");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::append::Wanted;
    use crate::classes::ClassId;
    use crate::log::Purpose;
    use crate::slice::tests::lived;
    use crate::types::{BlockRun, CoreBlock};
    use headpond_block::{BLOCK_BYTES, Buffer, Buffers};
    use headpond_testkit::{Break, assert_trips};
    use std::rc::Rc;

    const RUN: BlockRun = BlockRun { first: CoreBlock(8), count: 4 };

    /// One record is on its way, and a write waits for the next.
    fn wait_in_queue(engine: &Rc<Engine>) {
        engine.config.borrow_mut().records_in_flight_max = 1;
        let buffers = Buffers::from(Buffer::zeroed((RUN.count * BLOCK_BYTES) as usize));
        let (purpose, class) = (Purpose::WriteBack, ClassId::UNCLASSIFIED);
        let wanted = Wanted { run: RUN, purpose, buffers, is_promise: false, guard: None, class };
        assert!(engine.form_alone(&wanted).is_some(), "nobody else writes");
        drop(engine.begin_append(wanted));
        assert_eq!(engine.queue.len(), 1);
    }

    #[test]
    fn check_notices_what_does_not_agree_beside_the_log() {
        let breaks: [Break<Rc<Engine>>; 5] = [
            ("no request counts twice", |it| it.requests.set(0)),
            ("heeded is what has failed", |it| it.heeded.set(1)),
            ("nobody waits for a log that was given up", |it| {
                wait_in_queue(it);
                it.self_check();
                it.is_failed.set(true);
            }),
            ("without the lock", |it| it.core_writes.active.borrow_mut().push(RUN)),
            ("two writes to the core on one block", |it| {
                std::mem::forget(it.core_writes.try_lock(RUN));
                it.core_writes.active.borrow_mut().extend([RUN, RUN]);
            }),
        ];
        assert_trips(lived, |it| it.self_check(), &breaks);
    }
}
