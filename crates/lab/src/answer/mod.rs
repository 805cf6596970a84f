//! What the figures are for: the questions of a plan, and what was found out.
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

use crate::plan::{Plan, PlanError};
use crate::results::{CellResult, Results, Summary};
use crate::statistics::Spread;
use headpond_report::{Chart, Compared, Grid, Table};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A question of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Question {
    /// How latency grows with throughput: where it bends, and what is carried within a budget.
    Curves {
        #[serde(default = "one_ms")]
        budgets_ms: Vec<f64>,
    },
    /// Which of two values of an axis wins where.
    Versus {
        /// `target`, a setting, or a list of the matrix.
        axis: String,
        first: String,
        second: String,
        #[serde(default = "one_ms")]
        budgets_ms: Vec<f64>,
    },
    /// How it compares with what such an array is expected to do.
    Rating,
    /// Where a cache pays, by size and depth of requests.
    Map { axis: String, without: String, with: String },
    /// What it costs to make writes stable, and what that says of the drive.
    Sync,
    /// How fast a cache fills and how fast it is cleaned.
    Limits,
    /// Each round as a point of time.
    Passes,
    /// What jobs beside each other get.
    Beside,
    /// Requests a second by size and kind.
    Table,
}

fn one_ms() -> Vec<f64> {
    vec![1.0]
}

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
    pub(crate) fn check(&self, plan: &Plan) -> Result<(), PlanError> {
        let (axis, values) = match self {
            Self::Versus { axis, first, second, .. } => (axis, [first, second]),
            Self::Map { axis, without, with } => (axis, [without, with]),
            _ => return Ok(()),
        };
        if has_other_targets(plan, axis) && plan.targets.len() != 2 {
            let cause = format!("it compares {} with {}", values[0], values[1]);
            let way_out = "name two targets (--target A --target B); a volume that is served can be \
                           compared with itself by its mode";
            return Err(PlanError::field("answer", cause, way_out));
        }
        let cells = plan.cells();
        for value in values {
            let is_there = cells.iter().any(|cell| cell.axis(plan, axis).as_ref() == Some(value));
            if !is_there && !has_other_targets(plan, axis) {
                let cause = format!("no cell has {axis} {value}");
                let way_out = "compare values that are in the matrix or among the targets";
                return Err(PlanError::field("answer", cause, way_out));
            }
        }
        Ok(())
    }

    /// The targets that it compares, where it does that.
    pub(crate) fn targets(&self) -> Option<[String; 2]> {
        match self {
            Self::Versus { axis, first: one, second: other, .. }
            | Self::Map { axis, without: one, with: other }
                if axis == "target" =>
            {
                Some([one.clone(), other.clone()])
            }
            _ => None,
        }
    }

    /// Compares two values of a setting in the place of two targets.
    pub(crate) fn take_modes(&mut self, setting: &str, values: &[String; 2]) {
        if self.targets().is_none() {
            return;
        }
        if let Self::Versus { axis, first: one, second: other, .. }
        | Self::Map { axis, without: one, with: other } = self
        {
            setting.clone_into(axis);
            [*one, *other] = values.clone();
        }
    }

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

/// Where a builtin plan is carried out on targets of the user's, those have names of their own.
fn has_other_targets(plan: &Plan, axis: &str) -> bool {
    axis == "target" && plan.targets.iter().all(|target| target.machine.is_none())
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
