//! Joins the queues by time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use foldhash::fast::FixedState;

use super::message::Id;
use super::queue::{OctfQueue, Step};
use crate::error::TraceError;
use crate::event::{BlockEvent, Category, EventLosses, EventSource};
use crate::names::Names;

/// I/O whose completion may still come.
const IN_FLIGHT_MAX: usize = 65_536;

/// All queues of a trace as events in order of time; an I/O may complete on another queue than the
/// one it was issued on.
pub(crate) struct OctfEvents {
    queues: Vec<OctfQueue>,
    heads: Vec<Option<Step>>,
    order: BinaryHeap<Reverse<(u64, usize)>>,
    in_flight: HashMap<Id, BlockEvent, FixedState>,
    started: bool,
}

impl OctfEvents {
    pub(crate) fn new(queues: Vec<OctfQueue>) -> Self {
        let heads = vec![None; queues.len()];
        let (order, in_flight) = (BinaryHeap::new(), HashMap::default());
        Self { queues, heads, order, in_flight, started: false }
    }

    fn advance(&mut self, index: usize, names: &mut Names) -> Result<(), TraceError> {
        self.heads[index] = self.queues[index].next_step(names)?;
        if let Some(step) = self.heads[index] {
            self.order.push(Reverse((step.time_ns(), index)));
        }
        Ok(())
    }

    fn event(&mut self, step: Step, queue: usize) -> BlockEvent {
        let mut event = match step {
            Step::Queued(id, event) => {
                if self.in_flight.len() == IN_FLIGHT_MAX {
                    self.in_flight.clear();
                }
                self.in_flight.insert(id, event);
                event
            }
            Step::Completed(id, told) => self.completed(id, told),
        };
        event.cpu = queue as u32;
        event
    }

    /// A completion tells when and how it ended; of some operations it does not tell the range.
    fn completed(&mut self, id: Id, told: BlockEvent) -> BlockEvent {
        let Some(queued) = self.in_flight.remove(&id) else {
            return BlockEvent { category: Category::READ, ..told };
        };
        BlockEvent { time_ns: told.time_ns, action: told.action, error: told.error, ..queued }
    }
}

impl EventSource for OctfEvents {
    fn next_event(&mut self, names: &mut Names) -> Result<Option<BlockEvent>, TraceError> {
        if !self.started {
            self.started = true;
            for index in 0..self.queues.len() {
                self.advance(index, names)?;
            }
        }
        let Some(Reverse((_, index))) = self.order.pop() else {
            return Ok(None);
        };
        let step = self.heads[index].expect("an ordered queue has a head");
        let event = self.event(step, index);
        self.advance(index, names)?;
        Ok(Some(event))
    }

    fn take_losses(&mut self) -> EventLosses {
        let mut sum = EventLosses::default();
        for queue in &mut self.queues {
            sum.add(std::mem::take(&mut queue.losses));
        }
        sum
    }
}
