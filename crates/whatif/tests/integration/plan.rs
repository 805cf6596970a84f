//! The planner against the published expectations, and against the simulator.

use headpond_raid::Level;
use headpond_testkit::{shared, skip};
use headpond_volume::BackgroundRate;
use headpond_whatif::plan::{
    Assumptions, DriveFigures, InFront, Plan, Shape, Speeds, array_experiments, array_speeds,
    cached_experiments, cached_speeds,
};
use headpond_whatif::{Condition, Gauge, reference, simulate_all};

/// D. Komandny, "Server disk subsystem design, part 1", 2021, as it rounds.
#[test]
fn every_published_expectation_follows_from_one_drive() {
    let Some(folder) = shared("reference") else {
        skip!("every_published_expectation_follows_from_one_drive", "no published tables");
    };
    let cells = reference::expected(&folder).unwrap();
    assert!(cells.len() >= 36, "{}", cells.len());
    for cell in cells {
        assert_eq!(cell.formula.round(), cell.published, "{cell:?}");
    }
}

#[test]
fn a_table_of_something_else_is_named_by_line() {
    let folder = headpond_testkit::tempdir();
    let table = folder.path().join("hdd_raid_expected.csv");
    std::fs::write(&table, "metric,unit,raid7_4\nrandom_read,iops,12\n").unwrap();
    let error = reference::expected(folder.path()).unwrap_err().to_string();
    assert!(error.contains("line 2") && error.contains("raid7_4"), "{error}");
    let error = reference::expected(&folder.path().join("none")).unwrap_err().to_string();
    assert!(error.contains("none/hdd_raid_expected.csv"), "{error}");
}

/// What the formulas say and what the simulator does of one level, in these conditions of those it
/// has.
fn compare(
    (level, members): (Level, u16),
    among: &[Condition],
    depths: &[u32],
    is_near: impl Fn(Condition, u32, &Speeds, &Speeds),
) {
    let drive = DriveFigures::find("hdd-7k2-14t").unwrap();
    let shape = Shape { level, members, groups: 1, spread: None, strip_bytes: 64 << 10 };
    let given = Assumptions {
        depths: depths.to_vec(),
        pace: BackgroundRate::default(),
        replace_hours: 24.0,
        cache: None,
    };
    let plan = Plan::of(&drive, shape, &given).unwrap();
    let expected: Vec<_> =
        plan.expected.iter().filter(|it| among.contains(&it.condition)).collect();
    let conditions: Vec<_> = expected.iter().map(|it| it.condition).collect();
    let experiments = array_experiments(shape, &drive.model, &conditions, depths);
    let outcomes: Vec<_> = simulate_all(&experiments, &Gauge::for_each(experiments.len()))
        .into_iter()
        .map(|outcome| outcome.expect("the machine works"))
        .collect();
    let simulated = array_speeds(&conditions, depths, &outcomes);
    for (expected, simulated) in expected.into_iter().zip(&simulated) {
        for (formula, simulated) in expected.by_depth.iter().zip(&simulated.by_depth) {
            eprintln!("{} {formula:?}\n{simulated:?}", expected.condition);
            is_near(expected.condition, formula.depth, &formula.speeds, &simulated.speeds);
        }
        let is_rebuilt = expected.condition == Condition::Rebuilding;
        assert_eq!(simulated.rebuild_hours.len(), if is_rebuilt { depths.len() } else { 0 });
    }
}

fn near(ours: f64, theirs: f64, by: f64) -> bool {
    ours / theirs < by && theirs / ours < by
}

#[test]
fn a_lone_write_takes_what_the_formula_says_with_one_parity_strip_and_with_none() {
    for array in [(Level::Raid5, 4), (Level::Raid0, 4)] {
        compare(array, &[Condition::Healthy], &[1], |_, _, ours, theirs| {
            let (ours, theirs) = (ours.random_write_iops, theirs.random_write_iops);
            assert!(near(ours, theirs, 1.1), "{array:?}: {ours} {theirs}");
        });
    }
}

/// Minutes of simulation, for `make conclusions`.
mod conclusions {
    use super::*;

    #[test]
    fn the_formulas_of_a_modelled_drive_come_near_its_simulated_array() {
        compare(
            (Level::Raid6, 8),
            &Condition::ALL,
            &[1, 8 * 32],
            |condition, depth, ours, theirs| {
                let at = format!("{condition}, depth {depth}");
                let reads = near(ours.random_read_iops, theirs.random_read_iops, 1.15);
                let writes = near(ours.random_write_iops, theirs.random_write_iops, 1.15);
                assert!(reads && writes, "{at}: {ours:?} {theirs:?}");
                // One in flight fills no whole stripe.
                let streams = depth == 1
                    || near(ours.sequential_write_mb_per_s, theirs.sequential_write_mb_per_s, 1.15);
                assert!(streams, "{at}: {ours:?} {theirs:?}");
            },
        );
    }

    #[test]
    fn behind_a_cache_the_formulas_are_near_and_a_full_one_writes_faster_than_the_array() {
        let drive = DriveFigures::find("hdd-7k2-14t").unwrap();
        let shape = Shape {
            level: Level::Raid5,
            members: 4,
            groups: 1,
            spread: None,
            strip_bytes: 64 << 10,
        };
        let depths = vec![1, 32];
        let cache = DriveFigures::find("nvme-dc-2t").unwrap();
        let front = InFront { drive: cache, size_bytes: 512 << 20, hit_share: 0.6 };
        let experiments = cached_experiments(shape, &drive.model, &front, &depths);
        let given = Assumptions {
            depths: depths.clone(),
            pace: BackgroundRate::default(),
            replace_hours: 24.0,
            cache: Some(front),
        };
        let plan = Plan::of(&drive, shape, &given).unwrap();
        let outcomes: Vec<_> = simulate_all(&experiments, &Gauge::for_each(experiments.len()))
            .into_iter()
            .map(|outcome| outcome.expect("the machine works"))
            .collect();
        for (ours, theirs) in plan.behind_cache.iter().zip(cached_speeds(&depths, &outcomes)) {
            let both = format!("{ours:?}\n{theirs:?}");
            assert!((theirs.read_hit_share - 0.6).abs() < 0.03, "{both}");
            assert!(near(ours.random_read_iops, theirs.random_read_iops, 1.25), "{both}");
            assert!(near(ours.random_write_iops, theirs.random_write_iops, 1.2), "{both}");
            let full = theirs.random_write_iops_when_full;
            assert!(full > ours.random_write_iops_when_full, "in order of address: {both}");
            assert!(full < 0.1 * theirs.random_write_iops, "it is full: {both}");
        }
    }
}
