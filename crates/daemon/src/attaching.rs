//! Commands about devices of the kernel.

use super::attached::index_of;
use super::service::ControlService;
use crate::run_blocking::run_blocking;
use anyhow::Result;
use headpond_api::answers::{AttachedDevice, Status};
use headpond_api::outcome::Failure;
use headpond_api::requests::{AttachDeviceBody, DetachDeviceBody};
use headpond_uring::safety::inspect;
use std::path::PathBuf;

impl ControlService {
    pub async fn attach_device(&self, body: AttachDeviceBody) -> Result<AttachedDevice> {
        let AttachDeviceBody { core, device, dead_conn_timeout_s } = body;
        let index = device.as_deref().map(index_of).transpose()?;
        let description = self.volume.description();
        let export = match &core {
            Some(core) => description.array_name(core),
            None => description.name,
        };
        if self.exports.get(&export).is_none() {
            return Err(Failure::usage(format!("there is no core {export}")));
        }
        let device = self.attachments.attach(export.clone(), index, dead_conn_timeout_s).await?;
        Ok(AttachedDevice { export, device })
    }

    pub async fn detach_device(&self, body: &DetachDeviceBody) -> Result<Status> {
        let index = index_of(&body.device)?;
        if !body.force {
            refuse_in_use(body.device.clone()).await?;
        }
        self.attachments.detach(index).await?;
        Ok(self.status())
    }
}

async fn refuse_in_use(device: String) -> Result<()> {
    let path = PathBuf::from(&device);
    // What cannot be looked at is no device any more.
    let look = move || Ok(inspect(&path).map(|facts| facts.hazards()).unwrap_or_default());
    match run_blocking(look).await?.into_iter().find(|hazard| !hazard.may_be_forced()) {
        None => Ok(()),
        Some(hazard) => Err(Failure::refused(format!("{device} is in use: {hazard}"))),
    }
}
