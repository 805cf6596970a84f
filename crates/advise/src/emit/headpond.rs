//! Headpond itself: `headpond create`, or `set` and `cache` for a volume that is served.

use super::Cache;
use super::fit::{Fit, is_of_array};
use super::script::Script;
use super::wanted::{Named, Wanted};
use headpond_report::shell_word;
use headpond_volume::Size;

pub(super) struct Headpond;

impl Cache for Headpond {
    fn name(&self) -> &'static str {
        "Headpond"
    }

    fn fit(&self, setting: &Named, wanted: &Wanted) -> Option<Fit> {
        match (setting.key.as_str(), &wanted.occasion.volume) {
            ("strip", Some(_)) => Fit::not("it is chosen when the array is made"),
            ("strip", None) => Fit::same("as --strip"),
            ("line", _) => Fit::same("as --line"),
            _ if is_text(setting) && wanted.occasion.volume_has_cache => {
                Fit::same("they stay as they are")
            }
            _ if is_text(setting) => Fit::same("in a file that is written first"),
            _ => Fit::same("as it is"),
        }
    }

    fn write(&self, wanted: &Wanted, script: &mut Script) {
        match &wanted.occasion.volume {
            Some(volume) => of_volume(&shell_word(volume), wanted, script),
            None => create(wanted, script),
        }
    }
}

fn create(wanted: &Wanted, script: &mut Script) {
    let set = |setting: &&Named| format!(" --set {}", word(setting));
    let (of_array, of_cache) = parted(wanted);
    if !wanted.has_cache && !wanted.settings.iter().any(is_of_array) {
        return;
    }
    script.has("VOLUME", "hv0");
    script.needs("MEMBERS", "the devices of the array, with spaces between them");
    let core = &wanted.core;
    let mut command = format!("headpond create \"$VOLUME\" --raid {}", core.raid.number());
    if core.raid.has_groups() {
        command += &format!(" --groups {}", core.groups);
    }
    if let Some(spread) = core.declustered {
        command += &format!(" --width {} --distributed-spares {}", spread.width, spread.spares);
    }
    command += &format!(" --strip {}", core.strip);
    command.extend(of_array.iter().map(set));
    if wanted.has_cache {
        command += &cache(wanted, script);
        write_classes(&of_cache, wanted, script);
        command.extend(of_cache.iter().map(set));
    }
    script.note("shellcheck disable=SC2086 # a list");
    script.run(format!("{command} $MEMBERS"));
}

/// Device, size and line of a cache that is made.
fn cache(wanted: &Wanted, script: &mut Script) -> String {
    let bytes = Size(wanted.cache_bytes);
    let device = if wanted.is_lost_on_power {
        format!("ram:{bytes}")
    } else {
        script.has_cache_device(wanted);
        format!("\"$CACHE_DEVICE\" --cache-size {bytes}")
    };
    let force = match wanted.is_lost_on_power && wanted.mode().is_write_back() {
        true => " --force",
        false => "",
    };
    format!(" --cache {device} --line {}{force}", wanted.line)
}

fn of_volume(volume: &str, wanted: &Wanted, script: &mut Script) {
    let (of_array, of_cache) = parted(wanted);
    let words = |settings: &[&Named]| -> Vec<String> {
        settings.iter().map(|setting| word(setting)).collect()
    };
    let mut set = words(&of_array);
    if !wanted.has_cache && wanted.occasion.volume_has_cache {
        script.note(&format!("To leave the cache out: headpond cache detach {volume} --flush"));
    }
    if wanted.has_cache && wanted.occasion.volume_has_cache {
        if wanted.settings.iter().any(|setting| setting.key == "line") {
            script.has_cache_device(wanted);
            let line = wanted.line;
            script.run(format!("headpond cache replace {volume} \"$CACHE_DEVICE\" --line {line}"));
        }
        set.extend(words(&of_cache));
    } else if wanted.has_cache {
        script.has_cache_device(wanted);
        let (size, line) = (Size(wanted.cache_bytes), wanted.line);
        let mut attach = format!("headpond cache attach {volume} \"$CACHE_DEVICE\"");
        attach += &format!(" --size {size} --line {line}");
        write_classes(&of_cache, wanted, script);
        attach.extend(words(&of_cache).into_iter().map(|word| format!(" --set {word}")));
        script.run(attach);
    }
    if wanted.is_lost_on_power && wanted.mode().is_write_back() && wanted.has_cache {
        script.note("A cache in memory takes this mode where it was attached with --force.");
    }
    if !set.is_empty() {
        script.run(format!("headpond set {volume} {}", set.join(" ")));
    }
}

/// Classes of which only the number is shown.
fn is_text(setting: &Named) -> bool {
    setting.key == "classes" && setting.value.starts_with('(')
}

/// A setting as a word of the shell.
fn word(setting: &Named) -> String {
    match is_text(setting) {
        true => "classes=\"$CLASSES\"".to_owned(),
        false => shell_word(&setting.to_string()),
    }
}

/// The text of classes goes to a file, which the command then reads.
fn write_classes(settings: &[&Named], wanted: &Wanted, script: &mut Script) {
    if settings.iter().any(|setting| is_text(setting)) {
        let text = wanted.cache.classes.classes().to_toml();
        script.run("CLASSES=$(mktemp)");
        script.run(format!("cat > \"$CLASSES\" <<'END_OF_CLASSES'\n{text}END_OF_CLASSES"));
    }
}

/// Settings of the array and of the cache, without those that are chosen at creation, and without
/// classes that a volume has.
fn parted(wanted: &Wanted) -> (Vec<&Named>, Vec<&Named>) {
    let at_creation = |setting: &Named| matches!(setting.key.as_str(), "strip" | "line");
    let stays = |setting: &Named| is_text(setting) && wanted.occasion.volume_has_cache;
    let may_be_set = |setting: &&Named| !at_creation(setting) && !stays(setting);
    let set = wanted.settings.iter().filter(may_be_set);
    let (of_array, of_cache): (Vec<&Named>, _) = set.partition(|setting| is_of_array(setting));
    (of_array, if wanted.has_cache { of_cache } else { Vec::new() })
}
