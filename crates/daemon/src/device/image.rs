//! Images of Ceph: checking and opening them, both beside the data thread.

use super::spec::DeviceSpec;
use super::vet::{Consent, Vetted, refuse};
use crate::host;
use crate::run_blocking::run_blocking;
use anyhow::{Result, anyhow};
use headpond_api::outcome::Failure;
use headpond_block::{BlockDevice, Runtime};
use headpond_rbd::{ImageAddress, ImageError, OpenImage, RbdDevice};
use headpond_uring::safety::{Hazard, contents_by};
use std::rc::Rc;
use std::time::Duration;

/// A cluster may take longer, and is waited for; that is told.
const TELL_AFTER: Duration = Duration::from_secs(10);

/// Checks the contents of an image.
///
/// # Errors
/// As [`super::vet`].
pub(super) fn vet_image(
    spec: &DeviceSpec,
    address: &ImageAddress,
    consent: Consent,
) -> Result<Vetted> {
    let image = OpenImage::look_at(address).map_err(not_opened)?;
    let not_read = |error: std::io::Error| anyhow!("{spec} cannot be read: {error}");
    let size_bytes = image.size_bytes().map_err(std::io::Error::from_raw_os_error);
    let size_bytes = size_bytes.map_err(not_read)?;
    let read = |bytes: &mut [u8], offset| image.read_exact_at(bytes, offset);
    let found = contents_by(&read, size_bytes).map_err(not_read)?;
    let hazards: Vec<Hazard> = found.into_iter().map(Hazard::Contents).collect();
    refuse(spec, &hazards, consent)?;
    Ok(Vetted::plain())
}

/// Opens and locks an image.
///
/// # Errors
/// Where it cannot be opened, or another client keeps its lock.
pub(super) async fn open_image(
    runtime: &Runtime,
    address: &ImageAddress,
) -> Result<Rc<dyn BlockDevice>> {
    let (wanted, name) = (address.clone(), address.to_string());
    let open = move || OpenImage::open(&wanted, &host::image_opener()).map_err(not_opened);
    let opening = Rc::new(());
    let (clock, is_opening) = (runtime.clone(), Rc::downgrade(&opening));
    drop(runtime.spawn(async move {
        loop {
            clock.sleep(TELL_AFTER).await;
            if is_opening.strong_count() == 0 {
                return;
            }
            tracing::warn!(
                "{name} is not open yet: its cluster does not answer (`ceph -s`), or the lock of a \
                 client whose host was lost has not expired; it is waited for"
            );
        }
    }));
    let image = run_blocking(open).await?;
    drop(opening);
    Ok(Rc::new(RbdDevice::new(runtime, image)?))
}

/// A name without a library, a pool or an image is a mistake in the command.
fn not_opened(error: ImageError) -> anyhow::Error {
    match &error {
        ImageError::Library(_) | ImageError::NoLock { .. } | ImageError::Empty { .. } => {
            Failure::usage(error)
        }
        ImageError::Locked { .. } => Failure::refused(error),
        ImageError::Step { .. } => error.into(),
    }
}
