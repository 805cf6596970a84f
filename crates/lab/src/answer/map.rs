//! Where a cache pays, and where it does not.

use super::{Answer, actual, distinct, group};
use crate::plan::Sync;
use crate::results::{CellResult, Results, Summary};
use crate::statistics::{RankComparison, adjust, differ};
use headpond_report::{Grid, Tone, factor, percent};
use headpond_volume::Size;
use serde_json::{Value, json};

/// A cache that gains less than this is not worth having.
const WORTH: f64 = 0.05;

/// Cells that belong on one map: of one target with the same settings, asked for one kind of thing.
struct Sheet<'a> {
    group: String,
    kind: String,
    without: Vec<&'a (&'a CellResult, Summary)>,
    with: Vec<&'a (&'a CellResult, Summary)>,
}

/// One cell with the cache beside the same without, in 10^6 bytes a second.
struct Gain {
    bs: Size,
    parallel: String,
    without: f64,
    with: f64,
    verdict: RankComparison,
}

pub(super) fn answer(results: &Results, axis: &str, without: &str, with: &str) -> Answer {
    let mut answer = Answer::new("Where does the cache pay?");
    let values = actual(results, axis, [without, with]);
    let measured: Vec<_> = results.measured().collect();
    let mut facts = Vec::new();
    for sheet in sheets(results, axis, &values, &measured) {
        let name = match sheet.group.is_empty() {
            true => sheet.kind.clone(),
            false => format!("{}, {}", sheet.group, sheet.kind),
        };
        let gains = sheet.gains(results);
        facts.extend(gains.iter().map(|gain| gain.fact(&sheet)));
        let grid = sheet.grid(&gains);
        answer.sentences.push(format!("{name}: {}", score(&gains)));
        answer.grids.push((format!("{name}: throughput with the cache, of that without"), grid));
    }
    if answer.grids.is_empty() {
        let [without, with] = values;
        answer.sentences.push(format!("nothing was measured with both {without} and {with}"));
    }
    answer.facts = json!({ "cells": facts });
    answer
}

/// One for each group and kind of which both values were measured.
fn sheets<'a>(
    results: &Results,
    axis: &str,
    [without, with]: &[String; 2],
    measured: &'a [(&'a CellResult, Summary)],
) -> Vec<Sheet<'a>> {
    let key = |cell: &CellResult| (group(results, axis, cell), kind(cell, axis));
    let of = |wanted: &String, key_of: &(String, String)| {
        let is_it = |(cell, _): &&(&CellResult, Summary)| {
            cell.cell.axis(&results.plan, axis).as_ref() == Some(wanted) && &key(cell) == key_of
        };
        measured.iter().filter(is_it).collect::<Vec<_>>()
    };
    let sheets = distinct(measured.iter().map(|(cell, _)| key(cell))).into_iter().map(|key| {
        let (without, with) = (of(without, &key), of(with, &key));
        Sheet { group: key.0, kind: key.1, without, with }
    });
    sheets.filter(|sheet| !sheet.without.is_empty() && !sheet.with.is_empty()).collect()
}

impl Sheet<'_> {
    /// What the cache gains in each of its cells.
    fn gains(&self, results: &Results) -> Vec<Gain> {
        let gain = |(one, without): &&(&CellResult, Summary)| {
            let load = &one.cell.load;
            let is_it = |other: &CellResult| {
                other.cell.load.bs == load.bs && other.cell.load.parallel() == load.parallel()
            };
            let (other, with) = self.with.iter().find(|(cell, _)| is_it(cell))?;
            let verdict = differ(&one.merits(&results.plan), &other.merits(&results.plan))?;
            let (without, with) = (without.mb_per_s.median, with.mb_per_s.median);
            let (bs, parallel) = (load.bs, load.parallel());
            (without > 0.0).then_some(Gain { bs, parallel, without, with, verdict })
        };
        let mut gains: Vec<_> = self.without.iter().filter_map(gain).collect();
        adjust(&mut gains.iter_mut().map(|gain| &mut gain.verdict).collect::<Vec<_>>());
        gains
    }

    fn grid(&self, gains: &[Gain]) -> Grid {
        let sizes = distinct(self.without.iter().map(|(cell, _)| cell.cell.load.bs));
        let columns = distinct(self.without.iter().map(|(cell, _)| cell.cell.load.parallel()));
        let rows = sizes.into_iter().map(|bs| {
            let cells = columns.iter().map(|parallel| {
                let found = gains.iter().find(|it| it.bs == bs && &it.parallel == parallel);
                found.map_or((String::new(), Tone::Blank), |gain| {
                    let tone = match gain.pays() {
                        Some(_) => Tone::of_factor(gain.factor(), WORTH),
                        None => Tone::Even,
                    };
                    (factor(gain.factor()), tone)
                })
            });
            (bs.to_string(), cells.collect::<Vec<_>>())
        });
        let rows = rows.collect();
        let (corner, note) = ("request, jobs x depth".into(), String::new());
        Grid { corner, columns, rows, note }
    }
}

impl Gain {
    fn factor(&self) -> f64 {
        self.with / self.without
    }

    /// Whether the cache pays or costs; nothing where that is little, or may be chance.
    fn pays(&self) -> Option<bool> {
        let is_much = !(1.0 / (1.0 + WORTH)..=1.0 + WORTH).contains(&self.factor());
        self.verdict.winner_is_second().filter(|_| is_much)
    }

    fn fact(&self, sheet: &Sheet<'_>) -> Value {
        json!({ "of": sheet.group, "kind": sheet.kind, "bs": self.bs, "parallel": self.parallel,
            "without_mb_per_s": self.without, "with_mb_per_s": self.with, "gain": self.factor(),
            "chance": self.verdict.chance, "pays": self.pays() })
    }
}

fn score(gains: &[Gain]) -> String {
    let count = |wanted| gains.iter().filter(|gain| gain.pays() == wanted).count();
    let of_all = |count: usize| percent(count as f64 / gains.len().max(1) as f64);
    let short = gains.iter().any(|gain| gain.verdict.is_short_of_rounds());
    let why = if short { " (with so few rounds no difference can be shown)" } else { "" };
    format!(
        "cache in {} of the cells (it gains over 5 %), go past it in {} (it costs over 5 %); {} do \
         not differ by more than chance or 5 %{why}",
        of_all(count(Some(true))),
        of_all(count(Some(false))),
        of_all(count(None))
    )
}

/// What is done, without how large and how much at once, and without what is compared.
fn kind(cell: &CellResult, axis: &str) -> String {
    let load = &cell.cell.load;
    let rw = (axis != "rw").then(|| load.rw.clone());
    let mix = load.mix.filter(|_| axis != "mix").map(|mix| format!("{mix}/{}", 100 - mix));
    let sync = Some(load.sync).filter(|&sync| axis != "sync" && sync != Sync::None);
    let words = [rw, mix, sync.map(|sync| sync.to_string())];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}
