//! `headpond serve`.

pub mod all;

use super::class::read_named_file;
use crate::args::{LogArgs, ServeArgs};
use anyhow::Result;
use headpond_api::config::{Config, ConfigFile};
use headpond_api::outcome::Exit;
use headpond_api::place::{Places, is_root};
use headpond_daemon::{ServeOptions, log};
use headpond_volume::Tolerance;
use std::time::Duration;

/// Serves a volume, or all, until it is stopped.
///
/// # Errors
/// If it cannot be served, or the shutdown is not clean.
pub fn run(places: &Places, file: &ConfigFile, args: &ServeArgs) -> Result<Exit> {
    let Some(name) = &args.name else { return all::run(places, &args.log) };
    if let (true, Some(missing)) = (is_root(), file.missing_group()) {
        eprintln!("headpond: note: {missing}");
    }
    let mut description = places.load(name)?;
    if let Some(cache) = &mut description.cache {
        read_named_file(&mut cache.settings.classes)?;
    }
    let tolerance = match (args.force, args.assume_clean) {
        (_, true) => Tolerance::ParityAccepted,
        (true, false) => Tolerance::Forced,
        (false, false) => Tolerance::Careful,
    };
    begin_log(&file.config, &args.log)?;
    let seconds = |given: Option<u64>| given.unwrap_or(file.config.wait_for_devices_s);
    let wait_for_devices = args.wait_for_devices.map(seconds).map(Duration::from_secs);
    let defaults = file.config.defaults.clone();
    let threads = file.config.threads;
    let options = ServeOptions { tolerance, defaults, wait_for_devices, threads };
    headpond_daemon::serve(places, description, options)
}

/// Begins the log of a daemon.
///
/// # Errors
/// If no thread can be started.
pub fn begin_log(config: &Config, args: &LogArgs) -> Result<()> {
    let format = args.log_format.unwrap_or(config.log_format);
    log::begin(format, args.log_level.unwrap_or(config.log_level))
}
