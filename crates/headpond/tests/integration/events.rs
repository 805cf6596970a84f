//! The log, the events, and what runs on them.

use crate::common::{Daemon, PROGRAM, User, answer_to, client};
use headpond_testkit::skip;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Ten times what it should take.
const PATIENCE: Duration = Duration::from_secs(100);

fn create(user: &User) -> [String; 3] {
    let files = [0, 1, 2].map(|at| user.file(&format!("m{at}.img"), 16 * MIB));
    user.ok(&["create", "v", "--raid", "5", "--zeroed", &files[0], &files[1], &files[2]]);
    files
}

fn stop(user: &User, daemon: Daemon) {
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn events(user: &User, args: &[&str]) -> Vec<Value> {
    let events = user.json(&[&["events", "v", "--json"], args].concat());
    events.as_array().expect("a list").clone()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

/// The first event of this kind of a member that is in this state.
fn of_member(user: &User, state: &str) -> Option<Value> {
    let is_it =
        |event: &Value| event["event"] == "member_state" && event["details"]["state"] == state;
    events(user, &[]).into_iter().find(is_it)
}

fn script(user: &User, name: &str, mode: u32, text: &str) {
    let folder = user.path("events.d");
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn the_log_has_times_levels_and_fields_and_who_set_what() {
    let user = User::new();
    let [_, lost, _] = create(&user);
    let daemon = user.serve("v");
    user.ok(&["set", "v", "merge-wait-us=off"]);
    assert_ne!(user.run(&["array", "remove", "v", &lost]).code, 0, "it is in use");
    user.ok(&["array", "fail", "v", &lost]);
    let log = eventually("the loss is logged", || {
        Some(daemon.log()).filter(|log| log.contains("event=array_state"))
    });
    let own = fs::metadata("/proc/self").unwrap().uid();
    let line = |part: &str| {
        let found = log.lines().find(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("{part}: {log}")).to_owned()
    };
    for (part, level) in [
        ("v is open", " INFO  "),
        (&*format!("settings merge-wait-us=off by user {own}, process "), " INFO  "),
        ("array fail", " INFO  "),
        ("array remove", " WARN  "),
        ("array v is degraded", " WARN  "),
        (&*format!("member 1 of array v ({lost}) has failed"), " ERROR "),
    ] {
        let line = line(part);
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(time.starts_with("20") && time.ends_with('Z'), "{line}");
        assert!(format!(" {rest}").starts_with(level), "{level}: {line}");
        assert!(line.contains(" volume=v"), "{line}");
    }
    let lost_line = line("has failed");
    for field in [format!("device={lost}"), "member=1".into(), "event=member_state".into()] {
        assert!(lost_line.contains(&field), "{field}: {lost_line}");
    }
    stop(&user, daemon);
}

#[test]
fn json_is_an_object_a_line_and_the_level_is_that_asked_for() {
    let user = User::new();
    let files = create(&user);
    let daemon = user.serve_with(&["serve", "v", "--log-format", "json", "--log-level", "warn"]);
    user.ok(&["array", "fail", "v", &files[2]]);
    let log = eventually("the loss is logged", || {
        Some(daemon.log()).filter(|log| log.contains("array_state"))
    });
    let lines: Vec<Value> = log
        .lines()
        .filter(|line| !line.starts_with("serving v at "))
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let is_quiet = |line: &Value| line["level"] == "warn" || line["level"] == "error";
    assert!(lines.iter().all(is_quiet), "{log}");
    let lost = lines.iter().find(|line| line["event"] == "member_state").unwrap();
    assert_eq!((&lost["volume"], &lost["level"]), (&"v".into(), &"error".into()));
    assert_eq!((&lost["device"], &lost["member"]), (&files[2].clone().into(), &2.into()));
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn the_journal_gets_priorities() {
    let user = User::new();
    let [_, lost, _] = create(&user);
    // The file that the daemon writes to stands for the journal's stream.
    let stream = fs::File::create(user.path("serve.log")).unwrap().metadata().unwrap();
    let stream = format!("{}:{}", stream.dev(), stream.ino());
    let daemon = user.serve_in_env("v", "JOURNAL_STREAM", &stream);
    user.ok(&["array", "fail", "v", &lost]);
    let log = eventually("the loss is logged", || {
        Some(daemon.log()).filter(|log| log.contains("event=array_state"))
    });
    let lines: Vec<&str> = log.lines().filter(|it| !it.starts_with("serving v at ")).collect();
    assert!(lines.iter().all(|line| line.starts_with('<')), "{log}");
    assert!(lines.iter().any(|line| line.starts_with("<6>v is open")), "{log}");
    assert!(lines.iter().any(|line| line.starts_with("<3>member 1 of array v")), "{log}");
    stop(&user, daemon);
}

#[test]
fn a_log_that_nobody_reads_delays_no_command_and_counts_what_it_lacks() {
    let user = User::new();
    create(&user);
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "v"]).env("HEADPOND_STATE", user.path("")).stdin(Stdio::null());
    let mut daemon = command.stdout(Stdio::null()).stderr(writer).spawn().unwrap();
    drop(command);
    eventually("it is served", || (user.run(&["status", "v"]).code == 0).then_some(()));
    // A pipe holds 64 KiB, and the queue 1024 lines. Each of these is a line of more than 1 KB.
    let body = serde_json::json!({ "device": "x".repeat(1000) }).to_string();
    let request = format!(
        "POST /v1/array/fail HTTP/1.1\r\nhost: v\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    for _ in 0..1150 {
        let answer = answer_to(&user.path("v.control"), &request);
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    assert_eq!(user.run(&["status", "v"]).code, 0);
    let read = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    user.ok(&["stop", "v"]);
    assert!(daemon.wait().unwrap().success());
    let text = read.join().unwrap();
    assert!(text.contains("lines of the log were dropped"), "{} bytes", text.len());
    assert!(text.contains("the volume is stopped"), "the end is in the log");
}

#[test]
fn events_are_kept_over_restarts_and_a_killed_daemon_is_told() {
    let user = User::new();
    let [lost, ..] = create(&user);
    assert!(events(&user, &[]).is_empty());
    assert_eq!(user.ok(&["events", "v"]), "no events\n");
    let daemon = user.serve("v");
    user.ok(&["array", "fail", "v", &lost]);
    eventually("the loss is kept", || of_member(&user, "failed"));
    stop(&user, daemon);
    let served = events(&user, &[]);
    assert_eq!(kinds(&served)[served.len() - 2..], ["volume_stopping", "volume_stopped"]);
    user.ok(&["set", "v", "merge-wait-us=off"]);
    let before = events(&user, &[]);
    let set = before.last().unwrap();
    assert_eq!(set["event"], "settings_changed");
    assert_eq!(set["details"]["asked"]["changes"][0], "merge-wait-us=off");
    assert_eq!(kinds(&before)[0], "volume_started");
    for (at, event) in before.iter().enumerate() {
        assert_eq!(event["sequence"], at + 1);
        assert_eq!((&event["schema"], &event["volume"]), (&1.into(), &"v".into()));
    }
    let loss = of_member(&user, "failed").unwrap();
    assert_eq!((&loss["member"], &loss["device"]), (&0.into(), &lost.into()));
    let daemon = user.serve("v");
    assert!(!kinds(&events(&user, &[])).contains(&"unclean_shutdown"));
    daemon.kill();
    // What a power cut leaves of a line.
    let path = user.path("v.events.jsonl");
    let mut text = fs::read(&path).unwrap();
    text.extend(b"{\"schema\":1,\"seq");
    fs::write(&path, text).unwrap();
    let daemon = user.serve("v");
    stop(&user, daemon);
    let after = events(&user, &[]);
    assert_eq!(after[..before.len()], before[..]);
    let kinds = kinds(&after);
    let unclean = kinds.iter().position(|kind| *kind == "unclean_shutdown").expect("it is told");
    assert_eq!(kinds[unclean + 1], "volume_started");
    let sequences: Vec<u64> = after.iter().map(|it| it["sequence"].as_u64().unwrap()).collect();
    assert!(sequences.windows(2).all(|two| two[1] == two[0] + 1), "{sequences:?}");
    let since = after[unclean]["time"].as_str().unwrap();
    assert_eq!(events(&user, &["--since", since]), after[unclean..]);
    assert!(events(&user, &["--since", "2200-01-01"]).is_empty());
    let text = user.run_folded(&["events", "v"]).out;
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.contains("error    member_state"), "{text}");
    assert!(user.ok(&["events"]).contains("  v  "), "with the name of each");
    assert_eq!(user.run(&["events", "w"]).code, 2);
    assert_eq!(user.run(&["events", "v", "--since", "yesterday"]).code, 2);
    user.ok(&["destroy", "v", "--yes"]);
    assert!(!path.exists());
}

/// `headpond events --follow --json`.
struct Follower {
    child: Child,
    lines: std::sync::mpsc::Receiver<Value>,
}

impl Follower {
    fn new(user: &User) -> Self {
        let mut child = user.start(&["events", "v", "--follow", "--json"]);
        let output = BufReader::new(child.stdout.take().unwrap());
        let (tell, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line).expect("an object a line");
                if tell.send(event).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    fn until(&self, kind: &str) -> Value {
        loop {
            let event = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no {kind}"));
            if event["event"] == kind {
                return event;
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_follower_sees_events_as_they_come_from_before_the_start_on_and_past_a_rotation() {
    let user = User::new();
    let [lost, ..] = create(&user);
    let follower = Follower::new(&user);
    let daemon = user.serve("v");
    assert_eq!(follower.until("volume_started")["sequence"], 1);
    user.ok(&["array", "fail", "v", &lost]);
    assert_eq!(follower.until("member_state")["details"]["state"], "failed");
    stop(&user, daemon);
    follower.until("volume_stopped");
    // As a daemon does when the file is full.
    fs::rename(user.path("v.events.jsonl"), user.path("v.events.old.jsonl")).unwrap();
    let daemon = user.serve("v");
    follower.until("volume_started");
    stop(&user, daemon);
    let last = follower.until("volume_stopped");
    assert_eq!(last["sequence"], events(&user, &[]).len());
}

#[test]
fn the_loss_of_a_member_reaches_executables_and_one_that_hangs_holds_up_no_other() {
    let user = User::new();
    let [_, lost, _] = create(&user);
    let lines = user.path("lines").display().to_string();
    script(&user, "10-hangs", 0o755, "test \"$HEADPOND_EVENT\" != member_state || sleep 10000");
    let text = format!(
        "echo \"$HEADPOND_EVENT $HEADPOND_SEVERITY $HEADPOND_VOLUME $HEADPOND_MEMBER \
         $HEADPOND_DEVICE $HEADPOND_SEQUENCE $HEADPOND_TIME\" >> {lines}; echo said of it"
    );
    script(&user, "20-writes", 0o755, &text);
    script(&user, "30-of-others", 0o777, &format!("echo bad >> {lines}"));
    let mails = user.path("mails").display().to_string();
    script(&user, "sendmail", 0o644, &format!("cat >> {mails}"));
    let sendmail = format!("sh {}", user.path("events.d/sendmail").display());
    let example = include_str!("../../../../docs/examples/events.d/all-mail.sh");
    let example = example.replace("/usr/sbin/sendmail", &sendmail);
    script(&user, "40-mail.sh", 0o755, &example.replace("/run/systemd/system", "/no/manager"));
    let daemon = user.serve("v");
    user.ok(&["array", "fail", "v", &lost]);
    let told = eventually("the executable has written", || {
        let text = fs::read_to_string(&lines).unwrap_or_default();
        text.lines().find(|line| line.starts_with("member_state ")).map(str::to_owned)
    });
    let loss = of_member(&user, "failed").unwrap();
    let expected = format!("member_state error v 1 {lost} {} ", loss["sequence"]);
    assert!(told.starts_with(&expected), "{told}");
    assert!(told.ends_with(loss["time"].as_str().unwrap()), "{told}");
    let log = eventually("its output is in the log", || {
        Some(daemon.log()).filter(|log| log.contains("10-hangs was killed"))
    });
    assert!(log.contains("said of it volume=v") && log.contains("script=20-writes"), "{log}");
    let refused = log.lines().filter(|line| line.contains("30-of-others is not run"));
    assert_eq!(refused.count(), 1, "{log}");
    assert!(!fs::read_to_string(&lines).unwrap().contains("bad"));
    stop(&user, daemon);
    let mail = fs::read_to_string(&mails).unwrap();
    let subject = format!("Subject: [headpond error] v: member 1 of array v ({lost}) has failed");
    assert!(mail.contains(&subject), "{mail}");
    assert!(!mail.contains("volume_started"), "only what is wrong: {mail}");
    let text = fs::read_to_string(&lines).unwrap();
    assert!(text.contains("volume_stopped info v"), "before the daemon ends: {text}");
}

#[test]
fn requests_that_took_long_are_told() {
    let name = "requests_that_took_long_are_told";
    let Some(qemu_io) = headpond_testkit::tool("qemu-io") else { skip!(name, "no qemu-io") };
    let user = User::new();
    let drive = format!("model:hdd-7k2-4t?store={}", user.path("drive.img").display());
    let cache = user.file("c.img", 64 * MIB);
    user.ok(&["create", "v", "--raid", "0", &drive, "--cache", &cache, "--mode", "write-around"]);
    let daemon = user.serve("v");
    let signal = |signal| kill_process(Pid::from_raw(daemon.id() as i32).unwrap(), signal).unwrap();
    // Seconds of seeks, all over the disk: some are in flight whenever it is stopped.
    let mut client = Command::new(&qemu_io);
    client.args(["-f", "raw"]).stdout(Stdio::null());
    (0..400).for_each(|at| _ = client.args(["-c", &format!("aio_read {}G 4k", at * 7919 % 3700)]));
    let mut client = client.arg(user.uri("v")).spawn().unwrap();
    let read_bytes = || user.stats(&["v"]).report.cores[0].counts.read_bytes;
    eventually("it reads", || (read_bytes() > 100_000).then_some(()));
    // Those in flight take as long as the daemon rests.
    signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(1500));
    signal(Signal::CONT);
    let event = eventually("they are told", || {
        events(&user, &[]).into_iter().find(|event| event["event"] == "slow_requests")
    });
    assert!(client.wait().unwrap().success());
    assert!(event["details"]["requests"][0]["requests"].as_u64().unwrap() > 0, "{event}");
    stop(&user, daemon);
}

#[test]
fn a_member_that_was_truncated_is_in_log_and_events_with_its_errors() {
    let name = "a_member_that_was_truncated_is_in_log_and_events_with_its_errors";
    let Some(qemu_io) = headpond_testkit::tool("qemu-io") else { skip!(name, "no qemu-io") };
    let user = User::new();
    let [_, truncated, _] = create(&user);
    let daemon = user.serve("v");
    fs::File::options().write(true).open(&truncated).unwrap().set_len(0).unwrap();
    let read = ["-f", "raw", "-c", "read 0 16M", &user.uri("v")].map(str::to_owned);
    client(&qemu_io, &read);
    let event = eventually("the errors are told", || {
        events(&user, &[]).into_iter().find(|event| event["event"] == "device_errors")
    });
    assert_eq!((&event["device"], &event["member"]), (&truncated.clone().into(), &1.into()));
    assert!(event["details"]["errors"]["read"].as_u64().unwrap() > 0, "{event}");
    let log = daemon.log();
    let line = log.lines().find(|line| line.contains("event=device_errors")).unwrap();
    assert!(line.contains("read error") && line.contains(&format!("device={truncated}")), "{line}");
    assert!(log.contains("event=alert_raised"), "{log}");
    stop(&user, daemon);
}
