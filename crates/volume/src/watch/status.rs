//! The status of a volume.

use crate::assembly::cached::Cached;
use crate::assembly::cores::Core;
use crate::assembly::mirror::{CACHE_COPIES, Mirror, RepairedDevice};
use crate::assembly::ownership::OwnerStatus;
use crate::background::BackgroundStatus;
use crate::description::{Description, FIRST_CORE};
use crate::history::{CacheScrub, DeviceReport};
use crate::jobs::JobStatus;
use crate::serving::metadata::CoreFileSystem;
use crate::volume::Volume;
use crate::watch::alerts::{self, Alert, CacheRole};
use crate::watch::report::stats_of;
use crate::watch::wear::CacheWear;
use headpond_block::memory::{self, MemoryState};
use headpond_block::{BlockDevice, LastError};
use headpond_cache::{BypassReport, ErrorStats, EvictionStats, OrderStats, SliceStats, Traffic};
use headpond_raid::superblock::RoleState;
use headpond_raid::{ArrayState, ArrayStatus, DeviceErrors, HealthState, JournalWhen};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::rc::Rc;
use uuid::Uuid;

/// A snapshot of a volume.
#[derive(Clone, Debug)]
pub struct VolumeStatus {
    pub size_bytes: u64,
    /// Whether address distance costs time on the members.
    pub rotational: bool,
    /// Where its heartbeat tells other hosts that it is in use here.
    pub owner: Option<OwnerStatus>,
    /// Of the first core.
    pub array: ArrayStatus,
    /// Every core, the first as well.
    pub cores: Vec<CoreStatus>,
    /// The cache in memory in front of that.
    pub tier: Option<CacheStatus>,
    pub cache: Option<CacheStatus>,
    /// The worst of its arrays and devices.
    pub health: HealthState,
    /// Devices with errors that were not cleared.
    pub errors: Vec<DeviceReport>,
    /// Found on its cores, where a rule of the I/O classes requires metadata.
    pub file_systems: Vec<CoreFileSystem>,
    /// Of the process that serves it.
    pub memory: MemoryState,
    /// Conditions that need the operator, worst first.
    pub alerts: Vec<Alert>,
    /// Further notices for the operator.
    pub warnings: Vec<String>,
    /// Long operations in progress.
    pub jobs: Vec<JobStatus>,
}

/// One of the arrays that share the cache.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CoreStatus {
    /// Its number in rules of the I/O classes.
    pub id: u16,
    pub name: String,
    pub size_bytes: u64,
    pub array: ArrayStatus,
    pub background: BackgroundStatus,
    /// How the write hole is closed; `None` without parity.
    pub write_hole: Option<String>,
}

/// Contents and state of the cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheStatus {
    pub device: String,
    pub uuid: Uuid,
    /// The mode makes no dirty data, and earlier dirty data is being cleaned.
    pub draining: bool,
    pub failed: bool,
    /// In pass-through after too many errors, until a mode is set.
    pub in_fallback: bool,
    pub line_bytes: u32,
    /// How much of the device is used.
    pub device_bytes: u64,
    pub capacity_bytes: u64,
    pub dirty_bytes: u64,
    /// Written to the array and not flushed there: lost if cache and power fail.
    pub unflushed_bytes: u64,
    /// The dirty limit.
    pub dirty_bytes_max: u64,
    pub clean_bytes: u64,
    pub dirty_ratio: f64,
    pub lost_blocks: u64,
    /// Dirty, and unreadable when they were last read.
    pub unreadable_blocks: u64,
    /// Replayed after an unclean shutdown and not yet cleaned: a member that fails before that
    /// cannot be reconstructed in their stripes.
    pub replayed_blocks: u64,
    /// By slice: the policy in use, and where it was chosen, why.
    pub evictions: Vec<EvictionStats>,
    /// With cleaning in the order of the flushes: how far the array is behind.
    pub order: Option<OrderStats>,
    /// By slice: the share sent to the array because it is faster, and the latencies.
    pub bypasses: Vec<BypassReport>,
    pub lost_on_power: bool,
    #[serde(flatten)]
    pub device_errors: CacheErrors,
    /// Of a cache that lasts; null if there was none.
    pub last_scrub: Option<CacheScrub>,
    /// Its copies, where it has several.
    pub mirror: Option<MirrorStatus>,
    /// What its device was written for.
    pub wear: CacheWear,
}

/// Of a cache device, or of all its copies together, until they are cleared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheErrors {
    pub errors: DeviceErrors,
    pub last_error: Option<LastError>,
}

/// The copies of a cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MirrorStatus {
    pub array: ArrayStatus,
    pub background: BackgroundStatus,
    /// Lost if one more device fails.
    pub at_risk_bytes: u64,
    /// Devices that were repaired from another copy.
    pub repaired: Vec<RepairedDevice>,
}

/// Counters of a volume since it was opened, or since they were reset.
#[derive(Clone, Debug)]
pub struct VolumeStats {
    pub slices: Vec<SliceStats>,
    /// Those of the cache in memory in front of them.
    pub tier_slices: Vec<SliceStats>,
    pub array: headpond_raid::PlanCounts,
}

impl Volume {
    pub fn status(&self) -> VolumeStatus {
        let description = self.description.borrow();
        let cores = self.cores();
        let array = cores.first().array.status();
        let (tier, cache) = (self.tier_status(), self.cache_status());
        let mut alerts = self.alerts(cache.as_ref(), CacheRole::cache(&description.name));
        alerts.extend(self.alerts(tier.as_ref(), CacheRole::tier(&description.name)));
        alerts.extend(self.alerts_of_writes(cache.as_ref()));
        for (core, _) in cores.iter() {
            let name = (core.id != FIRST_CORE).then_some(&*core.name);
            let (volume, array) = (&*description.name, core.array.status());
            alerts.extend(alerts::of_array(volume, name, &array.lost));
            alerts.extend(alerts::of_journal(volume, name, &array));
            alerts.extend(alerts::of_members(volume, name, &array));
            alerts.extend(alerts::of_errors(volume, name, &array));
            alerts.extend(alerts::of_scrub(volume, name, &array));
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
        let errors = self.devices().into_iter().filter(|it| it.errors.total() > 0).collect();
        let mut status = VolumeStatus {
            size_bytes: self.geometry().size_bytes,
            rotational: cores.device.geometry().rotational,
            owner,
            array,
            cores: cores.iter().map(|(core, _)| core.status()).collect(),
            tier,
            cache,
            health: HealthState::Healthy,
            errors,
            file_systems: self.dispatcher.file_systems(),
            memory,
            alerts,
            warnings,
            jobs: self.jobs(),
        };
        status.health = status.judged();
        status
    }

    fn alerts(&self, status: Option<&CacheStatus>, place: CacheRole<'_>) -> Vec<Alert> {
        let Some(status) = status else { return Vec::new() };
        let description = self.description.borrow();
        let tier = description.tier.as_ref().filter(|_| place.is_tier);
        let settings =
            tier.map_or_else(|| description.cache_settings(), |it| description.tier_settings(it));
        alerts::of_cache(place, status, &settings)
    }

    /// Of each array that did not take what was written to it.
    fn alerts_of_writes(&self, status: Option<&CacheStatus>) -> Vec<Alert> {
        let Some((status, cached)) = status.zip(self.cached()) else { return Vec::new() };
        let (slices, cores, volume) = (cached.stats(), self.cores(), self.description().name);
        if cores.is_single() {
            let mut errors = ErrorStats::default();
            slices.iter().for_each(|slice| errors += slice.counters.errors);
            let array = cores.first().array.status();
            return alerts::of_writes(&volume, None, status, &errors, &array).into_iter().collect();
        }
        let alert = |(core, failed_flushes): (&Rc<Core>, u64)| {
            let mut errors = stats_of(core.id, &slices).unwrap_or_default().errors;
            errors.core_flush = failed_flushes;
            alerts::of_writes(&volume, Some(&core.name), status, &errors, &core.array.status())
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
        }
    }

    fn cache_status(&self) -> Option<CacheStatus> {
        Some(self.cached()?.status())
    }

    fn tier_status(&self) -> Option<CacheStatus> {
        Some(self.tier()?.status())
    }
}

impl VolumeStatus {
    /// The worst of its arrays, together with errors.
    fn judged(&self) -> HealthState {
        let mirror = self.cache.iter().filter_map(|cache| cache.mirror.as_ref());
        let arrays = self.cores.iter().map(|core| &core.array);
        let arrays = arrays.chain(mirror.map(|mirror| &mirror.array)).map(|array| array.health);
        let has_errors = !self.errors.is_empty() || self.alerts.iter().any(Alert::is_of_errors);
        let errors = if has_errors { HealthState::Errors } else { HealthState::Healthy };
        arrays.fold(errors, HealthState::max)
    }
}

impl CacheStatus {
    /// Not on the array, or not after a power cut.
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
            device_errors: CacheErrors {
                errors: self.errors.counts(),
                last_error: self.errors.last(),
            },
            last_scrub: self.last_scrub.borrow().clone(),
            mirror: self.mirror.as_ref().map(|mirror| mirror.status(dirty_bytes + unflushed_bytes)),
            wear: self.wear(),
        }
    }
}

impl Cached {
    /// What its device was written for.
    pub fn wear(&self) -> CacheWear {
        let mut traffic = Traffic::default();
        self.stats().iter().for_each(|slice| traffic += slice.counters.traffic);
        CacheWear::new(&traffic.cache, self.worn_before.get())
    }

    /// Whether anything was written to it but the headers of a start and a stop.
    pub fn is_worn(&self) -> bool {
        self.wear().counted.entered_bytes > 0
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

    /// Warnings about the array; of a further core with its name.
    fn warnings(&self, volume: &str) -> Vec<String> {
        let array = self.array.status();
        let state = match array.state {
            ArrayState::Optimal => None,
            ArrayState::Degraded => self.degraded(volume, &array),
            ArrayState::Failed => Some(
                "the array has failed: more members are missing than its redundancy covers, writes are \
                 refused; reconnect them"
                    .into(),
            ),
        };
        let told = state.into_iter().chain(self.parity_warning(&array));
        let told = told.chain(resting(&self.place(volume), &self.background.status()));
        let named = |text: String| match self.id {
            FIRST_CORE => text,
            _ => format!("core {}: {text}", self.name),
        };
        told.map(named).collect()
    }

    /// The action for lost members: none while a spare is being rebuilt.
    fn degraded(&self, volume: &str, array: &ArrayStatus) -> Option<String> {
        let mut lost = array.members.iter().filter(|member| member.state != RoleState::Active);
        if lost.all(|member| member.filling.is_some()) {
            return Some("the array is degraded; a spare is being rebuilt".into());
        }
        let place = self.place(volume);
        Some(format!(
            "the array is degraded: `headpond array add-spare {place} DEVICE` replaces a member, \
             `headpond array re-add {place} DEVICE` re-adds one that was missing"
        ))
    }

    /// How commands name it.
    fn place(&self, volume: &str) -> String {
        match self.id {
            FIRST_CORE => volume.to_owned(),
            _ => format!("{volume} --core {}", self.name),
        }
    }

    /// The risk of a member failure before the initial sync is complete.
    fn parity_warning(&self, array: &ArrayStatus) -> Option<String> {
        const RISK: &str = "until then, a member failure loses data";
        if array.parity_initialised {
            return None;
        }
        if let Some(error) = self.background.parity_failure() {
            return Some(format!("the initial sync failed: {error}; {RISK}"));
        }
        let Some(progress) = array.progress.initialising else {
            return Some(format!("the initial sync waits for all members to be active; {RISK}"));
        };
        let percent = progress.stripes_done * 100 / progress.stripes.max(1);
        let what = if array.level.parity() > 0 { "the parity" } else { "the copies" };
        Some(format!("initial sync of {what}, {percent} % done; {RISK}"))
    }
}

/// How the write hole of an array is closed, in words.
fn write_hole(array: &ArrayStatus) -> Option<String> {
    if array.level.parity() == 0 {
        return None;
    }
    let healthy = match array.intent_bitmap {
        true => "closed while optimal (intent bitmap)",
        false => "closed while optimal (resync of all parity)",
    };
    let Some(journal) = &array.journal else {
        return Some(format!("{healthy}; degraded: refuses to start after an unclean shutdown"));
    };
    Some(match (&journal.device, journal.when) {
        (None, _) => format!(
            "{healthy}; degraded: writes are refused, the stripe journal failed or is missing"
        ),
        (Some(device), JournalWhen::Degraded) => {
            format!("{healthy}; degraded: closed by the stripe journal on {device}")
        }
        (Some(device), JournalWhen::Always) => {
            format!("closed by the stripe journal on {device}, for all writes")
        }
    })
}

/// Why background work on an array is stopped, and the command that resumes it.
fn resting(place: &str, background: &BackgroundStatus) -> Option<String> {
    let resume = format!("`headpond array resume {place}`");
    match (&background.failure, background.paused) {
        (Some(failure), _) => Some(format!("{failure}; {resume} retries")),
        (None, true) => {
            Some(format!("background work on the array is paused: {resume} resumes it"))
        }
        (None, false) if background.scrub_paused && background.scrub_wanted => {
            Some(format!("the scrub of the array is paused: {resume} resumes it"))
        }
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
            .push("dirty data in the tier is lost in a power failure, until it is flushed".into());
    }
    let Some(cache) = cache else { return warnings };
    let described = description.cache.as_ref();
    let is_write_back = described.is_some_and(|cache| cache.settings.mode.is_write_back());
    if cache.lost_on_power && is_write_back {
        warnings.push("the cache is volatile: a power failure loses its dirty data".into());
    } else if let Some(mirror) = &cache.mirror {
        warnings.extend(warning_of_copies(&description.name, mirror));
    } else if cache.dirty_bytes > 0 {
        warnings.push(
            "dirty data is on one cache device only: losing this device loses the dirty data"
                .into(),
        );
    }
    if cache.order.is_some() && cache.evictions.len() > 1 {
        let warning = "cleaning=ordered keeps the order within each slice, not across slices: without its \
                       cache the array is not a consistent past state";
        warnings.push(warning.into());
    }
    warnings
}

/// Warning about the copies of a cache, with the action.
fn warning_of_copies(volume: &str, mirror: &MirrorStatus) -> Option<String> {
    let lost = mirror.array.members.iter().filter(|member| member.state != RoleState::Active);
    let lost: Vec<_> = lost.collect();
    let risk = match mirror.at_risk_bytes {
        0 => "",
        _ => "; until then losing the last copy loses the dirty data",
    };
    if lost.is_empty() {
        return None;
    }
    let unfilled = lost.iter().filter(|member| member.filling.is_none()).count();
    if unfilled <= mirror.array.spares.len() {
        return Some(match (&mirror.background.failure, mirror.background.paused) {
            (Some(failure), _) => format!(
                "the resync of a copy of the cache failed ({failure}): `headpond array resume {volume} \
                 --cache` retries{risk}"
            ),
            (None, true) => format!(
                "the resync of a copy of the cache is paused: `headpond array resume {volume} --cache` \
                 resumes it{risk}"
            ),
            (None, false) => format!("a copy of the cache is being resynced{risk}"),
        });
    }
    Some(format!(
        "the cache has lost a copy: `headpond array add-spare {volume} DEVICE --cache` adds another, \
         `headpond array re-add {volume} DEVICE --cache` re-adds one that was missing{risk}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopped_background_work_names_its_cause_and_how_to_resume() {
        let told = |failure: Option<&str>, paused| {
            let failure = failure.map(str::to_owned);
            resting("hv0", &BackgroundStatus { paused, failure, ..BackgroundStatus::default() })
        };
        assert_eq!(told(None, false), None);
        let paused =
            "background work on the array is paused: `headpond array resume hv0` resumes it";
        assert_eq!(told(None, true).as_deref(), Some(paused));
        let failed = told(Some("the rebuild of role 3 failed: sdk: gone"), false).unwrap();
        assert!(failed.ends_with("sdk: gone; `headpond array resume hv0` retries"), "{failed}");
    }
}
