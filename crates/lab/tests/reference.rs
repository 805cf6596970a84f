//! The published tables against the modelled machine.

use headpond_lab::Gauge;
use headpond_lab::reference::{self, Score, Times};
use headpond_lab::simulate_all;
use headpond_testkit::{shared, skip};
use std::time::Duration;

/// A third of what `headpond simulate --reference` runs.
const SHORT: Times = Times { ramp: Duration::from_secs(20), runtime: Duration::from_secs(60) };

#[test]
fn the_array_without_a_cache_is_as_fast_as_published() {
    let Some(folder) = shared("reference") else {
        skip!("the_array_without_a_cache_is_as_fast_as_published", "no published tables");
    };
    let reference = reference::plan(&folder, SHORT).unwrap();
    let outcomes: Vec<_> =
        simulate_all(&reference.experiments, &Gauge::for_each(reference.experiments.len()))
            .into_iter()
            .map(|outcome| outcome.expect("the machine works"))
            .collect();
    let cells = reference.compare(&outcomes);
    let score = Score::of(&cells);
    assert!(score.cells >= 26, "{score:?}");
    assert!(score.median_error < 0.05 && score.worst_error < 0.15, "{score:?} {cells:#?}");
}

#[test]
fn a_missing_table_is_named() {
    let error = reference::plan(std::path::Path::new("/nowhere"), SHORT).err().unwrap();
    assert!(error.to_string().contains("/nowhere/raid60_random_write.csv"), "{error}");
}
