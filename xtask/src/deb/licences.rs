//! Notices of the crates that the program is linked with, as their licences ask for.
//!
//! **Not here**: which licences are accepted (`tidy`).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::metadata::Metadata;

/// How files of licences begin.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT"];
/// Texts that need no copy: that of the Apache License is on each Debian system, and no crate is
/// used under the terms of the other.
const LEFT_OUT: [&str; 2] = ["Version 2.0, January 2004", "GNU GENERAL PUBLIC LICENSE"];

/// A crate with its sources.
pub struct Linked {
    name: String,
    /// An SPDX expression.
    license: String,
    folder: PathBuf,
}

/// The crates of others that are in the program.
///
/// # Errors
/// When cargo does not tell.
pub fn linked(workspace: &Path, metadata: &Metadata) -> Result<Vec<Linked>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["tree", "--locked", "--package", super::PACKAGE, "--prefix", "none"]);
    cargo.args(["--edges", "normal,no-proc-macro", "--format", "{p}"]).current_dir(workspace);
    let output = cargo.output().context("starting cargo tree")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<&str> = told.lines().collect();
    lines.sort_unstable();
    let mut linked = Vec::new();
    for package in metadata.packages.iter().filter(|package| package.source.is_some()) {
        let name = format!("{} v{}", package.name, package.version);
        let is_it =
            |line: &&str| line.strip_prefix(&name).is_some_and(|rest| !rest.starts_with('.'));
        if lines.iter().any(is_it) {
            linked.push(Linked {
                name: format!("{} {}", package.name, package.version),
                license: package.license.clone().unwrap_or_default(),
                folder: package.folder().to_owned(),
            });
        }
    }
    ensure!(!linked.is_empty(), "cargo tree names no crate: {told}");
    Ok(linked)
}

/// A list of the crates, and each notice once.
///
/// # Errors
/// What cannot be read.
pub fn text(linked: &[Linked]) -> Result<String> {
    let mut text =
        "\nThe program is linked with these works, the standard library of Rust (MIT or \
                    Apache-2.0)\namong them. Of several licences with an \"or\" MIT is taken \
                    where it is one of them.\n\n"
            .to_owned();
    let mut notices: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for linked in linked {
        writeln!(text, "  {}: {}", linked.name, linked.license)?;
        for notice in linked.notices()? {
            notices.entry(notice).or_default().push(&linked.name);
        }
    }
    let mut notices: Vec<(String, Vec<&str>)> = notices.into_iter().collect();
    notices.sort_by(|(_, a), (_, b)| a.cmp(b));
    for (notice, names) in notices {
        write!(text, "\n{}\nNotice of {}:\n\n{notice}\n", "-".repeat(72), names.join(", "))?;
    }
    Ok(text)
}

impl Linked {
    /// Also of works that it contains, such as the sources of a library in C.
    fn notices(&self) -> Result<Vec<String>> {
        let mut files = Vec::new();
        find(&self.folder, 1, &mut files)?;
        files.sort();
        let mut notices = Vec::new();
        for file in files {
            let bytes = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
            let notice = String::from_utf8_lossy(&bytes).replace('\r', "");
            if !LEFT_OUT.iter().any(|text| notice.contains(text)) {
                notices.push(notice.trim_matches('\n').to_owned());
            }
        }
        Ok(notices)
    }
}

fn find(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        if path.is_dir() {
            if depth > 0 {
                find(&path, depth - 1, files)?;
            }
        } else if NAMES.iter().any(|start| name.starts_with(start)) && !name.ends_with(".RS") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_of_two_crates_is_there_once_and_texts_that_debian_has_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let linked = ["a", "b"].map(|name| {
            let of_crate = folder.path().join(name);
            fs::create_dir_all(of_crate.join("c")).unwrap();
            fs::write(of_crate.join("LICENSE-MIT"), "Copyright of both\r\n").unwrap();
            fs::write(of_crate.join("LICENSE-APACHE"), "Version 2.0, January 2004").unwrap();
            fs::write(of_crate.join("c/COPYING"), format!("of {name}\n")).unwrap();
            Linked { name: format!("{name} 1.0.0"), license: "MIT".into(), folder: of_crate }
        });
        let text = text(&linked).unwrap();
        assert!(text.contains("  a 1.0.0: MIT\n  b 1.0.0: MIT\n"), "{text}");
        assert!(text.contains("Notice of a 1.0.0, b 1.0.0:\n\nCopyright of both\n"), "{text}");
        assert_eq!(text.matches("Copyright of both").count(), 1, "{text}");
        assert!(text.contains("\nof a\n") && !text.contains("January"), "{text}");
    }
}
