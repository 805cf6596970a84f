//! An array against what such an array is expected to do.

use super::curves::named;
use super::{Answer, Rows};
use crate::plan::{ArrayOf, Sync};
use crate::results::{CellResult, Results, Summary};
use headpond_report::{factor, number};
use headpond_whatif::plan::{Assumptions, DriveFigures, Plan, Shape, Speeds};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;

/// Less at once is no stream.
const STREAM_BYTES: u64 = 1 << 20;

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
}

pub(super) fn answer(results: &Results) -> Answer {
    let mut answer = Answer::new("Against what is expected of such an array");
    let (mut rows, mut facts) = (Vec::new(), Vec::new());
    let mut known: BTreeMap<String, Result<DriveFigures, String>> = BTreeMap::new();
    for (cell, summary) in results.measured() {
        let target = &results.plan.targets[cell.cell.target];
        let Some(array) = target.array_of(&cell.cell.settings) else { continue };
        let drive = known
            .entry(array.drive.clone())
            .or_insert_with(|| DriveFigures::find(&array.drive).map_err(|error| error.to_string()));
        let expected = match drive {
            Ok(drive) => expected(&array, drive, cell),
            Err(error) => {
                answer.sentences.push(format!("{}: {error}", target.name));
                continue;
            }
        };
        let Some((expected, unit)) = expected else { continue };
        let arrays = f64::from(target.arrays(&cell.cell.settings));
        let found = measured(cell, &summary) / arrays;
        let mark = rate(found / expected);
        rows.push(vec![
            named(results, cell),
            cell.cell.load.to_string(),
            mark.mark().to_owned(),
            format!("{} {unit}", number(found)),
            format!("{} {unit}", number(expected)),
            factor(found / expected),
        ]);
        facts.push(json!({ "cell": cell.cell.number, "measured": found, "expected": expected,
                           "unit": unit, "mark": mark }));
        if !matches!(mark, Rate::Expected | Rate::Above) {
            answer.sentences.push(format!(
                "{}, {}: {} of what is expected ({})",
                named(results, cell),
                cell.cell.load,
                headpond_report::percent(found / expected),
                mark.mark()
            ));
        }
    }
    if rows.is_empty() {
        answer.sentences.push("no target says which array it is: give it array = {...}".into());
    } else if answer.sentences.is_empty() {
        answer.sentences.push("everything is as expected, or above".into());
    }
    let columns = vec!["array", "load", "mark", "each", "expected", "of it"];
    answer.tables.push(Rows { columns, words: 3, rows });
    answer.facts = json!({ "cells": facts });
    answer
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
    let groups = array.groups.unwrap_or(Shape::usual_groups(array.raid, array.drives));
    let shape = Shape {
        level: array.raid,
        members: array.drives,
        groups,
        spread: None,
        strip_bytes: array.strip.map_or(64 << 10, |strip| strip.bytes() as u32),
    };
    let depth = cell.cell.load.in_flight();
    let given =
        Assumptions { depths: vec![depth], rebuild_share: 0.5, replace_hours: 24.0, cache: None };
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
