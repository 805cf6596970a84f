//! The planner against the published expectations, and against the simulator.

use headpond_lab::plan::{Assumptions, DriveFigures, Plan, Shape, array_experiments, array_speeds};
use headpond_lab::{Gauge, reference, simulate_all};
use headpond_raid::Level;
use headpond_testkit::{shared, skip};

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

#[test]
fn the_formulas_of_a_modelled_drive_come_near_its_simulated_array() {
    let drive = DriveFigures::find("hdd-7k2-14t").unwrap();
    let shape =
        Shape { level: Level::Raid6, members: 6, groups: 1, spread: None, strip_bytes: 64 << 10 };
    let depths = vec![1, 6 * 32];
    let given = Assumptions {
        depths: depths.clone(),
        rebuild_share: 0.5,
        replace_hours: 24.0,
        cache: None,
    };
    let plan = Plan::of(&drive, shape, &given).unwrap();
    let experiments = array_experiments(shape, &drive.model, &depths);
    let outcomes: Vec<_> = simulate_all(&experiments, &Gauge::for_each(experiments.len()))
        .into_iter()
        .map(|outcome| outcome.expect("the machine works"))
        .collect();
    let simulated = array_speeds(&depths, &outcomes);
    for (formula, simulated) in plan.by_depth.iter().zip(&simulated) {
        eprintln!("{formula:?}\n{simulated:?}");
        let near = |ours: f64, theirs: f64, by: f64| ours / theirs < by && theirs / ours < by;
        let (ours, theirs) = (formula.speeds, simulated.speeds);
        assert!(near(ours.random_read_iops, theirs.random_read_iops, 1.35), "{simulated:?}");
        let (ours, theirs) = (ours.random_write_iops, theirs.random_write_iops);
        assert!(near(ours, theirs, 2.0), "{formula:?} {simulated:?}");
    }
}
