//! A mirrored cache device: checksums identify the correct copy.
//!
//! Damaged or unreadable data is read from each copy; the first correct one is returned, and the
//! others are repaired from it. A device without copies has no such repair.
//!
//! **Invariant**: only damaged data is overwritten, and only with correct data.

use crate::engine::Engine;
use crate::line_map::Version;
use crate::stats::CacheRead;
use headpond_block::{
    BLOCK_BYTES, BlockDevice, Buffer, Buffers, ByteRange, Cause, Copies, DeviceError, Request,
};

/// What a copy that is in use has of a range; `None` where it cannot be read.
pub(crate) struct Copied {
    pub copy: usize,
    pub data: Option<Buffer>,
}

/// Reads a range from each copy that is in use.
pub(crate) async fn read_each(copies: &dyn Copies, range: ByteRange) -> Vec<Copied> {
    let mut each = Vec::with_capacity(copies.count());
    for copy in 0..copies.count() {
        let data = Buffer::zeroed(range.len() as usize);
        let read = Request::read(range.start(), &data);
        match copies.read_copy(copy, read).await {
            Ok(()) => each.push(Copied { copy, data: Some(data) }),
            Err(error) if error.is_gone() => {}
            Err(_) => each.push(Copied { copy, data: None }),
        }
    }
    each
}

/// Reads what is in one place, as the best copy has it that `decode` takes, and gives that to the
/// others. Of a device without copies, what that one has.
///
/// # Errors
/// Where nothing can be read. What is not taken is the error of `decode`.
pub(crate) async fn read_best<T, E>(
    device: &dyn BlockDevice,
    range: ByteRange,
    decode: impl Fn(&[u8]) -> Result<T, E>,
    is_better: impl Fn(&T, &T) -> bool,
) -> Result<Result<T, E>, DeviceError> {
    let Some(copies) = device.copies() else {
        let data = Buffer::zeroed(range.len() as usize);
        device.read(range.start(), &data).await?;
        return Ok(decode(&data.to_vec()));
    };
    let each = read_each(copies, range).await;
    let mut best: Option<(Vec<u8>, T)> = None;
    let mut refusal = None;
    for data in each.iter().filter_map(|copied| copied.data.as_ref()) {
        let bytes = data.to_vec();
        match decode(&bytes) {
            Ok(found) if best.as_ref().is_none_or(|(_, best)| is_better(&found, best)) => {
                best = Some((bytes, found));
            }
            Ok(_) => {}
            Err(error) => refusal = Some(error),
        }
    }
    let Some((bytes, found)) = best else {
        let none = || DeviceError::new(device.name(), Cause::Gone);
        return refusal.map(Err).ok_or_else(none);
    };
    for Copied { copy, data } in each {
        if data.is_none_or(|data| data.to_vec() != bytes) {
            mend(copies, copy, range.start(), &bytes).await;
        }
    }
    Ok(Ok(found))
}

/// Gives one copy what is right. Where it does not take it, it is out of use, which is its device's
/// to tell.
pub(crate) async fn mend(copies: &dyn Copies, copy: usize, offset: u64, bytes: &[u8]) {
    let write = Request::write(offset, Buffer::from_slice(bytes));
    let _ = copies.mend_copy(copy, write).await;
}

impl Engine {
    /// Reads a block that came wrong, or not at all, from a copy that has it right; whether there
    /// is one. Its segment is pinned.
    pub(crate) async fn read_right(
        &self,
        purpose: CacheRead,
        offset: u64,
        version: &Version,
        to: &Buffers,
    ) -> bool {
        let Some(copies) = self.cache.copies() else { return false };
        let is_right = self.read_right_of(copies, purpose, offset, version, to).await;
        if !is_right {
            self.mistrust_cache();
        }
        is_right
    }

    async fn read_right_of(
        &self,
        copies: &dyn Copies,
        purpose: CacheRead,
        offset: u64,
        version: &Version,
        to: &Buffers,
    ) -> bool {
        if to.is_payload_free() || version.is_payload_free() {
            return false;
        }
        let range = ByteRange::at(offset, BLOCK_BYTES);
        let each = read_each(copies, range).await;
        let read_bytes = each.len() as u64 * BLOCK_BYTES;
        self.log.borrow_mut().counters.count_cache_read(purpose, read_bytes);
        let is_right = |data: &&Buffer| self.compare(version, &(*data).into()).is_ok();
        let mut read = each.iter().filter_map(|copied| copied.data.as_ref());
        let Some(right) = read.find(is_right) else { return false };
        let bytes = right.to_vec();
        to.copy_from_buffers(&right.into());
        for Copied { copy, data } in &each {
            if !data.as_ref().is_some_and(|data| is_right(&data)) {
                mend(copies, *copy, offset, &bytes).await;
            }
        }
        self.log.borrow_mut().count_error_of(version, |errors| &mut errors.cache_repaired);
        true
    }
}
