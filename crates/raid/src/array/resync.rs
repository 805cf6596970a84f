//! Recomputing redundancy from the data: resync after an unclean shutdown, and initial sync.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use headpond_block::sync::join_all;
use headpond_block::{Buffers, Cause, DeviceError, Outcome, Request, RequestFlags, Submission};
use smallvec::SmallVec;

use super::columns::Columns;
use super::scratch::{Allowance, Payload};
use super::{Array, Member, Progress};
use crate::layout::{Strip, StripCell, Stripe};
use crate::plan::{self, ParityTrust, StripRead, StripeState};
use crate::superblock::RecordedParity;

/// What a cut costs at most.
const RECORDED_EVERY: Duration = Duration::from_secs(30);
/// Stripes resynced concurrently.
const STRIPES_AT_A_TIME: u64 = 16;

impl Array {
    /// Whether the initial sync is complete.
    pub(super) fn is_parity_whole(&self) -> bool {
        self.parity.get() == RecordedParity::Valid || self.layout.parity_strips() == 0
    }

    /// Computes the parity, or equalises the copies, of the whole array, and records that this is
    /// done. Requests are served meanwhile; between every few stripes `go_on` may wait, to leave
    /// them room, and ends the work with `false`. The next call goes on from there.
    ///
    /// # Errors
    /// The first strip that could neither be read nor done without; what was done stays done.
    pub async fn initialise(&self, mut go_on: impl AsyncFnMut() -> bool) -> Outcome {
        self.check_shape_stays("sync while it is reshaped to more members")?;
        let stripes = self.layout.stripes();
        let mut done = self.initialised.get();
        let mut recorded_at = self.runtime.now();
        while done < stripes {
            self.initialising.set(Some(Progress { stripes_done: done, stripes }));
            let end = stripes.min(done + self.rows_at_a_time());
            let outcome = self.resync(done..end).await;
            if outcome.is_ok() {
                self.initialised.set(end);
                done = end;
            }
            let goes_on = outcome.is_ok() && go_on().await;
            if !goes_on || self.runtime.now().since(recorded_at) >= RECORDED_EVERY {
                self.record_initialised().await?;
                recorded_at = self.runtime.now();
            }
            if !goes_on {
                self.initialising.set(None);
                return outcome;
            }
        }
        self.initialising.set(None);
        self.flush_members().await?;
        self.parity.set(RecordedParity::Valid);
        self.change_record(|record| record.parity = RecordedParity::Valid).await
    }

    /// Records the stripes that are done, once they are stable.
    async fn record_initialised(&self) -> Outcome {
        let done = self.initialised.get();
        self.flush_members().await?;
        self.record_progress(|record| record.work.initialised_stripes = done).await
    }

    /// Recomputes the redundancy of some stripes from their data. Signed regions are valid, or for
    /// a scrub to judge.
    ///
    /// # Errors
    /// As for [`Self::initialise`].
    pub(crate) async fn resync(&self, stripes: Range<u64>) -> Outcome {
        let mut start = stripes.start;
        while start < stripes.end {
            let end = stripes.end.min(start + STRIPES_AT_A_TIME);
            let batch = (start..end).map(Stripe).filter(|stripe| !self.is_signed(*stripe));
            let batch = batch.map(|stripe| Submission::pending(self.resync_stripe(stripe)));
            join_all(batch.collect()).await.into_iter().collect::<Outcome>()?;
            start = end;
        }
        Ok(())
    }

    /// Resyncs stripes that an unclean shutdown may have torn, except for those that are right. One
    /// of which something cannot be read stays torn, and its region marked: what cannot be read
    /// there is an error until it is written or can be read again.
    ///
    /// # Errors
    /// Where the array has lost too many members.
    pub(crate) async fn resync_torn(&self, stripes: Range<u64>) -> Outcome {
        for first in stripes.clone().step_by(STRIPES_AT_A_TIME as usize) {
            let batch = first..stripes.end.min(first + STRIPES_AT_A_TIME);
            let torn = batch.map(Stripe).filter(|stripe| !self.is_verified(*stripe));
            let resync = |stripe| {
                Submission::pending(async move {
                    match self.resync_stripe(stripe).await {
                        Err(error) if error.is_damage() => {
                            self.torn.borrow_mut().entry(stripe).or_default();
                            Ok(())
                        }
                        outcome => outcome,
                    }
                })
            };
            join_all(torn.map(resync).collect()).await.into_iter().collect::<Outcome>()?;
        }
        Ok(())
    }

    /// Whether there are stripes with known inconsistent redundancy.
    pub(crate) fn has_torn(&self) -> bool {
        !self.torn.borrow().is_empty()
    }

    async fn resync_stripe(&self, stripe: Stripe) -> Outcome {
        let _lock = self.locks.lock(stripe.0).await;
        // A member that leaves may have forgotten what it was given here.
        let _mark = self.mark(stripe..=stripe, RequestFlags::empty()).await?;
        match self.layout.level().is_mirrored() {
            true => self.resync_copies(stripe).await,
            false => self.resync_parity(stripe).await,
        }
    }

    async fn resync_parity(&self, stripe: Stripe) -> Outcome {
        let outcome = self.resync_parity_once(stripe).await;
        let is_medium =
            matches!(outcome.as_ref().map_err(DeviceError::cause), Err(Cause::Media { .. }));
        if is_medium && self.zero_lost(stripe).await? {
            return self.resync_parity_once(stripe).await;
        }
        outcome
    }

    async fn resync_parity_once(&self, stripe: Stripe) -> Outcome {
        let lost = self.members.lost_strips(&self.layout, stripe);
        let span = 0..self.layout.strip_bytes();
        let state = StripeState { lost: &lost, parity: ParityTrust::Stale };
        let plan = plan::recovery(&self.layout, &span, state).map_err(|_| self.gone())?;
        let bytes = (self.layout.data_strips() + 4) * span.len();
        let memory = self.scratch.allow(bytes, Payload::Bytes).await;
        let reads = self.read_planned(stripe, plan.reads, &memory).await?;
        let columns: Columns = reads.into_iter().map(|(_, buffers)| Some(buffers)).collect();
        let mut parity = self.parity_memory(span.len(), &memory);
        parity.generate(&columns);
        let (mut members, mut writes) = (Vec::new(), Vec::new());
        // What a member has that is being replaced, its successor has as well.
        for (k, content) in columns.iter().enumerate() {
            let cell = self.layout.cell(stripe, Strip::Data(k as u16));
            for member in self.members.holders(cell).into_iter().skip(1) {
                let content = content.clone().expect("all of the stripe was read");
                let write = Request::write(self.layout.row_start(cell.row), content);
                writes.push(self.operate(&member, write));
                members.push(member);
            }
        }
        let q = parity.q.map(|q| (Strip::Q, q));
        for (strip, content) in [(Strip::P, parity.p)].into_iter().chain(q) {
            let cell = self.layout.cell(stripe, strip);
            for member in self.members.holders(cell) {
                let found: Buffers = memory.take(span.len()).into();
                let offset = self.layout.row_start(cell.row);
                let read = Request::read(offset, found.clone());
                let read = self.operate(&member, read).await;
                // What fits already stays untouched: on flash and in sparse files a write costs
                // more.
                if read.is_err() || found.to_vec() != content.to_vec() {
                    writes.push(self.operate(&member, Request::write(offset, &content)));
                    members.push(member);
                }
            }
        }
        let outcome = self.conclude_writes(&members, join_all(writes).await).await;
        if outcome.is_ok() {
            self.clear_suspect_parity_of(stripe..=stripe);
        }
        outcome
    }

    /// Reads the strips that a plan wants, each as its span has it.
    ///
    /// # Errors
    /// Of the first that cannot be read.
    pub(super) async fn read_planned(
        &self,
        stripe: Stripe,
        wanted: impl IntoIterator<Item = StripRead>,
        memory: &Allowance<'_>,
    ) -> Result<SmallVec<[(StripRead, Buffers); 8]>, DeviceError> {
        let into_memory = |read: StripRead| {
            let content = memory.take(read.span.len()).into();
            (read, content)
        };
        let reads: SmallVec<[(StripRead, Buffers); 8]> =
            wanted.into_iter().map(into_memory).collect();
        let read = |member: &Rc<Member>, request| self.operate(member, request);
        let failed = self.read_strips(stripe, &reads, read).await.err();
        match failed.into_iter().flatten().next() {
            Some(failure) => Err(failure.error),
            None => Ok(reads),
        }
    }

    /// Copies the first copy that can be read to the others.
    async fn resync_copies(&self, stripe: Stripe) -> Outcome {
        let len = self.layout.strip_bytes() as usize;
        let memory = self.scratch.allow(len, Payload::Bytes).await;
        let cells: SmallVec<[StripCell; 4]> = self.copies_in_use(stripe).collect();
        let mut error: Option<DeviceError> = None;
        for source in &cells {
            let Some(member) = self.members.holder(*source) else { continue };
            let offset = self.layout.row_start(source.row);
            // Of its own for each attempt: an abandoned one may still write to the last.
            let content: Buffers = memory.take(len).into();
            let read = Request::read(offset, content.clone());
            match self.operate(&member, read).await {
                Ok(()) => {
                    let holders = cells.iter().flat_map(|cell| self.members.holders(*cell));
                    let others: Vec<Rc<Member>> =
                        holders.filter(|other| !Rc::ptr_eq(other, &member)).collect();
                    let write = || Request::write(offset, content.clone());
                    let writes = others.iter().map(|member| self.change(member, write()));
                    let outcomes = join_all(writes.collect()).await;
                    return self.conclude_writes(&others, outcomes).await;
                }
                Err(failure) => error = Some(failure),
            }
        }
        Err(error.unwrap_or_else(|| self.gone()))
    }
}
