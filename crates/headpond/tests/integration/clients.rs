//! Clients that nobody here wrote: fio, nbdcopy, nbdinfo, qemu-io.

use crate::common::{Daemon, User, client};
use headpond_testkit::skip;
use std::io::Read;
use std::os::unix::net::UnixStream;

const MIB: u64 = 1 << 20;
/// What a server says first.
const GREETING_BYTES: usize = 18;

/// A RAID 5 of four files behind a small cache file, so that cleaning and reclaim take part.
fn serve(user: &User) -> Daemon {
    let mut args: Vec<String> = ["create", "v", "--raid", "5", "--zeroed"].map(Into::into).into();
    args.extend((0..4).map(|member| user.file(&format!("{member}.img"), 64 * MIB)));
    args.extend(["--cache".into(), user.file("cache.img", 48 * MIB)]);
    user.ok(&args);
    user.serve("v")
}

fn fio(user: &User, program: &std::path::Path, args: &[&str]) -> String {
    let mut all: Vec<String> = vec![
        "--name=verify".into(),
        "--ioengine=nbd".into(),
        format!("--uri={}", user.uri("v")),
        "--verify=crc32c".into(),
        "--verify_state_save=0".into(),
        "--verify_fatal=1".into(),
        "--thread".into(),
        "--group_reporting".into(),
    ];
    all.extend(args.iter().map(|arg| (*arg).to_owned()));
    client(program, &all)
}

#[test]
fn fio_verifies_random_and_sequential_writes_of_every_size_and_depth() {
    let Some(program) = headpond_testkit::tool("fio") else {
        skip!("fio_verifies_random_and_sequential_writes_of_every_size_and_depth", "no fio");
    };
    let user = User::new();
    user.configure("threads = 2\n");
    let daemon = serve(&user);
    fio(
        &user,
        &program,
        &[
            "--rw=randwrite",
            "--bsrange=512-1M",
            "--size=96M",
            "--blockalign=512",
            "--iodepth=16",
            "--serialize_overlap=1",
        ],
    );
    fio(&user, &program, &["--rw=write", "--bs=64k", "--size=64M", "--iodepth=1"]);
    fio(&user, &program, &["--rw=randwrite", "--bs=4k", "--size=48M", "--iodepth=64"]);
    fio(
        &user,
        &program,
        &[
            "--rw=randrw",
            "--bssplit=512/20:4k/50:64k/30",
            "--size=32M",
            "--iodepth=32",
            "--fsync=16",
        ],
    );
    fio(
        &user,
        &program,
        &[
            "--rw=randwrite",
            "--bs=4k",
            "--numjobs=4",
            "--size=8M",
            "--offset_increment=16M",
            "--iodepth=8",
        ],
    );
    let server = &user.json(&["status", "v", "--json"])["server"];
    assert!(server["threads"] == 2 && server["moves"].as_u64() > Some(0), "{server}");
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn nbdinfo_shows_what_is_offered() {
    let Some(program) = headpond_testkit::tool("nbdinfo") else {
        skip!("nbdinfo_shows_what_is_offered", "no nbdinfo");
    };
    let user = User::new();
    let _daemon = serve(&user);
    let text = client(&program, &["--json".into(), user.uri("v")]);
    let info: serde_json::Value = serde_json::from_str(&text).unwrap();
    let export = &info["exports"][0];
    for offer in ["can_flush", "can_fua", "can_trim", "can_zero", "can_cache", "can_multi_conn"] {
        assert_eq!(export[offer], true, "{offer}: {text}");
    }
    assert_eq!(export["block_size_minimum"], 512, "{text}");
    assert_eq!(info["structured"], true, "{text}");
}

#[test]
fn an_ext4_image_comes_back_byte_for_byte() {
    let tools = ["nbdcopy", "mkfs.ext4", "e2fsck"].map(headpond_testkit::tool);
    let [Some(nbdcopy), Some(mkfs), Some(fsck)] = tools else {
        skip!("an_ext4_image_comes_back_byte_for_byte", "nbdcopy or e2fsprogs are missing");
    };
    let user = User::new();
    let daemon = serve(&user);
    let image = user.file("ext4.img", 100 * MIB);
    client(&mkfs, &["-q".into(), "-F".into(), image.clone()]);
    client(&nbdcopy, &["--flush".into(), image.clone(), user.uri("v")]);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let _daemon = user.serve("v");
    let copy = user.path("copy.img");
    client(&nbdcopy, &[user.uri("v"), copy.display().to_string()]);
    let (wrote, read) = (std::fs::read(&image).unwrap(), std::fs::read(&copy).unwrap());
    assert!(wrote == read[..wrote.len()], "the image differs");
    std::fs::write(&copy, &read[..wrote.len()]).unwrap();
    client(&fsck, &["-f".into(), "-n".into(), copy.display().to_string()]);
}

#[test]
fn qemu_io_agrees_on_patterns_zeroes_discard_and_flush() {
    let Some(program) = headpond_testkit::tool("qemu-io") else {
        skip!("qemu_io_agrees_on_patterns_zeroes_discard_and_flush", "no qemu-io");
    };
    let user = User::new();
    let _daemon = serve(&user);
    let mut args = vec!["-f".to_owned(), "raw".to_owned()];
    for command in [
        "write -P 0xa5 0 1M",
        "write -f -P 0x5a 4k 512",
        "read -P 0xa5 0 4k",
        "read -P 0x5a 4k 512",
        "write -z 64k 128k",
        "read -P 0 64k 128k",
        "discard 256k 64k",
        "aio_write -P 0x11 1M 64k",
        "aio_write -P 0x22 2M 512",
        "aio_flush",
        "flush",
        "read -P 0x11 1M 64k",
        "read -P 0x22 2M 512",
        "read -P 0xa5 192k 64k",
    ] {
        args.extend(["-c".to_owned(), command.to_owned()]);
    }
    args.push(user.uri("v"));
    let out = client(&program, &args);
    assert!(!out.contains("failed") && !out.contains("error"), "{out}");
}

#[test]
fn what_clients_hold_together_is_set_at_create_and_live_and_status_shows_each_of_them() {
    let user = User::new();
    let member = user.file("member.img", 32 * MIB);
    user.ok(&["create", "v", "--raid", "0", "--set", "client-memory=128M", &member]);
    let daemon = user.serve("v");
    let mut half_open = UnixStream::connect(user.socket("v")).unwrap();
    half_open.read_exact(&mut [0; GREETING_BYTES]).unwrap();
    let status = user.status("v");
    let (client, server) = (&status.clients[0], status.server.unwrap());
    let peer = format!("unix peer, process {}", std::process::id());
    assert_eq!((&client.peer, &client.export), (&peer, &None));
    assert!(client.age_s >= client.idle_s, "{client:?}");
    assert_eq!((client.in_flight, client.in_flight_bytes), (0, 0));
    assert_eq!(server.memory_bytes_max, 128 * MIB);
    assert_eq!((server.accepted, server.refused), (1, 0));
    let shown = user.ok(&["status", "v"]);
    assert!(shown.contains("clients   1, with 0 B of 128 MiB in flight"), "{shown}");
    assert!(shown.contains(&format!("{peer}: (handshake), connected for ")), "{shown}");
    user.ok(&["set", "v", "client-memory=64M"]);
    let bytes_max = || user.status("v").server.unwrap().memory_bytes_max;
    assert_eq!(bytes_max(), 64 * MIB);
    let ended = user.run(&["set", "v", "client-memory=1M"]);
    let possible = "it is auto, or a size from 64M to 1T";
    assert!(ended.code == 2 && ended.err.contains(possible), "{}", ended.err);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let daemon = user.serve("v");
    assert_eq!(bytes_max(), 64 * MIB, "it outlives the daemon");
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}
