//! What the caller tells of targets, and how it reaches them.

use super::{ExportFacts, VolumeFacts};
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
