//! Planned arrays for a terminal: one column each.

use super::Planned;
use headpond_report::{Align, Table, count, percent, size};
use headpond_whatif::Condition;
use headpond_whatif::plan::{
    Assumptions, AtDepth, CachedSpeeds, DriveFigures, InFront, Plan, Repair, RepairFrom,
    SIMULATED_CACHE_BYTES_MAX, Safety, Speeds,
};
use headpond_whatif::reference::ExpectedCell;
use std::fmt::Write as _;

/// The whole report.
pub fn text(drive: &DriveFigures, given: &Assumptions, arrays: &[Planned]) -> String {
    let mut text = head(drive);
    for (title, table) in tables(arrays) {
        if !table.is_empty() {
            write!(text, "\n{title}\n{}", table.render()).expect("a string can be written to");
        }
    }
    text + "\n" + &notes(drive, given)
}

/// Which drive, and what it does alone.
pub fn head(drive: &DriveFigures) -> String {
    format!(
        "{}: {} ({})\nalone: {} random reads/s, {} random writes/s, {} MB/s reading, {} MB/s writing\n",
        drive.name,
        drive.description,
        drive.source,
        number(drive.random_read_iops),
        number(drive.random_write_iops),
        number(drive.sequential_read_mb_per_s),
        number(drive.sequential_write_mb_per_s),
    )
}

/// The tables with their titles; those that say nothing are empty.
pub fn tables(arrays: &[Planned]) -> Vec<(&'static str, Table)> {
    vec![
        ("What it holds", capacity(arrays)),
        ("Expected, with enough in flight for every drive", conditions(arrays)),
        ("By requests in flight", depths(arrays, Condition::Healthy)),
        ("By requests in flight, uninitialised", depths(arrays, Condition::Uninitialised)),
        ("By requests in flight, a drive lost", depths(arrays, Condition::Degraded)),
        ("By requests in flight, rebuilding", depths(arrays, Condition::Rebuilding)),
        ("Behind a write-back cache, healthy, by requests in flight", behind_cache(arrays)),
        ("When a drive fails", safety(arrays)),
    ]
}

/// What the figures rest on.
pub fn notes(drive: &DriveFigures, given: &Assumptions) -> String {
    let mut notes = format!(
        "random: 4 KiB; sequential: 1 MiB, whole stripes, outer edge. With few in flight that is \
         a bound: drives wait for each other, and partial stripes need reads (--simulate).\n\
         rebuilding: at the minimum rate of {}/s it takes {} of the drives' time, and more where \
         that hardly changes latency (simulated: at the default rates). A drive is replaced after \
         {:.0} h; a rebuild to distributed spares starts immediately.\n\
         loss: {} of such drives fail in a year, at a constant rate, and one sector in {:e} bits \
         cannot be read; it compares layouts and is no prediction (docs/array-plan.md).\n",
        size(given.pace.min.bytes()),
        percent(given.rebuild_share(drive)),
        given.replace_hours,
        share(drive.failures_per_year),
        drive.unreadable_bits,
    );
    if let Some(cache) = &given.cache {
        notes += &of_cache(cache);
    }
    notes
}

fn of_cache(cache: &InFront) -> String {
    let InFront { drive, size_bytes, hit_share } = cache;
    let mut notes = format!(
        "cache: {} of {}; hit ratio of random requests {}.\n\
         A lost write-back cache loses its dirty data: {} of such devices fail in a year. Of a \
         mirrored\ncache both must; a write-through cache loses nothing.\n",
        size(*size_bytes),
        drive.name,
        percent(*hit_share),
        share(drive.failures_per_year),
    );
    if *size_bytes > SIMULATED_CACHE_BYTES_MAX {
        let most = size(SIMULATED_CACHE_BYTES_MAX);
        notes += &format!("--simulate takes {most} of it: a larger one cleans in longer runs.\n");
    }
    notes
}

fn table(arrays: &[Planned]) -> Table {
    let names = arrays.iter().map(|array| (array.name.as_str(), Align::Right));
    Table::new([("", Align::Left)].into_iter().chain(names))
}

fn row(table: &mut Table, name: &str, arrays: &[Planned], of: impl Fn(&Planned) -> Option<String>) {
    let cells: Vec<Option<String>> = arrays.iter().map(of).collect();
    if cells.iter().any(Option::is_some) {
        let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
        table.row([name.to_owned()].into_iter().chain(cells));
    }
}

fn capacity(arrays: &[Planned]) -> Table {
    let mut table = table(arrays);
    row(&mut table, "capacity", arrays, |it| Some(size(it.plan.capacity_bytes)));
    row(&mut table, "of the drives", arrays, |it| Some(percent(it.plan.usable_share)));
    row(&mut table, "drives that a group may lose", arrays, |it| {
        Some(it.plan.redundancy.to_string())
    });
    table
}

pub type Pick = fn(Speeds) -> f64;
pub const SPEEDS: [(&str, Pick); 4] = [
    ("random read IOPS", |it| it.random_read_iops),
    ("random write IOPS", |it| it.random_write_iops),
    ("sequential read MB/s", |it| it.sequential_read_mb_per_s),
    ("sequential write MB/s", |it| it.sequential_write_mb_per_s),
];

/// Every condition with enough in flight, and what a random write takes of the drives.
fn conditions(arrays: &[Planned]) -> Table {
    let mut table = table(arrays);
    for (name, pick) in SPEEDS {
        for condition in Condition::ALL.into_iter().filter(|it| changes(*it, name)) {
            let cell = |it: &Planned| Some(number(pick(it.plan.when(condition)?.full)));
            row(&mut table, &format!("{name}{}", behind(condition)), arrays, cell);
        }
    }
    for condition in Condition::ALL.into_iter().filter(|it| *it != Condition::Rebuilding) {
        let cell = |it: &Planned| {
            let accesses = it.plan.when(condition)?.random_write_accesses;
            Some(format!("{} + {}", short(accesses.reads), short(accesses.writes)))
        };
        let name = format!("reads + writes of a random write{}", behind(condition));
        row(&mut table, &name, arrays, cell);
    }
    table
}

/// Parity that was never computed slows down small writes and nothing else.
fn changes(condition: Condition, speed: &str) -> bool {
    condition != Condition::Uninitialised || speed == "random write IOPS"
}

fn behind(condition: Condition) -> &'static str {
    match condition {
        Condition::Healthy => "",
        Condition::Uninitialised => ", uninitialised",
        Condition::Degraded => ", a drive lost",
        Condition::Rebuilding => ", rebuilding",
    }
}

/// One condition by requests in flight.
fn depths(arrays: &[Planned], condition: Condition) -> Table {
    let mut table = table(arrays);
    let expected = |it: &Planned| it.plan.when(condition).map(|it| it.by_depth.clone());
    let simulated =
        |it: &Planned| it.simulated.iter().find(|it| it.condition == condition).cloned();
    let depths = arrays.iter().find_map(expected).unwrap_or_default();
    for (at, depth) in depths.iter().map(|it| it.depth).enumerate() {
        for (name, pick) in SPEEDS.into_iter().filter(|(name, _)| changes(condition, name)) {
            let cell = |of: &AtDepth| number(pick(of.speeds));
            let name = format!("{name}, depth {depth}");
            row(&mut table, &name, arrays, |it| expected(it)?.get(at).map(cell));
            row(&mut table, "  simulated", arrays, |it| simulated(it)?.by_depth.get(at).map(cell));
        }
        let name = format!("  rebuild under random writes, depth {depth}");
        row(&mut table, &name, arrays, |it| Some(hours(*simulated(it)?.rebuild_hours.get(at)?)));
    }
    table
}

type PickCached = fn(&CachedSpeeds) -> f64;
const CACHED_SPEEDS: [(&str, PickCached); 5] = [
    ("random read IOPS", |it| it.random_read_iops),
    ("random write IOPS until it is full", |it| it.random_write_iops),
    ("random write IOPS when full", |it| it.random_write_iops_when_full),
    ("sequential read MB/s", |it| it.sequential_read_mb_per_s),
    ("sequential write MB/s", |it| it.sequential_write_mb_per_s),
];

fn behind_cache(arrays: &[Planned]) -> Table {
    let mut table = table(arrays);
    let depths = arrays.first().map(|it| it.plan.behind_cache.as_slice()).unwrap_or_default();
    for (at, depth) in depths.iter().map(|it| it.depth).enumerate() {
        for (name, pick) in CACHED_SPEEDS {
            let cell = |of: &[CachedSpeeds]| of.get(at).map(|it| number(pick(it)));
            let name = format!("{name}, depth {depth}");
            row(&mut table, &name, arrays, |it| cell(&it.plan.behind_cache));
            row(&mut table, "  simulated", arrays, |it| cell(&it.simulated_behind_cache));
        }
    }
    table
}

/// In the order of the plan.
const CACHES: [&str; 3] =
    ["write-through cache", "write-back cache on one device", "write-back cache on two devices"];

type PickSafety = fn(&Plan) -> &Safety;
const SAFETIES: [(&str, PickSafety); 2] =
    [("always busy", |it| &it.safety), ("idle", |it| &it.safety_idle)];

fn repair(Repair { repair_hours, repair_from }: Repair) -> String {
    let by = match repair_from {
        RepairFrom::Formula => "formula",
        RepairFrom::Floor => "floor",
        RepairFrom::Simulation => "simulation",
    };
    format!("{} ({by})", hours(repair_hours))
}

fn safety(arrays: &[Planned]) -> Table {
    let mut table = table(arrays);
    row(&mut table, "rebuild, idle", arrays, |it| it.plan.rebuild_idle_hours.map(hours));
    row(&mut table, "rebuild, at the minimum rate under client load", arrays, |it| {
        it.plan.rebuild_floor_hours.map(hours)
    });
    row(&mut table, "  onto distributed spares, idle", arrays, |it| {
        it.plan.spread_rebuild_idle_hours.map(hours)
    });
    row(&mut table, "  onto distributed spares, at the minimum rate", arrays, |it| {
        it.plan.spread_rebuild_floor_hours.map(hours)
    });
    let simulated = |seconds: f64| format!("{seconds:.1} s");
    row(&mut table, "  simulated, with drives truncated to", arrays, |it| {
        it.rebuilt.map(|times| size(times.drive_bytes))
    });
    row(&mut table, "    onto a drive", arrays, |it| {
        it.rebuilt.map(|times| simulated(times.dedicated_s))
    });
    row(&mut table, "    onto distributed spares", arrays, |it| {
        it.rebuilt?.distributed_s.map(simulated)
    });
    row(&mut table, "    copy back to a drive", arrays, |it| {
        it.rebuilt?.rebalance_s.map(simulated)
    });
    for (name, of) in SAFETIES {
        row(&mut table, &format!("from a failure to full redundancy, {name}"), arrays, |it| {
            (it.plan.redundancy > 0).then(|| repair(of(&it.plan).repair))
        });
    }
    row(&mut table, "probability of an unreadable sector without redundancy left", arrays, |it| {
        (it.plan.redundancy > 0).then(|| share(it.plan.safety.unreadable_while_rebuilding))
    });
    for (name, of) in SAFETIES {
        row(&mut table, &format!("mean time to data loss, {name}"), arrays, |it| {
            Some(years(of(&it.plan).mttdl_years))
        });
        row(&mut table, "  if every sector could be read", arrays, |it| {
            Some(years(of(&it.plan).mttdl_of_whole_drives_years))
        });
        row(&mut table, "  loss within a year", arrays, |it| {
            Some(share(of(&it.plan).loss_in_a_year))
        });
        row(&mut table, "  loss within five years", arrays, |it| {
            Some(share(of(&it.plan).loss_in_five_years))
        });
    }
    for (at, kind) in CACHES.into_iter().enumerate() {
        let of = |it: &Planned| it.plan.safety_with_cache.get(at).copied();
        row(&mut table, &format!("behind a {kind}"), arrays, |it| {
            of(it).map(|it| years(it.mttdl_years))
        });
        row(&mut table, "  loss within a year", arrays, |it| {
            of(it).map(|it| share(it.loss_in_a_year))
        });
        row(&mut table, "  loss within five years", arrays, |it| {
            of(it).map(|it| share(it.loss_in_five_years))
        });
    }
    table
}

/// The published expectations beside the formulas, and beside the simulator where it was asked.
pub fn reference(cells: &[ExpectedCell]) -> String {
    let left = ["metric", "array"].map(|name| (name, Align::Left));
    let right = ["published", "formula", "simulated", "of formula"];
    let mut table = Table::new(left.into_iter().chain(right.map(|name| (name, Align::Right))));
    for cell in cells {
        let simulated = |of: &dyn Fn(f64) -> String| cell.simulated.map(of).unwrap_or_default();
        table.row([
            cell.metric.clone(),
            cell.array.clone(),
            number(cell.published),
            number(cell.formula),
            simulated(&number),
            simulated(&|it| format!("{:.2}", it / cell.formula)),
        ]);
    }
    let same = cells.iter().filter(|cell| cell.formula.round() == cell.published).count();
    let all = cells.len();
    let mut text = format!("{}\n{same} of {all} cells match the formulas\n", table.render());
    let is_run = |cell: &ExpectedCell| cell.simulated.is_some();
    if cells.iter().any(is_run) && !cells.iter().all(is_run) {
        text += "not simulated: what `headpond simulate --reference` lists as not yet\n";
    }
    text
}

/// Rates: whole ones from 10 on.
fn number(rate: f64) -> String {
    if rate >= 10.0 { count(rate.round() as u64) } else { format!("{rate:.1}") }
}

/// Means of whole numbers.
fn short(mean: f64) -> String {
    if mean.fract() == 0.0 { format!("{mean:.0}") } else { format!("{mean:.1}") }
}

fn hours(hours: f64) -> String {
    format!("{hours:.1} h")
}

/// Shares that may be very small.
fn share(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        percent if percent < 0.01 => format!("{percent:.1e} %"),
        percent if percent < 1.0 => format!("{percent:.2} %"),
        percent => format!("{percent:.1} %"),
    }
}

fn years(years: f64) -> String {
    match years {
        years if years >= 1e9 => format!("{years:.1e} years"),
        years if years >= 10.0 => format!("{} years", count(years.round() as u64)),
        years => format!("{years:.1} years"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_shares_and_long_times_keep_their_digits() {
        let told = [0.0, 3.2e-9, 0.0035, 0.5].map(share);
        assert_eq!(told, ["0 %", "3.2e-7 %", "0.35 %", "50.0 %"]);
        assert_eq!([3.25, 1234.4, 2e12].map(years), ["3.2 years", "1,234 years", "2.0e12 years"]);
        assert_eq!([9.96, 533.5].map(number), ["10.0", "534"]);
    }
}
