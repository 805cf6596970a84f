//! Finding the stripe journal of an array among the devices given.

use std::rc::Rc;

use headpond_block::{BlockDevice, DeviceError, Runtime};

use super::{AssembleError, AssembleOptions, judge::JudgedMembers};
use crate::array::{Contents, Guarded, Journal, Walk, read_journal_label};
use crate::deadlines::in_time;
use crate::journal::label::{Label, LabelError, RING_OFFSET};
use crate::journal::{bytes_min, record_bytes_max};
use crate::layout::Layout;
use crate::superblock::{JournalRecord, RecordedState};

/// The label on a device, or why there is none.
type Looked = Result<Result<Label, LabelError>, DeviceError>;

/// The state of the journal.
pub(super) enum FoundJournal {
    /// The array has none.
    NotWanted,
    /// It cannot be used, for this reason.
    Lost(String),
    Usable {
        device: Rc<dyn BlockDevice>,
        label: Label,
        /// Records that the members may lack.
        records: u64,
    },
}

/// Finds the journal of the array.
///
/// # Errors
/// Where another one was given, or an older image of it.
pub(super) async fn find(
    runtime: &Runtime,
    verdict: &JudgedMembers,
    layout: &Layout,
    options: &AssembleOptions,
) -> Result<FoundJournal, AssembleError> {
    let record = &verdict.record;
    let name = || record.name.clone();
    let Some(journal) = record.journal else { return Ok(FoundJournal::NotWanted) };
    let Some((device, label)) = named_or_first(runtime, options, &journal).await else {
        return Ok(FoundJournal::Lost("it is not attached".to_owned()));
    };
    let label = match label {
        Ok(Ok(label)) => label,
        Ok(Err(cause)) => return Ok(FoundJournal::Lost(format!("{}: {cause}", device.name()))),
        Err(error) => return Ok(FoundJournal::Lost(error.to_string())),
    };
    let is_of_array = label.array == record.uuid;
    let is_needless = journal.is_lost || record.state == RecordedState::Clean;
    let is_exchanged = options.journals.len() > 1;
    if is_of_array && label.journal != journal.uuid && (is_needless || is_exchanged) {
        // Left by a change of journals that was cut. The named one is missing, and its records
        // count as lost.
        let reason = format!("{}: a change of journals was not completed", device.name());
        return Ok(FoundJournal::Lost(reason));
    }
    if label.journal != journal.uuid || !is_of_array {
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
        return Ok(FoundJournal::Lost(format!(
            "{}: its size does not match; was it truncated?",
            device.name()
        )));
    }
    let replays = !journal.is_lost && record.state != RecordedState::Clean;
    match survey(&device, &label, layout, replays).await {
        Ok(records) => Ok(FoundJournal::Usable { device, label, records }),
        Err(reason) => Ok(FoundJournal::Lost(reason)),
    }
}

/// The one that the superblocks name, or else the first one given. One that hangs counts as
/// unreadable.
async fn named_or_first(
    runtime: &Runtime,
    options: &AssembleOptions,
    journal: &JournalRecord,
) -> Option<(Rc<dyn BlockDevice>, Looked)> {
    let deadline = options.tuning.deadlines.and_then(|deadlines| deadlines.deadline);
    let mut first = None;
    for device in &options.journals {
        let looked_at = Rc::clone(device);
        let look = async move { read_journal_label(&*looked_at).await };
        let label = in_time(runtime, device.name(), deadline, look).await;
        let is_named = matches!(&label, Ok(Ok(label)) if label.journal == journal.uuid);
        let looked = (Rc::clone(device), label);
        if is_named {
            return Some(looked);
        }
        first = first.or(Some(looked));
    }
    first
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

impl FoundJournal {
    /// Whether all stripes of a group that may be torn are in the journal, and it is present.
    pub(super) fn covers(&self, journal: Option<&JournalRecord>, group: usize) -> bool {
        journal.is_some_and(|journal| {
            // Without it, such a group was not written any more.
            journal.guards(group)
                && (journal.is_lost || matches!(self, FoundJournal::Usable { .. }))
        })
    }

    /// Why it cannot be used.
    pub(super) fn reason(&self) -> Option<&str> {
        match self {
            FoundJournal::Lost(reason) => Some(reason),
            FoundJournal::NotWanted | FoundJournal::Usable { .. } => None,
        }
    }

    /// Records that the members may lack.
    pub(super) fn records(&self) -> u64 {
        match self {
            FoundJournal::Usable { records, .. } => *records,
            FoundJournal::NotWanted | FoundJournal::Lost(_) => 0,
        }
    }

    /// The journal at work.
    pub(super) fn guarded(
        self,
        runtime: &Runtime,
        layout: &Layout,
        options: &AssembleOptions,
        (is_sound, verified): (bool, u128),
    ) -> Guarded {
        let deadline = options.tuning.deadlines.and_then(|deadlines| deadlines.deadline);
        let journal = match self {
            FoundJournal::Usable { device, label, .. } => {
                let most = record_bytes_max(layout);
                let (runtime, history) = (runtime.clone(), &options.tuning.history);
                Some(Rc::new(Journal::new(runtime, device, label, most, deadline, history)))
            }
            FoundJournal::NotWanted | FoundJournal::Lost(_) => None,
        };
        Guarded { journal, is_sound, verified }
    }
}
