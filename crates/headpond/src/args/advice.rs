//! Arguments of the commands that characterise a workload and advise on settings.

use super::ReadArgs;
use clap::{Args, ValueEnum};
use headpond_advise::emit::Target;
use headpond_advise::{Goal, Sampling};
use headpond_raid::level::Level;
use headpond_volume::Size;
use headpond_whatif::Endurance;
use std::path::PathBuf;

/// Find the signature of a workload in a trace: blktrace, blkparse text, fio iolog, own recordings,
/// and the formats of published traces (docs/traces.md).
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond analyze sda.blktrace.0\n  \
    blkparse -i sda | headpond analyze -\n  headpond analyze hv0.hptrace --json\n  \
    headpond analyze hv0.hptrace --html hv0.html\n  \
    headpond analyze hv0.hptrace --partial hv0.hpsig --source host3/hv0\n  \
    headpond analyze hv0.hptrace --parquet hv0.parquet --source host3/hv0")]
pub struct AnalyzeArgs {
    /// A trace (of a per-CPU set any file, or the name without .blktrace.N), or - for standard
    /// input.
    pub file: String,
    #[command(flatten)]
    pub read: ReadArgs,
    #[command(flatten)]
    pub telling: TellingArgs,
    /// Write a partial result for `headpond merge`, and print nothing.
    #[arg(long, value_name = "FILE", group = "told_apart")]
    #[arg(conflicts_with_all = ["json", "html", "parquet"])]
    pub partial: Option<PathBuf>,
    /// Name of the trace among others; default: the name of the file.
    #[arg(long, value_name = "NAME", requires = "told_apart")]
    pub source: Option<String>,
    /// Sample this part of the blocks from the start, such as 0.01: faster, and less exact for a
    /// small footprint. Without it all blocks are tracked while there are few.
    #[arg(long, value_name = "RATE", value_parser = parse_rate, default_value = "1")]
    pub sample: Sampling,
}

/// How a signature is printed.
#[derive(Args)]
pub struct TellingArgs {
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    /// Write a self-contained page with charts.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write every figure as a row of a Parquet table, for your own query engine
    /// (docs/analyze.md#for-engines-of-your-own).
    #[arg(long, value_name = "FILE", group = "told_apart")]
    pub parquet: Option<PathBuf>,
}

impl TellingArgs {
    /// The files that are written.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.html.iter().chain(&self.parquet)
    }
}

/// One in so many for a rate.
fn parse_rate(text: &str) -> Result<Sampling, String> {
    let rate: f64 = text.parse().map_err(|_| format!("{text} is not a number"))?;
    if !(1e-6..=1.0).contains(&rate) {
        return Err(format!("{text} is not from 0.000001 to 1"));
    }
    Ok(Sampling { one_in: (1.0 / rate).round() as u64, ..Sampling::default() })
}

/// Merge partial results of `analyze --partial` into one signature. Traces count as those of
/// different volumes, unless they have the same name.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond merge host*.hpsig --html fleet.html\n  \
    headpond merge rack1.hpsig rack2.hpsig --partial all.hpsig")]
pub struct MergeArgs {
    #[arg(required = true, value_name = "PARTIAL")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub telling: TellingArgs,
    /// Write a partial result, to be merged further, and print nothing.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "html", "parquet"])]
    pub partial: Option<PathBuf>,
}

/// Advise whether and how to cache the workload of a trace, with reasons: it is replayed with many
/// settings on models of the devices.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  headpond advise sda.blktrace.0 --raid 6 --members 12 --cache-size 400G\n  \
    headpond advise vm1.hptrace --core rbd.toml --cache-size 100G     # an image of Ceph\n  \
    headpond advise hv0.hptrace --volume hv0 --json\n  \
    headpond advise monday.hptrace --stack machine.toml --goal p99    # as for simulate\n  \
    headpond advise monday.hptrace --emit lvmcache > cache.sh         # read it, then run it\n  \
    headpond advise monday.hptrace --html monday.html\n  \
    headpond advise --live hv0 --drive hdd-7k2-14t          # while it is served; Ctrl-C ends\n  \
    headpond advise --live hv0 --apply\n  \
    headpond advise --journal hv0"
)]
pub struct AdviseArgs {
    /// A trace, or - for standard input.
    #[arg(required_unless_present_any = ["live", "journal"])]
    pub file: Option<String>,
    #[command(flatten)]
    pub live: LiveArgs,
    /// Objective: throughput; the mean or the p99 response time at the recorded times; endurance
    /// (few writes to the cache); safety (no data is lost if the cache fails).
    #[arg(long, default_value = "throughput")]
    pub goal: Goal,
    /// Take array and cache from this volume.
    #[arg(long, conflicts_with_all = ["stack", "core", "raid", "members", "groups", "strip", "cache_size", "cache_volatile"])]
    pub volume: Option<String>,
    /// Take array and cache from this machine, a file as for simulate.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["core", "raid", "members", "groups", "strip", "drive", "cache_size"])]
    pub stack: Option<PathBuf>,
    /// The model of the one device that is to be cached, instead of an array: rbd for an image of
    /// Ceph, or the file that `headpond model fit --device rbd:POOL/IMAGE` wrote.
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["raid", "members", "groups", "strip", "drive"])]
    pub core: Option<String>,
    /// RAID level of the array; without it an array is assumed, and described in the advice.
    #[arg(long, value_name = "LEVEL", requires = "members")]
    pub raid: Option<Level>,
    /// Members of the array.
    #[arg(long, value_name = "NUMBER", requires = "raid")]
    pub members: Option<u16>,
    /// Groups of the array (levels 10, 50 and 60); default: mirrors of two, and two parity groups.
    #[arg(long)]
    pub groups: Option<u16>,
    /// Bytes of a stripe on one member; without it the best is searched for.
    #[arg(long)]
    pub strip: Option<Size>,
    /// The model of the members (headpond model list) or a file; hdd-7k2-4t if unknown.
    #[arg(long, value_name = "MODEL")]
    pub drive: Option<String>,
    /// Size of the cache; without it a cache is assumed, and described in the advice.
    #[arg(long, value_name = "SIZE")]
    pub cache_size: Option<Size>,
    /// The model of the cache device or a file; nvme-dc-2t if unknown.
    #[arg(long, value_name = "MODEL", conflicts_with = "cache_volatile")]
    pub cache_drive: Option<String>,
    /// Rated endurance of the cache device: what may be written to it (600TB, 3.5PB), or drive
    /// writes a day (1DWPD), with the warranty where it is not 5 years (1DWPD/3y). The advice says
    /// how long it lasts, and spares it where that is less than the warranty.
    #[arg(long, value_name = "RATING", conflicts_with = "cache_volatile")]
    pub cache_endurance: Option<Endurance>,
    /// The cache is volatile memory.
    #[arg(long, requires = "cache_size")]
    pub cache_volatile: bool,
    /// Losing dirty data of a volatile cache is acceptable; with --live, dirty data of any cache,
    /// and the order of cleaning.
    #[arg(long)]
    pub may_lose_dirty: bool,
    /// Requests in flight, if the trace has no completion times.
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub iodepth: u32,
    /// Search effort: quick (seconds, to a minute), usual (up to some minutes), exhaustive.
    #[arg(long, default_value = "usual")]
    pub effort: EffortChoice,
    #[command(flatten)]
    pub read: ReadArgs,
    /// Signature and advice as JSON.
    #[arg(long)]
    pub json: bool,
    /// Print the commands or the file that apply the advice, as far as possible, and what they
    /// cannot express: for headpond, casadm, opencas-io-class, lvmcache, bcache or dm-writecache.
    /// Nothing is run.
    #[arg(long, value_name = "CACHE", conflicts_with = "json")]
    pub emit: Option<Target>,
    /// Show the signature of the workload too, as `headpond analyze` does.
    #[arg(long, conflicts_with_all = ["emit", "json"])]
    pub signature: bool,
    /// Write a self-contained page with charts.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Advice while a volume is served.
#[derive(Args)]
pub struct LiveArgs {
    /// Sample this served volume periodically, and advise when its workload has changed.
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with_all = ["file", "volume", "stack", "core", "raid", "members", "groups", "strip", "cache_size", "cache_endurance", "cache_volatile", "lenient", "format", "emit", "signature", "html"]
    )]
    pub live: Option<String>,
    /// Apply the advice, compare before and after, and roll back settings without a measured gain.
    /// Without --may-lose-dirty, write-back is not turned on, and ordered cleaning is not turned
    /// off.
    #[arg(long, requires = "live", conflicts_with = "file")]
    pub apply: bool,
    /// Interval between samples.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        requires = "live",
        conflicts_with = "file"
    )]
    pub every: u64,
    /// End after so many samples, instead of with Ctrl-C.
    #[arg(long, value_name = "NUMBER", requires = "live", conflicts_with = "file")]
    pub looks: Option<u64>,
    /// Show what was advised, applied, kept and rolled back on this volume.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["live", "file"])]
    pub journal: Option<String>,
}

/// Effort of the search for the best settings.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum EffortChoice {
    Quick,
    Usual,
    Exhaustive,
}
