//! kill -9 in the middle of a verified load, over and over: every device is under a decorator that
//! keeps unflushed writes in the daemon's memory, so that each kill is a power cut that loses,
//! reorders and tears them.

use crate::common::User;
use headpond_block::{BufferPool, PoolConfig};
use headpond_nbd::client::NbdDevice;
use headpond_uring::{RingConfig, SocketStream, run_with_pool};
use headpond_witness::{Client, Witness, Workload};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

const ROUNDS: u64 = 200;
const MIB: u64 = 1 << 20;
const SEED: u64 = 20_260_101;

const LOAD: Workload = Workload {
    requests: 1500,
    depth: 16,
    blocks: 768,
    blocks_max: 16,
    read_percent: 15,
    flush_percent: 4,
    zeroes_percent: 3,
    discard_percent: 2,
    fua_percent: 10,
    sector_percent: 10,
    hot_percent: 30,
    sequential_percent: 20,
};

#[test]
fn nothing_flushed_is_lost_in_200_kills() {
    let user = User::new();
    user.configure("threads = 1\n");
    create(&user);
    let size_bytes = 64 * MIB;
    let witness = Rc::new(RefCell::new(Witness::new(size_bytes, SEED)));
    let mut cut_short = 0;
    for round in 0..ROUNDS {
        let daemon = user.serve("v");
        // Spread over start-up, the first requests, and the thick of it.
        let pause = Duration::from_micros(300 + round * 7919 % 60_000);
        let killer = std::thread::spawn(move || {
            std::thread::sleep(pause);
            daemon.kill();
        });
        cut_short += u64::from(load(&user.socket("v"), &witness, round));
        killer.join().unwrap();
        witness.borrow_mut().crash();
    }
    assert!(cut_short > ROUNDS / 2, "only {cut_short} kills fell into the load");
    let daemon = user.serve("v");
    let complete =
        load_of(&user.socket("v"), &witness, ROUNDS, &Workload { requests: 100, ..LOAD });
    assert!(complete, "after the last kill everything is served: {}", daemon.log());
    wait_for_parity(&user);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

/// What the kill left dirty is cleaned though nobody asks.
fn wait_for_parity(user: &User) {
    for _ in 0..500 {
        if user.live_cache("v").replayed_blocks == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("replayed blocks are left after ten seconds of idleness");
}

fn create(user: &User) {
    let lossy = |name: &str, bytes: u64, seed: u64| {
        format!("lossy:{}?seed={seed}&leak=6", user.file(name, bytes))
    };
    let mut args: Vec<String> =
        ["create", "v", "--raid", "5", "--zeroed", "--heartbeat-ms", "100"].map(Into::into).into();
    args.extend((0..3).map(|at| lossy(&format!("{at}.img"), 40 * MIB, at)));
    args.extend(["--cache".into(), lossy("cache.img", 16 * MIB, 9)]);
    user.ok(&args);
}

/// Checks everything, then loads until the daemon is gone; whether it went while the load ran.
fn load(socket: &Path, witness: &Rc<RefCell<Witness>>, round: u64) -> bool {
    !load_of(socket, witness, round, &LOAD)
}

/// Whether the load ran to its end.
fn load_of(socket: &Path, witness: &Rc<RefCell<Witness>>, round: u64, workload: &Workload) -> bool {
    let pool = BufferPool::new(&PoolConfig::default());
    let lend = pool.clone();
    run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async move {
        let Ok(stream) = SocketStream::connect_unix(&ring, socket).await else { return false };
        let connected = NbdDevice::connect(&runtime, &lend, Rc::new(stream), "").await;
        let Ok(device) = connected else { return false };
        let device = Rc::new(device);
        let client = Client::new(device.clone(), Rc::clone(witness), &runtime);
        client.check_all().await.unwrap_or_else(|verdict| panic!("round {round}: {verdict}"));
        let unread = client.tally().failed_reads;
        assert!(unread == 0 || !device.is_connected(), "round {round}: {unread} reads failed");
        let judged = client.run(workload, SEED ^ round).await;
        judged.unwrap_or_else(|verdict| panic!("round {round}, under load: {verdict}"));
        let is_complete = device.is_connected();
        device.close().await;
        is_complete
    })
    .unwrap()
}
