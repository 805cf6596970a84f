//! Advice while a volume is served: nothing without leave, everything in the journal.

use crate::common;
use crate::common::User;
use headpond_cache::Mode;
use headpond_testkit::skip;
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const MIB: u64 = 1 << 20;

/// Two files behind a cache that is not used; served.
fn served(user: &User) -> common::Daemon {
    let cache = user.file("cache.img", 64 * MIB);
    let members = ["one.img", "two.img"].map(|name| user.file(name, 128 * MIB));
    let create = ["create", "v", "--raid", "0", "--cache", &cache, "--mode", "pass-through"];
    user.ok(&[&create[..], &[&members[0], &members[1]]].concat());
    user.serve("v")
}

/// Small reads at random of what the cache would hold, until it is ended; so many that two disks
/// could not answer them and no more: a watch runs when nothing else wants the processors. Its job
/// is a thread, since a process of its own would outlive what is killed.
struct Load(Child);

impl Load {
    fn begin(user: &User, fio: &Path) -> Self {
        let mut command = Command::new(fio);
        command.args(["--name=load", "--ioengine=nbd", "--rw=randread", "--bs=4k"]);
        command.args(["--size=32M", "--iodepth=16", "--time_based"]);
        command.args(["--runtime=1d", "--rate_iops=2000", "--thread"]);
        command.arg(format!("--uri={}", user.uri("v")));
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// What is looked at without it says nothing about advice.
    fn end(mut self) {
        assert!(self.0.try_wait().unwrap().is_none(), "the load ended by itself");
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn mode(user: &User) -> Mode {
    user.status("v").cache.unwrap().settings.mode
}

/// What the journal has, in its order.
fn journal(user: &User) -> Vec<Value> {
    user.json(&["advise", "--journal", "v", "--json"]).as_array().unwrap().clone()
}

fn has(events: &[Value], event: &str) -> bool {
    events.iter().any(|entry| entry["event"] == event)
}

const LIVE: [&str; 9] =
    ["advise", "--live", "v", "--drive", "hdd-7k2-4t", "--effort", "quick", "--every", "0"];

#[test]
fn advice_for_a_served_volume_is_set_with_leave_and_kept_only_where_it_delivers() {
    let Some(fio) = headpond_testkit::tool("fio") else {
        skip!(
            "advice_for_a_served_volume_is_set_with_leave_and_kept_only_where_it_delivers",
            "no fio"
        );
    };
    let user = User::new();
    let daemon = served(&user);
    let load = Load::begin(&user, &fio);
    let told = user.ok(&[&LIVE[..], &["--looks", "3"]].concat());
    assert!(told.contains("better: mode=write-"), "{told}");
    assert_eq!((journal(&user).len(), mode(&user)), (1, Mode::PassThrough), "{told}");
    let told = user.ok(&[&LIVE[..], &["--looks", "7", "--apply"]].concat());
    load.end();
    let events = journal(&user);
    assert!(has(&events, "applied") && has(&events, "judged"), "{told}");
    let is_kept = events.last().unwrap()["event"] == "kept";
    assert!(is_kept || has(&events, "rolled-back"), "{told}");
    assert_eq!(mode(&user) == Mode::PassThrough, !is_kept, "{told}");
    assert!(
        ![Mode::WriteBack, Mode::WriteOnly].contains(&mode(&user)),
        "not without leave: {told}"
    );
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    user.ok(&["destroy", "v", "--yes"]);
    assert!(!user.path("v.journal.jsonl").exists());
}

#[test]
fn a_watch_plays_on_the_models_that_the_members_are() {
    let Some(fio) = headpond_testkit::tool("fio") else {
        skip!("a_watch_plays_on_the_models_that_the_members_are", "no fio");
    };
    let user = User::new();
    let model = |name: &str| format!("model:nvme-optane-375g?store={}", user.path(name).display());
    let cache = user.file("cache.img", 64 * MIB);
    let create = ["create", "v", "--raid", "0", "--cache", &cache, "--mode", "pass-through"];
    user.ok(&[&create[..], &[&model("one"), &model("two")]].concat());
    let daemon = user.serve("v");
    let load = Load::begin(&user, &fio);
    let watch = ["advise", "--live", "v", "--effort", "quick", "--every", "0", "--looks", "3"];
    // No cache is faster than these, and one is than what stands for members nobody knows.
    let told = user.ok(&watch);
    assert!(told.contains("nothing is better than what is set now"), "{told}");
    let told = user.ok(&[&watch[..], &["--drive", "ssd-dc-960g"]].concat());
    assert!(told.contains("better: mode=write-"), "{told}");
    load.end();
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_trial_whose_watch_was_killed_is_taken_back_by_the_next_one() {
    let user = User::new();
    let daemon = served(&user);
    user.ok(&["set", "v", "mode=write-around", "seq-cutoff=never"]);
    let left = r#"{"time":"2026-01-01 00:00:00 UTC","event":"applied","settings":["mode=write-around","seq-cutoff=never"],"back":["mode=write-through","seq-cutoff=full"]}"#;
    std::fs::write(user.path("v.journal.jsonl"), format!("{left}\n{{\"time\":")).unwrap();
    let watch = ["advise", "--live", "v", "--looks", "0"];
    let untold = user.run(&watch);
    assert!(untold.code == 0 && untold.err.contains("was on trial"), "{}", untold.err);
    assert_eq!(mode(&user), Mode::WriteAround, "nothing is set without leave");
    let told = user.ok(&[&watch[..], &["--apply"]].concat());
    assert!(told.contains("the previous watch was killed"), "{told}");
    assert_eq!(mode(&user), Mode::WriteThrough);
    assert_eq!(user.ok(&[&watch[..], &["--apply"]].concat()), "");
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_stop_in_the_middle_of_a_look_ends_the_daemon_and_the_watch() {
    let user = User::new();
    let daemon = served(&user);
    std::thread::scope(|scope| {
        // Nobody asks for anything: a look takes ten seconds.
        let watch = scope.spawn(|| user.run(&["advise", "--live", "v", "--looks", "1"]));
        std::thread::sleep(std::time::Duration::from_millis(1500));
        user.ok(&["stop", "v"]);
        assert_eq!(daemon.wait(), 0);
        let ended = watch.join().unwrap();
        assert_eq!(ended.code, 1, "{}", ended.err);
    });
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let user = User::new();
    let daemon = served(&user);
    let refused = user.run(&["advise", "--live", "v", "--apply", "--goal", "endurance"]);
    assert!(refused.code == 2 && refused.err.contains("cannot be measured in a trial"));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| user.run(&["advise", "--live", "v", "--looks", "1"]));
        std::thread::sleep(std::time::Duration::from_millis(1500));
        let second = user.run(&["advise", "--live", "v", "--looks", "1"]);
        assert!(second.code == 4 && second.err.contains("watches this volume"), "{}", second.err);
        assert_eq!(first.join().unwrap().code, 0);
    });
    user.ok(&["cache", "detach", "v"]);
    let refused = user.run(&["advise", "--live", "v"]);
    assert!(refused.code == 2 && refused.err.contains("v has no cache"), "{}", refused.err);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_volume_that_is_not_served_or_not_there_is_named() {
    let user = User::new();
    let refused = user.run(&["advise", "--live", "v"]);
    assert!(refused.code == 2 && refused.err.contains("there is no volume v"), "{}", refused.err);
    served(&user).kill();
    let refused = user.run(&["advise", "--live", "v"]);
    assert!(refused.code == 5 && refused.err.contains("headpond serve v"), "{}", refused.err);
    let told = user.ok(&["advise", "--journal", "v"]);
    assert!(told.contains("no advice on v yet"), "{told}");
    let usage = user.run(&["advise", "--live", "v", "trace.hptrace"]);
    assert_eq!(usage.code, 2, "{}", usage.err);
    assert_eq!(user.run(&["advise", "--apply", "trace.hptrace"]).code, 2);
    assert_eq!(user.run(&["advise"]).code, 2);
}
