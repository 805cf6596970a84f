//! How a daemon ends: by command, by signal, and with what cannot be saved.

use crate::common::{Daemon, User, answer_to, client, parse};
use headpond_api::Refusal;
use headpond_api::answers::ServiceState;
use headpond_testkit::skip;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

fn create(user: &User) {
    let mut args: Vec<String> = ["create", "v", "--raid", "5", "--zeroed"].map(Into::into).into();
    args.extend((0..3).map(|member| user.file(&format!("{member}.img"), 64 * MIB)));
    user.ok(&args);
}

/// A client that is connected until it is dropped.
struct Connected(Child);

impl Connected {
    fn to(user: &User, program: &std::path::Path) -> Self {
        let mut command = Command::new(program);
        command.args(["-f", "raw", &user.uri("v")]).stdin(Stdio::piped()).stdout(Stdio::null());
        let connected = Self(command.spawn().unwrap());
        while user.status("v").clients.is_empty() {
            std::thread::sleep(Duration::from_millis(10));
        }
        connected
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_stop_names_the_clients_that_are_in_its_way_and_cuts_them_off_by_force() {
    let name = "a_stop_names_the_clients_that_are_in_its_way_and_cuts_them_off_by_force";
    let Some(program) = headpond_testkit::tool("qemu-io") else { skip!(name, "no qemu-io") };
    let user = User::new();
    create(&user);
    let daemon = user.serve("v");
    let client = Connected::to(&user, &program);
    for args in [&["stop", "v"][..], &["stop", "v", "--wait"]] {
        let refused = user.run(args);
        assert_eq!(refused.code, 4, "{}", refused.err);
        let told = ["1 client is connected (unix", "--force"];
        assert!(told.iter().all(|part| refused.err.contains(part)), "{}", refused.err);
    }
    user.ok(&["stop", "v", "--force"]);
    assert_eq!(daemon.wait(), 0);
    drop(client);
    let daemon = user.serve("v");
    drop(Connected::to(&user, &program));
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0, "who has left is not in the way");
}

/// A volume with more dirty data than its drives take within seconds.
fn serve_dirty(user: &User, program: &std::path::Path) -> Daemon {
    let mut args: Vec<String> = ["create", "v", "--raid", "1"].map(Into::into).into();
    args.extend([0, 1].map(|drive| {
        format!("model:hdd-7k2-4t?store={}", user.path(&format!("{drive}.img")).display())
    }));
    args.extend(["--assume-clean".into(), "--cache".into(), user.file("cache.img", 96 * MIB)]);
    args.extend(["--set", "cleaning=nop"].map(Into::into));
    user.ok(&args);
    let daemon = user.serve("v");
    let mut args = vec!["-f".to_owned(), "raw".into()];
    for write in 0..2000_u64 {
        let gib = write * 7919 % 3500;
        args.extend(["-c".into(), format!("write -q -P 0x11 {gib}G 4k")]);
    }
    args.push(user.uri("v"));
    client(program, &args);
    daemon
}

/// Waits until the daemon says that this command is under way.
fn until_under_way(user: &User, command: &str) {
    while user.status("v").commands.first().is_none_or(|first| first != command) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_stop_beside_a_flush_is_refused_or_waits_or_cuts_it_off_and_a_signal_does_that_as_well() {
    let name = "a_stop_beside_a_flush_is_refused_or_waits_or_cuts_it_off";
    let Some(program) = headpond_testkit::tool("qemu-io") else { skip!(name, "no qemu-io") };
    let user = User::new();
    let daemon = serve_dirty(&user, &program);
    let flush = user.start(&["flush", "v"]);
    until_under_way(&user, "flush");
    let refused = user.run(&["stop", "v"]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("under way: `flush`"), "{}", refused.err);
    user.ok(&["stop", "v", "--force"]);
    assert_eq!(daemon.wait(), 0);
    let cut = flush.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&cut.stderr).into_owned();
    assert!(!cut.status.success() && told.contains("stay dirty in the cache"), "{told}");
    assert!(told.contains("being stopped") && !told.contains("gone"), "{told}");
    // Nothing is lost: the next one goes on with it.
    let daemon = user.serve("v");
    let flush = user.start(&["flush", "v"]);
    until_under_way(&user, "flush");
    signal("-TERM", daemon.id());
    assert_eq!(daemon.wait(), 0);
    assert!(!flush.wait_with_output().unwrap().status.success());
    let daemon = user.serve("v");
    let flush = user.start(&["flush", "v", "--pace", "max"]);
    until_under_way(&user, "flush");
    user.ok(&["stop", "v", "--wait"]);
    assert_eq!(daemon.wait(), 0);
    let flush = flush.wait_with_output().unwrap();
    assert!(flush.status.success(), "{}", String::from_utf8_lossy(&flush.stderr));
    assert_eq!(user.status("v").cache.unwrap().dirty_bytes, Some(0));
}

#[test]
fn whatever_is_wrong_with_a_request_its_answer_has_one_shape() {
    let user = User::new();
    create(&user);
    let _daemon = user.serve("v");
    let head = |first: &str, more: &str| {
        format!("{first} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n{more}\r\n")
    };
    let json = |len: usize| format!("content-type: application/json\r\ncontent-length: {len}\r\n");
    for (request, status) in [
        (head("GET /v1/nothing", ""), "404"),
        (head("GET /v1/flush", ""), "405"),
        (head("POST /v1/flush", ""), "415"),
        (head("POST /v1/flush", &json(3)) + "{ x", "400"),
        (head("POST /v1/flush", &json(18)) + r#"{"pace":"quickly"}"#, "400"),
        (head("POST /v1/settings", &json(19)) + r#"{"changes":["no=1"]"#, "400"),
        (head("POST /v1/flush", &json(5)) + "{", "408"),
        (head("POST /v1/array/re-add", &json(23)) + r#"{"device":"/not/there"}"#, "400"),
    ] {
        let shown = request[..request.len().min(80)].to_owned();
        let answer = answer_to(&user.path("v.control"), &request);
        let (head, body) =
            answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{shown}: {answer}"));
        assert!(head.contains(status), "{shown}: {answer}");
        let refusal: Refusal = parse(body);
        assert!(!refusal.error.is_empty() && refusal.exit > 0, "{shown}: {body}");
    }
}

#[test]
fn requests_that_never_end_hold_a_bounded_number_of_connections_for_a_bounded_time() {
    let user = User::new();
    create(&user);
    let daemon = user.serve("v");
    let half = || {
        let mut stream = UnixStream::connect(user.path("v.control")).unwrap();
        let _ = stream.write_all(b"POST /v1/flush HTTP/1.1\r\nhost:");
        stream
    };
    let mut streams: Vec<UnixStream> = (0..100).map(|_| half()).collect();
    let refused = user.run(&["status", "v"]);
    assert!(refused.err.contains("64 control connections are open"), "{}", refused.err);
    streams.extend((0..200).map(|_| half()));
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", daemon.id())).unwrap().count();
    assert!(descriptors < 180, "{descriptors}");
    // Until those that were accepted have timed out.
    let begun = Instant::now();
    while user.run(&["status", "v"]).code != 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "half a request keeps its connection");
    }
    assert!(user.ok(&["status", "v"]).contains("healthy"));
}

fn signal(name: &str, process: u32) {
    let sent = Command::new("kill").args([name, &process.to_string()]).status();
    assert!(sent.unwrap().success());
}

/// A terminal that is closed, or a service manager that asks for a reload, ended it.
#[test]
fn a_hangup_changes_nothing_and_a_termination_stops_in_order() {
    let user = User::new();
    create(&user);
    let daemon = user.serve("v");
    signal("-HUP", daemon.id());
    while !daemon.log().contains("SIGHUP") {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(user.ok(&["status", "v"]).contains("healthy"));
    signal("-TERM", daemon.id());
    assert_eq!(daemon.wait(), 0);
    assert_eq!(user.run(&["stop", "v"]).code, 5, "it is not served");
}

/// A memory file system of 20 MB, while this lives.
struct Small(std::path::PathBuf);

impl Small {
    /// None where this user may not mount one.
    fn mount(folder: std::path::PathBuf) -> Option<Self> {
        std::fs::create_dir(&folder).unwrap();
        let mut command = std::process::Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=20m", "none"]).arg(&folder);
        let outcome = command.output().ok()?;
        outcome.status.success().then_some(Self(folder))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

/// The cache cannot keep what it was told to: the stop says so, and ends.
#[test]
fn a_stop_that_cannot_save_everything_says_so_and_ends() {
    let name = "a_stop_that_cannot_save_everything_says_so_and_ends";
    let Some(program) = headpond_testkit::tool("qemu-io") else { skip!(name, "no qemu-io") };
    let user = User::new();
    let Some(small) = Small::mount(user.path("small")) else { skip!(name, "no mount") };
    create(&user);
    let daemon = user.serve("v");
    let device = small.0.join("cache.img");
    std::fs::File::create(&device).unwrap().set_len(200 * MIB).unwrap();
    let device = device.display().to_string();
    user.ok(&["cache", "attach", "v", &device, "--force", "--set", "cleaning=nop"]);
    for start in 0..12 {
        // From some of them on the file system is full.
        let command = format!("write -P 0x11 {}M 4M", 4 * start);
        let args = ["-f", "raw", "-c", &command, &user.uri("v")].map(str::to_owned);
        client(&program, &args);
    }
    let ended = user.run(&["stop", "v"]);
    assert!(ended.code != 0 && !ended.err.contains("gone"), "{} {}", ended.code, ended.err);
    let log = daemon.log();
    let code = daemon.wait();
    assert!(code != 0, "{log}");
    assert_eq!(user.status("v").state, ServiceState::Stopped);
    // The array went on without that cache, and the next start says so.
    assert_eq!(user.run(&["serve", "v"]).code, 4);
}
