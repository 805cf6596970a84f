//! What the witness's commands refuse, and leave as it was.

use crate::common::User;
use crate::witness::kept::{Keeper, program, user};
use headpond_testkit::skip;
use std::process::Command;

const MIB: u64 = 1 << 20;

/// Every command that writes, on this device.
fn destructive(device: &str, to: &str) -> Vec<Vec<String>> {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect();
    vec![
        words(&format!("write --device {device} --to {to} --key key --name d --runtime 1")),
        words(&format!("agent --device {device} --to {to} --key key --name d")),
        words(&format!("simple write --device {device} --size 1M")),
        words(&format!("probe {device} --destructive --time 1")),
    ]
}

fn all_refuse(user: &User, device: &str, reason: &str) {
    let keeper = Keeper::start(user, &["serve"]);
    let before = std::fs::read(device).unwrap();
    for args in destructive(device, &keeper.to()) {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = program(user, &args).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(4), "{args:?}: {told}");
        assert!(told.contains(reason), "{args:?}: {told}");
        // A campaign tries again and again.
        let is_told_once = |line: &str| line.matches("--force").count() <= 1;
        assert!(told.lines().all(is_told_once), "a way out is told once: {told}");
        assert!(std::fs::read(device).unwrap() == before, "{args:?} changed it");
    }
}

#[test]
fn a_device_with_a_file_system_is_refused() {
    let Some(mkfs) = headpond_testkit::tool("mkfs.ext4") else {
        skip!("a_device_with_a_file_system_is_refused", "no mkfs.ext4");
    };
    let user = user();
    let file = user.file("disk.img", 16 * MIB);
    let made = Command::new(mkfs).args(["-q", "-F", &file]).status().unwrap();
    assert!(made.success());
    all_refuse(&user, &file, "ext4");
    user.ok(&["witness", "simple", "write", "--device", &file, "--size", "1M", "--force"]);
}

#[test]
fn a_member_of_a_volume_is_refused() {
    let user = user();
    let members: Vec<String> = (0..3).map(|at| user.file(&format!("{at}.img"), 32 * MIB)).collect();
    let mut args: Vec<String> = ["create", "v", "--raid", "5", "--zeroed"].map(Into::into).into();
    args.extend(members.iter().cloned());
    user.ok(&args);
    all_refuse(&user, &members[1], "array");
}

#[test]
fn a_device_in_use_is_refused_even_by_force() {
    let user = user();
    let members: Vec<String> = (0..3).map(|at| user.file(&format!("{at}.img"), 32 * MIB)).collect();
    let mut args: Vec<String> = ["create", "v", "--raid", "5", "--zeroed"].map(Into::into).into();
    args.extend(members.iter().cloned());
    user.ok(&args);
    let _daemon = user.serve("v");
    let write = ["witness", "simple", "write", "--device", &members[0], "--size", "1M", "--force"];
    let ended = user.run(&write);
    assert!(ended.code != 0 && ended.err.contains("in use"), "{}", ended.err);
}

#[test]
fn an_export_that_is_not_blank_is_refused() {
    use crate::witness::exports::{Cache, Disk};
    let user = user();
    let file = user.file("disk.img", 16 * MIB);
    std::os::unix::fs::FileExt::write_all_at(
        &std::fs::File::options().write(true).open(&file).unwrap(),
        b"mine",
        16 * MIB - 10,
    )
    .unwrap();
    let disk = Disk::switch_on(&file, Cache::Protected, &user.path("disk.sock"), 1);
    let uri = disk.uri();
    let ended = user.run(&["witness", "simple", "write", "--device", &uri, "--size", "1M"]);
    assert!(ended.code == 4 && ended.err.contains("not blank"), "{}", ended.err);
    disk.cut();
}

#[test]
fn a_key_that_others_may_read_and_a_wrong_key_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let user = user();
    let keeper = Keeper::start(&user, &["serve"]);
    let file = user.file("disk.img", 16 * MIB);
    let verify = |key: &str| {
        let to = keeper.to();
        let args = ["verify", "--device", &file, "--to", &to, "--key", key, "--name", "disk"];
        let output = program(&user, &args).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let other = user.path("other").display().to_string();
    user.ok(&["witness", "key", &other]);
    assert_ne!(user.run(&["witness", "key", &other]).code, 0, "it is not overwritten");
    let (code, told) = verify(&other);
    assert!(code == Some(1) && told.contains("another key"), "{told}");
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o640)).unwrap();
    let (code, told) = verify(&other);
    assert!(code == Some(4) && told.contains("chmod 600"), "{told}");
    let (code, told) = verify("key");
    assert!(code == Some(4) && told.contains("nothing has been written"), "{told}");
}

#[test]
fn mistakes_are_told_with_the_way_out() {
    let user = user();
    let keeper = Keeper::start(&user, &["serve"]);
    let (file, to) = (user.file("disk.img", 16 * MIB), keeper.to());
    let write = ["write", "--device", &file, "--runtime", "1", "--name", "d"];
    let told = |args: &[&str]| {
        let output = program(&user, args).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap(), told)
    };
    let with = |to: &str, key: &str, more: &[&str]| {
        told(&[&write[..], &["--to", to, "--key", key], more].concat())
    };
    let port_of_nobody = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().to_string()
    };
    let taken = ["serve", "--listen", &to, "--key", "key", "--dir", "other"];
    for ((code, told), expected, says) in [
        (with("keeper", "key", &[]), 2, "keeper:7461"),
        (with("keeper:74610", "key", &[]), 2, "\"74610\" is not a port"),
        (with("::1", "key", &[]), 2, "in brackets: [::1]:7461"),
        (with("[::1]", "key", &[]), 2, "[::1]:7461"),
        (with(&to, "key", &["--start", "18446744073709547520"]), 2, "beyond the end of the device"),
        (with(&port_of_nobody, "key", &[]), 1, "is `headpond witness serve`"),
        (with(&to, "none", &[]), 1, "`headpond witness key none` makes one"),
        (with(&to, "key", &["--start", "1000"]), 2, "--start 1000 is not a multiple of 4K"),
        (with(&to, "key", &["--start", "16M"]), 2, "it has 16777216 bytes"),
        (told(&["key", "key"]), 4, "exists already, and is not overwritten"),
        (told(&taken), 1, "use another port with --listen"),
    ] {
        assert_eq!(code, expected, "{told}");
        assert!(told.contains(says), "{says}: {told}");
    }
}

#[test]
fn a_second_witness_in_the_same_folder_is_refused() {
    let user = user();
    let _keeper = Keeper::start(&user, &["serve"]);
    let args = ["serve", "--listen", "127.0.0.1:0", "--key", "key", "--dir", "kept"];
    let output = program(&user, &args).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
}

#[test]
fn a_probe_that_only_reads_changes_nothing_and_claims_nothing() {
    let user = user();
    let file = user.file("disk.img", 16 * MIB);
    let ended = user.run(&["witness", "probe", &file, "--time", "1"]);
    assert!(
        ended.code == 3 && ended.out.contains("reads alone do not show how it handles flushes"),
        "{}",
        ended.out
    );
    assert!(std::fs::read(&file).unwrap().iter().all(|byte| *byte == 0));
}

/// A file as a mounted block device; unmounted and detached at the end.
struct Mounted {
    device: String,
}

impl Mounted {
    fn new(user: &User, file: &str) -> Result<Self, String> {
        let run = |program: &str, args: &[&str]| {
            let program = headpond_testkit::tool(program).ok_or(format!("no {program}"))?;
            let output = Command::new(&program).args(args).output().map_err(|it| it.to_string())?;
            let told = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let out = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            if output.status.success() { Ok(out) } else { Err(told) }
        };
        run("mkfs.ext4", &["-q", "-F", file])?;
        let device = run("losetup", &["--find", "--show", file])?;
        let mounted = Self { device: device.clone() };
        let folder = user.path("mnt");
        std::fs::create_dir(&folder).unwrap();
        run("mount", &[&device, &folder.display().to_string()])?;
        Ok(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for (program, how) in [("umount", None), ("losetup", Some("--detach"))] {
            let args: Vec<&str> = how.into_iter().chain([self.device.as_str()]).collect();
            let _ = Command::new(program).args(args).output();
        }
    }
}

#[test]
fn a_mounted_device_is_refused_even_by_force() {
    let user = user();
    let file = user.file("disk.img", 16 * MIB);
    let mounted = match Mounted::new(&user, &file) {
        Ok(mounted) => mounted,
        Err(lacks) => skip!("a_mounted_device_is_refused_even_by_force", "{lacks}"),
    };
    let keeper = Keeper::start(&user, &["serve"]);
    for mut args in destructive(&mounted.device, &keeper.to()) {
        args.push("--force".to_owned());
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        if args[0] == "agent" {
            continue; // it tries again for a while before it gives up
        }
        let output = program(&user, &args).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(4), "{args:?}: {told}");
        assert!(told.contains("mounted at"), "{args:?}: {told}");
    }
}
