//! The block devices of the kernel that a volume is exported as: `/dev/ublkbN`, with a name of the
//! volume's in `/dev/headpond`.
//!
//! 1. At the start a device that an earlier daemon has left is taken over, and its requests go
//!    on; otherwise one is made. 2. At the stop one that nobody uses is removed; one in use is
//!    left, and its requests wait for the next daemon, as after a kill.
//!
//! **Invariants**
//! - Users see no crash where the device goes on, so it goes on only where no acknowledged write
//!   was lost with the earlier daemon, flushed or not ([`memory`]). Otherwise it is removed, and
//!   its users get errors until they open the new one.
//! - The driver is never asked on the data thread, which serves what it waits for.

mod memory;
mod names;
pub mod orphans;
mod users;

pub use memory::{acknowledges_from_memory, may_bring_memory};
pub use names::path as link_of;

use crate::events::Events;
use crate::run_blocking::run_blocking;
use anyhow::{Context, Result, anyhow};
use headpond_api::answers::BlockDeviceStatus;
use headpond_api::events::{Event, EventKind, Severity};
use headpond_api::outcome::Failure;
use headpond_block::{BlockDevice, Runtime};
use headpond_ublk::{Devices, Flags, Information, Parameters, Service, Shape, State, serve};
use headpond_uring::Ring;
use headpond_uring::ublk::{Queue, serve_during_reclaim};
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use users::User;
use uuid::Uuid;

/// The driver answers within this, or never.
const DRIVER_TIME: Duration = Duration::from_secs(30);
/// How often a stop looks whether requests are answered.
const PAUSE: Duration = Duration::from_millis(2);
/// How often it is seen who uses a device.
const LOOKED_EVERY: Duration = Duration::from_secs(5);

/// The block devices of one volume.
pub struct BlockDevices {
    runtime: Runtime,
    ring: Ring,
    events: Events,
    /// Why writes may be lost that the daemon before this one had acknowledged, if they may.
    lost: Option<&'static str>,
    shown: RefCell<Vec<Rc<Shown>>>,
}

/// What a block device is of.
pub struct Source {
    pub volume: String,
    /// None: the first core.
    pub core: Option<String>,
    pub uuid: Uuid,
    pub device: Rc<dyn BlockDevice>,
}

/// One that is shown.
struct Shown {
    source: Source,
    information: Information,
    service: Rc<Service>,
    size_bytes: Cell<u64>,
    link: PathBuf,
    users: RefCell<Vec<User>>,
}

impl BlockDevices {
    pub fn new(
        runtime: &Runtime,
        ring: &Ring,
        events: &Events,
        lost: Option<&'static str>,
    ) -> Self {
        let (runtime, ring, events) = (runtime.clone(), ring.clone(), events.clone());
        Self { runtime, ring, events, lost, shown: RefCell::default() }
    }

    /// Shows a device, or takes over the one that an earlier daemon has left.
    ///
    /// # Errors
    /// Where the kernel has no ublk, or refuses.
    pub async fn show(&self, source: Source, shape: Shape) -> Result<()> {
        let tag = tag_of(source.uuid);
        let link = names::path(&source.volume, source.core.as_deref());
        let left = self.ask(move || left_of(tag)).await?;
        match (left, self.lost) {
            (Some(left), None) => {
                let number = left.number;
                let begin = move || {
                    let mut devices = Devices::open()?;
                    let is_read_only = devices.is_read_only(number)?;
                    devices.begin_recovery(number)?;
                    Ok(is_read_only)
                };
                // As its users know it, whatever the export was changed to since.
                let shape = Shape { is_read_only: self.ask(begin).await?, ..shape };
                return self.start(source, left, shape, (link, true)).await;
            }
            (Some(left), Some(why)) => self.give_up(&link, left, why).await?,
            (None, _) => {}
        }
        let parameters = Parameters::of(source.device.geometry(), &shape);
        let add = move || Ok(Devices::open()?.add(None, &shape, tag, &parameters)?);
        let made = self.ask(add).await?;
        let (number, named) = (made.number, link.clone());
        let started = self.start(source, made, shape, (link, false)).await;
        if started.is_err() {
            let withdraw = move || {
                names::unlink(&named, number);
                remove(number)
            };
            let _ = self.ask(withdraw).await;
        }
        started
    }

    /// Serves a device, and has the kernel show it, or go on with it.
    async fn start(
        &self,
        source: Source,
        information: Information,
        shape: Shape,
        (link, is_taken): (PathBuf, bool),
    ) -> Result<()> {
        let number = information.number;
        let service = Rc::new(Service::new(shape.is_read_only));
        let shown = self.serve(source, information, service, link).await?;
        let link = shown.link.clone();
        let start = move || {
            // Before udev is told of the device, which asks for its names.
            names::link(&link, &names::node(number))?;
            match is_taken {
                true => Ok(Devices::open()?.end_recovery(number)?),
                false => Ok(Devices::open()?.start(number)?),
            }
        };
        self.ask(start).await?;
        self.tell_of(&shown, is_taken);
        self.shown.borrow_mut().push(shown);
        Ok(())
    }

    /// Starts to serve its queues.
    async fn serve(
        &self,
        source: Source,
        information: Information,
        service: Rc<Service>,
        link: PathBuf,
    ) -> Result<Rc<Shown>> {
        let number = information.number;
        let file: OwnedFd = self.ask(move || Ok(Devices::character_device(number)?)).await?;
        if let Err(error) = serve_during_reclaim() {
            tracing::warn!(
                "short of memory, {} might wait for itself: this thread cannot be told from \
                 others: {error}",
                names::node(number).display()
            );
        }
        for queue in 0..information.queues {
            let file = file.try_clone().context("no descriptor for a queue")?;
            let queue = Queue::open(&self.ring, file, queue, information.depth)
                .with_context(|| format!("cannot map a queue of ublk device {number}"))?;
            let (device, io_bytes_max) = (Rc::clone(&source.device), information.io_bytes_max);
            serve(&self.runtime, queue, device, io_bytes_max, Rc::clone(&service));
        }
        let size_bytes = Cell::new(source.device.geometry().size_bytes);
        let users = RefCell::default();
        Ok(Rc::new(Shown { source, information, service, size_bytes, link, users }))
    }

    fn tell_of(&self, shown: &Shown, is_taken: bool) {
        let (node, link) = (names::node(shown.information.number), shown.link.display());
        let text = match is_taken {
            true => format!("{} goes on: {link}", node.display()),
            false => format!("{} is shown: {link}", node.display()),
        };
        tracing::info!("{text}");
        if is_taken {
            self.events.tell(Event::new(EventKind::BlockDevice, Severity::Info, text));
        }
    }

    /// Removes a device whose users would miss writes.
    async fn give_up(&self, link: &Path, left: Information, why: &str) -> Result<()> {
        let (number, node) = (left.number, names::node(left.number));
        let text = format!(
            "{} ({}) is removed: {why}; users get errors until they open the new device",
            node.display(),
            link.display()
        );
        tracing::error!("{text}");
        self.events.tell(Event::new(EventKind::BlockDevice, Severity::Error, text));
        self.ask(move || remove(number)).await
    }

    pub fn shows(&self, uuid: Uuid) -> bool {
        self.shown.borrow().iter().any(|shown| shown.source.uuid == uuid)
    }

    /// Removes all of them.
    ///
    /// # Errors
    /// Where one is in use.
    pub async fn hide_all(&self) -> Result<()> {
        if let [used, ..] = &*self.in_use().await? {
            return Err(Failure::refused(format!("{used}: unmount or close it first")));
        }
        for shown in self.shown.take() {
            self.remove(&shown).await?;
        }
        Ok(())
    }

    /// Those that are in use, each with by whom.
    ///
    /// # Errors
    /// Where that cannot be seen.
    pub async fn in_use(&self) -> Result<Vec<String>> {
        self.look().await?;
        let shown = self.shown.borrow();
        let used = shown.iter().filter(|shown| !shown.users.borrow().is_empty());
        Ok(used.map(|shown| shown.told()).collect())
    }

    async fn look(&self) -> Result<()> {
        let all: Vec<Rc<Shown>> = self.shown.borrow().clone();
        for shown in all {
            let node = names::node(shown.information.number);
            shown.users.replace(self.ask(move || Ok(users::of(&node))).await?);
        }
        Ok(())
    }

    /// Keeps up to date who uses them, and their sizes.
    pub async fn keep_looking(self: Rc<Self>) {
        loop {
            self.runtime.sleep(LOOKED_EVERY).await;
            if let Err(error) = self.look().await {
                tracing::warn!("{error:#}");
            }
            self.follow_sizes().await;
        }
    }

    async fn follow_sizes(&self) {
        let all: Vec<Rc<Shown>> = self.shown.borrow().clone();
        for shown in all {
            let size_bytes = shown.source.device.geometry().size_bytes;
            if size_bytes == shown.size_bytes.replace(size_bytes) {
                continue;
            }
            let number = shown.information.number;
            let resize = move || Ok(Devices::open()?.resize(number, size_bytes)?);
            match self.ask(resize).await {
                Ok(()) => tracing::info!("{} has {size_bytes} bytes", shown.link.display()),
                Err(error) => tracing::warn!(
                    "{} keeps its size until it is opened anew after a stop: {error:#}; Linux \
                     6.16 or newer can change it",
                    shown.link.display()
                ),
            }
        }
    }

    /// Removes those that nobody uses; the others are left, without a request half way.
    pub async fn close(&self, is_lost: bool) {
        let used = if is_lost { Ok(Vec::new()) } else { self.in_use().await };
        if let Err(error) = &used {
            tracing::warn!("{error:#}");
        }
        for shown in self.shown.take() {
            let is_left = !is_lost && (used.is_err() || !shown.users.borrow().is_empty());
            let ended = if is_left { self.leave(&shown).await } else { self.remove(&shown).await };
            if let Err(error) = ended {
                tracing::warn!("{error:#}");
            }
        }
    }

    async fn leave(&self, shown: &Shown) -> Result<()> {
        let number = shown.information.number;
        let quiesce = move || Ok(Devices::open()?.quiesce(number)?);
        if shown.information.flags.contains(Flags::QUIESCE)
            && let Err(error) = self.ask(quiesce).await
        {
            // It takes no more requests; what it has given to this server is left below.
            tracing::warn!("{error:#}");
        }
        shown.service.leave();
        while shown.service.in_flight.get() > 0 {
            self.runtime.sleep(PAUSE).await;
        }
        tracing::warn!("{}: its requests wait for the next start", shown.told());
        Ok(())
    }

    async fn remove(&self, shown: &Shown) -> Result<()> {
        let (number, link) = (shown.information.number, shown.link.clone());
        self.ask(move || {
            names::unlink(&link, number);
            remove(number)
        })
        .await
    }

    /// Work with the driver, on a thread of its own.
    async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let end = self.runtime.now() + DRIVER_TIME;
        match self.runtime.deadline(end, run_blocking(work)).await {
            Ok(answer) => answer,
            Err(_) => Err(anyhow!("the ublk driver has not answered within {DRIVER_TIME:?}")),
        }
    }

    pub fn is_any_shown(&self) -> bool {
        !self.shown.borrow().is_empty()
    }

    pub fn status(&self) -> Vec<BlockDeviceStatus> {
        self.shown.borrow().iter().map(|shown| shown.status()).collect()
    }
}

impl Shown {
    fn told(&self) -> String {
        let users: Vec<String> = self.users.borrow().iter().map(User::to_string).collect();
        format!("{} ({})", self.link.display(), users.join(", "))
    }

    fn status(&self) -> BlockDeviceStatus {
        let (information, service) = (&self.information, &self.service);
        BlockDeviceStatus {
            device: names::node(information.number),
            link: self.link.clone(),
            core: self.source.core.clone(),
            size_bytes: self.size_bytes.get(),
            queues: information.queues,
            depth: information.depth,
            io_bytes_max: information.io_bytes_max,
            is_read_only: service.is_read_only(),
            used_by: self.users.borrow().iter().map(User::to_string).collect(),
            requests: service.requests.get(),
            read_bytes: service.read_bytes.get(),
            written_bytes: service.written_bytes.get(),
            errors: service.errors.get(),
            in_flight: service.in_flight.get(),
        }
    }
}

/// The device of this tag that has no server.
fn left_of(tag: u64) -> Result<Option<Information>> {
    let mut devices = Devices::open()?;
    for number in Devices::numbers() {
        if let Some(found) = devices.information(number)?
            && found.tag == tag
        {
            if found.state == State::Dead {
                // An earlier daemon was ended before it was shown, or after it was stopped.
                devices.delete(number)?;
                continue;
            }
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn remove(number: u32) -> Result<()> {
    let mut devices = Devices::open()?;
    devices.stop(number)?;
    Ok(devices.delete(number)?)
}

/// What the driver keeps for its server.
fn tag_of(uuid: Uuid) -> u64 {
    let (high, low) = uuid.as_u64_pair();
    high ^ low.rotate_left(1)
}
