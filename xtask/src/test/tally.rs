//! Counting what test programs print.
//!
//! **Invariants**
//! - Counts come from libtest's result lines; the lines of single tests only give names, because
//!   a child process of a test may write into the middle of one.
//! - A program that fails without a failed test, or ends without a result, is one failure.
//!
//! **Source**: the output of libtest, which is stable in practice; the machine-readable form
//! (`--format json`) is not available on a stable toolchain.

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
    left_out: usize,
}

impl Tally {
    /// Reads what a program printed, and how it ended; how many of its tests ran.
    pub fn program(&mut self, binary: &str, output: &str, success: bool) -> usize {
        let before = (self.passed, self.failed);
        let mut results = 0;
        let mut running = 0;
        for line in output.lines() {
            if let Some(counts) = line.strip_prefix("test result: ") {
                results += 1;
                self.passed += count_before(counts, " passed");
                self.failed += count_before(counts, " failed");
                self.left_out += count_before(counts, " filtered out");
            } else if is_running_line(line) {
                running += 1;
            } else if let Some((test, outcome)) = test_outcome(line) {
                self.note_outcome(binary, test, outcome);
            }
        }
        let ended_early = running > results;
        if ended_early || (!success && self.failed == before.1) {
            self.fail(format!("{binary}: ended before its tests did, or without their result"));
        }
        self.passed + self.failed - before.0 - before.1
    }

    pub fn pass(&mut self) {
        self.passed += 1;
    }

    pub fn skip(&mut self, name: String) {
        self.skips.push(name);
    }

    pub fn fail(&mut self, name: String) {
        self.failed += 1;
        self.failures.push(name);
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

    /// Tests that the arguments of this run passed over.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    pub fn closing_line(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skips.len())
    }

    fn note_outcome(&mut self, binary: &str, test: &str, outcome: &str) {
        if outcome == "FAILED" {
            self.failures.push(format!("{binary}: {test}"));
            self.failed_tests.insert((binary.to_owned(), test.to_owned()));
        } else if outcome.starts_with("ignored") {
            self.skips.push(format!("{test}: marked as ignored"));
        }
    }
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
running 3 tests
test plan::full ... ok
test plan::partial ... FAILED
test needs_fio ... ok

test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 4 filtered out; finished in 1.00s";

    const OTHER: &str = "\
running 2 tests
test clock::goes ... ok
test clock::stands ... ignored

test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out";

    fn tally() -> Tally {
        let mut tally = Tally::default();
        assert_eq!(tally.program("headpond_raid-31", RUN, false), 3);
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
    fn every_program_is_added_up() {
        let mut tally = tally();
        assert_eq!(tally.program("headpond_sim-7", OTHER, true), 1);
        assert_eq!(tally.closing_line(), "3 passed, 1 failed, 1 skipped");
        assert_eq!(tally.failures(), ["headpond_raid-31: plan::partial"]);
        assert_eq!(tally.left_out(), 4);
    }

    #[test]
    fn a_skipped_test_is_not_a_passed_one() {
        let mut tally = tally();
        tally.subtract_skips(&[skip("needs_fio")]);
        assert_eq!(tally.closing_line(), "1 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn a_test_that_skips_and_then_fails_has_failed() {
        let mut tally = tally();
        tally.subtract_skips(&[skip("plan::partial")]);
        assert_eq!(tally.closing_line(), "2 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn a_program_that_dies_is_a_failure() {
        for (output, success) in
            [("running 2 tests", false), ("running 2 tests", true), ("", false)]
        {
            let mut tally = Tally::default();
            tally.program("a-1", output, success);
            assert_eq!(tally.closing_line(), "0 passed, 1 failed, 0 skipped", "{output} {success}");
            assert!(tally.failures()[0].starts_with("a-1: "));
        }
    }

    #[test]
    fn a_program_that_dies_after_a_failed_test_is_counted_once_for_each() {
        let mut tally = Tally::default();
        tally.program("a-1", &format!("{RUN}\nrunning 7 tests"), false);
        assert_eq!(tally.closing_line(), "2 passed, 2 failed, 0 skipped");
    }

    #[test]
    fn text_that_only_resembles_a_result_is_not_counted() {
        let mut tally = Tally::default();
        tally.program("a", "running late\ntest slow has been running for over 60 seconds", true);
        assert_eq!(tally.closing_line(), "0 passed, 0 failed, 0 skipped");
    }
}
