//! Which disk is the stripe journal: commands exchange it, and a cut may come in the middle.

use super::{Absent, Controls, Machine};
use headpond_block::{BlockDevice, Runtime};
use headpond_raid::journal::label::{self, LABEL_BYTES, Label};
use headpond_raid::superblock::{COPY_OFFSETS, SUPERBLOCK_BYTES, Superblock, decode};
use headpond_sim::{Medium, Sim};
use std::rc::Rc;

impl Machine {
    /// The one that the newest superblock names of those that are there; before there is any, the
    /// first.
    pub(super) fn journal_disk(&self, absent: &Absent) -> Option<&Rc<Medium>> {
        let members = self.belonging().enumerate();
        let present = members.filter(|(index, _)| !absent.members.contains(index));
        let superblocks = present.filter_map(|(_, medium)| superblock_on(medium?));
        let newest = superblocks.max_by_key(|superblock| superblock.array.event_count);
        let named = newest.and_then(|newest| newest.array.journal);
        let is_named = |medium: &&Rc<Medium>| {
            named.is_some_and(|it| label_on(medium).is_some_and(|label| label.journal == it.uuid))
        };
        self.journals.iter().find(is_named).or(self.journals.first())
    }

    /// One that is not in use, as a device that nothing has happened to; `None` without journals.
    pub fn other_journal(
        &self,
        used: Option<&str>,
        runtime: &Runtime,
        sim: &Sim,
    ) -> Option<Rc<dyn BlockDevice>> {
        let medium = self.journals.iter().find(|medium| Some(medium.name().as_str()) != used)?;
        Some(self.device(medium, &Controls::default().journal, super::FAST, runtime, sim))
    }
}

fn superblock_on(medium: &Medium) -> Option<Superblock> {
    let copy = |offset| decode(&medium.peek(offset, SUPERBLOCK_BYTES)).ok();
    COPY_OFFSETS.into_iter().filter_map(copy).max_by_key(|copy| copy.sequence)
}

fn label_on(medium: &Medium) -> Option<Label> {
    let copy = |offset| label::decode(&medium.peek(offset, LABEL_BYTES)).ok();
    label::COPY_OFFSETS.into_iter().filter_map(copy).max_by_key(|copy| copy.sequence)
}
