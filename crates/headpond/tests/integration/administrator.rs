//! What an administrator relies on: exit codes, alerts without a daemon, the list of volumes,
//! settings and exports of a stopped volume, and text that fits.

use crate::common::{Daemon, Ended, User, parse};
use headpond_api::answers::{ServiceState, Status};
use headpond_api::outcome::Exit;
use headpond_volume::AlertKind;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::Child;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Ten times what it should take.
const PATIENCE: Duration = Duration::from_secs(60);

fn create(user: &User, name: &str) -> [String; 3] {
    let devices = ["0", "1", "cache"].map(|it| user.file(&format!("{name}-{it}.img"), 32 * MIB));
    let [one, two, cache] = &devices;
    user.ok(&["create", name, "--raid", "1", "--zeroed", one, two, "--cache", cache]);
    devices
}

fn stop(user: &User, name: &str, daemon: Daemon) {
    user.ok(&["stop", name]);
    assert_eq!(daemon.wait(), 0);
}

fn expect(user: &User, args: &[&str], exit: Exit, part: &str) {
    let ended = user.run(args);
    assert_eq!(ended.code, exit as i32, "{args:?}: {}{}", ended.out, ended.err);
    assert!(ended.err.contains(part), "{args:?} does not say {part:?}: {}", ended.err);
}

fn signal(id: u32, signal: Signal) {
    kill_process(Pid::from_raw(id as i32).unwrap(), signal).unwrap();
}

/// Status and exit code of a volume whose daemon may be gone.
fn found(user: &User, name: &str) -> (Status, i32) {
    let Ended { code, out, .. } = user.run(&["status", name, "--json"]);
    (parse(&out), code)
}

#[test]
fn help_has_the_table_of_exit_codes() {
    let help = User::new().ok(&["--help"]);
    for (exit, meaning) in Exit::ALL {
        assert!(help.contains(&format!("{:>3}  {meaning}", exit as u8)), "{help}");
    }
}

#[test]
fn what_is_named_wrongly_is_usage_and_what_is_not_served_is_5() {
    let user = User::new();
    let [one, two, _] = create(&user, "v");
    let folder = user.path("").display().to_string();
    let gone = "/dev/there/is/no/such";
    for args in [
        &["create", "w", "--raid", "0", gone][..],
        &["create", "w", "--raid", "0", &folder],
        &["create", "w", "--raid", "0", "model:hdd-7k2-4t"],
        &["create", "w", "--raid", "1", &one, &two, "--set", "mode=write-back"],
        &["status", "w"],
        &["status", "../v"],
        &["drive", "show", gone],
        &["drive", "show", &one],
        &["model", "fit", "--device", gone],
        &["witness", "probe", gone],
        &["witness", "simple", "check", "--device", gone],
        &["lab", "check", "snia-iops", "--target", &format!("disk={gone}")],
        &["lab", "check", "no-such-plan"],
        &["simulate", "x.toml", "--rw", "sideways"],
        &["set", "v", "mod"],
        &["set", "v", "mode=fast"],
        &["export", "remove", "v", "tcp:127.0.0.1:1"],
    ] {
        expect(&user, args, Exit::Usage, "error");
    }
    expect(&user, &["simulate", "x.toml", "--rw", "sideways"], Exit::Usage, "--rw sideways");
    expect(&user, &["set", "v", "mod"], Exit::Usage, "nearest: mode");
    expect(&user, &["set", "v", "seq-cutof=1M"], Exit::Usage, "nearest: seq-cutoff");
    for args in [
        &["stop", "v"][..],
        &["stats", "v"],
        &["flush", "v"],
        &["set", "v", "mode=write-through", "--flush"],
        &["cache", "scrub", "v"],
        &["array", "scrub", "v"],
    ] {
        expect(&user, args, Exit::NotServed, "headpond serve v");
    }
    let daemon = user.serve("v");
    expect(&user, &["array", "fail", "v", gone], Exit::Usage, "no member");
    expect(&user, &["array", "add-spare", "v", gone], Exit::Usage, gone);
    expect(&user, &["core", "remove", "v", "logs"], Exit::Usage, "no further core");
    expect(&user, &["serve", "v"], Exit::Refused, "being served already");
    stop(&user, "v", daemon);
}

#[test]
fn a_daemon_that_was_killed_is_an_alert_until_the_next_stop() {
    let user = User::new();
    create(&user, "v");
    let bare = ["a", "b"].map(|it| user.file(&format!("{it}.img"), 32 * MIB));
    user.ok(&["create", "bare", "--raid", "1", "--zeroed", &bare[0], &bare[1]]);
    for name in ["v", "bare"] {
        let (new, code) = found(&user, name);
        assert_eq!((new.alerts, code), (vec![], Exit::NotServed as i32));
        assert_eq!(new.size_bytes, Some(31 * MIB), "{name}: known from the start");
        user.serve(name).kill();
        let (status, code) = found(&user, name);
        assert_eq!((status.state, code), (ServiceState::Stopped, Exit::NotServed as i32));
        assert_eq!(status.alerts[0].kind, AlertKind::DaemonEnded);
        assert!(status.alerts[0].cause.contains("ended without a stop"), "{}", status.alerts[0]);
        let listed = user.run(&["status"]);
        assert_eq!(listed.code, Exit::Degraded as i32, "{}", listed.out);
        let told = format!("{name}: daemon_ended: the daemon of {name} ended without a stop");
        assert!(listed.out.contains(&told), "{}", listed.out);
        let daemon = user.serve(name);
        assert_eq!(user.status(name).alerts, []);
        stop(&user, name, daemon);
        let (status, code) = found(&user, name);
        assert_eq!((status.alerts, code), (vec![], Exit::NotServed as i32));
        assert!(!user.path(&format!("{name}.control")).exists(), "a stop leaves no socket");
    }
    assert_eq!(user.run(&["status"]).code, Exit::Ok as i32, "stopped volumes are well");
    user.serve("v").kill();
    user.ok(&["destroy", "v", "--yes"]);
    for left in ["v.control", "v.sock", "v.left.json", "v.loading.json", "v.toml"] {
        assert!(!user.path(left).exists(), "{left} is left of a destroyed volume");
    }
}

#[test]
fn a_daemon_that_does_not_answer_is_told_within_seconds() {
    let user = User::new();
    create(&user, "v");
    create(&user, "other");
    let daemon = user.serve("v");
    signal(daemon.id(), Signal::STOP);
    let begun = Instant::now();
    let (status, code) = found(&user, "v");
    assert_eq!((status.state, code), (ServiceState::NotAnswering, Exit::NotServed as i32));
    assert_eq!(status.alerts[0].kind, AlertKind::DaemonSilent);
    let listed = user.run(&["status"]);
    assert_eq!(listed.code, Exit::NotServed as i32, "{}", listed.out);
    let has_row = |start: &str| listed.out.lines().any(|line| line.starts_with(start));
    assert!(has_row("other") && has_row("v       not answering"), "{}", listed.out);
    expect(&user, &["stats", "v"], Exit::NotServed, "does not answer");
    expect(&user, &["stop", "v"], Exit::NotServed, "does not answer");
    assert!(begun.elapsed() < PATIENCE, "none of them waits for it");
    signal(daemon.id(), Signal::CONT);
    stop(&user, "v", daemon);
}

#[test]
fn the_list_has_what_each_volume_is_and_what_is_wrong_with_it() {
    let user = User::new();
    create(&user, "v");
    let listed = user.ok(&["status"]);
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let head = ["volume", "state", "size", "level", "health", "mode", "dirty", "alerts"];
    assert_eq!(words(listed.lines().next().unwrap()), head);
    let row = ["v", "stopped", "31", "MiB", "RAID", "1", "-", "write-back", "0", "B", "0"];
    assert_eq!(words(listed.lines().last().unwrap()), row);
    let daemon = user.serve("v");
    let row = ["v", "serving", "31", "MiB", "RAID", "1", "healthy", "write-back", "0", "B", "0"];
    assert_eq!(words(user.ok(&["status"]).lines().last().unwrap()), row);
    stop(&user, "v", daemon);
    let listed = user.json(&["status", "--json"]);
    let of = |key: &str| listed[0][key].clone();
    assert_eq!((of("schema"), of("size_bytes")), (1.into(), (31 * MIB).into()));
    assert_eq!(of("alerts"), Value::Array(Vec::new()));
    assert_eq!(listed[0]["cache"]["dirty_bytes"], 0);
}

#[test]
fn each_setting_is_explained_and_shown_as_it_was_set() {
    let user = User::new();
    create(&user, "v");
    let shown = || user.ok(&["set", "v"]);
    for group in ["cache:", "array:", "clients:"] {
        assert!(shown().lines().any(|line| line == group), "{}", shown());
    }
    assert!(shown().contains("how requests use the cache, and when a write is acknowledged"));
    // The next start has them.
    let told = user.ok(&["set", "v", "seq-cutoff=1M", "mode=write-through"]);
    assert!(told.contains("seq-cutoff=1M") && told.contains("its next start"), "{told}");
    expect(&user, &["set", "v", "cleaning.stripe.low-percent=90"], Exit::Usage, "must rise");
    expect(&user, &["set", "v", "tier.mode=write-back"], Exit::Refused, "no tier");
    let one = user.ok(&["set", "v", "seq_cutoff"]);
    for part in ["value     1M", "default   full", "v.toml, table [cache]", "A size sets the"] {
        assert!(one.contains(part), "{one}");
    }
    let document = user.json(&["set", "v", "mode", "--json"]);
    assert_eq!((&document["schema"], &document["name"]), (&1.into(), &"v".into()));
    let mode = &document["settings"][0];
    assert_eq!((&mode["key"], &mode["value"]), (&"mode".into(), &"write-through".into()));
    assert_eq!(mode["group"], "cache");
    let daemon = user.serve("v");
    let settings = user.status("v").cache.unwrap().settings;
    assert_eq!(settings.seq_cutoff.setting(), "1M");
    assert!(user.ok(&["status", "v"]).contains("mode=write-through"));
    user.ok(&["set", "v", "seq-cutoff=always"]);
    assert!(user.ok(&["set", "v", "seq-cutoff"]).contains("value     always"));
    stop(&user, "v", daemon);
}

#[test]
fn exports_are_changed_for_the_next_start_of_a_volume() {
    let user = User::new();
    create(&user, "v");
    let socket = format!("unix:{}", user.socket("v").display());
    let second = format!("unix:{}", user.path("second.sock").display());
    let open = ["export", "add", "v", "tcp:0.0.0.0:0"];
    expect(&user, &open, Exit::Refused, "--insecure");
    expect(&user, &["export", "add", "v", "tcp:nowhere"], Exit::Usage, "not an address");
    assert!(user.ok(&["export", "add", "v", &second]).contains("the next start"));
    expect(&user, &["export", "add", "v", &second], Exit::Usage, "already");
    let daemon = user.serve("v");
    assert_eq!(user.status("v").exports, [socket.clone(), second.clone()]);
    user.ok(&["export", "remove", "v", &second]);
    let listed = user.json(&["export", "list", "v", "--json"]);
    assert_eq!(listed["exports"].as_array().unwrap().len(), 1);
    assert_eq!(user.status("v").exports.len(), 2, "until the next start");
    // The daemon keeps the description, whatever else is changed.
    user.ok(&["set", "v", "merge-wait-us=off"]);
    stop(&user, "v", daemon);
    let daemon = user.serve("v");
    assert_eq!(user.status("v").exports, [socket]);
    stop(&user, "v", daemon);
}

/// Whether a process has a handler for SIGINT.
fn handles_interrupts(id: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
    let bit = 1u64 << (Signal::INT.as_raw() - 1);
    u64::from_str_radix(mask.trim(), 16).unwrap() & bit != 0
}

fn code_after_ctrl_c(mut child: Child) -> Option<i32> {
    let begun = Instant::now();
    while !handles_interrupts(child.id()) {
        assert!(begun.elapsed() < PATIENCE, "it has no handler");
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(child.id(), Signal::INT);
    child.wait().unwrap().code()
}

#[test]
fn ctrl_c_ends_long_commands_with_130() {
    let user = User::new();
    create(&user, "v");
    let stack = user.path("machines/stack.toml");
    std::fs::create_dir(user.path("machines")).unwrap();
    let text = "name = \"s\"\n[core]\nraid = 5\ndrive = \"hdd-7k2-4t\"\ndrives = 4\n";
    std::fs::write(&stack, text).unwrap();
    let stack = stack.to_str().unwrap();
    let load = ["--rw", "randread", "--iodepth", "32", "--runtime", "20h"];
    let simulate = user.start(&[&["simulate", stack], &load[..]].concat());
    assert_eq!(code_after_ctrl_c(simulate), Some(Exit::Interrupted as i32));
    // A command that waits for a daemon.
    let daemon = user.serve("v");
    signal(daemon.id(), Signal::STOP);
    let flush = user.start(&["flush", "v"]);
    assert_eq!(code_after_ctrl_c(flush), Some(Exit::Interrupted as i32));
    signal(daemon.id(), Signal::CONT);
    stop(&user, "v", daemon);
}

/// Lines that are too long, but for those of one word.
fn too_wide(text: &str) -> Vec<&str> {
    let is_wide = |line: &&str| line.chars().count() > 100 && line.split_whitespace().count() > 1;
    text.lines().filter(is_wide).collect()
}

#[test]
fn text_fits_100_columns() {
    let user = User::new();
    create(&user, "v");
    let daemon = user.serve("v");
    let trace = user.path("writes.log");
    let line = |at: u64| format!("{} /dev/a write {} 4096\n", at * 50, at * 7919 % 4096 * 4096);
    let log = format!("fio version 3 iolog\n{}", (0..400).map(line).collect::<String>());
    std::fs::write(&trace, log).unwrap();
    let trace = trace.to_str().unwrap();
    let stack = user.path("machines/stack.toml");
    std::fs::create_dir(user.path("machines")).unwrap();
    let core = "[core]\nraid = 5\ndrive = \"hdd-7k2-4t\"\ndrives = 4\n";
    let cache = "[cache]\nsize = \"64M\"\n";
    std::fs::write(&stack, format!("name = \"a stack with a name\"\n{core}{cache}")).unwrap();
    let stack = stack.to_str().unwrap();
    let machine = ["--raid", "6", "--members", "8", "--cache-size", "1G", "--effort", "quick"];
    let commands: [&[&str]; 16] = [
        &["status"],
        &["status", "v"],
        &["set", "v"],
        &["set", "v", "mode", "classes"],
        &["stats", "v"],
        &["export", "list", "v"],
        &["model", "list"],
        &["class", "check", "lustre"],
        &["lab", "plans"],
        &["lab", "check", "snia-iops"],
        &["lab", "check", "sync-write"],
        &["array", "plan", "--compare", "--members", "12", "--drive", "hdd-14t"],
        &["array", "plan", "--level", "6", "--members", "24", "--drive", "hdd-14t"],
        &["analyze", trace],
        &[&["advise", trace], &machine[..]].concat(),
        &["simulate", stack, stack, "--rw", "randrw", "--runtime", "2", "--ramp-time", "0"],
    ];
    for command in commands {
        let ended = user.run_folded(command);
        assert!(ended.code == 0, "{command:?}: {}{}", ended.out, ended.err);
        let wide = too_wide(&ended.out);
        assert!(wide.is_empty(), "{command:?}: {wide:#?}");
    }
    stop(&user, "v", daemon);
}

#[test]
fn documents_have_a_schema() {
    let user = User::new();
    create(&user, "v");
    let stack = user.path("machines/stack.toml");
    std::fs::create_dir(user.path("machines")).unwrap();
    let text = "name = \"s\"\n[core]\nraid = 5\ndrive = \"hdd-7k2-4t\"\ndrives = 4\n";
    std::fs::write(&stack, text).unwrap();
    let stack = stack.to_str().unwrap();
    let commands: [&[&str]; 10] = [
        &["status"],
        &["status", "v"],
        &["set", "v"],
        &["export", "list", "v"],
        &["model", "list"],
        &["class", "check", "lustre"],
        &["lab", "check", "sync-write"],
        &["array", "plan", "--level", "6", "--members", "8", "--drive", "hdd-14t"],
        &["advise", "--journal", "v"],
        &["simulate", stack, "--rw", "randread", "--runtime", "1", "--ramp-time", "0"],
    ];
    for command in commands {
        let ended = user.run(&[command, &["--json"]].concat());
        let document: Value = serde_json::from_str(&ended.out).expect("JSON");
        let all = document.as_array().cloned().unwrap_or_else(|| vec![document]);
        assert!(all.iter().all(|it| it["schema"] == 1), "{command:?}: {all:?}");
    }
}
