//! Opens slices: 1. all slices of the cache are read; 2. the comparison of sampled blocks with the
//! core is evaluated; 3. each slice begins.
//!
//! **Invariants**
//! - No slice begins, and nothing is cleaned, before all of them have been evaluated. Writes before
//!   that, where copies differ, do not change what is read.

use super::{Foundation, Slice};
use crate::admission::Admission;
use crate::append::Queue;
use crate::cleaner::{CoreChanges, Progress};
use crate::cleaning::CleaningPolicy;
use crate::config::SliceConfig;
use crate::engine::{CoreWrites, Engine, PendingTombstones};
use crate::error::OpenError;
use crate::fallback::Fallback;
use crate::fit::{Expected, check_fit};
use crate::format::superblock::Superblock;
use crate::paths::Ahead;
use crate::recover::{LoadProgress, Loaded, Recovery, Source, Watch, samples_of};
use crate::stats::{Latencies, Sampled};
use crate::under_way::Attempts;
use headpond_block::sync::{Busy, Notify};
use headpond_block::{
    BLOCK_BYTES, BlockDevice, ByteRange, ChangingGeometry, DeviceName, Geometry, Stability,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Where the core holds something else than the cache knows of it, and there is dirty data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangedCore {
    /// The dirty data may be older than what is there now.
    Refused,
    /// What was clean is left out; what is dirty stays so, and is served.
    Taken,
}

/// A slice that was read, and has not begun.
pub struct LoadedSlice<'a> {
    foundation: Foundation,
    index: u16,
    config: SliceConfig,
    source: Source<'a>,
    loaded: Loaded,
}

/// Judges the slices of one cache by all that was compared.
///
/// # Errors
/// Where the core was changed, and that is not taken; or a slice cannot be read again.
pub async fn judge(
    slices: Vec<LoadedSlice<'_>>,
    changed_core: ChangedCore,
) -> Result<Vec<LoadedSlice<'_>>, OpenError> {
    let mut sampled = Sampled::default();
    slices.iter().for_each(|slice| sampled.add(&slice.loaded.recovery.sampled));
    if !sampled.is_changed() {
        return Ok(slices);
    }
    let dirty_blocks: u64 = slices.iter().map(|slice| slice.loaded.recovery.dirty_blocks).sum();
    if let Some(slice) = slices.first()
        && dirty_blocks > 0
        && changed_core == ChangedCore::Refused
    {
        let device = slice.foundation.cache.name().clone();
        let was_clean = slices.iter().all(|slice| slice.loaded.recovery.was_clean);
        return Err(OpenError::CoreChanged { device, sampled, dirty_blocks, was_clean });
    }
    let mut without = Vec::new();
    for slice in slices {
        without.push(slice.without_clean().await?);
    }
    Ok(without)
}

impl<'a> LoadedSlice<'a> {
    /// Reads slice `index` of the cache that `superblock` describes, and tells again and again how
    /// far that is.
    ///
    /// # Errors
    /// Where the cache does not belong here, cannot be read, or cannot be trusted. A refusal
    /// changes nothing on the device.
    pub async fn load(
        foundation: Foundation,
        superblock: &Superblock,
        expected: Expected,
        index: u16,
        config: SliceConfig,
        watch: &'a dyn Fn(LoadProgress),
    ) -> Result<Self, OpenError> {
        let core_bytes = foundation.core.size_bytes();
        check_fit(&*foundation.cache, core_bytes, superblock, expected, &config)?;
        let source = source_of(&foundation, superblock, index, &config, watch)?;
        let loaded = source.load().await?;
        Ok(Self { foundation, index, config, source, loaded })
    }

    async fn without_clean(self) -> Result<Self, OpenError> {
        // What an unclean stop left has nothing that is clean.
        if !self.loaded.recovery.was_clean {
            return Ok(self);
        }
        let Self { foundation, index, config, source, loaded } = self;
        let loaded = source.load_without_clean(loaded).await?;
        Ok(Self { foundation, index, config, source, loaded })
    }

    /// Serves it from here on.
    ///
    /// # Errors
    /// Where the device cannot be written.
    pub async fn begin(self) -> Result<(Slice, Recovery), OpenError> {
        let Self { foundation, index, config, source, loaded } = self;
        let (mut log, header, recovery) = source.begin(loaded).await?;
        let Foundation { runtime, cache, core, label, core_flushes, errors, pool } = foundation;
        log.pool = pool;
        log.set_eviction(config.eviction, &config.admission.classes);
        let slots = u64::from(log.layout.slots());
        let engine = Rc::new(Engine {
            name: DeviceName::new(format!("slice {index} of the cache on {}", cache.name())),
            geometry: ChangingGeometry::new(geometry(&*cache, &*core)),
            lends: cache.lend(ByteRange::at(0, BLOCK_BYTES)).is_some(),
            runtime: runtime.clone(),
            cache,
            core,
            label,
            cleaning: Progress::new(&config.cleaning),
            admission: RefCell::new(Admission::new(&config.admission, slots)),
            config: RefCell::new(config),
            log: RefCell::new(log),
            header: Cell::new(header),
            unannounced: Cell::new(None),
            queue: Queue::default(),
            records: RefCell::default(),
            ahead: Ahead::default(),
            core_writes: CoreWrites::default(),
            pending_tombstones: PendingTombstones::default(),
            throughs: Attempts::default(),
            written: RefCell::default(),
            heeded: Cell::new(core_flushes.failures()),
            core_flushes,
            core_changes: CoreChanges::default(),
            past_changes: CoreChanges::default(),
            past_loss: RefCell::default(),
            is_failed: Cell::new(false),
            is_disowned: Cell::new(false),
            fallback: RefCell::new(Fallback::counting_in(errors)),
            discard_refused: Cell::default(),
            is_closed: Cell::new(false),
            is_stopping: Cell::new(false),
            busy: Busy::default(),
            reading: Busy::default(),
            scrubbing: Cell::new(None),
            requests: Cell::new(0),
            requests_before: Cell::new(0),
            counted_since: Cell::new(runtime.now()),
            latencies: Latencies::new(&runtime),
            cleaned: RefCell::default(),
            thinning: crate::reclaim::Thinning::default(),
            is_seal_due: Cell::new(false),
            is_completion_due: Cell::new(false),
            is_log_flushing: Cell::new(false),
            is_voiding: Cell::new(false),
            log_flushed: Notify::new(),
            records_done: Notify::new(),
            segments_unpinned: Notify::new(),
            reclaim_wanted: Notify::new(),
            checkpoint_wanted: Notify::new(),
            cleaning_wanted: Notify::new(),
        });
        engine.read_parts().await;
        Ok((Slice::start(engine), recovery))
    }
}

impl Slice {
    /// Opens slice `index` of the cache that `superblock` describes, where that is the only one.
    ///
    /// # Errors
    /// Where the cache does not belong here, cannot be read, or cannot be trusted. A refusal
    /// changes nothing on the device.
    pub async fn open(
        foundation: Foundation,
        superblock: &Superblock,
        expected: Expected,
        index: u16,
        config: SliceConfig,
    ) -> Result<(Self, Recovery), OpenError> {
        Self::open_watched(foundation, superblock, expected, index, config, &|_| {}).await
    }

    /// Opens a slice, and tells again and again how far that is.
    ///
    /// # Errors
    /// As [`Slice::open`].
    pub async fn open_watched(
        foundation: Foundation,
        superblock: &Superblock,
        expected: Expected,
        index: u16,
        config: SliceConfig,
        watch: &dyn Fn(LoadProgress),
    ) -> Result<(Self, Recovery), OpenError> {
        let loading = LoadedSlice::load(foundation, superblock, expected, index, config, watch);
        let mut judged = judge(vec![loading.await?], ChangedCore::Refused).await?;
        judged.remove(0).begin().await
    }
}

/// What the slice of this index is read from.
fn source_of<'a>(
    foundation: &Foundation,
    superblock: &Superblock,
    index: u16,
    config: &SliceConfig,
    watch: &'a dyn Fn(LoadProgress),
) -> Result<Source<'a>, OpenError> {
    let cache = &foundation.cache;
    let no_slice = || OpenError::SliceIndex { device: cache.name().clone(), slice: index };
    // Of a device that forgets, every flush makes all of it clean.
    let is_volatile = cache.geometry().stability == Stability::LostOnPower;
    let keeps_order = superblock.keeps_order() && !is_volatile;
    Ok(Source {
        runtime: foundation.runtime.clone(),
        device: Rc::clone(cache),
        core: Rc::clone(&foundation.core),
        samples: samples_of(superblock.slices.len()),
        layout: superblock.layout(usize::from(index)).ok_or_else(no_slice)?,
        cache: superblock.cache,
        slice: index,
        core_blocks: foundation.core.size_bytes() / BLOCK_BYTES,
        keeps_classes: superblock.keeps_classes(),
        keeps_parts: superblock.keeps_parts(),
        keeps_order,
        keeps_given: superblock.keeps_given(),
        resumes_order: keeps_order && config.cleaning.policy == CleaningPolicy::Ordered,
        checkpoint_every_bytes: config.checkpoint_every_on(&**cache),
        watch: Watch::new(watch),
    })
}

/// What the slice is to those above: the core's size and stripes, the cache's manners.
fn geometry(cache: &dyn BlockDevice, core: &dyn BlockDevice) -> Geometry {
    let stability = match cache.geometry().stability {
        // A flush goes down to the core, which makes it honest.
        Stability::LostOnPower => Stability::Flushable,
        stability => stability.worst(core.geometry().stability),
    };
    Geometry {
        preferred_bytes: BLOCK_BYTES as u32,
        rotational: false,
        stability,
        ..core.geometry().clone()
    }
}
