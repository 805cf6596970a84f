//! The cache of an open volume, and what it lies in front of.

use crate::assembly::cores::Cores;
use crate::assembly::mirror::{CacheDevice, Mirror};
use crate::assembly::open::{Found, LoadWatch, Loading, OpenError, Tolerance, is_memory};
use crate::description::Description;
use headpond_block::{
    BlockDevice, Buffer, ByteRange, DeviceError, Request, RequestFlags, Runtime, memory,
};
use headpond_cache::{
    ChangedCore, CleanError, CoreLabel, CreateOptions, Expected, Foundation, Life, LoadedSlice,
    Mode, ModeError, Recovery, Sampled, ScrubError, ScrubReport, Sequence, Slice, SliceConfig,
    SliceStats, Superblock, judge,
};
use headpond_raid::{Array, ArrayState, AssembleError};
use std::rc::Rc;
use std::time::Duration;

const DRAIN_POLL: Duration = Duration::from_millis(1);

/// The cache of a volume.
pub(crate) struct Cached {
    pub device: Rc<dyn BlockDevice>,
    /// Where that is several copies.
    pub mirror: Option<Rc<Mirror>>,
    pub slices: Vec<Slice>,
    pub superblock: Superblock,
    /// How each slice was found; nothing, where it began empty.
    pub ends: Vec<LogEnd>,
}

/// How far the log of a slice went when it was opened.
pub(crate) struct LogEnd {
    pub last_record: Sequence,
    /// Promised and damaged, as this open found out.
    pub newly_lost_blocks: u64,
}

impl Cached {
    /// Opens the slices, and recovers what an unclean stop left; with what to tell of that.
    ///
    /// # Errors
    /// Where the cache cannot be used, or a device fails.
    pub async fn open(
        cores: &Cores,
        description: &Description,
        found: Found<'_>,
        (tolerance, watch): (Tolerance, Option<&LoadWatch>),
    ) -> Result<(Self, Vec<String>), OpenError> {
        let Found { described, device: CacheDevice { device, mirror }, mut superblock } = found;
        if !is_memory(&*device) {
            cores.own(superblock.cache).await.map_err(AssembleError::Device)?;
        }
        if let Some(mirror) = &mirror {
            description.array.apply_to(&mirror.core.array);
            superblock = mirror.attach(&cores.backing).await.map_err(AssembleError::Device)?;
        }
        let foundation = Foundation {
            label: Some(Rc::clone(&cores.backing) as Rc<dyn CoreLabel>),
            ..Foundation::new(
                cores.runtime.clone(),
                Rc::clone(&device),
                Rc::clone(&cores.backing) as Rc<dyn BlockDevice>,
            )
        };
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
            // Where an unclean stop left copies apart, none of them has erred.
            mirror.forget_repaired();
        }
        let cached = Self { device, mirror, slices, superblock, ends };
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
    ) -> Result<Self, OpenError> {
        let superblock = headpond_cache::create(&*device, options).await?;
        let CreateOptions { volume, generation, .. } = *options;
        let mut slices = Vec::new();
        for (index, below) in (0..).zip(below) {
            let foundation = Foundation::new(runtime.clone(), Rc::clone(&device), Rc::clone(below));
            let expected = Expected { volume, generation };
            let opening = Slice::open(foundation, &superblock, expected, index, config.clone());
            slices.push(opening.await?.0);
        }
        let ends = Vec::new();
        Ok(Self { device, mirror: None, slices, superblock, ends })
    }

    /// They are counted one by one, where there are several.
    pub fn tell_cores(&self, cores: &Cores) {
        let places = cores.counted_places();
        self.slices.iter().for_each(|slice| slice.tell_cores(&places));
    }

    /// Has as much room as what lies below has now.
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

    /// Whether the array lacks nothing that it holds, or has lost, once the array is flushed.
    pub fn leaves_nothing(&self) -> bool {
        let lacks = |slice: &SliceStats| slice.dirty_bytes + slice.lost_blocks > 0;
        self.stats().iter().all(|slice| !lacks(slice) && slice.unreadable_blocks == 0)
    }

    /// Whether a mode without dirty data is set, and there still is some.
    pub fn is_draining(&self) -> bool {
        self.slices.iter().any(Slice::is_draining)
    }

    /// What the array lacks, or may lack after a power cut.
    pub fn dirty_bytes(&self) -> u64 {
        self.stats().iter().map(|slice| slice.dirty_bytes + slice.written_bytes).sum()
    }

    /// Blocks that came back from an unclean stop and have not been cleaned since: the parity
    /// beside them may be torn.
    pub fn replayed_blocks(&self) -> u64 {
        self.stats().iter().map(|slice| slice.replayed_blocks).sum()
    }

    /// Promised and damaged: reads of them fail.
    pub fn lost_blocks(&self) -> u64 {
        self.stats().iter().map(|slice| slice.lost_blocks).sum()
    }

    /// Whether all slices can be in this mode. One that they are in is looked at only where it
    /// `is_asked` for: it is refused then even where only the effect differs.
    pub fn check_mode(&self, mode: Mode, is_asked: bool) -> Result<(), ModeError> {
        let mut slices = self.slices.iter().filter(|slice| is_asked || slice.mode() != mode);
        slices.try_for_each(|slice| slice.check_mode(mode))
    }

    /// Whether there is memory for what all slices are to evict by.
    pub fn check_memory(&self, config: &SliceConfig) -> Result<(), ModeError> {
        let needed_bytes = self.slices.iter().map(|slice| slice.memory_for(config)).sum();
        match needed_bytes == 0 || usize::try_from(needed_bytes).is_ok_and(memory::can_have) {
            true => Ok(()),
            false => Err(ModeError::NoMemory { needed_bytes }),
        }
    }

    /// Sets the slices to what they may always be set to.
    pub fn configure(&self, config: &SliceConfig) {
        for slice in &self.slices {
            // A failed cache stays in pass-through whatever is set.
            let _ = slice.set_config(config.clone());
        }
    }

    /// Cleans until nothing is dirty, in a mode that makes nothing dirty.
    pub async fn drain(&self, runtime: &Runtime) -> Result<(), CleanError> {
        while self.dirty_bytes() > 0 {
            self.clean_all().await?;
            // What another flush of the core is to make clean waits for that one's answer.
            runtime.sleep(DRAIN_POLL).await;
        }
        Ok(())
    }

    /// Ends the slices, which save what they have; those that cannot have nothing that is asked for
    /// again.
    pub async fn close(&self) {
        for slice in &self.slices {
            let _ = slice.stop().await;
        }
    }

    /// Reads all that the cache holds, slice by slice, and compares it with its checksums.
    pub async fn scrub(&self) -> Result<ScrubReport, ScrubError> {
        let mut report = ScrubReport::default();
        for slice in &self.slices {
            report.add(slice.scrub().await?);
        }
        Ok(report)
    }

    /// What a scrub has still to read, or would have.
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

/// Has the arrays do without the parity beside what was being written when the volume stopped,
/// until it has been made anew.
fn mark_parity_suspect(cores: &Cores, slice: &Slice, recovery: &Recovery) {
    let mark_suspect =
        |range| cores.split(range).for_each(|(array, part)| array.mark_suspect(part));
    slice.each_replayed(mark_suspect);
    recovery.parity_suspects.iter().for_each(|run| mark_suspect(run.range()));
}

/// Stripes that were written through when the power failed may have torn parity. An array that
/// lacks a member has started because none of its own marks says so, and could not recompute it;
/// where one is lost meanwhile the doubt stays.
async fn recompute_parity(cores: &Cores, recovery: &Recovery) -> Result<(), DeviceError> {
    for run in &recovery.parity_suspects {
        for (array, part) in cores.split(run.range()) {
            if array.layout().level().parity() > 0 && array.state() == ArrayState::Healthy {
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
        "slice {index} was not stopped cleanly: {records_replayed} records replayed, {dirty_blocks} dirty blocks found"
    );
    if *lost_blocks > 0 {
        text += &format!(
            "; {lost_blocks} blocks that had been promised are damaged and answer with errors until they \
             are written again: the cache device lost flushed data"
        );
    }
    Some(text)
}

/// What blocks showed that were compared with the array.
fn tell_samples(index: u16, recovery: &Recovery) -> Option<String> {
    let Sampled { compared, differing } = &recovery.sampled;
    let first = differing.first()?.range(1).start();
    let (what, action) = match recovery.dropped_clean {
        true => (
            "something else wrote to it while the volume was stopped, or it lost what it had been given: \
             what was clean in the cache was left out",
            "see what wrote to the members, and check what lies on the volume",
        ),
        false => {
            ("the array may have a damaged block there", "`headpond array scrub` looks at all")
        }
    };
    Some(format!(
        "slice {index}: of {compared} blocks that the array should hold as the cache does it holds {} \
         otherwise, the first at byte {first}; {what}; {action}",
        differing.len(),
    ))
}

/// Its epochs, and in the lowest bit whether it has stopped. Zero is of nobody.
fn recorded(life: Life) -> u64 {
    life.epochs << 1 | u64::from(life.is_stopped)
}

/// What was recorded, where anything was.
pub(crate) fn life_of(recorded: u64) -> Option<Life> {
    (recorded > 0).then_some(Life { epochs: recorded >> 1, is_stopped: recorded & 1 == 1 })
}
