//! Reads the lines of one format as requests.

use super::{LineFormat, is_blank};
use crate::arrivals::{Arrivals, Entry};
use crate::damage::{Damage, DamageCounts, DamageKind};
use crate::error::{Position, TraceError, preview};
use crate::event::BATCH;
use crate::names::Names;
use crate::record::TraceRecord;
use crate::record_source::RecordSource;
use crate::source::ByteSource;
use crate::tally::Tally;

/// A text, read as requests.
pub(crate) struct LineReader<F> {
    source: ByteSource,
    damage: Damage,
    format: F,
    arrivals: Arrivals,
    /// No request so far: a line may be a heading.
    above: bool,
    ended: bool,
}

impl<F: LineFormat> LineReader<F> {
    pub(crate) fn new(source: ByteSource, damage: Damage, format: F) -> Self {
        Self { source, damage, format, arrivals: Arrivals::new(), above: true, ended: false }
    }

    /// Reads lines until the batch is full or the input ends, and says whether it does.
    fn read(&mut self, batch: &mut Vec<TraceRecord>) -> Result<bool, TraceError> {
        while batch.len() < BATCH {
            let line = match self.source.line() {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(true),
                Err(error) => {
                    self.overlong(error)?;
                    continue;
                }
            };
            self.arrivals.tally.events += 1;
            match self.format.entry(line) {
                Entry::Request(arrival) => {
                    self.above = false;
                    self.arrivals.push(&arrival, batch);
                }
                Entry::Remark => {}
                Entry::OtherCommand => self.arrivals.tally.other_commands += 1,
                Entry::Damaged if is_blank(line) || (self.above && F::is_heading(line)) => {}
                Entry::Damaged => {
                    let (length, found) = (line.len() as u64 + 1, preview(line));
                    self.damaged(length, found)?;
                }
            }
        }
        Ok(false)
    }

    fn damaged(&mut self, length_bytes: u64, found: String) -> Result<(), TraceError> {
        let at = Position::Line(self.source.line_number());
        if self.damage == Damage::Skip {
            self.note(DamageKind::Unreadable, at, length_bytes);
            return Ok(());
        }
        Err(TraceError::Damaged {
            name: self.source.name().to_owned(),
            format: F::FORMAT.words(),
            at,
            expected: F::EXPECTED,
            found,
        })
    }

    fn overlong(&mut self, error: TraceError) -> Result<(), TraceError> {
        match (self.damage, &error) {
            (Damage::Skip, TraceError::Damaged { at, .. }) => {
                self.note(DamageKind::Overlong, *at, 0);
                Ok(())
            }
            _ => Err(error),
        }
    }

    fn note(&mut self, kind: DamageKind, at: Position, skipped_bytes: u64) {
        let mut damage = DamageCounts::default();
        damage.note(kind, at, skipped_bytes);
        self.arrivals.passed_over(damage);
    }
}

impl<F: LineFormat> RecordSource for LineReader<F> {
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
