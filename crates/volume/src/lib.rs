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

mod acts;
mod alerts;
mod cached;
mod class_setting;
mod core_change;
mod cores;
mod create;
mod cutoff;
pub mod description;
mod door;
mod exchange;
mod front;
mod gate;
mod growth;
mod journal;
mod label;
mod lifecycle;
mod members;
mod metadata;
mod mirror;
mod notes;
mod open;
mod ownership;
mod promises;
mod readahead;
mod report;
mod settings;
mod slicing;
mod status;
mod streams;
mod tier;
mod upkeep;
mod volume;
mod vouch;

pub use acts::{ActKind, ActStatus};
pub use alerts::{Alert, AlertKind, Risk};
pub use class_setting::ClassSetting;
pub use core_change::{CoreChangeError, NewCore};
pub use cores::StripesDiffer;
pub use create::{CreateError, CreateOptions, Destroyed};
pub use cutoff::SeqCutoff;
pub use description::{
    CacheDescription, CoreDescription, Description, DescriptionError, ExportDescription,
    FurtherCoreDescription, JournalDescription, MirrorDescription, TierDescription, check_name,
};
pub use door::{CoreCounts, CoreDevice};
pub use exchange::{CallerError, ExchangeError, Keep, Keeping, NewDevice, Reopening, Replacement};
pub use growth::{GrowBy, LeavingCopy};
pub use headpond_block::{Size, SizeError};
pub use headpond_cache::LoadProgress;
pub use journal::NewJournal;
pub use lifecycle::{AttachError, DetachError, Dirty, NewCache};
pub use members::{ChangeMembersError, DescriptionKeeper, NewMember, ReturningMember};
pub use metadata::{CoreFileSystem, FoundFileSystem};
pub use mirror::{CACHE_COPIES, CacheDevice, MakeMirrorError, bytes_on_copies};
pub use notes::Note;
pub use open::{Decorator, Devices, LoadWatch, Loading, OpenError, OpenOptions, Tolerance};
pub use ownership::{
    ClaimError, ClaimWatch, Claimant, Host, OwnerState, OwnerStatus, Process, Watching,
};
pub use readahead::{Readahead, ReadaheadPolicy, ReadaheadStats};
pub use report::{CacheReport, ClassReport, CleaningReport, CoreReport, Groups, Row, StatsReport};
pub use settings::{
    ArraySettings, CLIENT_MEMORY, CacheSettings, ChangesByOwner, Checkpoints, ClientMemory,
    MergeWaitSetting, SettingChange, SettingError, ShownSetting, TierSettings, parse_word,
};
pub use status::{CacheStatus, CoreStatus, MirrorStatus, VolumeStats, VolumeStatus};
pub use tier::TierError;
pub use upkeep::{Pace, PaceError, UpkeepStatus, Work};
pub use volume::{BusyError, CleanAllError, ScrubCacheError, SetError, StopError, Volume};
