//! The cache of a served volume comes and goes.

use crate::common::{User, client};
use headpond_api::answers::{CacheAnswer, ServiceState, Status};
use headpond_cache::{CleaningPolicy, Mode, ScrubReport};
use headpond_testkit::skip;
use headpond_volume::AlertKind;

const MIB: u64 = 1 << 20;

/// A RAID 5 of three files, without a cache.
fn create(user: &User) {
    let mut args: Vec<String> = ["create", "v", "--raid", "5", "--zeroed"].map(Into::into).into();
    args.extend((0..3).map(|member| user.file(&format!("{member}.img"), 64 * MIB)));
    user.ok(&args);
}

fn cache_of(user: &User) -> CacheAnswer {
    user.status("v").cache.expect("it has a cache")
}

/// Clean and dirty bytes.
fn held(user: &User) -> (u64, u64) {
    let cache = user.live_cache("v");
    (cache.clean_bytes, cache.dirty_bytes)
}

/// One command of qemu-io.
fn qemu_io(user: &User, program: &std::path::Path, command: &str) {
    let args = ["-f", "raw", "-c", command, &user.uri("v")].map(str::to_owned);
    let out = client(program, &args);
    assert!(!out.contains("failed") && !out.contains("error"), "{command}: {out}");
}

#[test]
fn a_cache_is_attached_replaced_and_detached_and_nothing_is_lost() {
    let Some(program) = headpond_testkit::tool("qemu-io") else {
        skip!("a_cache_is_attached_replaced_and_detached_and_nothing_is_lost", "no qemu-io");
    };
    let user = User::new();
    create(&user);
    let daemon = user.serve("v");
    let (first, second) = (user.file("one.img", 64 * MIB), user.file("two.img", 48 * MIB));
    user.ok(&["cache", "attach", "v", &first, "--set", "cleaning=nop"]);
    qemu_io(&user, &program, "write -P 0x11 0 1M");
    assert_eq!(cache_of(&user).dirty_bytes, Some(MIB));
    assert_eq!(user.run(&["cache", "detach", "v"]).code, 4, "it is dirty");
    assert_eq!(cache_of(&user).settings.mode, Mode::WriteBack, "a refusal changes nothing");
    user.ok(&["cache", "replace", "v", &second]);
    let cache = cache_of(&user);
    assert_eq!((cache.settings.cleaning.policy, cache.dirty_bytes), (CleaningPolicy::Nop, Some(0)));
    assert_eq!(cache.live.unwrap().device, second);
    qemu_io(&user, &program, "read -P 0x11 0 1M");
    qemu_io(&user, &program, "write -P 0x22 512k 1M");
    assert_eq!(user.run(&["cache", "replace", "v", &second, "--line", "48K"]).code, 2);
    assert_eq!(user.live_cache("v").line_bytes, 4096);
    user.ok(&["cache", "replace", "v", &second, "--line", "64K"]);
    assert_eq!(user.live_cache("v").line_bytes, 65_536);
    let scrub: ScrubReport = user.answer(&["cache", "scrub", "v"]);
    assert!(scrub.dropped_blocks == 0 && scrub.lost.is_empty(), "{scrub:?}");
    assert!(user.ok(&["cache", "scrub", "v"]).contains("0 damaged"));
    qemu_io(&user, &program, "read -P 0x22 512k 1M");
    qemu_io(&user, &program, "write -P 0x33 1M 1M");
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let daemon = user.serve("v");
    assert_eq!(user.live_cache("v").device, second, "it outlives the daemon");
    user.ok(&["cache", "detach", "v", "--flush"]);
    assert!(user.status("v").cache.is_none());
    qemu_io(&user, &program, "read -P 0x33 1M 1M");
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let _daemon = user.serve("v");
    assert!(user.status("v").cache.is_none());
    qemu_io(&user, &program, "read -P 0x11 0 512k");
}

#[test]
fn a_tier_in_memory_stands_in_front_of_the_cache_with_a_mode_of_its_own() {
    let Some(program) = headpond_testkit::tool("qemu-io") else {
        skip!("a_tier_in_memory_stands_in_front_of_the_cache_with_a_mode_of_its_own", "no qemu-io");
    };
    let user = User::new();
    let (cache, flash) = (user.file("cache.img", 64 * MIB), user.file("flash.img", 64 * MIB));
    let members = (0..3).map(|member| user.file(&format!("{member}.img"), 64 * MIB));
    let mut args: Vec<String> = ["create", "v", "--raid", "5", "--zeroed"].map(Into::into).into();
    args.extend(members.chain(["--cache".into(), cache]));
    let with =
        |more: &[&str]| [&args[..], &more.iter().map(|&it| it.into()).collect::<Vec<_>>()].concat();
    assert_eq!(user.run(&with(&["--set", "tier.mode=write-around"])).code, 2, "no tier is named");
    assert_eq!(user.run(&with(&["--tier", &flash])).code, 4, "it is no memory");
    assert_eq!(user.run(&with(&["--tier", "ram:16M", "--set", "tier.mode=write-back"])).code, 4);
    user.ok(&with(&["--tier", "ram:16M", "--set", "cleaning=nop"]));
    let daemon = user.serve("v");
    let tier = || user.status("v").tier.unwrap();
    assert_eq!(tier().settings.mode, Mode::WriteThrough);
    assert_eq!(cache_of(&user).settings.mode, Mode::WriteBack);
    qemu_io(&user, &program, "write -P 0x11 0 1M");
    qemu_io(&user, &program, "read -P 0x11 0 1M");
    let report = user.stats(&["v"]).report;
    let hits = [report.tier, report.cache].map(|it| it.unwrap().groups.requests[0].count);
    assert!(hits[0] > 0 && hits[1] == 0, "the cache is not asked: {hits:?}");
    assert!(user.ok(&["status", "v"]).contains("tier      ram:16M: mode=write-through"));
    let refused = user.run(&["set", "v", "tier.mode=write-back"]);
    assert!(refused.code == 4 && refused.err.contains("replace"), "{}", refused.err);
    user.ok(&["set", "v", "tier.mode=write-around", "mode=write-through"]);
    user.ok(&["cache", "replace", "v", &flash]);
    assert_eq!(tier().live.unwrap().clean_bytes, 0, "what lies below is another one");
    qemu_io(&user, &program, "read -P 0x11 0 1M");
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let _daemon = user.serve("v");
    assert_eq!(tier().settings.mode, Mode::WriteAround, "it outlives the daemon");
    // The way out that the refusal of `set` names.
    user.ok(&["cache", "replace", "v", "ram:20M", "--tier"]);
    assert_eq!(tier().settings.mode, Mode::WriteAround, "the settings stay");
    let sized = user.run(&["cache", "replace", "v", "ram:20M", "--tier", "--size", "16M"]);
    assert!(sized.code == 2 && sized.err.contains("`ram:1G`"), "{}", sized.err);
    let allowed = ["--tier", "--force", "--set", "mode=write-back"];
    user.ok(&[&["cache", "replace", "v", "ram:16M"], &allowed[..]].concat());
    assert_eq!(tier().settings.mode, Mode::WriteBack);
    user.ok(&["cache", "detach", "v", "--tier"]);
    assert_eq!(user.run(&["cache", "detach", "v", "--tier"]).code, 4, "there is none");
    user.ok(&["cache", "attach", "v", "ram:32M", "--tier", "--force", "--set", "mode=write-back"]);
    qemu_io(&user, &program, "write -P 0x22 0 1M");
    qemu_io(&user, &program, "read -P 0x22 0 1M");
    assert_eq!(user.run(&["stats", "v", "--tier", "--csv"]).code, 0);
}

#[test]
fn a_cache_grows_shrinks_and_is_emptied_and_nothing_is_lost() {
    let Some(program) = headpond_testkit::tool("qemu-io") else {
        skip!("a_cache_grows_shrinks_and_is_emptied_and_nothing_is_lost", "no qemu-io");
    };
    let user = User::new();
    create(&user);
    let daemon = user.serve("v");
    let device = user.file("cache.img", 64 * MIB);
    user.ok(&["cache", "attach", "v", &device, "--size", "32M", "--set", "cleaning=nop"]);
    let used = || user.live_cache("v").device_bytes;
    assert_eq!(used(), 32 * MIB);
    qemu_io(&user, &program, "write -P 0x11 0 1M");
    let resized: Status = user.answer(&["cache", "resize", "v", "48M"]);
    assert_eq!(resized.live_cache().unwrap().device_bytes, 48 * MIB);
    assert_eq!(resized.cache.unwrap().settings.cleaning.policy, CleaningPolicy::Nop);
    assert_eq!(held(&user), (0, 0));
    qemu_io(&user, &program, "read -P 0x11 0 1M");
    qemu_io(&user, &program, "write -P 0x22 1M 1M");
    for (size, code) in [("1G", 4), ("1M", 2), ("none", 2)] {
        let ended = user.run(&["cache", "resize", "v", size]);
        assert_eq!(ended.code, code, "{size}: {}", ended.err);
        assert_eq!((used(), cache_of(&user).dirty_bytes), (48 * MIB, Some(MIB)));
    }
    assert_eq!(user.run(&["cache", "purge", "v"]).code, 4, "it is dirty");
    assert!(held(&user).0 > 0);
    user.ok(&["cache", "purge", "v", "--flush"]);
    assert_eq!(held(&user), (0, 0));
    assert_eq!(used(), 48 * MIB);
    qemu_io(&user, &program, "read -P 0x22 1M 1M");
    let file = std::fs::OpenOptions::new().write(true).open(&device).unwrap();
    file.set_len(96 * MIB).unwrap();
    user.ok(&["cache", "resize", "v"]);
    assert_eq!(used(), 96 * MIB, "all of a device that has grown");
    user.ok(&["cache", "resize", "v", "24M"]);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let _daemon = user.serve("v");
    assert_eq!(used(), 24 * MIB, "it outlives the daemon");
    qemu_io(&user, &program, "read -P 0x11 0 1M");
    user.ok(&["cache", "detach", "v"]);
    for command in ["resize", "purge"] {
        assert_eq!(user.run(&["cache", command, "v"]).code, 4, "there is none");
    }
    user.ok(&["cache", "attach", "v", "ram:32M", "--set", "mode=write-through"]);
    assert_eq!(user.run(&["cache", "resize", "v"]).code, 2, "how large?");
    user.ok(&["cache", "resize", "v", "48M"]);
    assert_eq!(cache_of(&user).devices, ["ram:48M"]);
}

#[test]
fn what_cannot_be_a_cache_is_refused_and_the_volume_goes_on() {
    let user = User::new();
    create(&user);
    let _daemon = user.serve("v");
    let member = user.path("0.img").display().to_string();
    let cache = user.file("cache.img", 64 * MIB);
    assert_eq!(user.run(&["cache", "detach", "v"]).code, 4, "there is none");
    assert_eq!(user.run(&["cache", "scrub", "v"]).code, 4, "there is none");
    for (args, code) in [
        (vec!["cache", "attach", "v", "ram:32M"], 4),
        (vec!["cache", "attach", "v", &member], 4),
        (vec!["cache", "attach", "v", "nowhere.img"], 2),
        (vec!["cache", "attach", "v", &cache, "--set", "mode=fast"], 2),
    ] {
        let ended = user.run(&args);
        assert_eq!(ended.code, code, "{args:?}: {}", ended.err);
        assert!(user.status("v").cache.is_none(), "{args:?}");
    }
    user.ok(&["cache", "attach", "v", &cache]);
    assert_eq!(user.run(&["cache", "attach", "v", &cache]).code, 4, "there is one");
    let other = user.file("other.img", 64 * MIB);
    let ended = user.run(&["cache", "replace", "v", "ram:32M"]);
    assert_eq!((ended.code, user.live_cache("v").device), (4, cache));
    user.ok(&["cache", "replace", "v", &other]);
    user.ok(&["cache", "detach", "v"]);
}

#[test]
fn a_device_named_from_a_folder_is_found_from_every_other_one() {
    let user = User::new();
    create(&user);
    let daemon = user.serve("v");
    let cache = user.file("here.img", 64 * MIB);
    user.ok(&["cache", "attach", "v", "here.img"]);
    assert_eq!(cache_of(&user).devices, [cache]);
    let other = user.file("there.img", 64 * MIB);
    user.ok(&["cache", "replace", "v", "there.img"]);
    user.ok(&["cache", "replace", "v", "./there.img", "--line", "8K"]);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let text = std::fs::read_to_string(user.path("v.toml")).unwrap();
    assert!(text.contains(&format!("device = {other:?}")), "{text}");
    let _daemon = user.serve_in("/".as_ref(), &["serve", "v"]);
    assert_eq!(user.live_cache("v").device, other);
}

#[test]
fn a_replacement_that_cannot_be_leaves_the_old_cache_as_it_was() {
    let user = User::new();
    create(&user);
    let daemon = user.serve("v");
    let cache = user.file("cache.img", 64 * MIB);
    user.ok(&["cache", "attach", "v", &cache, "--set", "cleaning=nop", "--line", "8K"]);
    let before = cache_of(&user);
    let tiny = user.file("tiny.img", MIB);
    let other = user.file("other.img", 64 * MIB);
    let member = user.path("0.img").display().to_string();
    let lock = std::fs::File::open(&other).unwrap();
    lock.lock().unwrap();
    for (args, code) in [
        (vec![tiny.as_str()], 4),
        (vec![&*other], 1),
        (vec![&*member], 1),
        (vec![&*cache, "--size", "1G"], 1),
        (vec!["nowhere.img"], 2),
        (vec!["ram:1M", "--tier"], 4),
    ] {
        let ended = user.run(&[&["cache", "replace", "v"], &args[..]].concat());
        assert!([4, code].contains(&ended.code), "{args:?}: {} {}", ended.code, ended.err);
        assert_eq!(cache_of(&user), before, "{args:?}: {}", ended.err);
    }
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let _daemon = user.serve("v");
    assert_eq!(user.live_cache("v").line_bytes, 8192);
}

#[test]
fn a_cache_that_is_given_its_own_size_keeps_what_it_holds() {
    let Some(program) = headpond_testkit::tool("qemu-io") else {
        skip!("a_cache_that_is_given_its_own_size_keeps_what_it_holds", "no qemu-io");
    };
    let user = User::new();
    create(&user);
    let daemon = user.serve("v");
    let device = user.file("cache.img", 64 * MIB);
    user.ok(&["cache", "attach", "v", &device, "--set", "cleaning=nop"]);
    qemu_io(&user, &program, "write -P 0x11 0 1M");
    for size in [&[][..], &["64M"]] {
        let told = user.ok(&[&["cache", "resize", "v"], size].concat());
        assert!(told.contains("unchanged"), "{told}");
        assert_eq!(held(&user).1, MIB);
    }
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let _daemon = user.serve("v");
    std::fs::OpenOptions::new().write(true).open(&device).unwrap().set_len(96 * MIB).unwrap();
    assert!(user.ok(&["cache", "resize", "v", "64M"]).contains("unchanged"));
    assert!(user.ok(&["cache", "resize", "v"]).contains("new size"));
    assert_eq!((held(&user).1, user.live_cache("v").device_bytes), (0, 96 * MIB));
    qemu_io(&user, &program, "read -P 0x11 0 1M");
}

#[test]
fn dirty_data_is_dropped_where_that_is_asked_for_twice() {
    let Some(program) = headpond_testkit::tool("qemu-io") else {
        skip!("dirty_data_is_dropped_where_that_is_asked_for_twice", "no qemu-io");
    };
    let user = User::new();
    create(&user);
    let _daemon = user.serve("v");
    let device = user.file("cache.img", 64 * MIB);
    user.ok(&["cache", "attach", "v", &device, "--set", "cleaning=nop"]);
    qemu_io(&user, &program, "write -P 0x11 0 1M");
    user.ok(&["flush", "v"]);
    qemu_io(&user, &program, "write -P 0x22 512k 1M");
    let refused = user.run(&["cache", "purge", "v"]);
    assert!(refused.code == 4 && refused.err.contains("--force"), "{}", refused.err);
    let refused = user.run(&["cache", "purge", "v", "--force"]);
    assert_eq!(refused.code, 4);
    assert!(refused.err.contains("1048576 bytes") && refused.err.contains("--yes"));
    qemu_io(&user, &program, "read -P 0x22 512k 1M");
    user.ok(&["cache", "purge", "v", "--force", "--yes"]);
    assert_eq!(held(&user), (0, 0));
    assert_eq!(cache_of(&user).settings.cleaning.policy, CleaningPolicy::Nop);
    qemu_io(&user, &program, "read -P 0x11 0 1M");
    qemu_io(&user, &program, "read -P 0 1M 512k");
}

#[test]
fn a_client_that_verifies_sees_nothing_of_a_cache_that_comes_and_goes() {
    let Some(program) = headpond_testkit::tool("fio") else {
        skip!("a_client_that_verifies_sees_nothing_of_a_cache_that_comes_and_goes", "no fio");
    };
    let user = User::new();
    create(&user);
    let daemon = user.serve("v");
    let cache = user.file("cache.img", 48 * MIB);
    let args = [
        "--name=verify".to_owned(),
        "--ioengine=nbd".into(),
        format!("--uri={}", user.uri("v")),
        "--rw=randwrite".into(),
        "--bs=4k".into(),
        "--size=12M".into(),
        "--loops=2".into(),
        "--iodepth=16".into(),
        "--fsync=64".into(),
        "--verify=crc32c".into(),
        "--verify_state_save=0".into(),
        "--verify_fatal=1".into(),
    ];
    std::thread::scope(|scope| {
        let verifying = scope.spawn(|| client(&program, &args));
        let mut changes = 0;
        while !verifying.is_finished() || changes < 4 {
            user.ok(&["cache", "attach", "v", &cache]);
            std::thread::sleep(std::time::Duration::from_millis(100));
            user.ok(&["cache", "detach", "v", "--flush"]);
            changes += 1;
        }
        verifying.join().expect("every block reads back as it was written");
    });
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_refused_start_is_told_by_status_until_the_volume_is_served() {
    let user = User::new();
    create(&user);
    let daemon = user.serve("v");
    let cache = user.file("cache.img", 48 * MIB);
    user.ok(&["cache", "attach", "v", &cache]);
    // A stop would record that the cache has nothing.
    daemon.kill();
    user.take_away(&cache);
    assert_eq!(user.run(&["serve", "v"]).code, 4);
    let alert = &user.status("v").alerts[0];
    assert_eq!(alert.kind, AlertKind::StartRefused);
    assert!(alert.cause.contains("cache is missing"), "{alert}");
    let told = user.run(&["status", "v"]);
    assert_eq!(told.code, 5, "who only looks at the exit code is told too");
    let text = told.out;
    for part in
        ["alert     start_refused: ", "at risk: dirty data in that cache", "action: reconnect"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    user.bring_back(&cache);
    let daemon = user.serve("v");
    assert_eq!(user.status("v").alerts, []);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    assert_eq!(user.status("v").alerts, []);
}

/// Whoever takes the cache device of a stopped volume away knows what goes with it.
#[test]
fn status_of_a_stopped_volume_says_what_only_its_cache_holds() {
    let Some(program) = headpond_testkit::tool("qemu-io") else {
        skip!("status_of_a_stopped_volume_says_what_only_its_cache_holds", "no qemu-io");
    };
    let user = User::new();
    let mut args: Vec<String> = ["create", "v", "--raid", "5", "--zeroed"].map(Into::into).into();
    args.extend((0..3).map(|member| user.file(&format!("{member}.img"), 64 * MIB)));
    args.extend(["--cache".into(), user.file("cache.img", 48 * MIB)]);
    args.extend(["--set", "cleaning=nop"].map(Into::into));
    user.ok(&args);
    assert_eq!(cache_of(&user).dirty_bytes, Some(0));
    let text = || user.run(&["status", "v"]).out;
    assert!(text().contains("no dirty data"));
    let daemon = user.serve("v");
    qemu_io(&user, &program, "write -P 0x11 0 1M");
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    assert_eq!(cache_of(&user).dirty_bytes, Some(MIB));
    assert!(text().contains("warning   the cache holds 1 MiB of dirty data"), "{}", text());
    user.serve("v").kill();
    assert_eq!(cache_of(&user).dirty_bytes, None, "an unclean shutdown");
    assert!(text().contains("may hold dirty data"), "{}", text());
    let daemon = user.serve("v");
    user.ok(&["stop", "v", "--flush"]);
    assert_eq!(daemon.wait(), 0);
    assert_eq!(cache_of(&user).dirty_bytes, Some(0));
    assert!(user.status("v").warnings.is_empty());
}

/// A daemon that has much to read is not asked: it says how far it is in a file that it keeps
/// locked.
#[test]
fn status_tells_how_far_a_volume_is_that_is_being_loaded() {
    let user = User::new();
    create(&user);
    let path = user.path("v.loading.json");
    let told = r#"{"slice":0,"slices":1,"segments_read":30,"segments":120,"read_bytes":1073741824,
        "bytes":4294967296,"elapsed_s":2.0}"#;
    std::fs::write(&path, told).unwrap();
    assert!(user.run(&["status", "v"]).out.contains("start it with"), "what was left lying about");
    let daemon = std::fs::File::open(&path).unwrap();
    daemon.try_lock().unwrap();
    let text = user.ok(&["status", "v"]);
    assert!(text.contains("not served yet: loading, 1 GiB of 4 GiB, segment 30 of 120"), "{text}");
    assert!(text.contains("about 6 s left"), "{text}");
    let status = user.status("v");
    assert_eq!(status.state, ServiceState::Loading);
    assert_eq!(status.loading.unwrap().loading.progress.segments, 120);
    assert!(user.ok(&["status"]).contains("loading"));
}
