//! Of the commands that make, serve, show, change and remove a volume.

use clap::Args;
use headpond_api::requests::FlushPace;
use headpond_cache::{CleaningConfig, Mode};
use headpond_raid::level::Level;
use headpond_raid::{JournalWhen, Spread};
use headpond_volume::description::HEARTBEAT_MS_DEFAULT;
use headpond_volume::{SeqCutoff, SettingChange, Size, parse_word};
use serde::Deserialize;

/// What an array of new members is to be.
#[derive(Args)]
pub struct ArrayArgs {
    /// RAID level: 0, 1, 10, 5, 6, 50, 60.
    #[arg(long, value_name = "LEVEL")]
    pub raid: Level,
    /// Groups of the array (levels 10, 50 and 60); without it mirrors of two, and two groups of
    /// parity.
    #[arg(long)]
    pub groups: Option<u16>,
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
    /// Into how many groups so many members go.
    pub fn groups(&self, members: usize) -> u16 {
        let members = u16::try_from(members).unwrap_or(u16::MAX);
        self.groups.unwrap_or(self.raid.usual_groups(members))
    }

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
    headpond create hv5 --raid 6 /dev/sd[b-g] --cache /dev/nvme0n1 --cache /dev/nvme1n1\n  \
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
    /// The cache device. Given several times, each device is a copy of the cache: what one of them
    /// loses or has damaged comes from another, also what the array lacks.
    #[arg(long, value_name = "DEV")]
    pub cache: Vec<String>,
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
    /// those of the array and the clients: merge-wait-us, merge-max, member-read-timeout-ms,
    /// member-timeout-ms, member-timeouts-max, client-memory.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub settings: Vec<SettingChange>,
    /// Parts of the volume with a log of their own, 1 to 16.
    #[arg(long, default_value_t = 1)]
    pub slices: u16,
    /// How often, in milliseconds, the devices are told that the volume is in use here, so that no
    /// other host that reaches them opens it: 100 to 60000, or 0 for never.
    #[arg(long, value_name = "MS", default_value_t = HEARTBEAT_MS_DEFAULT)]
    pub heartbeat_ms: u32,
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
    nbdinfo 'nbd+unix:///?socket=/run/headpond/hv0.sock'\n\n\
    SIGTERM and SIGINT stop the volume as `headpond stop` does; a second one ends the daemon as a\n\
    kill does, which loses nothing that was flushed. SIGHUP changes nothing.")]
pub struct ServeArgs {
    pub name: String,
    /// Serve a degraded array that was not stopped cleanly: data of missing members that only
    /// parity tells, where it was being written, is lost then. Go on without a cache that is lost
    /// or out of date: so is what only the cache held. Take writes again though the cache has lost
    /// what it had flushed.
    #[arg(long)]
    pub force: bool,
    /// Assume that the parity is right, instead of discarding that data. Some of it may be a
    /// mixture of old and new, which nothing will detect.
    #[arg(long, requires = "force")]
    pub assume_clean: bool,
}

/// Show what a volume is made of and how it is; all volumes without a name.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond status hv0 --json")]
pub struct StatusArgs {
    pub name: Option<String>,
    /// Print JSON instead of text.
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
    /// Print JSON instead of text.
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
    headpond set hv0 'classes=past:request_size:ge:128K&io_direction:read'\n  \
    headpond set hv0 merge-wait-us=off          # of the array\n  \
    headpond set hv0 member-read-timeout-ms=500 member-timeout-ms=10000 member-timeouts-max=4\n  \
    headpond set hv0 client-memory=512M         # of all clients together"
)]
pub struct SetArgs {
    pub name: String,
    /// Such as mode=write-through, cleaning=alru, cleaning.alru.staleness-s=60, seq-cutoff=1M,
    /// classes=FILE or past:RULE, eviction=lru, bypass=adaptive; of the tier in memory tier.mode
    /// and others; of the array merge-wait-us=auto, merge-max=64M, and deadlines of its members,
    /// member-read-timeout-ms=2000, member-timeout-ms=30000, member-timeouts-max=8; and the memory
    /// of all clients' requests, client-memory=512M.
    #[arg(value_name = "KEY=VALUE")]
    pub changes: Vec<SettingChange>,
    /// Write all dirty data to the array before the change and after it, and wait for it; without,
    /// what is dirty is served and cleaned in the background.
    #[arg(long, requires = "changes")]
    pub flush: bool,
    /// How fast it writes: so that readers keep about two thirds of their rate, or as fast as the
    /// array can.
    #[arg(long, value_name = "readers|max", default_value_t, value_parser = parse_word::<FlushPace>, requires = "flush")]
    pub pace: FlushPace,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

impl SetArgs {
    /// Whether it does nothing but print.
    pub fn is_printer(&self) -> bool {
        self.changes.is_empty()
    }
}

/// Write all dirty data to the array, and wait for it.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond flush hv0")]
pub struct FlushArgs {
    pub name: String,
    /// How fast: so that readers keep about two thirds of their rate, or as fast as the array can.
    #[arg(long, value_name = "readers|max", default_value_t, value_parser = parse_word::<FlushPace>)]
    pub pace: FlushPace,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Stop serving a volume; dirty data stays in the cache unless --flush is given. Refused while
/// clients are connected, or a command such as `flush` is under way.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  headpond stop hv0 --flush\n  headpond stop hv0 --wait\n  headpond stop hv0 --force"
)]
pub struct StopArgs {
    pub name: String,
    /// Write all dirty data to the array first.
    #[arg(long)]
    pub flush: bool,
    /// Wait until commands that are under way have come to their end.
    #[arg(long)]
    pub wait: bool,
    /// Disconnect clients and end commands that are under way; what was answered is not lost.
    #[arg(long, conflicts_with = "wait")]
    pub force: bool,
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
