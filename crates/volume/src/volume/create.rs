//! Making and removing volumes.

use super::Volume;
use crate::assembly::cores::Shape;
use crate::assembly::create::{
    CoreFacts, CreateError, CreateOptions, Destroyed, array_options, cache_options,
    consider_copies, refuse_occupied,
};
use crate::assembly::open::{Devices, is_memory};
use crate::description::Description;
use crate::record::VolumeRecord;
use headpond_block::{BlockDevice, DeviceError};
use headpond_cache::{OpenError, Superblock};
use headpond_raid::array::write_first_volume_record;
use headpond_raid::{Contents, CreateOptions as ArrayOptions, Inspection, Intent, Occupied, Owner};
use std::rc::Rc;
use uuid::Uuid;

impl Volume {
    /// Writes the superblocks of a new volume, and returns its size in bytes. A power cut leaves no
    /// volume or a complete one.
    ///
    /// # Errors
    /// Refusals before anything is written; later those of the devices, whose superblocks are
    /// erased then, as far as they can be written.
    pub async fn create(
        description: &Description,
        devices: &Devices,
        options: &CreateOptions,
    ) -> Result<u64, CreateError> {
        let lasts = |cache: &Rc<dyn BlockDevice>| !is_memory(&**cache);
        let has_cache = devices.cache.as_ref().is_some_and(lasts) || !devices.copies.is_empty();
        let owner = has_cache.then_some(Owner { cache: options.cache, generation: 0 });
        let plans = plans(description, devices, options, owner);
        let mut arrays = Vec::new();
        let mut journals = devices.journals.iter();
        let mut records = Vec::new();
        for (members, array) in &plans {
            let record = headpond_raid::create::consider(members, array).await?;
            let layout = record.layout().map_err(headpond_raid::CreateError::from)?;
            if let Some(device) = array.journal.and_then(|_| journals.next()) {
                headpond_raid::consider_journal(&**device, &layout, options.occupied).await?;
                records.push((device, record));
            }
            arrays.push((array.uuid, Shape::planned(&layout)));
        }
        let facts = CoreFacts::new(&arrays, 0)?;
        let new = cache_options(description, options.cache, &facts);
        if let Some(cache) = &devices.cache {
            headpond_cache::consider(&**cache, &new)?;
            if options.occupied == Occupied::Refuse {
                refuse_occupied(&**cache, description.uuid).await?;
            }
        }
        let mirror = consider_copies(description, &devices.copies, &new, options.occupied).await?;
        let text = VolumeRecord::new(1, description).to_bytes()?;
        let made = async {
            for (journal, record) in &records {
                headpond_raid::create_journal(&***journal, record, options.occupied).await?;
            }
            for (members, array) in &plans {
                for member in &**members {
                    write_first_volume_record(&**member, array.uuid, &text).await?;
                }
                headpond_raid::create(members, array).await?;
            }
            if let Some(cache) = &devices.cache {
                headpond_cache::create(&**cache, &new).await?;
            }
            if let Some(mirror) = mirror {
                for face in &mirror.faces {
                    headpond_cache::create(&**face, &mirror.cache).await?;
                }
                headpond_raid::create(&devices.copies, &mirror.array).await?;
            }
            Ok(())
        };
        let made: Result<(), CreateError> = made.await;
        if made.is_err() {
            // The labels written are useless without the rest. A device that fails keeps its label.
            Self::destroy(description, devices).await;
        }
        made.map(|()| arrays[0].1.size_bytes)
    }

    /// Writes the superblock of an existing device anew, below a cache that there is: its head was
    /// lost.
    ///
    /// # Errors
    /// Where the device is none that the cache could be of, or fails.
    pub async fn create_below(
        description: &Description,
        member: &Rc<dyn BlockDevice>,
        cache: &Superblock,
    ) -> Result<(), CreateError> {
        let options = CreateOptions {
            contents: Contents::Unknown,
            intent: Intent::None,
            occupied: Occupied::Refuse,
            cache: cache.cache,
            journal: cache.cache,
        };
        let owner = Owner { cache: cache.cache, generation: cache.generation };
        let devices = Devices { members: vec![Rc::clone(member)], ..Devices::default() };
        let text = VolumeRecord::new(1, description).to_bytes()?;
        for (members, array) in plans(description, &devices, &options, Some(owner)) {
            for member in members {
                write_first_volume_record(&**member, array.uuid, &text).await?;
            }
            headpond_raid::create(members, &array).await?;
        }
        Ok(())
    }

    /// Erases the superblocks of the volume; devices that do not belong to it are left alone, and
    /// one that fails does not keep the others from being erased.
    pub async fn destroy(description: &Description, devices: &Devices) -> Destroyed {
        let mut destroyed = Destroyed::default();
        // The cache first: without it the members are refused as a volume.
        if let Some(cache) = &devices.cache {
            destroyed.count(erase_cache(&**cache, description.uuid).await);
        }
        let mirror = description.cache.as_ref().and_then(|cache| cache.mirror.as_ref());
        for copy in &devices.copies {
            let is_ours = |array| mirror.is_some_and(|mirror| mirror.uuid == array);
            destroyed.count(erase_of_array(&**copy, is_ours).await);
        }
        for device in devices.journals.iter().chain(&devices.members) {
            let is_ours = |array| description.cores().any(|(uuid, _)| uuid == array);
            destroyed.count(erase_of_array(&**device, is_ours).await);
        }
        destroyed
    }
}

impl Destroyed {
    fn count(&mut self, outcome: Result<bool, DeviceError>) {
        match outcome {
            Ok(was_ours) => self.erased += usize::from(was_ours),
            Err(error) => self.failed.push(error),
        }
    }
}

/// Returns whether it was the cache of this volume.
async fn erase_cache(device: &dyn BlockDevice, volume: Uuid) -> Result<bool, DeviceError> {
    let is_ours = match headpond_cache::load(device).await {
        Ok(superblock) => superblock.volume == volume,
        Err(OpenError::Device(error)) => return Err(error),
        Err(_) => false,
    };
    if is_ours {
        headpond_cache::wipe(device).await?;
    }
    Ok(is_ours)
}

/// Returns whether it was a member, or the stripe journal, of an array that is meant.
async fn erase_of_array(
    device: &dyn BlockDevice,
    is_meant: impl Fn(Uuid) -> bool,
) -> Result<bool, DeviceError> {
    let journal = headpond_raid::journal_of(device).await?;
    let member = match headpond_raid::inspect(device).await? {
        Inspection::Member(superblock) => Some(superblock.array.uuid),
        _ => None,
    };
    let is_ours = journal.into_iter().chain(member).any(is_meant);
    if is_ours {
        headpond_raid::erase(device).await?;
    }
    Ok(is_ours)
}

/// The arrays to be made with their members, in order of address: each takes as many devices as it
/// has members.
fn plans<'a>(
    description: &Description,
    devices: &'a Devices,
    options: &CreateOptions,
    owner: Option<Owner>,
) -> Vec<(&'a [Rc<dyn BlockDevice>], ArrayOptions)> {
    let further = &description.further_cores;
    let names = further.iter().map(|further| description.array_name(&further.name));
    let names = std::iter::once(description.name.clone()).chain(names);
    let mut rest = &devices.members[..];
    let mut plans = Vec::new();
    for ((uuid, core), name) in description.cores().zip(names) {
        let is_last = plans.len() == further.len();
        let count = if is_last { rest.len() } else { core.members.len().min(rest.len()) };
        let (members, others) = rest.split_at(count);
        rest = others;
        plans.push((members, array_options((name, uuid), core, options, owner)));
    }
    plans
}
