//! The command that takes the core away of which nothing is asked, or makes it anew.

use crate::case::Offence;
use crate::machine::careful;
use crate::steps::{Stage, Step};
use crate::topology::FURTHER;
use headpond_raid::Occupied;
use headpond_volume::{CreateOptions, Dirty};

impl Stage<'_> {
    /// Does what an operator does: the caches are detached, the core goes or comes, and the cache
    /// is made anew.
    ///
    /// # Errors
    /// A command that failed though nothing excuses it.
    pub(crate) async fn switch_core(&self) -> Result<(), Offence> {
        let topology = &self.machine.topology;
        if !topology.core_may_go() || self.machine.growth.may_be_under_way() {
            return Ok(());
        }
        self.note(Step::SwitchCore);
        self.tally.borrow_mut().commands += 1;
        let had_cache = self.volume.status().cache.is_some();
        let switched = async {
            self.detach_caches().await?;
            match self.machine.names_core.get() {
                true => self.remove_core().await,
                false => self.add_core().await,
            }
        };
        match switched.await {
            Err(_) if self.excuses.borrow().errors => return Ok(()),
            Err(error) => return Err(Offence::Command(error)),
            Ok(()) => self.tally.borrow_mut().cores_switched += 1,
        }
        if had_cache { self.switch_cache().await } else { Ok(()) }
    }

    async fn remove_core(&self) -> Result<(), String> {
        let removed = self.volume.remove_core(FURTHER).await;
        let removed = removed.map_err(|error| format!("remove the core: {error}"))?;
        self.machine.names_core.set(false);
        assert_eq!(removed.name, FURTHER);
        Ok(())
    }

    async fn add_core(&self) -> Result<(), String> {
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
        self.machine.names_core.set(true);
        let added = self.volume.add_core(made).await;
        if added.is_err() {
            self.machine.names_core.set(false);
        }
        added.map_err(|error| format!("add the core: {error}"))
    }

    /// Takes the tier and the cache away, with all that they hold on the array.
    pub(crate) async fn detach_caches(&self) -> Result<(), String> {
        let detached = async {
            if self.volume.status().tier.is_some() {
                self.volume.detach_tier(Dirty::Clean).await.map_err(|error| error.to_string())?;
            }
            if self.volume.status().cache.is_some() {
                self.volume.detach(Dirty::Clean).await.map_err(|error| error.to_string())?;
            }
            Ok(())
        };
        let detached: Result<(), String> = detached.await;
        self.machine.names_cache.set(self.volume.description().cache.is_some());
        detached.map_err(|error| format!("detach: {error}"))
    }
}
