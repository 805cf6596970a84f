//! `headpond events`: what happened to volumes, from the files that their daemons keep.

use crate::args::EventsArgs;
use crate::telling::{document, is_unheard, print_json};
use anyhow::{Context, Result};
use headpond_api::answers::Versioned;
use headpond_api::events::{Event, EventFiles};
use headpond_api::outcome::{Exit, Failure};
use headpond_api::place::Places;
use headpond_daemon::wall_clock::rfc3339;
use headpond_volume::check_name;
use std::collections::BTreeMap;
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// `2026-11-30T07:52:44`, of a time with milliseconds.
const SECONDS: usize = 19;

/// Shows events, and with `--follow` those that come.
///
/// # Errors
/// If there is no such volume, or its files cannot be read.
pub fn run(places: &Places, args: &EventsArgs) -> Result<Exit> {
    if let Some(name) = &args.name {
        check_name(name).map_err(Failure::usage)?;
        if !EventFiles::of(places, name).exist() && !places.exists(name) {
            places.load(name)?;
        }
    }
    let mut reader = Reader { places, name: args.name.as_deref(), seen: BTreeMap::new() };
    let since = args.since.map(|since| rfc3339(since.0)).unwrap_or_default();
    let is_of_all = args.name.is_none();
    if !args.follow {
        let events = reader.news(&since)?;
        if args.json {
            print_json(&events.iter().map(Versioned::new).collect::<Vec<_>>())?;
        } else if events.is_empty() {
            println!("no events");
        }
        events.iter().filter(|_| !args.json).for_each(|event| print(event, is_of_all));
        return Ok(Exit::Ok);
    }
    while !is_unheard() {
        for event in reader.news(&since)? {
            match args.json {
                true => document(&(serde_json::to_string(&Versioned::new(event))? + "\n")),
                false => print(&event, is_of_all),
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(Exit::Ok)
}

/// Reads the events of one volume, or of all.
struct Reader<'a> {
    places: &'a Places,
    name: Option<&'a str>,
    /// By volume.
    seen: BTreeMap<String, Seen>,
}

#[derive(Default)]
struct Seen {
    /// Of the files when they were read last.
    stamp: Option<(u64, u64)>,
    sequence: u64,
}

impl Reader<'_> {
    /// Those since `since` that were not read before, by time.
    fn news(&mut self, since: &str) -> Result<Vec<Event>> {
        let names = match self.name {
            Some(name) => vec![name.to_owned()],
            None => self.places.names(),
        };
        let mut news = Vec::new();
        for name in names {
            let files = EventFiles::of(self.places, &name);
            let seen = self.seen.entry(name.clone()).or_default();
            let stamp = files.stamp();
            if stamp == seen.stamp {
                continue;
            }
            let events =
                files.read().with_context(|| format!("cannot read the events of {name}"))?;
            seen.take(events, stamp, &mut news);
        }
        news.retain(|event| *event.time >= *since);
        news.sort_by(|one, other| {
            (&one.time, &one.volume, one.sequence).cmp(&(
                &other.time,
                &other.volume,
                other.sequence,
            ))
        });
        Ok(news)
    }
}

impl Seen {
    fn take(&mut self, events: Vec<Event>, stamp: Option<(u64, u64)>, news: &mut Vec<Event>) {
        let newest = events.iter().map(|event| event.sequence).max().unwrap_or(0);
        // The volume was destroyed, and there is a new one of its name.
        if newest < self.sequence {
            self.sequence = 0;
        }
        let seen = self.sequence;
        news.extend(events.into_iter().filter(|event| event.sequence > seen));
        (self.stamp, self.sequence) = (stamp, newest);
    }
}

fn print(event: &Event, with_volume: bool) {
    let Event { time, volume, severity, event: kind, text, .. } = event;
    let time = time.get(..SECONDS).unwrap_or(time);
    let volume = if with_volume { format!("{volume}  ") } else { String::new() };
    let (severity, kind, text) = (severity.word(), kind.word(), text.replace('\n', " "));
    println!("{time}Z  {severity:<7}  {kind:<16}  {volume}{text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_api::events::{EventKind, Severity};

    #[test]
    fn each_event_is_read_once_and_a_new_volume_of_the_name_begins_anew() {
        let event = |sequence| Event {
            sequence,
            ..Event::new(EventKind::Command, Severity::Info, sequence.to_string())
        };
        let mut seen = Seen::default();
        let mut read = |events: &[u64]| {
            let mut news = Vec::new();
            seen.take(events.iter().map(|it| event(*it)).collect(), None, &mut news);
            news.iter().map(|event| event.sequence).collect::<Vec<_>>()
        };
        assert_eq!(read(&[1, 2]), [1, 2]);
        assert_eq!(read(&[1, 2, 3]), [3]);
        assert_eq!(read(&[3, 4]), [4], "the older file is gone");
        assert_eq!(read(&[1, 2]), [1, 2], "of another volume");
    }
}
