//! `headpond serve`.

pub mod all;

use super::class::read_named_file;
use crate::args::{LogArgs, ServeArgs};
use anyhow::Result;
use headpond_api::outcome::Exit;
use headpond_api::place::Places;
use headpond_daemon::{ServeOptions, log};
use headpond_volume::Tolerance;
use std::time::Duration;

/// Serves a volume, or all, until it is stopped.
///
/// # Errors
/// If it cannot be served, or the shutdown is not clean.
pub fn run(places: &Places, args: &ServeArgs) -> Result<Exit> {
    let Some(name) = &args.name else { return all::run(places, &args.log) };
    let mut description = places.load(name)?;
    if let Some(cache) = &mut description.cache {
        read_named_file(&mut cache.settings.classes)?;
    }
    let tolerance = match (args.force, args.assume_clean) {
        (_, true) => Tolerance::ParityAccepted,
        (true, false) => Tolerance::Forced,
        (false, false) => Tolerance::Careful,
    };
    begin_log(&args.log)?;
    let wait_for_devices = args.wait_for_devices.map(Duration::from_secs);
    headpond_daemon::serve(places, description, ServeOptions { tolerance, wait_for_devices })
}

/// Begins the log of a daemon.
///
/// # Errors
/// If no thread can be started.
pub fn begin_log(args: &LogArgs) -> Result<()> {
    log::begin(args.log_format.unwrap_or_default(), args.log_level.unwrap_or_default())
}
