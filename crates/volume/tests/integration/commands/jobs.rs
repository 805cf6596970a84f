//! The commands, as the daemon gives them: what is kept before and after each.

use crate::commands::disks::{Disks, cache, copies, further, memory, tier};
use crate::support::{CREATE, careful};
use headpond_block::{BlockDevice, Runtime};
use headpond_cache::Mode;
use headpond_raid::superblock::RoleState;
use headpond_raid::{ArrayState, JournalWhen, Level, Occupied, WhichCopy};
use headpond_sim::Sim;
use headpond_volume::{
    CACHE_COPIES, CacheDescription, CoreDescription, Description, Dirty, JournalDescription, Keep,
    Keeping, LeavingCopy, NewDevice, NewJournal, NewMember, Reopening, Replacement, Size, Volume,
    bytes_on_copies,
};
use std::future::ready;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

/// Longer than a copy takes to be filled.
const POLLS_MAX: u32 = 6000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    AddCore,
    RemoveCore,
    /// Below a cache, as the next one.
    AddCoreBelow,
    RemoveCoreBelow,
    AttachTier,
    DetachTier,
    Attach,
    Detach,
    Replace,
    Resize,
    Purge,
    AttachCopies,
    DetachCopies,
    ResizeCopies,
    /// To another size as well, on devices that are opened again.
    RemakeCopies,
    ReplaceCopy,
    AddCopy,
    FailCopy,
    AddJournal,
    ExchangeJournal,
    DropJournal,
    DropCopy,
    RemoveSpare,
    CleanAll,
    /// Of another mode, `--flush`.
    SetAndClean,
    Scrub,
    /// `--force`: what cannot be written is lost.
    DetachLosing,
    /// `--force`: what is dirty is given up.
    PurgeDropping,
    Stop,
}

type Acted = Result<(), Box<dyn std::error::Error>>;

impl Command {
    /// The volume that it is given to, from one without anything.
    pub fn before(self, bare: Description) -> Description {
        let cached = |described| Description { cache: Some(described), ..bare.clone() };
        match self {
            Self::Attach | Self::AttachCopies | Self::AddJournal => bare,
            Self::ExchangeJournal | Self::DropJournal => journalled(bare),
            Self::DropCopy => copied(bare),
            Self::AddCore | Self::RemoveSpare => bare,
            Self::AddCoreBelow => cached(cache("cache")),
            Self::RemoveCore => Description { further_cores: vec![further()], ..bare },
            Self::DetachTier => Description { tier: Some(tier()), ..cached(cache("cache")) },
            Self::DetachCopies
            | Self::ResizeCopies
            | Self::RemakeCopies
            | Self::ReplaceCopy
            | Self::AddCopy
            | Self::FailCopy => cached(copies()),
            _ => Description { further_cores: vec![further()], ..cached(cache("cache")) },
        }
    }

    /// So many writes it makes at least.
    pub fn writes_min(self) -> u64 {
        match self {
            // Memory is no device that is written to here, and what was dirty was flushed.
            Self::AttachTier | Self::DetachTier => 0,
            Self::FailCopy => 1,
            Self::RemoveCore => 2,
            Self::RemoveSpare => 4,
            // It reads what is there.
            Self::Scrub => 0,
            _ => 6,
        }
    }

    /// Whether what only the cache has may be gone after it.
    pub fn gives_up(self) -> bool {
        matches!(self, Self::DetachLosing | Self::PurgeDropping)
    }

    /// Whether nothing can be read after it, until the next start.
    pub fn leaves_nothing_open(self) -> bool {
        self == Self::Stop
    }

    /// Whether a volume is as it is to be afterwards.
    pub fn is_new(self, volume: &Volume) -> bool {
        let (description, status) = (volume.description(), volume.status());
        let cache = description.cache.as_ref();
        match self {
            Self::AddCore | Self::AddCoreBelow => {
                description.further_cores.len() == 1 && status.cores.len() == 2
            }
            Self::RemoveCore | Self::RemoveCoreBelow => {
                description.further_cores.is_empty() && status.cores.len() == 1
            }
            Self::AttachTier => description.tier.is_some(),
            Self::DetachTier => description.tier.is_none(),
            Self::Attach | Self::AttachCopies => status.cache.is_some(),
            Self::Detach | Self::DetachLosing | Self::DetachCopies => status.cache.is_none(),
            Self::Replace => cache.is_some_and(|cache| cache.device == "other"),
            Self::Resize | Self::ResizeCopies | Self::RemakeCopies => {
                cache.is_some_and(|cache| cache.size.is_some())
            }
            Self::ReplaceCopy => has_role(volume, "k2") && !has_role(volume, "k1"),
            // Where another copy has failed meanwhile it takes that one's place.
            Self::AddCopy => stands_by(volume, "k2") || has_role(volume, "k2"),
            Self::FailCopy => !has_role(volume, "k1"),
            Self::Purge | Self::PurgeDropping | Self::CleanAll => {
                status.cache.is_none_or(|cache| cache.dirty_bytes == 0)
            }
            Self::SetAndClean => {
                let mode = cache.is_some_and(|cache| cache.settings.mode == Mode::PassThrough);
                mode && status.cache.is_none_or(|cache| cache.dirty_bytes == 0)
            }
            Self::AddJournal | Self::ExchangeJournal => {
                journal_word(&description) == Some("j1") && status.array.journal.is_some()
            }
            Self::DropJournal => {
                journal_word(&description).is_none() && status.array.journal.is_none()
            }
            Self::DropCopy => status.array.members.len() == 2 && !lists(volume, "m1"),
            Self::RemoveSpare => status.array.spares.is_empty() && !lists(volume, "c0"),
            Self::Stop | Self::Scrub => true,
        }
    }

    /// What comes before it while nothing goes wrong.
    pub async fn prepare(self, disks: &Disks, volume: &Volume, runtime: &Runtime, sim: &Sim) {
        if self == Self::RemoveSpare {
            let (word, device) = ("c0".to_owned(), disks.device("c0", runtime, sim));
            let uuid = Uuid::from_u128(0x5bae);
            let new = NewMember { word, device, uuid, occupied: Occupied::Refuse };
            volume.add_spare(None, new).await.expect("it may be a spare");
            disks.keep(&volume.description());
        }
    }

    /// Carries it out, as whoever keeps the description does.
    pub async fn job(
        self,
        disks: &Disks,
        volume: &Rc<Volume>,
        runtime: &Runtime,
        sim: &Sim,
    ) -> Acted {
        let acted = self.carry_out(disks, volume, runtime, sim).await;
        disks.keep(&volume.description());
        acted
    }

    async fn carry_out(
        self,
        disks: &Disks,
        volume: &Rc<Volume>,
        runtime: &Runtime,
        sim: &Sim,
    ) -> Acted {
        let device = |name: &str| disks.device(name, runtime, sim);
        let identities = [1, 2].map(|it| Uuid::from_u128(0x1d00 + it));
        let keep = |description: &Description| -> Keeping<'_> {
            disks.keep(description);
            Box::pin(ready(Ok(())))
        };
        let overwrite = Occupied::Overwrite;
        let new_copy = || {
            let (word, device, uuid) = ("k2".into(), device("k2"), Uuid::from_u128(0x77));
            NewMember { word, device, uuid, occupied: overwrite }
        };
        match self {
            Self::AddCore | Self::AddCoreBelow => {
                let (members, pool) = (["c0", "c1"].map(device).into(), careful().pool);
                let made = volume.make_core(further(), members, &CREATE, pool).await?;
                volume.add_core(made, identities[0], &keep).await?;
            }
            Self::RemoveCore | Self::RemoveCoreBelow => {
                volume.remove_core("further", identities[0], &keep).await?;
            }
            Self::AttachTier => volume.attach_tier(tier(), memory()).await?,
            Self::DetachTier => volume.detach_tier(Dirty::Clean).await?,
            Self::Attach => {
                let (described, disk) = (cache("cache"), device("cache"));
                let new = volume.make_cache(disk, described, identities[0], overwrite).await?;
                volume.attach(new, &keep).await?;
            }
            Self::AttachCopies => {
                let (described, both) = (copies(), ["k0", "k1"].map(device).into());
                let made = volume.make_copies(both, &described, overwrite, careful().pool).await?;
                let new = volume.make_cache(made, described, identities[0], overwrite).await?;
                volume.attach(new, &keep).await?;
            }
            Self::Detach | Self::DetachCopies => volume.detach(Dirty::Clean).await?,
            Self::Replace => {
                let (described, device) =
                    (cache("other"), NewDevice::Other(device("other").into()));
                let new = Replacement { device, described, identities, occupied: overwrite };
                volume.replace_cache(new, Dirty::Clean, &keep).await?;
            }
            Self::Resize | Self::ResizeCopies => {
                volume.resize_cache(smallest(), NewDevice::Same, identities, &keep).await?;
            }
            Self::RemakeCopies => remake_copies(volume, &device, identities, &keep).await?,
            Self::Purge => volume.purge_cache(Dirty::Clean, identities, &keep).await?,
            Self::ReplaceCopy => {
                let copies = Some(CACHE_COPIES);
                volume.replace_member(copies, "k1", Some(new_copy())).await?;
                until_filled(volume, runtime).await?;
            }
            Self::AddCopy => volume.add_spare(Some(CACHE_COPIES), new_copy()).await?,
            Self::FailCopy => volume.fail_member(Some(CACHE_COPIES), "k1").await?,
            Self::CleanAll => drop(volume.clean_all().await?),
            Self::DetachLosing => volume.detach(Dirty::Lose).await?,
            Self::PurgeDropping => volume.purge_cache(Dirty::Drop, identities, &keep).await?,
            Self::Stop => volume.stop().await?,
            _ => self.carry_out_further(volume, device).await?,
        }
        Ok(())
    }

    async fn carry_out_further(
        self,
        volume: &Volume,
        device: impl Fn(&str) -> Rc<dyn BlockDevice>,
    ) -> Acted {
        match self {
            Self::AddJournal | Self::ExchangeJournal => {
                volume.set_journal(None, new_journal(device("j1")), careful().pool).await?;
            }
            Self::DropJournal => volume.drop_journal(None, careful().pool).await?,
            Self::DropCopy => {
                let leaving = LeavingCopy { copy: WhichCopy::On("m1".into()), device: None };
                volume.drop_copy(None, leaving, careful().pool).await?;
            }
            Self::RemoveSpare => volume.remove_member(None, "c0").await?,
            Self::SetAndClean => {
                let change = "mode=pass-through".parse().expect("key=value");
                volume.set_and_clean(&[change]).await?;
            }
            Self::Scrub => drop(volume.scrub_cache().await?),
            other => unreachable!("{other:?} is of the volume"),
        }
        Ok(())
    }
}

async fn remake_copies(
    volume: &Volume,
    device: &impl Fn(&str) -> Rc<dyn BlockDevice>,
    identities: [Uuid; 2],
    keep: Keep<'_>,
) -> Acted {
    let open = |described: CacheDescription| -> Reopening<'_> {
        let (both, pool) = (["k0", "k1"].map(device).into(), careful().pool);
        Box::pin(
            async move { volume.make_copies(both, &described, Occupied::Overwrite, pool).await },
        )
    };
    let bytes = bytes_on_copies(device("k0").size_bytes());
    let device = NewDevice::Reopened { bytes, open: &open };
    volume.resize_cache(smallest(), device, identities, keep).await?;
    Ok(())
}

fn smallest() -> Option<Size> {
    Some(Size(headpond_cache::bytes_min(1)))
}

fn new_journal(device: Rc<dyn BlockDevice>) -> NewJournal {
    NewJournal {
        word: "j1".into(),
        device,
        uuid: Uuid::from_u128(0x10a1),
        when: Some(JournalWhen::Always),
        occupied: Occupied::Refuse,
    }
}

fn journalled(bare: Description) -> Description {
    let journal = JournalDescription::of("j0".into(), JournalWhen::Degraded);
    let core = CoreDescription { journal: Some(journal), ..bare.core };
    Description { core, ..bare }
}

/// A RAID 1 of three.
fn copied(bare: Description) -> Description {
    let core = CoreDescription { raid: Level::Raid1, ..bare.core };
    Description { core, ..bare }
}

fn lists(volume: &Volume, name: &str) -> bool {
    volume.description().members().any(|word| word == name)
}

fn journal_word(description: &Description) -> Option<&str> {
    Some(description.core.journal.as_ref()?.device.as_str())
}

/// Waits until no copy is being filled.
/// Until it is whole for the second time: then that is recorded.
async fn until_filled(volume: &Volume, runtime: &Runtime) -> Acted {
    let mut was_whole = false;
    for _ in 0..POLLS_MAX {
        let mirror = volume.status().cache.and_then(|cache| cache.mirror);
        let array = mirror.ok_or("it has no copies")?.array;
        let is_filling = array.members.iter().any(|member| member.filling.is_some());
        if !is_filling && array.spares.is_empty() {
            // One that failed on the way is nobody any more.
            match array.state == ArrayState::Optimal && has_role(volume, "k2") {
                true if was_whole => return Ok(()),
                true => was_whole = true,
                false => return Err("it was not filled".into()),
            }
        }
        runtime.sleep(Duration::from_millis(20)).await;
    }
    Err("it is never filled".into())
}

fn has_role(volume: &Volume, name: &str) -> bool {
    let mirror = volume.status().cache.and_then(|cache| cache.mirror);
    let members = mirror.into_iter().flat_map(|mirror| mirror.array.members);
    let mut active = members.filter(|member| member.state == RoleState::Active);
    active.any(|member| member.device.as_deref() == Some(name))
}

/// As a spare, or on its way to a role.
fn stands_by(volume: &Volume, name: &str) -> bool {
    let mirror = volume.status().cache.and_then(|cache| cache.mirror);
    mirror.is_some_and(|mirror| {
        let mut filling = mirror.array.members.iter().filter_map(|member| member.filling.as_ref());
        let mut spares = mirror.array.spares.iter();
        filling.any(|filling| filling.device == name) || spares.any(|spare| spare.device == name)
    })
}
