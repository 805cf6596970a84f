//! The array of a served volume that is given more members.

mod common;

use common::{User, client};
use headpond_testkit::skip;
use headpond_volume::Description;
use serde_json::Value;

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

fn status(user: &User) -> Value {
    user.json(&["status", "v", "--json"])
}

#[test]
fn an_array_grows_across_a_kill_and_the_volume_is_larger_after_the_next_start() {
    let Some(qemu_io) = headpond_testkit::tool("qemu-io") else {
        skip!(
            "an_array_grows_across_a_kill_and_the_volume_is_larger_after_the_next_start",
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
    let before = status(&user)["size_bytes"].as_u64().unwrap();
    each_mib(&user, &qemu_io, "write");
    user.ok(&["flush", "v"]);
    user.ok(&["array", "pace", "v", "--floor", "1M", "--ceiling", "8M"]);
    let (spare, new) = (device("spare"), device("new"));
    user.ok(&["array", "add-spare", "v", &spare]);
    let refused = user.run(&["array", "grow", "v", &new]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("has the spare"), "{}", refused.err);
    let told = user.ok(&["array", "grow", "v", &spare, &new]);
    assert!(told.contains("growing from 3 members"), "{told}");
    let refused = user.run(&["array", "scrub", "v"]);
    assert_eq!(refused.code, 0, "it waits: {}", refused.err);
    each_mib(&user, &qemu_io, "read");
    daemon.kill();
    let text = std::fs::read_to_string(user.path("v.toml")).unwrap();
    let described = Description::parse(&text).unwrap();
    assert_eq!(described.core.members.len(), 5, "{text}");
    let daemon = user.serve("v");
    assert!(!status(&user)["array"]["growth"].is_null(), "it goes on");
    each_mib(&user, &qemu_io, "read");
    each_mib(&user, &qemu_io, "write");
    user.ok(&["array", "pace", "v", "--floor", "1G", "--no-ceiling"]);
    for _ in 0..300 {
        if status(&user)["array"]["growth"].is_null() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    each_mib(&user, &qemu_io, "read");
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let daemon = user.serve("v");
    assert_eq!(status(&user)["size_bytes"].as_u64().unwrap(), 2 * before);
    assert_eq!(status(&user)["array"]["growth"], Value::Null);
    user.ok(&["array", "fail", "v", &new]);
    each_mib(&user, &qemu_io, "read");
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}
