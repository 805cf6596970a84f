//! Recognising sequential streams among interleaved requests.

use headpond_block::ByteRange;

/// Streams followed at a time; the one that was silent longest makes room.
const STREAMS_MAX: usize = 64;

/// Remembers where recent requests ended, and how long each contiguous run is by now.
///
/// Interleaved streams are told apart by address alone: a request that starts where an earlier one
/// ended continues its run, whoever sent it.
pub struct StreamTable {
    runs: Vec<Run>,
    clock: u64,
}

#[derive(Clone, Copy)]
struct Run {
    next_byte: u64,
    bytes: u64,
    seen_at: u64,
}

impl StreamTable {
    pub fn new() -> Self {
        Self { runs: Vec::with_capacity(STREAMS_MAX), clock: 0 }
    }

    /// Length in bytes of the contiguous run that `range` ends, itself included.
    pub fn observe(&mut self, range: ByteRange) -> u64 {
        self.clock += 1;
        let seen_at = self.clock;
        if let Some(run) = self.runs.iter_mut().find(|run| run.next_byte == range.start()) {
            *run = Run { next_byte: range.end(), bytes: run.bytes + range.len(), seen_at };
            return run.bytes;
        }
        let run = Run { next_byte: range.end(), bytes: range.len(), seen_at };
        if self.runs.len() < STREAMS_MAX {
            self.runs.push(run);
        } else {
            let oldest = self.runs.iter_mut().min_by_key(|run| run.seen_at);
            *oldest.expect("the table is full") = run;
        }
        run.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved_streams_are_told_apart_from_random_requests() {
        let mut table = StreamTable::new();
        for step in 0..10 {
            let first = table.observe(ByteRange::at(step * 4096, 4096));
            let second = table.observe(ByteRange::at((1 << 30) + step * 65536, 65536));
            let random = table.observe(ByteRange::at((1 << 40) + step * 999_424, 4096));
            assert_eq!((first, second), ((step + 1) * 4096, (step + 1) * 65536));
            assert_eq!(random, 4096);
        }
    }

    #[test]
    fn a_stream_that_fell_silent_makes_room() {
        let mut table = StreamTable::new();
        table.observe(ByteRange::at(0, 4096));
        for other in 1..=STREAMS_MAX as u64 {
            table.observe(ByteRange::at(other << 30, 4096));
        }
        assert_eq!(table.observe(ByteRange::at(4096, 4096)), 4096);
    }
}
