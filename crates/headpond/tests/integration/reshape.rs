//! The array of a served volume that is given more members.

use crate::common::{User, client};
use headpond_testkit::skip;
use headpond_volume::Description;

const MIB: u64 = 1 << 20;

/// Every MiB of the volume has a pattern of its own.
fn each_mib(user: &User, qemu_io: &std::path::Path, command: &str) {
    let mut args: Vec<String> = ["-f", "raw"].map(Into::into).into();
    for mib in 0..100 {
        args.push("-c".into());
        args.push(format!("{command} -P {} {mib}M 1M", mib + 1));
    }
    args.push(user.uri("v"));
    let out = client(qemu_io, &args);
    assert!(!out.contains("failed") && !out.contains("error"), "{out}");
}

fn qemu(user: &User, qemu_io: &std::path::Path, command: &str) {
    let args = ["-f", "raw", "-c", command].map(Into::into).into_iter().chain([user.uri("v")]);
    let out = client(qemu_io, &args.collect::<Vec<String>>());
    assert!(!out.contains("failed") && !out.contains("error"), "{out}");
}

fn until_grown(user: &User) {
    for _ in 0..300 {
        if user.array("v").reshape.is_none() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("it still grows");
}

fn size_bytes(user: &User) -> u64 {
    user.status("v").size_bytes.unwrap()
}

#[test]
fn an_array_grows_across_a_kill_and_who_connects_afterwards_finds_a_larger_volume() {
    let Some(qemu_io) = headpond_testkit::tool("qemu-io") else {
        skip!(
            "an_array_grows_across_a_kill_and_who_connects_afterwards_finds_a_larger_volume",
            "no qemu-io"
        );
    };
    let user = User::new();
    let device = |name: &str| user.file(&format!("{name}.img"), 64 * MIB);
    let members = ["0", "1", "2"].map(device);
    let mut args = vec!["create", "v", "--raid", "5", "--zeroed"];
    args.extend(members.iter().map(String::as_str));
    user.ok(&args);
    let daemon = user.serve("v");
    let before = size_bytes(&user);
    each_mib(&user, &qemu_io, "write");
    user.ok(&["flush", "v"]);
    user.ok(&["array", "rate", "v", "--min", "1M", "--max", "8M"]);
    let (spare, new) = (device("spare"), device("new"));
    user.ok(&["array", "add-spare", "v", &spare]);
    let refused = user.run(&["array", "grow", "v", &new]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("has the hot spare"), "{}", refused.err);
    let told = user.ok(&["array", "grow", "v", &spare, &new]);
    assert!(told.contains("reshape from 3 members"), "{told}");
    let refused = user.run(&["array", "scrub", "v"]);
    assert_eq!(refused.code, 0, "it waits: {}", refused.err);
    each_mib(&user, &qemu_io, "read");
    daemon.kill();
    let text = std::fs::read_to_string(user.path("v.toml")).unwrap();
    let described = Description::parse(&text).unwrap();
    assert_eq!(described.core.members.len(), 5, "{text}");
    let daemon = user.serve("v");
    assert!(user.array("v").reshape.is_some(), "it goes on");
    each_mib(&user, &qemu_io, "read");
    each_mib(&user, &qemu_io, "write");
    user.ok(&["array", "rate", "v", "--min", "1G", "--no-max"]);
    until_grown(&user);
    each_mib(&user, &qemu_io, "read");
    assert_eq!(size_bytes(&user), 2 * before, "without a start");
    let end = format!("{}", 2 * before - MIB);
    qemu(&user, &qemu_io, &format!("write -P 201 {end} 1M"));
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let daemon = user.serve("v");
    assert_eq!(size_bytes(&user), 2 * before);
    assert_eq!(user.array("v").reshape, None);
    qemu(&user, &qemu_io, &format!("read -P 201 {end} 1M"));
    user.ok(&["array", "fail", "v", &new]);
    each_mib(&user, &qemu_io, "read");
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn an_array_grows_behind_a_cache_across_a_kill_and_the_cache_has_the_new_room_as_well() {
    let Some(qemu_io) = headpond_testkit::tool("qemu-io") else {
        skip!(
            "an_array_grows_behind_a_cache_across_a_kill_and_the_cache_has_the_new_room_as_well",
            "no qemu-io"
        );
    };
    let user = User::new();
    let device = |name: &str| user.file(&format!("{name}.img"), 64 * MIB);
    let members = ["0", "1", "2"].map(device);
    let cache = user.file("cache.img", 256 * MIB);
    let mut args = vec!["create", "v", "--raid", "5", "--zeroed", "--cache", &cache];
    args.extend(members.iter().map(String::as_str));
    user.ok(&args);
    let daemon = user.serve("v");
    user.ok(&["set", "v", "mode=write-back", "cleaning=nop"]);
    each_mib(&user, &qemu_io, "write");
    user.ok(&["array", "rate", "v", "--min", "1M", "--max", "8M"]);
    let dirty = || user.live_cache("v").dirty_bytes;
    assert!(dirty() > 50 * MIB);
    let before = size_bytes(&user);
    user.ok(&["array", "grow", "v", &device("new")]);
    assert!(dirty() > 50 * MIB, "it stays in the cache");
    each_mib(&user, &qemu_io, "read");
    daemon.kill();
    let daemon = user.serve("v");
    assert!(user.array("v").reshape.is_some() && user.status("v").live_cache().is_some());
    each_mib(&user, &qemu_io, "read");
    user.ok(&["array", "rate", "v", "--min", "1G", "--no-max"]);
    until_grown(&user);
    let after = size_bytes(&user);
    assert!(after > before + before / 3, "{after}");
    let end = format!("{}", after - MIB);
    qemu(&user, &qemu_io, &format!("write -P 201 {end} 1M"));
    daemon.kill();
    let daemon = user.serve("v");
    qemu(&user, &qemu_io, &format!("read -P 201 {end} 1M"));
    each_mib(&user, &qemu_io, "read");
    user.ok(&["cache", "detach", "v", "--flush"]);
    qemu(&user, &qemu_io, &format!("read -P 201 {end} 1M"));
    each_mib(&user, &qemu_io, "read");
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_mirror_gets_a_third_copy_and_gives_up_the_first_while_it_is_served() {
    let Some(qemu_io) = headpond_testkit::tool("qemu-io") else {
        skip!("a_mirror_gets_a_third_copy_and_gives_up_the_first_while_it_is_served", "no qemu-io");
    };
    let user = User::new();
    let device = |name: &str| user.file(&format!("{name}.img"), 128 * MIB);
    let [first, second, third] = ["0", "1", "2"].map(device);
    user.ok(&["create", "v", "--raid", "1", "--zeroed", &first, &second]);
    let daemon = user.serve("v");
    each_mib(&user, &qemu_io, "write");
    let refused = user.run(&["array", "drop-copy", "v", &first]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("fewer than two copies"), "{}", refused.err);
    let told = user.ok(&["array", "grow", "v", &third, "--wait"]);
    assert!(told.contains("RAID 1 of 3 members, healthy"), "{told}");
    for word in ["missing", "/dev/no-such-copy", "3c6ef372-fe94-882b-a739-80c0b9dbce88"] {
        let refused = user.run(&["array", "drop-copy", "v", word]);
        assert_eq!(refused.code, 2, "{word}: {}", refused.err);
        assert!(refused.err.contains("`status` lists"), "{word}: {}", refused.err);
    }
    let told = user.ok(&["array", "drop-copy", "v", &first]);
    assert!(told.contains("RAID 1 of 2 members, healthy"), "{told}");
    each_mib(&user, &qemu_io, "read");
    daemon.kill();
    let text = std::fs::read_to_string(user.path("v.toml")).unwrap();
    let described = Description::parse(&text).unwrap();
    assert_eq!(described.core.members, [second, third], "{text}");
    let daemon = user.serve("v");
    each_mib(&user, &qemu_io, "read");
    user.ok(&["create", "w", "--raid", "0", &first]);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}
