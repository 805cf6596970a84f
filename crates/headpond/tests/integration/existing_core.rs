//! Existing devices as further cores, behind the cache of a served volume.

use crate::common::{User, client};
use headpond_testkit::skip;
use std::fs;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;
/// No multiple of a usual strip.
const BYTES: u64 = 24 * MIB + (20 << 10);

/// A volume of its own array behind a cache, and an image with contents.
fn user_with_image(mode: &str) -> (User, String, Vec<u8>) {
    let user = User::new();
    let (member, cache) = (user.file("m0.img", 64 * MIB), user.file("cache.img", 64 * MIB));
    let image = user.path("disk.img");
    let contents: Vec<u8> = (0..BYTES).map(|at| (at / 512) as u8 | 1).collect();
    fs::write(&image, &contents).unwrap();
    let create = ["create", "v", "--raid", "0", "--zeroed", "--cache", &cache, &member];
    user.ok(&[&create[..], &["--mode", mode]].concat());
    (user, image.to_str().unwrap().to_owned(), contents)
}

/// Heads in the state folder.
fn heads(user: &User) -> Vec<PathBuf> {
    let files = fs::read_dir(user.path("")).unwrap().flatten().map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|it| it == "head")).collect()
}

/// One command of qemu-io to the core `logs` of `v`.
fn io(user: &User, qemu_io: &Path, command: &str) {
    let uri = format!("nbd+unix:///v/logs?socket={}", user.socket("v").display());
    let out = client(qemu_io, &["-f", "raw", "-c", command, &uri].map(String::from));
    assert!(!out.contains("failed") && !out.contains("error"), "{command}: {out}");
}

#[test]
fn an_image_is_a_further_core_as_it_is_and_given_back_while_the_volume_goes_on() {
    let Some(qemu_io) = headpond_testkit::tool("qemu-io") else {
        skip!(
            "an_image_is_a_further_core_as_it_is_and_given_back_while_the_volume_goes_on",
            "no qemu-io"
        );
    };
    let (user, image, mut expected) = user_with_image("write-back");
    let daemon = user.serve("v");
    let add = ["core", "add", "v", "logs", "--core", &image, "--keep"];
    let refused = user.run(&add);
    assert!(refused.code == 4 && refused.err.contains("mode=write-through"), "{}", refused.err);
    assert!(heads(&user).is_empty());
    let added = user.run(&[&add[..], &["--force"]].concat());
    assert_eq!(added.code, 0, "{}", added.err);
    assert!(added.out.contains("used through v/logs alone"), "{}", added.out);
    assert!(added.err.contains("with write-back"), "the volume's mode: {}", added.err);
    assert!(fs::read(&image).unwrap() == expected, "it is only read");
    let core = &user.status("v").cores[1];
    assert_eq!((core.is_existing, core.size_bytes), (true, Some(BYTES)), "all of it");
    io(&user, &qemu_io, "read -P 1 0 512");
    io(&user, &qemu_io, "write -P 0x77 8192 1M");
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let daemon = user.serve("v");
    io(&user, &qemu_io, "read -P 0x77 8192 1M");
    io(&user, &qemu_io, &format!("write -P 0x78 {} 4096", BYTES - 4096));
    let detached = user.ok(&["detach", "v/logs"]);
    assert!(detached.contains(&image), "{detached}");
    expected[8192..8192 + MIB as usize].fill(0x77);
    expected[BYTES as usize - 4096..].fill(0x78);
    assert!(fs::read(&image).unwrap() == expected, "what was written, and nothing else");
    assert!(heads(&user).is_empty() && !user.path("v-logs.toml").exists());
    assert_eq!(user.status("v").cores.len(), 1);
    // The image is free, and the name as well.
    user.ok(&["set", "v", "mode=write-through"]);
    user.ok(&add);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    user.ok(&["destroy", "v", "--yes"]);
    assert!(heads(&user).is_empty(), "{:?}", heads(&user));
}

#[test]
fn a_removed_core_is_a_volume_with_its_head_and_another_one_takes_its_name() {
    let (user, image, contents) = user_with_image("write-through");
    let other = user.file("other.img", BYTES);
    let daemon = user.serve("v");
    user.ok(&["core", "add", "v", "logs", "--core", &image, "--keep"]);
    user.ok(&["core", "remove", "v", "logs"]);
    // The head of the one that left stays its own.
    let refused = user.run(&["core", "add", "v", "logs", "--core", &image, "--keep"]);
    assert!(refused.code == 4 && refused.err.contains("v-logs"), "{}", refused.err);
    user.ok(&["core", "add", "v", "logs", "--core", &other, "--keep"]);
    assert_eq!(heads(&user).len(), 2);
    let alone = user.serve("v-logs");
    assert_eq!(user.status("v-logs").size_bytes, Some(BYTES));
    user.ok(&["detach", "v-logs"]);
    assert_eq!(alone.wait(), 0);
    assert!(fs::read(&image).unwrap() == contents);
    assert_eq!(heads(&user).len(), 1);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_nothing() {
    let (user, image, contents) = user_with_image("write-through");
    let (odd, other) = (user.file("odd.img", BYTES + 512), user.file("m1.img", BYTES));
    let daemon = user.serve("v");
    let (add, member) = (["core", "add", "v", "logs"], user.path("m0.img"));
    for (args, reason) in [
        (vec!["--core", &image], "--keep"),
        (vec!["--keep", &image], "--core"),
        (vec!["--core", &image, "--keep", "--raid", "1"], "--raid"),
        (vec!["--core", &odd, "--keep"], "no multiple of 4 KiB"),
        (vec!["--core", "/nowhere/disk", "--keep"], "/nowhere/disk"),
        (vec!["--core", "ram:64M", "--keep"], "memory"),
        (vec!["--core", member.to_str().unwrap(), "--keep"], "belongs to v already"),
        (vec![&*image], "--raid"),
    ] {
        let refused = user.run(&[&add[..], &args].concat());
        assert_ne!(refused.code, 0, "{args:?}");
        assert!(refused.err.contains(reason), "{args:?}: {}", refused.err);
        assert!(heads(&user).is_empty(), "{args:?}");
    }
    user.ok(&[&add[..], &["--core", &image, "--keep"]].concat());
    for args in [
        vec!["array", "add-spare", "v", &other, "--core", "logs"],
        vec!["array", "grow", "v", &other, "--core", "logs"],
    ] {
        let refused = user.run(&args);
        assert!(refused.err.contains("v/logs is on an existing device"), "{}", refused.err);
    }
    let whole = user.run(&["detach", "v"]);
    assert!(whole.code == 4 && whole.err.contains("own members"), "{}", whole.err);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let mut past = contents;
    past[1024..1536].fill(0x11);
    fs::write(&image, &past).unwrap();
    let refused = user.run(&["serve", "v"]);
    let text = format!("{}{}", refused.out, refused.err);
    assert!(refused.code != 0 && text.contains("was written to past this volume"), "{text}");
}
