//! Runs each fuzz target for a while.
//!
//! The compiler's coverage counters are all that libFuzzer needs, and stable Rust has them; only
//! the address sanitizer would need nightly.
//!
//! **Not here**: the targets (`fuzz/`). Where a C++ compiler is missing every target is skipped by
//! name: the codecs' property tests have then been the only hostile input.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// As cargo-fuzz has it, without the sanitizer and with the checks of a debug build.
const INSTRUMENTED: [&str; 8] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cdebug-assertions",
    "-Coverflow-checks",
];

#[derive(clap::Args)]
pub struct Options {
    /// Time for each target.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Only these targets.
    targets: Vec<String>,
}

/// Fuzzes every target; true when none found anything.
///
/// # Errors
/// When the list of targets cannot be read or a target cannot be started.
pub fn run(workspace: &Path, options: &Options) -> Result<bool> {
    let manifest = std::fs::read_to_string(workspace.join("fuzz/Cargo.toml"))?;
    let wanted = |target: &String| options.targets.is_empty() || options.targets.contains(target);
    let targets: Vec<String> = targets(&manifest).filter(wanted).collect();
    if let Some(missing) = what_is_missing() {
        targets.iter().for_each(|target| println!("skipped: {target}: {missing}"));
        println!("0 passed, 0 failed, {} skipped", targets.len());
        return Ok(true);
    }
    let binaries = build(workspace)?;
    let mut failed = 0;
    for target in &targets {
        println!("\n== {target} for {} s", options.seconds);
        if !fuzz(workspace, &binaries.join(target), target, options.seconds)? {
            println!("failed: {target}");
            failed += 1;
        }
    }
    println!("\n{} passed, {failed} failed, 0 skipped", targets.len() - failed);
    Ok(failed == 0)
}

/// The names of the binaries in a manifest.
fn targets(manifest: &str) -> impl Iterator<Item = String> {
    manifest.split("[[bin]]").skip(1).filter_map(|binary| {
        let name = binary.lines().find_map(|line| line.strip_prefix("name = "))?;
        Some(name.trim_matches('"').to_owned())
    })
}

fn what_is_missing() -> Option<&'static str> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let mut ask = Command::new(compiler);
    let quiet = ask.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let is_there = quiet.status().is_ok_and(|status| status.success());
    (!is_there).then_some("no C++ compiler for libFuzzer (apt-get install g++)")
}

/// Builds all targets at once; the folder in which they are then.
fn build(workspace: &Path) -> Result<PathBuf> {
    let host = host()?;
    let into = workspace.join("target/fuzz");
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    command.args(["build", "--quiet", "--release", "--bins", "--package", "headpond-fuzz"]);
    // Fifteen programs, each of which would be optimised as a whole.
    command.env("CARGO_PROFILE_RELEASE_LTO", "off");
    // With a target named, what runs while building is not instrumented.
    command.args(["--target", &host]).arg("--target-dir").arg(&into);
    command.env("RUSTFLAGS", INSTRUMENTED.join(" ")).current_dir(workspace);
    let status = command.status().context("starting cargo to build the fuzz targets")?;
    ensure!(status.success(), "the fuzz targets do not build: {status}");
    Ok(into.join(host).join("release"))
}

/// The triple of this machine, as rustc names it.
fn host() -> Result<String> {
    let told = Command::new("rustc").arg("-vV").output().context("asking rustc for its host")?;
    let told = String::from_utf8(told.stdout)?;
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` names no host")?.to_owned())
}

/// What was found interesting is kept in `fuzz/corpus` for the next time, and what a target fell
/// over in `fuzz/artifacts`.
fn fuzz(workspace: &Path, binary: &Path, target: &str, seconds: u32) -> Result<bool> {
    let corpus = workspace.join("fuzz/corpus").join(target);
    let artifacts = workspace.join("fuzz/artifacts").join(target);
    std::fs::create_dir_all(&corpus)?;
    std::fs::create_dir_all(&artifacts)?;
    let mut command = Command::new(binary);
    command.arg(&corpus).arg(format!("-artifact_prefix={}/", artifacts.display()));
    command.args([format!("-max_total_time={seconds}"), "-print_final_stats=1".to_owned()]);
    command.args(["-rss_limit_mb=2048", "-timeout=10", "-verbosity=0"]);
    let status = command.current_dir(workspace).status();
    Ok(status.with_context(|| format!("starting {target}"))?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_binaries_of_the_manifest() {
        let manifest = "[package]\nname = \"x\"\n\n[[bin]]\nname = \"a\"\npath = \"a.rs\"\n\n\
                        [[bin]]\nname = \"b\"\npath = \"b.rs\"\n";
        assert_eq!(targets(manifest).collect::<Vec<_>>(), ["a", "b"]);
    }
}
