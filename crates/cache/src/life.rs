//! Open count and shutdown state of a cache: recorded on its core to detect an older image of the
//! cache.

use crate::error::OpenError;
use crate::format::FormatError;
use crate::format::slice_header::{HEADER_BYTES, SliceHeader};
use crate::format::superblock::Superblock;
use headpond_block::{BlockDevice, Buffer, ByteRange, DeviceError};
use std::rc::Rc;

/// The newest headers of all slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The sum of their epochs. Each open raises it, and nothing lowers it.
    pub epochs: u64,
    /// All of them were stopped.
    pub is_stopped: bool,
}

impl Life {
    /// As the device has it, or the newest that any of several copies has. Where a header is
    /// damaged, as far as the cache may have lived: its successor is the damaged one perhaps. None
    /// where nothing is left of a slice.
    ///
    /// # Errors
    /// Where none of the devices can be read.
    pub async fn read(
        copies: &[Rc<dyn BlockDevice>],
        superblock: &Superblock,
    ) -> Result<Option<Self>, OpenError> {
        let mut life = Self { epochs: 0, is_stopped: true };
        for index in 0..superblock.slices.len() {
            let slice = index as u16;
            let layout = superblock.layout(index).expect("it has so many slices");
            let mut found = [None; 2];
            for (place, header) in found.iter_mut().enumerate() {
                let range = ByteRange::at(layout.header_offset(place), HEADER_BYTES as u64);
                let decode = |it: &[u8]| SliceHeader::decode_at(it, superblock.cache, slice, place);
                *header = newest_of(copies, range, decode).await?;
            }
            let is_alone = found.contains(&None);
            let newest = found.into_iter().flatten().max_by_key(|header| header.sequence);
            let Some(SliceHeader { epoch, is_clean, .. }) = newest else { return Ok(None) };
            life.epochs += epoch.0 + u64::from(is_alone);
            life.is_stopped &= is_clean || is_alone;
        }
        Ok(Some(life))
    }

    /// Whether a cache of this life is an older image of one that had lived as far as `known`.
    pub fn is_older_than(self, known: Self) -> bool {
        self.epochs < known.epochs
            || self.epochs == known.epochs && known.is_stopped && !self.is_stopped
    }
}

/// Of the headers in one place the newest that is whole.
async fn newest_of(
    copies: &[Rc<dyn BlockDevice>],
    range: ByteRange,
    decode: impl Fn(&[u8]) -> Result<SliceHeader, FormatError>,
) -> Result<Option<SliceHeader>, DeviceError> {
    let mut newest: Option<SliceHeader> = None;
    let mut failure = None;
    let mut is_read = false;
    for copy in copies {
        let data = Buffer::zeroed(range.len() as usize);
        match copy.read(range.start(), &data).await {
            Ok(()) => is_read = true,
            Err(error) => {
                failure = Some(error);
                continue;
            }
        }
        let found = decode(&data.to_vec()).ok();
        newest = newest.into_iter().chain(found).max_by_key(|header| header.sequence);
    }
    match failure {
        Some(error) if !is_read => Err(error),
        _ => Ok(newest),
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
