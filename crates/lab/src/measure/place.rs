//! Where real targets are: whether they are what the plan takes them for.

use crate::plan::{Kind, Plan, Target};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// A target that is not what the plan takes it for.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: io::Error },
    #[error("{path} is no block device; name a file as PATH:SIZE, or file = and size = in a plan")]
    NoDevice { path: PathBuf },
    #[error("{path} is no regular file; name a block device by its path alone")]
    NoFile { path: PathBuf },
    #[error(
        "{path} has {has} bytes, and {needs} of it are to be measured: it would be made longer and \
         lose what it holds; name a smaller size, or another file"
    )]
    Short { path: PathBuf, has: u64, needs: u64 },
}

/// Checks every device and file of a plan; nothing is opened for writing.
///
/// # Errors
/// The first that is not what it is taken for.
pub fn check(plan: &Plan) -> Result<(), PlaceError> {
    plan.targets.iter().flat_map(Target::each).try_for_each(|target| check_target(plan, &target))
}

fn check_target(plan: &Plan, target: &Target) -> Result<(), PlaceError> {
    let io = |path: &Path, error| PlaceError::Io { path: path.to_owned(), error };
    if let Some(path) = &target.device {
        let meta = std::fs::metadata(path).map_err(|error| io(path, error))?;
        if !meta.file_type().is_block_device() {
            return Err(PlaceError::NoDevice { path: path.clone() });
        }
    }
    let Some(path) = &target.file else { return Ok(()) };
    let meta = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        meta => meta.map_err(|error| io(path, error))?,
    };
    if !meta.is_file() {
        return Err(PlaceError::NoFile { path: path.clone() });
    }
    let sizes = [plan.matrix.size, target.size].into_iter();
    let sizes = sizes.chain(plan.beside.iter().map(|job| job.size)).flatten();
    let needs = sizes.map(|size| size.bytes()).max().unwrap_or(0);
    match meta.len() >= needs {
        true => Ok(()),
        false => Err(PlaceError::Short { path: path.clone(), has: meta.len(), needs }),
    }
}

/// Makes the file of a target where there is none, and writes all of it: what was never written is
/// read from nowhere.
///
/// # Errors
/// Where it cannot be made.
pub(super) fn make(target: &Target) -> Result<(), PlaceError> {
    let (Some(path), Some(size)) = (&target.file, target.size) else { return Ok(()) };
    if path.exists() {
        return Ok(());
    }
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        let piece = vec![0xa5; 1 << 20];
        let mut left = size.bytes();
        while left > 0 {
            let len = left.min(piece.len() as u64);
            file.write_all(&piece[..len as usize])?;
            left -= len;
        }
        file.sync_all()
    };
    write().map_err(|error| PlaceError::Io { path: path.clone(), error })
}

/// How much a device or file holds.
pub(super) fn bytes(target: &Target) -> Option<u64> {
    match target.kind() {
        Kind::Device | Kind::File => {
            let path = target.device.as_ref().or(target.file.as_ref())?;
            File::open(path).ok()?.seek(SeekFrom::End(0)).ok()
        }
        Kind::Export | Kind::Volume | Kind::Machine => None,
    }
}
