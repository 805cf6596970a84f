//! What an array of such drives is expected to do.
//!
//! Every drive is as busy as every other, so an array carries out as many requests as its drives
//! together carry out accesses, divided by the accesses that one request takes. How many those are
//! is asked of the array's own write plans, over one turn of the parity rotation.
//!
//! **Source**: P. Chen, E. Lee, G. Gibson, R. Katz, D. Patterson, "RAID: High-Performance, Reliable
//! Secondary Storage", ACM Computing Surveys 26(2), 1994, section 3 (accesses of a small write: 2
//! reads + 2 writes with one parity strip, 3 + 3 with two). By depth: exact mean value analysis of
//! a balanced closed network, E. Lazowska et al., "Quantitative System Performance", 1984, section
//! 5.4; the first request takes its own time, each further one waits for its share of the drives.
//! **Not here**: the slowest of several accesses at once, splits of unaligned requests, and writes
//! that a drive's cache answers before it is full: what the simulator is for.

use super::drive::DriveFigures;
use headpond_raid::Layout;
use headpond_raid::layout::{Role, Strip, Stripe};
use headpond_raid::plan::{self, Extent, ParityTrust, StripeState};
use serde::Serialize;

/// Bytes of a random request and of a sequential one.
const BLOCK_BYTES: u32 = 4096;
pub(super) const STREAM_BYTES: u64 = 1 << 20;

/// Requests and 10^6 bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speeds {
    pub random_read_iops: f64,
    pub random_write_iops: f64,
    pub sequential_read_mb_per_s: f64,
    pub sequential_write_mb_per_s: f64,
}

/// The same with so many requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AtDepth {
    pub depth: u32,
    #[serde(flatten)]
    pub speeds: Speeds,
}

/// In which condition an array is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Healthy,
    /// Parity was never computed.
    Uninitialised,
    /// One member is gone.
    Degraded,
}

/// Accesses to drives that one small request takes, on average.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Accesses {
    reads: f64,
    writes: f64,
}

/// With so many requests in flight that every drive has enough to do.
pub(super) fn expected(drive: &DriveFigures, layout: &Layout, condition: Condition) -> Speeds {
    let (reading, writing) = (read_accesses(layout, condition), write_accesses(layout, condition));
    let serving = f64::from(serving(layout, condition));
    let filled = layout.members() - usize::from(layout.spare_slots());
    let data = filled as f64 * layout.data_strips() as f64 / layout.width() as f64;
    let streams = if layout.copies() > 1 { serving } else { data };
    Speeds {
        random_read_iops: serving / reading * drive.random_read_iops,
        random_write_iops: serving / (writing.reads + writing.writes) * mixed(drive, writing),
        sequential_read_mb_per_s: streams * drive.sequential_read_mb_per_s,
        sequential_write_mb_per_s: data * drive.sequential_write_mb_per_s,
    }
}

/// With `depth` requests in flight.
pub(super) fn at_depth(drive: &DriveFigures, layout: &Layout, depth: u32) -> AtDepth {
    let full = expected(drive, layout, Condition::Healthy);
    let writing = write_accesses(layout, Condition::Healthy);
    let reading_first = if writing.reads > 0.0 { drive.lone_read_ms } else { 0.0 };
    // Strips under way, each on a drive of its own as far as there are drives.
    let strips = u64::from(depth) * STREAM_BYTES / u64::from(layout.strip_bytes());
    let under_way = |rate: f64, whole: f64| (strips.max(1) as f64 * rate).min(whole);
    let (read, write) = (drive.sequential_read_mb_per_s, drive.sequential_write_mb_per_s);
    let speeds = Speeds {
        random_read_iops: closed(depth, drive.lone_read_ms, full.random_read_iops),
        random_write_iops: closed(depth, reading_first + drive.write_ms(), full.random_write_iops),
        sequential_read_mb_per_s: under_way(read, full.sequential_read_mb_per_s),
        sequential_write_mb_per_s: under_way(write, full.sequential_write_mb_per_s),
    };
    AtDepth { depth, speeds }
}

/// Requests a second of a closed loop, where one alone takes `lone_ms` and `full` is what more and
/// more of them come to.
fn closed(depth: u32, lone_ms: f64, full: f64) -> f64 {
    let depth = f64::from(depth);
    let loop_ms = lone_ms + (depth - 1.0) * 1000.0 / full;
    (depth * 1000.0 / loop_ms).min(full)
}

/// Accesses a second of one drive that reads and writes in this proportion. A mixed rate is taken
/// in whole requests, as the source of the published table takes it.
fn mixed(drive: &DriveFigures, accesses: Accesses) -> f64 {
    if accesses.reads == 0.0 {
        return drive.random_write_iops;
    }
    let busy_ms = accesses.reads * drive.read_ms() + accesses.writes * drive.write_ms();
    (1000.0 * (accesses.reads + accesses.writes) / busy_ms).round()
}

/// Drives that share the work. Requests fall on all groups alike, so where one group lacks a member
/// the others wait for it.
fn serving(layout: &Layout, condition: Condition) -> u32 {
    let lost = if condition == Condition::Degraded { layout.groups() } else { 0 };
    (layout.members() - lost) as u32
}

fn read_accesses(layout: &Layout, condition: Condition) -> f64 {
    if condition != Condition::Degraded || layout.copies() > 1 {
        return 1.0;
    }
    let span = 0..BLOCK_BYTES;
    mean(layout, condition, |strip, lost| match lost.contains(&Strip::Data(strip)) {
        false => 1.0,
        true => {
            let state = StripeState { lost, parity: ParityTrust::Valid };
            let plan = plan::recovery(layout, &span, state).expect("one member may be lost");
            plan.reads.len() as f64
        }
    })
}

fn write_accesses(layout: &Layout, condition: Condition) -> Accesses {
    if layout.parity_strips() == 0 {
        let lost = usize::from(condition == Condition::Degraded);
        return Accesses { reads: 0.0, writes: (layout.copies() - lost) as f64 };
    }
    let parity = match condition {
        Condition::Uninitialised => ParityTrust::Stale,
        Condition::Healthy | Condition::Degraded => ParityTrust::Valid,
    };
    let reads = |strip, lost: &[Strip]| {
        let extent = Extent { strip, span: 0..BLOCK_BYTES };
        let plan = plan::write(layout, &[extent], StripeState { lost, parity });
        plan.expect("one member may be lost").reads.len() as f64
    };
    // The block and every parity strip, but for what was on the lost member.
    let writes = |strip, lost: &[Strip]| {
        let is_written = |it: &Strip| !matches!(it, Strip::Data(other) if *other != strip);
        (1 + layout.parity_strips() - lost.iter().filter(|it| is_written(it)).count()) as f64
    };
    Accesses { reads: mean(layout, condition, reads), writes: mean(layout, condition, writes) }
}

/// The mean over all data strips of one group, for one turn of the rotation or of the first base
/// permutation; the first member is the one that is lost.
fn mean(layout: &Layout, condition: Condition, of: impl Fn(u16, &[Strip]) -> f64) -> f64 {
    let turns = if layout.is_declustered() { layout.members() } else { layout.width() };
    let first_group = (0..turns as u64 * layout.band_stripes()).map(Stripe);
    let stripes = || first_group.clone().filter(|stripe| layout.group_of(*stripe) == 0);
    let strips = layout.data_strips() as u16;
    let of_stripe = |stripe| {
        let is_lost = |strip: &Strip| layout.cell(stripe, *strip).role == Role(0);
        let gone: Vec<Strip> = layout.strips().filter(is_lost).collect();
        let lost = if condition == Condition::Degraded { &gone[..] } else { &[] };
        (0..strips).map(|strip| of(strip, lost)).sum::<f64>()
    };
    stripes().map(of_stripe).sum::<f64>() / (stripes().count() as f64 * f64::from(strips))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_raid::Level;

    fn layout(level: Level, members: usize, groups: usize) -> Layout {
        Layout::new(level, members, groups, 64 << 10, 1 << 40).unwrap()
    }

    fn of(level: Level, members: usize, groups: usize, condition: Condition) -> Speeds {
        let drive = DriveFigures::find("hdd-14t").unwrap();
        expected(&drive, &layout(level, members, groups), condition)
    }

    #[test]
    fn a_small_write_takes_six_accesses_with_two_parity_strips() {
        let speeds = of(Level::Raid6, 12, 1, Condition::Healthy);
        assert_eq!((speeds.random_read_iops, speeds.random_write_iops), (2364.0, 534.0));
        assert_eq!(speeds.sequential_write_mb_per_s, 2680.0);
        let striped = of(Level::Raid60, 24, 2, Condition::Healthy);
        assert_eq!(striped.random_write_iops, 2.0 * speeds.random_write_iops);
        assert_eq!(striped.sequential_read_mb_per_s, 2.0 * speeds.sequential_read_mb_per_s);
        assert_eq!(of(Level::Raid50, 8, 2, Condition::Healthy).random_write_iops, 534.0);
    }

    #[test]
    fn without_parity_to_patch_the_whole_stripe_is_read() {
        let accesses = write_accesses(&layout(Level::Raid6, 12, 1), Condition::Uninitialised);
        assert_eq!(accesses, Accesses { reads: 9.0, writes: 3.0 });
        let accesses = write_accesses(&layout(Level::Raid5, 8, 1), Condition::Uninitialised);
        assert_eq!(accesses, Accesses { reads: 6.0, writes: 2.0 });
    }

    #[test]
    fn a_lost_member_costs_its_strips_reads_of_all_others() {
        let five = layout(Level::Raid5, 8, 1);
        // 7 of 8 blocks are there, the eighth is made of 7 others.
        assert_eq!(read_accesses(&five, Condition::Degraded), 14.0 / 8.0);
        let degraded = of(Level::Raid5, 8, 1, Condition::Degraded);
        assert_eq!(
            degraded.random_read_iops,
            of(Level::Raid5, 8, 1, Condition::Healthy).random_read_iops / 2.0
        );
        // Of 8, data and parity are there in 6; without parity it is one write; without data the
        // 6 others are read, and parity is written.
        let accesses = write_accesses(&five, Condition::Degraded);
        let (reads, writes) = ((6.0 * 2.0 + 6.0) / 8.0, (6.0 * 2.0 + 1.0 + 1.0) / 8.0);
        assert!((accesses.reads - reads).abs() < 1e-9, "{accesses:?}");
        assert!((accesses.writes - writes).abs() < 1e-9, "{accesses:?}");
        let mirrors = of(Level::Raid10, 8, 4, Condition::Degraded);
        assert_eq!((mirrors.random_read_iops, mirrors.random_write_iops), (788.0, 1600.0));
    }

    #[test]
    fn one_request_in_flight_takes_its_own_time_and_many_fill_the_drives() {
        let drive = DriveFigures::find("hdd-14t").unwrap();
        let layout = layout(Level::Raid6, 12, 1);
        let alone = at_depth(&drive, &layout, 1).speeds;
        assert!((alone.random_read_iops - 1000.0 / 11.7).abs() < 1e-9);
        assert!((alone.random_write_iops - 1000.0 / 14.2).abs() < 1e-9);
        let (many, full) = (
            at_depth(&drive, &layout, 1 << 20).speeds,
            expected(&drive, &layout, Condition::Healthy),
        );
        assert!((many.random_write_iops / full.random_write_iops - 1.0).abs() < 0.001);
        assert_eq!(many.sequential_read_mb_per_s, full.sequential_read_mb_per_s);
    }
}
