//! An array against what such an array is expected to do.

use super::curves::named;
use super::{Answer, distinct, group};
use crate::plan::{ArrayOf, Sync};
use crate::results::{CellResult, Results, Summary};
use headpond_report::{Grid, Table, Tone, factor, number, percent};
use headpond_volume::BackgroundRate;
use headpond_whatif::plan::{Assumptions, DriveFigures, Plan, Shape, Speeds};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;

/// Less at once is no stream.
const STREAM_BYTES: u64 = 1 << 20;
const MARKS: &str = "++ a tenth above or more, + as expected, +/- about a quarter below, - half or less, \
                     -- a quarter or less, --- a tenth or less";
/// An array that does so much of what it does alone is not slowed down by others.
const UNDISTURBED: f64 = 0.9;

/// The marks of published comparisons of controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Rate {
    /// A tenth above what is expected, or more.
    #[serde(rename = "++")]
    Above,
    /// As expected.
    #[serde(rename = "+")]
    Expected,
    /// About a quarter below.
    #[serde(rename = "+/-")]
    Below,
    /// Half or less.
    #[serde(rename = "-")]
    Half,
    /// A quarter or less.
    #[serde(rename = "--")]
    Quarter,
    /// A tenth or less.
    #[serde(rename = "---")]
    Tenth,
}

/// What is measured, of what is expected, as a mark.
///
/// The sources name 10 % above, "about 25 % below", half, a quarter and a tenth; between those that
/// are named the middle decides.
pub(super) fn rate(of_expected: f64) -> Rate {
    match of_expected {
        share if share >= 1.10 => Rate::Above,
        share if share > 0.875 => Rate::Expected,
        share if share > 0.5 => Rate::Below,
        share if share > 0.25 => Rate::Half,
        share if share > 0.10 => Rate::Quarter,
        _ => Rate::Tenth,
    }
}

impl Rate {
    pub fn mark(self) -> &'static str {
        match self {
            Self::Above => "++",
            Self::Expected => "+",
            Self::Below => "+/-",
            Self::Half => "-",
            Self::Quarter => "--",
            Self::Tenth => "---",
        }
    }

    fn tone(self) -> Tone {
        match self {
            Self::Above => Tone::Good(2),
            Self::Expected => Tone::Good(1),
            Self::Below => Tone::Bad(1),
            Self::Half => Tone::Bad(2),
            Self::Quarter => Tone::Bad(3),
            Self::Tenth => Tone::Bad(4),
        }
    }
}

/// A cell beside what is expected of it.
struct Rated<'a> {
    cell: &'a CellResult,
    /// The array and its settings.
    of: String,
    /// Arrays that worked at the same time.
    arrays: u16,
    /// Of each of them.
    found: f64,
    expected: f64,
    unit: &'static str,
}

impl Rated<'_> {
    fn share(&self) -> f64 {
        self.found / self.expected
    }

    fn mark(&self) -> Rate {
        rate(self.share())
    }

    fn load(&self) -> String {
        self.cell.cell.load.to_string()
    }
}

pub(super) fn answer(results: &Results) -> Answer {
    let mut answer = Answer::new("Against what is expected of such an array");
    let (rated, unknown) = rated(results);
    answer.sentences.extend(unknown);
    answer.sentences.extend(rated.iter().filter_map(falls_short));
    if rated.is_empty() {
        answer.sentences.push("no target says which array it is: give it array = {...}".into());
        return answer;
    }
    if answer.sentences.is_empty() {
        answer.sentences.push("everything is as expected, or above".into());
    }
    answer.sentences.extend(at_once(results, &rated));
    answer.grids.push(("measured, of what is expected".to_owned(), grid(&rated)));
    let rows = rated.iter().map(|it| {
        vec![
            it.of.clone(),
            it.load(),
            it.mark().mark().to_owned(),
            format!("{} {}", number(it.found), it.unit),
            format!("{} {}", number(it.expected), it.unit),
            factor(it.share()),
        ]
    });
    let columns = ["array", "load", "mark", "each", "expected", "of it"];
    answer.tables.push(Table::of(&columns, 3, rows));
    let facts = rated.iter().map(|it| {
        json!({ "cell": it.cell.cell.number, "of": it.of, "request": it.cell.cell.load.request(),
                "arrays": it.arrays, "measured": it.found, "expected": it.expected,
                "unit": it.unit, "mark": it.mark() })
    });
    answer.facts = json!({ "cells": facts.collect::<Vec<_>>() });
    answer
}

/// What can be rated, and a sentence for each array whose drive is not known.
fn rated(results: &Results) -> (Vec<Rated<'_>>, Vec<String>) {
    let (mut rated, mut unknown) = (Vec::new(), Vec::new());
    let mut known: BTreeMap<String, Result<DriveFigures, String>> = BTreeMap::new();
    for (cell, summary) in results.measured() {
        let target = &results.plan.targets[cell.cell.target];
        let Some(array) = target.array_of(&cell.cell.settings) else { continue };
        let drive = known
            .entry(array.drive.clone())
            .or_insert_with(|| DriveFigures::find(&array.drive).map_err(|error| error.to_string()));
        match drive {
            Ok(drive) => {
                let Some((expected, unit)) = expected(&array, drive, cell) else { continue };
                let arrays = target.arrays(&cell.cell.settings);
                let found = measured(cell, &summary) / f64::from(arrays);
                let of = named(results, cell);
                rated.push(Rated { cell, of, arrays, found, expected, unit });
            }
            Err(error) => unknown.push(format!("{}: {error}", target.name)),
        }
    }
    (rated, distinct(unknown))
}

fn falls_short(it: &Rated<'_>) -> Option<String> {
    let (load, share, mark) = (it.load(), percent(it.share()), it.mark());
    let falls_short = !matches!(mark, Rate::Expected | Rate::Above);
    falls_short.then(|| format!("{}, {load}: {share} of what is expected ({})", it.of, mark.mark()))
}

/// How many arrays at once get what one gets alone, where several were measured.
fn at_once(results: &Results, rated: &[Rated<'_>]) -> Vec<String> {
    let most = rated.iter().map(|it| it.arrays).max().unwrap_or(1);
    let of = |it: &Rated<'_>| (group(results, "arrays", it.cell), it.load());
    let alone = |it: &Rated<'_>| {
        let is_it = |other: &&Rated<'_>| other.arrays == 1 && of(other) == of(it);
        rated.iter().find(is_it).map(|other| it.found / other.found)
    };
    let shares: Vec<_> = rated.iter().filter_map(|it| Some((it, alone(it)?))).collect();
    let slowed: Vec<_> = shares.iter().filter(|(_, share)| *share < UNDISTURBED).collect();
    match (shares.iter().any(|(it, _)| it.arrays > 1), slowed.is_empty()) {
        (false, _) => Vec::new(),
        (true, true) => vec![format!("up to {most} arrays at once, each does what it does alone")],
        (true, false) => {
            let sentence = |&&(it, share): &&(&Rated<'_>, f64)| {
                let (load, share) = (it.load(), percent(share));
                format!("{}, {load}: each does {share} of what it does alone", it.of)
            };
            slowed.iter().map(sentence).collect()
        }
    }
}

/// A row for each array, a column for each request.
fn grid(rated: &[Rated<'_>]) -> Grid {
    let requests = distinct(rated.iter().map(|it| it.cell.cell.load.request()));
    let arrays = distinct(rated.iter().map(|it| &it.of));
    let cell = |of: &String, request: &String| {
        let is_it = |it: &&Rated<'_>| &it.of == of && &it.cell.cell.load.request() == request;
        let marked: Vec<_> = rated.iter().filter(is_it).collect();
        let words = marked.iter().map(|it| format!("{} {}", it.mark().mark(), factor(it.share())));
        let worst = marked.iter().min_by(|a, b| a.share().total_cmp(&b.share()));
        let tone = worst.map_or(Tone::Blank, |it| it.mark().tone());
        (words.collect::<Vec<_>>().join(", "), tone)
    };
    let rows = arrays.into_iter().map(|of| {
        (of.clone(), requests.iter().map(|request| cell(of, request)).collect::<Vec<_>>())
    });
    let (corner, rows) = ("array".to_owned(), rows.collect());
    Grid { corner, columns: requests.clone(), rows, note: MARKS.to_owned() }
}

/// What the calculator says of such a cell, and in what.
fn expected(
    array: &ArrayOf,
    drive: &DriveFigures,
    cell: &CellResult,
) -> Option<(f64, &'static str)> {
    let load = &cell.cell.load;
    let bytes = load.bs.bytes();
    let is_comparable = match load.rw.starts_with("rand") {
        true => bytes == 4096,
        false => bytes * u64::from(load.in_flight()) >= STREAM_BYTES,
    };
    if !is_comparable || load.sync != Sync::None || load.rate.is_some() {
        return None;
    }
    let groups = array.groups.unwrap_or(array.raid.usual_groups(array.drives));
    let shape = Shape {
        level: array.raid,
        members: array.drives,
        groups,
        spread: None,
        strip_bytes: array.strip.map_or(64 << 10, |strip| strip.bytes() as u32),
    };
    let depth = cell.cell.load.in_flight();
    let given = Assumptions {
        depths: vec![depth],
        pace: BackgroundRate::default(),
        replace_hours: 24.0,
        cache: None,
    };
    let plan = Plan::of(drive, shape, &given).ok()?;
    let healthy = plan.expected.first()?;
    let speeds: Speeds = healthy.by_depth.first()?.speeds;
    Some(match cell.cell.load.rw.as_str() {
        "randread" => (speeds.random_read_iops, "IOPS"),
        "randwrite" => (speeds.random_write_iops, "IOPS"),
        "read" => (speeds.sequential_read_mb_per_s, "MB/s"),
        "write" => (speeds.sequential_write_mb_per_s, "MB/s"),
        _ => return None,
    })
}

fn measured(cell: &CellResult, summary: &Summary) -> f64 {
    match cell.cell.load.rw.starts_with("rand") {
        true => summary.iops.median,
        false => summary.mb_per_s.median,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_those_of_the_published_tables() {
        let marks = [1.1, 1.0, 0.9, 0.75, 0.5, 0.25, 0.1].map(|share| rate(share).mark());
        assert_eq!(marks, ["++", "+", "+", "+/-", "-", "--", "---"]);
    }
}
