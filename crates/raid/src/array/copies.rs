//! The copies of a mirror one by one, for callers that can tell which of them is correct.
//!
//! **Not here**: the handling of unreadable copies by a mirror itself (`mirror`).

use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, Copies, Outcome, Request, Submission};

use super::Array;
use super::operation::OperationWait;
use crate::split::{self, Piece};

impl Copies for Array {
    fn count(&self) -> usize {
        self.layout.copies()
    }

    fn read_copy(&self, copy: usize, request: Request) -> Submission<'_> {
        self.counters.requests.count();
        Submission::pending(async move {
            request.check(self.name(), self.geometry())?;
            let request = &request;
            let reads = split::pieces(&self.layout, request.range)
                .map(|piece| Submission::pending(self.read_on(copy, piece, request)));
            join_all(reads.collect()).await.into_iter().collect()
        })
    }

    fn mend_copy(&self, copy: usize, request: Request) -> Submission<'_> {
        self.counters.requests.count();
        Submission::pending(async move {
            request.check(self.name(), self.geometry())?;
            self.check_writable()?;
            for piece in split::pieces(&self.layout, request.range) {
                let _lock = self.locks.lock(piece.stripe.0).await;
                let cell = self.layout.cell_of_copy(piece.stripe, copy);
                let offset = piece.member_offset(&self.layout, cell.row);
                let content = request.buffers.slice(piece.memory());
                self.rewrite(cell, Request::write(offset, content)).await;
            }
            self.check_intact()
        })
    }
}

impl Array {
    async fn read_on(&self, copy: usize, piece: Piece, request: &Request) -> Outcome {
        let cell = self.layout.cell_of_copy(piece.stripe, copy);
        let Some(member) = self.members.holder(cell) else { return Err(self.gone()) };
        let offset = piece.member_offset(&self.layout, cell.row);
        let read = Request::read(offset, request.buffers.slice(piece.memory()));
        let whole = &request.buffers;
        let outcome = self.read_member(&member, read, OperationWait::ToTheEnd, whole).await;
        if let Err(error) = &outcome
            && error.is_gone()
        {
            self.fail_holder(cell, error).await;
        }
        outcome
    }
}
