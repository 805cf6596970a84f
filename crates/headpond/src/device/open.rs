//! Opening devices on the data thread's ring.

use super::spec::DeviceSpec;
use crate::outcome::Failure;
use anyhow::{Context, Result};
use headpond_block::decorators::{Leak, VolatileDevice};
use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, Runtime, memory};
use headpond_sim::ssd::State;
use headpond_sim::{Model, ModelDevice};
use headpond_uring::{Allocation, FileDevice, FileOptions, Ownership, Ring};
use headpond_volume::Size;
use headpond_whatif::models;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::rc::Rc;

/// Whether the machine has so much memory to spare: what is promised and not there would end the
/// daemon, at once or when it is written to.
///
/// # Errors
/// Where it has not; the error says how much there is.
pub fn check_memory(spec: &DeviceSpec, size: Size) -> Result<()> {
    let available = available_bytes().unwrap_or(u64::MAX);
    let is_there = usize::try_from(size.bytes()).is_ok_and(memory::can_have);
    if size.bytes() <= available && is_there {
        return Ok(());
    }
    let free = Size(available.min(size.bytes()) >> 20 << 20);
    Err(Failure::usage(format!(
        "{spec} needs more memory than there is: {free} are available on this machine; name a \
         smaller size"
    )))
}

/// Memory that programs could be given without others being moved to swap.
fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

/// Opens devices for one thread.
pub struct Opener {
    ring: Ring,
    runtime: Runtime,
    /// Each model is read once and shared by its drives.
    models: RefCell<BTreeMap<String, Model>>,
}

impl Opener {
    pub fn new(ring: Ring, runtime: Runtime) -> Self {
        Self { ring, runtime, models: RefCell::default() }
    }

    /// Opens a device for this daemon alone.
    ///
    /// # Errors
    /// Where it is in use, cannot be opened, or names no model; the error names the device.
    pub fn open(&self, spec: &DeviceSpec) -> Result<Rc<dyn BlockDevice>> {
        Ok(match spec {
            DeviceSpec::Path(path) => self.file(&FileOptions::new(path))?,
            DeviceSpec::Shared(path) => {
                self.file(&FileOptions::new(path).ownership(Ownership::Shared))?
            }
            DeviceSpec::Ram(size) => {
                check_memory(spec, *size)?;
                Rc::new(RamDevice::new(&*spec.to_string(), size.bytes()))
            }
            DeviceSpec::Model { model, store } => self.modelled(spec, model, store)?,
            DeviceSpec::Lossy { path, seed, leak } => {
                let leak = if *leak == 0 { Leak::Nothing } else { Leak::OneIn(*leak) };
                let inner = self.file(&FileOptions::new(path))?;
                Rc::new(VolatileDevice::new(inner, leak, *seed))
            }
        })
    }

    /// Also soon after the daemon that had it was killed.
    fn file(&self, options: &FileOptions) -> Result<Rc<dyn BlockDevice>> {
        Ok(Rc::new(FileDevice::open_when_left(&self.ring, options)?))
    }

    /// A drive against the wall clock; a solid state one has been written once from end to end.
    fn modelled(&self, spec: &DeviceSpec, name: &str, store: &Path) -> Result<Rc<dyn BlockDevice>> {
        let model = self.model(name)?;
        let Some(size_bytes) = model.capacity_bytes() else {
            return Err(model.is_not("a drive (hdd or ssd)").into());
        };
        let options = FileOptions::new(store).create(size_bytes, Allocation::Sparse);
        let (store, phase) = (self.file(&options)?, self.phase(spec));
        Ok(match model {
            Model::Hdd(model) => Rc::new(ModelDevice::new(store, model, phase, &self.runtime)),
            Model::Ssd(model) => {
                Rc::new(ModelDevice::ssd(store, model, State::Full, phase, &self.runtime))
            }
            Model::Controller(_) | Model::Network(_) => unreachable!("these store nothing"),
        })
    }

    fn model(&self, name: &str) -> Result<Model> {
        if let Some(model) = self.models.borrow().get(name) {
            return Ok(model.clone());
        }
        let model = models::load(name).with_context(|| format!("model:{name}"))?;
        self.models.borrow_mut().insert(name.to_owned(), model.clone());
        Ok(model)
    }

    /// Where a drive's spindle stands at the start: drives of one kind do not turn in step. Taken
    /// from the name, so that a run can be repeated.
    fn phase(&self, spec: &DeviceSpec) -> u64 {
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        spec.to_string().bytes().fold(0xcbf2_9ce4_8422_2325, mix) >> 40
    }
}
