//! Real power cuts of a virtual machine: QEMU is killed while its disks are NBD devices of ours
//! whose caches die at the same moment. A campaign drives it, the agent inside runs at each boot,
//! on the disk itself or on a volume of several disks as a block device.

use crate::common::machine::{Parts, script};
use crate::common::{PROGRAM, User};
use crate::witness::exports::{Cache, Disk};
use crate::witness::kept::{Keeper, user};
use headpond_testkit::skip;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(180);

/// A machine: what it does at each boot before the agent, and which device that tests.
struct Plan {
    disks: &'static [u64],
    steps: &'static str,
    device: &'static str,
    /// What it has to be written in for a volume.
    atom: &'static str,
    /// Writes from one flush to the next, and seconds until the cut: some flushes are to be over.
    sync_every: &'static str,
    cut_after: &'static str,
}

const DISK: Plan = Plan {
    disks: &[16 * MIB],
    steps: "witness_disk_steps.sh",
    device: "/dev/vda",
    atom: "512",
    sync_every: "16",
    cut_after: "1..2",
};
const VOLUME: Plan = Plan {
    disks: &[16 * MIB, 16 * MIB, 16 * MIB, 24 * MIB],
    steps: "witness_volume_steps.sh",
    device: "/dev/headpond/hv0",
    atom: "4096",
    sync_every: "4",
    cut_after: "6..8",
};

/// An initial RAM disk that runs the agent.
fn initrd(user: &User, plan: &Plan, port: u16) -> PathBuf {
    let out = user.path("initrd");
    let to = format!("10.0.2.2:{port}");
    let agent = ["witness", "agent", "--device", plan.device, "--to", &to, "--key", "/key"];
    let load = ["--name", "vm", "--size", "2M", "--depth", "8", "--sync-every", plan.sync_every];
    let steps = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(plan.steps);
    let made = Command::new(script("witness-vm"))
        .args(["initrd", &out.display().to_string(), PROGRAM, "key"])
        .arg(steps)
        .args(agent)
        .args(load)
        .args(["--atom", plan.atom])
        .current_dir(user.path(""))
        .status()
        .unwrap();
    assert!(made.success());
    out
}

fn boot(parts: &Parts, user: &User, initrd: &Path, disks: &[Disk]) -> Child {
    let mut qemu = Command::new(&parts.qemu);
    for (number, disk) in disks.iter().enumerate() {
        let (socket, node) = (disk.socket.display(), format!("n{number}"));
        let server = format!("server.type=unix,server.path={socket},cache.direct=on");
        qemu.args(["-blockdev", &format!("driver=nbd,node-name={node},{server}")]);
        qemu.args(["-device", &format!("virtio-blk-pci,drive={node}")]);
    }
    let console = format!("file:{}", user.path("console").display());
    qemu.args(["-accel", "tcg", "-cpu", "max", "-m", "1G", "-smp", "1", "-nodefaults"])
        .args(["-display", "none", "-no-reboot", "-serial", &console])
        .args(["-kernel", &parts.kernel, "-initrd", &initrd.display().to_string()])
        .args(["-append", "console=ttyS0 quiet mitigations=off panic=-1"])
        .args(["-netdev", "user,id=u0", "-device", "virtio-net-pci,netdev=u0"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

/// A campaign of so many cuts; how it ended, and its report.
fn campaign(parts: &Parts, plan: &Plan, cache: Cache, cuts: u64) -> (i32, Value) {
    let user = user();
    let names = (0..plan.disks.len()).map(|number| format!("disk{number}"));
    let files: Vec<(String, String)> = names
        .zip(plan.disks)
        .map(|(name, bytes)| (user.file(&format!("{name}.img"), *bytes), name))
        .collect();
    let flag = user.path("cut");
    let hook = format!("touch {0}; while [ -e {0} ]; do sleep 0.05; done", flag.display());
    let number = cuts.to_string();
    let words = ["campaign", "--name", "vm", "--cuts", &number, "--between", plan.cut_after];
    let keeper = Keeper::start(&user, &[&words[..], &["--cut-hook", &hook]].concat());
    let (initrd, begun) = (initrd(&user, plan, keeper.port), Instant::now());
    for life in 0.. {
        let seeds = (life * files.len() as u64)..;
        let disks: Vec<Disk> = files
            .iter()
            .zip(seeds)
            .map(|((file, name), seed)| {
                Disk::switch_on(file, cache, &user.path(&format!("{name}.sock")), seed)
            })
            .collect();
        let mut machine = boot(parts, &user, &initrd, &disks);
        let ended = loop {
            let console = || std::fs::read_to_string(user.path("console")).unwrap_or_default();
            if begun.elapsed() > PATIENCE {
                machine.kill().unwrap();
                panic!("the campaign goes on: {}", console());
            }
            match machine.try_wait().unwrap() {
                Some(_) => break true,
                None if flag.exists() => break false,
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let _ = machine.kill();
        machine.wait().unwrap();
        disks.into_iter().for_each(Disk::cut);
        if ended {
            let console = std::fs::read_to_string(user.path("console")).unwrap();
            assert!(console.contains("witness-vm ends with 0") && life == cuts, "{console}");
            break;
        }
        std::fs::remove_file(&flag).unwrap();
    }
    let code = keeper.wait();
    let kept = user.path("kept").display().to_string();
    let report = user.run(&["witness", "report", &kept, "--json"]);
    let report: Value = serde_json::from_str(&report.out).expect("JSON");
    assert_eq!(report[0]["name"], "vm");
    (code, report[0].clone())
}

#[test]
fn a_machine_that_loses_its_power_keeps_what_its_disk_promised_and_a_lying_disk_is_caught() {
    let name =
        "a_machine_that_loses_its_power_keeps_what_its_disk_promised_and_a_lying_disk_is_caught";
    let parts = match Parts::of("witness-vm", &[]) {
        Ok(parts) => parts,
        Err(lacks) => skip!(name, "{lacks}"),
    };
    let (code, report) = campaign(&parts, &DISK, Cache::Honest, 2);
    assert_eq!((code, &report["cuts"], &report["losses"]), (0, &2.into(), &0.into()), "{report:#}");
    assert!(report["took_something"].as_u64().unwrap() > 0, "the cuts were real: {report:#}");
    let (code, report) = campaign(&parts, &DISK, Cache::Lying, 1);
    assert_eq!((code, &report["losses"]), (1, &1.into()), "{report:#}");
    let (code, report) = campaign(&parts, &DISK, Cache::Protected, 1);
    assert_eq!((code, &report["cuts"], &report["losses"]), (0, &1.into(), &0.into()), "{report:#}");
    assert_eq!(report["took_something"], 0);
}

#[test]
fn a_volume_as_a_block_device_loses_nothing_that_was_flushed_when_the_power_goes() {
    let name = "a_volume_as_a_block_device_loses_nothing_that_was_flushed_when_the_power_goes";
    let parts = match Parts::of("witness-vm", &[]) {
        Ok(parts) => parts,
        Err(lacks) => skip!(name, "{lacks}"),
    };
    let (code, report) = campaign(&parts, &VOLUME, Cache::Honest, 2);
    assert_eq!((code, &report["losses"]), (0, &0.into()), "{report:#}");
    let count = |what: &str| report[what].as_u64().unwrap();
    // On a busy machine nothing may be flushed yet when the power goes.
    assert!(count("cuts") > 0 && count("cuts") + count("undecided") == 2, "{report:#}");
    assert!(count("took_something") > 0, "the cuts were real: {report:#}");
}
