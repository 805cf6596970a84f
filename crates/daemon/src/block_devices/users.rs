//! Who uses a block device: mounts, swap, devices above it, and processes that have it open.

use headpond_uring::safety;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// One use of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    Mount(PathBuf),
    Swap,
    Device(String),
    Process {
        id: u32,
        name: String,
    },
    /// Exclusively, by whom is not known.
    Someone,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mount(path) => write!(f, "mounted at {}", path.display()),
            Self::Swap => write!(f, "swap space"),
            Self::Device(name) => write!(f, "below {name}"),
            Self::Process { id, name } => write!(f, "open in {name}, process {id}"),
            Self::Someone => write!(f, "in use"),
        }
    }
}

/// Mounts and devices above it, without opening it: one that no daemon serves is not opened before
/// there is one.
pub fn without_opening(node: &Path) -> Vec<User> {
    let text = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounts = text.lines().filter_map(|line| {
        let (source, rest) = line.split_once(' ')?;
        // Others may be anything, and on a server that hangs.
        let is_its = |source| fs::canonicalize(source).is_ok_and(|source| source == node);
        (source.starts_with("/dev/") && is_its(source))
            .then(|| User::Mount(rest.split(' ').next().unwrap_or_default().into()))
    });
    let name = node.file_name().unwrap_or_default();
    let holders = fs::read_dir(Path::new("/sys/block").join(name).join("holders"));
    let holders = holders.into_iter().flatten().flatten();
    let holders = holders.map(|it| User::Device(it.file_name().to_string_lossy().into_owned()));
    mounts.chain(holders).collect()
}

/// All uses that can be seen. What cannot be inspected is taken for used.
pub fn of(node: &Path) -> Vec<User> {
    let Ok(facts) = safety::inspect(node) else { return vec![User::Someone] };
    let mut users: Vec<User> = facts.mounted_at.into_iter().map(User::Mount).collect();
    users.extend(facts.swap.then_some(User::Swap));
    users.extend(facts.holders.into_iter().map(User::Device));
    if users.is_empty() {
        // Of all processes: only where nothing else has told that it is used.
        users.extend(processes(node));
    }
    if users.is_empty() && facts.claimed {
        users.push(User::Someone);
    }
    users
}

/// Processes that have it open, as far as this one may see.
fn processes(node: &Path) -> Vec<User> {
    let own = std::process::id();
    let folders = fs::read_dir("/proc").into_iter().flatten().flatten();
    let process = |entry: fs::DirEntry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok()?;
        let files = fs::read_dir(entry.path().join("fd")).ok()?.flatten();
        let is_open =
            files.map(|file| fs::read_link(file.path())).any(|to| to.is_ok_and(|it| it == node));
        let name = || fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        (id != own && is_open).then(|| User::Process { id, name: name().trim_end().to_owned() })
    };
    folders.filter_map(process).collect()
}
