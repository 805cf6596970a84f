//! Mirrors: every copy is written, any copy is read.

use std::rc::Rc;

use headpond_block::sync::{KeyGuard, join_all};
use headpond_block::{Buffers, ByteRange, DeviceError, Outcome, Request, RequestKind, Submission};
use smallvec::SmallVec;

use super::gather::Gather;
use super::operation::{Operation, OperationWait};
use super::{Array, Member};
use crate::layout::{Role, StripCell, StripOffset, Stripe};
use crate::split::{self, Piece};

/// The writes of one strip to all of its copies.
type Copies<'a> = SmallVec<[(Rc<Member>, Operation<'a>); 3]>;

impl Array {
    pub(super) fn mirror_write(&self, request: Request) -> Submission<'_> {
        let place = self.layout.place(request.range.start());
        let end = u64::from(place.within) + request.range.len();
        let is_small = end <= u64::from(self.layout.strip_bytes());
        let is_known = self.check_known(request.range).is_ok();
        let simple = is_small && is_known && self.intents.is_none() && self.integrity.is_none();
        if !simple {
            return Submission::pending(self.mirror_write_pieces(request));
        }
        match self.locks.try_lock(place.stripe.0) {
            Some(lock) => self.mirror_write_strip(request, place, lock),
            None => Submission::pending(self.mirror_write_pieces(request)),
        }
    }

    /// Writes a part of one strip to all copies; where they take it at once, nothing is allocated.
    fn mirror_write_strip(
        &self,
        request: Request,
        place: StripOffset,
        lock: KeyGuard,
    ) -> Submission<'_> {
        let row = self.layout.cell_of_copy(place.stripe, 0).row;
        let offset = self.layout.row_start(row) + u64::from(place.within);
        let range = ByteRange::at(offset, request.range.len());
        let mut copies = Copies::new();
        let mut at_once = true;
        for copy in 0..self.layout.copies() {
            let cell = self.layout.cell_of_copy(place.stripe, copy);
            for member in self.members.holders(cell) {
                let write = self.operate(&member, Request { range, ..request.clone() });
                at_once &= write.is_done();
                copies.push((member, write));
            }
        }
        if at_once && self.recorder.is_settled() {
            copies.iter().for_each(|(member, _)| member.note_write());
            return Submission::ready(Ok(()));
        }
        Submission::pending(async move {
            let _writer = self.writers.enter();
            let _lock = lock;
            let (members, writes): (Vec<Rc<Member>>, Vec<Operation<'_>>) =
                copies.into_iter().unzip();
            self.conclude_writes(&members, join_all(writes).await).await
        })
    }

    /// Writes, zeroes or discards a range on all copies.
    pub(super) async fn mirror_write_pieces(&self, request: Request) -> Outcome {
        let _writer = self.writers.enter();
        let (first, last) = self.stripes_of(request.range);
        let _locks = self.lock_stripes(first, last).await;
        let _mark = self.mark(first..=last, request.flags).await?;
        self.check_writable()?;
        let mut gather = Gather::new(self.layout.members());
        for piece in split::pieces(&self.layout, request.range) {
            for copy in 0..self.layout.copies() {
                let cell = self.layout.cell_of_copy(piece.stripe, copy);
                let offset = piece.member_offset(&self.layout, cell.row);
                gather.add(cell.role, offset, piece.clone(), &request.buffers);
            }
        }
        self.write_operations(&request, gather.operations).await?;
        match request.kind {
            RequestKind::Discard => Ok(()),
            _ => self.note_range_known(request.range).await,
        }
    }

    /// Reads a piece from a copy other than the one that failed, which is then rewritten. The
    /// stripe is locked by the caller.
    pub(super) async fn mirror_reread(
        &self,
        piece: &Piece,
        buffers: &Buffers,
        failed: Role,
        error: DeviceError,
    ) -> Outcome {
        let row = piece.cell(&self.layout).row;
        let offset = piece.member_offset(&self.layout, row);
        let others: SmallVec<[StripCell; 4]> =
            self.copies_in_use(piece.stripe).filter(|cell| cell.role != failed).collect();
        for cell in others {
            let Some(member) = self.members.holder(cell) else { continue };
            // Where one copy cannot be read, a slow one is waited for.
            let read = Request::read(offset, buffers.clone());
            if self.read_member(&member, read, OperationWait::ToTheEnd, buffers).await.is_ok() {
                let failed = StripCell { role: failed, row };
                self.rewrite(failed, Request::write(offset, buffers.clone())).await;
                return Ok(());
            }
        }
        Err(error)
    }

    /// Reads a piece from a copy other than the slow one, and from that one where there is no other
    /// way. Nothing is repaired, so that nothing need be locked.
    pub(super) async fn mirror_read_around(
        &self,
        piece: &Piece,
        buffers: &Buffers,
        slow: Role,
    ) -> Outcome {
        let row = piece.cell(&self.layout).row;
        let offset = piece.member_offset(&self.layout, row);
        let copies: SmallVec<[StripCell; 4]> = self.copies_in_use(piece.stripe).collect();
        let others = copies.iter().copied().filter(|cell| cell.role != slow);
        for cell in others {
            let Some(member) = self.members.holder(cell) else { continue };
            let read = Request::read(offset, buffers.clone());
            if self.read_member(&member, read, OperationWait::Briefly, buffers).await.is_ok() {
                return Ok(());
            }
        }
        let slow = StripCell { role: slow, row };
        let Some(slow) = self.members.holder(slow) else { return Err(self.gone()) };
        let read = Request::read(offset, buffers.clone());
        self.read_member(&slow, read, OperationWait::ToTheEnd, buffers).await
    }

    /// Locks stripes in ascending order.
    pub(super) async fn lock_stripes(&self, first: Stripe, last: Stripe) -> Vec<KeyGuard> {
        let mut locks = Vec::with_capacity((last.0 - first.0 + 1) as usize);
        for stripe in first.0..=last.0 {
            locks.push(self.locks.lock(stripe).await);
        }
        locks
    }

    /// The first and last stripe of a range that is not empty.
    pub(super) fn stripes_of(&self, range: ByteRange) -> (Stripe, Stripe) {
        (self.layout.place(range.start()).stripe, self.layout.place(range.end() - 1).stripe)
    }
}
