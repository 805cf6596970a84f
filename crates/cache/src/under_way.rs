//! Numbered operations in flight: up to which number all have completed.

use headpond_block::sync::Notify;
use headpond_block::{DeviceError, Outcome};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

#[derive(Default)]
pub(crate) struct UnderWay {
    next: u64,
    /// From the oldest that is under way on.
    has_ended: VecDeque<bool>,
    count: u32,
}

impl UnderWay {
    /// Nothing is under way, and the first to begin gets the number `next`.
    pub fn new(next: u64) -> Self {
        Self { next, ..Self::default() }
    }

    pub fn begin(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.has_ended.push_back(false);
        self.count += 1;
        number
    }

    /// # Panics
    /// Where it is not under way.
    pub fn end(&mut self, number: u64) {
        let index = (number - self.oldest()) as usize;
        assert!(!std::mem::replace(&mut self.has_ended[index], true), "ended twice");
        self.count -= 1;
        while self.has_ended.front() == Some(&true) {
            self.has_ended.pop_front();
        }
    }

    /// What begins next.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Everything below this number has ended.
    pub fn oldest(&self) -> u64 {
        self.next - self.has_ended.len() as u64
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    /// Checks the count, and where the oldest begins; for tests and simulation.
    ///
    /// # Panics
    /// Where one of them is wrong.
    pub fn self_check(&self) {
        let under_way = self.has_ended.iter().filter(|has_ended| !**has_ended).count();
        assert_eq!(self.count as usize, under_way, "counted is what has not ended");
        assert_ne!(self.has_ended.front(), Some(&true), "the oldest has not ended");
        assert!(self.has_ended.len() as u64 <= self.next, "numbers begin at zero");
    }
}

/// Attempts at something, of which several may be under way; who relies on those before it waits
/// for them.
#[derive(Default)]
pub(crate) struct Attempts {
    under_way: RefCell<UnderWay>,
    ended: Notify,
    failures: Failures,
}

/// How often something has failed, and why it did last.
#[derive(Default)]
pub(crate) struct Failures {
    count: Cell<u64>,
    newest: RefCell<Option<DeviceError>>,
}

impl Failures {
    pub fn note(&self, outcome: &Outcome) {
        if let Err(error) = outcome {
            self.count.set(self.count.get() + 1);
            self.newest.replace(Some(error.clone()));
        }
    }

    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// # Errors
    /// The newest, where there were more than so many.
    pub fn since(&self, count: u64) -> Outcome {
        match self.newest.borrow().clone() {
            Some(newest) if self.count.get() > count => Err(newest),
            _ => Ok(()),
        }
    }
}

/// One that is under way until this is dropped.
pub(crate) struct Attempt<'a>(&'a Attempts, u64);

impl Attempts {
    pub fn begin(&self) -> Attempt<'_> {
        Attempt(self, self.under_way.borrow_mut().begin())
    }

    /// How many have failed.
    pub fn failures(&self) -> u64 {
        self.failures.count()
    }

    /// As [`UnderWay::self_check`].
    pub fn self_check(&self) {
        self.under_way.borrow().self_check();
    }

    /// Waits for those that have begun by now.
    ///
    /// # Errors
    /// Where one has failed since there were so many failures.
    pub async fn end(&self, failures: u64) -> Outcome {
        let begun = self.under_way.borrow().next();
        while self.under_way.borrow().oldest() < begun {
            self.ended.wait().await;
        }
        self.failures.since(failures)
    }
}

impl Attempt<'_> {
    pub fn note(&self, outcome: &Outcome) {
        self.0.failures.note(outcome);
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.0.under_way.borrow_mut().end(self.1);
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_testkit::{Break, assert_trips};

    #[test]
    fn check_notices_what_is_wrong_with_what_is_under_way() {
        let make = || {
            let mut under_way = UnderWay::new(7);
            (0..3).for_each(|_| _ = under_way.begin());
            under_way.end(8);
            under_way
        };
        let breaks: [Break<UnderWay>; 3] = [
            ("what has not ended", |it| it.count += 1),
            ("the oldest has not ended", |it| (it.has_ended[0], it.count) = (true, 1)),
            ("numbers begin at zero", |it| it.next = 2),
        ];
        assert_trips(make, UnderWay::self_check, &breaks);
    }

    #[test]
    fn the_oldest_under_way_holds_back_those_that_ended_before_it() {
        let mut under_way = UnderWay::new(7);
        let numbers: Vec<u64> = (0..3).map(|_| under_way.begin()).collect();
        assert_eq!(numbers, [7, 8, 9]);
        under_way.end(8);
        assert_eq!((under_way.oldest(), under_way.count(), under_way.next()), (7, 2, 10));
        under_way.end(7);
        assert_eq!((under_way.oldest(), under_way.count()), (9, 1));
        under_way.end(9);
        assert_eq!((under_way.oldest(), under_way.count()), (10, 0));
    }
}
