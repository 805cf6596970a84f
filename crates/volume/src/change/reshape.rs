//! Reshape of an array of an open volume to more members, or of a RAID 1 to fewer copies.
//!
//! 1. the change is checked, without a write; 2. requests are quiesced, and those of caches to the
//!    array as well; 3. the reshape begins, which moves nothing yet, and the array is reassembled
//!    for it; 4. its data moves in the background (`background`); 5. once all has moved the volume
//!    has its new size: the layers above follow, from the lowest upwards.
//!
//! **Invariants**
//! - A cache stays attached, with its contents, for no address changes: neither of a block on the
//!   core, nor of the slice that it belongs to.
//! - The array is shut down cleanly in between, which records that no parity is torn: blocks
//!   replayed after an unclean shutdown have been cleaned before.
//! - No layer grows before the layer below it has.

use crate::assembly::cached::Cached;
use crate::assembly::cores::{Core, Cores, Places, Shape};
use crate::assembly::slicing::Slicing;
use crate::change::members::{ChangeMembersError, NewMember, refuse_what_is_on};
use crate::change::quiesced::Quiesced;
use crate::serving::dispatcher::RequestDispatcher;
use crate::volume::open::begin;
use crate::volume::{CleanAllError, Volume};
use headpond_block::{BlockDevice, BufferPool, Cause, DeviceError};
use headpond_cache::format::superblock::CORE_BYTES_MAX;
use headpond_raid::{
    Addition, Array, AssembleOptions, GrowError, Inspection, Occupied, WhichCopy, inspect_all,
    prepare,
};
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use uuid::Uuid;

/// A device to add in a reshape.
pub enum GrowBy {
    /// A hot spare, by the name of its device.
    Spare(String),
    New(NewMember),
}

/// The devices to add.
struct Additions {
    additions: Vec<Addition>,
    /// Names of the new ones in the description.
    words: Vec<Option<String>>,
    /// Their contents must not be lost.
    to_look_at: Vec<Rc<dyn BlockDevice>>,
}

/// A copy of a RAID 1 to be removed.
pub struct LeavingCopy {
    pub copy: WhichCopy,
    /// Where it can be opened and the array does not have it: its label identifies the copy.
    pub device: Option<Rc<dyn BlockDevice>>,
}

/// Where there is a cache.
type MaybeCached = Rc<RefCell<Option<Rc<Cached>>>>;

/// The layers that grow when an array has.
pub(crate) struct Followers {
    /// Held by the cores' background work.
    cores: Weak<RefCell<Rc<Cores>>>,
    /// From below upwards.
    caches: [MaybeCached; 2],
    dispatcher: Rc<RequestDispatcher>,
}

impl Volume {
    /// Whether a device is a hot spare of an array.
    pub fn is_spare(&self, core: Option<&str>, device: &str) -> bool {
        self.core(core).is_ok_and(|core| core.array.spare_on(device).is_some())
    }

    /// Whether the array of a core has a device, in any role.
    pub fn has_device(&self, core: Option<&str>, device: &str) -> bool {
        let is_it = |it: &Rc<dyn BlockDevice>| it.name().as_str() == device;
        self.core(core).is_ok_and(|core| core.array.devices().iter().any(is_it))
    }

    /// Reshapes the array of a core to more members, under load. Its data moves in the background
    /// from now on, and once all has, the volume has its new size.
    ///
    /// # Errors
    /// Refusals leave the array as it was, but new devices may be spares. Where it could not be
    /// reassembled, the volume does not serve that core until it is opened again.
    pub async fn grow_array(
        &self,
        core: Option<&str>,
        by: Vec<GrowBy>,
        pool: BufferPool,
    ) -> Result<(), ChangeMembersError> {
        let _turn = self.begin_change()?;
        self.refuse_existing(core)?;
        let core = self.core(core)?;
        let Additions { additions, words, to_look_at } = self.additions(&core, by)?;
        self.consider_reshape(&core, &additions)?;
        for device in to_look_at {
            refuse_what_is_on(&core, &*device).await?;
        }
        let names: Vec<String> = additions.iter().map(|it| it.device.name().to_string()).collect();
        let joined = core.array.join_to_grow(&additions).await;
        for (name, word) in names.iter().zip(words) {
            if let (Some(word), true) = (word, core.array.spare_on(name).is_some()) {
                self.describe_spare(&core, name, word);
            }
        }
        joined?;
        // After a kill from here on the new devices must be listed.
        self.kept.tell(&self.description()).await;
        self.clean_replayed().await?;
        let cores = self.cores();
        let quiesced = self.quiesce(&cores, &core).await;
        self.begin_reshape(&core, &additions).await?;
        self.put_together_again(&quiesced, None, pool).await
    }

    /// Cleans everything where an unclean shutdown left blocks with suspect parity.
    pub(crate) async fn clean_replayed(&self) -> Result<(), CleanAllError> {
        for cached in self.caches().filter(|cached| cached.replayed_blocks() > 0) {
            cached.clean_all().await?;
        }
        Ok(())
    }

    /// Removes a copy of a RAID 1, under load. Its device is free then. Repeated after a power cut
    /// it completes the removal: the label of a device that the array does not know is erased.
    ///
    /// # Errors
    /// Refusals leave the array as it was, but the copy may be failed. Where it could not be
    /// reassembled, the volume does not serve that core until it is opened again.
    pub async fn drop_copy(
        &self,
        core: Option<&str>,
        leaving: LeavingCopy,
        pool: BufferPool,
    ) -> Result<(), ChangeMembersError> {
        let _turn = self.begin_change()?;
        let core = self.core(core)?;
        self.check_put_together()?;
        let LeavingCopy { copy, device } = leaving;
        let labelled = self.labelled(&core, device).await;
        if let Some((device, member)) = &labelled
            && !core.array.knows(*member)
        {
            self.let_go(&core, &copy, Some(Rc::clone(device))).await;
            return Ok(());
        }
        let which = known_copy(&core.array, &copy, labelled.as_ref().map(|(_, member)| *member));
        core.array.copy_to_drop(&which)?;
        self.clean_replayed().await?;
        let cores = self.cores();
        let quiesced = self.quiesce(&cores, &core).await;
        let dropped = self.record_drop(&core, &which).await?;
        self.put_together_again(&quiesced, None, pool).await?;
        drop(quiesced);
        let core = self.core(Some(&core.name))?;
        // The device of a name may be another member's by now.
        let left = labelled.filter(|(_, member)| !core.array.knows(*member));
        self.let_go(&core, &copy, dropped.or(left.map(|(device, _)| device))).await;
        Ok(())
    }

    async fn record_drop(
        &self,
        core: &Core,
        copy: &WhichCopy,
    ) -> Result<Option<Rc<dyn BlockDevice>>, ChangeMembersError> {
        self.check_cleaned()?;
        Ok(core.array.drop_copy(copy).await?)
    }

    /// A device that carries the label of a member of this array, and which.
    async fn labelled(
        &self,
        core: &Core,
        device: Option<Rc<dyn BlockDevice>>,
    ) -> Option<(Rc<dyn BlockDevice>, Uuid)> {
        let device = self.ownership.guard(device?);
        let deadlines = self.description().array.deadlines();
        let mut looks = inspect_all(&self.runtime, vec![device], deadlines).await;
        match looks.pop()? {
            (device, Ok(Inspection::Member(found))) if found.array.uuid == core.array.uuid() => {
                Some((device, found.member_uuid))
            }
            _ => None,
        }
    }

    /// Removes a device from the description, and erases its label. A start refuses one that is
    /// listed without a label, so the description comes first.
    async fn let_go(&self, core: &Core, copy: &WhichCopy, device: Option<Rc<dyn BlockDevice>>) {
        if let WhichCopy::On(name) = copy {
            self.forget_device(core, name);
        }
        if let Some(device) = &device {
            self.forget_device(core, device.name().as_str());
        }
        self.kept.tell(&self.description()).await;
        if let Some(device) = device {
            headpond_raid::erase_unlisted(&self.runtime, device).await;
        }
    }

    /// Whether no parity is suspect after an unclean shutdown, so that a clean shutdown is allowed.
    ///
    /// # Errors
    /// Where some is.
    pub(crate) fn check_cleaned(&self) -> Result<(), ChangeMembersError> {
        match self.caches().any(|cached| cached.replayed_blocks() > 0) {
            true => Err(ChangeMembersError::Replayed { volume: self.description().name }),
            false => Ok(()),
        }
    }

    /// Whether an array of unchanged size may be reassembled.
    ///
    /// # Errors
    /// Where caches depend on its address among several cores.
    pub(crate) fn check_put_together(&self) -> Result<(), ChangeMembersError> {
        match self.cores().is_single() || self.caches().next().is_none() {
            true => Ok(()),
            false => Err(ChangeMembersError::CachedCores { volume: self.description().name }),
        }
    }

    async fn begin_reshape(
        &self,
        core: &Core,
        additions: &[Addition],
    ) -> Result<(), ChangeMembersError> {
        self.check_cleaned()?;
        for Addition { device, .. } in additions {
            let device = device.name();
            // A spare that failed is not added again while requests are quiesced.
            if core.array.spare_on(device.as_str()).is_none() {
                return Err(GrowError::from(DeviceError::new(device, Cause::Gone)).into());
            }
        }
        Ok(core.array.begin_reshape(additions).await?)
    }

    fn additions(&self, core: &Core, by: Vec<GrowBy>) -> Result<Additions, ChangeMembersError> {
        let present = core.array.devices();
        let (mut additions, mut words, mut to_look_at) = (Vec::new(), Vec::new(), Vec::new());
        for one in by {
            match one {
                GrowBy::Spare(name) => {
                    let device = present.iter().find(|device| device.name().as_str() == name);
                    let device = device.ok_or_else(|| self.no_member(&name))?;
                    additions.push(Addition { device: Rc::clone(device), uuid: Uuid::nil() });
                    words.push(None);
                }
                GrowBy::New(new) => {
                    let device = self.ownership.guard(new.device);
                    if new.occupied == Occupied::Refuse {
                        to_look_at.push(Rc::clone(&device));
                    }
                    additions.push(Addition { device, uuid: new.uuid });
                    words.push(Some(new.word));
                }
            }
        }
        Ok(Additions { additions, words, to_look_at })
    }

    /// Whether the array may be reshaped, and has addresses among the other cores afterwards.
    fn consider_reshape(
        &self,
        core: &Core,
        additions: &[Addition],
    ) -> Result<(), ChangeMembersError> {
        let record = core.array.consider_reshape(additions)?;
        let layout = record.layout().expect("it was considered");
        let cores = self.cores();
        let shapes = cores.iter().map(|(other, _)| match other.id == core.id {
            true => Shape::planned(&layout),
            false => Shape::of(other.array.geometry()),
        });
        let places = Places::of(&shapes.collect::<Vec<Shape>>())?;
        match self.caches().next() {
            Some(_) => self.check_addresses_stay(&places),
            None => Ok(()),
        }
    }

    /// A cache maps blocks by their addresses, and each slice those of its own.
    fn check_addresses_stay(&self, grown: &Places) -> Result<(), ChangeMembersError> {
        let volume = || self.description().name;
        let (slicing, bytes) = (self.dispatcher.slicing(), grown.end());
        let stays =
            slicing.slices() == 1 || slicing == Slicing::new(slicing.slices(), grown.unit_bytes());
        match (self.cores().is_single(), stays) {
            (false, _) => Err(ChangeMembersError::CachedCores { volume: volume() }),
            (_, false) => Err(ChangeMembersError::CachedSlices { volume: volume() }),
            _ if bytes > CORE_BYTES_MAX => {
                Err(ChangeMembersError::CachedSize { volume: volume(), bytes })
            }
            _ => Ok(()),
        }
    }

    pub(crate) async fn put_together_again(
        &self,
        quiesced: &Quiesced<'_>,
        journal: Option<Rc<dyn BlockDevice>>,
        pool: BufferPool,
    ) -> Result<(), ChangeMembersError> {
        let core = quiesced.core;
        let again = |error: headpond_raid::AssembleError| ChangeMembersError::Reopen {
            volume: self.description().name,
            cause: error.to_string(),
        };
        core.array.stop().await.map_err(|error| again(error.into()))?;
        let devices: Vec<Rc<dyn BlockDevice>> = core.array.devices();
        let how = AssembleOptions {
            uuid: Some(core.array.uuid()),
            tuning: self.tuning(pool),
            journals: journal.into_iter().collect(),
            ..AssembleOptions::default()
        };
        let prepared = prepare(&self.runtime, devices, how).await.map_err(again)?;
        let (array, _) = begin(prepared).await.map_err(again)?;
        self.description().array.apply_to(&array);
        let grown = Core::new(core.id, core.name.clone(), array, &self.runtime);
        grown.background.go_on_from(&core.background);
        self.members_have_joined(&grown);
        self.replace_cores(self.cores().with_in_place(grown)?, &quiesced.requests);
        self.begin_background();
        Ok(())
    }

    pub(crate) fn followers(&self) -> Followers {
        Followers {
            cores: Rc::downgrade(&self.cores),
            caches: [Rc::clone(&self.cached), Rc::clone(&self.tier)],
            dispatcher: Rc::clone(&self.dispatcher),
        }
    }

    /// Gives the volume its new size once an array has been reshaped.
    pub(crate) fn follow_reshape(&self) {
        for (core, _) in self.cores().iter() {
            let followers = self.followers();
            core.background.when_grown(Box::new(move || followers.follow()));
        }
    }
}

/// The copy meant: a device that was missing when the array was assembled is identified by its
/// label.
fn known_copy(array: &Array, copy: &WhichCopy, labelled: Option<Uuid>) -> WhichCopy {
    let is_named = matches!(copy, WhichCopy::On(name) if array.role_on(name).is_some());
    let by_label = labelled.filter(|member| !is_named && array.is_out_of_use(*member));
    by_label.map_or_else(|| copy.clone(), WhichCopy::Member)
}

impl Followers {
    /// Grows them. Nothing awaits in here, so that no request sees half of it.
    pub fn follow(&self) {
        let Some(cell) = self.cores.upgrade() else { return };
        let mut cores = Rc::clone(&cell.borrow());
        let caches: Vec<_> = self.caches.iter().filter_map(|it| it.borrow().clone()).collect();
        if !cores.lie_in_their_size() {
            if !caches.is_empty() && !cores.is_single() {
                // The others may have to move, which waits until no cache maps their addresses.
                return;
            }
            cores = Rc::new(cores.in_their_size());
            cell.replace(Rc::clone(&cores));
            if caches.is_empty() {
                self.dispatcher.put(cores.parts(self.dispatcher.slicing().slices()));
            }
        }
        caches.iter().for_each(|cached| cached.follow_core());
        self.dispatcher.open_endpoints(cores.iter());
    }
}
