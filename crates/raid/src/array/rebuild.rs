//! Reconstructing strips of one stripe from its other strips.
//!
//! One routine serves reads of missing strips, reads after an error and the repair of unreadable
//! strips. Data that is read anyway goes to the memory of the caller; only the rest needs scratch
//! memory.

use std::rc::Rc;

use headpond_block::sync::join_all;
use headpond_block::{Buffers, ByteRange, Cause, DeviceError, Outcome, Request};
use smallvec::SmallVec;

use super::columns::{Columns, ParityMemory};
use super::members::LostStrips;
use super::operation::{Operation, OperationWait};
use super::parity_write::StripWrite;
use super::scratch::{Allowance, Payload};
use super::{Array, Member};
use crate::layout::{Strip, StripCell, Stripe};
use crate::plan::{self, Extent, ParityTrust, RecoveryPlan, Span, StripRead, StripeState};
use crate::split::Piece;
use crate::superblock::RecordedParity;

/// What is to be got of a stripe. The stripe is locked by the caller.
pub(super) struct Rebuild {
    stripe: Stripe,
    /// Requested data, at most one extent a strip, and its destination.
    wanted: SmallVec<[(Extent, Buffers); 8]>,
    /// All memory of the client, of which the destinations are parts.
    memory: Buffers,
    /// Strips that could not be read, to be rewritten.
    suspects: SmallVec<[(StripRead, DeviceError); 2]>,
    avoided: Option<Strip>,
    /// Strips that are taken for zeros instead of being read.
    zeroed: LostStrips,
    /// Strips on members that do not answer, to be read only where there is no other way.
    slow: LostStrips,
    waiting: OperationWait,
}

/// What was got of a stripe.
struct Solved<'a> {
    suspects: Vec<StripWrite>,
    _memory: Allowance<'a>,
}

/// A strip that could not be read.
pub(super) struct ReadFailure {
    pub(super) read: StripRead,
    pub(super) error: DeviceError,
}

impl Rebuild {
    pub(super) fn of(stripe: Stripe) -> Rebuild {
        Rebuild {
            stripe,
            wanted: SmallVec::new(),
            memory: Buffers::new(),
            suspects: SmallVec::new(),
            avoided: None,
            zeroed: LostStrips::new(),
            slow: LostStrips::new(),
            waiting: OperationWait::Briefly,
        }
    }

    pub(super) fn with_wanted(mut self, piece: &Piece, memory: &Buffers) -> Rebuild {
        self.wanted.push((piece.extent.clone(), memory.slice(piece.memory())));
        self.memory = memory.clone();
        self
    }

    pub(super) fn with_suspect(mut self, read: StripRead, error: DeviceError) -> Rebuild {
        self.suspects.push((read, error));
        self
    }

    /// Treats a strip that could be read as if it were lost.
    pub(super) fn avoiding(mut self, strip: Strip) -> Rebuild {
        self.avoided = Some(strip);
        self
    }

    /// Does not read some strips, of which nothing is known: they are made zeros, after what could
    /// not be read either.
    pub(super) fn taking_for_zeros(mut self, strips: LostStrips) -> Rebuild {
        self.zeroed = strips;
        self
    }

    /// Does without a strip whose member does not answer, as long as that is possible.
    pub(super) fn around(mut self, strip: Strip) -> Rebuild {
        if !self.slow.contains(&strip) {
            self.slow.push(strip);
        }
        self
    }

    /// Waits for slow members, since they are required.
    fn within_deadline(mut self) -> Rebuild {
        self.slow.clear();
        self.waiting = OperationWait::ToTheEnd;
        self
    }

    pub(super) fn stripe(&self) -> Stripe {
        self.stripe
    }

    fn payload(&self) -> Payload {
        self.wanted.first().map_or(Payload::Bytes, |(_, buffers)| Payload::of(buffers))
    }

    /// All strips that are not to be read: those of lost members, suspects, and the avoided one.
    fn unreadable(&self, lost: LostStrips) -> LostStrips {
        let mut strips = lost;
        let suspects = self.suspects.iter().map(|(read, _)| read.strip);
        for strip in suspects.chain(self.avoided).chain(self.slow.iter().copied()) {
            if !strips.contains(&strip) {
                strips.push(strip);
            }
        }
        strips
    }

    /// The smallest span that holds what has to be solved.
    fn hull(&self, unreadable: &LostStrips) -> Span {
        let wanted = self.wanted.iter().map(|(extent, _)| extent);
        let wanted = wanted
            .filter(|extent| unreadable.contains(&Strip::Data(extent.strip)))
            .map(|extent| extent.span.clone());
        let suspects = self.suspects.iter().map(|(read, _)| read.span.clone());
        wanted.chain(suspects).reduce(union).unwrap_or(0..0)
    }

    fn wanted_of(&self, strip: Strip) -> Option<&(Extent, Buffers)> {
        self.wanted.iter().find(|(extent, _)| Strip::Data(extent.strip) == strip)
    }
}

impl Array {
    /// Gets what is wanted, around everything that cannot be read, and rewrites the suspects.
    ///
    /// # Errors
    /// Where more strips cannot be read than the parity replaces, or the parity is not valid.
    pub(super) async fn rebuild(&self, mut job: Rebuild) -> Outcome {
        loop {
            let unreadable = job.unreadable(self.members.lost_strips(&self.layout, job.stripe));
            let hull = job.hull(&unreadable);
            let plan = match self.plan_recovery(&job, &hull, &unreadable) {
                Err(_) if !job.slow.is_empty() => {
                    job = job.within_deadline();
                    continue;
                }
                plan => plan?,
            };
            let failures = match self.rebuild_once(&job, &hull, plan).await {
                Ok(solved) => return self.rewrite_suspects(&job, solved).await,
                Err(failures) => failures,
            };
            for ReadFailure { read, error } in failures {
                if matches!(error.cause(), Cause::Timeout { .. }) {
                    job = job.around(read.strip);
                    continue;
                }
                if error.is_gone() {
                    self.fail_holder(self.layout.cell(job.stripe, read.strip), &error).await;
                }
                job.suspects.push((read, error));
            }
        }
    }

    /// Whether the parity of a stripe matches its data.
    pub(super) fn parity_trust(&self, stripe: Stripe) -> ParityTrust {
        let torn = self.torn.borrow();
        let initialised =
            self.parity.get() == RecordedParity::Valid || stripe.0 < self.initialised.get();
        if initialised && (torn.is_empty() || !torn.contains_key(&stripe)) {
            return ParityTrust::Valid;
        }
        ParityTrust::Stale
    }

    /// Reads strips of one stripe into memory, each as `read` does.
    ///
    /// # Errors
    /// Every strip that could not be read.
    pub(super) async fn read_strips<'a>(
        &'a self,
        stripe: Stripe,
        reads: &[(StripRead, Buffers)],
        read: impl Fn(&Rc<Member>, Request) -> Operation<'a>,
    ) -> Result<(), Vec<ReadFailure>> {
        let start = |(part, buffers): &(StripRead, Buffers)| {
            let cell = self.layout.cell(stripe, part.strip);
            match self.members.holder(cell) {
                Some(member) => {
                    let start = self.layout.row_start(cell.row) + u64::from(part.span.start);
                    read(&member, Request::read(start, buffers.clone()))
                }
                None => Operation::ready(Err(self.gone())),
            }
        };
        let outcomes = join_all(reads.iter().map(start).collect()).await;
        let failed = outcomes.into_iter().zip(reads).filter_map(|(outcome, (read, _))| {
            let error = outcome.err()?;
            Some(ReadFailure { read: read.clone(), error })
        });
        let failures: Vec<ReadFailure> = failed.collect();
        if failures.is_empty() { Ok(()) } else { Err(failures) }
    }

    fn plan_recovery(
        &self,
        job: &Rebuild,
        hull: &Span,
        unreadable: &LostStrips,
    ) -> Result<RecoveryPlan, DeviceError> {
        if hull.is_empty() {
            return Ok(RecoveryPlan { reads: SmallVec::new(), lost: None });
        }
        // What stands in place of zeros is not what it seems, and meant so.
        let trust = match job.zeroed.is_empty() {
            true => self.parity_trust_in(job.stripe, hull),
            false => ParityTrust::Valid,
        };
        let plan = |parity| {
            let state = StripeState { lost: unreadable, parity };
            plan::recovery(&self.layout, hull, state)
        };
        let plan = plan(trust).or_else(|error| match self.torn_parity {
            super::TornParity::Use => plan(ParityTrust::Valid),
            super::TornParity::Refuse => Err(error),
        });
        plan.map_err(|_| self.unrecoverable(job, hull))
    }

    fn unrecoverable(&self, job: &Rebuild, hull: &Span) -> DeviceError {
        if let Some((_, error)) = job.suspects.first() {
            return error.clone();
        }
        let first = job.wanted.first().map_or(0, |(extent, _)| extent.strip);
        let start = self.layout.stripe_start(job.stripe)
            + u64::from(first) * u64::from(self.layout.strip_bytes());
        let range = ByteRange::at(start + u64::from(hull.start), hull.len() as u64);
        DeviceError::new(&self.name, Cause::Media { range })
    }

    async fn rebuild_once(
        &self,
        job: &Rebuild,
        hull: &Span,
        plan: RecoveryPlan,
    ) -> Result<Solved<'_>, Vec<ReadFailure>> {
        let strips = self.layout.data_strips() + 2;
        let bytes = strips * hull.len();
        let memory = self.scratch.allow(bytes, job.payload()).await;
        let reads = compose(job, hull, &plan, &memory);
        let read = |member: &Rc<Member>, request| {
            self.read_member(member, request, job.waiting, &job.memory)
        };
        if job.zeroed.is_empty() {
            self.read_strips(job.stripe, &reads, read).await?;
        } else {
            self.read_strips(job.stripe, &without_zeroed(job, &reads), read).await?;
        }
        if hull.is_empty() {
            return Ok(Solved { suspects: Vec::new(), _memory: memory });
        }
        let (mut columns, parity) = self.columns_of(&reads, hull, &memory);
        if let (Some(lost), Payload::Bytes) = (plan.lost, memory.payload()) {
            parity.solve(&mut columns, lost);
        }
        let mut suspects = Vec::new();
        if memory.payload() == Payload::Bytes {
            deliver(job, hull, &columns);
            suspects = self.suspects_solved(job, hull, &columns, &memory);
        }
        Ok(Solved { suspects, _memory: memory })
    }

    /// Sorts what was read into columns over the hull, and P and Q.
    pub(super) fn columns_of(
        &self,
        reads: &[(StripRead, Buffers)],
        hull: &Span,
        memory: &Allowance<'_>,
    ) -> (Columns, ParityMemory) {
        let mut columns = Columns::from_elem(None, self.layout.data_strips());
        let mut parity = self.parity_memory(hull.len(), memory);
        for (read, buffers) in reads {
            let start = hull.start.checked_sub(read.span.start);
            let start = start.filter(|_| hull.end <= read.span.end).map(|start| start as usize);
            let part = start.map(|start| buffers.slice(start..start + hull.len()));
            match read.strip {
                Strip::Data(k) => columns[usize::from(k)] = part,
                Strip::P => parity.p = whole(buffers),
                Strip::Q => parity.q = Some(whole(buffers)),
            }
        }
        (columns, parity)
    }

    /// Memory for as many parity strips as the level has.
    pub(super) fn parity_memory(&self, len: usize, memory: &Allowance<'_>) -> ParityMemory {
        let q = (self.layout.parity_strips() == 2).then(|| memory.take(len));
        ParityMemory { p: memory.take(len), q }
    }

    /// What the suspects have to hold.
    fn suspects_solved(
        &self,
        job: &Rebuild,
        hull: &Span,
        columns: &Columns,
        memory: &Allowance<'_>,
    ) -> Vec<StripWrite> {
        if job.suspects.is_empty() || headpond_block::defect!(SkipRepair) {
            return Vec::new();
        }
        let mut parity = self.parity_memory(hull.len(), memory);
        parity.generate(columns);
        let solved = |(read, _): &(StripRead, DeviceError)| {
            let content: Buffers = match read.strip {
                Strip::Data(k) => columns[usize::from(k)].clone().expect("solved"),
                Strip::P => (&parity.p).into(),
                Strip::Q => parity.q.as_ref().expect("the level has Q").into(),
            };
            (read.strip, read.span.start, content.slice(within(&read.span, hull)))
        };
        job.suspects.iter().map(solved).collect()
    }

    async fn rewrite_suspects(&self, job: &Rebuild, solved: Solved<'_>) -> Outcome {
        if !job.zeroed.is_empty() {
            let span = job.suspects.first().map(|(read, _)| read.span.clone());
            let span = span.expect("what is solved beside zeros is unreadable");
            return self.put_made_up(job.stripe, solved.suspects, (&job.zeroed, span)).await;
        }
        for (strip, start, content) in solved.suspects {
            let cell = self.layout.cell(job.stripe, strip);
            let offset = self.layout.row_start(cell.row) + u64::from(start);
            self.rewrite(cell, Request::write(offset, content)).await;
        }
        Ok(())
    }

    /// Writes strips that could not be read, or are being filled; a member that cannot write them
    /// is failed.
    pub(super) async fn rewrite(&self, cell: StripCell, write: Request) {
        let mut takers = self.members.holders(cell);
        if takers.is_empty() {
            takers = self.members.takers(cell);
        } else {
            self.counters.rewritten_strips.count();
        }
        for member in takers {
            if !self.members.is_present(&member) {
                // Removed since, and its device may be used elsewhere.
                continue;
            }
            match self.operate(&member, write.clone()).await {
                Ok(()) => member.note_write(),
                Err(_) => self.fail_member(&member).await,
            }
        }
    }
}

/// The reads of a plan and of other requested data, one a strip, into the caller's memory where
/// requested and into scratch memory where not.
fn compose(
    job: &Rebuild,
    hull: &Span,
    plan: &RecoveryPlan,
    memory: &Allowance<'_>,
) -> SmallVec<[(StripRead, Buffers); 8]> {
    let mut reads: SmallVec<[(StripRead, Buffers); 8]> = SmallVec::new();
    for read in &plan.reads {
        let Some((extent, wanted)) = job.wanted_of(read.strip) else {
            reads.push((read.clone(), memory.take(hull.len()).into()));
            continue;
        };
        let span = union(read.span.clone(), extent.span.clone());
        let mut buffers = Buffers::new();
        if span.start < extent.span.start {
            buffers.push(memory.take((extent.span.start - span.start) as usize));
        }
        buffers.extend(wanted);
        if extent.span.end < span.end {
            buffers.push(memory.take((span.end - extent.span.end) as usize));
        }
        reads.push((StripRead { strip: read.strip, span }, buffers));
    }
    if plan.reads.is_empty() {
        let direct = job.wanted.iter().map(|(extent, buffers)| {
            let (strip, span) = (Strip::Data(extent.strip), extent.span.clone());
            (StripRead { strip, span }, buffers.clone())
        });
        reads.extend(direct);
    }
    reads
}

/// The reads but for those of strips that are taken for zeros, whose memory is zeroed.
fn without_zeroed(
    job: &Rebuild,
    reads: &[(StripRead, Buffers)],
) -> SmallVec<[(StripRead, Buffers); 8]> {
    let is_zeroed = |read: &StripRead| job.zeroed.contains(&read.strip);
    reads.iter().filter(|(read, _)| is_zeroed(read)).for_each(|(_, buffers)| buffers.fill(0));
    reads.iter().filter(|(read, _)| !is_zeroed(read)).cloned().collect()
}

/// Copies solved strips to where they are wanted. Those that were read are there already.
fn deliver(job: &Rebuild, hull: &Span, columns: &Columns) {
    for (extent, buffers) in &job.wanted {
        let solved = hull.start <= extent.span.start && extent.span.end <= hull.end;
        let Some(column) = columns[usize::from(extent.strip)].as_ref().filter(|_| solved) else {
            continue;
        };
        buffers.copy_from_buffers(&column.slice(within(&extent.span, hull)));
    }
}

fn union(a: Span, b: Span) -> Span {
    a.start.min(b.start)..a.end.max(b.end)
}

/// A span in the hull, as bytes of a column over the hull.
fn within(span: &Span, hull: &Span) -> std::ops::Range<usize> {
    assert!(hull.start <= span.start && span.end <= hull.end);
    (span.start - hull.start) as usize..(span.end - hull.start) as usize
}

fn whole(buffers: &Buffers) -> headpond_block::Buffer {
    buffers.as_single().expect("scratch memory is contiguous").clone()
}
