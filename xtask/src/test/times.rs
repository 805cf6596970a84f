//! Where the time of a run goes.
//!
//! 1. Steps before the tests hand over their seconds in the environment ([`EARLIER`]).
//! 2. Linking is timed by a `cc` that stands first in cargo's path ([`LinkerWatch`]).
//! 3. What each program took is kept in the target folder, so that the next run starts with the
//!    longest.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// Steps before this one, as `tools=3 lint=140`.
pub const EARLIER: &str = "HEADPOND_EARLIER_SECONDS";
const KEPT: &str = "test-seconds.json";

/// One row of the table.
#[derive(Debug, PartialEq)]
pub struct Row {
    pub name: String,
    pub seconds: f64,
    pub note: String,
}

impl Row {
    pub fn new(name: impl Into<String>, seconds: f64, note: impl Into<String>) -> Self {
        Self { name: name.into(), seconds, note: note.into() }
    }
}

/// The steps that ran before, from the environment.
pub fn earlier(words: &str) -> Vec<Row> {
    let steps = words.split_whitespace().filter_map(|word| word.split_once('='));
    let rows = steps.filter_map(|(name, it)| Some(Row::new(name, it.parse().ok()?, "")));
    rows.collect()
}

/// The rows below each other.
pub fn table(rows: &[Row]) -> String {
    let mut out = String::from("seconds\n");
    for Row { name, seconds, note } in rows {
        let line = format!("{seconds:>7.0}  {name:<24} {note}");
        writeln!(out, "{}", line.trim_end()).expect("a string can be written to");
    }
    out
}

/// What each program took the last time; nothing where there was none.
pub fn kept(target: &Path) -> BTreeMap<String, f64> {
    let text = fs::read_to_string(target.join(KEPT)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Keeps what programs took, beside what is known of others.
///
/// # Errors
/// When the target folder cannot be written.
pub fn keep(target: &Path, took: BTreeMap<String, f64>) -> Result<()> {
    let mut all = kept(target);
    all.extend(took);
    let path = target.join(KEPT);
    fs::write(&path, serde_json::to_string_pretty(&all)?)
        .with_context(|| format!("writing {}", path.display()))
}

/// A `cc` that passes everything on and writes down how long linking takes. rustc has no other way
/// to tell it on a stable toolchain, and nothing is rebuilt because of it.
pub struct LinkerWatch {
    folder: TempDir,
}

impl LinkerWatch {
    /// # Errors
    /// When the temporary folder cannot be written.
    pub fn begin() -> Result<Self> {
        let watch = Self { folder: tempfile::tempdir()? };
        if let Some(real) = find("cc") {
            let script = watch.folder.path().join("cc");
            let (real, log) = (real.display(), watch.log());
            let text = format!(
                "#!/bin/sh\n\
                 case \" $* \" in *' -c '* | *' -E '*) exec {real} \"$@\" ;; esac\n\
                 begin=$(date +%s%N)\n\
                 {real} \"$@\"\n\
                 status=$?\n\
                 echo $((($(date +%s%N) - begin) / 1000000)) >>{}\n\
                 exit $status\n",
                log.display()
            );
            fs::write(&script, text)?;
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        }
        Ok(watch)
    }

    /// The search path with the watching `cc` first.
    pub fn path(&self) -> OsString {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = [self.folder.path().to_owned()].into_iter();
        let all = std::env::join_paths(folders.chain(std::env::split_paths(&path)));
        all.unwrap_or(path)
    }

    /// How often something was linked, and the seconds of all together.
    pub fn links(&self) -> (usize, f64) {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let millis: Vec<f64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        (millis.len(), millis.iter().sum::<f64>() / 1e3)
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("links")
    }
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|it| it.join(program)).find(|it| it.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn earlier_steps_are_read_and_what_is_none_is_passed_over() {
        let rows = earlier("tools=3 lint=140.5 x y=z");
        assert_eq!(rows, [Row::new("tools", 3.0, ""), Row::new("lint", 140.5, "")]);
        assert_eq!(table(&rows), "seconds\n      3  tools\n    140  lint\n");
    }

    #[test]
    fn what_programs_took_is_kept_beside_what_is_known_of_others() {
        let target = tempfile::tempdir().unwrap();
        keep(target.path(), [("a".to_owned(), 1.0), ("b".to_owned(), 2.0)].into()).unwrap();
        keep(target.path(), [("b".to_owned(), 3.0)].into()).unwrap();
        assert_eq!(kept(target.path()), [("a".to_owned(), 1.0), ("b".to_owned(), 3.0)].into());
        fs::write(target.path().join(KEPT), "damaged").unwrap();
        assert!(kept(target.path()).is_empty());
    }

    #[test]
    fn links_are_counted_and_compilations_are_not() {
        let watch = LinkerWatch::begin().unwrap();
        let cc = watch.folder.path().join("cc");
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.c"), "int main(void) { return 0; }").unwrap();
        let call = |arguments: &[&str]| {
            let mut command = Command::new(&cc);
            command.args(arguments).current_dir(folder.path()).status().unwrap().success()
        };
        assert!(call(&["-c", "a.c"]) && watch.links().0 == 0);
        assert!(call(&["a.o", "-o", "a"]) && watch.links().0 == 1);
        assert!(!call(&["no-such-file.o"]), "the exit status is the linker's");
    }
}
