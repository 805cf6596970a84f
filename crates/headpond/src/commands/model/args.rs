//! The command line of `headpond model`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Look at drive models, and check one against a real drive.
#[derive(Subcommand)]
pub enum ModelCommand {
    List(ListArgs),
    Show(ShowArgs),
    Demerit(DemeritArgs),
}

/// List the models that come with the program.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond model list")]
pub struct ListArgs {
    #[arg(long)]
    pub json: bool,
}

/// Print a model's data file, with the source of every number.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond model show hdd-7k2-4t > my-drive.toml\n  \
    headpond model show ./my-drive.toml    # checks it")]
pub struct ShowArgs {
    /// A model of the list, or the path of a file (with a / or .toml), which is checked.
    pub name: String,
}

/// Compare modelled with measured service times, and print the RMS demerit.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    headpond model demerit --drive atlas_III.diskspecs --trace atlas_III.trace.zst\n  \
    headpond model demerit --drive disks.parv --disk ST34501N --trace st34501n.trace --json\n\n\
    The drive is described by DiskSim's parameter files (.diskspecs, .model or .parv; the others, \
    and\nthe measured seek curve, are found beside it). Each line of the trace is \
    `R|W Hit|Miss LBN\nCOUNT SERVICE_US INTERVAL_US`, plain, gzip or zstd, one request at a time; \
    the model is given\noperation, address, length and time of issue only.")]
pub struct DemeritArgs {
    /// One of the drive's parameter files.
    #[arg(long, value_name = "FILE")]
    pub drive: PathBuf,
    /// Measured requests, or - for standard input.
    #[arg(long, value_name = "FILE")]
    pub trace: PathBuf,
    /// Which drive, where the files describe several.
    #[arg(long, value_name = "NAME")]
    pub disk: Option<String>,
    #[arg(long)]
    pub json: bool,
}
