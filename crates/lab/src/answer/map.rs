//! Where a cache pays, and where it does not.

use super::{Answer, actual, distinct, group};
use crate::plan::Sync;
use crate::results::{CellResult, Results, Summary};
use headpond_report::{Grid, Tone, factor, percent};
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
        let (grid, gains) = sheet.grid(&mut facts);
        let of_all = |count: usize| percent(count as f64 / gains.len().max(1) as f64);
        let pays = gains.iter().filter(|&&gain| gain > 1.0 + WORTH).count();
        let hurts = gains.iter().filter(|&&gain| gain < 1.0 / (1.0 + WORTH)).count();
        answer.sentences.push(format!(
            "{name}: cache in {} of the cells (it gains over 5 %), go past it in {} (it costs over \
             5 %)",
            of_all(pays),
            of_all(hurts)
        ));
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
    /// The map, and what the cache gains in each of its cells; each is noted among the facts.
    fn grid(&self, facts: &mut Vec<Value>) -> (Grid, Vec<f64>) {
        let sizes = distinct(self.without.iter().map(|(cell, _)| cell.cell.load.bs));
        let columns = distinct(self.without.iter().map(|(cell, _)| cell.cell.load.parallel()));
        let mut gains = Vec::new();
        let rows = sizes.into_iter().map(|bs| {
            let cells = columns.iter().map(|parallel| {
                let find = |cells: &[&(&CellResult, Summary)]| {
                    let is_it = |cell: &CellResult| {
                        cell.cell.load.bs == bs && &cell.cell.load.parallel() == parallel
                    };
                    cells.iter().find(|(cell, _)| is_it(cell)).map(|(_, it)| it.mb_per_s.median)
                };
                let (Some(without), Some(with)) = (find(&self.without), find(&self.with)) else {
                    return (String::new(), Tone::Blank);
                };
                if without <= 0.0 {
                    return (String::new(), Tone::Blank);
                }
                let gain = with / without;
                gains.push(gain);
                facts.push(json!({ "of": self.group, "kind": self.kind, "bs": bs,
                    "parallel": parallel, "without_mb_per_s": without, "with_mb_per_s": with,
                    "gain": gain }));
                (factor(gain), Tone::of_factor(gain, WORTH))
            });
            (bs.to_string(), cells.collect::<Vec<_>>())
        });
        let rows = rows.collect();
        let (corner, note) = ("request, jobs x depth".into(), String::new());
        (Grid { corner, columns, rows, note }, gains)
    }
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
