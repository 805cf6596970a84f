//! Becoming the owner of the devices of a volume.
//!
//! 1. Their records are read. Where the last owner recorded its stop, or is known to be gone, there
//!    is no wait; else its records are watched, and a heartbeat on one refuses the volume. 2. Our
//!    record is written to all devices. 3. After a wait it must still be there: of two hosts that
//!    began at the same time, at most one continues.
//!
//! Length of that wait: another host may have read before our record was there, and will write its
//! own. A host that takes more than a quarter of the interval from reading to writing waits as long
//! as an owner that it may have overwritten takes to notice. An owner without heartbeat may have
//! begun a renewal just before our record was written, and relies on it for a lease.

use super::flushed_positions::FlushedPositions;
use super::record::{Host, OwnerRecord, OwnerRecords, Process};
use super::{LEASE_INTERVALS, WATCH_INTERVALS, area};
use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, DeviceName, Instant, RequestFlags, Runtime};
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

/// Assumed for a record that cannot be read.
const UNKNOWN_INTERVAL: Duration = Duration::from_secs(1);
const INTERVAL_MAX: Duration = Duration::from_secs(60);

/// The host and process that open a volume.
#[derive(Clone)]
pub struct Claimant {
    pub host: Host,
    /// Of this opening: random, and never used before.
    pub token: Uuid,
    /// Whether a process of this boot of this host is still there.
    pub is_running: Rc<dyn Fn(Process) -> bool>,
    /// Called when an owner is watched that may be gone.
    pub watch: Option<ClaimWatch>,
}

/// Called with the owner that is watched.
pub type ClaimWatch = Rc<dyn Fn(&Watching)>;

/// An owner that did not record a stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watching {
    pub volume: String,
    /// Name of its host.
    pub host: String,
    /// A volume without heartbeat for so long is taken over.
    pub at_most: Duration,
}

/// Why a volume is not ours. Its data was neither read nor changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    #[error(
        "{volume} is in use on {host}, whose heartbeat on {device} is running: stop it there first \
         (`headpond stop {volume}`); if that host has failed, its heartbeat stops, and a start takes over"
    )]
    InUse { volume: String, host: String, device: DeviceName },
    #[error(
        "{volume} was opened on {host} at the same time, its record is on {device}: start it on one of \
         the two, once it is stopped on the other"
    )]
    Contested { volume: String, host: String, device: DeviceName },
}

/// One attempt.
pub(super) struct Attempt<'a> {
    pub runtime: &'a Runtime,
    pub volume: &'a str,
    pub claimant: &'a Claimant,
    pub me: &'a OwnerRecord,
    pub devices: &'a [Rc<dyn BlockDevice>],
}

/// The devices that say that we are their owner, and since when that is certain.
pub(super) struct Claimed {
    pub since: Instant,
    /// What the devices say that the last owner's cache had promised.
    pub flushed_positions: Vec<FlushedPositions>,
    pub devices: Vec<Rc<dyn BlockDevice>>,
}

/// What a device said; `None` where it said nothing, for it failed.
type Said = Option<OwnerRecords>;

/// What all of them said.
struct Look {
    begun: Instant,
    said: Vec<Said>,
}

impl Attempt<'_> {
    /// Only the first step: nothing is written.
    ///
    /// # Errors
    /// Where there is another owner.
    pub async fn expect_no_owner(&self) -> Result<(), ClaimError> {
        let look = self.look().await;
        match self.interval_of_rival(&look) {
            Some(interval) => self.watch(look, interval).await.map(drop),
            None => Ok(()),
        }
    }

    /// # Errors
    /// Where there is another owner.
    pub async fn carry_out(&self) -> Result<Claimed, ClaimError> {
        let mut look = self.look().await;
        let mut settle = self.me.interval() / 4;
        if let Some(interval) = self.interval_of_rival(&look) {
            look = self.watch(look, interval).await?;
            settle = interval.max(self.me.interval()) * LEASE_INTERVALS;
        }
        let flushed_positions =
            look.said.iter().flatten().map(OwnerRecords::flushed_positions).collect();
        let written = self.write(&look).await;
        if self.runtime.now().since(look.begun) > settle {
            settle = settle.max(self.me.interval() * LEASE_INTERVALS);
        }
        self.runtime.sleep(settle).await;
        let last = self.look().await;
        let mut devices = Vec::new();
        for ((device, said), is_written) in last.devices(self.devices).zip(written) {
            match self.rival(said, device).filter(|_| is_written) {
                Some((host, device)) => {
                    let volume = self.volume.to_owned();
                    return Err(ClaimError::Contested { volume, host, device });
                }
                None if is_written => devices.push(Rc::clone(device)),
                None => {}
            }
        }
        Ok(Claimed { since: last.begun, flushed_positions, devices })
    }

    async fn look(&self) -> Look {
        let begun = self.runtime.now();
        let looks =
            self.devices.iter().map(|device| Box::pin(area::look(&**device, self.me.volume)));
        let said = join_all(looks.collect()).await.into_iter().map(Result::ok).collect();
        Look { begun, said }
    }

    /// How often the slowest of those says something that may still be there; `None` where nobody
    /// is.
    fn interval_of_rival(&self, look: &Look) -> Option<Duration> {
        // Where storage keeps others out by a lock, which we have, the record is of a former owner.
        let free = look.devices(self.devices).filter(|(device, _)| device.remote().is_none());
        let intervals =
            free.filter_map(|(_, said)| said.as_ref()).filter_map(|found| match found {
                OwnerRecords::Record(record) if record.is_held && !self.is_gone(&record.host) => {
                    Some(record.interval().min(INTERVAL_MAX))
                }
                OwnerRecords::Unreadable(_) => Some(UNKNOWN_INTERVAL),
                _ => None,
            });
        intervals.max()
    }

    /// An earlier boot of this machine, or a process of this one that is no more.
    fn is_gone(&self, host: &Host) -> bool {
        let us = &self.claimant.host;
        let is_of_this_boot = host.boot == us.boot;
        host.machine == us.machine
            && (!is_of_this_boot || !(self.claimant.is_running)(host.process))
    }

    /// Waits whether any record moves; answers the last look.
    async fn watch(&self, first: Look, interval: Duration) -> Result<Look, ClaimError> {
        let at_most = interval * WATCH_INTERVALS;
        if let Some(tell) = &self.claimant.watch {
            let host = first.said.iter().flatten().find_map(host_of);
            let host = host.unwrap_or_else(|| "another host".into());
            tell(&Watching { volume: self.volume.to_owned(), host, at_most });
        }
        let until = first.begun + at_most;
        loop {
            self.runtime.sleep(interval / 2).await;
            let look = self.look().await;
            if let Some((host, device)) = self.moved(&first, &look) {
                let volume = self.volume.to_owned();
                return Err(ClaimError::InUse { volume, host, device });
            }
            let is_over = look.begun >= until || self.interval_of_rival(&look).is_none();
            if is_over {
                return Ok(look);
            }
        }
    }

    /// A device that says something else than before, and the host that this is of.
    fn moved(&self, before: &Look, now: &Look) -> Option<(String, DeviceName)> {
        let mut pairs = before.said.iter().zip(now.devices(self.devices));
        pairs.find_map(|(before, (device, now))| {
            let rival = self.rival(now, device)?;
            (before != now).then_some(rival)
        })
    }

    /// The host that what a device says is of, where that is not ours and has not stopped.
    fn rival(&self, said: &Said, device: &Rc<dyn BlockDevice>) -> Option<(String, DeviceName)> {
        let host = match said.as_ref()? {
            OwnerRecords::Record(record) if record.is_held && record.token != self.me.token => {
                record.host.name.clone()
            }
            OwnerRecords::Unreadable(_) => "another host".into(),
            _ => return None,
        };
        Some((host, device.name().clone()))
    }

    /// Says on each device that we are the owner; answers where that is said now. What cannot be
    /// read or written is left to the array.
    async fn write(&self, look: &Look) -> Vec<bool> {
        let writes = look.devices(self.devices);
        let writes = writes.map(|(device, said)| Box::pin(write_to(device, self.me, said)));
        join_all(writes.collect()).await
    }
}

async fn write_to(device: &Rc<dyn BlockDevice>, me: &OwnerRecord, said: &Said) -> bool {
    let Some(found) = said else { return false };
    // Its promises stand until the log has been looked at.
    let me = OwnerRecord { flushed_positions: found.flushed_positions(), ..me.clone() };
    area::write(&**device, &me, found, RequestFlags::FUA).await.is_ok()
}

impl Look {
    fn devices<'a>(
        &'a self,
        devices: &'a [Rc<dyn BlockDevice>],
    ) -> impl Iterator<Item = (&'a Rc<dyn BlockDevice>, &'a Said)> {
        devices.iter().zip(&self.said)
    }
}

fn host_of(found: &OwnerRecords) -> Option<String> {
    match found {
        OwnerRecords::Record(record) if record.is_held => Some(record.host.name.clone()),
        _ => None,
    }
}
