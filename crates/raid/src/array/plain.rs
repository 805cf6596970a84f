//! Writing without parity: striping, and what mirrors share with it.

use std::ops::RangeInclusive;
use std::rc::Rc;

use headpond_block::sync::join_all;
use headpond_block::{ByteRange, Outcome, Request, RequestKind, Submission};

use super::gather::{Gather, MemberOperation};
use super::{Array, Member, WhenFull};
use crate::layout::Strip;
use crate::split;

impl Array {
    /// Writes to an array without redundancy.
    pub(super) fn plain_write(&self, request: Request) -> Submission<'_> {
        let place = self.layout.place(request.range.start());
        let end = u64::from(place.within) + request.range.len();
        if end > u64::from(self.layout.strip_bytes()) {
            return Submission::pending(self.plain_write_pieces(request));
        }
        let cell = self.layout.cell(place.stripe, Strip::Data(place.strip));
        let offset = self.layout.row_start(cell.row) + u64::from(place.within);
        let range = ByteRange::at(offset, request.range.len());
        self.pass(cell.role, Request { range, ..request })
    }

    /// Writes, zeroes or discards a range of an array without redundancy.
    pub(super) async fn plain_write_pieces(&self, request: Request) -> Outcome {
        let mut gather = Gather::new(self.layout.members());
        for piece in split::pieces(&self.layout, request.range) {
            let cell = piece.cell(&self.layout);
            let offset = piece.member_offset(&self.layout, cell.row);
            gather.add(cell.role, offset, piece, &request.buffers);
        }
        self.write_operations(&request, gather.operations).await
    }

    /// Carries out operations of the request's kind on the members.
    pub(super) async fn write_operations(
        &self,
        request: &Request,
        operations: Vec<MemberOperation>,
    ) -> Outcome {
        let (mut members, mut submissions) = (Vec::new(), Vec::new());
        for MemberOperation { role, range, buffers, .. } in operations {
            let part = Request { range, buffers, ..request.clone() };
            let holders = self.members.holders_of_rows(role, self.rows_of(range));
            if holders.is_empty() && self.layout.redundancy() == 0 {
                return Err(self.gone());
            }
            for member in holders {
                submissions.push(self.change(&member, part.clone()));
                members.push(member);
            }
        }
        self.conclude_writes(&members, join_all(submissions).await).await
    }

    /// The rows of strips that a range of a data area reaches.
    fn rows_of(&self, range: ByteRange) -> RangeInclusive<u64> {
        let strip_bytes = u64::from(self.layout.strip_bytes());
        range.start() / strip_bytes..=(range.end() - 1) / strip_bytes
    }

    /// Starts a write, zeroing or discard on the data area of a member.
    pub(super) fn change(&self, member: &Rc<Member>, request: Request) -> Submission<'_> {
        if request.kind == RequestKind::Write {
            return self.operate(member, request).into();
        }
        Submission::pending(self.zero_member(Rc::clone(member), request))
    }

    /// Evaluates the outcomes of writes to some members: those with errors are failed, and the
    /// write as a whole has succeeded where the redundancy still covers it. The last copy of a
    /// mirror stays: its data is nowhere else.
    ///
    /// # Errors
    /// Where it does not, or a member had no space left, which is no fault of the member's; unless
    /// such a one is to leave, and another has all of it.
    pub(super) async fn conclude_writes(
        &self,
        members: &[Rc<Member>],
        outcomes: Vec<Outcome>,
    ) -> Outcome {
        let (mut no_space, mut first_error, mut of_last_copy) = (None, None, None);
        let are_full_out = self.are_full_out(members, &outcomes);
        for (member, outcome) in members.iter().zip(outcomes) {
            match outcome {
                Ok(()) => member.note_write(),
                Err(error) if !are_full_out && error.is_full() => {
                    no_space = Some(error);
                }
                Err(error) => {
                    if self.layout.redundancy() == 0 {
                        return Err(error);
                    }
                    if self.is_last_copy(member) && !error.is_gone() {
                        of_last_copy.get_or_insert(error);
                        continue;
                    }
                    first_error.get_or_insert(error);
                    self.fail_member(member).await;
                }
            }
        }
        self.settle().await;
        match (no_space.or(of_last_copy), first_error) {
            (Some(error), _) => Err(error),
            (None, Some(error)) if self.members.is_broken() => Err(error),
            _ => self.check_intact(),
        }
    }

    /// Whether this is the only member of a mirror with the data.
    pub(super) fn is_last_copy(&self, member: &Rc<Member>) -> bool {
        self.layout.copies() > 1 && !self.members.can_lose(member)
    }

    /// Whether members without space are failed: one with a role has completed all of its writes.
    fn are_full_out(&self, members: &[Rc<Member>], outcomes: &[Outcome]) -> bool {
        let has_all = |one: &Rc<Member>| {
            let mut its = members.iter().zip(outcomes).filter(|(it, _)| Rc::ptr_eq(it, one));
            self.members.is_in_role(one) && its.all(|(_, outcome)| outcome.is_ok())
        };
        let is_on_all = self.layout.copies() == self.layout.members();
        is_on_all
            && self.scratch.when_full() == WhenFull::FailMember
            && outcomes.iter().any(Result::is_err)
            && members.iter().any(has_all)
    }
}
