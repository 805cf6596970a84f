//! Joins what one system call became: a large request may reach the queue as several.
//!
//! The kernel builds requests of limited size, so a 2 MiB write may be queued as 1.3 MiB and
//! 0.7 MiB. Both are joined again where the first was split further, the second follows it without
//! a gap, and together they have the length in which the same process writes otherwise.
//!
//! **Invariants**: one record is held back; no record is lost.

use std::collections::BTreeMap;

use headpond_trace::{RecordFlags, TraceRecord};

/// Processes whose usual length is remembered.
const PROCESSES_MAX: usize = 4096;

/// Puts fragments together.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    held: Option<TraceRecord>,
    lengths: BTreeMap<u32, u64>,
}

impl Fragments {
    /// Takes a record in; gives out the one before it unless both are one.
    pub(crate) fn push(&mut self, record: TraceRecord) -> Option<TraceRecord> {
        if let Some(held) = &mut self.held
            && self.lengths.get(&held.process).is_some_and(|&whole| continues(held, &record, whole))
        {
            join(held, &record);
            return None;
        }
        let out = self.held.replace(record);
        if let Some(out) = &out {
            self.note_length(out);
        }
        out
    }

    /// The record held back.
    pub(crate) fn finish(&mut self) -> Option<TraceRecord> {
        self.held.take()
    }

    /// Remembers the length of a whole request.
    pub(crate) fn note_length(&mut self, whole: &TraceRecord) {
        if whole.length_bytes == 0 {
            return;
        }
        if let Some(length_bytes) = self.lengths.get_mut(&whole.process) {
            *length_bytes = whole.length_bytes;
        } else if self.lengths.len() < PROCESSES_MAX {
            self.lengths.insert(whole.process, whole.length_bytes);
        }
    }
}

fn continues(first: &TraceRecord, second: &TraceRecord, whole_bytes: u64) -> bool {
    first.flags.contains(RecordFlags::SPLIT)
        && first.op == second.op
        && (first.device, first.process) == (second.device, second.process)
        && first.end_bytes() == second.offset_bytes
        && first.length_bytes.checked_add(second.length_bytes) == Some(whole_bytes)
}

fn join(first: &mut TraceRecord, second: &TraceRecord) {
    first.length_bytes += second.length_bytes;
    first.flags |= second.flags;
    first.completed_ns = match (first.completed_ns, second.completed_ns) {
        (Some(one), Some(other)) => Some(one.max(other)),
        _ => None,
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_trace::Op;

    fn write(offset: u64, length: u64, flags: RecordFlags) -> TraceRecord {
        TraceRecord { flags, process: 1, ..TraceRecord::new(0, Op::Write, offset, length) }
    }

    #[test]
    fn two_parts_of_the_usual_length_are_one_request() {
        let mut fragments = Fragments::default();
        assert_eq!(fragments.push(write(0, 4096, RecordFlags::SPLIT)), None);
        fragments.push(write(4096, 2656, RecordFlags::SPLIT)).unwrap();
        assert_eq!(fragments.push(write(6752, 1440, RecordFlags::MERGED)), None);
        let joined = fragments.finish().unwrap();
        assert_eq!((joined.offset_bytes, joined.length_bytes), (4096, 4096));
    }

    #[test]
    fn small_sequential_requests_are_left_alone() {
        let mut fragments = Fragments::default();
        fragments.push(write(0, 8192, RecordFlags::empty()));
        for n in 2..10 {
            assert!(fragments.push(write(n * 4096, 4096, RecordFlags::MERGED)).is_some());
        }
    }
}
