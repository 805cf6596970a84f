//! Finds what holds a file or block device exclusively.

use crate::ring;
use crate::safety::{self, Hazard};
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The holder of a file or block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A process with a lock on the file.
    Process { id: u32, name: String },
    /// A mount, an array, swap.
    Kernel(Vec<Hazard>),
    /// An unknown holder.
    Unknown,
}

impl Holder {
    /// Whether it is neither a running process nor anything the kernel names.
    pub(super) fn is_gone(&self) -> bool {
        match self {
            Self::Unknown => true,
            Self::Process { id, .. } => !Path::new(&format!("/proc/{id}")).exists(),
            Self::Kernel(_) => false,
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { id, name } => {
                write!(f, "process {id} ({name}) has it open exclusively: stop it first")
            }
            Self::Kernel(hazards) => {
                let hazards: Vec<_> = hazards.iter().map(Hazard::to_string).collect();
                f.write_str(&hazards.join("; "))
            }
            Self::Unknown => f.write_str("another program has it open exclusively: stop it first"),
        }
    }
}

/// Finds the process that has locked a file. A lock of this process on a file that it closed does
/// not count: the kernel releases it after the last operation in flight.
pub(super) fn of_lock(path: &Path) -> Holder {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let inode = path.metadata().map(|metadata| metadata.ino());
    match inode.ok().and_then(|inode| locking_process(&locks, inode)) {
        Some(id) if id == std::process::id() && !is_open_twice(path) => Holder::Unknown,
        Some(id) => {
            let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
            Holder::Process { id, name: name.trim_end().to_owned() }
        }
        None => Holder::Unknown,
    }
}

/// Whether this process has a file open through other descriptors than this one.
fn is_open_twice(path: &Path) -> bool {
    let Ok(wanted) = path.canonicalize() else { return false };
    let descriptors = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let is_it = |to: std::path::PathBuf| to == wanted;
    let closing = ring::closing_descriptors();
    let is_used = |it: &fs::DirEntry| {
        let number = it.file_name().to_str().and_then(|name| name.parse().ok());
        number.is_none_or(|number| !closing.contains(&number))
    };
    let open = descriptors.filter(|it| fs::read_link(it.path()).is_ok_and(is_it));
    open.filter(is_used).count() > 1
}

/// Finds the holder of a block device.
pub(super) fn of_block(path: &Path) -> Holder {
    let Ok(facts) = safety::inspect(path) else { return Holder::Unknown };
    let is_use = |hazard: &Hazard| !matches!(hazard, Hazard::Contents(_) | Hazard::Claimed);
    let uses: Vec<_> = facts.hazards().into_iter().filter(is_use).collect();
    if uses.is_empty() { Holder::Unknown } else { Holder::Kernel(uses) }
}

/// `1: FLOCK  ADVISORY  WRITE 1234 fe:00:131 0 EOF`. The device is left out of the comparison: on
/// some file systems it differs from the one stat tells.
fn locking_process(locks: &str, inode: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, process, place, ..] = fields[..] else { return None };
        let is_ours = place.rsplit(':').next()?.parse() == Ok(inode);
        is_ours.then(|| process.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_of_a_lock_is_read_from_the_kernels_list() {
        let locks = "1: POSIX  ADVISORY  WRITE 77 fe:00:131 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 1234 fe:00:131 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 9 fe:00:131 0 EOF\n";
        assert_eq!(locking_process(locks, 131), Some(1234));
        assert_eq!(locking_process(locks, 31), None);
        assert_eq!(locking_process("", 131), None);
    }
}
