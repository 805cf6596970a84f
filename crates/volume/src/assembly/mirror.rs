//! A cache device of several copies: a mirror of the array's kind, which the cache lies on.
//!
//! Which copy of a block is right, the cache's checksums say. So the copies keep no intent bitmap:
//! after an unclean stop they may differ, and the cache makes them alike where it matters when it
//! is opened ([`headpond_cache`], `recover`).
//!
//! Which copies are up to date, they say themselves, as the members of any array. A copy that is
//! started alone cannot know that the others went on without it. So whenever one has left, 1. the
//! generation on the cache's superblock is raised, on the copies that are left; 2. that on the
//! arrays is; 3. only then is a write acknowledged that the lost copy lacks. A cut between the
//! first two leaves the cache one ahead, which the next open makes good. Whoever goes on without a
//! copy that is away, or without any, raises it by two: that copy may be one ahead, and must be
//! behind from then on. Once the cache was disowned that has been done, and the copies are told
//! nothing more.
//!
//! **Invariants**
//! - A copy that lacks an acknowledged write has an older generation than the arrays.
//! - Copies whose superblocks do not fit are refused before anything is written to them. What is
//!   below those is read later, when they are recorded as in use.

use crate::assembly::cores::{Core, CoreBacking};
use crate::description::{CacheDescription, Description, MirrorDescription, NAME_BYTES_MAX};
use headpond_block::decorators::WindowDevice;
use headpond_block::sync::Semaphore;
use headpond_block::{
    BlockDevice, BufferPool, ByteRange, Cause, Copies, DeviceError, DeviceName, Geometry, Outcome,
    Request, RequestKind, Runtime, Submission,
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

/// What the copies of the cache are called where the name of a core is asked for; no core can have
/// it.
pub const CACHE_COPIES: &str = "[cache]";
/// A record of the log is seldom shorter, and what is written side by side in one strip waits for
/// each other.
const STRIP_BYTES: u32 = 16 << 10;

/// What a cache lies on.
#[derive(Clone)]
pub struct CacheDevice {
    pub(crate) device: Rc<dyn BlockDevice>,
    pub(crate) mirror: Option<Rc<Mirror>>,
}

/// A device that was given what another copy had right, and how often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RepairedDevice {
    pub device: String,
    pub times: u64,
}

/// Copies at work.
pub(crate) struct Mirror {
    /// The array and the work on it, as of any core.
    pub core: Rc<Core>,
    /// While there is a cache.
    attached: RefCell<Option<Rc<Attached>>>,
    /// The departures that the generation speaks of; `None`: not of all before the start.
    told: Cell<Option<u64>>,
    telling: Semaphore,
    /// How often each device was given what another copy had right, by name.
    repaired: RefCell<BTreeMap<String, u64>>,
}

/// A cache on the copies.
struct Attached {
    /// Where the generation is raised.
    backing: Rc<CoreBacking>,
    /// As the copies have it, or are being given it.
    superblock: RefCell<Superblock>,
}

/// Copies that were looked at, and not written to.
pub(crate) struct FoundMirror {
    prepared: Prepared,
    /// The copy that has the newest cache, as a device for whoever reads.
    pub face: Rc<dyn BlockDevice>,
    /// All that have it as it was left: which of two headers is the newest, they know together.
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
    /// The cache is no more, and no copies are.
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
        let told = (array.state() == ArrayState::Healthy).then(|| array.departures());
        Rc::new(Self {
            core: Core::new(0, CACHE_COPIES.into(), array, runtime),
            attached: RefCell::default(),
            told: Cell::new(told),
            telling: Semaphore::new(1),
            repaired: RefCell::default(),
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
        pool: BufferPool,
    ) -> Result<Rc<Self>, MakeMirrorError> {
        headpond_raid::create(&devices, options).await?;
        let how = assemble_options(options.uuid, pool);
        let assembled = headpond_raid::assemble(runtime, devices, how).await?;
        Ok(Self::new(assembled.array, runtime))
    }

    pub(crate) fn array(&self) -> &Array {
        &self.core.array
    }

    /// There is a cache on it from now on, in front of these arrays; with its superblock as it is
    /// then, on all copies.
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

    /// There is none any more.
    pub fn detach(&self) {
        if let Some(attached) = self.attached.take() {
            attached.backing.end_copies();
        }
    }

    /// Records the copies as stopped in order.
    ///
    /// # Errors
    /// Where none of them can be written.
    pub async fn stop(&self) -> Outcome {
        self.core.background.stop().await;
        self.array().stop().await
    }

    /// Those that are out of use have let go of theirs: they are behind, whoever takes them.
    async fn dissolve(&self) -> Outcome {
        self.core.background.stop().await;
        let mut outcome = Ok(());
        for device in self.array().devices() {
            outcome = outcome.and(erase(&*device).await);
        }
        outcome
    }

    /// How often each device was wrong, by name.
    pub fn repaired(&self) -> Vec<RepairedDevice> {
        let repaired = self.repaired.borrow();
        let told = |(device, times): (&String, &u64)| RepairedDevice {
            device: device.clone(),
            times: *times,
        };
        repaired.iter().map(told).collect()
    }

    /// From here on they are counted anew.
    pub fn forget_repaired(&self) {
        self.repaired.borrow_mut().clear();
    }

    /// Whether a copy is being given what it lacks.
    pub fn is_catching_up(&self) -> bool {
        !self.array().filling_roles().is_empty()
    }

    /// Checks what the cache on the copies says of those that have left; for tests and simulation.
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

    /// Lets the arrays know that copies have left, where they do not.
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
        if let Some(device) = members.get(copy).and_then(|member| member.device.clone()) {
            *self.repaired.borrow_mut().entry(device).or_default() += 1;
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

/// The cache was told that a copy had left, and a cut kept that from the arrays.
pub(crate) fn is_ahead(superblock: &Superblock, generation: u64) -> bool {
    superblock.generation == generation + 1
}

/// Looks at the devices that are to be the copies of a cache. Those that are none are set aside;
/// answers what to tell of them.
///
/// # Errors
/// Why there is nothing to start with.
pub(crate) async fn find(
    runtime: &Runtime,
    (volume, mirror): (&str, &MirrorDescription),
    devices: Vec<Rc<dyn BlockDevice>>,
    pool: BufferPool,
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
            Ok(Inspection::Foreign) => "something else's".into(),
            Ok(Inspection::Unusable(error)) => format!("not to be read ({error})"),
            Err(error) => error.to_string(),
        };
        told.push(format!(
            "{} is no copy of the cache, but {what}: set aside; `headpond array add-spare {volume} \
             DEVICE --cache` makes a device a copy",
            device.name()
        ));
    }
    let Some((newest, face)) = newest(&copies) else {
        let none = "none of its devices is a copy of it".to_owned();
        return Err(told.into_iter().reduce(|all, one| format!("{all}; {one}")).unwrap_or(none));
    };
    let how = assemble_options(mirror.uuid, pool);
    let devices = |copies: &[Copy]| copies.iter().map(|copy| Rc::clone(&copy.device)).collect();
    let mut prepared = prepare(runtime, devices(&copies), how.clone()).await;
    if matches!(prepared, Err(AssembleError::Diverged { .. })) {
        // Each was started without the other. Those that the arrays went on with have the newest
        // generation.
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

/// A device that says that it is a copy, and the cache there, where it can be read.
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

/// What to tell of a copy that is not started with.
fn left_out(volume: &str, copy: &DeviceName) -> String {
    format!(
        "{copy} lacks what the other copies of the cache have since: left out; `headpond array \
         re-add {volume} {copy} --cache` gives it everything"
    )
}

impl FoundMirror {
    /// Records the copies as in use; with what to tell of them.
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

fn assemble_options(uuid: Uuid, pool: BufferPool) -> AssembleOptions {
    // A write that one copy has room for succeeds, as with that one alone.
    let tuning = Tuning { when_full: WhenFull::FailMember, ..Tuning::with_pool(pool) };
    // What rotted on one copy is not to be spread: the cache's checksums say which one is right.
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
        // What was never written is never read, and what was is known by its checksum: copies need
        // not be made alike, which could spread what has rotted on one of them.
        contents: Contents::Zeros,
        intent: Intent::None,
        integrity: Integrity::None,
        occupied,
        owner: None,
        journal: None,
    }
}

/// What a cache has on copies, the smallest of which is so large.
pub fn bytes_on_copies(smallest_bytes: u64) -> u64 {
    let strip = u64::from(STRIP_BYTES);
    smallest_bytes.saturating_sub(DATA_OFFSET_MIN) / strip * strip
}

/// Where the cache lies on each of the copies that are to be.
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
    /// The copies and the spares, as lists to be changed.
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
