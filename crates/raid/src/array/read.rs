//! Reading: straight from the members into the caller's memory, and by way of the redundancy where
//! that fails.

use headpond_block::sync::join_all;
use headpond_block::{
    BlockDevice, ByteRange, DeviceError, Outcome, Request, RequestFlags, Submission,
};
use smallvec::SmallVec;

use super::Array;
use super::gather::{Gather, MemberOperation};
use super::rebuild::Rebuild;
use crate::layout::{Role, Strip, Stripe};
use crate::plan::StripRead;
use crate::split::{self, Piece, StripePieces};

/// Mirrors take turns by stretches of this many bytes, so that a stretch is read from one copy.
const MIRROR_TURN_BYTES: u64 = 1 << 20;

impl Array {
    pub(super) fn read(&self, request: Request) -> Submission<'_> {
        let place = self.layout.place(request.range.start());
        let end = u64::from(place.within) + request.range.len();
        let one_strip = end <= u64::from(self.layout.strip_bytes());
        let role = self.reader(place.stripe, place.strip);
        let row = self.layout.row_of(place.stripe);
        let member = role.and_then(|role| self.members.holder(role, row));
        let (Some(member), true) = (member, one_strip && !self.wants_other_copy(&request)) else {
            return Submission::pending(self.read_pieces(request));
        };
        let offset = self.layout.strip_start(place.stripe) + u64::from(place.within);
        let range = ByteRange::at(offset, request.range.len());
        if self.layout.redundancy() == 0 {
            return self.members.submit(&member, Request { range, ..request });
        }
        match self.members.submit(&member, Request { range, ..request.clone() }).now_or() {
            Ok(Ok(())) => Submission::ready(Ok(())),
            Ok(Err(error)) => Submission::pending(self.reread_all(request, error)),
            Err(pending) => Submission::pending(async move {
                match pending.await {
                    Ok(()) => Ok(()),
                    Err(error) => self.reread_all(request, error).await,
                }
            }),
        }
    }

    /// Reads a request that lies on several strips, or on lost ones, or that wants another copy.
    async fn read_pieces(&self, request: Request) -> Outcome {
        let mut direct = Gather::new(self.layout.members());
        let mut detours: Vec<Submission<'_>> = Vec::new();
        for pieces in split::stripes(&self.layout, request.range) {
            if self.wants_other_copy(&request) {
                let other = pieces.into_iter().map(|piece| self.read_other_copy(piece, &request));
                detours.extend(other);
            } else if self.is_any_lost(&pieces) {
                detours.push(self.read_around(&pieces, &request));
            } else {
                for piece in pieces {
                    let role = self.reader(piece.stripe, piece.extent.strip);
                    let role = role.ok_or_else(|| self.gone())?;
                    let offset = piece.member_offset(&self.layout);
                    direct.add(role, offset, piece, &request.buffers);
                }
            }
        }
        self.read_operations(&request, direct.operations, detours).await
    }

    async fn read_operations<'a>(
        &'a self,
        request: &Request,
        operations: Vec<MemberOperation>,
        detours: Vec<Submission<'a>>,
    ) -> Outcome {
        let direct = operations.iter().map(|operation| self.start(request, operation));
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
        let alone = operation.pieces.len() == 1;
        for piece in operation.pieces {
            if !alone {
                match self.start_piece(request, role, &piece).await {
                    Ok(()) => continue,
                    Err(failure) => error = failure,
                }
            }
            self.reread(piece, request, role, error.clone()).await?;
        }
        Ok(())
    }

    fn start_piece(&self, request: &Request, role: Role, piece: &Piece) -> Submission<'_> {
        let range = ByteRange::at(piece.member_offset(&self.layout), piece.len_bytes() as u64);
        let buffers = request.buffers.slice(piece.memory());
        self.start(request, &MemberOperation { role, range, buffers, pieces: SmallVec::new() })
    }

    fn start(&self, request: &Request, operation: &MemberOperation) -> Submission<'_> {
        let row = operation.range.start() / u64::from(self.layout.strip_bytes());
        let Some(member) = self.members.holder(operation.role, row) else {
            return Submission::ready(Err(self.gone()));
        };
        let (range, buffers) = (operation.range, operation.buffers.clone());
        self.members.submit(&member, Request { range, buffers, ..request.clone() })
    }

    async fn reread_all(&self, request: Request, error: DeviceError) -> Outcome {
        for piece in split::pieces(&self.layout, request.range) {
            let reader = self.reader(piece.stripe, piece.extent.strip);
            let role = reader.ok_or_else(|| self.gone())?;
            self.reread(piece, &request, role, error.clone()).await?;
        }
        Ok(())
    }

    /// Gets a piece from the redundancy after `role` has failed to read it, and writes it there
    /// anew.
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
        if matches!(error, DeviceError::Gone { .. }) {
            self.fail_holder(role, self.layout.row_of(piece.stripe)).await;
        }
        self.counters.reconstructed_reads.count();
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

    /// Reads the pieces of one stripe of which some are on lost members.
    fn read_around(&self, pieces: &StripePieces, request: &Request) -> Submission<'_> {
        self.counters.reconstructed_reads.count();
        let rebuild = pieces.iter().fold(Rebuild::of(pieces[0].stripe), |rebuild, piece| {
            rebuild.with_wanted(piece, &request.buffers)
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
        let usual = self.reader(piece.stripe, 0);
        let mut copies = self.copies_by_turn(piece.stripe);
        let Some(other) = copies.find(|role| Some(*role) != usual) else {
            return Submission::ready(Err(self.gone()));
        };
        self.start_piece(request, other, &piece)
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

    /// Whether a piece lies on a lost member of a parity group.
    fn is_any_lost(&self, pieces: &StripePieces) -> bool {
        if !self.members.is_degraded() || self.layout.level().is_mirrored() {
            return false;
        }
        let lost = self.members.lost_strips(&self.layout, pieces[0].stripe);
        pieces.iter().any(|piece| lost.contains(&Strip::Data(piece.extent.strip)))
    }

    /// The member from which a strip is usually read: for mirrors, the copy whose turn it is.
    fn reader(&self, stripe: Stripe, strip: u16) -> Option<Role> {
        if self.layout.level().is_mirrored() {
            return self.copies_by_turn(stripe).next();
        }
        Some(self.layout.role_of(stripe, Strip::Data(strip)))
    }

    /// The copies of a stripe that are in use, beginning with the one whose turn it is.
    pub(super) fn copies_by_turn(&self, stripe: Stripe) -> impl Iterator<Item = Role> + '_ {
        let (copies, row) = (self.layout.copies(), self.layout.row_of(stripe));
        let turn = (self.layout.strip_start(stripe) / MIRROR_TURN_BYTES) as usize % copies;
        let order = (turn..copies).chain(0..turn);
        let roles = order.map(move |copy| self.layout.role_of_copy(stripe, copy));
        roles.filter(move |role| self.members.holder(*role, row).is_some())
    }

    pub(super) fn gone(&self) -> DeviceError {
        DeviceError::Gone { device: self.name().clone() }
    }
}
