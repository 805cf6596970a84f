//! What using a path would destroy: facts for refusals, gathered by reading only.
//!
//! [`inspect`] opens the path read-only, reads a few well-known offsets, `/sys` and `/proc`. It
//! decides nothing: the code that creates a volume checks [`DeviceFacts::hazards`] and refuses.
//!
//! **Invariants**
//! - Nothing is written, locked or kept open.
//! - A fact that cannot be found out is absent (`None`, empty), never guessed. An unreadable path
//!   is an error.
//!
//! **Not here**: the refusals themselves and their `--force`; Headpond's own superblocks.
//!
//! **Source**: Linux `Documentation/ABI/stable/sysfs-block`, proc(5); for signatures see
//! [`signatures`].

#[cfg(test)]
mod loop_device;
mod medium;
mod mounts;
mod signatures;
mod structures;
mod sysfs;
mod volatile;

#[cfg(test)]
pub(crate) use loop_device::LoopDevice;
pub use signatures::{ReadAt, Signature};
pub use sysfs::{BlockNode, DeviceNumber, System};
pub use volatile::VolatileReason;

pub(crate) use medium::Medium;

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What kind of thing a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    RegularFile,
    BlockDevice,
}

/// The facts about a file or block device.
#[derive(Clone, Debug)]
pub struct DeviceFacts {
    /// The path with every symbolic link resolved.
    pub path: PathBuf,
    pub kind: DeviceKind,
    pub size_bytes: u64,
    pub logical_block_bytes: u32,
    /// Why its contents would not survive a power cut, if so.
    pub volatile: Option<VolatileReason>,
    /// Whether the drive below has a write cache that needs FLUSH.
    pub write_cache: Option<bool>,
    pub rotational: Option<bool>,
    pub numa_node: Option<u32>,
    /// Where the device, or one of its partitions, is mounted.
    pub mounted_at: Vec<PathBuf>,
    /// Devices built on top of it or of its partitions: `dm-0 (vg-root)`, `md127`, `loop3`.
    pub holders: Vec<String>,
    /// Whether it, or one of its partitions, is swap space in use.
    pub swap: bool,
    /// Whether the block device is held exclusively.
    pub claimed: bool,
    pub signatures: Vec<Signature>,
}

/// One reason not to use the device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hazard {
    #[error("it is mounted at {}: unmount it first", .0.display())]
    Mounted(PathBuf),
    #[error("{0} is built on it: remove that first")]
    Held(String),
    #[error("it is swap space in use: run swapoff first")]
    Swap,
    #[error("another program holds it exclusively: stop that program first")]
    Claimed,
    #[error("it holds {0}: erase that with wipefs, if the contents are worth nothing")]
    Contents(Signature),
}

impl Hazard {
    /// Whether `--force` may override it: contents can be overwritten, a device in use cannot.
    pub fn may_be_forced(&self) -> bool {
        matches!(self, Self::Contents(_))
    }
}

/// Why a path cannot be inspected.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error("{}: cannot be opened: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{}: is neither a regular file nor a block device", path.display())]
    WrongKind { path: PathBuf },
    #[error("{}: cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
}

impl DeviceFacts {
    /// Every reason not to take the device, gravest first; empty where it is free and blank.
    pub fn hazards(&self) -> Vec<Hazard> {
        let mounted = self.mounted_at.iter().cloned().map(Hazard::Mounted);
        let held = self.holders.iter().cloned().map(Hazard::Held);
        let mut hazards: Vec<Hazard> = mounted.chain(held).collect();
        hazards.extend(self.swap.then_some(Hazard::Swap));
        // A mount, a holder or swap is itself a claim; naming it once is enough.
        hazards.extend((self.claimed && hazards.is_empty()).then_some(Hazard::Claimed));
        hazards.extend(self.signatures.iter().cloned().map(Hazard::Contents));
        hazards
    }
}

/// Gathers the facts about a regular file or block device.
///
/// # Errors
/// Where the path cannot be opened or read, or names something else; nothing was changed.
pub fn inspect(path: &Path) -> Result<DeviceFacts, InspectError> {
    inspect_on(&System::host(), path)
}

/// The signatures on a regular file or block device. Unlike [`inspect`] it claims nothing, not even
/// for an instant.
///
/// # Errors
/// As for [`inspect`].
pub fn contents(path: &Path) -> Result<Vec<Signature>, InspectError> {
    let file = open_to_read(path)?;
    let medium = Medium::of(&System::host(), path, &file)?;
    let read_error = |source| InspectError::Read { path: path.to_owned(), source };
    signatures::find(&reader(&file), medium.size_bytes).map_err(read_error)
}

/// The signatures on what `read` reads.
///
/// # Errors
/// Where it cannot.
pub fn contents_by(read: &ReadAt<'_>, size_bytes: u64) -> io::Result<Vec<Signature>> {
    signatures::find(read, size_bytes)
}

fn reader(file: &File) -> impl Fn(&mut [u8], u64) -> io::Result<()> + '_ {
    |bytes, offset| file.read_exact_at(bytes, offset)
}

/// Without NONBLOCK the open of a removable drive could wait for its medium.
fn open_to_read(path: &Path) -> Result<File, InspectError> {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = File::options().read(true).custom_flags(flags).open(path);
    file.map_err(|source| open_error(path, source))
}

fn inspect_on(system: &System, given: &Path) -> Result<DeviceFacts, InspectError> {
    let path = given.canonicalize().map_err(|source| open_error(given, source))?;
    let file = open_to_read(&path)?;
    let medium = Medium::of(system, &path, &file)?;
    let usage = match medium.number {
        Some(number) => block_usage(system, &path, medium.node.as_ref(), number),
        None => file_usage(system, &path),
    };
    let signatures = signatures::find(&reader(&file), medium.size_bytes)
        .map_err(|source| InspectError::Read { path: path.clone(), source })?;
    Ok(DeviceFacts {
        path,
        kind: medium.kind,
        size_bytes: medium.size_bytes,
        logical_block_bytes: medium.logical_block_bytes,
        volatile: medium.volatile,
        write_cache: medium.write_cache,
        rotational: medium.rotational,
        numa_node: medium.numa_node,
        mounted_at: usage.mounted_at,
        holders: usage.holders,
        swap: usage.swap,
        claimed: usage.claimed,
        signatures,
    })
}

/// Who uses a device right now.
struct Usage {
    mounted_at: Vec<PathBuf>,
    holders: Vec<String>,
    swap: bool,
    claimed: bool,
}

fn block_usage(
    system: &System,
    path: &Path,
    node: Option<&BlockNode>,
    number: DeviceNumber,
) -> Usage {
    let family = node.map(BlockNode::with_partitions).unwrap_or_default();
    let numbers: Vec<_> = family.iter().filter_map(BlockNode::number).chain([number]).collect();
    Usage {
        mounted_at: mounts::mounted_at(system, &numbers),
        holders: family.iter().flat_map(BlockNode::holders).collect(),
        swap: mounts::is_swap_device(system, &numbers),
        claimed: is_claimed(path),
    }
}

fn file_usage(system: &System, path: &Path) -> Usage {
    Usage {
        mounted_at: Vec::new(),
        holders: sysfs::loops_over(system, path),
        swap: mounts::is_swap_file(system, path),
        claimed: false,
    }
}

/// A block device that is mounted or part of an array refuses a second exclusive open.
fn is_claimed(path: &Path) -> bool {
    let flags = libc::O_EXCL | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let opened = File::options().read(true).custom_flags(flags).open(path);
    matches!(opened, Err(error) if error.raw_os_error() == Some(libc::EBUSY))
}

fn open_error(path: &Path, source: io::Error) -> InspectError {
    InspectError::Open { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_file_has_no_hazards() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let facts = inspect(file.path()).unwrap();
        assert_eq!(facts.kind, DeviceKind::RegularFile);
        assert_eq!(facts.size_bytes, 1 << 20);
        assert_eq!(facts.hazards(), []);
    }

    #[test]
    fn file_in_memory_is_volatile_and_says_why() {
        if !Path::new("/dev/shm").is_dir() {
            eprintln!("skipped: file_in_memory_is_volatile_and_says_why: no /dev/shm");
            return;
        }
        let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        let reason = inspect(file.path()).unwrap().volatile.expect("tmpfs is memory");
        assert!(reason.to_string().contains("tmpfs"), "{reason}");
    }

    #[test]
    fn pipes_and_directories_are_refused_by_kind() {
        let error = inspect(Path::new("/")).unwrap_err();
        assert!(matches!(error, InspectError::WrongKind { .. }), "{error}");
        let error = inspect(Path::new("/does/not/exist")).unwrap_err();
        assert!(matches!(error, InspectError::Open { .. }), "{error}");
    }

    #[test]
    fn use_by_somebody_cannot_be_forced() {
        assert!(!Hazard::Swap.may_be_forced());
        assert!(!Hazard::Mounted("/".into()).may_be_forced());
    }
}
