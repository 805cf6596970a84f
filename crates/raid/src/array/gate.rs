//! Counts writers under parity, so that all of them can be waited for while no new ones begin.
//!
//! **Invariants**: a task inside waits for nothing but devices, and so leaves.

use std::cell::Cell;

use headpond_block::sync::Notify;

#[derive(Default)]
pub(super) struct IoGate {
    inside: Cell<u64>,
    is_closed: Cell<bool>,
    progress: Notify,
}

/// One write in progress, until dropped.
pub(super) struct Entry<'a>(&'a IoGate);

/// No task enters until this is dropped.
pub(super) struct Closed<'a>(&'a IoGate);

impl IoGate {
    pub(super) async fn enter(&self) -> Entry<'_> {
        while self.is_closed.get() {
            self.progress.wait().await;
        }
        self.inside.set(self.inside.get() + 1);
        Entry(self)
    }

    /// Closes the gate and waits until no task is inside.
    pub(super) async fn close(&self) -> Closed<'_> {
        assert!(!self.is_closed.replace(true), "one caller at a time closes the gate");
        let closed = Closed(self);
        while self.inside.get() > 0 {
            self.progress.wait().await;
        }
        closed
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let inside = self.0.inside.get() - 1;
        self.0.inside.set(inside);
        if inside == 0 {
            self.0.progress.notify_all();
        }
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.is_closed.set(false);
        self.0.progress.notify_all();
    }
}
