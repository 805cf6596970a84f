//! One queue, message by message.

use super::message::{Id, LENGTH_BYTES_MAX, MESSAGE_BYTES_MAX, Message, decode, length};
use crate::damage::{Damage, DamageKind};
use crate::error::{Position, TraceError, preview};
use crate::event::{BlockEvent, EventLosses};
use crate::format::TraceFormat;
use crate::names::Names;
use crate::source::ByteSource;

/// A queue being read.
pub(crate) struct OctfQueue {
    source: ByteSource,
    damage: Damage,
    pub(super) losses: EventLosses,
}

/// What an I/O came to at one point of its way.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Queued(Id, BlockEvent),
    Completed(Id, BlockEvent),
}

impl Step {
    pub(super) fn time_ns(&self) -> u64 {
        match self {
            Step::Queued(_, event) | Step::Completed(_, event) => event.time_ns,
        }
    }
}

impl OctfQueue {
    pub(crate) fn new(source: ByteSource, damage: Damage) -> Self {
        Self { source, damage, losses: EventLosses::default() }
    }

    /// The next step of an I/O; names of devices go to `names`.
    pub(super) fn next_step(&mut self, names: &mut Names) -> Result<Option<Step>, TraceError> {
        loop {
            let bytes = self.source.require(LENGTH_BYTES_MAX + MESSAGE_BYTES_MAX)?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let Some((length, start)) = length(bytes) else {
                self.lost()?;
                continue;
            };
            let Some(message) = bytes.get(start..start + length) else {
                let available = bytes.len();
                self.truncated(start + length, available)?;
                continue;
            };
            let step = match decode(message) {
                Some(Message::Queued(id, event)) => Some(Step::Queued(id, event)),
                Some(Message::Completed(id, event)) => Some(Step::Completed(id, event)),
                Some(Message::Device(number, name)) => {
                    names.name_number(number, &String::from_utf8_lossy(name));
                    None
                }
                Some(Message::Other) => None,
                None => {
                    let found = preview(message);
                    self.unreadable(start + length, found)?;
                    None
                }
            };
            self.source.consume(start + length);
            self.losses.events += 1;
            if step.is_some() {
                return Ok(step);
            }
        }
    }

    /// Without a length there is nothing to find the next message by: the rest of the queue is
    /// lost.
    fn lost(&mut self) -> Result<(), TraceError> {
        let (at, head) = (self.at(), self.source.buffered());
        let found = preview(&head[..head.len().min(8)]);
        if self.damage == Damage::Fail {
            return Err(self.damage_at(at, found));
        }
        let mut skipped = 0;
        loop {
            let count = self.source.require(1)?.len();
            if count == 0 {
                break;
            }
            self.source.consume(count);
            skipped += count as u64;
        }
        self.losses.damage.note(DamageKind::Foreign, at, skipped);
        Ok(())
    }

    fn truncated(&mut self, needed: usize, available: usize) -> Result<(), TraceError> {
        if self.damage == Damage::Skip {
            self.losses.damage.note(DamageKind::Truncated, self.at(), available as u64);
            self.source.consume(available);
            return Ok(());
        }
        Err(TraceError::Truncated {
            name: self.source.name().to_owned(),
            format: TraceFormat::Octf.words(),
            part: "the message",
            at: self.at(),
            needed_bytes: needed as u64,
            available_bytes: available as u64,
        })
    }

    fn unreadable(&mut self, length: usize, found: String) -> Result<(), TraceError> {
        let at = self.at();
        if self.damage == Damage::Fail {
            return Err(self.damage_at(at, found));
        }
        self.losses.damage.note(DamageKind::Unreadable, at, length as u64);
        Ok(())
    }

    fn damage_at(&self, at: Position, found: String) -> TraceError {
        TraceError::Damaged {
            name: self.source.name().to_owned(),
            format: TraceFormat::Octf.words(),
            at,
            expected: "a length and an event of version 1",
            found,
        }
    }

    fn at(&self) -> Position {
        Position::Byte(self.source.offset())
    }
}
