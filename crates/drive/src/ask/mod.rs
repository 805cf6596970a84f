//! Commands to a drive itself, past the block layer.

pub mod nvme;
pub mod scsi;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Why a command to a drive failed.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("{} cannot be opened: {source}{}", path.display(), way_out(source))]
    Open { path: PathBuf, source: io::Error },
    #[error("the kernel refused {command}: {source}{}", way_out(source))]
    Refused { command: &'static str, source: io::Error },
    #[error("the drive rejected {command}: SCSI status {status:02x}h, sense {sense}")]
    Scsi { command: &'static str, status: u8, sense: String },
    #[error("{command} did not reach the drive: host status {host:x}h, driver status {driver:x}h")]
    Lost { command: &'static str, host: u16, driver: u16 },
    #[error("the drive rejected {command}: NVMe status {status:03x}h{}", nvme::told(*status))]
    Nvme { command: &'static str, status: u16 },
    #[error("the drive's reply to {command} is malformed")]
    Malformed { command: &'static str },
    #[error("only SCSI, SATA, NVMe and virtio drives can be queried")]
    NoWay,
    #[error("{place} is missing or has an unknown value")]
    NotOffered { place: String },
}

fn way_out(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => " (requires root)",
        _ => "",
    }
}

/// Opens a drive for commands only.
///
/// # Errors
/// Where that is not allowed, or there is no drive.
pub fn open(path: &Path) -> Result<File, AskError> {
    // Read-only, so that closing it does not make udev probe the drive again.
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let opened = File::options().read(true).custom_flags(flags).open(path);
    opened.map_err(|source| AskError::Open { path: path.to_owned(), source })
}

/// Sends one ioctl; what it returns where that is no error.
///
/// # Safety
/// `argument` is what `request` takes, and the memory that it points at is the caller's.
unsafe fn ioctl<T>(file: &File, request: u32, argument: &mut T) -> io::Result<i32> {
    // SAFETY: as the caller guarantees; the file is open.
    let returned = unsafe { libc::ioctl(file.as_raw_fd(), request as _, &raw mut *argument) };
    match returned {
        0.. => Ok(returned),
        _ => Err(io::Error::last_os_error()),
    }
}
