//! Operations on members: started, waited for, and abandoned.
//!
//! An abandoned operation continues without its waiter, and keeps its memory until the device has
//! completed it: a command cannot be taken back from a drive. A client whose read was reconstructed
//! has its memory for good all the same. Where the request has all of a buffer, members read into
//! that; when the first of these reads is abandoned, other memory is put behind the client's
//! handles, and what the device may still write to stays with the operation
//! ([`Buffer::exchange`]). Other reads go to memory of the array's own, and are copied on
//! completion. An abandoned write may still read its client's memory, and writes whatever that
//! contains by then to a member that is excluded.
//!
//! Watching and landing cost a read of 4 KiB some 170 ns. That is saved where it has no use (no
//! redundancy, no deadlines, memory without payload) or no risk (a device that has completed
//! everything at once so far is memory itself).
//!
//! **Invariants**
//! - Once a request is answered, no device reads into what its client finds behind its handles.
//! - A member is failed after a timeout only where its group can tolerate it; else its operations
//!   wait.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use headpond_block::{
    Buffer, Buffers, ByteRange, Cause, DeviceError, Outcome, Request, RequestKind, Submission,
};
use smallvec::SmallVec;

use super::health::DeviceQueuePlace;
use super::watch::{Ticket, TimeoutVerdict};
use super::{Array, Member};
use crate::balance::{Candidate, Motion, Planned};
use crate::deadlines::TICKS_OF_READ;
use crate::layout::{Role, StripCell, Stripe};
use crate::superblock::RecordedParity;

/// How long an operation is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationWait {
    /// Until its data is better had from the peers: a read.
    Briefly,
    /// Until its member is failed.
    ToTheEnd,
}

/// An operation on a member. It must be driven to its end, as every submission.
#[must_use]
pub(super) struct Operation<'a> {
    submission: Submission<'static>,
    under_way: Option<UnderWay<'a>>,
}

/// What belongs to an operation that has no answer yet.
struct UnderWay<'a> {
    array: &'a Array,
    member: Rc<Member>,
    waiting: OperationWait,
    landing: Option<Landing>,
    ticket: Ticket,
    place: DeviceQueuePlace,
    kind: RequestKind,
}

/// What a member reads into, on its way to a client.
struct Landing {
    /// The client's memory as it was when the read began, or the array's own.
    target: Buffers,
    client: Buffers,
    /// The whole buffer of the client, where the target is part of it.
    whole: Option<Buffer>,
}

impl<'a> Operation<'a> {
    pub(super) fn ready(outcome: Outcome) -> Operation<'a> {
        Operation { submission: Submission::ready(outcome), under_way: None }
    }

    /// Whether it has succeeded already.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.submission, Submission::Ready(Some(Ok(()))))
    }

    /// Takes the outcome, where there is one without waiting.
    pub(super) fn now(&mut self) -> Option<Outcome> {
        match &mut self.submission {
            Submission::Ready(outcome) => outcome.take(),
            Submission::Pending(_) | Submission::Kept(_) => None,
        }
    }

    /// Leaves the operation to itself.
    fn give_up(&mut self) -> DeviceError {
        let UnderWay { array, member, waiting, landing, ticket, place, kind } =
            self.under_way.take().expect("what has no answer is under way");
        if let Some(landing) = landing {
            landing.give_up(array);
        }
        let submission = std::mem::replace(&mut self.submission, Submission::Ready(None));
        ticket.leave_behind();
        let error = array.no_answer(&member);
        match waiting {
            OperationWait::Briefly => place.health().note_reconstructed(),
            OperationWait::ToTheEnd => {
                place.health().note_error(kind, &error, array.runtime.utc());
            }
        }
        drop(array.runtime.spawn(async move {
            // Its outcome is not needed any more.
            let _ = submission.await;
            drop((ticket, place));
        }));
        error
    }
}

impl Landing {
    /// The client has what was read.
    fn deliver(&self) {
        if !self.is_in_place() {
            self.client.copy_from_buffers(&self.target);
        }
    }

    /// Whether the client finds behind its handles what the member reads into.
    fn is_in_place(&self) -> bool {
        let mut parts = self.target.iter().zip(self.client.iter());
        self.whole.is_some() && parts.all(|(target, client)| target.as_ptr() == client.as_ptr())
    }

    /// Leaves the target to the member, which may still read into it.
    fn give_up(self, array: &Array) {
        if self.is_in_place()
            && let Some(whole) = self.whole
        {
            whole.exchange(array.scratch.landing(whole.len()));
        }
    }
}

impl UnderWay<'_> {
    /// Whether to go on without an answer.
    fn is_to_be_given_up(&self, verdict: TimeoutVerdict) -> bool {
        match verdict {
            TimeoutVerdict::InTime => false,
            TimeoutVerdict::Slow => {
                self.waiting == OperationWait::Briefly && self.array.can_be_avoided(&self.member)
            }
            TimeoutVerdict::Hung => {
                self.array.evict_condemned();
                !self.array.members.is_present(&self.member)
            }
        }
    }
}

impl Future for Operation<'_> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        if let Poll::Ready(outcome) = Pin::new(&mut self.submission).poll(context) {
            let Some(under_way) = self.under_way.take() else { return Poll::Ready(outcome) };
            let UnderWay { array, member, landing, kind, .. } = under_way;
            match (&outcome, landing) {
                (Ok(()), landing) => landing.iter().for_each(Landing::deliver),
                (Err(error), _) => array.note_error(&member, kind, error),
            }
            return Poll::Ready(outcome);
        }
        let Some(under_way) = &self.under_way else { return Poll::Pending };
        under_way.place.health().note_deferred();
        let verdict = under_way.ticket.verdict(context.waker());
        match under_way.is_to_be_given_up(verdict) {
            true => Poll::Ready(Err(self.give_up())),
            false => Poll::Pending,
        }
    }
}

impl<'a> From<Operation<'a>> for Submission<'a> {
    fn from(mut operation: Operation<'a>) -> Self {
        match operation.now() {
            Some(outcome) => Submission::ready(outcome),
            None => Submission::pending(operation),
        }
    }
}

impl Array {
    /// Starts a request for a part of the data area of a member, with memory of the array's own or
    /// to be written.
    pub(super) fn operate(&self, member: &Rc<Member>, request: Request) -> Operation<'_> {
        let (range, kind) = (request.range, request.kind);
        let submission = self.members.submit(member, request);
        self.under_way(member, submission, (range, kind))
    }

    /// The same where nothing can be done without the member, so that there is nothing to watch.
    pub(super) fn pass(&self, role: Role, request: Request) -> Submission<'_> {
        match self.members.active(role) {
            Some(member) => {
                let kind = request.kind;
                let outcome = match self.members.submit(&member, request) {
                    Submission::Ready(outcome) => outcome.expect("nobody has taken it"),
                    // One allocation besides those of a device that does not complete at once.
                    submission => {
                        return Submission::pending(async move {
                            let outcome = submission.await;
                            outcome.inspect_err(|error| self.note_error(&member, kind, error))
                        });
                    }
                };
                Submission::ready(
                    outcome.inspect_err(|error| self.note_error(&member, kind, error)),
                )
            }
            None => Submission::ready(Err(self.gone())),
        }
    }

    /// Starts a read into the memory of a client, which is all of `whole` or a part of it. Nothing
    /// but this request of the array reads into that now.
    pub(super) fn read_member(
        &self,
        member: &Rc<Member>,
        request: Request,
        waiting: OperationWait,
        whole: &Buffers,
    ) -> Operation<'_> {
        if !self.may_give_up(member) || request.buffers.is_payload_free() {
            return self.operate(member, request).waited_for(waiting);
        }
        let Request { buffers: client, .. } = request;
        let whole = whole.as_single().filter(|whole| whole.is_exchangeable()).cloned();
        let target = match &whole {
            Some(_) => client.pinned(),
            None => self.scratch.landing(client.len_bytes()).into(),
        };
        let buffers = target.clone();
        let operation = self.operate(member, Request { buffers, ..request });
        operation.waited_for(waiting).landing_in(Landing { target, client, whole })
    }

    /// Waits for something that was started on a member otherwise.
    pub(super) fn watched(
        &self,
        member: &Rc<Member>,
        submission: Submission<'static>,
        kind: RequestKind,
    ) -> Operation<'_> {
        let nowhere = ByteRange::EMPTY;
        self.under_way(member, submission, (nowhere, kind))
    }

    fn under_way(
        &self,
        member: &Rc<Member>,
        submission: Submission<'static>,
        (range, kind): (ByteRange, RequestKind),
    ) -> Operation<'_> {
        let health = &member.health;
        if let Submission::Ready(outcome) = &submission {
            if let Some(Err(error)) = outcome {
                self.note_error(member, kind, error);
            }
            return Operation { submission, under_way: None };
        }
        let under_way = UnderWay {
            array: self,
            member: Rc::clone(member),
            waiting: OperationWait::ToTheEnd,
            landing: None,
            ticket: self.watch.enter(health, kind),
            place: health.enter(range),
            kind,
        };
        Operation { submission, under_way: Some(under_way) }
    }

    #[cold]
    fn note_error(&self, member: &Member, kind: RequestKind, error: &DeviceError) {
        member.health.note_error(kind, error, self.runtime.utc());
    }

    /// Whether a read of a member may be abandoned.
    fn may_give_up(&self, member: &Member) -> bool {
        self.layout.redundancy() > 0 && self.watch.deadlines().is_some() && member.health.defers()
    }

    /// Whether the data of a member can be read without it: enough of its group is in use and
    /// answers.
    pub(super) fn can_be_avoided(&self, member: &Member) -> bool {
        let Some(role) = member.role() else { return true };
        let group = self.layout.group_of_role(role);
        let others = self.layout.group_roles(group).filter(|other| *other != role);
        let is_of_no_use = |other: &Role| {
            let is_slow = |member: Rc<Member>| member.health.is_slow();
            self.members.active(*other).map_or(self.members.is_lost(*other), is_slow)
        };
        others.filter(is_of_no_use).count() < self.layout.redundancy()
    }

    /// Fails members that are hung, or had too many timeouts, where their group can tolerate it. A
    /// request that completes without them waits until that is settled, as after every failure.
    pub(super) fn evict_condemned(&self) {
        // Data of this member alone cannot be reconstructed from parity that may be wrong.
        let is_replaceable = self.is_begun.get() && self.is_parity_whole();
        let is_replaceable = is_replaceable && !self.has_torn();
        for member in self.members.present() {
            let may_go = is_replaceable || !self.members.is_in_role(&member);
            if may_go && member.health.is_condemned() && self.members.can_lose(&member) {
                self.drop_member(&member);
                self.counters.evictions.count();
            }
        }
    }

    fn no_answer(&self, member: &Member) -> DeviceError {
        let deadlines = self.watch.deadlines().unwrap_or_default();
        let after = deadlines.tick() * TICKS_OF_READ as u32;
        DeviceError::new(member.name(), Cause::Timeout { after })
    }

    /// The copy from which a part of a mirrored strip was read last, as far as that is known.
    pub(super) fn last_reader(&self, stripe: Stripe, range: ByteRange) -> Role {
        let balances = self.balances.borrow();
        let copy = balances[self.layout.group_of(stripe)].reader_up_to(range.end());
        self.layout.cell_of_copy(stripe, copy.unwrap_or(0)).role
    }

    /// The copy from which a part of a mirrored strip is best read, of those in use that are not
    /// slow, or else of those in use. `planned` says what the same request is to read from a member
    /// before that.
    pub(super) fn place_read(
        &self,
        stripe: Stripe,
        range: ByteRange,
        planned: impl Fn(Role) -> Planned,
    ) -> Option<StripCell> {
        let mut candidates: SmallVec<[Candidate; 4]> = SmallVec::new();
        let mut any_slow = false;
        for copy in 0..self.layout.copies() {
            let cell = self.layout.cell_of_copy(stripe, copy);
            if let Some(member) = self.members.holder(cell) {
                any_slow |= member.health.is_slow();
                candidates.push(member.health.as_candidate(copy, planned(cell.role)));
            }
        }
        if self.may_differ(stripe) {
            candidates.truncate(1);
        } else if any_slow {
            self.leave_slow_out(stripe, &mut candidates);
        }
        let motion = if self.geometry.now().rotational { Motion::Rotating } else { Motion::None };
        let mut balances = self.balances.borrow_mut();
        let balance = &mut balances[self.layout.group_of(stripe)];
        let copy = balance.place(motion, range, &candidates)?;
        Some(self.layout.cell_of_copy(stripe, copy))
    }

    /// Whether the copies of a stripe may differ, since no bitmap said which of them a write had
    /// reached when the power went: then the first that is in use is what counts, and what the
    /// others are given.
    fn may_differ(&self, stripe: Stripe) -> bool {
        self.parity.get() == RecordedParity::NotInitialised
            && self.intents.is_none()
            && stripe.0 >= self.initialised.get()
    }

    /// Keeps the copies that are not slow, where there are such.
    fn leave_slow_out(&self, stripe: Stripe, candidates: &mut SmallVec<[Candidate; 4]>) {
        let holder =
            |it: &Candidate| self.members.holder(self.layout.cell_of_copy(stripe, it.copy));
        let answers = |it: &Candidate| holder(it).is_some_and(|member| !member.health.is_slow());
        if candidates.iter().any(answers) {
            candidates.retain(|it| {
                answers(it) || {
                    holder(it).inspect(|member| member.health.note_reconstructed());
                    false
                }
            });
        }
    }
}

impl Operation<'_> {
    fn waited_for(mut self, waiting: OperationWait) -> Self {
        if let Some(under_way) = &mut self.under_way {
            under_way.waiting = waiting;
        }
        self
    }

    /// A read whose memory is copied to a client's once it is there.
    fn landing_in(mut self, landing: Landing) -> Self {
        if self.is_done() {
            landing.deliver();
        } else if let Some(under_way) = &mut self.under_way {
            under_way.landing = Some(landing);
        }
        self
    }
}
