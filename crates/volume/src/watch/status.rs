//! What a volume tells about itself.

use crate::assembly::cached::Cached;
use crate::assembly::cores::Core;
use crate::assembly::mirror::{CACHE_COPIES, Mirror, RepairedDevice};
use crate::assembly::ownership::OwnerStatus;
use crate::background::BackgroundStatus;
use crate::description::{Description, FIRST_CORE};
use crate::jobs::JobStatus;
use crate::serving::metadata::CoreFileSystem;
use crate::serving::readahead::ReadaheadStats;
use crate::volume::Volume;
use crate::watch::alerts::{self, Alert, Place};
use crate::watch::report::stats_of;
use headpond_block::BlockDevice;
use headpond_block::memory::{self, MemoryState};
use headpond_cache::{BypassReport, ErrorStats, EvictionStats, OrderStats, SliceStats};
use headpond_raid::superblock::RoleState;
use headpond_raid::{ArrayState, ArrayStatus, DeviceErrors, JournalWhen};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::rc::Rc;
use uuid::Uuid;

/// A picture of a volume at one moment.
#[derive(Clone, Debug)]
pub struct VolumeStatus {
    pub name: String,
    pub uuid: Uuid,
    pub size_bytes: u64,
    /// Whether address distance costs time on the members.
    pub rotational: bool,
    pub slices: u16,
    /// Where other hosts are told that it is in use here.
    pub owner: Option<OwnerStatus>,
    /// Of the first core.
    pub array: ArrayStatus,
    /// Every core, the first as well.
    pub cores: Vec<CoreStatus>,
    /// The cache in memory in front of that.
    pub tier: Option<CacheStatus>,
    pub cache: Option<CacheStatus>,
    /// Found on its cores, where a rule of the I/O classes asks for metadata.
    pub file_systems: Vec<CoreFileSystem>,
    /// Of the process that serves it.
    pub memory: MemoryState,
    /// What wants the operator, worst first.
    pub alerts: Vec<Alert>,
    /// What else the operator should know.
    pub warnings: Vec<String>,
    /// What goes on that takes long, and how far it is.
    pub jobs: Vec<JobStatus>,
}

/// One of the arrays that share the cache.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CoreStatus {
    /// What a rule of the I/O classes calls it.
    pub id: u16,
    pub name: String,
    pub size_bytes: u64,
    pub array: ArrayStatus,
    pub background: BackgroundStatus,
    /// How a cut in the middle of a write is made good; `None` where there is no parity.
    pub write_hole: Option<String>,
}

/// What the cache holds, and how it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheStatus {
    pub device: String,
    pub uuid: Uuid,
    /// The mode makes no dirty data, and what there is from before is on its way to the array.
    pub draining: bool,
    pub failed: bool,
    /// The device errs so often that it is in pass-through until a mode is set.
    pub in_fallback: bool,
    pub line_bytes: u32,
    /// How much of the device is used.
    pub device_bytes: u64,
    pub capacity_bytes: u64,
    pub dirty_bytes: u64,
    /// The array has it, and has not flushed it: lost with the cache and the power.
    pub unflushed_bytes: u64,
    /// What may be dirty at most.
    pub dirty_bytes_max: u64,
    pub clean_bytes: u64,
    pub dirty_ratio: f64,
    pub lost_blocks: u64,
    /// The array lacks them, and the device could not give them when it was last asked.
    pub unreadable_blocks: u64,
    /// Replayed after an unclean stop and not yet cleaned: what a member that fails before they are
    /// holds beside them cannot be read then.
    pub replayed_blocks: u64,
    /// By slice: which policy is in use, and where one is chosen, why.
    pub evictions: Vec<EvictionStats>,
    /// With cleaning in the order of the flushes: how far the array is behind.
    pub order: Option<OrderStats>,
    /// By slice: which share goes to the array because that answers sooner, and by which times.
    pub bypasses: Vec<BypassReport>,
    pub lost_on_power: bool,
    /// Of the device; flushes that failed are among the writes.
    pub errors: DeviceErrors,
    /// Its copies, where it has several.
    pub mirror: Option<MirrorStatus>,
}

/// The copies of a cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MirrorStatus {
    pub array: ArrayStatus,
    pub background: BackgroundStatus,
    /// What would be lost with one more device.
    pub at_risk_bytes: u64,
    /// Devices that were given what another copy had right.
    pub repaired: Vec<RepairedDevice>,
}

/// What a volume has done since it was opened, or its counters were reset.
#[derive(Clone, Debug)]
pub struct VolumeStats {
    pub slices: Vec<SliceStats>,
    /// Those of the cache in memory in front of them.
    pub tier_slices: Vec<SliceStats>,
    pub array: headpond_raid::PlanCounts,
    pub readahead: ReadaheadStats,
}

impl Volume {
    pub fn status(&self) -> VolumeStatus {
        let description = self.description.borrow();
        let cores = self.cores();
        let array = cores.first().array.status();
        let (tier, cache) = (self.tier_status(), self.cache_status());
        let mut alerts =
            self.alerts(cache.as_ref(), self.cached(), Place::cache(&description.name));
        alerts.extend(self.alerts(tier.as_ref(), self.tier(), Place::tier(&description.name)));
        alerts.extend(self.alerts_of_writes(cache.as_ref()));
        for (core, _) in cores.iter() {
            let name = (core.id != FIRST_CORE).then_some(&*core.name);
            let (volume, array) = (&*description.name, core.array.status());
            alerts.extend(alerts::of_array(volume, name, &array.lost));
            alerts.extend(alerts::of_journal(volume, name, &array));
            alerts.extend(alerts::of_members(volume, name, &array));
            alerts.extend(alerts::of_errors(volume, name, &array));
        }
        if let Some(mirror) = cache.as_ref().and_then(|cache| cache.mirror.as_ref()) {
            let (volume, array) = (&description.name, &mirror.array);
            alerts.extend(alerts::of_members(volume, Some(CACHE_COPIES), array));
            alerts.extend(alerts::of_errors(volume, Some(CACHE_COPIES), array));
            alerts.extend(alerts::of_copies(volume, &array.lost));
        }
        let owner = self.ownership.status();
        alerts.extend(owner.as_ref().and_then(|owner| alerts::of_owner(&description.name, owner)));
        let memory = memory::state();
        alerts.extend(alerts::of_memory(&description.name, &memory));
        let broken = self.broken.borrow();
        alerts.extend(
            broken.as_ref().map(|broken| alerts::of_lost_flushed_data(&description.name, broken)),
        );
        alerts.sort_by_key(|alert| alert.kind);
        let mut warnings: Vec<String> =
            cores.iter().flat_map(|(core, _)| core.warnings(&description.name)).collect();
        warnings.extend(warnings_of_caches(&description, tier.as_ref(), cache.as_ref()));
        warnings.extend(self.warnings());
        VolumeStatus {
            name: description.name.clone(),
            uuid: description.uuid,
            size_bytes: self.geometry().size_bytes,
            rotational: cores.device.geometry().rotational,
            slices: description.slices,
            owner,
            array,
            cores: cores.iter().map(|(core, _)| core.status()).collect(),
            tier,
            cache,
            file_systems: self.dispatcher.file_systems(),
            memory,
            alerts,
            warnings,
            jobs: self.jobs(),
        }
    }

    fn alerts(
        &self,
        status: Option<&CacheStatus>,
        cached: Option<Rc<Cached>>,
        place: Place<'_>,
    ) -> Vec<Alert> {
        let Some((status, cached)) = status.zip(cached) else { return Vec::new() };
        let mut errors = ErrorStats::default();
        cached.stats().iter().for_each(|slice| errors += slice.counters.errors);
        let description = self.description.borrow();
        let tier = description.tier.as_ref().filter(|_| place.is_tier);
        let settings =
            tier.map_or_else(|| description.cache_settings(), |it| description.tier_settings(it));
        alerts::of_cache(place, status, &settings, &errors)
    }

    /// Of each array that did not take what was written to it.
    fn alerts_of_writes(&self, status: Option<&CacheStatus>) -> Vec<Alert> {
        let Some((status, cached)) = status.zip(self.cached()) else { return Vec::new() };
        let (slices, cores, volume) = (cached.stats(), self.cores(), self.description().name);
        if cores.is_single() {
            let mut errors = ErrorStats::default();
            slices.iter().for_each(|slice| errors += slice.counters.errors);
            return alerts::of_writes(&volume, None, status, &errors).into_iter().collect();
        }
        let alert = |(core, failed_flushes): (&Rc<Core>, u64)| {
            let mut errors = stats_of(core.id, &slices).unwrap_or_default().errors;
            errors.core_flush = failed_flushes;
            alerts::of_writes(&volume, Some(&core.name), status, &errors)
        };
        let each = cores.iter().map(|(core, _)| core).zip(cores.failed_flushes());
        each.filter_map(alert).collect()
    }

    pub fn stats(&self) -> VolumeStats {
        let slices = |cached: Option<Rc<Cached>>| cached.map(|cached| cached.stats());
        VolumeStats {
            slices: slices(self.cached()).unwrap_or_default(),
            tier_slices: slices(self.tier()).unwrap_or_default(),
            array: self.cores().first().array.status().counts,
            readahead: self.dispatcher.readahead_stats(),
        }
    }

    fn cache_status(&self) -> Option<CacheStatus> {
        Some(self.cached()?.status())
    }

    fn tier_status(&self) -> Option<CacheStatus> {
        Some(self.tier()?.status())
    }
}

impl CacheStatus {
    /// What the array lacks, or may lack after a power cut.
    pub fn unsafe_bytes(&self) -> u64 {
        self.dirty_bytes + self.unflushed_bytes
    }
}

impl Cached {
    fn status(&self) -> CacheStatus {
        let stats = self.stats();
        let sum = |pick: fn(&SliceStats) -> u64| stats.iter().map(pick).sum::<u64>();
        let dirty_bytes = sum(|slice| slice.dirty_bytes);
        let unflushed_bytes = sum(|slice| slice.written_bytes);
        let dirty_bytes_max = sum(|slice| slice.dirty_bytes_max);
        CacheStatus {
            device: self.device.name().to_string(),
            uuid: self.superblock.cache,
            draining: stats.iter().any(|slice| slice.is_draining),
            failed: stats.iter().any(|slice| slice.is_failed),
            in_fallback: stats.iter().any(|slice| slice.is_in_fallback),
            line_bytes: self.superblock.line_bytes,
            device_bytes: self.superblock.device_bytes,
            capacity_bytes: sum(|slice| slice.capacity_bytes),
            dirty_bytes,
            unflushed_bytes,
            dirty_bytes_max,
            clean_bytes: sum(|slice| slice.clean_bytes),
            dirty_ratio: dirty_bytes as f64 / dirty_bytes_max.max(1) as f64,
            lost_blocks: sum(|slice| slice.lost_blocks),
            unreadable_blocks: sum(|slice| slice.unreadable_blocks),
            replayed_blocks: self.replayed_blocks(),
            evictions: stats.iter().map(|slice| slice.eviction.clone()).collect(),
            order: order(&stats),
            bypasses: stats.iter().map(|slice| slice.bypass).collect(),
            lost_on_power: self.is_memory(),
            errors: DeviceErrors {
                read: sum(|slice| slice.counters.errors.cache_read),
                write: sum(|slice| slice.counters.errors.cache_write),
                checksum: sum(|slice| slice.counters.errors.cache_checksum),
                ..DeviceErrors::default()
            },
            mirror: self.mirror.as_ref().map(|mirror| mirror.status(dirty_bytes + unflushed_bytes)),
        }
    }
}

impl Mirror {
    fn status(&self, unsafe_bytes: u64) -> MirrorStatus {
        let array = self.core.array.status();
        let active = array.members.iter().filter(|it| it.state == RoleState::Active).count();
        let at_risk_bytes = if active > 1 { 0 } else { unsafe_bytes };
        let (background, repaired) = (self.core.background.status(), self.repaired());
        MirrorStatus { array, background, at_risk_bytes, repaired }
    }
}

/// Of all slices. Each has its order, and several have none between them.
fn order(slices: &[SliceStats]) -> Option<OrderStats> {
    let all: Option<Vec<OrderStats>> = slices.iter().map(|slice| slice.order).collect();
    let all = all?;
    Some(OrderStats {
        is_consistent: all.len() == 1 && all[0].is_consistent,
        epochs_waiting: all.iter().map(|order| order.epochs_waiting).sum(),
        kept_blocks: all.iter().map(|order| order.kept_blocks).sum(),
    })
}

impl Core {
    fn status(&self) -> CoreStatus {
        let (array, name) = (self.array.status(), self.name.clone());
        let background = self.background.status();
        let write_hole = write_hole(&array);
        CoreStatus {
            write_hole,
            id: self.id,
            name,
            size_bytes: array.size_bytes,
            array,
            background,
        }
    }

    /// What is wrong with the array; of a further core with its name.
    fn warnings(&self, volume: &str) -> Vec<String> {
        let array = self.array.status();
        let state = match array.state {
            ArrayState::Healthy => None,
            ArrayState::Degraded => self.degraded(volume, &array),
            ArrayState::Failed => Some(
                "the array has lost more members than it can replace: writes are refused; bring them \
                 back"
                    .into(),
            ),
        };
        let told = state.into_iter().chain(self.parity_warning(&array));
        let told = told.chain(self.scrub_warning(&array));
        let told = told.chain(resting(&self.place(volume), &self.background.status()));
        let named = |text: String| match self.id {
            FIRST_CORE => text,
            _ => format!("core {}: {text}", self.name),
        };
        told.map(named).collect()
    }

    /// What to do about lost members: nothing, where a spare is on its way.
    fn degraded(&self, volume: &str, array: &ArrayStatus) -> Option<String> {
        let mut lost = array.members.iter().filter(|member| member.state != RoleState::Active);
        if lost.all(|member| member.filling.is_some()) {
            return Some("the array is degraded; a spare is taking the lost member's place".into());
        }
        let place = self.place(volume);
        Some(format!(
            "the array is degraded: `headpond array add-spare {place} DEVICE` replaces a lost member, \
             `headpond array re-add {place} DEVICE` takes one back that was away"
        ))
    }

    /// How commands name it.
    fn place(&self, volume: &str) -> String {
        match self.id {
            FIRST_CORE => volume.to_owned(),
            _ => format!("{volume} --core {}", self.name),
        }
    }

    fn scrub_warning(&self, array: &ArrayStatus) -> Option<String> {
        let (scrub, place) = (&array.scrub, array.scrub.findings.first()?);
        Some(format!(
            "the scrub found {} sectors that do not fit and {} stripes that cannot be read, the first \
             at byte {}: nobody can say what is right there; write it again from a copy",
            scrub.unexplained_sectors, scrub.unreadable_stripes, place.stripe_start
        ))
    }

    /// What a member's failure would cost while the parity has not been computed.
    fn parity_warning(&self, array: &ArrayStatus) -> Option<String> {
        const RISK: &str = "until then, a member that fails takes data with it";
        if array.parity_initialised {
            return None;
        }
        if let Some(error) = self.background.parity_failure() {
            return Some(format!("the parity could not be computed: {error}; {RISK}"));
        }
        let Some(progress) = array.initialising else {
            return Some(format!("the parity is computed while all members are in use; {RISK}"));
        };
        let percent = progress.stripes_done * 100 / progress.stripes.max(1);
        Some(format!("the parity is being computed for the first time, {percent} % done; {RISK}"))
    }
}

/// How the write hole of an array is closed, in words.
fn write_hole(array: &ArrayStatus) -> Option<String> {
    if array.level.parity() == 0 {
        return None;
    }
    let healthy = match array.intent_bitmap {
        true => "closed while healthy (intent bitmap)",
        false => "closed while healthy (all parity is made anew)",
    };
    let Some(journal) = &array.journal else {
        return Some(format!("{healthy}; degraded: refuses to start after an unclean stop"));
    };
    Some(match (&journal.device, journal.when) {
        (None, _) => format!("{healthy}; degraded: writes are refused, the stripe journal is lost"),
        (Some(device), JournalWhen::Degraded) => {
            format!("{healthy}; degraded: closed by the stripe journal on {device}")
        }
        (Some(device), JournalWhen::Always) => {
            format!("closed by the stripe journal on {device}, for all writes")
        }
    })
}

/// Why work on an array does not go on, and what has it go on.
fn resting(place: &str, background: &BackgroundStatus) -> Option<String> {
    let resume = format!("`headpond array resume {place}`");
    match (&background.failure, background.paused) {
        (Some(failure), _) => Some(format!("{failure}; {resume} tries again")),
        (None, true) => Some(format!("work on the array is paused: {resume} has it go on")),
        (None, false) => None,
    }
}

fn warnings_of_caches(
    description: &Description,
    tier: Option<&CacheStatus>,
    cache: Option<&CacheStatus>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let described = description.tier.as_ref().filter(|_| tier.is_some());
    if described.is_some_and(|tier| tier.settings.mode.is_write_back()) {
        warnings
            .push("what is dirty in the tier is lost with the power, until it is flushed".into());
    }
    let Some(cache) = cache else { return warnings };
    let described = description.cache.as_ref();
    let is_write_back = described.is_some_and(|cache| cache.settings.mode.is_write_back());
    if cache.lost_on_power && is_write_back {
        warnings.push("the cache is lost with the power, and with it what is dirty".into());
    } else if let Some(mirror) = &cache.mirror {
        warnings.extend(warning_of_copies(&description.name, mirror));
    } else if cache.dirty_bytes > 0 {
        warnings.push(
            "dirty data is on one cache device only: losing this device loses the dirty data"
                .into(),
        );
    }
    if cache.order.is_some() && cache.evictions.len() > 1 {
        let told = "cleaning=ordered keeps the order of each slice, and not of all: without its cache \
                    the array is no consistent past";
        warnings.push(told.into());
    }
    warnings
}

/// What is wrong with the copies of a cache, and the way out.
fn warning_of_copies(volume: &str, mirror: &MirrorStatus) -> Option<String> {
    let lost = mirror.array.members.iter().filter(|member| member.state != RoleState::Active);
    let lost: Vec<_> = lost.collect();
    let risk = match mirror.at_risk_bytes {
        0 => "",
        _ => "; until then the death of the last one would lose its dirty data",
    };
    if lost.is_empty() {
        return None;
    }
    let unfilled = lost.iter().filter(|member| member.filling.is_none()).count();
    if unfilled <= mirror.array.spares.len() {
        return Some(match (&mirror.background.failure, mirror.background.paused) {
            (Some(failure), _) => format!(
                "a copy of the cache could not be given what it lacks ({failure}): `headpond array \
                 resume {volume} --cache` tries again{risk}"
            ),
            (None, true) => format!(
                "a copy of the cache is to be given what it lacks, and that is paused: `headpond \
                 array resume {volume} --cache` has it go on{risk}"
            ),
            (None, false) => format!("a copy of the cache is being given what it lacks{risk}"),
        });
    }
    Some(format!(
        "the cache has lost a copy: `headpond array add-spare {volume} DEVICE --cache` makes another, \
         `headpond array re-add {volume} DEVICE --cache` takes one back that was away{risk}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_rests_says_why_and_what_has_it_go_on() {
        let told = |failure: Option<&str>, paused| {
            let failure = failure.map(str::to_owned);
            resting("hv0", &BackgroundStatus { paused, failure, ..BackgroundStatus::default() })
        };
        assert_eq!(told(None, false), None);
        let paused = "work on the array is paused: `headpond array resume hv0` has it go on";
        assert_eq!(told(None, true).as_deref(), Some(paused));
        let failed = told(Some("role 3 could not be filled: sdk: gone"), false).unwrap();
        assert!(failed.ends_with("sdk: gone; `headpond array resume hv0` tries again"), "{failed}");
    }
}
