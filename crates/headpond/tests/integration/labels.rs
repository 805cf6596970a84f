//! What is on one device: shown without disturbing its daemon, and cleared if no volume uses it.

use crate::common::loop_device::LoopDevice;
use crate::common::{User, parse};
use headpond_testkit::{skip, tool};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

const MIB: u64 = 1 << 20;

/// A volume `v` of RAID 5 with a journal and a cache, and its devices.
fn create(user: &User) -> BTreeMap<&'static str, String> {
    let names = ["0.img", "1.img", "2.img", "journal.img", "cache.img"];
    let files: BTreeMap<_, _> =
        names.into_iter().map(|name| (name, user.file(name, 64 * MIB))).collect();
    let file = |name: &str| files[name].as_str();
    let members = [file("0.img"), file("1.img"), file("2.img")];
    let more = ["--zeroed", "--journal", file("journal.img"), "--cache", file("cache.img")];
    user.ok(&[&["create", "v", "--raid", "5"][..], &members, &more].concat());
    files
}

fn properties(text: &str) -> BTreeMap<String, String> {
    let pair = |line: &str| {
        let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("{line}"));
        (key.to_owned(), value.to_owned())
    };
    text.lines().map(pair).collect()
}

fn label(user: &User, device: &str) -> Value {
    parse::<Value>(&user.ok(&["label", "show", device, "--json"]))
}

#[test]
fn each_device_of_a_volume_is_probed_for_udev_and_names_the_volume() {
    let user = User::new();
    let files = create(&user);
    let probe = |name: &str| properties(&user.ok(&["probe", "--export", &files[name]]));
    let kinds = [
        ("0.img", "member"),
        ("1.img", "member"),
        ("journal.img", "journal"),
        ("cache.img", "cache"),
    ];
    for (name, kind) in kinds {
        let found = probe(name);
        assert_eq!(found["ID_FS_TYPE"], format!("headpond_{kind}"), "{name}");
        let expected = [
            ("ID_FS_USAGE", "raid"),
            ("SYSTEMD_READY", "0"),
            ("UDISKS_IGNORE", "1"),
            ("HEADPOND_VOLUME", "v"),
        ];
        expected.into_iter().for_each(|(key, value)| assert_eq!(found[key], value, "{name}"));
    }
    let [first, second] = ["0.img", "1.img"].map(probe);
    assert_eq!(first["ID_FS_UUID"], second["ID_FS_UUID"], "of the array");
    assert_ne!(first["ID_FS_UUID_SUB"], second["ID_FS_UUID_SUB"], "of the device");
    assert_eq!(first["ID_FS_LABEL"], "v");
    // Where the volume is not described, no unit is named.
    let elsewhere = user.path("elsewhere").display().to_string();
    let found = user.run_in_state(&elsewhere, &["probe", "--export", &files["0.img"]]);
    assert_eq!(found.code, 0, "{}", found.err);
    assert!(!properties(&found.out).contains_key("HEADPOND_VOLUME"), "{}", found.out);
}

#[test]
fn a_device_without_a_label_ends_with_code_2_and_prints_no_property() {
    let user = User::new();
    let blank = user.file("blank.img", 4 * MIB);
    let short = user.file("short.img", 4096);
    for device in [&blank, &short] {
        let export = user.run(&["probe", "--export", device]);
        assert_eq!((export.code, export.out.as_str()), (2, ""), "{}", export.err);
        let told = user.run(&["probe", device]);
        assert_eq!(told.code, 2, "{}", told.err);
        assert!(told.out.contains("nothing of Headpond"), "{}", told.out);
    }
    // XFS's magic.
    fs::write(&blank, [&b"XFSB"[..], &[0; 4 << 20]].concat()).unwrap();
    let told = user.run(&["probe", &blank, "--json"]);
    assert_eq!(told.code, 2, "{}", told.err);
    let probed: Value = parse(&told.out);
    assert!(probed["label"].is_null() && probed["contents"][0].as_str().unwrap().contains("XFS"));
    assert_eq!(user.run(&["probe", &user.path("none").display().to_string()]).code, 1);
    assert!(user.ok(&["label", "clear", &blank, "--yes"]).contains("no label"));
}

#[test]
fn a_damaged_superblock_still_keeps_others_off_the_device() {
    let user = User::new();
    let files = create(&user);
    for name in ["0.img", "cache.img"] {
        let mut bytes = fs::read(&files[name]).unwrap();
        // A byte of both copies.
        [700, (64 << 10) + 700].into_iter().for_each(|at: usize| bytes[at] ^= 1);
        fs::write(&files[name], bytes).unwrap();
        let found = properties(&user.ok(&["probe", "--export", &files[name]]));
        assert_eq!(found["SYSTEMD_READY"], "0", "{name}");
        assert!(!found.contains_key("HEADPOND_VOLUME"), "{name}: it is not known whose it is");
        assert!(user.ok(&["probe", &files[name]]).contains("cannot be used"), "{name}");
    }
}

#[test]
fn devices_in_use_are_probed_and_not_changed_by_it() {
    let user = User::new();
    let files = create(&user);
    let daemon = user.serve("v");
    for (name, device) in &files {
        let probed: Value = parse(&user.ok(&["probe", device, "--json"]));
        assert_eq!(probed["label"]["volume"], "v", "{name}");
        let owners = label(&user, device)["owners"].clone();
        assert_eq!(owners[0]["is_held"], true, "{name}: {owners}");
    }
    let role = parse::<Value>(&user.ok(&["probe", &files["1.img"], "--json"]))["label"].clone();
    assert_eq!((&role["role"], &role["array"]), (&1.into(), &"v".into()));
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    for (name, device) in &files {
        let before = fs::read(device).unwrap();
        let shown = user.ok(&["label", "show", device]);
        assert!(shown.contains("of volume v") && shown.contains(": stopped"), "{name}: {shown}");
        user.ok(&["probe", device]);
        assert!(fs::read(device).unwrap() == before, "{name} has changed");
    }
}

#[test]
fn a_copy_of_a_mirrored_cache_is_a_cache_of_the_volume() {
    let user = User::new();
    let [member, one, two] = ["0.img", "c0.img", "c1.img"].map(|name| user.file(name, 64 * MIB));
    user.ok(&["create", "v", "--raid", "0", &member, "--cache", &one, "--cache", &two]);
    for copy in [&one, &two] {
        let found = properties(&user.ok(&["probe", "--export", copy]));
        assert_eq!(found["ID_FS_TYPE"], "headpond_cache");
        assert_eq!(found["HEADPOND_VOLUME"], "v");
        assert!(user.ok(&["probe", copy]).contains("of the cache mirror of volume v"));
        let label = label(&user, copy)["label"].clone();
        assert!(label["cache"]["volume"].is_string() && label["member"]["role"].is_u64());
    }
}

#[test]
fn a_label_is_cleared_only_with_consent_and_while_no_volume_uses_it() {
    let user = User::new();
    let files = create(&user);
    let daemon = user.serve("v");
    let clear = |name: &str, args: &[&str]| {
        user.run(&[&["label", "clear", files[name].as_str()][..], args].concat())
    };
    for name in ["0.img", "cache.img", "journal.img"] {
        let before = label(&user, &files[name])["label"].clone();
        let refused = clear(name, &["--yes"]);
        assert_eq!(refused.code, 4, "{name}: {}", refused.err);
        assert!(refused.err.contains("v, which is being served"), "{}", refused.err);
        // Whoever does not know the volume sees that a process holds the device.
        let elsewhere = user.path("elsewhere").display().to_string();
        let refused = user.run_in_state(&elsewhere, &["label", "clear", &files[name], "--yes"]);
        assert_eq!(refused.code, 4, "{name}: {}", refused.err);
        assert!(refused.err.contains("is in use: process"), "{}", refused.err);
        assert_eq!(label(&user, &files[name])["label"]["type"], before["type"]);
    }
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let refused = clear("cache.img", &[]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    let told = ["cache of volume v", "confirm with --yes"];
    assert!(told.iter().all(|part| refused.err.contains(part)), "{}", refused.err);
    for (name, device) in &files {
        let cleared = clear(name, &["--yes"]);
        assert_eq!(cleared.code, 0, "{name}: {}", cleared.err);
        assert_eq!(user.run(&["probe", device]).code, 2, "{name}");
        let head = fs::read(device).unwrap()[..128 << 10].to_vec();
        let is_ours = |piece: &[u8]| piece.starts_with(b"HP");
        assert!(!head.chunks(4096).any(is_ours), "{name}: the owner's record is left");
    }
}

#[test]
fn a_label_beside_a_file_system_is_not_cleared_but_contents_of_the_array_are_no_file_system() {
    let user = User::new();
    let files = create(&user);
    let put = |name: &str, at: usize| {
        let mut bytes = fs::read(&files[name]).unwrap();
        // LUKS2's second header.
        bytes[at..at + 6].copy_from_slice(b"SKUL\xba\xbe");
        fs::write(&files[name], bytes).unwrap();
    };
    put("0.img", 0x8_0000);
    let refused = user.run(&["label", "clear", &files["0.img"], "--yes"]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("LUKS2"), "{}", refused.err);
    assert_eq!(user.run(&["probe", &files["0.img"]]).code, 0);
    // A magic of VMFS, where the array's data is.
    let mut bytes = fs::read(&files["1.img"]).unwrap();
    bytes[0x20_0000..0x20_0004].copy_from_slice(b"\x5e\xf1\xab\x2f");
    fs::write(&files["1.img"], bytes).unwrap();
    assert_eq!(user.run(&["label", "clear", &files["1.img"], "--yes"]).code, 0);
}

#[test]
fn a_label_is_not_cleared_while_another_host_has_a_heartbeat_on_the_device() {
    let [left, right] = [User::new(), User::new()];
    let file = left.file("0.img", 16 * MIB);
    left.ok(&["create", "v", "--raid", "0", &format!("shared:{file}")]);
    // No lock keeps them apart, as on two hosts.
    let daemon = left.serve("v");
    let refused = right.run(&["label", "clear", &file, "--yes"]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("is in use on"), "{}", refused.err);
    left.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    assert_eq!(right.run(&["label", "clear", &file, "--yes"]).code, 0);
}

#[test]
fn a_served_block_device_is_refused_to_others_and_a_stopped_one_is_not() {
    let name = "a_served_block_device_is_refused_to_others_and_a_stopped_one_is_not";
    let user = User::new();
    let device = match LoopDevice::over(&user.file("0.img", 64 * MIB)) {
        Ok(device) => device,
        Err(why) => skip!(name, "no loop device: {why}"),
    };
    let cache = match LoopDevice::over(&user.file("c.img", 64 * MIB)) {
        Ok(device) => device,
        Err(why) => skip!(name, "no loop device: {why}"),
    };
    if tool("mkfs.ext4").is_none() {
        skip!(name, "no mkfs.ext4");
    }
    user.ok(&["create", "v", "--raid", "0", &device.node, "--cache", &cache.node]);
    let daemon = user.serve("v");
    for device in [&device, &cache] {
        let made = device.given_to("mkfs.ext4", &["-q", "-F"]).unwrap();
        assert!(!made.status.success(), "{} is held exclusively", device.node);
        let refused = user.run(&["label", "clear", &device.node, "--yes"]);
        assert_eq!(refused.code, 4, "{}", refused.err);
        assert_eq!(user.run(&["probe", &device.node]).code, 0, "a look needs no hold");
    }
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let cleared = user.run(&["label", "clear", &cache.node, "--yes"]);
    assert_eq!(cleared.code, 0, "{}", cleared.err);
    // Only a rule of udev tells it that the device is not free.
    let made = device.given_to("mkfs.ext4", &["-q", "-F"]).unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn a_label_on_a_mounted_device_is_not_cleared() {
    let name = "a_label_on_a_mounted_device_is_not_cleared";
    let (Some(mount), Some(umount)) = (tool("mount"), tool("umount")) else {
        skip!(name, "no mount");
    };
    let user = User::new();
    let device = match LoopDevice::over(&user.file("0.img", 64 * MIB)) {
        Ok(device) => device,
        Err(why) => skip!(name, "no loop device: {why}"),
    };
    user.ok(&["create", "v", "--raid", "0", &device.node]);
    let superblock = fs::read(&device.node).unwrap()[..8 << 10].to_vec();
    if !device.given_to("mkfs.ext4", &["-q", "-F"]).is_ok_and(|made| made.status.success()) {
        skip!(name, "no mkfs.ext4");
    }
    let place = user.path("place");
    fs::create_dir(&place).unwrap();
    let mut mount = Command::new(mount);
    let mount = mount.args([device.node.as_str().as_ref(), place.as_os_str()]);
    let mut mounted = mount.status().is_ok_and(|ended| ended.success());
    if !mounted {
        skip!(name, "a loop device cannot be mounted here");
    }
    // The second copy, where the file system does not care.
    let file = fs::File::options().write(true).open(&device.node).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &superblock, 64 << 10).unwrap();
    drop(file);
    let probed = user.run(&["probe", &device.node]);
    let refused = user.run(&["label", "clear", &device.node, "--yes"]);
    mounted &= Command::new(umount).arg(&place).status().is_ok_and(|ended| ended.success());
    assert!(mounted);
    assert_eq!(probed.code, 0, "{}", probed.err);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("mounted at"), "{}", refused.err);
}
