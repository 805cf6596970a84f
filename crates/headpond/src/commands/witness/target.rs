//! The device that is tested: opened, and refused where its contents are worth something.

use crate::device::{Consent, DeviceSpec, Opener, vet};
use crate::outcome::Failure;
use anyhow::{Context, Result, bail};
use headpond_block::{BlockDevice, Buffer, BufferPool, PoolConfig, Runtime};
use headpond_nbd::client::NbdDevice;
use headpond_raid::create::refuse_occupied;
use headpond_uring::{Access, FileDevice, FileOptions, Ownership, Ring, SocketStream};
use headpond_witness::{Payload, SECTOR_BYTES};
use std::path::PathBuf;
use std::rc::Rc;
use std::str::FromStr;

/// How much is looked at, at either end.
const END_BYTES: u64 = 1 << 20;

/// What the user calls a device.
pub enum Target {
    Device(DeviceSpec),
    Nbd { uri: String, socket: PathBuf, export: String },
}

impl FromStr for Target {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some(rest) = text.strip_prefix("nbd+unix:///") else {
            let spec: DeviceSpec = text
                .parse()
                .map_err(|bad: crate::device::SpecError| Failure::usage(bad.to_string()))?;
            return Ok(Self::Device(spec.absolute()?));
        };
        match rest.split_once("?socket=") {
            Some((export, socket)) if !socket.is_empty() => Ok(Self::Nbd {
                uri: text.to_owned(),
                socket: socket.into(),
                export: export.to_owned(),
            }),
            _ => Err(Failure::usage(format!(
                "{text} names no export: write nbd+unix:///NAME?socket=PATH"
            ))),
        }
    }
}

impl Target {
    /// What the device is called by its own machine, in letters that a witness takes.
    pub fn name(&self) -> String {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let device = match self {
            Self::Device(spec) => spec.device_name(),
            Self::Nbd { socket, export, .. } => format!("{}-{export}", socket.display()),
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
                let device = Opener::new(ring.clone(), runtime.clone()).open(spec)?;
                if consent == Consent::Careful && ends(&*device).await? != Ends::OfAWitness {
                    refuse_occupied(&*device)
                        .await
                        .map_err(|error| Failure::refused(format!("{error}, or --force")))?;
                }
                Ok(device)
            }
            Self::Nbd { uri, .. } => {
                let device = self.connect(ring, runtime).await?;
                // An export cannot be looked up in the kernel's lists.
                if consent == Consent::Careful && ends(&*device).await? == Ends::Something {
                    return Err(Failure::refused(format!(
                        "{uri} is not blank: --force, if its contents are worth nothing"
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
                // Whoever only reads keeps nobody out, not even a writer that comes right after.
                let options = FileOptions::new(path).access(Access::ReadOnly);
                Ok(Rc::new(FileDevice::open(ring, &options.ownership(Ownership::Shared))?))
            }
            Self::Device(spec) => Opener::new(ring.clone(), runtime.clone()).open(spec),
            Self::Nbd { .. } => self.connect(ring, runtime).await,
        }
    }

    async fn connect(&self, ring: &Ring, runtime: &Runtime) -> Result<Rc<dyn BlockDevice>> {
        let Self::Nbd { uri, socket, export } = self else { bail!("it is no export") };
        let pool = BufferPool::new(&PoolConfig::default());
        let connected = SocketStream::connect_unix(ring, socket).await;
        let stream = connected.with_context(|| socket.display().to_string())?;
        let device = NbdDevice::connect(runtime, &pool, Rc::new(stream), export).await;
        Ok(Rc::new(device.with_context(|| uri.clone())?))
    }
}

/// What lies at both ends of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Blank,
    /// Sectors that a witness's writer has made, and zeros: they may be written again.
    OfAWitness,
    Something,
}

async fn ends(device: &dyn BlockDevice) -> Result<Ends> {
    let len = END_BYTES.min(device.size_bytes());
    let mut ends = Ends::Blank;
    for start in [0, device.size_bytes() - len] {
        for sector in read(device, start, len).await?.chunks(SECTOR_BYTES as usize) {
            if Payload::is_of_any_run(sector) {
                ends = Ends::OfAWitness;
            } else if sector.iter().any(|byte| *byte != 0) {
                return Ok(Ends::Something);
            }
        }
    }
    Ok(ends)
}

async fn read(device: &dyn BlockDevice, start: u64, len: u64) -> Result<Vec<u8>> {
    let memory = Buffer::zeroed(len as usize);
    device.read(start, &memory).await?;
    Ok(memory.to_vec())
}
