//! Zeroing and discarding.
//!
//! Bands of whole stripes are passed to the members as such: zeros have zero parity, in spare space
//! too. The rest of the range is written as zeros. With parity a discarded strip must read as
//! zeros, which discard does not guarantee: whole bands are zeroed instead, unless the members
//! rotate and would write for hours, and the rest of the range is left as it is.

use std::ops::RangeInclusive;
use std::rc::Rc;

use headpond_block::sync::join_all;
use headpond_block::{Buffer, Buffers, ByteRange, Outcome, Request, RequestKind};

use super::guard::Told;
use super::journal::Changes;
use super::{Array, Member};
use crate::journal::record::Change;
use crate::layout::Stripe;

/// Rows zeroed under one set of locks, or else a band.
const ROWS_AT_A_TIME: u64 = 32;
/// Zeros kept in memory, and written at a time where a member cannot zero by itself.
const ZEROS_BYTES: usize = 64 << 10;

impl Array {
    /// Carries out a WriteZeroes or Discard.
    pub(super) async fn zero(&self, request: Request) -> Outcome {
        self.check_writable()?;
        self.check_journal(request.range)?;
        let _writer = self.writers.enter();
        let band_bytes = self.layout.stripe_bytes() * self.layout.band_stripes();
        let first_band = request.range.start().div_ceil(band_bytes);
        let bands = first_band..request.range.end() / band_bytes;
        if bands.is_empty() {
            return self.zero_part(&request, request.range).await;
        }
        let (start, end) = (bands.start * band_bytes, bands.end * band_bytes);
        let head = ByteRange::between(request.range.start(), start);
        let tail = ByteRange::between(end, request.range.end());
        self.zero_part(&request, head).await?;
        self.zero_bands(&request, bands).await?;
        self.zero_part(&request, tail).await
    }

    /// Zeroes or discards a part that fills no band.
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

    /// Zeroes or discards bands of whole stripes in all groups.
    async fn zero_bands(&self, request: &Request, bands: std::ops::Range<u64>) -> Outcome {
        let kind = match (request.kind, self.layout.parity_strips()) {
            (RequestKind::Discard, 1..) if self.geometry.now().rotational => return Ok(()),
            (RequestKind::Discard, 1..) => RequestKind::WriteZeroes,
            (kind, _) => kind,
        };
        let (band_rows, band_stripes) = (self.layout.band_rows(), self.layout.band_stripes());
        let at_a_time = (ROWS_AT_A_TIME / (band_rows * self.layout.weight_max())).max(1);
        let mut start = bands.start;
        while start < bands.end {
            let end = bands.end.min(start + at_a_time);
            let (first, last) = (Stripe(start * band_stripes), Stripe(end * band_stripes - 1));
            let _locks = match self.layout.redundancy() {
                0 => Vec::new(),
                _ => self.lock_stripes(first, last).await,
            };
            let _mark = self.mark(first..=last, request.flags).await?;
            self.check_writable()?;
            let row_start = |band: u64| self.layout.row_start(band * band_rows);
            let range = ByteRange::between(row_start(start), row_start(end));
            self.zero_members(first..=last, Request { kind, range, ..request.clone() }).await?;
            if request.kind == RequestKind::WriteZeroes {
                let stripe_bytes = self.layout.stripe_bytes();
                let zeroed =
                    ByteRange::between(first.0 * stripe_bytes, (last.0 + 1) * stripe_bytes);
                self.note_range_known(zeroed).await?;
            }
            start = end;
        }
        Ok(())
    }

    /// Zeroes or discards a range of the data area of every member, which is that times its weight
    /// where they have weights. One that is being filled takes
    /// no harm by it in rows that it does not hold yet.
    async fn zero_members(&self, stripes: RangeInclusive<Stripe>, request: Request) -> Outcome {
        let pass = self.announce(stripes.clone(), || self.zeros_told(&stripes)).await?;
        let mut members = self.members.present();
        members.retain(|member| member.role().is_some());
        let change = |member: &Rc<Member>| {
            let weight = member.role().map_or(1, |role| self.layout.weight(role));
            let (start, end) = (request.range.start() * weight, request.range.end() * weight);
            let range = ByteRange::between(start, end);
            self.change(member, Request { range, ..request.clone() })
        };
        let submissions = members.iter().map(change);
        let outcomes = join_all(submissions.collect()).await;
        let lease = pass.leave(&members, &outcomes);
        let outcome = self.conclude_writes(&members, outcomes).await;
        if outcome.is_ok() && request.kind == RequestKind::WriteZeroes {
            self.clear_suspect_parity_of(stripes.clone());
        }
        if let Some(lease) = lease {
            // It stays in the journal for as long as its first stripe is not written over.
            self.torn.borrow_mut().entry(*stripes.start()).or_default().push(lease);
        }
        outcome
    }

    /// The stripes of groups whose writes bypass the journal are left out: later writes there would
    /// not be recorded either.
    fn zeros_told(&self, stripes: &RangeInclusive<Stripe>) -> Told {
        let stripes = stripes.start().0..stripes.end().0 + 1;
        let groups = self.layout.groups();
        let change = |(stripes, step)| Change::Zeros { stripes, step };
        let changes: Changes = match self.journalled_groups() {
            told if told.len() == groups => Changes::from_iter([change((stripes, 1))]),
            told => {
                let first =
                    |group| (stripes.start..).find(|it| self.layout.group_of(Stripe(*it)) == group);
                let part =
                    |group| (first(group).expect("groups take turns")..stripes.end, groups as u32);
                told.into_iter().map(part).map(change).collect()
            }
        };
        Told { changes, data: Buffers::new() }
    }

    /// Zeroes or discards on one member, by writing zeros where it cannot zero by itself.
    pub(super) async fn zero_member(&self, member: Rc<Member>, request: Request) -> Outcome {
        let range = request.range;
        let (kind, flags, hints) = (request.kind, request.flags, request.hints);
        match self.operate(&member, request).await {
            Err(error) if error.is_unsupported() && kind == RequestKind::Discard => Ok(()),
            Err(error) if error.is_unsupported() => {
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

    pub(super) fn zeros(&self, len: usize) -> Buffers {
        let zeros = self.zeros.get_or_init(|| Buffer::zeroed(ZEROS_BYTES));
        let starts = (0..len).step_by(ZEROS_BYTES);
        starts.map(|start| zeros.slice(0..ZEROS_BYTES.min(len - start))).collect()
    }
}
