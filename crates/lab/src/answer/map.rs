//! Where a cache pays, and where it does not.

use super::{Answer, actual, distinct};
use crate::results::{CellResult, Results, Summary};
use headpond_report::{Grid, Tone, factor, percent};
use serde_json::json;

/// A cache that gains less than this is not worth having.
const WORTH: f64 = 0.05;

pub(super) fn answer(results: &Results, axis: &str, without: &str, with: &str) -> Answer {
    let mut answer = Answer::new("Where does the cache pay?");
    let plan = &results.plan;
    let measured: Vec<_> = results.measured().collect();
    let value = |cell: &CellResult| cell.cell.axis(plan, axis);
    let of = |wanted: &str| -> Vec<&(&CellResult, Summary)> {
        measured.iter().filter(|(cell, _)| value(cell).as_deref() == Some(wanted)).collect()
    };
    let [without, with] = actual(results, axis, [without, with]);
    let (plain, cached) = (of(&without), of(&with));
    let mut facts = Vec::new();
    for word in distinct(plain.iter().map(|(cell, _)| kind(cell))) {
        let rows = distinct(plain.iter().map(|(cell, _)| cell.cell.load.bs));
        let columns = distinct(plain.iter().map(|(cell, _)| cell.cell.load.parallel()));
        let ratio = |bs, parallel: &String| {
            let find = |cells: &[&(&CellResult, Summary)]| {
                let is_it = |cell: &CellResult| {
                    let load = &cell.cell.load;
                    kind(cell) == word && load.bs == bs && &load.parallel() == parallel
                };
                cells.iter().find(|(cell, _)| is_it(cell)).map(|(_, it)| it.mb_per_s.median)
            };
            let (plain, cached) = (find(&plain)?, find(&cached)?);
            (plain > 0.0).then(|| (plain, cached, cached / plain))
        };
        let mut grid_rows = Vec::new();
        let (mut pays, mut hurts, mut all) = (0, 0, 0);
        for &bs in &rows {
            let cells = columns.iter().map(|parallel| match ratio(bs, parallel) {
                None => (String::new(), Tone::Blank),
                Some((without, with, gain)) => {
                    all += 1;
                    pays += usize::from(gain > 1.0 + WORTH);
                    hurts += usize::from(gain < 1.0 / (1.0 + WORTH));
                    facts.push(json!({ "kind": word, "bs": bs, "parallel": parallel,
                        "without_mb_per_s": without, "with_mb_per_s": with, "gain": gain }));
                    (factor(gain), Tone::of_factor(gain, WORTH))
                }
            });
            grid_rows.push((bs.to_string(), cells.collect::<Vec<_>>()));
        }
        let of_all = |count: usize| percent(count as f64 / f64::from(all.max(1)));
        answer.sentences.push(format!(
            "{word}: cache in {} of the cells (it gains over 5 %), go past it in {} (it costs over \
             5 %)",
            of_all(pays),
            of_all(hurts)
        ));
        let grid = Grid { corner: "request, jobs x depth".into(), columns, rows: grid_rows };
        answer.grids.push((format!("{word}: throughput with the cache, of that without"), grid));
    }
    answer.facts = json!({ "cells": facts });
    answer
}

/// What is done, without how large and how much at once.
fn kind(cell: &CellResult) -> String {
    let load = &cell.cell.load;
    let mix = load.mix.map(|mix| format!(" {mix}/{}", 100 - mix)).unwrap_or_default();
    format!("{}{mix}", load.rw)
}
