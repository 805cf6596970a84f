//! Assembling a volume from its devices.

use super::Volume;
use super::kept::{BegunRecords, begin_records};
use crate::assembly::cached::Cached;
use crate::assembly::cores::{Core, Cores};
use crate::assembly::open::{
    ChangedDevice, Devices, FoundCache, LoadWatch, OpenError, OpenOptions, Tolerance, Wanted,
};
use crate::assembly::ownership::Ownership;
use crate::description::{CoreDescription, Description, FIRST_CORE};
use crate::notes::{Note, joined};
use crate::record::RecordError;
use headpond_block::{BlockDevice, DeviceError, Outcome, Runtime, Stability};
use headpond_cache::OpenError::CoreChanged;
use headpond_raid::{
    AfterUncleanStop, Array, AssembleError, AssembleOptions, Assembled, Force, Inspection,
    OwnerStopped, Prepared, Tuning, Warning, inspect_all, journal_of, prepare,
};
use std::rc::Rc;
use uuid::Uuid;

impl Volume {
    /// Assembles the volume, and recovers after an unclean shutdown.
    ///
    /// # Errors
    /// Where array or cache refuse; the text names the device, the cause and the way out.
    pub async fn open(
        runtime: &Runtime,
        description: &Description,
        mut devices: Devices,
        options: OpenOptions,
    ) -> Result<Self, OpenError> {
        let ownership = match options.claimant.as_ref() {
            Some(claimant) => {
                Ownership::claim(runtime, description, claimant, &mut devices).await?
            }
            None => Ownership::default(),
        };
        let tolerance = options.tolerance;
        let opened = Self::open_owned(runtime, description, devices, options, &ownership).await;
        match opened {
            Ok(mut volume) => {
                volume.verify_flushed_positions(tolerance).await;
                Ok(volume)
            }
            Err(error) => {
                ownership.release().await;
                Err(error)
            }
        }
    }

    async fn open_owned(
        runtime: &Runtime,
        description: &Description,
        devices: Devices,
        options: OpenOptions,
        ownership: &Ownership,
    ) -> Result<Self, OpenError> {
        let Devices { tier, cache, copies, members, journals, absent, changed } = devices;
        let mut cache = Wanted::new(description, cache, &absent, &changed);
        let tuning = Tuning::with_pool(options.pool.clone());
        let (name, how) = (&*description.name, (&options, &tuning));
        let told_of_copies = cache.find_mirror(runtime, name, copies, tuning.clone()).await;
        if members.is_empty() && !absent.is_empty() {
            return Err(OpenError::NoMembers { reason: joined(&absent) });
        }
        let members = by_core(runtime, description, members).await;
        let journals = journals_by_core(description, journals).await;
        let arrays: Vec<_> = members.into_iter().zip(journals).collect();
        let mut prepared =
            prepare_all(runtime, description, &arrays, how, cache.device.as_deref()).await?;
        let (found, told_of_cache) = cache.find(description, &options, &prepared).await?;
        if found.is_none() && cache.device.is_some() {
            // Without the log it is unknown which stripes may be torn.
            prepared = prepare_all(runtime, description, &arrays, how, None).await?;
        }
        let mut notes = absent;
        notes.extend(told_of_copies.into_iter().chain(told_of_cache).map(Note::from));
        let (found, told) = cache.begin(found, runtime, name).await?;
        notes.extend(told.into_iter().map(Note::from));
        let were_clean = prepared.iter().all(Prepared::was_clean);
        let mut list = Vec::new();
        for ((id, name), prepared) in names(description).zip(prepared) {
            let (array, told) = begin(prepared).await?;
            notes.extend(told);
            list.push(Core::new(id, name, array, runtime));
        }
        let watch = options.watch_load.as_ref();
        let cores = Cores::new(runtime.clone(), list, options.around_core.clone())?;
        cores.configure(&description.array);
        let recorded = begin_records(&cores, description).await;
        recorded.iter().for_each(|begun| begun.history.restore(&tuning.history));
        let cached = match found {
            Some(found) => {
                let how = (options.tolerance, watch);
                let opened = open_cached(&cores, description, found, how, were_clean).await;
                let (cached, told) = opened?;
                notes.extend(told.into_iter().map(Note::from));
                Some(cached)
            }
            None => {
                give_up_cache(&cores).await.map_err(AssembleError::Device)?;
                None
            }
        };
        // A cache of before is given up by now.
        notes.extend(accept(changed).await.map_err(AssembleError::Device)?);
        let mut volume = Self::assembled(description, cores, cached, notes, ownership.clone());
        volume.go_on_from(recorded);
        if let Some(device) = tier
            && let Err(error) = volume.put_tier(device).await
        {
            volume.warn(format!("started without its tier in memory: {error}"));
        }
        volume.recognise().await;
        Ok(volume)
    }

    /// Continues after the record that the members have.
    fn go_on_from(&mut self, recorded: Result<BegunRecords, RecordError>) {
        match recorded {
            Ok(begun) => {
                self.kept.continue_after(&begun);
                self.restore_cache_history(&begun.history);
            }
            Err(error) => self.warn(error.to_string()),
        }
    }
}

/// Takes what others have written to existing devices for their contents; the notes on it.
async fn accept(changed: Vec<ChangedDevice>) -> Result<Vec<Note>, DeviceError> {
    let mut notes = Vec::new();
    for ChangedDevice { device, change } in changed {
        device.accept().await?;
        notes.push(change.to_string().into());
    }
    Ok(notes)
}

/// Continues without a cache, which from now on is refused.
async fn give_up_cache(cores: &Cores) -> Outcome {
    let had_one = cores.iter().any(|(core, _)| core.array.owner().is_some());
    cores.do_without().await?;
    if had_one {
        // It may have copies, and a missing one may be one ahead.
        cores.do_without().await?;
    }
    Ok(())
}

/// Opens the cache that was found. One that is refused because the core was changed leaves a clean
/// shutdown on array and copies, where all of them had one.
async fn open_cached(
    cores: &Cores,
    description: &Description,
    found: FoundCache<'_>,
    how: (Tolerance, Option<&LoadWatch>),
    were_clean: bool,
) -> Result<(Cached, Vec<String>), OpenError> {
    let mirror = found.device.mirror.clone();
    let opened = Cached::open(cores, description, found, how).await;
    if let Err(OpenError::Cache(CoreChanged { was_clean: true, .. })) = opened
        && were_clean
    {
        // Nothing was written, and no parity is suspect: the next start may rely on that.
        let _ = cores.stop(OwnerStopped::default()).await;
        if let Some(mirror) = mirror {
            let _ = mirror.stop().await;
        }
    }
    let (cached, told) = opened?;
    if !cached.is_memory() {
        let life = cached.recorded_life(false);
        cores.note_life(life).await.map_err(AssembleError::Device)?;
    }
    Ok((cached, told))
}

/// Numbers and names of the cores, in order of address.
fn names(description: &Description) -> impl Iterator<Item = (u16, String)> {
    let further = description.further_cores.iter().map(|core| (core.id, core.name.clone()));
    std::iter::once((FIRST_CORE, description.name.clone())).chain(further)
}

/// The devices of each core, by their labels; others are left to the first core, which refuses
/// them, or reports that they cannot be read.
async fn by_core(
    runtime: &Runtime,
    description: &Description,
    members: Vec<Rc<dyn BlockDevice>>,
) -> Vec<Vec<Rc<dyn BlockDevice>>> {
    let uuids: Vec<Uuid> = description.cores().map(|(uuid, _)| uuid).collect();
    let mut by_core = vec![Vec::new(); uuids.len()];
    if uuids.len() == 1 {
        return vec![members];
    }
    let deadlines = description.array.deadlines();
    for (device, look) in inspect_all(runtime, members, deadlines).await {
        let core = match look {
            Ok(Inspection::Member(found)) => {
                uuids.iter().position(|uuid| *uuid == found.array.uuid)
            }
            _ => None,
        };
        by_core[core.unwrap_or(0)].push(device);
    }
    by_core
}

/// The journals of each core, by their labels: several while they are replaced. An unlabelled one
/// is the journal of a core that should have one.
async fn journals_by_core(
    description: &Description,
    journals: Vec<Rc<dyn BlockDevice>>,
) -> Vec<Vec<Rc<dyn BlockDevice>>> {
    let mut by_core = vec![Vec::new(); description.cores().count()];
    let mut others = Vec::new();
    for device in journals {
        let array = journal_of(&*device).await.ok().flatten();
        let is_its = |(uuid, _): (Uuid, &CoreDescription)| Some(uuid) == array;
        match description.cores().position(is_its) {
            Some(core) => by_core[core].push(device),
            None => others.push(device),
        }
    }
    for ((_, core), found) in description.cores().zip(&mut by_core) {
        if core.journal.is_some() && found.is_empty() {
            found.extend(others.pop());
        }
    }
    by_core
}

/// The devices of an array: members, journals.
type ArrayDevices = (Vec<Rc<dyn BlockDevice>>, Vec<Rc<dyn BlockDevice>>);

async fn prepare_all(
    runtime: &Runtime,
    description: &Description,
    arrays: &[ArrayDevices],
    (options, tuning): (&OpenOptions, &Tuning),
    cache: Option<&dyn BlockDevice>,
) -> Result<Vec<Prepared>, OpenError> {
    let mut prepared = Vec::new();
    for (core, (members, journals)) in description.cores().zip(arrays) {
        let journals = journals.clone();
        let deadlines = description.array.deadlines();
        let tuning = Tuning { deadlines, ..tuning.clone() };
        let how = AssembleOptions { journals, tuning, ..assemble_options(core, options, cache) };
        prepared.push(prepare(runtime, members.clone(), how).await?);
    }
    Ok(prepared)
}

/// The started array, and the notes on it.
pub(crate) async fn begin(prepared: Prepared) -> Result<(Array, Vec<Note>), AssembleError> {
    let Assembled { array, warnings, stale, .. } = prepared.begin().await?;
    // The status reports the progress of the initial sync.
    let told = warnings.iter().filter(|warning| **warning != Warning::ParityUntrusted);
    let mut told: Vec<Note> = told.map(|it| it.to_string().into()).collect();
    told.extend(stale.iter().map(|name| {
        let text = format!(
            "{name} is stale and left out: the array was used without it; `headpond array re-add` \
             resyncs it, or if it is an older image, `add-spare --force` rebuilds it"
        );
        Note::of_member(name.as_str(), text)
    }));
    Ok((array, told))
}

fn assemble_options(
    (uuid, core): (Uuid, &CoreDescription),
    options: &OpenOptions,
    cache: Option<&dyn BlockDevice>,
) -> AssembleOptions {
    // The log of a non-volatile cache and the intent bitmap for writes that bypass it together name
    // every stripe that may be torn.
    let has_log = cache.is_some_and(|cache| cache.geometry().stability != Stability::LostOnPower);
    let is_logged = has_log && core.intent;
    AssembleOptions {
        uuid: Some(uuid),
        after_unclean_stop: match is_logged {
            true => AfterUncleanStop::LogRecomputes,
            false => AfterUncleanStop::DistrustParity,
        },
        force: match options.tolerance {
            Tolerance::Careful => Force::No,
            Tolerance::Forced => Force::GiveUp,
            Tolerance::ParityAccepted => Force::AcceptParity,
        },
        tuning: Tuning::default(),
        journals: Vec::new(),
    }
}
