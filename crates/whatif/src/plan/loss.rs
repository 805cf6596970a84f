//! How long until an array loses data.
//!
//! Drives fail at a constant rate and are rebuilt at a constant rate; the members of a group that
//! are gone are the state of a birth and death chain, and one loss more than it has redundancy for
//! is the end. Where none is left, a rebuild also fails by a sector that cannot be read: that loses
//! a stripe or so, and counts as loss.
//!
//! **Source**: D. Patterson, G. Gibson, R. Katz, "A Case for Redundant Arrays of Inexpensive Disks
//! (RAID)", SIGMOD 1988, and G. Gibson, D. Patterson, "Designing Disk Arrays for High Data
//! Reliability", J. Parallel and Distributed Computing 17, 1993 (the chain; far from its ends their
//! MTTF^2 / (n (n-1) MTTR)); P. Chen et al., ACM Computing Surveys 26(2), 1994, section 3.4
//! (unreadable sectors while rebuilding). Constant rates are the price: J. Elerath, M. Pecht, "A
//! Highly Accurate Method for Assessing Reliability of RAID", IEEE Trans. Computers 58(3), 2009,
//! show that ageing and sectors that were unreadable long before make real arrays worse, and scrubs
//! better; so it compares layouts, and promises nothing.

use super::cached::InFront;
use super::drive::DriveFigures;
use headpond_cache::Mode;
use headpond_raid::Layout;
use serde::Serialize;

const HOURS_PER_YEAR: f64 = 8766.0;

/// Where the time of a rebuild is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RepairFrom {
    /// What the drives can do.
    Formula,
    /// The floor of the pace, below which no rebuild goes beside requests.
    Floor,
    /// Of short drives, for as many bytes as the whole ones have.
    Simulation,
}

/// How long an array lacks a member.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Repair {
    /// From a failure to full redundancy: replacing and rebuilding.
    pub repair_hours: f64,
    pub repair_from: RepairFrom,
}

/// How safe an array is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Safety {
    #[serde(flatten)]
    pub repair: Repair,
    /// That the last rebuild that may not fail meets a sector that cannot be read.
    pub unreadable_while_rebuilding: f64,
    /// Mean time to data loss.
    pub mttdl_years: f64,
    /// The same if all sectors could be read.
    pub mttdl_of_whole_drives_years: f64,
    pub loss_in_a_year: f64,
    pub loss_in_five_years: f64,
}

/// The same with a cache in front. What is dirty in a write-back cache is nowhere else; a
/// write-through cache holds nothing that the array lacks, and takes nothing with it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CachedSafety {
    pub mode: Mode,
    /// Devices that each hold all of the cache.
    pub copies: usize,
    /// What the cache alone would come to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mttdl_of_cache_years: Option<f64>,
    pub mttdl_years: f64,
    pub loss_in_a_year: f64,
    pub loss_in_five_years: f64,
}

/// One group on its way to loss; rates are per hour.
struct Chain {
    members: usize,
    redundancy: usize,
    failures: f64,
    repairs: f64,
    /// That a rebuild without redundancy fails.
    unreadable: f64,
}

/// Of an array whose members are whole again after that.
pub(super) fn safety(drive: &DriveFigures, layout: &Layout, repair: Repair) -> Safety {
    let chain = Chain {
        members: layout.group_members(),
        redundancy: layout.redundancy(),
        failures: failures_per_hour(drive),
        repairs: 1.0 / repair.repair_hours,
        unreadable: unreadable(drive, layout),
    };
    // The first of equal groups to lose data.
    let years = |chain: &Chain| chain.hours() / HOURS_PER_YEAR / layout.groups() as f64;
    let mttdl_years = years(&chain);
    Safety {
        repair,
        unreadable_while_rebuilding: chain.unreadable,
        mttdl_years,
        mttdl_of_whole_drives_years: years(&Chain { unreadable: 0.0, ..chain }),
        loss_in_a_year: loss_in(1.0, mttdl_years),
        loss_in_five_years: loss_in(5.0, mttdl_years),
    }
}

/// Hours until distributed spare space holds what a drive did, with nothing else to do; `None`
/// without any. Every other drive reads and writes its share, at the rate at which it is copied.
///
/// **Source**: M. Holland, G. Gibson, ASPLOS 1992: of each lost strip the rest of its stripe is
/// read, so each drive reads (G - 1) / (C - 1) of what a drive holds; with distributed sparing it
/// writes 1 / (C - 1) as well. With two parity strips one of them need not be read.
pub(super) fn spread_rebuild_hours(drive: &DriveFigures, layout: &Layout) -> Option<f64> {
    let slots = usize::from(layout.spare_slots());
    let members = layout.members() as f64;
    let held = (members - slots as f64) / members;
    let (read, written) = (layout.data_strips() as f64, 1.0);
    (slots > 0).then(|| drive.copy_hours() * held * (read + written) / (members - 1.0))
}

/// What each other drive reads and writes meanwhile, as a volume counts it: its share of whole
/// stripes.
pub(super) fn spread_bytes(drive: &DriveFigures, layout: &Layout) -> f64 {
    let members = layout.members() as f64;
    let held = (members - f64::from(layout.spare_slots())) / members;
    drive.capacity_bytes as f64 * held * layout.width() as f64 / (members - 1.0)
}

/// Of an array behind a cache that writes through, that writes back on one device, and that writes
/// back on two.
pub(super) fn behind_caches(
    array: &Safety,
    cache: &InFront,
    replace_hours: f64,
) -> [CachedSafety; 3] {
    let of = |mode, copies| behind_cache(array, cache, (mode, copies), replace_hours);
    [of(Mode::WriteThrough, 1), of(Mode::WriteBack, 1), of(Mode::WriteBack, 2)]
}

/// Whichever of the two loses data first: their rates add up.
fn behind_cache(
    array: &Safety,
    cache: &InFront,
    (mode, copies): (Mode, usize),
    replace_hours: f64,
) -> CachedSafety {
    let of_cache = (mode == Mode::WriteBack).then(|| cache_years(cache, copies, replace_hours));
    let rate = 1.0 / array.mttdl_years + of_cache.map_or(0.0, |years| 1.0 / years);
    let mttdl_years = 1.0 / rate;
    CachedSafety {
        mode,
        copies,
        mttdl_of_cache_years: of_cache,
        mttdl_years,
        loss_in_a_year: loss_in(1.0, mttdl_years),
        loss_in_five_years: loss_in(5.0, mttdl_years),
    }
}

/// Mean time until what is dirty is lost: of one device its time to failure, of several with the
/// same contents their chain, in which the used part of another one is copied.
fn cache_years(cache: &InFront, copies: usize, replace_hours: f64) -> f64 {
    assert!(copies > 0, "a cache lies somewhere");
    let (drive, bits) = (&cache.drive, cache.size_bytes as f64 * 8.0);
    let used = cache.size_bytes as f64 / drive.capacity_bytes as f64;
    let chain = Chain {
        members: copies,
        redundancy: copies - 1,
        failures: failures_per_hour(drive),
        repairs: 1.0 / (replace_hours + drive.copy_hours() * used),
        unreadable: -(-bits / drive.unreadable_bits).exp_m1(),
    };
    chain.hours() / HOURS_PER_YEAR
}

/// The constant rate at which so many are gone after a year.
fn failures_per_hour(drive: &DriveFigures) -> f64 {
    -(-drive.failures_per_year).ln_1p() / HOURS_PER_YEAR
}

/// Probability of loss in so many years.
fn loss_in(years: f64, mttdl_years: f64) -> f64 {
    -(-years / mttdl_years).exp_m1()
}

/// That what a rebuild with nothing to spare reads cannot all be read: another copy, or as many
/// members as there are data strips.
fn unreadable(drive: &DriveFigures, layout: &Layout) -> f64 {
    if layout.redundancy() == 0 {
        return 0.0;
    }
    let bits = layout.data_strips() as f64 * drive.capacity_bytes as f64 * 8.0;
    let bits = bits * bare_share(layout);
    -(-bits / drive.unreadable_bits).exp_m1()
}

/// Of the stripes of a lost member, those that have no redundancy left when as much is lost as may
/// be: the other lost members have a strip of them as well.
fn bare_share(layout: &Layout) -> f64 {
    if layout.group_members() == layout.width() {
        return 1.0;
    }
    let (width, members) = (layout.width() as f64, layout.members() as f64);
    let others = (1..layout.redundancy()).map(|lost| lost as f64);
    others.map(|lost| (width - lost) / (members - lost)).product()
}

impl Chain {
    /// Mean time from all members to loss: the sum, over the states, of the time until one more is
    /// gone for the first time.
    fn hours(&self) -> f64 {
        let mut total = 0.0;
        let mut onward = 0.0;
        for gone in 0..=self.redundancy {
            let failing = (self.members - gone) as f64 * self.failures;
            let repairing = if gone == 0 { 0.0 } else { self.repairs };
            let is_last = gone == self.redundancy && gone > 0;
            let unreadable = if is_last { self.unreadable } else { 0.0 };
            let back = repairing * (1.0 - unreadable);
            onward = (1.0 + back * onward) / (failing + repairing * unreadable);
            total += onward;
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_raid::Level;

    fn chain(members: usize, redundancy: usize, unreadable: f64) -> Chain {
        Chain { members, redundancy, failures: 1e-6, repairs: 1.0 / 24.0, unreadable }
    }

    #[test]
    fn far_from_its_ends_the_chain_is_gibsons_formula() {
        let mttf = 1e6_f64;
        for (members, redundancy, formula) in [
            (8, 0, mttf / 8.0),
            (8, 1, mttf.powi(2) / (8.0 * 7.0 * 24.0)),
            (12, 2, mttf.powi(3) / (12.0 * 11.0 * 10.0 * 24.0 * 24.0)),
        ] {
            let hours = chain(members, redundancy, 0.0).hours();
            assert!((hours / formula - 1.0).abs() < 0.002, "{members}: {hours} {formula}");
        }
    }

    #[test]
    fn a_rebuild_that_always_fails_leaves_one_failure_less_to_bear() {
        let (certain, fewer) = (chain(8, 1, 1.0).hours(), chain(8, 0, 0.0).hours());
        assert!((certain / (fewer + 24.0) - 1.0).abs() < 1e-3, "{certain} {fewer}");
        let (certain, fewer) = (chain(8, 2, 1.0).hours(), chain(8, 1, 0.0).hours());
        assert!((certain / fewer - 1.0).abs() < 1e-3, "{certain} {fewer}");
    }

    fn repair(repair_hours: f64) -> Repair {
        Repair { repair_hours, repair_from: RepairFrom::Formula }
    }

    #[test]
    fn one_cache_device_is_lost_as_often_as_it_fails_and_two_hardly_ever() {
        let drive = DriveFigures::find("hdd-14t").unwrap();
        let layout = Layout::new(Level::Raid6, 12, 1, 64 << 10, 1 << 40).unwrap();
        let array = safety(&drive, &layout, repair(48.0));
        let size_bytes = drive.capacity_bytes;
        let drive = DriveFigures { failures_per_year: 0.01, unreadable_bits: 1e17, ..drive };
        let cache = InFront { drive, size_bytes, hit_share: 0.8 };
        let [through, one, two] = behind_caches(&array, &cache, 24.0);
        assert_eq!(through.mttdl_years, array.mttdl_years, "it takes nothing with it");
        assert_eq!(through.loss_in_a_year, array.loss_in_a_year);
        let both = 1.0 - (1.0 - 0.01) * (1.0 - array.loss_in_a_year);
        assert!((one.loss_in_a_year - both).abs() < 1e-9, "{one:?} {array:?}");
        let alone = one.mttdl_of_cache_years.unwrap();
        assert!((loss_in(1.0, alone) - 0.01).abs() < 1e-9, "{alone}");
        assert!(two.loss_in_a_year < one.loss_in_a_year / 100.0, "{one:?} {two:?}");
        assert!(two.loss_in_a_year > array.loss_in_a_year, "{two:?} {array:?}");
        let half = InFront { size_bytes: size_bytes / 2, ..cache };
        let [_, same, sooner] = behind_caches(&array, &half, 24.0);
        assert_eq!(same.mttdl_years, one.mttdl_years);
        assert!(sooner.mttdl_years > two.mttdl_years, "half of it is copied in half the time");
    }

    #[test]
    fn the_second_parity_is_what_bears_an_unreadable_sector() {
        let drive = DriveFigures::find("hdd-14t").unwrap();
        let of = |level, members, groups| {
            let layout = Layout::new(level, members, groups, 64 << 10, 1 << 40).unwrap();
            safety(&drive, &layout, repair(48.0))
        };
        let (five, six) = (of(Level::Raid5, 12, 1), of(Level::Raid6, 12, 1));
        // 11 drives of 14 TB at one sector in 10^15 bits.
        let bits = 11.0 * 14.000_519_643_136e12 * 8.0;
        assert!((five.unreadable_while_rebuilding - (1.0 - (-bits / 1e15_f64).exp())).abs() < 1e-9);
        assert!(five.mttdl_of_whole_drives_years > 100.0 * five.mttdl_years, "{five:?}");
        assert!(six.mttdl_years > 1000.0 * five.mttdl_years, "{five:?} {six:?}");
        let groups = of(Level::Raid60, 24, 2);
        assert!((groups.mttdl_years * 2.0 / six.mttdl_years - 1.0).abs() < 1e-9);
        let none = of(Level::Raid0, 4, 1);
        assert!((none.loss_in_a_year - (1.0 - 0.9965_f64.powi(4))).abs() < 1e-9, "{none:?}");
    }
}
