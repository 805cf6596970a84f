//! Long commands in progress: a stop waits for them or refuses, unless it is forced.

use headpond_block::sync::Notify;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Work {
    under_way: RefCell<BTreeMap<u64, &'static str>>,
    begun: Cell<u64>,
    ended: Notify,
}

/// A command in progress until this is dropped.
pub struct UnderWay<'a> {
    work: &'a Work,
    number: u64,
}

impl Work {
    pub fn begin(&self, what: &'static str) -> UnderWay<'_> {
        let number = self.begun.get();
        self.begun.set(number + 1);
        self.under_way.borrow_mut().insert(number, what);
        UnderWay { work: self, number }
    }

    /// The commands in progress, oldest first.
    pub fn names(&self) -> Vec<&'static str> {
        self.under_way.borrow().values().copied().collect()
    }

    pub async fn until_done(&self) {
        while !self.under_way.borrow().is_empty() {
            self.ended.wait().await;
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.work.under_way.borrow_mut().remove(&self.number);
        self.work.ended.notify_all();
    }
}
