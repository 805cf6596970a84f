//! Adapts the number of records in flight to the device.
//!
//! While records are in flight, writes gather for the next one. Few concurrent records are large
//! and need few descriptors; many use the device's parallelism. Which is better depends on the
//! device, so half and twice the current number are tried from time to time, in windows between two
//! windows of the current one, and the bytes written per second decide.
//!
//! **Invariants**
//! - Only windows at the full number of records in flight count: a light load changes nothing.

use headpond_block::Instant;
use std::time::Duration;

/// In force at first.
const RECORDS: u32 = 8;
/// A window has at least so many records, and takes so long.
const WINDOW_RECORDS: u32 = 128;
const WINDOW: Duration = Duration::from_millis(5);
/// Windows between two trials that changed nothing.
const REST: u32 = 64;
/// More have to write so much more, for they need more descriptors.
const REWARD: f64 = 1.05;
/// Fewer may write so little less: no more than two windows differ by chance.
const LOSS: f64 = 0.98;

/// What has been learnt of the device.
#[derive(Debug)]
pub(crate) struct InFlight {
    records: u32,
    direction: Direction,
    step: Step,
    window: Option<Window>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Direction {
    Up,
    Down,
}

/// Blocks per second of the windows before.
#[derive(Clone, Copy, Debug)]
enum Step {
    Rest { windows: u32 },
    Before,
    Trial { before: f64 },
    After { before: f64, trial: f64 },
}

#[derive(Clone, Copy, Debug)]
struct Window {
    /// Records that belong to what was in force before.
    early: u32,
    begun: Instant,
    records: u32,
    blocks: u64,
}

impl Default for InFlight {
    fn default() -> Self {
        let step = Step::Rest { windows: 1 };
        Self { records: RECORDS, direction: Direction::Down, step, window: None }
    }
}

impl InFlight {
    /// Records that may be under way now, of so many that are allowed.
    #[inline]
    pub fn limit(&self, allowed: u32) -> u32 {
        let records = match self.step {
            Step::Trial { .. } => self.other(),
            _ => self.records,
        };
        records.min(allowed).max(1)
    }

    fn other(&self) -> u32 {
        match self.direction {
            Direction::Up => self.records * 2,
            Direction::Down => (self.records / 2).max(1),
        }
    }

    /// A record of so many blocks has ended, when as many were under way as may be, of so many that
    /// are allowed.
    pub fn learn(&mut self, now: Instant, blocks: u32, allowed: u32) {
        let early = self.limit(allowed);
        let fresh = Window { early, begun: now, records: 0, blocks: 0 };
        let window = self.window.get_or_insert(fresh);
        if window.early > 0 {
            window.early -= 1;
            window.begun = now;
            return;
        }
        window.records += 1;
        window.blocks += u64::from(blocks);
        let took = now.since(window.begun);
        if window.records >= WINDOW_RECORDS && took >= WINDOW {
            let rate = window.blocks as f64 / took.as_secs_f64();
            self.window = None;
            self.step(rate, allowed);
        }
    }

    /// A record has ended when fewer were under way.
    #[inline]
    pub fn interrupt(&mut self) {
        self.window = None;
    }

    fn step(&mut self, rate: f64, allowed: u32) {
        self.records = self.records.min(allowed).max(1);
        self.step = match self.step {
            Step::Rest { windows: 0 } => Step::Before,
            Step::Rest { windows } => Step::Rest { windows: windows - 1 },
            Step::Before => match self.other() {
                other if other == self.records || other > allowed => self.give_up(),
                _ => Step::Trial { before: rate },
            },
            Step::Trial { before } => Step::After { before, trial: rate },
            Step::After { before, trial } => {
                let needed = match self.direction {
                    Direction::Up => before.max(rate) * REWARD,
                    Direction::Down => before.max(rate) * LOSS,
                };
                if trial < needed {
                    self.give_up()
                } else {
                    self.records = self.other();
                    Step::Rest { windows: 0 }
                }
            }
        };
    }

    /// What is in force stays; the other way is tried next.
    fn give_up(&mut self) -> Step {
        self.direction = match self.direction {
            Direction::Up => Direction::Down,
            Direction::Down => Direction::Up,
        };
        Step::Rest { windows: if self.direction == Direction::Down { REST } else { 0 } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    /// A device that works on so many records side by side, so many nanoseconds for each and for
    /// each block; so many writers of a block wait for it all the time.
    struct Device {
        side_by_side: usize,
        record: u64,
        block: u64,
        writers: u32,
    }

    impl Device {
        /// Records under way after so many have been written, and how many blocks a record had in
        /// the end.
        fn settle(&self, records: usize) -> (u32, f64) {
            let (mut learnt, mut now) = (InFlight::default(), 0);
            let mut free = vec![0_u64; self.side_by_side];
            let mut ends = BinaryHeap::new();
            let (mut waiting, mut sizes) = (0, Vec::new());
            let mut back = self.writers;
            for _ in 0..records {
                // Each comes back by itself, and finds a place or waits.
                while waiting + back > 0 && ends.len() < learnt.limit(32) as usize {
                    let is_waiting = waiting > 0;
                    let blocks = if is_waiting { std::mem::take(&mut waiting) } else { 1 };
                    back -= u32::from(!is_waiting);
                    let free = free.iter_mut().min().expect("at least one");
                    *free = (*free).max(now) + self.record + self.block * u64::from(blocks);
                    ends.push(Reverse((*free, blocks)));
                    sizes.push(f64::from(blocks));
                }
                waiting += std::mem::take(&mut back);
                let is_full = ends.len() >= learnt.limit(32) as usize;
                let Reverse((end, blocks)) = ends.pop().expect("writers wait");
                (now, back) = (end, blocks);
                match is_full {
                    true => learnt.learn(Instant::from_nanos(now), blocks, 32),
                    false => learnt.interrupt(),
                }
            }
            let last = &sizes[sizes.len() - 1000..];
            (learnt.records, last.iter().sum::<f64>() / last.len() as f64)
        }
    }

    #[test]
    fn device_that_does_one_thing_at_a_time_gets_one_large_record_after_the_other() {
        let device = Device { side_by_side: 1, record: 100_000, block: 2_000, writers: 32 };
        let (records, blocks) = device.settle(200_000);
        assert!(records <= 2 && blocks >= 15.0, "{records} of {blocks} blocks");
    }

    #[test]
    fn device_that_does_much_side_by_side_gets_many_records() {
        let device = Device { side_by_side: 64, record: 80_000, block: 20_000, writers: 256 };
        let (records, _) = device.settle(200_000);
        assert!(records >= 16, "{records}");
    }

    #[test]
    fn one_writer_teaches_nothing() {
        let device = Device { side_by_side: 1, record: 100_000, block: 2_000, writers: 1 };
        assert_eq!(device.settle(20_000).0, RECORDS);
    }

    #[test]
    fn never_more_than_is_allowed_and_never_none() {
        let mut learnt = InFlight::default();
        for tick in 0..1_000_000 {
            learnt.learn(Instant::from_nanos(tick * 10_000), 1 + tick as u32 % 7, 3);
            assert!((1..=3).contains(&learnt.limit(3)));
        }
    }
}
