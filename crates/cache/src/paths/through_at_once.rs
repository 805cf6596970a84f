//! Write-throughs of whole blocks without conflicts: one record, and one write of the core, without
//! a task.
//!
//! Where both complete immediately, no other task runs in between: nothing has to be locked. Else
//! the lock is taken before another task runs.

use crate::config::Mode;
use crate::engine::{CoreChange, Engine};
use crate::log::{Formed, Intake, Purpose, Survey, id_of};
use crate::paths::write_through::CoreAnswer;
use crate::stats::{Begun, Way};
use crate::types::BlockRun;
use headpond_block::sync::{BusyGuard, RangeGuard};
use headpond_block::{
    BLOCK_BYTES, Instant, JoinHandle, Outcome, Request, Started, Submission, start,
};
use std::rc::Rc;

/// A write-through that is on its way.
struct Through {
    engine: Rc<Engine>,
    request: Request,
    run: BlockRun,
    survey: Survey,
    begun: Begun,
    record: Result<bool, JoinHandle<bool>>,
    core: Result<Outcome, Started>,
    change: CoreChange,
    failures: u64,
    guard: RangeGuard,
    _busy: BusyGuard,
}

impl Engine {
    /// `None`, and nothing has happened, where the write is not one that goes to both as it is, or
    /// has to wait for somebody.
    pub(super) fn write_through_at_once(
        self: &Rc<Self>,
        request: &Request,
        sampled: Option<Instant>,
    ) -> Option<Submission<'static>> {
        let run = BlockRun::touching(request.range);
        let (formed, survey) = self.form_through(request, run)?;
        let (first, _) = self.log.borrow().layout.slot_at(formed.data);
        self.overtake(run);
        let record = self.start_alone(formed);
        let change = self.count_core_change(request);
        let failures = self.core_flushes.failures();
        let core = start(&self.core, request.clone());
        if let (Ok(true), Ok(Ok(()))) = (&record, &core) {
            self.core_changed(change, &Ok(()));
            self.overtake(run);
            self.move_on_at(run, first);
            self.log.borrow_mut().count_write(request, survey, run.count);
            self.latencies.note_sampled(Way::WriteThrough, request.range, sampled);
            return Some(Submission::ready(Ok(())));
        }
        let through = Through {
            engine: Rc::clone(self),
            request: request.clone(),
            run,
            survey,
            begun: self.latencies.begin(sampled),
            record,
            core,
            change,
            failures,
            guard: self.core_writes.try_lock(run).expect("nobody had a turn"),
            _busy: self.busy.begin(),
        };
        // In a task, so that it is accounted for even if the caller stops waiting.
        Some(match self.runtime.start(through.finish()) {
            Ok(outcome) => Submission::ready(outcome),
            Err(rest) => Submission::pending(rest),
        })
    }

    /// The record of a write-through that there is nothing to wait for in front of.
    fn form_through(&self, request: &Request, run: BlockRun) -> Option<(Formed, Survey)> {
        let is_free = request.range.is_aligned(BLOCK_BYTES)
            && self.mode() == Mode::WriteThrough
            && self.is_open_to(request)
            && self.core_writes.is_free(run);
        if !is_free {
            return None;
        }
        let survey = {
            let log = self.log.borrow();
            let fits = run.count <= log.layout.piece_blocks().min(log.dirty_max() / 2)
                && log.map.counts().replayed == 0
                && log.refuses_class(request).is_none();
            fits.then(|| log.survey(run))?
        };
        let (purpose, is_promise, class) =
            (Purpose::WriteThrough, request.is_fua(), id_of(request));
        let buffers = &request.buffers;
        let intake = Intake { run, purpose, buffers, is_promise, guard: None, class };
        Some((self.form_surveyed(&intake, survey)?, survey))
    }
}

impl Through {
    async fn finish(self) -> Outcome {
        let Self { engine, request, run, survey, begun, record, core, change, failures, .. } = self;
        let _busy = self._busy;
        let write = engine.begin_locked_core_write(run, self.guard);
        let attempt = engine.throughs.begin();
        let outcome = match core {
            Ok(outcome) => outcome,
            Err(started) => started.await,
        };
        engine.core_changed(change, &outcome);
        let is_recorded = match record {
            Ok(is_written) => is_written,
            Err(rest) => rest.await,
        };
        let answer = CoreAnswer { outcome, failures, attempt };
        let outcome = engine.conclude_through(&request, run, is_recorded, answer).await;
        {
            let mut log = engine.log.borrow_mut();
            log.count_write(&request, survey, run.count);
            log.class_of(&request).write.failed += u64::from(outcome.is_err());
        }
        if outcome.is_ok() {
            write.done();
            engine.latencies.note(Way::WriteThrough, request.range, begun);
        }
        outcome
    }
}
