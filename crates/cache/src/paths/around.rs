//! Requests that the cache could serve, but the core completes sooner (`bypass`).
//!
//! **Source**: laws 3 and 4: only durable data of the core is read there, and a write takes the
//! path of every write past the cache. Dirty data never bypasses. Where the core fails, the cache
//! serves the request.

use crate::bypass::{BypassPolicy, BypassReport};
use crate::engine::Engine;
use crate::log::id_of;
use crate::paths::read::Nearest;
use crate::stats::{Begun, BypassReason, Latencies, Way};
use crate::types::BlockRun;
use headpond_block::{BLOCK_BYTES, Instant, Outcome, Request, Submission};
use std::rc::Rc;

/// Of what may be dirty: with more the array is what is short, and writes wait for it.
const DIRTY_PERCENT_MAX: u64 = 80;

impl Engine {
    /// Begins anew with the policy that is set.
    pub(crate) fn set_bypass(&self) {
        let policy = self.bypass_policy();
        self.latencies.read_balance.set(policy);
        self.latencies.write_balance.set(policy);
    }

    /// Memory is never the slower one, nor has what it answers a time of its own.
    fn bypass_policy(&self) -> BypassPolicy {
        if self.lends { BypassPolicy::Off } else { self.config.borrow().bypass }
    }

    pub(crate) fn bypass_report(&self) -> BypassReport {
        let Latencies { read_balance, write_balance, .. } = &self.latencies;
        let (reads, writes) = (read_balance.report(), write_balance.report());
        BypassReport { policy: self.bypass_policy(), reads, writes }
    }

    /// A read of blocks that the cache has and the core too, where its turn has come to go there.
    #[inline]
    pub(super) fn read_around(
        self: &Rc<Self>,
        request: &Request,
        timed: Option<Instant>,
    ) -> Option<Submission<'static>> {
        match self.latencies.read_balance.wants_core(timed) {
            true => self.start_around(request, timed),
            false => None,
        }
    }

    #[cold]
    fn start_around(
        self: &Rc<Self>,
        request: &Request,
        timed: Option<Instant>,
    ) -> Option<Submission<'static>> {
        if !self.may_read_around(request) {
            self.latencies.read_balance.note_nothing();
            return None;
        }
        let (engine, reading) = (Rc::clone(self), self.reading.begin());
        let (request, begun) = (request.clone(), self.latencies.begin(timed));
        Some(Submission::pending(async move {
            let _reading = reading;
            engine.read_from_core(request, begun).await
        }))
    }

    /// Whether all of it is clean in the cache.
    fn may_read_around(&self, request: &Request) -> bool {
        let run = BlockRun::touching(request.range);
        let log = self.log.borrow();
        let survey = log.survey(run);
        request.range.is_aligned(BLOCK_BYTES)
            && self.mode().inserts_reads()
            && survey.mapped == run.count
            && survey.unsafe_at_core == 0
            && survey.pending == 0
            && !log.is_lost_in(run)
    }

    async fn read_from_core(self: &Rc<Self>, request: Request, begun: Begun) -> Outcome {
        let run = BlockRun::touching(request.range);
        self.log.borrow_mut().refer_to_run(run, id_of(&request));
        let read = self.read_blocks_by(&request, run, &request.buffers, Nearest::Core).await;
        if read.is_err() {
            // The cache has it too.
            self.latencies.read_balance.note_nothing();
            return self.read_slowly(&request).await.map(|_| ());
        }
        self.log.borrow_mut().count_pass_through_read(&request, BypassReason::Adaptive);
        self.latencies.note_around(Way::ReadPastCache, request.range, begun);
        Ok(())
    }

    /// Whether the turn of a write has come to go to the core, as far as its blocks allow.
    #[inline]
    pub(super) fn sends_around(&self, request: &Request, timed: Option<Instant>) -> bool {
        self.latencies.write_balance.wants_core(timed) && self.may_write_around(request)
    }

    #[cold]
    fn may_write_around(&self, request: &Request) -> bool {
        let run = BlockRun::touching(request.range);
        let log = self.log.borrow();
        let is_short = log.dirty_now() * 100 > log.dirty_max() * DIRTY_PERCENT_MAX;
        let survey = log.survey(run);
        let may = request.range.is_aligned(BLOCK_BYTES)
            && self.mode().is_write_back()
            && !self.keeps_order()
            && !is_short
            && survey.unsafe_at_core == 0
            && survey.pending == 0;
        if !may {
            self.latencies.write_balance.note_nothing();
        }
        may
    }
}
