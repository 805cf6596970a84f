//! The command line of `headpond witness`.

use clap::{Args, Subcommand, ValueEnum};
use headpond_volume::Size;
use headpond_witness::field::wire::{Pattern, Sync, WireLoad};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Test whether a device keeps flushed data across a power loss.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    headpond witness probe /dev/sdb                            # no cut, nothing written\n  \
    headpond witness simple write --device /dev/sdb            # one machine, one cut\n  \
    headpond witness key witness.key                           # two machines; copy it to both\n  \
    headpond witness serve --listen 0.0.0.0:7461 --key witness.key --dir witness\n  \
    headpond witness write --device /dev/sdb --to keeper:7461 --key witness.key\n  \
    headpond witness verify --device /dev/sdb --to keeper:7461 --key witness.key\n\n\
    docs/witness.md says what each test proves, and what it does not.")]
pub struct WitnessArgs {
    #[command(subcommand)]
    pub command: WitnessCommand,
}

impl WitnessArgs {
    /// Whether it only prints.
    pub fn is_printer(&self) -> bool {
        matches!(self.command, WitnessCommand::Report(_))
    }
}

#[derive(Subcommand)]
pub enum WitnessCommand {
    Key(KeyArgs),
    Serve(ServeArgs),
    Write(WriteArgs),
    Verify(VerifyArgs),
    Agent(AgentArgs),
    Campaign(CampaignArgs),
    Report(ReportArgs),
    #[command(subcommand)]
    Simple(SimpleCommand),
    Probe(ProbeArgs),
}

/// Create the key that both machines need.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond witness key witness.key && scp witness.key keeper:")]
pub struct KeyArgs {
    /// Output file; an existing file is not overwritten.
    pub file: PathBuf,
}

/// Address and folder of a witness.
#[derive(Args)]
pub struct ListenArgs {
    /// Address and port to listen on.
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:7461")]
    pub listen: SocketAddr,
    /// The key file, readable by its owner only.
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// Folder of its log, on a disk that keeps its power.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
}

/// Run the witness, on a machine that keeps its power.
#[derive(Args)]
#[command(after_help = "Example:\n  \
    headpond witness serve --listen 0.0.0.0:7461 --key witness.key --dir /var/lib/headpond-witness")]
pub struct ServeArgs {
    #[command(flatten)]
    pub listen: ListenArgs,
}

/// The device, and its witness.
#[derive(Args)]
pub struct DeviceArgs {
    /// A block device, a file, anything else that names a device, or an NBD export
    /// (nbd+unix:///NAME?socket=PATH, nbd://HOST/NAME).
    #[arg(long, value_name = "DEVICE")]
    pub device: String,
    /// The witness.
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub to: String,
    /// The key file, the same as at the witness; readable by its owner only.
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// Name of the device at the witness; default: host name and device name.
    #[arg(long)]
    pub name: Option<String>,
}

#[derive(Args)]
pub struct LoadArgs {
    /// Writes in flight.
    #[arg(long, default_value_t = 16)]
    pub depth: u32,
    /// Bytes of a write, a multiple of 4K up to 1M.
    #[arg(long, default_value = "4K")]
    pub bs: Size,
    /// Write pattern: random, sequential, or hot (90 % to 5 % of the region).
    #[arg(long, default_value = "random")]
    pub pattern: PatternWord,
    /// How writes are made durable: flush (after --sync-every writes), fua (with each write; dsync
    /// is the same), none.
    #[arg(long, default_value = "flush")]
    pub sync: SyncWord,
    /// Writes from one flush to the next.
    #[arg(long, value_name = "WRITES", default_value_t = 64)]
    pub sync_every: u64,
    /// Size of the region that is written, at most 16G.
    #[arg(long, default_value = "1G")]
    pub size: Size,
    /// Start of the region.
    #[arg(long, default_value = "0")]
    pub start: Size,
    /// Atomic write unit of the device: 512 (every drive), or 4096 for drives with 4 KiB sectors
    /// and for Headpond volumes.
    #[arg(long, default_value_t = 512, value_parser = parse_atom)]
    pub atom: u64,
    /// Overwrite data on the device.
    #[arg(long)]
    pub force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PatternWord {
    Random,
    Sequential,
    Hot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SyncWord {
    Flush,
    #[value(alias = "dsync")]
    Fua,
    None,
}

/// Write to a device and report to the witness, until the power loss; all data in the region is
/// lost.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    headpond witness write --device /dev/sdb --to keeper:7461 --key witness.key\n  \
    headpond witness write --device /dev/sdb --to keeper:7461 --key witness.key \\\n      \
    --depth 32 --bs 16K --pattern hot --sync fua --runtime 600\n\n\
    Devices that hold a file system, are mounted or in use are refused.")]
pub struct WriteArgs {
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub load: LoadArgs,
    /// Seconds; default: until Ctrl-C or the power cut.
    #[arg(long, value_name = "SECONDS")]
    pub runtime: Option<u64>,
    /// Discard the witness's log of this device.
    #[arg(long)]
    pub anew: bool,
}

/// After the power is back: read the region, and let the witness verify it.
#[derive(Args)]
#[command(after_help = "Example:\n  \
    headpond witness verify --device /dev/sdb --to keeper:7461 --key witness.key\n\n\
    Exit codes: 0 everything that was promised is there, 1 it is not, 3 there was nothing to judge.")]
pub struct VerifyArgs {
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Run at each boot: verify after a cut, then write, as the witness instructs.
#[derive(Args)]
#[command(after_help = "Example:\n  \
    headpond witness agent --device /dev/sdb --to keeper:7461 --key witness.key --force\n\n\
    Start it at boot, e.g. from a systemd unit; docs/witness.md has one. It ends when the campaign\n\
    does.")]
pub struct AgentArgs {
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub load: LoadArgs,
}

/// Run the witness and cut the power repeatedly, by a command.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    headpond witness campaign --key witness.key --dir sdb --name box-sdb --cuts 60 \\\n      \
    --cut-hook 'ipmitool -H box-bmc -U admin -f pw chassis power cycle'\n  \
    headpond witness campaign --key witness.key --dir sdb --name box-sdb --cuts 60 \\\n      \
    --cut-hook './plug off && sleep 10 && ./plug on' --between 20..120 --wait-boot 900\n\n\
    The machine that loses its power runs `headpond witness agent`. A campaign that was ended goes\n\
    on where it was when it is started again.")]
pub struct CampaignArgs {
    #[command(flatten)]
    pub listen: ListenArgs,
    /// The name of the device that the agent uses.
    #[arg(long)]
    pub name: String,
    /// How many cuts; 60 without a loss exclude loss rates above 5 %, 299 those above 1 %.
    #[arg(long)]
    pub cuts: u64,
    /// The command that cuts and restores the power, for `sh -c`.
    #[arg(long, value_name = "COMMAND")]
    pub cut_hook: String,
    /// Seconds of writing before a cut, drawn each time.
    #[arg(long, value_name = "MIN..MAX", default_value = "10..60", value_parser = parse_between)]
    pub between: (f64, f64),
    /// Seconds after a cut within which the device must be verified.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub wait_boot: u64,
}

/// Summarise all cuts of a device, with confidence limits.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond witness report sdb/box-sdb --json")]
pub struct ReportArgs {
    /// The witness's folder, or that of one device in it.
    pub dir: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// The test without a second machine: write, cut, check.
#[derive(Subcommand)]
#[command(after_help = "Examples:\n  \
    headpond witness simple write --device /dev/sdb    # prints when to cut the power\n  \
    headpond witness simple check --device /dev/sdb")]
pub enum SimpleCommand {
    Write(SimpleWriteArgs),
    Check(SimpleCheckArgs),
}

/// Fill the start of a device, flush it, and print when to cut the power.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond witness simple write --device /dev/sdb --size 2G")]
pub struct SimpleWriteArgs {
    /// The device, or a file.
    #[arg(long, value_name = "DEVICE")]
    pub device: String,
    /// Bytes from the start that are written and checked.
    #[arg(long, default_value = "2G")]
    pub size: Size,
    /// Any number; default: random.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Overwrite data on the device.
    #[arg(long)]
    pub force: bool,
}

/// Read it back.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond witness simple check --device /dev/sdb\n  \
    headpond witness simple check --device /dev/sdb --seed 4711 --size 2G   # if its start is \
    lost\n\n\
    Exit codes: 0 all of it is there, 1 it is not.")]
pub struct SimpleCheckArgs {
    /// The device, or a file.
    #[arg(long, value_name = "DEVICE")]
    pub device: String,
    /// The seed that `simple write` printed, if the start of the device is lost.
    #[arg(long, requires = "size")]
    pub seed: Option<u64>,
    /// Bytes from the start that are written and checked.
    #[arg(long, requires = "seed")]
    pub size: Option<Size>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Estimate from timing alone how a device handles flushes; no power is cut.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    headpond witness probe /dev/sdb                   # reads only\n  \
    headpond witness probe /dev/sdb --destructive     # writes and flushes\n  \
    headpond witness probe scratch.img --destructive --json\n\n\
    Exit codes: 0 flushes are honoured or need not be, 1 they are ignored, 3 timing cannot tell.")]
pub struct ProbeArgs {
    /// A block device, a file, or anything else that names a device.
    pub device: String,
    /// Measure writes and flushes: all data on the device is lost.
    #[arg(long)]
    pub destructive: bool,
    /// Overwrite data on the device that would otherwise be refused.
    #[arg(long, requires = "destructive")]
    pub force: bool,
    /// Bytes from the start of the device that are written to.
    #[arg(long, default_value = "64G")]
    pub size: Size,
    /// Approximate seconds for each measurement.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pub time: u64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl LoadArgs {
    pub fn load(&self, seconds: Option<u64>) -> WireLoad {
        WireLoad {
            pattern: match self.pattern {
                PatternWord::Random => Pattern::Random,
                PatternWord::Sequential => Pattern::Sequential,
                PatternWord::Hot => Pattern::Hot,
            },
            sync: match self.sync {
                SyncWord::Flush => Sync::Flush,
                SyncWord::Fua => Sync::Fua,
                SyncWord::None => Sync::None,
            },
            sync_every: self.sync_every,
            depth: self.depth,
            write_blocks: self.bs.bytes() / headpond_witness::BLOCK_BYTES,
            seconds,
        }
    }
}

fn address(text: &str) -> Result<String, String> {
    match text.rsplit_once(':').filter(|_| !text.ends_with(']')) {
        Some((host, _)) if host.contains(':') && !host.ends_with(']') => {
            Err(format!("write an IPv6 address in brackets: [{text}]:7461"))
        }
        Some((_, port)) if port.parse::<u16>().is_err() => {
            Err(format!("{port:?} is not a port: 0 to 65535"))
        }
        Some(_) => Ok(text.to_owned()),
        None => Err(format!("the port is missing: {text}:7461 is the default")),
    }
}

fn parse_atom(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(atom @ (512 | 4096)) => Ok(atom),
        _ => Err("512 or 4096".to_owned()),
    }
}

fn parse_between(text: &str) -> Result<(f64, f64), String> {
    let wrong = || format!("{text:?} is not a range of seconds: write 10..60");
    let (least, most) = text.split_once("..").ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<f64>().ok().filter(|it| it.is_finite() && *it >= 0.0);
    let (least, most) = (number(least).ok_or_else(wrong)?, number(most).ok_or_else(wrong)?);
    if least <= most { Ok((least, most)) } else { Err(wrong()) }
}
