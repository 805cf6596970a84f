//! The group that may look at what root serves: which files and sockets are given to it.
//!
//! **Invariants**
//! - Nothing is opened to another group than that of the configuration, and nothing but root's.
//! - A file that cannot be given to the group stays its owner's.
//! - Nobody but the owner may write to a file or into a folder.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, fchown};
use std::path::Path;

/// Where groups are looked for. Not in a directory service, which may not answer at boot.
const GROUPS: &str = "/etc/group";

/// Who may look beside the owner: a group, or nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readers {
    group: Option<u32>,
}

impl Readers {
    /// The members of this group, where there is one.
    pub fn of_group(name: &str) -> Self {
        Self { group: group_id(name) }
    }

    pub fn nobody() -> Self {
        Self::default()
    }

    /// Lets them read a file.
    ///
    /// # Errors
    /// Where it cannot be given to the group; it then stays as it is.
    pub fn open_file(self, file: &File) -> io::Result<()> {
        let Some(group) = self.group else { return Ok(()) };
        if file.metadata()?.gid() != group {
            fchown(file, None, Some(group))?;
        }
        file.set_permissions(Permissions::from_mode(0o640))
    }

    /// Lets them connect to a socket, which tells them and the owner apart.
    ///
    /// # Errors
    /// As [`Self::open_file`].
    pub fn open_socket(self, path: &Path) -> io::Result<()> {
        let Some(group) = self.group else { return Ok(()) };
        give(path, group)?;
        fs::set_permissions(path, Permissions::from_mode(0o660))
    }

    /// Lets them list a folder that is closed to them. One that others may enter, all or another
    /// group, is left as it is.
    ///
    /// # Errors
    /// As [`Self::open_file`].
    pub fn open_folder(self, path: &Path) -> io::Result<()> {
        let Some(group) = self.group else { return Ok(()) };
        let found = fs::metadata(path)?;
        let mode = found.mode() & 0o7777;
        let is_of_another_group = mode & 0o070 != 0 && ![0, group].contains(&found.gid());
        if mode & 0o007 != 0 || is_of_another_group {
            return Ok(());
        }
        give(path, group)?;
        fs::set_permissions(path, Permissions::from_mode(mode & !0o020 | 0o050))
    }
}

fn give(path: &Path, group: u32) -> io::Result<()> {
    match fs::metadata(path)?.gid() == group {
        true => Ok(()),
        false => chown(path, None, Some(group)),
    }
}

/// The number of a group of this machine, by name or number.
pub fn group_id(group: &str) -> Option<u32> {
    group.parse().ok().or_else(|| find(&fs::read_to_string(GROUPS).ok()?, group))
}

fn find(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_name_or_number() {
        let groups = "root:x:0:\nheadpond-old:x:7:\nheadpond:x:998:anna,berta\nbroken\n";
        assert_eq!(find(groups, "headpond"), Some(998));
        assert_eq!(find(groups, "head"), None);
        assert_eq!(find(groups, "broken"), None);
        assert_eq!(group_id("4711"), Some(4711));
        assert_eq!(group_id("root"), Some(0));
    }

    #[test]
    fn nobody_else_reads_what_has_no_readers() {
        let file = tempfile::NamedTempFile::new().unwrap();
        Readers::nobody().open_file(file.as_file()).unwrap();
        Readers::of_group("no-such-group-here").open_socket(file.path()).unwrap();
        assert_eq!(file.as_file().metadata().unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn readers_read_and_write_nothing() {
        let folder = headpond_testkit::tempdir();
        // Of the group that new files have: that needs no privilege.
        let file = File::create(folder.path().join("file")).unwrap();
        let readers = Readers { group: Some(file.metadata().unwrap().gid()) };
        readers.open_file(&file).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o640);
        let mode_after = |before: u32| {
            let path = folder.path().join("folder");
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(before)).unwrap();
            readers.open_folder(&path).unwrap();
            let mode = fs::metadata(&path).unwrap().mode() & 0o7777;
            fs::remove_dir(&path).unwrap();
            mode
        };
        assert_eq!(mode_after(0o700), 0o750);
        assert_eq!(mode_after(0o770), 0o750);
        assert_eq!(mode_after(0o755), 0o755, "everybody can enter it");
        assert_eq!(mode_after(0o1777), 0o1777);
    }
}
