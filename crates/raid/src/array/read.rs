//! Reading: directly from the members into the caller's memory, and reconstructing where that
//! fails.

use std::rc::Rc;

use headpond_block::sync::join_all;
use headpond_block::{
    BlockDevice, ByteRange, Cause, DeviceError, Outcome, Request, RequestFlags, Submission,
};
use smallvec::SmallVec;

use super::gather::{Gather, MemberOperation};
use super::operation::{Operation, OperationWait};
use super::rebuild::Rebuild;
use super::{Array, Member};
use crate::balance::Planned;
use crate::layout::{Role, Strip, StripCell, Stripe};
use crate::plan::StripRead;
use crate::split::{self, Piece, StripePieces};

impl Array {
    pub(super) fn read(&self, request: Request) -> Submission<'_> {
        let place = self.layout.place(request.range.start());
        let end = u64::from(place.within) + request.range.len();
        let one_strip = end <= u64::from(self.layout.strip_bytes());
        if !one_strip || self.wants_other_copy(&request) {
            return Submission::pending(self.read_pieces(request));
        }
        let cell = self.layout.cell(place.stripe, Strip::Data(place.strip));
        let offset = self.layout.row_start(cell.row) + u64::from(place.within);
        let range = ByteRange::at(offset, request.range.len());
        if self.layout.redundancy() == 0 {
            return self.pass(cell.role, Request { range, ..request });
        }
        let cell = match self.layout.level().is_mirrored() {
            true => self.place_read(place.stripe, range, |_| Planned::default()),
            false => Some(cell),
        };
        let reader = cell.and_then(|cell| Some((cell, self.ready_holder(cell)?)));
        let Some((StripCell { role, .. }, member)) = reader else {
            return Submission::pending(self.read_pieces(request));
        };
        let read = Request { range, ..request.clone() };
        let began = self.lost.recordings();
        let mut operation =
            self.read_member(&member, read, OperationWait::Briefly, &request.buffers);
        match operation.now() {
            Some(Ok(())) => Submission::ready(Ok(())),
            Some(Err(error)) => Submission::pending(async move {
                let outcome = self.reread_all(&request, role, error).await;
                self.unless_lost_since(began, request, outcome).await
            }),
            None => Submission::pending(async move {
                let outcome = match operation.await {
                    Ok(()) => Ok(()),
                    Err(error) => self.reread_all(&request, role, error).await,
                };
                self.unless_lost_since(began, request, outcome).await
            }),
        }
    }

    /// Reads a request over several strips, or over missing ones, or of another copy.
    pub(super) async fn read_pieces(&self, request: Request) -> Outcome {
        loop {
            let began = self.lost.recordings();
            self.check_known(request.range)?;
            self.read_pieces_once(&request).await?;
            if self.lost.is_as_of(began) {
                return Ok(());
            }
        }
    }

    async fn read_pieces_once(&self, request: &Request) -> Outcome {
        let mut direct = Gather::new(self.layout.members());
        let mut detours: Vec<Submission<'_>> = Vec::new();
        for pieces in split::stripes(&self.layout, request.range) {
            if self.wants_other_copy(request) {
                let other = pieces.into_iter().map(|piece| self.read_other_copy(piece, request));
                detours.extend(other);
            } else if self.is_any_lost(&pieces) {
                detours.push(self.read_around(&pieces, request));
            } else {
                for piece in pieces {
                    let cell = self.reader(&piece, &direct).ok_or_else(|| self.gone())?;
                    let offset = piece.member_offset(&self.layout, cell.row);
                    direct.add(cell.role, offset, piece, &request.buffers);
                }
            }
        }
        self.read_operations(request, direct.operations, detours).await
    }

    async fn read_operations<'a>(
        &'a self,
        request: &Request,
        operations: Vec<MemberOperation>,
        detours: Vec<Submission<'a>>,
    ) -> Outcome {
        let direct = operations.iter().map(|operation| self.start(request, operation).into());
        let submissions: Vec<Submission<'a>> = direct.chain(detours).collect();
        let mut outcomes = join_all(submissions).await.into_iter();
        for operation in operations {
            if let Some(Err(error)) = outcomes.next() {
                self.reread_pieces(operation, request, error).await?;
            }
        }
        outcomes.collect()
    }

    /// Reads the pieces of an operation one by one, since not all of them need be damaged.
    async fn reread_pieces(
        &self,
        operation: MemberOperation,
        request: &Request,
        mut error: DeviceError,
    ) -> Outcome {
        let role = operation.role;
        let alone = operation.pieces.len() == 1 || matches!(error.cause(), Cause::Timeout { .. });
        for piece in operation.pieces {
            if !alone {
                // Its current location, if that has changed.
                let at = match self.layout.level().is_mirrored() {
                    true => role,
                    false => piece.cell(&self.layout).role,
                };
                match self.start_piece(request, at, &piece).await {
                    Ok(()) => continue,
                    Err(failure) => error = failure,
                }
            }
            self.reread(piece, request, role, error.clone()).await?;
        }
        Ok(())
    }

    fn start_piece(&self, request: &Request, role: Role, piece: &Piece) -> Operation<'_> {
        let row = piece.cell(&self.layout).row;
        let offset = piece.member_offset(&self.layout, row);
        let range = ByteRange::at(offset, piece.len_bytes() as u64);
        let buffers = request.buffers.slice(piece.memory());
        self.start(request, &MemberOperation { role, range, buffers, pieces: SmallVec::new() })
    }

    fn start(&self, request: &Request, operation: &MemberOperation) -> Operation<'_> {
        let (range, buffers) = (operation.range, operation.buffers.clone());
        let read = Request { range, buffers, ..request.clone() };
        let row = operation.range.start() / u64::from(self.layout.strip_bytes());
        match self.members.holder(StripCell { role: operation.role, row }) {
            Some(member) => {
                self.read_member(&member, read, OperationWait::Briefly, &request.buffers)
            }
            None => Operation::ready(Err(self.gone())),
        }
    }

    async fn reread_all(&self, request: &Request, role: Role, error: DeviceError) -> Outcome {
        for piece in split::pieces(&self.layout, request.range) {
            self.reread(piece, request, role, error.clone()).await?;
        }
        Ok(())
    }

    /// Reconstructs a piece after `role` has failed to read it, and rewrites it there.
    async fn reread(
        &self,
        piece: Piece,
        request: &Request,
        role: Role,
        error: DeviceError,
    ) -> Outcome {
        if error.is_callers_fault() || self.layout.redundancy() == 0 {
            return Err(error);
        }
        if error.is_gone() {
            let row = piece.cell(&self.layout).row;
            self.fail_holder(StripCell { role, row }, &error).await;
        }
        self.counters.reconstructed_reads.count();
        if matches!(error.cause(), Cause::Timeout { .. }) {
            return self.read_slow(piece, request, role).await;
        }
        let _lock = self.locks.lock(piece.stripe.0).await;
        if self.layout.level().is_mirrored() {
            let buffers = request.buffers.slice(piece.memory());
            return self.mirror_reread(&piece, &buffers, role, error).await;
        }
        let suspect =
            StripRead { strip: Strip::Data(piece.extent.strip), span: piece.extent.span.clone() };
        let rebuild = Rebuild::of(piece.stripe)
            .with_wanted(&piece, &request.buffers)
            .with_suspect(suspect, error);
        self.rebuild(rebuild).await
    }

    /// Gets a piece from the redundancy because `role` does not answer.
    async fn read_slow(&self, piece: Piece, request: &Request, role: Role) -> Outcome {
        if self.layout.level().is_mirrored() {
            let buffers = request.buffers.slice(piece.memory());
            return self.mirror_read_around(&piece, &buffers, role).await;
        }
        let rebuild = Rebuild::of(piece.stripe).with_wanted(&piece, &request.buffers);
        self.rebuild_locked(rebuild.around(Strip::Data(piece.extent.strip))).await
    }

    /// Reads the pieces of one stripe of which some are on lost members.
    fn read_around(&self, pieces: &StripePieces, request: &Request) -> Submission<'_> {
        self.counters.reconstructed_reads.count();
        let rebuild = pieces.iter().fold(Rebuild::of(pieces[0].stripe), |rebuild, piece| {
            let strip = Strip::Data(piece.extent.strip);
            let rebuild = rebuild.with_wanted(piece, &request.buffers);
            match self.is_read(piece.stripe, strip) {
                true => rebuild,
                false => {
                    let slow = self.members.holder(self.layout.cell(piece.stripe, strip));
                    slow.inspect(|member| member.health.note_reconstructed());
                    rebuild.around(strip)
                }
            }
        });
        self.rebuild_locked(rebuild)
    }

    fn read_other_copy(&self, piece: Piece, request: &Request) -> Submission<'_> {
        self.counters.reconstructed_reads.count();
        if !self.layout.level().is_mirrored() {
            let strip = Strip::Data(piece.extent.strip);
            let rebuild = Rebuild::of(piece.stripe).with_wanted(&piece, &request.buffers);
            return self.rebuild_locked(rebuild.avoiding(strip));
        }
        let offset = piece.member_offset(&self.layout, piece.cell(&self.layout).row);
        let range = ByteRange::at(offset, piece.len_bytes() as u64);
        let usual = self.last_reader(piece.stripe, range);
        let mut copies = self.copies_in_use(piece.stripe);
        let Some(other) = copies.find(|cell| cell.role != usual) else {
            return Submission::ready(Err(self.gone()));
        };
        self.start_piece(request, other.role, &piece).into()
    }

    fn rebuild_locked(&self, rebuild: Rebuild) -> Submission<'_> {
        Submission::pending(async move {
            let _lock = self.locks.lock(rebuild.stripe().0).await;
            self.rebuild(rebuild).await
        })
    }

    fn wants_other_copy(&self, request: &Request) -> bool {
        request.flags.contains(RequestFlags::OTHER_COPY) && self.layout.redundancy() > 0
    }

    /// Whether a piece is on a member of a parity group that is lost, or slow.
    fn is_any_lost(&self, pieces: &StripePieces) -> bool {
        let strip = |piece: &Piece| Strip::Data(piece.extent.strip);
        !self.layout.level().is_mirrored()
            && self.layout.redundancy() > 0
            && pieces.iter().any(|piece| !self.is_read(piece.stripe, strip(piece)))
    }

    /// Whether a strip has a holder, and one that is not slow if possible.
    fn is_read(&self, stripe: Stripe, strip: Strip) -> bool {
        self.ready_holder(self.layout.cell(stripe, strip)).is_some()
    }

    /// The holder of a cell, unless it is slow and that can be helped.
    fn ready_holder(&self, cell: StripCell) -> Option<Rc<Member>> {
        let member = self.members.holder(cell)?;
        let is_avoided = member.health.is_slow() && self.can_be_avoided(&member);
        (!is_avoided).then_some(member)
    }

    /// The cell from which a piece is read, behind what is to be read already.
    fn reader(&self, piece: &Piece, before: &Gather) -> Option<StripCell> {
        let cell = piece.cell(&self.layout);
        if !self.layout.level().is_mirrored() {
            // Strips in spare space follow their neighbours there, not those at home.
            let holder = self.members.holder(cell)?;
            return Some(StripCell { role: holder.role()?, ..cell });
        }
        let offset = piece.member_offset(&self.layout, cell.row);
        let range = ByteRange::at(offset, piece.len_bytes() as u64);
        self.place_read(piece.stripe, range, |role| before.planned(role, offset))
    }

    /// The copies of a stripe that are in use.
    pub(super) fn copies_in_use(&self, stripe: Stripe) -> impl Iterator<Item = StripCell> + '_ {
        let copies = 0..self.layout.copies();
        let cells = copies.map(move |copy| self.layout.cell_of_copy(stripe, copy));
        cells.filter(move |cell| self.members.holder(*cell).is_some())
    }

    pub(super) fn gone(&self) -> DeviceError {
        DeviceError::new(self.name(), Cause::Gone)
    }
}
