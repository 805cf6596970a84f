//! Throughput that goes to and fro is named in reports, from stored rounds alone.

use crate::stored;
use headpond_lab::{Results, report};

const PLAN: &str = "name = \"t\"\n[[target]]\nname = \"drive\"\nfile = \"/nonexistent/x\"\n\
                    size = \"1G\"\n[matrix]\nrw = [\"randwrite\"]\nbs = [\"4K\"]\ndepth = [32]\n\
                    [rounds]\nwarm_up = 1\ncount = 3\nseconds = 60\n";

/// Results of four rounds, of which each second carried as many writes as its place says.
fn results(folder: &std::path::Path, per_s: impl Fn(usize) -> f64) -> Results {
    stored::results(folder, PLAN, |number| {
        let seconds: Vec<_> = (0..60).map(|second| per_s(number * 60 + second)).collect();
        stored::round(&seconds)
    })
}

/// A few percent of noise that is the same every time.
fn noise(second: usize) -> f64 {
    1.0 + ((second * 37 % 11) as f64 - 5.0) / 100.0
}

const SENTENCE: &str = "drive: randwrite 4K 1x32: periodic: alternates between 2,600 and 800 IOPS \
                        (67 % of the time high), every 12 s";

#[test]
fn a_drive_that_alternates_is_named_with_both_levels_and_the_period() {
    let folder = headpond_testkit::tempdir();
    let alternates = |second: usize| if second % 12 < 8 { 2600.0 } else { 800.0 };
    let results = results(folder.path(), |second| alternates(second) * noise(second));
    let text = report::text(&results);
    assert!(text.contains(SENTENCE), "{text}");
    assert!(report::page(&results).contains("alternates between 2,600 and 800 IOPS"));
    let pattern = &report::json(&results)["cells"][0]["summary"]["pattern"];
    assert_eq!(pattern["pattern"], "alternates", "{pattern}");
}

#[test]
fn a_drive_that_settles_or_only_trembles_does_not_alternate() {
    let folder = headpond_testkit::tempdir();
    let settles = |second: usize| if second < 90 { 2600.0 } else { 800.0 };
    let settled = results(&folder.path().join("settles"), |at| settles(at) * noise(at));
    let text = report::text(&settled);
    assert!(text.contains("settles from 2,6") && text.contains("after 90 s"), "{text}");
    let trembling = results(&folder.path().join("trembles"), |at| 2600.0 * noise(at));
    for results in [settled, trembling] {
        assert!(!report::text(&results).contains("periodic"), "{}", report::text(&results));
    }
}

#[test]
fn a_device_that_goes_and_stands_still_alternates_and_a_few_answers_make_no_pattern() {
    let folder = headpond_testkit::tempdir();
    let standing = |second: usize| if second % 6 < 3 { 2600.0 } else { 0.0 };
    let stands = results(&folder.path().join("stands"), |at| standing(at) * noise(at));
    let text = report::text(&stands);
    assert!(text.contains("alternates between 2,600 and 0 IOPS (50 % of the time high)"), "{text}");
    let rare = results(&folder.path().join("rare"), |at| f64::from(u8::from(at % 5 == 0)) * 3.0);
    assert!(!report::text(&rare).contains("periodic"), "{}", report::text(&rare));
}
