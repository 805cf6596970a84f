//! Creating an array: its shape from the devices given, and its superblocks.
//!
//! 1. [`plan`] derives the record without any I/O; 2. [`create`] inspects every device and refuses
//!    those in use; 3. overwrites both superblocks with zeros; 4. writes the intent pages and a
//!    superblock in state *being created*; 5. when all members have that, the superblock in state
//!    *clean*. After a cut at any point there is no array, or a refused half one, or the new one.

use std::rc::Rc;

use headpond_block::{BlockDevice, DeviceError, DeviceName, Stability};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::{Builder, Uuid};

use crate::array::{Bitmap, Inspection, inspect, write_bitmap_page, write_superblock, zero_copy};
use crate::integrity;
use crate::intent::{self, IntentBitmap};
use crate::journal::label::{self, Label, LabelError};
use crate::journal::record::UNIT_BYTES;
use crate::journal::{self, JournalWhen};
use crate::layout::{Layout, LayoutError, Role, Spread, Striping, Weights};
use crate::level::Level;
use crate::superblock::{
    ArrayRecord, DATA_OFFSET_MIN, JournalRecord, NAME_BYTES_MAX, RecordedParity, RecordedState,
    RecordedWork, RoleRecord, RoleState, Superblock,
};

/// The parameters of a new array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateOptions {
    pub name: String,
    /// Random, and never used before: it identifies members.
    pub uuid: Uuid,
    pub level: Level,
    /// Groups of levels 10, 50 and 60; 1 for the others.
    pub groups: usize,
    /// Narrower stripes than there are members, of levels 5 and 6.
    pub declustered: Option<Spread>,
    /// How different members of level 0 share the strips.
    pub striping: Striping,
    pub strip_bytes: u32,
    pub contents: Contents,
    pub intent: Intent,
    pub integrity: Integrity,
    pub occupied: Occupied,
    /// The cache that will stand in front of the array.
    pub owner: Option<Owner>,
    /// The stripe journal, which [`create_journal`] makes before the array.
    pub journal: Option<JournalOptions>,
}

/// A cache in front of an array, and the owner generation that it belongs to: 0 of a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub cache: Uuid,
    pub generation: u64,
}

/// The stripe journal that an array is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// Random, and never used before.
    pub uuid: Uuid,
    pub when: JournalWhen,
}

/// What is on the members before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Contents {
    /// Nothing but zeros in the data area, as on new sparse files, whose parity is zeros; or
    /// contents whose redundancy the user states to be consistent.
    Zeros,
    /// Anything: parity counts as not initialised until `Array::initialise` has run.
    #[default]
    Unknown,
}

/// How the parity of a healthy array is protected against an unclean shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Nothing here: the writer names the stripes that may be torn, or the parity is not trusted.
    None,
    /// A bitmap on the members, written before the first write to a region.
    Bitmap,
}

/// Whether members have room for checksums of what a scrub has found whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integrity {
    None,
    /// About a thousandth of each member is set aside for them.
    Region,
}

/// What to do with a device that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupied {
    Refuse,
    Overwrite,
}

/// Why there is no new array.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CreateError {
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error("the name `{0}` is empty, longer than {NAME_BYTES_MAX} bytes or contains a zero byte")]
    Name(String),
    #[error(
        "{device}: has {size_bytes} bytes: superblock and intent bitmap take {data_offset}, and at \
         least one strip must follow; use a larger device"
    )]
    TooSmall { device: DeviceName, size_bytes: u64, data_offset: u64 },
    #[error("{device}: is given twice; name each device once")]
    Duplicate { device: DeviceName },
    #[error(
        "{device}: is {place} of array `{array}` ({uuid}), and holds part of its data; use another \
         device, or overwrite it with --force"
    )]
    Member { device: DeviceName, array: String, uuid: Uuid, place: String },
    #[error("{device}: holds other data; wipe it first, or overwrite it with --force")]
    Foreign { device: DeviceName },
    #[error(
        "{device}: is the stripe journal of array {array}; use another device, or overwrite it \
         with --force"
    )]
    Journal { device: DeviceName, array: Uuid },
    #[error("a stripe journal is for levels with parity, not for {0}: leave it out")]
    JournalWithoutParity(Level),
    #[error(
        "a stripe journal for degraded operation requires the intent bitmap: keep the bitmap, or \
         have the journal used always"
    )]
    JournalWithoutIntent,
    #[error(
        "an integrity region shows which copy is correct, and level 0 has one copy: leave it \
         out, or use a level with redundancy"
    )]
    IntegrityWithoutRedundancy,
    #[error("{device}: is volatile, and cannot be a stripe journal")]
    JournalInMemory { device: DeviceName },
    #[error(
        "{device}: has {size_bytes} bytes; the stripe journal of this array requires \
         {needed_bytes}: use a larger device"
    )]
    JournalTooSmall { device: DeviceName, size_bytes: u64, needed_bytes: u64 },
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// The record of the array that [`create`] would make. Nothing is read or written.
///
/// # Errors
/// Where the devices do not give the shape that is asked for.
pub fn plan(
    members: &[Rc<dyn BlockDevice>],
    options: &CreateOptions,
) -> Result<ArrayRecord, CreateError> {
    let name = &options.name;
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
        return Err(CreateError::Name(name.clone()));
    }
    let data_offset = data_offset(members, options)?;
    check_devices(members, options, data_offset)?;
    let room = |device: &Rc<dyn BlockDevice>| device.geometry().size_bytes - data_offset;
    let smallest = members.iter().map(room).min().unwrap_or(0);
    let weighted = weigh(options, &members.iter().map(room).collect::<Vec<_>>())?;
    let unit_bytes = weighted.as_ref().map_or(smallest, |(_, unit_bytes)| *unit_bytes);
    let (count, groups) = (members.len(), options.groups);
    let (spread, room) = (options.declustered, (options.strip_bytes, smallest));
    let declustering =
        spread.map(|spread| Layout::decluster(options.level, count, spread, room)).transpose()?;
    let blocks = members.iter().map(|device| device.geometry().logical_block_bytes);
    let mut record = ArrayRecord {
        uuid: options.uuid,
        name: name.clone(),
        event_count: 0,
        state: RecordedState::Creating,
        parity: recorded_parity(options),
        level: options.level,
        groups: u16::try_from(groups).unwrap_or(u16::MAX),
        lent: vec![None; declustering.as_ref().map_or(0, |it| usize::from(it.spread.spares))],
        declustering,
        weights: weighted.map(|(weights, _)| weights),
        strip_bytes: options.strip_bytes,
        logical_block_bytes: blocks.max().unwrap_or(512),
        data_offset,
        member_data_bytes: unit_bytes,
        intent_region_stripes: None,
        integrity_region_stripes: None,
        owner_generation: options.owner.map_or(0, |owner| owner.generation),
        owner: options.owner.map(|owner| owner.cache),
        owner_clean_since: None,
        owner_life: 0,
        roles: (0..count).map(|index| new_role(options.uuid, index)).collect(),
        spares: Vec::new(),
        work: RecordedWork::default(),
        journal: recorded_journal(options)?,
        has_lost_blocks: false,
        absent_since: None,
        reshape: None,
    };
    let layout = record.layout()?;
    record.member_data_bytes = layout.member_data_bytes();
    record.intent_region_stripes = intent_region(options, &layout);
    let has_sums = options.integrity == Integrity::Region;
    record.integrity_region_stripes = has_sums.then(|| intent::region_stripes(&layout));
    Ok(record)
}

/// The same, and everything that can be said against the devices. Nothing is written.
///
/// # Errors
/// The refusals, and those of the devices.
pub async fn consider(
    members: &[Rc<dyn BlockDevice>],
    options: &CreateOptions,
) -> Result<ArrayRecord, CreateError> {
    let record = plan(members, options)?;
    if options.occupied == Occupied::Refuse {
        for device in members {
            refuse_occupied(&**device).await?;
        }
    }
    Ok(record)
}

/// Makes the devices the members of a new array, in this order. It is then to be assembled.
///
/// # Errors Before anything is written: the refusals. After that: those of the devices; the array
/// is then not born, and its members are refused by `assemble` until they are overwritten.
pub async fn create(
    members: &[Rc<dyn BlockDevice>],
    options: &CreateOptions,
) -> Result<ArrayRecord, CreateError> {
    let mut record = consider(members, options).await?;
    for device in members {
        zero_copy(&**device, 0).await?;
        zero_copy(&**device, 1).await?;
        write_empty_pages(&**device, &record).await?;
    }
    for state in [RecordedState::Creating, RecordedState::Clean] {
        record.state = state;
        record.event_count += 1;
        for (index, device) in members.iter().enumerate() {
            write_superblock(&**device, superblock(&record, index)).await?;
        }
    }
    Ok(record)
}

/// The weights of members with so much room each, and the bytes that a weight of one gives.
fn weigh(options: &CreateOptions, room: &[u64]) -> Result<Option<(Weights, u64)>, LayoutError> {
    let strip_bytes = u64::from(options.strip_bytes);
    if options.striping == Striping::Plain {
        return Ok(None);
    }
    if options.level != Level::Raid0 {
        return Err(LayoutError::NotWeighted { level: options.level });
    }
    let rows: Vec<u64> = room.iter().map(|room| room / strip_bytes).collect();
    let weights = options.striping.weights(&rows)?;
    Ok(weights.map(|weights| {
        let unit_bytes = weights.rounds(&rows) * strip_bytes;
        (weights, unit_bytes)
    }))
}

fn recorded_journal(options: &CreateOptions) -> Result<Option<JournalRecord>, CreateError> {
    let Some(JournalOptions { uuid, when }) = options.journal else { return Ok(None) };
    if options.level.parity() == 0 {
        return Err(CreateError::JournalWithoutParity(options.level));
    }
    if options.intent == Intent::None && when == JournalWhen::Degraded {
        return Err(CreateError::JournalWithoutIntent);
    }
    Ok(Some(JournalRecord { uuid, when, epoch: 1, guarded: 0, is_lost: false }))
}

/// Whether a device can be the stripe journal of an array. Nothing is written.
///
/// # Errors
/// The refusal, or that of the device.
pub async fn consider_journal(
    device: &dyn BlockDevice,
    layout: &Layout,
    occupied: Occupied,
) -> Result<(), CreateError> {
    let (name, geometry) = (|| device.name().clone(), device.geometry());
    if geometry.stability == Stability::LostOnPower {
        return Err(CreateError::JournalInMemory { device: name() });
    }
    let (size_bytes, needed_bytes) = (geometry.size_bytes, journal::bytes_min(layout));
    if size_bytes < needed_bytes {
        return Err(CreateError::JournalTooSmall { device: name(), size_bytes, needed_bytes });
    }
    if occupied == Occupied::Overwrite {
        return Ok(());
    }
    match crate::array::read_journal_label(device).await? {
        Ok(label) => Err(CreateError::Journal { device: name(), array: label.array }),
        Err(LabelError::Zeroed) => refuse_occupied(device).await,
        Err(_) => match refuse_occupied(device).await {
            Ok(()) => Err(CreateError::Foreign { device: name() }),
            refused => refused,
        },
    }
}

/// Makes a device the empty stripe journal of an array that is about to be made, or has none.
///
/// # Errors
/// Before anything is written: the refusals of [`consider_journal`]. After that: the device's.
pub async fn create_journal(
    device: &dyn BlockDevice,
    record: &ArrayRecord,
    occupied: Occupied,
) -> Result<(), CreateError> {
    consider_journal(device, &record.layout()?, occupied).await?;
    let journal = record.journal.as_ref().expect("the array is to have a journal");
    let ring_bytes = device.geometry().size_bytes - label::RING_OFFSET;
    let first = Label {
        journal: journal.uuid,
        array: record.uuid,
        sequence: 1,
        epoch: journal.epoch,
        tail: label::Tail::START,
        ring_bytes: ring_bytes / UNIT_BYTES * UNIT_BYTES,
    };
    zero_copy(device, 0).await?;
    zero_copy(device, 1).await?;
    crate::array::write_journal_label(device, &first).await?;
    Ok(())
}

/// The array whose stripe journal a device is.
///
/// # Errors
/// Where it cannot be read.
pub async fn journal_of(device: &dyn BlockDevice) -> Result<Option<Uuid>, DeviceError> {
    Ok(crate::array::read_journal_label(device).await?.ok().map(|label| label.array))
}

/// Where the data of each member is to begin.
fn data_offset(
    members: &[Rc<dyn BlockDevice>],
    options: &CreateOptions,
) -> Result<u64, CreateError> {
    match options.integrity {
        Integrity::None => Ok(DATA_OFFSET_MIN),
        Integrity::Region if options.level == Level::Raid0 => {
            Err(CreateError::IntegrityWithoutRedundancy)
        }
        Integrity::Region => {
            let sizes = members.iter().map(|device| device.geometry().size_bytes);
            Ok(integrity::data_offset(sizes.min().unwrap_or(0)))
        }
    }
}

fn check_devices(
    members: &[Rc<dyn BlockDevice>],
    options: &CreateOptions,
    data_offset: u64,
) -> Result<(), CreateError> {
    for (index, device) in members.iter().enumerate() {
        let (name, size_bytes) = (device.name().clone(), device.geometry().size_bytes);
        if size_bytes < data_offset + u64::from(options.strip_bytes) {
            return Err(CreateError::TooSmall { device: name, size_bytes, data_offset });
        }
        let is_same =
            |other: &Rc<dyn BlockDevice>| Rc::ptr_eq(other, device) || *other.name() == name;
        if members[..index].iter().any(is_same) {
            return Err(CreateError::Duplicate { device: name });
        }
    }
    Ok(())
}

/// Refuses a device that is not empty.
///
/// # Errors
/// The refusal, or that of the device.
pub async fn refuse_occupied(device: &dyn BlockDevice) -> Result<(), CreateError> {
    let name = device.name().clone();
    match inspect(device).await? {
        Inspection::Empty => Ok(()),
        Inspection::Member(found) => Err(CreateError::Member {
            device: name,
            array: found.array.name,
            uuid: found.array.uuid,
            place: found.role.map_or_else(|| "spare".to_owned(), |it| format!("member {}", it.0)),
        }),
        Inspection::Foreign | Inspection::Unusable(_) => Err(CreateError::Foreign { device: name }),
    }
}

async fn write_empty_pages(
    device: &dyn BlockDevice,
    record: &ArrayRecord,
) -> Result<(), CreateError> {
    let Some(region_stripes) = record.intent_region_stripes else { return Ok(()) };
    let layout = record.layout()?;
    let bitmap = IntentBitmap::new(record.uuid, layout.stripes(), region_stripes);
    for number in 0..bitmap.pages() {
        let page = bitmap.empty_page(number);
        write_bitmap_page(device, Bitmap::Intent, number, &page).await?;
    }
    Ok(())
}

fn superblock(record: &ArrayRecord, index: usize) -> Superblock {
    Superblock {
        array: record.clone(),
        member_uuid: record.roles[index].member_uuid,
        role: Some(Role(index as u16)),
        sequence: record.event_count,
    }
}

fn recorded_parity(options: &CreateOptions) -> RecordedParity {
    match options.contents {
        Contents::Zeros => RecordedParity::Valid,
        // Without redundancy there is nothing to initialise.
        Contents::Unknown if options.level == Level::Raid0 => RecordedParity::Valid,
        Contents::Unknown => RecordedParity::NotInitialised,
    }
}

fn intent_region(options: &CreateOptions, layout: &Layout) -> Option<u64> {
    let wanted = options.intent == Intent::Bitmap && layout.redundancy() > 0;
    wanted.then(|| intent::region_stripes(layout))
}

/// The UUID of a member follows from that of its array and its role.
fn new_role(array: Uuid, index: usize) -> RoleRecord {
    const SPREAD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    let mixed = (array.as_u128() ^ (index as u128 + 1).wrapping_mul(SPREAD)).to_be_bytes();
    RoleRecord {
        member_uuid: Builder::from_custom_bytes(mixed).into_uuid(),
        state: RoleState::Active,
    }
}
