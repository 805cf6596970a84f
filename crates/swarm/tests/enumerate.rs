//! All short workloads, cut at every write they cause, with every outcome of the cut.

use headpond_cache::Mode;
use headpond_swarm::enumerate::{Enumeration, enumerate};

fn exhaust(mode: Mode, operations_max: usize, workloads: u64) {
    let all = enumerate(Enumeration { mode, operations_max }, |_| {});
    println!("{mode:?}: {all}");
    assert!(all.failures.is_empty(), "{}", all.failures.join("\n"));
    assert_eq!(all.workloads, workloads);
    assert!(all.cuts > 5 * all.workloads, "a workload has a write or an end, and five outcomes");
}

/// Ten operations, sectors and mode switches not in one workload.
#[test]
fn write_back_survives_every_cut_of_three_operations() {
    exhaust(Mode::WriteBack, 3, 1054);
}

/// Nine: past the log no sectors are written.
#[test]
fn write_through_survives_every_cut_of_two_operations() {
    exhaust(Mode::WriteThrough, 2, 90);
}

#[test]
fn pass_through_survives_every_cut_of_two_operations() {
    exhaust(Mode::PassThrough, 2, 90);
}
