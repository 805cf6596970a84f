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

/// Eleven operations; sectors not in one workload with what may send them past the log.
#[test]
fn write_back_survives_every_cut_of_three_operations() {
    exhaust(Mode::WriteBack, 3, 1345);
}

/// Ten where sectors are written past the log, which nothing promises anything about.
#[test]
fn the_other_modes_survive_every_cut_of_two_operations() {
    for mode in Mode::ALL.into_iter().filter(|mode| *mode != Mode::WriteBack) {
        exhaust(mode, 2, if mode.is_write_back() { 128 } else { 110 });
    }
}
