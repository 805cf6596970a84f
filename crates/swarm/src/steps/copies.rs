//! Commands about the devices of a cache that lies on several.

use super::Stage;
use super::members::is_passing;
use super::returns::is_whole;
use crate::offence::Offence;
use crate::topology::{copy_name, on_disks};
use headpond_block::{BufferPool, PoolConfig};
use headpond_raid::superblock::RoleState;
use headpond_raid::{ArrayStatus, MemberError, Occupied};
use headpond_sim::Random;
use headpond_volume::{
    AttachError, CACHE_COPIES, ChangeMembersError, Description, Dirty, Keeping, NewMember,
    ReturningMember, VolumeStatus,
};
use std::collections::BTreeSet;
use std::fmt;
use std::future::ready;
use std::time::Duration;

const POLL: Duration = Duration::from_millis(20);
/// Longer than the deadline after which a copy that hangs is evicted, and than filling one takes.
const POLLS_MAX: u32 = 6000;
/// Longer than a device that hangs is waited for: only then what it was given is over.
const UNTIL_ANSWERED: Duration = Duration::from_secs(15);

/// What is done about the copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyCommand {
    /// Those that were lost come back.
    ReAdd,
    /// Another disk takes the place of one that works.
    Replace,
    AddSpare,
    /// One that works is taken out of use.
    Fail,
    /// Until nobody is given anything any more.
    Await,
}

impl CopyCommand {
    pub fn draw(random: &mut Random) -> Self {
        *random.pick(&[Self::ReAdd, Self::Replace, Self::Replace, Self::AddSpare, Self::Fail])
    }
}

impl fmt::Display for CopyCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReAdd => "have lost copies of the cache come back",
            Self::Replace => "replace a copy of the cache",
            Self::AddSpare => "add a spare for the cache",
            Self::Fail => "take a copy of the cache out of use",
            Self::Await => "wait until the copies of the cache are filled",
        })
    }
}

impl Stage<'_> {
    /// Carries a command out, where the cache has copies.
    ///
    /// # Errors
    /// Where it is refused and nothing excuses that.
    pub(crate) async fn change_copies(&self, command: CopyCommand) -> Result<(), Offence> {
        let Some(array) = self.copies() else { return Ok(()) };
        match command {
            CopyCommand::ReAdd => self.re_add_copies().await,
            CopyCommand::Replace => match self.draw_leaving(&array) {
                Some(leaving) => self.replace_copy(leaving, &array).await,
                None => Ok(()),
            },
            CopyCommand::AddSpare => match self.free_copies(&array).first() {
                Some(disk) => self.add_copy(*disk).await,
                None => Ok(()),
            },
            CopyCommand::Fail => match self.draw_leaving(&array) {
                Some(leaving) => self.fail_copy(leaving).await,
                None => Ok(()),
            },
            CopyCommand::Await => self.await_copies().await,
        }
    }

    /// Detaches the cache and lets go of its copies, or makes a new one on disks that work.
    pub(crate) async fn switch_copies(&self) -> Result<(), Offence> {
        if self.machine.reshape.may_be_under_way() && !self.machine.topology.grows_behind_caches() {
            return Ok(());
        }
        self.note("detach the cache and its copies, or attach it");
        self.tally.borrow_mut().commands += 1;
        let outcome = match self.volume.status().cache {
            Some(_) => self.volume.detach(Dirty::Clean).await.map_err(|error| error.to_string()),
            None => self.attach_copies().await.map_err(|error| error.to_string()),
        };
        self.machine.names_cache.set(self.volume.description().cache.is_some());
        match outcome {
            Err(error) if !self.excuses.borrow().errors => Err(Offence::Command(error)),
            _ => Ok(()),
        }
    }

    async fn attach_copies(&self) -> Result<(), AttachError> {
        let count = self.machine.topology.copies().expect("it has copies");
        let mut disks: Vec<usize> = (0..self.machine.copies.len()).collect();
        disks.retain(|disk| !self.is_unfit(*disk));
        disks.truncate(count);
        if disks.len() < count {
            return Ok(());
        }
        let [mirror, cache] = [(); 2].map(|()| self.identity());
        let described = self.machine.topology.description(self.settings).cache.expect("a cache");
        let described = on_disks(described, &disks, mirror);
        let devices = disks.iter().map(|disk| self.copy(*disk)).collect();
        let (pool, occupied) = (BufferPool::new(&PoolConfig::small()), Occupied::Overwrite);
        let made = self.volume.make_copies(devices, &described, occupied, pool).await?;
        let new = self.volume.make_cache(made, described, cache, occupied).await?;
        let keep = |_: &Description| -> Keeping<'_> {
            self.machine.keep_copies(mirror);
            self.excuses.borrow_mut().copies.made_on(disks.clone());
            Box::pin(ready(Ok(())))
        };
        self.volume.attach(new, &keep).await
    }

    async fn re_add_copies(&self) -> Result<(), Offence> {
        let lost = self.excuses.borrow().copies.lost();
        for disk in lost {
            if !self.absent_copies.contains(&disk) && self.is_copy_out_of_use(disk).await {
                self.re_add_copy(disk).await?;
            }
        }
        Ok(())
    }

    /// One that hangs may take some time to be missed.
    async fn is_copy_out_of_use(&self, disk: usize) -> bool {
        for _ in 0..POLLS_MAX {
            let Some(array) = self.copies() else { return false };
            if !is_named(&array, &copy_name(disk)) {
                return true;
            }
            if self.is_over.get() || !self.controls.copies[disk].is_armed() {
                return false;
            }
            self.runtime.sleep(POLL).await;
        }
        false
    }

    async fn re_add_copy(&self, disk: usize) -> Result<(), Offence> {
        let was_hung = self.controls.copies[disk].is_armed();
        self.controls.copies[disk].clear();
        self.excuses.borrow_mut().copies.disarm(disk);
        if was_hung {
            self.runtime.sleep(UNTIL_ANSWERED).await;
        }
        if !self.machine.belonging_copies().contains(&disk) {
            return self.add_copy(disk).await;
        }
        let word = copy_name(disk);
        self.note(format!("have {word} come back to the cache"));
        self.tally.borrow_mut().commands += 1;
        self.excuses.borrow_mut().copies.fill(None);
        let returning = ReturningMember { word, device: self.copy(disk), uuid: self.identity() };
        let returned = self.volume.re_add_member(Some(CACHE_COPIES), returning).await.map(drop);
        self.judge_change("re-add to the cache", returned)
    }

    async fn add_copy(&self, disk: usize) -> Result<(), Offence> {
        let word = copy_name(disk);
        self.note(format!("add {word} as a spare for the cache"));
        self.tally.borrow_mut().commands += 1;
        self.excuses.borrow_mut().copies.fill(None);
        let added = self.volume.add_spare(Some(CACHE_COPIES), self.new_copy(disk)).await;
        self.judge_change("add a spare for the cache", added)
    }

    async fn replace_copy(&self, leaving: usize, array: &ArrayStatus) -> Result<(), Offence> {
        let Some(disk) = self.free_copies(array).first().copied() else { return Ok(()) };
        let old = copy_name(leaving);
        self.note(format!("replace {old} of the cache by {}", copy_name(disk)));
        self.tally.borrow_mut().commands += 1;
        let is_wanted_elsewhere = self.excuses.borrow().copies.may_lack_one();
        self.excuses.borrow_mut().copies.fill(Some(leaving));
        let new = self.new_copy(disk);
        let replaced = self.volume.replace_member(Some(CACHE_COPIES), &old, Some(new)).await;
        match replaced {
            Err(ChangeMembersError::Member(MemberError::NoSpare { .. })) if is_wanted_elsewhere => {
                self.note(format!("{old} stays: the new device goes to a role that nobody has"));
                Ok(())
            }
            replaced => self.judge_change("replace a copy of the cache", replaced),
        }
    }

    async fn fail_copy(&self, leaving: usize) -> Result<(), Offence> {
        let old = copy_name(leaving);
        self.note(format!("take {old} of the cache out of use"));
        self.tally.borrow_mut().commands += 1;
        self.excuses.borrow_mut().copies.lose(leaving);
        let failed = self.volume.fail_member(Some(CACHE_COPIES), &old).await;
        self.judge_change("fail a copy of the cache", failed)
    }

    /// A copy that may leave, because another one that nothing may befall has everything.
    fn draw_leaving(&self, array: &ArrayStatus) -> Option<usize> {
        let book = self.excuses.borrow().copies.clone();
        let may_leave = |disk: &usize| {
            let mut after = book.clone();
            after.lose(*disk);
            after.hold() && is_active(array, &copy_name(*disk))
        };
        let fit: Vec<usize> = book.whole().into_iter().filter(may_leave).collect();
        (!fit.is_empty()).then(|| *self.random.borrow_mut().pick(&fit))
    }

    fn judge_change(
        &self,
        what: &str,
        outcome: Result<(), ChangeMembersError>,
    ) -> Result<(), Offence> {
        match outcome {
            Err(error) if is_passing(&error) => {
                self.note(format!("{what}: refused for now: {error}"));
                Ok(())
            }
            Err(error) if !self.excuses.borrow().errors => {
                Err(Offence::Command(format!("{what}: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// Waits until nobody is being filled.
    async fn await_copies(&self) -> Result<(), Offence> {
        for _ in 0..POLLS_MAX {
            let status = self.volume.status();
            if let Some(copies) = whole_copies(&status) {
                let lost_before = self.excuses.borrow().copies.lost().len();
                self.excuses.borrow_mut().copies.note_whole(&copies);
                self.tally.borrow_mut().copies_filled += u64::from(lost_before > 0);
                return Ok(());
            }
            let Some(array) = self.copies() else { return Ok(()) };
            if !is_filling(&array) || self.excuses.borrow().errors {
                return Ok(());
            }
            self.runtime.sleep(POLL).await;
        }
        let status = self.volume.status().cache;
        Err(Offence::Command(format!("a copy of the cache never has everything: {status:?}")))
    }

    fn copies(&self) -> Option<ArrayStatus> {
        Some(self.volume.status().cache?.mirror?.array)
    }

    /// Disks that nothing has befallen and that have no part in the cache.
    fn free_copies(&self, array: &ArrayStatus) -> Vec<usize> {
        let is_free = |disk: &usize| !self.is_unfit(*disk) && !is_named(array, &copy_name(*disk));
        (0..self.machine.copies.len()).filter(is_free).collect()
    }

    fn is_unfit(&self, disk: usize) -> bool {
        self.absent_copies.contains(&disk) || self.controls.copies[disk].is_armed()
    }

    fn copy(&self, disk: usize) -> std::rc::Rc<dyn headpond_block::BlockDevice> {
        self.machine.copy(disk, self.runtime, self.sim, self.controls)
    }

    fn new_copy(&self, disk: usize) -> NewMember {
        let (word, device, uuid) = (copy_name(disk), self.copy(disk), self.identity());
        NewMember { word, device, uuid, occupied: Occupied::Overwrite }
    }
}

/// Where every copy of the cache has everything, the indexes of their disks.
pub(crate) fn whole_copies(status: &VolumeStatus) -> Option<BTreeSet<usize>> {
    let array = &status.cache.as_ref()?.mirror.as_ref()?.array;
    let devices = array.members.iter().filter_map(|member| member.device.as_deref());
    is_whole(array).then(|| devices.filter_map(index_of).collect())
}

fn index_of(name: &str) -> Option<usize> {
    name.strip_prefix('k')?.parse().ok()
}

fn is_active(array: &ArrayStatus, name: &str) -> bool {
    let mut active = array.members.iter().filter(|member| member.state == RoleState::Active);
    active.any(|member| member.device.as_deref() == Some(name))
}

/// Whether a disk has a role, is given one, or stands by.
fn is_named(array: &ArrayStatus, name: &str) -> bool {
    let filling = array.members.iter().filter_map(|member| member.filling.as_ref());
    is_active(array, name)
        || filling.into_iter().any(|filling| filling.device == name)
        || array.spares.iter().any(|spare| spare.device == name)
}

/// Whether a disk is given a role, or will be.
fn is_filling(array: &ArrayStatus) -> bool {
    let is_vacant = array.members.iter().any(|member| member.state != RoleState::Active);
    let is_filling = array.members.iter().any(|member| member.filling.is_some());
    is_filling || is_vacant && !array.spares.is_empty()
}
