//! Space for dirty data and for fragmented lines, and which writes may use it.
//!
//! **Not here**: space in the log itself (`ring`), which reclaim frees.

use super::{EXTENTS_FOR_RECLAIM, Intake, Log, Purpose, Refusal};
use crate::line_map::LineMap;
use crate::types::{BlockRun, Position, SegmentIndex};
use headpond_block::Instant;
use std::time::Duration;

/// Reclaim has one part of so many of the pool to itself.
const POOL_PARTS_FOR_RECLAIM: u32 = 32;
/// Of the extents that a log and its pool have, so many of a hundred may hold what the core lacks.
/// What is carried on takes from the pool, as do the blocks that are clean and not yet dropped.
/// With lines of four blocks in 320 MiB and 90 % one second went at half the mean.
const UNCLEAN_PERCENT: u64 = 80;
/// With lines of two blocks half of what is dirty is carried on while the log goes round: with 75
/// and 88 % the pool was used up within a minute.
const UNCLEAN_PERCENT_OF_PAIRS: u64 = 65;

/// Extents of a pool, and of those that are free in it, that new data may take. What is left for
/// reclaim is more than a record of copies takes: now and then the originals give back fewer than
/// that.
pub(super) fn for_data((pool, free): (u32, u32)) -> u64 {
    u64::from(free.saturating_sub(EXTENTS_FOR_RECLAIM.max(pool / POOL_PARTS_FOR_RECLAIM)))
}

/// How many extents may hold what the core lacks, in a log of so many slots, where extents can be
/// used up: reclaim can carry no more on than the pool has extents for. Records of one block leave
/// half of the log to descriptors, and with lines of two blocks take nothing from the pool: the log
/// is full before it.
pub(super) fn unclean_extents_max(slots: u64, map: &LineMap) -> u64 {
    let percent = match map.line_blocks() {
        1 => return u64::MAX,
        2 => UNCLEAN_PERCENT_OF_PAIRS,
        _ => UNCLEAN_PERCENT,
    };
    (slots / map.line_blocks() + for_data(map.pool())) * percent / 100
}

impl Log {
    pub fn dirty_max(&self) -> u64 {
        self.dirty_max
    }

    /// Dirty blocks, those on their way to the log included.
    pub fn dirty_now(&self) -> u64 {
        let counts = self.map.counts();
        counts.dirty + counts.pending_dirty
    }

    /// Blocks that may become dirty beside those that are.
    pub fn dirty_room(&self) -> u64 {
        let (dirty, written) = (self.dirty_now(), self.map.counts().written);
        let most = self.dirty_max.min((self.dirty_max + self.written_max).saturating_sub(written));
        let room = most.saturating_sub(dirty);
        room.min(self.unclean_extents_max.saturating_sub(self.map.unclean_extents()))
    }

    /// Gives out what the time since has made of the room.
    pub fn advance_throttles(&mut self, now: Instant) {
        let (room, most) = (self.dirty_room(), self.dirty_max);
        self.throttle.advance(now, room, most, self.unclean_extents_max);
        let (room, (pool, _)) = (self.pool_room(), self.map.pool());
        self.pool_throttle.advance(now, room, u64::from(pool), u64::MAX);
    }

    /// Somebody found no room of this kind: from now on the clock gives it out.
    pub fn engage_throttle(&mut self, refusal: Refusal, now: Instant) {
        match refusal {
            Refusal::DirtyLimit => self.throttle.engage(now),
            Refusal::Scattered => self.pool_throttle.engage(now),
            Refusal::NoSpace | Refusal::Spoiled => {}
        }
    }

    /// When a waiting write may be admitted, where it depends on time only.
    pub fn throttle_wait(&self) -> Option<Duration> {
        let dirty_data = self.throttle.wait(self.dirty_room());
        let extents = self.pool_throttle.wait(self.pool_room());
        dirty_data.into_iter().chain(extents).min()
    }

    /// Whether so many blocks more may become dirty, once the core has flushed what it has.
    pub fn has_slack(&self, blocks: u64) -> bool {
        let extents = self.map.unclean_extents().saturating_sub(self.map.counts().written);
        self.dirty_now() + blocks <= self.dirty_max && extents + blocks <= self.unclean_extents_max
    }

    /// Whether so many scattered blocks may become dirty once the core has flushed what it has.
    pub fn has_room_after_flush(&self, blocks: u64) -> bool {
        let extents = self.pool_room() + self.map.counts().written;
        self.has_slack(blocks) && (!self.map.has_pool() || extents >= blocks)
    }

    /// Whether to carry a segment on gives no room: the core lacks much of it, and almost all that
    /// the log has. What is written back leaves more than a sixteenth; what is written through may
    /// not, between two flushes.
    pub fn is_futile(&self, segment: SegmentIndex) -> bool {
        let must = self.dirty_now() + self.map.counts().written;
        let used = u64::from(self.ring.used()) * self.layout.slots_per_segment();
        must > used / 16 * 15 && !self.is_cheap(segment)
    }

    /// Whether a run may become dirty together with so many blocks of other requests.
    pub fn has_room_beside(&self, blocks: u64, run: BlockRun) -> bool {
        self.has_slack(blocks + run.count) && self.throttle.allows_beside(blocks)
    }

    /// Most extents that an intake takes from the pool.
    pub fn extents_for(&self, intake: &Intake) -> u64 {
        match intake.purpose {
            Purpose::Tombstone { .. } => 0,
            _ => self.map.extents_for(intake.run),
        }
    }

    /// Whether the pool has so many extents for new data. A tombstone wants none, and goes on where
    /// reclaim has taken what was kept for it.
    pub fn has_extents(&self, wanted: u64) -> bool {
        wanted == 0 || self.pool_room() >= wanted
    }

    /// Whether the pool has extents for all of a record.
    pub(super) fn has_extents_for(&self, intakes: &[Intake]) -> bool {
        let wanted = intakes.iter().map(|intake| self.extents_for(intake)).sum();
        let may_take_all = intakes.iter().any(|intake| intake.purpose == Purpose::Refused);
        let (_, free) = self.map.pool();
        if may_take_all { wanted <= u64::from(free) } else { self.has_extents(wanted) }
    }

    /// Whether an intake has to wait for extents. Nobody is held back who gives back as many as he
    /// may take, by what he supersedes.
    pub(super) fn is_too_scattered(&self, intake: &Intake) -> bool {
        let wanted = self.extents_for(intake);
        if intake.purpose == Purpose::Refused {
            return !self.has_extents_for(std::slice::from_ref(intake));
        }
        let is_allowed = wanted == 0
            || self.pool_throttle.allows_beside(0)
            || self.map.extents_within(intake.run) >= wanted;
        !self.has_extents(wanted) || !is_allowed
    }

    /// Maps an intake, and has the throttle of the pool know what it takes from it, less what it
    /// will have given back when it is on the device.
    pub(super) fn map_on_account(&mut self, intake: &Intake, data: Position, index: &mut u64) {
        if !self.pool_throttle.is_engaged() {
            return self.map_intake(intake, data, index);
        }
        let (given, (_, free)) = (self.map.extents_within(intake.run), self.map.pool());
        self.map_intake(intake, data, index);
        let (_, left) = self.map.pool();
        let taken = u64::from(free.saturating_sub(left));
        self.pool_throttle.spend(taken.saturating_sub(given));
    }

    /// Extents of the pool that new data may take.
    pub fn pool_room(&self) -> u64 {
        for_data(self.map.pool())
    }

    /// Whether so many extents may be taken together with those of other requests.
    pub fn has_extents_beside(&self, taken: u64, wanted: u64) -> bool {
        wanted == 0 || self.has_extents(taken + wanted) && self.pool_throttle.allows_beside(taken)
    }

    /// Whether little of the pool is left: time to end what is scattered.
    pub fn is_scattered(&self) -> bool {
        let (pool, free) = self.map.pool();
        self.map.has_pool() && free < pool / 4 + EXTENTS_FOR_RECLAIM
    }

    /// How many extents thinning is to give back: all it can while writers wait for them, else
    /// enough that little is left no more.
    pub fn extents_to_give_back(&self) -> usize {
        if self.pool_throttle.is_engaged() {
            return usize::MAX;
        }
        let (pool, free) = self.map.pool();
        (pool / 8 * 3 + EXTENTS_FOR_RECLAIM).saturating_sub(free) as usize
    }

    /// Dirty blocks for whoever decides how hard to clean: as full as the fullest of log, pool and
    /// extents.
    pub fn dirty_pressure(&self) -> u64 {
        let (pool, free) = self.map.pool();
        let dirty = self.dirty_now();
        if dirty == 0 || pool == 0 {
            return dirty;
        }
        let share = |used: u64, of: u64| {
            (u128::from(self.dirty_max) * u128::from(used) / u128::from(of.max(1))) as u64
        };
        let by_pool = share(u64::from(pool - free), u64::from(pool));
        let by_extents = share(self.map.unclean_extents(), self.unclean_extents_max);
        dirty.max(by_pool).max(by_extents)
    }
}
