//! Members that were missing at the start, and come later: they are resynced by themselves.
//!
//! Only by bitmap: one that cannot be proven to lack nothing else is reported, and rebuilt when
//! that is asked for. One that failed while the volume was served is left to the administrator.

use super::assembly::{SearchPlaces, folders_of, unseen_candidates};
use super::service::ControlService;
use headpond_api::outcome::told;
use headpond_block::BlockDevice;
use headpond_raid::superblock::RoleState;
use headpond_volume::{FIRST_CORE, Label, ReturningMember, read_labels};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A member that was not there at the start.
#[derive(PartialEq, Eq)]
struct Missing {
    core: Option<String>,
    array: Uuid,
    member: Uuid,
}

impl ControlService {
    /// Looks for members that are missing until the volume is stopped.
    pub async fn await_members(self: Rc<Self>) {
        // A device is read once: looking must not keep other disks awake.
        let mut seen = BTreeSet::new();
        loop {
            self.runtime.sleep(LOOK_EVERY).await;
            if self.is_closing() {
                return;
            }
            let missing = self.missing();
            if !missing.is_empty() {
                self.look_for(&missing, &mut seen).await;
            }
        }
    }

    fn missing(&self) -> Vec<Missing> {
        let mut missing = Vec::new();
        for core in self.volume.status().cores {
            let is_first = core.id == FIRST_CORE;
            let name = (!is_first).then_some(core.name);
            let is_missing = |it: &&headpond_raid::MemberStatus| {
                it.state == RoleState::Missing && it.filling.is_none()
            };
            for member in core.array.members.iter().filter(is_missing) {
                let (array, member) = (core.array.uuid, member.uuid);
                missing.push(Missing { core: name.clone(), array, member });
            }
        }
        missing
    }

    async fn look_for(&self, missing: &[Missing], seen: &mut BTreeSet<String>) {
        let description = self.volume.description();
        let open = self.volume.array_devices();
        let folders = folders_of(&description);
        let search = SearchPlaces { folders, devices: Vec::new() };
        let Ok(found) = unseen_candidates(&self.opener, &self.runtime, &search, &open, seen).await
        else {
            return;
        };
        let (labelled, _) = read_labels(&self.runtime, found, description.array.deadlines()).await;
        for device in labelled {
            let Label::Member { superblock, .. } = &device.label else { continue };
            let (array, member) = (superblock.array.uuid, superblock.member_uuid);
            let is_it = |it: &&Missing| it.array == array && it.member == member;
            if let Some(missing) = missing.iter().find(is_it) {
                let word = device.word.clone();
                drop(device);
                self.take_back(missing, word).await;
            }
        }
    }

    async fn take_back(&self, missing: &Missing, word: String) {
        let returned = async {
            let device: Rc<dyn BlockDevice> = self.opener.open(&word.parse()?).await?;
            let returning = ReturningMember { word: word.clone(), device, uuid: Uuid::new_v4() };
            let bytes = self.volume.re_add_member(missing.core.as_deref(), returning).await?;
            self.save().await?;
            Ok::<_, anyhow::Error>(bytes)
        };
        match returned.await {
            Ok(bytes) => tracing::info!(
                device = word,
                "{word} has come back and is resynced: it lacks at most {bytes} bytes"
            ),
            Err(error) => {
                let why = told(&error);
                tracing::warn!(device = word, "{word} is not taken back by itself: {why}");
            }
        }
    }
}
