//! The files of the tree: Rust, and documents.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

pub struct SourceFile {
    /// From the workspace's root, with `/`.
    pub path: String,
    pub text: String,
}

impl SourceFile {
    /// The folder name of the crate under `crates/`, if it is in one.
    pub fn crate_folder(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// Whether the whole file is compiled for tests or benchmarks only.
    pub fn is_for_tests(&self) -> bool {
        let mut folders = self.path.split('/');
        let file = folders.next_back().unwrap_or_default();
        let is_test_module = file == "tests.rs" || file.ends_with("_tests.rs");
        is_test_module || folders.any(|folder| matches!(folder, "tests" | "benches"))
    }

    /// Whether it holds part of a crate rather than a test, a benchmark or a build script.
    pub fn is_in_src(&self) -> bool {
        self.path.split('/').any(|folder| folder == "src") && !self.is_for_tests()
    }
}

/// Every Rust file that git knows or would add.
///
/// # Errors
/// When git cannot list the tree or a file cannot be read.
pub fn all(workspace: &Path) -> Result<Vec<SourceFile>> {
    read(workspace, ".rs")
}

/// Every document that git knows or would add.
///
/// # Errors
/// When git cannot list the tree or a file cannot be read.
pub fn documents(workspace: &Path) -> Result<Vec<SourceFile>> {
    read(workspace, ".md")
}

fn read(workspace: &Path, extension: &str) -> Result<Vec<SourceFile>> {
    let paths = listed(workspace)?.into_iter().filter(|path| path.ends_with(extension));
    paths
        .map(|path| {
            let text = std::fs::read_to_string(workspace.join(&path))
                .with_context(|| format!("reading {path}"))?;
            Ok(SourceFile { path, text })
        })
        .collect()
}

/// Every file that git knows or would add and that still exists, from the workspace's root.
///
/// # Errors
/// When git cannot list the tree.
pub fn listed(workspace: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(workspace)
        .output()
        .context("starting git")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).context("file names in UTF-8")?;
    let names = names.split_terminator('\0').map(str::to_owned);
    Ok(names.filter(|name| workspace.join(name).is_file()).collect())
}

#[cfg(test)]
pub mod samples {
    use super::SourceFile;

    pub fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::samples::file;

    #[test]
    fn a_file_knows_its_crate_and_its_purpose() {
        let source = file("crates/raid/src/plan/full.rs", "");
        assert_eq!(source.crate_folder(), Some("raid"));
        assert!(source.is_in_src());
        assert!(file("crates/raid/src/plan/tests.rs", "").is_for_tests());
        assert!(file("crates/raid/src/plan_tests.rs", "").is_for_tests());
        assert!(file("crates/raid/tests/integration/model.rs", "").is_for_tests());
        assert_eq!(file("xtask/src/main.rs", "").crate_folder(), None);
    }
}
