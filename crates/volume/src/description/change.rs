//! A description with changed settings, whether the volume is served or not.

use super::settings::{ChangesByOwner, SettingError};
use super::{Description, DescriptionError};

/// Settings that a description cannot have.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error(
        "{volume} has no cache: only settings of the array can be changed, such as merge-wait-us"
    )]
    NoCache { volume: String },
    #[error("{volume} has no tier: there is nothing to set")]
    NoTier { volume: String },
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error(transparent)]
    Description(#[from] DescriptionError),
}

impl Description {
    /// This description with changes, all of them or none.
    ///
    /// # Errors
    /// At the first that is not possible.
    pub fn with_changes(&self, of: &ChangesByOwner) -> Result<Self, SettingsError> {
        let mut changed = self.clone();
        let volume = || self.name.clone();
        if !of.cache.is_empty() {
            let cache = changed.cache.as_mut();
            let cache = cache.ok_or_else(|| SettingsError::NoCache { volume: volume() })?;
            cache.settings = cache.settings.with_all(&of.cache)?;
        }
        if of.cache.iter().any(|change| change.concerns("cleaning")) {
            changed.check_order()?;
        }
        if !of.tier.is_empty() {
            let tier = changed.tier.as_mut();
            let tier = tier.ok_or_else(|| SettingsError::NoTier { volume: volume() })?;
            tier.settings = tier.settings.with_all(&of.tier)?;
        }
        changed.array = changed.array.with_all(&of.array)?;
        Ok(changed)
    }
}
