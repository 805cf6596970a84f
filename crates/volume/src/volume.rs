//! The assembled volume.

mod create;
mod devices;
mod errors;
pub(crate) mod flushed_positions;
mod jobs;
pub(crate) mod kept;
mod notes;
pub(crate) mod open;
pub(crate) mod self_check;
mod stopped;
mod verify_contents;

use crate::assembly::cached::Cached;
use crate::assembly::cores::{Core, Cores};
use crate::assembly::ownership::Ownership;
use crate::assembly::slicing::Slicing;
use crate::description::change::SettingsError;
use crate::description::settings::{ChangesByOwner, SettingChange};
use crate::description::{CacheDescription, Description, ExportDescription};
use crate::jobs::Begun;
use crate::notes::Note;
use crate::record::RecordError;
use crate::serving::dispatcher::{Held, RequestDispatcher};
use crate::serving::endpoint::CoreDevice;
use crate::serving::metadata::Recogniser;
use crate::volume::flushed_positions::Broken;
use crate::volume::kept::KeptDescription;
pub use errors::ClearError;
use headpond_block::sync::{Busy, BusyGuard};
use headpond_block::{
    BlockDevice, BufferPool, ByteRange, DeviceError, DeviceName, Geometry, Request, Runtime,
    Stability, Submission,
};
use headpond_cache::{
    CleanError, FullRateFlush, ModeError, ScrubError, ScrubReport, Slice, SliceConfig,
};
use headpond_raid::{OwnerStopped, Tuning};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
pub use stopped::RecordStoppedError;

/// An open volume: serves requests, changes its settings, reports its state.
pub struct Volume {
    pub(crate) description: Rc<RefCell<Description>>,
    pub(crate) kept: Rc<KeptDescription>,
    pub(crate) runtime: Runtime,
    /// Exchanged while requests are held.
    pub(crate) cores: Rc<RefCell<Rc<Cores>>>,
    pub(crate) cached: Rc<RefCell<Option<Rc<Cached>>>>,
    /// In memory, in front of the cache.
    pub(crate) tier: Rc<RefCell<Option<Rc<Cached>>>>,
    pub(crate) dispatcher: Rc<RequestDispatcher>,
    /// Settings and devices are changed one at a time,
    changing: Busy,
    /// Flushes of all dirty data, for commands that change nothing.
    flushing: Busy,
    /// and no more once the volume is stopped.
    is_stopped: Cell<bool>,
    pub(crate) cleaning: Begun,
    pub(crate) scrubbing: Begun,
    pub(crate) draining: Begun,
    pub(crate) ownership: Ownership,
    pub(crate) broken: Rc<RefCell<Option<Broken>>>,
    pub(crate) notes: Vec<Note>,
}

/// Why nothing can be changed at present.
#[derive(Debug, thiserror::Error)]
pub enum BusyError {
    #[error(
        "{volume} is being changed by another command, which `headpond status {volume}` shows: wait until it completes"
    )]
    Changing { volume: String },
    #[error("{volume} is being stopped: change it after the next start")]
    Stopped { volume: String },
}

/// Why settings were refused.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    #[error(transparent)]
    Busy(#[from] BusyError),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Mode(#[from] ModeError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Clean(#[from] CleanAllError),
}

impl SetError {
    /// Whether nothing was changed; where only the cleaning failed the settings may hold.
    pub fn is_refusal(&self) -> bool {
        !matches!(self, Self::Clean(_))
    }
}

/// Why a cache was not scrubbed to the end.
#[derive(Debug, thiserror::Error)]
pub enum ScrubCacheError {
    #[error("{volume} has no cache: there is nothing to scrub")]
    NoCache { volume: String },
    #[error(
        "a copy of the cache of {volume} is being resynced, which reads everything already: wait until \
         it completes, `headpond status {volume}` shows its progress"
    )]
    CatchingUp { volume: String },
    #[error(transparent)]
    Scrub(#[from] ScrubError),
}

impl ScrubCacheError {
    /// Whether it did not begin.
    pub fn is_refusal(&self) -> bool {
        !matches!(self, Self::Scrub(ScrubError::Device(_)))
    }
}

/// Why dirty data is left.
#[derive(Debug, thiserror::Error)]
#[error("not all dirty data could be written to the array: {0}")]
pub struct CleanAllError(#[from] CleanError);

/// Why a volume was not stopped cleanly; the next open recovers it.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    #[error(transparent)]
    Cache(#[from] headpond_cache::StopError),
    #[error("the cache is volatile, and its dirty data could not be saved: {0}")]
    Memory(CleanAllError),
    #[error(
        "the parity below dirty data from before an unclean shutdown could not be repaired: {0}"
    )]
    Parity(CleanAllError),
    #[error(transparent)]
    Array(#[from] DeviceError),
}

impl Volume {
    pub(crate) fn assembled(
        description: &Description,
        cores: Cores,
        cached: Option<Cached>,
        notes: Vec<Note>,
        ownership: Ownership,
    ) -> Self {
        let slicing = Slicing::new(description.slices, cores.places.unit_bytes());
        let parts = match &cached {
            Some(cached) => cached.parts(),
            None => cores.parts(description.slices),
        };
        let name = DeviceName::new(description.name.as_str());
        let geometry = lasting(parts[0].geometry(), cores.first());
        let dispatcher = Rc::new(RequestDispatcher::new(name, geometry, slicing, parts));
        if let (Some(cached), Some(cache)) = (&cached, &description.cache) {
            dispatcher.read_ahead_into(&cached.slices);
            dispatcher.set(&cache.settings);
        }
        let runtime = cores.runtime.clone();
        let description = Rc::new(RefCell::new(description.clone()));
        let cached = Rc::new(RefCell::new(cached.map(Rc::new)));
        let (tier, changing, flushing) = (Rc::default(), Busy::default(), Busy::default());
        let cores = Rc::new(RefCell::new(Rc::new(cores)));
        let kept = Rc::new(KeptDescription::new(&cores, [&cached, &tier]));
        let [cleaning, scrubbing, draining] = Default::default();
        let volume = Self {
            description,
            kept,
            runtime,
            cores,
            cached,
            tier,
            dispatcher,
            changing,
            flushing,
            is_stopped: Cell::new(false),
            cleaning,
            scrubbing,
            draining,
            ownership,
            broken: Rc::default(),
            notes,
        };
        volume.open_endpoints();
        volume.verify_contents();
        volume.begin_background();
        volume.kept.follow_history(&volume.runtime);
        volume
    }

    /// What an array of it may use, with its history.
    pub(crate) fn tuning(&self, pool: BufferPool) -> Tuning {
        let history = self.cores().first().array.history().clone();
        Tuning { history, ..Tuning::with_pool(pool) }
    }

    pub(crate) fn cores(&self) -> Rc<Cores> {
        Rc::clone(&self.cores.borrow())
    }

    /// Starts background work, and has the description follow it.
    pub(crate) fn begin_background(&self) {
        self.follow_exchanges();
        self.follow_reshape();
        let cores = self.cores();
        for ((core, _), (_, described)) in cores.iter().zip(self.description.borrow().cores()) {
            core.background.set_background_rate(described.background);
        }
        cores.begin_background();
    }

    /// Lets requests come in by the cores that there are.
    fn open_endpoints(&self) {
        self.dispatcher.open_endpoints(self.cores().iter());
    }

    /// Replaces the cores, where no cache maps the addresses of the old ones.
    pub(crate) fn replace_cores(&self, cores: Cores, held: &Held<'_>) {
        let is_known = self.cached().is_some() || self.tier().is_some();
        let stays = cores.is_single() && self.cores().is_single();
        assert!(stays || !is_known, "nothing knows other addresses");
        let slices = self.description.borrow().slices;
        held.reslice(Slicing::new(slices, cores.places.unit_bytes()));
        self.cores.replace(Rc::new(cores));
        self.lead(held);
        self.open_endpoints();
        self.verify_contents();
    }

    /// A further core as a device of its own; `None` where there is none of this name.
    pub fn core_device(&self, name: &str) -> Option<Rc<CoreDevice>> {
        let cores = self.cores();
        let (core, _) = cores.iter().skip(1).find(|(core, _)| core.name == name)?;
        let (dispatcher, endpoint) =
            (Rc::clone(&self.dispatcher), self.dispatcher.endpoint(core.id)?);
        let name = self.description.borrow().array_name(name);
        Some(Rc::new(CoreDevice::new(dispatcher, endpoint, name)))
    }

    /// The layer below the tier, one device for each slice, as clients use it without a tier.
    pub(crate) fn below(&self) -> Vec<Rc<dyn BlockDevice>> {
        match self.cached() {
            Some(cached) => cached.parts(),
            None => self.cores().parts(self.description.borrow().slices),
        }
    }

    /// The layer below the tier, one device for each slice, as a tier uses it.
    pub(crate) fn below_tiers(&self) -> Vec<Rc<dyn BlockDevice>> {
        match self.cached() {
            Some(cached) => cached.parts(),
            None => self.cores().backings(self.description.borrow().slices),
        }
    }

    /// Directs requests through the present layers.
    pub(crate) fn lead(&self, held: &Held<'_>) {
        self.followers().follow();
        let tier = self.tier();
        held.replace(tier.as_ref().map_or_else(|| self.below(), |tier| tier.parts()));
        match tier.or_else(|| self.cached()) {
            Some(first) => {
                self.dispatcher.read_ahead_into(&first.slices);
                self.dispatcher.set(&self.description.borrow().cache_settings());
                self.recognise_beside();
            }
            None => self.dispatcher.lead_past(),
        }
    }

    /// The caches, in the order of the request path.
    pub(crate) fn caches(&self) -> impl Iterator<Item = Rc<Cached>> {
        self.tier().into_iter().chain(self.cached())
    }

    /// Has metadata recognised from now on, where a rule asks for it.
    pub(crate) async fn recognise(&self) {
        for recogniser in self.dispatcher.recognise(&self.runtime) {
            recogniser.look().await;
        }
    }

    /// The same, without waiting for it.
    pub(crate) fn recognise_beside(&self) {
        self.dispatcher.recognise(&self.runtime).iter().for_each(Recogniser::look_now);
    }

    pub(crate) fn cached(&self) -> Option<Rc<Cached>> {
        self.cached.borrow().clone()
    }

    /// Changes settings, all of them or none; they are on the members before they take effect.
    ///
    /// # Errors
    /// At the first that is refused, or where they cannot be written to the members.
    pub async fn set(&self, changes: &[SettingChange]) -> Result<(), SetError> {
        let _change = self.begin_change()?;
        self.apply(SettingChange::by_owner(changes)).await
    }

    /// The description with these changes.
    fn with(&self, of: &ChangesByOwner) -> Result<Description, SetError> {
        let description = self.description();
        // What is described may not be in use: a missing cache, a tier without memory.
        if !of.cache.is_empty() && self.cached().is_none() {
            return Err(SettingsError::NoCache { volume: description.name }.into());
        }
        if !of.tier.is_empty() && self.tier().is_none() {
            return Err(SettingsError::NoTier { volume: description.name }.into());
        }
        Ok(description.with_changes(of)?)
    }

    async fn apply(&self, of: ChangesByOwner) -> Result<(), SetError> {
        let next = self.with(&of)?;
        self.check_caches(&next, &of)?;
        self.kept.record(&next).await?;
        // A spare may have taken a place meanwhile.
        let description = self.with(&of)?;
        self.put_in_force(description, of);
        Ok(())
    }

    /// Whether the caches can do what a description says.
    fn check_caches(&self, description: &Description, of: &ChangesByOwner) -> Result<(), SetError> {
        for (cached, config, asked) in self.plans(description, of) {
            cached.check_mode(config.mode, asked.iter().any(|change| change.concerns("mode")))?;
            cached.check_memory(&config)?;
        }
        Ok(())
    }

    /// The caches, with what they are to do and the changes that were asked of them.
    fn plans<'a>(
        &self,
        description: &Description,
        of: &'a ChangesByOwner,
    ) -> Vec<(Rc<Cached>, SliceConfig, &'a [SettingChange])> {
        // Settings of the cache that hold for both are applied to the tier as well.
        let config = description.cache.as_ref().map(CacheDescription::slice_config);
        let tier_config = description.tier.as_ref().map(|described| {
            description.tier_settings(described).of_slice(described.volatile_allowed)
        });
        let plans =
            [(self.cached(), config, &of.cache[..]), (self.tier(), tier_config, &of.tier[..])];
        plans.into_iter().filter_map(|(it, config, asked)| Some((it?, config?, asked))).collect()
    }

    fn put_in_force(&self, description: Description, of: ChangesByOwner) {
        let plans = self.plans(&description, &of);
        for (cached, config, asked) in &plans {
            if asked.iter().any(|change| change.concerns("mode")) {
                cached.slices.iter().for_each(Slice::leave_fallback);
            }
            cached.configure(config);
        }
        if !plans.is_empty() {
            self.dispatcher.set(&description.cache_settings());
            self.recognise_beside();
        }
        self.cores().configure(&description.array);
        if let Some(mirror) = self.cached().and_then(|cached| cached.mirror.clone()) {
            description.array.apply_to(&mirror.core.array);
        }
        self.description.replace(description);
        self.follow_draining();
    }

    /// Changes settings, and cleans all dirty data: where the new mode makes none, none is left.
    ///
    /// # Errors
    /// Before the change, what could not be cleaned or was refused; after it, what stays dirty.
    pub async fn set_and_clean(&self, changes: &[SettingChange]) -> Result<(), SetError> {
        let _change = self.begin_change()?;
        let of = SettingChange::by_owner(changes);
        self.with(&of)?;
        // Most of it while the old settings hold, so that the new ones begin with little to do.
        self.clean_all().await?;
        self.apply(of).await?;
        self.clean_all().await?;
        Ok(())
    }

    pub(crate) fn begin_change(&self) -> Result<BusyGuard, BusyError> {
        let volume = || self.description().name;
        if self.is_stopped.get() {
            return Err(BusyError::Stopped { volume: volume() });
        }
        if !self.changing.is_idle() {
            return Err(BusyError::Changing { volume: volume() });
        }
        Ok(self.changing.begin())
    }

    /// The description with the settings in force.
    pub fn description(&self) -> Description {
        self.description.borrow().clone()
    }

    /// Names the exports of the next start in the description.
    ///
    /// # Errors
    /// Where another command changes the volume, or it is being stopped.
    pub fn set_exports(&self, exports: Vec<ExportDescription>) -> Result<(), BusyError> {
        let _change = self.begin_change()?;
        self.description.borrow_mut().exports = exports;
        Ok(())
    }

    /// Visits the dirty blocks, once for each cache that has them, in no order: scans their maps.
    pub fn each_dirty(&self, mut visit: impl FnMut(ByteRange)) {
        for cached in self.caches() {
            cached.slices.iter().for_each(|slice| slice.each_dirty(&mut visit));
        }
    }

    /// Until the result is dropped, commands clean at the full rate, regardless of readers.
    pub fn flush_at_full_rate(&self) -> Vec<FullRateFlush> {
        self.caches()
            .flat_map(|it| it.slices.iter().map(Slice::flush_at_full_rate).collect::<Vec<_>>())
            .collect()
    }

    /// Ends commands that wait for cleaning, and waits for that: dirty data stays dirty. Nothing is
    /// changed from then on.
    pub async fn end_flushes(&self) {
        self.is_stopped.set(true);
        let caches: Vec<_> = self.caches().collect();
        let end = |are_ended| {
            let slices = caches.iter().flat_map(|cached| cached.slices.iter());
            slices.for_each(|slice| slice.end_flushes(are_ended));
        };
        end(true);
        self.flushing.until_idle().await;
        self.changing.until_idle().await;
        end(false);
    }

    /// Writes all present dirty data to the array, under read load at a rate that leaves readers
    /// two thirds of theirs; returns the bytes that were dirty.
    ///
    /// # Errors
    /// What stays dirty, and why.
    pub async fn clean_all(&self) -> Result<u64, CleanAllError> {
        let _flush = self.flushing.begin();
        let dirty_bytes = self.caches().map(|cached| cached.dirty_bytes()).sum();
        let _job = self.begin_cleaning();
        for cached in self.caches() {
            cached.clean_all().await?;
        }
        Ok(dirty_bytes)
    }

    /// Reads all contents of the cache device, and verifies their checksums.
    ///
    /// # Errors
    /// Where there is no cache, a scrub is in progress, or a damaged block could not be
    /// invalidated.
    pub async fn scrub_cache(&self) -> Result<ScrubReport, ScrubCacheError> {
        let no_cache = || ScrubCacheError::NoCache { volume: self.description().name };
        let cached = self.cached().ok_or_else(no_cache)?;
        if cached.mirror.as_ref().is_some_and(|mirror| mirror.is_catching_up()) {
            return Err(ScrubCacheError::CatchingUp { volume: self.description().name });
        }
        let _job = self.begin_scrubbing();
        let report = cached.scrub(&self.runtime).await?;
        self.cores().first().array.history().note_change();
        Ok(report)
    }

    /// Whether another host has taken over: no request reaches the devices from here any more.
    pub fn is_taken_over(&self) -> bool {
        self.ownership.is_lost()
    }

    /// Closes the volume: the cache saves its state, the array is recorded as clean. A cache in
    /// memory is cleaned first. Requests must have ended.
    ///
    /// # Errors
    /// Where a device fails; the next open recovers.
    pub async fn stop(&self) -> Result<(), StopError> {
        if self.is_taken_over() {
            // The devices belong to its successor now.
            return Ok(());
        }
        self.changing.until_idle().await;
        self.is_stopped.set(true);
        let stopped = self.stop_unchanged().await;
        self.is_stopped.set(stopped.is_ok());
        stopped
    }

    async fn stop_unchanged(&self) -> Result<(), StopError> {
        self.cores().stop_background().await;
        // Readahead reads through the slices, which do not wait for reads when they stop.
        let _rest = self.dispatcher.rest().await;
        for cached in self.caches() {
            if cached.is_memory() {
                let cleaned = cached.clean_all().await;
                cleaned.map_err(|error| StopError::Memory(error.into()))?;
            } else if cached.replayed_blocks() > 0 {
                let cleaned = cached.clean_all().await;
                cleaned.map_err(|error| StopError::Parity(error.into()))?;
            }
            for slice in &cached.slices {
                slice.stop().await?;
            }
        }
        self.note_wear();
        self.kept.record_history().await;
        for mirror in self.caches().filter_map(|cached| cached.mirror.clone()) {
            mirror.stop().await?;
        }
        let owner = match self.cached() {
            Some(cached) if !cached.is_memory() => OwnerStopped {
                life: Some(cached.recorded_life(true)),
                lacks_nothing: cached.leaves_nothing(),
            },
            _ => OwnerStopped::default(),
        };
        self.cores().stop(owner).await?;
        self.ownership.release().await;
        Ok(())
    }
}

/// Geometry that holds as long as the volume is open: a cache that is attached later may require
/// flushes where the array does not.
pub(crate) fn lasting(below: &Geometry, core: &Core) -> Geometry {
    let Geometry { size_bytes, stripe, .. } = *core.array.geometry();
    let stability = below.stability.worst(Stability::Flushable);
    Geometry { size_bytes, stripe, stability, ..below.clone() }
}

impl BlockDevice for Volume {
    fn name(&self) -> &DeviceName {
        self.dispatcher.name()
    }

    fn geometry(&self) -> &Geometry {
        self.dispatcher.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        self.dispatcher.submit(request)
    }

    fn expect(&self, ranges: &[ByteRange]) {
        self.dispatcher.expect(ranges);
    }
}
