//! Assembling an array from its members, given in any order.
//!
//! 1. every device is inspected (`look`); foreign, duplicate and damaged ones are refused,
//!    unreadable or hung ones are left out; 2. `judge` decides about membership, or that the array
//!    has diverged; 3. missing members must be within the redundancy, and after an unclean shutdown
//!    the parity that replaces them must be valid; 4. members that missed the last superblock get
//!    it, and then the array is recorded as in use; 5. after an unclean shutdown the marked regions
//!    are resynced, except for stripes that the journal replays. Nothing is written before step 4.

mod bitmaps;
mod journal;
mod judge;
mod look;
mod reshape;

use std::ops::Range;
use std::rc::Rc;

use headpond_block::{BlockDevice, DeviceError, DeviceName, Geometry, Runtime};
use thiserror::Error;
use uuid::Uuid;

use crate::array::{
    AbsenceFound, Array, Bitmap, TornParity, Trust, Tuning, UnverifiedParity, find_lost,
};
use crate::layout::{Layout, Role};
use crate::superblock::{DecodeError, RecordedParity, RecordedState, RoleState, Superblock};
use bitmaps::{absence, marked_regions, shared, unsigned, within};
use journal::FoundJournal;
use judge::JudgedMembers;
use look::look_at;
pub use look::{Look, inspect_all, journals_of};

/// Options of assembling an array.
#[derive(Clone)]
pub struct AssembleOptions {
    /// The array that is expected; `None` takes the one that the devices belong to.
    pub uuid: Option<Uuid>,
    pub after_unclean_stop: AfterUncleanStop,
    pub force: Force,
    pub tuning: Tuning,
    /// Devices that may be the stripe journal, the most likely first; the superblocks say which.
    pub journals: Vec<Rc<dyn BlockDevice>>,
}

impl Default for AssembleOptions {
    fn default() -> Self {
        AssembleOptions {
            uuid: None,
            after_unclean_stop: AfterUncleanStop::DistrustParity,
            force: Force::No,
            tuning: Tuning::default(),
            journals: Vec::new(),
        }
    }
}

/// What holds after an unclean shutdown of an array without intent bitmap, or where a log may have
/// been used instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterUncleanStop {
    /// Any stripe may be torn: the parity counts as not initialised, and copies as differing.
    DistrustParity,
    /// The same, but the user of the array knows by itself which copy is correct: they are left as
    /// they are.
    OwnerCompares,
    /// Every stripe that may be torn will be written again with `RECOMPUTE_PARITY`: a log above the
    /// array knows them all.
    LogRecomputes,
}

/// Whether to start a degraded array after an unclean shutdown, whose parity may be torn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    No,
    /// Data that can only be reconstructed is lost where the array was being written, unless other
    /// parity verifies it; refused where that is unknown.
    GiveUp,
    /// Parity is trusted everywhere.
    AcceptParity,
}

/// An assembled array.
pub struct Assembled {
    pub array: Array,
    /// Roles for which no usable device was given.
    pub missing: Vec<Role>,
    /// Devices that were left out because the array has continued without them.
    pub stale: Vec<DeviceName>,
    pub warnings: Vec<Warning>,
}

/// An array that may start, and of which nothing has been written yet.
pub struct Prepared {
    assembled: Assembled,
    beginning: Beginning,
    /// Of the array from which it is being grown.
    former_beginning: Option<Beginning>,
}

/// What is to be done before the array serves.
struct Beginning {
    /// Regions to be resynced.
    marked: Vec<Range<u64>>,
    /// What happens to missing data there.
    unverified: Option<UnverifiedParity>,
    /// The journal has records that the members may lack.
    replays: bool,
    /// With that, nothing is torn any more.
    is_sound: bool,
}

impl Prepared {
    /// Whether it was shut down cleanly.
    pub fn was_clean(&self) -> bool {
        !self.assembled.warnings.contains(&Warning::Unclean)
    }

    /// The array as the layers above see it.
    pub fn geometry(&self) -> &Geometry {
        self.assembled.array.geometry()
    }

    pub fn uuid(&self) -> Uuid {
        self.assembled.array.uuid()
    }

    /// The owner's generation, as last raised.
    pub fn owner_generation(&self) -> u64 {
        self.assembled.array.owner_generation()
    }

    /// Whether the owner stopped without dirty data, right before the array did.
    pub fn is_owner_clean(&self) -> bool {
        self.was_clean() && self.former_beginning.is_none() && self.assembled.array.is_owner_clean()
    }

    /// The open count of the owner, as it reported last; zero if it did not.
    pub fn owner_life(&self) -> u64 {
        self.assembled.array.owner_life()
    }

    /// The cache in front of the array.
    pub fn owner(&self) -> Option<Uuid> {
        self.assembled.array.owner()
    }

    /// Records the array as in use, and resyncs the marked regions.
    ///
    /// # Errors
    /// Those of the members.
    pub async fn begin(self) -> Result<Assembled, AssembleError> {
        let array = &self.assembled.array;
        let begun = self.begin_halves().await;
        begun.map_err(|error| match error.is_gone() && !self.was_clean() {
            // A member was lost just now that is required to recompute parity.
            true => {
                let status = array.status();
                let out = status.members.iter().filter(|it| it.state != RoleState::Active);
                let roles: Vec<Role> = out.map(|it| Role(it.role)).collect();
                AssembleError::DegradedAndUnclean { name: status.name, roles: judge::list(&roles) }
            }
            false => error.into(),
        })?;
        array.resume_reshape().await?;
        Ok(self.assembled)
    }

    async fn begin_halves(&self) -> Result<(), DeviceError> {
        let array = &self.assembled.array;
        if let (Some(former), Some(beginning)) = (array.former(), &self.former_beginning) {
            former.begin(beginning).await?;
        }
        array.begin(&self.beginning).await
    }
}

/// Warnings about an array that was assembled all the same.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Warning {
    #[error("the array was not shut down cleanly")]
    Unclean,
    #[error("{regions} regions that were being written were resynced")]
    Resynchronised { regions: usize },
    #[error("the parity is not valid until the initial sync is complete")]
    ParityUntrusted,
    #[error(
        "the array was degraded and not shut down cleanly; it was started with --force: where it \
         was being written, reads of the {lost} missing members fail unless other parity verifies \
         the data"
    )]
    Forced { lost: usize },
    #[error(
        "the array was degraded and not shut down cleanly; its parity was assumed clean: where it \
         was being written, the data of the {lost} missing members may be wrong"
    )]
    ParityAccepted { lost: usize },
    #[error("{records} records of the stripe journal were replayed")]
    Replayed { records: u64 },
    #[error("the stripe journal is not used: {reason}")]
    JournalLost { reason: String },
    #[error("{cause}: the array was started without this device")]
    Unreadable { cause: DeviceError },
    #[error("{device} is not used: the array has no stripe journal, or was started without it")]
    JournalUnknown { device: DeviceName },
}

/// Why there is no array. Every text names the device, the cause and the way out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AssembleError {
    #[error("no devices were given")]
    NoDevices,
    #[error("{device}: is not a member of a Headpond array; leave it out")]
    Foreign { device: DeviceName },
    #[error("{device}: its superblock cannot be used: {cause}; leave it out to start without it")]
    Unusable { device: DeviceName, cause: DecodeError },
    #[error(
        "{device}: belongs to array `{found}` ({found_uuid}), not to the one being started \
         ({wanted}); attach the right device, or leave this one out"
    )]
    OtherArray { device: DeviceName, found: String, found_uuid: Uuid, wanted: Uuid },
    #[error(
        "{device} and {other} both claim to be {place}: one is a copy of the other; leave one out"
    )]
    Duplicate { device: DeviceName, other: DeviceName, place: String },
    #[error("{device}: contradicts the newer superblock on {newer} about `{field}`; leave it out")]
    Contradiction { device: DeviceName, newer: DeviceName, field: &'static str },
    #[error(
        "{device} was in use without {other}, and the array was also in use without that: each of \
         the two may hold data that the other lacks; leave one of them out to choose"
    )]
    Diverged { device: DeviceName, other: DeviceName },
    #[error(
        "{device}: has {size_bytes} bytes; the array requires {needed_bytes}: was it truncated?"
    )]
    TooSmall { device: DeviceName, size_bytes: u64, needed_bytes: u64 },
    #[error(
        "{device}: has logical blocks of {found} bytes; the array supports up to {allowed}: attach \
         it with smaller ones"
    )]
    LogicalBlock { device: DeviceName, found: u32, allowed: u32 },
    #[error("array `{name}` was never completely created; create it again")]
    Unborn { name: String },
    #[error(
        "array `{name}`: {lost} members are missing in group {group} ({roles}), and the level \
         tolerates {redundancy}; attach them"
    )]
    TooFew { name: String, group: usize, lost: usize, redundancy: usize, roles: String },
    #[error(
        "array `{name}` is degraded and was not shut down cleanly, so the data of the missing \
         members ({roles}) may be wrong; attach them, or start with --force"
    )]
    DegradedAndUnclean { name: String, roles: String },
    #[error(
        "array `{name}` is degraded and was not shut down cleanly, and its stripe journal cannot \
         be used ({reason}), so the data of the missing members ({roles}) may be wrong; attach the \
         journal or the members, or start with --force"
    )]
    DegradedWithoutJournal { name: String, roles: String, reason: String },
    #[error(
        "{device}: is stripe journal {found}, but array `{name}` has {expected}: attach that one, \
         or leave this one out"
    )]
    OtherJournal { device: DeviceName, name: String, expected: Uuid, found: Uuid },
    #[error(
        "{device}: the array is at epoch {expected} of its stripe journal, and this is an image of \
         epoch {found}: attach the right one, or leave it out"
    )]
    StaleJournal { device: DeviceName, found: u64, expected: u64 },
    #[error(
        "array `{name}` is degraded and its initial sync never completed, so the data of the \
         missing members ({roles}) cannot be reconstructed; attach them, or start with --force \
         --assume-clean, which trusts the parity"
    )]
    DegradedAndUninitialised { name: String, roles: String },
    #[error(
        "array `{name}` is degraded and was not shut down cleanly, and no bitmap shows where it \
         was being written, so all data of the missing members ({roles}) may be wrong; attach \
         them, or start with --force --assume-clean, which trusts the parity"
    )]
    UnverifiedEverywhere { name: String, roles: String },
    #[error(
        "array `{name}` has lost blocks, and no member given has their list; attach the missing \
         members"
    )]
    LostUnreadable { name: String },
    #[error(
        "{device}: lacks the record of the array's reshape; leave it out to continue without it"
    )]
    HalfMissing { device: DeviceName },
    #[error(
        "array `{name}`: its reshape adds no members; its superblocks were damaged or made by hand"
    )]
    Misgrown { name: String },
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl AssembleError {
    /// Whether it is a device that should not be among those of the array.
    pub fn is_about_one_device(&self) -> bool {
        matches!(
            self,
            Self::Foreign { .. }
                | Self::Unusable { .. }
                | Self::OtherArray { .. }
                | Self::Duplicate { .. }
                | Self::Contradiction { .. }
                | Self::Diverged { .. }
                | Self::TooSmall { .. }
        )
    }
}

/// A device, and the superblock on it.
pub(super) struct Candidate {
    pub(super) device: Rc<dyn BlockDevice>,
    pub(super) superblock: Superblock,
}

/// Assembles the array to which the devices belong.
///
/// # Errors
/// Where the result would not be certain. Nothing has been written then, unless the error is one of
/// a device.
pub async fn assemble(
    runtime: &Runtime,
    devices: Vec<Rc<dyn BlockDevice>>,
    options: AssembleOptions,
) -> Result<Assembled, AssembleError> {
    prepare(runtime, devices, options).await?.begin().await
}

/// Decides how the array of the devices is assembled, and writes nothing.
///
/// # Errors
/// Where the result would not be certain.
pub async fn prepare(
    runtime: &Runtime,
    devices: Vec<Rc<dyn BlockDevice>>,
    options: AssembleOptions,
) -> Result<Prepared, AssembleError> {
    let (candidates, unreadable) =
        look_at(runtime, devices, options.uuid, options.tuning.deadlines).await?;
    let mut prepared = reshape::put_together(runtime, candidates, &options).await?;
    let unreadable = unreadable.into_iter().map(|cause| Warning::Unreadable { cause });
    prepared.assembled.warnings.extend(unreadable);
    Ok(prepared)
}

/// The same for one shape of the array.
async fn put_together(
    runtime: &Runtime,
    verdict: JudgedMembers,
    options: &AssembleOptions,
) -> Result<Prepared, AssembleError> {
    let layout = verdict.record.layout().expect("a decoded superblock has a shape");
    let journal = journal::find(runtime, &verdict, &layout, options).await?;
    let start = Start::decide(&verdict, &layout, options, &journal).await?;
    let unreadable = |_| AssembleError::LostUnreadable { name: verdict.record.name.clone() };
    let lost = find_lost(verdict.found.in_use(), &verdict.record).await.map_err(unreadable)?;
    let JudgedMembers { mut record, mut found, missing, stale, .. } = verdict;
    found.volume_record = crate::array::newest_volume_record(found.in_use(), record.uuid).await;
    if start.copies == Copies::MayDiffer {
        found.begin_copies_anew(&record);
    }
    let Start { mut trust, warnings, beginning, verified, .. } = start;
    if options.force != Force::No && journal.reason().is_some() {
        record.journal = None;
    }
    if record.journal.is_some() {
        let known = (beginning.is_sound && beginning.marked.is_empty(), verified);
        trust.guarded = Some(journal.guarded(runtime, &layout, options, known));
    }
    let (runtime, tuning) = (runtime.clone(), options.tuning.clone());
    let array = Array::new(runtime, record, layout, found, tuning, trust, lost);
    let assembled = Assembled { array, missing, stale, warnings };
    Ok(Prepared { assembled, beginning, former_beginning: None })
}

/// Whether two devices that should have the same strips do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copies {
    Alike,
    /// A write may have reached one of them and not the other, and which is unknown.
    MayDiffer,
}

/// How the array may start.
struct Start {
    trust: Trust,
    copies: Copies,
    beginning: Beginning,
    /// Groups whose parity is valid whatever the shutdown.
    verified: u128,
    warnings: Vec<Warning>,
}

impl Start {
    async fn decide(
        verdict: &JudgedMembers,
        layout: &Layout,
        options: &AssembleOptions,
        journal: &FoundJournal,
    ) -> Result<Start, AssembleError> {
        let record = &verdict.record;
        let is_clean = record.state == RecordedState::Clean;
        let covers = |group: &usize| is_clean || journal.covers(record.journal.as_ref(), *group);
        let covered = (0..layout.groups()).filter(covers);
        let mut start = Start {
            trust: Trust {
                parity: record.parity,
                initialised_stripes: record.work.initialised_stripes,
                torn_parity: TornParity::Refuse,
                absence: absence(verdict, layout).await,
                unsigned: unsigned(verdict, layout).await,
                guarded: None,
            },
            copies: Copies::Alike,
            beginning: Beginning {
                marked: Vec::new(),
                unverified: None,
                replays: journal.records() > 0,
                is_sound: true,
            },
            verified: covered.fold(0, |bits, group| bits | 1 << group),
            warnings: Vec::new(),
        };
        let mut torn = false;
        if !is_clean {
            start.warnings.push(Warning::Unclean);
            torn = start.look_for_torn(verdict, layout, options).await?;
        }
        start.tell_of_journal(journal);
        if record.journal.is_none() {
            let unknown = options.journals.iter().map(|device| device.name().clone());
            let told = unknown.map(|device| Warning::JournalUnknown { device });
            start.warnings.extend(told);
        }
        start.check_degraded(verdict, layout, options, (torn, journal))?;
        if start.trust.parity == RecordedParity::NotInitialised && layout.parity_strips() > 0 {
            start.warnings.push(Warning::ParityUntrusted);
        }
        Ok(start)
    }

    fn tell_of_journal(&mut self, journal: &FoundJournal) {
        if journal.records() > 0 {
            self.warnings.push(Warning::Replayed { records: journal.records() });
        }
        if let Some(reason) = journal.reason() {
            self.warnings.push(Warning::JournalLost { reason: reason.to_owned() });
        }
    }

    fn is_covered(&self, group: usize) -> bool {
        self.verified >> group & 1 == 1
    }

    /// Stripes that may be torn after an unclean shutdown. Returns whether a strip is missing in
    /// any.
    async fn look_for_torn(
        &mut self,
        verdict: &JudgedMembers,
        layout: &Layout,
        options: &AssembleOptions,
    ) -> Result<bool, AssembleError> {
        if (0..layout.groups()).all(|group| self.is_covered(group)) {
            return Ok(false);
        }
        let record = &verdict.record;
        let is_exposed = |role: &Role| !self.is_covered(layout.group_of_role(*role));
        let is_exposed = verdict.lost.iter().any(is_exposed);
        if let Some(region_stripes) = record.intent_region_stripes {
            let marked = marked_regions(verdict, layout, Bitmap::Intent, region_stripes).await;
            let mut marked = within(marked, &verdict.stripes);
            if record.integrity_region_stripes.is_some() {
                // Signed regions were not being written, and damage there must not become valid.
                marked = shared(&marked, &self.trust.unsigned);
            }
            self.beginning.marked = marked;
            if !self.beginning.marked.is_empty() {
                let regions = self.beginning.marked.len();
                self.warnings.push(Warning::Resynchronised { regions });
            }
            if record.state == RecordedState::Dirty {
                return Ok(is_exposed && !self.beginning.marked.is_empty());
            }
        }
        let is_distrusted = options.after_unclean_stop != AfterUncleanStop::LogRecomputes;
        self.beginning.is_sound = is_distrusted;
        if is_distrusted {
            self.copies = Copies::MayDiffer;
        }
        if is_distrusted && layout.parity_strips() > 0 && verdict.lost.is_empty() {
            self.trust.parity = RecordedParity::NotInitialised;
            self.trust.initialised_stripes = 0;
        }
        if options.after_unclean_stop == AfterUncleanStop::DistrustParity
            && record.intent_region_stripes.is_none()
            && layout.level().is_mirrored()
            && verdict.found.in_use().count() > layout.groups()
        {
            self.trust.parity = RecordedParity::NotInitialised;
            self.trust.initialised_stripes = 0;
        }
        Ok(layout.parity_strips() > 0 && (is_exposed || is_distrusted))
    }

    fn check_degraded(
        &mut self,
        verdict: &JudgedMembers,
        layout: &Layout,
        options: &AssembleOptions,
        (torn, journal): (bool, &FoundJournal),
    ) -> Result<(), AssembleError> {
        let lost = verdict.lost.len();
        if lost == 0 || layout.parity_strips() == 0 {
            return Ok(());
        }
        let uninitialised = self.trust.parity == RecordedParity::NotInitialised;
        let (name, roles) = (verdict.record.name.clone(), judge::list(&verdict.lost));
        match (options.force, torn, uninitialised) {
            (_, false, false) => Ok(()),
            (Force::GiveUp, true, false) if self.knows_torn(verdict, options) => {
                self.force(UnverifiedParity::List, Warning::Forced { lost });
                Ok(())
            }
            (Force::GiveUp, true, _) => Err(AssembleError::UnverifiedEverywhere { name, roles }),
            (Force::AcceptParity, ..) => {
                self.trust.torn_parity = TornParity::Use;
                self.beginning.is_sound = true;
                self.force(UnverifiedParity::Accept, Warning::ParityAccepted { lost });
                Ok(())
            }
            (Force::No, true, _) => match journal.reason() {
                Some(reason) => {
                    let reason = reason.to_owned();
                    Err(AssembleError::DegradedWithoutJournal { name, roles, reason })
                }
                None => Err(AssembleError::DegradedAndUnclean { name, roles }),
            },
            (_, false, true) => Err(AssembleError::DegradedAndUninitialised { name, roles }),
        }
    }

    /// Whether every stripe that may be torn is in a marked region, or is named by a log.
    fn knows_torn(&self, verdict: &JudgedMembers, options: &AssembleOptions) -> bool {
        let is_logged = options.after_unclean_stop == AfterUncleanStop::LogRecomputes;
        verdict.record.intent_region_stripes.is_some()
            && (is_logged || verdict.record.state == RecordedState::Dirty)
    }

    fn force(&mut self, unverified: UnverifiedParity, warning: Warning) {
        self.trust.absence = AbsenceFound::Unknown;
        self.beginning.unverified = Some(unverified);
        self.warnings.retain(|it| !matches!(it, Warning::Resynchronised { .. }));
        self.warnings.push(warning);
    }
}

impl Array {
    /// Records the array as in use, replays the journal, then resyncs the marked stripes.
    async fn begin(&self, beginning: &Beginning) -> Result<(), DeviceError> {
        let Beginning { marked, unverified, replays, is_sound } = beginning;
        self.keep_marks(marked).await?;
        self.write_found_lost().await?;
        let journal = self.journal();
        self.change_record(|record| {
            // Blocks that a log is still to write again stay recorded until the array is stopped.
            if record.state != RecordedState::DirtyLogged {
                record.state = RecordedState::Dirty;
            }
            if let (Some(recorded), None) = (&mut record.journal, &journal) {
                recorded.is_lost = true;
            }
        })
        .await?;
        // Until now missing members counted as members, for the sake of the records.
        if let (Some(journal), true) = (&journal, replays) {
            self.replay(journal).await?;
        }
        match unverified {
            Some(what) => self.settle_unverified(marked, *what).await?,
            None => {
                for stripes in marked {
                    self.resync_torn(stripes.clone()).await?;
                }
            }
        }
        if !marked.is_empty() {
            // What a read shows of one copy must not be lost with that member.
            self.flush_members().await?;
        }
        self.begin_journal(*is_sound && !self.has_torn()).await?;
        self.await_log(*is_sound);
        self.note_begun();
        Ok(())
    }
}
