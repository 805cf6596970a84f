//! Finding the cache of a volume on its devices.

use super::{ChangedDevice, OpenError, OpenOptions};
use crate::assembly::cached::life_of;
use crate::assembly::create::{CoreFacts, cache_options};
use crate::assembly::mirror::{self, CacheDevice, FoundMirror, is_ahead};
use crate::description::{CacheDescription, Description};
use crate::existing::ContentsChanged;
use crate::notes::{Note, joined};
use headpond_block::{BlockDevice, Runtime, Stability, defect};
use headpond_cache::{Expected, Life, Superblock};
use headpond_raid::{Prepared, Tuning};
use std::rc::Rc;
use std::slice;

/// The cache that a volume should have.
pub(crate) struct Wanted<'a> {
    pub described: Option<&'a CacheDescription>,
    pub device: Option<Rc<dyn BlockDevice>>,
    /// Where the device stands for several copies.
    pub mirror: Option<FoundMirror>,
    /// Why there is no device.
    pub reason: String,
    /// What somebody else has written to below it.
    pub changed: Option<ContentsChanged>,
}

/// The cache that it has.
pub(crate) struct FoundCache<'a> {
    pub described: &'a CacheDescription,
    pub device: CacheDevice,
    pub superblock: Superblock,
}

impl<'a> Wanted<'a> {
    pub fn new(
        description: &'a Description,
        device: Option<Rc<dyn BlockDevice>>,
        absent: &[Note],
        changed: &[ChangedDevice],
    ) -> Self {
        let changed = changed.first().map(|it| it.change.clone());
        let described = description.cache.as_ref();
        Self { described, device, mirror: None, reason: joined(absent), changed }
    }

    /// Finds the copies of a cache mirror; returns the notes on them.
    pub async fn find_mirror(
        &mut self,
        runtime: &Runtime,
        volume: &str,
        copies: Vec<Rc<dyn BlockDevice>>,
        tuning: Tuning,
    ) -> Vec<String> {
        let mirror = self.described.and_then(|described| described.mirror.as_ref());
        let Some(mirror) = mirror.filter(|_| !copies.is_empty()) else { return Vec::new() };
        match mirror::find(runtime, (volume, mirror), copies, tuning).await {
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

    /// Records the copies as in use, where the cache is the volume's; nothing was written to them
    /// before.
    pub async fn begin(
        self,
        found: Option<FoundCache<'a>>,
        runtime: &Runtime,
        volume: &str,
    ) -> Result<(Option<FoundCache<'a>>, Vec<String>), OpenError> {
        let Some((found, mirror)) = found.as_ref().zip(self.mirror) else {
            return Ok((found, Vec::new()));
        };
        let (mirror, told) = mirror.begin(runtime, volume).await.map_err(OpenError::Copies)?;
        let FoundCache { described, superblock, .. } = found;
        let (superblock, device) = (superblock.clone(), mirror.into());
        Ok((Some(FoundCache { described, device, superblock }), told))
    }

    /// The cache, if there is one, and a note on it. With force the volume starts without one that
    /// is missing or stale.
    pub async fn find(
        &self,
        description: &Description,
        options: &OpenOptions,
        cores: &[Prepared],
    ) -> Result<(Option<FoundCache<'a>>, Option<String>), OpenError> {
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
                    "started without its cache, which had been stopped clean ({error}); it is not used when \
                     it is reconnected: `headpond cache detach` removes it from the description"
                );
                Ok((None, Some(told)))
            }
            Err(error) if is_forced && is_lost(&error) => {
                let told =
                    format!("started by force without its cache: its dirty data is lost ({error})");
                Ok((None, Some(told)))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the cache would be recorded on the members.
    fn lasts(&self) -> bool {
        self.device.as_ref().is_none_or(|device| !is_memory(&**device))
    }

    /// The cache on the device, where it matches the cores. A cache in memory is created empty when
    /// a daemon starts; its former contents are lost, as the user allowed.
    async fn look(
        &self,
        described: &'a CacheDescription,
        description: &Description,
        options: &OpenOptions,
        cores: &[Prepared],
    ) -> Result<(FoundCache<'a>, Option<String>), OpenError> {
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
        if self.is_older_image(&device, &superblock, cores).await? {
            return Err(OpenError::OlderCache { device: device.name().clone() });
        }
        if let Some(change) = self.changed.clone().filter(|_| !is_memory(&*device)) {
            return Err(OpenError::CoreWritten(change));
        }
        Ok((FoundCache { described, device: device.into(), superblock }, told))
    }

    /// Whether the cache has fewer epochs than the members record.
    async fn is_older_image(
        &self,
        device: &Rc<dyn BlockDevice>,
        superblock: &Superblock,
        cores: &[Prepared],
    ) -> Result<bool, OpenError> {
        let known = cores.iter().filter_map(|core| life_of(core.owner_life()));
        let known = known.max_by_key(|life| (life.epochs, life.is_stopped));
        let Some(known) = known.filter(|_| !defect!(TakeOlderCache)) else { return Ok(false) };
        let found = match &self.mirror {
            Some(mirror) => Life::read(&mirror.faces, superblock).await?,
            None => Life::read(slice::from_ref(device), superblock).await?,
        };
        Ok(found.is_some_and(|found| found.is_older_than(known)))
    }
}

pub(crate) fn is_memory(device: &dyn BlockDevice) -> bool {
    device.geometry().stability == Stability::LostOnPower
}

/// Whether the device of the cache is missing, unusable, or has no cache or an older one.
fn is_absent(error: &OpenError) -> bool {
    use headpond_cache::OpenError as Cache;
    matches!(
        error,
        OpenError::NoCacheDevice { .. }
            | OpenError::OlderCache { .. }
            | OpenError::Cache(Cache::NoCache { .. } | Cache::Device(_))
    )
}

/// Whether the cache is missing, stale, or of another core.
fn is_lost(error: &OpenError) -> bool {
    use headpond_cache::OpenError as Cache;
    matches!(
        error,
        OpenError::NoCacheDevice { .. }
            | OpenError::OlderCache { .. }
            | OpenError::OtherCores { .. }
            | OpenError::CoreWritten(_)
            | OpenError::Cache(
                Cache::NoCache { .. }
                    | Cache::Generation { .. }
                    | Cache::CoreSize { .. }
                    | Cache::Device(_)
            )
    )
}
