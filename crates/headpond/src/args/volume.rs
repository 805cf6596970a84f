//! Arguments of the commands that create, serve, show, change and remove a volume.

use anyhow::Result;
use clap::Args;
use headpond_api::config::{LogFormat, LogLevel};
use headpond_api::outcome::Failure;
use headpond_api::requests::{DEAD_CONN_TIMEOUT_S, FlushPace};
use headpond_cache::{CleaningConfig, Mode};
use headpond_daemon::wall_clock;
use headpond_raid::level::Level;
use headpond_raid::{JournalWhen, Spread};
use headpond_volume::description::HEARTBEAT_MS_DEFAULT;
use headpond_volume::{SeqCutoff, SettingChange, SettingError, Size, parse_word};
use serde::Deserialize;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::SystemTime;

/// The array that is made of new members.
#[derive(Args)]
pub struct ArrayArgs {
    /// RAID level: 0, 1, 10, 5, 6, 50, 60. Of an existing device (--core) there is none.
    #[arg(long, value_name = "LEVEL")]
    pub raid: Option<Level>,
    /// Groups of the array (levels 10, 50 and 60); default: mirrors of two, and two parity groups.
    #[arg(long)]
    pub groups: Option<u16>,
    /// Declustered layout (levels 5 and 6): strips of a stripe, data and parity, spread over more
    /// members. A rebuild then reads from all of them.
    #[arg(long, value_name = "STRIPS")]
    pub width: Option<u16>,
    /// Distributed spares: spare space on all members, in units of one member, that replaces lost
    /// ones.
    #[arg(long, value_name = "COUNT", default_value_t = 1, requires = "width")]
    pub distributed_spares: u16,
    /// How unequal members of level 0 are striped: plain (each as much as the smallest), capacity
    /// (by the size of each), speed (by the read rate of each, measured for half a second; nothing
    /// is written).
    #[arg(long, default_value = "plain", value_parser = parse_word::<StripingWord>)]
    pub striping: StripingWord,
    /// Weights set manually: strips on each member in turn, in the order in which they are named.
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
    /// No write-intent bitmap: the write hole of writes that bypass the cache is then not closed
    /// after a crash.
    #[arg(long)]
    pub no_intent: bool,
    /// Reserve a thousandth of each member for checksums of verified blocks: a scrub can then tell
    /// which block is damaged. Not for level 0.
    #[arg(long)]
    pub integrity: bool,
    /// The members read as zeros (new sparse files, erased drives): skips the initial sync. Samples
    /// of all members are read, and anything but zeros is refused.
    #[arg(long, conflicts_with = "assume_clean")]
    pub zeroed: bool,
    /// Assume that the parity, or the copies, on the members are consistent, without reading them:
    /// for members of an array of the same layout. If they are not, data of a member that is lost
    /// later is reconstructed wrong, without an error.
    #[arg(long)]
    pub assume_clean: bool,
}

/// Source of the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StripingWord {
    Plain,
    Capacity,
    Speed,
}

impl ArrayArgs {
    /// The number of groups for so many members.
    pub fn groups(&self, level: Level, members: usize) -> u16 {
        let members = u16::try_from(members).unwrap_or(u16::MAX);
        self.groups.unwrap_or(level.usual_groups(members))
    }

    /// The level, which is to be given unless the core is an existing device.
    ///
    /// # Errors
    /// Where it is not.
    pub fn level(&self) -> Result<Level> {
        self.raid.ok_or_else(|| {
            Failure::usage("the level of the array is missing: --raid 0, 1, 10, 5, 6, 50 or 60")
        })
    }

    /// The declustered layout, if any.
    pub fn declustered(&self) -> Option<Spread> {
        self.width.map(|width| Spread { width, spares: self.distributed_spares })
    }
}

/// Create a volume of an array and, optionally, a cache; all data on the devices is lost, but for
/// that of a core with --keep.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    headpond create hv0 --raid 6 --strip 64K /dev/sd[b-g] --cache /dev/nvme0n1\n  \
    headpond create hv1 --raid 60 --groups 2 /dev/sd[b-q] --cache /dev/nvme0n1 --mode write-through\n  \
    headpond create hv2 --raid 6 --width 10 --distributed-spares 2 /dev/sd[a-z] /dev/sda[a-n]\n  \
    headpond create hv3 --raid 5 --integrity /dev/sd[b-e] --cache /dev/nvme0n1\n  \
    headpond create hv5 --raid 6 /dev/sd[b-g] --cache /dev/nvme0n1 --cache /dev/nvme1n1\n  \
    headpond create hv4 --raid 0 --striping speed /dev/nvme0n1 /dev/nvme1n1\n  \
    headpond create toy --raid 5 a.img b.img c.img --cache ram:64M --force\n  \
    headpond create hv6 --core /dev/sdb --keep --cache /dev/nvme0n1\n\n\
    A device is a block device or file, rbd:POOL/IMAGE (of Ceph), ram:SIZE, or\n\
    model:NAME?store=FILE (a drive model on a sparse file). Devices that hold a file system, are\n\
    mounted or in use are refused.")]
pub struct CreateArgs {
    /// Name of the volume.
    pub name: String,
    /// Members of the array, in any order.
    #[arg(required_unless_present = "core", value_name = "DEV")]
    pub members: Vec<String>,
    /// An existing block device or image as it is, instead of an array of new members. Nothing but
    /// the clients' data is written to it, and after `headpond detach` it is used directly again.
    #[arg(
        long,
        value_name = "DEV",
        requires = "keep",
        conflicts_with_all = [
            "members", "raid", "groups", "width", "striping", "weights", "strip", "no_intent",
            "integrity", "zeroed", "assume_clean", "journal",
        ]
    )]
    pub core: Option<String>,
    /// Keep the contents of the core.
    #[arg(long)]
    pub keep: bool,
    #[command(flatten)]
    pub array: ArrayArgs,
    /// A stripe journal on a fast device: makes a degraded array of levels 5, 6, 50 and 60 safe
    /// against power cuts; without it such an array refuses to start after one.
    #[arg(long, value_name = "DEV")]
    pub journal: Option<String>,
    /// When it is used: degraded (for writes to degraded groups; no cost while the array is
    /// healthy) or always (also safe if a member is lost with the power).
    #[arg(long, default_value = "degraded", value_parser = parse_word::<JournalWhen>, requires = "journal")]
    pub journal_when: JournalWhen,
    /// The cache device. Given several times, the cache is mirrored on these devices: lost or
    /// damaged blocks of one, dirty ones included, are read from another.
    #[arg(long, value_name = "DEV")]
    pub cache: Vec<String>,
    /// Bytes of the cache device to use; default: all.
    #[arg(long, value_name = "SIZE", requires = "cache")]
    pub cache_size: Option<Size>,
    /// Memory in front of the cache, such as ram:4G: a tier with a mode of its own, write-through
    /// unless --set tier.mode=... says otherwise. It is empty after every start.
    #[arg(long, value_name = "RAM", requires = "cache")]
    pub tier: Option<String>,
    /// How requests use the cache: write-back, write-through, write-around, write-invalidate,
    /// write-only, pass-through; default: write-back, with --keep write-through. (Defaults of
    /// settings are of the program, unless [defaults] of the machine's configuration has others:
    /// `headpond check-config`.)
    #[arg(long, value_parser = parse_word::<Mode>, requires = "cache")]
    pub mode: Option<Mode>,
    /// Cleaning policy: stripe (in address order), alru (least recently used), acp (the dirtiest
    /// region first), ordered (in the order of flushes, so that the array is always a consistent
    /// earlier state), nop (none, except for data replayed after an unclean shutdown); default:
    /// stripe. Presets: --set preset=acp-very-aggressive, alru-very-aggressive or lustre.
    #[arg(long, value_parser = parse_word::<CleaningConfig>, requires = "cache")]
    pub cleaning: Option<CleaningConfig>,
    /// Cache line: 4K, 8K, 16K, 32K, 64K, 128K, 256K, 512K or 1M. Longer lines need less memory for
    /// contiguous data; valid and dirty are tracked for each 4K regardless.
    #[arg(long, default_value = "4K", requires = "cache")]
    pub line: Size,
    /// When sequential streams bypass the cache: full (longer than 1M, while the cache is full),
    /// always, never, or the size after which they do; default: full.
    #[arg(long, requires = "cache")]
    pub seq_cutoff: Option<SeqCutoff>,
    /// Any other setting of `headpond set`; may be given several times. Without a cache, settings
    /// of the array and the clients: merge-wait-us, merge-max, member-read-timeout-ms,
    /// member-timeout-ms, member-timeouts-max, client-memory.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub settings: Vec<SettingChange>,
    /// Parts of the volume with a log of their own, 1 to 16.
    #[arg(long, default_value_t = 1)]
    pub slices: u16,
    /// Heartbeat on the devices in milliseconds, so that no other host that reaches them opens the
    /// volume: 100 to 60000, or 0 for none.
    #[arg(long, value_name = "MS", default_value_t = HEARTBEAT_MS_DEFAULT)]
    pub heartbeat_ms: u32,
    /// Where to serve: unix:PATH or tcp:HOST:PORT over NBD, or
    /// ublk[:queues=N,depth=N,io=SIZE,read-only] as a block device of the kernel,
    /// /dev/headpond/NAME; may be given several times.
    #[arg(long = "export", value_name = "ADDRESS")]
    pub exports: Vec<String>,
    /// Serve on TCP addresses that other machines can reach, without encryption or authentication.
    #[arg(long)]
    pub insecure: bool,
    /// Overwrite data on the devices, and allow write-back on a volatile cache.
    #[arg(long)]
    pub force: bool,
}

/// Serve a volume at its exports, in the foreground, until `headpond stop` or a signal.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond serve hv0\n  \
    nbdinfo 'nbd+unix:///?socket=/run/headpond/hv0.sock'\n\n\
    SIGTERM and SIGINT stop the volume as `headpond stop` does; a second one ends the daemon as a\n\
    kill does, which loses nothing that was flushed. SIGHUP changes nothing.\n\n\
    `headpond serve --all` starts a daemon for each volume and waits for them; with systemd, enable\n\
    headpond@NAME.service and headpond.target instead.")]
pub struct ServeArgs {
    #[arg(required_unless_present = "all")]
    pub name: Option<String>,
    /// All volumes that are not served, each by a process of its own; signals are passed on. A
    /// volume that fails keeps no other from being served, and the highest exit code is that of
    /// this command.
    #[arg(long, conflicts_with_all = ["name", "force", "assume_clean", "wait_for_devices"])]
    pub all: bool,
    /// Serve a degraded array after an unclean shutdown: data of missing members in stripes that
    /// were being written is discarded. Start without a cache that is missing or stale: its dirty
    /// data is lost. Accept writes again although the cache has lost flushed data.
    #[arg(long)]
    pub force: bool,
    /// Assume that the parity is consistent, instead of discarding that data. Some of it may be a
    /// mixture of old and new data, which is not detected.
    #[arg(long, requires = "force")]
    pub assume_clean: bool,
    /// Without an administrator: wait so long for devices that are missing, then start degraded
    /// if that is safe, and otherwise wait on. Members that come later are resynced. Without a
    /// number: as the configuration says, 30 if it says nothing.
    #[arg(long, value_name = "SECONDS", conflicts_with = "force")]
    pub wait_for_devices: Option<Option<u64>>,
    #[command(flatten)]
    pub log: LogArgs,
}

/// The log of a daemon, on the standard error.
#[derive(Args, Default)]
pub struct LogArgs {
    /// Lines of text, or an object a line: text (default) or json.
    #[arg(long, value_name = "text|json", value_parser = parse_word::<LogFormat>)]
    pub log_format: Option<LogFormat>,
    /// What is logged, and what is worse: error, warn, info (default) or debug.
    #[arg(long, value_name = "LEVEL", value_parser = parse_word::<LogLevel>)]
    pub log_level: Option<LogLevel>,
}

/// Show what happened to a volume, or to all, whether served or not.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond events hv0\n  headpond events hv0 --since 2d\n  \
    headpond events --follow --json\n  headpond events hv0 --since '2026-11-30 07:00'\n\n\
    Times are in UTC. At least the newest 256 KiB of events of each volume are kept, over restarts.\n\
    Executables in /etc/headpond/events.d run on each event: docs/operating.md.")]
pub struct EventsArgs {
    /// Default: all volumes.
    pub name: Option<String>,
    /// Wait for further events, and show them as they come.
    #[arg(long, short)]
    pub follow: bool,
    /// Only events since this time, or for so long: 2026-11-30, '2026-11-30 07:52', RFC 3339, 15m,
    /// 6h, 2d.
    #[arg(long, value_name = "TIME")]
    pub since: Option<Since>,
    /// Print JSON instead of text: a list, with --follow an object a line.
    #[arg(long)]
    pub json: bool,
}

/// A time that was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Since(pub SystemTime);

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let time = wall_clock::parse(text, SystemTime::now());
        time.map(Self).ok_or_else(|| "no time such as 2026-11-30 07:52, 15m, 6h or 2d".to_owned())
    }
}

/// Where to look for volumes.
#[derive(Args)]
pub struct FoundArgs {
    /// Look at the files of this folder as well.
    #[arg(long = "in", value_name = "FOLDER")]
    pub folders: Vec<PathBuf>,
    /// Look at this file or device as well as at the block devices of the machine.
    #[arg(long = "device", value_name = "DEV")]
    pub devices: Vec<PathBuf>,
}

/// List the volumes whose devices are on this machine, by their superblocks alone.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond scan\n  headpond scan --in /srv/images --json\n\n\
    Nothing is written. Exit code 3: a volume is degraded, incomplete or ambiguous.")]
pub struct ScanArgs {
    #[command(flatten)]
    pub found: FoundArgs,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Serve a volume from the superblocks of its devices: its description is made anew.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond import hv0\n  headpond import --all\n  \
    headpond import hv0 --in /srv/images\n  \
    headpond import hv6 --core /dev/sdb --keep --cache /dev/nvme0n1\n\n\
    Shape, cache, mode and settings are those on the devices; exports those of a description that\n\
    is there, or a Unix socket.")]
pub struct ImportArgs {
    /// Name or UUID of the volume.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub name: Option<String>,
    /// All volumes that were found.
    #[arg(long)]
    pub all: bool,
    /// The existing device of a volume whose head was lost with the state folder: it is taken anew
    /// below its cache. What the cache has clean is dropped; dirty data is refused without --force,
    /// as the device may have been used meanwhile.
    #[arg(long, value_name = "DEV", requires_all = ["keep", "cache", "name"], conflicts_with = "all")]
    pub core: Option<String>,
    /// Keep the contents of the core.
    #[arg(long, requires = "core")]
    pub keep: bool,
    /// The cache of the existing device.
    #[arg(long, value_name = "DEV", requires = "core")]
    pub cache: Option<String>,
    /// Write the dirty data of the cache to the core, whatever was written there meanwhile.
    #[arg(long, requires = "core")]
    pub force: bool,
    #[command(flatten)]
    pub found: FoundArgs,
}

/// Write the description of a volume anew, from the superblocks of its devices.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond describe hv0")]
pub struct DescribeArgs {
    /// Name or UUID of the volume.
    pub name: String,
    #[command(flatten)]
    pub found: FoundArgs,
}

/// Show whether a device belongs to a volume: member, cache or stripe journal. Nothing is changed
/// or locked, so it may be in use.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  headpond probe /dev/sdb\n  headpond probe --export /dev/sdb   # for udev\n\n\
    Ends with code 2 where there is nothing of Headpond."
)]
pub struct ProbeArgs {
    #[arg(value_name = "DEV")]
    pub device: String,
    /// Print KEY=VALUE for udev, and nothing where there is nothing of Headpond.
    #[arg(long, conflicts_with = "json")]
    pub export: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Show the devices and the state of a volume; without a name, all volumes.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond status hv0 --json")]
pub struct StatusArgs {
    pub name: Option<String>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Show statistics of a volume: usage, requests, blocks and errors as casadm shows them; then
/// latencies by request path, reasons for bypassing the cache, and cleaning.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond stats hv0\n  headpond stats hv0 --by-class\n  \
    headpond stats hv0 --csv\n  headpond stats hv0 --json --reset     # the counters until now, \
    then from zero\n\n\
    docs/cache.md explains each row.")]
pub struct StatsArgs {
    pub name: String,
    /// The requests of one I/O class.
    #[arg(long, value_name = "ID")]
    pub class: Option<u8>,
    /// The requests of each I/O class.
    #[arg(long, conflicts_with = "class")]
    pub by_class: bool,
    /// Usage, requests, blocks and errors of one of several cores.
    #[arg(long, value_name = "CORE", conflicts_with_all = ["class", "by_class", "tier"])]
    pub core: Option<String>,
    /// Of the tier in memory, not of the cache below it.
    #[arg(long)]
    pub tier: bool,
    /// Set all counters but those of errors to zero after showing them; cached data stays.
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

/// Print the metrics of all volumes, or of these, in the text format of Prometheus; with --listen
/// serve them over HTTP.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond metrics hv0\n  headpond metrics --output \
    /var/lib/prometheus/node-exporter/headpond.prom   # for the textfile collector\n  \
    headpond metrics --listen=127.0.0.1:9949\n\n\
    docs/metrics.md lists them.")]
pub struct MetricsArgs {
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Write them to a file, which is replaced as a whole.
    #[arg(long, value_name = "FILE", conflicts_with = "listen")]
    pub output: Option<PathBuf>,
    /// Serve them at /metrics of this address and port; by default metrics-address of the
    /// configuration. Other than loopback it needs a token.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true)]
    pub listen: Option<Option<String>>,
    /// The token is in this file, of mode 0600; by default in metrics-token-file of the
    /// configuration.
    #[arg(long, value_name = "FILE", requires = "listen")]
    pub token_file: Option<PathBuf>,
}

/// Change settings of a volume, while it is served or for its next start; without changes, show
/// what each setting does, its value, its default and what it takes.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  headpond set hv0                             # all settings\n  \
    headpond set hv0 mode                        # what mode does, and its value\n  \
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
    /// of all clients' requests, client-memory=512M. A KEY alone is explained.
    #[arg(value_name = "KEY=VALUE")]
    pub changes: Vec<SetWord>,
    /// Write all dirty data to the array before and after the change, and wait for it; without it,
    /// dirty data is cleaned in the background.
    #[arg(long, requires = "changes")]
    pub flush: bool,
    /// Flush rate: readers keep about two thirds of their rate, or as fast as the array can.
    #[arg(long, value_name = "readers|max", default_value_t, value_parser = parse_word::<FlushPace>, requires = "flush")]
    pub pace: FlushPace,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// A change, or the key of a setting to be explained.
#[derive(Clone, Debug)]
pub enum SetWord {
    Change(SettingChange),
    Key(String),
}

impl FromStr for SetWord {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        match text.contains('=') {
            true => text.parse().map(Self::Change),
            false => Ok(Self::Key(text.replace('_', "-"))),
        }
    }
}

impl SetArgs {
    /// Whether it does nothing but print.
    pub fn is_printer(&self) -> bool {
        !self.changes.iter().any(|word| matches!(word, SetWord::Change(_)))
    }
}

/// Clear the errors of a device, or of all devices and what scrubs have found. They are kept over
/// restarts until then, and the volume is not healthy while there are any.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond clear hv0\n  headpond clear hv0 /dev/sdb")]
pub struct ClearArgs {
    pub name: String,
    /// As `headpond status` names it, or its UUID; default: all.
    pub device: Option<String>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Write all dirty data to the array, and wait for it.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond flush hv0")]
pub struct FlushArgs {
    pub name: String,
    /// Flush rate: readers keep about two thirds of their rate, or as fast as the array can.
    #[arg(long, value_name = "readers|max", default_value_t, value_parser = parse_word::<FlushPace>)]
    pub pace: FlushPace,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Stop serving a volume; dirty data stays in the cache unless --flush is given. Refused while
/// clients are connected or a command such as `flush` is in progress.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  headpond stop hv0 --flush\n  headpond stop hv0 --wait\n  headpond stop hv0 --force\n  headpond stop --all"
)]
pub struct StopArgs {
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub name: Option<String>,
    /// Each volume that is served; one that is refused keeps no other from it.
    #[arg(long)]
    pub all: bool,
    /// Write all dirty data to the array first.
    #[arg(long)]
    pub flush: bool,
    /// Wait until commands in progress have ended.
    #[arg(long)]
    pub wait: bool,
    /// Disconnect clients and end commands in progress; acknowledged data is not lost.
    #[arg(long, conflicts_with = "wait")]
    pub force: bool,
}

/// Make a served volume a block device, /dev/nbdN, by the kernel's NBD client (`modprobe nbd`).
///
/// It outlives the daemon: while that is restarted or was killed, requests wait, and go on with the
/// next one. Where a daemon's end loses acknowledged writes (a tier that writes back, a write-back
/// cache `ram:`), the device gives errors instead, until it is attached and mounted anew. A boot
/// ends it; docs/boot.md has a unit that attaches it again.
#[derive(Args, Clone)]
#[command(after_help = "Examples:\n  headpond attach hv0\n  \
    headpond attach hv0 --device /dev/nbd0\n  \
    headpond attach hv0/logs --dead-conn-timeout 86400\n  \
    headpond detach /dev/nbd0     # ends it")]
pub struct AttachArgs {
    /// The volume, or VOLUME/CORE.
    pub name: String,
    /// The device; default: one that is free.
    #[arg(long, value_name = "/dev/nbdN")]
    pub device: Option<String>,
    /// How long requests wait for a daemon; after that they are errors.
    #[arg(long, value_name = "SECONDS", default_value_t = DEAD_CONN_TIMEOUT_S)]
    pub dead_conn_timeout: u64,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Take Headpond away from an existing device (`create --core DEV --keep`): dirty data is written
/// to it, and the volume removed. The device is used directly again.
///
/// With the path of a device that `headpond attach` has made: end that, and nothing else.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond detach hv6\n  mount /dev/sdb /srv\n  \
    headpond detach hv6/logs      # a further core of a served volume, which goes on\n  \
    headpond detach /dev/nbd0     # what `headpond attach` has made; its volume goes on")]
pub struct DetachArgs {
    /// The volume, or VOLUME/CORE; or /dev/nbdN.
    pub name: String,
    /// Of /dev/nbdN: although it is mounted, or its volume is not served.
    #[arg(long)]
    pub force: bool,
}

/// Remove a volume: its superblocks and its description. All its data is lost.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond destroy hv0 --yes")]
pub struct DestroyArgs {
    pub name: String,
    /// Confirm: all data of the volume is lost.
    #[arg(long)]
    pub yes: bool,
}
