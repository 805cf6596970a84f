//! A count of operations in progress, to wait until there are none.

use crate::sync::Notify;
use std::cell::Cell;
use std::rc::Rc;

/// Operations in progress; handles share one count.
#[derive(Clone, Default)]
pub struct Busy(Rc<(Cell<u64>, Notify)>);

/// One operation in progress, until this is dropped.
pub struct BusyGuard(Busy);

impl Busy {
    pub fn begin(&self) -> BusyGuard {
        self.0.0.set(self.0.0.get() + 1);
        BusyGuard(self.clone())
    }

    pub fn is_idle(&self) -> bool {
        self.0.0.get() == 0
    }

    pub async fn until_idle(&self) {
        while !self.is_idle() {
            self.0.1.wait().await;
        }
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        let (count, ended) = &*self.0.0;
        count.set(count.get() - 1);
        ended.notify_all();
    }
}
