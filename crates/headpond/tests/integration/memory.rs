//! A daemon that the system gives no memory: it goes on, what it cannot do it says, and when there
//! is memory again it does everything.

use crate::common::User;
use headpond_block::{BufferPool, PoolConfig};
use headpond_nbd::client::NbdDevice;
use headpond_uring::{RingConfig, SocketStream, run_with_pool};
use headpond_volume::AlertKind;
use headpond_witness::{Client, Witness, Workload};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// No new pages from here on, whatever is there already.
const NOTHING: u64 = 1 << 20;

/// What is free goes back to the system, so that it is asked again; and no thread has 64 MiB set
/// aside for itself.
const GIVES_BACK: &str = "glibc.malloc.mmap_threshold=131072:glibc.malloc.trim_threshold=131072:\
                          glibc.malloc.arena_max=1";

/// Requests of up to 4 MiB, which no pool has.
const LOAD: Workload = Workload {
    requests: 60,
    depth: 16,
    blocks: 8192,
    blocks_max: 1024,
    read_percent: 30,
    flush_percent: 4,
    zeroes_percent: 3,
    discard_percent: 2,
    fua_percent: 10,
    sector_percent: 10,
    hot_percent: 30,
    sequential_percent: 20,
};

/// Sets how much memory a process may map.
fn allow(process: u32, bytes: Option<u64>) {
    let process = Pid::from_raw(process.cast_signed());
    let limit = Rlimit { current: bytes, maximum: None };
    prlimit(process, Resource::As, limit).unwrap();
}

/// How many requests of a load failed; nothing read as what it is not.
fn load(socket: &Path, witness: &Rc<RefCell<Witness>>, seed: u64) -> u64 {
    let pool = BufferPool::new(&PoolConfig::default());
    let lend = pool.clone();
    run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async move {
        let stream = SocketStream::connect_unix(&ring, socket).await.unwrap();
        let device = NbdDevice::connect(&runtime, &lend, Rc::new(stream), "").await.unwrap();
        let device = Rc::new(device);
        let client = Client::new(device.clone(), Rc::clone(witness), &runtime);
        let judged = client.run(&LOAD, seed).await;
        judged.unwrap_or_else(|verdict| panic!("under load {seed}: {verdict}"));
        assert!(device.is_connected());
        let tally = client.tally();
        device.close().await;
        tally.failed_reads + tally.failed_others
    })
    .unwrap()
}

fn kinds(user: &User) -> Vec<AlertKind> {
    user.status("v").alerts.iter().map(|alert| alert.kind).collect()
}

#[test]
fn a_daemon_without_memory_waits_then_refuses_and_goes_on_when_there_is_some() {
    let user = User::new();
    let files: Vec<String> = (0..3).map(|at| user.file(&format!("{at}.img"), 40 * MIB)).collect();
    let cache = user.file("cache.img", 256 * MIB);
    let members = files.iter().map(String::as_str);
    let args: Vec<&str> = ["create", "v", "--raid", "5", "--zeroed", "--cache", &cache]
        .into_iter()
        .chain(members)
        .collect();
    user.ok(&args);
    let daemon = user.serve_in_env("v", "GLIBC_TUNABLES", GIVES_BACK);
    let (socket, process) = (user.socket("v"), daemon.id());
    let witness = Rc::new(RefCell::new(Witness::new(64 * MIB, 7)));
    assert_eq!(load(&socket, &witness, 1), 0);
    assert_eq!(kinds(&user), []);

    // For a while: whoever asks waits.
    allow(process, Some(NOTHING));
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(2));
        allow(process, None);
    });
    assert_eq!(load(&socket, &witness, 2), 0, "{}", daemon.log());
    later.join().unwrap();
    let memory = user.status("v").memory.unwrap();
    assert!(memory.failures > 0 && !memory.is_short, "{memory:?}");
    assert_eq!(kinds(&user), []);

    // For long: it is refused.
    allow(process, Some(NOTHING));
    let refused = load(&socket, &witness, 3);
    assert!(refused > 0 && refused < LOAD.requests.into(), "{refused} refused: {}", daemon.log());
    assert_eq!(kinds(&user), [AlertKind::MemoryShort]);
    let told = user.run(&["status", "v"]).out;
    assert!(told.contains("denied this daemon memory") && told.contains("ulimit"), "{told}");
    let set = user.run(&["set", "v", "eviction=arc"]);
    assert!(
        set.code != 0 && set.err.contains("not enough memory for this eviction policy"),
        "{} {} {} {}",
        set.code,
        set.out,
        set.err,
        daemon.log()
    );
    allow(process, None);
    assert_eq!(kinds(&user), []);
    user.ok(&["set", "v", "eviction=arc"]);
    assert_eq!(load(&socket, &witness, 4), 0, "{}", daemon.log());
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let daemon = user.serve("v");
    assert_eq!(load(&user.socket("v"), &witness, 5), 0);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}
