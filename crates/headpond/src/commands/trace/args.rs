//! The command line of `headpond trace`.

use crate::args::ReadArgs;
use clap::{Args, Subcommand};
use headpond_trace::ExportFormat;
use std::path::PathBuf;

/// Record, convert and summarise block traces.
#[derive(Subcommand)]
pub enum TraceCommand {
    Record(RecordArgs),
    Stats(StatsArgs),
    Convert(ConvertArgs),
}

/// Record the requests of a served volume or of a kernel block device, until the time is over or
/// Ctrl-C.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  headpond trace record hv0 --seconds 60 --output hv0.hptrace\n  \
    headpond trace record /dev/sda --seconds 600     # root, and the program blktrace"
)]
pub struct RecordArgs {
    /// Name of a volume, or path of a block device.
    #[arg(value_name = "NAME|DEV")]
    pub name: String,
    /// The output file; default: NAME.hptrace.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Duration of the recording.
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Count what is in a trace.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond trace stats hv0.hptrace\n  \
    headpond trace stats src1_0.csv.gz --lenient --json\n  \
    blkparse -i sda -o - | headpond trace stats -")]
pub struct StatsArgs {
    /// A trace of any format (docs/traces.md), plain, gzip, zstd or xz; - for standard input.
    pub file: PathBuf,
    #[command(flatten)]
    pub read: ReadArgs,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Write a trace in another format.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond trace convert sda.blktrace.0 sda.hptrace\n  \
    headpond trace convert sda.hptrace sda.log --to fio-iolog\n  \
    headpond trace convert sda.hptrace sda.parquet --to parquet\n  \
    zcat src1_0.csv.gz | headpond trace convert - - --to blkparse-text | less")]
pub struct ConvertArgs {
    /// A trace of any format (docs/traces.md), plain, gzip, zstd or xz; - for standard input.
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// Output file; - for standard output. An existing file is not overwritten.
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    /// Output format: recording (Headpond's own, complete), fio-iolog (version 3), blkparse-text,
    /// csv (the table of MSR Cambridge), parquet (a row per request, for your own query engine).
    #[arg(long, value_name = "FORMAT", default_value = "recording")]
    pub to: ExportFormat,
    #[command(flatten)]
    pub read: ReadArgs,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}
