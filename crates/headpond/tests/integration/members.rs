//! Members of a served volume's array that are exchanged, lost and looked after.

use crate::common::{Daemon, User, client};
use headpond_api::answers::CoreAnswer;
use headpond_raid::{ArrayState, ArrayStatus};
use headpond_testkit::skip;
use headpond_volume::Description;

const MIB: u64 = 1 << 20;

struct Story {
    user: User,
    qemu_io: std::path::PathBuf,
}

impl Story {
    /// A RAID 5 of three files behind a cache, without its daemon.
    fn new(qemu_io: std::path::PathBuf) -> Self {
        let story = Story { user: User::new(), qemu_io };
        let user = &story.user;
        let cache = user.file("cache.img", 64 * MIB);
        let mut args: Vec<String> =
            ["create", "v", "--raid", "5", "--zeroed", "--cache"].map(Into::into).into();
        args.push(cache);
        args.extend((0..3).map(|member| user.file(&format!("{member}.img"), 64 * MIB)));
        user.ok(&args);
        story
    }

    fn device(&self, name: &str) -> String {
        self.user.path(&format!("{name}.img")).display().to_string()
    }

    fn blank(&self, name: &str) -> String {
        self.user.file(&format!("{name}.img"), 64 * MIB)
    }

    /// Every MiB of the volume has a pattern of its own.
    fn each_mib(&self, command: &str) {
        let mut args: Vec<String> = ["-f", "raw"].map(Into::into).into();
        for mib in 0..100 {
            args.push("-c".into());
            args.push(format!("{command} -P {} {mib}M 1M", mib + 1));
        }
        args.push(self.user.uri("v"));
        let out = client(&self.qemu_io, &args);
        assert!(!out.contains("failed") && !out.contains("error"), "{out}");
    }

    fn array(&self) -> ArrayStatus {
        self.user.array("v")
    }

    fn listed(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.user.path("v.toml")).unwrap();
        let described = Description::parse(&text).unwrap();
        described.members().map(str::to_owned).collect()
    }

    fn end(&self, daemon: Daemon) {
        self.user.ok(&["stop", "v"]);
        assert_eq!(daemon.wait(), 0);
    }
}

#[test]
fn a_member_is_replaced_another_lost_and_its_place_taken_and_everything_is_there() {
    let Some(qemu_io) = headpond_testkit::tool("qemu-io") else {
        skip!(
            "a_member_is_replaced_another_lost_and_its_place_taken_and_everything_is_there",
            "no qemu-io"
        );
    };
    let story = Story::new(qemu_io);
    let user = &story.user;
    let daemon = user.serve("v");
    story.each_mib("write");
    let (new, old) = (story.blank("new"), story.device("1"));
    let done = user.ok(&["array", "replace", "v", &old, "--with", &new, "--wait"]);
    assert!(done.contains("1.img is replaced and free"), "{done}");
    assert_eq!(story.array().state, ArrayState::Optimal);
    assert_eq!(story.listed(), [story.device("0"), story.device("2"), new.clone()]);
    let spare = story.blank("spare");
    user.ok(&["array", "add-spare", "v", &spare]);
    assert_eq!(story.array().spares[0].device, spare);
    let failed = user.run(&["array", "fail", "v", &story.device("0")]);
    assert_eq!(failed.code, 0, "{}", failed.err);
    let waited = user.run(&["array", "add-spare", "v", &story.blank("more"), "--wait"]);
    assert_eq!(waited.code, 0, "{}", waited.err);
    assert_eq!(story.array().state, ArrayState::Optimal);
    assert_eq!(
        story.listed(),
        [story.device("2"), new.clone(), spare.clone(), story.device("more")]
    );
    story.each_mib("read");
    story.end(daemon);
    // The replaced one is free, and what is there now holds everything without the other two.
    let daemon = user.serve("v");
    user.ok(&["array", "remove", "v", &story.device("more")]);
    user.ok(&["array", "fail", "v", &story.device("2")]);
    story.each_mib("read");
    assert_eq!(user.run(&["status", "v"]).code, 3, "it is degraded");
    let scrubbed = user.run(&["array", "scrub", "v", "--wait"]);
    assert!(scrubbed.out.contains("stripes scrubbed: 0 strips rewritten"), "{}", scrubbed.out);
    story.end(daemon);
    let other = user.run(&["create", "w", "--raid", "1", &old, &story.device("more")]);
    assert_eq!(other.code, 0, "both are free: {}", other.err);
}

#[test]
fn a_member_that_was_away_is_given_what_it_lacks_also_after_a_stop() {
    let Some(qemu_io) = headpond_testkit::tool("qemu-io") else {
        skip!("a_member_that_was_away_is_given_what_it_lacks_also_after_a_stop", "no qemu-io");
    };
    let story = Story::new(qemu_io);
    let user = &story.user;
    let daemon = user.serve("v");
    story.each_mib("write");
    let away = story.device("1");
    user.ok(&["array", "fail", "v", &away]);
    let said = user.run(&["status", "v"]).out;
    assert!(said.contains("headpond array re-add v DEVICE"), "{said}");
    story.each_mib("write");
    story.end(daemon);
    let daemon = user.serve("v");
    let done = user.ok(&["array", "re-add", "v", &away, "--wait"]);
    assert!(done.contains("1.img is re-added and in sync"), "{done}");
    assert_eq!(story.array().state, ArrayState::Optimal);
    assert_eq!(story.listed(), [story.device("0"), story.device("1"), story.device("2")]);
    let again = user.run(&["array", "re-add", "v", &away]);
    assert!(again.code == 4 && again.err.contains("belongs to v already"), "{}", again.err);
    user.ok(&["array", "fail", "v", &story.device("0")]);
    story.each_mib("read");
    let stranger = user.run(&["array", "re-add", "v", &story.blank("stranger")]);
    assert_eq!(stranger.code, 4, "{}", stranger.err);
    assert!(stranger.err.contains("add-spare"), "{}", stranger.err);
    story.end(daemon);
}

#[test]
fn a_rebuild_survives_a_kill_and_goes_on_by_itself() {
    let Some(qemu_io) = headpond_testkit::tool("qemu-io") else {
        skip!("a_rebuild_survives_a_kill_and_goes_on_by_itself", "no qemu-io");
    };
    let story = Story::new(qemu_io);
    let user = &story.user;
    let daemon = user.serve("v");
    story.each_mib("write");
    user.ok(&["flush", "v"]);
    let new = story.blank("new");
    user.ok(&["array", "rate", "v", "--min", "1M", "--max", "8M"]);
    user.ok(&["array", "replace", "v", &story.device("1"), "--with", &new]);
    user.ok(&["array", "pause", "v"]);
    let told = user.run(&["status", "v"]).out;
    assert!(told.contains("paused: `headpond array resume v` resumes it"), "{told}");
    assert!(!told.contains("s left"), "a pause has no end: {told}");
    let filling = story.array().members[1].filling.clone();
    assert_eq!(filling.map(|it| it.device), Some(new.clone()));
    daemon.kill();
    let daemon = user.serve("v");
    user.ok(&["array", "rate", "v", "--no-max"]);
    user.ok(&["array", "pause", "v"]);
    let paused = user.run(&["array", "wait", "v"]);
    assert!(paused.code == 4 && paused.err.contains("it is paused"), "{}", paused.err);
    let resumed: CoreAnswer = user.answer(&["array", "resume", "v", "--wait"]);
    assert!(!resumed.background.unwrap().paused);
    let member = &story.array().members[1];
    assert_eq!((&member.device, &member.filling), (&Some(new), &None));
    user.ok(&["array", "fail", "v", &story.device("0")]);
    story.each_mib("read");
    story.end(daemon);
}

#[test]
fn what_cannot_be_is_refused_with_the_way_out_and_changes_nothing() {
    let Some(qemu_io) = headpond_testkit::tool("qemu-io") else {
        skip!("what_cannot_be_is_refused_with_the_way_out_and_changes_nothing", "no qemu-io");
    };
    let story = Story::new(qemu_io);
    let user = &story.user;
    let daemon = user.serve("v");
    let small = user.file("small.img", 32 * MIB);
    let foreign = story.blank("foreign");
    std::fs::write(&foreign, vec![0x5a; 70 << 20]).unwrap();
    let before = (story.array().event_count, story.listed());
    for (args, text) in [
        (vec!["add-spare", "v", &small], "a member of array `v` requires"),
        (vec!["add-spare", "v", &foreign], "--force"),
        (vec!["add-spare", "v", &story.device("1")], "belongs to v already"),
        (vec!["replace", "v", &story.device("0"), "--with", &story.device("1")], "belongs to v"),
        (vec!["grow", "v", &story.device("1")], "belongs to v already"),
        (vec!["grow", "v", &small], "a member of array `v` requires"),
        (vec!["re-add", "v", &story.device("1")], "belongs to v already"),
        (vec!["set-journal", "v", &story.device("1")], "belongs to v already"),
        (vec!["replace", "v", &story.device("0")], "add a device first"),
        (vec!["remove", "v", &story.device("0")], "headpond array replace"),
    ] {
        let args: Vec<&str> = std::iter::once("array").chain(args).collect();
        let refused = user.run(&args);
        assert_eq!(refused.code, 4, "{args:?}: {}", refused.err);
        assert!(refused.err.contains(text), "{args:?}: {}", refused.err);
    }
    for (args, text) in [
        (["rate", "v", "--min", "20M", "--max", "10M"].to_vec(), "lower the minimum"),
        (vec!["replace", "v", &foreign], "`status` lists them"),
        (vec!["scrub", "v", "--core", "none"], "`status` lists them"),
    ] {
        let args: Vec<&str> = std::iter::once("array").chain(args).collect();
        let wrong = user.run(&args);
        assert_eq!(wrong.code, 2, "{args:?}: {}", wrong.err);
        assert!(wrong.err.contains(text), "{args:?}: {}", wrong.err);
    }
    assert_eq!((story.array().event_count, story.listed()), before);
    story.end(daemon);
}

#[test]
fn who_may_not_leave_and_who_was_here_before_is_refused_by_name() {
    let user = User::new();
    let file = |name: &str| user.file(&format!("{name}.img"), 16 * MIB);
    let [a, b, c, spare, more] = ["a", "b", "c", "spare", "more"].map(file);
    user.ok(&["create", "v", "--raid", "5", "--zeroed", &a, &b, &c]);
    let daemon = user.serve("v");
    let listed = user.ok(&["status", "v"]);
    assert!(listed.contains(&format!("on {a}")) && listed.contains("strips of 64 KiB"), "{listed}");
    let refused = |args: &[&str]| {
        let said = user.run(args);
        assert_eq!(said.code, 4, "{args:?}: {}", said.err);
        said.err
    };
    user.ok(&["array", "add-spare", "v", &spare]);
    let is_spare = refused(&["array", "fail", "v", &spare]);
    assert!(is_spare.contains("is a spare") && is_spare.contains("array remove v"), "{is_spare}");
    user.ok(&["array", "remove", "v", &spare]);
    user.ok(&["array", "fail", "v", &b]);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let daemon = user.serve("v");
    let lost = refused(&["array", "fail", "v", &b]);
    assert!(lost.contains("is failed or missing") && lost.contains("re-add v"), "{lost}");
    let needed = refused(&["array", "fail", "v", &c]);
    assert!(needed.contains(&format!("array `v` needs {c}")), "{needed}");
    assert!(needed.contains("array add-spare"), "{needed}");
    user.ok(&["array", "add-spare", "v", &more, "--wait"]);
    let former = refused(&["array", "replace", "v", &c, "--with", &b]);
    assert!(former.contains("was member 1 of this array before"), "{former}");
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn what_was_missing_at_a_start_is_named_and_forgotten_when_it_is_back() {
    let user = User::new();
    let file = |name: &str| user.file(&format!("{name}.img"), 16 * MIB);
    let [a, b, c] = ["a", "b", "c"].map(file);
    user.ok(&["create", "v", "--raid", "5", "--zeroed", &a, &b, &c]);
    let (away, back) = (|name: &str| user.take_away(name), |name: &str| user.bring_back(name));
    away(&a);
    away(&b);
    let refused = user.run(&["serve", "v"]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!([&a, &b].iter().all(|name| refused.err.contains(*name)), "{}", refused.err);
    let told = user.run(&["status", "v"]).out;
    assert!(told.contains("start_refused") && told.contains(&b), "{told}");
    back(&a);
    let daemon = user.serve("v");
    let warnings = || {
        let status = user.status("v");
        status.warnings.iter().filter(|warning| warning.contains("cannot be opened")).count()
    };
    assert_eq!(warnings(), 1, "of the second");
    back(&b);
    user.ok(&["array", "re-add", "v", &b, "--wait"]);
    assert_eq!(warnings(), 0, "it is back");
    assert_eq!(user.run(&["status", "v"]).code, 0);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_device_of_another_array_in_a_members_place_is_left_alone() {
    let user = User::new();
    let file = |name: &str| user.file(&format!("{name}.img"), 16 * MIB);
    let [a, b, c, d] = ["a", "b", "c", "d"].map(file);
    user.ok(&["create", "v", "--raid", "1", "--zeroed", &a, &b]);
    user.ok(&["create", "w", "--raid", "1", "--zeroed", &c, &d]);
    std::fs::copy(&c, &a).unwrap();
    let daemon = user.serve("v");
    assert!(daemon.log().contains("is a member of array `w`"), "{}", daemon.log());
    assert_eq!(user.array("v").state, ArrayState::Degraded);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    assert_eq!(std::fs::read(&a).unwrap(), std::fs::read(&c).unwrap(), "nothing was written");
}
