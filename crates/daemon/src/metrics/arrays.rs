//! The arrays, their members, the errors of all devices, and work in the background.
//!
//! `core` is the name of the core that an array is of, or `[cache]` for the copies of a cache.

mod members;

use super::exposition::Exposition;
use super::family::families;
use headpond_api::answers::Status;
use headpond_api::word;
use headpond_block::UtcTime;
use headpond_raid::{ArrayStatus, LastScrub, Level, ScrubState};
use headpond_volume::{BackgroundStatus, CACHE_COPIES, JobKind, JobStatus, VolumeCounts};

pub const MEMBERS: super::family::Group = members::GROUP;

families! { "Arrays and background work":
    STATE = Gauge "headpond_array_state" ["core", "state"]
        "1 for the present state: `optimal`, `degraded`, `failed`. `core` is `[cache]` for the \
         copies of a mirrored cache.";
    MEMBERS_IN = Gauge "headpond_array_members" ["core", "state"]
        "Members: `active`, `failed`, `missing`, `rebuilding`.";
    SPARES = Gauge "headpond_array_spares" ["core"]
        "Hot spares, and free slots of distributed spare space.";
    SYNCED = Gauge "headpond_array_initial_sync_done" ["core"]
        "1 if the initial sync is complete.";
    SUSPECT = Gauge "headpond_array_suspect_parity_bytes" ["core"]
        "Data beside which parity is suspect after an unclean shutdown.";
    LOST = Gauge "headpond_array_lost_bytes" ["core"]
        "Data that reads as errors until it is written again.";
    SIGNED = Gauge "headpond_array_checksummed_ratio" ["core"]
        "Share of the array that has checksums (`--integrity`).";
    WRITES = Counter "headpond_array_writes_total" ["core", "plan"]
        "Writes: `full_stripe`, `reconstruct`, `read_modify_write`, `data_only`.";
    MERGED = Counter "headpond_array_merged_writes_total" ["core"]
        "Writes that were merged into another one.";
    RECONSTRUCTED = Counter "headpond_array_reconstructed_reads_total" ["core"]
        "Reads that were reconstructed.";
    REWRITTEN = Counter "headpond_array_rewritten_strips_total" ["core"]
        "Strips that were rewritten after a read error.";
    EVICTED = Counter "headpond_array_failed_members_total" ["core"]
        "Members that were failed after a timeout.";
    INTENT_PAGES = Counter "headpond_array_intent_pages_total" ["core"]
        "Pages of the intent bitmap that were written.";
    JOURNAL = Gauge "headpond_journal_usable" ["core"]
        "1 if the stripe journal is in use, 0 if it failed or is missing.";
    JOURNAL_LIVE = Gauge "headpond_journal_live_bytes" ["core"]
        "Live records of the stripe journal.";
    JOURNAL_WRITES = Counter "headpond_journal_writes_total" ["core"]
        "Writes that went through the stripe journal.";
    SCRUBBED = Gauge "headpond_array_last_scrub_timestamp_seconds" ["core"]
        "End of the last scrub; 0 if none is known, and while the next one is in progress.";
    SCRUB_REPAIRED = Gauge "headpond_array_last_scrub_repaired_bytes" ["core"]
        "Mismatches that it, or the one in progress, has repaired.";
    SCRUB_UNEXPLAINED = Gauge "headpond_array_last_scrub_unexplained_bytes" ["core"]
        "Mismatches that it could not locate, until they are cleared.";
    SCRUB_UNREADABLE = Gauge "headpond_array_last_scrub_unreadable_stripes" ["core"]
        "Stripes that it could neither read nor reconstruct, likewise.";
    PAUSED = Gauge "headpond_background_paused" ["core"]
        "1 if background work on the array is paused.";
    BROKEN_OFF = Gauge "headpond_background_failed" ["core"]
        "1 if such work ended before its end, until `headpond array resume`.";
    JOB_DONE = Gauge "headpond_job_done_bytes" ["core", "work"]
        "Of a job in progress, what is done: `rebuild`, `stand_in`, `parity`, `array_scrub`, \
         `reshape`, and of the cache `cleaning`, `scrubbing`.";
    JOB_TOTAL = Gauge "headpond_job_bytes" ["core", "work"]
        "All of it.";
    JOB_RATIO = Gauge "headpond_job_done_ratio" ["core", "work"]
        "The share of it that is done.";
    JOB_TIME = Gauge "headpond_job_elapsed_seconds" ["core", "work"]
        "Time since it began, or went on.";
}

const STATES: [&str; 3] = ["optimal", "degraded", "failed"];
const SECTOR_BYTES: u64 = 512;
const BLOCK_BYTES: u64 = headpond_block::BLOCK_BYTES;

pub fn add(out: &mut Exposition, status: &Status, counts: Option<&VolumeCounts>) {
    for core in &status.cores {
        if let Some(array) = &core.array {
            add_array(out, &core.name, array);
        }
        core.background.iter().for_each(|it| add_background(out, &core.name, it));
    }
    let mirror = status.live_cache().and_then(|cache| cache.mirror.as_ref());
    if let Some(mirror) = mirror {
        add_array(out, CACHE_COPIES, &mirror.array);
        add_background(out, CACHE_COPIES, &mirror.background);
    }
    let first = &status.cores[0].name;
    status.jobs.iter().for_each(|job| add_job(out, first, job));
    let devices = counts.iter().flat_map(|counts| &counts.devices);
    devices.for_each(|device| members::add_errors(out, first, device));
}

fn add_array(out: &mut Exposition, core: &str, array: &ArrayStatus) {
    let of = &[core][..];
    out.add_state(&STATE, of, &STATES, &word(array.state));
    let free = array.declustered.map_or(0, |it| u64::from(it.spares_free));
    out.add(&SPARES, of, array.spares.len() as u64 + free);
    out.add(&SYNCED, of, array.parity_initialised);
    out.add(&SUSPECT, of, array.suspect_parity_blocks * BLOCK_BYTES);
    out.add(&LOST, of, array.lost.bytes);
    if let Some(signed) = &array.integrity {
        out.add(&SIGNED, of, signed.regions_signed as f64 / signed.regions.max(1) as f64);
    }
    let counts = &array.counts;
    for (plan, writes) in [
        ("full_stripe", counts.full_stripe_writes),
        ("reconstruct", counts.reconstruct_writes),
        ("read_modify_write", counts.read_modify_writes),
        ("data_only", counts.data_only_writes),
    ] {
        out.add(&WRITES, &[core, plan], writes);
    }
    out.add(&MERGED, of, counts.merged_writes);
    out.add(&RECONSTRUCTED, of, counts.reconstructed_reads);
    out.add(&REWRITTEN, of, counts.rewritten_strips);
    out.add(&EVICTED, of, counts.evictions);
    out.add(&INTENT_PAGES, of, counts.intent_pages);
    if let Some(journal) = &array.journal {
        out.add(&JOURNAL, of, journal.device.is_some());
        out.add(&JOURNAL_LIVE, of, journal.live_bytes);
        out.add(&JOURNAL_WRITES, of, journal.writes);
    }
    if array.level != Level::Raid0 {
        add_scrub(out, core, array.last_scrub.as_ref());
    }
    for state in members::STATES {
        let is_in = |member: &&_| members::state(member) == state;
        out.add(&MEMBERS_IN, &[core, state], array.members.iter().filter(is_in).count());
    }
    array.members.iter().for_each(|member| members::add(out, core, member));
}

fn add_scrub(out: &mut Exposition, core: &str, scrub: Option<&LastScrub>) {
    let of = &[core][..];
    let complete = scrub.filter(|scrub| scrub.state == ScrubState::Complete);
    let ended_at = complete.and_then(|scrub| scrub.ended_at);
    let ended_s = ended_at.map_or(0, |at| at.seconds_since(UtcTime::from_unix_s(0)));
    out.add(&SCRUBBED, of, ended_s);
    let Some(scrub) = scrub else { return };
    out.add(&SCRUB_REPAIRED, of, scrub.report.corrected_sectors * SECTOR_BYTES);
    let is_open = u64::from(!scrub.is_cleared);
    let unexplained = scrub.report.unexplained_sectors * SECTOR_BYTES;
    out.add(&SCRUB_UNEXPLAINED, of, unexplained * is_open);
    out.add(&SCRUB_UNREADABLE, of, scrub.report.unreadable_stripes * is_open);
}

fn add_background(out: &mut Exposition, core: &str, background: &BackgroundStatus) {
    out.add(&PAUSED, &[core], background.paused);
    out.add(&BROKEN_OFF, &[core], background.failure.is_some());
}

fn add_job(out: &mut Exposition, first: &str, job: &JobStatus) {
    let core = match (job.job, &job.core) {
        (JobKind::Cleaning | JobKind::Scrubbing, None) => "",
        (_, None) => first,
        (_, Some(core)) => core,
    };
    let word = word(job.job);
    let of = &[core, &*word][..];
    out.add(&JOB_DONE, of, job.done_bytes);
    out.add(&JOB_TOTAL, of, job.total_bytes);
    let done_bytes = job.done_bytes.min(job.total_bytes);
    out.add(&JOB_RATIO, of, done_bytes as f64 / job.total_bytes.max(1) as f64);
    out.add(&JOB_TIME, of, job.elapsed_s);
}
