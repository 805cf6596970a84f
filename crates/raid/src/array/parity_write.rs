//! Writing under parity: one stripe at a time, under its lock, by the cheapest plan.
//!
//! 1. lock the stripe, with others that wait for it (`merge`); 2. mark its region; 3. plan around
//!    missing strips; 4. read old contents; where that fails, repair the strip and plan anew; 5.
//!    compute; 6. make the result stable in the journal, where required; 7. write data and parity;
//!    8. settle failures.

use std::rc::Rc;

use headpond_block::sync::join_all;
use headpond_block::{
    Buffers, Cause, DeviceError, Hints, Outcome, Request, RequestFlags, Submission,
};
use smallvec::SmallVec;

use super::columns::{Columns, ParityMemory};
use super::guard::Told;
use super::journal::Changes;
use super::merge::Sighting;
use super::rebuild::{ReadFailure, Rebuild};
use super::scratch::{Allowance, Payload};
use super::{Array, Member};
use crate::journal::record::Change;
use crate::layout::{Strip, Stripe};
use crate::merge::batch::Batch;
use crate::plan::{
    self, Extent, ParityTrust, PlanError, PlanKind, StripRead, StripeState, WritePlan,
};
use crate::split::{self, StripePieces};

/// What is to be written to one stripe.
pub(super) struct StripeWrite {
    pub(super) stripe: Stripe,
    pub(super) extents: SmallVec<[Extent; 8]>,
    /// The memory of each extent.
    pub(super) data: SmallVec<[Buffers; 8]>,
    pub(super) flags: RequestFlags,
    pub(super) hints: Hints,
}

/// A drive that still cannot read a strip after so many repairs of it, in one write, is failed:
/// fewer could be sectors that went bad one after the other.
pub(super) const REPAIRS_MAX: usize = 4;

/// Strips that were repaired for the sake of one write, once for each repair.
type Repaired = SmallVec<[Strip; 4]>;

/// How an attempt ended that did not get through.
enum Setback {
    /// Nothing was written.
    Unread(Vec<ReadFailure>),
    Failed(DeviceError),
}

impl StripeWrite {
    fn new(pieces: StripePieces, request: &Request) -> StripeWrite {
        StripeWrite {
            stripe: pieces[0].stripe,
            data: pieces.iter().map(|piece| request.buffers.slice(piece.memory())).collect(),
            extents: pieces.into_iter().map(|piece| piece.extent).collect(),
            flags: request.flags,
            hints: request.hints,
        }
    }

    pub(super) fn of_batch(
        stripe: Stripe,
        batch: Batch,
        flags: RequestFlags,
        hints: Hints,
    ) -> StripeWrite {
        let (extents, data) = batch.into_parts();
        StripeWrite { stripe, extents, data, flags, hints }
    }

    pub(super) fn payload(&self) -> Payload {
        Payload::of(&self.data[0])
    }

    pub(super) fn bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.span.len() as u64).sum()
    }

    /// Whether it may wait for others: not what is to be stable by itself, nor what repeats a write
    /// after an unclean shutdown.
    pub(super) fn may_wait(&self) -> bool {
        !self.flags.intersects(RequestFlags::FUA | RequestFlags::RECOMPUTE_PARITY)
    }
}

impl Array {
    pub(super) fn parity_write(&self, request: Request) -> Submission<'_> {
        let sighting = self.merging.sight(&request);
        let mut stripes = split::stripes(&self.layout, request.range);
        let first = StripeWrite::new(stripes.next().expect("a request is not empty"), &request);
        let mut writes: SmallVec<[StripeWrite; 1]> = SmallVec::from_iter([first]);
        writes.extend(stripes.map(|pieces| StripeWrite::new(pieces, &request)));
        if writes.len() == 1 {
            let write = writes.remove(0);
            return match sighting {
                None => Submission::pending(self.write_stripe(write, None)),
                sighting => {
                    Submission::pending(
                        async move { self.write_stripe(write, sighting.as_ref()).await },
                    )
                }
            };
        }
        if let Err(error) = self.check_journal(request.range) {
            return Submission::ready(Err(error));
        }
        Submission::pending(async move {
            let sighting = sighting.as_ref();
            let start = |stripe| Submission::pending(self.write_stripe(stripe, sighting));
            let all = writes.into_iter().map(start).collect();
            join_all(all).await.into_iter().collect()
        })
    }

    async fn write_stripe(&self, job: StripeWrite, sighting: Option<&Sighting<'_>>) -> Outcome {
        let _writer = self.writers.enter();
        self.check_writable()?;
        if headpond_block::defect!(SkipStripeLock) {
            return self.write_locked(&job).await;
        }
        match self.lock_alone(&job, sighting.is_some()) {
            Some(_lock) => self.write_locked(&job).await,
            // A write that waits can afford a box of its own.
            None => Submission::pending(self.write_with_others(job, sighting)).await,
        }
    }

    /// Writes to a stripe, whose lock the caller holds.
    pub(super) async fn write_locked(&self, job: &StripeWrite) -> Outcome {
        let _mark = self.mark(job.stripe..=job.stripe, job.flags).await?;
        self.write_content(job).await?;
        self.note_known(job.stripe, &job.extents).await
    }

    /// Writes to a stripe that is locked and marked, and says nothing of what is known there.
    pub(super) async fn write_content(&self, job: &StripeWrite) -> Outcome {
        let mut repaired: Repaired = SmallVec::new();
        loop {
            self.check_intact()?;
            let plan = self.plan_write(job)?;
            match self.carry_out(job, &plan).await {
                Ok(()) => {
                    self.note_carried_out(job, &plan);
                    return Ok(());
                }
                Err(Setback::Failed(error)) => return Err(error),
                Err(Setback::Unread(failures)) => {
                    for failure in failures {
                        self.overcome(job.stripe, failure, &mut repaired).await?;
                    }
                }
            }
        }
    }

    fn plan_write(&self, job: &StripeWrite) -> Result<WritePlan, DeviceError> {
        let lost = self.members.lost_strips(&self.layout, job.stripe);
        let is_suspect = job.flags.contains(RequestFlags::RECOMPUTE_PARITY);
        let trust = match is_suspect && !self.is_verified(job.stripe) {
            true => ParityTrust::Stale,
            false => self.parity_trust_in(job.stripe, &plan::hull(&job.extents)),
        };
        let plan =
            |parity| plan::write(&self.layout, &job.extents, StripeState { lost: &lost, parity });
        let plan = plan(trust).or_else(|error| match (error, self.torn_parity) {
            (PlanError::StaleParity, super::TornParity::Use) => plan(ParityTrust::Valid),
            _ => Err(error),
        });
        plan.map_err(|_| self.gone())
    }

    fn note_carried_out(&self, job: &StripeWrite, plan: &WritePlan) {
        self.counters.plan(plan.kind).count();
        // Missing parity cannot be wrong.
        let clears_suspect_parity = !matches!(plan.kind, PlanKind::ReadModifyWrite);
        if clears_suspect_parity {
            self.clear_suspect_parity(job.stripe, &plan.hull);
        }
        let anew = matches!(plan.kind, PlanKind::FullStripe | PlanKind::Reconstruct);
        if anew && plan.hull == (0..self.layout.strip_bytes()) {
            self.torn.borrow_mut().remove(&job.stripe);
        }
    }

    /// Repairs a strip that could not be read, or gives its member up where that has not helped.
    async fn overcome(
        &self,
        stripe: Stripe,
        failure: ReadFailure,
        repaired: &mut Repaired,
    ) -> Outcome {
        let ReadFailure { read, error } = failure;
        let repairs = repaired.iter().filter(|strip| **strip == read.strip).count();
        let is_out = matches!(error.cause(), Cause::Gone | Cause::Timeout { .. });
        let hopeless = is_out || repairs >= REPAIRS_MAX;
        if hopeless {
            self.fail_holder(self.layout.cell(stripe, read.strip), &error).await;
            return self.check_intact();
        }
        repaired.push(read.strip);
        self.rebuild(Rebuild::of(stripe).with_suspect(read, error)).await
    }

    async fn carry_out(&self, job: &StripeWrite, plan: &WritePlan) -> Result<(), Setback> {
        let read_bytes: usize = plan.reads.iter().map(|read| read.span.len()).sum();
        let bytes = read_bytes + self.layout.parity_strips() * plan.hull.len();
        let memory = self.scratch.allow(bytes, job.payload()).await;
        let old: Old = plan
            .reads
            .iter()
            .map(|read| (read.clone(), memory.take(read.span.len()).into()))
            .collect();
        let read = |member: &Rc<Member>, request| self.operate(member, request);
        self.read_strips(job.stripe, &old, read).await.map_err(Setback::Unread)?;
        let parity = match plan.kind {
            PlanKind::DataOnly => None,
            PlanKind::ReadModifyWrite => Some(self.patched_parity(job, plan, &old, &memory)),
            PlanKind::FullStripe | PlanKind::Reconstruct => {
                Some(self.new_parity(job, plan, &old, &memory))
            }
        };
        self.write_strips(job, plan, parity).await.map_err(Setback::Failed)
    }

    /// Old parity with the differences of all extents added.
    fn patched_parity(
        &self,
        job: &StripeWrite,
        plan: &WritePlan,
        old: &Old,
        memory: &Allowance<'_>,
    ) -> ParityMemory {
        let mut parity = self.parity_memory_from(old, plan, memory);
        if memory.payload() == Payload::Free {
            return parity;
        }
        for (extent, new) in job.extents.iter().zip(&job.data) {
            let (read, buffers) = old
                .iter()
                .find(|(read, _)| read.strip == Strip::Data(extent.strip))
                .expect("read-modify-write has read what it writes");
            let from = (extent.span.start - read.span.start) as usize;
            let before = buffers.as_single().expect("scratch memory is contiguous");
            let before = before.slice(from..from + extent.span.len());
            let start = (extent.span.start - plan.hull.start) as usize;
            parity.patch(extent.strip, start, &before, new);
        }
        parity
    }

    /// The old P and Q as they were read; plain scratch memory in the place of a lost one.
    fn parity_memory_from(
        &self,
        old: &Old,
        plan: &WritePlan,
        memory: &Allowance<'_>,
    ) -> ParityMemory {
        let read = |strip| {
            let (_, buffers) = old.iter().find(|(read, _)| read.strip == strip)?;
            Some(buffers.as_single().expect("scratch memory is contiguous").clone())
        };
        let take = || memory.take(plan.hull.len());
        let two = self.layout.parity_strips() == 2;
        ParityMemory {
            p: read(Strip::P).unwrap_or_else(take),
            q: two.then(|| read(Strip::Q).unwrap_or_else(take)),
        }
    }

    /// Parity of the stripe as it will be.
    fn new_parity(
        &self,
        job: &StripeWrite,
        plan: &WritePlan,
        old: &Old,
        memory: &Allowance<'_>,
    ) -> ParityMemory {
        if memory.payload() == Payload::Free {
            return self.parity_memory(plan.hull.len(), memory);
        }
        let mut before = Columns::from_elem(None, self.layout.data_strips());
        if let Some(lost) = plan.lost {
            for (read, buffers) in old {
                if let Strip::Data(k) = read.strip {
                    before[usize::from(k)] = Some(buffers.clone());
                }
            }
            self.parity_memory_from(old, plan, memory).solve(&mut before, lost);
        }
        let columns: Columns = before
            .into_iter()
            .enumerate()
            .map(|(k, solved)| Some(new_column(job, plan, old, k as u16, solved)))
            .collect();
        let mut parity = self.parity_memory(plan.hull.len(), memory);
        parity.generate(&columns);
        parity
    }

    async fn write_strips(
        &self,
        job: &StripeWrite,
        plan: &WritePlan,
        parity: Option<ParityMemory>,
    ) -> Outcome {
        let writes = strip_writes(job, plan, parity);
        let pass = self.announce(job.stripe..=job.stripe, || told(job.stripe, &writes)).await?;
        let flags = match headpond_block::defect!(DropFua) {
            true => RequestFlags::empty(),
            false => job.flags & RequestFlags::FUA,
        };
        let (mut members, mut submissions) = (Vec::new(), Vec::new());
        for (strip, start, buffers) in writes {
            let cell = self.layout.cell(job.stripe, strip);
            let offset = self.layout.row_start(cell.row) + u64::from(start);
            let request = Request::write(offset, buffers).with_flags(flags).with_hints(job.hints);
            for member in self.members.holders(cell) {
                submissions.push(self.operate(&member, request.clone()));
                members.push(member);
            }
        }
        let outcomes = join_all(submissions).await;
        let lease = pass.leave(&members, &outcomes);
        let outcome = self.conclude_writes(&members, outcomes).await;
        if outcome.as_ref().is_err_and(DeviceError::is_full) {
            self.torn.borrow_mut().entry(job.stripe).or_default().extend(lease);
        }
        self.keep_room().await;
        outcome
    }
}

/// New content of a strip from a byte on.
pub(super) type StripWrite = (Strip, u32, Buffers);

/// What a plan writes. Missing parity is left out where it was not recomputed: there is no old one
/// to update.
fn strip_writes(
    job: &StripeWrite,
    plan: &WritePlan,
    parity: Option<ParityMemory>,
) -> SmallVec<[StripWrite; 8]> {
    let mut writes = SmallVec::new();
    for (extent, data) in job.extents.iter().zip(&job.data) {
        writes.push((Strip::Data(extent.strip), extent.span.start, data.clone()));
    }
    let is_known = |strip: &Strip| {
        let is_patched = plan.kind == PlanKind::ReadModifyWrite;
        !is_patched || plan.reads.iter().any(|read| read.strip == *strip)
    };
    if let Some(ParityMemory { p, q }) = parity {
        let both = [(Strip::P, Some(p)), (Strip::Q, q)].into_iter();
        let known = both.filter(|(strip, _)| is_known(strip));
        writes.extend(known.filter_map(|(strip, it)| Some((strip, plan.hull.start, it?.into()))));
    }
    writes
}

/// The same for the journal. Missing data is in it as well; parity may not be, so a loss is
/// recorded on the members before a record leaves its parity out.
pub(super) fn told(stripe: Stripe, writes: &[StripWrite]) -> Told {
    let mut told = Told { changes: Changes::new(), data: Buffers::new() };
    for (strip, start, buffers) in writes {
        let span = *start..*start + buffers.len_bytes() as u32;
        told.changes.push(Change::Content { stripe, strip: *strip, span });
        told.data.extend(buffers);
    }
    told
}

/// Old contents that were read, and their memory.
type Old = SmallVec<[(StripRead, Buffers); 8]>;

/// A data strip over the hull as it will be: the new extents, and between them what was there
/// before.
fn new_column(
    job: &StripeWrite,
    plan: &WritePlan,
    old: &Old,
    k: u16,
    solved: Option<Buffers>,
) -> Buffers {
    let read = old.iter().find(|(read, _)| read.strip == Strip::Data(k));
    let before = |start: u32, end: u32| -> Buffers {
        let (from, buffers) = match (&solved, read) {
            (Some(solved), _) => (plan.hull.start, solved),
            (None, Some((read, buffers))) => (read.span.start, buffers),
            (None, None) => unreachable!("the plan reads what is not written"),
        };
        buffers.slice((start - from) as usize..(end - from) as usize)
    };
    let mut written: SmallVec<[(&Extent, &Buffers); 4]> =
        job.extents.iter().zip(&job.data).filter(|(extent, _)| extent.strip == k).collect();
    written.sort_by_key(|(extent, _)| extent.span.start);
    let mut column = Buffers::new();
    let mut at = plan.hull.start;
    for (extent, data) in written {
        if at < extent.span.start {
            column.extend(&before(at, extent.span.start));
        }
        column.extend(data);
        at = extent.span.end;
    }
    if at < plan.hull.end {
        column.extend(&before(at, plan.hull.end));
    }
    column
}
