//! Commands about the members of an array and its background work.

use super::command::ArrayCommand;
use super::service::ControlService;
use crate::device::{Consent, DeviceSpec, Vetted, vet, vet_lasting};
use crate::run_blocking::run_blocking;
use anyhow::Result;
use headpond_api::answers::Status;
use headpond_api::outcome::Failure;
use headpond_api::requests::{GrowBody, JournalBody, MemberBody, PauseBody, RateBody};
use headpond_raid::{GrowError, JournalError, MemberError, Occupied, ReturnError, WhichCopy};
use headpond_volume::{
    BackgroundRate, ChangeMembersError, GrowBy, LeavingCopy, NewJournal, NewMember,
    ReturningMember, Volume,
};
use std::path::Path;
use uuid::Uuid;

/// A copy without a known device.
pub const MISSING: &str = "missing";

impl ControlService {
    /// Changes are persistent; work runs in the background.
    pub async fn change_array(&self, command: &ArrayCommand) -> Result<Status> {
        let volume = &self.volume;
        let changed = match command {
            ArrayCommand::AddSpare(body) => {
                let new = self.new_member(&body.device, body.force).await?;
                volume.add_spare(body.core.as_deref(), new).await
            }
            ArrayCommand::ReAdd(body) => {
                let returning = self.returning_member(&body.device).await?;
                volume.re_add_member(body.core.as_deref(), returning).await.map(drop)
            }
            ArrayCommand::Replace(body) => {
                let with = match &body.with {
                    Some(word) => Some(self.new_member(word, body.force).await?),
                    None => None,
                };
                volume.replace_member(body.core.as_deref(), &name(body)?, with).await
            }
            ArrayCommand::Grow(body) => {
                let by = self.grow_by(body).await?;
                volume.grow_array(body.core.as_deref(), by, self.pool.clone()).await
            }
            ArrayCommand::Fail(body) => {
                volume.fail_member(body.core.as_deref(), &name(body)?).await
            }
            ArrayCommand::Remove(body) => {
                volume.remove_member(body.core.as_deref(), &name(body)?).await
            }
            ArrayCommand::DropCopy(body) => {
                let leaving = self.leaving_copy(body).await?;
                volume.drop_copy(body.core.as_deref(), leaving, self.pool.clone()).await
            }
            ArrayCommand::SetJournal(body) => {
                let new = self.new_journal(body).await?;
                volume.set_journal(body.core.as_deref(), new, self.pool.clone()).await
            }
            ArrayCommand::DropJournal(body) => {
                volume.drop_journal(body.core.as_deref(), self.pool.clone()).await
            }
            ArrayCommand::Scrub(body) => volume.scrub_array(body.core.as_deref()),
            ArrayCommand::Pause(body) => pause(volume, body, true),
            ArrayCommand::Resume(body) => pause(volume, body, false),
            ArrayCommand::Rate(body) => {
                volume.set_background_rate(body.core.as_deref(), |pace| changed_rate(pace, body))
            }
        };
        // Also after a partial failure: a device may have been added.
        self.save().await?;
        changed.map_err(not_changed)?;
        Ok(self.status())
    }

    async fn new_member(&self, word: &str, force: bool) -> Result<NewMember> {
        let spec = spec_of(word)?;
        let consent = if force { Consent::Forced } else { Consent::Careful };
        self.vet_member(&spec, consent).await?;
        Ok(NewMember {
            word: spec.to_string(),
            device: self.opener.open(&spec).await?,
            uuid: Uuid::new_v4(),
            occupied: if force { Occupied::Overwrite } else { Occupied::Refuse },
        })
    }

    /// Checks a device that will be added to an array, which must not be in the volume yet.
    pub(super) async fn vet_member(&self, spec: &DeviceSpec, consent: Consent) -> Result<()> {
        // A cache mirror is an array, and two memory devices of one name are distinct.
        let cache = self.volume.description().cache.filter(|cache| cache.mirror.is_none());
        let cache = cache.filter(|_| !matches!(spec, DeviceSpec::Ram(_)));
        self.refuse_own(spec, cache.map(|cache| cache.device)).await?;
        let spec = spec.clone();
        run_blocking(move || vet_lasting(&spec, consent)).await.map(drop)
    }

    /// Checks a device for a cache, which may be the present cache.
    pub(super) async fn vet_cache(&self, spec: &DeviceSpec, consent: Consent) -> Result<Vetted> {
        self.refuse_own(spec, None).await?;
        vet_blocking(spec, consent).await
    }

    async fn refuse_own(&self, spec: &DeviceSpec, further: Option<String>) -> Result<()> {
        let own: Vec<String> = self.volume.array_devices().into_iter().chain(further).collect();
        let (volume, spec) = (self.volume.description().name, spec.clone());
        let look = move || {
            let place = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
            let (wanted, name) = (spec.path().map(place), spec.device_name());
            let is_it = |own: String| own == name || Some(place(Path::new(&own))) == wanted;
            match own.into_iter().any(is_it) {
                false => Ok(()),
                true => Err(Failure::refused(format!(
                    "{spec} belongs to {volume} already: `headpond status {volume}` lists its devices"
                ))),
            }
        };
        run_blocking(look).await
    }

    async fn new_journal(&self, body: &JournalBody) -> Result<NewJournal> {
        let NewMember { word, device, uuid, occupied } =
            self.new_member(&body.device, body.force).await?;
        Ok(NewJournal { word, device, uuid, when: body.when, occupied })
    }

    /// A device that is not open may be missing, or known by its superblock only.
    async fn leaving_copy(&self, body: &MemberBody) -> Result<LeavingCopy> {
        if body.device == MISSING {
            return Ok(LeavingCopy { copy: WhichCopy::Missing, device: None });
        }
        if let Ok(uuid) = body.device.parse::<Uuid>() {
            return Ok(LeavingCopy { copy: WhichCopy::Member(uuid), device: None });
        }
        let spec = spec_of(&body.device)?;
        let name = spec.device_name();
        let is_there = self.volume.has_device(body.core.as_deref(), &name);
        let device = if is_there { None } else { self.opener.open(&spec).await.ok() };
        Ok(LeavingCopy { copy: WhichCopy::On(name), device })
    }

    async fn grow_by(&self, body: &GrowBody) -> Result<Vec<GrowBy>> {
        let mut by = Vec::new();
        for word in &body.devices {
            let name = spec_of(word)?.device_name();
            by.push(match self.volume.is_spare(body.core.as_deref(), &name) {
                true => GrowBy::Spare(name),
                false => GrowBy::New(self.new_member(word, body.force).await?),
            });
        }
        Ok(by)
    }

    /// It has a superblock of the array.
    async fn returning_member(&self, word: &str) -> Result<ReturningMember> {
        let spec = spec_of(word)?;
        self.refuse_own(&spec, None).await?;
        let device = self.opener.open(&spec).await?;
        Ok(ReturningMember { word: spec.to_string(), device, uuid: Uuid::new_v4() })
    }
}

pub(super) async fn vet_blocking(spec: &DeviceSpec, consent: Consent) -> Result<Vetted> {
    let spec = spec.clone();
    run_blocking(move || vet(&spec, consent)).await
}

fn name(body: &MemberBody) -> Result<String> {
    Ok(spec_of(&body.device)?.device_name())
}

fn spec_of(word: &str) -> Result<DeviceSpec> {
    word.parse().map_err(Failure::usage)
}

fn pause(volume: &Volume, body: &PauseBody, is_paused: bool) -> Result<(), ChangeMembersError> {
    let core = body.core.as_deref();
    match body.scrub {
        true => volume.pause_scrub(core, is_paused),
        false => volume.pause_background(core, is_paused),
    }
}

fn changed_rate(pace: BackgroundRate, body: &RateBody) -> BackgroundRate {
    let max = if body.no_max { None } else { body.max.or(pace.max) };
    BackgroundRate { min: body.min.unwrap_or(pace.min), max }
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
        ChangeMembersError::NoCore { .. }
        | ChangeMembersError::NoMember { .. }
        | ChangeMembersError::Member(
            MemberError::Unknown { .. }
            | MemberError::UnknownCopy { .. }
            | MemberError::NoneMissing { .. },
        )
        | ChangeMembersError::BackgroundRate(_) => Failure::usage(error),
        refusal => Failure::refused(refusal),
    }
}
