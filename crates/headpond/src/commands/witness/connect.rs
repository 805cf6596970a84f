//! From a client's command line to a session with the witness.

use super::args::{DeviceArgs, LoadArgs};
use super::key;
use super::target::Target;
use anyhow::{Context, Result, bail};
use headpond_api::outcome::Failure;
use headpond_block::{BlockDevice, Runtime};
use headpond_uring::{Ring, SocketStream};
use headpond_witness::BLOCK_BYTES;
use headpond_witness::field::auth::Key;
use headpond_witness::field::link::Link;
use headpond_witness::field::session;
use headpond_witness::field::wire::{Hello, Purpose, Region, Task, Welcome, is_name};
use std::io;
use std::net::ToSocketAddrs;
use std::rc::Rc;

/// A client of a witness.
pub struct Client {
    pub target: Target,
    key: Key,
    to: String,
    name: String,
    ring: Ring,
    pub runtime: Runtime,
}

impl Client {
    /// # Errors
    /// Where the key or a name cannot be used.
    pub fn new(args: &DeviceArgs, ring: Ring, runtime: Runtime) -> Result<Self> {
        let target: Target = args.device.parse()?;
        let name = args.name.clone().unwrap_or_else(|| target.name());
        if !is_name(&name) {
            return Err(Failure::usage(format!(
                "{name:?} is not a valid name: use up to 64 letters, digits, dashes, dots"
            )));
        }
        let (key, to) = (key::read(&args.key)?, args.to.clone());
        Ok(Self { target, key, to, name, ring, runtime })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Opens a session.
    ///
    /// # Errors
    /// Where there is no witness, or it refuses.
    pub async fn open(
        &self,
        purpose: Purpose,
        device: &dyn BlockDevice,
        region: Option<Region>,
    ) -> Result<(Rc<Link>, Welcome)> {
        let hello = self.hello(purpose, device.size_bytes(), region);
        let stream = Rc::new(self.dial().await?);
        let opened = session::open(&self.runtime, stream, &self.key, key::random()?, &hello).await;
        opened.map_err(|error| match error {
            session::OpenError::Refused(_) => Failure::refused(format!("{}: {error}", self.name)),
            error => anyhow::Error::new(error).context(format!("witness {}", self.to)),
        })
    }

    /// Asks for the next instruction.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn ask(&self) -> Result<Task> {
        let hello = self.hello(Purpose::Ask, 0, None);
        let stream = Rc::new(self.dial().await?);
        let answer = session::ask(&self.runtime, stream, &self.key, key::random()?, &hello).await;
        answer.with_context(|| format!("witness {}", self.to))
    }

    fn hello(&self, purpose: Purpose, device_bytes: u64, region: Option<Region>) -> Hello {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        let boot = boot.map(|boot| boot.trim().to_owned());
        Hello { name: self.name.clone(), purpose, region, device_bytes, boot }
    }

    async fn dial(&self) -> Result<SocketStream> {
        let named = || format!("witness {}", self.to);
        let mut last = None;
        for address in self.to.to_socket_addrs().with_context(named)? {
            match SocketStream::connect_tcp(&self.ring, address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        match last {
            Some(error) if error.kind() == io::ErrorKind::ConnectionRefused => bail!(
                "{}: connection refused: is `headpond witness serve`, or `campaign`, running, and \
                 on this port?",
                named()
            ),
            Some(error) => Err(error).with_context(named),
            None => bail!("{}: has no address", named()),
        }
    }
}

/// The part of a device that a load writes to.
///
/// # Errors
/// If it does not fit, or the load is invalid.
pub fn region(args: &LoadArgs, device: &dyn BlockDevice) -> Result<Region> {
    let usage = |what: String| Err(Failure::usage(what));
    if !args.bs.bytes().is_multiple_of(BLOCK_BYTES) {
        return usage(format!("--bs {} is not a multiple of 4K", args.bs));
    }
    let (start, size) = (args.start.bytes(), device.size_bytes());
    if !start.is_multiple_of(BLOCK_BYTES) {
        return usage(format!("--start {} is not a multiple of 4K", args.start));
    }
    if size < BLOCK_BYTES || start > size - BLOCK_BYTES {
        return usage(format!(
            "--start {} is beyond the end of the device: it has {size} bytes",
            args.start
        ));
    }
    let blocks = args.size.bytes().min(size.saturating_sub(start)) / BLOCK_BYTES;
    let region = Region { start_bytes: start, blocks, atom_bytes: args.atom };
    if let Err(error) = region.check() {
        return usage(format!("--start {} --size {}: {error}", args.start, args.size));
    }
    let load = args.load(None);
    if let Err(error) = load.check() {
        return usage(error.to_string());
    }
    if load.write_blocks > region.blocks {
        return usage(format!("a write of {} does not fit the region", args.bs));
    }
    Ok(region)
}
