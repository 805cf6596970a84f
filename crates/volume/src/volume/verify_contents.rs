//! The cache tells the arrays below it, when a scrub of theirs asks, what it has written to them.

use crate::assembly::cached::Cached;
use crate::assembly::slicing::Slicing;
use crate::volume::Volume;
use headpond_block::{BLOCK_BYTES, ByteRange};
use headpond_raid::{Answer, ContentVerifier};
use std::rc::{Rc, Weak};

/// What a cache knows of one core.
struct OfCore {
    /// It may be taken away.
    cached: Weak<Cached>,
    slicing: Slicing,
    /// Where the core lies among the addresses that the cache knows.
    place: ByteRange,
}

impl Volume {
    /// Scrubs of the arrays ask the cache, if there is one, where something does not fit.
    pub(crate) fn verify_contents(&self) {
        let (cached, slicing) = (self.cached(), self.dispatcher.slicing());
        for (core, place) in self.cores().iter() {
            core.array.trust(cached.as_ref().map(|cached| {
                let cached = Rc::downgrade(cached);
                Rc::new(OfCore { cached, slicing, place }) as Rc<dyn ContentVerifier>
            }));
        }
    }
}

impl ContentVerifier for OfCore {
    fn checksums(&self, range: ByteRange) -> Answer<'_> {
        Box::pin(async move {
            let Some(cached) = self.cached.upgrade() else {
                return vec![None; (range.len() / BLOCK_BYTES) as usize];
            };
            let mut checksums = Vec::new();
            for (slice, part) in self.slicing.split(range.shifted(self.place.start())) {
                checksums.extend(cached.slices[slice].core_checksums(part).await);
            }
            checksums
        })
    }
}
