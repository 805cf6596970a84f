//! Full read misses: one read of the core, whose data is inserted completely.
//!
//! Where the core and the memory of the cache device complete immediately, no other task runs in
//! between: nothing has to be locked or stored for later.

use crate::engine::Engine;
use crate::fill::FillGuard;
use crate::log::{Intake, Purpose, Survey, id_of};
use crate::paths::read::Missing;
use crate::stats::{Begun, CoreRead, Way};
use crate::types::BlockRun;
use headpond_block::sync::BusyGuard;
use headpond_block::{
    BLOCK_BYTES, DeviceError, Instant, JoinHandle, Outcome, Request, RequestFlags, Started,
    Submission, start,
};
use std::rc::Rc;

/// A miss that is on its way from the core.
struct Miss {
    engine: Rc<Engine>,
    run: BlockRun,
    asked: Request,
    begun: Begun,
    fill: FillGuard,
    _reading: BusyGuard,
}

impl Engine {
    /// The answer to a read of whole blocks of which the cache has none and takes all; `None`, and
    /// nothing has happened, for every other read.
    pub(super) fn read_miss(
        self: &Rc<Self>,
        request: &Request,
        sampled: Option<Instant>,
    ) -> Option<Submission<'static>> {
        let run = BlockRun::touching(request.range);
        let survey = self.survey_to_take(request, run)?;
        self.count_core_read(CoreRead::Request, id_of(request), request);
        match start(&self.core, as_read_of_core(request)) {
            Ok(Ok(())) => Some(self.take_at_once(request, (run, survey), sampled)),
            Ok(Err(error)) => Some(Submission::ready(Err(self.miss_failed(request, error)))),
            Err(started) => {
                let miss = Miss {
                    engine: Rc::clone(self),
                    run,
                    asked: request.clone(),
                    begun: self.latencies.begin(sampled),
                    fill: FillGuard::begin(self, run),
                    _reading: self.reading.begin(),
                };
                Some(Submission::pending(miss.finish(started)))
            }
        }
    }

    /// What the map says of blocks that it has none of, and that go into one record where nothing
    /// has to be counted or waited for; `None` for all others.
    fn survey_to_take(&self, request: &Request, run: BlockRun) -> Option<Survey> {
        let log = self.log.borrow();
        let may_take = request.range.is_aligned(BLOCK_BYTES)
            && run.count <= log.layout.piece_blocks()
            && self.is_open_to(request)
            && self.may_insert(run)
            && !self.ahead.touches(run)
            && !log.is_lost_in(run)
            && log.refuses_class(request).is_none();
        let survey = may_take.then(|| log.survey(run))?;
        (survey.mapped == 0).then_some(survey)
    }

    /// The core has answered before anything else could happen.
    fn take_at_once(
        self: &Rc<Self>,
        request: &Request,
        (run, survey): (BlockRun, Survey),
        sampled: Option<Instant>,
    ) -> Submission<'static> {
        self.log.borrow_mut().count_read(request, 0, run.count);
        let Some(rest) = self.insert_surveyed(request, (run, survey)) else {
            self.latencies.note_sampled(Way::ReadMiss, request.range, sampled);
            return Submission::ready(Ok(()));
        };
        let begun = self.latencies.begin(sampled);
        let (engine, busy) = (Rc::clone(self), self.busy.begin());
        Submission::pending(async move {
            let is_written = rest.await;
            drop(busy);
            engine.count_inserted(run, is_written);
            engine.latencies.note(Way::ReadMiss, run.range(), begun);
            Ok(())
        })
    }

    /// Inserts what was read, or has it inserted; answers what is left to be waited for.
    fn insert_surveyed(
        self: &Rc<Self>,
        request: &Request,
        (run, survey): (BlockRun, Survey),
    ) -> Option<JoinHandle<bool>> {
        if self.log.borrow().is_scarce() {
            return None;
        }
        let (purpose, class, buffers) = (Purpose::ReadInsert, id_of(request), &request.buffers);
        let intake = Intake { run, purpose, buffers, is_promise: false, guard: None, class };
        let formed = if self.lends { self.form_surveyed(&intake, survey) } else { None };
        let Some(formed) = formed else {
            let fill = FillGuard::begin(self, run);
            self.insert_beside((run, buffers), std::iter::once(run), fill, class);
            return None;
        };
        match self.start_alone(formed) {
            Ok(is_written) => {
                self.count_inserted(run, is_written);
                None
            }
            Err(rest) => Some(rest),
        }
    }

    /// Accounts for a miss that the core could not answer.
    fn miss_failed(&self, request: &Request, error: DeviceError) -> DeviceError {
        let run = BlockRun::touching(request.range);
        let (class, first) = (id_of(request), run.first);
        self.log.borrow_mut().count_error(class, first, |errors| &mut errors.core_read);
        self.count_failed_read(request, run, None);
        error
    }
}

impl Miss {
    async fn finish(self, started: Started) -> Outcome {
        let Self { engine, run, asked, begun, fill, _reading } = self;
        if let Err(error) = engine.watch_core_read(started).await {
            return Err(engine.miss_failed(&asked, error));
        }
        let way = engine.count_slow_read(&asked, 0, None);
        if !engine.is_closed.get() {
            let (target, class) = ((run, &asked.buffers), id_of(&asked));
            engine.insert(target, &Missing::from(run), fill, class).await;
        }
        engine.latencies.note(way, asked.range, begun);
        Ok(())
    }
}

/// What is known of a request goes with it: the core may be a cache that wants to know.
fn as_read_of_core(request: &Request) -> Request {
    let flags = request.flags & RequestFlags::STREAMING;
    Request { flags, ..request.clone() }
}
