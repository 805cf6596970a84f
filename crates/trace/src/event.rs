//! One event of the kernel's block tracer, common to the binary and the text form.
//!
//! **Not here**: how events are read (`blktrace/`, `blkparse.rs`) and how they become requests
//! (`pair.rs`).
//!
//! **Source**: Linux `include/uapi/linux/blktrace_api.h` for the numbers.

use crate::damage::DamageCounts;
use crate::error::TraceError;
use crate::names::Names;
use crate::order::Timed;
use crate::record::{Op, RecordFlags};

/// Bytes in the kernel's sector.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// The largest displacement of an event that is corrected.
pub(crate) const WINDOW_EVENTS: usize = 64;

/// The error number of a request refused with "try again" (REQ_NOWAIT).
const TRY_AGAIN: u16 = 11;

/// What happened to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    Queue,
    BackMerge,
    FrontMerge,
    Requeue,
    Issue,
    Complete,
    Split,
    Remap,
    Abort,
    /// Plugging, allocation, sleeping, insertion: nothing that changes what is known of a request.
    #[default]
    Other,
}

bitflags::bitflags! {
    /// The tracer's categories of an event (`BLK_TC_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Category: u32 {
        const READ = 1 << 0;
        const WRITE = 1 << 1;
        const FLUSH = 1 << 2;
        const SYNC = 1 << 3;
        const QUEUE = 1 << 4;
        const REQUEUE = 1 << 5;
        const ISSUE = 1 << 6;
        const COMPLETE = 1 << 7;
        const FILE_SYSTEM = 1 << 8;
        /// A command sent to the drive past the block layer.
        const PASSTHROUGH = 1 << 9;
        const NOTIFY = 1 << 10;
        const AHEAD = 1 << 11;
        const META = 1 << 12;
        const DISCARD = 1 << 13;
        const DRIVER_DATA = 1 << 14;
        const FUA = 1 << 15;
        /// Any of the zone commands that version 8 added (bits 17 to 21).
        const ZONE_COMMANDS = 0b1_1111 << 17;
        const WRITE_ZEROES = 1 << 22;
    }
}

/// One event. `device` is `major << 20 | minor`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockEvent {
    pub time_ns: u64,
    pub sector: u64,
    pub bytes: u32,
    pub pid: u32,
    pub device: u32,
    pub cpu: u32,
    pub category: Category,
    pub action: Action,
    /// Error number of a completion, positive; 0 = success.
    pub error: u16,
}

impl Timed for BlockEvent {
    #[inline]
    fn time_ns(&self) -> u64 {
        self.time_ns
    }
}

impl BlockEvent {
    /// What the request asks for, or `None` for events that concern no data request (zone and drive
    /// commands).
    pub(crate) fn op(&self) -> Option<Op> {
        let category = self.category;
        if category.intersects(Category::PASSTHROUGH | Category::ZONE_COMMANDS) {
            return None;
        }
        if category.contains(Category::DISCARD) {
            return Some(Op::Discard);
        }
        if category.contains(Category::WRITE_ZEROES) {
            return Some(Op::WriteZeroes);
        }
        if self.bytes == 0 {
            return category.contains(Category::FLUSH).then_some(Op::Flush);
        }
        if category.contains(Category::WRITE) {
            return Some(Op::Write);
        }
        category.contains(Category::READ).then_some(Op::Read)
    }

    pub(crate) fn flags(&self) -> RecordFlags {
        const PAIRS: [(Category, RecordFlags); 4] = [
            (Category::FUA, RecordFlags::FUA),
            (Category::SYNC, RecordFlags::SYNC),
            (Category::META, RecordFlags::METADATA),
            (Category::AHEAD, RecordFlags::READAHEAD),
        ];
        let mut flags = RecordFlags::empty();
        for (category, flag) in PAIRS {
            flags.set(flag, self.category.contains(category));
        }
        let preflush = self.bytes > 0 && self.category.contains(Category::FLUSH);
        flags.set(RecordFlags::PREFLUSH, preflush);
        flags
    }

    /// First byte after the request, or `None` when the range leaves what 64 bits can address.
    pub(crate) fn end_bytes(&self) -> Option<u64> {
        self.sector.checked_mul(SECTOR_BYTES)?.checked_add(u64::from(self.bytes))
    }

    /// Whether a request that it tells of can exist.
    #[inline]
    pub(crate) fn is_possible(&self) -> bool {
        self.end_bytes().is_some() || self.action == Action::Other || self.op().is_none()
    }

    pub(crate) fn outcome(&self) -> RecordFlags {
        match self.error {
            0 => RecordFlags::empty(),
            TRY_AGAIN => RecordFlags::FAILED | RecordFlags::RETRIED,
            _ => RecordFlags::FAILED,
        }
    }
}

/// How many events or records are handed on in one go.
pub(crate) const BATCH: usize = 128;

/// A stream of events in the order of their times, as far as its window reaches.
pub(crate) trait EventSource: Send {
    /// The next event; names met on the way go to `names`.
    fn next_event(&mut self, names: &mut Names) -> Result<Option<BlockEvent>, TraceError>;

    /// Adds the next events to `batch`, up to [`BATCH`] together, and says whether more may come. A
    /// call for each event would copy it several times.
    ///
    /// # Errors
    /// As `next_event`; `batch` holds what came before.
    fn fill(&mut self, names: &mut Names, batch: &mut Vec<BlockEvent>) -> Result<bool, TraceError> {
        while batch.len() < BATCH {
            match self.next_event(names)? {
                Some(event) => batch.push(event),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Takes what was counted since the last call.
    fn take_losses(&mut self) -> EventLosses;
}

/// What a source of events had to leave out or could not put in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventLosses {
    pub events: u64,
    pub damage: DamageCounts,
    pub out_of_order: u64,
}

impl EventLosses {
    pub(crate) fn add(&mut self, other: EventLosses) {
        self.events += other.events;
        self.damage.add(other.damage);
        self.out_of_order += other.out_of_order;
    }
}
