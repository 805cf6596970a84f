//! Opens a file exclusively, and creates it where it does not exist.
//!
//! All calls block: they happen at set-up.

use super::file_system;
use super::holder::{self, Holder};
use super::options::{Access, Allocation, Caching, FileOptions, Ownership};
use rustix::fs::{FallocateFlags, FlockOperation};
use std::fs::{File, FileType};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Why a file cannot be used as a device. Nothing was changed, unless a new file could not be given
/// its size: then it is left empty.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{}: cannot be opened: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{}: is neither a regular file nor a block device", path.display())]
    WrongKind { path: PathBuf },
    #[error("{}: is in use: {holder}", path.display())]
    InUse { path: PathBuf, holder: Holder },
    #[error(
        "{}: exists with {found_bytes} bytes, not the {wanted_bytes} asked for: remove it first or \
         choose another name",
        path.display()
    )]
    SizeDiffers { path: PathBuf, found_bytes: u64, wanted_bytes: u64 },
    #[error("{}: cannot be made {size_bytes} bytes long: {source}", path.display())]
    Allocate { path: PathBuf, size_bytes: u64, source: io::Error },
    #[error("{}: is empty: nothing can be stored in it", path.display())]
    Empty { path: PathBuf },
    #[error("{}: has logical blocks of {found_bytes} bytes; 512 and 4096 are supported", path.display())]
    LogicalBlock { path: PathBuf, found_bytes: u32 },
    #[error(transparent)]
    Inspect(#[from] crate::safety::InspectError),
}

/// An open file, locked and sized as requested.
pub(super) struct Opened {
    pub file: File,
    pub is_block: bool,
    pub is_direct: bool,
    /// Whether a process or another host serves the file (FUSE, NFS).
    pub is_served: bool,
}

/// Opens what the options say.
///
/// # Errors
/// See [`OpenError`].
pub(super) fn open(options: &FileOptions) -> Result<Opened, OpenError> {
    let path = &options.path;
    // Looked at before the open, which would wait for the other end of a pipe.
    let kind = path.metadata().map(|metadata| metadata.file_type());
    let is_block = kind.as_ref().is_ok_and(FileType::is_block_device);
    if kind.is_ok_and(|kind| !kind.is_block_device() && !kind.is_file()) {
        return Err(OpenError::WrongKind { path: path.clone() });
    }
    let (file, is_direct) = open_descriptor(options, is_block)?;
    if !is_block && options.ownership == Ownership::Exclusive {
        lock(&file, path)?;
    }
    if let (Some((size_bytes, allocation)), false) = (options.creation, is_block) {
        give_size(&file, path, size_bytes, allocation)?;
    }
    let is_served = !is_block && file_system::is_served(&file);
    Ok(Opened { file, is_block, is_direct, is_served })
}

fn open_descriptor(options: &FileOptions, is_block: bool) -> Result<(File, bool), OpenError> {
    let wants_direct = options.caching == Caching::DirectWherePossible;
    if wants_direct {
        match try_open(options, is_block, libc::O_DIRECT) {
            // The file system's way to say that it has no O_DIRECT.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            other => return other.map(|file| (file, true)).map_err(|e| refused(options, e)),
        }
    }
    let opened = try_open(options, is_block, 0);
    opened.map(|file| (file, false)).map_err(|error| refused(options, error))
}

fn try_open(options: &FileOptions, is_block: bool, flags: i32) -> io::Result<File> {
    let is_exclusive = is_block && options.ownership == Ownership::Exclusive;
    let exclusive = if is_exclusive { libc::O_EXCL } else { 0 };
    let flags = flags | exclusive | libc::O_CLOEXEC;
    File::options()
        .read(true)
        .write(options.access == Access::ReadWrite)
        .create(options.creation.is_some() && !is_block)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(&options.path)
}

fn refused(options: &FileOptions, source: io::Error) -> OpenError {
    let path = options.path.clone();
    match source.raw_os_error() {
        Some(libc::EBUSY) => OpenError::InUse { holder: holder::of_block(&path), path },
        _ => OpenError::Open { path, source },
    }
}

/// Takes the file's advisory lock, which lasts as long as this open file description, forks
/// included.
fn lock(file: &File, path: &Path) -> Result<(), OpenError> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(OpenError::InUse { holder: holder::of_lock(path), path: path.to_owned() })
        }
        Err(errno) => Err(open_error(path, errno.into())),
    }
}

fn give_size(
    file: &File,
    path: &Path,
    wanted_bytes: u64,
    allocation: Allocation,
) -> Result<(), OpenError> {
    let found_bytes = file.metadata().map_err(|source| open_error(path, source))?.len();
    if found_bytes == wanted_bytes {
        return Ok(());
    }
    if found_bytes != 0 {
        return Err(OpenError::SizeDiffers { path: path.to_owned(), found_bytes, wanted_bytes });
    }
    allocate(file, path, wanted_bytes, allocation).map_err(|source| {
        // Left empty rather than half made, so that a second try finds what the first one did.
        let _ = file.set_len(0);
        OpenError::Allocate { path: path.to_owned(), size_bytes: wanted_bytes, source }
    })
}

/// Gives a new file its size, and makes size and name stable.
fn allocate(file: &File, path: &Path, size_bytes: u64, allocation: Allocation) -> io::Result<()> {
    match allocation {
        Allocation::Sparse => file.set_len(size_bytes)?,
        Allocation::Preallocated => {
            rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size_bytes)?;
        }
    }
    file.sync_all()?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

fn open_error(path: &Path, source: io::Error) -> OpenError {
    OpenError::Open { path: path.to_owned(), source }
}
