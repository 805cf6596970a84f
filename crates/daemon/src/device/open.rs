//! Opening devices on the data thread's ring.

use super::image::open_image;
use super::machine::{existing_identity, find_existing};
use super::spec::DeviceSpec;
use super::vet::is_no_path;
use crate::meminfo;
use crate::run_blocking::run_blocking;
use anyhow::{Context, Result};
use headpond_api::outcome::{Failure, told};
use headpond_block::decorators::{Leak, VolatileDevice};
use headpond_block::devices::RamDevice;
use headpond_block::memory::Population;
use headpond_block::{BlockDevice, LocalFuture, Runtime, memory};
use headpond_sim::ssd::State;
use headpond_sim::{Model, ModelDevice};
use headpond_uring::{
    Access, Allocation, FileDevice, FileOptions, OpenError, OpenFile, Ownership, Ring,
};
use headpond_volume::existing::{ExistingDevice, ExistingError, HEAD_BYTES};
use headpond_volume::{ChangedDevice, Size};
use headpond_whatif::models;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

/// Checks that the machine has this much available memory: overcommitted memory would end the
/// daemon when it is written.
///
/// # Errors
/// If not; the error has the available size.
pub fn check_memory(spec: &DeviceSpec, size: Size) -> Result<()> {
    let available = meminfo::available_bytes().unwrap_or(u64::MAX);
    let is_there = usize::try_from(size.bytes()).is_ok_and(memory::can_have);
    if size.bytes() <= available && is_there {
        return Ok(());
    }
    let free = Size(available.min(size.bytes()) >> 20 << 20);
    Err(Failure::usage(format!(
        "{spec} needs more memory than available: {free} on this machine; use a smaller size"
    )))
}

/// A path of no device is a mistake in the command.
pub fn not_opened(error: OpenError) -> anyhow::Error {
    match &error {
        OpenError::WrongKind { .. } => Failure::usage(error),
        OpenError::Open { source, .. } if is_no_path(source) => Failure::usage(error),
        _ => error.into(),
    }
}

/// Opens devices for one thread.
pub struct Opener {
    ring: Ring,
    runtime: Runtime,
    /// Each model is read once and shared by its drives.
    models: RefCell<BTreeMap<String, Model>>,
    /// Existing devices that were opened, and somebody else has written to.
    changed: RefCell<Vec<ChangedDevice>>,
}

impl Opener {
    pub fn new(ring: Ring, runtime: Runtime) -> Self {
        Self { ring, runtime, models: RefCell::default(), changed: RefCell::default() }
    }

    /// Opens a device exclusively. Blocking work is done on another thread.
    ///
    /// # Errors
    /// If it is in use, cannot be opened, or is an unknown model; the error names the device.
    pub async fn open(&self, spec: &DeviceSpec) -> Result<Rc<dyn BlockDevice>> {
        if let DeviceSpec::Existing { body, head } = spec {
            return self.existing(body, head).await;
        }
        self.plain(spec).await
    }

    async fn plain(&self, spec: &DeviceSpec) -> Result<Rc<dyn BlockDevice>> {
        Ok(match spec {
            DeviceSpec::Path(path) => self.file(FileOptions::new(path)).await?,
            DeviceSpec::Shared(path) => {
                self.file(FileOptions::new(path).ownership(Ownership::Shared)).await?
            }
            DeviceSpec::Ram(size) => {
                let (asked, size) = (spec.clone(), *size);
                run_blocking(move || check_memory(&asked, size)).await?;
                let device = RamDevice::new(&*spec.to_string(), size.bytes());
                populate(device.population());
                Rc::new(device)
            }
            DeviceSpec::Model { model, store } => self.modelled(spec, model, store).await?,
            DeviceSpec::Lossy { path, seed, leak } => {
                let leak = if *leak == 0 { Leak::Nothing } else { Leak::OneIn(*leak) };
                let inner = self.file(FileOptions::new(path)).await?;
                Rc::new(VolatileDevice::new(inner, leak, *seed))
            }
            DeviceSpec::Rbd(address) => open_image(&self.runtime, address).await?,
            DeviceSpec::Existing { .. } => unreachable!("it has no head of its own"),
        })
    }

    /// What was found changed on the existing devices that were opened since this was asked last.
    pub fn take_changed(&self) -> Vec<ChangedDevice> {
        self.changed.take()
    }

    /// A device that was taken with its contents, wherever it is now.
    async fn existing(&self, body: &DeviceSpec, head: &Path) -> Result<Rc<dyn BlockDevice>> {
        let (head, body) = self.locate(body, head).await?;
        let body = self.plain(&body).await?;
        let (device, change) = ExistingDevice::open(head, body).await?;
        if let Some(change) = change {
            self.changed.borrow_mut().push(ChangedDevice { device: device.clone(), change });
        }
        Ok(device)
    }

    /// The open head of a device that was taken with its contents, and what that is called now.
    ///
    /// # Errors
    /// Where the head cannot be read, or another device has the name.
    pub async fn locate(
        &self,
        body: &DeviceSpec,
        head: &Path,
    ) -> Result<(Rc<dyn BlockDevice>, DeviceSpec)> {
        let head = self.file(FileOptions::new(head)).await?;
        let identity = ExistingDevice::identity_in(&*head).await?;
        let named = body.clone();
        let body = run_blocking(move || find_existing(&named, &identity)).await?;
        Ok((head, body))
    }

    /// Takes a device with its contents, which are only read; its head is made.
    ///
    /// # Errors
    /// As [`Self::open`], and where it cannot be used as it is.
    pub async fn take_existing(
        &self,
        body: &DeviceSpec,
        head: &Path,
    ) -> Result<Rc<dyn BlockDevice>> {
        let named = body.clone();
        let identity = run_blocking(move || Ok(existing_identity(&named))).await?;
        let body = self.plain(body).await?;
        let options = FileOptions::new(head).create(HEAD_BYTES, Allocation::Preallocated);
        let head = self.file(options).await?;
        match ExistingDevice::take(head, body, &identity.unwrap_or_default()).await {
            Ok(device) => Ok(device),
            Err(error @ (ExistingError::Size { .. } | ExistingError::Labelled { .. })) => {
                Err(Failure::refused(error))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a file or device to read what is on it, beside whoever else has it open.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn look_at(&self, path: PathBuf) -> LocalFuture<'static, Result<Rc<dyn BlockDevice>>> {
        let options = FileOptions::new(path).access(Access::ReadOnly).ownership(Ownership::Shared);
        let ring = self.ring.clone();
        Box::pin(async move {
            let file = run_blocking(move || Ok(OpenFile::open(&options)?)).await?;
            Ok(Rc::new(FileDevice::new(&ring, file)?) as Rc<dyn BlockDevice>)
        })
    }

    /// Opens several, in their order.
    ///
    /// # Errors
    /// As [`Self::open`], for the first that cannot be opened.
    pub async fn open_all(&self, specs: &[DeviceSpec]) -> Result<Vec<Rc<dyn BlockDevice>>> {
        let mut opened = Vec::new();
        for spec in specs {
            opened.push(self.open(spec).await?);
        }
        Ok(opened)
    }

    /// Retries, as a killed daemon may still hold it.
    async fn file(&self, options: FileOptions) -> Result<Rc<dyn BlockDevice>> {
        let open = move || OpenFile::open_when_left(&options).map_err(not_opened);
        let file = run_blocking(open).await?;
        Ok(Rc::new(FileDevice::new(&self.ring, file)?))
    }

    /// A drive model in real time; an SSD is preconditioned with one full write.
    async fn modelled(
        &self,
        spec: &DeviceSpec,
        name: &str,
        store: &Path,
    ) -> Result<Rc<dyn BlockDevice>> {
        let model = self.model(name).await?;
        let Some(size_bytes) = model.capacity_bytes() else {
            return Err(model.is_not("a device (hdd, ssd or remote)").into());
        };
        let options = FileOptions::new(store).create(size_bytes, Allocation::Sparse);
        let (store, phase) = (self.file(options).await?, self.phase(spec));
        Ok(match model {
            Model::Hdd(model) => Rc::new(ModelDevice::new(store, model, phase, &self.runtime)),
            Model::Ssd(model) => {
                Rc::new(ModelDevice::ssd(store, model, State::Full, phase, &self.runtime))
            }
            Model::Remote(model) => {
                Rc::new(ModelDevice::remote(store, model, phase, &self.runtime))
            }
            Model::Controller(_) | Model::Network(_) => unreachable!("these store nothing"),
        })
    }

    async fn model(&self, name: &str) -> Result<Model> {
        if let Some(model) = self.models.borrow().get(name) {
            return Ok(model.clone());
        }
        let named = name.to_owned();
        let text = move || {
            let text = models::text(&named).with_context(|| format!("model:{named}"));
            text.map_err(|error| Failure::usage(told(&error)))
        };
        let text = run_blocking(text).await?;
        let model = Model::parse(name, &text).with_context(|| format!("model:{name}"))?;
        self.models.borrow_mut().insert(name.to_owned(), model.clone());
        Ok(model)
    }

    /// The initial angle of a drive's spindle: drives of one model are not in phase. Derived from
    /// the name, so that a run is repeatable.
    fn phase(&self, spec: &DeviceSpec) -> u64 {
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        spec.to_string().bytes().fold(0xcbf2_9ce4_8422_2325, mix) >> 40
    }
}

/// Gives memory its pages from a thread of its own, which rests as long as it works.
fn populate(mut population: Population) {
    let run = move || {
        let mut begun = Instant::now();
        while population.step() {
            std::thread::sleep(begun.elapsed());
            begun = Instant::now();
        }
    };
    // Without a thread, pages come with the first writes.
    let _ = std::thread::Builder::new().name("memory".into()).spawn(run);
}
