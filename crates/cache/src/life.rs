//! How often a cache was opened, and whether it was stopped: what its core records, so that an
//! older image of the cache is told from the cache itself.

use crate::copies::read_best;
use crate::error::OpenError;
use crate::format::slice_header::{HEADER_BYTES, SliceHeader};
use crate::format::superblock::Superblock;
use headpond_block::{BlockDevice, ByteRange};

/// The newest headers of all slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The sum of their epochs. Each open raises it, and nothing lowers it.
    pub epochs: u64,
    /// All of them were stopped.
    pub is_stopped: bool,
}

impl Life {
    /// As the device has it; none where a copy of a header is damaged, which may be the newest. A
    /// start makes do with the other.
    ///
    /// # Errors
    /// Where the device cannot be read.
    pub async fn read(
        device: &dyn BlockDevice,
        superblock: &Superblock,
    ) -> Result<Option<Self>, OpenError> {
        let mut life = Self { epochs: 0, is_stopped: true };
        for index in 0..superblock.slices.len() {
            let slice = index as u16;
            let layout = superblock.layout(index).expect("it has so many slices");
            let mut newest: Option<SliceHeader> = None;
            for copy in 0..2 {
                let range = ByteRange::at(layout.header_offset(copy), HEADER_BYTES as u64);
                let is_newer = |one: &SliceHeader, two: &SliceHeader| one.sequence > two.sequence;
                let decode = |it: &[u8]| SliceHeader::decode(it, superblock.cache, slice);
                let Ok(found) = read_best(device, range, decode, is_newer).await? else {
                    return Ok(None);
                };
                if newest.is_none_or(|it| it.sequence < found.sequence) {
                    newest = Some(found);
                }
            }
            let SliceHeader { epoch, is_clean, .. } = newest.expect("there are two");
            life.epochs += epoch.0;
            life.is_stopped &= is_clean;
        }
        Ok(Some(life))
    }

    /// Whether a cache of this life is an older image of one that had lived as far as `known`.
    pub fn is_older_than(self, known: Self) -> bool {
        self.epochs < known.epochs
            || self.epochs == known.epochs && known.is_stopped && !self.is_stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_older_by_its_epochs_or_where_a_stop_is_missing() {
        let life = |epochs, is_stopped| Life { epochs, is_stopped };
        assert!(life(3, true).is_older_than(life(4, false)));
        assert!(life(4, false).is_older_than(life(4, true)));
        // A cut between the two: the cache is ahead.
        assert!(!life(4, true).is_older_than(life(4, false)));
        assert!(!life(5, false).is_older_than(life(4, true)));
        assert!(!life(4, true).is_older_than(life(4, true)));
    }
}
