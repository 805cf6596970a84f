//! Wishes about the members of an array, and the work on it beside the requests.

use super::message::{ArrayWish, GrowBody, JournalBody, MemberBody, PaceBody};
use super::serving::Desk;
use crate::device::{Consent, DeviceSpec, Vetted, vet, vet_lasting};
use crate::outcome::Failure;
use anyhow::Result;
use headpond_raid::{GrowError, JournalError, MemberError, Occupied, ReturnError, WhichCopy};
use headpond_volume::{
    ChangeMembersError, GrowBy, LeavingCopy, NewJournal, NewMember, Pace, ReturningMember,
};
use serde_json::Value;
use std::path::Path;
use uuid::Uuid;

/// A copy whose device is not known any more.
pub const MISSING: &str = "missing";

impl Desk {
    /// What was changed outlives the daemon; work that is begun goes on beside the requests.
    pub async fn change_array(&self, wish: &ArrayWish) -> Result<Value> {
        let volume = &self.volume;
        let changed = match wish {
            ArrayWish::AddSpare(body) => {
                let new = self.new_member(&body.device, body.force)?;
                volume.add_spare(body.core.as_deref(), new).await
            }
            ArrayWish::ReAdd(body) => {
                let returning = self.returning_member(&body.device)?;
                volume.re_add_member(body.core.as_deref(), returning).await.map(drop)
            }
            ArrayWish::Replace(body) => {
                let with = body.with.as_deref();
                let with = with.map(|word| self.new_member(word, body.force)).transpose()?;
                volume.replace_member(body.core.as_deref(), &name(body)?, with).await
            }
            ArrayWish::Grow(body) => {
                let by = self.grow_by(body)?;
                volume.grow_array(body.core.as_deref(), by, self.pool()).await
            }
            ArrayWish::Fail(body) => volume.fail_member(body.core.as_deref(), &name(body)?).await,
            ArrayWish::Remove(body) => {
                volume.remove_member(body.core.as_deref(), &name(body)?).await
            }
            ArrayWish::DropCopy(body) => {
                let leaving = self.leaving_copy(body)?;
                volume.drop_copy(body.core.as_deref(), leaving, self.pool()).await
            }
            ArrayWish::SetJournal(body) => {
                let new = self.new_journal(body)?;
                volume.set_journal(body.core.as_deref(), new, self.pool()).await
            }
            ArrayWish::DropJournal(body) => {
                volume.drop_journal(body.core.as_deref(), self.pool()).await
            }
            ArrayWish::Scrub(body) => volume.scrub_array(body.core.as_deref()),
            ArrayWish::Pause(body) => volume.pause_upkeep(body.core.as_deref(), true),
            ArrayWish::Resume(body) => volume.pause_upkeep(body.core.as_deref(), false),
            ArrayWish::Pace(body) => {
                volume.set_pace(body.core.as_deref(), |pace| changed_pace(pace, body))
            }
        };
        // Also where it failed half-way: a device may have joined.
        self.places.save(&volume.description())?;
        changed.map_err(not_changed)?;
        self.status()
    }

    fn new_member(&self, word: &str, force: bool) -> Result<NewMember> {
        let spec: DeviceSpec = word.parse()?;
        let consent = if force { Consent::Forced } else { Consent::Careful };
        self.vet_member(&spec, consent)?;
        Ok(NewMember {
            word: spec.to_string(),
            device: self.opener.open(&spec)?,
            uuid: Uuid::new_v4(),
            occupied: if force { Occupied::Overwrite } else { Occupied::Refuse },
        })
    }

    /// Checks a device that is to join an array, which must not be in the volume yet.
    pub(super) fn vet_member(&self, spec: &DeviceSpec, consent: Consent) -> Result<()> {
        // Copies of a cache are an array, and memory of the same words is other memory.
        let cache = self.volume.description().cache.filter(|cache| cache.mirror.is_none());
        let cache = cache.filter(|_| !matches!(spec, DeviceSpec::Ram(_)));
        self.refuse_own(spec, cache.map(|cache| cache.device))?;
        vet_lasting(spec, consent).map(drop)
    }

    /// Checks a device that is to be a cache, which may be that already.
    pub(super) fn vet_cache(&self, spec: &DeviceSpec, consent: Consent) -> Result<Vetted> {
        self.refuse_own(spec, None)?;
        vet(spec, consent)
    }

    fn refuse_own(&self, spec: &DeviceSpec, further: Option<String>) -> Result<()> {
        let place = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let (wanted, name) = (spec.path().map(place), spec.device_name());
        let is_it = |own: String| own == name || Some(place(Path::new(&own))) == wanted;
        match self.volume.array_devices().into_iter().chain(further).any(is_it) {
            false => Ok(()),
            true => Err(Failure::refused(format!(
                "{spec} belongs to {0} already: `headpond status {0}` lists its devices",
                self.volume.description().name
            ))),
        }
    }

    fn new_journal(&self, body: &JournalBody) -> Result<NewJournal> {
        let NewMember { word, device, uuid, occupied } =
            self.new_member(&body.device, body.force)?;
        Ok(NewJournal { word, device, uuid, when: body.when, occupied })
    }

    /// A device that the array does not have may be away, or be known by its label alone.
    fn leaving_copy(&self, body: &MemberBody) -> Result<LeavingCopy> {
        if body.device == MISSING {
            return Ok(LeavingCopy { copy: WhichCopy::Missing, device: None });
        }
        if let Ok(uuid) = body.device.parse::<Uuid>() {
            return Ok(LeavingCopy { copy: WhichCopy::Member(uuid), device: None });
        }
        let spec: DeviceSpec = body.device.parse()?;
        let name = spec.device_name();
        let is_there = self.volume.has_device(body.core.as_deref(), &name);
        let device = if is_there { None } else { self.opener.open(&spec).ok() };
        Ok(LeavingCopy { copy: WhichCopy::On(name), device })
    }

    fn grow_by(&self, body: &GrowBody) -> Result<Vec<GrowBy>> {
        let by = |word: &String| {
            let name = word.parse::<DeviceSpec>()?.device_name();
            match self.volume.is_spare(body.core.as_deref(), &name) {
                true => Ok(GrowBy::Spare(name)),
                false => Ok(GrowBy::New(self.new_member(word, body.force)?)),
            }
        };
        body.devices.iter().map(by).collect()
    }

    /// It holds a part of the array, by which it is known.
    fn returning_member(&self, word: &str) -> Result<ReturningMember> {
        let spec: DeviceSpec = word.parse()?;
        self.refuse_own(&spec, None)?;
        let device = self.opener.open(&spec)?;
        Ok(ReturningMember { word: spec.to_string(), device, uuid: Uuid::new_v4() })
    }
}

fn name(body: &MemberBody) -> Result<String> {
    Ok(body.device.parse::<DeviceSpec>()?.device_name())
}

fn changed_pace(pace: Pace, body: &PaceBody) -> Pace {
    let ceiling = if body.no_ceiling { None } else { body.ceiling.or(pace.ceiling) };
    Pace { floor: body.floor.unwrap_or(pace.floor), ceiling }
}

fn not_changed(error: ChangeMembersError) -> anyhow::Error {
    match error {
        ChangeMembersError::Member(MemberError::Device(_))
        | ChangeMembersError::Reopen { .. }
        | ChangeMembersError::Clean(_)
        | ChangeMembersError::Journal(JournalError::Device(_))
        | ChangeMembersError::Grow(
            GrowError::Device(_) | GrowError::Member(MemberError::Device(_)),
        )
        | ChangeMembersError::Return(ReturnError::Member(MemberError::Device(_))) => error.into(),
        refusal => Failure::refused(refusal),
    }
}
