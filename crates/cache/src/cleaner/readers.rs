//! Clients' reads of the core, for which the cleaner limits its concurrency.

use crate::cleaning::{Beside, ClientRead};
use crate::engine::Engine;
use crate::log::Log;
use headpond_block::Outcome;

impl Engine {
    /// Waits for a read that a client waits for, and that the core has not answered at once.
    pub(crate) async fn watch_core_read(&self, read: impl Future<Output = Outcome>) -> Outcome {
        let begun = self.note_reader();
        let outcome = read.await;
        self.learn_from_reader(begun);
        outcome
    }

    fn note_reader(&self) -> ClientRead {
        let now = self.runtime.now();
        self.cleaning.concurrency_limit.borrow_mut().read_begins(now);
        let under_way = self.cleaning.under_way.borrow();
        let is_alone = under_way.count() == 0
            && self.written.borrow().is_empty()
            && !self.cleaning.is_flushing();
        ClientRead { begun: now, after: is_alone.then(|| under_way.next()) }
    }

    fn learn_from_reader(&self, read: ClientRead) {
        let beside = {
            let under_way = self.cleaning.under_way.borrow();
            Beside { begun: under_way.next(), writes: under_way.count() }
        };
        let (now, mut concurrency_limit) =
            (self.runtime.now(), self.cleaning.concurrency_limit.borrow_mut());
        let was_looking = concurrency_limit.ask_again(now).is_some();
        concurrency_limit.read_ends(read, now, beside);
        if was_looking && concurrency_limit.ask_again(now).is_none() {
            self.cleaning_wanted.notify_all();
        }
    }

    /// Core writes that readers leave room for. There is no such limit while a flush at the full
    /// rate runs to have everything cleaned, or writes wait for room.
    pub(super) fn room_beside_readers(&self, log: &Log) -> Option<u32> {
        let is_urgent = self.cleaning.at_full_rate.get() > 0 || self.has_waiters();
        let dirty_data = match is_urgent {
            true => (1, 1),
            false => (log.dirty_pressure(), log.dirty_max()),
        };
        self.cleaning.concurrency_limit.borrow_mut().of(
            self.runtime.now(),
            self.depth(),
            dirty_data,
        )
    }
}
