//! Reclaim: frees the oldest segments of the log, copying dirty and resident data forward.
//!
//! 1. Copy dirty and resident blocks from the oldest segment to the head; 2. flush the log: the
//!    copies are stable; 3. write a record with a tail after the segment, and flush again: now
//!    nothing in it can reappear; 4. drop its remaining mappings; 5. with `discard`, discard the
//!    segment on the device; 6. reuse it.
//!
//! **Invariants**
//! - When a segment is freed, no dirty data is mapped in it.
//! - Until then its clean blocks stay mapped, so that a write past the cache invalidates them with
//!   a tombstone.
//!
//! **Not here**: which lines are resident (`eviction`).

mod births;
mod thinning;

pub(crate) use thinning::Thinning;

use crate::engine::{CacheError, Engine, TombstoneOutcome};
use crate::format::record::ENTRY_BYTES_MAX;
use crate::line_map::{Marks, State, Version};
use crate::log::{Formed, Log, RESERVE_FOR_CLIENTS, Refusal, Reinsertion};
use crate::stats::CacheRead;
use crate::types::{CoreBlock, SegmentIndex, SlotIndex};
use births::Births;
use headpond_block::{
    BLOCK_BYTES, Buffer, Buffers, ByteRange, Cause, DeviceError, Request, defect,
};
use std::rc::Rc;
use std::time::Duration;

/// Most segments between two pairs of flushes.
const SEGMENTS_PER_ROUND: u32 = 4;
/// After a device error.
const BACK_OFF: Duration = Duration::from_millis(200);
/// How often, and after which time, it is looked whether the cleaner has cleaned a segment.
const CLEANING_POLLS_MAX: u32 = 20;
const CLEANING_POLL: Duration = Duration::from_millis(20);
/// Looks in a row that saw nothing cleaned, after which what has its order is carried on without.
const POLLS_IN_ORDER_MAX: u32 = 250;
/// Failures in a row after which those who wait for space go past the cache.
const FAILURES_MAX: u32 = 25;
/// Copies of one record: each may need an entry with a birth.
const COPIES_PER_RECORD: usize = ENTRY_BYTES_MAX / 16;

impl Log {
    /// Whether reclaim should work: early while it is cheap, late where it must copy much.
    pub(crate) fn wants_reclaim(&self) -> bool {
        let needed = RESERVE_FOR_CLIENTS + 2;
        let (free, used) = (self.ring.free(), self.ring.used());
        used > 1
            && (free < needed
                || free < self.layout.segments() / 8 && self.is_cheap(self.ring.tail())
                || self.is_scattered() && self.does_tail_yield())
    }

    /// Whether less than half of a segment is carried on.
    pub(crate) fn is_cheap(&self, segment: SegmentIndex) -> bool {
        let (copies, _) = self.blocks_to_carry(segment);
        copies < self.layout.slots_per_segment() / 2
    }

    /// Whether the map gains from the end of the oldest segment. Copies lie in a row, and may take
    /// more of the pool than the originals, which mostly lie alone by then.
    fn does_tail_yield(&self) -> bool {
        let tail = self.ring.tail();
        let (copies, others) = self.blocks_to_carry(tail);
        copies <= others && {
            let (kept, places) = (self.keepers(tail), self.layout.places_of(tail));
            self.map.pooled_in(places) > self.map.extents_of_copies(&kept)
        }
    }

    /// Blocks of a segment that are carried on, and that are not.
    fn blocks_to_carry(&self, segment: SegmentIndex) -> (u64, u64) {
        let (mut copies, mut others) = (0, 0);
        let carries_residents = self.carries_residents();
        let places = self.layout.places_of(segment);
        self.map.each_place(places, |_, state, heat| match state {
            State::Dirty | State::Written => copies += 1,
            State::Clean if carries_residents && self.is_worth_a_copy(heat) => copies += 1,
            State::Clean => others += 1,
            State::Free | State::Pending => {}
        });
        (copies, others)
    }

    /// Whether read-inserts would be in the way of writes.
    pub(crate) fn is_scarce(&self) -> bool {
        self.ring.free() <= RESERVE_FOR_CLIENTS
            || !self.has_slack(self.dirty_max() / 16)
            || !self.has_extents(u64::from(self.map.pool().0 / 16))
    }

    /// What has to leave a segment before it can be freed, and what should.
    fn keepers(&self, segment: SegmentIndex) -> Vec<Version> {
        let (carries_residents, mut keepers) = (self.carries_residents(), Vec::new());
        self.map.each_place(self.layout.places_of(segment), |slot, state, heat| {
            if self.is_kept(slot, state, carries_residents && self.is_worth_a_copy(heat)) {
                keepers.push(self.map.version(slot));
            }
        });
        keepers
    }

    fn is_keeper(&self, slot: SlotIndex) -> bool {
        let is_carried =
            || self.is_worth_a_copy(self.map.heat_at(slot)) && self.carries_residents();
        let state = self.map.state(slot);
        self.is_kept(slot, state, state == State::Clean && is_carried())
    }

    #[inline]
    fn is_kept(&self, slot: SlotIndex, state: State, is_carried: bool) -> bool {
        match state {
            State::Dirty | State::Written => true,
            // Of a part the core has everything, and is asked for the rest anyway.
            State::Clean if is_carried && self.is_whole_at(slot) => true,
            // It may replace what was lost.
            State::Clean => {
                let lost = &self.lost_at_start;
                !lost.is_empty() && lost.contains(&self.map.version(slot).block)
            }
            State::Free | State::Pending => false,
        }
    }

    /// Whether most of what the core lacks of a segment is on its way there.
    fn is_leaving(&self, segment: SegmentIndex) -> bool {
        let (mut leaving, mut staying) = (0, 0);
        for slot in self.layout.slots_of(segment) {
            match self.map.state(slot) {
                State::Written => leaving += 1,
                State::Dirty if self.map.marks(slot).contains(Marks::CLEANING) => leaving += 1,
                State::Dirty => staying += 1,
                State::Free | State::Pending | State::Clean => {}
            }
        }
        leaving > staying
    }

    /// Whether all that the core lacks of a segment waits for no more than a flush of the core.
    fn waits_for_flush(&self, segment: SegmentIndex) -> bool {
        let is_waiting = |slot| self.map.state(slot) == State::Dirty;
        !self.layout.slots_of(segment).any(is_waiting)
    }

    fn has_unsafe(&self, segment: SegmentIndex) -> bool {
        let is_unsafe = |slot| matches!(self.map.state(slot), State::Dirty | State::Written);
        self.layout.slots_of(segment).any(is_unsafe)
    }

    /// Drops the clean blocks of the tail segment, which are not looked up from now on.
    fn empty_tail(&mut self) {
        let tail = self.ring.tail();
        let mut dropped = 0;
        for slot in self.layout.slots_of(tail) {
            match self.map.state(slot) {
                State::Free => {}
                State::Clean => dropped += 1,
                other => panic!("reclaim would lose what the core lacks: {slot:?} is {other:?}"),
            }
        }
        if self.has_pending_in_order(tail) {
            self.give_up_order(tail);
        }
        self.note_eviction(dropped);
        self.drop_places(self.layout.places_of(tail));
        if self.may_have_parts() {
            self.forget_ended_parts();
        }
    }

    /// Has the tail segment reused.
    fn free_tail(&mut self) {
        self.ring.free_tail();
        self.counters.segments_reclaimed += 1;
    }
}

impl Engine {
    /// The task of reclaim.
    pub(crate) async fn run_reclaim(self: Rc<Self>) {
        let mut failures = 0;
        while !self.is_stopping.get() {
            let wake = self.reclaim_wanted.wait();
            if !self.is_failed.get() && (self.log.borrow().wants_reclaim() || self.lacks_space()) {
                match self.reclaim_round().await {
                    Ok(()) => failures = 0,
                    Err(error) => {
                        // A checkpoint that is due is no failure of reclaim.
                        failures += u32::from(!self.log.borrow().is_at_reach());
                        self.after_failure(&error, failures).await;
                    }
                }
                self.pump();
                self.runtime.yield_now().await;
                continue;
            }
            wake.await;
        }
    }

    /// Waits before the next try; or gives the cache up, where its device is gone or others have
    /// waited for space long enough.
    async fn after_failure(&self, error: &DeviceError, failures: u32) {
        let is_gone = error.is_gone();
        let is_hopeless = failures >= FAILURES_MAX && self.lacks_space();
        if !(is_gone || is_hopeless) {
            self.runtime.sleep(BACK_OFF).await;
        } else if self.fail().await.is_err() {
            // Not even the core's label can be written: what waits fails with the core.
            self.give_up();
        }
    }

    pub(crate) fn lacks_space(&self) -> bool {
        self.queue.len() > 0 && self.log.borrow().is_out_of_space()
    }

    /// Frees some of the oldest segments.
    async fn reclaim_round(self: &Rc<Self>) -> Result<(), DeviceError> {
        let mut victims = 0;
        while victims < SEGMENTS_PER_ROUND {
            let victim = {
                let log = self.log.borrow();
                let ring = &log.ring;
                if victims + 1 >= ring.used() || victims > 0 && ring.free() <= 2 {
                    break;
                }
                let victim = SegmentIndex((ring.tail().0 + victims) % log.layout.segments());
                // What has been emptied is freed before the next one is waited for.
                if victims > 0 && (log.has_pending_in_order(victim) || self.is_on_its_way(victim)) {
                    break;
                }
                victim
            };
            self.settle_segment(victim).await;
            if !self.wait_for_order(victim).await {
                break;
            }
            match self.empty(victim).await {
                Ok(()) => victims += 1,
                Err(error) if victims == 0 => return Err(error),
                Err(_) => break,
            }
        }
        if victims == 0 {
            return Ok(());
        }
        if !defect!(ReuseBeforeCopiesAreStable) {
            self.flush_log().await?;
        }
        if !defect!(ReuseBeforeTailMoves) {
            self.announce(victims).await?;
        }
        for _ in 0..victims {
            let tail = self.log.borrow().ring.tail();
            while self.log.borrow().ring.is_pinned(tail) {
                self.segments_unpinned.wait().await;
            }
            self.log.borrow_mut().empty_tail();
            self.discard_segment(tail).await;
            self.log.borrow_mut().free_tail();
            self.pump();
        }
        Ok(())
    }

    /// Tells the device that it need not keep a segment that is empty, where that is wanted.
    /// Nothing depends on it: a device that refuses is left alone until something is set, and who
    /// waits for room waits for no discard.
    async fn discard_segment(&self, segment: SegmentIndex) {
        let is_wanted = self.config.borrow().discard && !self.lends;
        if !is_wanted || self.discard_refused.get() || self.lacks_space() {
            return;
        }
        let range = self.log.borrow().layout.segment_range(segment);
        let outcome = self.cache.submit(Request::discard(range)).await;
        let counters = &mut self.log.borrow_mut().counters;
        counters.traffic.cache.discarded += range.len();
        if outcome.is_err() {
            counters.errors.cache_discard += 1;
            self.discard_refused.set(true);
        }
    }

    /// Carries everything out of a segment that must not be lost with it.
    async fn empty(self: &Rc<Self>, victim: SegmentIndex) -> Result<(), DeviceError> {
        self.wait_for_cleaning(victim).await;
        let keepers = self.log.borrow().keepers(victim);
        if !keepers.is_empty() {
            self.reinsert(victim, &keepers).await?;
        }
        // What was superseded by a record on its way is safe once that is written.
        while self.log.borrow().has_unsafe(victim) {
            self.settle().await;
            let left = self.log.borrow().keepers(victim);
            if !left.is_empty() {
                self.reinsert(victim, &left).await?;
            }
        }
        Ok(())
    }

    /// What goes to the core in the order of the flushes keeps its place in the log until then: a
    /// copy would come later. Where that cannot be read, or the cleaner gets nowhere, the order
    /// ends instead: the cleaner may wait for somebody who waits for the space. What is kept in the
    /// segment goes with it, and what is dirty is carried on. `false` where the slice stops
    /// meanwhile: the order outlives that.
    async fn wait_for_order(&self, segment: SegmentIndex) -> bool {
        let written = || {
            let log = self.log.borrow();
            // Before anything is cleaned in order, parity is settled.
            (log.counters.cleaned_blocks, log.map.counts().replayed)
        };
        let (mut before, mut polls) = (written(), 0);
        while self.log.borrow().has_pending_in_order(segment) && !self.is_stopping.get() {
            let is_passed = self.cleaning.is_at_rest() && self.log.borrow().is_passed(segment);
            if is_passed || polls >= POLLS_IN_ORDER_MAX {
                self.log.borrow_mut().give_up_order(segment);
                break;
            }
            self.cleaning.is_space_wanted.set(true);
            self.cleaning_wanted.notify_all();
            self.runtime.sleep(CLEANING_POLL).await;
            let has_moved = written() != before && !self.cleaning.is_flush_failing.get();
            polls = if has_moved { 0 } else { polls + 1 };
            before = written();
        }
        self.cleaning.is_space_wanted.set(false);
        !self.log.borrow().has_pending_in_order(segment) || !self.is_stopping.get()
    }

    /// Whether most of what a segment holds is on its way to the core, and would be copied for
    /// nothing; in a packed log also what the core is not asked to take at the moment.
    fn is_on_its_way(&self, segment: SegmentIndex) -> bool {
        let log = self.log.borrow();
        log.is_leaving(segment) || log.is_futile(segment) && self.is_resting()
    }

    /// Writes that find no room wait for nothing of the sort, where copies give some: the core may
    /// stand still for long while it flushes.
    fn awaits_core(&self, segment: SegmentIndex) -> bool {
        self.is_on_its_way(segment) && (!self.lacks_space() || self.log.borrow().is_futile(segment))
    }

    /// Gives the cleaner a moment.
    async fn wait_for_cleaning(self: &Rc<Self>, segment: SegmentIndex) {
        for _ in 0..CLEANING_POLLS_MAX {
            if self.is_stopping.get() || !self.awaits_core(segment) {
                break;
            }
            if self.cleaning.in_flight() == 0 && self.log.borrow().waits_for_flush(segment) {
                // The log has gone round between two flushes, by what was written through; once
                // this one is answered it can do so again. Where it fails, all of that is dirty.
                self.flush_core_for(segment).await;
                break;
            }
            self.runtime.sleep(CLEANING_POLL).await;
        }
    }

    /// Waits for the records of a segment that is no longer the head.
    async fn settle_segment(&self, segment: SegmentIndex) {
        let next = {
            let log = self.log.borrow();
            log.ring.first_record(log.ring.after(segment))
        };
        while self.log.borrow().settled() < next {
            self.records_done.wait().await;
        }
    }

    /// Copies blocks of a segment to the head of the log.
    async fn reinsert(
        self: &Rc<Self>,
        victim: SegmentIndex,
        keepers: &[Version],
    ) -> Result<(), DeviceError> {
        let data = self.read_segment(victim).await?;
        let births = self.births(victim, &data);
        let mut left = keepers;
        while !left.is_empty() {
            let most = COPIES_PER_RECORD.min(self.log.borrow().copies_that_fit());
            let (group, rest) = left.split_at(most.min(left.len()));
            let mut copies = Vec::with_capacity(group.len());
            for version in group {
                copies.push(self.copy_of(version, victim, &data, &births).await);
            }
            if !self.append_copies(copies).await? {
                return self.end_in_place(left).await;
            }
            left = rest;
        }
        Ok(())
    }

    /// The copy of a block. A damaged one is carried on as it is, with the checksum that says so:
    /// until it is written again it answers with errors, wherever it lies, and the log goes on.
    async fn copy_of(
        &self,
        version: &Version,
        victim: SegmentIndex,
        data: &Buffer,
        births: &Births,
    ) -> Reinsertion {
        let (slot, birth) = (version.slot, births.get(&version.slot).copied());
        if let Some(data) = self.log.borrow().data_of_part(version) {
            return Reinsertion { slot, birth, data };
        }
        let (place, offset) = {
            let layout = &self.log.borrow().layout;
            let position = layout.position_of(version.slot, version.unit);
            let start = layout.segment_start(victim).0;
            (layout.range_at(position, BLOCK_BYTES), (position.0 - start) * layout.unit_bytes())
        };
        let start = offset as usize;
        let block = match version.is_payload_free() {
            true => Buffer::payload_free(BLOCK_BYTES as usize),
            false => data.slice(start..start + BLOCK_BYTES as usize),
        };
        let mut data = Buffers::from(block);
        if !self.trusts_cache() && self.check(place.start(), version, &data).is_err() {
            // Perhaps only the way from the device was bad.
            let again = Buffers::from(Buffer::zeroed(BLOCK_BYTES as usize));
            let request = Request::read(place.start(), again.clone());
            let read = self.read_cache(CacheRead::Reclaim, request).await;
            let is_sound = read.is_ok() && self.check(place.start(), version, &again).is_ok();
            if is_sound || self.read_right(CacheRead::Reclaim, place.start(), version, &again).await
            {
                data = again;
            }
        }
        Reinsertion { slot, birth, data }
    }

    /// Writes copies to the head of the log; `false`, and nothing has happened, where the map has
    /// no extents for them.
    async fn append_copies(
        self: &Rc<Self>,
        mut copies: Vec<Reinsertion>,
    ) -> Result<bool, DeviceError> {
        let formed = match self.form_copies(&mut copies).await {
            Ok(Some(formed)) => formed,
            Ok(None) => return Ok(true),
            Err(Refusal::Scattered) => return Ok(false),
            Err(refusal) => {
                assert_eq!(refusal, Refusal::NoSpace);
                return Err(DeviceError::new(self.cache.name(), Cause::NoSpace));
            }
        };
        let suspect_parity = self.cleaning.suspect_parity.get();
        let outcome = self.cache.submit(formed.request.clone()).await;
        self.settle_record(&formed, &outcome);
        self.remember_copies(&formed, suspect_parity);
        outcome.map(|()| true)
    }

    /// A record of copies; where the map has no extents for them, thinning is given a moment.
    async fn form_copies(&self, copies: &mut Vec<Reinsertion>) -> Result<Option<Formed>, Refusal> {
        for _ in 0..CLEANING_POLLS_MAX {
            let is_coming = !self.written.borrow().is_empty() || self.thinning.is_at_work();
            let may_wait = is_coming && !self.lacks_space() && !self.is_stopping.get();
            match self.log.borrow_mut().form_reinsertion(copies) {
                Err(Refusal::Scattered) if may_wait => {}
                formed => return formed,
            }
            self.runtime.sleep(CLEANING_POLL).await;
            // What has become clean meanwhile need not be carried on.
            let log = self.log.borrow();
            copies.retain(|copy| log.is_keeper(copy.slot));
        }
        Err(Refusal::Scattered)
    }

    /// The map has no extents for copies of these, which would lie more scattered than the blocks
    /// do now. So what the core lacks of them is cleaned, whatever the policy, all in one sweep,
    /// and the rest is dropped.
    async fn end_in_place(self: &Rc<Self>, keepers: &[Version]) -> Result<(), DeviceError> {
        let (dirty, graves) = {
            let log = self.log.borrow();
            let versions = || keepers.iter().map(|keeper| log.map.version(keeper.slot));
            let in_state = |state| versions().filter(move |version| version.state == state);
            let mut dirty: Vec<CoreBlock> = in_state(State::Dirty).map(|it| it.block).collect();
            dirty.sort_unstable();
            let clean = in_state(State::Clean).map(|version| version.block);
            let graves = clean.filter(|block| log.lost_at_start.contains(block));
            (dirty, graves.collect::<Vec<_>>())
        };
        self.clean_in_place(&dirty).await?;
        // What replaced a block that was lost when the epoch began is replaced by a tombstone.
        match self.write_tombstones(&graves, false).await {
            TombstoneOutcome::Failed(error) => Err(error),
            TombstoneOutcome::Done | TombstoneOutcome::Spoiled => Ok(()),
        }
    }

    async fn read_segment(&self, segment: SegmentIndex) -> Result<Buffer, DeviceError> {
        let range = self.log.borrow().layout.segment_range(segment);
        if self.lends
            && let Some(lent) = self.cache.lend(range)
        {
            self.count_lent(range.len());
            return Ok(lent);
        }
        let data = self.take_memory(range.len() as usize);
        match self.read_cache(CacheRead::Reclaim, Request::read(range.start(), &data)).await {
            Ok(()) => Ok(data),
            Err(error) if error.is_gone() => Err(error),
            Err(error) => {
                self.note_cache_error(CacheError::Read(&error), None);
                self.read_block_by_block(range, &data).await;
                Ok(data)
            }
        }
    }

    /// Reads what can be read. In place of the rest stand zeros, which no checksum takes for data.
    async fn read_block_by_block(&self, range: ByteRange, data: &Buffer) {
        for place in range.split_at_multiples(BLOCK_BYTES) {
            let start = (place.start() - range.start()) as usize;
            let block = data.slice(start..start + place.len() as usize);
            let request = Request::read(place.start(), block.clone());
            if self.read_cache(CacheRead::Reclaim, request).await.is_err() {
                block.fill(0);
            }
        }
    }

    /// Puts a tail behind the oldest segments into the log, stable.
    async fn announce(self: &Rc<Self>, victims: u32) -> Result<(), DeviceError> {
        {
            let mut log = self.log.borrow_mut();
            let oldest = SegmentIndex((log.ring.tail().0 + victims) % log.layout.segments());
            let tail = log.ring.first_record(oldest);
            log.announce_tail(tail);
        }
        self.renew_graves().await;
        if !self.append_seal().await {
            return Err(DeviceError::new(self.cache.name(), Cause::NoSpace));
        }
        match defect!(ReuseBeforeCopiesAreStable) {
            true => Ok(()),
            false => self.flush_log().await,
        }
    }

    /// Blocks that were lost when the epoch began, and were discarded since, need their tombstones
    /// as long as the epoch lasts.
    async fn renew_graves(self: &Rc<Self>) {
        let graves: Vec<CoreBlock> = {
            let log = self.log.borrow();
            let is_grave =
                |block: &&CoreBlock| !log.lost.contains(block) && log.map.newest(**block).is_none();
            log.lost_at_start.iter().filter(is_grave).copied().collect()
        };
        if !graves.is_empty() {
            self.write_tombstones(&graves, false).await;
        }
    }
}
