//! `headpond version`: this program, and what the machine offers to it.

use crate::telling::{plain, print_json};
use anyhow::Result;
use clap::Args;
use headpond_api::answers::Versioned;
use headpond_api::outcome::{Exit, told};
use headpond_block::{BufferPool, PoolConfig};
use headpond_daemon::attached::Kernel;
use headpond_raid::parity;
use headpond_report::{Align, Table};
use headpond_ublk::Devices;
use headpond_uring::{Level, Ring, RingConfig};
use serde::Serialize;

/// Show the version of this program, how it was built, and which features this machine offers.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond version\n  headpond version --json\n\n\
    Nothing is loaded into the kernel for it: a driver that is not loaded is missing. Only root\n\
    may ask some drivers.")]
pub struct VersionArgs {
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Version {
    version: &'static str,
    architecture: &'static str,
    build: Build,
    kernel: String,
    features: Vec<Feature>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Build {
    Optimised,
    /// With injected defects that tests activate, and checks of arithmetic.
    Debug,
}

/// What this build can use where the machine has it.
#[derive(Serialize)]
struct Feature {
    name: &'static str,
    is_available: bool,
    /// What of it there is, or why there is none.
    detail: String,
}

impl Feature {
    fn new(name: &'static str, found: Result<String, String>) -> Self {
        let is_available = found.is_ok();
        Self { name, is_available, detail: found.unwrap_or_else(|why| why) }
    }
}

/// Prints all of it.
///
/// # Errors
/// Where the output fails.
pub fn run(args: &VersionArgs) -> Result<Exit> {
    let version = Version {
        version: env!("CARGO_PKG_VERSION"),
        architecture: std::env::consts::ARCH,
        build: if cfg!(debug_assertions) { Build::Debug } else { Build::Optimised },
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        features: features(),
    };
    match args.json {
        true => print_json(&Versioned::new(version))?,
        false => print(&version),
    }
    Ok(Exit::Ok)
}

fn print(version: &Version) {
    let build = if version.build == Build::Debug { ", a debug build" } else { "" };
    println!(
        "headpond {} ({}{build}) on Linux {}",
        version.version, version.architecture, version.kernel
    );
    let columns = ["feature", "here", "what there is, or why not"].map(|name| (name, Align::Left));
    let mut table = Table::new(columns);
    for feature in &version.features {
        let here = if feature.is_available { "yes" } else { "no" };
        table.row([feature.name.to_owned(), here.to_owned(), plain(&feature.detail)]);
    }
    print!("{}", table.render());
}

fn features() -> Vec<Feature> {
    let mut features = of_the_ring();
    let ublk = Devices::open().map(|devices| {
        let names = devices.features().0.iter_names().map(|(name, _)| name);
        names.collect::<Vec<_>>().join(" ").to_lowercase().replace('_', "-")
    });
    let nbd = Kernel::open().map(|_| "the kernel's NBD client".to_owned());
    let rbd = headpond_rbd::check_library().map(|()| "librbd of this machine".to_owned());
    features.extend([
        Feature::new("ublk", ublk.map_err(|error| error.to_string())),
        Feature::new("attach", nbd.map_err(|error| error.to_string())),
        Feature::new("rbd", rbd.map_err(|error| error.to_string())),
        Feature::new("parity", Ok(parity::active().name().to_owned())),
        Feature::new("checksums", Ok(headpond_cache::checksum_kernel())),
    ]);
    features
}

/// The rings of a volume need memory that stays where it is: see `LimitMEMLOCK=` of the unit.
fn of_the_ring() -> Vec<Feature> {
    let missing = |why: &str| Err(why.to_owned());
    let counters = match Ring::new(&RingConfig::default(), &BufferPool::new(&PoolConfig::small())) {
        Ok(ring) => ring.counters(),
        Err(error) => return vec![Feature::new("io_uring", Err(told(&error.into())))],
    };
    let level = match counters.level {
        Level::Deferred => "deferred completions",
        Level::Cooperative => "no deferred completions: Linux 6.1 has them",
        Level::Plain => "no deferred completions: Linux 6.1 has them; interrupted for completions",
    };
    let memory = match (counters.has_fixed_buffers, counters.fixed_buffers_refused) {
        (true, _) => Ok("requests use memory that the kernel knows".to_owned()),
        (false, true) => missing("the kernel refuses it, usually for RLIMIT_MEMLOCK"),
        (false, false) => missing("the kernel has none"),
    };
    let parts = match counters.has_fixed_parts {
        true => Ok("also requests of several parts".to_owned()),
        false => missing("Linux 6.15 has it"),
    };
    vec![
        Feature::new("io_uring", Ok(level.to_owned())),
        Feature::new("registered-memory", memory),
        Feature::new("registered-parts", parts),
    ]
}
