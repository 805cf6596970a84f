//! `headpond lab` on the block caches of a virtual machine's kernel, each before a slow disk of its
//! own, beside such a disk alone.

use crate::common::User;
use crate::common::machine::{Parts, Steps};
use headpond_testkit::skip;
use serde_json::Value;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(240);
/// What each disk is held to, in requests a second.
const SLOW: &str = "throttle-group,x-iops-total=200";

/// Boots a machine with four slow disks.
fn run(parts: &Parts) -> Steps {
    let user = User::new();
    parts.run(&user, "cache_steps.sh", "2G", PATIENCE, |command| {
        for number in 0..4 {
            let file = user.file(&format!("{number}.img"), 64 * MIB);
            command.args(["-object", &format!("{SLOW},id=g{number}")]);
            command
                .args(["-blockdev", &format!("driver=file,node-name=f{number},filename={file}")]);
            let slow = format!(
                "driver=throttle,node-name=n{number},throttle-group=g{number},file=f{number}"
            );
            let device = format!("virtio-blk-pci,drive=n{number}");
            command.args(["-blockdev", &slow, "-device", &device]);
        }
    })
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
    let parts = match Parts::of("cache-vm", &["dmsetup"]) {
        Ok(parts) => parts,
        Err(lacks) => skip!(name, "{lacks}"),
    };
    let steps = run(&parts);
    for step in ["writecache", "cache"] {
        steps.ended(step, 0);
    }
    let (results, environment) = (steps.json("lab"), steps.json("environment"));
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
    if !steps.has("bcache") {
        println!("without make-bcache there is no bcache to be measured");
        return;
    }
    steps.ended("bcache", 0);
    assert!(iops("bcache") > 3.0 * plain, "{} and {plain}", iops("bcache"));
    assert_eq!(setting(facts("bcache"), "bcache cache_mode"), "writeback");
    assert!(below(facts("bcache")).contains(&"/dev/vdd".to_owned()), "{:#}", facts("bcache"));
}
