//! A volume: an array, perhaps a cache in front of it, cut into slices, as one block device; and
//! further arrays behind the same cache, each as a device of its own.
//!
//! Lifecycle: 1. a [`Description`] says what the user wants; 2. [`Volume::create`] writes the
//! superblocks; 3. [`Volume::open`] finds the members by what is on them, assembles array and
//! cache, and recovers; 4. requests are served and settings changed; 5. [`Volume::stop`] saves the
//! state.
//!
//! **Invariants**
//! - The superblocks are the truth: a device that says it belongs elsewhere is refused, whatever
//!   the description says.
//! - FLUSH covers every slice.
//!
//! **Not here**: opening devices (the caller brings them), exports, where descriptions are kept.

#![forbid(unsafe_code)]

mod assembly;
mod background;
mod change;
pub mod description;
mod discovery;
pub mod existing;
mod history;
mod jobs;
mod notes;
mod record;
mod serving;
mod volume;
mod watch;

pub use assembly::cores::StripesDiffer;
pub use assembly::create::{CreateError, CreateOptions, Destroyed};
pub use assembly::mirror::{
    CACHE_COPIES, CacheDevice, MakeMirrorError, RepairedDevice, bytes_on_copies,
};
pub use assembly::open::{
    ChangedDevice, Decorator, Devices, LoadWatch, Loading, OpenError, OpenOptions, Tolerance,
};
pub use assembly::ownership::{
    ClaimError, ClaimWatch, Claimant, Host, OwnerState, OwnerStatus, Process, RecordedOwner,
    Watching, erase_owners, expect_no_owner, recorded_owners,
};
pub use background::{BackgroundRate, BackgroundRateError, BackgroundStatus, Work};
pub use change::core_change::{CoreChangeError, NewCore};
pub use change::exchange::{ExchangeError, NewDevice, Reopening, Replacement};
pub use change::journal::NewJournal;
pub use change::lifecycle::{AttachError, DetachError, Dirty, NewCache};
pub use change::members::{ChangeMembersError, NewMember, ReturningMember};
pub use change::reshape::{GrowBy, LeavingCopy};
pub use change::tier::TierError;
pub use description::change::SettingsError;
pub use description::class_setting::ClassSetting;
pub use description::cutoff::SeqCutoff;
pub use description::readahead::{Readahead, ReadaheadPolicy};
pub use description::settings::{
    ArraySettings, CLIENT_MEMORY, CacheSettings, ChangesByOwner, Checkpoints, ClientMemory,
    MergeWaitSetting, SettingChange, SettingError, SettingGroup, ShownSetting, TierSettings,
    nearest, nearest_settings, parse_word,
};
pub use description::{
    CacheDescription, CoreDescription, Description, DescriptionError, ExportDescription,
    FIRST_CORE, FurtherCoreDescription, JournalDescription, MirrorDescription, TierDescription,
    check_name,
};
pub use discovery::{
    Adopted, Candidate, FoundPart, FoundVolume, Label, Labelled, Lacking, LackingPart, NoLabel,
    Part, RolePresence, found_volumes, read_labels,
};
pub use headpond_block::{
    DeviceErrors, ErrorCause, ErrorKind, LastError, Size, SizeError, UtcTime,
};
pub use headpond_cache::LoadProgress;
pub use history::{CacheScrub, DeviceReport, DeviceRole};
pub use jobs::{JobKind, JobStatus};
pub use notes::Note;
pub use record::{RecordError, VolumeRecord};
pub use serving::endpoint::{CoreCounts, CoreDevice};
pub use serving::metadata::{CoreFileSystem, FoundFileSystem};
pub use serving::readahead::ReadaheadStats;
pub use volume::kept::{CallerError, DescriptionKeeper, Keep, Keeping};
pub use volume::{
    BusyError, CleanAllError, ClearError, RecordStoppedError, ScrubCacheError, SetError, StopError,
    Volume,
};
pub use watch::alerts::{Alert, AlertKind, Risk};
pub use watch::counts::{CacheCounts, VolumeCounts};
pub use watch::report::{
    CacheReport, ClassReport, CleaningReport, CoreReport, Groups, Row, StatsReport,
};
pub use watch::status::{
    CacheErrors, CacheStatus, CoreStatus, MirrorStatus, VolumeStats, VolumeStatus,
};
pub use watch::wear::{CacheWear, WearPurpose, WearShare};
