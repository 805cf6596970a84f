//! Arguments of `headpond simulate`.

use clap::Args;
use headpond_trace::TraceFormat;
use std::path::PathBuf;

/// Simulate a workload on a described machine, in virtual time.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    headpond simulate plain.toml cached.toml --rw randwrite --iodepth 32 --runtime 5m\n  \
    headpond simulate plain.toml --job workload.fio --json\n  \
    headpond simulate plain.toml cached.toml --trace monday.hptrace --speed 2 --html monday.html\n  \
    headpond simulate --reference tables/\n\n\
    A stack is a TOML file:\n\n  \
    name = \"cached\"\n  \
    [core]\n  raid = 60\n  groups = 4\n  strip = \"64K\"\n  drive = \"hdd-7k2-4t\"\n  drives = 40\n  \
    [cache]            # optional\n  size = \"64M\"\n  mode = \"write-back\"\n  write_us = 20\n\n\
    `drive` is a model of `headpond model list` or a file; [core] also takes drive_state (fresh, full, \
    steady),\ncontroller and network, [cache] a model instead of figures.")]
pub struct SimulateArgs {
    /// Descriptions of machines, simulated side by side.
    #[arg(value_name = "STACK", required_unless_present = "reference")]
    pub stacks: Vec<PathBuf>,
    /// The workload as a fio job file.
    #[arg(long, value_name = "FILE", conflicts_with = "rw")]
    pub job: Option<PathBuf>,
    /// The workload as a trace of any format with operations and times (docs/traces.md; plain,
    /// gzip, zstd or xz): requests are issued at their recorded times, and their latency counts
    /// from then.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["job", "rw"])]
    pub trace: Option<PathBuf>,
    /// Replays the trace this many times as fast as it was recorded.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "trace", value_parser = parse_speed)]
    pub speed: f64,
    /// Replays the trace in order with --iodepth requests in flight, ignoring recorded times.
    #[arg(long, requires = "trace", conflicts_with = "speed")]
    pub as_fast_as_possible: bool,
    /// Requests of the trace beyond the end of the volume: wrap (the address modulo the volume's
    /// size), skip (left out) or refuse (an error).
    #[arg(long, value_enum, default_value_t = FitChoice::Wrap, requires = "trace")]
    pub fit: FitChoice,
    /// The format of the trace, if it is not to be detected (as of `headpond analyze`).
    #[arg(long, value_name = "NAME", hide_possible_values = true, requires = "trace")]
    pub format: Option<TraceFormat>,
    /// Skips and counts damaged parts of the trace, instead of failing.
    #[arg(long, requires = "trace")]
    pub lenient: bool,
    /// Pattern, as fio's rw: read, write, rw, randread, randwrite, randrw.
    #[arg(long)]
    pub rw: Option<String>,
    /// Percentage of reads in a mixed workload.
    #[arg(long, requires = "rw")]
    pub rwmixread: Option<u32>,
    /// Bytes of a request.
    #[arg(long, default_value = "4k")]
    pub bs: String,
    /// Requests in flight.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub iodepth: u32,
    /// Number of such jobs.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub numjobs: u32,
    /// Measured virtual time.
    #[arg(long, default_value = "60s")]
    pub runtime: String,
    /// Warm-up before that.
    #[arg(long, default_value = "10s")]
    pub ramp_time: String,
    /// Run the published tables in this folder (CSV) and compare.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["stacks", "job", "rw", "trace"])]
    pub reference: Option<PathBuf>,
    /// Writes tables and charts as a self-contained page.
    #[arg(long, value_name = "FILE", conflicts_with = "reference")]
    pub html: Option<PathBuf>,
    /// The same seed gives the same figures.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print JSON instead of text.
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
