//! Code for processors that this machine is not: it is compiled, and not run.
//!
//! **Not here**: installing the target, which is up to the machine (`rustup target add`).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::build;
use super::tally::Tally;

const TARGET: &str = "aarch64-unknown-linux-gnu";
/// The packages with code for one kind of processor alone.
const PACKAGES: [&str; 2] = ["--package=headpond-block", "--package=headpond-raid"];

/// Compiles them as far as errors are found, and counts that as one test.
///
/// # Errors
/// When rustc or cargo cannot be started.
pub fn check(workspace: &Path, tally: &mut Tally) -> Result<()> {
    let name = format!("parity and buffers compile for {TARGET}");
    if !has_target()? {
        tally.skip(format!("{name}: not installed (rustup target add {TARGET})"));
        return Ok(());
    }
    let mut command = build::cargo(workspace, "check");
    let status = command.args(["--quiet", "--lib", "--target", TARGET]).args(PACKAGES).status();
    match status.context("starting cargo")?.success() {
        true => tally.pass(),
        false => tally.fail(name),
    }
    Ok(())
}

fn has_target() -> Result<bool> {
    let mut rustc = Command::new("rustc");
    let told = rustc.args(["--print", "target-libdir", "--target", TARGET]).output();
    let told = told.context("starting rustc")?;
    Ok(Path::new(String::from_utf8_lossy(&told.stdout).trim()).is_dir())
}
