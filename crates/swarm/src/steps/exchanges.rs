//! Commands that put another cache in the place of the one there is, and the scrub of it.

use super::Stage;
use crate::machine::Machine;
use crate::offence::Offence;
use headpond_block::BlockDevice;
use headpond_raid::Occupied;
use headpond_sim::Random;
use headpond_volume::{
    Description, Dirty, ExchangeError, Keeping, NewDevice, Replacement, ScrubCacheError, Size,
    Volume,
};
use std::fmt;
use std::future::ready;
use std::rc::Rc;
use uuid::Uuid;

/// Parts of the cache device that are used, of so many.
const PARTS: u64 = 4;

/// What becomes of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// It goes to the other of two devices.
    Replace,
    /// It has so many parts of what its device has beyond the smallest cache; all where nothing is
    /// said.
    Resize(Option<u64>),
    Purge,
}

impl Exchange {
    pub fn draw(random: &mut Random) -> Self {
        match random.below(4) {
            0 => Self::Purge,
            1 => Self::Resize((!random.one_in(3)).then(|| random.below(PARTS))),
            _ => Self::Replace,
        }
    }

    /// Carries it out; the volume has a cache, and where that is to be another one there is another
    /// device.
    ///
    /// # Errors
    /// The volume's.
    pub async fn act(
        self,
        machine: &Machine,
        volume: &Volume,
        other: Option<&Rc<dyn BlockDevice>>,
        identities: [Uuid; 2],
    ) -> Result<(), ExchangeError> {
        let keep = |description: &Description| -> Keeping<'_> {
            machine.keep(description);
            Box::pin(ready(Ok(())))
        };
        match self {
            Self::Purge => volume.purge_cache(Dirty::Clean, identities, &keep).await,
            Self::Resize(parts) => {
                let least = headpond_cache::bytes_min(usize::from(machine.topology.slices));
                let most = volume.cache_device_bytes().expect("the volume has a cache");
                let bytes = |parts| (least + (most - least) / PARTS * parts) / 65536 * 65536;
                let size = parts.map(|parts| Size(bytes(parts).max(least)));
                let resized = volume.resize_cache(size, NewDevice::Same, identities, &keep).await;
                resized.map(drop)
            }
            Self::Replace => {
                let other = other.expect("it takes the place");
                let described = volume.description().cache.expect("the volume has a cache");
                let described = machine.on_the_other(described);
                let (device, occupied) =
                    (NewDevice::Other(Rc::clone(other).into()), Occupied::Overwrite);
                let new = Replacement { device, described, identities, occupied };
                volume.replace_cache(new, Dirty::Clean, &keep).await
            }
        }
    }
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replace => write!(f, "replace the cache"),
            Self::Resize(None) => write!(f, "resize the cache to all of its device"),
            Self::Resize(Some(parts)) => write!(f, "resize the cache to {parts} of {PARTS}"),
            Self::Purge => write!(f, "purge the cache"),
        }
    }
}

impl Stage<'_> {
    pub async fn exchange(&self, exchange: Exchange) -> Result<(), Offence> {
        let other = self.other_cache();
        let has_what_it_takes = other.is_some() || exchange != Exchange::Replace;
        if self.volume.status().cache.is_none() || !has_what_it_takes {
            return Ok(());
        }
        self.note(exchange);
        self.tally.borrow_mut().commands += 1;
        let identities = [(); 2].map(|()| self.identity());
        let acted = exchange.act(self.machine, self.volume, other, identities).await;
        self.machine.keep(&self.volume.description());
        match acted {
            Err(error) if !self.excuses.borrow().errors => {
                Err(Offence::Command(format!("{exchange}: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// Where nothing was damaged, nothing is found to be.
    pub async fn scrub_cache(&self) -> Result<(), Offence> {
        if self.volume.status().cache.is_none() {
            return Ok(());
        }
        self.note("scrub the cache");
        self.tally.borrow_mut().commands += 1;
        let report = self.volume.scrub_cache().await;
        let may_be_refused = self.excuses.borrow().copies.may_be_filling();
        if matches!(report, Err(ScrubCacheError::CatchingUp { .. })) && may_be_refused {
            return Ok(());
        }
        if self.excuses.borrow().errors {
            return Ok(());
        }
        let report = report.map_err(|error| Offence::Command(format!("scrub: {error}")))?;
        match report.dropped_blocks == 0 && report.lost.is_empty() {
            true => Ok(()),
            false => Err(Offence::Command(format!("scrub: {report:?}"))),
        }
    }
}
