//! The configuration of the machine: what each key does, what counts more, and mistakes.

use crate::common::{CONFIG, User};
use headpond_api::outcome::Exit;
use headpond_cache::{CleaningPolicy, Mode};
use headpond_raid::ArrayState;
use serde_json::Value;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Far more than it should take.
const PATIENCE: Duration = Duration::from_secs(120);

fn create(user: &User, name: &str, more: &[&str]) {
    let devices = ["0", "1", "cache"].map(|it| user.file(&format!("{name}-{it}.img"), 32 * MIB));
    let [one, two, cache] = &devices;
    let args = ["create", name, "--raid", "1", "--zeroed", one, two, "--cache", cache];
    user.ok(&[&args, more].concat());
}

/// The value of a setting of a volume.
fn setting(user: &User, name: &str, key: &str) -> String {
    let shown = user.json(&["set", name, key, "--json"]);
    shown["settings"][0]["value"].as_str().unwrap().to_owned()
}

#[test]
fn check_config_says_where_each_value_comes_from_and_what_is_wrong() {
    let user = User::new();
    user.configure("wait-for-devices = 7\n[defaults]\nmode = \"write-through\"\n");
    let told = user.ok(&["check-config"]);
    let row = |key: &str| {
        let line = told.lines().find(|line| line.split_whitespace().next() == Some(key));
        line.unwrap_or_else(|| panic!("no row {key}: {told}")).to_owned()
    };
    assert!(row("wait-for-devices").contains(" 7 ") && row("wait-for-devices").contains("line 1"));
    assert!(row("group").contains("default"), "{told}");
    assert!(row("state-folder").contains("HEADPOND_STATE"), "{told}");
    assert!(row("defaults.mode").contains("line 3"), "{told}");
    let config = user.path(CONFIG).display().to_string();
    assert!(told.contains(&config), "{told}");
    let other = user.path("other").display().to_string();
    std::fs::write(&other, "\n  gruop = \"storage\"\ngroup = \"no-such-group\"\n").unwrap();
    let ended = user.run(&["check-config", &other]);
    assert_eq!(ended.code, Exit::Usage as i32, "{}", ended.out);
    assert!(ended.err.contains(&format!("error: {other}:2:3: there is no key")), "{}", ended.err);
    assert!(ended.err.contains(&format!("error: {other}:3:1: there is no group")), "{}", ended.err);
    let ended = user.run(&["check-config", &other, "--json"]);
    assert_eq!(ended.code, Exit::Usage as i32);
    let document: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(document["errors"][0]["line"], 2);
    assert_eq!(document["errors"][0]["column"], 3);
    assert_eq!(document["has_group"], false);
    let document = user.json(&["check-config", "--json"]);
    assert_eq!(document["errors"], Value::Array(vec![]));
    let keys = document["keys"].as_array().unwrap();
    let of = |name: &str| keys.iter().find(|key| key["key"] == name).unwrap();
    assert_eq!(
        (&of("wait-for-devices")["from"], &of("group")["from"]),
        (&"file".into(), &"default".into())
    );
    assert_eq!(of("run-folder")["from"], "environment");
    let ended = user.run(&["check-config", &user.path("none").display().to_string()]);
    assert_eq!(ended.code, Exit::Usage as i32, "{}", ended.out);
    assert!(ended.err.contains("cannot be read"), "{}", ended.err);
}

#[test]
fn a_mistake_keeps_volumes_from_being_made_or_served_and_from_nothing_else() {
    let user = User::new();
    create(&user, "v", &[]);
    let daemon = user.serve("v");
    user.configure("\ngruop = \"storage\"\n[defaults]\nmode = \"fast\"\n");
    let place = format!("{}:2:1: there is no key \"gruop\"", user.path(CONFIG).display());
    for args in [&["serve", "v"][..], &["create", "w", "--raid", "0", "no.img"], &["import", "v"]] {
        let ended = user.run(args);
        assert_eq!(ended.code, Exit::Usage as i32, "{args:?}: {}", ended.err);
        assert!(ended.err.contains(&format!("error: {place}")), "{args:?}: {}", ended.err);
        assert!(ended.err.contains("nearest: group"), "{}", ended.err);
        assert!(ended.err.contains("1 more"), "{}", ended.err);
    }
    for args in
        [&["status", "v"][..], &["status"], &["stats", "v"], &["flush", "v"], &["stop", "v"]]
    {
        let ended = user.run(args);
        assert_eq!(ended.code, 0, "{args:?}: {}", ended.err);
        let notes = ended.err.matches(&format!("note: {place}")).count();
        assert_eq!(notes, 1, "{args:?}: {}", ended.err);
    }
    assert_eq!(daemon.wait(), 0);
    user.configure("group = \"unclosed\n");
    let ended = user.run(&["serve", "v"]);
    assert_eq!(ended.code, Exit::Usage as i32);
    assert!(ended.err.contains(&format!("{}:1:", user.path(CONFIG).display())), "{}", ended.err);
}

#[test]
fn a_flag_counts_more_than_the_volume_and_the_volume_more_than_the_file() {
    let user = User::new();
    user.configure(
        "[defaults]\nmode = \"write-through\"\ncleaning.policy = \"alru\"\n\
         cleaning.alru.staleness-s = 60\nseq-cutoff = \"2M\"\ntier.eviction = \"lru\"\n\
         client-memory = \"64M\"\n",
    );
    create(&user, "v", &["--tier", "ram:32M"]);
    let of = |key: &str| setting(&user, "v", key);
    for (key, value) in [
        ("mode", "write-through"),
        ("cleaning", "alru"),
        ("cleaning.alru.staleness-s", "60"),
        ("seq-cutoff", "2M"),
        ("tier.eviction", "lru"),
        ("eviction", "s3-fifo"),
        ("client-memory", "64M"),
    ] {
        assert_eq!(of(key), value, "{key}: the file counts more than the program");
    }
    create(
        &user,
        "w",
        &["--mode", "write-back", "--seq-cutoff", "never", "--set", "client-memory=96M"],
    );
    for (key, value) in [
        ("mode", "write-back"),
        ("seq-cutoff", "never"),
        ("seq-cutoff.threshold", "2M"),
        ("client-memory", "96M"),
        ("cleaning.alru.staleness-s", "60"),
    ] {
        assert_eq!(setting(&user, "w", key), value, "{key}: a flag counts more than the file");
    }
    user.configure("[defaults]\nmode = \"write-around\"\nclient-memory = \"128M\"\n");
    let daemon = user.serve("v");
    let status = user.status("v");
    assert_eq!(status.cache.unwrap().settings.mode, Mode::WriteThrough, "the volume's own");
    assert_eq!(status.server.unwrap().memory_bytes_max, 64 * MIB);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_cache_that_is_attached_begins_with_the_defaults_of_the_file() {
    let user = User::new();
    user.configure(
        "[defaults]\nmode = \"write-through\"\ncleaning = \"acp\"\ntier.eviction = \"lru\"\n",
    );
    let devices = ["0", "1", "cache"].map(|it| user.file(&format!("{it}.img"), 32 * MIB));
    user.ok(&["create", "v", "--raid", "1", "--zeroed", &devices[0], &devices[1]]);
    let daemon = user.serve("v");
    user.ok(&["cache", "attach", "v", &devices[2], "--set", "cleaning=alru"]);
    user.ok(&["cache", "attach", "v", "ram:32M", "--tier"]);
    let settings = user.status("v").cache.unwrap().settings;
    assert_eq!(settings.mode, Mode::WriteThrough);
    assert_eq!(settings.cleaning.policy, CleaningPolicy::Alru, "a flag counts more");
    assert_eq!(setting(&user, "v", "tier.eviction"), "lru");
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_start_without_an_administrator_waits_as_long_as_the_file_says() {
    let user = User::new();
    for name in ["v", "w"] {
        let [one, two] = ["0", "1"].map(|it| user.file(&format!("{name}-{it}.img"), 32 * MIB));
        user.ok(&["create", name, "--raid", "1", "--zeroed", &one, &two]);
        user.take_away(&two);
    }
    let start_degraded = |name: &str, args: &[&str]| {
        let daemon = user.serve_with(&[&["serve", name, "--wait-for-devices"], args].concat());
        assert_eq!(user.array(name).state, ArrayState::Degraded, "{name}");
        user.ok(&["stop", name]);
        assert_eq!(daemon.wait(), 0);
    };
    user.configure("wait-for-devices = 86400\n");
    let mut waiting = user.start(&["serve", "v", "--wait-for-devices"]);
    let begun = Instant::now();
    while !user.run(&["status", "v", "--json"]).out.contains("devices_missing") {
        assert!(waiting.try_wait().unwrap().is_none() && begun.elapsed() < PATIENCE, "it waits");
    }
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    // The flag counts more: otherwise no test would see the end of it.
    start_degraded("v", &["0"]);
    user.configure("wait-for-devices = 0\n");
    start_degraded("w", &[]);
}

#[test]
fn the_log_of_a_daemon_is_as_the_file_says_unless_a_flag_says_otherwise() {
    let user = User::new();
    user.configure("log-format = \"json\"\nlog-level = \"debug\"\n");
    create(&user, "v", &[]);
    for (flags, is_json) in [(&[][..], true), (&["--log-format", "text"], false)] {
        let daemon = user.serve_with(&[&["serve", "v"], flags].concat());
        let begun = Instant::now();
        let first = loop {
            if let Some(line) = daemon.log().lines().find(|line| line.contains("is open")) {
                break line.to_owned();
            }
            assert!(begun.elapsed() < PATIENCE, "{}", daemon.log());
        };
        assert_eq!(serde_json::from_str::<Value>(&first).is_ok(), is_json, "{first}");
        user.ok(&["stop", "v"]);
        assert_eq!(daemon.wait(), 0);
    }
    user.configure("log-level = \"loud\"\n");
    let ended = user.run(&["serve", "v"]);
    assert_eq!(ended.code, Exit::Usage as i32);
    assert!(ended.err.contains("\"loud\" is not error, warn, info or debug"), "{}", ended.err);
}
