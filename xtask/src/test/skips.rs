//! The skips that tests reported through `headpond-testkit`.
//!
//! **Invariants**: one entry per test, however many of its parts it skipped.

use std::collections::BTreeSet;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// File name of the test binary, with cargo's hash.
    pub binary: String,
    /// Path of the test in its binary.
    pub test: String,
    pub name: String,
    pub why: String,
}

/// Reads the log; the first skip of a test stands for it. Lines of another form are passed over.
pub fn parse(log: &str) -> Vec<Skip> {
    let mut seen = BTreeSet::new();
    log.lines()
        .filter_map(entry)
        .filter(|skip| seen.insert((skip.binary.clone(), skip.test.clone())))
        .collect()
}

fn entry(line: &str) -> Option<Skip> {
    let mut fields = line.splitn(4, '\t').map(str::to_owned);
    let (binary, test) = (fields.next()?, fields.next()?);
    Some(Skip { binary, test, name: fields.next()?, why: fields.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_with_two_skipped_parts_is_one_skip() {
        let skips = parse("nbd-1\tfio\tdepth 1\tno fio\nnbd-1\tfio\tdepth 32\tno fio\n");
        assert_eq!(skips.len(), 1);
        assert_eq!((skips[0].name.as_str(), skips[0].why.as_str()), ("depth 1", "no fio"));
    }

    #[test]
    fn the_same_test_name_in_two_binaries_is_two_skips() {
        assert_eq!(parse("nbd-1\tfio\ta\tw\nraid-1\tfio\ta\tw\n").len(), 2);
    }

    #[test]
    fn a_broken_line_is_passed_over() {
        assert_eq!(parse("half a line\n"), []);
    }
}
