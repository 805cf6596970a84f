//! Headpond: raid. An array of block devices as one block device, that outlives some of them.
//!
//! Pure: [`level`], [`layout`], [`split`], [`plan`], [`merge`], [`balance`], [`patience`],
//! [`parity`], [`superblock`], [`intent`], [`integrity`], [`lost`], [`damage`], [`growth`]. With
//! I/O: [`create()`] writes a new array on its members, [`assemble()`] puts it together, and
//! [`Array`] serves.

pub mod array;
pub mod assemble;
pub mod balance;
pub mod checksum;
pub mod create;
pub mod damage;
pub mod growth;
pub mod integrity;
pub mod intent;
pub mod journal;
pub mod layout;
pub mod level;
pub mod lost;
pub mod merge;
pub mod parity;
pub mod patience;
pub mod plan;
pub mod split;
pub mod superblock;

pub use array::{
    Addition, Answer, Answers, Array, ArrayState, ArrayStatus, DeclusteredStatus, DeviceErrors,
    Filled, FillingStatus, Finding, GrowError, Grown, GrowthStatus, Inspection, IntegrityStatus,
    JournalError, JournalStatus, LostRange, LostStatus, MemberError, MemberStatus, OnAnswer,
    OwnerStopped, PatienceStatus, PlanCounts, Progress, ReturnError, ScrubReport, Scrubbed,
    SpareStatus, StandInStatus, Trouble, Tuning, Voucher, WhenFull, WhichCopy, erase,
    erase_unlisted, inspect,
};
pub use assemble::{
    AfterUncleanStop, AssembleError, AssembleOptions, Assembled, Force, Look, Prepared, Warning,
    assemble, inspect_all, journals_of, prepare,
};
pub use create::{
    Contents, CreateError, CreateOptions, Integrity, Intent, JournalOptions, Occupied,
    consider_journal, create, create_journal, journal_of,
};
pub use journal::JournalWhen;
pub use layout::{Layout, LayoutError, Role, Spread, Striping, Weights};
pub use level::Level;
pub use merge::{MergeConfig, MergeWait};
pub use patience::Patience;
