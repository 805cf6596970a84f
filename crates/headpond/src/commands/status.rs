//! `headpond status`.

mod array;
mod clients;
mod copies;
mod errors;
mod found;
mod list;
mod scrubs;

use crate::args::StatusArgs;
use crate::telling::{print_json, word};
use anyhow::Result;
pub use array::print_array;
use array::{print_array_live, print_devices, tell_shape};
use clients::print_clients;
pub use copies::print_copies;
use errors::print_errors;
pub use found::status_of;
use headpond_api::answers::{
    BlockDeviceStatus, CacheAnswer, LoadingStatus, ServiceState, Status, Versioned,
};
use headpond_api::outcome::Exit;
use headpond_api::place::Places;
use headpond_cache::{
    BypassPolicy, BypassReport, BypassShare, EvictionPolicy, EvictionStats, OrderStats, ShadowStats,
};
use headpond_daemon::loading::parts;
use headpond_raid::Level;
use headpond_report::{count, size};
use headpond_volume::{
    Alert, CACHE_COPIES, CacheStatus, CacheWear, ClassSetting, JobKind, JobStatus, OwnerState,
    OwnerStatus, Size,
};

/// Shows one volume, or a line for each.
///
/// # Errors
/// Where the volume is not known, or its daemon does not answer.
pub fn run(places: &Places, args: &StatusArgs) -> Result<Exit> {
    match &args.name {
        Some(name) => one(places, name, args.json),
        None => list::all(places, args.json),
    }
}

fn one(places: &Places, name: &str, as_json: bool) -> Result<Exit> {
    let status = found::status_of(places, name)?;
    if as_json {
        print_json(&Versioned::new(&status))?;
    } else {
        print(&status);
    }
    Ok(match status.state {
        ServiceState::Stopped | ServiceState::NotAnswering => Exit::NotServed,
        ServiceState::Loading | ServiceState::Serving => exit_of(&status),
    })
}

/// Of the volume itself, whether it is served or not.
fn exit_of(status: &Status) -> Exit {
    if status.is_healthy() && status.is_well() { Exit::Ok } else { Exit::Degraded }
}

fn print(status: &Status) {
    let name = &status.name;
    match (status.state, &status.loading) {
        (ServiceState::Serving, _) => print_head(status),
        (_, Some(loading)) => println!("{name}: {}", tell_loading(loading)),
        (ServiceState::NotAnswering, None) => println!("{name}: its daemon does not answer"),
        (_, None) => {
            let bytes = status.size_bytes.map(|bytes| format!("{}, ", size(bytes)));
            let bytes = bytes.unwrap_or_default();
            println!("{name}: {bytes}not served; start it with `headpond serve {name}`");
        }
    }
    let first = &status.cores[0];
    match &first.array {
        Some(array) => print_array(first, array, status.has_array_errors()),
        None => println!("  array     {}", tell_shape(first)),
    }
    print_devices(first);
    if let Some(how) = &first.write_hole {
        println!("            write hole: {how}");
    }
    print_cores(status);
    print_settings(status);
    if let Some(output) = &status.recording {
        println!("  recording to {}", output.display());
    }
    print_jobs(status);
    print_errors(&status.errors);
    print_alerts(&status.alerts);
    status.warnings.iter().for_each(|warning| println!("  warning   {warning}"));
}

fn print_head(status: &Status) {
    println!("{}: {}", status.name, size(status.size_bytes.unwrap_or(0)));
    status.exports.iter().for_each(|export| println!("  export    {export}"));
    let block_devices = status.server.iter().flat_map(|server| &server.block_devices);
    block_devices.for_each(print_block_device);
    print_clients(status);
    if let Some(owner) = &status.owner {
        println!("  owner     {}", owner_line(owner));
    }
}

fn print_block_device(device: &BlockDeviceStatus) {
    let users = match device.used_by.is_empty() {
        true => "not in use".to_owned(),
        false => device.used_by.join(", "),
    };
    let (link, name) = (device.link.display(), device.device.display());
    let read_only = if device.is_read_only { "read-only, " } else { "" };
    println!("  device    {link} is {name}, {read_only}{users}; {} requests", device.requests);
    if device.errors > 0 {
        println!("            {} of them failed", device.errors);
    }
}

/// Which host owns the devices, as recorded on them.
fn owner_line(OwnerStatus { host, heartbeat_ms, state }: &OwnerStatus) -> String {
    match state {
        OwnerState::Held => format!("{host}; heartbeat {heartbeat_ms} ms"),
        OwnerState::Late => {
            format!("{host}, heartbeat late: requests wait until its devices have been checked")
        }
        OwnerState::Lost { to } => format!("{to}, which took over from {host}"),
        OwnerState::LockLost { device, reason } => {
            format!("not {host} any more: the lock of {device} is lost, {reason}")
        }
    }
}

/// Progress of loading a volume.
fn tell_loading(status: &LoadingStatus) -> String {
    let progress = status.loading.progress;
    let left = status.seconds_left().map(|left| format!(", about {left:.0} s left"));
    format!(
        "not served yet: loading, {} of {}{}{}",
        size(progress.read_bytes),
        size(progress.bytes),
        parts(&status.loading),
        left.unwrap_or_default()
    )
}

/// The further cores, each in one line.
pub fn print_cores(status: &Status) {
    for core in &status.cores[1..] {
        let state = core.array.as_ref().map(|array| format!(", {}", word(array.health)));
        let bytes = core.size_bytes.map(|bytes| format!("{}, ", size(bytes)));
        println!(
            "  core {:<4} {}: {}{}{}",
            core.id.to_string(),
            core.name,
            bytes.unwrap_or_default(),
            tell_shape(core),
            state.unwrap_or_default(),
        );
        print_devices(core);
        core.array.iter().for_each(print_array_live);
        let scrub = core.array.as_ref().filter(|_| core.level != Level::Raid0);
        let scrub = scrub.map(|array| scrubs::tell_scrub(array.last_scrub.as_ref()));
        scrub.into_iter().flatten().for_each(|line| println!("            {line}"));
    }
}

pub fn print_jobs(status: &Status) {
    let told = status.jobs.iter().map(|job| describe_job(job, level_of(job, status)));
    told.for_each(|job| println!("  job       {job}"));
}

/// The level of the array that a job is on.
pub fn level_of(job: &JobStatus, status: &Status) -> Level {
    let core = status.core(job.core.as_deref());
    core.map_or(status.cores[0].level, |core| core.level)
}

/// The name of a job on an array of this level, in words.
pub fn name_of_job(job: &JobStatus, level: Level) -> String {
    if job.core.as_deref() == Some(CACHE_COPIES) {
        return "resync of a cache copy".into();
    }
    let name = match job.job {
        JobKind::Cleaning => "cleaning dirty data to the array",
        JobKind::Scrubbing => "scrub of the cache",
        JobKind::Rebuild => "rebuild",
        JobKind::StandIn => "rebuild to distributed spare space",
        JobKind::Reshape => "reshape to more members",
        JobKind::ArrayScrub => "scrub of the array",
        JobKind::Parity if level.parity() > 0 => "initial sync of the parity",
        JobKind::Parity => "initial sync of the copies",
    };
    let core = job.core.as_ref().map(|core| format!(" of core {core}"));
    format!("{name}{}", core.unwrap_or_default())
}

/// Its progress, and the estimated time left.
fn describe_job(job: &JobStatus, level: Level) -> String {
    let (done, total) = (job.done_bytes, job.total_bytes);
    let left = job.left_s.map(|left| format!(", about {left:.0} s left"));
    let percent = (done * 100).checked_div(total).unwrap_or(100);
    format!(
        "{}: {percent} %, {} of {}{}",
        name_of_job(job, level),
        size(done),
        size(total),
        left.unwrap_or_default()
    )
}

/// Cause, risk and action of each alert.
fn print_alerts(alerts: &[Alert]) {
    for Alert { kind, cause, at_risk, action } in alerts {
        println!("  alert     {}: {cause}", word(kind));
        println!("            at risk: {}", at_risk.what);
        println!("            action: {action}");
    }
}

/// The settings and the usage of the cache and of a tier.
pub fn print_settings(status: &Status) {
    status.tier.iter().for_each(|tier| print_cache("tier", tier));
    match &status.cache {
        None => println!("  cache     none"),
        Some(cache) => print_cache("cache", cache),
    }
}

fn print_cache(place: &str, cache: &CacheAnswer) {
    let settings = &cache.settings;
    let is_draining = cache.live.as_ref().is_some_and(|live| live.draining);
    let line_bytes = cache.live.as_ref().map_or(cache.line_bytes, |live| live.line_bytes.into());
    println!(
        "  {place:<9} {}: mode={}{} cleaning={} seq-cutoff={} promotion={} eviction={} line={}{}",
        cache.live.as_ref().map_or(&cache.devices[0], |live| &live.device),
        settings.mode.name(),
        if is_draining { " (draining)" } else { "" },
        settings.cleaning.policy,
        settings.seq_cutoff.setting(),
        word(settings.promotion.policy),
        word(settings.eviction),
        Size(line_bytes),
        classes(&settings.classes),
    );
    print_copies(cache);
    match &cache.live {
        Some(live) => usage(live).iter().for_each(|line| println!("            {line}")),
        None if cache.dirty_bytes == Some(0) => {
            println!("            no dirty data");
        }
        None => {}
    }
}

fn classes(classes: &ClassSetting) -> String {
    let text = word(classes);
    match classes {
        ClassSetting::None => String::new(),
        ClassSetting::Inline(_) => {
            format!(" classes={} tables", text.matches("[[class]]").count())
        }
        _ => format!(" classes={text}"),
    }
}

/// Usage of the cache of a served volume.
fn usage(cache: &CacheStatus) -> Vec<String> {
    let mut lines = vec![format!(
        "{}: {} dirty of at most {} ({:.0} %), {} clean",
        size(cache.capacity_bytes),
        size(cache.dirty_bytes),
        size(cache.dirty_bytes_max),
        cache.dirty_ratio * 100.0,
        size(cache.clean_bytes)
    )];
    if cache.unflushed_bytes > 0 {
        let bytes = size(cache.unflushed_bytes);
        lines.push(format!("{bytes} written to the array and not yet flushed"));
    }
    if cache.replayed_blocks > 0 {
        let blocks = count(cache.replayed_blocks);
        lines.push(format!("{blocks} blocks replayed and not yet cleaned"));
    }
    lines.extend(wear(&cache.wear));
    lines.extend(cache.order.as_ref().map(order));
    lines.extend(cache.evictions.iter().filter_map(eviction));
    lines.extend(cache.bypasses.iter().filter_map(bypass));
    lines.extend(cache.last_scrub.as_ref().map(scrubs::tell_cache_scrub));
    lines
}

/// What its device was written for, per byte that entered.
fn wear(wear: &CacheWear) -> Option<String> {
    let per_entered = wear.written_per_entered?;
    let shares = wear.purposes.iter().filter(|share| share.bytes > 0);
    let shares =
        shares.map(|it| format!("{:.2} {}", it.per_entered.unwrap_or(0.0), word(it.purpose)));
    Some(format!(
        "{} entered, {per_entered:.2} bytes written for each byte: {}; {} written in all runs",
        size(wear.counted.entered_bytes),
        shares.collect::<Vec<_>>().join(", "),
        size(wear.all_runs.written_bytes),
    ))
}

/// The state of the array without the cache, with ordered cleaning.
fn order(order: &OrderStats) -> String {
    let what = match order.is_consistent {
        true => "a consistent earlier state",
        false => "not consistent until more is cleaned",
    };
    let (epochs, kept) = (count(order.epochs_waiting), count(order.kept_blocks));
    format!("the array is {what}: {epochs} flushes behind, {kept} superseded blocks kept for it")
}

/// The share that adaptive bypass sends to the array, with latencies.
fn bypass(slice: &BypassReport) -> Option<String> {
    if slice.policy != BypassPolicy::Adaptive {
        return None;
    }
    let side = |name: &str, side: &BypassShare| {
        let times = side.cache_us.zip(side.core_us);
        let times =
            times.map(|(cache, core)| format!(" (cache {cache:.0} us, array {core:.0} us)"));
        format!("{:.0} % of {name}{}", side.share * 100.0, times.unwrap_or_default())
    };
    let (reads, writes) = (side("reads", &slice.reads), side("writes", &slice.writes));
    Some(format!("adaptive bypass, of eligible requests: {reads}, {writes}"))
}

/// Which policy `adaptive` has chosen for a slice, and why.
fn eviction(slice: &EvictionStats) -> Option<String> {
    if slice.setting != EvictionPolicy::Adaptive {
        return None;
    }
    let ratio = |shadow: &ShadowStats| {
        format!("{} {:.1} %", word(shadow.policy), shadow.miss_ratio * 100.0)
    };
    let sampled: Vec<String> = slice.sampled.iter().map(ratio).collect();
    let why = match sampled.is_empty() {
        true => "no comparison yet".to_owned(),
        false => format!("miss ratios of a sample: {}", sampled.join(", ")),
    };
    Some(format!("evicts by {}; {why}", word(slice.policy)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_the_host_that_has_the_devices() {
        let line =
            |state| owner_line(&OwnerStatus { host: "anna".into(), heartbeat_ms: 250, state });
        assert_eq!(line(OwnerState::Held), "anna; heartbeat 250 ms");
        let lost = OwnerState::Lost { to: "berta".into() };
        assert_eq!(line(lost), "berta, which took over from anna");
    }

    #[test]
    fn a_job_says_its_progress_and_the_time_left() {
        let job = |left_s, core: Option<&str>| {
            let (done_bytes, total_bytes) = (1 << 30, 4 << 30);
            let core = core.map(str::to_owned);
            let job = JobKind::Parity;
            let job = JobStatus { job, core, done_bytes, total_bytes, elapsed_s: 10.0, left_s };
            describe_job(&job, Level::Raid6)
        };
        let text = "initial sync of the parity: 25 %, 1 GiB of 4 GiB";
        assert_eq!(job(None, None), text);
        let of_core = text.replace("parity:", "parity of core logs:");
        assert_eq!(job(Some(30.0), Some("logs")), format!("{of_core}, about 30 s left"));
        let (job, core, left_s) = (JobKind::Parity, None, None);
        let job = JobStatus { job, core, done_bytes: 0, total_bytes: 1, elapsed_s: 0.0, left_s };
        assert_eq!(name_of_job(&job, Level::Raid1), "initial sync of the copies");
    }

    #[test]
    fn cleaning_in_order_says_what_the_array_holds() {
        let told = |is_consistent, epochs_waiting, kept_blocks| {
            order(&OrderStats { is_consistent, epochs_waiting, kept_blocks })
        };
        let text = "the array is a consistent earlier state: 3 flushes behind, 1,200 superseded blocks \
             kept for it";
        assert_eq!(told(true, 3, 1200), text);
        let text = told(false, 0, 0);
        assert!(text.starts_with("the array is not consistent until more is cleaned"), "{text}");
    }

    #[test]
    fn adaptive_bypass_says_its_shares_and_the_times_that_it_goes_by() {
        let reads = BypassShare { share: 0.5, cache_us: Some(700.0), core_us: Some(651.2) };
        let writes = BypassShare { share: 0.0, cache_us: None, core_us: None };
        let line = |policy| bypass(&BypassReport { policy, reads, writes });
        let text = "adaptive bypass, of eligible requests: 50 % of reads (cache 700 us, array 651 us), \
                    0 % of writes";
        assert_eq!(line(BypassPolicy::Adaptive).as_deref(), Some(text));
        assert_eq!(line(BypassPolicy::Off), None);
    }

    #[test]
    fn adaptive_eviction_says_what_it_has_chosen_and_why() {
        let line = |setting, sampled: &[(EvictionPolicy, f64)]| {
            let shadow = |&(policy, miss_ratio)| ShadowStats { policy, miss_ratio };
            let sampled = sampled.iter().map(shadow).collect();
            let (policy, changes) = (EvictionPolicy::Lru, 0);
            let (resident_bytes, resident_bytes_max) = (0, 0);
            eviction(&EvictionStats {
                setting,
                policy,
                resident_bytes,
                resident_bytes_max,
                changes,
                sampled,
            })
        };
        let sampled = [(EvictionPolicy::S3Fifo, 0.25), (EvictionPolicy::Lru, 0.5)];
        let why = "evicts by lru; miss ratios of a sample: s3-fifo 25.0 %, lru 50.0 %";
        assert_eq!(line(EvictionPolicy::Adaptive, &sampled).as_deref(), Some(why));
        let why = "evicts by lru; no comparison yet";
        assert_eq!(line(EvictionPolicy::Adaptive, &[]).as_deref(), Some(why));
        assert_eq!(line(EvictionPolicy::Lru, &sampled), None);
    }
}
