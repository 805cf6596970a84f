//! Reads records of one length as requests.

use super::FixedFormat;
use crate::arrivals::{Arrivals, Entry};
use crate::damage::{Damage, DamageCounts, DamageKind};
use crate::error::{Position, TraceError, preview};
use crate::event::BATCH;
use crate::names::Names;
use crate::record::TraceRecord;
use crate::record_source::RecordSource;
use crate::source::ByteSource;
use crate::tally::Tally;

/// A binary file, read as requests.
pub(super) struct FixedReader<F> {
    source: ByteSource,
    damage: Damage,
    format: F,
    arrivals: Arrivals,
    ended: bool,
}

impl<F: FixedFormat> FixedReader<F> {
    pub(super) fn new(source: ByteSource, damage: Damage) -> Self {
        Self { source, damage, format: F::default(), arrivals: Arrivals::new(), ended: false }
    }

    /// Reads records until the batch is full or the input ends, and says whether it does.
    fn read(&mut self, batch: &mut Vec<TraceRecord>) -> Result<bool, TraceError> {
        while batch.len() < BATCH {
            let available = self.source.require(F::RECORD_BYTES)?;
            let Some(record) = available.get(..F::RECORD_BYTES) else {
                let left = available.len();
                return self.end(left).map(|()| true);
            };
            let entry = self.format.entry(record);
            if entry == Entry::Damaged {
                self.damaged()?;
            }
            self.source.consume(F::RECORD_BYTES);
            self.arrivals.tally.events += 1;
            match entry {
                Entry::Request(arrival) => self.arrivals.push(&arrival, batch),
                Entry::OtherCommand => self.arrivals.tally.other_commands += 1,
                Entry::Remark | Entry::Damaged => {}
            }
        }
        Ok(false)
    }

    fn damaged(&mut self) -> Result<(), TraceError> {
        if self.damage == Damage::Skip {
            self.note(DamageKind::Unreadable, F::RECORD_BYTES);
            return Ok(());
        }
        Err(TraceError::Damaged {
            name: self.source.name().to_owned(),
            format: F::FORMAT.words(),
            at: Position::Byte(self.source.offset()),
            expected: F::EXPECTED,
            found: preview(&self.source.buffered()[..F::RECORD_BYTES]),
        })
    }

    /// The input ends with `left` bytes of a record.
    fn end(&mut self, left: usize) -> Result<(), TraceError> {
        if left == 0 {
            return Ok(());
        }
        if self.damage == Damage::Skip {
            self.note(DamageKind::Truncated, left);
            self.source.consume(left);
            return Ok(());
        }
        Err(TraceError::Truncated {
            name: self.source.name().to_owned(),
            format: F::FORMAT.words(),
            part: "the record",
            at: Position::Byte(self.source.offset()),
            needed_bytes: F::RECORD_BYTES as u64,
            available_bytes: left as u64,
        })
    }

    fn note(&mut self, kind: DamageKind, skipped_bytes: usize) {
        let mut damage = DamageCounts::default();
        damage.note(kind, Position::Byte(self.source.offset()), skipped_bytes as u64);
        self.arrivals.passed_over(damage);
    }
}

impl<F: FixedFormat> RecordSource for FixedReader<F> {
    fn fill(&mut self, batch: &mut Vec<TraceRecord>) -> Result<bool, TraceError> {
        if !self.ended {
            self.ended = self.read(batch)?;
        }
        Ok(!self.ended || self.arrivals.drain(batch))
    }

    fn names(&self) -> &Names {
        &self.arrivals.names
    }

    fn tally(&self) -> Tally {
        self.arrivals.tally
    }
}
