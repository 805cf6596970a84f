//! Which copy of a mirror serves a read.
//!
//! A read goes to the copy that will serve it soonest. A copy's queue is counted in bytes that
//! could have been transferred meanwhile: the length of each operation, plus the cost of
//! positioning for one that does not continue where another ended. The shortest queue wins.
//!
//! Where members rotate, a stream stays with its copy, whose head is there already, until another
//! copy has less to do by a quarter of everything that is queued. So one stream with enough in
//! flight is split into runs: while one copy reads a run, the other one positions behind it and
//! reads the next, and both are kept busy. Two streams find a copy each and stay there.
//!
//! **Invariants**: the selected copy is one of the candidates.
//! **Not here**: which copies are in use, and operations in flight (`array`).
//! **Source**: Linux md, `drivers/md/raid1.c`, `read_balance` (nearest head, or fewest pending if
//! nothing rotates). It never leaves a stream's copy while that rotates, so one stream reads at the
//! speed of one drive.

use headpond_block::ByteRange;
use smallvec::SmallVec;

/// What a drive that rotates could transfer while it positions: some 8 ms, at 100 to 250 MB/s.
const POSITIONING_BYTES: u64 = 1 << 20;
/// What a drive without moving parts could transfer while it handles one more command.
const COMMAND_BYTES: u64 = 32 << 10;
/// The most by which queues may differ before a stream leaves its copy. Stretches are twice as
/// long; of the time for 16 MiB positioning is a tenth at most, so that more would gain nothing.
const LEAD_BYTES_MAX: u64 = 8 << 20;
/// Streams that are known at a time: as many as drives follow with their read-ahead.
const STREAMS_MAX: usize = 16;
/// Where nothing rotates, a long request is dealt out to the copies in parts of at least this many
/// bytes: eight times what the command costs.
const PART_BYTES_MIN: u64 = 8 * COMMAND_BYTES;

/// A copy that could serve a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Number of the copy.
    pub copy: usize,
    /// What waits or is served there, as the sum of [`cost`].
    pub queued: u64,
    /// Where the newest operation on it ends.
    pub head: u64,
    /// What the same request is to read there before.
    pub planned: Planned,
}

/// Parts of a request that were placed on a copy and have not begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planned {
    /// All writes.
    pub bytes: u64,
    /// Those that end where the next part begins, without a gap.
    pub adjoining_bytes: u64,
}

/// Whether distance costs time on the members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Motion {
    Rotating,
    #[default]
    None,
}

/// What an operation adds to the queue of its member.
pub fn cost(motion: Motion, range: ByteRange, head: u64) -> u64 {
    let continues = range.start() == head;
    range.len()
        + match motion {
            Motion::Rotating if continues => 0,
            Motion::Rotating => POSITIONING_BYTES,
            Motion::None => COMMAND_BYTES,
        }
}

/// The reads of one group of copies, as far as they matter to those that come.
#[derive(Clone, Debug, Default)]
pub struct Balance {
    /// The one read last comes last.
    streams: SmallVec<[Stream; STREAMS_MAX]>,
    /// Where nothing rotates, the copy to be taken next of those that are equal.
    turn: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stream {
    /// Where its next read begins.
    next: u64,
    copy: usize,
}

impl Candidate {
    /// All that comes before a read that is placed there.
    fn ahead(&self) -> u64 {
        self.queued + self.planned.bytes
    }
}

impl Balance {
    /// The number of the copy that serves a read of `range`; the read counts as placed there.
    /// `None` without candidates.
    pub fn place(
        &mut self,
        motion: Motion,
        range: ByteRange,
        candidates: &[Candidate],
    ) -> Option<usize> {
        match motion {
            Motion::Rotating => self.place_by_distance(range, candidates),
            Motion::None => self.place_by_turn(candidates),
        }
    }

    /// The copy that a read which ended there was placed on, where that is still known.
    pub fn reader_up_to(&self, end: u64) -> Option<usize> {
        let stream = self.streams.iter().rev().find(|stream| stream.next == end)?;
        Some(stream.copy)
    }

    fn place_by_turn(&mut self, candidates: &[Candidate]) -> Option<usize> {
        let from_turn = |it: &Candidate| (it.copy < self.turn, it.copy);
        let short_part =
            |it: &&Candidate| (1..PART_BYTES_MIN).contains(&it.planned.adjoining_bytes);
        if let Some(adjoining) = candidates.iter().find(short_part) {
            return Some(adjoining.copy);
        }
        let best = candidates.iter().min_by_key(|it| (it.ahead(), from_turn(it)))?;
        self.turn = best.copy + 1;
        Some(best.copy)
    }

    fn place_by_distance(&mut self, range: ByteRange, candidates: &[Candidate]) -> Option<usize> {
        let distance = |it: &Candidate| it.head.abs_diff(range.start());
        let best = candidates.iter().min_by_key(|it| (it.ahead(), distance(it)))?;
        let known = self.streams.iter().rposition(|stream| stream.next == range.start());
        let usual = known.map(|index| self.streams.remove(index).copy);
        let usual = candidates.iter().find(|it| Some(it.copy) == usual);
        let queued: u64 = candidates.iter().map(Candidate::ahead).sum();
        let lead = (queued / 4).clamp(POSITIONING_BYTES, LEAD_BYTES_MAX);
        let chosen = usual.filter(|usual| usual.ahead() <= best.ahead() + lead).unwrap_or(best);
        self.note(Stream { next: range.end(), copy: chosen.copy });
        Some(chosen.copy)
    }

    fn note(&mut self, stream: Stream) {
        if self.streams.len() == STREAMS_MAX {
            self.streams.remove(0);
        }
        self.streams.push(stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn candidate(copy: usize, queued: u64, head: u64) -> Candidate {
        Candidate { copy, queued, head, planned: Planned::default() }
    }

    fn read(offset: u64) -> ByteRange {
        ByteRange::at(offset, MIB)
    }

    #[test]
    fn of_equal_queues_the_nearest_head_reads() {
        let near =
            [candidate(0, 5, 900 * MIB), candidate(1, 5, 101 * MIB), candidate(2, 9, 100 * MIB)];
        let placed = Balance::default().place(Motion::Rotating, read(100 * MIB), &near);
        assert_eq!(placed, Some(1));
    }

    #[test]
    fn a_stream_stays_until_another_copy_has_clearly_less_to_do() {
        let mut balance = Balance::default();
        let place = |balance: &mut Balance, offset, queues: [u64; 2]| {
            let candidates = [candidate(0, queues[0], 0), candidate(1, queues[1], 0)];
            balance.place(Motion::Rotating, read(offset), &candidates)
        };
        assert_eq!(place(&mut balance, 0, [0, 0]), Some(0));
        assert_eq!(place(&mut balance, MIB, [MIB, 0]), Some(0), "a little less is no reason");
        assert_eq!(place(&mut balance, 2 * MIB, [20 * MIB, 12 * MIB]), Some(0));
        assert_eq!(place(&mut balance, 3 * MIB, [21 * MIB, 12 * MIB]), Some(1));
        assert_eq!(place(&mut balance, 4 * MIB, [12 * MIB, 13 * MIB]), Some(1), "and stays there");
        assert_eq!(place(&mut balance, 900 * MIB, [12 * MIB, 13 * MIB]), Some(0), "another stream");
    }

    #[test]
    fn where_nothing_rotates_equal_copies_take_turns_and_the_shorter_queue_wins() {
        let mut balance = Balance::default();
        let mut place = |queues: [u64; 3]| {
            let candidates = [0, 1, 2].map(|copy| candidate(copy, queues[copy], 0));
            balance.place(Motion::None, read(0), &candidates)
        };
        assert_eq!([place([0; 3]), place([0; 3]), place([0; 3])], [Some(0), Some(1), Some(2)]);
        assert_eq!(place([9, 3, 9]), Some(1));
    }

    #[test]
    fn a_request_is_not_torn_into_small_parts() {
        let planned = Planned { bytes: 64 << 10, adjoining_bytes: 64 << 10 };
        let candidates = [Candidate { planned, ..candidate(0, 0, 0) }, candidate(1, 0, 0)];
        assert_eq!(Balance::default().place(Motion::None, read(0), &candidates), Some(0));
    }

    #[test]
    fn the_last_reader_is_known_for_a_while() {
        let mut balance = Balance::default();
        balance.place(Motion::Rotating, read(0), &[candidate(1, 0, 0)]);
        assert_eq!(balance.reader_up_to(MIB), Some(1));
        assert_eq!(balance.reader_up_to(2 * MIB), None);
    }

    proptest! {
        #[test]
        fn a_copy_is_chosen_that_was_offered(
            rounds in prop::collection::vec(
                (any::<bool>(), 0_u64..64, prop::collection::btree_map(0_usize..5, any::<u32>(), 0..5)),
                1..60,
            ),
        ) {
            let mut balance = Balance::default();
            for (rotating, offset, queues) in rounds {
                let motion = if rotating { Motion::Rotating } else { Motion::None };
                let offered = queues.iter().map(|(copy, queued)| candidate(*copy, (*queued).into(), 0));
                let offered: Vec<Candidate> = offered.collect();
                let placed = balance.place(motion, read(offset * MIB), &offered);
                prop_assert_eq!(placed.is_some(), !queues.is_empty());
                prop_assert!(placed.is_none_or(|copy| queues.contains_key(&copy)));
                prop_assert!(balance.streams.len() <= STREAMS_MAX);
            }
        }
    }
}
