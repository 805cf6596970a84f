//! Wishes about further cores.

use super::message::{AddCoreBody, AttachBody, RemoveCoreBody};
use super::serving::Desk;
use crate::device::{Consent, DeviceSpec, expect_zeros};
use crate::outcome::{Failure, told};
use anyhow::{Context, Result, anyhow};
use headpond_block::BlockDevice;
use headpond_nbd::server::Export;
use headpond_raid::superblock::RoleState;
use headpond_raid::{Intent, Occupied};
use headpond_volume::{
    AddCoreError, CACHE_COPIES, CacheDescription, CoreDescription, CreateOptions, Description,
    DescriptionError, Dirty, FurtherCoreDescription, NewCore, Pace, RemoveCoreError, Volume,
};
use serde_json::Value;
use std::cell::Cell;
use std::rc::Rc;
use uuid::Uuid;

impl Desk {
    /// The cache is written back before, and begins empty afterwards: it knows blocks by addresses.
    pub async fn add_core(&self, body: &AddCoreBody) -> Result<Value> {
        self.refuse_lost_copies()?;
        let described = describe(&self.volume.description(), body).or_else(|error| {
            if matches!(error, DescriptionError::Repeated { .. }) {
                // A device of the volume was named once: it is refused as that.
                self.vet_members(body)?;
            }
            Err(Failure::usage(error.to_string()))
        })?;
        let specs = self.vet_members(body)?;
        let members: Vec<_> =
            specs.iter().map(|spec| self.opener.open(spec)).collect::<Result<_>>()?;
        if body.zeroed {
            expect_zeros(&members).await?;
        }
        let options = options(body);
        let made = self.volume.make_core(described.clone(), members, &options, self.pool());
        let new = Cell::new(Some(made.await.map_err(not_added)?));
        let added = self.between_caches(async || match new.take() {
            Some(new) => {
                self.put_core(new, &described).await?;
                self.offer(&described.name)
            }
            None => unreachable!("the change is made once"),
        });
        let added = added.await;
        if let Some(unused) = new.take() {
            // The cache could not be written back.
            unused.give_up().await?;
        }
        added?;
        self.status()
    }

    /// It is a volume of its own afterwards.
    pub async fn remove_core(&self, body: &RemoveCoreBody) -> Result<Value> {
        let (name, description) = (&body.name, self.volume.description());
        let own = format!("{}-{name}", description.name);
        let Some(described) = description.further_cores.iter().find(|core| core.name == *name)
        else {
            // The volume knows how to refuse this.
            let refused = self.volume.remove_core(name).await.err();
            return Err(refused.map_or_else(|| anyhow!("{name} came meanwhile"), not_removed));
        };
        if self.places.exists(&own) {
            return Err(Failure::refused(format!(
                "the core would be volume {own}, and there is one: `headpond destroy {own}` removes it"
            )));
        }
        let alone = description.of_core_alone(described, own);
        alone.check().map_err(|error| Failure::refused(error.to_string()))?;
        let export = description.array_name(name);
        self.refuse_clients(&export)?;
        self.refuse_lost_copies()?;
        self.between_caches(async || {
            let removed = self.volume.remove_core(name).await;
            // Also where its array was not stopped in order.
            if self.volume.core_device(name).is_none() {
                self.exports.remove(&export);
                // Named twice for a moment rather than nowhere: a device serves one at a time.
                self.places.save(&alone)?;
                self.places.save(&self.volume.description())?;
            }
            removed.map(drop).map_err(not_removed)
        })
        .await?;
        self.status()
    }

    /// Offers a further core to clients.
    pub fn offer(&self, core: &str) -> Result<()> {
        offer(&self.volume, &self.exports, core)
    }

    async fn put_core(&self, new: NewCore, described: &FurtherCoreDescription) -> Result<()> {
        self.places.save(&self.volume.description_with_core(described))?;
        let added = self.volume.add_core(new).await;
        self.places.save(&self.volume.description())?;
        added.map_err(not_added)
    }

    /// Changes what lies below the cache while there is none.
    async fn between_caches(&self, change: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
        let has_cache = self.volume.status().cache.is_some();
        let cache = self.volume.description().cache.filter(|_| has_cache);
        let Some(cache) = cache else { return change().await };
        let taken = self.take_cache(Dirty::Clean).await;
        if taken.is_err() && self.volume.status().cache.is_some() {
            return taken;
        }
        let changed = match taken {
            Ok(()) => change().await,
            // It is gone, and what went wrong came afterwards.
            Err(error) => Err(error),
        };
        let put = self.put_back(cache).await;
        // A refusal by now would say that nothing was changed.
        match (changed, put) {
            (Ok(()), Ok(())) => Ok(()),
            (Err(error), Ok(())) => {
                Err(anyhow!("{}; the cache was written back, and begins empty", told(&error)))
            }
            (Ok(()), Err(error)) => Err(anyhow!("the cores are changed; {}", told(&error))),
            (Err(first), Err(second)) => Err(anyhow!("{}; {}", told(&first), told(&second))),
        }
    }

    /// Attaches a cache again that was taken away.
    async fn put_back(&self, cache: CacheDescription) -> Result<()> {
        let CacheDescription { device, line, size, settings, volatile_allowed, mirror } = cache;
        let mirror = mirror.map(|mirror| (mirror.copies, mirror.spares));
        let (copies, spares) = mirror.unwrap_or_default();
        let force = volatile_allowed;
        let body = AttachBody { device, copies, size, force, ..AttachBody::default() };
        let put = self.put_cache(&body, settings, line).await;
        if self.volume.status().cache.is_none() {
            put.context("the volume has no cache now, attach it again")?;
        } else {
            put?;
        }
        for spare in &spares {
            self.give_back_spare(spare).await?;
        }
        Ok(())
    }

    /// The cache is attached again to every device that the description names.
    fn refuse_lost_copies(&self) -> Result<()> {
        let description = self.volume.description();
        let Some(mirror) = self.volume.status().cache.and_then(|cache| cache.mirror) else {
            return Ok(());
        };
        let described = description.cache.and_then(|cache| cache.mirror);
        let described = 1 + described.map_or(0, |mirror| mirror.copies.len());
        let members = mirror.array.members.iter();
        match members.filter(|it| it.state == RoleState::Active).count() < described {
            false => Ok(()),
            true => Err(Failure::refused(format!(
                "the cache of {0} has lost a copy, and is attached again on all of them afterwards: \
                 `headpond array add-spare {0} DEVICE --cache` makes another, `headpond array \
                 remove {0} COPY --cache` does without it",
                description.name
            ))),
        }
    }

    /// What stood by the copies of the cache before stands by those of the one after it.
    async fn give_back_spare(&self, word: &str) -> Result<()> {
        let new = self.new_member(word, true)?;
        let given = self.volume.add_spare(Some(CACHE_COPIES), new).await;
        self.places.save(&self.volume.description())?;
        let name = self.volume.description().name;
        given.map_err(|error| {
            anyhow!(
                "the cache is attached again, without its spare: {error}; `headpond array add-spare \
                 {name} {word} --cache` adds it"
            )
        })
    }

    fn refuse_clients(&self, export: &str) -> Result<()> {
        let report = self.server.report();
        let mut exports = report.connections.iter().filter_map(|client| client.export.as_deref());
        match exports.any(|name| name == export) {
            true => Err(Failure::refused(format!("clients use {export}: disconnect them first"))),
            false => Ok(()),
        }
    }

    fn vet_members(&self, body: &AddCoreBody) -> Result<Vec<DeviceSpec>> {
        let consent = if body.force { Consent::Forced } else { Consent::Careful };
        let specs: Vec<DeviceSpec> =
            body.members.iter().map(|name| Ok(name.parse()?)).collect::<Result<_>>()?;
        for spec in &specs {
            self.vet_member(spec, consent)?;
        }
        Ok(specs)
    }
}

/// Offers a further core as `VOLUME/NAME`.
pub fn offer(
    volume: &Rc<Volume>,
    exports: &headpond_nbd::server::Exports,
    core: &str,
) -> Result<()> {
    let device = volume.core_device(core).with_context(|| format!("there is no core {core}"))?;
    Ok(exports.add(Export::new(device.name().to_string(), device))?)
}

fn describe(
    description: &Description,
    body: &AddCoreBody,
) -> Result<FurtherCoreDescription, DescriptionError> {
    let AddCoreBody { raid, groups, declustered, strip, intent, integrity, .. } = *body;
    let (members, spares, upkeep) = (body.members.clone(), Vec::new(), Pace::default());
    let core = CoreDescription {
        raid,
        groups,
        strip,
        intent,
        integrity,
        members,
        spares,
        declustered,
        striping: body.striping.clone(),
        upkeep,
        journal: None,
    };
    let (name, uuid) = (body.name.clone(), Uuid::new_v4());
    let id = description.free_core_id()?;
    let described = FurtherCoreDescription { name, id, uuid, core };
    let mut with = description.clone();
    with.further_cores.push(described.clone());
    with.check()?;
    Ok(described)
}

fn options(body: &AddCoreBody) -> CreateOptions {
    CreateOptions {
        contents: body.contents,
        intent: if body.intent { Intent::Bitmap } else { Intent::None },
        occupied: if body.force { Occupied::Overwrite } else { Occupied::Refuse },
        // None is made.
        cache: Uuid::nil(),
        journal: Uuid::nil(),
    }
}

fn not_added(error: AddCoreError) -> anyhow::Error {
    match error.is_refusal() {
        true => Failure::refused(error.to_string()),
        false => error.into(),
    }
}

fn not_removed(error: RemoveCoreError) -> anyhow::Error {
    match error {
        RemoveCoreError::Array(_) | RemoveCoreError::Tier(_) => error.into(),
        refusal => Failure::refused(refusal.to_string()),
    }
}
