//! Exports that are devices of this machine's kernel: `/dev/nbdN`, by its NBD client.
//!
//! 1. `attach`: the device is noted in the run folder; the kernel gets one end of a pair of
//!    sockets, and the server the other, without a handshake.
//! 2. When a connection ends, the kernel gets another one, after all that the server had at the
//!    volume for it: what the kernel sends again cannot overtake what it has sent before.
//! 3. The daemon may end, killed or in order: requests wait in the kernel. The next one finds the
//!    note, and goes on with 2.
//! 4. `detach` ends the device.
//!
//! **Invariants**
//! - A device goes on only where no acknowledged write was lost, flushed or not: a file system that
//!   goes on would not notice. Otherwise it is ended, and gives errors
//!   (`block_devices::acknowledges_from_memory`).
//! - One connection for each device: of several, the kernel shuts down one that has a request for
//!   long, and sends it on another one while the volume still has it.
//!
//! **Not here**: the messages to the kernel (`headpond_nbd::kernel`), commands (`attaching`).

mod kept;
mod kernel;
#[cfg(test)]
mod tests;

pub use kept::{Kept, KeptDevice};
pub use kernel::{Kernel, KernelError, OpenKernel};

use crate::events::Events;
use crate::files::Files;
use crate::run_blocking::run_blocking;
use anyhow::{Context, Result};
use headpond_api::events::{Event, EventKind, Severity};
use headpond_api::outcome::{Failure, told};
use headpond_api::place::Places;
use headpond_block::Runtime;
use headpond_block::sync::Receiver;
use headpond_nbd::kernel::Device;
use headpond_nbd::server::Server;
use headpond_nbd::server::handshake::Agreement;
use headpond_uring::ublk::serve_during_reclaim;
use headpond_uring::{Ring, SocketStream};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Until the kernel is given another socket, which it may not have taken.
const PAUSE: Duration = Duration::from_millis(100);
/// Begins what the kernel knows a device by, so that no one else changes it.
const BACKEND: &str = "headpond";

/// What devices are made with.
pub struct Means {
    pub server: Server,
    pub ring: Ring,
    pub runtime: Runtime,
    pub files: Files,
    pub events: Events,
    pub open: OpenKernel,
}

impl Means {
    /// Those of a daemon, with this machine's kernel.
    pub fn of(
        server: &Server,
        ring: &Ring,
        runtime: &Runtime,
        files: &Files,
        events: &Events,
    ) -> Self {
        Self {
            server: server.clone(),
            ring: ring.clone(),
            runtime: runtime.clone(),
            files: files.clone(),
            events: events.clone(),
            open: Arc::new(Kernel::open),
        }
    }
}

/// The devices of a volume.
pub struct Attachments {
    volume: String,
    means: Means,
    kept: RefCell<Kept>,
    /// Devices that were attached, not taken over.
    attached: Cell<u64>,
}

/// The number of `/dev/nbdN`.
///
/// # Errors
/// If it is no such path.
pub fn index_of(path: &str) -> Result<u32> {
    let number = path.strip_prefix("/dev/nbd").and_then(|number| number.parse().ok());
    number.ok_or_else(|| Failure::usage(format!("{path} is no device of NBD: write /dev/nbdN")))
}

/// Why a device has no connection.
enum NotOffered {
    /// No place, or the server stops.
    NoPlace,
    NoExport,
    Kernel(KernelError),
    Other(anyhow::Error),
}

/// Which message gives the kernel a socket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Offer {
    New,
    Again,
}

impl Attachments {
    /// Those of the daemon of `volume` before this one. Where writes were lost that it had
    /// acknowledged, they are ended.
    pub async fn take_over(
        places: &Places,
        volume: &str,
        means: Means,
        lost: Option<&str>,
    ) -> Rc<Self> {
        let mut kept = Kept::load(places, volume);
        let ended = lost.map(|why| (why, std::mem::take(&mut kept.devices)));
        let (volume, attached) = (volume.to_owned(), Cell::new(0));
        let new = Rc::new(Self { volume, means, kept: RefCell::new(kept), attached });
        let Some((why, ended)) = ended else { return new };
        for device in &ended {
            new.give_up(device, why).await;
        }
        if !ended.is_empty()
            && let Err(error) = new.save().await
        {
            tracing::warn!("{error:#}: the next start looks for devices that have ended");
        }
        new
    }

    /// Goes on with those that were taken over. Before this, no write is acknowledged.
    pub fn go_on(self: &Rc<Self>) {
        let devices = self.kept.borrow().devices.clone();
        devices.into_iter().for_each(|device| self.spawn_keeper(device, None));
    }

    /// The devices, by their paths.
    pub fn paths(&self) -> Vec<String> {
        self.kept.borrow().devices.iter().map(KeptDevice::path).collect()
    }

    /// Makes an export a device, unless it is one, and returns its path.
    ///
    /// # Errors
    /// Where the kernel refuses, or the export is another device.
    pub async fn attach(
        self: &Rc<Self>,
        export: String,
        index: Option<u32>,
        dead_conn_timeout_s: u64,
    ) -> Result<String> {
        if let Some(device) = self.of_export(&export, index)? {
            return Ok(device.path());
        }
        let index = match index {
            Some(index) => index,
            None => self.with_kernel(Kernel::free_index).await.map_err(NotOffered::Kernel)?,
        };
        if let Some(device) = self.of_export(&export, Some(index))? {
            return Ok(device.path());
        }
        let backend = format!("{BACKEND}:{export}");
        self.attached.set(self.attached.get() + 1);
        let number = self.attached.get();
        let device = KeptDevice { index, export, dead_conn_timeout_s, backend, number };
        self.kept.borrow_mut().devices.push(device.clone());
        // Before there is a device: one that no note names would stay.
        let saved = self.save().await;
        let offered = match saved {
            Ok(()) => self.offer(&device, Offer::New).await.map_err(anyhow::Error::from),
            Err(error) => Err(error),
        };
        let end = match offered {
            Ok(end) => end,
            Err(error) => {
                self.forget(&device).await;
                return Err(error);
            }
        };
        let text = format!("{} is {}", device.export, device.path());
        self.tell(Severity::Info, &device, text);
        self.spawn_keeper(device.clone(), Some(end));
        Ok(device.path())
    }

    /// The device of an export; an error if that, or this device, is another one.
    fn of_export(&self, export: &str, index: Option<u32>) -> Result<Option<KeptDevice>> {
        let kept = self.kept.borrow();
        let found = kept.devices.iter().find(|it| it.export == export || Some(it.index) == index);
        match found {
            Some(device)
                if device.export != export || index.is_some_and(|it| it != device.index) =>
            {
                let (path, export) = (device.path(), &device.export);
                Err(Failure::refused(format!(
                    "{export} is {path} already: `headpond detach {path}` ends that"
                )))
            }
            found => Ok(found.cloned()),
        }
    }

    /// Ends a device.
    ///
    /// # Errors
    /// Where it is none of this volume, or the kernel refuses.
    pub async fn detach(&self, index: u32) -> Result<()> {
        let found = self.kept.borrow().devices.iter().find(|it| it.index == index).cloned();
        let device = found.ok_or_else(|| {
            Failure::usage(format!("/dev/nbd{index} is no device of {}", self.volume))
        })?;
        // Its connection ends, and gets no successor.
        self.kept.borrow_mut().devices.retain(|it| *it != device);
        match self.with_kernel(move |kernel| kernel.disconnect(index)).await {
            Ok(()) | Err(KernelError::NotOurs(_)) => {}
            Err(error) => {
                self.kept.borrow_mut().devices.push(device);
                return Err(NotOffered::Kernel(error).into());
            }
        }
        self.save().await?;
        let text = format!("{} is {} no more", device.export, device.path());
        self.tell(Severity::Info, &device, text);
        Ok(())
    }

    /// Gives the device connections, one after the other, until it has ended.
    fn spawn_keeper(self: &Rc<Self>, device: KeptDevice, end: Option<Receiver<()>>) {
        if let Err(error) = serve_during_reclaim() {
            tracing::warn!("{}: without memory it may wait for itself: {error}", device.path());
        }
        let this = Rc::clone(self);
        drop(self.means.runtime.spawn(async move { this.keep(device, end).await }));
    }

    async fn keep(self: Rc<Self>, device: KeptDevice, mut end: Option<Receiver<()>>) {
        let mut told_last = String::new();
        let mut is_first = end.is_none();
        loop {
            if let Some(end) = end.take() {
                end.await;
                self.means.runtime.sleep(PAUSE).await;
            }
            if !self.kept.borrow().devices.contains(&device) {
                return;
            }
            let error = match self.offer(&device, Offer::Again).await {
                Ok(next) => {
                    if std::mem::take(&mut is_first) {
                        let text = format!("{} is {} again", device.export, device.path());
                        self.tell(Severity::Info, &device, text);
                    }
                    end = Some(next);
                    continue;
                }
                Err(error) => error,
            };
            match error {
                NotOffered::Kernel(KernelError::NotOurs(_)) => {
                    self.forget(&device).await;
                    let text = format!("{} was ended by others", device.path());
                    return self.tell(Severity::Warning, &device, text);
                }
                NotOffered::NoExport => {
                    self.give_up(&device, "there is no such export any more").await;
                    return self.forget(&device).await;
                }
                NotOffered::NoPlace => {}
                error => {
                    let text = format!("{}: {:#}", device.path(), anyhow::Error::from(error));
                    if text != told_last {
                        tracing::error!("{text}; tried again until it succeeds");
                        told_last = text;
                    }
                }
            }
            self.means.runtime.sleep(PAUSE).await;
        }
    }

    /// Gives the kernel a socket for this device, whose other end is served.
    async fn offer(&self, device: &KeptDevice, how: Offer) -> Result<Receiver<()>, NotOffered> {
        let Means { server, ring, open, .. } = &self.means;
        // With the size that it has now.
        let export = server.exports().find(&device.export).ok_or(NotOffered::NoExport)?;
        let info = export.info();
        let told = Device {
            index: device.index,
            size_bytes: info.size_bytes,
            block_bytes: info.block_sizes.minimum,
            flags: info.flags_for(false),
            dead_conn_timeout_s: device.dead_conn_timeout_s,
            backend: device.backend.clone(),
        };
        let (ours, theirs) = pair().map_err(NotOffered::Other)?;
        let stream = Rc::new(SocketStream::from_connected(ring, ours, device.path()));
        let export = device.export.clone();
        let terms = Agreement { export, structured_replies: false, resends: true };
        let end = server.serve_agreed(stream, terms).ok_or(NotOffered::NoPlace)?;
        let open = Arc::clone(open);
        // Where this fails, the other end is closed, which ends the connection.
        let give = move || -> Result<Result<(), KernelError>> {
            Ok(open().and_then(|mut kernel| match how {
                Offer::New => kernel.connect(&told, &theirs),
                Offer::Again => kernel.reconnect(&told, &theirs),
            }))
        };
        let given = run_blocking(give).await.map_err(NotOffered::Other)?;
        given.map_err(NotOffered::Kernel).map(|()| end)
    }

    /// Ends a device whose file system must not go on.
    async fn give_up(&self, device: &KeptDevice, why: &str) {
        let (index, path) = (device.index, device.path());
        match self.with_kernel(move |kernel| kernel.disconnect(index)).await {
            Ok(()) => {
                let text = format!(
                    "{path} was ended, and gives errors until it is attached and mounted anew: {why}"
                );
                self.tell(Severity::Error, device, text);
            }
            // Nothing is there to end.
            Err(KernelError::NotOurs(_)) => {}
            Err(error) => {
                let error = told(&error.into());
                let text = format!("{path} is not served any more ({why}); not ended: {error}");
                self.tell(Severity::Error, device, text);
            }
        }
    }

    async fn forget(&self, device: &KeptDevice) {
        self.kept.borrow_mut().devices.retain(|it| it != device);
        if let Err(error) = self.save().await {
            tracing::warn!("{error:#}: the next start looks for {}", device.path());
        }
    }

    async fn save(&self) -> Result<()> {
        let (volume, kept) = (self.volume.clone(), self.kept.borrow().clone());
        self.means.files.note_attached(volume, kept).await
    }

    async fn with_kernel<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut Kernel) -> Result<T, KernelError> + Send + 'static,
    ) -> Result<T, KernelError> {
        let open = Arc::clone(&self.means.open);
        let asked = run_blocking(move || Ok(open().and_then(|mut kernel| ask(&mut kernel)))).await;
        asked.unwrap_or_else(|error| Err(KernelError::NoThread(format!("{error:#}"))))
    }

    fn tell(&self, severity: Severity, device: &KeptDevice, text: String) {
        self.means.events.tell(
            Event::new(EventKind::BlockDevice, severity, text).of_device(Some(&device.path())),
        );
    }
}

fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).context("a pair of sockets")
}

impl From<NotOffered> for anyhow::Error {
    fn from(error: NotOffered) -> Self {
        match error {
            NotOffered::NoPlace => Failure::refused("all places for clients are taken"),
            NotOffered::NoExport => Failure::usage("there is no such export"),
            NotOffered::Kernel(error) => Failure::of(error, KernelError::is_refusal),
            NotOffered::Other(error) => error,
        }
    }
}
