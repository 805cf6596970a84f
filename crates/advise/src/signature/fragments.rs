//! Joins what one system call became: a large request may reach the queue as several.
//!
//! The kernel builds requests of limited size, so a 2 MiB write may be queued as 1.3 MiB and
//! 0.7 MiB. Both are joined again where the first was split further, the second follows it without
//! a gap, and together they have the length in which the same process writes otherwise.
//!
//! **Invariants**: one record is held back; no record is lost.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use headpond_trace::{RecordFlags, TraceRecord};

/// Processes whose usual length is remembered.
const PROCESSES_MAX: usize = 4096;

/// Puts fragments together.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    /// Whole requests, and the last one, which may go on.
    records: Vec<TraceRecord>,
    lengths: HashMap<u32, u64, FixedState>,
    /// The length of the process that was last, not among the others yet.
    recent: Option<(u32, u64)>,
}

impl Fragments {
    /// Takes a record in; it may be a part of the one before it.
    #[inline]
    pub(crate) fn push(&mut self, record: &TraceRecord) {
        if let Some(held) = self.records.last() {
            let (process, length_bytes) = (held.process, held.length_bytes);
            if held.flags.contains(RecordFlags::SPLIT)
                && self.length(process).is_some_and(|it| continues(held, record, it))
            {
                return self.records.last_mut().into_iter().for_each(|held| join(held, record));
            }
            self.note_length(process, length_bytes);
        }
        self.records.push(*record);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Records that are known to be whole.
    #[inline]
    pub(crate) fn whole(&self) -> usize {
        self.records.len().saturating_sub(1)
    }

    /// Changes the whole records for an empty vector.
    pub(crate) fn take_whole(&mut self, whole: &mut Vec<TraceRecord>) {
        assert!(whole.is_empty(), "no record is lost");
        std::mem::swap(&mut self.records, whole);
        self.records.extend(whole.pop());
    }

    /// The record held back.
    pub(crate) fn finish(&mut self) -> Option<TraceRecord> {
        self.records.pop()
    }

    /// Remembers the length of a whole request.
    #[inline]
    pub(crate) fn note_length(&mut self, process: u32, whole_bytes: u64) {
        if whole_bytes == 0 {
            return;
        }
        match &mut self.recent {
            Some(recent) if recent.0 == process => recent.1 = whole_bytes,
            recent => {
                let before = recent.replace((process, whole_bytes));
                before.into_iter().for_each(|(process, bytes)| self.remember(process, bytes));
            }
        }
    }

    fn remember(&mut self, process: u32, bytes: u64) {
        if let Some(length_bytes) = self.lengths.get_mut(&process) {
            *length_bytes = bytes;
        } else if self.lengths.len() < PROCESSES_MAX {
            self.lengths.insert(process, bytes);
        }
    }

    /// The length of the last whole request of a process.
    fn length(&self, process: u32) -> Option<u64> {
        let recent = self.recent.filter(|recent| recent.0 == process);
        recent.map(|(_, bytes)| bytes).or_else(|| self.lengths.get(&process).copied())
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
        fragments.push(&write(0, 4096, RecordFlags::SPLIT));
        fragments.push(&write(4096, 2656, RecordFlags::SPLIT));
        fragments.push(&write(6752, 1440, RecordFlags::MERGED));
        let mut whole = Vec::new();
        fragments.take_whole(&mut whole);
        assert_eq!((whole, fragments.whole()), (vec![write(0, 4096, RecordFlags::SPLIT)], 0));
        let joined = fragments.finish().unwrap();
        assert_eq!((joined.offset_bytes, joined.length_bytes), (4096, 4096));
    }

    #[test]
    fn small_sequential_requests_are_left_alone() {
        let mut fragments = Fragments::default();
        fragments.push(&write(0, 8192, RecordFlags::empty()));
        for n in 2..10 {
            fragments.push(&write(n * 4096, 4096, RecordFlags::MERGED));
        }
        assert_eq!(fragments.whole(), 8);
    }

    #[test]
    fn each_process_has_a_usual_length_of_its_own() {
        let mut fragments = Fragments::default();
        let of = |process, record: TraceRecord| TraceRecord { process, ..record };
        fragments.push(&of(1, write(0, 4096, RecordFlags::empty())));
        fragments.push(&of(2, write(0, 1 << 20, RecordFlags::empty())));
        fragments.push(&of(1, write(8192, 1024, RecordFlags::SPLIT)));
        fragments.push(&of(1, write(9216, 3072, RecordFlags::empty())));
        assert_eq!(fragments.finish().map(|joined| joined.length_bytes), Some(4096));
    }
}
