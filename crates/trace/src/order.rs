//! Sorts entries by time within a small window.
//!
//! A processor takes an event's time before it reserves the event's place in its buffer, so
//! neighbours may be out of order, as may the requests of several disks in one file. Nearly all are
//! in order already: insertion from the back costs one comparison.
//!
//! **Invariants**: the window holds at most its size, sorted by time, equal times in order of
//! arrival.

use std::collections::VecDeque;

/// What has a time.
pub(crate) trait Timed {
    fn time_ns(&self) -> u64;
}

/// The window.
pub(crate) struct OrderWindow<T> {
    held: VecDeque<T>,
    size: usize,
    last_ns: u64,
    out_of_order: u64,
}

impl<T: Timed> OrderWindow<T> {
    /// `size` is the largest displacement that is corrected.
    pub(crate) fn new(size: usize) -> Self {
        Self { held: VecDeque::with_capacity(size + 1), size, last_ns: 0, out_of_order: 0 }
    }

    /// Adds an entry and, once the window is full, returns the earliest.
    #[inline]
    pub(crate) fn push(&mut self, item: T) -> Option<T> {
        let time_ns = item.time_ns();
        self.held.push_back(item);
        let mut at = self.held.len() - 1;
        while at > 0 && self.held[at - 1].time_ns() > time_ns {
            self.held.swap(at - 1, at);
            at -= 1;
        }
        if self.held.len() > self.size { self.pop() } else { None }
    }

    /// The earliest held.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let item = self.held.pop_front()?;
        let time_ns = item.time_ns();
        if time_ns < self.last_ns {
            self.out_of_order += 1;
        }
        self.last_ns = self.last_ns.max(time_ns);
        Some(item)
    }

    /// Entries too late to be sorted, since the last call.
    pub(crate) fn take_out_of_order(&mut self) -> u64 {
        std::mem::take(&mut self.out_of_order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Timed for u64 {
        fn time_ns(&self) -> u64 {
            *self
        }
    }

    fn through(times: &[u64]) -> (Vec<u64>, u64) {
        let mut window = OrderWindow::new(64);
        let mut out: Vec<u64> = times.iter().filter_map(|&time| window.push(time)).collect();
        out.extend(std::iter::from_fn(|| window.pop()));
        (out, window.take_out_of_order())
    }

    #[test]
    fn neighbours_are_put_right() {
        assert_eq!(through(&[1, 3, 2, 5, 4]), (vec![1, 2, 3, 4, 5], 0));
    }

    #[test]
    fn one_beyond_the_window_is_kept_and_counted() {
        let mut times: Vec<u64> = (100..300).collect();
        times.push(1);
        let (out, late) = through(&times);
        assert_eq!(out.len(), 201);
        assert_eq!(late, 1);
    }
}
