//! Adding, replacing and removing the stripe journal of an array of an open volume.
//!
//! 1. the new device is made an empty journal; 2. the description names it as well, and is saved;
//!    3. requests are quiesced; 4. the array is shut down cleanly and records the new one; 5. the
//!    description names only that, and is saved; 6. the array is reassembled; 7. the label of the
//!    old journal is erased, where that is present.
//!
//! **Invariants**: the saved description names the journal that the superblocks name. Names left
//! by a power cut are corrected when the description is saved again.

use crate::assembly::cores::Core;
use crate::change::members::ChangeMembersError;
use crate::description::{CoreDescription, JournalDescription};
use crate::volume::Volume;
use headpond_block::{BlockDevice, BufferPool};
use headpond_raid::{JournalOptions, JournalWhen, Occupied, erase_unlisted};
use std::rc::Rc;
use uuid::Uuid;

/// A device to become a stripe journal.
pub struct NewJournal {
    /// Its name in the description.
    pub word: String,
    pub device: Rc<dyn BlockDevice>,
    /// Random, and never used before.
    pub uuid: Uuid,
    /// `None`: as the one before, or else while degraded.
    pub when: Option<JournalWhen>,
    /// Whether what is on it may be overwritten.
    pub occupied: Occupied,
}

impl Volume {
    /// Sets the stripe journal of a core's array, under load.
    ///
    /// # Errors
    /// Refusals leave the array as it was. Where it could not be reassembled, the volume does not
    /// serve that core until it is opened again.
    pub async fn set_journal(
        &self,
        core: Option<&str>,
        new: NewJournal,
        pool: BufferPool,
    ) -> Result<(), ChangeMembersError> {
        let _turn = self.begin_change()?;
        let core = self.core(core)?;
        self.check_put_together()?;
        let before = core.array.status().journal;
        let when = new.when.or(before.map(|before| before.when)).unwrap_or_default();
        let device = self.ownership.guard(new.device);
        let options = JournalOptions { uuid: new.uuid, when };
        core.array.make_journal(&*device, options, new.occupied).await?;
        let described = JournalDescription::of(new.word, when);
        let kept = self.description();
        self.core_description(&core, |core| core.name_as_well(&described));
        self.kept.tell(&self.description()).await;
        let to = Some((options, described, Rc::clone(&device)));
        let changed = self.change_journal(&core, to, pool).await;
        if let Err(Unchanged::AsBefore(_)) = &changed {
            let before = kept.cores().find(|(uuid, _)| *uuid == core.array.uuid());
            let before = before.and_then(|(_, core)| core.journal.clone());
            self.core_description(&core, |core| core.journal = before);
            self.kept.tell(&self.description()).await;
            // Where that fails, its label names an array that does not record it.
            erase_unlisted(&self.runtime, device).await;
        }
        Ok(changed?)
    }

    /// Removes the stripe journal of a core's array, under load.
    ///
    /// # Errors
    /// As there.
    pub async fn drop_journal(
        &self,
        core: Option<&str>,
        pool: BufferPool,
    ) -> Result<(), ChangeMembersError> {
        let _turn = self.begin_change()?;
        let core = self.core(core)?;
        self.check_put_together()?;
        core.array.consider_journal_change(None)?;
        Ok(self.change_journal(&core, None, pool).await?)
    }

    async fn change_journal(
        &self,
        core: &Rc<Core>,
        to: Option<(JournalOptions, JournalDescription, Rc<dyn BlockDevice>)>,
        pool: BufferPool,
    ) -> Result<(), Unchanged> {
        let as_before = |error| Unchanged::AsBefore(error);
        self.clean_replayed().await.map_err(|error| as_before(error.into()))?;
        let cores = self.cores();
        let quiesced = self.quiesce(&cores, core).await;
        let before = core.array.journal_device();
        let (options, described, device) = match to {
            Some((options, described, device)) => (Some(options), Some(described), Some(device)),
            None => (None, None, None),
        };
        if let Err(error) = self.record_journal(core, options).await {
            return Err(match core.array.is_stopped() {
                true => Unchanged::InDoubt(error),
                false => Unchanged::AsBefore(error),
            });
        }
        self.core_description(core, |core| core.journal = described);
        self.kept.tell(&self.description()).await;
        let again = self.put_together_again(&quiesced, device, pool).await;
        again.map_err(Unchanged::InDoubt)?;
        drop(quiesced);
        if let Some(before) = before {
            // Where that fails, its label names an array that does not record it; one that hangs
            // delays nothing.
            erase_unlisted(&self.runtime, before).await;
        }
        Ok(())
    }

    async fn record_journal(
        &self,
        core: &Core,
        options: Option<JournalOptions>,
    ) -> Result<(), ChangeMembersError> {
        self.check_cleaned()?;
        Ok(core.array.change_journal(options).await?)
    }

    /// Corrects the journals that the description names to those in use, after a power cut; returns
    /// whether it changed.
    pub(crate) fn settle_journals(&self) -> bool {
        let mut has_changed = false;
        for (core, _) in self.cores().iter() {
            let has_journal = core.array.status().journal.is_some();
            let device = core.array.journal_device();
            let used = device.as_ref().map(|device| device.name().as_str());
            let is_used = |word: &str| Some(self.kept.name_of(word).as_str()) == used;
            has_changed |= self
                .core_description(core, |described| described.settle_journal(has_journal, is_used));
        }
        has_changed
    }
}

/// Why an array does not have another journal.
enum Unchanged {
    /// It has the one that it had, and so have its superblocks.
    AsBefore(ChangeMembersError),
    /// Its superblocks may name either.
    InDoubt(ChangeMembersError),
}

impl From<Unchanged> for ChangeMembersError {
    fn from(unchanged: Unchanged) -> Self {
        let (Unchanged::AsBefore(error) | Unchanged::InDoubt(error)) = unchanged;
        error
    }
}

impl CoreDescription {
    /// Names a journal that is about to take the place of the one there is.
    fn name_as_well(&mut self, new: &JournalDescription) {
        match &mut self.journal {
            Some(journal) => journal.successor = Some(new.device.clone()),
            None => self.journal = Some(new.clone()),
        }
    }

    fn settle_journal(&mut self, has_journal: bool, is_used: impl Fn(&str) -> bool) -> bool {
        if !has_journal {
            return self.journal.take().is_some();
        }
        let Some(journal) = &mut self.journal else { return false };
        let Some(successor) = journal.successor.take() else { return false };
        if is_used(&successor) {
            journal.device = successor;
        } else if !is_used(&journal.device) {
            // Both are missing, and either may be reconnected.
            journal.successor = Some(successor);
            return false;
        }
        true
    }
}
