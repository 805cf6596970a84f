//! `headpond set` of a volume that is not served: its next start has the settings.

use crate::args::SetArgs;
use crate::device::{Consent, DeviceSpec, Vetted};
use crate::telling::print_json;
use anyhow::Result;
use headpond_api::answers::{Status, Versioned};
use headpond_api::outcome::{Exit, Failure};
use headpond_api::place::Places;
use headpond_daemon::loading::look;
use headpond_daemon::{keep_event_of_set, set_stopped};
use headpond_volume::{Description, SettingChange, SettingsError};

/// Changes settings, and shows them.
///
/// # Errors
/// As the daemon of a served volume; and where only one could do what is asked.
pub fn set(places: &Places, args: &SetArgs, changes: &[SettingChange]) -> Result<Exit> {
    let name = &args.name;
    if look(places, name).is_some() {
        return Err(Failure::not_served(format!(
            "{name} is being loaded: set it once it is served (`headpond status {name}`)"
        )));
    }
    if args.flush {
        return Err(Failure::not_served(format!(
            "{name} is not being served, and --flush needs its daemon: start it with `headpond serve \
             {name}`"
        )));
    }
    let described = places.load(name)?;
    let changed = set_stopped(places, &described, |it| with_changes(&it, changes))?;
    if let Err(error) = keep_event_of_set(places, name, changes) {
        eprintln!("headpond: note: the change is not among the events: {error}");
    }
    let status = Status::described(&changed);
    if args.json {
        print_json(&Versioned::new(status))?;
    } else {
        super::super::status::print_settings(&status);
        println!("{name} is not served: these are the settings of its next start");
    }
    Ok(Exit::Ok)
}

/// The description with these changes.
fn with_changes(description: &Description, changes: &[SettingChange]) -> Result<Description> {
    let changed = description.with_changes(&SettingChange::by_owner(changes));
    let changed = changed.map_err(|error| match error {
        SettingsError::Setting(error) => Failure::usage(error),
        refusal => Failure::refused(refusal),
    })?;
    check_modes(&changed)?;
    Ok(changed)
}

/// Memory must not hold dirty data, unless that was accepted.
fn check_modes(description: &Description) -> Result<()> {
    let cache = description.cache.iter();
    let cache = cache.map(|it| (&it.device, it.settings.mode, it.volatile_allowed));
    let tier = description.tier.iter();
    let tier = tier.map(|it| (&it.device, it.settings.mode, it.volatile_allowed));
    for (device, mode, is_allowed) in cache.chain(tier) {
        let spec: DeviceSpec = device.parse()?;
        if matches!(spec, DeviceSpec::Ram(_)) && !is_allowed {
            Vetted::memory().check_mode(&spec, mode, Consent::Careful)?;
        }
    }
    Ok(())
}
