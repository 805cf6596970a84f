//! `headpond try`: the main job on a modelled array, from nothing to a table, in a few minutes.
//!
//! 1. A volume is created and served by this very program as a user would do it: RAID 60 of 40
//!    drive models on sparse files, a small cache in memory.
//! 2. The load runs with the cache in pass-through, and is recorded.
//! 3. The recording is analysed; the advice is applied to the running volume.
//! 4. The load runs again: while the cache absorbs the burst, and with the cache full of dirty
//!    data.
//! 5. Table and page. Everything made is removed, unless `--keep` is given.
//!
//! **Not here**: any shortcut past the public commands.

mod act;
mod burst;
mod load;
mod machine;
mod outcome;
mod page;
mod progress;

pub use act::run;

use clap::Args;
use headpond_volume::Size;
use std::path::PathBuf;

/// Show what a cache does for an array, without preparation: 40 modelled drives, everything else
/// real.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  headpond try\n  headpond try --seconds 30 --cache 128M --keep\n\n\
    The drives are models against the wall clock on sparse files; RAID, cache, log, NBD server and\n\
    client are the real ones. It takes two to three minutes, and up to 3 GB of memory or disk."
)]
pub struct DemoArgs {
    /// How long each measurement lasts.
    #[arg(long, default_value_t = 12)]
    pub seconds: u64,
    /// Size of the cache: small enough to fill.
    #[arg(long, default_value = "64M")]
    pub cache: Size,
    /// The page with table and chart.
    #[arg(long, default_value = "headpond-try.html", value_name = "FILE")]
    pub report: PathBuf,
    /// Folder of the sparse files; default: /dev/shm, or the temporary folder if that is too small.
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// Generate the load with Headpond's own NBD client instead of fio.
    #[arg(long)]
    pub own_load: bool,
    /// Keep the volume's files.
    #[arg(long)]
    pub keep: bool,
    /// Also print the results as JSON.
    #[arg(long)]
    pub json: bool,
}
