//! Formats of events, read as requests.

use crate::error::TraceError;
use crate::event::{BlockEvent, EventLosses, EventSource};
use crate::names::Names;
use crate::pair::Pairer;
use crate::reader::RecordSource;
use crate::record::TraceRecord;
use crate::tally::Tally;

/// Events paired into requests.
pub(crate) struct PairedEvents {
    events: Box<dyn EventSource>,
    pairer: Pairer,
    names: Names,
    tally: Tally,
    ended: bool,
}

impl PairedEvents {
    pub(crate) fn new(events: Box<dyn EventSource>) -> Self {
        let (pairer, names, tally) = (Pairer::new(), Names::default(), Tally::default());
        Self { events, pairer, names, tally, ended: false }
    }

    fn next_event(&mut self) -> Result<Option<BlockEvent>, TraceError> {
        let event = self.events.next_event(&mut self.names)?;
        if event.is_none() {
            self.ended = true;
            self.take_losses();
        }
        Ok(event)
    }

    fn take_losses(&mut self) {
        let EventLosses { events, damage, out_of_order } = self.events.take_losses();
        self.tally.events += events;
        self.tally.note_damage(damage);
        self.tally.out_of_order += out_of_order;
    }
}

impl RecordSource for PairedEvents {
    fn next_record(&mut self) -> Result<Option<TraceRecord>, TraceError> {
        loop {
            if let Some(record) = self.pairer.ready(&mut self.tally) {
                return Ok(Some(record));
            }
            if self.ended {
                return Ok(self.pairer.leave(&mut self.tally));
            }
            if let Some(event) = self.next_event()? {
                self.pairer.take(&event, &mut self.names, &mut self.tally);
            }
        }
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}
