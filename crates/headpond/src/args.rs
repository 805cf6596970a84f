//! The command line.

use crate::commands::array::ArrayCommand;
use crate::commands::cache::CacheCommand;
use crate::commands::class::ClassCommand;
use crate::commands::core::CoreCommand;
use crate::commands::model::ModelCommand;
use crate::commands::trace::TraceCommand;
use crate::demo::DemoArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use headpond_advise::emit::Target;
use headpond_advise::{Goal, Sampling};
use headpond_cache::{CleaningConfig, Mode};
use headpond_raid::level::Level;
use headpond_raid::{JournalWhen, Spread};
use headpond_volume::{SeqCutoff, SettingChange, Size, parse_word};
use serde::Deserialize;
use std::path::PathBuf;

/// A small fast crash-safe cache in front of a large slow array, served over NBD.
#[derive(Parser)]
#[command(
    version,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 ok, 1 error, 2 usage, 3 it worked and the volume is degraded or \
                  wants attention, 4 refused for safety (nothing was changed).\n\
                  Volumes are described in /var/lib/headpond (root) or ~/.local/state/headpond; \
                  HEADPOND_STATE names another folder."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    Try(DemoArgs),
    Create(CreateArgs),
    Serve(ServeArgs),
    Status(StatusArgs),
    Stats(StatsArgs),
    Set(SetArgs),
    #[command(subcommand)]
    Cache(CacheCommand),
    #[command(subcommand)]
    Core(CoreCommand),
    Flush(FlushArgs),
    Stop(StopArgs),
    Destroy(DestroyArgs),
    #[command(subcommand)]
    Trace(TraceCommand),
    Analyze(AnalyzeArgs),
    Merge(MergeArgs),
    Advise(AdviseArgs),
    Simulate(SimulateArgs),
    #[command(subcommand)]
    Array(ArrayCommand),
    #[command(subcommand)]
    Model(ModelCommand),
    #[command(subcommand)]
    Class(ClassCommand),
}

/// What an array of new members is to be.
#[derive(Args)]
pub struct ArrayArgs {
    /// RAID level: 0, 1, 10, 5, 6, 50, 60.
    #[arg(long, value_name = "LEVEL")]
    pub raid: Level,
    /// Groups of the array (levels 10, 50 and 60).
    #[arg(long, default_value_t = 1)]
    pub groups: u16,
    /// Strips of a stripe, data and parity, where they are to be spread over more members (levels 5
    /// and 6): a rebuild then reads from all of them.
    #[arg(long, value_name = "STRIPS")]
    pub width: Option<u16>,
    /// Members' worth of spare space on all members, which stands in for lost ones.
    #[arg(long, value_name = "COUNT", default_value_t = 1, requires = "width")]
    pub distributed_spares: u16,
    /// How members of level 0 that differ share what there is: plain (as much on each as on the
    /// smallest), capacity (on each as much as it has room for), speed (by what each reads in half
    /// a second; nothing is written for that).
    #[arg(long, default_value = "plain", value_parser = parse_word::<StripingWord>)]
    pub striping: StripingWord,
    /// The same by hand: so many strips on each member in turn, in the order in which they are
    /// named.
    #[arg(
        long,
        value_name = "N,N,...",
        value_delimiter = ',',
        conflicts_with = "striping",
        value_parser = clap::value_parser!(u8).range(1..=255)
    )]
    pub weights: Vec<u8>,
    /// Bytes of a stripe on one member.
    #[arg(long, default_value = "64K")]
    pub strip: Size,
    /// Keep no map of the regions that are being written: a write that reaches the array without
    /// the cache is then not made good after a crash.
    #[arg(long)]
    pub no_intent: bool,
    /// Set a thousandth of each member aside for checksums of what a scrub has found whole: the
    /// next scrub can then tell what was damaged since from what is right. Not for level 0.
    #[arg(long)]
    pub integrity: bool,
    /// The members read as zeros (fresh sparse files, erased drives): parity need not be computed.
    /// Places all over them are looked at, and anything else is refused.
    #[arg(long, conflicts_with = "assume_clean")]
    pub zeroed: bool,
    /// Take the parity, or the copies, of whatever is on the members as right, without computing or
    /// looking: they were in an array of this very shape. Where they do not fit, what a member held
    /// that is lost later is wrong, without an error.
    #[arg(long)]
    pub assume_clean: bool,
}

/// Where weights come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StripingWord {
    Plain,
    Capacity,
    Speed,
}

impl ArrayArgs {
    /// How it is to be declustered, where it is.
    pub fn declustered(&self) -> Option<Spread> {
        self.width.map(|width| Spread { width, spares: self.distributed_spares })
    }
}

/// Make a volume of an array and, if you like, a cache; what is on the devices is lost.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    headpond create hv0 --raid 6 --strip 64K /dev/sd[b-g] --cache /dev/nvme0n1\n  \
    headpond create hv1 --raid 60 --groups 2 /dev/sd[b-q] --cache /dev/nvme0n1 --mode write-through\n  \
    headpond create hv2 --raid 6 --width 10 --distributed-spares 2 /dev/sd[a-z] /dev/sda[a-n]\n  \
    headpond create hv3 --raid 5 --integrity /dev/sd[b-e] --cache /dev/nvme0n1\n  \
    headpond create hv4 --raid 0 --striping speed /dev/nvme0n1 /dev/nvme1n1\n  \
    headpond create toy --raid 5 a.img b.img c.img --cache ram:64M --force\n\n\
    A device is a block device or file, ram:SIZE, or model:NAME?store=FILE (a drive model on a\n\
    sparse file). Devices that hold a file system, are mounted or in use are refused.")]
pub struct CreateArgs {
    /// Name of the volume.
    pub name: String,
    /// Members of the array, in any order.
    #[arg(required = true, value_name = "DEV")]
    pub members: Vec<String>,
    #[command(flatten)]
    pub array: ArrayArgs,
    /// A stripe journal on a fast device: makes a degraded array of levels 5, 6, 50 and 60 safe
    /// against power cuts, which otherwise refuses to start after one.
    #[arg(long, value_name = "DEV")]
    pub journal: Option<String>,
    /// What goes through it: degraded (writes to groups that lack a member; nothing is paid while
    /// the array is healthy) or always (also safe if a member is lost with the power).
    #[arg(long, default_value = "degraded", value_parser = parse_word::<JournalWhen>, requires = "journal")]
    pub journal_when: JournalWhen,
    /// The cache device.
    #[arg(long, value_name = "DEV")]
    pub cache: Option<String>,
    /// Use so much of the cache device; all of it where nothing is said.
    #[arg(long, value_name = "SIZE", requires = "cache")]
    pub cache_size: Option<Size>,
    /// Memory in front of the cache, such as ram:4G: a tier with a mode of its own, write-through
    /// unless --set tier.mode=... says otherwise. It begins empty with every start.
    #[arg(long, value_name = "RAM", requires = "cache")]
    pub tier: Option<String>,
    /// How requests use the cache: write-back, write-through, write-around, write-invalidate,
    /// write-only, pass-through.
    #[arg(long, default_value = "write-back", value_parser = parse_word::<Mode>, requires = "cache")]
    pub mode: Mode,
    /// What writes dirty data to the array: stripe (in address order), alru (what is stale), acp
    /// (the dirtiest region first), ordered (by flushes, so that the array is always a consistent
    /// past), nop (nothing, but for what was replayed after an unclean stop). Sets of values by
    /// name: --set preset=acp-very-aggressive, alru-very-aggressive or lustre.
    #[arg(long, default_value = "stripe", value_parser = parse_word::<CleaningConfig>, requires = "cache")]
    pub cleaning: CleaningConfig,
    /// Cache line: 4K, 8K, 16K, 32K, 64K, 128K, 256K, 512K or 1M. Longer lines take less memory
    /// where the data is contiguous; what is valid or dirty is known for each 4K all the same.
    #[arg(long, default_value = "4K", requires = "cache")]
    pub line: Size,
    /// When sequential streams go past the cache: full (longer than 1M, while the cache is full),
    /// always, never, or a size after which they always do.
    #[arg(long, default_value = "full", requires = "cache")]
    pub seq_cutoff: SeqCutoff,
    /// Any other setting that `headpond set` takes; may be given several times. Without a cache
    /// those of the array: merge-wait-us, merge-max, member-patience-ms, member-deadline-ms,
    /// member-late-max.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub settings: Vec<SettingChange>,
    /// Parts of the volume with a log of their own, 1 to 16.
    #[arg(long, default_value_t = 1)]
    pub slices: u16,
    /// Where to serve: unix:PATH or tcp:HOST:PORT; may be given several times.
    #[arg(long, value_name = "ADDRESS")]
    pub nbd: Vec<String>,
    /// Serve on TCP addresses that other machines can reach, without encryption or authentication.
    #[arg(long)]
    pub insecure: bool,
    /// Overwrite what the devices hold, and allow write-back on a cache that is lost with the
    /// power.
    #[arg(long)]
    pub force: bool,
}

/// Serve a volume over NBD, in the foreground, until `headpond stop` or a signal.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond serve hv0\n  \
    nbdinfo 'nbd+unix:///?socket=/run/headpond/hv0.sock'")]
pub struct ServeArgs {
    pub name: String,
    /// Serve a degraded array that was not stopped cleanly, and go on without a cache that is lost
    /// or out of date: what only the cache held is lost then.
    #[arg(long)]
    pub force: bool,
}

/// Show what a volume is made of and how it is; all volumes without a name.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond status hv0 --json")]
pub struct StatusArgs {
    pub name: Option<String>,
    #[arg(long)]
    pub json: bool,
}

/// Show what a volume has done: usage, requests, blocks and errors as casadm shows them; then how
/// long requests took by the way they went, why they went past the cache, what cleaning achieves.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond stats hv0\n  headpond stats hv0 --by-class\n  \
    headpond stats hv0 --csv\n  headpond stats hv0 --json --reset     # the figures until now, then from zero\n\n\
    docs/cache.md says what each row means.")]
pub struct StatsArgs {
    pub name: String,
    /// The requests of one I/O class.
    #[arg(long, value_name = "ID")]
    pub class: Option<u8>,
    /// The requests of each I/O class.
    #[arg(long, conflicts_with = "class")]
    pub by_class: bool,
    /// What one core holds, its requests, blocks and errors, where there are several.
    #[arg(long, value_name = "CORE", conflicts_with_all = ["class", "by_class", "tier"])]
    pub core: Option<String>,
    /// Of the tier in memory, not of the cache below it.
    #[arg(long)]
    pub tier: bool,
    /// Set all counters to zero after showing them; what the cache holds stays.
    #[arg(long)]
    pub reset: bool,
    #[arg(long)]
    pub json: bool,
    /// One line of names and one of values, with the columns that casadm prints; a line for each
    /// class with --by-class.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

/// Change settings of a volume that is being served; without changes, show all settings with their
/// values, defaults and what they take.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  headpond set hv0                             # what there is\n  \
    headpond set hv0 mode=write-through\n  \
    headpond set hv0 mode=write-back cleaning=stripe seq-cutoff=1M\n  \
    headpond set hv0 mode=pass-through --flush\n  \
    headpond set hv0 merge-wait-us=off          # of the array\n  \
    headpond set hv0 member-patience-ms=500 member-deadline-ms=10000 member-late-max=4"
)]
pub struct SetArgs {
    pub name: String,
    /// Such as mode=write-through, cleaning=alru, cleaning.alru.staleness-s=60, seq-cutoff=1M,
    /// classes=FILE, eviction=lru, bypass=adaptive; of the tier in memory tier.mode and others; of
    /// the array merge-wait-us=auto, merge-max=64M, and how long its members are waited for:
    /// member-patience-ms=2000, member-deadline-ms=30000, member-late-max=8.
    #[arg(value_name = "KEY=VALUE")]
    pub changes: Vec<SettingChange>,
    /// Write all dirty data to the array before the change and after it, and wait for it; without,
    /// what is dirty is served and cleaned in the background.
    #[arg(long)]
    pub flush: bool,
    #[arg(long)]
    pub json: bool,
}

/// Write all dirty data to the array, and wait for it.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond flush hv0")]
pub struct FlushArgs {
    pub name: String,
    #[arg(long)]
    pub json: bool,
}

/// Stop serving a volume; dirty data stays in the cache unless --flush is given.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond stop hv0 --flush")]
pub struct StopArgs {
    pub name: String,
    /// Write all dirty data to the array first.
    #[arg(long)]
    pub flush: bool,
}

/// Remove a volume: its superblocks and its description. What it held is lost.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond destroy hv0 --yes")]
pub struct DestroyArgs {
    pub name: String,
    /// Really.
    #[arg(long)]
    pub yes: bool,
}

/// Find the signature of a workload in a trace: blktrace, blkparse text, fio iolog, own recordings,
/// and the formats of published traces (docs/traces.md).
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond analyze sda.blktrace.0\n  \
    blkparse -i sda | headpond analyze -\n  headpond analyze hv0.hptrace --json\n  \
    headpond analyze hv0.hptrace --html hv0.html\n  \
    headpond analyze hv0.hptrace --partial hv0.hpsig --source host3/hv0")]
pub struct AnalyzeArgs {
    /// A trace (of a per-CPU set any file, or the name without .blktrace.N), or - for standard
    /// input.
    pub file: String,
    /// Skip and count damaged records instead of ending there.
    #[arg(long)]
    pub lenient: bool,
    #[arg(long)]
    pub json: bool,
    /// Write a page with charts, which needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write what was counted, for `headpond merge`, and print nothing.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "html"])]
    pub partial: Option<PathBuf>,
    /// What to call the trace among others; the name of the file without it.
    #[arg(long, value_name = "NAME", requires = "partial")]
    pub source: Option<String>,
    /// Follow so large a part of the blocks from the start, such as 0.01: faster, and less exact
    /// for a small footprint. Without it all are followed as long as there are few.
    #[arg(long, value_name = "RATE", value_parser = parse_rate, default_value = "1")]
    pub sample: Sampling,
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
    #[arg(long)]
    pub json: bool,
    /// Write a page with charts, which needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write what was counted of all, to be merged further, and print nothing.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "html"])]
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
    #[arg(long, default_value_t = 1)]
    pub groups: u16,
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
    /// How long to look: quick (a few seconds), usual (up to a minute or two), exhaustive.
    #[arg(long, default_value = "usual")]
    pub effort: EffortChoice,
    /// Skip and count damaged records instead of ending there.
    #[arg(long)]
    pub lenient: bool,
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
        conflicts_with_all = ["file", "volume", "stack", "raid", "members", "groups", "strip", "cache_size", "cache_volatile", "lenient", "emit", "html"]
    )]
    pub live: Option<String>,
    /// Set what is advised, compare the time after with the time before, and take back what does
    /// not deliver. A mode with data that only the cache has is set with --may-lose-dirty only.
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

/// Say what a workload would come to on a machine that is only described, in virtual time.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    headpond simulate plain.toml cached.toml --rw randwrite --iodepth 32 --runtime 5m\n  \
    headpond simulate plain.toml --job workload.fio --json\n  \
    headpond simulate plain.toml cached.toml --trace monday.hptrace --speed 2 --html monday.html\n  \
    headpond simulate --reference tables/\n\n\
    A stack is a TOML file:\n\n  \
    name = \"cached\"\n  \
    [core]\n  raid = 60\n  groups = 4\n  strip = \"64K\"\n  drive = \"hdd-7k2-4t\"\n  drives = 40\n  \
    [cache]            # leave it out for none\n  size = \"64M\"\n  mode = \"write-back\"\n  write_us = 20\n\n\
    `drive` is a model of `headpond model list` or a file; [core] also takes drive_state (fresh, full, \
    steady),\ncontroller and network, [cache] a model in place of the figures.")]
pub struct SimulateArgs {
    /// Descriptions of machines, simulated side by side.
    #[arg(value_name = "STACK", required_unless_present = "reference")]
    pub stacks: Vec<PathBuf>,
    /// The workload as a fio job file.
    #[arg(long, value_name = "FILE", conflicts_with = "rw")]
    pub job: Option<PathBuf>,
    /// The workload as a recording (blktrace, blkparse text, fio iolog, Headpond's own; plain, gzip
    /// or zstd): requests come at their recorded times, and their latency counts from there.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["job", "rw"])]
    pub trace: Option<PathBuf>,
    /// Plays the trace this many times as fast as it was recorded.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "trace", value_parser = parse_speed)]
    pub speed: f64,
    /// Plays the trace in its order with --iodepth requests in flight, whatever their times.
    #[arg(long, requires = "trace", conflicts_with = "speed")]
    pub as_fast_as_possible: bool,
    /// What becomes of requests of the trace beyond the volume: wrap (the address modulo the
    /// volume's size), skip (left out) or refuse (an error).
    #[arg(long, value_enum, default_value_t = FitChoice::Wrap, requires = "trace")]
    pub fit: FitChoice,
    /// Skips damaged places of the trace and counts them, instead of ending there.
    #[arg(long, requires = "trace")]
    pub lenient: bool,
    /// What is asked, in fio's words: read, write, rw, randread, randwrite, randrw.
    #[arg(long)]
    pub rw: Option<String>,
    /// Percent of reads, where both are made.
    #[arg(long, requires = "rw")]
    pub rwmixread: Option<u32>,
    /// Bytes of a request.
    #[arg(long, default_value = "4k")]
    pub bs: String,
    /// Requests in flight.
    #[arg(long, default_value_t = 1)]
    pub iodepth: u32,
    /// Such jobs at once.
    #[arg(long, default_value_t = 1)]
    pub numjobs: u32,
    /// Measured time, virtual.
    #[arg(long, default_value = "60s")]
    pub runtime: String,
    /// Time before that.
    #[arg(long, default_value = "10s")]
    pub ramp_time: String,
    /// Run the published tables in this folder (CSV) and compare.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["stacks", "job", "rw", "trace"])]
    pub reference: Option<PathBuf>,
    /// Writes tables and charts as one page that needs nothing else.
    #[arg(long, value_name = "FILE", conflicts_with = "reference")]
    pub html: Option<PathBuf>,
    /// The same seed gives the same figures.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    #[arg(long)]
    pub json: bool,
}

/// See [`headpond_whatif::Fit`].
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum FitChoice {
    Wrap,
    Skip,
    Refuse,
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().ok().filter(|speed| (1e-3..=1e6).contains(speed));
    speed.ok_or_else(|| "a factor of 0.001 to 1,000,000".into())
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::{Command, CommandFactory};

    /// All commands that do something, with the words that call them.
    fn leaves(command: &Command, words: &str) -> Vec<(String, String)> {
        let words = format!("{words}{} ", command.get_name());
        match command.get_subcommands().next() {
            None => vec![(words, command.clone().render_long_help().to_string())],
            Some(_) => command.get_subcommands().flat_map(|it| leaves(it, &words)).collect(),
        }
    }

    #[test]
    fn every_help_has_an_example_that_calls_the_command() {
        let all = leaves(&Cli::command(), "");
        assert!(all.len() > 25, "{}", all.len());
        for (words, help) in all {
            let example = help.split("Example").nth(1).unwrap_or_default();
            assert!(example.contains(words.trim_end()), "{words}has no example");
        }
    }
}
