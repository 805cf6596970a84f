//! Clients that leave, in part or as a whole, with requests under way.

use crate::common::{SIZE_BYTES, Stage, on_both, on_one};
use crate::raw::RawClient;
use headpond_block::decorators::{Limits as ThrottleRates, ProbeDevice, ThrottleDevice};
use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, Buffer, BufferPool, PoolConfig, Runtime, Stream};
use headpond_nbd::client::NbdDevice;
use headpond_nbd::codec::wire::Command;
use headpond_nbd::limits::Limits;
use headpond_nbd::server::{Export, Exports, Server, ServerReport};
use headpond_uring::{RunConfig, SocketListener, SocketStream};
use std::rc::Rc;
use std::time::Duration;

const READ_BYTES: u32 = 256 << 10;
const READ_REPLY_BYTES: usize = 16 + READ_BYTES as usize;
/// Four reads of a connection at a time.
fn four_reads() -> Limits {
    Limits { in_flight_bytes_max: 4 * u64::from(READ_BYTES), ..Limits::default() }
}

/// Memory that answers after `latency`, and counts.
fn slow(runtime: &Runtime, latency: Duration) -> Rc<ProbeDevice> {
    let ram = Rc::new(RamDevice::new("ram", SIZE_BYTES));
    let rates = ThrottleRates { latency, ..ThrottleRates::default() };
    let slow = Rc::new(ThrottleDevice::new(ram, runtime.clone(), rates));
    Rc::new(ProbeDevice::new(slow, runtime.clone()))
}

/// Reads that have come to the device.
fn begun(device: &ProbeDevice) -> u64 {
    let seen = device.snapshot();
    seen.reads.requests + seen.in_flight
}

/// Requests that were received and not dropped; of the pipeline some is left to the system.
fn taken_on(report: &ServerReport) -> u64 {
    assert!(report.totals.dropped > 0, "at least the one that waited");
    report.totals.requests - report.totals.dropped
}

async fn pipeline(raw: &RawClient, reads: u32) {
    for _ in 0..reads {
        raw.ask(Command::Read.to_wire(), 0, READ_BYTES).await;
    }
}

#[test]
fn what_a_client_that_left_has_pipelined_is_dropped_while_its_device_is_slow() {
    // One that waits to move takes nothing meanwhile, and finds out sooner.
    on_one(1, |runtime, sim| async move {
        let device = slow(&runtime, Duration::from_secs(1));
        let stage = Stage::new(runtime, sim, device.clone(), four_reads());
        let raw = RawClient::go(&stage).await;
        pipeline(&raw, 280).await;
        raw.0.shutdown();
        stage.runtime.sleep(Duration::from_millis(300)).await;
        let report = stage.server.report();
        assert_eq!(taken_on(&report), 4);
        assert_eq!(report.connections[0].in_flight, 4, "their memory is the device's");
        stage.runtime.sleep(Duration::from_secs(1)).await;
        let report = stage.server.report();
        assert!(report.connections.is_empty());
        assert_eq!((report.memory_held_bytes, begun(&device)), (0, 4));
    });
}

#[test]
fn what_a_client_that_left_has_pipelined_is_dropped_at_an_answer_that_cannot_be_sent() {
    // One that waits to move takes nothing meanwhile.
    on_one(2, |runtime, sim| async move {
        let device = slow(&runtime, Duration::from_millis(1));
        let stage = Stage::new(runtime, sim, device.clone(), four_reads());
        let raw = RawClient::go(&stage).await;
        pipeline(&raw, 280).await;
        stage.runtime.sleep(Duration::from_millis(50)).await;
        let before = begun(&device);
        assert!((4..8).contains(&before), "{before} reads of which none was taken");
        raw.0.shutdown();
        stage.runtime.sleep(Duration::from_millis(50)).await;
        assert_eq!(begun(&device), before);
        let report = stage.server.report();
        assert!(report.connections.is_empty());
        assert_eq!(taken_on(&report), before);
    });
}

#[test]
fn what_was_on_its_way_when_a_client_left_is_dropped_though_nothing_ever_waited() {
    on_both(5, |runtime, sim| async move {
        let device = slow(&runtime, Duration::ZERO);
        let stage = Stage::new(runtime, sim, device.clone(), Limits::default());
        let raw = RawClient::go(&stage).await;
        pipeline(&raw, 100).await;
        raw.0.shutdown();
        stage.runtime.sleep(Duration::from_millis(50)).await;
        let report = stage.server.report();
        assert!(report.connections.is_empty());
        assert_eq!(taken_on(&report), begun(&device));
        assert!(begun(&device) < 100, "the first answer could not be sent");
    });
}

#[test]
fn a_client_that_leaves_while_it_waits_for_memory_gives_its_turn_to_the_next() {
    on_both(3, |runtime, sim| async move {
        let device = slow(&runtime, Duration::from_secs(2));
        let limits = Limits { memory_bytes_max: u64::from(READ_BYTES), ..Limits::default() };
        let stage = Stage::new(runtime, sim, device.clone(), limits);
        let (first, second) = (RawClient::go(&stage).await, RawClient::go(&stage).await);
        let third = RawClient::go(&stage).await;
        pipeline(&first, 1).await;
        for raw in [&second, &third] {
            stage.runtime.sleep(Duration::from_millis(10)).await;
            pipeline(raw, 3).await;
        }
        stage.runtime.sleep(Duration::from_millis(10)).await;
        assert_eq!(stage.server.report().waiting_for_memory, 2);
        second.0.cut();
        stage.runtime.sleep(Duration::from_millis(200)).await;
        let report = stage.server.report();
        assert_eq!((report.waiting_for_memory, report.totals.dropped), (1, 1));
        first.receive(READ_REPLY_BYTES).await;
        third.receive(3 * READ_REPLY_BYTES).await;
        assert_eq!(begun(&device), 4);
    });
}

#[test]
fn a_client_that_only_ceases_to_send_gets_all_its_answers() {
    on_both(4, |runtime, sim| async move {
        let device = slow(&runtime, Duration::from_millis(400));
        let stage = Stage::new(runtime, sim, device, four_reads());
        let raw = RawClient::go(&stage).await;
        pipeline(&raw, 40).await;
        raw.0.stop_sending();
        raw.receive(40 * READ_REPLY_BYTES).await;
        assert!(raw.is_cut_off().await, "and then the server closes");
        let report = stage.server.report();
        assert_eq!((report.totals.dropped, report.failed_handshakes), (0, 0));
        assert!(stage.server.take_last_error().is_none());
    });
}

/// Asks for much over a real socket, and leaves.
async fn leave_with_requests(runtime: Runtime, stream: Rc<dyn Stream>, server: Server) {
    let pool = BufferPool::new(&PoolConfig::default());
    let client = NbdDevice::connect(&runtime, &pool, stream.clone(), "").await.unwrap();
    let client: Rc<dyn BlockDevice> = Rc::new(client);
    let mut reads = Vec::new();
    for _ in 0..200 {
        let (client, memory) = (Rc::clone(&client), Buffer::zeroed(READ_BYTES as usize));
        reads.push(runtime.spawn(async move { client.read(0, memory).await }));
    }
    while server.report().connections[0].in_flight < 4 {
        runtime.sleep(Duration::from_millis(1)).await;
    }
    stream.shutdown();
    for read in reads {
        assert!(read.await.is_err(), "the connection is gone");
    }
    while !server.report().connections.is_empty() {
        runtime.sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(server.report().memory_held_bytes, 0);
    assert!(server.report().totals.dropped > 0);
}

#[test]
fn a_client_that_closes_its_real_socket_is_noticed_before_anything_is_sent_to_it() {
    let folder = tempfile::tempdir().unwrap();
    headpond_uring::run(&RunConfig::default(), |ring, runtime| async move {
        let device = slow(&runtime, Duration::from_secs(2));
        let exports = Rc::new(Exports::new());
        exports.add(Export::new("", device.clone())).unwrap();
        let pool = BufferPool::new(&PoolConfig::default());
        let server = Server::new(runtime.clone(), pool, exports, four_reads());
        let path = folder.path().join("nbd");
        let listener = Rc::new(SocketListener::bind_unix(&ring, &path).unwrap());
        let serving = server.clone();
        drop(runtime.spawn(async move { serving.serve(listener).await }));
        let stream = Rc::new(SocketStream::connect_unix(&ring, &path).await.unwrap());
        leave_with_requests(runtime, stream, server.clone()).await;
        assert_eq!(begun(&device), 4);
    })
    .unwrap();
}
