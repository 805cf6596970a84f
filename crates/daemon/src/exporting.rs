//! A volume's cores as block devices: at the start, and when its exports change.

use super::block_devices::{Source, acknowledges_from_memory, link_of};
use super::service::ControlService;
use crate::export::{self, Address};
use anyhow::{Context, Result};
use headpond_api::outcome::Failure;
use headpond_block::BlockDevice;
use headpond_ublk::Shape;
use headpond_volume::{Description, ExportDescription};
use std::rc::Rc;

impl ControlService {
    /// Shows the block devices that the volume is exported as, and goes on with attached ones.
    ///
    /// # Errors
    /// Where the kernel has no ublk, or refuses.
    pub async fn show_block_devices(&self) -> Result<()> {
        let description = self.volume.description();
        if acknowledges_from_memory(&description) {
            self.mark_memory().await?;
        }
        self.follow_exports(&description.exports).await?;
        if !acknowledges_from_memory(&description) {
            // Its devices do not go on, or nothing was lost.
            self.files.unmark_memory(description.name).await?;
        }
        self.attachments.go_on();
        Ok(())
    }

    /// Shows what is to be shown and is not, and removes the others.
    ///
    /// # Errors
    /// Where one to be removed is in use, or the kernel refuses.
    pub async fn follow_exports(&self, exports: &[ExportDescription]) -> Result<()> {
        let description = self.volume.description();
        let (before, now) = (shape_of(&description.exports)?, shape_of(exports)?);
        if before.is_some() && now.is_some() && before != now && self.block_devices.is_any_shown() {
            return Err(Failure::refused(
                "a block device that is shown cannot be changed: `headpond export remove` it first",
            ));
        }
        match now {
            None => self.block_devices.hide_all().await,
            Some(shape) => {
                for source in self.sources(&description)? {
                    if !self.block_devices.shows(source.uuid) {
                        let name = link_of(&source.volume, source.core.as_deref());
                        let shown = self.block_devices.show(source, shape).await;
                        shown.with_context(|| format!("no block device {}", name.display()))?;
                    }
                }
                Ok(())
            }
        }
    }

    fn sources(&self, description: &Description) -> Result<Vec<Source>> {
        let source = |core: Option<&str>, uuid, device: Rc<dyn BlockDevice>| Source {
            volume: description.name.clone(),
            core: core.map(str::to_owned),
            uuid,
            device,
        };
        let export = |name: &str| {
            let export = self.exports.get(name).with_context(|| format!("{name} has no export"))?;
            Ok::<_, anyhow::Error>(Rc::clone(export.device()))
        };
        let mut sources = vec![source(None, description.uuid, export(&description.name)?)];
        for core in &description.further_cores {
            let device = export(&format!("{}/{}", description.name, core.name))?;
            sources.push(source(Some(&core.name), core.uuid, device));
        }
        Ok(sources)
    }

    /// Before writes can be acknowledged in memory alone.
    ///
    /// # Errors
    /// Where that cannot be kept for the next daemon, which must not go on with block devices.
    pub async fn mark_memory(&self) -> Result<()> {
        self.files.mark_memory(self.volume.description().name).await
    }
}

/// How the volume is exported as block devices, if it is.
fn shape_of(exports: &[ExportDescription]) -> Result<Option<Shape>> {
    let addresses: Result<Vec<_>> = exports.iter().map(export::address).collect();
    Ok(addresses?.into_iter().find_map(|address| match address {
        Address::Ublk(shape) => Some(shape),
        Address::Unix(_) | Address::Tcp(_) => None,
    }))
}
