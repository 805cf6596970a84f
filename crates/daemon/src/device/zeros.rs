//! Whether devices read as zeros, checked by samples.

use anyhow::Result;
use headpond_api::outcome::Failure;
use headpond_block::sync::join_all;
use headpond_block::{BLOCK_BYTES, BlockDevice, Buffer, DeviceError};
use headpond_raid::superblock::DATA_OFFSET_MIN;
use std::rc::Rc;

/// Evenly spread samples; the last one is the end.
const PLACES: u64 = 64;
const PLACE_BYTES: u64 = 64 << 10;

/// Refuses members of a new array that do not read as zeros in their data area. All are sampled
/// concurrently: on a disk it takes a second.
///
/// # Errors
/// That, and where one cannot be read.
pub async fn expect_zeros(members: &[Rc<dyn BlockDevice>]) -> Result<()> {
    let samples = members.iter().map(|member| Box::pin(find_nonzero(&**member, DATA_OFFSET_MIN)));
    for (member, found) in members.iter().zip(join_all(samples.collect()).await) {
        if let Some(offset) = found? {
            return Err(Failure::refused(format!(
                "{}: does not read as zeros at byte {offset}, so an initial sync is needed: omit \
                 --zeroed",
                member.name()
            )));
        }
    }
    Ok(())
}

/// The first sampled byte from `start` on that is not zero.
///
/// # Errors
/// Where the device cannot be read.
async fn find_nonzero(
    device: &dyn BlockDevice,
    start: u64,
) -> std::result::Result<Option<u64>, DeviceError> {
    let size_bytes = device.geometry().size_bytes;
    let Some(room) = size_bytes.checked_sub(start + PLACE_BYTES) else { return Ok(None) };
    let memory = Buffer::zeroed(PLACE_BYTES as usize);
    for place in 0..=PLACES {
        let offset = (start + room * place / PLACES) / BLOCK_BYTES * BLOCK_BYTES;
        device.read(offset, &memory).await?;
        if let Some(at) = memory.to_vec().iter().position(|byte| *byte != 0) {
            return Ok(Some(offset + at as u64));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_block::devices::RamDevice;

    #[test]
    fn what_is_not_zero_is_found_at_both_ends_and_between() {
        // Half of what is looked at begins at 4 MiB.
        let size_bytes = (7 << 20) + PLACE_BYTES;
        headpond_sim::run(1, async move |_, _| {
            for (at, is_found) in [
                (0, false),
                ((1 << 20) - 1, false),
                (1 << 20, true),
                (4 << 20, true),
                (size_bytes - 1, true),
            ] {
                let device = RamDevice::new("d", size_bytes);
                let byte = Buffer::from_slice(&[1]);
                device.memory().slice(at as usize..at as usize + 1).copy_from_buffer(&byte);
                let found = find_nonzero(&device, 1 << 20).await.unwrap();
                assert_eq!(found, is_found.then_some(at), "{at}");
            }
        })
        .unwrap();
    }
}
