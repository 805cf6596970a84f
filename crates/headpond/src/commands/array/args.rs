//! The command line of `headpond array`.

use super::journal::SetJournalArgs;
use super::live::{
    AddSpareArgs, DropCopyArgs, GrowArgs, MemberArgs, OfArgs, PauseArgs, RateArgs, ReAddArgs,
    ReplaceArgs, ResumeArgs, ScrubArgs,
};
use clap::{Args, Subcommand};
use headpond_raid::Level;
use headpond_volume::{BackgroundRate, Size};
use std::path::PathBuf;

/// Plan an array before buying it; manage members and background work of a served one.
#[derive(Subcommand)]
pub enum ArrayCommand {
    Plan(Box<PlanArgs>),
    AddSpare(AddSpareArgs),
    ReAdd(ReAddArgs),
    Replace(ReplaceArgs),
    Grow(GrowArgs),
    /// Mark a member failed.
    #[command(after_help = "Example:\n  headpond array fail hv0 /dev/sdd")]
    Fail(MemberArgs),
    /// Remove a spare or a failed member.
    #[command(after_help = "Example:\n  headpond array remove hv0 /dev/sdd")]
    Remove(MemberArgs),
    DropCopy(DropCopyArgs),
    SetJournal(SetJournalArgs),
    /// Remove the stripe journal of an array; its device is free afterwards.
    #[command(after_help = "Example:\n  headpond array drop-journal hv0")]
    DropJournal(OfArgs),
    Scrub(ScrubArgs),
    Pause(PauseArgs),
    Resume(ResumeArgs),
    /// Wait, with a progress bar, until all background work has ended: rebuild, reshape, initial
    /// sync, scrub.
    #[command(after_help = "Examples:\n  \
        headpond create hv0 --raid 6 /dev/sd[b-g] ; headpond serve hv0 &\n  \
        headpond array wait hv0                      # until the initial sync is done\n\n\
        It ends with code 4 where the work rests: paused, or because something went wrong.")]
    Wait(OfArgs),
    Rate(RateArgs),
}

/// Compute capacity, speed, rebuild time and probability of loss of arrays of such drives.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    headpond array plan --level 6 --members 12 --drive hdd-14t --strip 64K\n  \
    headpond array plan --level 10,6,60 --members 24 --drive hdd-14t --simulate\n  \
    headpond array plan --compare --members 8 --drive nvme-dc-2t --html arrays.html\n  \
    headpond array plan --preset reference-40 --simulate-rebuild 256M\n  \
    headpond array plan --level 0 --drive nvme-dc-2t --drive ssd-dc-960g\n  \
    headpond array plan --level 6 --members 24 --width 8 --distributed-spares 2 --drive hdd-14t\n  \
    headpond array plan --level 5 --members 4 --drive ./mine.toml --json\n  \
    headpond array plan --level 6 --members 12 --drive hdd-14t --cache nvme-dc-2t --hit-ratio 90\n  \
    headpond array plan --reference tables/     # published expectations against the formulas\n\n\
    A drive is hdd-14t (published figures of one disk), a disk or SSD of `headpond model list`, or \
    a\nfile: a model, or a sheet of figures. docs/array-plan.md has the formulas and where they are from.")]
pub struct PlanArgs {
    /// RAID level: 0, 1, 10, 5, 6, 50, 60; several, separated by commas, are compared.
    #[arg(
        long,
        value_name = "LEVEL",
        value_delimiter = ',',
        required_unless_present_any = ["compare", "reference", "preset"]
    )]
    pub level: Vec<Level>,
    /// Compare every level that this number of members allows.
    #[arg(long, conflicts_with = "level")]
    pub compare: bool,
    /// Members of the array, if they are all of one model.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=255))]
    pub members: Option<u16>,
    /// Groups of levels 10, 50 and 60; default: mirrors of two, and two parity groups. In a
    /// comparison of levels it applies to 50 and 60.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=255))]
    pub groups: Option<u16>,
    /// Declustered levels 5 and 6: strips of a stripe, data and parity, spread over more members.
    #[arg(long, value_name = "STRIPS", conflicts_with = "compare")]
    pub width: Option<u16>,
    /// Distributed spares, in units of one member.
    #[arg(long, value_name = "COUNT", default_value_t = 1, requires = "width")]
    pub distributed_spares: u16,
    /// Predefined arrays. reference-40: the 40 drives of the published tables in four groups of
    /// 8+2, and the same drives declustered, with two distributed spares; of hdd-7k2-4t unless
    /// --drive says otherwise.
    #[arg(
        long,
        value_parser = ["reference-40"],
        conflicts_with_all = ["level", "compare", "members", "groups", "width", "reference"]
    )]
    pub preset: Option<String>,
    /// Model of the members. Several, separated by commas or given one by one, are unequal members
    /// of an array of level 0: shows the gain of weights, and the loss of a plain stripe.
    #[arg(
        long,
        value_name = "NAME|FILE",
        value_delimiter = ',',
        required_unless_present_any = ["reference", "preset"]
    )]
    pub drive: Vec<String>,
    /// Bytes of a stripe on one member.
    #[arg(long, default_value = "64K")]
    pub strip: Size,
    /// Queue depths of the whole array to compute.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,32",
        value_parser = clap::value_parser!(u32).range(1..=4096)
    )]
    pub depth: Vec<u32>,
    /// Minimum rate of a rebuild under client load, as of `array rate`: bytes/s of a drive.
    #[arg(long, value_name = "RATE", default_value_t = BackgroundRate::default().min)]
    pub rate_min: Size,
    /// Its maximum rate; default: none.
    #[arg(long, value_name = "RATE")]
    pub rate_max: Option<Size>,
    /// Hours until a failed drive is replaced; 0 with a hot spare.
    #[arg(
        long,
        value_name = "HOURS",
        default_value_t = 24,
        value_parser = clap::value_parser!(u32).range(0..=8766)
    )]
    pub replace: u32,
    /// Annual failure rate of the drives in percent; default: that of the model.
    #[arg(long, value_name = "PERCENT", value_parser = parse_failures)]
    pub afr: Option<f64>,
    /// Bits read per unrecoverable read error, such as 1e15; default: that of the model.
    #[arg(long, value_name = "BITS", value_parser = parse_bits)]
    pub ure: Option<f64>,
    /// Model of a cache device, as --drive: speed of the array behind it, and what its failure adds
    /// to the probability of loss.
    #[arg(long, value_name = "NAME|FILE")]
    pub cache: Option<String>,
    /// Bytes of the cache device to use; default: all.
    #[arg(long, value_name = "SIZE", requires = "cache")]
    pub cache_size: Option<Size>,
    /// Hit ratio of random requests in percent.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 80.0,
        requires = "cache",
        value_parser = parse_hits
    )]
    pub hit_ratio: f64,
    /// Working set of uniformly random requests, of which the cache holds as much as fits. Instead
    /// of --hit-ratio.
    #[arg(long, value_name = "SIZE", requires = "cache", conflicts_with = "hit_ratio")]
    pub working_set: Option<Size>,
    /// Also simulate the drive's model at each depth.
    #[arg(long)]
    pub simulate: bool,
    /// Simulate rebuilds of arrays of drives truncated to this size: the time onto an added drive,
    /// and onto distributed spares.
    #[arg(long, value_name = "SIZE", conflicts_with = "reference")]
    pub simulate_rebuild: Option<Size>,
    /// Compare the published expectations in this folder (hdd_raid_expected.csv) with the formulas.
    #[arg(
        long,
        value_name = "FOLDER",
        conflicts_with_all = ["level", "compare", "members", "drive", "groups", "cache", "html"]
    )]
    pub reference: Option<PathBuf>,
    /// Writes tables and charts as a self-contained page.
    #[arg(long, visible_alias = "chart", value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

fn parse_failures(text: &str) -> Result<f64, String> {
    let percent = text.parse::<f64>().ok().filter(|percent| *percent > 0.0 && *percent < 100.0);
    percent.ok_or_else(|| "a percentage above 0 and below 100".into())
}

fn parse_hits(text: &str) -> Result<f64, String> {
    let percent = text.parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "a percentage from 0 to 100".into())
}

fn parse_bits(text: &str) -> Result<f64, String> {
    let bits = text.parse::<f64>().ok().filter(|bits| (1e6..=1e20).contains(bits));
    bits.ok_or_else(|| "a number of bits from 1e6 to 1e20, such as 1e15".into())
}
