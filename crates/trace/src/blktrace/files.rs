//! Finds the per-CPU files that belong to one capture.

use std::fs;
use std::path::{Path, PathBuf};

/// All files of the capture that `path` names: itself, the set `BASE.blktrace.0`,
/// `BASE.blktrace.1`, ... of which it is one, or the set whose base name it is. Empty when there is
/// no such file. In order of CPU.
pub(crate) fn siblings(path: &Path) -> Vec<PathBuf> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return Vec::new();
    };
    let base = base_name(name).unwrap_or(name);
    let mut found = members(path.parent().unwrap_or(Path::new("")), base);
    let is_set = base_name(name).is_some() || !path.is_file();
    if !is_set || found.is_empty() {
        return if path.is_file() { vec![path.to_owned()] } else { Vec::new() };
    }
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// `BASE` of `BASE.blktrace.N`.
fn base_name(name: &str) -> Option<&str> {
    let (base, number) = name.rsplit_once(".blktrace.")?;
    number.parse::<u32>().ok().map(|_| base)
}

fn members(folder: &Path, base: &str) -> Vec<(u32, PathBuf)> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let member = |name: &str| -> Option<u32> {
        name.strip_prefix(base)?.strip_prefix(".blktrace.")?.parse().ok()
    };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| Some((member(entry.file_name().to_str()?)?, entry.path())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(paths: &[PathBuf]) -> Vec<&str> {
        paths.iter().filter_map(|path| path.file_name()?.to_str()).collect()
    }

    #[test]
    fn any_member_and_the_base_name_find_the_whole_set_in_order_of_cpu() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["sda.blktrace.0", "sda.blktrace.10", "sda.blktrace.2", "sdb.blktrace.0"] {
            fs::write(folder.path().join(name), b"x").unwrap();
        }
        let set = ["sda.blktrace.0", "sda.blktrace.2", "sda.blktrace.10"];
        for given in ["sda.blktrace.0", "sda.blktrace.10", "sda"] {
            assert_eq!(names(&siblings(&folder.path().join(given))), set, "{given}");
        }
        assert_eq!(names(&siblings(&folder.path().join("sdb.blktrace.0"))), ["sdb.blktrace.0"]);
    }

    #[test]
    fn plain_file_stands_alone_and_a_missing_one_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("merged.bin"), b"x").unwrap();
        assert_eq!(names(&siblings(&folder.path().join("merged.bin"))), ["merged.bin"]);
        assert!(siblings(&folder.path().join("nothing")).is_empty());
    }
}
