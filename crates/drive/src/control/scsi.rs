//! The write cache of a SCSI disk, or of a SATA disk behind the kernel's translation.
//!
//! The kernel switches it: it sends MODE SELECT and rereads the disk's caching mode, so that it
//! sends flushes from then on, or none. It is read here with MODE SENSE, because `cache_type` is
//! what the kernel read last.
//!
//! **Source**: Linux `drivers/scsi/sd.c`, `cache_type_store`.

use super::{CacheControl, ControlError, Lasting, sync, write_attribute};
use crate::ask::{AskError, scsi};
use crate::drive::Drive;
use crate::write_cache::{CacheState, Setting};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

pub struct ScsiDisk {
    file: File,
    dir: PathBuf,
}

impl ScsiDisk {
    pub fn new(file: File, drive: &Drive) -> Self {
        Self { file, dir: drive.node.dir().join("device/scsi_disk") }
    }
}

impl CacheControl for ScsiDisk {
    fn read(&self) -> Result<CacheState, AskError> {
        Ok(Setting::of(scsi::caching(&self.file)?.write_cache).into())
    }

    fn flush(&self) -> Result<(), ControlError> {
        sync(&self.file)?;
        Ok(scsi::synchronize_cache(&self.file)?)
    }

    fn write(&self, to: Setting, lasting: Lasting) -> Result<Lasting, ControlError> {
        let caching = scsi::caching(&self.file)?;
        if lasting == Lasting::Saved && !caching.can_be_saved {
            let why = "the drive cannot save its caching page (mode page 08h, PS)";
            return Err(ControlError::Unsaveable { why });
        }
        write_attribute(&cache_type(&self.dir)?, word(to, caching.read_cache_disabled))?;
        // The kernel asks for the page to be saved wherever the drive can.
        Ok(if caching.can_be_saved { Lasting::Saved } else { Lasting::UntilPowerCycle })
    }
}

/// The attribute of the one disk in that folder.
fn cache_type(dir: &Path) -> Result<PathBuf, ControlError> {
    let error = |source| ControlError::Sysfs { path: dir.to_owned(), source };
    let mut entries = std::fs::read_dir(dir).map_err(error)?;
    let entry = entries.next().unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()));
    Ok(entry.map_err(error)?.path().join("cache_type"))
}

/// The kernel's name for both bits: the read cache setting stays as it is.
fn word(to: Setting, read_cache_disabled: bool) -> &'static str {
    match (to, read_cache_disabled) {
        (Setting::Off, false) => "write through",
        (Setting::Off, true) => "none",
        (Setting::On, false) => "write back",
        (Setting::On, true) => "write back, no read (daft)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switching_writes_leaves_reads_as_they_are() {
        assert_eq!(word(Setting::On, false), "write back");
        assert_eq!(word(Setting::Off, true), "none");
    }

    #[test]
    fn the_attribute_is_the_one_disks_and_a_missing_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(cache_type(folder.path()), Err(ControlError::Sysfs { .. })));
        std::fs::create_dir(folder.path().join("2:0:0:0")).unwrap();
        let found = cache_type(folder.path()).unwrap();
        assert_eq!(found, folder.path().join("2:0:0:0/cache_type"));
    }
}
