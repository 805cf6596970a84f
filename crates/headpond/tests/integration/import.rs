//! Volumes that are found by what their devices say: the description is gone, the names are others.

use crate::common::{Daemon, User, client};
use headpond_cache::Mode;
use headpond_raid::{ArrayState, Level};
use headpond_testkit::skip;
use std::path::PathBuf;

const MIB: u64 = 1 << 20;

struct Story {
    user: User,
    qemu_io: PathBuf,
}

impl Story {
    fn new(qemu_io: PathBuf) -> Self {
        Self { user: User::new(), qemu_io }
    }

    /// Creates `v` of so many members, with further arguments; devices among them are made.
    fn create(&self, members: usize, args: &[&str]) {
        let mut words: Vec<String> = vec!["create".into(), "v".into()];
        for word in args {
            words.push(match word.strip_suffix(".img") {
                Some(_) => self.user.file(word, 64 * MIB),
                None => (*word).to_owned(),
            });
        }
        words.extend((0..members).map(|at| self.user.file(&format!("m{at}.img"), 64 * MIB)));
        self.user.ok(&words);
    }

    /// Each MiB has a pattern of its own.
    fn each_mib(&self, command: &str) {
        let mut args: Vec<String> = ["-f", "raw"].map(Into::into).into();
        for mib in 0..24 {
            args.push("-c".into());
            args.push(format!("{command} -P {} {mib}M 1M", mib + 1));
        }
        args.push(self.user.uri("v"));
        let out = client(&self.qemu_io, &args);
        assert!(!out.contains("failed") && !out.contains("error"), "{out}");
    }

    fn end(&self, daemon: Daemon) {
        self.user.ok(&["stop", "v"]);
        assert_eq!(daemon.wait(), 0);
    }

    /// Everything that is not on the devices is gone, and these have other names.
    fn lose_all_but_devices(&self) {
        for entry in std::fs::read_dir(self.user.path("")).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            match name.strip_suffix(".img") {
                // What was first is last.
                Some(stem) => {
                    let turned: String = stem.chars().rev().collect();
                    std::fs::rename(entry.path(), self.user.path(&format!("disk-{turned}")))
                        .unwrap();
                }
                None if entry.path().is_file() => std::fs::remove_file(entry.path()).unwrap(),
                None => {}
            }
        }
    }

    fn import(&self) -> Daemon {
        let folder = self.user.path("").display().to_string();
        self.user.serve_with(&["import", "v", "--in", &folder])
    }

    /// Written, stopped, lost, and imported: everything is there, with its settings.
    fn survives(&self, setting: Option<&str>) -> Daemon {
        let daemon = self.user.serve("v");
        self.each_mib("write");
        if let Some(setting) = setting {
            self.user.ok(&["set", "v", setting]);
        }
        self.end(daemon);
        self.lose_all_but_devices();
        let daemon = self.import();
        self.each_mib("read");
        assert_eq!(self.user.array("v").state, ArrayState::Optimal);
        daemon
    }
}

#[test]
fn a_volume_of_every_level_is_imported_from_its_devices_alone() {
    let Some(qemu_io) = headpond_testkit::tool("qemu-io") else {
        skip!("a_volume_of_every_level_is_imported_from_its_devices_alone", "no qemu-io");
    };
    let levels: [(&str, usize, Level); 7] = [
        ("0", 3, Level::Raid0),
        ("1", 2, Level::Raid1),
        ("10", 4, Level::Raid10),
        ("5", 3, Level::Raid5),
        ("6", 4, Level::Raid6),
        ("50", 6, Level::Raid50),
        ("60", 8, Level::Raid60),
    ];
    for (word, members, level) in levels {
        let story = Story::new(qemu_io.clone());
        story.create(members, &["--raid", word, "--zeroed", "--cache", "cache.img"]);
        let daemon = story.survives(Some("mode=write-through"));
        let status = story.user.status("v");
        assert_eq!(status.cores[0].level, level);
        let settings = &status.cache.as_ref().unwrap().settings;
        assert_eq!(settings.mode, Mode::WriteThrough, "RAID {word}");
        story.end(daemon);
    }
}

#[test]
fn a_volume_is_imported_with_all_that_it_is_made_of() {
    let Some(qemu_io) = headpond_testkit::tool("qemu-io") else {
        skip!("a_volume_is_imported_with_all_that_it_is_made_of", "no qemu-io");
    };
    let story = Story::new(qemu_io);
    let parts = ["--cache", "c0.img", "--cache", "c1.img", "--journal", "j.img"];
    let shape = ["--raid", "5", "--zeroed", "--integrity", "--tier", "ram:64M"];
    story.create(3, &[&parts[..], &shape].concat());
    let user = &story.user;
    let daemon = user.serve("v");
    let [one, other] = ["a0", "a1"].map(|name| user.file(&format!("{name}.img"), 64 * MIB));
    user.ok(&["core", "add", "v", "logs", "--raid", "1", "--zeroed", &one, &other]);
    user.ok(&["array", "add-spare", "v", &user.file("spare.img", 64 * MIB)]);
    story.end(daemon);
    let daemon = story.survives(Some("seq-cutoff=1M"));
    let status = user.status("v");
    assert_eq!(status.cores.len(), 2);
    assert_eq!(status.cores[1].name, "logs");
    assert_eq!(status.array().unwrap().spares.len(), 1);
    assert!(status.array().unwrap().journal.is_some());
    assert_eq!(status.cache.as_ref().unwrap().devices.len(), 2);
    assert!(status.tier.is_some());
    let shown = user.ok(&["set", "v"]);
    assert!(
        shown.lines().any(|line| line.contains("seq-cutoff") && line.contains("1M")),
        "{shown}"
    );
    story.end(daemon);
}

#[test]
fn what_the_scan_finds_is_told_and_what_is_not_certain_is_refused() {
    let user = User::new();
    let folder = user.path("").display().to_string();
    let empty = user.run(&["import", "v", "--in", &folder]);
    assert_eq!(empty.code, 2, "{}", empty.err);
    assert!(empty.err.contains("no device of a volume v was found"), "{}", empty.err);
    let members: Vec<String> = (0..3).map(|at| user.file(&format!("m{at}"), 64 * MIB)).collect();
    let mut words = vec!["create", "v", "--raid", "5", "--zeroed"];
    words.extend(members.iter().map(String::as_str));
    user.ok(&words);
    let scan = |code| {
        let ended = user.run(&["scan", "--in", &folder, "--json"]);
        assert_eq!(ended.code, code, "{}{}", ended.out, ended.err);
        let document: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
        let ours = document["volumes"].as_array().unwrap().iter();
        let is_it = |it: &&serde_json::Value| {
            it["devices"][0]["device"].as_str().is_some_and(|it| it.starts_with(&folder))
        };
        ours.into_iter().find(is_it).cloned().expect("it is found")
    };
    let found = scan(0);
    assert_eq!((&found["name"], &found["state"]), (&"v".into(), &"complete".into()));
    std::fs::rename(&members[2], user.path("away")).unwrap();
    std::fs::copy(&members[1], user.path("m1-copy")).unwrap();
    assert_eq!(scan(3)["state"], "ambiguous");
    let described = user.run(&["describe", "v", "--in", &folder]);
    assert_eq!(described.code, 4, "{}", described.err);
    assert!(described.err.contains("one is a copy of the other"), "{}", described.err);
    std::fs::remove_file(user.path("m1-copy")).unwrap();
    assert_eq!(scan(0)["state"], "complete", "a name says nothing");
    std::fs::remove_file(user.path("away")).unwrap();
    let found = scan(3);
    assert_eq!(found["state"], "degraded");
    assert!(found["missing"][0].as_str().unwrap().contains("member 2 of v"), "{found}");
    std::fs::remove_file(&members[1]).unwrap();
    assert_eq!(scan(3)["state"], "incomplete");
}

#[test]
fn a_setting_in_the_file_of_a_stopped_volume_does_not_count_and_that_is_told() {
    let user = User::new();
    let [cache, one, other] = ["c", "a", "b"].map(|name| user.file(name, 64 * MIB));
    user.ok(&["create", "v", "--raid", "1", "--zeroed", "--cache", &cache, &one, &other]);
    let path = user.path("v.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("mode = \"write-back\""), "{text}");
    std::fs::write(&path, text.replace("\"write-back\"", "\"write-around\"")).unwrap();
    std::fs::rename(&one, user.path("renamed")).unwrap();
    let daemon = user.serve("v");
    let said = "mode is write-around in the description, and write-back on the devices";
    assert!(daemon.log().contains(said), "{}", daemon.log());
    let status = user.status("v");
    assert_eq!(status.cache.unwrap().settings.mode, Mode::WriteBack);
    assert_eq!(user.array("v").state, ArrayState::Optimal, "a name is where to look first");
    let saved = std::fs::read_to_string(&path).unwrap();
    assert!(saved.contains("write-back") && saved.contains("/renamed"), "{saved}");
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

/// Until it is so.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(120), "{what}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn an_unattended_start_waits_goes_on_degraded_and_takes_a_late_member_back() {
    let Some(qemu_io) = headpond_testkit::tool("qemu-io") else {
        skip!(
            "an_unattended_start_waits_goes_on_degraded_and_takes_a_late_member_back",
            "no qemu-io"
        );
    };
    let story = Story::new(qemu_io);
    story.create(3, &["--raid", "5", "--zeroed"]);
    let user = &story.user;
    let member = user.path("m1.img").display().to_string();
    user.take_away(&member);
    let daemon = user.serve_with(&["serve", "v", "--wait-for-devices", "1"]);
    assert!(daemon.log().contains("member 1 of v"), "{}", daemon.log());
    assert_eq!(user.array("v").state, ArrayState::Degraded);
    story.each_mib("write");
    user.bring_back(&member);
    eventually("it is taken back", || user.array("v").state == ArrayState::Optimal);
    assert!(daemon.log().contains("has come back and is resynced"), "{}", daemon.log());
    user.ok(&["array", "fail", "v", &user.path("m0.img").display().to_string()]);
    story.each_mib("read");
    story.end(daemon);
}

#[test]
fn an_unattended_start_never_goes_on_without_its_cache() {
    let user = User::new();
    let [cache, one, other] = ["c", "a", "b"].map(|name| user.file(name, 64 * MIB));
    user.ok(&["create", "v", "--raid", "1", "--zeroed", "--cache", &cache, &one, &other]);
    user.take_away(&cache);
    let mut waiting = user.start(&["serve", "v", "--wait-for-devices", "0"]);
    let alerts = || {
        let ended = user.run(&["status", "v", "--json"]);
        let document: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
        document["alerts"].to_string()
    };
    eventually("it says what it waits for", || alerts().contains("the cache is missing"));
    assert!(alerts().contains("devices_missing"), "{}", alerts());
    assert!(waiting.try_wait().unwrap().is_none(), "it waits");
    user.bring_back(&cache);
    eventually("it is served", || user.run(&["stop", "v"]).code == 0);
    assert_eq!(waiting.wait().unwrap().code(), Some(0));
}

#[test]
fn a_volume_that_is_not_served_is_set_on_its_members() {
    let user = User::new();
    let [cache, one, other] = ["c", "a", "b"].map(|name| user.file(name, 64 * MIB));
    user.ok(&["create", "v", "--raid", "1", "--zeroed", "--cache", &cache, &one, &other]);
    user.ok(&["set", "v", "mode=write-through"]);
    std::fs::remove_file(user.path("v.toml")).unwrap();
    let folder = user.path("").display().to_string();
    let path = user.ok(&["describe", "v", "--in", &folder]);
    let text = std::fs::read_to_string(path.trim()).unwrap();
    assert!(text.contains("mode = \"write-through\""), "{text}");
    let refused = user.run(&["set", "v", "mode=backwards"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
}
