//! The contents of the stripe journal after an unclean shutdown, and their replay.

use std::rc::Rc;

use headpond_block::sync::join_all;
use headpond_block::{
    BlockDevice, Buffer, ByteRange, Cause, DeviceError, Outcome, Request, RequestFlags,
};

use super::Array;
use super::journal::Journal;
use crate::journal::label::{Label, RING_OFFSET};
use crate::journal::later::Later;
use crate::journal::record::{self, Change, Record, UNIT_BYTES};
use crate::journal::ring::next_places;
use crate::layout::{Layout, Strip, StripCell, Stripe};
use crate::plan::Span;

/// Read at a time while searching for records behind a gap.
const LOOK_BYTES: u64 = 1 << 20;

/// Goes from record to record.
pub(crate) struct Walk {
    device: Rc<dyn BlockDevice>,
    label: Label,
    /// Where the last record ended, and the number of the next.
    end: u64,
    sequence: u64,
}

/// What a journal holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// So many records, each as it was written.
    Whole { records: u64 },
    /// Some that were stable are missing, or make no sense.
    Damaged,
}

impl Walk {
    pub(crate) fn new(device: Rc<dyn BlockDevice>, label: Label) -> Walk {
        let (end, sequence) = (label.tail.offset, label.tail.sequence);
        Walk { device, label, end, sequence }
    }

    /// The next record and its bytes; `None` behind the last.
    async fn next(&mut self) -> Result<Option<(Record, Buffer)>, DeviceError> {
        for place in next_places(self.end, self.label.ring_bytes) {
            let Some((bytes, record)) = self.record_at(place, self.sequence).await? else {
                continue;
            };
            self.end = place + bytes.len() as u64;
            self.sequence += 1;
            return Ok(Some((record, bytes)));
        }
        Ok(None)
    }

    async fn record_at(
        &self,
        place: u64,
        sequence: u64,
    ) -> Result<Option<(Buffer, Record)>, DeviceError> {
        let head = self.read(place, UNIT_BYTES).await?.to_vec();
        let Label { journal, epoch, ring_bytes, .. } = self.label;
        let announced = record::announced(&head, journal, epoch);
        let fits = |bytes: u64| place.checked_add(bytes).is_some_and(|end| end <= ring_bytes);
        match announced.filter(|it| it.sequence == sequence && fits(it.bytes())) {
            None => Ok(None),
            Some(announced) => {
                let bytes = self.read(place, announced.bytes()).await?;
                let record = record::decode(&bytes.to_vec(), announced);
                Ok(record.map(|record| (bytes, record)))
            }
        }
    }

    async fn read(&self, place: u64, len: u64) -> Result<Buffer, DeviceError> {
        let buffer = Buffer::zeroed(len as usize);
        self.device.submit(Request::read(RING_OFFSET + place, &buffer)).await?;
        Ok(buffer)
    }

    /// Reads everything. One record at a time is written, so none is behind a gap.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) async fn survey(mut self, layout: &Layout) -> Result<Contents, DeviceError> {
        let mut records = 0;
        while let Some((record, _)) = self.next().await? {
            records += 1;
            if !record.changes.iter().all(|(change, _)| is_possible(layout, change)) {
                return Ok(Contents::Damaged);
            }
        }
        let whole = ByteRange::at(0, self.label.ring_bytes);
        for part in whole.split_at_multiples(LOOK_BYTES) {
            if self.has_later(part).await? {
                return Ok(Contents::Damaged);
            }
        }
        Ok(Contents::Whole { records })
    }

    /// Whether a record with a number beyond the next begins here.
    async fn has_later(&self, part: ByteRange) -> Result<bool, DeviceError> {
        let bytes = self.read(part.start(), part.len()).await?.to_vec();
        for (index, unit) in bytes.chunks(UNIT_BYTES as usize).enumerate() {
            let announced = record::announced(unit, self.label.journal, self.label.epoch);
            let Some(found) = announced.filter(|it| it.sequence > self.sequence) else { continue };
            let place = part.start() + index as u64 * UNIT_BYTES;
            if self.record_at(place, found.sequence).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn is_possible(layout: &Layout, change: &Change) -> bool {
    match change {
        Change::Content { stripe, strip, span } => {
            let is_strip = match strip {
                Strip::Data(k) => usize::from(*k) < layout.data_strips(),
                Strip::P => layout.parity_strips() > 0,
                Strip::Q => layout.parity_strips() > 1,
            };
            stripe.0 < layout.stripes() && is_strip && span.end <= layout.strip_bytes()
        }
        Change::Zeros { stripes, .. } => stripes.end <= layout.stripes(),
    }
}

impl Array {
    /// Writes what the journal holds to the members again, of every byte the newest alone, and
    /// makes it stable there.
    ///
    /// # Errors
    /// Those of the journal, and where the array has lost too many members.
    pub(crate) async fn replay(&self, journal: &Journal) -> Outcome {
        let begin = || Walk::new(Rc::clone(journal.device()), journal.label());
        let (mut walk, mut later) = (begin(), Later::default());
        while let Some((record, _)) = walk.next().await? {
            let changes = record.changes.iter();
            changes.for_each(|(change, _)| later.note(&self.layout, walk.sequence, change));
        }
        let noted = walk.sequence;
        let mut walk = begin();
        while let Some((record, bytes)) = walk.next().await? {
            let sequence = walk.sequence;
            let left = |stripe, cell, span| later.left(stripe, cell, span, sequence);
            self.redo(record, &bytes, left).await?;
        }
        if walk.sequence != noted {
            // What was not seen again was left out of what earlier records did.
            return Err(DeviceError::new(
                journal.device().name(),
                Cause::Corrupt {
                    offset: RING_OFFSET + walk.end,
                    expected: noted,
                    found: walk.sequence,
                },
            ));
        }
        self.flush_members().await
    }

    /// Carries out a record. Its writes held the locks of their stripes, so no two of them are of
    /// one stripe.
    async fn redo(
        &self,
        record: Record,
        bytes: &Buffer,
        left: impl Fn(Stripe, StripCell, Span) -> Vec<Span>,
    ) -> Outcome {
        // A member that fails from now on may lack these writes.
        let mut marks = Vec::new();
        for (change, _) in &record.changes {
            marks.push(self.mark(change.stripes(), RequestFlags::empty()).await?);
        }
        let (mut members, mut writes) = (Vec::new(), Vec::new());
        for (cell, request) in self.operations(record, bytes, left) {
            for member in self.members.holders(cell) {
                writes.push(self.change(&member, request.clone()));
                members.push(member);
            }
        }
        self.conclude_writes(&members, join_all(writes).await).await
    }

    /// The writes of a record, of what is left to it.
    fn operations(
        &self,
        record: Record,
        bytes: &Buffer,
        left: impl Fn(Stripe, StripCell, Span) -> Vec<Span>,
    ) -> Vec<(StripCell, Request)> {
        let mut operations = Vec::new();
        for (change, content) in record.changes {
            match change {
                Change::Content { stripe, strip, span } => {
                    let cell = self.layout.cell(stripe, strip);
                    for part in left(stripe, cell, span.clone()) {
                        let offset = self.layout.row_start(cell.row) + u64::from(part.start);
                        let start = content.start + (part.start - span.start) as usize;
                        let data = bytes.slice(start..start + part.len());
                        operations.push((cell, Request::write(offset, data)));
                    }
                }
                Change::Zeros { stripes, step } => {
                    for stripe in stripes.step_by(step as usize).map(Stripe) {
                        operations.extend(self.zeroing(stripe, &left));
                    }
                }
            }
        }
        operations
    }

    fn zeroing(
        &self,
        stripe: Stripe,
        left: &impl Fn(Stripe, StripCell, Span) -> Vec<Span>,
    ) -> Vec<(StripCell, Request)> {
        let layout = &self.layout;
        let cells = layout.strips().map(|strip| layout.cell(stripe, strip));
        let parts = |cell| left(stripe, cell, 0..layout.strip_bytes());
        let parts = cells.flat_map(|cell| parts(cell).into_iter().map(move |part| (cell, part)));
        let write = |(cell, part): (StripCell, Span)| {
            let start = layout.row_start(cell.row);
            let range = ByteRange::at(start + u64::from(part.start), part.len() as u64);
            (cell, Request::write_zeroes(range))
        };
        parts.map(write).collect()
    }
}
