//! Assembling a volume from its devices.

use crate::cached::{Cached, life_of};
use crate::cores::{Core, Cores, StripesDiffer};
use crate::create::{CoreFacts, cache_options};
use crate::description::{CacheDescription, CoreDescription, Description, FIRST_CORE};
use crate::mirror::{self, CacheDevice, FoundMirror, is_ahead};
use crate::notes::{Note, joined};
use crate::ownership::{ClaimError, Claimant, Ownership};
use crate::volume::Volume;
use headpond_block::{BlockDevice, BufferPool, DeviceName, Runtime, Stability};
use headpond_cache::OpenError::CoreChanged;
use headpond_cache::{Expected, Life, LoadProgress, Superblock};
use headpond_raid::{
    AfterUncleanStop, Array, AssembleError, AssembleOptions, Assembled, Force, Inspection,
    OwnerStopped, Prepared, Tuning, Warning, inspect_all, journal_of, prepare,
};
use serde::{Deserialize, Serialize};
use std::rc::Rc;
use uuid::Uuid;

/// The devices of a volume, opened by the caller.
#[derive(Default)]
pub struct Devices {
    pub tier: Option<Rc<dyn BlockDevice>>,
    pub cache: Option<Rc<dyn BlockDevice>>,
    /// Of a cache that has several, instead, in any order.
    pub copies: Vec<Rc<dyn BlockDevice>>,
    /// In any order.
    pub members: Vec<Rc<dyn BlockDevice>>,
    /// Stripe journals, in any order.
    pub journals: Vec<Rc<dyn BlockDevice>>,
    /// Why devices of the description are not among these.
    pub absent: Vec<Note>,
}

impl Devices {
    /// The places of all that may hold something when the volume is opened.
    pub(crate) fn lasting_mut(&mut self) -> impl Iterator<Item = &mut Rc<dyn BlockDevice>> {
        let caches = self.cache.iter_mut().chain(&mut self.copies);
        caches.chain(&mut self.members).chain(&mut self.journals)
    }
}

/// What the caller agrees to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// Nothing that could return wrong data.
    Careful,
    /// Give up what may be wrong: data that only parity tells which may be torn, and a cache that
    /// is lost or out of date.
    Forced,
    /// The same, and take for right what parity tells that may be torn.
    ParityAccepted,
}

impl Tolerance {
    pub(crate) fn is_forced(self) -> bool {
        self != Self::Careful
    }
}

/// How to open a volume.
pub struct OpenOptions {
    pub tolerance: Tolerance,
    pub pool: BufferPool,
    /// Identity of a cache in memory, which is made anew by every open: random, and never used
    /// before.
    pub new_cache: Uuid,
    /// Put between cache and array, by those who watch or slow down what passes there.
    pub around_core: Option<Decorator>,
    pub watch_load: Option<LoadWatch>,
    /// Who opens it, where other hosts may reach its devices; the description has the last word.
    pub claimant: Option<Claimant>,
}

/// How far the cache of a volume has come that is being opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loading {
    /// One after the other.
    pub slice: u16,
    pub slices: u16,
    /// Of this slice.
    #[serde(flatten)]
    pub progress: LoadProgress,
}

/// Is told again and again how far it is.
pub type LoadWatch = Rc<dyn Fn(Loading)>;

/// Makes a device of a device.
pub type Decorator = Rc<dyn Fn(Rc<dyn BlockDevice>) -> Rc<dyn BlockDevice>>;

/// Why a volume cannot be opened. Nothing was changed but owner records, unless the error is one of
/// a device.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Owned(#[from] ClaimError),
    #[error(transparent)]
    Array(#[from] AssembleError),
    #[error(transparent)]
    Cache(#[from] headpond_cache::OpenError),
    #[error(
        "the volume's cache is not there ({reason}), and it may hold data that nothing else has: bring \
         it back, or start with --force and do without"
    )]
    NoCacheDevice { reason: String },
    #[error("the copies of the cache: {0}")]
    Copies(AssembleError),
    #[error("none of the array's devices can be used: {reason}")]
    NoMembers { reason: String },
    #[error("the I/O classes of {path} were not read")]
    Classes { path: String },
    #[error(
        "the volume has cache {cache}, which the description does not name, and which may hold data \
         that nothing else has: name its device under [cache], or start with --force and do without"
    )]
    UnnamedCache { cache: Uuid },
    #[error("{device} is cache {found}, but the volume's cache is {expected}: attach that one")]
    OtherCache { device: DeviceName, expected: Uuid, found: Uuid },
    #[error(
        "the cache on {device} is an older image of itself, or its device has lost what it had flushed: \
         the volume was served with a newer one since; attach that one, or start with --force and do \
         without"
    )]
    OlderCache { device: DeviceName },
    #[error(
        "the cache on {device} was made for other cores, or for these in another order: put the cores \
         of the description back as they were, or start with --force and do without"
    )]
    OtherCores { device: DeviceName },
    #[error(transparent)]
    Stripes(#[from] StripesDiffer),
    #[error("the cache in memory cannot be set up: {0}")]
    EmptyCache(#[from] headpond_cache::CreateError),
    #[error(
        "the cache has {found} slices, the description says {expected}: correct the description"
    )]
    Slices { expected: u16, found: usize },
}

impl OpenError {
    /// Whether it was refused because the data could be wrong, or another's; not for a device that
    /// failed.
    pub fn is_refusal(&self) -> bool {
        !matches!(
            self,
            Self::Array(AssembleError::Device(_))
                | Self::Copies(AssembleError::Device(_))
                | Self::Cache(headpond_cache::OpenError::Device(_))
                | Self::EmptyCache(_)
        )
    }
}

impl Volume {
    /// Puts the volume together and recovers what an unclean stop left.
    ///
    /// # Errors
    /// Where array or cache refuse; the text says what is wrong with which device, and the way out.
    pub async fn open(
        runtime: &Runtime,
        description: &Description,
        mut devices: Devices,
        options: OpenOptions,
    ) -> Result<Self, OpenError> {
        let ownership = match options.claimant.as_ref().filter(|_| description.heartbeat_ms > 0) {
            Some(claimant) => {
                Ownership::claim(runtime, description, claimant, &mut devices).await?
            }
            None => Ownership::default(),
        };
        let tolerance = options.tolerance;
        let opened = Self::open_owned(runtime, description, devices, options, &ownership).await;
        match opened {
            Ok(mut volume) => {
                volume.mind_promises(tolerance).await;
                Ok(volume)
            }
            Err(error) => {
                ownership.release().await;
                Err(error)
            }
        }
    }

    async fn open_owned(
        runtime: &Runtime,
        description: &Description,
        devices: Devices,
        options: OpenOptions,
        ownership: &Ownership,
    ) -> Result<Self, OpenError> {
        let Devices { tier, cache, copies, members, journals, absent } = devices;
        let mut cache = Wanted {
            described: description.cache.as_ref(),
            device: cache,
            mirror: None,
            reason: joined(&absent),
        };
        let told_of_copies =
            cache.find_mirror(runtime, &description.name, copies, &options.pool).await;
        if members.is_empty() && !absent.is_empty() {
            return Err(OpenError::NoMembers { reason: joined(&absent) });
        }
        let members = by_core(runtime, description, members).await;
        let journals = journals_by_core(description, journals).await;
        let arrays: Vec<_> = members.into_iter().zip(journals).collect();
        let mut prepared =
            prepare_all(runtime, description, &arrays, &options, cache.device.as_deref()).await?;
        let (found, told_of_cache) = cache.find(description, &options, &prepared).await?;
        if found.is_none() && cache.device.is_some() {
            // Without the log nobody knows which stripes may be torn.
            prepared = prepare_all(runtime, description, &arrays, &options, None).await?;
        }
        let mut notes = absent;
        notes.extend(told_of_copies.into_iter().chain(told_of_cache).map(Note::from));
        let (found, told) = cache.begin(found, runtime, &description.name).await?;
        notes.extend(told.into_iter().map(Note::from));
        let were_clean = prepared.iter().all(Prepared::was_clean);
        let mut list = Vec::new();
        for ((id, name), prepared) in names(description).zip(prepared) {
            let (array, told) = begin(prepared).await?;
            notes.extend(told);
            list.push(Core::new(id, name, array, runtime));
        }
        let watch = options.watch_load.as_ref();
        let cores = Cores::new(runtime.clone(), list, options.around_core)?;
        cores.configure(&description.array);
        let cached = match found {
            Some(found) => {
                let how = (options.tolerance, watch);
                let opened = open_cached(&cores, description, found, how, were_clean).await;
                let (cached, told) = opened?;
                notes.extend(told.into_iter().map(Note::from));
                Some(cached)
            }
            None => {
                let gives_one_up = cores.iter().any(|(core, _)| core.array.owner().is_some());
                cores.do_without().await.map_err(AssembleError::Device)?;
                if gives_one_up {
                    // It may have copies, and one that is away may be one ahead.
                    cores.do_without().await.map_err(AssembleError::Device)?;
                }
                None
            }
        };
        let mut volume = Self::assembled(description, cores, cached, notes, ownership.clone());
        if let Some(device) = tier
            && let Err(error) = volume.put_tier(device).await
        {
            volume.warn(format!("started without its tier in memory: {error}"));
        }
        volume.recognise().await;
        Ok(volume)
    }
}

/// Opens the cache that was found. One that is refused because the core was changed leaves array
/// and copies as stopped in order, where all of them were.
async fn open_cached(
    cores: &Cores,
    description: &Description,
    found: Found<'_>,
    how: (Tolerance, Option<&LoadWatch>),
    were_clean: bool,
) -> Result<(Cached, Vec<String>), OpenError> {
    let mirror = found.device.mirror.clone();
    let opened = Cached::open(cores, description, found, how).await;
    if let Err(OpenError::Cache(CoreChanged { was_clean: true, .. })) = opened
        && were_clean
    {
        // Nothing was written, and no parity is in doubt: the next start may know.
        let _ = cores.stop(OwnerStopped::default()).await;
        if let Some(mirror) = mirror {
            let _ = mirror.stop().await;
        }
    }
    let (cached, told) = opened?;
    if !cached.is_memory() {
        let life = cached.recorded_life(false);
        cores.note_life(life).await.map_err(AssembleError::Device)?;
    }
    Ok((cached, told))
}

/// Numbers and names of the cores, in order of address.
fn names(description: &Description) -> impl Iterator<Item = (u16, String)> {
    let further = description.further_cores.iter().map(|core| (core.id, core.name.clone()));
    std::iter::once((FIRST_CORE, description.name.clone())).chain(further)
}

/// The devices of each core, by what is on them; what belongs to none is left to the first core,
/// which refuses it, or says that it cannot be read.
async fn by_core(
    runtime: &Runtime,
    description: &Description,
    members: Vec<Rc<dyn BlockDevice>>,
) -> Vec<Vec<Rc<dyn BlockDevice>>> {
    let uuids: Vec<Uuid> = description.cores().map(|(uuid, _)| uuid).collect();
    let mut by_core = vec![Vec::new(); uuids.len()];
    if uuids.len() == 1 {
        return vec![members];
    }
    let patience = description.array.patience();
    for (device, look) in inspect_all(runtime, members, patience).await {
        let core = match look {
            Ok(Inspection::Member(found)) => {
                uuids.iter().position(|uuid| *uuid == found.array.uuid)
            }
            _ => None,
        };
        by_core[core.unwrap_or(0)].push(device);
    }
    by_core
}

/// The journals of each core, by what is on them: several while they are exchanged. What says
/// nothing is the journal of a core that should have one.
async fn journals_by_core(
    description: &Description,
    journals: Vec<Rc<dyn BlockDevice>>,
) -> Vec<Vec<Rc<dyn BlockDevice>>> {
    let mut by_core = vec![Vec::new(); description.cores().count()];
    let mut others = Vec::new();
    for device in journals {
        let array = journal_of(&*device).await.ok().flatten();
        let is_its = |(uuid, _): (Uuid, &CoreDescription)| Some(uuid) == array;
        match description.cores().position(is_its) {
            Some(core) => by_core[core].push(device),
            None => others.push(device),
        }
    }
    for ((_, core), found) in description.cores().zip(&mut by_core) {
        if core.journal.is_some() && found.is_empty() {
            found.extend(others.pop());
        }
    }
    by_core
}

/// The devices of an array: members, journals.
type ArrayDevices = (Vec<Rc<dyn BlockDevice>>, Vec<Rc<dyn BlockDevice>>);

async fn prepare_all(
    runtime: &Runtime,
    description: &Description,
    arrays: &[ArrayDevices],
    options: &OpenOptions,
    cache: Option<&dyn BlockDevice>,
) -> Result<Vec<Prepared>, OpenError> {
    let mut prepared = Vec::new();
    for (core, (members, journals)) in description.cores().zip(arrays) {
        let journals = journals.clone();
        let patience = description.array.patience();
        let tuning = Tuning { patience, ..Tuning::with_pool(options.pool.clone()) };
        let how = AssembleOptions { journals, tuning, ..assemble_options(core, options, cache) };
        prepared.push(prepare(runtime, members.clone(), how).await?);
    }
    Ok(prepared)
}

/// The array at work, and what the user should know of it.
pub(crate) async fn begin(prepared: Prepared) -> Result<(Array, Vec<Note>), AssembleError> {
    let Assembled { array, warnings, stale, .. } = prepared.begin().await?;
    // What is done about parity that was never computed, the status tells as it goes on.
    let told = warnings.iter().filter(|warning| **warning != Warning::ParityUntrusted);
    let mut told: Vec<Note> = told.map(|it| it.to_string().into()).collect();
    told.extend(stale.iter().map(|name| {
        let text = format!(
            "{name} is stale and left out: the array went on without it; `headpond array re-add` \
             gives it what it lacks"
        );
        Note::of_member(name.as_str(), text)
    }));
    Ok((array, told))
}

fn assemble_options(
    (uuid, core): (Uuid, &CoreDescription),
    options: &OpenOptions,
    cache: Option<&dyn BlockDevice>,
) -> AssembleOptions {
    // Between them the log of a cache that outlives the power and the map of the regions that were
    // written past it name every stripe that may be torn.
    let has_log = cache.is_some_and(|cache| cache.geometry().stability != Stability::LostOnPower);
    let is_logged = has_log && core.intent;
    AssembleOptions {
        uuid: Some(uuid),
        after_unclean_stop: match is_logged {
            true => AfterUncleanStop::LogRecomputes,
            false => AfterUncleanStop::DistrustParity,
        },
        force: match options.tolerance {
            Tolerance::Careful => Force::No,
            Tolerance::Forced => Force::GiveUp,
            Tolerance::ParityAccepted => Force::AcceptParity,
        },
        tuning: Tuning::default(),
        journals: Vec::new(),
    }
}

/// The cache that a volume should have.
struct Wanted<'a> {
    described: Option<&'a CacheDescription>,
    device: Option<Rc<dyn BlockDevice>>,
    /// Where the device is but the face of several.
    mirror: Option<FoundMirror>,
    /// Why there is no device.
    reason: String,
}

/// The cache that it has.
pub(crate) struct Found<'a> {
    pub described: &'a CacheDescription,
    pub device: CacheDevice,
    pub superblock: Superblock,
}

impl<'a> Wanted<'a> {
    /// Looks for the copies of a cache that has several; answers what to tell of them.
    async fn find_mirror(
        &mut self,
        runtime: &Runtime,
        volume: &str,
        copies: Vec<Rc<dyn BlockDevice>>,
        pool: &BufferPool,
    ) -> Vec<String> {
        let mirror = self.described.and_then(|described| described.mirror.as_ref());
        let Some(mirror) = mirror.filter(|_| !copies.is_empty()) else { return Vec::new() };
        match mirror::find(runtime, (volume, mirror), copies, pool.clone()).await {
            Ok((found, told)) => {
                self.device = Some(Rc::clone(&found.face));
                self.mirror = Some(found);
                told
            }
            Err(reason) => {
                let reasons = [std::mem::take(&mut self.reason), reason];
                let reasons = reasons.into_iter().filter(|reason| !reason.is_empty());
                self.reason = reasons.collect::<Vec<_>>().join("; ");
                Vec::new()
            }
        }
    }

    /// Begins with the copies, where the cache is found to be the volume's; nothing was written to
    /// them before.
    async fn begin(
        self,
        found: Option<Found<'a>>,
        runtime: &Runtime,
        volume: &str,
    ) -> Result<(Option<Found<'a>>, Vec<String>), OpenError> {
        let Some((found, mirror)) = found.as_ref().zip(self.mirror) else {
            return Ok((found, Vec::new()));
        };
        let (mirror, told) = mirror.begin(runtime, volume).await.map_err(OpenError::Copies)?;
        let Found { described, superblock, .. } = found;
        let (superblock, device) = (superblock.clone(), mirror.into());
        Ok((Some(Found { described, device, superblock }), told))
    }

    /// The cache, if there is to be one, and what to tell of it. By force the volume does without
    /// one that is lost or out of date.
    async fn find(
        &self,
        description: &Description,
        options: &OpenOptions,
        cores: &[Prepared],
    ) -> Result<(Option<Found<'a>>, Option<String>), OpenError> {
        let is_forced = options.tolerance.is_forced();
        // What the first core records decides.
        let owner = cores[0].owner();
        let Some(described) = self.described else {
            return match owner {
                Some(cache) if !is_forced => Err(OpenError::UnnamedCache { cache }),
                _ => Ok((None, None)),
            };
        };
        if let Some(path) = described.settings.classes.file() {
            return Err(OpenError::Classes { path: path.to_owned() });
        }
        match self.look(described, description, options, cores).await {
            Ok((found, told)) => Ok((Some(found), told)),
            Err(error) if owner.is_none() && is_lost(&error) && self.lasts() => {
                let told = format!("the description names a cache that is not attached: {error}");
                Ok((None, Some(told)))
            }
            Err(error) if is_absent(&error) && cores.iter().all(Prepared::is_owner_clean) => {
                let told = format!(
                    "started without its cache, which had stopped with nothing that the array lacks \
                     ({error}); when it comes back it is not used: `headpond cache detach` takes it off \
                     the description"
                );
                Ok((None, Some(told)))
            }
            Err(error) if is_forced && is_lost(&error) => {
                let told = format!(
                    "started by force without its cache: what only the cache had is lost ({error})"
                );
                Ok((None, Some(told)))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the cache would be recorded on the members.
    fn lasts(&self) -> bool {
        self.device.as_ref().is_none_or(|device| !is_memory(&**device))
    }

    /// The cache on the device, where it fits the core. A cache in memory is empty when a daemon
    /// starts: it is made anew, and what it may have held is lost, as the user allowed.
    async fn look(
        &self,
        described: &'a CacheDescription,
        description: &Description,
        options: &OpenOptions,
        cores: &[Prepared],
    ) -> Result<(Found<'a>, Option<String>), OpenError> {
        let Some(device) = self.device.clone() else {
            return Err(OpenError::NoCacheDevice { reason: self.reason.clone() });
        };
        let facts = CoreFacts::of_prepared(cores)?;
        let mut told = None;
        let superblock = match headpond_cache::load(&*device).await {
            Ok(superblock) => superblock,
            Err(_) if is_memory(&*device) && described.volatile_allowed => {
                told = Some(format!("{} is memory: the cache starts empty", device.name()));
                let anew = cache_options(description, options.new_cache, &facts);
                headpond_cache::create(&*device, &anew).await?
            }
            Err(error) => return Err(error.into()),
        };
        let is_ahead = described.mirror.is_some() && is_ahead(&superblock, facts.generation);
        let generation = facts.generation + u64::from(is_ahead);
        let expected = Expected { volume: description.uuid, generation };
        let config = described.slice_config();
        headpond_cache::check_fit(&*device, facts.bytes, &superblock, expected, &config)?;
        let (bytes, line_bytes) = (superblock.device_bytes, superblock.line_bytes);
        headpond_cache::check_memory(device.name(), bytes, line_bytes, config.eviction)?;
        if superblock.core != facts.identity {
            return Err(OpenError::OtherCores { device: device.name().clone() });
        }
        let mut owners = cores.iter().filter_map(Prepared::owner);
        if let Some(owner) = owners.find(|owner| *owner != superblock.cache) {
            let (device, found) = (device.name().clone(), superblock.cache);
            return Err(OpenError::OtherCache { device, expected: owner, found });
        }
        if superblock.slices.len() != usize::from(description.slices) {
            let (expected, found) = (description.slices, superblock.slices.len());
            return Err(OpenError::Slices { expected, found });
        }
        let known = cores.iter().filter_map(|core| life_of(core.owner_life()));
        // Copies tell each other.
        let known = known.filter(|_| described.mirror.is_none());
        if let Some(known) = known.max_by_key(|life| (life.epochs, life.is_stopped)) {
            let found = Life::read(&*device, &superblock).await?;
            if found.is_some_and(|found| found.is_older_than(known)) {
                return Err(OpenError::OlderCache { device: device.name().clone() });
            }
        }
        Ok((Found { described, device: device.into(), superblock }, told))
    }
}

pub(crate) fn is_memory(device: &dyn BlockDevice) -> bool {
    device.geometry().stability == Stability::LostOnPower
}

/// Whether the device of the cache is not there, cannot be used, or holds none, or an older one.
fn is_absent(error: &OpenError) -> bool {
    use headpond_cache::OpenError as Cache;
    matches!(
        error,
        OpenError::NoCacheDevice { .. }
            | OpenError::OlderCache { .. }
            | OpenError::Cache(Cache::NoCache { .. } | Cache::Device(_))
    )
}

/// Whether the cache is lost, or its core went on without it or is another one.
fn is_lost(error: &OpenError) -> bool {
    use headpond_cache::OpenError as Cache;
    matches!(
        error,
        OpenError::NoCacheDevice { .. }
            | OpenError::OlderCache { .. }
            | OpenError::OtherCores { .. }
            | OpenError::Cache(
                Cache::NoCache { .. }
                    | Cache::Generation { .. }
                    | Cache::CoreSize { .. }
                    | Cache::Device(_)
            )
    )
}
