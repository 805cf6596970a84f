//! Adding and removing members of the arrays of an open volume.

use crate::assembly::cores::{Core, StripesDiffer};
use crate::assembly::create::{refuse_cache, refuse_memory};
use crate::assembly::mirror::{CACHE_COPIES, Mirror};
use crate::background::{BackgroundRate, BackgroundRateError};
use crate::description::{CoreDescription, FIRST_CORE};
use crate::volume::kept::{DescriptionKeeper, KeptDescription};
use crate::volume::{BusyError, CleanAllError, Volume};
use headpond_block::BlockDevice;
use headpond_cache::format::superblock::CORE_BYTES_MAX;
use headpond_raid::create::refuse_occupied;
use headpond_raid::superblock::RoleState;
use headpond_raid::{
    ArrayStatus, CreateError, GrowError, Inspection, JournalError, MemberError, Occupied,
    ReturnError, Role,
};
use std::rc::Rc;
use uuid::Uuid;

/// Why the members of an array were not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeMembersError {
    #[error("{volume} has no core {core}; `status` lists them")]
    NoCore { volume: String, core: String },
    #[error("the cache of {volume} is not a mirror: `cache attach` with several devices makes one")]
    NoCopies { volume: String },
    #[error("{volume} has no member or spare {device}; `status` lists them")]
    NoMember { volume: String, device: String },
    #[error(transparent)]
    Busy(#[from] BusyError),
    #[error(
        "{volume} is on an existing device, which stays as it would be without Headpond: it gets no other \
         members; `headpond detach {volume}` gives it back"
    )]
    Existing { volume: String },
    #[error("array `{array}` has no redundancy: a scrub could neither compare nor repair anything")]
    NoRedundancy { array: String },
    #[error("{device} has a role: `headpond array replace` gives it to another device")]
    InUse { device: String },
    #[error(
        "{device} is a spare, and has no role: `headpond array remove {volume} {device}{of}` removes it"
    )]
    Spare { volume: String, device: String, of: String },
    #[error(
        "{device} is failed or missing: `headpond array re-add {volume} {device}{of}` re-adds it, `add-spare` \
         replaces it by another device"
    )]
    OutOfUse { volume: String, device: String, of: String },
    #[error(
        "{device} was {place} of this array before: `headpond array re-add` re-adds a member that was \
         missing, --force overwrites it"
    )]
    Former { device: String, place: String },
    #[error(transparent)]
    BackgroundRate(#[from] BackgroundRateError),
    #[error(
        "{volume} has several cores behind one cache, which depends on their addresses: detach the \
         cache or the tier first, and attach it again after the change"
    )]
    CachedCores { volume: String },
    #[error(
        "{volume} has a cache of several slices, and the larger array would distribute its stripes over \
         them differently: detach the cache first, and attach it again once the array grows"
    )]
    CachedSlices { volume: String },
    #[error("{volume} would have {bytes} bytes, and a cache supports at most {CORE_BYTES_MAX}")]
    CachedSize { volume: String, bytes: u64 },
    #[error(
        "the cache of {volume} has dirty data from before an unclean shutdown: `headpond flush {volume}`, \
         then retry"
    )]
    Replayed { volume: String },
    #[error(transparent)]
    Clean(#[from] CleanAllError),
    #[error(
        "the change of the array is recorded, and it could not be reassembled: {cause}; `headpond stop \
         {volume}` and `headpond serve {volume}` resume it"
    )]
    Reopen { volume: String, cause: String },
    #[error(transparent)]
    Grow(#[from] GrowError),
    #[error(transparent)]
    Stripes(#[from] StripesDiffer),
    #[error(transparent)]
    Occupied(#[from] CreateError),
    #[error(transparent)]
    Copy(#[from] crate::CreateError),
    #[error(transparent)]
    Member(#[from] MemberError),
    #[error(transparent)]
    Return(#[from] ReturnError),
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// A device to be added to an array.
pub struct NewMember {
    /// Its name in the description.
    pub word: String,
    pub device: Rc<dyn BlockDevice>,
    /// Random, and never used before.
    pub uuid: Uuid,
    /// Whether what is on it may be overwritten.
    pub occupied: Occupied,
}

/// A device to be re-added to an array.
pub struct ReturningMember {
    /// Its name in the description.
    pub word: String,
    pub device: Rc<dyn BlockDevice>,
    /// Random, and never used before.
    pub uuid: Uuid,
}

/// Longer than drives take, even with internal retries.
const SILENT_MS: u64 = 2000;

impl Volume {
    /// Refuses a core whose data lies where its users put it.
    pub(crate) fn refuse_existing(&self, core: Option<&str>) -> Result<(), ChangeMembersError> {
        let description = self.description();
        let further = core.filter(|core| *core != description.name);
        let (described, volume) = match further {
            None => (Some(&description.core), description.name.clone()),
            Some(name) => {
                let mut cores = description.further_cores.iter();
                let core = cores.find(|core| core.name == name).map(|core| &core.core);
                (core, description.array_name(name))
            }
        };
        match described.is_some_and(CoreDescription::is_existing) {
            true => Err(ChangeMembersError::Existing { volume }),
            false => Ok(()),
        }
    }

    /// Has `keeper` save the description.
    pub fn keep_description(&self, keeper: DescriptionKeeper) {
        self.kept.keeper.replace(Some(keeper));
        if self.settle_journals() {
            drop(self.runtime.spawn(self.kept.tell(&self.description())));
        }
    }

    /// Names of the devices that the arrays have open: members, spares, stripe journals, and copies
    /// of a cache.
    pub fn array_devices(&self) -> Vec<String> {
        let cores = self.cores();
        let devices = cores.iter().flat_map(|(core, _)| core.array.devices());
        let copies = self.mirror().ok().into_iter().flat_map(|mirror| mirror.core.array.devices());
        let devices = devices.chain(copies);
        let mut names: Vec<String> = devices.map(|device| device.name().to_string()).collect();
        let arrays = cores.iter().filter_map(|(core, _)| core.array.status().journal);
        names.extend(arrays.filter_map(|journal| journal.device).map(|it| it.to_string()));
        names
    }

    /// Members with operations pending longer than [`SILENT_MS`].
    pub fn silent_devices(&self) -> Vec<String> {
        let cores = self.cores();
        let arrays = cores.iter().map(|(core, _)| core.array.status());
        let copies = self.mirror().ok().map(|mirror| mirror.core.array.status());
        let members = arrays.chain(copies).flat_map(|array| array.members);
        let silent = members.filter(|member| member.answers.unanswered_ms >= SILENT_MS);
        let told = silent.map(|member| {
            let seconds = member.answers.unanswered_ms / 1000;
            format!("{} for {seconds} s", member.device.as_deref().unwrap_or("a member"))
        });
        told.collect()
    }

    /// Makes a device a hot spare of a core. It replaces a lost member, or the next one.
    ///
    /// # Errors
    /// Where the device cannot be a member; it is then as it was, unless it failed itself.
    pub async fn add_spare(
        &self,
        core: Option<&str>,
        new: NewMember,
    ) -> Result<(), ChangeMembersError> {
        let _turn = self.begin_change()?;
        self.refuse_existing(core)?;
        let core = self.array_of(core)?;
        self.join(&core, new).await?;
        core.background.wake();
        Ok(())
    }

    /// Replaces a member by a spare: by `with`, which becomes one, or by a hot spare. The member
    /// stays active until the spare is rebuilt.
    ///
    /// # Errors
    /// Where there is no such member or spare.
    pub async fn replace_member(
        &self,
        core: Option<&str>,
        member: &str,
        with: Option<NewMember>,
    ) -> Result<(), ChangeMembersError> {
        let _turn = self.begin_change()?;
        self.refuse_existing(core)?;
        let core = self.array_of(core)?;
        let role = self.role_on(&core, member)?;
        let spare = match with {
            Some(new) => Some(self.join(&core, new).await?),
            None => None,
        };
        core.array.assign_spare(role, spare).await?;
        core.background.wake();
        Ok(())
    }

    /// Re-adds a member that was failed or missing: writes that it missed are resynced. Returns how
    /// many bytes at most.
    ///
    /// # Errors
    /// Where its role is taken, or its missed writes are unknown. It is then unchanged, unless it
    /// failed itself.
    pub async fn re_add_member(
        &self,
        core: Option<&str>,
        returning: ReturningMember,
    ) -> Result<u64, ChangeMembersError> {
        let _turn = self.begin_change()?;
        let core = self.array_of(core)?;
        if core.name == CACHE_COPIES {
            return self.return_copy(&core, returning).await;
        }
        let name = returning.device.name().to_string();
        let device = self.ownership.guard(returning.device);
        let rows = core.array.re_add(device, returning.uuid).await?;
        self.describe_spare(&core, &name, returning.word);
        core.background.wake();
        Ok(rows * u64::from(core.array.layout().strip_bytes()))
    }

    /// Fails a member.
    ///
    /// # Errors
    /// Where there is no such member, or the array would not survive that.
    pub async fn fail_member(
        &self,
        core: Option<&str>,
        member: &str,
    ) -> Result<(), ChangeMembersError> {
        let _turn = self.begin_change()?;
        let core = self.array_of(core)?;
        let role = self.role_on(&core, member)?;
        Ok(core.array.fail(role).await?)
    }

    /// Removes a spare, or a failed or missing member.
    ///
    /// # Errors
    /// Where the device has a role, or is not of this volume.
    pub async fn remove_member(
        &self,
        core: Option<&str>,
        device: &str,
    ) -> Result<(), ChangeMembersError> {
        let _turn = self.begin_change()?;
        let core = self.array_of(core)?;
        if let Some(uuid) = core.array.spare_on(device) {
            return self.remove_spare(&core, device, uuid).await;
        }
        if core
            .array
            .status()
            .members
            .iter()
            .any(|it| it.state == RoleState::Active && it.device.as_deref() == Some(device))
        {
            return Err(ChangeMembersError::InUse { device: device.into() });
        } else if !self.lists_of(&core, |lists| lists.names(device, &self.kept)) {
            return Err(self.no_member(device));
        }
        self.forget_device(&core, device);
        Ok(())
    }

    /// A start refuses a device that is listed and carries no label: the list comes first.
    async fn remove_spare(
        &self,
        core: &Core,
        device: &str,
        uuid: Uuid,
    ) -> Result<(), ChangeMembersError> {
        let word = self.lists_of(core, |lists| lists.word_of(device, &self.kept));
        self.forget_device(core, device);
        self.kept.tell(&self.description()).await;
        let removed = core.array.remove_spare(uuid).await;
        if removed.is_err() && core.array.spare_on(device).is_some() {
            // This one alone: another spare may have taken a role meanwhile.
            self.lists_of(core, |lists| lists.spares.extend(word));
        }
        Ok(removed?)
    }

    pub(crate) fn forget_device(&self, core: &Core, device: &str) {
        self.lists_of(core, |lists| lists.forget(device, &self.kept));
    }

    /// Starts a scrub of a core's array in the background.
    ///
    /// # Errors
    /// Where there is no such core, or it has no redundancy.
    pub fn scrub_array(&self, core: Option<&str>) -> Result<(), ChangeMembersError> {
        let core = self.core(core)?;
        let array = &core.array;
        if array.layout().redundancy() == 0 {
            return Err(ChangeMembersError::NoRedundancy { array: array.name().to_string() });
        }
        core.background.scrub();
        Ok(())
    }

    /// Pauses background work on a core's array, or resumes it.
    ///
    /// # Errors
    /// Where there is no such core.
    pub fn pause_background(
        &self,
        core: Option<&str>,
        is_paused: bool,
    ) -> Result<(), ChangeMembersError> {
        self.array_of(core)?.background.pause(is_paused);
        Ok(())
    }

    /// The same for scrubs only.
    ///
    /// # Errors
    /// Where there is no such core.
    pub fn pause_scrub(
        &self,
        core: Option<&str>,
        is_paused: bool,
    ) -> Result<(), ChangeMembersError> {
        self.core(core)?.background.pause_scrub(is_paused);
        Ok(())
    }

    /// Sets the rate of that work.
    ///
    /// # Errors
    /// Where there is no such core, or the maximum is below the minimum.
    pub fn set_background_rate(
        &self,
        core: Option<&str>,
        change: impl FnOnce(BackgroundRate) -> BackgroundRate,
    ) -> Result<(), ChangeMembersError> {
        let core = self.core(core)?;
        let pace = change(core.background.pace());
        pace.check()?;
        core.background.set_background_rate(pace);
        self.core_description(&core, |described| described.background = pace);
        Ok(())
    }

    /// Updates the description after background work.
    pub(crate) fn follow_exchanges(&self) {
        for (core, _) in self.cores().iter() {
            let (description, kept) = (Rc::clone(&self.description), Rc::clone(&self.kept));
            let (id, runtime) = (core.id, self.runtime.clone());
            core.background.when_exchanged(Box::new(move |status, old| {
                if let Some(described) = description.borrow_mut().core_mut(id) {
                    described.lists().follow(status, old, &kept);
                }
                drop(runtime.spawn(kept.tell(&description.borrow())));
            }));
        }
        self.follow_copies();
    }

    /// The same for the copies of the cache.
    pub(crate) fn follow_copies(&self) {
        let Some(mirror) = self.cached().and_then(|cached| cached.mirror.clone()) else { return };
        let (description, kept) = (Rc::clone(&self.description), Rc::clone(&self.kept));
        let runtime = self.runtime.clone();
        mirror.core.background.when_exchanged(Box::new(move |status, old| {
            if let Some(cache) = &mut description.borrow_mut().cache {
                let follow = |members: &mut _, spares: &mut _| {
                    Lists { members, spares }.follow(status, old, &kept);
                };
                cache.change_copies(follow);
            }
            drop(runtime.spawn(kept.tell(&description.borrow())));
        }));
    }

    async fn join(&self, core: &Core, mut new: NewMember) -> Result<Uuid, ChangeMembersError> {
        new.device = self.ownership.guard(new.device);
        core.array.consider_spare(&*new.device)?;
        if new.occupied == Occupied::Refuse {
            refuse_what_is_on(core, &*new.device).await?;
        }
        if core.name == CACHE_COPIES {
            refuse_memory(&*new.device)?;
            refuse_cache(&*new.device, new.occupied, self.description().uuid).await?;
        }
        let name = new.device.name().to_string();
        core.array.add_spare(new.device, new.uuid).await?;
        self.describe_spare(core, &name, new.word);
        Ok(new.uuid)
    }

    /// A copy of the cache has no bitmap of missed writes: all of it is resynced.
    async fn return_copy(
        &self,
        core: &Core,
        returning: ReturningMember,
    ) -> Result<u64, ChangeMembersError> {
        let ReturningMember { word, device, uuid } = returning;
        let is_ours = matches!(
            headpond_raid::inspect(&*device).await.map_err(MemberError::from)?,
            Inspection::Member(found) if found.array.uuid == core.array.uuid()
        );
        if !is_ours {
            let (array, device) = (core.array.name().to_string(), device.name().clone());
            return Err(ReturnError::Foreign { array, device }.into());
        }
        self.join(core, NewMember { word, device, uuid, occupied: Occupied::Overwrite }).await?;
        core.background.wake();
        Ok(core.array.layout().array_bytes())
    }

    /// Lists spares that became members as such.
    pub(crate) fn members_have_joined(&self, core: &Core) {
        let status = core.array.status();
        self.lists_of(core, |mut lists| lists.follow(&status, None, &self.kept));
    }

    pub(crate) fn describe_spare(&self, core: &Core, name: &str, word: String) {
        self.lists_of(core, |lists| {
            if !lists.names(name, &self.kept) {
                lists.spares.push(word);
            }
        });
    }

    /// A core, or the copies of the cache.
    fn array_of(&self, name: Option<&str>) -> Result<Rc<Core>, ChangeMembersError> {
        match name {
            Some(CACHE_COPIES) => Ok(Rc::clone(&self.mirror()?.core)),
            name => self.core(name),
        }
    }

    fn mirror(&self) -> Result<Rc<Mirror>, ChangeMembersError> {
        let mirror = self.cached().and_then(|cached| cached.mirror.clone());
        mirror.ok_or_else(|| ChangeMembersError::NoCopies { volume: self.description().name })
    }

    pub(crate) fn core(&self, name: Option<&str>) -> Result<Rc<Core>, ChangeMembersError> {
        let cores = self.cores();
        let mut all = cores.iter().map(|(core, _)| core);
        let is_it = |core: &&Rc<Core>| match name {
            None => core.id == FIRST_CORE,
            Some(name) => core.name == name,
        };
        all.find(is_it).cloned().ok_or_else(|| ChangeMembersError::NoCore {
            volume: self.description().name,
            core: name.unwrap_or_default().into(),
        })
    }

    pub(crate) fn core_description<T>(
        &self,
        core: &Core,
        look: impl FnOnce(&mut CoreDescription) -> T,
    ) -> T {
        let mut description = self.description.borrow_mut();
        look(description.core_mut(core.id).expect("every core is described"))
    }

    fn lists_of<T>(&self, core: &Core, look: impl FnOnce(Lists<'_>) -> T) -> T {
        if core.name != CACHE_COPIES {
            return self.core_description(core, |described| look(described.lists()));
        }
        let mut description = self.description.borrow_mut();
        let cache = description.cache.as_mut().expect("a cache is described");
        let looked = cache.change_copies(|members, spares| look(Lists { members, spares }));
        looked.expect("the copies are described")
    }

    /// The role of a member that is in use.
    fn role_on(&self, core: &Core, device: &str) -> Result<Role, ChangeMembersError> {
        if let Some(role) = core.array.role_on(device) {
            return Ok(role);
        }
        let (volume, name) = (self.description().name, device.to_owned());
        let of = match &*core.name {
            CACHE_COPIES => " --cache".into(),
            first if first == volume => String::new(),
            further => format!(" --core {further}"),
        };
        if core.array.spare_on(device).is_some() {
            return Err(ChangeMembersError::Spare { volume, device: name, of });
        }
        match self.lists_of(core, |lists| lists.names(device, &self.kept)) {
            true => Err(ChangeMembersError::OutOfUse { volume, device: name, of }),
            false => Err(self.no_member(device)),
        }
    }

    pub(crate) fn no_member(&self, device: &str) -> ChangeMembersError {
        let volume = self.description().name;
        ChangeMembersError::NoMember { volume, device: device.into() }
    }
}

/// Refuses a device that is not empty; the error tells a former member of this array.
pub(crate) async fn refuse_what_is_on(
    core: &Core,
    device: &dyn BlockDevice,
) -> Result<(), ChangeMembersError> {
    match refuse_occupied(device).await {
        Err(CreateError::Member { device, uuid, place, .. }) if uuid == core.array.uuid() => {
            Err(ChangeMembersError::Former { device: device.to_string(), place })
        }
        looked => Ok(looked?),
    }
}

/// The devices of an array that the description names.
struct Lists<'a> {
    members: &'a mut Vec<String>,
    spares: &'a mut Vec<String>,
}

impl CoreDescription {
    fn lists(&mut self) -> Lists<'_> {
        Lists { members: &mut self.members, spares: &mut self.spares }
    }
}

impl Lists<'_> {
    fn names(&self, device: &str, kept: &KeptDescription) -> bool {
        self.word_of(device, kept).is_some()
    }

    /// The listed name of that device.
    fn word_of(&self, device: &str, kept: &KeptDescription) -> Option<String> {
        let mut words = self.spares.iter().chain(&*self.members);
        words.find(|word| kept.name_of(word) == device).cloned()
    }

    fn forget(self, device: &str, kept: &KeptDescription) {
        self.members.retain(|word| kept.name_of(word) != device);
        self.spares.retain(|word| kept.name_of(word) != device);
    }

    /// A spare has replaced `old`, where there was one. Devices that were lost before stay listed
    /// until every role has a member.
    fn follow(&mut self, status: &ArrayStatus, old: Option<&str>, kept: &KeptDescription) {
        let active = |word: &String| {
            let (name, mut members) = (kept.name_of(word), status.members.iter());
            members.any(|it| it.state == RoleState::Active && it.device.as_ref() == Some(&name))
        };
        let (taken, spares) = self.spares.drain(..).partition(active);
        *self.spares = spares;
        let taken: Vec<String> = taken;
        self.members.extend(taken);
        self.members.retain(|word| old != Some(kept.name_of(word).as_str()));
        if self.members.iter().filter(|name| active(name)).count() == status.members.len() {
            self.members.retain(active);
        }
    }
}
