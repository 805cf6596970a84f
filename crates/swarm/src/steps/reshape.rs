//! The command that gives the array more members.

use super::{Stage, Step};
use crate::offence::Offence;
use crate::topology::FURTHER;
use headpond_block::{BlockDevice, BufferPool, PoolConfig};
use headpond_raid::{GrowError, Occupied};
use headpond_volume::{ChangeMembersError, GrowBy, NewMember};
use std::time::Duration;

pub(crate) const POLL: Duration = Duration::from_millis(10);
/// What stands in the way goes by in this time, where nothing was lost.
pub(crate) const REFUSALS_MAX: u32 = 500;
/// Moving a few MiB takes seconds, however slow the disks are.
const POLLS_MAX: u32 = 30_000;

impl Stage<'_> {
    /// Gives the array more members, where it has not begun to have them.
    ///
    /// # Errors
    /// Where it is refused and nothing excuses that.
    pub(crate) async fn grow(&self, more: usize) -> Result<(), Offence> {
        if self.is_reshaped_or_reshaping() || !self.stands_free().await? {
            return Ok(());
        }
        self.note(Step::Grow(more));
        self.tally.borrow_mut().commands += 1;
        for _ in 0..REFUSALS_MAX {
            let Some(by) = self.additions(more) else { return Ok(()) };
            self.machine.reshape.begin(more);
            let pool = BufferPool::new(&PoolConfig::small());
            match self.volume.grow_array(self.core(), by, pool).await {
                Err(error) if is_passing(&error) && !self.is_over.get() => {
                    self.runtime.sleep(POLL).await;
                }
                Err(error) => return self.excuse(&error),
                Ok(()) => return Ok(()),
            }
        }
        match self.is_excused() {
            true => Ok(()),
            false => Err(Offence::Command("grow: what stands in the way stays there".into())),
        }
    }

    /// Waits until all data has moved.
    ///
    /// # Errors
    /// Where that has no end.
    pub(crate) async fn await_reshape(&self) -> Result<(), Offence> {
        for _ in 0..POLLS_MAX {
            let status = self.volume.status();
            let (topology, reshape) = (&self.machine.topology, &self.machine.reshape);
            let core = &status.cores[topology.worked_on()];
            if !topology.size_waits(&status) {
                reshape.note(topology, &core.array, self.told_bytes())?;
            }
            if core.array.reshape.is_none() || self.excuses.borrow().errors {
                return Ok(());
            }
            self.runtime.sleep(POLL).await;
        }
        let core = &self.volume.status().cores[self.machine.topology.worked_on()];
        Err(Offence::Command(format!("growing does not end: {core:?}")))
    }

    /// The size that clients are told of the core that is worked on.
    fn told_bytes(&self) -> u64 {
        match self.machine.topology.worked_on() {
            0 => self.volume.geometry().size_bytes,
            _ => self.volume.core_device(FURTHER).expect("it is there").geometry().size_bytes,
        }
    }

    fn is_reshaped_or_reshaping(&self) -> bool {
        let topology = &self.machine.topology;
        let array = &self.volume.status().cores[topology.worked_on()].array;
        array.reshape.is_some() || array.members.len() != topology.members
    }

    /// Detaches what would be in the way; of what would not, one in four.
    async fn stands_free(&self) -> Result<bool, Offence> {
        let may_stay = self.machine.topology.grows_behind_caches();
        if may_stay && !self.random.borrow().clone().fork().one_in(4) {
            return Ok(self.redundancy_holds().await);
        }
        match self.detach_caches().await {
            Ok(()) => Ok(self.redundancy_holds().await),
            Err(_) if self.excuses.borrow().errors => Ok(false),
            Err(error) => Err(Offence::Command(format!("grow: {error}"))),
        }
    }

    /// Spares that stand by, as a cut may have left them, and disks that belong to nobody.
    pub(crate) fn additions(&self, more: usize) -> Option<Vec<GrowBy>> {
        let array = self.volume.status().cores[self.machine.topology.worked_on()].array.clone();
        let spares = array.spares.iter().map(|spare| GrowBy::Spare(spare.device.clone()));
        let free = self.free_disks(&array).into_iter().map(|index| {
            let device = self.machine.free_member(index, self.runtime, self.sim, self.controls);
            let uuid = self.identity();
            let (word, occupied) = (format!("m{index}"), Occupied::Overwrite);
            GrowBy::New(NewMember { word, device, uuid, occupied })
        });
        let by: Vec<GrowBy> = spares.chain(free).take(more).collect();
        (by.len() == more && array.spares.len() <= more).then_some(by)
    }

    fn excuse(&self, error: &ChangeMembersError) -> Result<(), Offence> {
        match self.is_excused() {
            true => {
                self.note(format!("not grown: {error}"));
                Ok(())
            }
            false => Err(Offence::Command(format!("grow: {error}"))),
        }
    }

    /// A degraded array is not given more members.
    fn is_excused(&self) -> bool {
        let excuses = self.excuses.borrow();
        excuses.errors || !excuses.lost.is_empty() || self.is_over.get()
    }
}

/// Whether it is refused for what goes by: a role is given to a spare, parity is computed.
fn is_passing(error: &ChangeMembersError) -> bool {
    match error {
        ChangeMembersError::Busy { .. } | ChangeMembersError::Replayed { .. } => true,
        ChangeMembersError::Grow(error) => {
            matches!(error, GrowError::Filling { .. } | GrowError::Uninitialised { .. })
        }
        _ => false,
    }
}
