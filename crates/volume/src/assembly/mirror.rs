//! The cache mirror: a RAID 1 of the array's kind below the cache.
//!
//! The cache's checksums tell which copy of a block is correct. So the copies have no intent
//! bitmap: after an unclean shutdown they may differ, and the cache repairs them where it matters
//! when it is opened ([`headpond_cache`], `recover`).
//!
//! The superblocks tell which copies are up to date, as with the members of any array. A copy that
//! is started alone cannot tell that the others were used without it. So whenever one is lost, 1.
//! the generation on the cache's superblock is raised, on the remaining copies; 2. that on the
//! arrays is; 3. only then is a write acknowledged that the lost copy misses. A power cut between
//! the first two leaves the cache one ahead, which the next open corrects. A start without a
//! missing copy, or without any, raises it by two: that copy may be one ahead, and must be behind
//! from then on. Once the cache was invalidated that has been done, and the copies record no more.
//!
//! **Invariants**
//! - A copy that misses an acknowledged write has an older generation than the arrays.
//! - Copies whose superblocks do not match are refused before anything is written to them. Their
//!   contents are read later, when they are recorded as in use.

use crate::assembly::cores::{Core, CoreBacking};
use crate::description::{CacheDescription, Description, MirrorDescription, NAME_BYTES_MAX};
use headpond_block::decorators::WindowDevice;
use headpond_block::sync::Semaphore;
use headpond_block::{
    BlockDevice, ByteRange, Cause, Copies, DeviceError, DeviceName, Geometry, Outcome, Request,
    RequestKind, Runtime, Submission,
};
use headpond_cache::Superblock;
use headpond_cache::format::superblock::COPY_OFFSETS;
use headpond_raid::superblock::DATA_OFFSET_MIN;
use headpond_raid::{
    AfterUncleanStop, Array, ArrayState, AssembleError, AssembleOptions, Assembled, Contents,
    CreateError, CreateOptions, Inspection, Integrity, Intent, Level, Occupied, Prepared, Striping,
    Tuning, WhenFull, erase, inspect, prepare,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use uuid::Uuid;

/// Stands for the cache mirror where a core name is expected; no core can have it.
pub const CACHE_COPIES: &str = "[cache]";
/// Log records are seldom shorter, and writes to one strip are serialized.
const STRIP_BYTES: u32 = 16 << 10;

/// The device of a cache.
#[derive(Clone)]
pub struct CacheDevice {
    pub(crate) device: Rc<dyn BlockDevice>,
    pub(crate) mirror: Option<Rc<Mirror>>,
}

/// A device that was repaired from another copy, and how often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RepairedDevice {
    pub device: String,
    pub times: u64,
}

/// The mirror in use.
pub(crate) struct Mirror {
    /// The array and the work on it, as of any core.
    pub core: Rc<Core>,
    /// While there is a cache.
    attached: RefCell<Option<Rc<Attached>>>,
    /// The lost copies that the generation covers; `None`: not all before the start.
    told: Cell<Option<u64>>,
    telling: Semaphore,
    /// How often each device was repaired, by name.
    repaired: RefCell<BTreeMap<String, u64>>,
    /// What is repaired from here on is an error of its copy.
    is_in_use: Cell<bool>,
    runtime: Runtime,
}

/// A cache on the copies.
struct Attached {
    /// Where the generation is raised.
    backing: Rc<CoreBacking>,
    /// As it is on the copies, or being written there.
    superblock: RefCell<Superblock>,
}

/// Copies that were read, and not written to.
pub(crate) struct FoundMirror {
    prepared: Prepared,
    /// The copy with the newest cache, as a device to read.
    pub face: Rc<dyn BlockDevice>,
    /// All copies with it: together they tell which of two headers is the newest.
    pub faces: Vec<Rc<dyn BlockDevice>>,
}

impl From<Rc<dyn BlockDevice>> for CacheDevice {
    fn from(device: Rc<dyn BlockDevice>) -> Self {
        Self { device, mirror: None }
    }
}

impl From<Rc<Mirror>> for CacheDevice {
    fn from(mirror: Rc<Mirror>) -> Self {
        Self { device: Rc::clone(&mirror) as Rc<dyn BlockDevice>, mirror: Some(mirror) }
    }
}

impl CacheDevice {
    /// Erases the labels of the copies.
    ///
    /// # Errors
    /// That of a copy that cannot be written.
    pub async fn dissolve(&self) -> Outcome {
        match &self.mirror {
            Some(mirror) => mirror.dissolve().await,
            None => Ok(()),
        }
    }
}

impl Mirror {
    fn new(array: Array, runtime: &Runtime) -> Rc<Self> {
        let told = (array.state() == ArrayState::Optimal).then(|| array.departures());
        Rc::new(Self {
            core: Core::new(0, CACHE_COPIES.into(), array, runtime),
            attached: RefCell::default(),
            told: Cell::new(told),
            telling: Semaphore::new(1),
            repaired: RefCell::default(),
            is_in_use: Cell::new(false),
            runtime: runtime.clone(),
        })
    }

    /// Makes empty copies of devices.
    ///
    /// # Errors
    /// Refusals before anything is written; later those of the devices.
    pub async fn make(
        runtime: &Runtime,
        devices: Vec<Rc<dyn BlockDevice>>,
        options: &CreateOptions,
        tuning: Tuning,
    ) -> Result<Rc<Self>, MakeMirrorError> {
        headpond_raid::create(&devices, options).await?;
        let how = assemble_options(options.uuid, tuning);
        let assembled = headpond_raid::assemble(runtime, devices, how).await?;
        Ok(Self::new(assembled.array, runtime))
    }

    pub(crate) fn array(&self) -> &Array {
        &self.core.array
    }

    /// Attaches the cache on it, in front of these arrays; returns its superblock, on all copies.
    ///
    /// # Errors
    /// Where the generation cannot be raised.
    pub async fn attach(&self, backing: &Rc<CoreBacking>) -> Result<Superblock, DeviceError> {
        let loaded = headpond_cache::load(self.array()).await;
        let superblock = loaded.map_err(|error| self.unreadable(error))?;
        if is_ahead(&superblock, backing.generation()) {
            backing.raise_generation().await?;
        }
        backing.begin_copies();
        let (backing, superblock) = (Rc::clone(backing), RefCell::new(superblock));
        let attached = Rc::new(Attached { backing, superblock });
        self.attached.replace(Some(Rc::clone(&attached)));
        self.core.background.begin();
        let is_whole = self.is_told();
        self.tell().await?;
        if !is_whole {
            self.told.set(None);
            self.tell().await?;
        }
        let superblock = attached.superblock.borrow().clone();
        Ok(superblock)
    }

    /// Detaches it.
    pub fn detach(&self) {
        if let Some(attached) = self.attached.take() {
            attached.backing.end_copies();
        }
    }

    /// Records a clean shutdown on the copies.
    ///
    /// # Errors
    /// Where none of them can be written.
    pub async fn stop(&self) -> Outcome {
        self.core.background.stop().await;
        self.array().stop().await
    }

    /// The labels of failed and missing copies stay: they are stale in any use.
    async fn dissolve(&self) -> Outcome {
        self.core.background.stop().await;
        let mut outcome = Ok(());
        for device in self.array().devices() {
            outcome = outcome.and(erase(&*device).await);
        }
        outcome
    }

    /// How often each device was repaired, by name.
    pub fn repaired(&self) -> Vec<RepairedDevice> {
        let repaired = self.repaired.borrow();
        let told = |(device, times): (&String, &u64)| RepairedDevice {
            device: device.clone(),
            times: *times,
        };
        repaired.iter().map(told).collect()
    }

    /// Resets the counts.
    pub fn forget_repaired(&self) {
        self.repaired.borrow_mut().clear();
    }

    /// The cache is open: differences after an unclean shutdown were no errors of a copy.
    pub fn begin_use(&self) {
        self.forget_repaired();
        self.is_in_use.set(true);
    }

    /// Whether a copy is being resynced.
    pub fn is_catching_up(&self) -> bool {
        !self.array().filling_roles().is_empty()
    }

    /// Checks that the generation covers the lost copies; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn self_check(&self) {
        self.array().self_check();
        self.core.background.self_check(&self.core.array);
        let told = self.told.get().unwrap_or(0);
        assert!(told <= self.array().departures(), "told is who has left");
        let attached = self.attached.borrow();
        let Some(Attached { backing, superblock }) = attached.as_deref() else { return };
        let (ours, theirs) = (superblock.borrow().generation, backing.generation());
        let fits = ours == theirs || ours == theirs + 1 || backing.is_disowned();
        assert!(fits, "the copies are of generation {ours}, and the arrays of {theirs}");
    }

    fn is_told(&self) -> bool {
        self.told.get() == Some(self.array().departures())
    }

    /// Records lost copies on the arrays, where that is not done yet.
    async fn tell(&self) -> Outcome {
        let _turn = self.telling.acquire(1).await;
        while !self.is_told() {
            let departures = self.array().departures();
            let Some(attached) = self.attached.borrow().clone() else { return Ok(()) };
            attached.backing.raise_with(async |it| self.record(&attached, it).await).await?;
            self.told.set(Some(departures));
        }
        Ok(())
    }

    /// Records a generation on the cache, in both places: with one alone, rot there would bring
    /// back the generation before.
    async fn record(&self, attached: &Attached, generation: u64) -> Outcome {
        let mut superblock = attached.superblock.borrow().clone();
        superblock.generation = generation;
        for _ in COPY_OFFSETS {
            headpond_cache::write_superblock(self.array(), &mut superblock).await?;
            attached.superblock.replace(superblock.clone());
        }
        Ok(())
    }

    fn unreadable(&self, error: headpond_cache::OpenError) -> DeviceError {
        match error {
            headpond_cache::OpenError::Device(error) => error,
            _ => DeviceError::new(self.name(), Cause::Gone),
        }
    }
}

impl BlockDevice for Mirror {
    fn name(&self) -> &DeviceName {
        self.array().name()
    }

    fn geometry(&self) -> &Geometry {
        self.array().geometry()
    }

    fn copies(&self) -> Option<&dyn Copies> {
        Some(self)
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        if request.kind == RequestKind::Read {
            return self.array().submit(request);
        }
        match self.array().submit(request).now_or() {
            Ok(outcome) if outcome.is_err() || self.is_told() => Submission::ready(outcome),
            Ok(_) => Submission::pending(self.tell()),
            Err(pending) => Submission::pending(async move {
                pending.await?;
                match self.is_told() {
                    true => Ok(()),
                    false => self.tell().await,
                }
            }),
        }
    }
}

impl Copies for Mirror {
    fn count(&self) -> usize {
        self.array().count()
    }

    fn read_copy(&self, copy: usize, request: Request) -> Submission<'_> {
        self.array().read_copy(copy, request)
    }

    fn mend_copy(&self, copy: usize, request: Request) -> Submission<'_> {
        let members = self.array().status().members;
        if let Some(member) = members.get(copy).filter(|_| self.is_in_use.get())
            && let Some(device) = &member.device
        {
            *self.repaired.borrow_mut().entry(device.clone()).or_default() += 1;
            self.array().history().errors_of(member.uuid).note_checksum(self.runtime.utc());
        }
        self.array().mend_copy(copy, request)
    }
}

/// Why no copies were made.
#[derive(Debug, thiserror::Error)]
pub enum MakeMirrorError {
    #[error(transparent)]
    Create(#[from] CreateError),
    #[error(transparent)]
    Assemble(#[from] AssembleError),
}

/// A lost copy is recorded on the cache, and a power cut came before the arrays.
pub(crate) fn is_ahead(superblock: &Superblock, generation: u64) -> bool {
    superblock.generation == generation + 1
}

/// Reads the devices that should be the copies of a cache. Others are left out; returns the notes
/// on them.
///
/// # Errors
/// Why no copy was found.
pub(crate) async fn find(
    runtime: &Runtime,
    (volume, mirror): (&str, &MirrorDescription),
    devices: Vec<Rc<dyn BlockDevice>>,
    tuning: Tuning,
) -> Result<(FoundMirror, Vec<String>), String> {
    let (mut copies, mut told) = (Vec::new(), Vec::new());
    for device in devices {
        let what = match inspect(&*device).await {
            Ok(Inspection::Member(found)) if found.array.uuid == mirror.uuid => {
                let array = &found.array;
                let bytes = array.layout().map(|layout| layout.array_bytes()).unwrap_or_default();
                let cache = look(&device, array.data_offset, bytes).await;
                copies.push(Copy { device, cache });
                continue;
            }
            Ok(Inspection::Member(found)) => format!("a member of `{}`", found.array.name),
            Ok(Inspection::Empty) => "blank".into(),
            Ok(Inspection::Foreign) => "in other use".into(),
            Ok(Inspection::Unusable(error)) => format!("unreadable ({error})"),
            Err(error) => error.to_string(),
        };
        told.push(format!(
            "{} is not a copy of the cache, but {what}: left out; `headpond array add-spare {volume} \
             DEVICE --cache` makes a device a copy",
            device.name()
        ));
    }
    let Some((newest, face)) = newest(&copies) else {
        let none = "none of its devices is a copy of it".to_owned();
        return Err(told.into_iter().reduce(|all, one| format!("{all}; {one}")).unwrap_or(none));
    };
    let how = assemble_options(mirror.uuid, tuning);
    let devices = |copies: &[Copy]| copies.iter().map(|copy| Rc::clone(&copy.device)).collect();
    let mut prepared = prepare(runtime, devices(&copies), how.clone()).await;
    if matches!(prepared, Err(AssembleError::Diverged { .. })) {
        // Each was started without the other. The copies that the arrays were used with have the
        // newest generation.
        let is_behind = |copy: &mut Copy| copy.generation() != Some(newest.generation);
        let behind: Vec<Copy> = copies.extract_if(.., is_behind).collect();
        told.extend(behind.iter().map(|copy| left_out(volume, copy.device.name())));
        prepared = prepare(runtime, devices(&copies), how).await;
    }
    let prepared = prepared.map_err(|error| error.to_string())?;
    let as_left = copies.iter().filter(|copy| copy.generation() == Some(newest.generation));
    let faces = as_left.filter_map(|copy| Some(Rc::clone(&copy.cache.as_ref()?.1))).collect();
    Ok((FoundMirror { prepared, face, faces }, told))
}

/// A device labelled as a copy, and the cache there, where it is readable.
struct Copy {
    device: Rc<dyn BlockDevice>,
    cache: Option<(Superblock, Rc<dyn BlockDevice>)>,
}

impl Copy {
    fn generation(&self) -> Option<u64> {
        self.cache.as_ref().map(|(superblock, _)| superblock.generation)
    }
}

/// The newest cache of all copies; of several such the first.
fn newest(copies: &[Copy]) -> Option<(Superblock, Rc<dyn BlockDevice>)> {
    let caches = copies.iter().rev().filter_map(|copy| copy.cache.clone());
    caches.max_by_key(|(superblock, _)| (superblock.generation, superblock.sequence))
}

/// The cache on a copy.
async fn look(
    device: &Rc<dyn BlockDevice>,
    data_offset: u64,
    bytes: u64,
) -> Option<(Superblock, Rc<dyn BlockDevice>)> {
    if data_offset + bytes > device.size_bytes() {
        return None;
    }
    let window = WindowDevice::new(Rc::clone(device), data_offset, bytes);
    let superblock = headpond_cache::load(&window).await.ok()?;
    Some((superblock, Rc::new(window)))
}

/// The note on a copy that is left out.
fn left_out(volume: &str, copy: &DeviceName) -> String {
    format!(
        "{copy} is a stale copy of the cache: left out; `headpond array re-add {volume} {copy} --cache` \
         resyncs it"
    )
}

impl FoundMirror {
    /// Records the copies as in use; with the notes on them.
    ///
    /// # Errors
    /// Those of the devices.
    pub async fn begin(
        self,
        runtime: &Runtime,
        volume: &str,
    ) -> Result<(Rc<Mirror>, Vec<String>), AssembleError> {
        let Assembled { array, stale, .. } = self.prepared.begin().await?;
        let told = stale.iter().map(|name| left_out(volume, name)).collect();
        Ok((Mirror::new(array, runtime), told))
    }
}

fn assemble_options(uuid: Uuid, tuning: Tuning) -> AssembleOptions {
    // A write that one copy has space for succeeds, as with that one alone.
    let tuning = Tuning { when_full: WhenFull::FailMember, ..tuning };
    // Bit rot on one copy must not spread: the cache's checksums tell which one is correct.
    let after_unclean_stop = AfterUncleanStop::OwnerCompares;
    AssembleOptions { uuid: Some(uuid), after_unclean_stop, tuning, ..AssembleOptions::default() }
}

/// How the copies of a cache are made.
pub(crate) fn create_options(
    description: &Description,
    mirror: &MirrorDescription,
    occupied: Occupied,
) -> CreateOptions {
    let mut name = format!("cache of {}", description.name);
    name.truncate(NAME_BYTES_MAX);
    CreateOptions {
        name,
        uuid: mirror.uuid,
        level: Level::Raid1,
        groups: 1,
        declustered: None,
        striping: Striping::Plain,
        strip_bytes: STRIP_BYTES,
        // Only written blocks are read, and these have checksums: the copies need no initial sync,
        // which could spread bit rot.
        contents: Contents::Zeros,
        intent: Intent::None,
        integrity: Integrity::None,
        occupied,
        owner: None,
        journal: None,
    }
}

/// Size of a cache on copies, the smallest of which has `smallest_bytes`.
pub fn bytes_on_copies(smallest_bytes: u64) -> u64 {
    let strip = u64::from(STRIP_BYTES);
    smallest_bytes.saturating_sub(DATA_OFFSET_MIN) / strip * strip
}

/// The range of the cache on each of the new copies.
pub(crate) fn windows(
    devices: &[Rc<dyn BlockDevice>],
    range: ByteRange,
) -> Vec<Rc<dyn BlockDevice>> {
    let window = |device: &Rc<dyn BlockDevice>| {
        Rc::new(WindowDevice::new(Rc::clone(device), range.start(), range.len())) as Rc<_>
    };
    devices.iter().map(window).collect()
}

impl CacheDescription {
    /// Changes the lists of copies and spares.
    pub(crate) fn change_copies<T>(
        &mut self,
        change: impl FnOnce(&mut Vec<String>, &mut Vec<String>) -> T,
    ) -> Option<T> {
        let mirror = self.mirror.as_mut()?;
        let mut copies = vec![self.device.clone()];
        copies.append(&mut mirror.copies);
        let changed = change(&mut copies, &mut mirror.spares);
        let mut copies = copies.into_iter();
        if let Some(first) = copies.next() {
            self.device = first;
        }
        mirror.copies = copies.collect();
        Some(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Volume;
    use crate::volume::self_check::tests::lived;
    use headpond_testkit::{Break, assert_trips};

    fn of(volume: &Volume) -> Rc<Mirror> {
        let cached = volume.cached().expect("it has a cache");
        cached.mirror.clone().expect("it has copies")
    }

    fn set_generation(volume: &Volume, by: impl FnOnce(u64) -> u64) {
        let mirror = of(volume);
        let attached = mirror.attached.borrow();
        let mut superblock = attached.as_ref().expect("a cache is on it").superblock.borrow_mut();
        superblock.generation = by(superblock.generation);
    }

    #[test]
    fn check_notices_copies_that_do_not_fit_their_arrays() {
        let breaks: [Break<Volume>; 3] = [
            ("told is who has left", |it| of(it).told.set(Some(1))),
            ("the copies are of generation", |it| set_generation(it, |before| before + 2)),
            ("the copies are of generation", |it| set_generation(it, |_| u64::MAX)),
        ];
        assert_trips(lived, |it| of(it).self_check(), &breaks);
    }
}
