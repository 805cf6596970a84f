//! Carries a plan out.
//!
//! 1. [`Course::create`] makes the folder of results, [`Course::resume`] finds what is there.
//! 2. [`Course::run`] measures cell after cell, or the whole matrix round after round, models side
//!    by side, and stores each round as it ends. 3. [`crate::Results`] reads the folder.
//!
//! **Invariants**
//! - A cell is done when its last line says so; one that was interrupted is measured anew.
//! - A file is never made longer than it was, and what is no block device is never taken for one;
//!   what may be overwritten is for the caller to ask.

mod bound;
mod course;
mod fio;
mod folder;
mod in_process;
mod place;
mod precondition;
mod steady;
mod stop;
mod virtual_time;

pub use course::{Course, CourseError, Watcher};
pub use fio::{Fio, FioError};
pub use folder::{Ending, Folder, FolderError, Line};
pub use place::{PlaceError, check as check_places};
pub use steady::Drift;
pub use stop::Stop;

use crate::plan::{Cell, Kind, Plan};
use headpond_block::{BlockDevice, LocalFuture, Runtime};
use headpond_uring::Ring;
use std::collections::BTreeSet;
use std::rc::Rc;

/// What only the surroundings know: served volumes, and how exports are spoken to.
pub trait Surroundings: Sync {
    /// Where fio finds a served volume.
    ///
    /// # Errors
    /// A sentence for the user.
    fn export_of(&self, volume: &str) -> Result<String, String>;

    /// An NBD export, by its address, as a device on a ring; there are surroundings with none.
    ///
    /// # Errors
    /// A sentence for the user.
    fn connect<'a>(
        &'a self,
        export: &'a str,
        _ring: &'a Ring,
        _runtime: &'a Runtime,
    ) -> LocalFuture<'a, Result<Connected, String>> {
        Box::pin(async move { Err(format!("{export} cannot be connected to from here")) })
    }

    /// What a setting of a served volume is now.
    ///
    /// # Errors
    /// A sentence for the user.
    fn setting_of(&self, volume: &str, name: &str) -> Result<String, String>;

    /// Changes a setting of a served volume.
    ///
    /// # Errors
    /// A sentence for the user.
    fn set(&self, volume: &str, name: &str, value: &str) -> Result<(), String>;
}

/// An export that was connected to.
pub struct Connected {
    pub device: Rc<dyn BlockDevice>,
    /// Whether its server takes discards.
    pub takes_discards: bool,
}

/// The seconds that a plan takes at least, and at most, on the clock of this world.
pub fn estimate(plan: &Plan) -> (f64, f64) {
    let of = |cell: &Cell, rounds: u32| {
        let target = &plan.targets[cell.target];
        let round = plan.rounds_of(target);
        match target.kind() {
            // Virtual time passes as it likes.
            Kind::Machine => 0.0,
            // How long a pass takes is what is asked.
            _ if round.pass => 0.0,
            _ => {
                let phases = cell.load.rw.split('+').count() as f64;
                f64::from(rounds) * round.seconds * phases
            }
        }
    };
    let cells = plan.cells();
    let rounds = |cell: &Cell| plan.rounds_of(&plan.targets[cell.target]);
    let least: f64 = cells.iter().map(|cell| of(cell, rounds(cell).fewest())).sum();
    let most: f64 = cells.iter().map(|cell| of(cell, rounds(cell).most())).sum();
    let cooling = cooling(plan);
    (least + cooling, most + cooling)
}

/// The seconds between what is measured together.
fn cooling(plan: &Plan) -> f64 {
    let batches = course::batches(plan, &BTreeSet::new());
    let targets = batches.iter().map(|batch| &plan.targets[batch[0].target]);
    let real = targets.filter(|target| target.kind() != Kind::Machine);
    real.map(|target| plan.rounds_of(target).cool_down_seconds).sum()
}
