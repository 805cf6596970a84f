//! Options and errors of the creation of a volume.

use crate::Size;
use crate::assembly::cores::{Cores, Places, Shape, StripesDiffer, identity};
use crate::assembly::mirror;
use crate::assembly::mirror::MakeMirrorError;
use crate::assembly::open::is_memory;
use crate::description::{CoreDescription, Description};
use crate::record::RecordError;
use headpond_block::{BLOCK_BYTES, BlockDevice, ByteRange, DeviceError, DeviceName};
use headpond_cache::CreateOptions as CacheOptions;
use headpond_raid::{
    Contents, CreateOptions as ArrayOptions, Inspection, Integrity, Intent, JournalOptions,
    Occupied, Owner, Prepared,
};
use std::rc::Rc;
use uuid::Uuid;

/// How a volume is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateOptions {
    pub contents: Contents,
    pub intent: Intent,
    pub occupied: Occupied,
    /// Identity of the cache, where there is one: random, and never used before. The identities of
    /// the members follow from the description's.
    pub cache: Uuid,
    /// From it follow the identities of the stripe journals, where there are any: random, and never
    /// used before.
    pub journal: Uuid,
}

/// Why there is no new volume. Refusals change nothing.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error(transparent)]
    Array(#[from] headpond_raid::CreateError),
    #[error(transparent)]
    Cache(#[from] headpond_cache::CreateError),
    #[error(
        "{device}: is the cache of volume {volume}, and may have dirty data; take another device, or discard \
         it with --force"
    )]
    CacheInUse { device: DeviceName, volume: uuid::Uuid },
    #[error(
        "{device}: is the cache of this volume, or was it before: its contents are not reused; make it \
         an empty cache with --force"
    )]
    CacheOfOwn { device: DeviceName },
    #[error(
        "{device}: is a member of array `{array}`, and holds part of its data; use another device, or \
         overwrite it with --force"
    )]
    CacheIsMember { device: DeviceName, array: String },
    #[error(
        "{device} is volatile memory: it cannot be a copy of a cache mirror; use non-volatile devices"
    )]
    CopyInMemory { device: DeviceName },
    #[error(transparent)]
    Mirror(#[from] MakeMirrorError),
    #[error(transparent)]
    Stripes(#[from] StripesDiffer),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Outcome for the devices of a volume that was removed.
#[derive(Debug, Default)]
pub struct Destroyed {
    /// Devices of the volume that are free now.
    pub erased: usize,
    /// Errors of the others: they may still carry labels of the volume.
    pub failed: Vec<DeviceError>,
}

impl CreateError {
    /// Whether it was refused because data could be lost.
    pub fn is_refusal(&self) -> bool {
        use headpond_raid::CreateError as Array;
        matches!(
            self,
            Self::CacheInUse { .. }
                | Self::CacheOfOwn { .. }
                | Self::CacheIsMember { .. }
                | Self::CopyInMemory { .. }
                | Self::Mirror(MakeMirrorError::Create(
                    Array::Member { .. } | Array::Foreign { .. } | Array::Journal { .. }
                ))
                | Self::Array(Array::Member { .. } | Array::Foreign { .. } | Array::Journal { .. })
        )
    }
}

/// The copies of a new cache.
pub(crate) struct NewMirror {
    pub array: ArrayOptions,
    pub cache: CacheOptions,
    /// The range of the cache on each of them.
    pub faces: Vec<Rc<dyn BlockDevice>>,
}

/// Whether the devices can be the copies of the cache, where it is to have several.
pub(crate) async fn consider_copies(
    description: &Description,
    copies: &[Rc<dyn BlockDevice>],
    cache: &CacheOptions,
    occupied: Occupied,
) -> Result<Option<NewMirror>, CreateError> {
    let mirror = description.cache.as_ref().and_then(|cache| cache.mirror.as_ref());
    let Some(mirror) = mirror.filter(|_| !copies.is_empty()) else { return Ok(None) };
    let array = mirror::create_options(description, mirror, occupied);
    for copy in copies {
        refuse_memory(&**copy)?;
        if occupied == Occupied::Refuse {
            refuse_occupied(&**copy, description.uuid).await?;
        }
    }
    let record = headpond_raid::create::consider(copies, &array).await?;
    let bytes = record.layout().map_err(headpond_raid::CreateError::from)?.array_bytes();
    let faces = mirror::windows(copies, ByteRange::at(record.data_offset, bytes));
    // Each would choose for itself.
    let cache = CacheOptions { unit_bytes: Some(BLOCK_BYTES as u32), ..cache.clone() };
    for face in &faces {
        headpond_cache::consider(&**face, &cache)?;
    }
    Ok(Some(NewMirror { array, cache, faces }))
}

/// A volatile copy is no copy.
pub(crate) fn refuse_memory(device: &dyn BlockDevice) -> Result<(), CreateError> {
    match is_memory(device) {
        true => Err(CreateError::CopyInMemory { device: device.name().clone() }),
        false => Ok(()),
    }
}

/// Facts about the cores that a cache records.
pub(crate) struct CoreFacts {
    /// Of the arrays and their addresses.
    pub identity: Uuid,
    pub bytes: u64,
    pub generation: u64,
}

impl CoreFacts {
    pub fn new(arrays: &[(Uuid, Shape)], generation: u64) -> Result<Self, StripesDiffer> {
        let shapes: Vec<Shape> = arrays.iter().map(|(_, shape)| *shape).collect();
        let bytes = Places::of(&shapes)?.end();
        Ok(Self { identity: identity(arrays), bytes, generation })
    }

    pub fn of(cores: &Cores) -> Self {
        let (bytes, generation) = (cores.places.end(), cores.generation());
        Self { identity: cores.identity(), bytes, generation }
    }

    pub fn of_prepared(cores: &[Prepared]) -> Result<Self, StripesDiffer> {
        let of = |core: &Prepared| (core.uuid(), Shape::of(core.geometry()));
        let arrays: Vec<_> = cores.iter().map(of).collect();
        Self::new(&arrays, cores.iter().map(Prepared::owner_generation).sum())
    }
}

pub(crate) fn cache_options(
    description: &Description,
    cache: Uuid,
    core: &CoreFacts,
) -> CacheOptions {
    let line = description.cache.as_ref().map_or(BLOCK_BYTES, |cache| cache.line.bytes());
    CacheOptions {
        volume: description.uuid,
        cache,
        core: core.identity,
        core_bytes: core.bytes,
        generation: core.generation,
        slices: usize::from(description.slices),
        line_bytes: u32::try_from(line).unwrap_or(u32::MAX),
        device_bytes: description.cache.as_ref().and_then(|cache| cache.size).map(Size::bytes),
        unit_bytes: None,
    }
}

pub(crate) fn array_options(
    (name, uuid): (String, Uuid),
    core: &CoreDescription,
    options: &CreateOptions,
    owner: Option<Owner>,
) -> ArrayOptions {
    ArrayOptions {
        name,
        uuid,
        level: core.raid,
        groups: usize::from(core.groups),
        declustered: core.declustered,
        striping: core.striping.clone(),
        strip_bytes: u32::try_from(core.strip.bytes()).unwrap_or(u32::MAX),
        contents: options.contents,
        intent: options.intent,
        integrity: if core.integrity { Integrity::Region } else { Integrity::None },
        occupied: options.occupied,
        owner,
        journal: core.journal.as_ref().map(|journal| JournalOptions {
            uuid: Uuid::from_u128(options.journal.as_u128() ^ uuid.as_u128()),
            when: journal.when,
        }),
    }
}

/// With [`Occupied::Refuse`], refuses a device that is a cache, also a former one of this volume.
pub(crate) async fn refuse_cache(
    device: &dyn BlockDevice,
    occupied: Occupied,
    own: Uuid,
) -> Result<(), CreateError> {
    match headpond_cache::load(device).await {
        Ok(superblock) if occupied == Occupied::Refuse => {
            let (device, volume) = (device.name().clone(), superblock.volume);
            match volume == own {
                true => Err(CreateError::CacheOfOwn { device }),
                false => Err(CreateError::CacheInUse { device, volume }),
            }
        }
        _ => Ok(()),
    }
}

pub(crate) async fn refuse_occupied(cache: &dyn BlockDevice, own: Uuid) -> Result<(), CreateError> {
    let device = || cache.name().clone();
    refuse_cache(cache, Occupied::Refuse, own).await?;
    if let Inspection::Member(superblock) = headpond_raid::inspect(cache).await? {
        return Err(CreateError::CacheIsMember { device: device(), array: superblock.array.name });
    }
    Ok(())
}
