//! Brings a real target into the state in which it is to be measured.

use super::fio::{Fio, FioError, Ground, fill};
use crate::plan::{Kind, Plan, Target};
use headpond_block::{BlockDevice, ByteRange, Request};
use headpond_uring::{FileDevice, FileOptions, OpenError, RunConfig, RunError, run};

/// A target that cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PreconditionError {
    #[error("{place} cannot be purged: {error}")]
    Purge { place: String, error: String },
    #[error(transparent)]
    Open(#[from] OpenError),
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
    ground: &Ground<'_>,
    fio: Option<&Fio>,
) -> Result<(), PreconditionError> {
    if plan.precondition.purge && matches!(target.kind(), Kind::Device | Kind::File) {
        purge(target)?;
    }
    if plan.precondition.fills > 0 {
        let fio = fio.ok_or(FioError::Missing)?;
        let size = plan.matrix.size.or(target.size).map(|size| size.bytes());
        let text = fill(ground, fio.engine_for(ground), plan, size);
        fio.run(&ground.raw.join(format!("fill-{}.fio", file_name(&target.name))), &text)?;
    }
    Ok(())
}

/// Discards everything on a device or in a file.
fn purge(target: &Target) -> Result<(), PreconditionError> {
    let place = target.place().unwrap_or_default();
    let path = place.clone();
    run(&RunConfig::default(), |ring, _| async move {
        let device = FileDevice::open(&ring, &FileOptions::new(&path))?;
        let range = ByteRange::at(0, device.geometry().size_bytes);
        let outcome = device.submit(Request::discard(range)).await;
        outcome.map_err(|error| PreconditionError::Purge { place, error: error.to_string() })
    })?
}

/// A name that a file may have.
fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}
