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
//! 5.4; the first request takes its own time ([`lone`]), each further one waits for its share of
//! the drives.
//! **Not here**: the slowest of several accesses at once where more requests are in flight, splits
//! of unaligned requests, and the order in which drives serve a long queue: what the simulator is
//! for.

use super::accesses::{Accesses, Requests};
use super::drive::DriveFigures;
use super::lone;
use crate::condition::Condition;
use headpond_raid::Layout;
use serde::Serialize;

/// Bytes of a sequential request.
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

/// What an array is expected to do in one condition.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Expected {
    pub condition: Condition,
    /// With so many requests in flight that every drive has enough to do.
    #[serde(flatten)]
    pub full: Speeds,
    pub by_depth: Vec<AtDepth>,
    /// Accesses to drives that a random write takes; in the group that lacks a member, where one
    /// does.
    pub random_write_accesses: Accesses,
}

impl Expected {
    /// In the conditions that the array can be in. Rebuilding is with a member gone, and with
    /// `rebuild_share` of the drives' time taken away.
    pub(super) fn of_each(
        drive: &DriveFigures,
        layout: &Layout,
        depths: &[u32],
        rebuild_share: f64,
    ) -> Vec<Self> {
        let healthy = Requests::of(layout, Condition::Healthy);
        let degraded = (layout.redundancy() > 0).then(|| Requests::of(layout, Condition::Degraded));
        let uninitialised =
            (layout.parity_strips() > 0).then(|| Requests::of(layout, Condition::Uninitialised));
        let expected = |condition: Condition| {
            let requests = match condition {
                Condition::Healthy => Some(&healthy),
                Condition::Uninitialised => uninitialised.as_ref(),
                Condition::Degraded | Condition::Rebuilding => degraded.as_ref(),
            }?;
            let array = Array { drive, layout, condition, requests, healthy: &healthy };
            let left = if condition == Condition::Rebuilding { 1.0 - rebuild_share } else { 1.0 };
            Some(array.expected(depths, left))
        };
        Condition::ALL.into_iter().filter_map(expected).collect()
    }
}

/// An array in one condition.
struct Array<'a> {
    drive: &'a DriveFigures,
    layout: &'a Layout,
    condition: Condition,
    requests: &'a Requests,
    /// The same of a group that lacks nobody.
    healthy: &'a Requests,
}

impl Speeds {
    fn times(self, share: f64) -> Self {
        Self {
            random_read_iops: self.random_read_iops * share,
            random_write_iops: self.random_write_iops * share,
            sequential_read_mb_per_s: self.sequential_read_mb_per_s * share,
            sequential_write_mb_per_s: self.sequential_write_mb_per_s * share,
        }
    }
}

impl Array<'_> {
    /// With the share `left` of the drives' time.
    fn expected(&self, depths: &[u32], left: f64) -> Expected {
        let at_depth = |&depth: &u32| AtDepth { depth, speeds: self.at_depth(depth).times(left) };
        Expected {
            condition: self.condition,
            full: self.full().times(left),
            by_depth: depths.iter().map(at_depth).collect(),
            random_write_accesses: Accesses::mean(&self.requests.writes),
        }
    }

    fn full(&self) -> Speeds {
        let (drive, layout) = (self.drive, self.layout);
        let [reading, writing] =
            [&self.requests.reads, &self.requests.writes].map(|all| Accesses::mean(all));
        let serving = f64::from(self.serving());
        let filled = layout.members() - usize::from(layout.spare_slots());
        let data = filled as f64 * layout.data_strips() as f64 / layout.width() as f64;
        let streams = if layout.copies() > 1 { serving } else { data };
        Speeds {
            random_read_iops: serving / reading.reads * drive.random_read_iops,
            random_write_iops: serving / (writing.reads + writing.writes) * mixed(drive, &writing),
            sequential_read_mb_per_s: streams * drive.sequential_read_mb_per_s,
            sequential_write_mb_per_s: data * drive.sequential_write_mb_per_s,
        }
    }

    fn at_depth(&self, depth: u32) -> Speeds {
        let full = self.full();
        // Strips under way, each on a drive of its own as far as there are drives.
        let strips = u64::from(depth) * STREAM_BYTES / u64::from(self.layout.strip_bytes());
        let under_way = |rate: f64, whole: f64| (strips.max(1) as f64 * rate).min(whole);
        let [read_ms, write_ms] = [self.lone_ms(|it| &it.reads), self.lone_ms(|it| &it.writes)];
        let (read, write) =
            (self.drive.sequential_read_mb_per_s, self.drive.sequential_write_mb_per_s);
        Speeds {
            random_read_iops: closed(depth, read_ms, full.random_read_iops),
            random_write_iops: closed(depth, write_ms, full.random_write_iops),
            sequential_read_mb_per_s: under_way(read, full.sequential_read_mb_per_s),
            sequential_write_mb_per_s: under_way(write, full.sequential_write_mb_per_s),
        }
    }

    /// A request alone: in the group that lacks a member, where one does, or in one of the others.
    fn lone_ms(&self, of: fn(&Requests) -> &[Accesses]) -> f64 {
        let mean = |requests: &[Accesses]| {
            let usual = Accesses::mean(requests);
            let members = self.layout.members();
            let each = requests.iter().map(|it| lone::request_ms(self.drive, members, it, &usual));
            each.sum::<f64>() / requests.len() as f64
        };
        let others = (self.layout.groups() - 1) as f64;
        (mean(of(self.requests)) + others * mean(of(self.healthy_or_same())))
            / self.layout.groups() as f64
    }

    /// What the other groups are like.
    fn healthy_or_same(&self) -> &Requests {
        if self.condition.lacks_member() { self.healthy } else { self.requests }
    }

    /// Drives that share the work. Requests fall on all groups alike, so where one group lacks a
    /// member the others wait for it.
    fn serving(&self) -> u32 {
        let lost = if self.condition.lacks_member() { self.layout.groups() } else { 0 };
        (self.layout.members() - lost) as u32
    }
}

/// Requests a second of a closed loop, where one alone takes `lone_ms` and `full` is what more and
/// more of them come to.
pub(super) fn closed(depth: u32, lone_ms: f64, full: f64) -> f64 {
    let depth = f64::from(depth);
    let loop_ms = lone_ms + (depth - 1.0) * 1000.0 / full;
    (depth * 1000.0 / loop_ms).min(full)
}

/// Accesses a second of one drive that reads and writes in this proportion. A mixed rate is taken
/// in whole requests, as the source of the published table takes it.
fn mixed(drive: &DriveFigures, accesses: &Accesses) -> f64 {
    if accesses.reads == 0.0 {
        return drive.random_write_iops;
    }
    let busy_ms = accesses.reads * drive.read_ms() + accesses.writes * drive.write_ms();
    (1000.0 * (accesses.reads + accesses.writes) / busy_ms).round()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_raid::Level;

    fn layout(level: Level, members: usize, groups: usize) -> Layout {
        Layout::new(level, members, groups, 64 << 10, 1 << 40).unwrap()
    }

    /// In a condition with enough in flight, and with so much.
    fn when(
        drive: &DriveFigures,
        layout: &Layout,
        condition: Condition,
        depth: u32,
    ) -> (Speeds, Speeds) {
        let all = Expected::of_each(drive, layout, &[depth], 0.5);
        let it = all.iter().find(|it| it.condition == condition).expect("it can be in that");
        (it.full, it.by_depth[0].speeds)
    }

    fn of(level: Level, members: usize, groups: usize, condition: Condition) -> Speeds {
        let drive = DriveFigures::find("hdd-14t").unwrap();
        when(&drive, &layout(level, members, groups), condition, 1).0
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
    fn a_lost_member_leaves_the_others_more_to_do() {
        let conditions = [Condition::Healthy, Condition::Degraded];
        let [whole, degraded] = conditions.map(|it| of(Level::Raid5, 8, 1, it));
        assert_eq!(degraded.random_read_iops, whole.random_read_iops / 2.0);
        let mirrors = of(Level::Raid10, 8, 4, Condition::Degraded);
        assert_eq!((mirrors.random_read_iops, mirrors.random_write_iops), (788.0, 1600.0));
    }

    #[test]
    fn one_request_in_flight_takes_its_own_time_and_many_fill_the_drives() {
        let drive = DriveFigures::find("hdd-14t").unwrap();
        let layout = layout(Level::Raid6, 12, 1);
        let at = |depth| when(&drive, &layout, Condition::Healthy, depth);
        let alone = at(1).1;
        assert!((alone.random_read_iops - 1000.0 / 11.7).abs() < 1e-9);
        // Three reads, of which the slowest counts and meets what was written before: 17 to 18 ms.
        assert!((1000.0 / 18.0..1000.0 / 17.0).contains(&alone.random_write_iops), "{alone:?}");
        let (full, many) = at(1 << 20);
        assert!((many.random_write_iops / full.random_write_iops - 1.0).abs() < 0.001);
        assert_eq!(many.sequential_read_mb_per_s, full.sequential_read_mb_per_s);
    }

    #[test]
    fn writes_that_drives_answer_from_their_caches_fill_all_drives_one_by_one() {
        let drive = DriveFigures::find("hdd-14t").unwrap();
        let stripes = layout(Level::Raid0, 12, 1);
        let alone = when(&drive, &stripes, Condition::Healthy, 1).1.random_write_iops;
        assert_eq!(alone, 12.0 * drive.random_write_iops);
        let bare = DriveFigures { lone_write_ms: Some(12.5), ..drive };
        let alone = when(&bare, &stripes, Condition::Healthy, 1).1.random_write_iops;
        assert_eq!(alone, 1000.0 / 12.5);
    }

    #[test]
    fn of_four_groups_one_lacks_a_member_and_a_lone_read_seldom_comes_there() {
        let drive = DriveFigures::find("hdd-14t").unwrap();
        let alone = |groups: usize, condition| {
            let layout =
                layout(if groups > 1 { Level::Raid60 } else { Level::Raid6 }, 10 * groups, groups);
            1000.0 / when(&drive, &layout, condition, 1).1.random_read_iops
        };
        let more = |groups| alone(groups, Condition::Degraded) - alone(groups, Condition::Healthy);
        assert!(more(1) > 0.5 && (more(1) / more(4) - 4.0).abs() < 1e-6, "{}", more(1));
    }
}
