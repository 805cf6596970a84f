//! Stripes whose parity may be torn while a strip of them is missing: a start by force.
//!
//! 1. Every stripe of the marked regions is read, and missing strips reconstructed from its parity;
//!    if there is another parity strip, that verifies or contradicts them; 2. unverified ones are
//!    put on the list of lost blocks, or count as correct where the user has accepted that; 3. the
//!    parity is resynced, so that from then on it is valid for the other members.
//!
//! **Invariants**: the list is stable before any parity is written.
//! **Not here**: stripes without missing data (`resync`).

use std::ops::Range;
use std::rc::Rc;

use headpond_block::sync::join_all;
use headpond_block::{
    BlockDevice, Buffers, ByteRange, Cause, DeviceError, Outcome, Request, RequestFlags, Submission,
};

use super::members::LostStrips;
use super::scratch::Payload;
use super::{Array, Member};
use crate::layout::{Strip, Stripe};
use crate::plan::{self, ParityTrust, StripeState};

/// Stripes checked concurrently.
const STRIPES_AT_A_TIME: u64 = 16;

/// What happens to unverified data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnverifiedParity {
    /// It goes on the list of lost blocks.
    List,
    /// It counts as correct, at the user's request.
    Accept,
}

/// What a stripe turned out to be.
enum StripeParity {
    /// More parity than was needed agrees with what was solved.
    Proven,
    /// Nothing verifies the solution; the parity may match or not.
    Unproven,
    /// Something of it cannot be read.
    Unreadable,
}

impl Array {
    /// Handles the data that the parity of stripes cannot verify. Nothing else uses the array.
    ///
    /// # Errors
    /// Where the list has no room for it, and nothing has been written then, or the array has lost
    /// too many members.
    pub(crate) async fn settle_unverified(
        &self,
        stripes: &[Range<u64>],
        what: UnverifiedParity,
    ) -> Outcome {
        let (mut lost, mut unproven) = (Vec::new(), Vec::new());
        for first in stripes.iter().flat_map(|it| it.clone().step_by(STRIPES_AT_A_TIME as usize)) {
            let end =
                stripes.iter().map(|it| it.end).find(|end| first < *end).expect("it is inside");
            let batch = first..end.min(first + STRIPES_AT_A_TIME);
            let batch: Vec<Stripe> =
                batch.map(Stripe).filter(|stripe| !self.is_verified(*stripe)).collect();
            let looks = batch.iter().map(|stripe| Box::pin(self.look_at(*stripe)));
            for (stripe, found) in batch.iter().zip(join_all(looks.collect()).await) {
                match found? {
                    StripeParity::Proven => continue,
                    StripeParity::Unproven => unproven.push(*stripe),
                    StripeParity::Unreadable => {
                        _ = self.torn.borrow_mut().entry(*stripe).or_default()
                    }
                }
                lost.extend(self.missing_data(*stripe));
            }
        }
        if what == UnverifiedParity::List && !lost.is_empty() {
            let listed = self.record_lost(&lost).await;
            listed.map_err(|error| match error.is_unsupported() {
                true => self.cannot_list_unverified(),
                false => error,
            })?;
        }
        for batch in unproven.chunks(STRIPES_AT_A_TIME as usize) {
            let fits = batch.iter().map(|stripe| Submission::pending(self.make_fit(*stripe)));
            join_all(fits.collect()).await.into_iter().collect::<Outcome>()?;
        }
        Ok(())
    }

    fn cannot_list_unverified(&self) -> DeviceError {
        let operation = "list all that was being written and that nothing vouches for; \
                         --force --assume-clean takes it as its parity tells it";
        DeviceError::new(self.name(), Cause::Unsupported { operation })
    }

    /// The missing bytes of a stripe.
    fn missing_data(&self, stripe: Stripe) -> impl Iterator<Item = ByteRange> + '_ {
        let span = 0..self.layout.strip_bytes();
        let missing = self.members.lost_strips(&self.layout, stripe).into_iter();
        missing.filter_map(move |strip| match strip {
            Strip::Data(k) => Some(self.range_of(stripe, k, &span)),
            Strip::P | Strip::Q => None,
        })
    }

    async fn look_at(&self, stripe: Stripe) -> Result<StripeParity, DeviceError> {
        let lost = self.members.lost_strips(&self.layout, stripe);
        let misfits = match self.misfits(stripe, &lost).await {
            Ok(misfits) => misfits,
            Err(error) if error.is_damage() => return Ok(StripeParity::Unreadable),
            Err(error) => return Err(error),
        };
        let is_redundant = lost.len() < self.layout.parity_strips();
        Ok(match misfits.is_empty() && is_redundant {
            true => StripeParity::Proven,
            false => StripeParity::Unproven,
        })
    }

    /// Writes the parity that does not fit what is there, and what it tells of the rest.
    async fn make_fit(&self, stripe: Stripe) -> Outcome {
        let _mark = self.mark(stripe..=stripe, RequestFlags::empty()).await?;
        let lost = self.members.lost_strips(&self.layout, stripe);
        let misfits = self.misfits(stripe, &lost).await?;
        let (members, writes): (Vec<_>, Vec<_>) = misfits
            .into_iter()
            .map(|(member, offset, content)| {
                let write = self.operate(&member, Request::write(offset, content));
                (member, write)
            })
            .unzip();
        self.conclude_writes(&members, join_all(writes).await).await
    }

    /// Parity strips that do not match the data, as read or solved from as few of them as possible:
    /// their holders, cells, and correct contents.
    ///
    /// # Errors
    /// Where something cannot be read.
    async fn misfits(
        &self,
        stripe: Stripe,
        lost: &LostStrips,
    ) -> Result<Vec<(Rc<Member>, u64, Buffers)>, DeviceError> {
        let span = 0..self.layout.strip_bytes();
        let state = StripeState { lost, parity: ParityTrust::Valid };
        let plan = plan::recovery(&self.layout, &span, state).map_err(|_| self.gone())?;
        let bytes = (self.layout.data_strips() + 6) * span.len();
        let memory = self.scratch.allow(bytes, Payload::Bytes).await;
        let reads = self.read_planned(stripe, plan.reads, &memory).await?;
        let (mut columns, old) = self.columns_of(&reads, &span, &memory);
        if let Some(lost) = plan.lost {
            old.solve(&mut columns, lost);
        }
        let mut parity = self.parity_memory(span.len(), &memory);
        parity.generate(&columns);
        let mut misfits = Vec::new();
        let q = parity.q.map(|q| (Strip::Q, q));
        for (strip, content) in [(Strip::P, parity.p)].into_iter().chain(q) {
            let cell = self.layout.cell(stripe, strip);
            for member in self.members.holders(cell) {
                let found: Buffers = memory.take(span.len()).into();
                let offset = self.layout.row_start(cell.row);
                self.operate(&member, Request::read(offset, found.clone())).await?;
                if found.to_vec() != content.to_vec() {
                    misfits.push((member, offset, Buffers::from(&content)));
                }
            }
        }
        Ok(misfits)
    }
}
