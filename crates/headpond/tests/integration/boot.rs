//! The service manager: its units, udev's rules, and what a daemon reports.

use crate::common::{PROGRAM, User, answer_to};
use headpond_testkit::{skip, tool};
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const MIB: u64 = 1 << 20;
const EXPOSURE_MAX: f64 = 4.0;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// What a service manager receives.
struct Manager(UnixDatagram);

impl Manager {
    fn new(user: &User) -> Self {
        let socket = UnixDatagram::bind(user.path("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self(socket)
    }

    fn start(&self, user: &User, watchdog_us: u32) -> Child {
        Command::new(PROGRAM)
            .args(["serve", "v"])
            .env("HEADPOND_STATE", user.path(""))
            .env("HEADPOND_CONFIG", "/dev/null")
            .env("NOTIFY_SOCKET", user.path("notify"))
            .env("WATCHDOG_USEC", watchdog_us.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// The messages until one has this line, that one included.
    fn until(&self, line: &str) -> Vec<String> {
        let mut messages = Vec::new();
        let mut bytes = [0; 4096];
        loop {
            let length = self.0.recv(&mut bytes).unwrap_or_else(|error| {
                panic!("no message with {line}: {error}; before it: {messages:?}")
            });
            messages.push(String::from_utf8(bytes[..length].to_vec()).unwrap());
            if messages.last().unwrap().lines().any(|it| it == line) {
                return messages;
            }
        }
    }
}

#[test]
fn a_daemon_is_ready_once_it_answers_is_kept_alive_and_reports_its_stop() {
    let user = User::new();
    let files = [0, 1].map(|at| user.file(&format!("{at}.img"), 16 * MIB));
    user.ok(&["create", "v", "--raid", "1", "--zeroed", &files[0], &files[1]]);
    let manager = Manager::new(&user);
    let mut daemon = manager.start(&user, 3_000_000);
    let messages = manager.until("READY=1");
    let answer = answer_to(
        &user.path("v.control"),
        "GET /v1/status HTTP/1.1\r\nhost: v\r\nconnection: close\r\n\r\n",
    );
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(messages.iter().any(|it| it.contains("STATUS=opening devices")), "{messages:?}");
    assert!(messages.last().unwrap().contains("STATUS=serving at unix:"), "{messages:?}");
    assert!(messages.iter().any(|it| it == "WATCHDOG=1\n"), "opening is progress: {messages:?}");
    manager.until("WATCHDOG=1");
    user.ok(&["stop", "v"]);
    let messages = manager.until("STOPPING=1");
    assert!(messages.last().unwrap().contains("STATUS=stopping: waits for"), "{messages:?}");
    manager.until("EXTEND_TIMEOUT_USEC=60000000");
    assert!(daemon.wait().unwrap().success());
}

#[test]
fn a_daemon_that_is_refused_is_never_ready_and_its_status_says_why() {
    let user = User::new();
    let files = [0, 1].map(|at| user.file(&format!("{at}.img"), 16 * MIB));
    user.ok(&["create", "v", "--raid", "0", &files[0], &files[1]]);
    fs::remove_file(&files[1]).unwrap();
    let manager = Manager::new(&user);
    let mut daemon = manager.start(&user, 3_000_000);
    assert!(!daemon.wait().unwrap().success());
    manager.0.set_nonblocking(true).unwrap();
    let mut messages = Vec::new();
    let mut bytes = [0; 4096];
    while let Ok(length) = manager.0.recv(&mut bytes) {
        messages.push(String::from_utf8(bytes[..length].to_vec()).unwrap());
    }
    assert!(!messages.iter().any(|it| it.contains("READY=1")), "{messages:?}");
    assert!(messages.last().unwrap().contains("1.img"), "{messages:?}");
}

/// The units in a folder, with the program of this build.
fn units(user: &User) -> Vec<PathBuf> {
    let mut units = Vec::new();
    for entry in fs::read_dir(folder("systemd")).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let text = fs::read_to_string(entry.path()).unwrap();
        assert!(!name.ends_with(".service") || text.contains("=/usr/bin/headpond "), "{name}");
        let unit = user.path(&name.replace('@', "@hv0-1"));
        fs::write(&unit, text.replace("/usr/bin/headpond ", &format!("{PROGRAM} "))).unwrap();
        units.push(unit);
    }
    assert!(units.len() >= 8, "{units:?}");
    units
}

fn analyze(program: &Path, args: &[&str], units: &[PathBuf]) -> Output {
    Command::new(program).args(args).args(units).output().unwrap()
}

#[test]
fn units_are_valid_and_services_are_confined() {
    let name = "units_are_valid_and_services_are_confined";
    let Some(program) = tool("systemd-analyze") else { skip!(name, "no systemd-analyze") };
    let user = User::new();
    let units = units(&user);
    let verified = analyze(&program, &["verify"], &units);
    let told = String::from_utf8_lossy(&verified.stderr).into_owned();
    // It also loads units of this machine.
    let is_quiet = !told.lines().any(|line| line.contains("headpond"));
    assert!(verified.status.success() && is_quiet, "{told}");
    for unit in units.iter().filter(|unit| unit.extension().is_some_and(|it| it == "service")) {
        let judged = analyze(
            &program,
            &["security", "--offline=yes", "--no-pager"],
            std::slice::from_ref(unit),
        );
        let told = String::from_utf8_lossy(&judged.stdout).into_owned();
        let line = told.lines().find(|line| line.contains("Overall exposure level"));
        let line = line.unwrap_or_else(|| panic!("{told}"));
        let exposure = line.split_whitespace().find_map(|word| word.parse::<f64>().ok());
        assert!(exposure.is_some_and(|it| it <= EXPOSURE_MAX), "{}: {line}", unit.display());
    }
}

#[test]
fn the_group_of_the_package_is_the_usual_one_and_no_unit_depends_on_it() {
    let name = "the_group_of_the_package_is_the_usual_one_and_no_unit_depends_on_it";
    let Some(program) = tool("systemd-sysusers") else { skip!(name, "no systemd-sysusers") };
    let root = User::new();
    fs::create_dir(root.path("etc")).unwrap();
    let output = Command::new(&program)
        .arg(format!("--root={}", root.path("").display()))
        .arg(folder("sysusers/headpond.conf"))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() && told.contains("ermission") {
        skip!(name, "systemd-sysusers needs root: {told}");
    }
    assert!(output.status.success(), "{told}");
    let groups = fs::read_to_string(root.path("etc/group")).unwrap();
    let usual = headpond_api::config::Config::default().group;
    assert!(groups.lines().any(|line| line.starts_with(&format!("{usual}:"))), "{groups}");
    // It would not start without the group, or each start would take the files from it.
    let unit = fs::read_to_string(folder("systemd/headpond@.service")).unwrap();
    for line in unit.lines() {
        let key = line.split('=').next().unwrap_or_default();
        let is_bound = ["Group", "SupplementaryGroups", "StateDirectory"].contains(&key);
        assert!(!is_bound, "{line}");
    }
}

#[test]
fn times_of_the_timers_are_what_they_say() {
    let name = "times_of_the_timers_are_what_they_say";
    let Some(program) = tool("systemd-analyze") else { skip!(name, "no systemd-analyze") };
    for (timer, expected) in [
        ("headpond-scrub", "Sun *-*-01..07 01:00:00"),
        ("headpond-scrub-continue", "*-*-* 01:00:00"),
        ("headpond-scrub-pause", "*-*-* 07:00:00"),
    ] {
        let text = fs::read_to_string(folder("systemd").join(format!("{timer}.timer"))).unwrap();
        let calendar = text.lines().find_map(|line| line.strip_prefix("OnCalendar="));
        let output = Command::new(&program).args(["calendar", calendar.unwrap()]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(told.contains(expected), "{timer}: {told}");
    }
}

#[test]
fn rules_of_udev_are_valid() {
    let name = "rules_of_udev_are_valid";
    let Some(program) = tool("udevadm") else { skip!(name, "no udevadm") };
    let rules = folder("udev/64-headpond.rules");
    let known = Command::new(&program).args(["verify", "--help"]).output().unwrap();
    if !known.status.success() {
        skip!(name, "udevadm has no verify (systemd 254)");
    }
    let verified = Command::new(&program).arg("verify").arg(&rules).output().unwrap();
    let told = String::from_utf8_lossy(&verified.stderr).into_owned();
    assert!(verified.status.success(), "{told}");
}

#[test]
fn rules_of_udev_jump_forward_to_labels_and_call_this_program_alone() {
    let text = fs::read_to_string(folder("udev/64-headpond.rules")).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let quoted = |line: &str, key: &str| {
        let (_, rest) = line.split_once(&format!("{key}=\""))?;
        rest.split_once('"').map(|(value, _)| value.to_owned())
    };
    let mut jumps = 0;
    for (at, line) in lines.iter().enumerate() {
        if let Some(label) = quoted(line, "GOTO") {
            let is_there =
                lines[at..].iter().any(|it| quoted(it, "LABEL").as_ref() == Some(&label));
            assert!(is_there, "{line}");
            jumps += 1;
        }
    }
    assert!(jumps > 5);
    let program = text.lines().find_map(|line| quoted(line, "IMPORT{program}")).unwrap();
    assert_eq!(program, "/usr/bin/headpond probe --export $devnode");
    let probe = User::new().run(&["probe", "--help"]);
    assert!(probe.code == 0 && probe.out.contains("--export"), "{}", probe.err);
}
