//! One blktrace file as events in order of time.
//!
//! **Invariants**: one input buffer and one window of events, whatever the file holds; nothing is
//! believed that does not start with the magic.

use crate::blktrace::decode::{Decoded, FORMAT, Header, MAGIC, VERSIONS, decode_header};
use crate::damage::{Damage, DamageKind};
use crate::error::{Position, TraceError, preview};
use crate::event::{Action, BlockEvent, EventLosses, EventSource, WINDOW_EVENTS};
use crate::names::Names;
use crate::order::OrderWindow;
use crate::source::ByteSource;

/// The tracer's note that tells a process's name.
const NOTE_PROCESS: u16 = 0;

const POSSIBLE: &str = "a range that ends within 2^64 bytes";

/// A binary file, read as events.
pub(crate) struct BlktraceStream {
    source: ByteSource,
    window: OrderWindow<BlockEvent>,
    damage: Damage,
    losses: EventLosses,
    ended: bool,
}

impl BlktraceStream {
    pub(crate) fn new(source: ByteSource, damage: Damage) -> Self {
        let losses = EventLosses::default();
        Self { source, window: OrderWindow::new(WINDOW_EVENTS), damage, losses, ended: false }
    }

    /// The next event in the order of the file.
    fn read_event(&mut self, names: &mut Names) -> Result<Option<BlockEvent>, TraceError> {
        loop {
            let Some(header) = self.read_header()? else {
                return Ok(None);
            };
            let total = header.header_bytes + header.payload_bytes;
            if header.note == Some(NOTE_PROCESS) {
                let payload = &self.source.buffered()[header.header_bytes..total];
                note_process(names, header.event.pid, payload);
            }
            self.source.consume(total);
            self.losses.events += 1;
            // What changes nothing is counted and not carried further: half of all events.
            if header.event.action != Action::Other {
                return Ok(Some(header.event));
            }
        }
    }

    /// The next header whose whole record is buffered.
    fn read_header(&mut self) -> Result<Option<Header>, TraceError> {
        let mut wanted_bytes = 4;
        loop {
            let available = self.source.require(wanted_bytes)?;
            if available.is_empty() {
                return Ok(None);
            }
            let available_bytes = available.len();
            let problem = match decode_header(available) {
                Decoded::Header(header) => {
                    let total = header.header_bytes + header.payload_bytes;
                    if available_bytes >= total && header.event.is_possible() {
                        return Ok(Some(header));
                    }
                    if wanted_bytes < total {
                        wanted_bytes = total;
                        continue;
                    }
                    match available_bytes < total {
                        true => self.truncated(total, available_bytes),
                        false => self.impossible(&header.event),
                    }
                }
                Decoded::Short(header_bytes) => {
                    if wanted_bytes < header_bytes {
                        wanted_bytes = header_bytes;
                        continue;
                    }
                    self.truncated(header_bytes, available_bytes)
                }
                Decoded::Version(found) => self.unsupported(found),
                Decoded::ForeignMagic(_) => self.foreign(),
            };
            self.skip_or_fail(problem)?;
            wanted_bytes = 4;
        }
    }

    /// In lenient reading moves to the next place that looks like a record.
    fn skip_or_fail(&mut self, problem: TraceError) -> Result<(), TraceError> {
        if self.damage == Damage::Fail {
            return Err(problem);
        }
        let (kind, at) = (kind_of(&problem), self.at());
        let mut skipped = 1;
        self.source.consume(1);
        loop {
            let available = self.source.require(4)?;
            if available.len() < 4 {
                skipped += available.len();
                let rest = available.len();
                self.source.consume(rest);
                break;
            }
            match next_magic(available) {
                Some(at) => {
                    skipped += at;
                    self.source.consume(at);
                    break;
                }
                None => {
                    let passed = available.len() - 3;
                    skipped += passed;
                    self.source.consume(passed);
                }
            }
        }
        self.losses.damage.note(kind, at, skipped as u64);
        Ok(())
    }

    fn at(&self) -> Position {
        Position::Byte(self.source.offset())
    }

    fn truncated(&self, needed: usize, available: usize) -> TraceError {
        TraceError::Truncated {
            name: self.source.name().to_owned(),
            format: FORMAT,
            part: "the record",
            at: self.at(),
            needed_bytes: needed as u64,
            available_bytes: available as u64,
        }
    }

    fn unsupported(&self, found: u32) -> TraceError {
        TraceError::UnsupportedVersion {
            name: self.source.name().to_owned(),
            format: FORMAT,
            at: self.at(),
            found,
            supported: VERSIONS,
        }
    }

    fn impossible(&self, event: &BlockEvent) -> TraceError {
        TraceError::Damaged {
            name: self.source.name().to_owned(),
            format: FORMAT,
            at: self.at(),
            expected: POSSIBLE,
            found: format!("{} bytes at sector {}", event.bytes, event.sector),
        }
    }

    fn foreign(&self) -> TraceError {
        let head = self.source.buffered();
        TraceError::Damaged {
            name: self.source.name().to_owned(),
            format: FORMAT,
            at: self.at(),
            expected: "a record that starts with the magic 0x656174 and a version",
            found: preview(&head[..head.len().min(8)]),
        }
    }
}

impl EventSource for BlktraceStream {
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

fn note_process(names: &mut Names, pid: u32, payload: &[u8]) {
    let length = payload.iter().position(|&byte| byte == 0).unwrap_or(payload.len());
    if length > 0 {
        names.set_process(pid, &String::from_utf8_lossy(&payload[..length]));
    }
}

fn kind_of(problem: &TraceError) -> DamageKind {
    match problem {
        TraceError::Truncated { .. } => DamageKind::Truncated,
        TraceError::UnsupportedVersion { .. } => DamageKind::Version,
        TraceError::Damaged { expected: POSSIBLE, .. } => DamageKind::Unreadable,
        _ => DamageKind::Foreign,
    }
}

/// The first place after which a record of a known version may start.
fn next_magic(bytes: &[u8]) -> Option<usize> {
    let tail = &MAGIC.to_be_bytes()[..3];
    let head = &MAGIC.to_le_bytes()[1..];
    bytes.windows(4).position(|word| {
        let (big, little) = (&word[..3] == tail, &word[1..] == head);
        (big && matches!(word[3], 7 | 8)) || (little && matches!(word[0], 7 | 8))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blktrace::testing::{ByteOrder, NOTIFY, Raw, encode};
    use crate::damage::DamageCount;
    use std::io::Cursor;

    fn stream(bytes: Vec<u8>, damage: Damage) -> BlktraceStream {
        BlktraceStream::new(ByteSource::new("test", Box::new(Cursor::new(bytes))).unwrap(), damage)
    }

    fn times(stream: &mut BlktraceStream) -> Result<Vec<u64>, TraceError> {
        let mut names = Names::default();
        let mut times = Vec::new();
        while let Some(event) = stream.next_event(&mut names)? {
            times.push(event.time_ns);
        }
        Ok(times)
    }

    fn records(times: &[u64]) -> Vec<u8> {
        let raw = |&time_ns| Raw { time_ns, ..Raw::queue_write() };
        times.iter().flat_map(|time| encode(&raw(time), 7, ByteOrder::Little)).collect()
    }

    #[test]
    fn events_come_in_order_of_time() {
        let mut stream = stream(records(&[1, 4, 2, 9]), Damage::Fail);
        assert_eq!(times(&mut stream).unwrap(), [1, 2, 4, 9]);
        assert_eq!(stream.take_losses().out_of_order, 0);
    }

    #[test]
    fn names_of_processes_are_noted() {
        let raw =
            Raw { category: NOTIFY, action: 0, pid: 42, payload: b"fio\0\0", ..Raw::queue_write() };
        let mut stream = stream(encode(&raw, 7, ByteOrder::Big), Damage::Fail);
        let mut names = Names::default();
        assert_eq!(stream.next_event(&mut names).unwrap(), None);
        assert_eq!(names.process(42), Some("fio"));
    }

    #[test]
    fn cut_record_is_located() {
        let mut bytes = records(&[1, 2]);
        bytes.truncate(48 + 20);
        let error = times(&mut stream(bytes, Damage::Fail)).unwrap_err();
        assert_eq!(error.position(), Some(Position::Byte(48)));
        assert!(matches!(error, TraceError::Truncated { available_bytes: 20, .. }), "{error}");
    }

    #[test]
    fn damage_is_located_and_lenient_reading_goes_on_behind_it() {
        let mut bytes = records(&[1, 2, 3, 4]);
        bytes[48] = b'X';
        let error = times(&mut stream(bytes.clone(), Damage::Fail)).unwrap_err();
        assert_eq!(error.position(), Some(Position::Byte(48)));
        let mut lenient = stream(bytes, Damage::Skip);
        assert_eq!(times(&mut lenient).unwrap(), [1, 3, 4]);
        let losses = lenient.take_losses();
        let expected = DamageCount { places: 1, skipped_bytes: 48, first: Position::Byte(48) };
        assert!(losses.damage.iter().eq([(DamageKind::Version, expected)]));
    }

    #[test]
    fn a_range_beyond_64_bits_is_located_and_passed_over() {
        let far = Raw { sector: u64::MAX / 2, time_ns: 2, ..Raw::queue_write() };
        let far = encode(&far, 7, ByteOrder::Little);
        let bytes = [records(&[1]), far, records(&[3])].concat();
        let error = times(&mut stream(bytes.clone(), Damage::Fail)).unwrap_err();
        assert_eq!(error.position(), Some(Position::Byte(48)));
        assert!(error.to_string().contains("expected a range that ends within"), "{error}");
        let mut lenient = stream(bytes, Damage::Skip);
        assert_eq!(times(&mut lenient).unwrap(), [1, 3]);
        let expected = DamageCount { places: 1, skipped_bytes: 48, first: Position::Byte(48) };
        let damage = lenient.take_losses().damage;
        assert!(damage.iter().eq([(DamageKind::Unreadable, expected)]));
    }
}
