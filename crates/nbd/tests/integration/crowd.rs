//! Many clients, and too little memory or too few places for all of them.

use crate::common::{SIZE_BYTES, Stage, on_both, on_one};
use crate::raw::RawClient;
use headpond_block::decorators::{Limits as ThrottleRates, ThrottleDevice};
use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, Buffer, Runtime};
use headpond_nbd::client::handshake::Refusal;
use headpond_nbd::client::{ConnectError, NbdDevice};
use headpond_nbd::codec::wire::Command;
use headpond_nbd::limits::Limits;
use headpond_nbd::server::ServerReport;
use std::rc::Rc;
use std::time::Duration;

const KIB: u64 = 1 << 10;
const LATENCY: Duration = Duration::from_millis(10);

/// A stage whose device takes [`LATENCY`] for everything.
fn stage(runtime: Runtime, sim: headpond_sim::Sim, limits: Limits) -> Stage {
    let rates = ThrottleRates { latency: LATENCY, ..ThrottleRates::default() };
    let ram = Rc::new(RamDevice::new("ram", SIZE_BYTES));
    let device = Rc::new(ThrottleDevice::new(ram, runtime.clone(), rates));
    Stage::new(runtime, sim, device, limits)
}

fn memory_of(bytes: u64) -> Limits {
    Limits { memory_bytes_max: bytes, ..Limits::default() }
}

async fn read(client: Rc<NbdDevice>, bytes: u64) {
    let client: &dyn BlockDevice = &*client;
    client.read(0, Buffer::zeroed(bytes as usize)).await.unwrap();
}

/// How long a read takes that may have to wait for a client that does nothing.
async fn read_within_a_minute(runtime: &Runtime, client: Rc<NbdDevice>) -> Duration {
    let asked = runtime.now();
    let reading = read(client, 64 * KIB);
    let is_done = runtime.deadline(asked + Duration::from_secs(60), reading).await.is_ok();
    assert!(is_done, "it waits for ever");
    runtime.now().since(asked)
}

/// Asserts what holds at each moment.
fn check(report: &ServerReport) {
    let held: u64 = report.connections.iter().map(|it| it.in_flight_bytes).sum();
    assert_eq!(report.memory_held_bytes, held);
    assert!(held <= report.memory_bytes_max, "{held} of {} bytes", report.memory_bytes_max);
}

#[test]
fn all_connections_together_hold_no_more_than_the_budget_and_each_gets_on() {
    for seed in 0..4 {
        on_both(seed, |runtime, sim| async move {
            let limits = Limits { in_flight_bytes_max: 512 * KIB, ..memory_of(1024 * KIB) };
            let stage = stage(runtime.clone(), sim, limits);
            let (mut clients, mut reads) = (Vec::new(), Vec::new());
            for connection in 0..12 {
                let client = Rc::new(stage.client().await);
                // Some ask for much at once, some for little.
                let bytes = if connection % 2 == 0 { 160 * KIB } else { 4 * KIB };
                reads.extend((0..20).map(|_| runtime.spawn(read(Rc::clone(&client), bytes))));
                clients.push(client);
            }
            let mut held_bytes_max = 0;
            while stage.server.report().totals.read_bytes < 6 * 20 * 164 * KIB {
                stage.runtime.sleep(Duration::from_micros(500)).await;
                let report = stage.server.report();
                check(&report);
                held_bytes_max = held_bytes_max.max(report.memory_held_bytes);
            }
            for read in reads {
                read.await;
            }
            assert!(held_bytes_max > 800 * KIB, "{held_bytes_max} bytes were of use");
            let report = stage.server.report();
            assert_eq!((report.memory_held_bytes, report.waiting_for_memory), (0, 0));
        });
    }
}

#[test]
fn a_small_request_waits_for_its_turn_and_not_for_all_of_a_greedy_client() {
    on_both(5, |runtime, sim| async move {
        let stage = stage(runtime.clone(), sim, memory_of(1024 * KIB));
        let (greedy, modest) = (Rc::new(stage.client().await), Rc::new(stage.client().await));
        for _ in 0..100 {
            drop(runtime.spawn(read(Rc::clone(&greedy), 256 * KIB)));
        }
        runtime.sleep(LATENCY / 2).await;
        assert_eq!(stage.server.report().waiting_for_memory, 1);
        let asked = runtime.now();
        read(Rc::clone(&modest), 4 * KIB).await;
        let waited = runtime.now().since(asked);
        assert!(waited < 4 * LATENCY, "{waited:?}");
        assert!(stage.server.report().connections[0].in_flight > 0, "the greedy one goes on");
    });
}

#[test]
fn a_long_request_is_not_starved_by_small_ones() {
    on_both(6, |runtime, sim| async move {
        let stage = stage(runtime.clone(), sim, memory_of(1024 * KIB));
        let (long, small) = (Rc::new(stage.client().await), Rc::new(stage.client().await));
        for _ in 0..4000 {
            drop(runtime.spawn(read(Rc::clone(&small), 8 * KIB)));
        }
        runtime.sleep(LATENCY / 2).await;
        let asked = runtime.now();
        read(long, 1024 * KIB).await;
        let waited = runtime.now().since(asked);
        assert!(waited < 6 * LATENCY, "{waited:?}");
        assert!(stage.server.report().connections[1].in_flight > 0, "the small ones go on");
    });
}

#[test]
fn a_flush_needs_no_memory_and_a_larger_budget_lets_those_go_on_who_wait() {
    on_both(7, |runtime, sim| async move {
        let stage = stage(runtime.clone(), sim, memory_of(256 * KIB));
        let unread = RawClient::go(&stage).await;
        unread.ask(Command::Read.to_wire(), 0, 256 << 10).await;
        let (waits, other) = (Rc::new(stage.client().await), stage.client().await);
        runtime.sleep(LATENCY).await;
        let waiting = runtime.spawn(read(waits, 4 * KIB));
        runtime.sleep(LATENCY * 2).await;
        assert_eq!(stage.server.report().waiting_for_memory, 1);
        let other: &dyn BlockDevice = &other;
        other.flush().await.unwrap();
        stage.server.set_memory(260 * KIB);
        let asked = runtime.now();
        waiting.await;
        assert!(runtime.now().since(asked) < LATENCY * 4, "at once");
        assert_eq!(stage.server.report().memory_bytes_max, 260 * KIB);
    });
}

#[test]
fn a_client_that_never_reads_keeps_the_memory_only_as_long_as_nobody_waits_for_it() {
    // Threads share the memory.
    on_one(8, |runtime, sim| async move {
        let stage = stage(runtime.clone(), sim, memory_of(1024 * KIB));
        let stalled = RawClient::go(&stage).await;
        for _ in 0..10 {
            stalled.ask(Command::Read.to_wire(), 0, 256 << 10).await;
        }
        runtime.sleep(Duration::from_secs(600)).await;
        let report = stage.server.report();
        assert_eq!((report.stalled, report.memory_held_bytes), (0, 1024 * KIB));
        let client = Rc::new(stage.client().await);
        let waited = read_within_a_minute(&runtime, client).await;
        assert!(waited < Duration::from_secs(2), "{waited:?}");
        let report = stage.server.report();
        assert_eq!((report.stalled, report.connections.len()), (1, 1));
    });
}

#[test]
fn a_client_that_never_sends_its_payload_gives_back_the_memory_for_it() {
    on_both(9, |runtime, sim| async move {
        let stage = stage(runtime.clone(), sim, memory_of(1024 * KIB));
        let stalled = RawClient::go(&stage).await;
        stalled.ask(Command::Write.to_wire(), 0, 1 << 20).await;
        runtime.sleep(LATENCY).await;
        let client = Rc::new(stage.client().await);
        let waited = read_within_a_minute(&runtime, client).await;
        assert!(waited > Duration::from_secs(30), "{waited:?}");
        assert!(stalled.is_cut_off().await);
        assert_eq!(stage.server.report().stalled, 1);
    });
}

/// Two places, and one more to be told in that there are none.
fn two_places(sim_seed: u64, tell: impl AsyncFn(Stage)) {
    let tell = &tell;
    on_both(sim_seed, |runtime, sim| async move {
        let limits = Limits { connections_max: 2, turned_away_max: 1, ..Limits::default() };
        let device = Rc::new(RamDevice::new("ram", SIZE_BYTES));
        tell(Stage::new(runtime, sim, device, limits)).await;
    });
}

/// A client that has asked for something.
async fn busy(stage: &Stage) -> Rc<NbdDevice> {
    let client = Rc::new(stage.client().await);
    read(Rc::clone(&client), 4 * KIB).await;
    client
}

#[test]
fn the_oldest_handshake_that_is_not_finished_gives_its_place_to_a_new_client() {
    two_places(10, async |stage| {
        let (silent, hesitant) = (RawClient(stage.dial()), RawClient::hello(&stage).await);
        let first = busy(&stage).await;
        assert!(silent.receive_up_to(100).await.len() <= 18, "it was greeted at most");
        let second = busy(&stage).await;
        assert!(hesitant.is_cut_off().await);
        assert!(first.is_connected() && second.is_connected());
        let report = stage.server.report();
        assert_eq!((report.gave_way, report.refused, report.accepted), (2, 0, 4));
    });
}

#[test]
fn a_client_that_has_asked_for_nothing_gives_way_after_a_minute_and_one_that_has_never() {
    two_places(11, async |stage| {
        let (used, unused) = (busy(&stage).await, stage.client().await);
        stage.runtime.sleep(Duration::from_secs(50)).await;
        assert!(stage.try_client("").await.is_err(), "it may still come to something");
        stage.runtime.sleep(Duration::from_secs(20)).await;
        let third = busy(&stage).await;
        assert!(used.is_connected() && third.is_connected() && !unused.is_connected());
        stage.runtime.sleep(Duration::from_secs(3600)).await;
        assert!(stage.try_client("").await.is_err());
        assert!(used.is_connected() && third.is_connected());
        assert_eq!(stage.server.report().gave_way, 1);
    });
}

#[test]
fn a_full_server_says_so_and_closes_unanswered_only_beyond_that() {
    two_places(12, async |stage| {
        let (first, _second) = (busy(&stage).await, busy(&stage).await);
        let refused = stage.try_client("").await.err().expect("no place");
        let reason = "all 2 connections of this server are in use".to_owned();
        assert!(
            matches!(&refused, ConnectError::Refused(Refusal::Policy(text)) if *text == reason)
        );
        assert!(refused.to_string().contains(&reason), "{refused}");
        stage.runtime.sleep(Duration::from_millis(1)).await;
        let slow = RawClient::hello(&stage).await;
        let beyond = RawClient(stage.dial());
        assert!(beyond.is_cut_off().await);
        assert!(slow.is_cut_off().await, "it has as long as any handshake");
        let report = stage.server.report();
        assert_eq!((report.refused, report.accepted, report.connections.len()), (3, 2, 2));
        assert_eq!(report.failed_handshakes, 0);
        first.close().await;
        busy(&stage).await;
    });
}

#[test]
fn a_report_tells_what_each_connection_holds_and_since_when_it_is_there() {
    on_both(13, |runtime, sim| async move {
        let stage = stage(runtime.clone(), sim, Limits::default());
        let client = Rc::new(stage.client().await);
        runtime.sleep(Duration::from_secs(5)).await;
        drop(runtime.spawn(read(Rc::clone(&client), 64 * KIB)));
        runtime.sleep(LATENCY / 2).await;
        let report = stage.server.report();
        let connection = &report.connections[0];
        assert_eq!((connection.in_flight, connection.in_flight_bytes), (1, 64 * KIB));
        assert_eq!((connection.age.as_secs(), connection.idle.as_millis() < 10), (5, true));
        assert_eq!((report.memory_held_bytes, report.memory_bytes_max), (64 * KIB, 1 << 30));
        runtime.sleep(Duration::from_secs(2)).await;
        let connection = &stage.server.report().connections[0];
        assert_eq!((connection.in_flight, connection.in_flight_bytes), (0, 0));
        assert_eq!((connection.age.as_secs(), connection.idle.as_secs()), (7, 2));
        assert_eq!(connection.peer, "sim:client");
    });
}
