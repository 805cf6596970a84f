//! What is measured, as a file that people write.
//!
//! A plan names *targets* and a *matrix*. Each combination of a target, of settings and of one
//! value of each list of the matrix is a [`Cell`]; each cell is measured in rounds, and the
//! *answers* say what the figures are for.

mod cell;
mod error;
mod matrix;
mod processors;
mod question;
mod rounds;
mod sweep;
mod target;

pub use cell::{Cell, CellLoad, Sync};
pub(crate) use cell::{beside, is_own, own, plain};
pub use error::PlanError;
pub use matrix::{Beside, Flushes, Matrix};
pub(crate) use processors::processors;
pub use question::Question;
pub(crate) use question::one_ms;
pub use rounds::{Limits, Precondition, RoundPlan, Steady};
pub use sweep::Sweep;
pub(crate) use target::ARRAYS;
pub use target::{ArrayOf, Kind, Loader, Target};

use headpond_whatif::ArrivalProcess;
use matrix::check_parallel;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A whole plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub name: String,
    /// What the measurement is to tell, in a sentence.
    #[serde(default)]
    pub question: String,
    #[serde(rename = "target")]
    pub targets: Vec<Target>,
    pub matrix: Matrix,
    /// Jobs that run beside those of every cell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
    #[serde(default)]
    pub precondition: Precondition,
    #[serde(default)]
    pub rounds: RoundPlan,
    /// What differs where the target is a model, in which nothing else disturbs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_on_models: Option<RoundPlan>,
    /// Whether the whole matrix is measured round after round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Sweep>,
    #[serde(default)]
    pub limits: Limits,
    #[serde(default)]
    pub order: Order,
    /// Of the order and of what is drawn in models.
    #[serde(default = "seed")]
    pub seed: u64,
    /// How far apart the requests of an open loop come.
    #[serde(default)]
    pub arrivals: ArrivalProcess,
    #[serde(default, rename = "answer", skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<Question>,
}

/// In which order cells are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Drawn from the seed, so that what drifts with time is no effect of the matrix.
    #[default]
    Random,
    AsWritten,
}

/// The setting of a volume that says what its cache is for.
const MODE: &str = "cache.mode";
/// Its values; in the first one there is no cache.
const MODES: [&str; 6] =
    ["pass-through", "write-through", "write-around", "write-invalidate", WRITE_BACK, "write-only"];
const WRITE_BACK: &str = "write-back";

/// What a setting of a served volume is now; nothing where it has none of that name.
pub type SettingOf<'a> = &'a dyn Fn(&Target, &str) -> Option<String>;

/// The mode in which a cache is compared with none: as it is, unless it is off.
fn mode_with(mode: &str) -> String {
    if mode == MODES[0] { WRITE_BACK.to_owned() } else { mode.to_owned() }
}

const NOT_RATED: &str = "it is not rated, since nothing says which array it is: array = { raid = ..., \
                         drives = ..., drive = \"a model\" }, or --array";

const FIO_AND_FLUSHES: &str = "fio measures a write and a flush, and never both together: percentiles of both are \
                               bounds that hold whichever belongs to which, and where several are in \
                               flight it sends a flush before its write is answered; load = \
                               \"in-process\" waits for the write and measures both";

const fn seed() -> u64 {
    1
}

impl Plan {
    /// Reads and checks a plan.
    ///
    /// # Errors
    /// The first mistake, with the field it is in.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let plan: Self = toml::from_str(text)?;
        plan.check()?;
        Ok(plan)
    }

    /// Other targets in the place of the plan's own. Settings that one of these does not have are
    /// left as they are; their names.
    ///
    /// # Errors
    /// Where one of them cannot be measured so, or the plan's questions have no answer on them.
    pub fn with_targets(
        self,
        targets: Vec<Target>,
        setting_of: SettingOf<'_>,
    ) -> Result<(Self, Vec<String>), PlanError> {
        let mut plan = Self { targets, ..self };
        let has = |name: &str| plan.targets.iter().all(|target| target.has(name, setting_of));
        let (kept, left_out): (BTreeMap<_, _>, _) =
            plan.matrix.settings.clone().into_iter().partition(|(name, _)| has(name));
        plan.matrix.settings = kept;
        plan.take_arrays_there_are();
        plan.compare_modes(setting_of);
        plan.check()?;
        let left_out: BTreeMap<_, _> = left_out;
        Ok((plan, left_out.into_keys().collect()))
    }

    /// As many arrays at once as every target has.
    fn take_arrays_there_are(&mut self) {
        let is_real = |target: &&Target| target.kind() != Kind::Machine;
        let counts = self.targets.iter().filter(is_real).map(|target| 1 + target.alike.len());
        let Some(most) = counts.min() else { return };
        if let Some(values) = self.matrix.settings.get_mut(ARRAYS) {
            let is_there =
                |value: &toml::Value| value.as_integer().is_none_or(|count| count <= most as i64);
            values.retain(is_there);
        }
    }

    /// What the plan compares by two targets is compared by two modes of the cache, where there is
    /// one volume that has them.
    fn compare_modes(&mut self, setting_of: SettingOf<'_>) {
        let [target] = &self.targets[..] else { return };
        let Some(mode) = target.volume.as_ref().and(setting_of(target, MODE)) else { return };
        let by_targets = self.questions.iter().find_map(Question::targets);
        let Some(names) = by_targets.filter(|_| !self.matrix.settings.contains_key(MODE)) else {
            return;
        };
        let modes = match names.iter().all(|name| MODES.contains(&name.as_str())) {
            true => names,
            false => [MODES[0].to_owned(), mode_with(&mode)],
        };
        self.questions.iter_mut().for_each(|question| question.take_modes(MODE, &modes));
        let values = modes.into_iter().map(toml::Value::String).collect();
        self.matrix.settings.insert(MODE.to_owned(), values);
    }

    fn check(&self) -> Result<(), PlanError> {
        if self.targets.is_empty() {
            return Err(PlanError::field("target", "there is none", "name what is measured"));
        }
        let mut names: Vec<_> = self.targets.iter().map(|target| &target.name).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let cause = format!("{:?} is there twice", pair[0]);
            return Err(PlanError::field("target.name", cause, "each needs its own name"));
        }
        self.matrix.check()?;
        self.beside.iter().try_for_each(Beside::check)?;
        self.check_names()?;
        let passes = self.rounds.pass || self.rounds_on_models.is_some_and(|rounds| rounds.pass);
        if passes && !self.beside.is_empty() {
            let cause = "jobs beside others have no pass of their own";
            return Err(PlanError::field("beside", cause, "give rounds a length in seconds"));
        }
        self.rounds.check("rounds")?;
        if let Some(rounds) = &self.rounds_on_models {
            rounds.check("rounds_on_models")?;
        }
        self.limits.check()?;
        self.check_sweep()?;
        self.targets.iter().try_for_each(|target| target.check(&self.matrix))?;
        let in_flight = |cell: &Cell| (cell.load.jobs, cell.load.depth);
        let most = self.cells().iter().map(in_flight).max_by_key(|it| it.0.saturating_mul(it.1));
        most.map_or(Ok(()), |(jobs, depth)| check_parallel("matrix", jobs, depth))?;
        self.questions.iter().try_for_each(|question| question.check(self))
    }

    fn check_sweep(&self) -> Result<(), PlanError> {
        let Some(sweep) = &self.sweep else { return Ok(()) };
        if self.limits.mean_ms.is_some() {
            let cause = "in a sweep every round has all cells, and none is left out";
            return Err(PlanError::field("limits.mean_ms", cause, "leave it or the sweep out"));
        }
        let loads: Vec<_> = self.cells().into_iter().map(|cell| cell.load).collect();
        sweep.check(&loads)
    }

    /// Names stand in the files of other programs.
    fn check_names(&self) -> Result<(), PlanError> {
        let targets = self.targets.iter().flat_map(|target| {
            let words = [Some(target.name.clone()), target.place(), target.cpus.clone()];
            words.into_iter().flatten().chain(target.alike.clone())
        });
        let beside = self.beside.iter().map(|beside| beside.name.clone());
        let all = targets.chain(beside).chain([self.name.clone()]);
        match all.into_iter().find(|name| name.is_empty() || name.chars().any(char::is_control)) {
            None => Ok(()),
            Some(name) => {
                let cause = format!("{name:?} is empty or has a control character");
                Err(PlanError::field("name", cause, "write it in letters"))
            }
        }
    }

    /// All cells, in the order of the file.
    pub fn cells(&self) -> Vec<Cell> {
        let is_per_drive = self.matrix.is_per_drive();
        let mut cells = Vec::new();
        for (target, it) in self.targets.iter().enumerate() {
            for settings in self.matrix.settings() {
                let drives = if is_per_drive { it.drives(&settings) } else { 1 };
                for load in self.matrix.loads(drives) {
                    let (number, settings) = (cells.len(), settings.clone());
                    cells.push(Cell { number, target, settings, load });
                }
            }
        }
        cells
    }

    /// What its figures do not mean, where somebody would take them for it.
    pub fn caveats(&self) -> Vec<String> {
        let cells = self.cells();
        let is_flushed = |index: usize| {
            cells.iter().any(|cell| cell.target == index && cell.load.sync.is_flushed())
        };
        let by_fio = |target: &Target| !target.is_in_process(&self.matrix);
        let all = self.targets.iter().enumerate();
        let named = all.filter(|(index, target)| by_fio(target) && is_flushed(*index));
        let flushed = named.map(|(_, target)| format!("{}: {FIO_AND_FLUSHES}", target.name));
        let unrated = self.unrated().map(|target| format!("{}: {NOT_RATED}", target.name));
        flushed.chain(unrated).collect()
    }

    /// Targets that are to be rated, of which nothing says what is to be expected.
    fn unrated(&self) -> impl Iterator<Item = &Target> {
        let rates = self.questions.contains(&Question::Rating);
        let is_unknown =
            |target: &&Target| target.kind() != Kind::Machine && target.array.is_none();
        self.targets.iter().filter(move |_| rates).filter(is_unknown)
    }

    /// The rounds of a target.
    pub fn rounds_of(&self, target: &Target) -> &RoundPlan {
        match (&self.rounds_on_models, target.kind()) {
            (Some(rounds), Kind::Machine) => rounds,
            _ => &self.rounds,
        }
    }
}

#[cfg(test)]
mod tests;
