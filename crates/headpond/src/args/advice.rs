//! Of the commands that say what a workload is like, and what to set for it.

use super::ReadArgs;
use clap::{Args, ValueEnum};
use headpond_advise::emit::Target;
use headpond_advise::{Goal, Sampling};
use headpond_raid::level::Level;
use headpond_volume::Size;
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
    /// Write what was counted, for `headpond merge`, and print nothing.
    #[arg(long, value_name = "FILE", group = "told_apart")]
    #[arg(conflicts_with_all = ["json", "html", "parquet"])]
    pub partial: Option<PathBuf>,
    /// What to call the trace among others; the name of the file without it.
    #[arg(long, value_name = "NAME", requires = "told_apart")]
    pub source: Option<String>,
    /// Follow so large a part of the blocks from the start, such as 0.01: faster, and less exact
    /// for a small footprint. Without it all are followed as long as there are few.
    #[arg(long, value_name = "RATE", value_parser = parse_rate, default_value = "1")]
    pub sample: Sampling,
}

/// How a signature is told.
#[derive(Args)]
pub struct TellingArgs {
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    /// Write a page with charts, which needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write every figure as a row of a Parquet table, for an engine of yours
    /// (docs/analyze.md#for-engines-of-your-own).
    #[arg(long, value_name = "FILE", group = "told_apart")]
    pub parquet: Option<PathBuf>,
}

impl TellingArgs {
    /// What is written.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.html.iter().chain(&self.parquet)
    }
}

/// One in so many is what a rate comes to.
fn parse_rate(text: &str) -> Result<Sampling, String> {
    let rate: f64 = text.parse().map_err(|_| format!("{text} is no number"))?;
    if !(1e-6..=1.0).contains(&rate) {
        return Err(format!("{text} is not from 0.000001 to 1"));
    }
    Ok(Sampling { one_in: (1.0 / rate).round() as u64, ..Sampling::default() })
}

/// Join what `analyze --partial` has counted of several traces, and say what they are like
/// together. The traces are taken for those of different volumes, unless they were given the same
/// name.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond merge host*.hpsig --html fleet.html\n  \
    headpond merge rack1.hpsig rack2.hpsig --partial all.hpsig")]
pub struct MergeArgs {
    #[arg(required = true, value_name = "PARTIAL")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub telling: TellingArgs,
    /// Write what was counted of all, to be merged further, and print nothing.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "html", "parquet"])]
    pub partial: Option<PathBuf>,
}

/// Say whether and how to cache the workload of a trace, with the reasons: many settings are tried
/// by replaying it on models of the devices.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  headpond advise sda.blktrace.0 --raid 6 --members 12 --cache-size 400G\n  \
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
    /// What is wanted most: throughput; the mean or the p99 response at the recorded times;
    /// endurance (few writes to the cache); safety (nothing is lost if the cache dies).
    #[arg(long, default_value = "throughput")]
    pub goal: Goal,
    /// Take array and cache from this volume.
    #[arg(long, conflicts_with_all = ["stack", "raid", "members", "groups", "strip", "cache_size", "cache_volatile"])]
    pub volume: Option<String>,
    /// Take array and cache from this machine, a file as for simulate.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["raid", "members", "groups", "strip", "drive", "cache_size"])]
    pub stack: Option<PathBuf>,
    /// RAID level of the array; without it an array is assumed, and described in the answer.
    #[arg(long, value_name = "LEVEL", requires = "members")]
    pub raid: Option<Level>,
    /// Members of the array.
    #[arg(long, value_name = "NUMBER", requires = "raid")]
    pub members: Option<u16>,
    /// Groups of the array (levels 10, 50 and 60); without it mirrors of two, and two groups of
    /// parity.
    #[arg(long)]
    pub groups: Option<u16>,
    /// Bytes of a stripe on one member; without it the best is looked for.
    #[arg(long)]
    pub strip: Option<Size>,
    /// The model of the members (headpond model list) or a file; hdd-7k2-4t where nobody knows.
    #[arg(long, value_name = "MODEL")]
    pub drive: Option<String>,
    /// Size of the cache; without it a cache is assumed, and described in the answer.
    #[arg(long, value_name = "SIZE")]
    pub cache_size: Option<Size>,
    /// The model of the cache device or a file; nvme-dc-2t where nobody knows.
    #[arg(long, value_name = "MODEL", conflicts_with = "cache_volatile")]
    pub cache_drive: Option<String>,
    /// The cache is memory, and lost with the power.
    #[arg(long, requires = "cache_size")]
    pub cache_volatile: bool,
    /// Losing what only a cache in memory has is acceptable; with --live, what only the cache has
    /// at all, and the order of cleaning.
    #[arg(long)]
    pub may_lose_dirty: bool,
    /// Requests in flight, where the trace does not tell when they were answered.
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub iodepth: u32,
    /// How long to look: quick (seconds, to a minute), usual (up to some minutes), exhaustive.
    #[arg(long, default_value = "usual")]
    pub effort: EffortChoice,
    #[command(flatten)]
    pub read: ReadArgs,
    /// Signature and advice as JSON.
    #[arg(long)]
    pub json: bool,
    /// Print the commands or the file that carry the advice out, as near as they come, and what
    /// they cannot express: for headpond, casadm, opencas-io-class, lvmcache, bcache or
    /// dm-writecache. Nothing is run.
    #[arg(long, value_name = "CACHE", conflicts_with = "json")]
    pub emit: Option<Target>,
    /// Write a page with charts, which needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Advice while a volume is served.
#[derive(Args)]
pub struct LiveArgs {
    /// Look at this served volume now and then, and advise when its workload has changed.
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with_all = ["file", "volume", "stack", "raid", "members", "groups", "strip", "cache_size", "cache_volatile", "lenient", "format", "emit", "html"]
    )]
    pub live: Option<String>,
    /// Set what is advised, compare the time after with the time before, and take back what does
    /// not deliver. Without --may-lose-dirty no mode is set with data that only the cache has,
    /// where there was none, and cleaning in order is not given up.
    #[arg(long, requires = "live", conflicts_with = "file")]
    pub apply: bool,
    /// From one look to the next.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        requires = "live",
        conflicts_with = "file"
    )]
    pub every: u64,
    /// End after so many looks, instead of with Ctrl-C.
    #[arg(long, value_name = "NUMBER", requires = "live", conflicts_with = "file")]
    pub looks: Option<u64>,
    /// Show what was advised, set, kept and taken back on this volume.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["live", "file"])]
    pub journal: Option<String>,
}

/// How long to look for the best settings.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum EffortChoice {
    Quick,
    Usual,
    Exhaustive,
}
