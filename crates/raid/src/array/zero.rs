//! Zeroing and discarding.
//!
//! Rows of whole stripes go down to the members as they are: zeros have zero parity. The rest of
//! the range is written as zeros. Where there is parity a discarded strip must read as zeros, which
//! discard does not promise: whole rows are zeroed instead, unless the members rotate and would
//! write for hours, and what does not fill a row is left as it is.

use std::rc::Rc;

use headpond_block::sync::join_all;
use headpond_block::{Buffer, Buffers, ByteRange, DeviceError, Outcome, Request, RequestKind};

use super::{Array, Member};
use crate::layout::Stripe;

/// Rows zeroed under one set of locks.
const ROWS_AT_A_TIME: u64 = 32;
/// Zeros kept in memory, and written at a time where a member cannot zero by itself.
const ZEROS_BYTES: usize = 64 << 10;

impl Array {
    /// Carries out a WriteZeroes or Discard.
    pub(super) async fn zero(&self, request: Request) -> Outcome {
        self.check_writable()?;
        let _writer = self.writers.enter();
        let row_bytes = self.layout.stripe_bytes() * self.layout.groups() as u64;
        let first_row = request.range.start().div_ceil(row_bytes);
        let rows = first_row..request.range.end() / row_bytes;
        if rows.is_empty() {
            return self.zero_part(&request, request.range).await;
        }
        let (start, end) = (rows.start * row_bytes, rows.end * row_bytes);
        let head = ByteRange::between(request.range.start(), start);
        let tail = ByteRange::between(end, request.range.end());
        self.zero_part(&request, head).await?;
        self.zero_rows(&request, rows).await?;
        self.zero_part(&request, tail).await
    }

    /// Zeroes or discards a part that fills no row.
    async fn zero_part(&self, request: &Request, part: ByteRange) -> Outcome {
        if part.is_empty() {
            return Ok(());
        }
        if self.layout.parity_strips() == 0 {
            let part = request.part(part, part.start());
            return match self.layout.level().is_mirrored() {
                true => self.mirror_write_pieces(part).await,
                false => self.plain_write_pieces(part).await,
            };
        }
        if request.kind == RequestKind::Discard {
            return Ok(());
        }
        for chunk in part.split_at_multiples(self.layout.stripe_bytes()) {
            let write = Request::write(chunk.start(), self.zeros(chunk.len() as usize));
            self.parity_write(write.with_flags(request.flags).with_hints(request.hints)).await?;
        }
        Ok(())
    }

    /// Zeroes or discards rows of whole stripes in all groups.
    async fn zero_rows(&self, request: &Request, rows: std::ops::Range<u64>) -> Outcome {
        let kind = match (request.kind, self.layout.parity_strips()) {
            (RequestKind::Discard, 1..) if self.geometry.rotational => return Ok(()),
            (RequestKind::Discard, 1..) => RequestKind::WriteZeroes,
            (kind, _) => kind,
        };
        let groups = self.layout.groups() as u64;
        let mut start = rows.start;
        while start < rows.end {
            let end = rows.end.min(start + ROWS_AT_A_TIME);
            let _locks = match self.layout.redundancy() {
                0 => Vec::new(),
                _ => self.lock_stripes(Stripe(start * groups), Stripe(end * groups - 1)).await,
            };
            let stripes = Stripe(start * groups)..=Stripe(end * groups - 1);
            let _mark = self.mark(stripes, request.flags).await?;
            self.check_writable()?;
            let strip_bytes = u64::from(self.layout.strip_bytes());
            let range = ByteRange::between(start * strip_bytes, end * strip_bytes);
            self.zero_members(Request { kind, range, ..request.clone() }).await?;
            start = end;
        }
        Ok(())
    }

    /// Zeroes or discards a range of the data area of every member. One that is being filled takes
    /// no harm by it in rows that it does not hold yet.
    async fn zero_members(&self, request: Request) -> Outcome {
        let mut members = self.members.present();
        members.retain(|member| member.role().is_some());
        let submissions = members.iter().map(|member| self.change(member, request.clone()));
        let outcomes = join_all(submissions.collect()).await;
        self.conclude_writes(&members, outcomes).await
    }

    /// Zeroes or discards on one member, by writing zeros where it cannot zero by itself.
    pub(super) async fn zero_member(&self, member: Rc<Member>, request: Request) -> Outcome {
        let range = request.range;
        let (kind, flags, hints) = (request.kind, request.flags, request.hints);
        match self.operate(&member, request).await {
            Err(DeviceError::Unsupported { .. }) if kind == RequestKind::Discard => Ok(()),
            Err(DeviceError::Unsupported { .. }) => {
                for chunk in range.split_at_multiples(1 << 20) {
                    let write = Request::write(chunk.start(), self.zeros(chunk.len() as usize));
                    let write = write.with_flags(flags).with_hints(hints);
                    self.operate(&member, write).await?;
                }
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn zeros(&self, len: usize) -> Buffers {
        let zeros = self.zeros.get_or_init(|| Buffer::zeroed(ZEROS_BYTES));
        let starts = (0..len).step_by(ZEROS_BYTES);
        starts.map(|start| zeros.slice(0..ZEROS_BYTES.min(len - start))).collect()
    }
}
