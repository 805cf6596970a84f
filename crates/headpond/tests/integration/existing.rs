//! Existing devices as cores: what is on them is served, and theirs again afterwards.

use crate::common::{Daemon, User, client};
use headpond_testkit::skip;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

const MIB: u64 = 1 << 20;
/// No multiple of a usual strip.
const BYTES: u64 = 48 * MIB + (20 << 10);

/// An image with contents, a cache, and a client.
struct Story {
    user: User,
    image: String,
    cache: String,
    qemu_io: PathBuf,
}

impl Story {
    fn new(qemu_io: PathBuf) -> Self {
        let user = User::new();
        let (image, cache) = (user.file("disk.img", BYTES), user.file("cache.img", 64 * MIB));
        let file = std::fs::OpenOptions::new().write(true).open(&image).unwrap();
        let mut contents = vec![0; BYTES as usize];
        contents.chunks_mut(512).enumerate().for_each(|(at, block)| block.fill(at as u8 | 1));
        file.write_all_at(&contents, 0).unwrap();
        Self { user, image, cache, qemu_io }
    }

    fn create(&self, more: &[&str]) -> String {
        let args = ["create", "v", "--core", &self.image, "--keep", "--cache", &self.cache];
        self.user.ok(&[&args[..], more].concat())
    }

    fn serve(&self) -> Daemon {
        self.user.serve("v")
    }

    fn io(&self, command: &str) {
        let args = ["-f", "raw", "-c", command].map(String::from);
        let out = client(&self.qemu_io, &[&args[..], &[self.user.uri("v")]].concat());
        assert!(!out.contains("failed") && !out.contains("error"), "{command}: {out}");
    }

    fn stop(&self, daemon: Daemon) {
        self.user.ok(&["stop", "v"]);
        assert_eq!(daemon.wait(), 0);
    }

    fn image(&self) -> Vec<u8> {
        std::fs::read(&self.image).unwrap()
    }

    /// As a program does that knows nothing of the volume.
    fn write_past(&self, offset: u64) {
        let file = std::fs::OpenOptions::new().write(true).open(&self.image).unwrap();
        file.write_all_at(&[0x11; 512], offset).unwrap();
    }

    /// The folder of the state is lost; the devices are not.
    fn lose_state(&self) {
        for entry in std::fs::read_dir(self.user.path("")).unwrap().flatten() {
            if entry.path().is_file() && entry.path().extension().is_none_or(|it| it != "img") {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
    }

    fn import(&self, more: &[&str]) -> Vec<String> {
        let args = ["import", "v", "--core", &self.image, "--keep", "--cache", &self.cache];
        [&args[..], more].concat().into_iter().map(String::from).collect()
    }
}

#[test]
fn an_image_is_served_as_it_is_and_given_back_with_what_was_written() {
    let Some(qemu_io) = headpond_testkit::tool("qemu-io") else {
        skip!("an_image_is_served_as_it_is_and_given_back_with_what_was_written", "no qemu-io");
    };
    for mode in ["write-through", "write-back"] {
        let story = Story::new(qemu_io.clone());
        let mut expected = story.image();
        let told = story.create(&["--mode", mode]);
        assert!(told.contains("used through v alone"), "{told}");
        assert!(story.image() == expected, "it is only read");
        let daemon = story.serve();
        let status = story.user.status("v");
        assert_eq!(status.size_bytes, Some(BYTES), "all of it");
        story.io("read -P 1 0 512");
        story.io("write -P 0x77 8192 1M");
        story.io(&format!("write -P 0x78 {} 4096", BYTES - 4096));
        let detached = story.user.ok(&["detach", "v"]);
        assert!(detached.contains(&story.image), "{detached}");
        assert_eq!(daemon.wait(), 0);
        expected[8192..8192 + MIB as usize].fill(0x77);
        expected[BYTES as usize - 4096..].fill(0x78);
        assert!(story.image() == expected, "{mode}: what was written, and nothing else");
        assert!(!story.user.path("v.head").exists() && !story.user.path("v.toml").exists());
        // The cache is free, without force.
        story.create(&[]);
    }
}

#[test]
fn a_file_system_on_it_is_whole_afterwards() {
    let tools = ["mkfs.ext4", "e2fsck"].map(headpond_testkit::tool);
    let [Some(mkfs), Some(fsck)] = tools else {
        skip!("a_file_system_on_it_is_whole_afterwards", "no e2fsprogs");
    };
    let user = User::new();
    let (image, cache) = (user.file("disk.img", 64 * MIB), user.file("cache.img", 64 * MIB));
    client(&mkfs, &["-q", "-F", "-b", "4096", &image].map(String::from));
    user.ok(&["create", "v", "--core", &image, "--keep", "--cache", &cache]);
    let daemon = user.serve("v");
    let status = user.status("v");
    assert!(status.cores[0].is_existing);
    let told = user.ok(&["status", "v"]);
    assert!(told.contains("an existing device, healthy"), "{told}");
    user.ok(&["detach", "v"]);
    assert_eq!(daemon.wait(), 0);
    client(&fsck, &["-f".into(), "-n".into(), image]);
}

#[test]
fn dirty_data_is_not_left_behind_by_a_detach() {
    let Some(qemu_io) = headpond_testkit::tool("qemu-io") else {
        skip!("dirty_data_is_not_left_behind_by_a_detach", "no qemu-io");
    };
    let story = Story::new(qemu_io);
    story.create(&["--mode", "write-back", "--cleaning", "nop"]);
    let daemon = story.serve();
    story.io("write -P 0x77 0 1M");
    story.stop(daemon);
    let refused = story.user.run(&["detach", "v"]);
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("1048576 bytes of dirty data"), "{}", refused.err);
    let daemon = story.serve();
    story.user.ok(&["detach", "v"]);
    assert_eq!(daemon.wait(), 0);
    assert!(story.image()[..MIB as usize].iter().all(|byte| *byte == 0x77));
}

#[test]
fn an_image_that_was_written_to_past_the_volume_is_refused() {
    let Some(qemu_io) = headpond_testkit::tool("qemu-io") else {
        skip!("an_image_that_was_written_to_past_the_volume_is_refused", "no qemu-io");
    };
    let story = Story::new(qemu_io);
    story.create(&[]);
    let daemon = story.serve();
    story.io("write -P 0x77 0 64k");
    // A kill is none.
    daemon.kill();
    let daemon = story.serve();
    story.io("read -P 0x77 0 64k");
    story.stop(daemon);
    story.write_past(1024);
    let refused = story.user.run(&["serve", "v"]);
    let text = format!("{}{}", refused.out, refused.err);
    assert_ne!(refused.code, 0);
    assert!(text.contains("was written to past this volume") && text.contains("--force"), "{text}");
    let daemon = story.user.serve_with(&["serve", "v", "--force"]);
    let has_cache = || story.user.status("v").cache.is_some_and(|cache| cache.live.is_some());
    assert!(!has_cache(), "it is out of date");
    story.io("read -P 0x11 1024 512");
    story.user.ok(&["cache", "attach", "v", &story.cache, "--force"]);
    story.stop(daemon);
    let daemon = story.serve();
    assert!(has_cache());
    story.stop(daemon);
}

#[test]
fn without_its_state_it_is_imported_and_dirty_data_is_refused_unless_forced() {
    let Some(qemu_io) = headpond_testkit::tool("qemu-io") else {
        skip!(
            "without_its_state_it_is_imported_and_dirty_data_is_refused_unless_forced",
            "no qemu-io"
        );
    };
    let story = Story::new(qemu_io);
    story.create(&["--mode", "write-back", "--cleaning", "nop"]);
    let daemon = story.serve();
    story.io("write -P 0x77 0 1M");
    story.io("read 4M 1M");
    story.stop(daemon);
    story.lose_state();
    let refused = story.user.run(&story.import(&[]));
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("1048576 bytes of dirty data"), "{}", refused.err);
    assert!(!story.user.path("v.head").exists(), "nothing is left of the attempt");
    // What it has clean may be old: it is not read again.
    story.write_past(4 * MIB);
    let forced = story.import(&["--force"]);
    let daemon = story.user.serve_with(&forced.iter().map(String::as_str).collect::<Vec<_>>());
    story.io("read -P 0x77 0 1M");
    story.io("read -P 0x11 4M 512");
    assert_eq!(story.user.live_cache("v").dirty_bytes, 0);
    story.stop(daemon);
    assert!(story.image()[..MIB as usize].iter().all(|byte| *byte == 0x77));
    story.lose_state();
    let clean = story.import(&[]);
    let daemon = story.user.serve_with(&clean.iter().map(String::as_str).collect::<Vec<_>>());
    story.io("read -P 0x77 0 1M");
    story.stop(daemon);
    // A head that is there knows more than an import: it is kept.
    std::fs::remove_file(story.user.path("v.toml")).unwrap();
    let refused = story.user.run(&story.import(&[]));
    assert!(
        refused.code != 0 && refused.err.contains("is the head of a device"),
        "{}",
        refused.err
    );
    assert!(story.user.path("v.head").exists());
}

#[test]
fn what_would_change_the_device_is_refused_with_the_reason() {
    let user = User::new();
    let (image, cache) = (user.file("disk.img", BYTES), user.file("cache.img", 64 * MIB));
    let (odd, other) = (user.file("odd.img", BYTES + 512), user.file("m1.img", BYTES));
    for (args, reason) in [
        (vec!["create", "v", "--core", &image, "--cache", &cache], "--keep"),
        (vec!["create", "v", "--keep", &image, "--cache", &cache], "--core"),
        (vec!["create", "v", "--core", &image, "--keep", "--raid", "1"], "--raid"),
        (vec!["create", "v", "--raid", "0", &image, "--core", &other, "--keep"], "--core"),
        (vec!["create", "v", "--core", &odd, "--keep"], "no multiple of 4 KiB"),
        (vec!["create", "v", "--core", "/nowhere/disk", "--keep"], "/nowhere/disk"),
        (vec!["create", "v", "--core", "ram:64M", "--keep"], "contents of its own"),
        (vec!["create", "v", &image, &other], "--raid"),
    ] {
        let refused = user.run(&args);
        assert_ne!(refused.code, 0, "{args:?}");
        assert!(refused.err.contains(reason), "{args:?}: {}", refused.err);
        assert!(!user.path("v.head").exists() && !user.path("v.toml").exists(), "{args:?}");
    }
    user.ok(&["create", "v", "--core", &image, "--keep", "--cache", &cache]);
    // It is a volume's: nobody else takes it.
    let again = user.run(&["create", "w", "--core", &image, "--keep"]);
    assert!(again.code != 0 && again.err.contains("volume v"), "{}", again.err);
    let daemon = user.serve("v");
    for args in [
        vec!["array", "add-spare", "v", &other],
        vec!["array", "grow", "v", &other],
        vec!["array", "replace", "v", &image, "--with", &other],
    ] {
        let refused = user.run(&args);
        assert!(refused.code != 0, "{args:?}");
        assert!(refused.err.contains("existing device"), "{args:?}: {}", refused.err);
    }
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    // Without its cache or its volume it is what it was.
    let before = std::fs::read(&image).unwrap();
    user.ok(&["destroy", "v", "--yes"]);
    assert!(std::fs::read(&image).unwrap() == before);
    let dirty = Command::new("cmp").args(["-n", "4096", &image, "/dev/zero"]).output().unwrap();
    assert!(dirty.status.success());
}
