//! The command that takes the core away of which nothing is asked, or makes it anew.

use super::{Stage, Step};
use crate::machine::careful;
use crate::offence::Offence;
use crate::topology::FURTHER;
use headpond_raid::Occupied;
use headpond_volume::{CreateOptions, Description, Keep, Keeping};
use std::future::ready;

impl Stage<'_> {
    /// Does what an operator does: the core goes or comes below the caches, which begin anew.
    ///
    /// # Errors
    /// A command that failed though nothing excuses it.
    pub(crate) async fn switch_core(&self) -> Result<(), Offence> {
        let machine = self.machine;
        if !machine.topology.core_may_go() || machine.reshape.may_be_under_way() {
            return Ok(());
        }
        self.note(Step::SwitchCore);
        self.tally.borrow_mut().commands += 1;
        let keep = |description: &Description| -> Keeping<'_> {
            machine.names_core.set(!description.further_cores.is_empty());
            machine.names_cache.set(description.cache.is_some());
            Box::pin(ready(Ok(())))
        };
        let switched = match machine.names_core.get() {
            true => self.remove_core(&keep).await,
            false => self.add_core(&keep).await,
        };
        keep(&self.volume.description()).await.expect("it always can be kept");
        match switched {
            Err(error) if !self.excuses.borrow().errors => return Err(Offence::Command(error)),
            Err(_) => {}
            Ok(()) => self.tally.borrow_mut().cores_switched += 1,
        }
        Ok(())
    }

    async fn remove_core(&self, keep: Keep<'_>) -> Result<(), String> {
        let removed = self.volume.remove_core(FURTHER, self.identity(), keep).await;
        let removed = removed.map_err(|error| format!("remove the core: {error}"))?;
        assert_eq!(removed.name, FURTHER);
        Ok(())
    }

    async fn add_core(&self, keep: Keep<'_>) -> Result<(), String> {
        // Another core each time, on the same devices.
        let uuid = self.identity();
        self.machine.core_uuid.set(Some(uuid));
        let described = self.machine.topology.description(self.settings).further_cores;
        let described = described.into_iter().map(|core| self.machine.as_made(core));
        let described = described.last().expect("its topology has one");
        let members = self.machine.idle_devices(self.runtime, self.sim).collect();
        let options = CreateOptions {
            occupied: Occupied::Overwrite,
            ..self.machine.topology.create_options()
        };
        let made = self.volume.make_core(described, members, &options, careful().pool).await;
        let made = made.map_err(|error| format!("make a core: {error}"))?;
        let added = self.volume.add_core(made, self.identity(), keep).await;
        added.map_err(|error| format!("add the core: {error}"))
    }
}
