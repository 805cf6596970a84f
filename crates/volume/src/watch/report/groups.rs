//! The four groups of `casadm --stats`.
//!
//! **Source**: Open CAS Linux, "Administration guide", statistics: rows, units, and what each
//! percentage is a share of.

use headpond_block::BLOCK_BYTES;
use headpond_cache::{
    BypassStats, ClassUsage, ErrorStats, PartTraffic, RequestStats, SliceStats, Traffic,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

const BLOCKS: &str = "4KiB Blocks";
const REQUESTS: &str = "Requests";

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    pub name: Cow<'static, str>,
    pub count: u64,
    pub percent: f64,
    pub unit: Cow<'static, str>,
}

impl Row {
    /// A part of something, with its share.
    pub fn part(name: &'static str, count: u64, whole: u64, unit: &'static str) -> Self {
        let percent = count as f64 * 100.0 / whole.max(1) as f64;
        Self { name: name.into(), count, percent, unit: unit.into() }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Groups {
    pub usage: Vec<Row>,
    pub requests: Vec<Row>,
    pub blocks: Vec<Row>,
    pub errors: Vec<Row>,
}

/// Added up over the slices.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    capacity_bytes: u64,
    clean_bytes: u64,
    /// With what the core has, but has not flushed.
    dirty_bytes: u64,
    resident_bytes_max: u64,
    pub read: RequestStats,
    pub write: RequestStats,
    pub bypass: BypassStats,
    pub traffic: Traffic,
    errors: ErrorStats,
}

impl Sums {
    pub fn of(slices: &[SliceStats]) -> Self {
        let mut sums = Self::default();
        for slice in slices {
            sums.capacity_bytes += slice.capacity_bytes;
            sums.clean_bytes += slice.clean_bytes;
            sums.dirty_bytes += slice.dirty_bytes + slice.written_bytes;
            sums.resident_bytes_max += slice.eviction.resident_bytes_max;
            sums.read += slice.counters.read;
            sums.write += slice.counters.write;
            sums.bypass += slice.counters.bypass;
            sums.traffic += slice.counters.traffic;
            sums.errors += slice.counters.errors;
        }
        sums
    }

    /// By all of it, what the log needs for itself as well.
    fn moved(&self) -> PartTraffic {
        let Traffic { cache, core } = self.traffic;
        let (core_read, core_written) = (core.read(), core.written());
        // Memory that is looked at is read, though nothing is asked of a device.
        let (cache_read, cache_written) = (cache.read() + cache.lent, cache.written());
        PartTraffic { core_read, core_written, cache_read, cache_written }
    }
}

impl Groups {
    pub(super) fn of(sums: &Sums) -> Self {
        Self {
            usage: usage(sums),
            requests: requests(sums.read, sums.write),
            blocks: blocks(sums.moved(), [sums.read.bytes, sums.write.bytes]),
            errors: errors(&sums.errors),
        }
    }
}

fn usage(sums: &Sums) -> Vec<Row> {
    let (clean, dirty) = (sums.clean_bytes / BLOCK_BYTES, sums.dirty_bytes / BLOCK_BYTES);
    let (all, occupied) = (sums.capacity_bytes / BLOCK_BYTES, clean + dirty);
    vec![
        Row::part("Occupancy", occupied, all, BLOCKS),
        Row::part("Free", all.saturating_sub(occupied), all, BLOCKS),
        Row::part("Clean", clean, occupied, BLOCKS),
        Row::part("Dirty", dirty, occupied, BLOCKS),
    ]
}

/// Of one core: what is free is of none.
pub(super) fn core_usage(sums: &Sums, usage: ClassUsage) -> Vec<Row> {
    let occupied = usage.occupied_blocks();
    vec![
        Row::part("Occupancy", occupied, sums.capacity_bytes / BLOCK_BYTES, BLOCKS),
        Row::part("Clean", usage.clean_blocks, occupied, BLOCKS),
        Row::part("Dirty", usage.dirty_blocks, occupied, BLOCKS),
    ]
}

/// Of one class: of what is resident it may hold its share.
pub(super) fn class_usage(sums: &Sums, usage: ClassUsage) -> Vec<Row> {
    let occupied = usage.occupied_blocks();
    let most = sums.resident_bytes_max / BLOCK_BYTES;
    vec![
        Row::part("Occupancy", occupied, sums.capacity_bytes / BLOCK_BYTES, BLOCKS),
        Row::part("Clean", usage.clean_blocks, occupied, BLOCKS),
        Row::part("Dirty", usage.dirty_blocks, occupied, BLOCKS),
        Row::part("Resident", usage.resident_blocks, most, BLOCKS),
    ]
}

pub(super) fn requests(read: RequestStats, write: RequestStats) -> Vec<Row> {
    let all = read.requests + write.requests;
    let row = |name, count| Row::part(name, count, all, REQUESTS);
    vec![
        row("Read hits", read.hits),
        row("Read partial misses", read.partial_hits),
        row("Read full misses", read.misses),
        row("Read total", read.serviced()),
        row("Write hits", write.hits),
        row("Write partial misses", write.partial_hits),
        row("Write full misses", write.misses),
        row("Write total", write.serviced()),
        row("Pass-Through reads", read.pass_through),
        row("Pass-Through writes", write.pass_through),
        row("Serviced requests", read.serviced() + write.serviced()),
        row("Total requests", all),
    ]
}

/// What goes to and from the devices, and what clients asked for.
pub(super) fn blocks(moved: PartTraffic, [read, written]: [u64; 2]) -> Vec<Row> {
    let PartTraffic { core_read, core_written, cache_read, cache_written } = moved;
    let mut rows = pair(
        ["Reads from core(s)", "Writes to core(s)", "Total to/from core(s)"],
        [core_read, core_written],
    );
    rows.extend(pair(
        ["Reads from cache", "Writes to cache", "Total to/from cache"],
        [cache_read, cache_written],
    ));
    rows.extend(exported(read, written));
    rows
}

pub(super) fn exported(read: u64, written: u64) -> Vec<Row> {
    let names = [
        "Reads from exported object(s)",
        "Writes to exported object(s)",
        "Total to/from exported object(s)",
    ];
    pair(names, [read, written])
}

/// What goes to and from one device, in bytes, and the sum of it.
fn pair(names: [&'static str; 3], bytes: [u64; 2]) -> Vec<Row> {
    let [read, written] = bytes.map(|bytes| bytes / BLOCK_BYTES);
    let total = read + written;
    let counts = [read, written, total];
    names
        .into_iter()
        .zip(counts)
        .map(|(name, count)| Row::part(name, count, total, BLOCKS))
        .collect()
}

pub(super) fn errors(errors: &ErrorStats) -> Vec<Row> {
    let ErrorStats { cache_read, cache_write, cache_checksum, .. } = *errors;
    let ErrorStats { core_read, core_write, core_flush, .. } = *errors;
    let (cache_read, core_write) = (cache_read + cache_checksum, core_write + core_flush);
    let (cache, core) = (cache_read + cache_write, core_read + core_write);
    let row = |name, count| Row::part(name, count, cache + core, REQUESTS);
    vec![
        row("Cache read errors", cache_read),
        row("Cache write errors", cache_write),
        row("Cache total errors", cache),
        row("Core read errors", core_read),
        row("Core write errors", core_write),
        row("Core total errors", core),
        row("Total errors", cache + core),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_shares_of_what_casadm_takes_them_of() {
        let read =
            RequestStats { requests: 8, hits: 5, misses: 1, pass_through: 2, ..Default::default() };
        let write = RequestStats { requests: 2, partial_hits: 2, ..Default::default() };
        let (capacity_bytes, clean_bytes, dirty_bytes) = (400 << 20, 60 << 20, 40 << 20);
        let sums =
            Sums { capacity_bytes, clean_bytes, dirty_bytes, read, write, ..Sums::default() };
        let groups = Groups::of(&sums);
        let percent = |rows: &[Row], name| {
            rows.iter().find(|row| row.name == name).expect("a row of this name").percent
        };
        assert_eq!(percent(&groups.usage, "Occupancy"), 25.0);
        assert_eq!(percent(&groups.usage, "Free"), 75.0);
        assert_eq!(percent(&groups.usage, "Dirty"), 40.0);
        assert_eq!(percent(&groups.requests, "Read hits"), 50.0);
        assert_eq!(percent(&groups.requests, "Serviced requests"), 80.0);
        assert_eq!(percent(&groups.requests, "Total requests"), 100.0);
    }
}
