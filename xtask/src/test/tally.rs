//! Counting what a test run prints.
//!
//! **Invariants**
//! - Counts come from libtest's result lines; the lines of single tests only give names, because
//!   a child process of a test may write into the middle of one.
//! - Every `running N tests` without a result is one failure: the binary died.
//!
//! **Source**: the output of libtest and cargo, which is stable in practice; the machine-readable
//! form (`--format json`) is not available on a stable toolchain.

use std::collections::BTreeSet;

use super::skips::Skip;

#[derive(Default)]
pub struct Tally {
    passed: usize,
    failed: usize,
    failures: Vec<String>,
    /// `binary: test` of every failure seen, to tell a skip from a skip that failed afterwards.
    failed_tests: BTreeSet<(String, String)>,
    skips: Vec<String>,
    binary: String,
    /// Failures of earlier runs of cargo.
    failed_before: usize,
    /// A `running N tests` whose result has not come yet.
    unfinished: bool,
}

impl Tally {
    /// Reads one line of output, without its line end.
    pub fn line(&mut self, line: &str) {
        if let Some(binary) = binary_started(line) {
            self.settle();
            self.binary = binary.to_owned();
        } else if is_running_line(line) {
            self.settle();
            self.unfinished = true;
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            self.unfinished = false;
            self.passed += count_before(counts, " passed");
            self.failed += count_before(counts, " failed");
        } else if let Some((test, outcome)) = test_outcome(line) {
            self.note_outcome(test, outcome);
        }
    }

    /// The end of the output of one run of cargo; where that failed without any failed test it did
    /// not build.
    pub fn finish(&mut self, success: bool) {
        self.settle();
        if !success && self.failed == self.failed_before {
            self.fail("cargo test: the build or a target without a test harness".to_owned());
        }
        self.failed_before = self.failed;
    }

    pub fn pass(&mut self) {
        self.passed += 1;
    }

    pub fn fail(&mut self, name: String) {
        self.failed += 1;
        self.failures.push(name);
    }

    pub fn skip(&mut self, name: String) {
        self.skips.push(name);
    }

    /// Moves the tests that skipped themselves from passed to skipped.
    ///
    /// # Panics
    /// When more tests skipped than passed: the log is not of this run.
    pub fn subtract_skips(&mut self, skips: &[Skip]) {
        for skip in skips {
            let test = (skip.binary.clone(), skip.test.clone());
            if !self.failed_tests.contains(&test) {
                self.passed = self.passed.checked_sub(1).expect("a skipped test passed first");
                self.skips.push(format!("{}: {}", skip.name, skip.why));
            }
        }
    }

    pub fn failed(&self) -> usize {
        self.failed
    }

    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    pub fn skips(&self) -> &[String] {
        &self.skips
    }

    pub fn closing_line(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skips.len())
    }

    fn settle(&mut self) {
        if std::mem::take(&mut self.unfinished) {
            self.fail(format!("{}: ended before its tests did", self.binary));
        }
    }

    fn note_outcome(&mut self, test: &str, outcome: &str) {
        if outcome == "FAILED" {
            self.failures.push(format!("{}: {test}", self.binary));
            self.failed_tests.insert((self.binary.clone(), test.to_owned()));
        } else if outcome.starts_with("ignored") {
            self.skips.push(format!("{test}: marked as ignored"));
        }
    }
}

/// The file name of the test binary in cargo's `Running unittests src/lib.rs (path/name-hash)`, or
/// the name in `Doc-tests name`.
fn binary_started(line: &str) -> Option<&str> {
    let line = line.trim_start();
    if let Some(name) = line.strip_prefix("Doc-tests ") {
        return Some(name);
    }
    let path = line.strip_prefix("Running ")?.strip_suffix(')')?.rsplit_once('(')?.1;
    path.rsplit('/').next()
}

fn is_running_line(line: &str) -> bool {
    let Some(rest) = line.strip_prefix("running ") else { return false };
    let Some((count, noun)) = rest.split_once(' ') else { return false };
    count.parse::<usize>().is_ok() && matches!(noun, "test" | "tests")
}

fn test_outcome(line: &str) -> Option<(&str, &str)> {
    let (test, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    Some((test, outcome))
}

/// The number that stands before `label`, 0 where there is none.
fn count_before(counts: &str, label: &str) -> usize {
    let Some((before, _)) = counts.split_once(label) else { return 0 };
    let number = before.rsplit(' ').next().unwrap_or_default();
    number.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "\
   Compiling headpond-raid v0.1.0
     Running unittests src/lib.rs (target/debug/deps/headpond_raid-31)

running 3 tests
test plan::full ... ok
test plan::partial ... FAILED
test needs_fio ... ok

test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out
   Doc-tests headpond_raid

running 2 tests
test crates/raid/src/lib.rs - plan (line 3) ... ok
test crates/raid/src/lib.rs - plan (line 9) ... ignored

test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out";

    fn tally_of(output: &str) -> Tally {
        let mut tally = Tally::default();
        output.lines().for_each(|line| tally.line(line));
        tally
    }

    fn skip(test: &str) -> Skip {
        Skip {
            binary: "headpond_raid-31".to_owned(),
            test: test.to_owned(),
            name: test.to_owned(),
            why: "fio is not installed".to_owned(),
        }
    }

    #[test]
    fn every_binary_is_added_up() {
        let mut tally = tally_of(RUN);
        tally.finish(false);
        assert_eq!(tally.closing_line(), "3 passed, 1 failed, 1 skipped");
        assert_eq!(tally.failures(), ["headpond_raid-31: plan::partial"]);
    }

    #[test]
    fn a_skipped_test_is_not_a_passed_one() {
        let mut tally = tally_of(RUN);
        tally.subtract_skips(&[skip("needs_fio")]);
        assert_eq!(tally.closing_line(), "2 passed, 1 failed, 2 skipped");
    }

    #[test]
    fn a_test_that_skips_and_then_fails_has_failed() {
        let mut tally = tally_of(RUN);
        tally.subtract_skips(&[skip("plan::partial")]);
        assert_eq!(tally.closing_line(), "3 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn a_binary_that_dies_is_a_failure() {
        let mut tally = tally_of("     Running tests/a.rs (deps/a-1)\nrunning 2 tests");
        tally.finish(false);
        assert_eq!(tally.failures(), ["a-1: ended before its tests did"]);
        assert_eq!(tally.closing_line(), "0 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn a_run_that_does_not_build_is_a_failure() {
        let mut tally = tally_of("error[E0425]: cannot find value");
        tally.finish(false);
        assert_eq!(tally.closing_line(), "0 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn each_run_that_does_not_build_is_a_failure() {
        let mut tally = tally_of(RUN);
        tally.finish(false);
        tally.line("error: target `defects` requires the features: `defects`");
        tally.finish(false);
        assert_eq!(tally.closing_line(), "3 passed, 2 failed, 1 skipped");
    }

    #[test]
    fn text_that_only_resembles_a_result_is_not_counted() {
        let tally = tally_of("running late\ntest slow has been running for over 60 seconds");
        assert_eq!(tally.closing_line(), "0 passed, 0 failed, 0 skipped");
    }
}
