//! Two daemons whose disks are the same files, and that no lock keeps apart, as on two hosts.

use crate::common::{Daemon, User};
use headpond_volume::{AlertKind, OwnerState};
use std::io::{BufRead, BufReader};
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// Two users of one volume, with a description each.
fn users() -> [User; 2] {
    let [left, right] = [User::new(), User::new()];
    let file = |name: &str, bytes: u64| format!("shared:{}", left.file(name, bytes));
    let mut args: Vec<String> = ["create", "v", "--raid", "1", "--zeroed"].map(Into::into).into();
    args.extend(["0.img", "1.img"].map(|name| file(name, 16 * MIB)));
    args.extend(["--cache".into(), file("cache.img", 16 * MIB)]);
    left.ok(&args);
    std::fs::copy(left.path("v.toml"), right.path("v.toml")).unwrap();
    [left, right]
}

fn signal(daemon: &Daemon, name: &str) {
    let sent = Command::new("kill").args([name, &daemon.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn a_volume_that_another_daemon_serves_is_refused_with_its_host_named() {
    let [left, right] = users();
    let daemon = left.serve("v");
    let refused = right.run(&["serve", "v"]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(
        refused.err.contains("watching its devices for a heartbeat of that host for 4 s"),
        "{}",
        refused.err
    );
    assert!(refused.err.contains("v is in use on"), "{}", refused.err);
    assert_eq!(left.status("v").owner.unwrap().state, OwnerState::Held);
    left.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let daemon = right.serve("v");
    assert!(!daemon.log().contains("watching"), "{}", daemon.log());
    right.ok(&["stop", "v"]);
}

#[test]
fn a_closed_terminal_does_not_end_a_daemon_that_is_still_opening_its_volume() {
    let [left, right] = users();
    let stalled = left.serve("v");
    signal(&stalled, "-STOP");
    // It watches for a heartbeat for four seconds.
    let mut opening = right.start(&["serve", "v"]);
    let mut told = BufReader::new(opening.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("watching its devices") {
        line.clear();
        assert!(told.read_line(&mut line).unwrap() > 0, "it has ended");
    }
    let sent = Command::new("kill").args(["-HUP", &opening.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let begun = Instant::now();
    let is_serving = || right.run(&["status", "v", "--json"]).out.contains("\"serving\"");
    while !is_serving() {
        assert!(opening.try_wait().unwrap().is_none(), "it has ended");
        assert!(begun.elapsed() < PATIENCE, "it is not served");
        std::thread::sleep(Duration::from_millis(20));
    }
    right.ok(&["stop", "v"]);
    assert!(opening.wait().unwrap().success());
}

#[test]
fn a_daemon_that_was_stopped_too_long_finds_its_successor_and_writes_nothing() {
    let [left, right] = users();
    let stalled = left.serve("v");
    signal(&stalled, "-STOP");
    let successor = right.serve("v");
    assert!(successor.log().contains("watching its devices"), "{}", successor.log());
    right.ok(&["stop", "v"]);
    assert_eq!(successor.wait(), 0);
    let contents =
        || ["0.img", "1.img", "cache.img"].map(|it| std::fs::read(left.path(it)).unwrap());
    let before = contents();
    signal(&stalled, "-CONT");
    let begun = Instant::now();
    let alerts = || left.status("v").alerts;
    while alerts().first().is_none_or(|first| first.kind != AlertKind::OwnershipLost) {
        assert!(begun.elapsed() < PATIENCE, "it goes on: {:?}", alerts());
        std::thread::sleep(Duration::from_millis(20));
    }
    left.ok(&["stop", "v"]);
    assert_eq!(stalled.wait(), 0);
    assert!(contents() == before, "the stalled daemon has written");
}
