//! Joins the files of a capture by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::error::TraceError;
use crate::event::{BlockEvent, EventLosses, EventSource};
use crate::names::Names;

/// Several sources of events, read as one in order of time; equal times in order of the sources.
pub(crate) struct MergedEvents {
    sources: Vec<Box<dyn EventSource>>,
    heads: Vec<Option<BlockEvent>>,
    order: BinaryHeap<Reverse<(u64, usize)>>,
    started: bool,
}

impl MergedEvents {
    pub(crate) fn new(sources: Vec<Box<dyn EventSource>>) -> Self {
        let heads = vec![None; sources.len()];
        Self { sources, heads, order: BinaryHeap::new(), started: false }
    }

    fn advance(&mut self, index: usize, names: &mut Names) -> Result<(), TraceError> {
        self.heads[index] = self.sources[index].next_event(names)?;
        if let Some(event) = self.heads[index] {
            self.order.push(Reverse((event.time_ns, index)));
        }
        Ok(())
    }
}

impl EventSource for MergedEvents {
    fn next_event(&mut self, names: &mut Names) -> Result<Option<BlockEvent>, TraceError> {
        if !self.started {
            self.started = true;
            for index in 0..self.sources.len() {
                self.advance(index, names)?;
            }
        }
        let Some(Reverse((_, index))) = self.order.pop() else {
            return Ok(None);
        };
        let event = self.heads[index];
        assert!(event.is_some(), "an ordered source has a head");
        self.advance(index, names)?;
        Ok(event)
    }

    fn take_losses(&mut self) -> EventLosses {
        let mut sum = EventLosses::default();
        for source in &mut self.sources {
            sum.add(source.take_losses());
        }
        sum
    }
}
