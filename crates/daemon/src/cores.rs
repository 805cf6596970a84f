//! Commands about further cores.

use super::service::ControlService;
use crate::device::{Consent, DeviceSpec, expect_zeros};
use anyhow::{Context, Result, anyhow};
use headpond_api::answers::Status;
use headpond_api::outcome::Failure;
use headpond_api::requests::{AddCoreBody, RemoveCoreBody};
use headpond_block::BlockDevice;
use headpond_nbd::server::Export;
use headpond_raid::superblock::DATA_OFFSET_MIN;
use headpond_raid::{Intent, Level, Occupied};
use headpond_volume::{
    BackgroundRate, CoreChangeError, CoreDescription, CreateOptions, Description, DescriptionError,
    FurtherCoreDescription, Keeping, Volume,
};
use std::cell::Cell;
use std::rc::Rc;
use uuid::Uuid;

impl ControlService {
    /// The cache is cleaned first, and starts empty.
    pub async fn add_core(&self, body: &AddCoreBody) -> Result<Status> {
        let described = describe(&self.volume.description(), body);
        if !matches!(described, Ok(_) | Err(DescriptionError::Repeated { .. })) {
            described.as_ref().map_err(Failure::usage)?;
        }
        // Before the check for duplicates: a device of the volume is refused as such.
        let specs = self.vet_members(body).await?;
        let mut described = described.map_err(Failure::usage)?;
        if body.keep {
            return self.add_existing(&specs, &mut described, body).await;
        }
        let members = self.opener.open_all(&specs).await?;
        if body.zeroed {
            expect_zeros(&members).await?;
        }
        self.add_core_on(members, described, body).await
    }

    async fn add_core_on(
        &self,
        members: Vec<Rc<dyn BlockDevice>>,
        described: FurtherCoreDescription,
        body: &AddCoreBody,
    ) -> Result<Status> {
        let options = options(body);
        let made = self.volume.make_core(described.clone(), members, &options, self.pool.clone());
        let made = made.await.map_err(not_changed)?;
        let added = self.volume.add_core(made, Uuid::new_v4(), &|it| self.keep(it)).await;
        let saved = self.save().await;
        let is_refused = added.as_ref().is_err_and(CoreChangeError::is_refusal);
        let is_there = !is_refused && self.volume.core_device(&described.name).is_some();
        let offered = if is_there { self.offer(&described.name) } else { Ok(()) };
        added.map_err(not_changed)?;
        saved.and(offered)?;
        Ok(self.status())
    }

    /// The core is a device with its contents, whose head is made.
    async fn add_existing(
        &self,
        specs: &[DeviceSpec],
        described: &mut FurtherCoreDescription,
        body: &AddCoreBody,
    ) -> Result<Status> {
        let ([device], Level::Raid0) = (specs, body.raid) else {
            let error = "one device keeps its contents, as an array of level 0";
            return Err(Failure::usage(error));
        };
        let Description { name: volume, cache, .. } = self.volume.description();
        if cache.is_some_and(|cache| cache.settings.mode.is_write_back()) && !body.force {
            return Err(Failure::refused(format!(
                "{volume} has a write-back cache: {device} alone would be out of date, and damaged when \
                 it is used past {volume} or the cache device is lost: `headpond set {volume} \
                 mode=write-through`, or accept that with --force"
            )));
        }
        let uuid = described.uuid;
        let head = self.files.head_of_core(volume, described.name.clone(), uuid).await?;
        let existing = DeviceSpec::existing(device.clone(), head.clone());
        let existing = existing.map_err(Failure::usage)?;
        let added = match self.opener.take_existing(device, &head).await {
            Ok(taken) => {
                let bytes = taken.size_bytes() - DATA_OFFSET_MIN;
                described.core = CoreDescription::on_existing(existing.to_string(), bytes);
                self.add_core_on(vec![taken], described.clone(), body).await
            }
            Err(error) => Err(error),
        };
        let is_named = self.volume.description().further_cores.iter().any(|it| it.uuid == uuid);
        if added.is_err() && !is_named {
            // Of no volume; it may not have been made.
            let _ = self.files.remove(head).await;
        }
        added
    }

    /// It becomes a volume of its own.
    pub async fn remove_core(&self, body: &RemoveCoreBody) -> Result<Status> {
        let (name, description) = (&body.name, self.volume.description());
        let own = format!("{}-{name}", description.name);
        let Some(described) = description.further_cores.iter().find(|core| core.name == *name)
        else {
            // The volume refuses this.
            let refused = self.volume.remove_core(name, Uuid::new_v4(), &|it| self.keep(it)).await;
            return Err(refused
                .err()
                .map_or_else(|| anyhow!("{name} was added concurrently"), not_changed));
        };
        self.refuse_name(&own, described).await?;
        let alone = description.of_core_alone(described, own);
        alone.check().map_err(Failure::refused)?;
        let export = description.array_name(name);
        self.refuse_clients(&export)?;
        let is_kept = Cell::new(false);
        let leaves = |next: &Description| {
            let now = self.volume.description();
            let named =
                |it: &Description| it.further_cores.iter().find(|core| core.name == *name).cloned();
            named(&now).filter(|_| named(next).is_none())
        };
        let keep = |next: &Description| -> Keeping<'_> {
            let (next, leaving) = (next.clone(), leaves(next));
            let (alone, export, is_kept) = (&alone, &export, &is_kept);
            Box::pin(async move {
                if let Some(leaving) = leaving {
                    self.refuse_name(&alone.name, &leaving).await?;
                    self.refuse_clients(export)?;
                    is_kept.set(true);
                    // Described twice for a short time rather than nowhere: a device is open only
                    // once.
                    let now = self.volume.description();
                    self.files.save(now.of_core_alone(&leaving, alone.name.clone())).await?;
                }
                Ok(self.files.save(next).await?)
            })
        };
        let removed = self.volume.remove_core(name, Uuid::new_v4(), &keep).await;
        let mut saved = self.save().await;
        if self.volume.core_device(name).is_none() {
            self.exports.remove(&export);
        } else if is_kept.get() && saved.is_ok() {
            saved = self.files.forget_if_there(alone.name.clone()).await;
        }
        removed.map_err(not_changed)?;
        saved?;
        Ok(self.status())
    }

    /// Exports a further core.
    pub fn offer(&self, core: &str) -> Result<()> {
        offer(&self.volume, &self.exports, core)
    }

    /// A removed core is a volume of its own; after a power cut it may be described as that
    /// already.
    async fn refuse_name(&self, own: &str, leaving: &FurtherCoreDescription) -> Result<()> {
        match self.files.is_taken(own.to_owned(), leaving.uuid).await? {
            false => Ok(()),
            true => Err(Failure::refused(format!(
                "the core would be volume {own}, and there is one: `headpond destroy {own}` removes it"
            ))),
        }
    }

    fn refuse_clients(&self, export: &str) -> Result<()> {
        let report = self.server.report();
        let mut exports = report.connections.iter().filter_map(|client| client.export.as_deref());
        match exports.any(|name| name == export) {
            true => Err(Failure::refused(format!(
                "clients are connected to {export}: disconnect them first"
            ))),
            false => Ok(()),
        }
    }

    async fn vet_members(&self, body: &AddCoreBody) -> Result<Vec<DeviceSpec>> {
        // Contents that are kept are none to be lost; what is in use cannot be forced.
        let consent = if body.force || body.keep { Consent::Forced } else { Consent::Careful };
        let specs: Vec<DeviceSpec> =
            body.members.iter().map(|name| Ok(name.parse()?)).collect::<Result<_>>()?;
        for spec in &specs {
            self.vet_member(spec, consent).await?;
        }
        Ok(specs)
    }
}

/// Exports a further core as `VOLUME/NAME`.
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
    let (members, spares, background) =
        (body.members.clone(), Vec::new(), BackgroundRate::default());
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
        background,
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

fn not_changed(error: CoreChangeError) -> anyhow::Error {
    match error {
        CoreChangeError::NoCore { .. } => Failure::usage(error),
        error => Failure::of(error, CoreChangeError::is_refusal),
    }
}
