//! Builds the swarm in release and calls it with the commit that is judged.
//!
//! **Not here**: what the swarm does (`crates/swarm`).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Options {
    /// `--help` tells them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Runs the swarm; true when nothing was found.
///
/// # Errors
/// When it cannot be built or started.
pub fn run(workspace: &Path, options: &Options) -> Result<bool> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace);
    command.args(["run", "--quiet", "--release", "--package", "headpond-swarm", "--"]);
    command.args(&options.arguments).args(["--commit", &commit(workspace)]);
    Ok(command.status().context("starting the swarm")?.success())
}

/// The commit of the working tree, with a mark where it has changes that no commit has.
fn commit(workspace: &Path) -> String {
    let describe = Command::new("git")
        .current_dir(workspace)
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .output();
    let output = describe.ok().filter(|output| output.status.success());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_else(|| "unknown".to_owned())
}
