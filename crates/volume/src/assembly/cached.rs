//! The cache of an open volume.

use crate::assembly::cores::Cores;
use crate::assembly::mirror::{CacheDevice, Mirror};
use crate::assembly::open::{FoundCache, LoadWatch, Loading, OpenError, Tolerance, is_memory};
use crate::description::Description;
use crate::history::{CacheScrub, WornBytes};
use headpond_block::{
    BlockDevice, Buffer, ByteRange, DeviceError, ErrorLog, Request, RequestFlags, Runtime, memory,
};
use headpond_cache::{
    ChangedCore, CleanError, CoreLabel, CreateOptions, Expected, Foundation, Life, LoadedSlice,
    Mode, ModeError, Recovery, Sampled, ScrubError, ScrubReport, Sequence, Slice, SliceConfig,
    SliceStats, Superblock, judge,
};
use headpond_raid::{Array, ArrayState, AssembleError, History};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

const DRAIN_POLL: Duration = Duration::from_millis(1);

/// The cache of a volume.
pub(crate) struct Cached {
    pub device: Rc<dyn BlockDevice>,
    /// Where that is a mirror.
    pub mirror: Option<Rc<Mirror>>,
    pub slices: Vec<Slice>,
    pub superblock: Superblock,
    pub is_tier: bool,
    /// Of the device as a whole.
    pub errors: Rc<ErrorLog>,
    /// Of a cache that lasts.
    pub last_scrub: RefCell<Option<CacheScrub>>,
    /// Written in earlier runs, and before the counters were reset.
    pub worn_before: Cell<WornBytes>,
    /// The log end of each slice as opened; empty where the cache began empty.
    pub ends: Vec<LogEnd>,
}

/// How far the log of a slice went when it was opened.
pub(crate) struct LogEnd {
    pub last_record: Sequence,
    /// Acknowledged and damaged blocks that this open found.
    pub newly_lost_blocks: u64,
}

/// What the slices of a cache on this device stand on.
fn foundation(cores: &Cores, device: &Rc<dyn BlockDevice>, errors: &Rc<ErrorLog>) -> Foundation {
    Foundation {
        runtime: cores.runtime.clone(),
        cache: Rc::clone(device),
        core: Rc::clone(&cores.backing) as Rc<dyn BlockDevice>,
        label: Some(Rc::clone(&cores.backing) as Rc<dyn CoreLabel>),
        core_flushes: Rc::default(),
        errors: Rc::clone(errors),
        pool: cores.first().array.pool().clone(),
    }
}

impl Cached {
    /// Opens the slices, and recovers after an unclean shutdown; with notes on that.
    ///
    /// # Errors
    /// Where the cache cannot be used, or a device fails.
    pub async fn open(
        cores: &Cores,
        description: &Description,
        found: FoundCache<'_>,
        (tolerance, watch): (Tolerance, Option<&LoadWatch>),
    ) -> Result<(Self, Vec<String>), OpenError> {
        let FoundCache { described, device: CacheDevice { device, mirror }, mut superblock } =
            found;
        if !is_memory(&*device) {
            cores.own(superblock.cache).await.map_err(AssembleError::Device)?;
        }
        if let Some(mirror) = &mirror {
            description.array.apply_to(&mirror.core.array);
            superblock = mirror.attach(&cores.backing).await.map_err(AssembleError::Device)?;
        }
        let errors = cores.first().array.history().errors_of(superblock.cache);
        let foundation = foundation(cores, &device, &errors);
        let (mut slices, mut notes, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        let config = described.slice_config();
        let expected = Expected { volume: description.uuid, generation: cores.generation() };
        let tell = |slice, progress| {
            let slices = description.slices;
            watch.inspect(|tell| tell(Loading { slice, slices, progress }));
        };
        let tells: Vec<_> =
            (0..description.slices).map(|index| move |progress| tell(index, progress)).collect();
        let mut loaded = Vec::new();
        for (index, tell) in (0..).zip(&tells) {
            let (foundation, config) = (foundation.clone(), config.clone());
            let loading = LoadedSlice::load(foundation, &superblock, expected, index, config, tell);
            loaded.push(loading.await?);
        }
        let changed_core = match tolerance.is_forced() {
            false => ChangedCore::Refused,
            true => ChangedCore::Taken,
        };
        for (index, loaded) in (0..).zip(judge(loaded, changed_core).await?) {
            let (slice, recovery) = loaded.begin().await?;
            // Before anything can be written again.
            mark_parity_suspect(cores, &slice, &recovery);
            recompute_parity(cores, &recovery).await.map_err(AssembleError::Device)?;
            notes.extend(tell_recovery(index, &recovery));
            notes.extend(tell_samples(index, &recovery));
            let Recovery { log_end, newly_lost_blocks, .. } = recovery;
            ends.push(LogEnd { last_record: log_end, newly_lost_blocks });
            slices.push(slice);
        }
        if let Some(mirror) = &mirror {
            mirror.begin_use();
        }
        let (is_tier, last_scrub, worn_before) = Default::default();
        let cached = Self {
            device,
            mirror,
            slices,
            superblock,
            is_tier,
            errors,
            last_scrub,
            worn_before,
            ends,
        };
        cached.tell_cores(cores);
        Ok((cached, notes))
    }

    /// An empty cache in memory over these devices, one for each slice.
    ///
    /// # Errors
    /// Where the memory is too small.
    pub async fn in_memory(
        runtime: &Runtime,
        device: Rc<dyn BlockDevice>,
        options: &CreateOptions,
        below: &[Rc<dyn BlockDevice>],
        config: &SliceConfig,
        history: &History,
    ) -> Result<Self, OpenError> {
        let superblock = headpond_cache::create(&*device, options).await?;
        let errors = history.errors_of(superblock.cache);
        let CreateOptions { volume, generation, .. } = *options;
        let mut slices = Vec::new();
        for (index, below) in (0..).zip(below) {
            let (device, below) = (Rc::clone(&device), Rc::clone(below));
            let foundation = Foundation::new(runtime.clone(), device, below);
            let foundation = Foundation { errors: Rc::clone(&errors), ..foundation };
            let expected = Expected { volume, generation };
            let opening = Slice::open(foundation, &superblock, expected, index, config.clone());
            slices.push(opening.await?.0);
        }
        Ok(Self {
            device,
            mirror: None,
            slices,
            superblock,
            is_tier: true,
            errors,
            last_scrub: RefCell::default(),
            worn_before: Cell::default(),
            ends: Vec::new(),
        })
    }

    /// Has each core counted, where there are several.
    pub fn tell_cores(&self, cores: &Cores) {
        let places = cores.counted_places();
        self.slices.iter().for_each(|slice| slice.tell_cores(&places));
    }

    /// Takes the present size of the layer below.
    pub fn follow_core(&self) {
        self.slices.iter().for_each(Slice::follow_core);
    }

    /// What is written to it from here on comes from a tier, or from clients again.
    pub fn set_from_another_cache(&self, is_from_another_cache: bool) {
        self.slices.iter().for_each(|slice| slice.set_from_another_cache(is_from_another_cache));
    }

    /// The slices as devices.
    pub fn parts(&self) -> Vec<Rc<dyn BlockDevice>> {
        self.slices.iter().map(|slice| Rc::new(slice.clone()) as Rc<dyn BlockDevice>).collect()
    }

    pub fn stats(&self) -> Vec<SliceStats> {
        self.slices.iter().map(Slice::stats).collect()
    }

    pub fn is_memory(&self) -> bool {
        is_memory(&*self.device)
    }

    /// How far it has lived, as the arrays record it.
    pub fn recorded_life(&self, is_stopped: bool) -> u64 {
        let epochs = self.slices.iter().map(Slice::epoch).sum();
        recorded(Life { epochs, is_stopped })
    }

    /// Whether it has no dirty and no lost data, once the array is flushed.
    pub fn leaves_nothing(&self) -> bool {
        let lacks = |slice: &SliceStats| slice.dirty_bytes + slice.lost_blocks > 0;
        self.stats().iter().all(|slice| !lacks(slice) && slice.unreadable_blocks == 0)
    }

    /// Whether a mode without dirty data is set, and there still is some.
    pub fn is_draining(&self) -> bool {
        self.slices.iter().any(Slice::is_draining)
    }

    /// Not on the array, or not after a power cut.
    pub fn dirty_bytes(&self) -> u64 {
        self.stats().iter().map(|slice| slice.dirty_bytes + slice.written_bytes).sum()
    }

    /// Blocks replayed after an unclean shutdown and not cleaned since: the parity of their stripes
    /// may be torn.
    pub fn replayed_blocks(&self) -> u64 {
        self.stats().iter().map(|slice| slice.replayed_blocks).sum()
    }

    /// Acknowledged and damaged: reads of them fail.
    pub fn lost_blocks(&self) -> u64 {
        self.stats().iter().map(|slice| slice.lost_blocks).sum()
    }

    /// Whether all slices can be in this mode. The present one is checked only where it `is_asked`
    /// for: it is refused then even where only the effect differs.
    pub fn check_mode(&self, mode: Mode, is_asked: bool) -> Result<(), ModeError> {
        let mut slices = self.slices.iter().filter(|slice| is_asked || slice.mode() != mode);
        slices.try_for_each(|slice| slice.check_mode(mode))
    }

    /// Whether there is memory for the eviction policy of all slices.
    pub fn check_memory(&self, config: &SliceConfig) -> Result<(), ModeError> {
        let needed_bytes = self.slices.iter().map(|slice| slice.memory_for(config)).sum();
        match needed_bytes == 0 || usize::try_from(needed_bytes).is_ok_and(memory::can_have) {
            true => Ok(()),
            false => Err(ModeError::NoMemory { needed_bytes }),
        }
    }

    /// Configures the slices.
    pub fn configure(&self, config: &SliceConfig) {
        for slice in &self.slices {
            // A failed cache stays in pass-through whatever is set.
            let _ = slice.set_config(config.clone());
        }
    }

    /// Cleans all dirty data, in a mode that makes none.
    pub async fn drain(&self, runtime: &Runtime) -> Result<(), CleanError> {
        while self.dirty_bytes() > 0 {
            self.clean_all().await?;
            // Blocks that another flush of the core makes clean wait for its completion.
            runtime.sleep(DRAIN_POLL).await;
        }
        Ok(())
    }

    /// Stops the slices, which save their state; one that cannot is not needed any more.
    pub async fn close(&self) {
        for slice in &self.slices {
            let _ = slice.stop().await;
        }
    }

    /// Reads all that the cache holds, slice by slice, and compares it with its checksums.
    pub async fn scrub(&self, runtime: &Runtime) -> Result<ScrubReport, ScrubError> {
        let (mut report, began_at) = (ScrubReport::default(), runtime.utc());
        for slice in &self.slices {
            report.add(slice.scrub().await?);
        }
        self.last_scrub.replace(Some(CacheScrub::new(&report, began_at, runtime.utc())));
        Ok(report)
    }

    /// Bytes that a scrub has left to read, or would have.
    pub fn scrub_left_bytes(&self) -> u64 {
        let stats = self.stats();
        let at = stats.iter().position(|slice| slice.scrubbing.is_some()).unwrap_or(0);
        let left = |(index, slice): (usize, &SliceStats)| {
            let whole = slice.segments - slice.segments_free;
            let now = slice.scrubbing.map(|progress| progress.total - progress.done);
            let segments = if index < at { 0 } else { now.unwrap_or(whole) };
            u64::from(segments) * (slice.capacity_bytes / u64::from(slice.segments.max(1)))
        };
        stats.iter().enumerate().map(left).sum()
    }

    /// Writes everything that is dirty now to the array.
    pub async fn clean_all(&self) -> Result<(), CleanError> {
        for slice in &self.slices {
            slice.flush_dirty().await?;
        }
        Ok(())
    }
}

/// Marks the parity of stripes that were being written when the volume stopped as suspect, until it
/// is recomputed.
fn mark_parity_suspect(cores: &Cores, slice: &Slice, recovery: &Recovery) {
    let mark_suspect =
        |range| cores.split(range).for_each(|(array, part)| array.mark_suspect(part));
    slice.each_replayed(mark_suspect);
    recovery.parity_suspects.iter().for_each(|run| mark_suspect(run.range()));
}

/// Stripes that were written through when the power failed may have torn parity. A degraded array
/// has started because its own marks show none, and could not recompute it; where a member is lost
/// meanwhile the parity stays suspect.
async fn recompute_parity(cores: &Cores, recovery: &Recovery) -> Result<(), DeviceError> {
    for run in &recovery.parity_suspects {
        for (array, part) in cores.split(run.range()) {
            if array.layout().level().parity() > 0 && array.state() == ArrayState::Optimal {
                let outcome = recompute_parity_of(array, part).await;
                if array.state() != ArrayState::Degraded {
                    outcome?;
                }
            }
        }
    }
    Ok(())
}

async fn recompute_parity_of(array: &Array, part: ByteRange) -> Result<(), DeviceError> {
    for piece in part.split_at_multiples(1 << 20) {
        let data = Buffer::zeroed(piece.len() as usize);
        (array as &dyn BlockDevice).read(piece.start(), &data).await?;
        let write = Request::write(piece.start(), data);
        array.submit(write.with_flags(RequestFlags::RECOMPUTE_PARITY)).await?;
    }
    Ok(())
}

fn tell_recovery(index: u16, recovery: &Recovery) -> Option<String> {
    if recovery.was_clean && recovery.lost_blocks == 0 {
        return None;
    }
    let Recovery { records_replayed, dirty_blocks, lost_blocks, .. } = recovery;
    let mut text = format!(
        "slice {index}: unclean shutdown, {records_replayed} log records replayed, {dirty_blocks} dirty blocks found"
    );
    if *lost_blocks > 0 {
        text += &format!(
            "; {lost_blocks} acknowledged blocks are damaged and read as errors until they are written \
             again: the cache device lost flushed data"
        );
    }
    Some(text)
}

/// Result of comparing sampled blocks with the array.
fn tell_samples(index: u16, recovery: &Recovery) -> Option<String> {
    let Sampled { compared, differing } = &recovery.sampled;
    let first = differing.first()?.range(1).start();
    let (what, action) = match recovery.dropped_clean {
        true => (
            "something else wrote to it while the volume was stopped, or it lost written data: clean data \
             in the cache was invalidated",
            "find out what wrote to the members, and check the data of the volume",
        ),
        false => ("the array may have a damaged block there", "`headpond array scrub` checks all"),
    };
    Some(format!(
        "slice {index}: of {compared} clean blocks compared with the array {} differ, the first at byte \
         {first}; {what}; {action}",
        differing.len(),
    ))
}

/// Its epochs, and in the lowest bit whether it has stopped. Zero means none.
fn recorded(life: Life) -> u64 {
    life.epochs << 1 | u64::from(life.is_stopped)
}

/// The recorded life, where there is one.
pub(crate) fn life_of(recorded: u64) -> Option<Life> {
    (recorded > 0).then_some(Life { epochs: recorded >> 1, is_stopped: recorded & 1 == 1 })
}
