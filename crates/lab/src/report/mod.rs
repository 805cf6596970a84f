//! Results for reading: text, a page, CSV, JSON.

mod csv;
mod over_time;
mod page;
mod text;

pub use csv::csv;
pub use page::page;
pub use text::text;

use crate::answer::answers;
use crate::results::Results;
use serde_json::{Value, json};

/// Everything in figures.
pub fn json(results: &Results) -> Value {
    let cells = results.cells.iter().map(|cell| {
        let settings = cell.cell.settings.iter();
        let settings = settings.map(|(name, value)| json!({ "name": name, "value": value }));
        json!({
            "cell": cell.cell.number,
            "title": cell.cell.title(&results.plan),
            "target": results.plan.targets[cell.cell.target].name,
            "settings": settings.collect::<Vec<_>>(),
            "load": cell.cell.load,
            "ending": cell.ending,
            "summary": cell.summary(&results.plan),
        })
    });
    json!({
        "plan": results.plan.name,
        "question": results.plan.question,
        "environment": results.environment,
        "answers": answers(results),
        "cells": cells.collect::<Vec<_>>(),
    })
}
