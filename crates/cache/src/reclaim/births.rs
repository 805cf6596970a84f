//! First sequence of each block of a segment: a copy is as old as its original.

use crate::engine::Engine;
use crate::format::record;
use crate::log::Log;
use crate::types::{Position, SegmentIndex, Sequence, SlotIndex};
use foldhash::fast::FixedState;
use headpond_block::Buffer;
use std::collections::HashMap;

/// By place in the log.
pub(super) type Births = HashMap<SlotIndex, Sequence, FixedState>;

impl Engine {
    /// The births of the blocks in a segment, as its descriptors tell. A block whose descriptor
    /// cannot be read is reborn: it has no version on its way, so that is no lie.
    pub(super) fn births(&self, segment: SegmentIndex, data: &Buffer) -> Births {
        let log = self.log.borrow();
        let (first, start) = (log.ring.first_record(segment), log.layout.segment_start(segment));
        // SAFETY: a closed segment is not written to until it has been freed, which only our caller
        // does.
        let bytes = unsafe { data.as_slice() };
        let mut births = Births::default();
        let mut position = start;
        while position.0 < start.0 + log.layout.units_per_segment() {
            let offset = ((position.0 - start.0) * log.layout.unit_bytes()) as usize;
            let Some(bytes) = bytes.get(offset..) else { break };
            let found = log.decode(bytes, position);
            let Some(found) = found.filter(|found| found.header.sequence >= first) else {
                position = Position(position.0 + 1);
                continue;
            };
            position = log.note_births(&found, position, &mut births);
        }
        births
    }
}

impl Log {
    fn decode(&self, bytes: &[u8], position: Position) -> Option<record::Record> {
        let (cache, slice) = (self.identity().cache, self.identity().slice);
        record::decode(bytes, cache, slice, position).ok()
    }

    /// Notes the births of a record's blocks; answers where the next record starts.
    fn note_births(
        &self,
        found: &record::Record,
        position: Position,
        births: &mut Births,
    ) -> Position {
        let units = self.layout.units_for(found.descriptor_bytes as u64);
        let mut at = position.0 + units;
        for entry in found.entries.iter().filter(|entry| entry.kind.carries_data()) {
            for _ in 0..entry.count {
                let slot = self.layout.slot_at(Position(at)).0;
                births.insert(slot, entry.birth.unwrap_or(found.header.sequence));
                at += self.layout.units_per_block();
            }
        }
        Position(at)
    }
}
