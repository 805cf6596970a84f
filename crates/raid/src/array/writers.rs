//! Counts writes in progress, so that a clean shutdown can wait for them.
//!
//! Counted are those that hold a stripe lock and wait; writes that members complete at once, and
//! those of arrays without redundancy, leave nothing incomplete.

use std::cell::Cell;

use headpond_block::sync::Notify;

/// The writes in flight.
#[derive(Default)]
pub(super) struct Writers {
    count: Cell<u64>,
    left: Notify,
}

/// One write in flight, until dropped.
pub(super) struct Writer<'a>(&'a Writers);

impl Writers {
    pub(super) fn enter(&self) -> Writer<'_> {
        self.count.set(self.count.get() + 1);
        Writer(self)
    }

    /// Waits until no writes are in progress. The caller prevents new ones.
    pub(super) async fn gone(&self) {
        while self.count.get() > 0 {
            self.left.wait().await;
        }
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        let count = self.0.count.get() - 1;
        self.0.count.set(count);
        if count == 0 {
            self.0.left.notify_all();
        }
    }
}
