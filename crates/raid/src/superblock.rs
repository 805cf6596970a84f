//! The description of an array, as each of its members has it.
//!
//! **Invariants**: bytes become a [`Superblock`] only where magic, checksum, version, features and
//! every field are valid; an encoded one decodes to itself.
//! **Not here**: reading and writing members (`array::label`), which members belong together
//! (`assemble`).
//! **Source**: `docs/format.md`, "Member superblock".

mod codec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

use crate::journal::JournalWhen;
use crate::layout::{Declustering, Layout, LayoutError, Role, Weights};
use crate::level::Level;

pub use codec::{decode, encode};

/// Bytes of a superblock.
pub const SUPERBLOCK_BYTES: usize = 8 << 10;
/// Where the two copies begin, by the parity of their sequence.
pub const COPY_OFFSETS: [u64; 2] = [0, 64 << 10];
/// Where the intent bitmap begins.
pub const INTENT_OFFSET: u64 = 128 << 10;
/// Bytes reserved for the intent bitmap.
pub const INTENT_BYTES: u64 = 64 << 10;
/// Offset of the bitmap of missed writes; as large as the intent bitmap.
pub const ABSENCE_OFFSET: u64 = DATA_OFFSET_MIN - INTENT_BYTES;
/// How far above those of the first half bitmap and lists of the second one begin, which describes
/// the array after the reshape.
pub const SECOND_HALF_SHIFT: u64 = 192 << 10;
/// Where the absence bitmap of the second half begins.
pub const SECOND_ABSENCE_OFFSET: u64 = 512 << 10;
/// Where the two copies of the superblock of the second half begin.
pub const SECOND_COPY_OFFSETS: [u64; 2] = [576 << 10, 640 << 10];
/// Where rows wait that would be written over data that has not moved yet.
pub const STAGE_OFFSET: u64 = 704 << 10;
/// Bytes set aside for them.
pub const STAGE_BYTES: u64 = 256 << 10;
/// The smallest, and usual, data offset.
pub const DATA_OFFSET_MIN: u64 = 1 << 20;
/// Where the bitmap of an integrity region begins, as large as the intent bitmap.
pub const INTEGRITY_OFFSET: u64 = DATA_OFFSET_MIN;
/// Where the checksums of an integrity region begin, which end before the data.
pub const INTEGRITY_PAGES_OFFSET: u64 = INTEGRITY_OFFSET + INTENT_BYTES;
/// Bytes of the longest array name.
pub const NAME_BYTES_MAX: usize = 64;
/// The version written.
pub const VERSION: u32 = 1;
/// The most spares of an array, those that are being filled among them.
pub const SPARES_MAX: usize = 16;

const _: () = assert!(COPY_OFFSETS[0] + SUPERBLOCK_BYTES as u64 <= COPY_OFFSETS[1]);
const _: () = assert!(COPY_OFFSETS[1] + SUPERBLOCK_BYTES as u64 <= INTENT_OFFSET);
const _: () = assert!(INTENT_OFFSET + INTENT_BYTES <= ABSENCE_OFFSET);
const _: () = assert!(SECOND_ABSENCE_OFFSET + INTENT_BYTES <= SECOND_COPY_OFFSETS[0]);
const _: () = assert!(SECOND_COPY_OFFSETS[1] + SUPERBLOCK_BYTES as u64 <= STAGE_OFFSET);
const _: () = assert!(STAGE_OFFSET + STAGE_BYTES <= ABSENCE_OFFSET);

/// What a member carries: the array, and itself as one role of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub array: ArrayRecord,
    pub member_uuid: Uuid,
    /// `None` for a hot spare.
    pub role: Option<Role>,
    /// Of this member's superblock writes; decides which copy the next one goes to.
    pub sequence: u64,
}

impl Superblock {
    /// Whether the array relies on this member, by the record with the highest event count.
    pub fn is_in_force(&self, newest: &ArrayRecord) -> bool {
        let count = self.array.event_count;
        count + 1 >= newest.event_count && !newest.calls_out(self.member_uuid, count)
    }
}

/// The array as all of its members describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayRecord {
    pub uuid: Uuid,
    pub name: String,
    pub event_count: u64,
    pub state: RecordedState,
    pub parity: RecordedParity,
    pub level: Level,
    pub groups: u16,
    /// Where stripes are narrower than the array.
    pub declustering: Option<Declustering>,
    /// Where members without redundancy hold more or less than others.
    pub weights: Option<Weights>,
    pub strip_bytes: u32,
    pub logical_block_bytes: u32,
    pub data_offset: u64,
    /// Where members have weights, of a weight of one.
    pub member_data_bytes: u64,
    /// Stripes to one bit of the intent bitmap; `None` without one.
    pub intent_region_stripes: Option<u64>,
    /// Stripes to one bit of the bitmap that says which checksums count; `None` where there are
    /// none.
    pub integrity_region_stripes: Option<u64>,
    /// Raised by the owner of the array when something beside it, such as a cache, becomes stale.
    pub owner_generation: u64,
    /// The cache in front of the array, which may have dirty data; `None` without one.
    pub owner: Option<Uuid>,
    /// The event that recorded the last stop, where the owner had stopped before with nothing that
    /// the array lacked. It counts only as long as no other event but its seal has followed.
    pub owner_clean_since: Option<u64>,
    /// The open count of the owner, as it reported last; zero if it did not.
    pub owner_life: u64,
    /// One entry a role.
    pub roles: Vec<RoleRecord>,
    /// At most [`SPARES_MAX`].
    pub spares: Vec<SpareRecord>,
    /// One entry a slot of distributed spare space: the lost role that it stands in for, and how
    /// far it holds what that held.
    pub lent: Vec<Option<FillRecord>>,
    /// Where the work on the whole array has come to that the next start goes on with.
    pub work: RecordedWork,
    /// The event since which the bitmap marks all writes that a member missed; `None` if no member
    /// is failed or missing, or if unknown.
    pub absent_since: Option<u64>,
    /// Whether members carry a list of lost blocks that counts.
    pub has_lost_blocks: bool,
    /// The stripe journal, where there is one.
    pub journal: Option<JournalRecord>,
    /// While the array is being grown to more members.
    pub reshape: Option<RecordedReshape>,
}

/// What a superblock is to an array that is being grown, and how far that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedReshape {
    /// The array of fewer members, from which the data moves. That of more members is described by
    /// the second half of each of them.
    Former,
    /// The array of more members.
    Next {
        /// Rows of it from the start on that hold their data; what comes later is still where the
        /// former array has it.
        moved_rows: u64,
        /// The last of those rows that are not in their place yet, but wait before the data area.
        staged_rows: u64,
    },
}

/// The stripe journal of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalRecord {
    pub uuid: Uuid,
    pub when: JournalWhen,
    /// Counts the starts of the array; the journal carries the same, or one more.
    pub epoch: u64,
    /// Bit g: of group g every stripe that may be torn is in the journal.
    pub guarded: u128,
    /// It failed, or was not there at a start, and is not used.
    pub is_lost: bool,
}

impl JournalRecord {
    pub fn guards(&self, group: usize) -> bool {
        self.guarded >> group & 1 == 1
    }
}

/// A device of the array that has no role, or not yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpareRecord {
    pub member_uuid: Uuid,
    /// `None` for a hot spare.
    pub filling: Option<FillRecord>,
}

/// A role that a spare is being given, or stands in for, and how far it holds what the role does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillRecord {
    pub role: Role,
    /// Its rows of strips from the start on.
    pub rows: u64,
}

/// Work on the whole array, in stripes from its start on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordedWork {
    /// Those with valid parity, if not all have it.
    pub initialised_stripes: u64,
    /// Checked by the scrub in progress; `None` without one.
    pub scrubbed_stripes: Option<u64>,
}

/// The array's record of the member in one role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleRecord {
    pub member_uuid: Uuid,
    pub state: RoleState,
}

/// State of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RoleState {
    Active,
    /// It failed a write or a flush, or disappeared, while the array was running.
    Failed,
    /// It was missing when the array was assembled.
    Missing,
}

/// State of the array as written on the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedState {
    Creating,
    /// Shut down cleanly.
    Clean,
    /// Assembled, and since then not stopped.
    Dirty,
    /// The same, and some writes were recorded by a log above the array, not by the intent bitmap.
    DirtyLogged,
}

/// State of the parity as written on the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedParity {
    Valid,
    NotInitialised,
}

impl ArrayRecord {
    /// Where each byte lies.
    ///
    /// # Errors
    /// Where the fields contradict each other.
    pub fn layout(&self) -> Result<Layout, LayoutError> {
        let (members, groups) = (self.roles.len(), usize::from(self.groups));
        let (strip_bytes, data_bytes) = (self.strip_bytes, self.member_data_bytes);
        match (&self.declustering, &self.weights) {
            (None, None) => Layout::new(self.level, members, groups, strip_bytes, data_bytes),
            (Some(declustering), None) => {
                Layout::declustered(self.level, members, declustering, strip_bytes, data_bytes)
            }
            (_, Some(_)) if self.level != Level::Raid0 || groups != 1 => {
                Err(LayoutError::NotWeighted { level: self.level })
            }
            (_, Some(weights)) if weights.as_slice().len() != members => {
                let weights = weights.as_slice().len();
                Err(LayoutError::Weights { weights, members })
            }
            (_, Some(weights)) => Layout::weighted(weights.clone(), strip_bytes, data_bytes),
        }
    }

    /// Bytes of the data area of a member.
    pub fn data_bytes_of(&self, role: Role) -> u64 {
        let weight = self.weights.as_ref().map_or(1, |it| it.as_slice()[role.index()]);
        self.member_data_bytes * u64::from(weight)
    }

    /// Of roles without a member, those that spare space does not stand in for completely.
    pub fn unreplaced(&self, empty: &[Role]) -> Vec<Role> {
        let rows = self.member_data_bytes / u64::from(self.strip_bytes);
        let is_whole = |role: &Role| {
            let is_it = |it: &&FillRecord| it.role == *role && it.rows == rows;
            self.lent.iter().flatten().any(|it| is_it(&it))
        };
        empty.iter().copied().filter(|role| !is_whole(role)).collect()
    }

    /// Whether it has a role for a member, or has it as a spare.
    pub fn knows(&self, member: Uuid) -> bool {
        self.roles.iter().any(|entry| entry.member_uuid == member)
            || self.spares.iter().any(|spare| spare.member_uuid == member)
    }

    /// Whether it excludes a member whose own superblock is of event `event_count`: failed,
    /// missing, or not known any more. One that it does not know yet was added after it was
    /// written.
    pub fn calls_out(&self, member: Uuid, event_count: u64) -> bool {
        if self.spares.iter().any(|spare| spare.member_uuid == member) {
            return false;
        }
        match self.roles.iter().find(|entry| entry.member_uuid == member) {
            Some(entry) => entry.state != RoleState::Active,
            None => event_count <= self.event_count,
        }
    }
}

/// Why bytes are no superblock that can be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    #[error("it is empty")]
    Zeroed,
    #[error("it holds something else (no Headpond magic)")]
    Foreign,
    #[error("its checksum is {found:#010x} where {expected:#010x} was expected")]
    Checksum { expected: u32, found: u32 },
    #[error(
        "it has format version {found}; this program supports up to {VERSION}: use a newer one"
    )]
    Version { found: u32 },
    #[error(
        "it requires features {unknown:#x}, which this program does not support: use a newer one"
    )]
    Incompatible { unknown: u64 },
    #[error("its field `{field}` has the invalid value {value}")]
    Field { field: &'static str, value: u64 },
    #[error("its name is not UTF-8")]
    Name,
    #[error("its layout is invalid: {0}")]
    Layout(#[from] LayoutError),
}
