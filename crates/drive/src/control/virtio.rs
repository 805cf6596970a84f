//! The write cache of a virtio disk, provided by the hypervisor; not every one allows switching it.

use super::{CacheControl, ControlError, Lasting, sync, write_attribute};
use crate::ask::AskError;
use crate::drive::Drive;
use crate::write_cache::{CacheState, Setting};
use std::fs::File;

pub struct VirtioDisk {
    file: File,
    drive: Drive,
}

impl VirtioDisk {
    pub fn new(file: File, drive: &Drive) -> Self {
        Self { file, drive: drive.clone() }
    }
}

impl CacheControl for VirtioDisk {
    fn read(&self) -> Result<CacheState, AskError> {
        let state = self.drive.own().write_cache;
        let place = self.drive.place("cache_type");
        state.value().copied().ok_or(AskError::NotOffered { place })
    }

    fn flush(&self) -> Result<(), ControlError> {
        sync(&self.file)
    }

    fn write(&self, to: Setting, lasting: Lasting) -> Result<Lasting, ControlError> {
        if lasting == Lasting::Saved {
            let why = "its hypervisor configures a virtual disk at each start";
            return Err(ControlError::Unsaveable { why });
        }
        let word = if to == Setting::On { "write back" } else { "write through" };
        let attribute = self.drive.node.dir().join("cache_type");
        if std::fs::metadata(&attribute).is_ok_and(|it| it.permissions().readonly()) {
            return Err(ControlError::ReadOnly { place: self.drive.place("cache_type") });
        }
        write_attribute(&attribute, word)?;
        Ok(Lasting::UntilPowerCycle)
    }
}
