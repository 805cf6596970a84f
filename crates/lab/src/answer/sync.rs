//! What it costs to make writes stable, and what that says of a drive and of how it is connected.
//!
//! **Source**: YourcmcWiki, "Testing ways to connect SSDs for Ceph", 2018: a drive that protects
//! its cache loses nothing when the cache is switched off, for then it answers flushes at once; one
//! that does not protect it falls to what its flash does.

use super::curves::named;
use super::{Answer, compared, distinct};
use crate::plan::{Sync, plain};
use crate::results::{CellResult, Results, Summary};
use crate::statistics::differ;
use headpond_report::{Chart, Compared, Comparison, Entry, Scale, Table, Unit, number, percent};
use serde_json::json;

/// Of the rate without flushes, what is left where a flush has nothing to do.
const FREE: f64 = 0.7;
/// What is left with the drive's cache off, of all that the drive can do, where it is protected.
const PROTECTED: f64 = 0.5;
/// What is left at most where each write waits for the medium.
const WAITS: f64 = 0.25;
/// The setting that switches a drive's own cache, by the end of its name.
const SWITCH: &str = "write_cache";

/// A cell with stable writes beside the same without.
struct Pair<'a> {
    cell: &'a CellResult,
    of: String,
    stable: f64,
    loose: f64,
    /// Of each round with stable writes.
    merits: Vec<f64>,
    /// Without and with the flush, for a drawing.
    bars: [Compared; 2],
}

pub(super) fn answer(results: &Results) -> Answer {
    let mut answer = Answer::new("What do stable writes cost?");
    let measured: Vec<_> = results.measured().collect();
    let pairs: Vec<_> = measured
        .iter()
        .filter(|(cell, _)| cell.cell.load.sync != Sync::None)
        .filter_map(|(cell, summary)| Pair::of(results, &measured, cell, summary))
        .collect();
    if pairs.is_empty() {
        answer.sentences.push("nothing was measured both with and without a flush".into());
        return answer;
    }
    let loads = distinct(pairs.iter().map(|pair| pair.cell.cell.load.to_string()));
    for load in &loads {
        let same = pairs.iter().filter(|pair| pair.cell.cell.load.to_string() == *load);
        let words = headline(&same.collect::<Vec<_>>());
        let which = if loads.len() > 1 { format!("{load}: ") } else { String::new() };
        answer.sentences.extend(words.map(|words| format!("{which}{words}")));
    }
    for target in distinct(pairs.iter().map(|pair| pair.cell.cell.target)) {
        let name = &results.plan.targets[target].name;
        let of: Vec<_> = pairs.iter().filter(|pair| pair.cell.cell.target == target).collect();
        answer.sentences.extend(drive(&of).into_iter().map(|words| format!("{name}: {words}")));
    }
    answer.sentences.extend(ways(results, &pairs));
    let row = |pair: &Pair<'_>| {
        let (loose, stable) = (number(pair.loose), number(pair.stable));
        vec![pair.of.clone(), pair.cell.cell.load.to_string(), loose, stable, percent(pair.left())]
    };
    answer.charts.push(chart(&pairs));
    let columns = ["what", "load", "without", "stable", "left"];
    answer.tables.push(Table::of(&columns, 2, pairs.iter().map(row)));
    let facts = pairs.iter().map(|pair| {
        json!({ "cell": pair.cell.cell.number, "without": pair.loose, "with": pair.stable,
                "left": pair.left() })
    });
    answer.facts = json!({ "cells": facts.collect::<Vec<_>>() });
    answer
}

/// Of what carries the same load the best, and what cannot be told from it.
fn headline(pairs: &[&Pair<'_>]) -> Option<String> {
    let best = pairs.iter().max_by(|a, b| a.stable.total_cmp(&b.stable))?;
    if pairs.len() == 1 {
        return None;
    }
    let is_as_good = |pair: &&&Pair<'_>| {
        let is_other = pair.cell.cell.number != best.cell.cell.number;
        let verdict = differ(&best.merits, &pair.merits);
        is_other && verdict.is_some_and(|it| it.winner_is_second().is_none())
    };
    let as_good: Vec<_> = pairs.iter().filter(is_as_good).map(|pair| pair.of.as_str()).collect();
    let words = format!("most stable writes: {}, {}/s", best.of, number(best.stable));
    Some(match as_good.is_empty() {
        true => words,
        false => format!("{words}; no further from it than chance or 3 %: {}", as_good.join("; ")),
    })
}

/// A way to connect a drive at its best: whatever else is set beside the drive's own cache.
struct Way<'a> {
    /// What is connected.
    drive: String,
    best: &'a Pair<'a>,
}

/// Of each drive that was measured in several ways, which way carries most and what the others
/// carry of that.
fn ways(results: &Results, pairs: &[Pair<'_>]) -> Vec<String> {
    let mut ways: Vec<((usize, String), Way<'_>)> = Vec::new();
    for pair in pairs {
        let key = (pair.cell.cell.target, pair.beside_the_drive());
        match ways.iter_mut().find(|(of, _)| *of == key) {
            Some((_, way)) if way.best.stable < pair.stable => way.best = pair,
            Some(_) => {}
            None => ways.push((key, Way { drive: drive_of(results, pair), best: pair })),
        }
    }
    let ways: Vec<_> = ways.into_iter().map(|(_, way)| way).collect();
    let of = |drive: String| {
        let same: Vec<_> = ways.iter().filter(|way| way.drive == drive).collect();
        let first = same.iter().max_by(|a, b| a.best.stable.total_cmp(&b.best.stable))?;
        let slower = |way: &&&Way<'_>| {
            let verdict = differ(&first.best.merits, &way.best.merits);
            verdict.is_some_and(|it| it.winner_is_second() == Some(false))
        };
        let others = same.iter().filter(slower).map(|way| {
            let share = percent(way.best.stable / first.best.stable.max(1e-9));
            format!("{share} of that by {}", way.best.of)
        });
        let others: Vec<_> = others.collect();
        let (best, rate) = (&first.best.of, number(first.best.stable));
        (!others.is_empty()).then(|| {
            format!("{drive}: most by {best}, {rate} stable writes a second; {}", others.join("; "))
        })
    };
    distinct(ways.iter().map(|way| way.drive.clone())).into_iter().filter_map(of).collect()
}

/// Which drive it is, and what was asked of it: of a model its name, and else the target.
fn drive_of(results: &Results, pair: &Pair<'_>) -> String {
    let target = &results.plan.targets[pair.cell.cell.target];
    let core = target.machine.as_ref().and_then(|machine| machine.get("core"));
    let model = core.and_then(|core| core.get("drive")?.as_str());
    format!("{}, {}", model.unwrap_or(&target.name), pair.cell.cell.load)
}

impl<'a> Pair<'a> {
    fn of(
        results: &Results,
        measured: &[(&CellResult, Summary)],
        cell: &'a CellResult,
        summary: &Summary,
    ) -> Option<Self> {
        let is_it = |other: &CellResult| {
            let mut wanted = cell.cell.clone();
            (wanted.load.sync, wanted.number) = (Sync::None, other.cell.number);
            wanted == other.cell
        };
        let (_, plain) = measured.iter().find(|(other, _)| is_it(other))?;
        let (stable, loose) = (summary.write.iops, plain.write.iops);
        let bars = [compared(&plain.iops), compared(&summary.iops)];
        let merits = cell.merits(&results.plan);
        Some(Self { cell, of: named(results, cell), stable, loose, merits, bars })
    }

    fn left(&self) -> f64 {
        self.stable / self.loose.max(1e-9)
    }

    /// What is set but the drive's own cache.
    fn beside_the_drive(&self) -> String {
        let settings = self.cell.cell.settings.iter();
        let others = settings.filter(|(name, _)| !name.ends_with(SWITCH));
        let load = self.cell.cell.load.to_string();
        others.fold(load, |words, (name, value)| format!("{words} {name} {}", plain(value)))
    }

    /// Whether the drive's own cache is on, where that is a setting.
    fn cache_is_on(&self) -> Option<bool> {
        let mut settings = self.cell.cell.settings.iter();
        let (_, value) = settings.find(|(name, _)| name.ends_with(SWITCH))?;
        match value {
            toml::Value::Boolean(is_on) => Some(*is_on),
            toml::Value::String(word) => Some(word == "on"),
            _ => None,
        }
    }
}

fn chart(pairs: &[Pair<'_>]) -> Chart {
    let several = distinct(pairs.iter().map(|pair| pair.cell.cell.load.to_string())).len() > 1;
    let name = |pair: &Pair<'_>| match several {
        true => format!("{}: {}", pair.of, pair.cell.cell.load),
        false => pair.of.clone(),
    };
    let comparison = Comparison {
        title: "Requests a second, without a flush and with one".to_owned(),
        note: "medians of the rounds, with their interval".to_owned(),
        series: vec![Entry::new("without", 7), Entry::new("with", 0)],
        rows: pairs.iter().map(|pair| (name(pair), pair.bars.map(Some).to_vec())).collect(),
        scale: Scale::Linear(Unit::Count),
    };
    comparison.draw()
}

/// What a drive with this connection is.
fn drive(pairs: &[&Pair<'_>]) -> Vec<String> {
    let with = |is_on: bool| pairs.iter().find(|pair| pair.cache_is_on() == Some(is_on));
    let (Some(on), Some(off)) = (with(true), with(false)) else {
        return pairs.iter().map(|pair| alone(pair)).collect();
    };
    let able = on.loose.max(off.loose);
    let rates = format!(
        "{} stable writes a second with the drive's cache on, {} with it off, {} without flushes",
        number(on.stable),
        number(off.stable),
        number(able)
    );
    let off_left = off.stable / able.max(1e-9);
    let judgement = match (off_left, on.left()) {
        (off_left, _) if off_left >= PROTECTED && off.stable > on.stable / FREE => {
            "protected against power loss (or behind something that is): leave its cache off, then \
             flushes cost nothing"
        }
        (off_left, _) if off_left >= PROTECTED => {
            "flushes cost nothing either way: it, or a cache above it, is protected"
        }
        (off_left, on_left) if off_left <= WAITS && on_left >= FREE => {
            "flushes end above the drive: fast with the drive's cache on, but what that cache holds \
             dies with the power; with it off each write waits for the medium"
        }
        (off_left, _) if off_left <= WAITS => {
            "not protected against power loss: each stable write waits for the medium"
        }
        _ => "between the two: `headpond witness probe`, and a cut, tell more",
    };
    vec![format!("{judgement} ({rates})")]
}

/// What one pair alone can say.
fn alone(pair: &Pair<'_>) -> String {
    let judgement = match pair.left() {
        left if left >= FREE => {
            "a flush has nothing to do: what is written is protected, or somebody answers flushes \
             and does nothing; switch the drive's cache off and see whether the rate stays"
        }
        left if left <= WAITS => {
            "each flush waits for the medium: what is written is not protected"
        }
        _ => "a flush costs something: a command of its own, or a cache that is partly protected",
    };
    format!(
        "{}: {}/s of {}/s are left ({}): {judgement}",
        pair.cell.cell.load,
        number(pair.stable),
        number(pair.loose),
        percent(pair.left())
    )
}
