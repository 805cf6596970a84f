//! The rule for udev that keeps file systems, LVM and others off an existing device at boot.

use super::TakenDevice;
use crate::device::DeviceSpec;
use anyhow::{Context, Result};
use headpond_api::outcome::told;
use headpond_api::place::Places;
use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::Command;
use std::{fs, str};

/// Keeps others off the device of a volume or of `VOLUME/CORE`, now and at boot; a note where that
/// is not possible.
pub fn hide(places: &Places, name: &str, device: &DeviceSpec) {
    let (DeviceSpec::Existing { head, .. }, Some(path)) = (device, device.path()) else { return };
    let Some(file) = places.udev_rule(head) else { return };
    if !is_block_device(path) {
        return;
    }
    match write_rule(&file, name, path) {
        Ok(()) => println!("{} keeps other programs off it at boot", file.display()),
        Err(error) => eprintln!(
            "headpond: note: no rule for udev keeps other programs off {} at boot: {}; remove it from \
             /etc/fstab, and from the filter of LVM if it has a physical volume",
            path.display(),
            told(&error)
        ),
    }
}

/// Lets others see the device again.
pub(super) fn unhide(places: &Places, device: &TakenDevice) {
    let DeviceSpec::Existing { head, .. } = &device.named else { return };
    let Some(file) = places.udev_rule(head).filter(|file| file.exists()) else {
        return;
    };
    match fs::remove_file(&file) {
        Ok(()) => device.now.path().into_iter().for_each(tell_udev),
        Err(error) => {
            eprintln!("headpond: note: remove {} by hand: {error}", file.display());
        }
    }
}

fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.file_type().is_block_device())
}

fn write_rule(file: &Path, name: &str, device: &Path) -> Result<()> {
    let query = ["info", "--query=property", "--name"];
    let info = Command::new("udevadm").args(query).arg(device).output();
    let info = info.context("udevadm cannot be run")?;
    let properties = properties(str::from_utf8(&info.stdout).unwrap_or_default());
    let (key, value) = key_of(&properties).context("it has no serial number, UUID or path")?;
    let write = || {
        file.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(file, rule(name, key, value))
    };
    write().with_context(|| format!("{} cannot be written", file.display()))?;
    tell_udev(device);
    Ok(())
}

/// Has udev read its rules again, and apply them to the device.
fn tell_udev(device: &Path) {
    let reload = ["control", "--reload"];
    let trigger = ["trigger", "--settle", "--action=change"];
    // Without a running udev there is nothing to tell.
    let _ = Command::new("udevadm").args(reload).output();
    let _ = Command::new("udevadm").args(trigger).arg(device).output();
}

fn properties(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.split_once('=')).collect()
}

/// The property that tells the device from all others, at every boot.
fn key_of<'a>(properties: &BTreeMap<&'a str, &'a str>) -> Option<(&'a str, &'a str)> {
    // Those of a partition or logical volume first: the disk below has the others as well.
    let keys: &[&str] = match properties.get("DEVTYPE") {
        Some(&"partition") => &["ID_PART_ENTRY_UUID"],
        _ => &["DM_UUID", "ID_WWN_WITH_EXTENSION", "ID_SERIAL", "ID_PATH"],
    };
    let is_plain = |value: &str| !value.contains(['"', '*', '?', '[', '|', '\\']);
    keys.iter().find_map(|key| {
        let (key, value) = properties.get_key_value(key)?;
        (!value.is_empty() && is_plain(value)).then_some((*key, *value))
    })
}

/// Before 64-headpond.rules, which goes by `ID_FS_TYPE`. Links by UUID and label lead to the export
/// of the volume then, which has the same contents.
fn rule(name: &str, key: &str, value: &str) -> String {
    let volume = name.split('/').next().unwrap_or(name);
    format!(
        r#"# Written by Headpond: this device, and its partitions, are used through volume {name} alone.
# `headpond detach {name}` removes this file. docs/existing.md explains it.

SUBSYSTEM!="block", GOTO="headpond_existing_end"
ACTION!="add|change", GOTO="headpond_existing_end"
ENV{{{key}}}!="{value}", GOTO="headpond_existing_end"

ENV{{ID_FS_UUID_ENC}}=="?*", SYMLINK-="disk/by-uuid/$env{{ID_FS_UUID_ENC}}"
ENV{{ID_FS_LABEL_ENC}}=="?*", SYMLINK-="disk/by-label/$env{{ID_FS_LABEL_ENC}}"
ENV{{ID_PART_ENTRY_UUID}}=="?*", SYMLINK-="disk/by-partuuid/$env{{ID_PART_ENTRY_UUID}}"
ENV{{ID_PART_ENTRY_NAME}}=="?*", SYMLINK-="disk/by-partlabel/$env{{ID_PART_ENTRY_NAME}}"
ENV{{ID_FS_TYPE}}="headpond_core", ENV{{ID_FS_USAGE}}="raid"
ENV{{ID_FS_UUID}}="", ENV{{ID_FS_UUID_ENC}}="", ENV{{ID_FS_LABEL}}="", ENV{{ID_FS_LABEL_ENC}}=""
ENV{{SYSTEMD_READY}}="0", ENV{{UDISKS_IGNORE}}="1"

ACTION=="add", TEST=="/run/systemd/system", RUN+="/usr/bin/systemctl --no-block start headpond@{volume}.service"

LABEL="headpond_existing_end"
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_told_by_what_no_other_has() {
        let of = |text: &'static str| key_of(&properties(text));
        let disk = "DEVTYPE=disk\nID_SERIAL=QEMU_d1\nID_PATH=pci-0\n";
        assert_eq!(of(disk), Some(("ID_SERIAL", "QEMU_d1")));
        let partition = "DEVTYPE=partition\nID_SERIAL=QEMU_d1\nID_PART_ENTRY_UUID=0a-01\n";
        assert_eq!(of(partition), Some(("ID_PART_ENTRY_UUID", "0a-01")));
        let unnamed = "DEVTYPE=partition\nID_SERIAL=QEMU_d1\n";
        assert_eq!(of(unnamed), None, "the disk's number is not the partition's");
        let volume = "DEVTYPE=disk\nDM_UUID=LVM-abc\nID_SERIAL=x\n";
        assert_eq!(of(volume), Some(("DM_UUID", "LVM-abc")));
        assert_eq!(of("DEVTYPE=disk\nID_SERIAL=a*b\n"), None, "a pattern matches others");
    }

    #[test]
    fn the_rule_names_device_and_volume() {
        let rule = rule("hv6", "ID_SERIAL", "QEMU_d1");
        assert!(rule.contains(r#"ENV{ID_SERIAL}!="QEMU_d1", GOTO="headpond_existing_end""#));
        assert!(rule.contains("headpond@hv6.service") && rule.contains(r#"SYSTEMD_READY}="0""#));
        assert!(rule.lines().all(|line| line.len() < 200));
        let rule = super::rule("hv6/logs", "ID_SERIAL", "QEMU_d2");
        assert!(rule.contains("headpond@hv6.service") && rule.contains("detach hv6/logs"));
    }
}
