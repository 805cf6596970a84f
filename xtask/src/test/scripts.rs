//! End-to-end scripts: `tests/*.sh`, each one test.
//!
//! Exit status 0 is a pass, 77 a skip (its last line of output says why), all else a failure. The
//! folder of the built binary stands first in the script's `PATH`.
//!
//! **Source**: 77 is automake's convention for a skipped test.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::tally::Tally;

const SKIPPED: i32 = 77;

/// Runs every script and adds its outcome to the tally.
///
/// # Errors
/// When a script cannot be started.
pub fn run(workspace: &Path, skip_log: &Path, tally: &mut Tally) -> Result<()> {
    for script in scripts(&workspace.join("tests"))? {
        let name = script.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        println!("\nscript {name}");
        let output = command(workspace, &script, skip_log)?
            .output()
            .with_context(|| format!("starting {}", script.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        print!("{text}");
        match output.status.code() {
            Some(0) => tally.pass(),
            Some(SKIPPED) => tally.skip(format!("{name}: {}", last_line(&text))),
            _ => tally.fail(format!("script {name}: {}", output.status)),
        }
    }
    Ok(())
}

fn command(workspace: &Path, script: &Path, skip_log: &Path) -> Result<Command> {
    let mut command = Command::new("bash");
    command.arg(script).current_dir(workspace).env("HEADPOND_SKIP_LOG", skip_log);
    command.env("PATH", path_with(&binary_folder()?)?).stderr(io::stderr());
    Ok(command)
}

/// The folder that cargo built into: this program runs from it.
fn binary_folder() -> Result<PathBuf> {
    let own = std::env::current_exe().context("finding the built binaries")?;
    Ok(own.parent().expect("a program lies in a folder").to_owned())
}

fn path_with(first: &Path) -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(first.to_owned()).chain(std::env::split_paths(&path));
    Ok(std::env::join_paths(folders)?)
}

fn scripts(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries = folder.read_dir().with_context(|| format!("listing {}", folder.display()))?;
    let mut scripts: Vec<PathBuf> =
        entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    scripts.retain(|path| path.extension().is_some_and(|extension| extension == "sh"));
    scripts.sort();
    Ok(scripts)
}

fn last_line(text: &str) -> &str {
    text.trim_end().lines().last().unwrap_or("no reason given")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_pass_fail_and_skip_by_their_exit_status() {
        let dir = tempfile::tempdir().unwrap();
        let tests = dir.path().join("tests");
        std::fs::create_dir(&tests).unwrap();
        for (name, text) in
            [("a.sh", "exit 0"), ("b.sh", "exit 3"), ("c.sh", "echo no fio; exit 77")]
        {
            std::fs::write(tests.join(name), text).unwrap();
        }
        std::fs::write(tests.join("notes.md"), "").unwrap();
        let mut tally = Tally::default();
        run(dir.path(), &dir.path().join("log"), &mut tally).unwrap();
        assert_eq!(tally.closing_line(), "1 passed, 1 failed, 1 skipped");
        assert_eq!(tally.skips(), ["c: no fio"]);
        assert_eq!(tally.failures(), ["script b: exit status: 3"]);
    }

    #[test]
    fn a_workspace_without_scripts_is_fine() {
        let dir = tempfile::tempdir().unwrap();
        assert!(scripts(&dir.path().join("tests")).unwrap().is_empty());
    }
}
