//! A script around the commands: where it is from, what has to be known, what each setting became.

use super::wanted::Wanted;
use super::{Cache, Occasion, fit};
use crate::advice::Advice;
use crate::search::told;
use headpond_report::{shell_word, size};

/// Commands, and what they need.
#[derive(Clone, Debug, Default)]
pub(super) struct Script {
    variables: Vec<String>,
    lines: Vec<String>,
}

impl Script {
    /// A variable that the user sets before, or the script stops.
    pub(super) fn needs(&mut self, name: &str, what: &str) {
        self.variables.push(format!("{name}=${{{name}:?{what}}}"));
    }

    /// A variable that the user may set before.
    pub(super) fn has(&mut self, name: &str, value: &str) {
        self.variables.push(format!("{name}=${{{name}:-{value}}}"));
    }

    /// The cache device, for another cache than Headpond's: one that a volume has in use is not
    /// taken from it unasked.
    pub(super) fn needs_cache_device(&mut self, wanted: &Wanted) {
        let bytes = size(wanted.cache_bytes);
        self.needs("CACHE_DEVICE", &format!("the fast device, or {bytes} of it"));
        let Occasion { volume, cache_device, .. } = &wanted.occasion;
        if let (Some(volume), Some(device)) = (volume, cache_device) {
            self.note(&format!(
                "{volume} has its cache on {device}: headpond cache detach {volume} --flush, before that is \
                 used here."
            ));
        }
    }

    /// The cache device, for Headpond itself.
    pub(super) fn has_cache_device(&mut self, wanted: &Wanted) {
        match &wanted.occasion.cache_device {
            Some(path) => self.variables.push(format!("CACHE_DEVICE={}", shell_word(path))),
            None => self.needs_cache_device(wanted),
        }
    }

    pub(super) fn run(&mut self, command: impl Into<String>) {
        self.lines.push(command.into());
    }

    pub(super) fn note(&mut self, text: &str) {
        self.lines.push(comment(text));
    }
}

/// What is to be run, without the script around it.
pub(super) fn commands(cache: &dyn Cache, wanted: &Wanted) -> Vec<String> {
    let mut script = Script::default();
    if !wanted.stays {
        cache.write(wanted, &mut script);
    }
    let is_command = |line: &String| !line.starts_with('#');
    script.lines.into_iter().filter(is_command).collect()
}

/// The whole text.
pub(super) fn of(cache: &dyn Cache, advice: &Advice, wanted: &Wanted) -> String {
    let mut lines = vec!["#!/bin/sh".to_owned()];
    let head = head(cache.name(), advice, &wanted.occasion);
    lines.extend(head.iter().map(|line| comment(line)));
    lines.push("#".to_owned());
    let told = |setting| comment(&fit::of(cache, setting, wanted).told(setting));
    lines.extend(wanted.settings.iter().map(told));
    let mut script = Script::default();
    let refusal = if wanted.has_cache { cache.refusal(wanted) } else { None };
    match refusal {
        _ if wanted.stays => script.note(
            "What is set now does nearly as much as these settings, or is the same: nothing is \
             changed here.",
        ),
        Some(why) => script.note(&format!("cannot be expressed: {why}")),
        None => cache.write(wanted, &mut script),
    }
    let has_commands = script.lines.iter().any(|line| !line.starts_with('#'));
    lines.push(String::new());
    if has_commands {
        lines.push("set -eu".to_owned());
        lines.extend(script.variables);
        lines.push(String::new());
    }
    if !wanted.has_cache && !wanted.stays {
        let rest = if has_commands { "the array alone is set up" } else { "nothing is set up" };
        lines.push(comment(&format!("Do not cache: {rest} here.")));
    }
    lines.extend(script.lines);
    if !has_commands {
        lines.push("exit 0".to_owned());
    }
    lines.join("\n") + "\n"
}

/// Where it is from, and what it is worth.
pub(super) fn head(name: &str, advice: &Advice, occasion: &Occasion) -> Vec<String> {
    let verdict = match advice.cache {
        true => format!(
            "{} of {} without a cache is what Headpond's models give for Headpond's cache",
            told(advice.gain),
            advice.goal.what()
        ),
        false => "Headpond's models give no reason for a cache".to_owned(),
    };
    let caution = match name {
        "Headpond" => "Read it before you run it: what is on new devices is lost.".to_owned(),
        _ => format!(
            "What {name} makes of these settings was not modelled. Read it before you run it: what is on \
             the devices may be lost."
        ),
    };
    let mut lines = vec![
        format!("Advice of headpond advise, for {name}."),
        format!("Trace: {}; goal: {}.", occasion.trace, advice.goal),
        format!("{verdict}."),
        caution,
        "The figures hold for:".to_owned(),
    ];
    lines.extend(advice.assumptions.iter().map(|line| format!("- {line}")));
    lines
}

/// One line, whatever the text has in it.
fn comment(text: &str) -> String {
    let plain = |letter: char| if letter.is_control() { '?' } else { letter };
    format!("# {}", text.chars().map(plain).collect::<String>())
}
