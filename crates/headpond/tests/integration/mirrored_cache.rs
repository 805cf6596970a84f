//! A cache on several devices that are copies of each other.

use crate::common::{User, client};
use headpond_raid::ArrayState;
use headpond_testkit::skip;
use headpond_volume::{Description, MirrorStatus};
use std::path::Path;

const MIB: u64 = 1 << 20;

/// A RAID 5 of three files behind a cache on two, in which nothing is cleaned.
fn create(user: &User) -> [String; 2] {
    let copies = ["a.img", "b.img"].map(|name| user.file(name, 64 * MIB));
    let mut args: Vec<String> = ["create", "v", "--raid", "5", "--zeroed"].map(Into::into).into();
    args.extend((0..3).map(|member| user.file(&format!("{member}.img"), 64 * MIB)));
    args.extend(["--cleaning", "nop", "--cache"].map(Into::into));
    args.extend([copies[0].clone(), "--cache".into(), copies[1].clone()]);
    user.ok(&args);
    copies
}

fn mirror_of(user: &User) -> MirrorStatus {
    user.live_cache("v").mirror.expect("it has copies")
}

/// One command of qemu-io.
fn qemu_io(user: &User, program: &Path, command: &str) {
    let args = ["-f", "raw", "-c", command, &user.uri("v")].map(str::to_owned);
    let out = client(program, &args);
    assert!(!out.contains("failed") && !out.contains("error"), "{command}: {out}");
}

/// Flips a bit in every block that is full of `byte`.
fn rot(device: &str, byte: u8) {
    let mut bytes = std::fs::read(device).unwrap();
    let pages = bytes.chunks_exact_mut(4096).filter(|page| page.iter().all(|it| *it == byte));
    assert_eq!(pages.map(|page| page[5] ^= 4).count(), 256, "a MiB");
    std::fs::write(device, bytes).unwrap();
}

fn listed(user: &User) -> Vec<String> {
    let text = std::fs::read_to_string(user.path("v.toml")).unwrap();
    let cache = Description::parse(&text).unwrap().cache.unwrap();
    cache.devices().map(str::to_owned).collect()
}

#[test]
fn dirty_data_outlives_what_rots_on_one_copy_and_then_the_loss_of_each() {
    let Some(program) = headpond_testkit::tool("qemu-io") else {
        skip!("dirty_data_outlives_what_rots_on_one_copy_and_then_the_loss_of_each", "no qemu-io");
    };
    let user = User::new();
    let [a, b] = create(&user);
    let daemon = user.serve("v");
    qemu_io(&user, &program, "write -P 0x11 0 1M");
    assert_eq!(mirror_of(&user).at_risk_bytes, 0);
    assert!(user.ok(&["status", "v"]).contains("2 of 2 copies in use, healthy"));
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    assert!(user.run(&["status", "v"]).out.contains(&format!("copies: {a}, {b}")));
    rot(&a, 0x11);
    let daemon = user.serve("v");
    (0..3).for_each(|_| qemu_io(&user, &program, "read -P 0x11 0 1M"));
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    std::fs::remove_file(&b).unwrap();
    let daemon = user.serve("v");
    qemu_io(&user, &program, "read -P 0x11 0 1M");
    let told = user.run(&["status", "v"]);
    assert_eq!(told.code, 3, "{}", told.out);
    assert!(told.out.contains("headpond array add-spare v DEVICE --cache"), "{}", told.out);
    assert_eq!(mirror_of(&user).at_risk_bytes, MIB);
    let c = user.file("c.img", 64 * MIB);
    let done = user.ok(&["array", "add-spare", "v", &c, "--cache", "--wait"]);
    assert!(done.contains("2 of 2 copies in use"), "{done}");
    assert_eq!(listed(&user), [a.clone(), c.clone()]);
    daemon.kill();
    std::fs::remove_file(&a).unwrap();
    let daemon = user.serve("v");
    qemu_io(&user, &program, "read -P 0x11 0 1M");
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let done = user.ok(&["destroy", "v", "--yes"]);
    assert!(done.contains("4 devices are free"), "{done}");
}

#[test]
fn a_copy_is_replaced_and_taken_back_and_the_cache_detached_while_the_volume_is_served() {
    let Some(program) = headpond_testkit::tool("qemu-io") else {
        skip!(
            "a_copy_is_replaced_and_taken_back_and_the_cache_detached_while_the_volume_is_served",
            "no qemu-io"
        );
    };
    let user = User::new();
    let [a, b] = create(&user);
    let daemon = user.serve("v");
    qemu_io(&user, &program, "write -P 0x11 0 1M");
    let c = user.file("c.img", 64 * MIB);
    let done = user.ok(&["array", "replace", "v", &a, "--with", &c, "--cache", "--wait"]);
    assert!(done.contains("is replaced and free"), "{done}");
    assert_eq!(listed(&user), [b.clone(), c.clone()]);
    user.ok(&["array", "fail", "v", &b, "--cache"]);
    qemu_io(&user, &program, "write -P 0x22 512k 1M");
    user.ok(&["array", "re-add", "v", &b, "--cache", "--wait"]);
    user.ok(&["array", "fail", "v", &c, "--cache"]);
    qemu_io(&user, &program, "read -P 0x22 512k 1M");
    qemu_io(&user, &program, "read -P 0x11 0 512k");
    for refused in ["scrub", "grow", "rate"] {
        let mut args = vec!["array", refused, "v", "--cache"];
        args.extend((refused == "grow").then_some(a.as_str()));
        let refused = user.run(&args);
        assert_eq!(refused.code, 4, "{}", refused.err);
        assert!(refused.err.contains("not possible with --cache"), "{}", refused.err);
    }
    user.ok(&["cache", "detach", "v", "--flush"]);
    qemu_io(&user, &program, "read -P 0x22 512k 1M");
    user.ok(&["cache", "attach", "v", &a, &b]);
    qemu_io(&user, &program, "write -P 0x33 0 1M");
    assert_eq!(listed(&user), [a.clone(), b.clone()]);
    user.ok(&["cache", "purge", "v", "--flush"]);
    qemu_io(&user, &program, "read -P 0x33 0 1M");
    assert!(user.ok(&["cache", "scrub", "v"]).contains("0 damaged"));
    let members = ["d.img", "e.img"].map(|name| user.file(name, 64 * MIB));
    user.ok(&["core", "add", "v", "logs", "--raid", "1", "--zeroed", &members[0], &members[1]]);
    assert_eq!(listed(&user), [a.clone(), b.clone()], "attached again behind the new core");
    qemu_io(&user, &program, "read -P 0x33 0 1M");
    let shared = user.run(&["cache", "replace", "v", &a]);
    assert!(shared.code == 4 && shared.err.contains("replaces a single copy"), "{}", shared.err);
    let twice = user.run(&["cache", "replace", "v", &c, &c]);
    assert!(twice.code != 0 && twice.err.contains("c.img"), "{}", twice.err);
    user.ok(&["cache", "replace", "v", &c, "--force"]);
    assert!(user.live_cache("v").mirror.is_none() && listed(&user) == [c]);
    qemu_io(&user, &program, "read -P 0x33 0 1M");
    user.ok(&["stop", "v", "--flush"]);
    assert_eq!(daemon.wait(), 0);
}

fn device_bytes(user: &User) -> u64 {
    user.live_cache("v").device_bytes
}

#[test]
fn a_cache_on_copies_is_resized_and_replaced_while_the_volume_is_served() {
    let name = "a_cache_on_copies_is_resized_and_replaced_while_the_volume_is_served";
    let Some(program) = headpond_testkit::tool("qemu-io") else { skip!(name, "no qemu-io") };
    let user = User::new();
    let [a, b] = create(&user);
    let daemon = user.serve("v");
    let write = |byte: &str| qemu_io(&user, &program, &format!("write -P {byte} 0 1M"));
    let read = |byte: &str| qemu_io(&user, &program, &format!("read -P {byte} 0 1M"));
    write("0x11");
    user.ok(&["cache", "resize", "v", "32M"]);
    assert_eq!(device_bytes(&user), 32 * MIB);
    read("0x11");
    user.ok(&["cache", "resize", "v"]);
    let all = device_bytes(&user);
    assert!((60 * MIB..64 * MIB).contains(&all), "{all}");
    assert!(user.ok(&["cache", "resize", "v"]).contains("unchanged"));
    write("0x22");
    for copy in [&a, &b] {
        std::fs::OpenOptions::new().write(true).open(copy).unwrap().set_len(96 * MIB).unwrap();
    }
    let refused = user.run(&["cache", "resize", "v", "96M"]);
    assert!(refused.code == 4 && refused.err.contains("fewer than the"), "{}", refused.err);
    user.ok(&["array", "fail", "v", &b, "--cache"]);
    let refused = user.run(&["cache", "resize", "v"]);
    assert!(refused.code == 4 && refused.err.contains("requires all copies"), "{}", refused.err);
    user.ok(&["array", "re-add", "v", &b, "--cache", "--wait"]);
    user.ok(&["cache", "resize", "v"]);
    assert_eq!(device_bytes(&user), all + 32 * MIB);
    read("0x22");
    write("0x33");
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    std::fs::remove_file(&a).unwrap();
    let daemon = user.serve("v");
    read("0x33");
    let away = user.run(&["array", "fail", "v", &a, "--cache"]);
    assert!(away.err.contains(&format!("re-add v {a} --cache")), "{}", away.err);
    let others = ["c.img", "d.img"].map(|name| user.file(name, 64 * MIB));
    user.ok(&["cache", "replace", "v", &others[0], &others[1], "--line", "64K"]);
    assert_eq!((listed(&user), device_bytes(&user)), (others.to_vec(), all));
    read("0x33");
    user.ok(&["cache", "replace", "v", &others[1], &others[0], "--line", "16K"]);
    assert!(user.ok(&["status", "v"]).contains("2 of 2 copies in use"));
    write("0x44");
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let daemon = user.serve("v");
    read("0x44");
    user.ok(&["stop", "v", "--flush"]);
    assert_eq!(daemon.wait(), 0);
}

/// The cache begins empty on the copies that there are, and what they were told stays.
#[test]
fn a_core_comes_and_goes_below_copies_one_of_which_is_lost_and_beside_their_spare() {
    let user = User::new();
    let [a, b] = create(&user);
    let daemon = user.serve("v");
    let c = user.file("c.img", 64 * MIB);
    user.ok(&["array", "pause", "v", "--cache"]);
    user.ok(&["array", "fail", "v", &b, "--cache"]);
    let members = ["d.img", "e.img"].map(|name| user.file(name, 64 * MIB));
    let add = ["core", "add", "v", "logs", "--raid", "1", "--zeroed", &members[0], &members[1]];
    user.ok(&add);
    assert_eq!(mirror_of(&user).array.state, ArrayState::Degraded);
    user.ok(&["array", "resume", "v", "--cache"]);
    user.ok(&["array", "re-add", "v", &b, "--cache", "--wait"]);
    user.ok(&["array", "add-spare", "v", &c, "--cache"]);
    user.ok(&["core", "remove", "v", "logs"]);
    assert_eq!(listed(&user), [a.clone(), b.clone(), c.clone()]);
    assert_eq!(mirror_of(&user).array.state, ArrayState::Optimal);
    assert_eq!(mirror_of(&user).array.spares.len(), 1);
    user.ok(&["destroy", "v-logs", "--yes"]);
    user.ok(&add);
    user.ok(&["stop", "v", "--flush"]);
    assert_eq!(daemon.wait(), 0);
    let daemon = user.serve("v");
    assert_eq!(mirror_of(&user).array.state, ArrayState::Optimal);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

/// What a core counted of the caches in front of it must not go with it: the copy that was lost
/// would have the newest cache.
#[test]
fn a_copy_that_was_lost_is_out_of_date_after_a_core_has_left() {
    let user = User::new();
    let [_, b] = create(&user);
    let daemon = user.serve("v");
    let members = ["d.img", "e.img"].map(|name| user.file(name, 64 * MIB));
    user.ok(&["core", "add", "v", "logs", "--raid", "1", "--zeroed", &members[0], &members[1]]);
    for _ in 0..6 {
        user.ok(&["cache", "purge", "v", "--flush"]);
    }
    user.ok(&["array", "pause", "v", "--cache"]);
    user.ok(&["array", "fail", "v", &b, "--cache"]);
    user.ok(&["core", "remove", "v", "logs"]);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let daemon = user.serve("v");
    assert_eq!(mirror_of(&user).array.state, ArrayState::Degraded);
    user.ok(&["array", "resume", "v", "--cache"]);
    let mirror: MirrorStatus = user.answer(&["array", "re-add", "v", &b, "--cache", "--wait"]);
    assert_eq!(mirror.array.state, ArrayState::Optimal);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_tier_of_several_devices_is_refused_as_a_tier() {
    let user = User::new();
    create(&user);
    let daemon = user.serve("v");
    let refused = user.run(&["cache", "attach", "v", "ram:16M", "ram:16M", "--tier"]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("a tier is one piece of memory"), "{}", refused.err);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn devices_that_cannot_be_copies_are_refused_before_anything_is_written() {
    let user = User::new();
    let [a, b] = create(&user);
    let members = (0..3).map(|member| user.file(&format!("n{member}.img"), 64 * MIB));
    let members: Vec<String> = members.collect();
    let mut args: Vec<String> = ["create", "w", "--raid", "5", "--zeroed"].map(Into::into).into();
    args.extend(members);
    let with = |caches: [&str; 2], force: &[&str]| {
        let caches = caches.into_iter().flat_map(|cache| ["--cache", cache]);
        let all = args.iter().map(String::as_str).chain(caches).chain(force.iter().copied());
        user.run(&all.collect::<Vec<_>>())
    };
    let fresh = user.file("fresh.img", 64 * MIB);
    let refused = with([&fresh, "ram:64M"], &["--force"]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("cannot be part of a cache mirror"), "{}", refused.err);
    let before = [&a, &b].map(|copy| std::fs::read(copy).unwrap());
    let refused = with([&fresh, &b], &[]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("b.img"), "{}", refused.err);
    assert!([&a, &b].map(|copy| std::fs::read(copy).unwrap()) == before);
    assert!(std::fs::read(&fresh).unwrap().iter().all(|byte| *byte == 0));
    let twice = with([&fresh, &fresh], &[]);
    assert_eq!(twice.code, 2, "{}", twice.err);
}
