//! Members that are files on FUSE, one of whose servers is stopped: what FUSE does then stops
//! nothing but that member.

use crate::common::{User, answer_to, parse};
use headpond_api::answers::Status;
use headpond_raid::ArrayState;
use headpond_raid::superblock::RoleState;
use headpond_testkit::{skip, tool};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const DEADLINE_MS: u64 = 2000;
/// Ten times what it should take.
const PATIENCE: Duration = Duration::from_millis(10 * DEADLINE_MS);

struct Tools {
    nbdfuse: PathBuf,
    nbdkit: PathBuf,
    fio: PathBuf,
}

impl Tools {
    /// # Errors
    /// What is lacking.
    fn find() -> Result<Self, String> {
        let find = |name: &str| tool(name).ok_or(format!("{name} is not installed"));
        std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .map_err(|error| format!("/dev/fuse: {error}"))?;
        find("fusermount3").or_else(|_| find("umount"))?;
        Ok(Self { nbdfuse: find("nbdfuse")?, nbdkit: find("nbdkit")?, fio: find("fio")? })
    }
}

/// A process that ends with this.
struct Running(Child);

impl Running {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Its exit code and output, which must not take longer than anything here should.
    fn ended(mut self) -> (Option<i32>, String) {
        let begun = Instant::now();
        let ended = loop {
            assert!(begun.elapsed() < PATIENCE, "it hangs: {:?}", self.0);
            match self.0.try_wait().unwrap() {
                Some(ended) => break ended,
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let out = self.0.stdout.take().map(|out| std::io::read_to_string(out).unwrap());
        (ended.code(), out.unwrap_or_default())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A file that a process serves.
struct Mounted {
    path: PathBuf,
    server: Running,
}

impl Mounted {
    fn new(tools: &Tools, user: &User, name: &str) -> Self {
        let store = user.file(&format!("{name}.store"), 64 * MIB);
        let path = PathBuf::from(user.file(&format!("{name}.img"), 0));
        let mut command = Command::new(&tools.nbdfuse);
        command.arg(&path).arg("--command").arg(&tools.nbdkit).args(["-s", "file", &store]);
        let server = Running(command.stdin(Stdio::null()).spawn().unwrap());
        let mounted = Self { path, server };
        let begun = Instant::now();
        while !mounted.path.metadata().is_ok_and(|it| it.len() == 64 * MIB) {
            assert!(begun.elapsed() < PATIENCE, "{} is not mounted", mounted.path.display());
            std::thread::sleep(Duration::from_millis(20));
        }
        mounted
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn hang(&self) -> Hung<'_> {
        self.server.signal(Signal::STOP);
        Hung(&self.server)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = match tool("fusermount3") {
            Some(program) => Command::new(program).args(["-u", "-z"]).arg(&self.path).status(),
            None => Command::new("umount").arg("-l").arg(&self.path).status(),
        };
        if !unmounted.is_ok_and(|ended| ended.success()) {
            eprintln!("{} stays mounted", self.path.display());
        }
    }
}

/// A server that does not answer; it goes on with this, before anything waits for it.
struct Hung<'a>(&'a Running);

impl Drop for Hung<'_> {
    fn drop(&mut self) {
        self.0.signal(Signal::CONT);
    }
}

fn status(user: &User) -> Status {
    parse(&Running(user.start(&["status", "v", "--json"])).ended().1)
}

/// A client with many requests in flight, until it has been busy for that long.
fn client(fio: &Path, user: &User, rw: &str, seconds: u32) -> Running {
    let mut command = Command::new(fio);
    command
        .args(["--name=busy", "--ioengine=nbd", "--bs=4k", "--size=96M", "--time_based"])
        .arg(format!("--uri={}", user.uri("v")))
        .args([format!("--rw={rw}"), format!("--runtime={seconds}")])
        .args(["--iodepth=256", "--rwmixread=90"])
        .arg(format!("--output={}", user.path("fio.log").display()));
    Running(command.stdin(Stdio::null()).current_dir(user.path("")).spawn().unwrap())
}

/// Requests in flight, a server hangs, and everything but its member goes on, up to a stop.
fn story(tools: &Tools, rw: &str) {
    let user = User::new();
    let members: Vec<_> =
        (0..4).map(|index| Mounted::new(tools, &user, &index.to_string())).collect();
    let mut args: Vec<String> = ["create", "v", "--raid", "6", "--zeroed"].map(Into::into).into();
    args.extend(members.iter().map(Mounted::name));
    args.extend(["--set".into(), format!("member-timeout-ms={DEADLINE_MS}")]);
    user.ok(&args);
    let mut daemon = user.serve("v");
    let busy = client(&tools.fio, &user, rw, 6);
    let begun = Instant::now();
    while status(&user).clients.is_empty() {
        assert!(begun.elapsed() < PATIENCE, "no client: {}", daemon.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_secs(1));
    let hung = members[1].hang();
    let begun = Instant::now();
    let array = || status(&user).array().expect("it is served").clone();
    while array().members[1].state != RoleState::Failed {
        assert!(begun.elapsed() < PATIENCE, "it is in use: {:?}", array());
        std::thread::sleep(Duration::from_millis(50));
    }
    let (ended, _) = busy.ended();
    let said = std::fs::read_to_string(user.path("fio.log")).unwrap_or_default();
    assert!(ended == Some(0) && !said.contains("error"), "{said}");
    assert_eq!(array().state, ArrayState::Degraded);
    let (stopped, said) = Running(user.start(&["stop", "v"])).ended();
    assert_eq!(stopped, Some(0), "{said}");
    let ended = daemon.ended_within(3 * PATIENCE);
    assert_eq!(ended, Some(0), "{}", daemon.log());
    drop(hung);
}

#[test]
fn a_member_whose_server_hangs_is_evicted_while_reads_and_status_go_on_and_a_stop_ends() {
    match Tools::find() {
        Ok(tools) => story(&tools, "randread"),
        Err(lacking) => skip!(
            "a_member_whose_server_hangs_is_evicted_while_reads_and_status_go_on_and_a_stop_ends",
            "{lacking}"
        ),
    }
}

#[test]
fn a_member_whose_server_hangs_is_evicted_while_writes_go_on_and_a_stop_ends() {
    match Tools::find() {
        Ok(tools) => story(&tools, "randrw"),
        Err(lacking) => skip!(
            "a_member_whose_server_hangs_is_evicted_while_writes_go_on_and_a_stop_ends",
            "{lacking}"
        ),
    }
}

/// Somebody adds a spare whose server hangs: what looks at it waits, and nothing else.
fn beside(tools: &Tools) {
    let user = User::new();
    let spare = Mounted::new(tools, &user, "spare");
    let members = ["0.img", "1.img"].map(|name| user.file(name, 64 * MIB));
    user.ok(&["create", "v", "--raid", "1", "--zeroed", &members[0], &members[1]]);
    let daemon = user.serve("v");
    let hung = spare.hang();
    // Past the command line, which looks at the device before it asks.
    let body = serde_json::json!({ "device": spare.name() }).to_string();
    let head = "POST /v1/array/add-spare HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\
                content-type: application/json\r\n";
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    let socket = user.path("v.control");
    let asked = std::thread::spawn(move || answer_to(&socket, &request));
    let begun = Instant::now();
    while status(&user).commands != ["array"] {
        assert!(begun.elapsed() < PATIENCE, "{}", daemon.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let (ended, _) = client(&tools.fio, &user, "randrw", 1).ended();
    assert_eq!(ended, Some(0), "clients do not wait");
    // Nor do commands.
    user.ok(&["set", "v", "merge-wait-us=0"]);
    assert!(!asked.is_finished());
    drop(hung);
    let answer = asked.join().unwrap();
    // It says so once it has been looked at.
    assert!(answer.contains("has logical blocks of 4096 bytes"), "{answer}");
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_command_that_waits_for_a_device_holds_up_neither_clients_nor_other_commands() {
    match Tools::find() {
        Ok(tools) => beside(&tools),
        Err(lacking) => skip!(
            "a_command_that_waits_for_a_device_holds_up_neither_clients_nor_other_commands",
            "{lacking}"
        ),
    }
}
