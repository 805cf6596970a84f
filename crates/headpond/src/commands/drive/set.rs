//! `headpond drive set` and `restore`.

use super::args::{DriveSetArgs, HookValues, RestoreArgs};
use anyhow::{Context, Result, bail};
use headpond_api::outcome::{Exit, Failure};
use headpond_api::place::Places;
use headpond_drive::{
    CacheState, Drive, Facts, Hook, Lasting, SetError, Setting, Switched, switch, switch_by_hook,
};
use serde::{Deserialize, Serialize};
use std::io;

/// A drive's state before it was first set, and how it was set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Before {
    /// So that the file is not used for another drive.
    identity: String,
    write_cache: Setting,
    lasting: Lasting,
    hook: Option<(Hook, HookValues)>,
}

/// Sets a drive.
pub fn set(places: &Places, args: &DriveSetArgs) -> Result<Exit> {
    let drive = super::drive(&args.device)?;
    let control = drive.cache_control()?;
    let (to, lasting) = (args.change.0, args.lasting());
    let hook = args.hook.clone().map(|hook| (hook, args.hook_values.clone()));
    let identity = drive.identity();
    let first: Option<Before> = places.drive_before(&identity)?;
    let keep = |was: Setting| {
        let (identity, hook) = (identity.clone(), hook.clone());
        let now = Before { identity, write_cache: was, lasting, hook };
        let before = first.as_ref().map_or(now.clone(), |first| first.and_then(now));
        places.note_drive(&before.identity, &before).map_err(io::Error::other)
    };
    let switched = match &hook {
        None => {
            let switched = switch(&*control, to, lasting, keep);
            if switched.as_ref().is_err_and(SetError::changed_nothing) {
                remember(places, &identity, first.as_ref())?;
            }
            switched.with_context(|| drive.path.display().to_string())?
        }
        Some(hook) => {
            let words = shown(&drive, hook, to, args.yes)?;
            switch_by_hook(&*control, &words, to, keep)?
        }
    };
    tell(&drive, switched, to);
    if places.drive_before::<Before>(&identity)?.is_some() {
        println!("`headpond drive restore {}` restores the previous state", drive.path.display());
    }
    Ok(Exit::Ok)
}

/// An unchanged drive needs no new entry.
fn remember(places: &Places, identity: &str, first: Option<&Before>) -> Result<()> {
    match first {
        Some(before) => places.note_drive(identity, before),
        None => places.forget_drive(identity),
    }
}

/// Restores a drive's state before it was first set.
pub fn restore(places: &Places, args: &RestoreArgs) -> Result<Exit> {
    let drive = super::drive(&args.device)?;
    let identity = drive.identity();
    let Some(before) = places.drive_before::<Before>(&identity)? else {
        bail!(
            "the previous state of {} is unknown: it was not set by `headpond drive set`, was \
             restored \
             since, or HEADPOND_STATE was another folder",
            drive.path.display()
        );
    };
    assert_eq!(before.identity, identity, "the file is named by it");
    let control = drive.cache_control()?;
    let (to, is_kept) = (before.write_cache, |_| Ok(()));
    let switched = match &before.hook {
        None => switch(&*control, to, before.lasting, is_kept)?,
        Some(hook) => {
            let words = shown(&drive, hook, to, args.yes)?;
            switch_by_hook(&*control, &words, to, is_kept)?
        }
    };
    tell(&drive, switched, to);
    places.forget_drive(&identity)?;
    Ok(Exit::Ok)
}

/// The words of the hook, once the user has confirmed them.
fn shown(
    drive: &Drive,
    (hook, values): &(Hook, HookValues),
    to: Setting,
    yes: bool,
) -> Result<Vec<String>> {
    let words = hook.words(&drive.path, "write-cache", values.of(to));
    println!("hook: {}", words.join(" "));
    match yes {
        true => Ok(words),
        false => Err(Failure::refused(
            "the hook was not run, and nothing was changed; --yes runs what is shown above",
        )),
    }
}

fn tell(drive: &Drive, switched: Switched, to: Setting) {
    if switched.flushed {
        println!("flushed: acknowledged writes are on the medium");
    }
    let state = |state: Option<CacheState>| state.map_or("unknown".into(), |it| it.to_string());
    let Switched { before, after, lasting, .. } = switched;
    let path = drive.path.display();
    println!("{path}: write cache was {}, is {}", state(before), state(after));
    if after.is_none() {
        println!("the drive does not report whether it is {to}: check with the controller's tool");
    } else if before == after && lasting.is_none() {
        println!("unchanged");
    }
    match lasting {
        Some(Lasting::Saved) => println!("persistent over a power cycle"),
        Some(Lasting::UntilPowerCycle) => println!("lost at a power cycle"),
        None => {}
    }
    for told in Facts::of(drive).disagreements {
        println!("note: {told}");
    }
}

impl Before {
    /// The first state stays; the restore covers everything that was set since.
    fn and_then(&self, now: Before) -> Before {
        Before {
            lasting: self.lasting.max(now.lasting),
            hook: now.hook.or_else(|| self.hook.clone()),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_brought_back_is_what_was_before_the_first_set() {
        let before = |write_cache, lasting, hook| Before {
            identity: "a".into(),
            write_cache,
            lasting,
            hook,
        };
        let hook = (Hook::new("tool {value}").unwrap(), "wb,wt".parse().unwrap());
        let first = before(Setting::On, Lasting::UntilPowerCycle, Some(hook.clone()));
        let joined = first.and_then(before(Setting::Off, Lasting::Saved, None));
        assert_eq!(joined, before(Setting::On, Lasting::Saved, Some(hook)));
    }

    #[test]
    fn a_drive_is_remembered_until_it_is_forgotten_and_apart_from_others() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::at(folder.path());
        let before = Before {
            identity: "t10.ATA  X/1".into(),
            write_cache: Setting::On,
            lasting: Lasting::Saved,
            hook: None,
        };
        places.note_drive(&before.identity, &before).unwrap();
        assert_eq!(places.drive_before(&before.identity).unwrap(), Some(before.clone()));
        assert_eq!(places.drive_before::<Before>("t10.ATA  X_1").unwrap(), None);
        assert!(places.names().is_empty(), "it is no volume");
        places.forget_drive(&before.identity).unwrap();
        assert_eq!(places.drive_before::<Before>(&before.identity).unwrap(), None);
    }
}
