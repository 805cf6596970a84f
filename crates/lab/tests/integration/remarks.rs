//! What a reader of figures has to know beside them, from stored rounds alone.

use crate::stored;
use headpond_lab::{Folder, Plan, Results, report};
use headpond_whatif::{Bins, Latency, Side};

fn plan(matrix: &str) -> String {
    format!(
        "name = \"t\"\n[[target]]\nname = \"drive\"\nfile = \"/nonexistent/x\"\nsize = \"1G\"\n\
         [matrix]\nrw = [\"randwrite\"]\nbs = [\"4K\"]\n{matrix}\n\
         [rounds]\nwarm_up = 1\ncount = 3\nseconds = 60\n"
    )
}

#[test]
fn a_rate_that_is_not_reached_is_told_and_one_that_is_missed_by_chance_is_not() {
    let folder = headpond_testkit::tempdir();
    let at = |name: &str, reached: f64| {
        let folder = folder.path().join(name);
        let plan = plan("rate = [20000]");
        let results = stored::results(&folder, &plan, |_| stored::round(&[reached; 60]));
        (report::text(&results), report::page(&results))
    };
    let words = "20,000/s were asked for, and 10,869/s were answered: it does not keep up";
    let (text, page) = at("behind", 10_869.0);
    assert!(text.contains(words) && page.contains(words), "{text}");
    let (text, _) = at("in time", 19_900.0);
    assert!(!text.contains("does not keep up"), "{text}");
}

#[test]
fn what_was_not_measured_has_no_answer() {
    let folder = headpond_testkit::tempdir();
    let plan = format!("{}[[answer]]\nkind = \"curves\"\n", plan(""));
    drop(Folder::create(folder.path(), &Plan::parse(&plan).unwrap()).unwrap());
    let text = report::text(&Results::read(folder.path()).unwrap());
    assert!(text.ends_with("1 of 1 cells are not measured yet (headpond lab resume)\n"), "{text}");
}

#[test]
fn stable_writes_of_different_loads_do_not_compete() {
    let folder = headpond_testkit::tempdir();
    let matrix = "sync = [\"none\", \"fdatasync\"]\ndepth = [1, 8]";
    let plan = format!("{}[[answer]]\nkind = \"sync\"\n", plan(matrix));
    let results = stored::results(folder.path(), &plan, |_| stored::round(&[1000.0; 60]));
    let text = report::text(&results);
    assert!(text.contains("randwrite 4K fdatasync 1x8: 1,000/s of 1,000/s are left"), "{text}");
    assert!(!text.contains("most stable writes"), "{text}");
}

/// A second of writes of half a millisecond, each with a flush of eight.
fn flushed() -> headpond_whatif::rounds::Round {
    let mut round = stored::round(&[1000.0; 60]);
    let job = &mut round.jobs[0];
    let latency = Latency { mean_us: 700.0, max_us: 9000.0, ..Latency::default() };
    job.measured.flush = Side { latency, ..job.measured.write };
    job.bins[2] = Bins(vec![(200_000, 45_000), (8_000_000, 15_000)]);
    round
}

#[test]
fn of_fio_percentiles_of_stable_writes_are_bounds_that_hold_and_are_told_to_be_that() {
    let folder = headpond_testkit::tempdir();
    let plan = plan("sync = [\"fdatasync\"]");
    let results = stored::results(folder.path(), &plan, |_| flushed());
    let text = report::text(&results);
    assert!(text.contains("flush 99.99 %") && text.contains("≤ 8.5 ms"), "{text}");
    assert!(text.contains("never both together"), "{text}");
    assert!(text.contains("  1.2 ms"), "the mean is of both: {text}");
    let (_, summary) = results.measured().next().unwrap();
    assert!(summary.all_is_at_most);
    // Half may take more than the three quarters of each: 0.5 ms and 0.2 ms.
    assert_eq!((summary.all.p50, summary.all.p99), (0.7, 8.5));
    let csv = report::csv(&results);
    let fields: Vec<Vec<_>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let field = |name: &str| fields[1][fields[0].iter().position(|it| *it == name).unwrap()];
    assert_eq!((field("all_is_at_most"), field("errors"), field("read_iops")), ("true", "0", "0"));
    assert_eq!((field("read_p99_ms"), field("flush_p99_ms")), ("", "8"), "nothing was read");
    let page = report::page(&results);
    assert!(page.contains("99.99 % latency, at most") && page.contains("/s, ≤ 8.5 ms"), "{page}");
    assert!(page.contains("mean latency<"), "the mean is none: {page}");
}

#[test]
fn where_writes_were_measured_with_their_flushes_percentiles_are_of_both() {
    let folder = headpond_testkit::tempdir();
    let plan = plan("sync = [\"fdatasync\"]").replace("size =", "load = \"in-process\"\nsize =");
    let results = stored::results(folder.path(), &plan, |_| {
        let mut round = flushed();
        round.jobs[0].stable = Bins(vec![(600_000, 59_000), (4_000_000, 1_000)]);
        round
    });
    let (_, summary) = results.measured().next().unwrap();
    assert!(!summary.all_is_at_most);
    assert_eq!((summary.all.p50, summary.all.p99, summary.all.max), (0.6, 4.0, 4.0));
    let text = report::text(&results);
    assert!(!text.contains('≤') && !text.contains("never both"), "{text}");
    let page = report::page(&results);
    assert!(page.contains("99.99 % latency<") && !page.contains('≤'), "{page}");
}
