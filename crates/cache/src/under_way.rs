//! What is under way, numbered as it began: up to which number everything has ended.

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
}

#[cfg(test)]
mod tests {
    use super::*;

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
