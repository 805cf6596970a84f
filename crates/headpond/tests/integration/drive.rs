//! `headpond drive` on the NVMe, SCSI and virtio disks of a virtual machine: what it shows, what
//! the drives make of being set, and what it refuses.

use crate::common::User;
use crate::common::machine::{Parts, Steps};
use headpond_testkit::skip;
use serde_json::Value;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(180);

/// Boots a machine with one disk of each kind.
fn run(parts: &Parts) -> Steps {
    let user = User::new();
    parts.run(&user, "drive_steps.sh", "1G", PATIENCE, |command| {
        command.args(["-device", "virtio-scsi-pci,id=bus"]);
        let devices = [
            "nvme,serial=NV1",
            "scsi-hd,bus=bus.0,serial=SC1,rotation_rate=7200,product=DISK9000",
            "virtio-blk-pci,serial=VB1,config-wce=on",
            "virtio-blk-pci,serial=VB2,config-wce=off",
        ];
        for (number, device) in devices.iter().enumerate() {
            let file = user.file(&format!("{number}.img"), 16 * MIB);
            let blockdev = format!("driver=file,node-name=n{number},filename={file}");
            command.args(["-blockdev", &blockdev, "-device", &format!("{device},drive=n{number}")]);
        }
    })
}

impl Steps {
    fn said(&self, step: &str, code: i32, words: &str) {
        let out = self.ended(step, code);
        assert!(out.contains(words), "{step} does not say {words:?}: {out}");
    }
}

/// What the drive itself says of its write cache.
fn own_cache(shown: &Value) -> &str {
    shown["own"]["write_cache"]["value"].as_str().unwrap_or("unknown")
}

fn every_disk_is_switched_off_and_restored(steps: &Steps) {
    for disk in ["nvme0n1", "sda", "sdb", "vda"] {
        let at = |step: &str| format!("{disk} {step}");
        assert_eq!(own_cache(&steps.json(&at("show"))), "on", "{disk}");
        let off = format!("/dev/{disk}: write cache was on, is off");
        steps.said(&at("off"), 0, &off);
        steps.said(&at("off"), 0, "flushed");
        assert_eq!(own_cache(&steps.json(&at("shown-off"))), "off", "{disk}");
        steps.said(&at("off-again"), 0, "unchanged");
        steps.said(&at("restore"), 0, "was off, is on");
        assert_eq!(own_cache(&steps.json(&at("shown-restored"))), "on", "{disk}");
        steps.said(&at("believed-restored"), 0, "write back");
        steps.said(&at("restore-again"), 1, "is unknown");
        steps.said(&at("persistent"), 1, "the write cache was not switched");
        // What was refused has left nothing behind that could be brought back.
        steps.said(&at("forgotten"), 1, "is unknown");
    }
}

fn the_kernel_follows_where_it_can_and_that_it_does_not_is_said(steps: &Steps) {
    for disk in ["sda", "sdb", "vda"] {
        steps.said(&format!("{disk} believed-off"), 0, "write through");
    }
    steps.said("nvme0n1 believed-off", 0, "write back");
    steps.said("nvme0n1 off", 0, "unnecessary flushes");
    steps.said("nvme0n1 blind", 1, "would send no flushes");
    let deceived = steps.json("nvme0n1 deceived");
    assert!(deceived["disagreements"][0].as_str().unwrap().contains("can lose"), "{deceived:#}");
}

fn facts_are_the_drives(steps: &Steps) {
    let nvme = steps.json("nvme0n1 show");
    assert_eq!(nvme["kernel"]["protocol"]["value"], "nvme");
    assert_eq!(nvme["kernel"]["serial"]["value"], "NV1");
    assert_eq!(nvme["own"]["volatile_cache"]["value"], true);
    let scsi = steps.json("sda show");
    assert_eq!(scsi["kernel"]["rotations_per_minute"]["value"], 7200);
    assert_eq!(scsi["kernel"]["driver"]["value"], "virtio_scsi");
    assert_eq!(scsi["kernel"]["model"]["value"], "DISK9000");
    assert_eq!(scsi["kernel"]["size_bytes"]["value"], 16 * MIB);
    assert_eq!(steps.json("sdb show")["kernel"]["driver"]["value"], "scsi_debug");
    for disk in ["nvme0n1", "sda", "sdb", "vda"] {
        let verdict = &steps.json(&format!("{disk} show"))["protection"]["verdict"];
        assert_eq!(verdict, "unknown", "{disk}");
    }
    steps.said("vdb off", 1, "read-only");
}

fn a_hook_is_shown_before_it_is_run_and_judged_by_the_drive(steps: &Steps) {
    steps.said("sda hook-shown", 4, "hook: tool /dev/sda wt");
    assert!(!steps.ended("sda hook-shown", 4).contains("the tool ran"));
    steps.said("sda hook-run", 0, "the tool ran");
    steps.said("sda hook-run", 0, "was on, is off");
    steps.said("sda hook-restore-shown", 4, "hook: tool /dev/sda wb");
    steps.said("sda hook-restore", 0, "was off, is on");
    steps.said("sda hook-idle", 1, "the drive ignored the setting");
}

#[test]
fn drives_are_shown_set_and_restored_and_say_themselves_what_they_are() {
    let name = "drives_are_shown_set_and_restored_and_say_themselves_what_they_are";
    let parts = match Parts::of("drive-vm", &[]) {
        Ok(parts) => parts,
        Err(lacks) => skip!(name, "{lacks}"),
    };
    let steps = run(&parts);
    facts_are_the_drives(&steps);
    every_disk_is_switched_off_and_restored(&steps);
    the_kernel_follows_where_it_can_and_that_it_does_not_is_said(&steps);
    a_hook_is_shown_before_it_is_run_and_judged_by_the_drive(&steps);
}

#[test]
fn what_is_no_drive_and_what_cannot_be_set_is_refused_by_name() {
    let user = User::new();
    let file = user.file("disk.img", MIB);
    let ended = user.run(&["drive", "show", &file]);
    assert_eq!(ended.code, 2);
    assert!(ended.err.contains("is not a block device"), "{}", ended.err);
    let ended = user.run(&["drive", "set", &file, "read-cache=off"]);
    assert_eq!(ended.code, 2);
    assert!(ended.err.contains("write-cache=on or write-cache=off"), "{}", ended.err);
    let hook = ["drive", "set", &file, "write-cache=off", "--hook", "tool on", "--yes"];
    let ended = user.run(&hook);
    assert_eq!(ended.code, 2);
    assert!(ended.err.contains("has no {value}"), "{}", ended.err);
}
