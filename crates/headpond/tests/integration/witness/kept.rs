//! What is kept passes and what is not is caught: on disks behind NBD, and on a volume of
//! Headpond's that is killed.

use crate::common::{PROGRAM, User};
use crate::witness::exports::{Cache, Disk};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// A witness, on a port that the kernel has chosen.
pub struct Keeper {
    child: Child,
    pub port: u16,
}

impl Keeper {
    pub fn start(user: &User, args: &[&str]) -> Self {
        Self::start_on(user, args, 0)
    }

    /// Port 0: whichever the kernel chooses.
    fn start_on(user: &User, args: &[&str], port: u16) -> Self {
        let (mut all, listen) = (args.to_vec(), format!("127.0.0.1:{port}"));
        all.extend(["--listen", &listen, "--key", "key", "--dir", "kept"]);
        let mut command = program(user, &all);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().expect("a line").unwrap();
        let port = first.split([':', ',']).nth(1).expect("a port").parse().unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, port }
    }

    pub fn to(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn wait(mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn program(user: &User, args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .arg("witness")
        .args(args)
        .current_dir(user.path(""))
        .env("COLUMNS", "1000")
        .stdin(Stdio::null());
    command
}

/// A user with a key.
pub fn user() -> User {
    let user = User::new();
    user.ok(&["witness", "key", &user.path("key").display().to_string()]);
    user
}

/// The words that every client needs.
fn client<'a>(what: &'a str, device: &'a str, to: &'a str) -> Vec<&'a str> {
    vec![what, "--device", device, "--to", to, "--key", "key", "--name", "disk"]
}

/// Writes until so much is acknowledged and promised, and then for a moment longer.
fn write_until_cut(user: &User, keeper: &Keeper, device: &str, more: &[&str], cut: impl FnOnce()) {
    let to = keeper.to();
    let mut args = client("write", device, &to);
    args.extend(more);
    let log = std::fs::File::create(user.path("write.log")).unwrap();
    let mut writer = program(user, &args).stderr(log).stdout(Stdio::null()).spawn().unwrap();
    let path = user.path("kept/disk/log");
    let begun = Instant::now();
    let grown = || std::fs::metadata(&path).is_ok_and(|log| log.len() > 20_000);
    while !grown() {
        let told = || std::fs::read_to_string(user.path("write.log")).unwrap();
        assert!(writer.try_wait().unwrap().is_none(), "it writes on: {}", told());
        assert!(begun.elapsed() < PATIENCE, "nothing is reported");
        std::thread::sleep(Duration::from_millis(5));
    }
    cut();
    writer.kill().unwrap();
    writer.wait().unwrap();
}

fn verify(user: &User, keeper: &Keeper, device: &str) -> (i32, Value) {
    let to = keeper.to();
    let mut args = client("verify", device, &to);
    args.push("--json");
    let output = program(user, &args).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let ruling = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{error}"));
    (output.status.code().unwrap_or(-1), ruling)
}

/// One cut of one disk; how `verify` ended and what it said.
fn one_cut(cache: Cache, sync: &str, seed: u64) -> (i32, Value) {
    let user = user();
    let keeper = Keeper::start(&user, &["serve"]);
    let file = user.file("disk.img", 16 * MIB);
    let disk = Disk::switch_on(&file, cache, &user.path("disk.sock"), seed);
    let uri = disk.uri();
    let load = ["--sync", sync, "--size", "4M", "--sync-every", "16"];
    write_until_cut(&user, &keeper, &uri, &load, || disk.cut());
    let disk = Disk::switch_on(&file, cache, &user.path("disk.sock"), seed);
    let judged = verify(&user, &keeper, &disk.uri());
    disk.cut();
    judged
}

#[test]
fn a_disk_that_honours_flushes_passes() {
    let mut gone = 0;
    for (seed, sync) in [(1, "flush"), (2, "fua"), (3, "flush")] {
        let (code, ruling) = one_cut(Cache::Honest, sync, seed);
        assert_eq!((code, &ruling["verdict"]), (0, &"kept".into()), "{sync}: {ruling:#}");
        gone += ruling["unpromised_gone"].as_u64().unwrap();
    }
    assert!(gone > 0, "the cut took what was not promised");
}

#[test]
fn a_disk_that_ignores_flushes_is_caught() {
    for (seed, sync) in [(1, "flush"), (2, "fua")] {
        let (code, ruling) = one_cut(Cache::Lying, sync, seed);
        assert_eq!((code, &ruling["verdict"]), (1, &"broken".into()), "{sync}: {ruling:#}");
        let story = ruling["first"]["story"].to_string();
        assert!(story.contains("acknowledged"), "{story}");
    }
}

#[test]
fn a_disk_with_a_protected_cache_passes_though_it_does_nothing_at_a_flush() {
    let (code, ruling) = one_cut(Cache::Protected, "flush", 1);
    assert_eq!((code, &ruling["verdict"]), (0, &"kept".into()), "{ruling:#}");
    assert_eq!(ruling["unpromised_gone"], 0);
}

#[test]
fn without_a_promise_nothing_passes() {
    let (code, ruling) = one_cut(Cache::Honest, "none", 1);
    assert_eq!((code, &ruling["verdict"]), (3, &"nothing-promised".into()), "{ruling:#}");
}

#[test]
fn a_volume_that_is_killed_keeps_what_it_promised() {
    let user = user();
    let lossy =
        |name: &str, mib: u64| format!("lossy:{}?seed=5&leak=6", user.file(name, mib * MIB));
    let mut args: Vec<String> = ["create", "v", "--raid", "5", "--zeroed"].map(Into::into).into();
    args.extend((0..3).map(|at| lossy(&format!("{at}.img"), 40)));
    args.extend(["--cache".into(), lossy("cache.img", 16)]);
    user.ok(&args);
    let keeper = Keeper::start(&user, &["serve"]);
    let uri = user.uri("v");
    for pattern in ["random", "hot"] {
        let daemon = user.serve("v");
        let load = ["--pattern", pattern, "--size", "16M", "--bs", "8K", "--atom", "4096"];
        write_until_cut(&user, &keeper, &uri, &load, || daemon.kill());
        let daemon = user.serve("v");
        let (code, ruling) = verify(&user, &keeper, &uri);
        assert_eq!((code, &ruling["verdict"]), (0, &"kept".into()), "{ruling:#}");
        user.ok(&["stop", "v"]);
        assert_eq!(daemon.wait(), 0);
    }
}

#[test]
fn a_campaign_goes_on_after_each_cut_and_after_its_own_end_and_says_how_little_it_proves() {
    let user = user();
    let file = user.file("disk.img", 16 * MIB);
    let socket = user.path("disk.sock");
    let (cuts, cut) = ("3", user.path("cut").display().to_string());
    // The hook waits until the disk is without power.
    let hook = format!("touch {cut}; while [ -e {cut} ]; do sleep 0.02; done");
    let campaign = ["campaign", "--name", "disk", "--cuts", cuts, "--between", "0.5..0.8"];
    let mut args = campaign.to_vec();
    args.extend(["--cut-hook", &hook, "--wait-boot", "60"]);
    let mut keeper = Keeper::start(&user, &args);
    let (to, begun) = (keeper.to(), Instant::now());
    for life in 0.. {
        if life == 1 {
            // The witness is killed as well, between a cut and the look at it.
            let port = keeper.port;
            drop(keeper);
            keeper = Keeper::start_on(&user, &args, port);
        }
        let disk = Disk::switch_on(&file, Cache::Honest, &socket, life);
        let uri = disk.uri();
        let mut args = client("agent", &uri, &to);
        args.extend(["--size", "2M", "--sync-every", "16"]);
        let mut agent = program(&user, &args).stdout(Stdio::null()).spawn().unwrap();
        let ended = loop {
            assert!(begun.elapsed() < PATIENCE, "the campaign goes on");
            match agent.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if user.path("cut").exists() => break None,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        disk.cut();
        if let Some(status) = ended {
            assert!(status.success() && life == 3, "life {life}: {status}");
            break;
        }
        agent.kill().unwrap();
        agent.wait().unwrap();
        std::fs::remove_file(user.path("cut")).unwrap();
    }
    assert_eq!(keeper.wait(), 0);
    let kept = user.path("kept").display().to_string();
    let report = user.json(&["witness", "report", &kept, "--json"]);
    let disk = &report[0];
    assert_eq!(disk["name"], "disk");
    // Where the machine is busy, a cut may come before anything was promised: it proves nothing.
    let count = |what: &str| disk[what].as_u64().unwrap();
    assert_eq!((count("cuts") + count("undecided"), count("losses")), (3, 0), "{report:#}");
    assert!(count("cuts") > 0, "{report:#}");
    // Rounded up: less is not excluded.
    let excluded = (1000.0 * (1.0 - 0.05_f64.powf(1.0 / count("cuts") as f64))).ceil() / 10.0;
    let told = user.ok(&["witness", "report", &kept]);
    assert!(told.contains(&format!("up to {excluded:.1} % are not excluded")), "{told}");
}

#[test]
fn simple_needs_no_witness_and_finds_what_a_lying_disk_lost() {
    let user = user();
    for (cache, code) in [(Cache::Honest, 0), (Cache::Lying, 1)] {
        let file = user.file(&format!("{cache:?}.img"), 16 * MIB);
        let disk = Disk::switch_on(&file, cache, &user.path("disk.sock"), 1);
        let uri = disk.uri();
        let written = ["witness", "simple", "write", "--device", &uri, "--seed", "4711"];
        let told = user.ok(&[&written[..], &["--size", "8M"]].concat());
        assert!(told.contains("--seed 4711 --size 8M"), "{told}");
        disk.cut();
        let disk = Disk::switch_on(&file, cache, &user.path("disk.sock"), 1);
        let check = ["witness", "simple", "check", "--device", &uri];
        let ended = user.run(&[&check[..], &["--seed", "4711", "--size", "8M"]].concat());
        assert_eq!(ended.code, code, "{cache:?}: {}{}", ended.out, ended.err);
        disk.cut();
    }
}

#[test]
fn what_a_writer_has_left_accuses_nobody_of_having_lost_what_simple_wrote() {
    let user = user();
    let keeper = Keeper::start(&user, &["serve"]);
    let file = user.file("disk.img", 16 * MIB);
    write_until_cut(&user, &keeper, &file, &["--size", "4M"], || {});
    let ended = user.run(&["witness", "simple", "check", "--device", &file]);
    assert!(ended.code == 1 && !ended.out.contains("BROKEN"), "{}", ended.out);
    assert!(
        ended.err.contains("does not begin with the header of `simple write`"),
        "{}",
        ended.err
    );
    // The whole of that makes no pattern of another kind either.
    user.ok(&["witness", "simple", "write", "--device", &file, "--size", "4M", "--force"]);
    user.ok(&["witness", "simple", "check", "--device", &file]);
}

#[test]
fn what_was_lost_does_not_come_back_by_looking_again() {
    let user = user();
    let keeper = Keeper::start(&user, &["serve"]);
    let file = user.file("disk.img", 16 * MIB);
    write_until_cut(&user, &keeper, &file, &["--size", "4M", "--sync", "fua"], || {});
    user.file("disk.img", 0);
    user.file("disk.img", 16 * MIB);
    let (code, ruling) = verify(&user, &keeper, &file);
    assert_eq!((code, &ruling["verdict"]), (1, &"broken".into()), "{ruling:#}");
    let to = keeper.to();
    let output = program(&user, &client("verify", &file, &to)).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("its result: THE DEVICE HAS BROKEN ITS PROMISE"), "{told}");
    assert!(!told.contains("ended cleanly"), "{told}");
}
