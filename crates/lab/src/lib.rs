//! The laboratory: measures whatever is a block device, or the model of one, as a careful article
//! would, and says what the figures mean.
//!
//! 1. A [`Plan`] says what is measured: targets, a matrix of loads and settings, rounds, and the
//!    questions behind them; [`builtin`] has plans for the questions that people ask.
//! 2. [`Course`] carries it out, by fio on what is real and in virtual time on models, and stores
//!    each round in a folder. 3. [`Results`] reads the folder; [`answers`] answers the plan's
//!    questions with `statistics`; [`report`] puts all of it on a page, into CSV and into JSON.
//!    [`compare`] puts two folders side by side.
//!
//! **Invariants**
//! - What was measured is kept as it came: every figure of a report can be made again from the
//!   folder.
//! - Nothing is written to that the caller has not allowed.
//!
//! **Not here**: models and machines (`headpond-sim`, `headpond-whatif`), serving.

#![forbid(unsafe_code)]

mod answer;
pub mod builtin;
mod compare;
mod environment;
mod measure;
mod plan;
pub mod report;
mod results;
mod statistics;

pub use answer::{Answer, Curve, Rate, answers};
pub use compare::{Compared, compare};
pub use environment::{
    Connected, Environment, ExportFacts, SettingFact, Surroundings, TargetFacts, VolumeFacts,
};
pub use measure::{
    Course, CourseError, Estimate, FILL_MB_PER_S, Fio, FioError, ModelTime, PlaceError, Stop,
    VirtualError, Watcher, check_fio, check_places, check_settings, estimate, model_time,
};
pub use plan::{
    ArrayOf, Beside, Cell, CellLoad, Flushes, Kind, Limits, Loader, Matrix, Order, Plan, PlanError,
    Precondition, Question, RoundPlan, SettingOf, Steady, Sweep, Sync, Target,
};
pub use results::{
    CellResult, Ending, Folder, FolderError, Latencies, Line, Results, StoredRound, Summary, iops,
};
pub use statistics::{Drift, Interval, Knee, Pattern, RankComparison, Spread};
