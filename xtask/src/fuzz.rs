//! Runs each fuzz target for a while.
//!
//! **Not here**: the targets (`fuzz/`). Where nightly Rust or cargo-fuzz is missing every target is
//! skipped by name: the codecs' property tests have then been the only hostile input.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

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
    let mut failed = 0;
    for target in &targets {
        println!("\n== {target} for {} s", options.seconds);
        if !fuzz(workspace, target, options.seconds)? {
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
    if !succeeds(Command::new("cargo").args(["+nightly", "--version"])) {
        return Some("no nightly Rust (rustup toolchain install nightly)");
    }
    if !succeeds(Command::new("cargo").args(["+nightly", "fuzz", "--version"])) {
        return Some("no cargo-fuzz (cargo install --locked cargo-fuzz)");
    }
    None
}

fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    clear_cargo_variables(quiet).status().is_ok_and(|status| status.success())
}

fn fuzz(workspace: &Path, target: &str, seconds: u32) -> Result<bool> {
    let mut command = Command::new("cargo");
    command.args(["+nightly", "fuzz", "run", target, "--"]);
    command.args([format!("-max_total_time={seconds}"), "-print_final_stats=1".to_owned()]);
    command.args(["-rss_limit_mb=2048", "-timeout=10", "-verbosity=0"]);
    let status = clear_cargo_variables(&mut command).current_dir(workspace).status();
    Ok(status.with_context(|| format!("starting {target}"))?.success())
}

/// What this run's own cargo set would bind the inner one to the stable toolchain.
fn clear_cargo_variables(command: &mut Command) -> &mut Command {
    ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN"]
        .into_iter()
        .fold(command, |command, variable| command.env_remove(variable))
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
