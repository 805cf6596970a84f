//! The command line of `headpond drive`.

use clap::{Args, Subcommand};
use headpond_drive::{Hook, HookError, Lasting, Setting};
use std::path::PathBuf;
use std::str::FromStr;

/// Drives: what the kernel and the drive report, and the write cache.
#[derive(Subcommand)]
#[command(after_help = "Examples:\n  headpond drive show /dev/sda\n  \
    headpond drive set /dev/sda write-cache=off\n  headpond drive restore /dev/sda")]
pub enum DriveCommand {
    Show(ShowArgs),
    Set(DriveSetArgs),
    Restore(RestoreArgs),
}

/// Show a drive's model, queue, caches and evidence of power-loss protection, each with its source.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond drive show /dev/nvme0n1\n  \
    headpond drive show /dev/sda --json\n\n\
    The kernel's word needs no privilege; the drive itself answers to root. What is missing is \
    said, never guessed.")]
pub struct ShowArgs {
    /// The drive, or a partition of it.
    pub device: PathBuf,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Switch a drive's volatile write cache, and read back its state.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond drive set /dev/sda write-cache=off\n  \
    headpond drive set /dev/nvme0n1 write-cache=on --persistent\n  \
    headpond drive set /dev/sdb write-cache=on \\\n      \
    --hook 'storcli64 /c0/v0 set wrcache={value}' --hook-values wb,wt --yes\n\n\
    Switching a cache off flushes it first. What it was is kept, and `headpond drive restore` \
    brings it back.")]
pub struct DriveSetArgs {
    /// The drive, or a partition of it.
    pub device: PathBuf,
    /// `write-cache=on` or `write-cache=off`.
    #[arg(value_name = "SETTING=VALUE")]
    pub change: Change,
    /// Make it persistent over a power cycle; an error if the drive cannot.
    #[arg(long, conflicts_with = "hook")]
    pub persistent: bool,
    /// Switch by this command of the controller vendor instead: {device}, {setting} and {value} are
    /// filled in, and it is split at spaces and run without a shell.
    #[arg(long, value_name = "COMMAND", value_parser = parse_hook)]
    pub hook: Option<Hook>,
    /// The words for {value} on and off, if the command has others.
    #[arg(long, value_name = "ON,OFF", default_value = "on,off", requires = "hook")]
    pub hook_values: HookValues,
    /// Run the hook; without --yes it is only shown.
    #[arg(long, requires = "hook")]
    pub yes: bool,
}

/// Restore a drive's write cache to its state before the first `headpond drive set`.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond drive restore /dev/sda\n  \
    headpond drive restore /dev/sdb --yes   # where it was set by a hook: run that")]
pub struct RestoreArgs {
    /// The drive, or a partition of it.
    pub device: PathBuf,
    /// Run the hook by which it was set; without --yes it is only shown.
    #[arg(long)]
    pub yes: bool,
}

/// The setting; there is only the write cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change(pub Setting);

impl FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some(("write-cache", "on")) => Ok(Self(Setting::On)),
            Some(("write-cache", "off")) => Ok(Self(Setting::Off)),
            _ => Err("write write-cache=on or write-cache=off".to_owned()),
        }
    }
}

/// A hook's words for on and off.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HookValues {
    on: String,
    off: String,
}

impl HookValues {
    pub fn of(&self, setting: Setting) -> &str {
        match setting {
            Setting::On => &self.on,
            Setting::Off => &self.off,
        }
    }
}

impl FromStr for HookValues {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(',').collect();
        match parts[..] {
            [on, off] if !on.is_empty() && !off.is_empty() && on != off => {
                Ok(Self { on: on.to_owned(), off: off.to_owned() })
            }
            _ => Err("write two different words with a comma between, such as wb,wt".to_owned()),
        }
    }
}

impl DriveSetArgs {
    pub fn lasting(&self) -> Lasting {
        if self.persistent { Lasting::Saved } else { Lasting::UntilPowerCycle }
    }
}

fn parse_hook(text: &str) -> Result<Hook, HookError> {
    Hook::new(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_write_cache_can_be_set_and_only_on_or_off() {
        assert_eq!("write-cache=off".parse(), Ok(Change(Setting::Off)));
        assert!("write-cache=maybe".parse::<Change>().is_err());
        assert!("scheduler=none".parse::<Change>().is_err());
    }

    #[test]
    fn a_hooks_words_are_two_and_differ() {
        let words: HookValues = "wb,wt".parse().unwrap();
        assert_eq!((words.of(Setting::On), words.of(Setting::Off)), ("wb", "wt"));
        for wrong in ["wb", "wb,", "wb,wb", "a,b,c"] {
            assert!(wrong.parse::<HookValues>().is_err(), "{wrong}");
        }
    }
}
