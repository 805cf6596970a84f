//! The queue of appends before the log.
//!
//! With an idle log a request becomes a record of its own immediately; otherwise it waits here and
//! shares the next record with all that wait.
//!
//! **Invariants**
//! - Every append completes exactly once.
//! - Writes wait for dirty data to shrink in order of arrival, up to a limit.

mod in_flight;

pub(crate) use in_flight::InFlight;

use crate::classes::ClassId;
use crate::cleaning::CleaningPolicy;
use crate::engine::{CacheError, Engine};
use crate::log::{Fill, Formed, Intake, Purpose, Refusal, Survey};
use crate::stats::BypassReason;
use crate::types::BlockRun;
use headpond_block::sync::{Receiver, Sender, oneshot};
use headpond_block::{Buffers, Instant, JoinHandle, Outcome, start};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// Of what may be dirty: with more, how many records are under way says nothing of the device.
const FULL_PERCENT: u64 = 90;
/// Of those who wait so many are passed by for a record: a queue that is long costs each record no
/// more than that.
const PASSED_BY_MAX: usize = 256;
/// Who waits is looked at no more often than that, however short the wait is: who is left then
/// waits for something that takes time.
const EXPIRY_PERIOD_MIN: Duration = Duration::from_millis(1);

/// Something that wants to be in the log.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub run: BlockRun,
    pub purpose: Purpose,
    pub buffers: Buffers,
    pub is_promise: bool,
    pub guard: Option<Rc<Fill>>,
    pub class: ClassId,
}

/// How an append ended.
#[derive(Debug)]
pub(crate) enum AppendOutcome {
    Written,
    /// The cache device refused the write.
    Failed,
    /// What the caller knew about the blocks no longer holds; nothing was written.
    Spoiled,
    /// As much is dirty as may be, or the log has no room, and the wait is over; nothing was
    /// written.
    DirtyLimit,
    /// The map has no extents left for lines in so many pieces, and the wait is over; nothing was
    /// written.
    Scattered,
    /// There is no room, and the cleaner may want the lock that the caller holds; nothing was
    /// written.
    TurnedAway,
}

impl AppendOutcome {
    /// Why what was not written to the log goes past it.
    pub fn reason(&self) -> BypassReason {
        match self {
            AppendOutcome::DirtyLimit => BypassReason::DirtyLimit,
            AppendOutcome::Scattered => BypassReason::Scattered,
            AppendOutcome::Written
            | AppendOutcome::Failed
            | AppendOutcome::Spoiled
            | AppendOutcome::TurnedAway => BypassReason::CacheError,
        }
    }
}

struct WaitingRecord {
    wanted: Wanted,
    since: Instant,
    answer: Sender<AppendOutcome>,
}

/// The appends that wait.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: RefCell<VecDeque<WaitingRecord>>,
    is_timed: Cell<bool>,
    is_throttled: Cell<bool>,
}

impl WaitingRecord {
    /// Whether the request has another way than to wait for room.
    fn may_expire(&self) -> bool {
        let purpose = self.wanted.purpose;
        !matches!(purpose, Purpose::ReadInsert | Purpose::Tombstone { .. })
    }
}

impl WaitingRecord {
    /// Whether the cleaner may be kept waiting by who waits.
    fn holds_lock(&self) -> bool {
        let purpose = self.wanted.purpose;
        let may_hold = matches!(purpose, Purpose::WriteBack | Purpose::Refused | Purpose::Part(_));
        may_hold && self.wanted.guard.is_some()
    }
}

impl Queue {
    pub fn len(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Of whoever is first.
    pub fn first_blocks(&self) -> u64 {
        self.waiting.borrow().front().map_or(0, |first| first.wanted.run.count)
    }

    /// Answers all who wait that there is no log any more.
    pub fn refuse_all(&self) {
        let waiting = self.waiting.take();
        waiting.into_iter().for_each(|waiting| waiting.answer.send(AppendOutcome::Failed));
    }

    /// Answers those who bring data that the log does not take it.
    pub fn refuse_data(&self) {
        let is_data = |waiting: &WaitingRecord| !waiting.wanted.buffers.is_empty();
        let mut waiting = self.waiting.borrow_mut();
        let (refused, kept): (VecDeque<_>, _) = waiting.drain(..).partition(is_data);
        *waiting = kept;
        drop(waiting);
        refused.into_iter().for_each(|waiting| waiting.answer.send(AppendOutcome::Failed));
    }
}

impl Wanted {
    pub fn intake(&self) -> Intake<'_> {
        let Self { run, purpose, ref buffers, is_promise, ref guard, class } = *self;
        Intake { run, purpose, buffers, is_promise, guard: guard.as_ref(), class }
    }
}

impl Engine {
    /// Puts `wanted`, which fits a record, into the log.
    pub(crate) async fn append(self: &Rc<Self>, wanted: Wanted) -> AppendOutcome {
        self.begin_append(wanted).await.unwrap_or(AppendOutcome::Failed)
    }

    /// Starts to append, or to wait for that; the answer comes later. No answer is a failure.
    pub(crate) fn begin_append(self: &Rc<Self>, wanted: Wanted) -> Receiver<AppendOutcome> {
        let (answer, verdict) = oneshot();
        if self.is_failed.get() {
            answer.send(AppendOutcome::Failed);
            return verdict;
        }
        let since = self.runtime.now();
        self.queue.waiting.borrow_mut().push_back(WaitingRecord { wanted, since, answer });
        self.pump();
        verdict
    }

    /// A record of its own for somebody who finds no queue; `None`, and nothing has happened, where
    /// there is one, or the log refuses: then the queue knows what to do.
    pub(crate) fn form_alone(&self, wanted: &Wanted) -> Option<Formed> {
        let survey = self.log.borrow().survey(wanted.run);
        self.form_surveyed(&wanted.intake(), survey)
    }

    /// The same with what the map says of the blocks now.
    pub(crate) fn form_surveyed(&self, intake: &Intake, survey: Survey) -> Option<Formed> {
        if self.queue.len() > 0 || !self.may_start_record() || self.is_failed.get() {
            return None;
        }
        let mut log = self.log.borrow_mut();
        log.admit(intake, survey).ok()?;
        log.form(std::slice::from_ref(intake)).ok()
    }

    /// Carries out a record that was formed alone, as far as that goes at once; whether it is
    /// written.
    ///
    /// # Errors
    /// Not an error: a task that goes on with it, so that it is accounted for even if the caller
    /// stops waiting.
    pub(crate) fn start_alone(
        self: &Rc<Self>,
        mut formed: Formed,
    ) -> Result<bool, JoinHandle<bool>> {
        let request = std::mem::replace(&mut formed.request, headpond_block::Request::flush());
        match start(&self.cache, request) {
            Ok(outcome) => Ok(self.settle_record(&formed, &outcome)),
            Err(started) => {
                let engine = Rc::clone(self);
                Err(self.runtime.spawn(async move {
                    let outcome = started.await;
                    let is_written = engine.settle_record(&formed, &outcome);
                    engine.pump();
                    is_written
                }))
            }
        }
    }

    /// Forms and starts records as long as somebody waits who may go.
    pub(crate) fn pump(self: &Rc<Self>) {
        if self.queue.len() > 0 {
            self.log.borrow_mut().advance_throttles(self.runtime.now());
        }
        while self.queue.len() > 0 && self.may_start_record() {
            let Some((formed, members)) = self.form_next() else { break };
            self.launch(formed, members);
        }
    }

    pub(crate) fn may_start_record(&self) -> bool {
        self.log.borrow().in_flight() < self.record_limit()
    }

    /// Records that may be on their way to the cache device now.
    pub(crate) fn record_limit(&self) -> u32 {
        let allowed = self.config.borrow().records_in_flight_max;
        match self.is_short_of_room() {
            true => InFlight::default().limit(allowed),
            false => self.records.borrow().limit(allowed),
        }
    }

    /// Whether so much is dirty that writes wait for the core rather than for the cache device.
    pub(crate) fn is_short_of_room(&self) -> bool {
        let log = self.log.borrow();
        log.dirty_now() * 100 > log.dirty_max() * FULL_PERCENT
    }

    /// A record has ended: what the device makes of so many at once is worth knowing where there
    /// could have been no more.
    fn learn_of_record(&self, formed: &Formed) {
        if self.is_short_of_room() || self.may_start_record() {
            return self.records.borrow_mut().interrupt();
        }
        let allowed = self.config.borrow().records_in_flight_max;
        self.records.borrow_mut().learn(self.runtime.now(), formed.blocks, allowed);
    }

    /// Carries a record out and answers its members.
    fn launch(self: &Rc<Self>, mut formed: Formed, mut members: Vec<Sender<AppendOutcome>>) {
        if headpond_block::defect!(AcknowledgeEarly) {
            members.drain(..).for_each(|member| member.send(AppendOutcome::Written));
        }
        let request = std::mem::replace(&mut formed.request, headpond_block::Request::flush());
        match start(&self.cache, request) {
            Ok(outcome) => self.record_done(&formed, outcome, members),
            Err(started) => {
                let engine = Rc::clone(self);
                drop(self.runtime.spawn(async move {
                    let outcome = started.await;
                    engine.record_done(&formed, outcome, members);
                    engine.pump();
                }));
            }
        }
    }

    fn record_done(
        self: &Rc<Self>,
        formed: &Formed,
        outcome: Outcome,
        members: Vec<Sender<AppendOutcome>>,
    ) {
        let is_written = self.settle_record(formed, &outcome);
        for member in members {
            member.send(if is_written { AppendOutcome::Written } else { AppendOutcome::Failed });
        }
    }

    /// Accounts for a record whose write was answered; `false` where it failed.
    pub(crate) fn settle_record(self: &Rc<Self>, formed: &Formed, outcome: &Outcome) -> bool {
        self.learn_of_record(formed);
        if outcome.is_err() {
            self.log.borrow_mut().count_failed_record(formed);
        }
        self.log.borrow_mut().complete(formed, outcome.is_ok());
        if let Err(error) = outcome {
            self.note_cache_error(CacheError::Write(error), None);
            self.void_failed_records();
        }
        self.records_done.notify_all();
        if formed.is_promise {
            self.seal_when_idle();
        }
        // Those who meet a block on its way to the log wait for it.
        if self.cleaning.drainers.get() > 0 || self.log.borrow().map.counts().replayed > 0 {
            self.cleaning_wanted.notify_all();
        }
        if self.log.borrow_mut().take_opened() {
            self.reclaim_wanted.notify_all();
            self.consider_checkpoint();
        }
        outcome.is_ok()
    }

    /// The next record from the queue, and who gets its answer; answers on the way who may not
    /// wait.
    fn form_next(self: &Rc<Self>) -> Option<(Formed, Vec<Sender<AppendOutcome>>)> {
        match self.form_from(|_| true) {
            Err(Refusal::NoSpace) => {
                self.reclaim_wanted.notify_all();
                self.turn_away();
                self.time_waiting();
                self.form_from(|purpose| matches!(purpose, Purpose::Tombstone { .. })).ok()?
            }
            formed => formed.ok()?,
        }
    }

    #[allow(clippy::type_complexity)]
    fn form_from(
        self: &Rc<Self>,
        is_eligible: impl Fn(Purpose) -> bool,
    ) -> Result<Option<(Formed, Vec<Sender<AppendOutcome>>)>, Refusal> {
        let mut queue = self.queue.waiting.borrow_mut();
        let mut log = self.log.borrow_mut();
        let (mut chosen, mut kept) = (Vec::new(), VecDeque::with_capacity(queue.len()));
        let (mut blocks, mut extents) = (0, 0);
        let mut full: SmallVec<[Refusal; 2]> = SmallVec::new();
        let mut refused = Vec::new();
        let (mut passed_by, mut is_over) = (0, false);
        while !is_over && let Some(waiting) = queue.pop_front() {
            // Whoever comes behind so many who wait is looked at when some of them are gone.
            is_over = passed_by >= PASSED_BY_MAX;
            let intake = waiting.wanted.intake();
            let (may_go, before) = (is_eligible(intake.purpose), kept.len());
            let survey = log.survey(intake.run);
            let is_behind = !full.is_empty()
                && intake.purpose.is_write_back()
                && !(waiting.holds_lock() && self.makes_room_in_order());
            match log.admit(&intake, survey) {
                // Those who wait for room keep their turn.
                Ok(()) if is_behind && survey.dirty < intake.run.count => kept.push_back(waiting),
                Err(Refusal::Spoiled) => refused.push((waiting.answer, AppendOutcome::Spoiled)),
                Err(refusal @ (Refusal::DirtyLimit | Refusal::Scattered)) => {
                    if refusal == Refusal::Scattered {
                        self.reclaim_wanted.notify_all();
                    }
                    if intake.purpose.is_write_back() && self.never_cleans() {
                        refused.extend(verdict_of(refusal).map(|it| (waiting.answer, it)));
                    } else {
                        if !full.contains(&refusal) {
                            full.push(refusal);
                        }
                        kept.push_back(waiting);
                    }
                }
                // One at a time while the dirty data is near its limit, or a batch would pass it.
                Ok(())
                    if may_go
                        && log.fits(chosen.len(), blocks, &intake)
                        && (chosen.is_empty() || log.has_room_beside(blocks, intake.run))
                        && (chosen.is_empty()
                            || log.has_extents_beside(extents, log.extents_for(&intake)))
                        && !conflicts(&chosen, &intake) =>
                {
                    blocks += if intake.buffers.is_empty() { 0 } else { intake.run.count };
                    extents += log.extents_for(&intake);
                    chosen.push(waiting);
                }
                Ok(()) | Err(Refusal::NoSpace) => kept.push_back(waiting),
            }
            passed_by += if may_go { kept.len() - before } else { 0 };
        }
        let result = form_chosen(&mut log, chosen, &mut kept);
        kept.append(&mut queue);
        *queue = kept;
        drop((queue, log));
        if !full.is_empty() {
            self.wait_for_room(&full);
        }
        refused.into_iter().for_each(|(answer, verdict)| answer.send(verdict));
        result
    }

    /// Whether room is made in the order of the flushes only, so that the cleaner has no choice of
    /// what it writes next.
    fn makes_room_in_order(&self) -> bool {
        self.keeps_order() && !self.is_core_failing()
    }

    /// Answers who must not wait for room with a lock in their hands.
    fn turn_away(&self) {
        if !self.makes_room_in_order() {
            return;
        }
        let (holders, others) = {
            let mut queue = self.queue.waiting.borrow_mut();
            queue.drain(..).partition::<VecDeque<_>, _>(WaitingRecord::holds_lock)
        };
        *self.queue.waiting.borrow_mut() = others;
        holders.into_iter().for_each(|waiting| waiting.answer.send(AppendOutcome::TurnedAway));
    }

    /// Has those who make room work for it, and gives out by the clock what they make.
    fn wait_for_room(self: &Rc<Self>, full: &[Refusal]) {
        if full.contains(&Refusal::DirtyLimit) {
            self.log.borrow_mut().note_no_room();
        }
        self.turn_away();
        self.wait_for_cleaner();
        // Relief makes room in small gos, of which there is nothing to even out.
        if !self.cleaning.policy.borrow().wants_relief() {
            let (now, mut log) = (self.runtime.now(), self.log.borrow_mut());
            full.iter().for_each(|refusal| log.engage_throttle(*refusal, now));
            drop(log);
            self.wait_for_throttles();
        }
    }

    fn never_cleans(&self) -> bool {
        self.config.borrow().cleaning.policy == CleaningPolicy::Nop
    }

    /// Sees to it that those who are held back are let in by the clock.
    fn wait_for_throttles(self: &Rc<Self>) {
        let wait = self.log.borrow().throttle_wait();
        let Some(wait) = wait.filter(|_| !self.queue.is_throttled.replace(true)) else { return };
        self.later(wait, async |engine| {
            engine.queue.is_throttled.set(false);
            engine.pump();
        });
    }

    /// Wakes the cleaner, and ensures that no write waits longer than allowed.
    fn wait_for_cleaner(self: &Rc<Self>) {
        self.want_relief();
        self.time_waiting();
    }

    fn time_waiting(self: &Rc<Self>) {
        if !self.queue.is_timed.replace(true) {
            let (engine, runtime) = (Rc::downgrade(self), self.runtime.clone());
            drop(self.runtime.spawn(async move {
                let mut next = runtime.now();
                while let Some(until) = engine.upgrade().and_then(|it| it.next_expiry(next)) {
                    runtime.sleep_until(until).await;
                    next = runtime.now() + EXPIRY_PERIOD_MIN;
                    if let Some(engine) = engine.upgrade() {
                        engine.expire_waiting(runtime.now());
                    }
                }
            }));
        }
    }

    /// When those who wait are to be looked at, which is not before `earliest`; never where nobody
    /// waits who may expire.
    fn next_expiry(&self, earliest: Instant) -> Option<Instant> {
        let oldest = {
            let waiting = self.queue.waiting.borrow();
            waiting.iter().filter(|it| it.may_expire()).map(|it| it.since).min()
        };
        self.queue.is_timed.set(oldest.is_some());
        Some((oldest? + self.full_wait()).max(earliest))
    }

    fn full_wait(&self) -> Duration {
        Duration::from_millis(u64::from(self.config.borrow().cleaning.full_wait_ms))
    }

    fn expire_waiting(self: &Rc<Self>, now: Instant) {
        let wait = self.full_wait();
        if self.keeps_order() && !self.is_core_failing() {
            // In its order it may take long, and goes on.
            self.renew_waiting(now);
        } else {
            self.answer_expired(|since| since + wait <= now);
        }
        // By the clock there may be room by now for those who are left.
        self.pump();
    }

    fn renew_waiting(&self, now: Instant) {
        self.queue.waiting.borrow_mut().iter_mut().for_each(|waiting| waiting.since = now);
    }

    fn answer_expired(&self, is_expired: impl Fn(Instant) -> bool) {
        let mut expired = Vec::new();
        {
            let (mut queue, log) = (self.queue.waiting.borrow_mut(), self.log.borrow());
            let mut kept = VecDeque::with_capacity(queue.len());
            for waiting in queue.drain(..) {
                let intake = waiting.wanted.intake();
                let refusal = log.admit(&intake, log.survey(intake.run)).err();
                let is_expired = waiting.may_expire() && is_expired(waiting.since);
                match (is_expired, refusal.and_then(verdict_of)) {
                    (true, Some(verdict)) => expired.push((waiting.answer, verdict)),
                    (true, None) => {
                        kept.push_back(WaitingRecord { since: self.runtime.now(), ..waiting });
                    }
                    (false, _) => kept.push_back(waiting),
                }
            }
            *queue = kept;
        }
        expired.into_iter().for_each(|(answer, verdict)| answer.send(verdict));
    }
}

/// How a wait ends that was for this and took too long.
fn verdict_of(refusal: Refusal) -> Option<AppendOutcome> {
    match refusal {
        // Reclaim waits for the core as the cleaner does.
        Refusal::DirtyLimit | Refusal::NoSpace => Some(AppendOutcome::DirtyLimit),
        Refusal::Scattered => Some(AppendOutcome::Scattered),
        Refusal::Spoiled => None,
    }
}

/// Two parts of one record must not be about the same block: their order would be lost.
fn conflicts(chosen: &[WaitingRecord], intake: &Intake) -> bool {
    chosen.iter().any(|other| other.wanted.run.overlaps(intake.run))
}

#[allow(clippy::type_complexity)]
fn form_chosen(
    log: &mut crate::log::Log,
    chosen: Vec<WaitingRecord>,
    kept: &mut VecDeque<WaitingRecord>,
) -> Result<Option<(Formed, Vec<Sender<AppendOutcome>>)>, Refusal> {
    if chosen.is_empty() {
        return Ok(None);
    }
    let intakes: Vec<Intake> = chosen.iter().map(|waiting| waiting.wanted.intake()).collect();
    match log.form(&intakes) {
        Ok(formed) => {
            let members = chosen.into_iter().map(|waiting| waiting.answer).collect();
            Ok(Some((formed, members)))
        }
        Err(refusal) => {
            chosen.into_iter().rev().for_each(|waiting| kept.push_front(waiting));
            Err(refusal)
        }
    }
}
