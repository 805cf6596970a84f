//! A loop device for tests, where the machine permits it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A block device over a file; taken apart when dropped.
pub(crate) struct LoopDevice {
    pub path: PathBuf,
}

impl LoopDevice {
    /// A device with logical blocks of `block_bytes`; `None`, loudly, where there is no losetup or
    /// no permission.
    pub fn over(test: &str, file: &Path, block_bytes: u32) -> Option<Self> {
        let file = file.to_str().expect("a temporary path");
        let block_bytes = block_bytes.to_string();
        let output = tool("losetup", &["--find", "--show", "--sector-size", &block_bytes, file])
            .inspect_err(|error| eprintln!("skipped: {test}: losetup: {error}"))
            .ok()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            eprintln!("skipped: {test}: no loop device: {}", said.trim());
            return None;
        }
        let path = String::from_utf8(output.stdout).expect("a path").trim().into();
        Some(Self { path })
    }

    pub fn name(&self) -> String {
        self.path.file_name().expect("a device").to_string_lossy().into_owned()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = tool("losetup", &["--detach", self.path.to_str().expect("a device path")]);
    }
}

/// Runs an administrator's tool to its end.
///
/// # Errors
/// Where it is not installed.
pub(crate) fn tool(name: &str, arguments: &[&str]) -> std::io::Result<Output> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(name);
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).args(arguments).output()
}

mod tests {
    use super::super::{Hazard, inspect};
    use super::*;

    /// Takes a file system down again, whatever the test finds.
    struct Mounted<'a>(&'a str);

    impl Drop for Mounted<'_> {
        fn drop(&mut self) {
            let _ = tool("umount", &[self.0]);
        }
    }

    #[test]
    fn mounted_device_is_in_use_and_its_contents_are_named() {
        let test = "mounted_device_is_in_use_and_its_contents_are_named";
        let dir = tempfile::tempdir().unwrap();
        let (file, place) = (dir.path().join("image"), dir.path().join("a place"));
        std::fs::create_dir(&place).unwrap();
        std::fs::File::create(&file).unwrap().set_len(16 << 20).unwrap();
        let place = place.canonicalize().unwrap();
        let Some(device) = LoopDevice::over(test, &file, 512) else { return };
        let (node, at) = (device.path.to_str().unwrap(), place.to_str().unwrap());
        let is_done = |run: std::io::Result<Output>| run.is_ok_and(|run| run.status.success());
        if !is_done(tool("mkfs.ext4", &["-q", node])) || !is_done(tool("mount", &[node, at])) {
            eprintln!("skipped: {test}: cannot make and mount a file system here");
            return;
        }
        let mounted = Mounted(at);
        let facts = inspect(&device.path).unwrap();
        assert_eq!(facts.hazards()[0], Hazard::Mounted(place.clone()));
        assert!(facts.claimed);
        assert!(facts.signatures.iter().any(|signature| signature.name == "ext4"));
        assert!(inspect(&file).unwrap().hazards().contains(&Hazard::Held(device.name())));
        drop(mounted);
        assert_eq!(inspect(&device.path).unwrap().mounted_at, [] as [PathBuf; 0]);
    }
}
