//! The devices of a volume with their errors, and its scrubs, as they are now.

use crate::assembly::cached::Cached;
use crate::assembly::cores::{Core, Cores};
use crate::description::FIRST_CORE;
use crate::history::{
    DeviceReport, DeviceRole, FINDINGS_KEPT, KeptCacheScrub, KeptErrors, KeptHistory, KeptScrub,
    KeptWear,
};
use headpond_block::DeviceErrors;
use headpond_raid::ArrayStatus;
use std::rc::Rc;

/// Every device of these arrays and caches.
pub(super) fn devices_of(cores: &Cores, caches: &[Rc<Cached>]) -> Vec<DeviceReport> {
    let mut reports = Vec::new();
    for (core, _) in cores.iter() {
        let name = (core.id != FIRST_CORE).then(|| core.name.clone());
        let roles = [DeviceRole::Member, DeviceRole::Spare];
        reports.extend(devices_of_array(&core.array.status(), name.as_deref(), roles));
    }
    for cached in caches {
        let role = if cached.is_tier { DeviceRole::Tier } else { DeviceRole::Cache };
        reports.push(DeviceReport {
            role,
            number: None,
            core: None,
            uuid: cached.superblock.cache,
            device: Some(cached.device.name().to_string()),
            errors: cached.errors.counts(),
            last_error: cached.errors.last(),
        });
        if let Some(mirror) = &cached.mirror {
            let roles = [DeviceRole::CacheCopy, DeviceRole::CacheSpare];
            reports.extend(devices_of_array(&mirror.array().status(), None, roles));
        }
    }
    reports
}

/// Its members, spares and journal.
fn devices_of_array(
    array: &ArrayStatus,
    core: Option<&str>,
    [member, spare]: [DeviceRole; 2],
) -> Vec<DeviceReport> {
    let report = |role, number, uuid, device, (errors, last): (DeviceErrors, &Option<_>)| {
        let core = core.map(str::to_owned);
        DeviceReport { role, number, core, uuid, device, errors, last_error: last.clone() }
    };
    let mut reports = Vec::new();
    for it in &array.members {
        let found = (it.errors, &it.last_error);
        reports.push(report(member, Some(it.role), it.uuid, it.device.clone(), found));
        if let Some(it) = &it.filling {
            let found = (it.errors, &it.last_error);
            reports.push(report(spare, None, it.uuid, Some(it.device.clone()), found));
        }
    }
    for it in &array.spares {
        let found = (it.errors, &it.last_error);
        reports.push(report(spare, None, it.uuid, Some(it.device.clone()), found));
    }
    if let Some(it) = &array.journal {
        let found = (it.errors, &it.last_error);
        reports.push(report(DeviceRole::Journal, None, it.uuid, it.device.clone(), found));
    }
    reports
}

/// What is to be kept of them now.
pub(super) fn history_of(cores: &Cores, caches: &[Rc<Cached>], sequence: u64) -> KeptHistory {
    let history = cores.first().array.history();
    let with_errors = devices_of(cores, caches).into_iter();
    let with_errors = with_errors.filter(|report| report.errors.total() > 0);
    let kept = |report: DeviceReport| KeptErrors {
        device: report.uuid,
        errors: report.errors,
        last: report.last_error,
    };
    let scrub = |core: &Core| {
        let array = core.array.uuid();
        Some(KeptScrub { array, scrub: history.scrub_of(array)? })
    };
    let cache_scrub = |cached: &Rc<Cached>| {
        let scrub = cached.last_scrub.borrow().clone()?;
        Some(KeptCacheScrub { cache: cached.superblock.cache, scrub })
    };
    let cache_wear = |cached: &Rc<Cached>| {
        let worn = cached.wear().all_runs;
        let is_kept = !cached.is_memory() && worn.written_bytes > 0;
        is_kept.then_some(KeptWear { cache: cached.superblock.cache, worn })
    };
    let mut history = KeptHistory {
        sequence,
        devices: with_errors.map(kept).collect(),
        scrubs: cores.iter().filter_map(|(core, _)| scrub(core)).collect(),
        cache_scrub: caches.iter().find_map(cache_scrub),
        cache_wear: caches.iter().find_map(cache_wear),
    };
    let scrubs = history.scrubs.iter_mut();
    scrubs.for_each(|it| it.scrub.report.findings.truncate(FINDINGS_KEPT));
    history
}
