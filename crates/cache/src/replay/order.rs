//! The flush order from records: ends of epochs, the core's position, and superseded versions.
//!
//! A superfluous end is harmless: it only splits an epoch. So where records are missing, an end is
//! assumed among them.

use super::{Candidate, Map};
use crate::format::order_mark::OrderMark;
use crate::format::record::{EntryKind, Header};
use crate::log::{FoundOrder, Superseded};
use crate::types::{CoreBlock, Position, Sequence};

/// Collects it.
pub(super) struct History {
    /// Of the newest record, or of the header where there is none.
    mark: Option<Position>,
    noted: Option<OrderMark>,
    unknown_until: Option<Position>,
    newest: Sequence,
    /// What every record says of every block.
    rows: Vec<Row>,
    /// Records before which an epoch ended.
    ends: Vec<Sequence>,
}

struct Row {
    block: CoreBlock,
    birth: Sequence,
    sequence: Sequence,
    /// The version, unless it is one that the core has, or the end of all of them.
    dirty: Option<(Position, u32)>,
}

/// What of the order is known after a stop that was not clean.
#[derive(Debug, Default)]
pub struct Order {
    pub(crate) found: FoundOrder,
    /// By block: where the first version of the records lies, unless one of them says that the core
    /// has the truth.
    firsts: Map<CoreBlock, Option<Position>>,
}

impl History {
    /// Behind a checkpoint at `head`, whose header has that mark.
    pub fn new(mark: Option<Position>, noted: Option<OrderMark>, head: Position) -> Self {
        let unknown_until = mark.is_none().then_some(head);
        let (rows, ends) = (Vec::new(), Vec::new());
        Self { mark, noted, unknown_until, newest: Sequence(0), rows, ends }
    }

    pub fn note_record(&mut self, header: &Header) {
        if header.sequence >= self.newest {
            (self.newest, self.mark) = (header.sequence, header.order);
        }
        if header.is_behind_an_end {
            self.ends.push(header.sequence);
        }
    }

    pub fn note_version(&mut self, block: CoreBlock, candidate: &Candidate) {
        let Candidate { birth, sequence, kind, position, checksum, .. } = *candidate;
        let dirty = (kind == EntryKind::Dirty).then_some((position, checksum));
        // A part is of another policy's time, and in the order of nothing.
        self.rows.push(Row { block, birth, sequence, dirty });
    }

    /// What follows, where the order is known. `seen` are the records that were found, ascending.
    pub fn finish(mut self, seen: &[Sequence], start: Sequence, tail: Sequence) -> Option<Order> {
        let mark = self.mark?;
        self.rows.retain(|row| row.sequence >= tail);
        let ends = self.ends_among(seen, start);
        let places = self.rows.iter().filter_map(|row| Some((row.sequence, row.dirty?.0)));
        let mut places: Vec<(Sequence, Position)> = places.collect();
        places.sort_unstable();
        let place_of = |end: Sequence| {
            let next = places.partition_point(|(sequence, _)| *sequence < end);
            places.get(next).map(|(_, place)| *place)
        };
        let ends = ends.into_iter().filter_map(place_of).collect();
        let mut order = Order::default();
        order.found = FoundOrder {
            mark,
            noted: self.noted,
            unknown_until: self.unknown_until,
            ends,
            superseded: self.superseded(&mut order.firsts),
        };
        Some(order)
    }

    fn ends_among(&self, seen: &[Sequence], start: Sequence) -> Vec<Sequence> {
        let mut ends = self.ends.clone();
        let mut expected = start;
        for &sequence in seen {
            if sequence > expected {
                ends.push(sequence);
            }
            expected = expected.max(sequence.next());
        }
        ends.sort_unstable();
        ends.dedup();
        ends
    }

    /// The dirty versions that have a successor, none of which says that the core has the truth.
    fn superseded(&mut self, firsts: &mut Map<CoreBlock, Option<Position>>) -> Vec<Superseded> {
        self.rows.sort_unstable_by_key(|row| (row.block, row.birth, row.sequence));
        let mut superseded = Vec::new();
        for rows in self.rows.chunk_by(|one, other| one.block == other.block) {
            let block = rows[0].block;
            let first = rows[0].dirty.map(|(position, _)| position);
            let is_ended = rows.iter().any(|row| row.dirty.is_none());
            firsts.insert(block, first.filter(|_| !is_ended));
            let after_end = rows.iter().rposition(|row| row.dirty.is_none()).map_or(0, |at| at + 1);
            for pair in rows[after_end..].windows(2) {
                let (Some((position, checksum)), Some((next, _))) = (pair[0].dirty, pair[1].dirty)
                else {
                    continue;
                };
                // A copy is the same version.
                if pair[0].birth != pair[1].birth {
                    let next = Some(next);
                    superseded.push(Superseded { block, position, checksum, next });
                }
            }
        }
        superseded
    }
}

impl Order {
    /// A version of the checkpoint that a record has superseded, or that was superseded before, and
    /// is known to be kept.
    pub fn add_older(&mut self, older: Superseded, is_known: bool) {
        let next = match self.firsts.get(&older.block) {
            None => None,
            Some(Some(next)) => Some(*next),
            // The core has the truth, or had it.
            Some(None) => return,
        };
        let next = next.filter(|_| !is_known);
        self.found.superseded.push(Superseded { next, ..older });
    }
}
