//! The command line of `headpond model`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// List, show and fit drive models, and compare one with a real drive.
#[derive(Subcommand)]
pub enum ModelCommand {
    List(ListArgs),
    Show(ShowArgs),
    Demerit(DemeritArgs),
    Fit(FitArgs),
}

/// Measure a device, and fit a model to it.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    headpond model fit --device /dev/sdb -o sdb.toml           # reads only, a few minutes\n  \
    headpond model fit --device /dev/sdb -o sdb.toml --destructive\n  \
    headpond model fit --device rbd:rbd/fit -o rbd.toml --destructive   # an image made for this\n\n\
    The file says of each figure whether it was measured or is assumed. A device that others use is \
    \nmeasured with their load on it.")]
pub struct FitArgs {
    /// A block device, a file, or anything else that names a device.
    #[arg(long, value_name = "DEVICE")]
    pub device: String,
    /// Output file of the model; default: standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The kind of device, if it reports it wrong. Images of Ceph are remote; so are disks of the
    /// kernel that are behind a network, such as iSCSI, though they report hdd or ssd.
    #[arg(long, value_name = "hdd|ssd|remote")]
    pub kind: Option<FitKindChoice>,
    /// Also measure writes: all data on the device is lost. Of remote storage the first 4 GiB are
    /// written and measured.
    #[arg(long)]
    pub destructive: bool,
    /// Overwrite data on the device that would otherwise be refused.
    #[arg(long, requires = "destructive")]
    pub force: bool,
    /// Print the measurements with the model's text.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FitKindChoice {
    Hdd,
    Ssd,
    Remote,
}

/// List the built-in models.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond model list")]
pub struct ListArgs {
    /// Print JSON instead of text.
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
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}
