//! What all machines of a run are made of: a kernel, a root image, an initial RAM disk with the
//! program and our units, and the files of an administrator as docs/boot.md has them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, anyhow};
use tempfile::{NamedTempFile, TempPath};

use crate::deb;

/// Programs that are called, and their packages in Debian.
const TOOLS: [(&str, &str); 8] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("mmdebstrap", "mmdebstrap"),
    ("fakeroot", "fakeroot"),
    ("mke2fs", "e2fsprogs"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
    ("apt-get", "apt"),
    ("dh", "debhelper"),
];
const SCRIPT: &str = "rig/boot-vm";
const GUIDE: &str = "docs/boot.md";
/// Of the script: the archive cannot be reached.
const OUT_OF_REACH: i32 = 75;

pub struct Image {
    pub kernel: PathBuf,
    pub root: PathBuf,
    /// Of this run alone.
    pub initrd: TempPath,
    pub guide: Guide,
}

/// What docs/boot.md tells an administrator to write.
#[derive(Debug)]
pub struct Guide {
    /// The unit of the kernel's NBD client.
    pub unit: String,
    /// The unit that attaches a volume.
    pub attach: String,
    /// A line of `/etc/fstab`.
    pub fstab: String,
}

/// Why there is no image.
#[derive(Debug)]
pub enum NoImage {
    /// This machine has no such thing.
    Lacking(String),
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for NoImage {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// # Errors
/// The first tool that is missing, before anything is built.
pub fn check_tools() -> Result<(), NoImage> {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    if !release.lines().any(|line| line == "ID=debian") {
        return Err(NoImage::Lacking("this is not Debian, of whose packages the root is".into()));
    }
    let missing = TOOLS.iter().find(|(program, _)| !is_installed(program));
    match missing {
        Some((program, package)) => {
            Err(NoImage::Lacking(format!("{program} is not installed (apt-get install {package})")))
        }
        None => Ok(()),
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let administration = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(administration).any(|it| it.join(program).is_file())
}

impl Image {
    /// Makes what is not there yet.
    ///
    /// # Errors
    /// Where the archive of packages is out of reach, or something fails.
    pub fn make(workspace: &Path, folder: &Path, program: &Path) -> Result<Self, NoImage> {
        let script = workspace.join(SCRIPT);
        println!("the root image (made once, in a minute)");
        let made = call(Command::new(&script).arg("image").arg(folder))?;
        if made.status.code() == Some(OUT_OF_REACH) {
            return Err(NoImage::Lacking("the archive of Debian packages is out of reach".into()));
        }
        let root = path_told(&made)?;
        let kernel = path_told(&call(Command::new(&script).arg("kernel"))?)?;
        let initrd = NamedTempFile::with_prefix_in("initrd-", folder);
        let initrd = initrd.context("making the initial RAM disk")?.into_temp_path();
        let packages = tempfile::tempdir_in(folder).context("a folder for the package")?;
        let recipe =
            deb::Recipe { program, version: Some("1.0-1"), out: packages.path(), is_trial: true };
        let package = deb::make(workspace, &recipe)?;
        let of_initrd: [&Path; 4] = ["initrd".as_ref(), &initrd, program, &package];
        let packed = call(Command::new(&script).args(of_initrd))?;
        if !packed.status.success() {
            return Err(anyhow!("the initial RAM disk: {}", packed.status).into());
        }
        let text = std::fs::read_to_string(workspace.join(GUIDE));
        let guide = Guide::parse(&text.with_context(|| format!("reading {GUIDE}"))?)?;
        Ok(Self { kernel, root, initrd, guide })
    }
}

fn call(command: &mut Command) -> Result<Output> {
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    command.output().with_context(|| format!("starting {SCRIPT}"))
}

fn path_told(output: &Output) -> Result<PathBuf> {
    let told = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let is_path = output.status.success() && !told.is_empty();
    is_path.then(|| told.into()).ok_or_else(|| anyhow!("{SCRIPT}: {}", output.status))
}

impl Guide {
    fn parse(text: &str) -> Result<Self> {
        let blocks = || text.split("```\n").skip(1).step_by(2);
        let block = |start: &str, has: &str, what: &str| {
            let found = blocks().find(|block| block.starts_with(start) && block.contains(has));
            found.map(str::to_owned).with_context(|| format!("{GUIDE} has no {what}"))
        };
        Ok(Self {
            unit: block("[Unit]", "nbd-client", "unit of the NBD client")?,
            attach: block("[Unit]", "headpond attach", "unit that attaches")?,
            fstab: block("/dev/nbd0", "", "line for fstab")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_and_line_are_those_of_the_guide() {
        let units = "```\n[Unit]\nheadpond attach\n```\nb\n```\n[Unit]\nnbd-client\n```\n";
        let text = format!("a\n```\nheadpond scan\n```\n{units}c\n```\n/dev/nbd0 /srv\n```\n");
        let guide = Guide::parse(&text).unwrap();
        assert_eq!(guide.unit, "[Unit]\nnbd-client\n");
        assert_eq!(guide.attach, "[Unit]\nheadpond attach\n");
        assert_eq!(guide.fstab, "/dev/nbd0 /srv\n");
        let error = Guide::parse(units).unwrap_err();
        assert!(error.to_string().contains("line for fstab"), "{error}");
    }

    #[test]
    fn the_guide_of_this_tree_has_both() {
        let text = include_str!("../../../docs/boot.md");
        let guide = Guide::parse(text).unwrap();
        assert!(guide.fstab.contains("_netdev"), "{guide:?}");
    }
}
