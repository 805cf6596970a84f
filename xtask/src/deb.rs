//! The Debian package: `cargo xtask deb`.
//!
//! 1. The program is built, or given.
//! 2. What the package is made of is put into a folder of its own ([`stage`]): units, rule and
//!    group as they are in the tree; man pages and completions as the program makes them of its own
//!    commands; licences of the crates that it is linked with ([`licences`]).
//! 3. debhelper makes the package, by the rules in `packaging/debian`.
//!
//! **Invariants**
//! - One program at one commit makes the same file, byte for byte: no clock is read, the time is
//!   that of the commit, or `SOURCE_DATE_EPOCH`.
//!
//! **Not here**: what the maintainer scripts do (`packaging/debian`).

mod licences;
mod stage;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::metadata::{self, Metadata};

/// What of ours the package is of, and its name.
const PACKAGE: &str = "headpond";
/// Packages of Debian itself begin at 1.
const REVISION: &str = "0headpond1";

#[derive(clap::Args)]
pub struct Options {
    /// Package this `headpond` in place of a release that is built now.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// The version of the package; default: that of the program, and before its release the time of
    /// the commit.
    #[arg(long)]
    version: Option<String>,
    /// The folder that gets the package.
    #[arg(long, value_name = "DIR", default_value = "target/debian")]
    out: PathBuf,
}

/// What a package is made of beside the tree.
pub struct Recipe<'a> {
    pub program: &'a Path,
    /// In place of the usual one.
    pub version: Option<&'a str>,
    /// Its folder exists.
    pub out: &'a Path,
    /// Compress little: for a package that is thrown away.
    pub is_trial: bool,
}

/// Makes the package, and prints its path.
///
/// # Errors
/// Where the program does not build, or debhelper fails.
pub fn run(workspace: &Path, options: &Options) -> Result<bool> {
    ensure!(is_installed(), "dh is not installed: apt-get install debhelper");
    let program = match &options.program {
        Some(program) => program.clone(),
        None => build(workspace)?,
    };
    std::fs::create_dir_all(&options.out)
        .with_context(|| format!("making {}", options.out.display()))?;
    let recipe = Recipe {
        program: &program,
        version: options.version.as_deref(),
        out: &options.out,
        is_trial: false,
    };
    println!("{}", make(workspace, &recipe)?.display());
    Ok(true)
}

/// Whether this machine can make packages.
pub fn is_installed() -> bool {
    Command::new("dh").arg("--help").output().is_ok()
}

/// Makes the package in its folder.
///
/// # Errors
/// What debhelper tells.
pub fn make(workspace: &Path, recipe: &Recipe<'_>) -> Result<PathBuf> {
    let metadata = metadata::read(workspace)?;
    let time = Time::of(workspace)?;
    let version = match recipe.version {
        Some(version) => version.to_owned(),
        None => version(workspace, &metadata, &time)?,
    };
    let folder = tempfile::tempdir().context("a folder for the package")?;
    let source = folder.path().join("source");
    stage::fill(workspace, &metadata, &source, recipe.program)?;
    let entry = format!(
        "{PACKAGE} ({version}) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- {}  {}\n",
        maintainer(workspace)?,
        time.rfc_2822()?
    );
    std::fs::write(source.join("debian/changelog"), entry).context("writing the changelog")?;
    debhelper(&source, &time, recipe.is_trial)?;
    let made = only_package(folder.path())?;
    let to = recipe.out.join(made.file_name().expect("a file has a name"));
    std::fs::copy(&made, &to).with_context(|| format!("writing {}", to.display()))?;
    Ok(to)
}

fn debhelper(source: &Path, time: &Time, is_trial: bool) -> Result<()> {
    let mut rules = Command::new("debian/rules");
    rules.arg("binary").current_dir(source);
    // It comes from cargo and make, and would reach the programs that are called.
    for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "DEB_BUILD_OPTIONS", "DEB_BUILD_PROFILES"] {
        rules.env_remove(name);
    }
    rules.env("SOURCE_DATE_EPOCH", &time.0).env("DEB_RULES_REQUIRES_ROOT", "no");
    rules.env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
    if is_trial {
        rules.env("DPKG_DEB_COMPRESSOR_TYPE", "gzip").env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    }
    let output = rules.output().context("starting debhelper")?;
    let told = [&output.stdout[..], &output.stderr[..]].concat();
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&told));
    Ok(())
}

fn only_package(folder: &Path) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let mut packages = entries.filter(|path| path.extension().is_some_and(|it| it == "deb"));
    packages.next().context("debhelper has made no package")
}

/// A release in which no path of this machine is left.
fn build(workspace: &Path) -> Result<PathBuf> {
    let read = metadata::read(workspace)?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--locked", "--release", "--package", PACKAGE]);
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let tree = workspace.display();
    let mut flags = format!("{flags} --remap-path-prefix={tree}=headpond");
    for folder in read.packages.iter().filter_map(|package| package.folder_of_registry()) {
        let remapped = format!(" --remap-path-prefix={}=crates", folder.display());
        if !flags.contains(&remapped) {
            flags.push_str(&remapped);
        }
    }
    cargo.env("RUSTFLAGS", flags.trim());
    let status = cargo.current_dir(workspace).status().context("starting cargo")?;
    ensure!(status.success(), "headpond does not build: {status}");
    Ok(read.target_directory.join("release").join(PACKAGE))
}

/// Seconds since 1970.
struct Time(String);

impl Time {
    fn of(workspace: &Path) -> Result<Self> {
        if let Ok(time) = std::env::var("SOURCE_DATE_EPOCH") {
            return Ok(Self(time));
        }
        let of_commit = asked(Command::new("git").args(["log", "-1", "--format=%ct"]), workspace);
        of_commit.map(Self).context("this is no clone of git: SOURCE_DATE_EPOCH has to be set")
    }

    fn formatted(&self, format: &[&str]) -> Result<String> {
        let mut date = Command::new("date");
        date.env("LC_ALL", "C").args(["-u", "-d", &format!("@{}", self.0)]).args(format);
        asked(&mut date, Path::new("."))
    }

    fn rfc_2822(&self) -> Result<String> {
        self.formatted(&["-R"])
    }
}

/// What a command prints, in one line.
fn asked(command: &mut Command, folder: &Path) -> Result<String> {
    let output = command.current_dir(folder).output().context("starting a program")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// That of a release where the commit has its tag; before it a version that grows with time.
fn version(workspace: &Path, metadata: &Metadata, time: &Time) -> Result<String> {
    let package = metadata.members().find(|package| package.name == PACKAGE);
    let version = &package.context("the workspace has no headpond")?.version;
    let tags = asked(Command::new("git").args(["tag", "--points-at", "HEAD"]), workspace);
    let is_release = tags.is_ok_and(|tags| tags.lines().any(|tag| tag == format!("v{version}")));
    if is_release {
        return Ok(format!("{version}-{REVISION}"));
    }
    Ok(format!("{version}~git{}-{REVISION}", time.formatted(&["+%Y%m%d%H%M%S"])?))
}

/// As in the control file.
fn maintainer(workspace: &Path) -> Result<String> {
    let path = workspace.join("packaging/debian/control");
    let control = std::fs::read_to_string(&path).context("reading the control file")?;
    let line = control.lines().find_map(|line| line.strip_prefix("Maintainer: "));
    Ok(line.context("the control file has no maintainer")?.to_owned())
}
