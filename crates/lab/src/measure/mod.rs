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
mod in_process;
mod place;
mod precondition;
mod probe;
mod stop;
mod virtual_time;

pub use course::{Course, CourseError, Watcher, check_fio, check_settings};
pub use estimate::{Estimate, FILL_MB_PER_S, estimate};
pub use fio::{Fio, FioError};
pub use place::{PlaceError, check as check_places};
pub use probe::{ModelTime, model_time};
pub use stop::Stop;
pub use virtual_time::VirtualError;
