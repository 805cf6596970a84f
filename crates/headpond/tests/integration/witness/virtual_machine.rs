//! Real power cuts of a virtual machine: QEMU is killed while its disk is an NBD device of ours
//! whose cache dies at the same moment. A campaign drives it, the agent inside runs at each boot.

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
const PATIENCE: Duration = Duration::from_secs(120);

/// An initial RAM disk that runs the agent.
fn initrd(user: &User, port: u16) -> PathBuf {
    let out = user.path("initrd");
    let to = format!("10.0.2.2:{port}");
    let agent = ["witness", "agent", "--device", "/dev/vda", "--to", &to, "--key", "/key"];
    let load = ["--name", "vm", "--size", "2M", "--sync-every", "16", "--depth", "8"];
    let made = Command::new(script("witness-vm"))
        .args(["initrd", &out.display().to_string(), PROGRAM, "key"])
        .args(agent)
        .args(load)
        .current_dir(user.path(""))
        .status()
        .unwrap();
    assert!(made.success());
    out
}

fn boot(parts: &Parts, user: &User, initrd: &Path, disk: &Disk) -> Child {
    let socket = disk.socket.display();
    let blockdev =
        format!("driver=nbd,node-name=n0,server.type=unix,server.path={socket},cache.direct=on");
    let console = format!("file:{}", user.path("console").display());
    Command::new(&parts.qemu)
        .args(["-accel", "tcg", "-cpu", "max", "-m", "1G", "-smp", "1", "-nodefaults"])
        .args(["-display", "none", "-no-reboot", "-serial", &console])
        .args(["-kernel", &parts.kernel, "-initrd", &initrd.display().to_string()])
        .args(["-append", "console=ttyS0 quiet mitigations=off panic=-1"])
        .args(["-blockdev", &blockdev, "-device", "virtio-blk-pci,drive=n0"])
        .args(["-netdev", "user,id=u0", "-device", "virtio-net-pci,netdev=u0"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

/// A campaign of so many cuts; how it ended, and its report.
fn campaign(parts: &Parts, cache: Cache, cuts: u64) -> (i32, Value) {
    let user = user();
    let file = user.file("disk.img", 16 * MIB);
    let flag = user.path("cut");
    let hook = format!("touch {0}; while [ -e {0} ]; do sleep 0.05; done", flag.display());
    let number = cuts.to_string();
    let words = ["campaign", "--name", "vm", "--cuts", &number, "--between", "1..2"];
    let keeper = Keeper::start(&user, &[&words[..], &["--cut-hook", &hook]].concat());
    let (initrd, begun) = (initrd(&user, keeper.port), Instant::now());
    for life in 0.. {
        let disk = Disk::switch_on(&file, cache, &user.path("disk.sock"), life);
        let mut machine = boot(parts, &user, &initrd, &disk);
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
        disk.cut();
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
    let (code, report) = campaign(&parts, Cache::Honest, 2);
    assert_eq!((code, &report["cuts"], &report["losses"]), (0, &2.into(), &0.into()), "{report:#}");
    assert!(report["took_something"].as_u64().unwrap() > 0, "the cuts were real: {report:#}");
    let (code, report) = campaign(&parts, Cache::Lying, 1);
    assert_eq!((code, &report["losses"]), (1, &1.into()), "{report:#}");
    let (code, report) = campaign(&parts, Cache::Protected, 1);
    assert_eq!((code, &report["cuts"], &report["losses"]), (0, &1.into(), &0.into()), "{report:#}");
    assert_eq!(report["took_something"], 0);
}
