//! `headpond lab` on the block caches of a virtual machine's kernel, each before a slow disk of its
//! own, beside such a disk alone.

mod common;

use common::{PROGRAM, User};
use headpond_testkit::skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(240);
/// What each disk is held to, in requests a second.
const SLOW: &str = "throttle-group,x-iops-total=200";

/// What a machine is made of, where it is there.
struct Parts {
    qemu: PathBuf,
    kernel: String,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/cache-vm")
}

fn parts() -> Result<Parts, String> {
    let tool = |name: &str| headpond_testkit::tool(name).ok_or(format!("{name} is not installed"));
    let qemu = tool("qemu-system-x86_64")?;
    tool("busybox")?;
    tool("cpio")?;
    tool("dmsetup")?;
    let found = Command::new(script()).arg("kernel").output().map_err(|error| error.to_string())?;
    if !found.status.success() {
        return Err("no kernel: `scripts/cache-vm fetch` gets one".to_owned());
    }
    Ok(Parts { qemu, kernel: String::from_utf8_lossy(&found.stdout).trim().to_owned() })
}

/// Boots a machine with four slow disks; what each of its steps printed, with its exit code.
fn run(parts: &Parts) -> BTreeMap<String, (i32, String)> {
    let user = User::new();
    let (initrd, console) = (user.path("initrd"), user.path("console"));
    let steps = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cache_steps.sh");
    let made = Command::new(script())
        .args([Path::new("initrd"), &initrd, Path::new(PROGRAM), &steps])
        .status()
        .unwrap();
    assert!(made.success());
    let serial = format!("file:{}", console.display());
    let mut command = Command::new(&parts.qemu);
    command
        .args(["-accel", "tcg", "-cpu", "max", "-m", "2G", "-smp", "1", "-nodefaults"])
        .args(["-display", "none", "-no-reboot", "-serial", &serial])
        .args(["-kernel", &parts.kernel, "-initrd", &initrd.display().to_string()])
        .args(["-append", "console=ttyS0 quiet mitigations=off panic=-1"]);
    for number in 0..4 {
        let file = user.file(&format!("{number}.img"), 64 * MIB);
        command.args(["-object", &format!("{SLOW},id=g{number}")]);
        command.args(["-blockdev", &format!("driver=file,node-name=f{number},filename={file}")]);
        let slow =
            format!("driver=throttle,node-name=n{number},throttle-group=g{number},file=f{number}");
        let device = format!("virtio-blk-pci,drive=n{number}");
        command.args(["-blockdev", &slow, "-device", &device]);
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
    assert!(told.contains("cache-vm ends with"), "{told}");
    steps_of(&told)
}

fn steps_of(console: &str) -> BTreeMap<String, (i32, String)> {
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
    steps
}

/// What a step printed as JSON; what the kernel says in between stands before it.
fn json(steps: &BTreeMap<String, (i32, String)>, step: &str) -> Value {
    let (code, out) = steps.get(step).unwrap_or_else(|| panic!("there is no step {step}"));
    assert_eq!(*code, 0, "{step}: {out}");
    let from = out.find("{\n").unwrap_or_else(|| panic!("{step}: {out}"));
    serde_json::from_str(&out[from..]).unwrap_or_else(|error| panic!("{step}: {error}: {out}"))
}

/// What a device is set to, by the environment of results.
fn setting<'a>(facts: &'a Value, name: &str) -> &'a str {
    let settings = facts["settings"].as_array().unwrap();
    let found = settings.iter().find(|it| it["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {facts:#}"))["value"].as_str().unwrap()
}

/// The devices that a device is made of.
fn below(facts: &Value) -> Vec<String> {
    let parts = facts["parts"].as_array().unwrap().iter();
    parts.map(|part| part["place"].as_str().unwrap().to_owned()).collect()
}

fn mapped(facts: &Value, kind: &str, devices: &[&str]) {
    let table = setting(facts, "table");
    assert!(table.contains(&format!(" {kind} ")), "{table}");
    assert_eq!(below(facts), devices, "{facts:#}");
}

#[test]
fn the_caches_of_a_kernel_are_measured_beside_a_disk_alone_and_told_with_their_settings() {
    let name =
        "the_caches_of_a_kernel_are_measured_beside_a_disk_alone_and_told_with_their_settings";
    let parts = match parts() {
        Ok(parts) => parts,
        Err(lacks) => skip!(name, "{lacks}"),
    };
    let steps = run(&parts);
    for step in ["writecache", "cache"] {
        assert_eq!(steps[step].0, 0, "{step}: {}", steps[step].1);
    }
    let (results, environment) = (json(&steps, "lab"), json(&steps, "environment"));
    let targets = environment["targets"].as_array().unwrap();
    let facts = |name: &str| targets.iter().find(|it| it["name"] == name).unwrap();
    let iops = |name: &str| {
        let cells = results["cells"].as_array().unwrap();
        let cell = cells.iter().find(|cell| cell["target"] == name).unwrap();
        assert_eq!(cell["summary"]["errors"], 0, "{cell:#}");
        cell["summary"]["iops"]["median"].as_f64().unwrap()
    };
    let plain = iops("plain");
    // A cache in memory takes in what a disk of 200 requests a second does not.
    assert!((100.0..300.0).contains(&plain), "{plain}");
    assert!(iops("wc") > 3.0 * plain, "{} and {plain}", iops("wc"));
    mapped(facts("wc"), "writecache", &["/dev/ram0", "/dev/vdb"]);
    mapped(facts("smq"), "cache", &["/dev/ram1", "/dev/ram2", "/dev/vdc"]);
    assert!(setting(facts("smq"), "table").contains("writeback smq"));
    assert!(iops("smq") > 0.0);
    if !steps.contains_key("bcache") {
        println!("without make-bcache there is no bcache to be measured");
        return;
    }
    assert_eq!(steps["bcache"].0, 0, "{}", steps["bcache"].1);
    assert!(iops("bcache") > 3.0 * plain, "{} and {plain}", iops("bcache"));
    assert_eq!(setting(facts("bcache"), "bcache cache_mode"), "writeback");
    assert!(below(facts("bcache")).contains(&"/dev/vdd".to_owned()), "{:#}", facts("bcache"));
}
