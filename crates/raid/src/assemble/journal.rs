//! The stripe journal that an array should have, and the one that it is given.

use std::rc::Rc;

use headpond_block::{BlockDevice, Runtime};

use super::{AssembleError, AssembleOptions, judge::Verdict};
use crate::array::{Contents, Guarded, Journal, Walk, read_journal_label};
use crate::journal::label::{Label, RING_OFFSET};
use crate::journal::{bytes_min, record_bytes_max};
use crate::layout::Layout;
use crate::superblock::{JournalRecord, RecordedState};

/// What there is of the journal.
pub(super) enum Found {
    /// The array has none.
    NotWanted,
    /// It cannot be used, and why.
    Lost(String),
    Usable {
        device: Rc<dyn BlockDevice>,
        label: Label,
        /// Records that the members may lack.
        records: u64,
    },
}

/// Looks for the journal of the array.
///
/// # Errors
/// Where another one was given, or an older image of it.
pub(super) async fn find(
    verdict: &Verdict,
    layout: &Layout,
    options: &AssembleOptions,
) -> Result<Found, AssembleError> {
    let record = &verdict.record;
    let name = || record.name.clone();
    let Some(journal) = record.journal else { return Ok(Found::NotWanted) };
    let Some(device) = options.journal.clone() else {
        return Ok(Found::Lost("it is not attached".to_owned()));
    };
    let label = match read_journal_label(&*device).await {
        Ok(Ok(label)) => label,
        Ok(Err(cause)) => return Ok(Found::Lost(format!("{}: {cause}", device.name()))),
        Err(error) => return Ok(Found::Lost(error.to_string())),
    };
    if label.journal != journal.uuid || label.array != record.uuid {
        let (device, found) = (device.name().clone(), label.journal);
        let expected = journal.uuid;
        return Err(AssembleError::OtherJournal { device, name: name(), expected, found });
    }
    let is_in_step = (journal.epoch..=journal.epoch + 1).contains(&label.epoch);
    if !journal.is_lost && !is_in_step {
        let (device, found, expected) = (device.name().clone(), label.epoch, journal.epoch);
        return Err(AssembleError::StaleJournal { device, found, expected });
    }
    let end = RING_OFFSET + label.ring_bytes;
    if end > device.geometry().size_bytes || end < bytes_min(layout) {
        return Ok(Found::Lost(format!("{}: its size does not fit; was it cut?", device.name())));
    }
    let replays = !journal.is_lost && record.state != RecordedState::Clean;
    match survey(&device, &label, layout, replays).await {
        Ok(records) => Ok(Found::Usable { device, label, records }),
        Err(reason) => Ok(Found::Lost(reason)),
    }
}

async fn survey(
    device: &Rc<dyn BlockDevice>,
    label: &Label,
    layout: &Layout,
    replays: bool,
) -> Result<u64, String> {
    if !replays {
        return Ok(0);
    }
    match Walk::new(Rc::clone(device), label.clone()).survey(layout).await {
        Ok(Contents::Whole { records }) => Ok(records),
        Ok(Contents::Damaged) => {
            Err(format!("{}: records that were written are damaged or missing", device.name()))
        }
        Err(error) => Err(error.to_string()),
    }
}

impl Found {
    /// Whether whatever may be torn of a group is in the journal, and that is there.
    pub(super) fn covers(&self, journal: Option<&JournalRecord>, group: usize) -> bool {
        journal.is_some_and(|journal| {
            // Without it, such a group was not written to any more.
            journal.guards(group) && (journal.is_lost || matches!(self, Found::Usable { .. }))
        })
    }

    /// Why it cannot be used.
    pub(super) fn reason(&self) -> Option<&str> {
        match self {
            Found::Lost(reason) => Some(reason),
            Found::NotWanted | Found::Usable { .. } => None,
        }
    }

    /// Records that the members may lack.
    pub(super) fn records(&self) -> u64 {
        match self {
            Found::Usable { records, .. } => *records,
            Found::NotWanted | Found::Lost(_) => 0,
        }
    }

    /// The journal at work.
    pub(super) fn guarded(
        self,
        runtime: &Runtime,
        layout: &Layout,
        options: &AssembleOptions,
        (is_sound, vouched): (bool, u128),
    ) -> Guarded {
        let deadline = options.tuning.patience.and_then(|patience| patience.deadline);
        let journal = match self {
            Found::Usable { device, label, .. } => {
                let most = record_bytes_max(layout);
                Some(Rc::new(Journal::new(runtime.clone(), device, label, most, deadline)))
            }
            Found::NotWanted | Found::Lost(_) => None,
        };
        Guarded { journal, is_sound, vouched }
    }
}
