//! Setting, replacing or removing the stripe journal of an array.
//!
//! 1. an empty journal, which belongs to no array yet, is written to the new device; 2. the array
//!    is shut down cleanly, so that no record of the old journal is live; 3. one event names the
//!    new one, and the array is assembled again with it. After a cut before that event the array
//!    has the old journal, after it the new one, and in both cases it was shut down cleanly.
//!
//! **Not here**: stopping the layers above, and assembling the array (`volume`).

use headpond_block::{BlockDevice, DeviceError};
use thiserror::Error;

use super::Array;
use crate::create::{CreateError, JournalOptions, Occupied, create_journal};
use crate::journal::JournalWhen;
use crate::superblock::{ArrayRecord, JournalRecord};

/// Of a journal that has no records.
const FIRST_EPOCH: u64 = 1;

/// Why an array keeps the journal that it has.
#[derive(Debug, Error)]
pub enum JournalError {
    #[error("array `{array}` has no parity: a stripe journal is only for levels with parity")]
    NoParity { array: String },
    #[error(
        "array `{array}` has no intent bitmap, which a journal for degraded operation requires; \
         have the journal used always"
    )]
    NoBitmap { array: String },
    #[error("array `{array}` is being reshaped to more members; wait for that")]
    Growing { array: String },
    #[error(
        "array `{array}` has stripes that are torn until they are written, or can be read: a clean \
         shutdown is not possible"
    )]
    Torn { array: String },
    #[error("array `{array}` has no stripe journal")]
    None { array: String },
    #[error(
        "array `{array}` is degraded, and without a stripe journal its write hole would be open: \
         set another journal, or rebuild onto a spare first"
    )]
    Exposed { array: String },
    #[error("{device}: is already the stripe journal of array `{array}`")]
    Known { array: String, device: String },
    #[error(transparent)]
    Create(#[from] CreateError),
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl Array {
    /// Whether the array may have another journal, or none.
    ///
    /// # Errors
    /// What speaks against it.
    pub fn consider_journal_change(&self, when: Option<JournalWhen>) -> Result<(), JournalError> {
        self.check_writable()?;
        let array = || self.name.to_string();
        if self.layout.parity_strips() == 0 {
            return Err(JournalError::NoParity { array: array() });
        }
        if self.is_growing() {
            return Err(JournalError::Growing { array: array() });
        }
        if self.has_torn() {
            return Err(JournalError::Torn { array: array() });
        }
        match when {
            Some(JournalWhen::Degraded) if self.intents.is_none() => {
                Err(JournalError::NoBitmap { array: array() })
            }
            None if self.recorder.record().journal.is_none() => {
                Err(JournalError::None { array: array() })
            }
            None if self.members.is_degraded() => Err(JournalError::Exposed { array: array() }),
            _ => Ok(()),
        }
    }

    /// Writes an empty journal to a device that the array does not have yet. One left by a change
    /// of journals that was cut is reused.
    ///
    /// # Errors
    /// Before anything is written: what speaks against it. After that: the device's.
    pub async fn make_journal(
        &self,
        device: &dyn BlockDevice,
        new: JournalOptions,
        occupied: Occupied,
    ) -> Result<(), JournalError> {
        self.consider_journal_change(Some(new.when))?;
        let is_in_use = |journal: std::rc::Rc<super::Journal>| journal.name() == device.name();
        if self.journal().is_some_and(is_in_use) {
            let (array, device) = (self.name.to_string(), device.name().to_string());
            return Err(JournalError::Known { array, device });
        }
        // Should it be the one that is lost, the members are to know that it is.
        self.settle().await;
        self.check_intact()?;
        let is_left_over = super::read_journal_label(device).await?;
        let is_left_over = is_left_over.is_ok_and(|label| label.array == self.uuid());
        let occupied = if is_left_over { Occupied::Overwrite } else { occupied };
        let journal = Some(named(new));
        let record = ArrayRecord { journal, ..self.recorder.record().clone() };
        Ok(create_journal(device, &record, occupied).await?)
    }

    /// Shuts the array down cleanly, and records its new journal; it is to be assembled again with
    /// that.
    ///
    /// # Errors
    /// What speaks against it, before anything is written; or where the array has lost too many
    /// members, or a stripe is torn, when it is stopped.
    pub async fn change_journal(&self, to: Option<JournalOptions>) -> Result<(), JournalError> {
        self.consider_journal_change(to.map(|new| new.when))?;
        self.stop().await?;
        if self.has_torn() {
            // By a write in progress: then it has not shut down cleanly.
            return Err(JournalError::Torn { array: self.name.to_string() });
        }
        Ok(self.change_record(|record| record.journal = to.map(named)).await?)
    }
}

fn named(JournalOptions { uuid, when }: JournalOptions) -> JournalRecord {
    JournalRecord { uuid, when, epoch: FIRST_EPOCH, guarded: 0, is_lost: false }
}
