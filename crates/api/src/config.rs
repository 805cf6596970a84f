//! The machine's configuration: `/etc/headpond/headpond.toml`, or the file that `HEADPOND_CONFIG`
//! names.
//!
//! **Invariants**
//! - A key is a row of [`KEYS`]: what is read, shown by `check-config` and listed in
//!   `docs/config.md` comes from there.
//! - A mistake in one key does not hide the others: commands that only look go on without it.
//!
//! **Not here**: descriptions of volumes (`volume`), which count more than this file.

mod file;

use crate::readers::group_id;
use headpond_volume::{ArraySettings, CacheSettings, SettingChange, SettingError, TierSettings};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use file::{ConfigError, ConfigFile, Given};

/// Where it is, unless `HEADPOND_CONFIG` names another one.
pub const CONFIG_FILE: &str = "/etc/headpond/headpond.toml";
/// The table of settings.
pub const DEFAULTS: &str = "defaults";

const WAIT_SECONDS: RangeInclusive<u64> = 0..=86_400;
const THREADS: RangeInclusive<u32> = 0..=16;
/// As the machine suggests.
const AUTO: &str = "auto";
/// Not at all.
const OFF: &str = "off";

/// The values that count: of the file, or of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Of root; other users have their own.
    pub state_folder: PathBuf,
    pub run_folder: PathBuf,
    /// A name or number; its members may look at what root serves.
    pub group: String,
    pub wait_for_devices_s: u64,
    /// For connections; where nothing is said, as many as the machine suggests.
    pub threads: Option<u32>,
    pub log_format: LogFormat,
    pub log_level: LogLevel,
    /// Executables that run on events.
    pub events_folder: PathBuf,
    /// Where `metrics --listen` without an address listens.
    pub metrics_address: Option<String>,
    /// With the token that scrapes there have to give.
    pub metrics_token_file: Option<PathBuf>,
    /// A further name by which it is asked there.
    pub metrics_host: Option<String>,
    pub defaults: SettingDefaults,
}

/// The settings that a new volume, cache or tier begins with, where no flag says otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SettingDefaults {
    pub cache: CacheSettings,
    pub tier: TierSettings,
    pub array: ArraySettings,
}

/// A key of the file.
pub struct Key {
    pub name: &'static str,
    pub takes: &'static str,
    pub what: &'static str,
    read: fn(&mut Config, &str) -> Result<(), String>,
    show: fn(&Config) -> String,
}

/// All keys outside of `[defaults]`, in the order in which they are shown.
pub const KEYS: [Key; 11] = [
    Key {
        name: "state-folder",
        takes: "an absolute path",
        what: "descriptions of volumes, and what is kept over a stop; of root",
        read: |config, text| put(&mut config.state_folder, folder(text)),
        show: |config| config.state_folder.display().to_string(),
    },
    Key {
        name: "run-folder",
        takes: "an absolute path",
        what: "control and NBD sockets, and the progress of a start; of root",
        read: |config, text| put(&mut config.run_folder, folder(text)),
        show: |config| config.run_folder.display().to_string(),
    },
    Key {
        name: "group",
        takes: "the name or number of a group in `/etc/group`",
        what: "its members may look at the volumes that root serves, and change nothing",
        read: |config, text| put(&mut config.group, group(text)),
        show: |config| config.group.clone(),
    },
    Key {
        name: "wait-for-devices",
        takes: "seconds, 0 to 86400",
        what: "how long `serve --wait-for-devices` without a number waits for missing devices",
        read: |config, text| put(&mut config.wait_for_devices_s, number(text, WAIT_SECONDS)),
        show: |config| config.wait_for_devices_s.to_string(),
    },
    Key {
        name: "threads",
        takes: "`auto`, or a number from 0 to 16",
        what: "threads of a daemon that busy connections move to; with 0 all stay with the engine",
        read: |config, text| put(&mut config.threads, threads(text)),
        show: |config| config.threads.map_or_else(|| AUTO.to_owned(), |count| count.to_string()),
    },
    Key {
        name: "log-format",
        takes: "`text` or `json`",
        what: "lines of a daemon's log; `serve --log-format` counts more",
        read: |config, text| put(&mut config.log_format, word(text, "text or json")),
        show: |config| crate::word(config.log_format),
    },
    Key {
        name: "log-level",
        takes: "`error`, `warn`, `info` or `debug`",
        what: "what a daemon logs, and what is worse; `serve --log-level` counts more",
        read: |config, text| put(&mut config.log_level, word(text, "error, warn, info or debug")),
        show: |config| crate::word(config.log_level),
    },
    Key {
        name: "events-folder",
        takes: "an absolute path",
        what: "executables that a daemon of root runs on events; `HEADPOND_EVENTS` counts more",
        read: |config, text| put(&mut config.events_folder, folder(text)),
        show: |config| config.events_folder.display().to_string(),
    },
    Key {
        name: "metrics-address",
        takes: "`off`, or an address and port such as `127.0.0.1:9949`",
        what: "where `metrics --listen` listens; other than loopback it needs `metrics-token-file`",
        read: |config, text| put(&mut config.metrics_address, address(text)),
        show: |config| config.metrics_address.clone().unwrap_or_else(|| OFF.to_owned()),
    },
    Key {
        name: "metrics-token-file",
        takes: "`off`, or an absolute path",
        what: "a file of mode 0600 with the token that scrapes of `metrics-address` need",
        read: |config, text| put(&mut config.metrics_token_file, optional_file(text)),
        show: |config| {
            let file = config.metrics_token_file.as_ref();
            file.map_or_else(|| OFF.to_owned(), |file| file.display().to_string())
        },
    },
    Key {
        name: "metrics-host",
        takes: "`off`, or a name",
        what: "a name by which scrapes may address it, beside `localhost` and that of the machine",
        read: |config, text| put(&mut config.metrics_host, host(text)),
        show: |config| config.metrics_host.clone().unwrap_or_else(|| OFF.to_owned()),
    },
];

/// How lines of the log are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// Time, level, text, and the fields.
    #[default]
    Text,
    /// An object a line.
    Json,
}

/// What is logged: this and what is worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            state_folder: "/var/lib/headpond".into(),
            run_folder: "/run/headpond".into(),
            group: "headpond".to_owned(),
            wait_for_devices_s: 30,
            threads: None,
            log_format: LogFormat::default(),
            log_level: LogLevel::default(),
            events_folder: "/etc/headpond/events.d".into(),
            metrics_address: None,
            metrics_token_file: None,
            metrics_host: None,
            defaults: SettingDefaults::default(),
        }
    }
}

impl Config {
    /// Whether there is the group of this configuration.
    pub fn has_group(&self) -> bool {
        group_id(&self.group).is_some()
    }
}

impl Key {
    /// Its value in a configuration.
    pub fn value(&self, config: &Config) -> String {
        (self.show)(config)
    }
}

impl SettingDefaults {
    /// Makes one change, of a cache, a tier or the array.
    ///
    /// # Errors
    /// Where there is no such setting, or it does not take the value; nothing is changed.
    pub fn set(&mut self, change: SettingChange) -> Result<(), SettingError> {
        let of = SettingChange::by_owner(std::slice::from_ref(&change));
        let cache = self.cache.with_all(&of.cache)?;
        let tier = self.tier.with_all(&of.tier)?;
        let array = self.array.with_all(&of.array)?;
        *self = Self { cache, tier, array };
        Ok(())
    }
}

fn put<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

fn folder(text: &str) -> Result<PathBuf, String> {
    match Path::new(text).is_absolute() {
        true => Ok(text.into()),
        false => Err(format!("{text:?} is no absolute path")),
    }
}

fn optional_file(text: &str) -> Result<Option<PathBuf>, String> {
    match text {
        OFF => Ok(None),
        text => folder(text).map(Some),
    }
}

fn host(text: &str) -> Result<Option<String>, String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    match text {
        OFF => Ok(None),
        text if !text.is_empty() && text.chars().all(is_part) => Ok(Some(text.to_owned())),
        text => Err(format!("{text:?} is no name of a host")),
    }
}

fn address(text: &str) -> Result<Option<String>, String> {
    let has_port = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok();
    match text {
        OFF => Ok(None),
        text if text.rsplit_once(':').is_some_and(has_port) => Ok(Some(text.to_owned())),
        text => Err(format!("{text:?} is no address with a port")),
    }
}

fn group(text: &str) -> Result<String, String> {
    // Whether there is one is another question: a volume is served without its readers.
    match text.is_empty() || text.contains([':', '\n']) {
        true => Err(format!("{text:?} cannot be the name of a group")),
        false => Ok(text.to_owned()),
    }
}

fn threads(text: &str) -> Result<Option<u32>, String> {
    match text {
        AUTO => Ok(None),
        text => number(text, THREADS).map(Some).map_err(|error| format!("{error}, or {AUTO}")),
    }
}

fn word<T: DeserializeOwned>(text: &str, words: &str) -> Result<T, String> {
    let word = serde_json::Value::String(text.to_owned());
    serde_json::from_value(word).map_err(|_| format!("{text:?} is not {words}"))
}

fn number<T>(text: &str, range: RangeInclusive<T>) -> Result<T, String>
where
    T: FromStr + PartialOrd + Display,
{
    match text.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!("{text:?} is no number from {} to {}", range.start(), range.end())),
    }
}

#[cfg(test)]
mod tests;
