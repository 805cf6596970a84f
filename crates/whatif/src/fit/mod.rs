//! Measuring a device, and the model that behaves like it.
//!
//! 1. [`measure`] asks the device: reads only, unless writes are allowed. Whether it is a real one
//!    against the clock or a model in virtual time is not known here, so that the way itself can be
//!    tested on drives whose figures are known.
//! 2. [`Measured::model_text`] writes down the model: what was measured, and beside what could not
//!    be, that it is assumed.
//!
//! **Not here**: whether the device may be written to (the caller has vetted it).

mod disk;
mod probe;
mod remote;
mod rotation;
mod ssd;
mod writes;

pub use disk::{MeasuredDisk, MeasuredDiskWrites};
pub use remote::{MeasuredRemote, MeasuredService};
pub use ssd::{MeasuredSsd, MeasuredSsdWrites};

use headpond_block::{BlockDevice, DeviceError, Runtime};
use headpond_sim::{CatalogueError, Random};
use probe::Probe;
use serde::Serialize;
use std::rc::Rc;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FitOptions {
    /// The device's contents are worth nothing.
    pub destructive: bool,
    /// What it is, where the device does not say it rightly.
    pub kind: Option<FitKind>,
    pub seed: u64,
}

/// What a device is measured as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FitKind {
    Hdd,
    Ssd,
    Remote,
}

/// What was found out.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Measured {
    Hdd(MeasuredDisk),
    Ssd(MeasuredSsd),
    Remote(MeasuredRemote),
}

/// Why a device cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("it has {size_bytes} bytes; at least 64 MiB are needed to measure anything")]
    TooSmall { size_bytes: u64 },
    #[error(
        "its reads follow no rotation between 3,300 and 16,200 rpm: it is no disk, or a cache answers \
         for it; --kind ssd measures it as what it seems to be"
    )]
    NoRotation,
    #[error("what was measured makes no model: {0}")]
    Model(#[from] CatalogueError),
}

/// Measures a device; `progress` hears what is being done.
///
/// # Errors
/// Where a request fails, or what is found makes no sense.
pub async fn measure(
    device: &Rc<dyn BlockDevice>,
    runtime: &Runtime,
    options: FitOptions,
    progress: &dyn Fn(&str),
) -> Result<Measured, FitError> {
    let size_bytes = device.size_bytes();
    if size_bytes < 64 << 20 {
        return Err(FitError::TooSmall { size_bytes });
    }
    let probe = Probe::new(device, runtime, Random::new(options.seed), progress);
    Ok(match options.kind.unwrap_or(FitKind::of(&**device)) {
        FitKind::Hdd => Measured::Hdd(disk::measure(&probe, options.destructive).await?),
        FitKind::Ssd => Measured::Ssd(ssd::measure(&probe, options.destructive).await?),
        FitKind::Remote => Measured::Remote(remote::measure(&probe, options.destructive).await?),
    })
}

impl FitKind {
    /// What a device says that it is.
    fn of(device: &dyn BlockDevice) -> Self {
        match (device.remote(), device.geometry().rotational) {
            (Some(_), _) => Self::Remote,
            (None, true) => Self::Hdd,
            (None, false) => Self::Ssd,
        }
    }
}

impl Measured {
    /// The model file of a device named `name`; `origin` says in it what was measured.
    ///
    /// # Errors
    /// Where what was measured makes no model.
    pub fn model_text(&self, name: &str, origin: &str) -> Result<String, FitError> {
        let text = match self {
            Self::Hdd(disk) => disk.model_text(name, origin),
            Self::Ssd(ssd) => ssd.model_text(name, origin),
            Self::Remote(remote) => remote.model_text(name, origin),
        };
        headpond_sim::Model::parse(name, &text)?;
        Ok(text)
    }
}
