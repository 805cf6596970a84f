//! The skip protocol between a test and the runner.
//!
//! **Source**: ours. libtest's own `ignored` is decided at compile time, before the machine is
//! known.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// Name of the variable that holds the path of the runner's skip log.
const SKIP_LOG: &str = "HEADPOND_SKIP_LOG";

/// Says on stderr, and in the runner's log when there is one, that `name` cannot run here.
///
/// The caller returns from its test afterwards; the [`skip!`](crate::skip!) macro does both.
///
/// # Panics
/// When the log is named but cannot be written: the skip would be counted as passed.
pub fn skip(name: &str, why: &str) {
    eprintln!("skipped: {name}: {why}");
    if let Some(log) = std::env::var_os(SKIP_LOG) {
        append(Path::new(&log), &line(&test_binary(), &current_test(name), name, why))
            .expect("the skip log can be written");
    }
}

/// One write of one whole line, so that tests in parallel do not mix theirs.
fn append(log: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(log)?.write_all(line.as_bytes())
}

fn line(binary: &str, test: &str, name: &str, why: &str) -> String {
    let [binary, test, name, why] = [binary, test, name, why].map(on_one_line);
    format!("{binary}\t{test}\t{name}\t{why}\n")
}

fn on_one_line(text: &str) -> String {
    text.split(['\t', '\n', '\r']).collect::<Vec<_>>().join(" ")
}

fn test_binary() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// libtest names each test's thread after the test; with one thread it runs on `main`, where the
/// name given by the test has to do.
fn current_test(name: &str) -> String {
    match std::thread::current().name() {
        Some("main") | None => name.to_owned(),
        Some(test) => test.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_is_one_line_of_four_fields_whatever_the_reason_holds() {
        let line = line("raid-1", "mod::case", "case", "no\tdevice\nhere");
        assert_eq!(line, "raid-1\tmod::case\tcase\tno device here\n");
    }

    #[test]
    fn skips_append_to_the_log() {
        let dir = crate::tempdir();
        let log = dir.path().join("skips");
        append(&log, "first\n").unwrap();
        append(&log, "second\n").unwrap();
        assert_eq!(std::fs::read_to_string(log).unwrap(), "first\nsecond\n");
    }

    #[test]
    fn the_running_test_is_known_by_its_thread() {
        let on_main = std::thread::current().name() == Some("main");
        let expected =
            if on_main { "given" } else { "skip::tests::the_running_test_is_known_by_its_thread" };
        assert_eq!(current_test("given"), expected);
    }
}
