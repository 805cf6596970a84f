//! The project's own chores: `cargo xtask test`, `tidy`, `bench`, `swarm`, `fuzz`,
//! `rig`, `ceph`, `deb`.
//!
//! What would be a shell script with logic in it is a program here, with unit tests.
//!
//! **Not here**: anything a user runs (the `headpond` binary), and installing tools
//! (`scripts/setup`).

mod bench;
mod ceph;
mod deb;
mod fuzz;
mod metadata;
mod rig;
mod swarm;
mod test;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of the Headpond workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Run every test of the workspace and end with one line that counts them.
    Test(test::Options),
    /// Check the rules of the house: arrows, licences, sizes, calls, leftovers, decisions.
    Tidy,
    /// Run every benchmark and print one table beside the limits and the rivals.
    Bench,
    /// Break whole volumes in virtual time and judge what they return (`swarm --help`).
    Swarm(swarm::Options),
    /// Feed every reader of foreign bytes with hostile input.
    Fuzz(fuzz::Options),
    /// Boot a virtual machine whose volumes systemd and udev start: late and missing devices,
    /// shutdowns under load, power cuts.
    Rig(rig::Options),
    /// Start a Ceph cluster and break it, or the volumes on its images; measure the speed beside
    /// the bare image.
    Ceph(ceph::Options),
    /// Make the Debian package.
    Deb(deb::Options),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().chore {
        Chore::Test(options) => test::run(&workspace(), &options),
        Chore::Bench => bench::run(&workspace()),
        Chore::Swarm(options) => swarm::run(&workspace(), &options),
        Chore::Fuzz(options) => fuzz::run(&workspace(), &options),
        Chore::Rig(options) => rig::run(&workspace(), &options),
        Chore::Ceph(options) => ceph::run(&workspace(), &options),
        Chore::Deb(options) => deb::run(&workspace(), &options),
        Chore::Tidy => tidy::run(&workspace()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of the workspace, whatever the current directory is.
fn workspace() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask lies in the workspace").to_owned()
}
