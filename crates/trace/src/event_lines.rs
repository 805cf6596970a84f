//! Texts of one event a line: the reader that they share. Each says what a line of it is.
//!
//! **Invariants**: memory is one line and one window of events, for any input.

use crate::damage::{Damage, DamageKind};
use crate::error::{Position, TraceError, preview};
use crate::event::{BlockEvent, EventLosses, EventSource, WINDOW_EVENTS};
use crate::names::Names;
use crate::order::OrderWindow;
use crate::source::ByteSource;

/// A text of events.
#[derive(Clone, Copy)]
pub(crate) struct EventText {
    /// For messages, as is `expected`, the shape of a line.
    pub format: &'static str,
    pub expected: &'static str,
    /// Parses one line without its end.
    pub parse: fn(&[u8]) -> Line<'_>,
}

/// A text file, read as events.
pub(crate) struct EventLines {
    text: EventText,
    source: ByteSource,
    window: OrderWindow<BlockEvent>,
    damage: Damage,
    losses: EventLosses,
    ended: bool,
}

/// What a line of the text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// An event and the name of its process where the line tells it.
    Event(BlockEvent, Option<&'a [u8]>),
    /// An event that changes nothing: plugging, allocation, insertion.
    Passing,
    /// A message of the tracer, an empty line.
    Remark,
    /// The summary starts: no events follow.
    Summary,
    Damaged,
}

impl EventLines {
    pub(crate) fn new(text: EventText, source: ByteSource, damage: Damage) -> Self {
        let (window, losses) = (OrderWindow::new(WINDOW_EVENTS), EventLosses::default());
        Self { text, source, window, damage, losses, ended: false }
    }

    fn read_event(&mut self, names: &mut Names) -> Result<Option<BlockEvent>, TraceError> {
        loop {
            let line = match self.source.line() {
                Err(error) if error.is_damage() && self.damage == Damage::Skip => {
                    self.losses.damage.note(DamageKind::Overlong, self.at(), 0);
                    continue;
                }
                other => other?,
            };
            let Some(line) = line else {
                return Ok(None);
            };
            match (self.text.parse)(line) {
                Line::Event(event, name) => {
                    if let Some(name) = name {
                        note_process(names, event.pid, name);
                    }
                    self.losses.events += 1;
                    return Ok(Some(event));
                }
                Line::Passing => self.losses.events += 1,
                Line::Remark => {}
                Line::Summary => return Ok(None),
                Line::Damaged if self.damage == Damage::Skip => {
                    let length = line.len() as u64 + 1;
                    self.losses.damage.note(DamageKind::Unreadable, self.at(), length);
                }
                Line::Damaged => {
                    let found = preview(line);
                    return Err(self.damaged(found));
                }
            }
        }
    }

    fn at(&self) -> Position {
        Position::Line(self.source.line_number())
    }

    fn damaged(&self, found: String) -> TraceError {
        TraceError::Damaged {
            name: self.source.name().to_owned(),
            format: self.text.format,
            at: self.at(),
            expected: self.text.expected,
            found,
        }
    }
}

impl EventSource for EventLines {
    fn next_event(&mut self, names: &mut Names) -> Result<Option<BlockEvent>, TraceError> {
        while !self.ended {
            match self.read_event(names)? {
                Some(event) => {
                    if let Some(earliest) = self.window.push(event) {
                        return Ok(Some(earliest));
                    }
                }
                None => self.ended = true,
            }
        }
        Ok(self.window.pop())
    }

    fn take_losses(&mut self) -> EventLosses {
        self.losses.out_of_order += self.window.take_out_of_order();
        std::mem::take(&mut self.losses)
    }
}

/// Names are repeated on every line: only a new one costs anything.
fn note_process(names: &mut Names, pid: u32, name: &[u8]) {
    let known = names.process(pid).is_some_and(|known| known.as_bytes() == name);
    if !known && pid != 0 && name != b"(null)" {
        names.set_process(pid, &String::from_utf8_lossy(name));
    }
}
