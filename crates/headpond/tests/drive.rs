//! `headpond drive` on the NVMe, SCSI and virtio disks of a virtual machine: what it shows, what
//! the drives make of being set, and what it refuses.

mod common;

use common::{PROGRAM, User};
use headpond_testkit::skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(180);

/// What a machine is made of, where it is there.
struct Parts {
    qemu: PathBuf,
    kernel: String,
}

/// Exit code and output of each step.
struct Steps(BTreeMap<String, (i32, String)>);

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/drive-vm")
}

fn parts() -> Result<Parts, String> {
    let tool = |name: &str| headpond_testkit::tool(name).ok_or(format!("{name} is not installed"));
    let qemu = tool("qemu-system-x86_64")?;
    tool("busybox")?;
    tool("cpio")?;
    let found = Command::new(script()).arg("kernel").output().map_err(|error| error.to_string())?;
    if !found.status.success() {
        return Err("no kernel: `scripts/drive-vm fetch` gets one".to_owned());
    }
    Ok(Parts { qemu, kernel: String::from_utf8_lossy(&found.stdout).trim().to_owned() })
}

/// Boots a machine with one disk of each kind; what its steps printed.
fn run(parts: &Parts) -> Steps {
    let user = User::new();
    let (initrd, console) = (user.path("initrd"), user.path("console"));
    let steps = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/drive_steps.sh");
    let made = Command::new(script())
        .args([Path::new("initrd"), &initrd, Path::new(PROGRAM), &steps])
        .status()
        .unwrap();
    assert!(made.success());
    let serial = format!("file:{}", console.display());
    let mut command = Command::new(&parts.qemu);
    command
        .args(["-accel", "tcg", "-cpu", "max", "-m", "1G", "-smp", "1", "-nodefaults"])
        .args(["-display", "none", "-no-reboot", "-serial", &serial])
        .args(["-kernel", &parts.kernel, "-initrd", &initrd.display().to_string()])
        .args(["-append", "console=ttyS0 quiet mitigations=off panic=-1"])
        .args(["-device", "virtio-scsi-pci,id=bus"]);
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
    let mut machine = command.stdin(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    let read =
        || String::from_utf8_lossy(&std::fs::read(&console).unwrap_or_default()).into_owned();
    while machine.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            machine.kill().unwrap();
            machine.wait().unwrap();
            panic!("the machine goes on: {}", read());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let told = read();
    assert!(told.contains("drive-vm ends with"), "{told}");
    Steps::parse(&told)
}

impl Steps {
    fn parse(console: &str) -> Self {
        let mut steps = BTreeMap::new();
        let (mut name, mut out) = (String::new(), String::new());
        for line in console.lines().map(|line| line.trim_end_matches('\r')) {
            if let Some(begins) = line.strip_prefix("== ") {
                (name, out) = (begins.to_owned(), String::new());
            } else if let Some(code) = line.strip_prefix("-- ") {
                steps.insert(name.clone(), (code.parse().unwrap(), std::mem::take(&mut out)));
            } else {
                out.push_str(line);
                out.push('\n');
            }
        }
        Self(steps)
    }

    /// What a step printed that ended so.
    fn ended(&self, step: &str, code: i32) -> &str {
        let (ended, out) = self.0.get(step).unwrap_or_else(|| panic!("there is no step {step}"));
        assert_eq!(*ended, code, "{step}: {out}");
        out
    }

    fn said(&self, step: &str, code: i32, words: &str) {
        let out = self.ended(step, code);
        assert!(out.contains(words), "{step} does not say {words:?}: {out}");
    }

    fn json(&self, step: &str) -> Value {
        serde_json::from_str(self.ended(step, 0)).unwrap_or_else(|_| panic!("{step}: JSON"))
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
        steps.said(&at("off-again"), 0, "it was so already");
        steps.said(&at("restore"), 0, "was off, is on");
        assert_eq!(own_cache(&steps.json(&at("shown-restored"))), "on", "{disk}");
        steps.said(&at("believed-restored"), 0, "write back");
        steps.said(&at("restore-again"), 1, "nothing is known");
        steps.said(&at("persistent"), 1, "the write cache was not switched");
        // What was refused has left nothing behind that could be brought back.
        steps.said(&at("forgotten"), 1, "nothing is known");
    }
}

fn the_kernel_follows_where_it_can_and_that_it_does_not_is_said(steps: &Steps) {
    for disk in ["sda", "sdb", "vda"] {
        steps.said(&format!("{disk} believed-off"), 0, "write through");
    }
    steps.said("nvme0n1 believed-off", 0, "write back");
    steps.said("nvme0n1 off", 0, "flushes that the drive does not need");
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
    steps.said("sda hook-idle", 1, "the drive did not take it");
}

#[test]
fn drives_are_shown_set_and_restored_and_say_themselves_what_they_are() {
    let name = "drives_are_shown_set_and_restored_and_say_themselves_what_they_are";
    let parts = match parts() {
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
    assert_eq!(ended.code, 1);
    assert!(ended.err.contains("is not a block device"), "{}", ended.err);
    let ended = user.run(&["drive", "set", &file, "read-cache=off"]);
    assert_eq!(ended.code, 2);
    assert!(ended.err.contains("write-cache=on or write-cache=off"), "{}", ended.err);
    let hook = ["drive", "set", &file, "write-cache=off", "--hook", "tool on", "--yes"];
    let ended = user.run(&hook);
    assert_eq!(ended.code, 2);
    assert!(ended.err.contains("has no {value}"), "{}", ended.err);
}
