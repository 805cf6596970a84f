//! The device under test: opened, or refused if it holds data.

use crate::device::{Consent, DeviceSpec, Export, Opener, ends, not_opened, vet};
use anyhow::Result;
use headpond_api::outcome::Failure;
use headpond_block::{BlockDevice, Runtime};
use headpond_raid::create::refuse_occupied;
use headpond_uring::{Access, FileDevice, FileOptions, Ownership, Ring};
use headpond_witness::{Payload, SECTOR_BYTES};
use std::rc::Rc;
use std::str::FromStr;

/// The name of a device on the command line.
pub enum Target {
    Device(DeviceSpec),
    Nbd(Export),
}

impl FromStr for Target {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.starts_with("nbd+unix:") || text.starts_with("nbd:") {
            return Ok(Self::Nbd(text.parse()?));
        }
        let spec: Result<DeviceSpec, crate::device::SpecError> = text.parse();
        Ok(Self::Device(spec.map_err(Failure::usage)?.absolute()?))
    }
}

impl Target {
    /// The name of host and device, in characters that a witness accepts.
    pub fn name(&self) -> String {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let device = match self {
            Self::Device(spec) => spec.device_name(),
            Self::Nbd(export) => export.label(),
        };
        let device = device.rsplit('/').next().unwrap_or_default();
        let name = format!("{}-{device}", host.trim());
        let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        let name: String =
            name.chars().map(|letter| if allowed(letter) { letter } else { '-' }).collect();
        name.trim_start_matches('.').chars().take(64).collect()
    }

    /// Opens a device whose contents will be lost.
    ///
    /// # Errors
    /// A refusal where it holds something, is mounted or in use; nothing was changed.
    pub async fn open_to_write(
        &self,
        ring: &Ring,
        runtime: &Runtime,
        consent: Consent,
    ) -> Result<Rc<dyn BlockDevice>> {
        match self {
            Self::Device(spec) => {
                vet(spec, consent)?;
                let device = Opener::new(ring.clone(), runtime.clone()).open(spec).await?;
                if consent == Consent::Careful && Ends::of(&*device).await? != Ends::OfAWitness {
                    refuse_occupied(&*device).await.map_err(Failure::refused)?;
                }
                Ok(device)
            }
            Self::Nbd(export) => {
                let device = export.connect(ring, runtime).await?;
                // Exports are not in the kernel's lists.
                if consent == Consent::Careful && Ends::of(&*device).await? == Ends::Something {
                    return Err(Failure::refused(format!(
                        "{export} is not blank: --force overwrites it"
                    )));
                }
                Ok(device)
            }
        }
    }

    /// Opens a device that is read only.
    ///
    /// # Errors
    /// Where it cannot be opened.
    pub async fn open_to_read(
        &self,
        ring: &Ring,
        runtime: &Runtime,
    ) -> Result<Rc<dyn BlockDevice>> {
        match self {
            Self::Device(DeviceSpec::Path(path)) => {
                // A reader takes no lock.
                let options = FileOptions::new(path).access(Access::ReadOnly);
                let options = options.ownership(Ownership::Shared);
                Ok(Rc::new(FileDevice::open(ring, &options).map_err(not_opened)?))
            }
            Self::Device(spec) => Opener::new(ring.clone(), runtime.clone()).open(spec).await,
            Self::Nbd(export) => Ok(export.connect(ring, runtime).await?),
        }
    }
}

/// The contents of both ends of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Blank,
    /// Sectors that a witness's writer has made, and zeros: they may be written again.
    OfAWitness,
    Something,
}

impl Ends {
    async fn of(device: &dyn BlockDevice) -> Result<Self> {
        let mut found = Self::Blank;
        for end in ends(device).await? {
            for sector in end.chunks(SECTOR_BYTES as usize) {
                if Payload::is_of_any_run(sector) {
                    found = Self::OfAWitness;
                } else if sector.iter().any(|byte| *byte != 0) {
                    return Ok(Self::Something);
                }
            }
        }
        Ok(found)
    }
}
