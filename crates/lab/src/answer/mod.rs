//! What was found out: the answers to the questions of a plan.
//!
//! **Invariants**: a sentence says only what the rounds can carry; where they cannot tell, it says
//! that.

mod beside;
mod curves;
mod limits;
mod map;
mod passes;
mod rating;
mod sync;
mod table;
mod versus;

pub use curves::Curve;
pub(crate) use curves::named as name_of;
pub use rating::Rate;

use crate::plan::{Question, one_ms};
use crate::results::{CellResult, Results, Summary};
use crate::statistics::Spread;
use headpond_report::{Chart, Compared, Grid, Table};
use serde::Serialize;
use serde_json::Value;

/// What was found out.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    pub title: String,
    /// The conclusions, the most important first.
    pub sentences: Vec<String>,
    #[serde(skip)]
    pub tables: Vec<Table>,
    #[serde(skip)]
    pub grids: Vec<(String, Grid)>,
    #[serde(skip)]
    pub charts: Vec<Chart>,
    /// The same in figures.
    pub facts: Value,
}

impl Question {
    fn answer(&self, results: &Results) -> Answer {
        match self {
            Self::Curves { budgets_ms } => curves::answer(results, budgets_ms),
            Self::Versus { axis, first, second, budgets_ms } => {
                versus::answer(results, axis, [first, second], budgets_ms)
            }
            Self::Rating => rating::answer(results),
            Self::Map { axis, without, with } => map::answer(results, axis, without, with),
            Self::Sync => sync::answer(results),
            Self::Limits => limits::answer(results),
            Self::Passes => passes::answer(results),
            Self::Beside => beside::answer(results),
            Self::Table => table::answer(results),
        }
    }
}

/// The answers to the plan's questions; where it has none, what can be said of any matrix.
pub fn answers(results: &Results) -> Vec<Answer> {
    let usual = [Question::Curves { budgets_ms: one_ms() }];
    let questions = match results.plan.questions.is_empty() {
        true => &usual[..],
        false => &results.plan.questions[..],
    };
    questions.iter().map(|question| question.answer(results)).collect()
}

impl Answer {
    fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            sentences: Vec::new(),
            tables: Vec::new(),
            grids: Vec::new(),
            charts: Vec::new(),
            facts: Value::Null,
        }
    }

    /// As plain text.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        for sentence in &self.sentences {
            text += &format!("  - {sentence}\n");
        }
        for table in &self.tables {
            text += &format!("\n{}", table.render());
        }
        for (title, grid) in &self.grids {
            text += &format!("\n{title}\n{}", grid.render());
        }
        text
    }
}

/// The values that there are: where the user put two targets in the place of a plan's, those.
fn actual(results: &Results, axis: &str, values: [&str; 2]) -> [String; 2] {
    let targets = &results.plan.targets;
    let is_there = |value: &str| targets.iter().any(|target| target.name == value);
    match (axis, &targets[..]) {
        ("target", [one, other]) if !values.iter().all(|value| is_there(value)) => {
            [one.name.clone(), other.name.clone()]
        }
        _ => values.map(str::to_owned),
    }
}

/// What a comparison along an axis leaves the same: the target and the settings, without the axis.
fn group(results: &Results, axis: &str, cell: &CellResult) -> String {
    let plan = &results.plan;
    let mut cell = cell.cell.clone();
    cell.settings.remove(axis);
    let is_named = axis != "target" && plan.targets.len() > 1;
    let target = is_named.then(|| plan.targets[cell.target].name.clone());
    let settings = Some(cell.settings_text()).filter(|text| !text.is_empty());
    target.into_iter().chain(settings).collect::<Vec<_>>().join(", ")
}

/// A median as a bar, with its interval.
fn compared(spread: &Spread) -> Compared {
    let span = spread.interval.map(|interval| (interval.from, interval.to));
    Compared { value: spread.median, span }
}

/// Milliseconds as people say them.
fn ms(ms: f64) -> String {
    headpond_report::duration((ms * 1e6) as u64)
}

/// A latency of all requests of a cell; where it is a bound, it says so.
pub(crate) fn all_within(summary: &Summary, figure_ms: f64) -> String {
    let sign = if summary.all_is_at_most { AT_MOST } else { "" };
    format!("{sign}{}", ms(figure_ms))
}

/// Stands before bounds.
const AT_MOST: &str = "≤ ";

/// The values in the order in which they were met, each once.
fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}
