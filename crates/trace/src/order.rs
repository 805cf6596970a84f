//! Puts events back into the order of their times within a small window.
//!
//! A processor takes an event's time before it reserves the event's place in its buffer, so
//! neighbours may stand in the wrong order. Nearly every event is in order already: insertion from
//! the back costs one comparison.
//!
//! **Invariants**: the window holds at most `WINDOW_EVENTS` events, sorted by time, equal times in
//! order of arrival.

use std::collections::VecDeque;

use crate::event::BlockEvent;

/// How far an event may be out of place and still be put right.
const WINDOW_EVENTS: usize = 64;

/// The window.
pub(crate) struct OrderWindow {
    held: VecDeque<BlockEvent>,
    last_ns: u64,
    out_of_order: u64,
}

impl OrderWindow {
    pub(crate) fn new() -> Self {
        Self { held: VecDeque::with_capacity(WINDOW_EVENTS + 1), last_ns: 0, out_of_order: 0 }
    }

    /// Takes one event in and, once the window is full, gives the earliest out.
    pub(crate) fn push(&mut self, event: BlockEvent) -> Option<BlockEvent> {
        self.held.push_back(event);
        let mut at = self.held.len() - 1;
        while at > 0 && self.held[at - 1].time_ns > event.time_ns {
            self.held.swap(at - 1, at);
            at -= 1;
        }
        if self.held.len() > WINDOW_EVENTS { self.pop() } else { None }
    }

    /// The earliest event held.
    pub(crate) fn pop(&mut self) -> Option<BlockEvent> {
        let event = self.held.pop_front()?;
        if event.time_ns < self.last_ns {
            self.out_of_order += 1;
        }
        self.last_ns = self.last_ns.max(event.time_ns);
        Some(event)
    }

    /// Events that came out too late to be put in order, since the last call.
    pub(crate) fn take_out_of_order(&mut self) -> u64 {
        std::mem::take(&mut self.out_of_order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Action, Category};

    fn at(time_ns: u64) -> BlockEvent {
        BlockEvent {
            time_ns,
            sector: 0,
            bytes: 0,
            pid: 0,
            device: 0,
            cpu: 0,
            category: Category::empty(),
            action: Action::Queue,
            error: 0,
        }
    }

    fn through(times: &[u64]) -> (Vec<u64>, u64) {
        let mut window = OrderWindow::new();
        let mut out: Vec<u64> =
            times.iter().filter_map(|&time| window.push(at(time))).map(|e| e.time_ns).collect();
        out.extend(std::iter::from_fn(|| window.pop()).map(|event| event.time_ns));
        (out, window.take_out_of_order())
    }

    #[test]
    fn neighbours_are_put_right() {
        assert_eq!(through(&[1, 3, 2, 5, 4]), (vec![1, 2, 3, 4, 5], 0));
    }

    #[test]
    fn event_beyond_the_window_is_kept_and_counted() {
        let mut times: Vec<u64> = (100..300).collect();
        times.push(1);
        let (out, late) = through(&times);
        assert_eq!(out.len(), 201);
        assert_eq!(late, 1);
    }
}
