//! Asking a layer above the array for the correct contents of blocks.
//!
//! A cache has blocks that it has written to the array, or read from it, and knows their checksums.
//! A scrub asks where data and redundancy do not match, and only there.
//!
//! **Invariants**: a verified checksum is used only together with what was read: nothing is written
//! but contents that match the checksum, or follow from blocks that match theirs. So a verifier
//! that is wrong, or was asked too early, causes a finding and no damage.
//!
//! **Not here**: the verifier (the volume's cache), the use of its results (`verify`).

use std::collections::BTreeSet;
use std::pin::Pin;
use std::rc::Rc;

use headpond_block::ByteRange;

use super::Array;
use crate::integrity::{BLOCK_BYTES, NO_SUM};
use crate::layout::Stripe;

/// Knows some of an array's contents without asking the array.
pub trait ContentVerifier {
    /// The CRC-32C of every block of 4 KiB in `range`, as it was written there last; `None` for
    /// what is not known, or is just being changed. It must not wait for the array.
    fn checksums(&self, range: ByteRange) -> Answer<'_>;
}

/// What a [`ContentVerifier`] answers, some time.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Vec<Option<u32>>> + 'a>>;

impl Array {
    /// Sets the verifier that scrubs ask, or none.
    pub fn trust(&self, verifier: Option<Rc<dyn ContentVerifier>>) {
        self.verifier.replace(verifier);
    }

    /// The verified contents of the data strips of a stripe, each for itself, where some blocks of
    /// them do not match.
    pub(super) async fn verified(
        &self,
        stripe: Stripe,
        misfits: &BTreeSet<usize>,
    ) -> Vec<Vec<u32>> {
        let verifier = self.verifier.borrow().clone();
        let Some(verifier) = verifier.filter(|_| !misfits.is_empty()) else { return Vec::new() };
        let strip_bytes = self.layout.strip_bytes();
        let start = self.layout.stripe_start(stripe);
        let range = ByteRange::at(start, self.layout.stripe_bytes());
        let sums = verifier.checksums(range).await;
        assert_eq!(sums.len() as u64 * u64::from(BLOCK_BYTES), range.len(), "one for each block");
        let sum = |sum: &Option<u32>| sum.map_or(NO_SUM, |sum| sum.max(1));
        let strips = sums.chunks_exact((strip_bytes / BLOCK_BYTES) as usize);
        strips.map(|strip| strip.iter().map(sum).collect()).collect()
    }
}
