//! Several cores behind the cache of a served volume.

use crate::common;
use crate::common::{User, client};
use headpond_cache::CleaningPolicy;
use headpond_testkit::skip;
use headpond_volume::CoreReport;

const MIB: u64 = 1 << 20;

struct Story {
    user: User,
    qemu_io: std::path::PathBuf,
}

impl Story {
    fn io(&self, volume: &str, export: &str, command: &str) {
        let uri = format!("nbd+unix:///{export}?socket={}", self.user.socket(volume).display());
        let args = ["-f", "raw", "-c", command, &uri].map(str::to_owned);
        let out = client(&self.qemu_io, &args);
        assert!(!out.contains("failed") && !out.contains("error"), "{command} on {export}: {out}");
    }

    fn cores(&self) -> Vec<(u16, String)> {
        let cores = self.user.status("v").cores.into_iter();
        cores.map(|core| (core.id, core.name)).collect()
    }

    /// A mirror of two files as a further core.
    fn add(&self, name: &str, more: &[&str]) -> common::Ended {
        let mut args: Vec<String> =
            ["core", "add", "v", name, "--raid", "1", "--zeroed"].map(Into::into).into();
        args.extend(more.iter().map(|&word| word.to_owned()));
        args.extend(
            (0..2).map(|index| self.user.path(&format!("{name}{index}.img")).display().to_string()),
        );
        self.user.run(&args)
    }

    /// Of which one MiB was written, and nothing cleaned.
    fn check_stats_of_logs(&self) {
        let user = &self.user;
        let logs: CoreReport = user.answer(&["stats", "v", "--core", "logs"]);
        let dirty = logs.usage.iter().find(|row| row.name == "Dirty");
        assert_eq!(dirty.unwrap().count, MIB / 4096);
        assert!(user.ok(&["stats", "v", "--core", "logs"]).contains("Core write errors"));
        let csv = user.ok(&["stats", "v", "--core", "logs", "--csv"]);
        assert!(csv.starts_with("Core ID,Core name,"));
        assert_eq!(user.run(&["stats", "v", "--core", "none"]).code, 2);
    }

    /// Members of another array, and one that was said to be zeros and is not.
    fn is_refused_what_holds_something(&self) {
        for index in 0..2 {
            let [from, to] =
                ["logs", "more"].map(|name| self.user.path(&format!("{name}{index}.img")));
            std::fs::copy(from, to).unwrap();
        }
        assert_eq!(self.add("more", &[]).code, 4, "they hold an array");
        self.blank("full");
        let full = std::fs::File::options().write(true).open(self.user.path("full1.img")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&full, b"x", MIB).unwrap();
        let refused = self.add("full", &[]);
        assert_eq!(refused.code, 4);
        assert!(refused.err.contains("does not read as zeros at byte 1048576"), "{}", refused.err);
    }

    fn blank(&self, name: &str) {
        for index in 0..2 {
            self.user.file(&format!("{name}{index}.img"), 32 * MIB);
        }
    }
}

#[test]
fn cores_are_added_and_removed_while_the_volume_is_served_and_nothing_is_lost() {
    let Some(qemu_io) = headpond_testkit::tool("qemu-io") else {
        skip!(
            "cores_are_added_and_removed_while_the_volume_is_served_and_nothing_is_lost",
            "no qemu-io"
        );
    };
    let story = Story { user: User::new(), qemu_io };
    let user = &story.user;
    let cache = user.file("cache.img", 64 * MIB);
    let mut args: Vec<String> =
        ["create", "v", "--raid", "5", "--zeroed", "--set", "cleaning=nop"].map(Into::into).into();
    args.extend(["--cache".into(), cache.clone()]);
    args.extend((0..3).map(|member| user.file(&format!("{member}.img"), 64 * MIB)));
    user.ok(&args);
    let daemon = user.serve("v");
    story.io("v", "v", "write -P 0x11 0 1M");
    story.blank("logs");
    let added = story.add("logs", &[]);
    assert_eq!(added.code, 0, "{}", added.err);
    assert!(
        added.out.contains("served as v/logs") && added.out.contains("core 2    logs: "),
        "{}",
        added.out
    );
    let policy = user.status("v").cache.unwrap().settings.cleaning.policy;
    assert_eq!(policy, CleaningPolicy::Nop, "the settings stay");
    story.io("v", "v/logs", "write -P 0x22 0 1M");
    story.io("v", "", "read -P 0x11 0 1M");
    assert_eq!(user.live_cache("v").dirty_bytes, MIB, "of the second core alone");
    let asked = user.stats(&["v"]).report.cores;
    assert_eq!((asked[0].counts.read_bytes, asked[1].counts.written_bytes), (MIB, MIB));
    assert!(user.ok(&["stats", "v"]).contains("logs"));
    story.check_stats_of_logs();
    // What create refuses is refused here too, and changes nothing.
    for (name, code) in [("logs", 2), ("a/b", 2), ("nothere", 2)] {
        assert_eq!(story.add(name, &[]).code, code, "{name}");
    }
    story.is_refused_what_holds_something();
    assert_eq!(story.cores(), [(1, "v".into()), (2, "logs".into())]);
    assert_eq!(user.live_cache("v").dirty_bytes, MIB, "the cache was left alone");
    let added = story.add("more", &["--force"]);
    assert_eq!(added.code, 0, "{}", added.err);
    story.io("v", "v/logs", "write -P 0x33 1M 1M");
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    assert!(user.run(&["status", "v"]).out.contains("core 3    more: RAID 1 of 2 members"));
    let daemon = user.serve("v");
    story.io("v", "v/logs", "read -P 0x33 1M 1M");
    story.io("v", "v/more", "write -P 0x44 0 64k");
    assert_eq!(user.run(&["core", "remove", "v", "v"]).code, 2, "the first core is the volume");
    user.ok(&["core", "remove", "v", "logs"]);
    assert_eq!(story.cores(), [(1, "v".into()), (3, "more".into())]);
    story.io("v", "v/more", "read -P 0x44 0 64k");
    story.io("v", "v", "read -P 0x11 0 1M");
    let own = user.serve("v-logs");
    story.io("v-logs", "", "read -P 0x22 0 1M");
    story.io("v-logs", "v-logs", "read -P 0x33 1M 1M");
    user.ok(&["stop", "v-logs"]);
    assert_eq!(own.wait(), 0);
    user.ok(&["stop", "v", "--flush"]);
    assert_eq!(daemon.wait(), 0);
    let destroyed = user.ok(&["destroy", "v", "--yes"]);
    assert!(destroyed.contains("6 devices are free"), "{destroyed}");
}
