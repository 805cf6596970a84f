//! The log of a slice in memory: forms records, maps their blocks, and tracks what is stable.
//!
//! Lifecycle of a record: 1. [`Log::form`] takes places at the head, maps the blocks as pending and
//! returns the device write; 2. the caller executes the write; 3. [`Log::complete`] publishes the
//! blocks, or reverts them.
//!
//! **Invariants**
//! - The order in which records are formed is the order of versions, in memory and at replay.
//! - The flush mark never passes a record that is in flight, or that failed and is not yet void.
//! - Clients never take the last segments: tombstones and reclaim can always proceed.
//!
//! **Not here**: I/O, waiting, scheduling.

mod age;
mod checksummed;
mod classes;
mod copies;
mod cores;
mod eviction;
mod fills;
mod flush_epochs;
mod lasting_order;
mod mapping;
mod parts;
mod reach;
mod reinsert;
mod room;
mod self_check;
mod stability;
mod survey;
mod tally;
mod thinning;
mod unreadable;

use checksummed::Checksummed;
pub use eviction::Eviction;
pub use fills::Fill;
pub use flush_epochs::FlushEpochs;
use lasting_order::Noted;
pub(crate) use lasting_order::{FoundOrder, Superseded};
pub(crate) use parts::Part;
use parts::Parts;
use reach::Reach;
pub(crate) use reach::{Content, Cut, plan};
use reinsert::Carried;
pub use reinsert::Reinsertion;
pub use survey::Survey;
pub(crate) use tally::id_of;
pub(crate) use thinning::Scattered;
use unreadable::Unreadable;

use crate::classes::{CLASSES_MAX, ClassId};
use crate::cleaning::{Chunks, Throttle};
use crate::dirty_index::DirtyIndex;
use crate::format::record::{self, Draft, Entry, EntryKind, Promises};
use crate::layout::SliceLayout;
use crate::line_map::LineMap;
use crate::ring::Ring;
use crate::stats::{ClassStats, CoreStats, Counters};
use crate::types::{
    BlockRun, CoreBlock, Epoch, Position, Sectors, SegmentIndex, Sequence, SlotIndex,
};
use crate::under_way::UnderWay;
use headpond_block::defect;
use headpond_block::{BLOCK_BYTES, BufferPool, Buffers, PoolConfig, Request, RequestFlags};
use std::collections::BTreeSet;
use std::rc::Rc;
use uuid::Uuid;

/// Segments that new data may not take: for tombstones, reclaim, and the next open.
pub const RESERVE_FOR_CLIENTS: u32 = 4;
const RESERVE_FOR_TOMBSTONES: u32 = 2;
/// Extents that new data may not take: as many as reclaim has copies in a record.
const EXTENTS_FOR_RECLAIM: u32 = (record::ENTRY_BYTES_MAX / 16) as u32;
/// Segments that do not count as usable: the reserve, the head and one being reclaimed.
const UNUSABLE_SEGMENTS: u64 = RESERVE_FOR_CLIENTS as u64 + 2;
/// Share of the usable segments that dirty data may fill; the rest keeps reclaim cheap.
const USABLE_PERCENT: u64 = 88;

/// A descriptor without entries fits the smallest unit.
const HEADER_UNITS: u64 = 1;

/// What an append is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    WriteBack,
    /// Goes to the core as well; the caller moves the blocks on when the core has them.
    WriteThrough,
    /// Of a write-through that the core refused: what it has shown must not be gone after a cut. It
    /// waits for no room but the log's, and takes from what is kept for reclaim.
    Refused,
    ReadInsert,
    /// As write-back, of some sectors of one block, over nothing that the core lacks but what was
    /// there of it in part and is taken in.
    Part(Sectors),
    /// Ends all versions of the blocks. Unless `over_dirty`, refused where the core lacks one.
    Tombstone {
        over_dirty: bool,
    },
}

impl Purpose {
    /// Whether it is answered when only the cache has it, and waits for room for that.
    pub(crate) fn is_write_back(self) -> bool {
        matches!(self, Purpose::WriteBack | Purpose::Part(_))
    }

    /// Whether a cleaner is to bring it to the core.
    fn is_for_cleaner(self) -> bool {
        matches!(self, Purpose::WriteBack | Purpose::Refused)
    }
}

/// One part of a record to be formed.
#[derive(Clone, Copy)]
pub struct Intake<'a> {
    pub run: BlockRun,
    pub purpose: Purpose,
    /// Whole blocks; empty for tombstones.
    pub buffers: &'a Buffers,
    /// The record is acknowledged as stable.
    pub is_promise: bool,
    pub guard: Option<&'a Rc<Fill>>,
    /// That the blocks are of from then on.
    pub class: ClassId,
}

/// Why an intake cannot go into a record now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// What the caller knew about the blocks no longer holds.
    Spoiled,
    DirtyLimit,
    /// More pieces of lines than the map has extents for, until cleaner and reclaim have ended
    /// some.
    Scattered,
    /// No room in the log until reclaim has made some.
    NoSpace,
}

/// A record that is to be written.
pub struct Formed {
    pub sequence: Sequence,
    pub request: Request,
    pub data: Position,
    pub blocks: u32,
    /// Stable when it is acknowledged.
    pub is_promise: bool,
    /// Of copies by reclaim.
    is_moved: bool,
}

/// How the map publishes what was asked for, or copies.
type Publish = fn(&mut LineMap, SlotIndex, u32) -> u32;

/// Which cache, slice and life the records belong to.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    pub cache: Uuid,
    pub slice: u16,
    pub epoch: Epoch,
    /// Whether the device is told of what class blocks are, and which mark lines have.
    pub keeps_classes: bool,
    /// Whether it may be given parts of blocks.
    pub keeps_parts: bool,
    /// Whether it is told of the order of the flushes.
    pub keeps_order: bool,
    /// Whether it is told which blocks came from clients.
    pub keeps_given: bool,
}

pub struct Log {
    pub map: LineMap,
    pub dirty: DirtyIndex,
    /// Those of the dirty blocks whose parity is not to be trusted since an unclean stop.
    pub replayed: DirtyIndex,
    /// How much is dirty where, while a policy wants to know.
    pub chunks: Option<Chunks>,
    /// Where dirty data is cleaned in flush order.
    epochs: Option<FlushEpochs>,
    pub ring: Ring,
    pub layout: SliceLayout,
    pub eviction: Eviction,
    pub counters: Counters,
    /// Requests by class; `totals` adds them to `counters`.
    pub classes: Box<[ClassStats; CLASSES_MAX]>,
    /// In their order, where there are several.
    pub cores: Vec<CoreStats>,
    /// Promised and damaged; reads fail until they are overwritten.
    pub lost: BTreeSet<CoreBlock>,
    /// Not lost for good, perhaps.
    unreadable: Unreadable,
    /// Lost when the epoch began: what replaced them must outlive the epoch.
    pub lost_at_start: BTreeSet<CoreBlock>,
    /// What is written comes from another cache, which may have read some of it from the core.
    pub is_from_another_cache: bool,
    identity: Identity,
    draft: Draft,
    checksummed: Checksummed,
    /// The tail that new records carry.
    tail: Sequence,
    flush_mark: Sequence,
    /// Newest record with entries, and the mark that the newest record carries.
    newest_data: Sequence,
    carried_mark: Sequence,
    promises: Promises,
    carried_promise: Sequence,
    /// The newest record, or the header in force, carries a mark of the order.
    carries_order: bool,
    noted: Noted,
    /// Up to here the log is stable: the head when the last flush began.
    stable: (SegmentIndex, Position),
    /// Records, by their sequence numbers.
    records: UnderWay,
    voids: Vec<Sequence>,
    fills: Vec<Rc<Fill>>,
    /// Where descriptors, and what is read to be written again, have their memory.
    pub pool: BufferPool,
    dirty_max: u64,
    written_max: u64,
    unclean_extents_max: u64,
    carried: Carried,
    parts: Parts,
    /// Holds new dirt back while there is little room for it.
    pub throttle: Throttle,
    /// Holds what takes extents back while the pool has few.
    pub pool_throttle: Throttle,
    has_opened_segment: bool,
    reach: Reach,
    /// Reclaim drives out what a reader could still want.
    is_crowded: bool,
}

impl Log {
    /// An empty log. Its map has room for `scattered` extents that will be put back into the pool.
    pub fn new(
        identity: Identity,
        layout: SliceLayout,
        ring: Ring,
        next: Sequence,
        tail: Sequence,
        core_blocks: u64,
        scattered: u32,
    ) -> Self {
        let usable_segments = u64::from(layout.segments()) - UNUSABLE_SEGMENTS;
        // At worst each record that reclaim writes costs a block for its descriptor.
        let record = layout.record_blocks_max() as u64;
        let slots = usable_segments * layout.slots_per_segment() * record / (record + 1);
        let usable = slots * USABLE_PERCENT / 100;
        let mark = Sequence(next.0 - 1);
        let (places, line) = (layout.slots(), layout.line_blocks());
        let map = LineMap::new(places, line, scattered, EXTENTS_FOR_RECLAIM, core_blocks);
        let unclean_extents_max = room::unclean_extents_max(slots, &map);
        let eviction = Eviction::new(slots, core_blocks, map.line_blocks());
        let dirty = DirtyIndex::new(core_blocks, u64::from(places), line);
        let replayed = DirtyIndex::without_memory(core_blocks, u64::from(places), line);
        Self {
            map,
            dirty,
            replayed,
            chunks: None,
            epochs: None,
            stable: (ring.head(), ring.position()),
            ring,
            layout,
            eviction,
            counters: Counters::default(),
            classes: Box::new([ClassStats::default(); CLASSES_MAX]),
            cores: Vec::new(),
            lost: BTreeSet::new(),
            unreadable: Unreadable::default(),
            lost_at_start: BTreeSet::new(),
            identity,
            draft: Draft::default(),
            is_from_another_cache: false,
            checksummed: Checksummed::default(),
            tail,
            flush_mark: mark,
            newest_data: mark,
            carried_mark: mark,
            promises: Promises::default(),
            carried_promise: Sequence(0),
            carries_order: false,
            noted: Noted::default(),
            records: UnderWay::new(next.0),
            voids: Vec::new(),
            fills: Vec::new(),
            pool: BufferPool::new(&PoolConfig::none()),
            dirty_max: usable,
            written_max: usable / 16,
            unclean_extents_max,
            carried: Carried::default(),
            parts: Parts::default(),
            throttle: Throttle::default(),
            pool_throttle: Throttle::default(),
            has_opened_segment: false,
            reach: Reach::default(),
            is_crowded: false,
        }
    }

    pub fn next(&self) -> Sequence {
        Sequence(self.records.next())
    }

    /// The first record of the segment that a slot lies in.
    pub fn first_at(&self, slot: SlotIndex) -> Sequence {
        self.ring.first_record(self.layout.segment_of_slot(slot))
    }

    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Whether a segment was opened since this was asked last: time to look after reclaim.
    pub fn take_opened(&mut self) -> bool {
        std::mem::take(&mut self.has_opened_segment)
    }

    /// Whether new data finds no segment.
    pub fn is_out_of_space(&self) -> bool {
        self.ring.free() <= RESERVE_FOR_CLIENTS
    }

    pub fn epoch(&self) -> Epoch {
        self.identity.epoch
    }

    pub fn in_flight(&self) -> u32 {
        self.records.count()
    }

    /// Drops the mappings of a run from memory only: for a cache that will not be opened again.
    pub fn forget(&mut self, run: BlockRun) {
        self.unmap(run);
    }

    /// Whether a place is between the tail and the head.
    pub(crate) fn is_behind_head(&self, slot: SlotIndex, unit: u8) -> bool {
        let start = self.layout.position_of(slot, unit).0;
        let is_after_tail = start >= self.layout.segment_start(self.ring.tail()).0;
        let is_before_head = start + self.layout.units_per_block() <= self.ring.position().0;
        match self.ring.tail() <= self.ring.head() {
            true => is_after_tail && is_before_head,
            // Round the end.
            false => is_after_tail || is_before_head,
        }
    }

    /// Whether an intake may go into a record, as far as its blocks are concerned.
    ///
    /// # Errors
    /// Why not.
    pub fn admit(&self, intake: &Intake, survey: Survey) -> Result<(), Refusal> {
        let forgives = match intake.purpose {
            Purpose::ReadInsert => defect!(InsertStaleRead),
            _ => defect!(MergeWithOldBlock),
        };
        if intake.guard.is_some_and(|guard| guard.is_spoiled()) && !forgives {
            return Err(Refusal::Spoiled);
        }
        let is_scattered = self.is_too_scattered(intake);
        match intake.purpose {
            Purpose::ReadInsert if is_scattered => Err(Refusal::Spoiled),
            _ if is_scattered => Err(Refusal::Scattered),
            Purpose::WriteBack | Purpose::Part(_) => {
                let new = intake.run.count - survey.dirty;
                let has_room = new <= self.dirty_room() && self.throttle.allows_beside(0);
                if new == 0 || has_room { Ok(()) } else { Err(Refusal::DirtyLimit) }
            }
            // Lost is not healed by what the core has: it is older.
            Purpose::ReadInsert if survey.mapped > 0 || self.is_lost_in(intake.run) => {
                Err(Refusal::Spoiled)
            }
            Purpose::Tombstone { over_dirty: false } if survey.unsafe_at_core > 0 => {
                Err(Refusal::Spoiled)
            }
            _ => Ok(()),
        }
    }

    /// Forms one record of all intakes, which were admitted and fit together (`fits`).
    ///
    /// # Errors
    /// `NoSpace` or `Scattered`; nothing was changed.
    pub fn form(&mut self, intakes: &[Intake]) -> Result<Formed, Refusal> {
        let (mut blocks, mut is_promise, mut reserve) = (0, false, RESERVE_FOR_TOMBSTONES);
        if !self.has_extents_for(intakes) {
            return Err(Refusal::Scattered);
        }
        self.draft.clear();
        for intake in intakes {
            let kind = self.kind_of(intake);
            let count = u32::try_from(intake.run.count).expect("fits a record");
            let class = self.kept_class(intake.class);
            let entry = Entry { first: intake.run.first, count, kind, birth: None, class };
            assert!(self.draft.push_entry(entry), "record outgrows its descriptor");
            if kind.carries_data() {
                blocks += count;
                reserve = RESERVE_FOR_CLIENTS;
            }
            is_promise |= intake.is_promise;
        }
        let descriptor_units = self.take_room(self.descriptor_units(blocks), blocks, reserve)?;
        self.prefetch_residents(intakes);
        for intake in intakes.iter().filter(|intake| !intake.buffers.is_empty()) {
            self.checksummed.push(intake.buffers, &mut self.draft.checksums);
        }
        let (data, dirty) = (Position(self.ring.position().0 + descriptor_units), self.dirty_now());
        self.eviction.copies.note_entered(blocks);
        let mut index = 0;
        for intake in intakes {
            self.map_on_account(intake, data, &mut index);
        }
        self.throttle.spend(self.dirty_now().saturating_sub(dirty));
        let parts = intakes.iter().map(|intake| intake.buffers);
        let formed = self.seal_off(data, blocks, is_promise, parts);
        if is_promise {
            self.end_epoch();
        }
        Ok(formed)
    }

    /// The record has been written, or not.
    pub fn complete(&mut self, formed: &Formed, is_written: bool) {
        let (slot, _) = self.layout.slot_at(formed.data);
        match is_written {
            true if formed.is_moved => self.publish(slot, formed.blocks, LineMap::publish_moved),
            true => {
                self.keep_superseded(slot, formed.blocks);
                self.publish(slot, formed.blocks, LineMap::publish);
            }
            false => self.map.remove(slot, formed.blocks),
        }
        self.note_ended();
        if !is_written {
            self.voids.push(formed.sequence);
        } else if formed.is_promise {
            self.promises.add(formed.sequence);
        }
        self.records.end(formed.sequence.0);
    }

    fn publish(&mut self, slot: SlotIndex, blocks: u32, publish: Publish) {
        if self.lost.is_empty() {
            publish(&mut self.map, slot, blocks);
            return self.note_published();
        }
        for slot in (slot.0..slot.0 + blocks).map(SlotIndex) {
            if publish(&mut self.map, slot, 1) > 0 {
                let block = self.map.version(slot).block;
                self.lost.remove(&block);
            }
        }
        self.note_published();
    }

    /// Whether one more intake fits a record that holds `entries` and `blocks` already.
    pub fn fits(&self, entries: usize, blocks: u64, intake: &Intake) -> bool {
        let adds = if intake.buffers.is_empty() { 0 } else { intake.run.count };
        (entries + 1) * 8 <= record::ENTRY_BYTES_MAX
            && blocks + adds <= self.layout.record_blocks_max() as u64
    }

    fn kind_of(&self, intake: &Intake) -> EntryKind {
        match intake.purpose {
            Purpose::WriteBack | Purpose::Refused => EntryKind::Dirty,
            Purpose::ReadInsert => EntryKind::ReadInsert,
            Purpose::Tombstone { .. } => EntryKind::Tombstone,
            Purpose::Part(sectors) => EntryKind::Part(sectors),
            // Over a block that the core lacks the new version may be all there is after a cut.
            Purpose::WriteThrough
                if self.is_any_unsafe_at_core(intake.run)
                    && !defect!(WriteThroughOverDirtyIsNotDirty) =>
            {
                EntryKind::Dirty
            }
            Purpose::WriteThrough => EntryKind::WrittenThrough,
        }
    }

    /// Units of the descriptor that is being drafted, with so many data blocks.
    fn descriptor_units(&self, blocks: u32) -> u64 {
        self.layout.units_for(self.draft.encoded_bytes(blocks as usize) as u64)
    }

    /// Opens a segment where the record does not fit the head; answers the descriptor's units.
    fn take_room(&mut self, units: u64, blocks: u32, reserve: u32) -> Result<u64, Refusal> {
        // A segment that was opened from the reserve is not for those who may not touch the
        // reserve.
        if self.ring.free() < reserve {
            return Err(Refusal::NoSpace);
        }
        if self.ring.room() < units + u64::from(blocks) * self.layout.units_per_block() {
            // Copies leave the last of what may be opened to the records that announce a tail.
            let spare = if blocks > 0 { reserve.max(1) } else { reserve };
            if self.ring.free() <= reserve || !self.reach.allows(spare) {
                return Err(Refusal::NoSpace);
            }
            self.reach.opened += 1;
            self.ring.open_next(&self.layout, self.next());
            self.eviction.copies.renew(self.blocks_read());
            self.has_opened_segment = true;
        }
        Ok(units)
    }

    /// Writes the descriptor, moves the head on and makes the device write.
    fn seal_off<'a>(
        &mut self,
        data: Position,
        blocks: u32,
        is_promise: bool,
        parts: impl Iterator<Item = &'a Buffers>,
    ) -> Formed {
        let sequence = self.next();
        let is_behind_an_end = self.take_end();
        let header = record::Header { is_behind_an_end, ..self.header(sequence) };
        self.carries_order = header.order.is_some();
        let units = data.0 - header.position.0;
        let descriptor_bytes = (units * self.layout.unit_bytes()) as usize;
        let descriptor = self.pool.take(descriptor_bytes);
        // SAFETY: no other handle to it has been made yet.
        self.draft.encode(&header, unsafe { descriptor.as_mut_slice() });
        let mut buffers = Buffers::from(descriptor);
        parts.for_each(|part| buffers.extend(part));
        let len = descriptor_bytes as u64 + u64::from(blocks) * BLOCK_BYTES;
        assert_eq!(buffers.len_bytes() as u64, len, "a record has its data");
        let range = self.layout.range_at(header.position, len);
        let flags = if is_promise { RequestFlags::FUA } else { RequestFlags::empty() };
        let request = Request::write(range.start(), buffers).with_flags(flags);
        self.account(len, descriptor_bytes as u64, sequence);
        self.ring.advance(units + u64::from(blocks) * self.layout.units_per_block());
        self.draft.advance();
        Formed { sequence, request, data, blocks, is_promise, is_moved: false }
    }

    fn account(&mut self, len: u64, descriptor_bytes: u64, sequence: Sequence) {
        self.counters.records += 1;
        self.counters.log_bytes += len;
        self.counters.descriptor_bytes += descriptor_bytes;
        match self.draft.is_empty() {
            true => self.counters.traffic.cache.written_marks += descriptor_bytes,
            false => {
                let used = self.draft.encoded_bytes(self.draft.checksums.len()) as u64;
                self.counters.traffic.cache.written_padding += descriptor_bytes - used;
                self.newest_data = sequence;
            }
        }
        self.carried_mark = self.flush_mark;
        self.carried_promise = self.promises.newest();
        let number = self.records.begin();
        debug_assert_eq!(number, sequence.0, "records are formed one by one");
    }

    fn header(&self, sequence: Sequence) -> record::Header {
        record::Header {
            cache: self.identity.cache,
            slice: self.identity.slice,
            epoch: self.identity.epoch,
            sequence,
            tail: self.tail,
            flush_mark: self.flush_mark,
            position: self.ring.position(),
            promises: self.promises,
            is_behind_an_end: false,
            order: self.order_mark(),
        }
    }
}
