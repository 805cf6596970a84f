//! Formats of events, read as requests.

use crate::error::TraceError;
use crate::event::{BATCH, BlockEvent, EventLosses, EventSource};
use crate::names::Names;
use crate::pair::Pairer;
use crate::record::TraceRecord;
use crate::record_source::RecordSource;
use crate::tally::Tally;

/// Events paired into requests.
pub(crate) struct PairedEvents {
    events: Box<dyn EventSource>,
    batch: Vec<BlockEvent>,
    next: usize,
    /// Comes after the events of the batch.
    failure: Option<TraceError>,
    pairer: Pairer,
    names: Names,
    tally: Tally,
    ended: bool,
}

impl PairedEvents {
    pub(crate) fn new(events: Box<dyn EventSource>) -> Self {
        Self {
            events,
            batch: Vec::with_capacity(BATCH),
            next: 0,
            failure: None,
            pairer: Pairer::new(),
            names: Names::default(),
            tally: Tally::default(),
            ended: false,
        }
    }

    /// Replaces the consumed batch.
    fn take_batch(&mut self) {
        self.batch.clear();
        self.next = 0;
        match self.events.fill(&mut self.names, &mut self.batch) {
            Ok(more) => self.ended = !more,
            Err(error) => self.failure = Some(error),
        }
        if self.ended {
            self.take_losses();
        }
    }

    fn take_losses(&mut self) {
        let EventLosses { events, damage, out_of_order } = self.events.take_losses();
        self.tally.events += events;
        self.tally.note_damage(damage);
        self.tally.out_of_order += out_of_order;
    }
}

impl RecordSource for PairedEvents {
    fn fill(&mut self, batch: &mut Vec<TraceRecord>) -> Result<bool, TraceError> {
        while batch.len() < BATCH {
            if let Some(record) = self.pairer.ready(&mut self.tally) {
                batch.push(record);
            } else if let Some(event) = self.batch.get(self.next) {
                self.next += 1;
                self.pairer.take(event, &mut self.names, &mut self.tally);
            } else if let Some(error) = self.failure.take() {
                return Err(error);
            } else if !self.ended {
                self.take_batch();
            } else {
                self.pairer.end(&mut self.tally);
                match self.pairer.leave(&mut self.tally) {
                    Some(record) => batch.push(record),
                    None => return Ok(false),
                }
            }
        }
        Ok(true)
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}
