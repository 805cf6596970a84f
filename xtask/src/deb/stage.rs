//! The folder in which debhelper works.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::licences;
use crate::metadata::Metadata;

/// What may be there: the board and the rules of alerts.
const MONITORING: &str = "monitoring";
/// Folders of `docs/` that are not for users, or have a place of their own.
const NO_PAGES: [&str; 2] = ["decisions", "examples"];

/// Fills the folder with all but the changelog.
///
/// # Errors
/// What cannot be copied, or made by the program.
pub fn fill(workspace: &Path, metadata: &Metadata, source: &Path, program: &Path) -> Result<()> {
    let debian = source.join("debian");
    copy_folder(&workspace.join("packaging/debian"), &debian)?;
    for entry in entries(&workspace.join("systemd"))? {
        let unit = file_name(&entry);
        copy(&entry, &debian.join(of_package(&unit)))?;
    }
    copy(&workspace.join("udev/64-headpond.rules"), &debian.join("headpond.udev"))?;
    copy(&workspace.join("sysusers/headpond.conf"), &debian.join("headpond.sysusers"))?;
    copy(&workspace.join("CHANGELOG.md"), &source.join("CHANGELOG.md"))?;
    copy(program, &source.join("headpond"))?;
    fill_pages(workspace, source)?;
    let monitoring = workspace.join(MONITORING);
    if monitoring.is_dir() {
        copy_folder(&monitoring, &source.join(MONITORING))?;
        let path = debian.join("headpond.install");
        let list = fs::read_to_string(&path).context("reading the list of files")?;
        fs::write(&path, format!("{list}{MONITORING}/* usr/share/headpond/{MONITORING}\n"))?;
    }
    generate(program, &source.join("man"), "man")?;
    let completions = source.join("completions");
    generate(program, &completions, "completions")?;
    for (made, folder, name) in [
        ("headpond.bash", "bash", "headpond"),
        ("_headpond", "zsh", "_headpond"),
        ("headpond.fish", "fish", "headpond.fish"),
    ] {
        fs::create_dir(completions.join(folder))?;
        fs::rename(completions.join(made), completions.join(folder).join(name))?;
    }
    let path = debian.join("copyright");
    let head = fs::read_to_string(&path).context("reading the licence")?;
    let licence =
        fs::read_to_string(workspace.join("LICENSE-MIT")).context("reading the licence")?;
    fs::write(&path, head + &licence + &licences::text(&licences::linked(workspace, metadata)?)?)?;
    Ok(())
}

/// Pages for users, and examples.
fn fill_pages(workspace: &Path, source: &Path) -> Result<()> {
    let pages = source.join("docs");
    fs::create_dir(&pages)?;
    for entry in entries(&workspace.join("docs"))? {
        let name = file_name(&entry);
        match entry.is_dir() {
            true if NO_PAGES.contains(&&*name) => {}
            true => copy_folder(&entry, &pages.join(name))?,
            false => copy(&entry, &pages.join(name))?,
        }
    }
    copy_folder(&workspace.join("docs/examples"), &source.join("examples"))
}

/// As debhelper knows a unit: with the package's name before it, unless it begins with that.
fn of_package(unit: &str) -> String {
    match unit.strip_prefix("headpond") {
        Some(rest) if rest.starts_with(['.', '@']) => unit.to_owned(),
        _ => format!("headpond.{unit}"),
    }
}

fn generate(program: &Path, folder: &Path, what: &str) -> Result<()> {
    let mut command = Command::new(program);
    command.args(["generate", what]).arg(folder).env("HEADPOND_CONFIG", "/dev/null");
    let output = command.output().with_context(|| format!("starting {}", program.display()))?;
    ensure!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// In the order of their names.
fn entries(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let read = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut entries: Vec<_> = read.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    entries.sort();
    Ok(entries)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("copying {}", from.display()))?;
    Ok(())
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("making {}", to.display()))?;
    for entry in entries(from)? {
        let to = to.join(file_name(&entry));
        if entry.is_dir() { copy_folder(&entry, &to)? } else { copy(&entry, &to)? }
    }
    Ok(())
}
