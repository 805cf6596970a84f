//! The watch of a volume whose responses are known.

use super::*;
use crate::search::{Gain, Goal, Setting};
use crate::testing::scattered;
use headpond_trace::{Op, TraceRecord};
use headpond_volume::CacheSettings;

/// A volume on which write-through takes 400 us, and write-back what the test says.
struct Volume {
    settings: Vec<String>,
    write_back_us: u64,
    /// Of a hundred requests, those that write.
    writes: u64,
    may_weaken: bool,
    is_draining: bool,
    is_busy: bool,
    shadow: f64,
    looks: u64,
    events: Vec<Event>,
}

fn gain(factor: f64) -> Gain {
    Gain { factor, low: factor * 0.9, high: factor * 1.1 }
}

impl Volume {
    fn new(write_back_us: u64) -> Self {
        Self {
            settings: vec!["mode=write-through".into()],
            write_back_us,
            writes: 50,
            may_weaken: true,
            is_draining: false,
            is_busy: false,
            shadow: 2.0,
            looks: 0,
            events: Vec::new(),
        }
    }

    fn look(&mut self) -> Look {
        self.looks += 1;
        let is_back = self.settings.contains(&"mode=write-back".to_owned());
        let response_us = if is_back { self.write_back_us } else { 400 };
        let (seed, writes) = (self.looks, self.writes);
        let record = |number: u64| {
            let drawn = scattered(seed * 10_000 + number, 1);
            let op = if drawn % 100 < writes { Op::Write } else { Op::Read };
            let place = scattered(seed * 10_000 + number, 2) % (1 << 30) * 4096;
            let mut record = TraceRecord::new(number * 50_000, op, place, 4096);
            let jitter = drawn % 20;
            record.completed_ns = Some(number * 50_000 + (response_us + jitter) * 1000);
            record
        };
        Look::of((0..1000).map(record))
    }

    /// Plays so many looks.
    fn watch(&mut self, watch: &mut Watch, looks: u64) {
        for _ in 0..looks {
            let look = self.look();
            watch.next(look, self).unwrap();
        }
    }

    /// The kinds of events, in their order.
    fn story(&self) -> Vec<String> {
        let name = |event: &Event| {
            let json = serde_json::to_value(event).unwrap();
            json["event"].as_str().unwrap().to_owned()
        };
        self.events.iter().map(name).collect()
    }
}

impl Served for Volume {
    type Error = &'static str;

    fn advise(&mut self, _looks: &[Look]) -> Result<Proposal, Self::Error> {
        let is_set = self.settings.contains(&"mode=write-back".to_owned());
        Ok(Proposal {
            settings: vec![Setting { key: "mode", value: "write-back".into() }],
            gain: (!is_set).then(|| gain(2.0)),
            is_worth_changing: !is_set,
            reasons: vec!["the models say so".into()],
            requests_per_second: 1000.0,
        })
    }

    fn weakened_by(&mut self, settings: &[Setting]) -> Result<Option<Weakening>, Self::Error> {
        let changes: Vec<_> = self.settings.iter().map(|it| it.parse().unwrap()).collect();
        let now = CacheSettings::default().with_all(&changes).unwrap();
        Ok(weakens(&now, settings).filter(|_| !self.may_weaken))
    }

    fn way_back(&mut self, _settings: &[Setting]) -> Result<Vec<String>, Self::Error> {
        Ok(self.settings.clone())
    }

    fn unsettled(&mut self) -> Result<Option<String>, Self::Error> {
        Ok(self.is_draining.then(|| "it drains".to_owned()))
    }

    fn take_back(&mut self, _settings: &[String], back: &[String]) -> Result<(), Self::Error> {
        self.set(back)
    }

    fn set(&mut self, settings: &[String]) -> Result<(), Self::Error> {
        if self.is_busy {
            return Err("busy");
        }
        self.settings = settings.to_vec();
        Ok(())
    }

    fn shadow(&mut self, _looks: &[Look], _back: &[String]) -> Result<Gain, Self::Error> {
        Ok(gain(self.shadow))
    }

    fn note(&mut self, event: Event) -> Result<(), Self::Error> {
        self.events.push(event);
        Ok(())
    }
}

const APPLY: Orders = Orders { goal: Goal::Throughput, apply: true, full: 20_000 };

#[test]
fn advice_that_delivers_is_kept() {
    let (mut volume, mut watch) = (Volume::new(200), Watch::new(APPLY));
    volume.watch(&mut watch, 7);
    assert_eq!(volume.story(), ["advised", "applied", "judged", "kept"]);
    assert_eq!(volume.settings, ["mode=write-back"]);
    volume.watch(&mut watch, 20);
    assert_eq!(volume.events.len(), 4, "a steady workload is left alone: {:?}", volume.story());
}

#[test]
fn advice_that_does_not_deliver_is_taken_back_and_not_tried_again() {
    let (mut volume, mut watch) = (Volume::new(400), Watch::new(APPLY));
    volume.watch(&mut watch, 30);
    assert_eq!(volume.story(), ["advised", "applied", "judged", "rolling-back", "rolled-back"]);
    assert_eq!(volume.settings, ["mode=write-through"]);
}

#[test]
fn what_delivers_no_longer_is_taken_back_later() {
    let (mut volume, mut watch) = (Volume::new(200), Watch::new(APPLY));
    volume.watch(&mut watch, 10);
    assert_eq!(volume.settings, ["mode=write-back"]);
    (volume.write_back_us, volume.shadow) = (900, 0.8);
    volume.watch(&mut watch, 20);
    assert_eq!(volume.settings, ["mode=write-through"]);
    let why = |event: &Event| match event {
        Event::RollingBack { why, .. } => why.contains("no longer"),
        _ => false,
    };
    assert!(volume.events.iter().any(why), "{:?}", volume.story());
    assert_eq!(volume.story().last().unwrap(), "tried-before", "no trial is repeated");
}

#[test]
fn nothing_is_set_without_leave() {
    let (mut volume, mut watch) = (Volume::new(200), Watch::new(Orders { apply: false, ..APPLY }));
    volume.watch(&mut watch, 20);
    assert_eq!(volume.story(), ["advised"]);
    let (mut volume, mut watch) = (Volume::new(200), Watch::new(APPLY));
    volume.may_weaken = false;
    volume.watch(&mut watch, 20);
    assert_eq!(volume.story(), ["advised", "withheld"]);
    assert_eq!(volume.settings, ["mode=write-through"]);
}

#[test]
fn a_workload_that_has_changed_is_advised_on_anew_but_one_odd_look_changes_nothing() {
    let (mut volume, mut watch) = (Volume::new(200), Watch::new(Orders { apply: false, ..APPLY }));
    volume.watch(&mut watch, 5);
    volume.writes = 95;
    volume.watch(&mut watch, 1);
    volume.writes = 50;
    volume.watch(&mut watch, 5);
    assert_eq!(volume.story(), ["advised"]);
    volume.writes = 95;
    volume.watch(&mut watch, 5);
    assert_eq!(volume.story(), ["advised", "changed", "advised"]);
}

#[test]
fn where_the_workload_changes_in_a_trial_the_models_judge() {
    for (shadow, kept) in [(1.5, true), (1.0, false)] {
        let (mut volume, mut watch) = (Volume::new(200), Watch::new(APPLY));
        volume.shadow = shadow;
        volume.watch(&mut watch, 3);
        volume.writes = 100;
        volume.watch(&mut watch, 4);
        assert_eq!(volume.settings.contains(&"mode=write-back".to_owned()), kept);
        let judged = |event: &Event| match event {
            Event::Judged { against, .. } => against.contains("models"),
            _ => false,
        };
        assert!(volume.events.iter().any(judged), "{:?}", volume.events);
    }
}

#[test]
fn a_watch_that_ends_in_a_trial_takes_it_back() {
    let (mut volume, mut watch) = (Volume::new(200), Watch::new(APPLY));
    volume.watch(&mut watch, 4);
    assert!(watch.is_trying() && volume.settings == ["mode=write-back"]);
    watch.end(&mut volume).unwrap();
    assert_eq!(volume.settings, ["mode=write-through"]);
    watch.end(&mut volume).unwrap();
    assert_eq!(volume.story(), ["advised", "applied", "rolling-back", "rolled-back"]);
}

#[test]
fn silence_is_said_once() {
    let (mut volume, mut watch) = (Volume::new(200), Watch::new(APPLY));
    for _ in 0..5 {
        watch.next(Look::default(), &mut volume).unwrap();
    }
    assert_eq!(volume.story(), ["quiet"]);
    volume.watch(&mut watch, 3);
    assert_eq!(volume.story(), ["quiet", "advised", "applied"]);
}

#[test]
fn events_are_read_back_from_the_journal_as_they_were() {
    let (mut volume, mut watch) = (Volume::new(200), Watch::new(APPLY));
    volume.watch(&mut watch, 7);
    volume.events.push(Event::Judged {
        gain: Gain { factor: 1.0, low: 0.0, high: f64::INFINITY },
        against: "the time before".into(),
        besides: None,
    });
    for event in &volume.events {
        let text = serde_json::to_string(event).unwrap();
        let read = serde_json::from_str::<Event>(&text).unwrap();
        assert_eq!(read.to_string(), event.to_string());
    }
}

#[test]
fn longer_responses_of_a_deeper_queue_take_nothing_back() {
    let (mut volume, mut watch) = (Volume::new(200), Watch::new(APPLY));
    volume.watch(&mut watch, 10);
    // The models still see the gain.
    (volume.write_back_us, volume.shadow) = (900, 1.6);
    volume.watch(&mut watch, 10);
    assert_eq!(volume.settings, ["mode=write-back"]);
    assert_eq!(volume.story()[4..], ["changed", "advised"]);
}

#[test]
fn a_roll_back_that_is_refused_stays_to_be_done() {
    let (mut volume, mut watch) = (Volume::new(400), Watch::new(APPLY));
    volume.watch(&mut watch, 6);
    volume.is_busy = true;
    let look = volume.look();
    assert_eq!(watch.next(look, &mut volume), Err("busy"));
    assert!(watch.is_trying() && volume.story().last().unwrap() == "rolling-back");
    volume.is_busy = false;
    watch.end(&mut volume).unwrap();
    assert_eq!(volume.settings, ["mode=write-through"]);
    assert!(!watch.is_trying() && volume.story().last().unwrap() == "rolled-back");
}

#[test]
fn looks_at_a_volume_that_is_busy_with_itself_do_not_count() {
    let (mut volume, mut watch) = (Volume::new(200), Watch::new(APPLY));
    volume.watch(&mut watch, 3);
    volume.is_draining = true;
    volume.watch(&mut watch, 20);
    assert_eq!(volume.story(), ["advised", "applied", "unsettled"]);
    volume.is_draining = false;
    volume.watch(&mut watch, 4);
    assert_eq!(volume.story()[3..], ["judged", "kept"]);
}

#[test]
fn a_workload_that_became_another_in_a_trial_is_advised_on() {
    let (mut volume, mut watch) = (Volume::new(200), Watch::new(APPLY));
    volume.watch(&mut watch, 3);
    volume.writes = 100;
    volume.watch(&mut watch, 7);
    assert_eq!(volume.story()[2..], ["judged", "kept", "changed", "advised"]);
}
