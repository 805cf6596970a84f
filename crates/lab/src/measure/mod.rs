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
mod estimate;
mod fio;
mod folder;
mod in_process;
mod place;
mod precondition;
mod probe;
mod steady;
mod stop;
mod virtual_time;

pub use course::{Course, CourseError, Watcher, check_fio, check_settings};
pub use estimate::{Estimate, FILL_MB_PER_S, estimate};
pub use fio::{Fio, FioError};
pub use folder::{Ending, Folder, FolderError, Line};
pub use place::{PlaceError, check as check_places};
pub use probe::{ModelTime, model_time};
pub use steady::Drift;
pub use stop::Stop;
pub use virtual_time::VirtualError;

use crate::environment::{ExportFacts, VolumeFacts};
use headpond_block::{BlockDevice, LocalFuture, Runtime};
use headpond_uring::Ring;
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

    /// What a served volume is made of, and what it is set to; nothing where nobody knows.
    fn facts_of(&self, _volume: &str) -> Option<VolumeFacts> {
        None
    }

    /// What the server of an export says of it; nothing where it cannot be asked.
    fn facts_of_export(&self, _export: &str) -> Option<ExportFacts> {
        None
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
