//! The disks of a machine: files in a folder, attached in any order and to two kinds of buses, so
//! that a disk has another name at each boot.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::random::Random;

const MIB: u64 = 1 << 20;

pub const ROOT: &str = "root";
/// Members of `hv0`, a RAID 6 with a cache.
pub const MEMBERS: [&str; 5] = ["m0", "m1", "m2", "m3", "m4"];
pub const CACHE: &str = "cache";
/// Members of `hv1`, a RAID 1 that only udev starts.
pub const MIRROR: [&str; 2] = ["n0", "n1"];

const MEMBER_BYTES: u64 = 160 * MIB;
const CACHE_BYTES: u64 = 128 * MIB;
const MIRROR_BYTES: u64 = 48 * MIB;

/// The files of all disks.
pub struct Disks {
    folder: PathBuf,
}

/// A disk as a machine sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    pub name: &'static str,
    is_scsi: bool,
}

impl Disks {
    /// Empty disks, and this image as the root.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn make(folder: PathBuf, image: &Path) -> Result<Self> {
        std::fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
        let disks = Self { folder };
        copy(image, &disks.file(ROOT))?;
        let sizes = MEMBERS.iter().map(|name| (*name, MEMBER_BYTES));
        let mirror = MIRROR.iter().map(|name| (*name, MIRROR_BYTES));
        for (name, bytes) in sizes.chain(mirror).chain([(CACHE, CACHE_BYTES)]) {
            let file = std::fs::File::create_new(disks.file(name))?;
            file.set_len(bytes).with_context(|| format!("making the disk {name}"))?;
        }
        Ok(disks)
    }

    /// The same in another folder.
    ///
    /// # Errors
    /// When a file cannot be copied.
    pub fn copied_to(&self, folder: PathBuf) -> Result<Self> {
        std::fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
        let copies = Self { folder };
        for name in all() {
            copy(&self.file(name), &copies.file(name))?;
        }
        Ok(copies)
    }

    /// Puts back an older image of a disk.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn put_back(&self, name: &str, older: &Self) -> Result<()> {
        copy(&older.file(name), &self.file(name))
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.img"))
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the machine may have, plugged in or not.
    pub fn backends(&self) -> impl Iterator<Item = String> {
        all().map(|name| {
            let file = self.file(name);
            json!({"driver": "file", "node-name": node(name), "filename": file}).to_string()
        })
    }
}

impl Attached {
    /// All disks but these, in an order and on buses of chance. The root is found by its serial
    /// number on a virtio disk.
    pub fn shuffled(random: &mut Random, without: &[&str]) -> Vec<Self> {
        let mut list: Vec<Self> = all()
            .filter(|name| !without.contains(name))
            .map(|name| Self::of(name, random))
            .collect();
        random.shuffle(&mut list);
        list
    }

    /// On a bus of chance.
    pub fn of(name: &'static str, random: &mut Random) -> Self {
        Self { name, is_scsi: name != ROOT && random.coin() }
    }

    /// A disk whose serial number is to be the same at each boot.
    pub fn on_virtio(name: &'static str) -> Self {
        Self { name, is_scsi: false }
    }

    /// What plugs it in.
    pub fn device(self) -> Value {
        let Self { name, is_scsi } = self;
        let node = node(name);
        match is_scsi {
            true => json!({"driver": "scsi-hd", "drive": node, "serial": name, "bus": "scsi.0"}),
            false => json!({"driver": "virtio-blk-pci", "drive": node, "serial": name}),
        }
    }

    /// As in `m0:scsi`.
    pub fn told(list: &[Self]) -> String {
        let word =
            |it: &Self| format!("{}:{}", it.name, if it.is_scsi { "scsi" } else { "virtio" });
        list.iter().map(word).collect::<Vec<_>>().join(" ")
    }
}

fn all() -> impl Iterator<Item = &'static str> {
    [ROOT, CACHE].into_iter().chain(MEMBERS).chain(MIRROR)
}

fn node(name: &str) -> String {
    format!("disk-{name}")
}

/// `cp` keeps the holes.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut cp = Command::new("cp");
    cp.args(["--sparse=always", "--reflink=auto"]).args([from, to]);
    let status = cp.status().context("starting cp")?;
    ensure!(status.success(), "copying {}: {status}", from.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_all_disks_but_those_that_are_left_out_in_an_order_of_chance() {
        let mut random = Random::new(3);
        let list = Attached::shuffled(&mut random, &["m1"]);
        assert!(list.len() == all().count() - 1 && list.iter().all(|it| it.name != "m1"));
        assert!(list.iter().all(|it| it.name != ROOT || !it.is_scsi), "the root is on virtio");
        assert_ne!(list, Attached::shuffled(&mut random, &["m1"]));
        assert_eq!(list[0].device()["serial"], list[0].name);
    }
}
