//! Brings a real target into the state in which it is to be measured, whatever its loads are. What
//! depends on the load is done by rounds that do not count, and by waiting for the steady state.

use super::fio::{Fio, FioError, Ground, fill};
use crate::environment::Surroundings;
use crate::plan::{Plan, Target};
use headpond_block::{ByteRange, Request};
use headpond_uring::{RunConfig, RunError, run};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};

/// A target that cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PreconditionError {
    #[error(
        "{place} cannot be purged: {cause}; purge it by other means (blkdiscard, nvme format, \
             a new file) and leave `purge` out"
    )]
    Purge { place: String, cause: String },
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Fio(#[from] FioError),
}

/// Purges and fills a target; machines have their state from their description.
///
/// # Errors
/// Where it cannot be done.
pub(super) fn precondition(
    plan: &Plan,
    target: &Target,
    (ground, surroundings): (&Ground<'_>, &dyn Surroundings),
    fio: Option<&Fio>,
) -> Result<(), PreconditionError> {
    if plan.precondition.purge {
        let purged = match ground.is_nbd {
            true => purge_export(ground, surroundings)?,
            false => purge(target).map_err(|error| error.to_string()),
        };
        let place = ground.place.clone();
        purged.map_err(|cause| PreconditionError::Purge { place, cause })?;
    }
    if plan.precondition.fills > 0 {
        let fio = fio.ok_or(FioError::Missing)?;
        let size = plan.matrix.size.or(target.size).map(|size| size.bytes());
        let text = fill(ground, fio.engine_for(ground), plan, size);
        fio.run(&ground.raw.join(format!("fill-{}.fio", file_name(&target.name))), &text)?;
    }
    Ok(())
}

/// Discards everything on a device or in a file. Not by a request of the ring: that one is a hint,
/// and answered where nothing was done.
fn purge(target: &Target) -> io::Result<()> {
    let is_device = target.device.is_some();
    let path = target.device.as_ref().or(target.file.as_ref()).expect("device or file");
    let own = if is_device { OFlags::EXCL } else { OFlags::empty() };
    let mut file: File =
        rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC | own, Mode::empty())?.into();
    let size = file.seek(SeekFrom::End(0))?;
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(&file, hole, 0, size)?)
}

/// Discards everything of an export, where its server knows how.
fn purge_export(
    ground: &Ground<'_>,
    surroundings: &dyn Surroundings,
) -> Result<Result<(), String>, RunError> {
    run(&RunConfig::default(), |ring, runtime| async move {
        let connected = surroundings.connect(&ground.place, &ring, &runtime).await?;
        if !connected.takes_discards {
            return Err("its server takes no discards".to_owned());
        }
        let range = ByteRange::at(0, connected.device.size_bytes());
        let outcome = connected.device.submit(Request::discard(range)).await;
        outcome.map_err(|error| error.to_string())
    })
}

/// A name that a file may have.
fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}
