//! What an array of such drives would be: capacity, speed, rebuild, safety.
//!
//! 1. [`DriveFigures::find`] says what one drive does; 2. a [`Shape`] says how many of them
//!    form which array; 3. [`Plan::of`] applies the formulas; 4. [`array_experiments`] asks the
//!    simulator the same, and [`rebuild_times`] has it rebuild.
//!
//! **Invariants**: formulas see figures of one drive and the layout, never a simulated array; the
//! simulator sees the drive's model, never its figures.

mod accesses;
mod cached;
mod drive;
mod lone;
mod loss;
mod measure;
mod measure_cached;
mod rebuild;
mod speed;
mod striping;

pub use accesses::Accesses;
pub use cached::{CachedSpeeds, InFront};
pub use drive::{DriveError, DriveFigures};
pub use loss::{CachedSafety, Repair, RepairFrom, Safety};
pub use measure::{Simulated, array_experiments, array_speeds};
pub use measure_cached::{
    SIMULATED_CACHE_BYTES_MAX, cached_count, cached_experiments, cached_speeds,
};
pub use rebuild::{RebuildError, RebuildTimes, rebuild_times};
pub use speed::{AtDepth, Expected, Speeds};
pub use striping::{Different, Outlook, outlook, outlooks};

use crate::condition::Condition;
use headpond_raid::superblock::DATA_OFFSET_MIN;
use headpond_raid::{Layout, LayoutError, Level, Spread};
use headpond_volume::BackgroundRate;
use serde::Serialize;
use std::fmt;

/// An array, without its drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shape {
    pub level: Level,
    pub members: u16,
    pub groups: u16,
    /// Stripes narrower than the array, and distributed spares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    pub strip_bytes: u32,
}

/// The 40 drives of the published tables in four groups of 8+2, and the same drives declustered,
/// with two distributed spares.
pub const PRESET_40: [Shape; 2] = [
    Shape { level: Level::Raid60, members: 40, groups: 4, spread: None, strip_bytes: 64 << 10 },
    Shape {
        level: Level::Raid6,
        members: 40,
        groups: 1,
        spread: Some(Spread { width: 10, spares: 2 }),
        strip_bytes: 64 << 10,
    },
];

/// What the planner cannot know.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Assumptions {
    /// Requests in flight that are looked at.
    pub depths: Vec<u32>,
    /// Between what a rebuild goes: bytes a second of a drive.
    pub pace: BackgroundRate,
    /// Until a failed drive is replaced; 0 with a spare in place.
    pub replace_hours: f64,
    /// What is in front, if there is something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<InFront>,
}

/// What is expected of an array.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    #[serde(flatten)]
    pub shape: Shape,
    pub capacity_bytes: u64,
    /// Of what the drives hold.
    pub usable_share: f64,
    /// Drives that each group may lose.
    pub redundancy: usize,
    /// In every condition that the level has; healthy first.
    pub expected: Vec<Expected>,
    /// With nothing else to do, and at the floor of the pace: what it takes where requests feel it
    /// all the time. It goes faster where they hardly do.
    pub rebuild_idle_hours: Option<f64>,
    pub rebuild_floor_hours: Option<f64>,
    /// The same onto distributed spares, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread_rebuild_idle_hours: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread_rebuild_floor_hours: Option<f64>,
    /// Where every rebuild goes at the floor.
    pub safety: Safety,
    /// Where no rebuild has anything else to do.
    pub safety_idle: Safety,
    /// Behind a cache that writes through, that writes back on one device, and on two with the same
    /// contents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub safety_with_cache: Vec<CachedSafety>,
    /// Healthy, behind a write-back cache.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub behind_cache: Vec<CachedSpeeds>,
}

/// An array that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{source}; {fitting}")]
pub struct ShapeError {
    source: LayoutError,
    /// What would do.
    fitting: String,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Spread { width, spares }) = self.spread {
            let parity = u16::from(self.level.parity());
            let (level, data, members) = (self.level, width - parity, self.members);
            return write!(f, "{level} {data}+{parity}/{members}, {spares} spares");
        }
        match self.groups {
            1 => write!(f, "{}", self.level),
            groups => write!(f, "{} {}x{}", self.level, groups, self.members / groups),
        }
    }
}

impl Shape {
    fn layout(self, drive_bytes: u64) -> Result<Layout, ShapeError> {
        let bytes = drive_bytes.saturating_sub(DATA_OFFSET_MIN);
        let (members, groups) = (usize::from(self.members), usize::from(self.groups));
        let layout = match self.spread {
            None => Layout::new(self.level, members, groups, self.strip_bytes, bytes),
            Some(spread) => {
                Layout::decluster(self.level, members, spread, (self.strip_bytes, bytes)).and_then(
                    |it| Layout::declustered(self.level, members, &it, self.strip_bytes, bytes),
                )
            }
        };
        layout.map_err(|source| ShapeError { fitting: self.fitting(&source), source })
    }

    /// The nearest numbers of members that fit, where it is they that do not.
    fn fitting(self, error: &LayoutError) -> String {
        if matches!(error, LayoutError::Strip(_) | LayoutError::MemberTooSmall { .. }) {
            return "--strip 64K fits all but the smallest drives".to_owned();
        }
        if self.spread.is_some() {
            return "--width 10 --distributed-spares 2 fits --level 6 of 12 and more".to_owned();
        }
        let level = self.level;
        let given = if level.has_groups() { self.groups } else { 1 };
        // Groups that nobody chose are chosen again.
        let is_usual = self.groups == level.usual_groups(self.members);
        let groups = |members| if is_usual { level.usual_groups(members) } else { given };
        let fits = |members: &u16| {
            let groups = usize::from(groups(*members));
            Layout::new(level, usize::from(*members), groups, 4096, 1 << 30).is_ok()
        };
        let below = (1..self.members).rev().find(fits);
        let above = (self.members..=255).find(fits);
        let known: Vec<String> =
            [below, above].into_iter().flatten().map(|it| it.to_string()).collect();
        match known.is_empty() {
            true => format!("no number of members fits {level} in {given} groups"),
            false if is_usual => format!("{level} fits --members {}", known.join(" or ")),
            false => {
                format!("{level} fits --members {} with --groups {given}", known.join(" or "))
            }
        }
    }
}

impl Plan {
    /// Applies the formulas.
    ///
    /// # Errors
    /// Where the level does not allow the shape; the error says what it does.
    pub fn of(drive: &DriveFigures, shape: Shape, given: &Assumptions) -> Result<Self, ShapeError> {
        let layout = shape.layout(drive.capacity_bytes)?;
        let is_redundant = layout.redundancy() > 0;
        let bytes = drive.capacity_bytes as f64;
        let Span { idle, floor } = given.span(drive.copy_hours(), bytes);
        let spread = loss::spread_rebuild_hours(drive, &layout);
        let spread = spread.map(|hours| given.span(hours, loss::spread_bytes(drive, &layout)));
        let raw = drive.capacity_bytes * u64::from(shape.members);
        let share = given.rebuild_share(drive);
        let expected = Expected::of_each(drive, &layout, &given.depths, share);
        let repairs = match spread {
            // Spare space waits for nobody who brings a drive.
            Some(span) => Repairs::of(span, RepairFrom::Formula, 0.0),
            None => Repairs::of(Span { idle, floor }, RepairFrom::Formula, given.replace_hours),
        };
        let Safeties { busy, idle: safety_idle, with_cache } =
            Safeties::of(drive, &layout, repairs, given);
        Ok(Self {
            shape,
            capacity_bytes: layout.array_bytes(),
            usable_share: layout.array_bytes() as f64 / raw as f64,
            redundancy: layout.redundancy(),
            behind_cache: behind_cache(drive, &layout, given, &expected[0]),
            expected,
            rebuild_idle_hours: is_redundant.then_some(idle),
            rebuild_floor_hours: is_redundant.then_some(floor),
            spread_rebuild_idle_hours: spread.map(|it| it.idle),
            spread_rebuild_floor_hours: spread.map(|it| it.floor),
            safety: busy,
            safety_idle,
            safety_with_cache: with_cache,
        })
    }

    /// The same with what a simulated rebuild takes in place of the formula's time, as far as it
    /// says how long an array lacks a member.
    ///
    /// # Errors
    /// As [`Plan::of`].
    pub fn with_rebuild(
        self,
        drive: &DriveFigures,
        times: &RebuildTimes,
        given: &Assumptions,
    ) -> Result<Self, ShapeError> {
        if self.redundancy == 0 {
            return Ok(self);
        }
        let layout = self.shape.layout(drive.capacity_bytes)?;
        let repairs = match times.distributed_s {
            Some(seconds) => {
                let hours = times.whole_hours(drive, seconds);
                let span = given.span(hours, loss::spread_bytes(drive, &layout));
                Repairs::of(span, RepairFrom::Simulation, 0.0)
            }
            None => {
                let hours = times.whole_hours(drive, times.dedicated_s);
                let span = given.span(hours, drive.capacity_bytes as f64);
                Repairs::of(span, RepairFrom::Simulation, given.replace_hours)
            }
        };
        let Safeties { busy, idle, with_cache } = Safeties::of(drive, &layout, repairs, given);
        Ok(Self { safety: busy, safety_idle: idle, safety_with_cache: with_cache, ..self })
    }

    /// What is expected in a condition, where the level has it.
    pub fn when(&self, condition: Condition) -> Option<&Expected> {
        self.expected.iter().find(|it| it.condition == condition)
    }
}

/// Hours of a rebuild.
#[derive(Clone, Copy)]
struct Span {
    /// With nothing else to do.
    idle: f64,
    /// Where it is felt all the time.
    floor: f64,
}

/// How long an array lacks a member, at best and at worst.
struct Repairs {
    idle: Repair,
    busy: Repair,
}

struct Safeties {
    busy: Safety,
    idle: Safety,
    /// Of the former.
    with_cache: Vec<CachedSafety>,
}

/// Bytes that a rebuild beside requests reads or writes in one go.
const STEP_BYTES: f64 = (1 << 20) as f64;

impl Assumptions {
    /// Hours of a rebuild that takes `hours` with nothing in the way, and in which a drive reads or
    /// writes so many bytes.
    fn span(&self, hours: f64, bytes: f64) -> Span {
        let at = |rate: u64| bytes / rate.max(1) as f64 / 3600.0;
        let idle = self.pace.max.map_or(hours, |ceiling| hours.max(at(ceiling.bytes())));
        Span { idle, floor: idle.max(at(self.pace.min.bytes())) }
    }

    /// Of the drives' time, what a rebuild at the floor takes: for the bytes, and for coming to
    /// them out of a full queue.
    pub fn rebuild_share(&self, drive: &DriveFigures) -> f64 {
        let copied_per_s = drive.capacity_bytes as f64 / (drive.copy_hours() * 3600.0);
        let step_s = STEP_BYTES / copied_per_s + 1.0 / drive.random_read_iops;
        (self.pace.min.bytes() as f64 / STEP_BYTES * step_s).min(1.0)
    }
}

impl Repairs {
    fn of(span: Span, from: RepairFrom, replace_hours: f64) -> Self {
        let of = |hours, repair_from| Repair { repair_hours: replace_hours + hours, repair_from };
        let busy_from = if span.floor > span.idle { RepairFrom::Floor } else { from };
        Self { idle: of(span.idle, from), busy: of(span.floor, busy_from) }
    }
}

impl Safeties {
    fn of(drive: &DriveFigures, layout: &Layout, repairs: Repairs, given: &Assumptions) -> Self {
        let [busy, idle] =
            [repairs.busy, repairs.idle].map(|repair| loss::safety(drive, layout, repair));
        let behind = |cache| loss::behind_caches(&busy, cache, given.replace_hours);
        Self { busy, idle, with_cache: given.cache.iter().flat_map(behind).collect() }
    }
}

fn behind_cache(
    drive: &DriveFigures,
    layout: &Layout,
    given: &Assumptions,
    healthy: &Expected,
) -> Vec<CachedSpeeds> {
    let Some(cache) = &given.cache else { return Vec::new() };
    let alone = &Expected::of_each(drive, layout, &[1], given.rebuild_share(drive))[0];
    cached::expected(cache, healthy.full, alone.by_depth[0].speeds, &healthy.by_depth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_volume::Size;

    fn given() -> Assumptions {
        Assumptions {
            depths: vec![1, 32],
            pace: BackgroundRate::default(),
            replace_hours: 24.0,
            cache: None,
        }
    }

    fn shape(level: Level, members: u16, groups: u16) -> Shape {
        Shape { level, members, groups, spread: None, strip_bytes: 64 << 10 }
    }

    #[test]
    fn the_same_drives_are_rebuilt_sooner_when_all_of_them_take_part() {
        let drive = DriveFigures::find("hdd-14t").unwrap();
        let [grouped, spread] = PRESET_40.map(|it| Plan::of(&drive, it, &given()).unwrap());
        let (dedicated, distributed) =
            (grouped.rebuild_idle_hours.unwrap(), spread.spread_rebuild_idle_hours.unwrap());
        // Of 38 parts in 40, each of 39 drives reads 8 and writes 1.
        let ratio = 39.0 / 9.0 * 40.0 / 38.0;
        assert!((dedicated / distributed / ratio - 1.0).abs() < 1e-9, "{dedicated} {distributed}");
        assert_eq!(spread.safety_idle.repair.repair_hours, distributed);
        // Of each of the others: what a volume calls its pace.
        let floor = drive.capacity_bytes as f64 * 38.0 / 40.0 * 10.0 / 39.0 / 10_485_760.0 / 3600.0;
        let busy = spread.safety.repair;
        assert!((busy.repair_hours / floor - 1.0).abs() < 1e-9, "{busy:?} {floor}");
        assert_eq!(busy.repair_from, RepairFrom::Floor);
        assert_eq!(grouped.spread_rebuild_idle_hours, None);
        let share = 38.0 / 40.0 * 8.0 / 10.0;
        assert!((spread.usable_share / share - 1.0).abs() < 1e-3, "{}", spread.usable_share);
        assert_eq!(spread.shape.to_string(), "RAID 6 8+2/40, 2 spares");
    }

    #[test]
    fn spread_over_no_more_than_its_strips_a_stripe_is_a_group() {
        let drive = DriveFigures::find("hdd-14t").unwrap();
        let plain = shape(Level::Raid6, 10, 1);
        let spread = Shape { spread: Some(Spread { width: 10, spares: 0 }), ..plain };
        let [plain, spread] = [plain, spread].map(|it| Plan::of(&drive, it, &given()).unwrap());
        assert_eq!(plain.safety, spread.safety);
        for (plain, spread) in plain.expected.iter().zip(&spread.expected) {
            let of = |it: &Expected| {
                [it.full, it.by_depth[0].speeds]
                    .map(|it| (it.random_read_iops, it.random_write_iops))
            };
            for ((reads, writes), (same_reads, same_writes)) in
                of(plain).into_iter().zip(of(spread))
            {
                assert!((reads / same_reads - 1.0).abs() < 1e-9, "{plain:?} {spread:?}");
                assert!((writes / same_writes - 1.0).abs() < 1e-9, "{plain:?} {spread:?}");
            }
        }
    }

    #[test]
    fn a_simulated_rebuild_says_how_long_an_array_lacks_a_member() {
        let drive = DriveFigures::find("hdd-14t").unwrap();
        let [grouped, spread] = PRESET_40.map(|it| Plan::of(&drive, it, &given()).unwrap());
        let drive_bytes = drive.capacity_bytes / 1000;
        let times = |dedicated_s, distributed_s| RebuildTimes {
            drive_bytes,
            dedicated_s,
            distributed_s,
            rebalance_s: None,
        };
        // A thousandth in 36 s at the outer edge is the whole in 10 h / 0.7425 in the mean.
        let hours = 10.0 / ((1.0 + drive.inner_share) / 2.0);
        let (formula, busy) = (spread.safety_idle, spread.safety);
        let spread = spread.with_rebuild(&drive, &times(50.0, Some(36.0)), &given()).unwrap();
        let simulated = spread.safety_idle;
        let repair = simulated.repair;
        assert!((repair.repair_hours / hours - 1.0).abs() < 1e-3, "{repair:?}");
        assert_eq!(repair.repair_from, RepairFrom::Simulation);
        assert_eq!(formula.repair.repair_from, RepairFrom::Formula);
        let ratio = (repair.repair_hours / formula.repair.repair_hours).powi(2);
        let lost = formula.mttdl_of_whole_drives_years / simulated.mttdl_of_whole_drives_years;
        assert!((lost / ratio - 1.0).abs() < 0.05, "{lost} {ratio}");
        assert_eq!(spread.safety, busy, "the floor is what it was");
        let grouped = grouped.with_rebuild(&drive, &times(36.0, None), &given()).unwrap();
        let waits = grouped.safety_idle.repair.repair_hours - 24.0;
        assert!((waits / hours - 1.0).abs() < 1e-3, "{waits}");
    }

    #[test]
    fn members_that_do_not_fit_are_answered_with_those_that_do() {
        let drive = DriveFigures::find("hdd-14t").unwrap();
        let error = |shape| Plan::of(&drive, shape, &given()).unwrap_err().to_string();
        let told = error(shape(Level::Raid6, 3, 1));
        assert!(told.contains("at least 4") && told.ends_with("fits --members 4"), "{told}");
        let told = error(shape(Level::Raid60, 14, 3));
        assert!(told.contains("--members 12 or 15 with --groups 3"), "{told}");
        let mirrors = shape(Level::Raid10, 5, Level::Raid10.usual_groups(5));
        assert!(error(mirrors).ends_with("RAID 10 fits --members 4 or 6"), "mirrors of two");
        let told = error(shape(Level::Raid6, 12, 2));
        assert!(told.contains("one group") && told.contains("--groups 1"), "{told}");
        let told = error(Shape { strip_bytes: 3000, ..shape(Level::Raid5, 4, 1) });
        assert!(told.contains("power of two") && told.contains("--strip 64K"), "{told}");
    }

    #[test]
    fn a_rebuild_beside_clients_has_its_floor_and_no_more_of_the_drives_than_that() {
        let drive = DriveFigures::find("hdd-14t").unwrap();
        let plan = Plan::of(&drive, shape(Level::Raid6, 12, 1), &given()).unwrap();
        let (idle, floor) = (plan.rebuild_idle_hours.unwrap(), plan.rebuild_floor_hours.unwrap());
        assert!((idle - 14_000_519.643 / 199.0 / 3600.0).abs() < 0.05, "{idle}");
        assert!((floor - 14_000_519.643_136 / 10.485_760 / 3600.0).abs() < 0.05, "{floor}");
        assert_eq!(plan.safety.repair.repair_hours, 24.0 + floor);
        assert_eq!(plan.safety_idle.repair.repair_hours, 24.0 + idle);
        assert!(plan.safety.mttdl_years < plan.safety_idle.mttdl_years, "{plan:?}");
        let [degraded, rebuilding] = [Condition::Degraded, Condition::Rebuilding]
            .map(|it| plan.when(it).unwrap().by_depth[1].speeds.random_read_iops);
        // Ten MiB of 199 MB and ten accesses of 197.
        let share = 10.485_760 / 199.0 + 10.0 / 197.0;
        assert!((rebuilding / degraded - (1.0 - share)).abs() < 0.001, "{rebuilding} {degraded}");
        let narrow = BackgroundRate { min: Size(100 << 20), max: Some(Size(50 << 20)) };
        let narrow = Assumptions { pace: narrow, ..given() };
        let slow = Plan::of(&drive, shape(Level::Raid6, 12, 1), &narrow).unwrap();
        let at_ceiling = slow.rebuild_idle_hours.unwrap();
        assert!((at_ceiling / floor - 0.2).abs() < 1e-9, "{at_ceiling} {floor}");
        assert_eq!(slow.safety.repair, slow.safety_idle.repair, "never above the ceiling");
        assert!((plan.usable_share - 10.0 / 12.0).abs() < 1e-3);
        let plain = Plan::of(&drive, shape(Level::Raid0, 12, 1), &given()).unwrap();
        assert_eq!((plain.expected.len(), plain.rebuild_idle_hours), (1, None));
    }
}
