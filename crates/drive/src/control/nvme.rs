//! The volatile write cache of an NVMe controller, which all its namespaces share.

use super::{CacheControl, ControlError, Lasting, sync};
use crate::ask::{AskError, nvme};
use crate::drive::Drive;
use crate::write_cache::{CacheState, Setting};
use headpond_uring::safety::BlockNode;
use std::fs::File;

pub struct Controller {
    file: File,
    node: BlockNode,
    believed_in: String,
}

impl Controller {
    pub fn new(file: File, drive: &Drive) -> Self {
        let believed_in = drive.place("queue/write_cache");
        Self { file, node: drive.node.clone(), believed_in }
    }
}

impl CacheControl for Controller {
    fn read(&self) -> Result<CacheState, AskError> {
        match nvme::identify(&self.file)?.volatile_write_cache {
            false => Ok(CacheState::Absent),
            true => Ok(Setting::of(nvme::write_cache(&self.file)?).into()),
        }
    }

    fn flush(&self) -> Result<(), ControlError> {
        sync(&self.file)?;
        Ok(nvme::flush(&self.file)?)
    }

    fn write(&self, to: Setting, lasting: Lasting) -> Result<Lasting, ControlError> {
        // The kernel looks at the feature at no time, and would go on without flushes.
        if to == Setting::On && self.node.write_cache() == Some(false) {
            return Err(ControlError::NoFlushes { place: self.believed_in.clone() });
        }
        let on = to == Setting::On;
        match lasting {
            Lasting::UntilPowerCycle => nvme::set_write_cache(&self.file, on)?,
            Lasting::Saved if !nvme::identify(&self.file)?.can_save => {
                let why = "the controller cannot save features (identify, ONCS bit 4)";
                return Err(ControlError::Unsaveable { why });
            }
            Lasting::Saved => nvme::save_write_cache(&self.file, on)?,
        }
        Ok(lasting)
    }
}
