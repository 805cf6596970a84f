//! The command line as a user meets it: the main path, and the mistakes.

use crate::common;
use crate::common::User;
use headpond_cache::{CleaningPolicy, CutoffPolicy, Mode};
use headpond_raid::{DeadlineStatus, Level};
use headpond_testkit::skip;
use headpond_volume::{CacheSettings, ClassSetting};
use serde_json::json;
use std::process::Command;

const MIB: u64 = 1 << 20;

/// A RAID 6 of five files behind a cache file, write-back.
fn create(user: &User, name: &str) {
    let mut args: Vec<String> =
        ["create", name, "--raid", "6", "--strip", "64K"].map(Into::into).into();
    args.extend((0..5).map(|member| user.file(&format!("{name}-{member}.img"), 32 * MIB)));
    args.extend(["--cache".into(), user.file(&format!("{name}-cache.img"), 64 * MIB)]);
    args.push("--zeroed".into());
    user.ok(&args);
}

#[test]
fn a_volume_lives_from_create_to_destroy() {
    let user = User::new();
    create(&user, "hv0");
    let daemon = user.serve("hv0");
    let settings = || user.status("hv0").cache.unwrap().settings;
    assert_eq!(user.array("hv0").level, Level::Raid6);
    assert_eq!(settings().mode, Mode::WriteBack);
    assert_eq!(user.live_cache("hv0").replayed_blocks, 0);
    assert!(user.ok(&["status", "hv0"]).contains("RAID 6"));
    let listed = user.ok(&["status"]);
    let row = listed.lines().last().unwrap().split_whitespace().collect::<Vec<_>>();
    let shown =
        ["hv0", "serving", "93", "MiB", "RAID", "6", "healthy", "write-back", "0", "B", "0"];
    assert_eq!(row, shown, "{listed}");
    assert!(user.ok(&["stats", "hv0"]).contains("hits"));
    for change in ["mode=fast", "colour=red", "cleaning.speed=9"] {
        let ended = user.run(&["set", "hv0", "mode=pass-through", change]);
        assert_eq!(ended.code, 2, "{change}: {}", ended.err);
    }
    user.ok(&["set", "hv0", "mode=write-around", "--flush"]);
    let shown = user.json(&["set", "hv0", "--json"]);
    let shown = shown["settings"].as_array().unwrap();
    let mode = shown.iter().find(|setting| setting["key"] == "mode").unwrap();
    assert_eq!((&mode["value"], &mode["default"]), (&json!("write-around"), &json!("write-back")));
    assert!(user.ok(&["set", "hv0"]).contains("write-around *"), "what differs is marked");
    user.ok(&["set", "hv0", "preset=lustre"]);
    let classes = settings().classes;
    assert_eq!(classes, ClassSetting::Lustre, "one name sets the cleaner and the classes");
    assert!(user.ok(&["set", "hv0"]).contains("lustre *"));
    user.ok(&["set", "hv0", "classes=none"]);
    user.ok(&["set", "hv0", "mode=write-through", "cleaning=nop", "seq-cutoff=1M"]);
    user.ok(&["flush", "hv0"]);
    user.ok(&["stop", "hv0"]);
    assert_eq!(daemon.wait(), 0);
    let daemon = user.serve("hv0");
    let CacheSettings { mode, cleaning, seq_cutoff, .. } = settings();
    assert_eq!(mode, Mode::WriteThrough, "settings outlive the daemon");
    assert_eq!(cleaning.policy, CleaningPolicy::Nop);
    assert_eq!((seq_cutoff.policy, seq_cutoff.threshold.0), (CutoffPolicy::Always, MIB));
    user.ok(&["stop", "hv0", "--flush"]);
    assert_eq!(daemon.wait(), 0);
    assert_eq!(user.run(&["destroy", "hv0"]).code, 4, "destroy wants --yes");
    user.ok(&["destroy", "hv0", "--yes"]);
    assert_eq!(user.run(&["status", "hv0"]).code, 2);
    create(&user, "hv0");
}

#[test]
fn members_that_are_said_to_be_zeros_are_looked_at_and_assumed_ones_come_with_a_warning() {
    let user = User::new();
    let members: Vec<String> = (0..3).map(|at| user.file(&format!("{at}.img"), 32 * MIB)).collect();
    let file = std::fs::File::options().write(true).open(&members[1]).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"x", 32 * MIB - 5).unwrap();
    let create = |how: &[&str]| {
        let mut args: Vec<String> = ["create", "hv0", "--raid", "5"].map(String::from).into();
        args.extend(how.iter().map(|how| how.to_string()));
        args.extend(members.iter().cloned());
        args
    };
    let refused = user.run(&create(&["--zeroed"]));
    let told = format!("1.img: does not read as zeros at byte {}", 32 * MIB - 5);
    assert!(refused.code == 4 && refused.err.contains(&told), "{}", refused.err);
    assert_eq!(user.run(&create(&["--zeroed", "--assume-clean"])).code, 2);
    let warned = user.ok(&create(&["--assume-clean"]));
    assert!(warned.contains("its parity or copies are not verified"), "{warned}");
    let daemon = user.serve("hv0");
    let array = user.array("hv0");
    assert_eq!((array.parity_initialised, array.progress.initialising), (true, None));
    user.ok(&["stop", "hv0"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn groups_that_nobody_names_are_mirrors_of_two_and_two_groups_of_parity() {
    let user = User::new();
    let shape = |level: &str, members: usize| {
        let mut args: Vec<String> =
            ["create", level, "--zeroed", "--raid", level].map(String::from).into();
        args.extend((0..members).map(|at| user.file(&format!("{level}-{at}.img"), 16 * MIB)));
        user.ok(&args);
        let daemon = user.serve(level);
        let array = user.array(level);
        user.ok(&["stop", level]);
        assert_eq!(daemon.wait(), 0);
        (array.groups, array.size_bytes / (15 * MIB))
    };
    assert_eq!(shape("10", 4), (2, 2));
    assert_eq!(shape("50", 6), (2, 4));
    assert_eq!(shape("60", 8), (2, 4));
}

#[test]
fn how_long_members_are_waited_for_is_set_at_create_and_live_and_shown() {
    let user = User::new();
    let members: Vec<String> = (0..2).map(|at| user.file(&format!("{at}.img"), 32 * MIB)).collect();
    let create = |change| {
        ["create", "hv0", "--raid", "1", "--set", change, &members[0], &members[1]]
            .map(String::from)
    };
    let refused = user.run(&create("mode=write-through"));
    assert!(refused.code == 2 && refused.err.contains("needs a cache"), "{}", refused.err);
    user.ok(&create("member-read-timeout-ms=500"));
    let daemon = user.serve("hv0");
    let deadlines = || user.array("hv0").deadlines.unwrap();
    let of = |timeout_ms, timeouts_max| DeadlineStatus {
        read_timeout_ms: Some(500),
        timeout_ms: Some(timeout_ms),
        timeouts_max,
    };
    assert_eq!(deadlines(), of(30_000, Some(8)));
    user.ok(&["set", "hv0", "member-timeout-ms=10000", "member-timeouts-max=off"]);
    assert_eq!(deadlines(), of(10_000, None));
    let line = "reads are reconstructed after 0.5 s at most; a member is failed after 10 s without";
    assert!(user.ok(&["status", "hv0"]).contains(line));
    let ended = user.run(&["set", "hv0", "member-read-timeout-ms=1"]);
    assert!(ended.code == 2 && ended.err.contains("it is off, or 100 to 600000"), "{}", ended.err);
    user.ok(&["stop", "hv0"]);
    assert_eq!(daemon.wait(), 0);
    let daemon = user.serve("hv0");
    assert_eq!(deadlines(), of(10_000, None), "settings outlive the daemon");
    user.ok(&["stop", "hv0"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn members_that_differ_hold_as_much_as_their_weights_say() {
    let user = User::new();
    let members =
        [("a", 49), ("b", 17)].map(|(name, size)| user.file(&format!("{name}.img"), size * MIB));
    let create = |name: &str, how: &[&str]| {
        let args = ["create", name, "--raid", "0", "--force", &members[0], &members[1]];
        user.run(&[&args[..], how].concat())
    };
    let plain = create("plain", &[]);
    let note = "a plain stripe uses as much of each member as the smallest has: 32 MiB; --striping \
                capacity would use 64 MiB (weights 3:1)";
    assert!(plain.code == 0 && plain.out.contains(note), "{}{}", plain.out, plain.err);
    let few = create("few", &["--weights", "3,1,1"]);
    assert!(few.code == 2 && few.err.contains("3 weights for 2 members"), "{}", few.err);
    let speed = create("fast", &["--striping", "speed"]);
    assert!(speed.code == 0 && speed.out.contains(" MB/s"), "{}{}", speed.out, speed.err);
    let all = create("hv0", &["--striping", "capacity"]);
    let told = "striped by weights 3:1 (capacity): 64 MiB; a plain stripe would have 32 MiB";
    assert!(all.code == 0 && all.out.contains(told), "{}{}", all.out, all.err);
    let daemon = user.serve("hv0");
    let array = user.array("hv0");
    assert_eq!(array.size_bytes, 64 * MIB);
    assert_eq!(array.weights.unwrap().to_string(), "3:1");
    assert_eq!(array.members[0].data_bytes, 48 * MIB);
    assert!(user.ok(&["status", "hv0"]).contains("RAID 0 of 2 members striped by weights 3:1"));
    user.ok(&["stop", "hv0"]);
    assert_eq!(daemon.wait(), 0);
    let parity = user.run(&["create", "x", "--raid", "1", "--weights", "3,1", "a", "b"]);
    assert!(parity.code == 2 && parity.err.contains("are for level 0"), "{}", parity.err);
}

#[test]
fn a_volume_without_a_cache_works_too() {
    let user = User::new();
    let members: Vec<String> = (0..2).map(|at| user.file(&format!("{at}.img"), 16 * MIB)).collect();
    user.ok(&["create", "plain", "--raid", "0", &members[0], &members[1]]);
    let daemon = user.serve("plain");
    assert!(user.status("plain").cache.is_none());
    assert_eq!(user.run(&["set", "plain", "mode=write-back"]).code, 4);
    user.ok(&["stop", "plain"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn usage_errors_exit_with_2() {
    let user = User::new();
    for args in [
        vec!["create"],
        vec!["create", "x", "--raid", "7", "a"],
        vec!["create", "x", "--raid", "5", "--strip", "64Q", "a", "b", "c"],
        vec!["create", "../x", "--raid", "0", "a"],
        vec!["set", "x", "mode"],
        vec!["fly"],
    ] {
        let ended = user.run(&args);
        assert_eq!(ended.code, 2, "{args:?}: {}{}", ended.out, ended.err);
    }
}

#[test]
fn mistakes_are_errors_that_name_the_thing_and_the_way_out() {
    let user = User::new();
    let ended = user.run(&["status", "nobody"]);
    assert_eq!(ended.code, 2);
    assert!(ended.err.contains("no volume nobody") && ended.err.contains("headpond create"));
    create(&user, "hv0");
    let ended = user.run(&["stats", "hv0"]);
    assert!(ended.err.contains("headpond serve hv0"), "{}", ended.err);
    let ended = user.run(&["create", "other", "--raid", "0", "/does/not/exist"]);
    assert_eq!(ended.code, 2);
    assert!(ended.err.contains("/does/not/exist"), "{}", ended.err);
    let small = user.file("small.img", 4096);
    let ended = user.run(&["create", "tiny", "--raid", "0", &small]);
    assert_eq!(ended.code, 1);
    assert!(ended.err.contains("small.img"), "{}", ended.err);
}

#[test]
fn what_could_lose_data_is_refused_and_changes_nothing() {
    let user = User::new();
    create(&user, "hv0");
    let member = user.path("hv0-0.img").display().to_string();
    let before = std::fs::read(&member).unwrap();
    let fresh = user.file("fresh.img", 32 * MIB);
    let refuse = |args: &[&str], part: &str| {
        let ended = user.run(args);
        assert_eq!(ended.code, 4, "{args:?}: {}{}", ended.out, ended.err);
        assert!(ended.err.contains(part), "{args:?}: {}", ended.err);
    };
    refuse(&["create", "thief", "--raid", "1", &member, &fresh], "hv0");
    refuse(&["create", "hv0", "--raid", "0", &fresh], "already");
    refuse(&["create", "ram", "--raid", "0", &fresh, "--cache", "ram:64M"], "is volatile");
    let daemon = user.serve("hv0");
    refuse(&["destroy", "hv0", "--yes"], "headpond stop hv0");
    refuse(&["serve", "hv0"], "hv0 is being served already");
    user.ok(&["stop", "hv0"]);
    assert_eq!(daemon.wait(), 0);
    assert_eq!(user.status("hv0").alerts, [], "a second daemon leaves none");
    assert_eq!(std::fs::read(&fresh).unwrap(), vec![0; 32 << 20], "nothing was written");
    assert_eq!(before[..8], std::fs::read(&member).unwrap()[..8]);
}

#[test]
fn devices_that_all_are_in_use_are_named_with_the_reason() {
    let user = User::new();
    create(&user, "hv0");
    let locks: Vec<_> = (0..5)
        .map(|member| {
            let lock = std::fs::File::open(user.path(&format!("hv0-{member}.img"))).unwrap();
            lock.lock().unwrap();
            lock
        })
        .collect();
    let ended = user.run(&["serve", "hv0"]);
    assert_eq!(ended.code, 4, "{}", ended.err);
    assert!(ended.err.contains("hv0-3.img") && ended.err.contains("in use"), "{}", ended.err);
    drop(locks);
    assert_eq!(user.serve("hv0").log().matches("error").count(), 0);
}

#[test]
fn a_cache_that_is_too_small_leaves_no_array_behind() {
    let user = User::new();
    let mut devices: Vec<String> =
        (0..3).map(|member| user.file(&format!("{member}.img"), 32 * MIB)).collect();
    devices.push(user.file("tiny.img", MIB));
    devices.push(user.file("cache.img", 64 * MIB));
    let before: Vec<_> = devices.iter().map(|device| std::fs::read(device).unwrap()).collect();
    let with = |more: &[&str]| {
        let plain = ["create", "v", "--raid", "5", &devices[0], &devices[1], &devices[2]];
        user.run(&[&plain, more].concat())
    };
    for (more, cause) in [
        (&["--cache", &devices[3]][..], "too small for a cache"),
        (&["--cache", &devices[4], "--cache-size", "1G"], "fewer than the 1073741824 requested"),
        (&["--cache", &devices[4], "--slices", "16"], "too small for a cache"),
    ] {
        let ended = with(more);
        assert_eq!(ended.code, 1, "{more:?}: {}", ended.err);
        assert!(ended.err.contains(cause), "{more:?}: {}", ended.err);
        let after = devices.iter().map(|device| std::fs::read(device).unwrap());
        assert!(after.eq(before.iter().cloned()), "{more:?} has written");
    }
    assert_eq!(with(&["--cache", &devices[4]]).code, 0);
}

#[test]
fn a_file_system_is_refused() {
    let Some(mkfs) = headpond_testkit::tool("mkfs.ext4") else {
        skip!("a_file_system_is_refused", "mkfs.ext4 is not installed");
    };
    let user = User::new();
    let image = user.file("fs.img", 32 * MIB);
    assert!(Command::new(mkfs).args(["-q", "-F", &image]).status().unwrap().success());
    let before = std::fs::read(&image).unwrap();
    let ended = user.run(&["create", "fs", "--raid", "0", &image]);
    assert_eq!(ended.code, 4);
    assert!(ended.err.contains("ext") && ended.err.contains("(or --force)"), "{}", ended.err);
    assert_eq!(std::fs::read(&image).unwrap(), before, "nothing was changed");
    user.ok(&["create", "fs", "--raid", "0", &image, "--force"]);
}

#[test]
fn another_volumes_cache_is_left_alone_and_missing_members_are_refused() {
    let user = User::new();
    create(&user, "one");
    create(&user, "two");
    let swap = |from: &str, to: &str| {
        let path = user.path("one.toml");
        let text = std::fs::read_to_string(&path).unwrap().replace(from, to);
        std::fs::write(path, text).unwrap();
    };
    swap("one-cache.img", "two-cache.img");
    let daemon = user.serve("one");
    assert!(user.live_cache("one").device.ends_with("one-cache.img"), "a name is a hint");
    user.ok(&["stop", "one"]);
    assert_eq!(daemon.wait(), 0);
    std::fs::rename(user.path("one-cache.img"), user.path("hidden")).unwrap();
    user.file("one-cache.img", 64 * MIB);
    let daemon = user.serve("one");
    assert!(user.live_cache("one").device.ends_with("hidden"));
    user.ok(&["stop", "one"]);
    assert_eq!(daemon.wait(), 0);
    for member in 0..3 {
        std::fs::remove_file(user.path(&format!("one-{member}.img"))).unwrap();
    }
    let ended = user.run(&["serve", "one"]);
    assert_eq!(ended.code, 4, "{}", ended.err);
    assert!(ended.err.contains("missing"), "{}", ended.err);
}

#[test]
fn a_degraded_volume_is_served_and_says_so_with_exit_code_3() {
    let user = User::new();
    create(&user, "hv0");
    std::fs::remove_file(user.path("hv0-1.img")).unwrap();
    let daemon = user.serve("hv0");
    let ended = user.run(&["status", "hv0"]);
    assert_eq!(ended.code, 3, "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("degraded"));
    user.ok(&["stop", "hv0"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn tcp_for_everybody_wants_consent() {
    let user = User::new();
    let image = user.file("a.img", 16 * MIB);
    let create = ["create", "open", "--raid", "0", &image, "--export", "tcp:0.0.0.0:0"];
    let ended = user.run(&create);
    assert_eq!(ended.code, 4, "{}", ended.err);
    assert!(ended.err.contains("--insecure"), "{}", ended.err);
    user.ok(&[&create[..], &["--insecure"]].concat());
    // A description that somebody has changed is asked the same.
    let description = user.path("open.toml");
    let text = std::fs::read_to_string(&description).unwrap();
    std::fs::write(&description, text.replace("insecure = true", "insecure = false")).unwrap();
    let ended = user.run(&["serve", "open"]);
    assert_eq!(ended.code, 4, "{}", ended.err);
    assert!(ended.err.contains("--insecure"), "{}", ended.err);
}

#[test]
fn a_described_machine_is_simulated_and_a_wrong_one_is_named() {
    let user = User::new();
    let stack = user.path("small.toml");
    let text = "name = \"small\"\n[core]\nraid = 5\ndrive = \"hdd-7k2-4t\"\ndrives = 4\n";
    std::fs::write(&stack, text).unwrap();
    let stack = stack.to_str().unwrap();
    let load = ["--rw", "randread", "--iodepth", "4", "--runtime", "10"];
    let table = user.ok(&[&["simulate", stack], &load[..]].concat());
    assert!(table.contains("p99.99") && table.contains("operations on drives"), "{table}");
    let json = user.json(&[&["simulate", stack, "--json"], &load[..]].concat());
    let iops = json[0]["jobs"][0]["measured"]["read"]["iops"].as_f64().unwrap();
    assert!((100.0..1000.0).contains(&iops), "{iops}");
    let refused = user.run(&["simulate", stack]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    std::fs::write(stack, text.replace("hdd-7k2-4t", "floppy")).unwrap();
    let wrong = user.run(&[&["simulate", stack], &load[..]].concat());
    assert_eq!(wrong.code, 1);
    assert!(wrong.err.contains("small.toml") && wrong.err.contains("floppy"), "{}", wrong.err);
}

#[test]
fn stacks_are_compared_in_a_table_in_pictures_and_on_a_page() {
    let user = User::new();
    let (plain, cached) = (user.path("plain.toml"), user.path("cached.toml"));
    let page = user.path("page.html");
    let core = "[core]\nraid = 5\ndrive = \"hdd-7k2-4t\"\ndrives = 4\n";
    std::fs::write(&plain, format!("name = \"plain\"\n{core}")).unwrap();
    let text =
        format!("name = \"<cached>\"\nengine = \"opencas-22.06\"\n{core}[cache]\nsize = \"64M\"\n");
    std::fs::write(&cached, text).unwrap();
    let load = ["--rw", "randwrite", "--ramp-time", "0", "--runtime", "2", "--html"];
    let stacks = ["simulate", plain.to_str().unwrap(), cached.to_str().unwrap()];
    let text = user.ok(&[&stacks[..], &load[..], &[page.to_str().unwrap()]].concat());
    let line = |start: &str| {
        let found = text.lines().find(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("{start} in {text}")).to_owned()
    };
    assert!(line("write IOPS").ends_with("<cached>"), "{text}");
    let bars = |line: String| line.chars().filter(|c| ('▁'..='█').contains(c)).collect::<Vec<_>>();
    let dirty = bars(line("<cached>  dirty"));
    assert!(dirty[0] < '█' && dirty.ends_with(&['█']), "it fills: {text}");
    assert!(line("<cached>  core (opencas-22.06)").contains('%'), "{text}");
    assert!(line("plain     4 drives").contains('%'), "{text}");
    let drives = bars(line("<cached>  drive by drive"));
    assert!(drives.len() == 4 && drives.iter().all(|bar| *bar > '▅'), "all are busy: {text}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("&lt;cached&gt;") && !page.contains("<cached>"), "escaped");
    assert!(page.matches("<svg").count() == 2 && page.contains("<td class=\"good2\""));
    assert!(!page.contains("src=") && !page.contains("@import"), "needs nothing else");
}

#[test]
fn a_recording_is_played_against_a_described_machine() {
    let user = User::new();
    let (stack, trace) = (user.path("small.toml"), user.path("reads.log"));
    let text = "name = \"small\"\n[core]\nraid = 5\ndrive = \"hdd-7k2-4t\"\ndrives = 4\n";
    std::fs::write(&stack, text).unwrap();
    let lines = (0..200).map(|at| format!("{} /dev/a read {} 4096\n", at * 50_000, at * 999_424));
    let log = format!("fio version 3 iolog\n{}", lines.collect::<String>());
    std::fs::write(&trace, log).unwrap();
    let (stack, trace) = (stack.to_str().unwrap(), trace.to_str().unwrap());
    let load = ["simulate", stack, "--trace", trace];
    let json = user.json(&[&load[..], &["--speed", "2", "--json"]].concat());
    let read = &json[0]["jobs"][0]["measured"]["read"];
    assert_eq!(read["requests"], 200);
    assert!((39.0..42.0).contains(&read["iops"].as_f64().unwrap()), "{read}");
    assert_eq!(json[0]["replay"]["format"], "fio-iolog");
    let table = user.ok(&[&load[..], &["--as-fast-as-possible", "--fit", "refuse"]].concat());
    assert!(table.contains("reads.log"), "{table}");
    let refused = user.run(&["simulate", stack, "--trace", "-"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_program_quietly() {
    let Some(trace) = headpond_testkit::shared("traces/headpond-vm/vda.bin") else {
        skip!("a_reader_that_has_seen_enough_ends_the_program_quietly", "no sample traces");
    };
    let script = format!("{} advise {} --json | head -1", common::PROGRAM, trace.display());
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    // What takes long says how far it is.
    assert!(told.lines().all(|line| line.starts_with("simulating: ")), "{told}");
}

#[test]
fn what_a_command_changes_it_changes_though_nobody_reads_of_it() {
    let user = User::new();
    let member = user.file("m.img", 64 << 20);
    let ended = user.run_unread(&["create", "hv0", "--raid", "0", &member]);
    assert!(ended.code == 0 && !ended.err.contains("panicked"), "{}", ended.err);
    let daemon = user.serve("hv0");
    let ended = user.run_unread(&["set", "hv0", "merge-wait-us=off"]);
    assert!(ended.code == 0 && !ended.err.contains("panicked"), "{}", ended.err);
    let settings = user.ok(&["set", "hv0"]);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let ended = user.run_into(full, &["set", "hv0"]);
    assert!(ended.code == 1 && ended.err.contains("cannot write to the standard output"));
    let is_set = |line: &str| line.contains("merge-wait-us") && line.contains("off");
    assert!(settings.lines().any(is_set), "{settings}");
    drop(daemon);
}
