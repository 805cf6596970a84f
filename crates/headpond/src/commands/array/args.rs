//! The command line of `headpond array`.

use super::journal::SetJournalArgs;
use super::live::{
    AddSpareArgs, DropCopyArgs, GrowArgs, MemberArgs, OfArgs, RateArgs, ReAddArgs, ReplaceArgs,
    ResumeArgs, ScrubArgs,
};
use clap::{Args, Subcommand};
use headpond_raid::Level;
use headpond_volume::{BackgroundRate, Size};
use std::path::PathBuf;

/// Think about an array before it is bought; exchange members of one that is served, and look
/// after it.
#[derive(Subcommand)]
pub enum ArrayCommand {
    Plan(Box<PlanArgs>),
    AddSpare(AddSpareArgs),
    ReAdd(ReAddArgs),
    Replace(ReplaceArgs),
    Grow(GrowArgs),
    /// Take a member out of use.
    #[command(after_help = "Example:\n  headpond array fail hv0 /dev/sdd")]
    Fail(MemberArgs),
    /// Let go of a spare, or of a member that is out of use.
    #[command(after_help = "Example:\n  headpond array remove hv0 /dev/sdd")]
    Remove(MemberArgs),
    DropCopy(DropCopyArgs),
    SetJournal(SetJournalArgs),
    /// Take the stripe journal of an array away; its device is free then.
    #[command(after_help = "Example:\n  headpond array drop-journal hv0")]
    DropJournal(OfArgs),
    Scrub(ScrubArgs),
    /// Pause background work on the array: rebuild, reshape, initial sync, scrub.
    #[command(after_help = "Example:\n  headpond array pause hv0")]
    Pause(OfArgs),
    Resume(ResumeArgs),
    /// Wait, with a bar, until no work on the array is left: rebuild, growth, first parity, scrub.
    #[command(after_help = "Examples:\n  \
        headpond create hv0 --raid 6 /dev/sd[b-g] ; headpond serve hv0 &\n  \
        headpond array wait hv0                      # until the first parity is there\n\n\
        It ends with code 4 where the work rests: paused, or because something went wrong.")]
    Wait(OfArgs),
    Rate(RateArgs),
}

/// Say what arrays of such drives would be: capacity, speed, rebuild, probability of loss.
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
    headpond array plan --reference tables/     # the published expectations, by the same formulas\n\n\
    A drive is hdd-14t (published figures of one disk), a disk or SSD of `headpond model list`, or \
    a\nfile: a model, or a sheet of figures. docs/array-plan.md has the formulas and where they are from.")]
pub struct PlanArgs {
    /// RAID level: 0, 1, 10, 5, 6, 50, 60; several, separated by commas, stand side by side.
    #[arg(
        long,
        value_name = "LEVEL",
        value_delimiter = ',',
        required_unless_present_any = ["compare", "reference", "preset"]
    )]
    pub level: Vec<Level>,
    /// Every level that so many members allow, side by side.
    #[arg(long, conflicts_with = "level")]
    pub compare: bool,
    /// Members of the array, where they are of one kind.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=255))]
    pub members: Option<u16>,
    /// Groups of levels 10, 50 and 60; without it mirrors of two, and two groups of parity. Where
    /// levels stand side by side it is meant for 50 and 60.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=255))]
    pub groups: Option<u16>,
    /// Strips of a stripe of levels 5 and 6, data and parity, spread over more members.
    #[arg(long, value_name = "STRIPS", conflicts_with = "compare")]
    pub width: Option<u16>,
    /// Members' worth of spare space on all members.
    #[arg(long, value_name = "COUNT", default_value_t = 1, requires = "width")]
    pub distributed_spares: u16,
    /// Arrays that have a name. reference-40: the 40 drives of the published tables in four groups
    /// of 8+2, and the same drives declustered, with two distributed spares; of hdd-7k2-4t unless
    /// --drive says otherwise.
    #[arg(
        long,
        value_parser = ["reference-40"],
        conflicts_with_all = ["level", "compare", "members", "groups", "width", "reference"]
    )]
    pub preset: Option<String>,
    /// What the members are. Several, separated by commas or one by one, are members of an array of
    /// level 0 that differ: what weights make of them, and what a plain stripe would lose.
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
    /// Requests in flight, of the whole array, that are looked at.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,32",
        value_parser = clap::value_parser!(u32).range(1..=4096)
    )]
    pub depth: Vec<u32>,
    /// How fast a rebuild goes at least while clients are served, as `array rate` says it: bytes a
    /// second of a drive.
    #[arg(long, value_name = "RATE", default_value_t = BackgroundRate::default().min)]
    pub rate_min: Size,
    /// How fast it goes at most; as fast as the drives can where nothing is said.
    #[arg(long, value_name = "RATE")]
    pub rate_max: Option<Size>,
    /// Hours until a failed drive is replaced; 0 with a spare in place.
    #[arg(
        long,
        value_name = "HOURS",
        default_value_t = 24,
        value_parser = clap::value_parser!(u32).range(0..=8766)
    )]
    pub replace: u32,
    /// Percent of such drives that fail in a year; as the drive says where it is left out.
    #[arg(long, value_name = "PERCENT", value_parser = parse_failures)]
    pub afr: Option<f64>,
    /// Bits read for each sector that cannot be read, such as 1e15; as the drive says where it is
    /// left out.
    #[arg(long, value_name = "BITS", value_parser = parse_bits)]
    pub ure: Option<f64>,
    /// What a cache in front is kept on, as --drive: how fast the array is behind it, and what
    /// its failure adds to the loss.
    #[arg(long, value_name = "NAME|FILE")]
    pub cache: Option<String>,
    /// Use so much of the cache device; all of it where nothing is said.
    #[arg(long, value_name = "SIZE", requires = "cache")]
    pub cache_size: Option<Size>,
    /// Percent of the random requests that are for what the cache holds.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 80.0,
        requires = "cache",
        value_parser = parse_hits
    )]
    pub hit_ratio: f64,
    /// How much is asked for at random, everything equally often: of that, the cache holds what
    /// fits. In place of --hit-ratio.
    #[arg(long, value_name = "SIZE", requires = "cache", conflicts_with = "hit_ratio")]
    pub working_set: Option<Size>,
    /// Beside the formulas, what the simulator says of the drive's model at each depth.
    #[arg(long)]
    pub simulate: bool,
    /// Have the simulator rebuild arrays of drives that are cut short to this size: how long it
    /// takes onto a drive that is added, and onto distributed spares.
    #[arg(long, value_name = "SIZE", conflicts_with = "reference")]
    pub simulate_rebuild: Option<Size>,
    /// Compare the published expectations in this folder (hdd_raid_expected.csv) with the formulas.
    #[arg(
        long,
        value_name = "FOLDER",
        conflicts_with_all = ["level", "compare", "members", "drive", "groups", "cache", "html"]
    )]
    pub reference: Option<PathBuf>,
    /// Writes tables and charts as one page that needs nothing else.
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
