//! Write-back: acknowledged when it is in the log.

use crate::append::{AppendOutcome, Wanted};
use crate::classes::ClassId;
use crate::config::Mode;
use crate::engine::Engine;
use crate::log::{Formed, Intake, Purpose, Survey, id_of};
use crate::paths::Cut;
use crate::stats::{Begun, BypassReason, Way};
use crate::types::BlockRun;
use headpond_block::sync::{join_all, oneshot};
use headpond_block::{
    BLOCK_BYTES, Buffers, Cause, DeviceError, Instant, Outcome, Request, Started, Submission, start,
};
use std::cell::Cell;
use std::rc::Rc;

/// Why a request, or a part of it, went past the cache.
pub(crate) type Bypassed = Cell<Option<BypassReason>>;

/// How a write went.
pub(super) struct WriteOutcome {
    pub bypassed: Option<BypassReason>,
    /// Before.
    pub survey: Survey,
    /// To core and cache.
    pub is_both: bool,
}

/// A write whose record is on its way.
struct Asked {
    request: Request,
    survey: Survey,
    /// Where it is timed.
    sampled: Option<Instant>,
}

impl Engine {
    /// A write in whichever mode is set.
    pub(crate) fn write(self: &Rc<Self>, request: Request) -> Submission<'static> {
        let sampled = self.latencies.sample(&self.latencies.writes);
        let is_around = self.sends_around(&request, sampled);
        if !is_around
            && self.may_write_at_once(&request)
            && let Some(submission) = self.write_at_once(&request, sampled)
        {
            return submission;
        }
        if !is_around && let Some(submission) = self.write_through_at_once(&request, sampled) {
            return submission;
        }
        let (engine, busy) = (Rc::clone(self), self.busy.begin());
        let begun = self.latencies.begin(sampled);
        let write = async move {
            let _busy = busy;
            let wanted = is_around.then_some(BypassReason::Adaptive);
            engine.write_slowly(&request, begun, wanted).await
        };
        // In a task, so that it is accounted for even if the caller stops waiting.
        match self.runtime.start(write) {
            Ok(outcome) => Submission::ready(outcome),
            Err(rest) => Submission::pending(rest),
        }
    }

    /// Whether the request is one record of its own, with nothing to wait for in front of it.
    fn may_write_at_once(&self, request: &Request) -> bool {
        request.range.is_aligned(BLOCK_BYTES)
            && self.mode().is_write_back()
            && self.is_open_to(request)
            && self.queue.len() == 0
            && self.may_start_record()
            && !(request.is_fua() && self.cache_is_volatile())
    }

    /// The write as a record of its own; `None`, and nothing has happened, where it has to wait.
    fn write_at_once(
        self: &Rc<Self>,
        request: &Request,
        sampled: Option<Instant>,
    ) -> Option<Submission<'static>> {
        let run = BlockRun::touching(request.range);
        let (mut formed, survey) = {
            let mut log = self.log.borrow_mut();
            if run.count > log.layout.record_blocks_max() as u64 {
                return None;
            }
            let (purpose, is_promise) = (Purpose::WriteBack, request.is_fua());
            let class = id_of(request);
            let intake =
                Intake { run, purpose, buffers: &request.buffers, is_promise, guard: None, class };
            let survey = log.survey(run);
            log.admit(&intake, survey).ok()?;
            (log.form(&[intake]).ok()?, survey)
        };
        let write = std::mem::replace(&mut formed.request, Request::flush());
        Some(match start(&self.cache, write) {
            Ok(outcome) if self.settle_record(&formed, &outcome) => {
                self.written_at_once(request, survey, sampled);
                Submission::ready(Ok(()))
            }
            Ok(_) => self.write_elsewhere(request.clone()),
            Err(started) => {
                let asked = Asked { request: request.clone(), survey, sampled };
                self.answer_later(started, formed, asked)
            }
        })
    }

    fn written_at_once(&self, request: &Request, survey: Survey, sampled: Option<Instant>) {
        let blocks = BlockRun::touching(request.range).count;
        self.log.borrow_mut().count_write(request, survey, blocks);
        self.latencies.note_sampled(Way::WriteToCache, request.range, sampled);
        self.note_dirty();
    }

    /// The cache did not take it.
    fn write_elsewhere(self: &Rc<Self>, request: Request) -> Submission<'static> {
        let (engine, busy) = (Rc::clone(self), self.busy.begin());
        Submission::pending(self.runtime.spawn(async move {
            let _busy = busy;
            engine.write_after_failure(request).await
        }))
    }

    async fn write_after_failure(self: &Rc<Self>, request: Request) -> Outcome {
        let begun = self.latencies.begin(None);
        let asked = request.without_data();
        let outcome = self.change_core(request).await;
        self.count_write_past(&asked, BypassReason::CacheError, &outcome);
        if outcome.is_ok() {
            self.latencies.note(Way::WritePastCache, asked.range, begun);
        }
        outcome
    }

    /// Waits for a record in a task of its own, so that it is accounted for even if the caller
    /// stops waiting.
    fn answer_later(
        self: &Rc<Self>,
        started: Started,
        formed: Formed,
        asked: Asked,
    ) -> Submission<'static> {
        let (answer, answered) = oneshot();
        let (engine, busy) = (Rc::clone(self), self.busy.begin());
        drop(self.runtime.spawn(async move {
            let _busy = busy;
            let outcome = started.await;
            let is_written = engine.settle_record(&formed, &outcome);
            engine.pump();
            if is_written {
                engine.written_at_once(&asked.request, asked.survey, asked.sampled);
                answer.send(Ok(()));
            } else {
                answer.send(engine.write_after_failure(asked.request).await);
            }
        }));
        Submission::pending(async move { answered.await.expect("the record's task answers") })
    }

    /// A write past the cache for the `wanted` reason, where nothing stands against it, and else as
    /// the settings say.
    pub(super) async fn write_slowly(
        self: &Rc<Self>,
        request: &Request,
        begun: Begun,
        wanted: Option<BypassReason>,
    ) -> Outcome {
        let (mut outcome, mut way) = self.write_uncounted(request, wanted).await;
        if wanted.is_some() && outcome.is_err() && way.bypassed == wanted {
            // The cache can take what the core did not.
            (outcome, way) = Box::pin(self.write_uncounted(request, None)).await;
        }
        let WriteOutcome { bypassed, survey, is_both } = way;
        let way = match bypassed {
            Some(reason) => {
                self.count_write_past(request, reason, &outcome);
                Way::WritePastCache
            }
            None => {
                let blocks = BlockRun::touching(request.range).count;
                let mut log = self.log.borrow_mut();
                log.count_write(request, survey, blocks);
                log.class_of(request).write.failed += u64::from(outcome.is_err());
                if is_both { Way::WriteThrough } else { Way::WriteToCache }
            }
        };
        if wanted.is_some() && (outcome.is_err() || bypassed != wanted) {
            self.latencies.write_balance.note_nothing();
        }
        match outcome.is_ok() {
            true if wanted.is_some() && bypassed == wanted => {
                self.latencies.note_around(way, request.range, begun);
            }
            true => self.latencies.note(way, request.range, begun),
            false => {}
        }
        outcome
    }

    pub(super) fn count_write_past(
        &self,
        asked: &Request,
        reason: BypassReason,
        outcome: &Outcome,
    ) {
        let mut log = self.log.borrow_mut();
        log.count_pass_through_write(asked, reason);
        log.class_of(asked).write.failed += u64::from(outcome.is_err());
    }

    /// A write, or the part of a request that is one; and its outcome, for the statistics.
    pub(super) async fn write_uncounted(
        self: &Rc<Self>,
        request: &Request,
        wanted: Option<BypassReason>,
    ) -> (Outcome, WriteOutcome) {
        let (run, bypassed) = (BlockRun::touching(request.range), Cell::new(None));
        let keeps_order = self.keeps_order();
        let survey = if run.count > self.log.borrow().dirty_max() / 2 && !keeps_order {
            bypassed.set(Some(BypassReason::TooLarge));
            Survey::default()
        } else {
            self.log.borrow().survey(run)
        };
        let mode = self.mode();
        if bypassed.get().is_none() && !keeps_order {
            let refusal = wanted.or_else(|| self.refuses_write(request, survey));
            match refusal {
                Some(reason) if survey.unsafe_at_core > 0 => {
                    // What the core lacks is written to the log all the same, which is the shorter
                    // way that loses nothing.
                    if survey.unsafe_at_core < run.count && self.may_divide(request, survey, run) {
                        let outcome = Box::pin(self.write_divided(request, run)).await;
                        let bypassed = Some(reason);
                        return (outcome, WriteOutcome { bypassed, survey, is_both: false });
                    }
                }
                refusal => bypassed.set(refusal),
            }
        }
        if sends_past(mode, survey, run) {
            bypassed.set(Some(self.reason_of_mode()));
        }
        let is_both = !mode.is_write_back() || request.is_fua() && self.cache_is_volatile();
        let outcome = match bypassed.get() {
            // Boxed, where it is not the only way: each write would be as large as all of them.
            Some(_) => Box::pin(self.change_core(request.clone())).await,
            None if is_both => self.write_through(request).await,
            None => Box::pin(self.write_back_parts(request, &bypassed)).await,
        };
        (outcome, WriteOutcome { bypassed: bypassed.get(), survey, is_both })
    }

    /// Whether a write may go to the log and past it, a part to each.
    fn may_divide(&self, request: &Request, survey: Survey, run: BlockRun) -> bool {
        let mode = self.mode();
        request.range.is_aligned(BLOCK_BYTES)
            && mode.is_write_back()
            && !sends_past(mode, survey, run)
            && !(request.is_fua() && self.cache_is_volatile())
    }

    /// What the core lacks is written over in the log, where it takes no room; the rest goes past
    /// it. Whole in the log, a stream would wait for the room of all of it for the sake of a block.
    async fn write_divided(self: &Rc<Self>, request: &Request, run: BlockRun) -> Outcome {
        let lacking = self.log.borrow().unsafe_in(run);
        let mut parts = Vec::with_capacity(2 * lacking.len() + 1);
        let mut next = run.first;
        for in_log in lacking {
            let before = BlockRun { first: next, count: in_log.first.0 - next.0 };
            parts.extend([(before, false), (in_log, true)]);
            next = in_log.end();
        }
        parts.push((BlockRun { first: next, count: run.end().0 - next.0 }, false));
        let bypassed = Cell::new(None);
        let parts =
            parts.into_iter().filter(|(part, _)| part.count > 0).map(|(part, is_in_log)| {
                let (range, bypassed) = (part.range(), &bypassed);
                let part = request.part(range, range.start());
                Submission::pending(async move {
                    match is_in_log {
                        true => self.write_back_parts(&part, bypassed).await,
                        false => self.change_core(part).await,
                    }
                })
            });
        join_all(parts.collect()).await.into_iter().collect()
    }

    async fn write_back_parts(self: &Rc<Self>, request: &Request, bypassed: &Bypassed) -> Outcome {
        let cut = Cut::new(request.range);
        for end in cut.ends() {
            self.write_part_of_block(request.part(end, end.start()), bypassed).await?;
        }
        let chunk = self.log.borrow().layout.piece_blocks() * BLOCK_BYTES;
        let pieces = cut.middle.split_at_multiples(chunk).map(|piece| {
            let part = request.part(piece, piece.start());
            Submission::pending(self.write_back_piece(part, bypassed))
        });
        join_all(pieces.collect()).await.into_iter().collect()
    }

    /// Whole blocks that fit one record.
    async fn write_back_piece(self: &Rc<Self>, request: Request, bypassed: &Bypassed) -> Outcome {
        let run = BlockRun::touching(request.range);
        let (buffers, is_promise) = (request.buffers.clone(), request.is_fua());
        let (purpose, class) = (Purpose::WriteBack, id_of(&request));
        if self.log.borrow().is_full_for(run) {
            self.log.borrow_mut().counters.throttled += 1;
        }
        let wanted = Wanted { run, purpose, buffers, is_promise, guard: None, class };
        match self.append(wanted).await {
            AppendOutcome::Written => {
                self.note_dirty();
                return Ok(());
            }
            AppendOutcome::DirtyLimit | AppendOutcome::Scattered if self.keeps_order() => {
                return Err(DeviceError::new(self.cache.name(), Cause::NoSpace));
            }
            verdict => bypassed.set(Some(verdict.reason())),
        }
        self.change_core(request).await
    }

    /// Why the mode in force sends something past the cache.
    pub(super) fn reason_of_mode(&self) -> BypassReason {
        if self.is_mistrusted() { BypassReason::CacheError } else { BypassReason::Mode }
    }

    /// Wakes the cleaner where there is enough for it to do.
    pub(crate) fn note_dirty(&self) {
        if self.cleaning.is_idle.get() && self.wants_cleaning() {
            self.cleaning_wanted.notify_all();
        }
    }
}

/// Whether the mode alone takes a write past the cache.
fn sends_past(mode: Mode, survey: Survey, run: BlockRun) -> bool {
    match mode {
        Mode::PassThrough | Mode::WriteInvalidate => true,
        Mode::WriteAround => survey.mapped < run.count,
        Mode::WriteBack | Mode::WriteThrough | Mode::WriteOnly => false,
    }
}

impl crate::log::Log {
    /// Whether so many blocks cannot all become dirty now.
    pub(crate) fn is_full_for(&self, run: BlockRun) -> bool {
        let buffers = Buffers::new();
        let (purpose, class) = (Purpose::WriteBack, ClassId::UNCLASSIFIED);
        let intake =
            Intake { run, purpose, buffers: &buffers, is_promise: false, guard: None, class };
        self.admit(&intake, self.survey(run)).is_err()
    }
}
