//! The dependency graph as `cargo metadata` tells it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

#[derive(Deserialize)]
pub struct Metadata {
    pub packages: Vec<Package>,
    workspace_members: Vec<String>,
    pub target_directory: PathBuf,
}

#[derive(Deserialize)]
pub struct Package {
    id: String,
    pub name: String,
    pub version: String,
    /// An SPDX expression.
    pub license: Option<String>,
    /// Where it came from; `None` for a member of the workspace.
    pub source: Option<String>,
    pub dependencies: Vec<Dependency>,
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
pub struct Dependency {
    pub name: String,
    /// `None` for a normal dependency, else `dev` or `build`.
    pub kind: Option<String>,
}

impl Metadata {
    pub fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }
}

impl Package {
    /// Its sources.
    pub fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }

    /// What has the sources of all crates of its registry; none for a member of the workspace.
    pub fn folder_of_registry(&self) -> Option<&Path> {
        self.source.as_ref().and_then(|_| self.folder().parent())
    }

    /// Names of its benchmarks.
    pub fn benches(&self) -> impl Iterator<Item = &str> {
        let benches = self.targets.iter().filter(|target| target.kind.iter().any(|k| k == "bench"));
        benches.map(|target| target.name.as_str())
    }
}

/// Asks cargo for the graph on the platform that we build for.
///
/// # Errors
/// When cargo fails or answers in a form that we do not know.
pub fn read(workspace: &Path) -> Result<Metadata> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let platform = "x86_64-unknown-linux-gnu";
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--filter-platform", platform])
        .current_dir(workspace)
        .output()
        .context("starting cargo metadata")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("reading cargo metadata")
}

#[cfg(test)]
pub mod samples {
    use super::{Dependency, Metadata, Package};

    /// A workspace of these members, each with its normal dependencies.
    pub fn workspace(members: &[(&str, &[&str])]) -> Metadata {
        let packages: Vec<Package> = members.iter().map(|(name, on)| member(name, on)).collect();
        let workspace_members = packages.iter().map(|package| package.id.clone()).collect();
        Metadata { packages, workspace_members, target_directory: "target".into() }
    }

    fn member(name: &str, on: &[&str]) -> Package {
        let dependencies =
            on.iter().map(|name| Dependency { name: (*name).to_owned(), kind: None }).collect();
        Package { dependencies, source: None, ..foreign(name, "MIT") }
    }

    /// A crate from the registry.
    pub fn foreign(name: &str, license: &str) -> Package {
        Package {
            id: name.to_owned(),
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: Some(license.to_owned()),
            source: Some("registry+https://github.com/rust-lang/crates.io-index".to_owned()),
            dependencies: Vec::new(),
            manifest_path: format!("/registry/{name}/Cargo.toml").into(),
            targets: Vec::new(),
        }
    }
}
