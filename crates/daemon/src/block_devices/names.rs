//! Names in `/dev/headpond`, which stay the same though the kernel's numbers do not.
//!
//! `/dev/headpond/VOLUME` is the first core, `/dev/headpond/VOLUME:CORE` a further one: no name has
//! a colon, and a link cannot be a folder as well.

use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

const FOLDER: &str = "/dev/headpond";

pub fn path(volume: &str, core: Option<&str>) -> PathBuf {
    let name = core.map_or_else(|| volume.to_owned(), |core| format!("{volume}:{core}"));
    Path::new(FOLDER).join(name)
}

/// The volume and the core of a name.
pub fn of(link: &Path) -> (String, Option<String>) {
    let name = link.file_name().unwrap_or_default().to_string_lossy();
    match name.split_once(':') {
        Some((volume, core)) => (volume.to_owned(), Some(core.to_owned())),
        None => (name.into_owned(), None),
    }
}

/// All names, each with the number of its device.
pub fn all() -> Vec<(PathBuf, u32)> {
    let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| {
        let node = fs::read_link(entry.path()).ok()?;
        let number = node.to_str()?.strip_prefix("/dev/ublkb")?.parse().ok()?;
        Some((entry.path(), number))
    };
    let mut all: Vec<_> = entries.filter_map(number).collect();
    all.sort();
    all
}

pub fn node(number: u32) -> PathBuf {
    format!("/dev/ublkb{number}").into()
}

/// Makes the name, in place of what was there: also where another process looks at the same time.
pub fn link(link: &Path, node: &Path) -> Result<()> {
    let context = || format!("cannot make {}", link.display());
    let folder = link.parent().with_context(context)?;
    fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).with_context(context)?;
    let new = link.with_extension("new~");
    let _ = fs::remove_file(&new);
    symlink(node, &new).with_context(context)?;
    fs::rename(&new, link).with_context(context)
}

/// Removes the name, where it is of this device.
pub fn unlink(link: &Path, number: u32) {
    if fs::read_link(link).is_ok_and(|target| target == node(number)) {
        let _ = fs::remove_file(link);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_volume_and_core() {
        let both = |volume: &str, core: Option<&str>| (volume.to_owned(), core.map(str::to_owned));
        for (volume, core) in [("hv0", None), ("a.b", Some("data"))] {
            assert_eq!(of(&path(volume, core)), both(volume, core));
        }
        assert_eq!(path("hv0", Some("data")), Path::new("/dev/headpond/hv0:data"));
    }
}
