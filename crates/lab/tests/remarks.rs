//! What a reader of figures has to know beside them, from stored rounds alone.

mod stored;

use headpond_lab::report;
use headpond_whatif::{Latency, Side};

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
fn percentiles_without_the_flush_are_told_to_be_that_and_the_flush_has_its_own() {
    let folder = headpond_testkit::tempdir();
    let plan = plan("sync = [\"fdatasync\"]");
    let results = stored::results(folder.path(), &plan, |_| {
        let mut round = stored::round(&[1000.0; 60]);
        let job = &mut round.jobs[0];
        let latency = Latency { mean_us: 700.0, max_us: 9000.0, ..Latency::default() };
        job.measured.flush = Side { latency, ..job.measured.write };
        job.bins[2] = headpond_whatif::Bins(vec![(8_000_000, 60_000)]);
        round
    });
    let text = report::text(&results);
    assert!(text.contains("flush 99.99 %") && text.contains("8 ms           8 ms"), "{text}");
    assert!(text.contains("percentiles and maps are of the write alone"), "{text}");
    assert!(text.contains("  1.2 ms"), "the mean is of both: {text}");
}
