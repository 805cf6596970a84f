//! Headpond: raid. An array of block devices as one block device, that survives the loss of some.
//!
//! Pure: [`level`], [`layout`], [`split`], [`plan`], [`merge`], [`balance`], [`deadlines`],
//! [`parity`], [`superblock`], [`intent`], [`integrity`], [`lost`], [`damage`], [`reshape`],
//! [`volume_record`]. With I/O: [`create()`] writes a new array on its members, [`assemble()`]
//! assembles it, and [`Array`] serves.

pub mod array;
pub mod assemble;
pub mod balance;
pub mod checksum;
pub mod create;
pub mod damage;
pub mod deadlines;
pub mod history;
pub mod integrity;
pub mod intent;
pub mod journal;
pub mod layout;
pub mod level;
pub mod lost;
pub mod merge;
pub mod parity;
pub mod plan;
pub mod reshape;
pub mod split;
pub mod superblock;
pub mod volume_record;

pub use array::{
    Addition, Answer, Answers, Array, ArrayProgress, ArrayState, ArrayStatus, ContentVerifier,
    DeadlineStatus, DeclusteredStatus, Filled, FillingStatus, GrowError, Grown, HealthState,
    Inspection, IntegrityStatus, JournalError, JournalStatus, LostRange, LostStatus, MemberError,
    MemberStatus, OnAnswer, OwnerStopped, PlanCounts, Progress, ReshapeStatus, ReturnError,
    Scrubbed, SpareStatus, StandInStatus, Tuning, WhenFull, WhichCopy, erase, erase_unlisted,
    inspect, volume_record_of,
};
pub use assemble::{
    AfterUncleanStop, AssembleError, AssembleOptions, Assembled, Force, Look, Prepared, Warning,
    assemble, inspect_all, journals_of, prepare,
};
pub use create::{
    Contents, CreateError, CreateOptions, Integrity, Intent, JournalOptions, Occupied, Owner,
    consider_journal, create, create_journal, journal_of,
};
pub use deadlines::Deadlines;
pub use headpond_block::DeviceErrors;
pub use history::{Finding, History, LastScrub, MemberScrub, ScrubReport, ScrubState, Trouble};
pub use journal::JournalWhen;
pub use layout::{Layout, LayoutError, Role, Spread, Striping, Weights};
pub use level::Level;
pub use merge::{MergeConfig, MergeWait};
