//! `headpond set` without a change: the settings, and what they do.

use crate::telling::print_json;
use anyhow::Result;
use headpond_api::answers::Versioned;
use headpond_api::outcome::{Exit, Failure};
use headpond_api::place::Places;
use headpond_volume::{Description, SettingGroup, ShownSetting, nearest_settings};
use serde::Serialize;
use std::path::PathBuf;

#[derive(Serialize)]
struct Explained<'a> {
    name: &'a str,
    /// The description of the volume.
    stored_in: PathBuf,
    settings: &'a [ShownSetting],
}

/// Shows all settings of a volume, or those of these keys; it need not be served.
///
/// # Errors
/// Where there is no such volume, or it has no such setting.
pub fn show(places: &Places, name: &str, keys: &[&str], as_json: bool) -> Result<Exit> {
    let all = settings_of(places.load(name)?);
    let stored_in = places.description(name);
    let settings = match keys.is_empty() {
        true => all,
        false => keys.iter().map(|key| find(&all, name, key)).collect::<Result<_>>()?,
    };
    if as_json {
        print_json(&Versioned::new(Explained { name, stored_in, settings: &settings }))?;
    } else if keys.is_empty() {
        SettingGroup::ALL.into_iter().for_each(|group| print_group(group, &settings));
        println!("* differs from its default; `headpond set {name} KEY` tells more of one");
    } else {
        let place = stored_in.display().to_string();
        settings.iter().for_each(|setting| print_one(setting, &place));
    }
    Ok(Exit::Ok)
}

fn settings_of(description: Description) -> Vec<ShownSetting> {
    let Description { cache, tier, array, .. } = description;
    let of_cache = cache.into_iter().flat_map(|cache| cache.settings.shown());
    let of_tier = tier.into_iter().flat_map(|tier| tier.settings.shown());
    of_cache.chain(of_tier).chain(array.shown()).collect()
}

fn find(all: &[ShownSetting], volume: &str, key: &str) -> Result<ShownSetting> {
    let plain = key.strip_suffix(".policy").unwrap_or(key);
    if let Some(found) = all.iter().find(|setting| setting.key == plain) {
        return Ok(found.clone());
    }
    let near = nearest_settings(key);
    Err(Failure::usage(match near.first() {
        Some(known) if known == plain && plain.starts_with("tier.") => {
            format!("{volume} has no tier in memory, and so no setting {key}")
        }
        Some(known) if known == plain => {
            format!("{volume} has no cache, and so no setting {key}")
        }
        Some(_) => format!("there is no setting {key:?}; nearest: {}", near.join(", ")),
        None => format!("there is no setting {key:?}; `headpond set {volume}` lists all"),
    }))
}

fn print_group(group: SettingGroup, all: &[ShownSetting]) {
    let of = |setting: &&ShownSetting| setting.group == group;
    let Some(width) = all.iter().filter(of).map(|setting| setting.key.len()).max() else { return };
    println!("{}:", crate::telling::word(group));
    for setting in all.iter().filter(of) {
        println!("  {:<width$}  {}", setting.key, told_value(setting));
        println!("      {}; takes {}", setting.what, setting.takes);
    }
    println!();
}

/// `60 *  (default 120)`
fn told_value(ShownSetting { value, default, .. }: &ShownSetting) -> String {
    if value == default { value.clone() } else { format!("{value} *  (default {default})") }
}

fn print_one(setting: &ShownSetting, place: &str) {
    let ShownSetting { key, group, value, default, takes, what, more } = setting;
    println!("{key}: {what}");
    println!("  value     {value}");
    println!("  default   {default}");
    println!("  takes     {takes}");
    println!("  stored    in {place}, table [{}]", group.table());
    if !more.is_empty() {
        println!("  {more}");
    }
    println!();
}
