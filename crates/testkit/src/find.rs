//! Finding programs and sample files that a machine may or may not have.

use std::path::{Path, PathBuf};

/// Folders of administration programs, which an ordinary user's `PATH` leaves out.
const ADMIN_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The full path of an executable called `name`, or `None` where it is not installed.
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(ADMIN_FOLDERS.map(PathBuf::from));
    tool_in(folders.chain(unpacked()), name)
}

/// A file of the sample collection (`traces/...`), or `None` where the collection is absent.
///
/// The collection is the folder named by `HEADPOND_SHARED`, else `shared` beside the workspace.
pub fn shared(relative: impl AsRef<Path>) -> Option<PathBuf> {
    let root = std::env::var_os("HEADPOND_SHARED").map_or_else(beside_the_workspace, PathBuf::from);
    let path = root.join(relative);
    path.exists().then_some(path)
}

/// Programs whose packages `scripts/setup` unpacks, as to install them would start a server.
fn unpacked() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home)?;
    Some(cache.join("headpond/prometheus/usr/bin"))
}

fn beside_the_workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared")
}

fn tool_in(folders: impl Iterator<Item = PathBuf>, name: &str) -> Option<PathBuf> {
    folders.map(|folder| folder.join(name)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_found_and_a_made_up_name_is_not() {
        assert!(tool("sh").is_some());
        assert_eq!(tool("no-program-has-this-name"), None);
    }

    #[test]
    fn a_file_that_is_not_executable_is_no_tool() {
        let dir = crate::tempdir();
        std::fs::write(dir.path().join("plain"), "").unwrap();
        assert_eq!(tool_in([dir.path().to_owned()].into_iter(), "plain"), None);
    }

    #[test]
    fn a_missing_sample_is_none() {
        assert_eq!(shared("no/such/sample"), None);
    }
}
