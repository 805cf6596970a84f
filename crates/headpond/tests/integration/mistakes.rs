//! Mistakes that users make with caches, cores, settings and classes: each is refused with the
//! thing, the cause and the way out.

use crate::common;
use crate::common::User;
use headpond_api::answers::{ServiceState, Status};
use headpond_testkit::skip;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// Three members and a cache.
fn devices(user: &User) -> [String; 4] {
    ["0", "1", "2", "cache"].map(|name| user.file(&format!("{name}.img"), 64 * MIB))
}

fn create(user: &User, devices: &[String; 4], more: &[&str]) -> common::Ended {
    let [first, second, third, cache] = devices;
    let plain = ["create", "v", "--raid", "5", first, second, third, "--cache", cache];
    user.run(&[&plain, more].concat())
}

fn expect(user: &User, command: &[&str], code: i32, parts: &[&str]) {
    let ended = user.run(command);
    assert_eq!(ended.code, code, "{command:?}: {}", ended.err);
    for part in parts {
        assert!(ended.err.contains(part), "{command:?} does not say {part:?}: {}", ended.err);
    }
}

#[test]
fn a_tier_that_is_too_small_is_refused_before_anything_is_written() {
    let user = User::new();
    let devices = devices(&user);
    let before = devices.each_ref().map(|device| std::fs::read(device).unwrap());
    let ended = create(&user, &devices, &["--tier", "ram:1M"]);
    assert_eq!(ended.code, 2, "{}", ended.err);
    assert!(ended.err.contains("ram:1M is too small for a tier"), "{}", ended.err);
    let after = devices.each_ref().map(|device| std::fs::read(device).unwrap());
    assert!(before == after, "a refusal writes nothing");
    assert_eq!(create(&user, &devices, &["--tier", "ram:16M"]).code, 0);
}

/// More memory than there is ended the daemon for all its clients.
#[test]
fn memory_that_is_not_there_is_an_error_of_the_command_alone() {
    let user = User::new();
    let devices = devices(&user);
    let ended = create(&user, &devices, &["--tier", "ram:200T"]);
    assert!(ended.code == 2 && ended.err.contains("ram:200T needs more memory"), "{}", ended.err);
    assert_eq!(create(&user, &devices, &["--tier", "ram:16M"]).code, 0);
    let _daemon = user.serve("v");
    for command in [
        &["cache", "replace", "v", "ram:200T", "--tier"][..],
        &["cache", "attach", "v", "ram:200T", "--tier", "--force"],
    ] {
        let ended = user.run(command);
        assert!(ended.code != 0 && !ended.err.contains("gone"), "{command:?}: {}", ended.err);
        assert!(user.ok(&["status", "v"]).contains("tier      ram:16M"), "{command:?}");
    }
}

/// A name is part of a path: it is checked before it becomes one.
#[test]
fn a_name_that_leads_elsewhere_is_refused_by_every_command() {
    let user = User::new();
    for command in [
        &["stop", "../s/v"][..],
        &["serve", "../v"],
        &["status", "../v"],
        &["stats", "a/b"],
        &["set", "../v", "mode=write-back"],
        &["flush", ".v"],
        &["destroy", "../v", "--yes"],
        &["cache", "detach", "../v"],
        &["array", "scrub", "../v"],
        &["core", "remove", "../v", "x"],
    ] {
        let ended = user.run(command);
        let is_told = ended.err.contains("cannot be the name of a volume");
        assert!(ended.code != 0 && is_told, "{command:?}: {} {}", ended.code, ended.err);
    }
}

/// A kernel that cannot show it is named before anything is opened, with what does without.
#[test]
fn a_block_device_without_its_driver_is_refused_with_the_way_out() {
    if Path::new("/dev/ublk-control").exists() {
        return skip("block devices without a driver", "this kernel has one");
    }
    let user = User::new();
    let devices = devices(&user);
    let [first, second, ..] = &devices;
    let create: [&str; 7] = ["create", "v", "--raid", "1", first, second, "--export"];
    let wrong = user.run(&[&create[..], &["ublk:width=2"]].concat());
    assert!(wrong.code == 2 && wrong.err.contains("ublk[:queues=N"), "{}", wrong.err);
    user.ok(&[&create[..], &["ublk:queues=2"]].concat());
    let ended = user.run(&["serve", "v"]);
    assert_ne!(ended.code, 0);
    for told in ["modprobe ublk_drv", "export remove", "unix:PATH"] {
        assert!(ended.err.contains(told), "{}", ended.err);
    }
    let listed = user.run(&["export", "list"]);
    assert!(listed.code != 0 && listed.err.contains("modprobe ublk_drv"), "{}", listed.err);
    user.ok(&["export", "remove", "v", "ublk:queues=2"]);
    let daemon = user.serve("v");
    // Of a served volume it is refused as well, and nothing else changes.
    let added = user.run(&["export", "add", "v", "ublk"]);
    assert!(added.code != 0 && added.err.contains("modprobe ublk_drv"), "{}", added.err);
    assert!(!user.ok(&["export", "list", "v"]).contains("ublk"));
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

/// Whatever `create` takes can be served.
#[test]
fn what_could_not_be_served_is_not_created() {
    let user = User::new();
    let devices = devices(&user);
    let before = devices.each_ref().map(|device| std::fs::read(device).unwrap());
    let [first, second, ..] = &devices;
    let plain = ["create", "v", "--raid", "1"];
    let refused: [(&[&str], i32, &str); 5] = [
        (&[first, "ram:64M"], 2, "ram:64M is memory, which is empty at the next start"),
        (&[first, second, "--journal", "ram:64M"], 2, "ram:64M is memory"),
        (
            &[first, second, "--export", "tcp:0.0.0.0:10809"],
            4,
            "can be reached from other machines",
        ),
        (&[first, second, "--export", "tcp:nowhere"], 2, "tcp:nowhere is not an address"),
        (&[first, second, "--export", "v.sock"], 2, "write unix:PATH or tcp:HOST:PORT"),
    ];
    for (more, code, said) in refused {
        expect(&user, &[&plain, more].concat(), code, &[said]);
    }
    // Descriptions would be kept below a file.
    let nowhere = user.file("file", 1);
    let ended = user
        .run_in_state(&format!("{nowhere}/state"), &["create", "v", "--raid", "1", first, second]);
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(ended.err.contains("descriptions of volumes are kept"), "{}", ended.err);
    let after = devices.each_ref().map(|device| std::fs::read(device).unwrap());
    assert!(before == after, "a refusal writes nothing");
    assert_eq!(user.run(&["status", "v"]).code, 2, "there is no such volume");
}

#[test]
fn a_volume_is_destroyed_though_one_of_its_devices_cannot_be_erased() {
    let user = User::new();
    let devices = devices(&user);
    assert_eq!(create(&user, &devices, &["--tier", "ram:16M"]).code, 0);
    // A member that is no longer what it was, and memory that a description may have from before.
    user.file("1.img", 4096);
    let description = user.path("v.toml");
    let text = std::fs::read_to_string(&description).unwrap();
    std::fs::write(&description, text.replace("ram:16M", "ram:1K")).unwrap();
    let ended = user.run(&["destroy", "v", "--yes"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.out.contains("3 devices are free"), "{}", ended.out);
    let notes: Vec<&str> = ended.err.lines().collect();
    assert!(notes.len() == 1 && notes[0].contains("not erased"), "{notes:?}");
    assert!(notes[0].contains(&devices[1]), "{notes:?}");
    assert_eq!(user.run(&["status", "v"]).code, 2, "there is no such volume any more");
    user.file("1.img", 64 * MIB);
    let again = create(&user, &devices, &[]);
    assert_eq!(again.code, 0, "all of them are free: {}", again.err);
}

#[test]
fn a_size_that_cannot_be_is_told_from_a_device_that_is_too_small() {
    let user = User::new();
    let devices = devices(&user);
    for (size, part) in [
        ("1G", "has 67108864 bytes, fewer than the 1073741824 requested"),
        ("1M", "1048576 bytes of"),
    ] {
        let ended = create(&user, &devices, &["--cache-size", size]);
        assert_eq!(ended.code, 1, "{}", ended.err);
        assert!(ended.err.contains(part) && ended.err.contains(&devices[3]), "{}", ended.err);
        assert!(ended.err.contains("none to use the whole device"), "the way out: {}", ended.err);
    }
}

#[test]
fn what_is_set_wrongly_names_everything_that_can_be_set() {
    let user = User::new();
    let devices = devices(&user);
    assert_eq!(create(&user, &devices, &["--tier", "ram:16M"]).code, 0);
    let _daemon = user.serve("v");
    for (change, parts) in [
        ("colour=red", &["merge-max", "preset", "seq-cutoff", "tier"][..]),
        ("tier.seq-cutoff=full", &["\"tier.seq-cutoff\"", "tier.mode", "tier.preset"]),
        ("tier.mode=fast", &["tier.mode=fast"]),
        ("seq-cutoff=5G", &["a size from 1K to 4194181K"]),
        ("line=64K", &["headpond cache replace"]),
    ] {
        expect(&user, &["set", "v", change], 2, parts);
    }
    expect(&user, &["set", "v", "--flush"], 2, &["KEY=VALUE"]);
    // A member is in the volume already, and was named once.
    let other = user.file("other.img", 64 * MIB);
    let add = ["core", "add", "v", "logs", "--raid", "1", &other, &devices[0]];
    expect(&user, &add, 4, &[&devices[0], "belongs to v already", "headpond status v"]);
    let cache = &*user.live_cache("v").device;
    let add = ["core", "add", "v", "logs", "--raid", "1", &other, cache];
    expect(&user, &add, 4, &[cache, "belongs to v already"]);
    expect(&user, &["array", "add-spare", "v", cache], 4, &[cache, "belongs to v already"]);
    let twice = ["core", "add", "v", "logs", "--raid", "1", &other, &other];
    expect(&user, &twice, 2, &["named twice"]);
    let empty = user.file("empty.toml", 0);
    let classes = format!("classes={empty}");
    expect(&user, &["set", "v", &classes], 2, &[&empty, "is empty", "classes=none"]);
}

#[test]
fn a_csv_of_classes_without_its_header_is_told_what_it_lacks() {
    let user = User::new();
    let file = user.path("ioclass.csv").display().to_string();
    std::fs::write(&file, "0,unclassified,22,1.00\n").unwrap();
    for command in ["check", "import"] {
        let parts = ["line 1", "IO class id,IO class name,Eviction priority,Allocation"];
        expect(&user, &["class", command, &file], 1, &parts);
    }
}

#[test]
fn replacing_a_cache_is_explained_by_itself() {
    let help = User::new().ok(&["cache", "replace", "--help"]);
    assert!(help.contains("headpond cache replace hv0 /dev/nvme0n1 --line 64K"), "{help}");
    assert!(help.contains("settings stay") && !help.contains("cache attach hv0"), "{help}");
    let of_attach = User::new().ok(&["cache", "attach", "--help"]);
    assert!(of_attach.contains("headpond cache attach hv0 /dev/nvme0n1"), "{of_attach}");
}

/// Its cache was overwritten for another volume without a word of what it held, and its next start
/// said that nothing was at risk.
#[test]
fn a_device_of_another_volume_is_taken_by_force_only_and_what_is_lost_is_said_in_bytes() {
    let Some(qemu_io) = headpond_testkit::tool("qemu-io") else {
        skip!(
            "a_device_of_another_volume_is_taken_by_force_only_and_what_is_lost_is_said_in_bytes",
            "no qemu-io"
        );
    };
    let user = User::new();
    let devices = devices(&user);
    assert_eq!(create(&user, &devices, &["--zeroed", "--cleaning", "nop"]).code, 0);
    let [member, .., cache] = &devices;
    let [one, two] = ["3", "4"].map(|name| user.file(&format!("{name}.img"), 64 * MIB));
    let w = ["create", "w", "--raid", "1", &one, &two];
    let with_cache = [&w[..], &["--cache", cache]].concat();
    let with_member = ["create", "w", "--raid", "1", &one, member];
    let daemon = user.serve("v");
    let write = ["-f", "raw", "-c", "write -P 7 0 3M", "-c", "flush", &user.uri("v")];
    common::client(&qemu_io, &write.map(Into::into));
    for taken in [&with_cache[..], &with_member] {
        expect(&user, &[taken, &["--force"]].concat(), 4, &["volume v", "is being served"]);
    }
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let dirty = "3145728 bytes of dirty data";
    expect(&user, &with_cache, 4, &["the cache of volume v", dirty, "--force"]);
    expect(&user, &with_member, 4, &["a member of volume v", "--force"]);
    expect(&user, &["destroy", "v"], 4, &["201326592 bytes on its members and 3145728 bytes"]);
    // Said before and after.
    let lost = "3145728 bytes of dirty data of v are lost";
    expect(&user, &[&with_cache[..], &["--force"]].concat(), 0, &[dirty, "is overwritten", lost]);
    let refused = user.run(&["serve", "v"]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    let at_risk = "(3145728 bytes) dirty in its cache when it was stopped";
    assert!(refused.err.contains(at_risk), "{}", refused.err);
    assert_eq!(user.status("v").alerts[0].at_risk.bytes, 3 * MIB);
}

#[test]
fn a_broken_description_hides_no_other_volume_in_the_list() {
    let user = User::new();
    let devices = devices(&user);
    assert_eq!(create(&user, &devices, &[]).code, 0);
    std::fs::write(user.path("broken.toml"), "name = ").unwrap();
    let listed = user.run(&["status"]);
    assert_eq!(listed.code, 1, "{}", listed.err);
    let row = listed.out.lines().find(|line| line.starts_with("v  ")).unwrap_or_default();
    assert!(row.contains("stopped") && row.contains("RAID 5"), "{}", listed.out);
    assert!(listed.out.contains("broken: "), "{}", listed.out);
    assert!(
        listed.out.contains("broken.toml: ") && listed.out.contains("line 1"),
        "{}",
        listed.out
    );
    let listed = user.run(&["status", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed.out).unwrap();
    assert_eq!(listed[0]["name"], "broken");
    assert!(listed[0]["error"].as_str().unwrap().contains("broken.toml"), "{listed}");
    let known: Status = common::parse(&listed[1].to_string());
    assert_eq!((&*known.name, known.state), ("v", ServiceState::Stopped));
}
