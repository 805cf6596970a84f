//! Statistics as tables.

use super::{GROUPS, rows};
use headpond_report::{Align, Table, count, duration, percent, size};
use serde_json::Value;

/// Everything about a volume.
pub fn volume(stats: &Value) -> String {
    let mut out = String::new();
    if stats["groups"].is_null() {
        out += "no cache\n";
    } else {
        let since = stats["counted_since"].as_str().unwrap_or("?");
        let counted = duration((number(&stats["counted_s"]) * 1e9) as u64);
        out += &format!("counted since {since} ({counted})\n\n");
        for (pointer, title) in GROUPS {
            out += &table_of(title, stats.pointer(pointer).unwrap_or(&Value::Null), |_| true);
            out.push('\n');
        }
        out += &bypasses(&stats["bypasses"]);
        out += &latency(&stats["latency"]);
        out += &device_lines(stats);
        out += &cleaning_line(&stats["cleaning"]);
        out += &readahead_line(&stats["readahead"]);
        out += &memory_line(&stats["slices"]);
        out += &recovery_line(stats);
    }
    out + &cores(&stats["cores"]) + &array_line(&stats["array"])
}

/// What clients have asked of each, where there are several.
fn cores(of: &Value) -> String {
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
    for core in rows(of) {
        let counted = |group: &str, name: &str| {
            let row = rows(&core[group]).find(|row| row["name"] == name);
            row.map_or_else(|| "-".into(), |row| count(whole(&row["count"])))
        };
        table.row([
            text(&core["name"]).to_owned(),
            count(whole(&core["id"])),
            count(whole(&core["reads"])),
            counted("requests", "Read hits"),
            size(whole(&core["read_bytes"])),
            count(whole(&core["writes"])),
            counted("requests", "Write hits"),
            size(whole(&core["written_bytes"])),
            count(whole(&core["flushes"])),
            counted("usage", "Occupancy"),
            counted("usage", "Dirty"),
            counted("errors", "Total errors"),
        ]);
    }
    if rows(of).count() < 2 { String::new() } else { table.render() + "\n" }
}

/// What the cache holds of one core, and what was asked of it.
pub fn core(core: &Value) -> String {
    let mut out = format!("core {} ({})\n\n", core["id"], text(&core["name"]));
    for title in ["usage", "requests", "blocks", "errors"] {
        out += &table_of(title, &core[title], |_| true);
        out.push('\n');
    }
    out + &bypasses(&core["bypasses"]) + &latency(&core["latency"])
}

/// What one class holds, and its requests.
pub fn class(class: &Value) -> String {
    let name = class["name"].as_str().map(|name| format!(" ({name})")).unwrap_or_default();
    let mut out = format!("class {}{name}\n\n", class["id"]);
    for title in ["usage", "requests", "blocks", "errors"] {
        out += &table_of(title, &class[title], |_| true);
        out.push('\n');
    }
    out + &bypasses(&class["bypasses"])
}

fn table_of(title: &str, of: &Value, is_shown: impl Fn(&Value) -> bool) -> String {
    let right = |name| (name, Align::Right);
    let mut table =
        Table::new([(title, Align::Left), right("count"), right("%"), ("units", Align::Left)]);
    for row in rows(of).filter(|row| is_shown(row)) {
        let percent = row["percent"].as_f64().unwrap_or(0.0);
        table.row([
            text(&row["name"]).replace('_', " "),
            count(whole(&row["count"])),
            format!("{percent:.1}"),
            text(&row["unit"]).to_owned(),
        ]);
    }
    if table.is_empty() { String::new() } else { table.render() }
}

/// The reasons that there were.
fn bypasses(of: &Value) -> String {
    let table = table_of("past the cache, by reason", of, |row| whole(&row["count"]) > 0);
    if table.is_empty() { "nothing went past the cache\n\n".into() } else { table + "\n" }
}

fn latency(ways: &Value) -> String {
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
    let mut is_sampled = false;
    for way in rows(ways) {
        let time = |field: &str| duration((number(&way[field]) * 1000.0) as u64);
        let one_of = whole(&way["one_of"]);
        is_sampled |= one_of > 1;
        let mark = if one_of > 1 { " *" } else { "" };
        table.row([
            text(&way["way"]).replace('-', " ") + mark,
            count(whole(&way["timed"])),
            time("mean_us"),
            time("p50_us"),
            time("p99_us"),
            time("p99_9_us"),
            time("max_us"),
        ]);
    }
    let note = if is_sampled { "* one request of 32 is timed\n" } else { "" };
    if table.is_empty() { String::new() } else { table.render() + note + "\n" }
}

/// What goes to and from the devices, and what the log adds to it.
fn device_lines(stats: &Value) -> String {
    let bytes = |pointer: &str| size(stats.pointer(pointer).map_or(0, whole));
    let amplification = match stats["write_amplification"].as_f64() {
        Some(written) => format!("{written:.2} bytes written for each byte that entered"),
        None => "nothing entered".into(),
    };
    format!(
        "cache device: {amplification}: {} data, {} carried on by \
         reclaim, {} descriptors, {} checkpoints; {} discarded\n\
         \x20 read: {} for requests, {} for cleaning, {} for reclaim, {} for scrubs, {} lent\n\
         array: {} read for requests, {} ahead; {} written by requests, {} by the cleaner\n",
        bytes("/traffic/cache/written_data"),
        bytes("/traffic/cache/written_copies"),
        bytes("/traffic/cache/written_descriptors"),
        bytes("/traffic/cache/written_checkpoints"),
        bytes("/traffic/cache/discarded"),
        bytes("/traffic/cache/read_for_requests"),
        bytes("/traffic/cache/read_for_cleaning"),
        bytes("/traffic/cache/read_for_reclaim"),
        bytes("/traffic/cache/read_for_scrub"),
        bytes("/traffic/cache/lent"),
        bytes("/traffic/core/read_for_requests"),
        bytes("/traffic/core/read_ahead"),
        bytes("/traffic/core/written_by_requests"),
        bytes("/traffic/core/written_by_cleaning"),
    )
}

fn cleaning_line(cleaning: &Value) -> String {
    format!(
        "cleaning: {} blocks, {:.0} a second now and {:.0} on average; {} writes of {:.1} blocks, {} of \
         them whole stripes; {} flushes; {} writes waited\n",
        count(whole(&cleaning["blocks"])),
        number(&cleaning["blocks_per_s_now"]),
        number(&cleaning["blocks_per_s"]),
        count(whole(&cleaning["writes"])),
        number(&cleaning["blocks_per_write"]),
        percent(number(&cleaning["full_stripe_share"])),
        count(whole(&cleaning["flushes"])),
        count(whole(&cleaning["throttled"])),
    )
}

fn readahead_line(readahead: &Value) -> String {
    let (bytes, used) = (whole(&readahead["bytes"]), whole(&readahead["used_bytes"]));
    if bytes == 0 {
        return String::new();
    }
    format!(
        "reading ahead: {} in {} pieces, {} of it used; readers caught up {} times, missed {} times \
         and were left alone {} times\n",
        size(bytes),
        count(whole(&readahead["pieces"])),
        percent(used as f64 / bytes as f64),
        count(whole(&readahead["caught_up"])),
        count(whole(&readahead["missed"])),
        count(whole(&readahead["left_alone"])),
    )
}

/// The parts of a slice's memory, of which its total is the sum.
const MEMORY_PARTS: [(&str, &str); 12] = [
    ("map", "the map"),
    ("checksums", "checksums"),
    ("eviction_queues", "queues of eviction"),
    ("extent_pool", "the pool for scattered lines"),
    ("ghosts", "what left lately"),
    ("dirty_index", "what is dirty"),
    ("hit_counts", "hit counts"),
    ("segments", "segments"),
    ("written_list", "what the array has not flushed yet"),
    ("parts", "what was written in part, until it is whole"),
    ("classes", "classes"),
    ("latencies", "latencies"),
];

/// What the cache takes of the machine's own memory, largest first, and how full the pool is that
/// scattered lines take from.
fn memory_line(slices: &Value) -> String {
    let sum = |field: &str| -> u64 { rows(slices).map(|it| whole(&it["memory"][field])).sum() };
    let total: u64 = rows(slices).map(|slice| whole(&slice["memory_bytes"])).sum();
    let mut parts = MEMORY_PARTS.map(|(field, name)| (sum(field), name)).to_vec();
    parts.retain(|(bytes, _)| *bytes > 0);
    parts.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let mut told: Vec<String> =
        parts.iter().map(|(bytes, name)| format!("{} {name}", size(*bytes))).collect();
    let (extents, used) = (sum("extents"), sum("extents_used"));
    if extents > 0 {
        told.push(format!("{} of the pool in use", percent(used as f64 / extents as f64)));
    }
    format!("memory: {}: {}\n", size(total), told.join(", "))
}

fn recovery_line(stats: &Value) -> String {
    let replayed: u64 = rows(&stats["slices"]).map(|slice| whole(&slice["replayed_blocks"])).sum();
    if replayed == 0 {
        return String::new();
    }
    format!("recovery: {} blocks replayed and not yet cleaned\n", count(replayed))
}

fn array_line(array: &Value) -> String {
    let Some(counts) = array.as_object() else { return String::new() };
    let all = counts
        .iter()
        .map(|(name, times)| format!("{} {}", count(whole(times)), name.replace('_', " ")));
    format!("parity: {}\n", all.collect::<Vec<_>>().join(", "))
}

fn whole(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_cache::MemoryStats;
    use std::collections::BTreeSet;

    #[test]
    fn every_part_of_the_memory_is_told() {
        let stats = serde_json::to_value(MemoryStats::default()).expect("numbers");
        let counted: BTreeSet<&str> = stats
            .as_object()
            .expect("fields")
            .keys()
            .map(String::as_str)
            .filter(|field| !["extents", "extents_used"].contains(field))
            .collect();
        assert_eq!(counted, BTreeSet::from(MEMORY_PARTS.map(|(field, _)| field)));
    }
}
