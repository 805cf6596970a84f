//! Statistics as tables.

use crate::telling::word;
use headpond_api::answers::Stats;
use headpond_cache::{MemoryStats, SliceStats, Traffic, WayLatency};
use headpond_raid::PlanCounts;
use headpond_report::{Align, Table, count, duration, percent, size};
use headpond_volume::{CacheReport, ClassReport, CleaningReport, CoreReport, ReadaheadStats, Row};

/// Everything about a volume.
pub fn volume(stats: &Stats) -> String {
    let report = &stats.report;
    let mut out = match &report.cache {
        None => "no cache\n".to_owned(),
        Some(cache) => {
            let since = stats.counted_since.as_deref().unwrap_or("?");
            of_cache(cache, since, &report.readahead)
        }
    };
    out += &cores(&report.cores);
    out + &array_line(&report.cores[0].array)
}

fn of_cache(cache: &CacheReport, since: &str, readahead: &ReadaheadStats) -> String {
    let counted = duration((cache.counted_s * 1e9) as u64);
    let mut out = format!("counted since {since} ({counted})\n\n");
    let groups = &cache.groups;
    out += &four_tables([&groups.usage, &groups.requests, &groups.blocks, &groups.errors]);
    out += &bypasses(&cache.bypasses);
    out += &latency(&cache.latency);
    out += &device_lines(&cache.traffic, cache.write_amplification);
    out += &cleaning_line(&cache.cleaning);
    out += &readahead_line(readahead);
    out += &memory_line(&cache.slices);
    out + &recovery_line(&cache.slices)
}

/// Requests of each core, if there are several.
fn cores(cores: &[CoreReport]) -> String {
    let right = |name| (name, Align::Right);
    let mut table = Table::new([
        ("core", Align::Left),
        right("id"),
        right("reads"),
        right("hits"),
        right("read"),
        right("writes"),
        right("hits"),
        right("written"),
        right("flushes"),
        right("cached"),
        right("dirty"),
        right("errors"),
    ]);
    let counted = |rows: &[Row], name: &str| {
        let row = rows.iter().find(|row| row.name == name);
        row.map_or_else(|| "-".into(), |row| count(row.count))
    };
    for core in cores {
        table.row([
            core.name.clone(),
            count(core.id.into()),
            count(core.counts.reads),
            counted(&core.requests, "Read hits"),
            size(core.counts.read_bytes),
            count(core.counts.writes),
            counted(&core.requests, "Write hits"),
            size(core.counts.written_bytes),
            count(core.counts.flushes),
            counted(&core.usage, "Occupancy"),
            counted(&core.usage, "Dirty"),
            counted(&core.errors, "Total errors"),
        ]);
    }
    if cores.len() < 2 { String::new() } else { table.render() + "\n" }
}

/// Usage and requests of one core.
pub fn core(core: &CoreReport) -> String {
    let out = format!("core {} ({})\n\n", core.id, core.name)
        + &four_tables([&core.usage, &core.requests, &core.blocks, &core.errors]);
    out + &bypasses(&core.bypasses) + &latency(&core.latency)
}

/// Usage and requests of one class.
pub fn class(class: &ClassReport) -> String {
    let name = class.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let out = format!("class {}{name}\n\n", class.id)
        + &four_tables([&class.usage, &class.requests, &class.blocks, &class.errors]);
    out + &bypasses(&class.bypasses)
}

/// The groups in the order in which casadm prints them.
fn four_tables(groups: [&[Row]; 4]) -> String {
    let titles = ["usage", "requests", "blocks", "errors"];
    let tables = titles.into_iter().zip(groups);
    tables.map(|(title, rows)| table_of(title, rows, |_| true) + "\n").collect()
}

fn table_of(title: &str, rows: &[Row], is_shown: impl Fn(&Row) -> bool) -> String {
    let right = |name| (name, Align::Right);
    let mut table =
        Table::new([(title, Align::Left), right("count"), right("%"), ("units", Align::Left)]);
    for row in rows.iter().filter(|row| is_shown(row)) {
        let percent = format!("{:.1}", row.percent);
        table.row([row.name.replace('_', " "), count(row.count), percent, row.unit.to_string()]);
    }
    if table.is_empty() { String::new() } else { table.render() }
}

/// The reasons that there were.
fn bypasses(rows: &[Row]) -> String {
    let table = table_of("bypassed the cache, by reason", rows, |row| row.count > 0);
    if table.is_empty() { "no request bypassed the cache\n\n".into() } else { table + "\n" }
}

fn latency(ways: &[WayLatency]) -> String {
    let right = |name| (name, Align::Right);
    let mut table = Table::new([
        ("latency", Align::Left),
        right("timed"),
        right("mean"),
        right("p50"),
        right("p99"),
        right("p99.9"),
        right("max"),
    ]);
    let time = |micros: f64| duration((micros * 1000.0) as u64);
    for way in ways {
        let mark = if way.one_of > 1 { " *" } else { "" };
        table.row([
            word(way.way).replace('_', " ") + mark,
            count(way.timed),
            time(way.mean_us),
            time(way.p50_us),
            time(way.p99_us),
            time(way.p99_9_us),
            time(way.max_us),
        ]);
    }
    let is_sampled = ways.iter().any(|way| way.one_of > 1);
    let note = if is_sampled { "* one request of 32 is timed\n" } else { "" };
    if table.is_empty() { String::new() } else { table.render() + note + "\n" }
}

/// Device traffic, and the write amplification of the log.
fn device_lines(Traffic { cache, core }: &Traffic, amplification: Option<f64>) -> String {
    let amplification = match amplification {
        Some(written) => format!("{written:.2} bytes written per byte inserted"),
        None => "nothing inserted".into(),
    };
    format!(
        "cache device: {amplification}: {} data, {} completing blocks, {} relocated by reclaim, {} \
         descriptors, {} padding, {} marks, {} checkpoints; {} discarded\n\
         \x20 read: {} for requests, {} for cleaning, {} for reclaim, {} for scrubs, {} borrowed\n\
         array: {} read for requests, {} readahead; {} written by requests, {} by the cleaner\n",
        size(cache.written_data),
        size(cache.written_completions),
        size(cache.written_copies),
        size(cache.written_descriptors),
        size(cache.written_padding),
        size(cache.written_marks),
        size(cache.written_checkpoints),
        size(cache.discarded),
        size(cache.read_for_requests),
        size(cache.read_for_cleaning),
        size(cache.read_for_reclaim),
        size(cache.read_for_scrub),
        size(cache.lent),
        size(core.read_for_requests),
        size(core.read_ahead),
        size(core.written_by_requests),
        size(core.written_by_cleaning),
    )
}

fn cleaning_line(cleaning: &CleaningReport) -> String {
    format!(
        "cleaning: {} blocks, {:.0}/s now and {:.0}/s on average; {} writes of {:.1} blocks, {} of \
         them whole stripes; {} flushes; {} writes waited\n",
        count(cleaning.blocks),
        cleaning.blocks_per_s_now,
        cleaning.blocks_per_s,
        count(cleaning.writes),
        cleaning.blocks_per_write,
        percent(cleaning.full_stripe_share),
        count(cleaning.flushes),
        count(cleaning.throttled),
    )
}

fn readahead_line(readahead: &ReadaheadStats) -> String {
    if readahead.bytes == 0 {
        return String::new();
    }
    format!(
        "readahead: {} in {} pieces, {} of it used; {} times caught up by readers, {} times \
         missed, {} times skipped\n",
        size(readahead.bytes),
        count(readahead.pieces),
        percent(readahead.used_bytes as f64 / readahead.bytes as f64),
        count(readahead.caught_up),
        count(readahead.missed),
        count(readahead.left_alone),
    )
}

/// The parts of a slice's memory, of which its total is the sum, and the usage of the extent pool.
fn memory_parts(slice: &MemoryStats) -> [(u64, &'static str); 12] {
    // All fields are named, so that none is forgotten.
    let MemoryStats { map, dirty_index, segments, checksums, extent_pool, .. } = *slice;
    let MemoryStats { extents: _, extents_used: _, written_list, parts, hit_counts, .. } = *slice;
    let MemoryStats { latencies, eviction_queues, ghosts, classes, .. } = *slice;
    [
        (map, "the map"),
        (checksums, "checksums"),
        (eviction_queues, "eviction queues"),
        (extent_pool, "pool for fragmented lines"),
        (ghosts, "ghosts (evicted)"),
        (dirty_index, "dirty index"),
        (hit_counts, "hit counts"),
        (segments, "segments"),
        (written_list, "written, not yet flushed by the array"),
        (parts, "partial blocks"),
        (classes, "classes"),
        (latencies, "latencies"),
    ]
}

/// Memory of the machine used by the cache, largest first.
fn memory_line(slices: &[SliceStats]) -> String {
    let sum = |pick: fn(&MemoryStats) -> u64| slices.iter().map(|it| pick(&it.memory)).sum::<u64>();
    let total: u64 = slices.iter().map(|slice| slice.memory_bytes).sum();
    let mut parts = memory_parts(&MemoryStats::default());
    for slice in slices {
        let each = parts.iter_mut().zip(memory_parts(&slice.memory));
        each.for_each(|(sum, part)| sum.0 += part.0);
    }
    let mut parts: Vec<_> = parts.into_iter().filter(|(bytes, _)| *bytes > 0).collect();
    parts.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let mut told: Vec<String> =
        parts.iter().map(|(bytes, name)| format!("{} {name}", size(*bytes))).collect();
    let (extents, used) = (sum(|it| it.extents), sum(|it| it.extents_used));
    if extents > 0 {
        told.push(format!("{} of the pool in use", percent(used as f64 / extents as f64)));
    }
    format!("memory: {}: {}\n", size(total), told.join(", "))
}

fn recovery_line(slices: &[SliceStats]) -> String {
    match slices.iter().map(|slice| slice.replayed_blocks).sum() {
        0 => String::new(),
        blocks => format!("recovery: {} blocks replayed and not yet cleaned\n", count(blocks)),
    }
}

fn array_line(counts: &PlanCounts) -> String {
    let PlanCounts { full_stripe_writes, reconstruct_writes, read_modify_writes, .. } = *counts;
    let PlanCounts { data_only_writes, merged_writes, reconstructed_reads, .. } = *counts;
    let PlanCounts { rewritten_strips, evictions, intent_pages, .. } = *counts;
    let told = [
        (full_stripe_writes, "full stripe writes"),
        (reconstruct_writes, "reconstruct writes"),
        (read_modify_writes, "read modify writes"),
        (data_only_writes, "data only writes"),
        (merged_writes, "merged writes"),
        (reconstructed_reads, "reconstructed reads"),
        (rewritten_strips, "rewritten strips"),
        (evictions, "evictions"),
        (intent_pages, "intent pages"),
    ];
    format!(
        "array, by plan: {}\n",
        told.map(|(times, name)| format!("{} {name}", count(times))).join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_the_memory_is_told() {
        let mut fields = serde_json::to_value(MemoryStats::default()).expect("numbers");
        let numbers = fields.as_object_mut().expect("fields").values_mut();
        numbers.for_each(|number| *number = 1.into());
        let stats: MemoryStats = serde_json::from_value(fields).expect("the same fields");
        let told: u64 = memory_parts(&stats).iter().map(|(bytes, _)| bytes).sum();
        assert_eq!(told, stats.total());
    }
}
