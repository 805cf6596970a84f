//! Connections on another executor than their devices, when something goes wrong there.

use crate::common::{RESTLESS, SIZE_BYTES, Stage, on_one, on_thread};
use crate::raw::RawClient;
use headpond_block::decorators::{
    Fault, FaultControl, FaultDevice, FaultRule, Limits as ThrottleRates, ThrottleDevice,
};
use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, Buffer, RequestKind, Runtime, Stream};
use headpond_nbd::client::NbdDevice;
use headpond_nbd::codec::wire::Command;
use headpond_nbd::limits::{Limits, PAYLOAD_BYTES_MAX};
use headpond_nbd::server::StopError;
use headpond_sim::Sim;
use std::rc::Rc;
use std::time::Duration;

const LATENCY: Duration = Duration::from_millis(10);
/// Payload that has a thread's share of the memory to itself.
const LONG: u32 = PAYLOAD_BYTES_MAX;
/// `ESHUTDOWN` of the protocol.
const SHUTTING_DOWN: u32 = 108;

/// A stage whose device takes [`LATENCY`] for everything, and whose threads have memory for one
/// long request each.
fn stage(runtime: &Runtime, sim: Sim) -> Stage {
    let rates = ThrottleRates { latency: LATENCY, ..ThrottleRates::default() };
    let ram = Rc::new(RamDevice::new("ram", SIZE_BYTES + u64::from(LONG)));
    let device = Rc::new(ThrottleDevice::new(ram, runtime.clone(), rates));
    let limits = Limits { memory_bytes_max: 2 * u64::from(LONG), ..Limits::default() };
    Stage::new(runtime.clone(), sim, device, limits)
}

/// A client whose connection is on the thread.
async fn moved_raw(stage: &Stage) -> RawClient {
    let (raw, before) = (RawClient::go(stage).await, stage.on_thread());
    for _ in 0..2 {
        assert_eq!(raw.outcome(Command::Flush, 0, 0).await, 0);
    }
    assert_eq!(stage.on_thread(), before + 1);
    raw
}

async fn moved(stage: &Stage) -> Rc<NbdDevice> {
    let (client, before) = (Rc::new(stage.client().await), stage.on_thread());
    let device: &dyn BlockDevice = &*client;
    for _ in 0..2 {
        device.flush().await.unwrap();
    }
    assert_eq!(stage.on_thread(), before + 1);
    client
}

async fn read(client: Rc<NbdDevice>, bytes: u32) {
    let client: &dyn BlockDevice = &*client;
    client.read(0, Buffer::zeroed(bytes as usize)).await.unwrap();
}

#[test]
fn a_stop_answers_what_is_at_the_device_and_refuses_what_comes_later() {
    on_thread(1, |runtime, sim| async move {
        let stage = stage(&runtime, sim);
        let raw = moved_raw(&stage).await;
        raw.ask(Command::WriteZeroes.to_wire(), 0, 4096).await;
        runtime.sleep(LATENCY / 2).await;
        let server = stage.server.clone();
        let stopping = runtime.spawn(async move { server.stop().await });
        runtime.sleep(LATENCY / 4).await;
        raw.ask(Command::WriteZeroes.to_wire(), 0, 4096).await;
        let errors = [raw.error().await, raw.error().await];
        assert!(errors == [SHUTTING_DOWN, 0] || errors == [0, SHUTTING_DOWN], "{errors:?}");
        stopping.await.unwrap();
        let report = stage.server.report();
        assert!(report.connections.is_empty() && report.memory_held_bytes == 0);
    });
}

#[test]
fn a_device_that_hangs_keeps_neither_the_server_from_stopping_nor_the_thread() {
    on_thread(2, |runtime, sim| async move {
        let faults = FaultControl::default();
        let ram = Rc::new(RamDevice::new("ram", SIZE_BYTES));
        let device = Rc::new(FaultDevice::new(ram, faults.clone(), runtime.clone()));
        let stage = Stage::new(runtime.clone(), sim, device, Limits::default());
        let raw = moved_raw(&stage).await;
        faults.add(FaultRule::on(RequestKind::WriteZeroes, Fault::Hang));
        raw.ask(Command::WriteZeroes.to_wire(), 0, 4096).await;
        runtime.sleep(LATENCY).await;
        let stopped = stage.server.stop().await;
        assert_eq!(stopped, Err(StopError::Hanging { connections: 1 }));
        assert_eq!(stage.server.report().connections.len(), 1, "its memory is the device's");
    });
}

#[test]
fn a_client_that_does_not_read_gives_way_on_the_thread_to_one_that_waits() {
    on_thread(3, |runtime, sim| async move {
        let stage = stage(&runtime, sim);
        let (stalled, client) = (moved_raw(&stage).await, moved(&stage).await);
        stalled.ask(Command::Read.to_wire(), 0, LONG).await;
        runtime.sleep(LATENCY * 5).await;
        assert_eq!(stage.server.report().memory_held_bytes, u64::from(LONG));
        let asked = runtime.now();
        read(client, 4096).await;
        let waited = runtime.now().since(asked);
        let stall = Limits::default().stall_time_max;
        assert!((stall / 2..stall * 2).contains(&waited), "{waited:?}");
        let report = stage.server.report();
        assert_eq!((report.stalled, report.connections.len()), (1, 1));
        assert!(stalled.receive_up_to(2 * LONG as usize).await.len() < LONG as usize);
    });
}

#[test]
fn more_memory_is_for_requests_that_wait_on_the_thread_as_well() {
    on_thread(4, |runtime, sim| async move {
        let stage = stage(&runtime, sim);
        let (unread, client) = (moved_raw(&stage).await, moved(&stage).await);
        unread.ask(Command::Read.to_wire(), 0, LONG).await;
        runtime.sleep(LATENCY * 5).await;
        let waiting = runtime.spawn(read(client, 4096));
        runtime.sleep(LATENCY * 2).await;
        assert_eq!(stage.server.report().waiting_for_memory, 1);
        stage.server.set_memory(4 * u64::from(LONG));
        let asked = runtime.now();
        waiting.await;
        assert!(runtime.now().since(asked) < Duration::from_secs(2), "it did not see the change");
        assert_eq!(stage.server.report().stalled, 0);
    });
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_payload_leaves_nothing_on_the_thread() {
    on_thread(5, |runtime, sim| async move {
        let stage = stage(&runtime, sim);
        let raw = moved_raw(&stage).await;
        raw.ask(Command::Write.to_wire(), 0, 1 << 20).await;
        raw.send(&[1; 5000]).await;
        runtime.sleep(LATENCY).await;
        assert_eq!(stage.server.report().memory_held_bytes, 1 << 20);
        raw.0.shutdown();
        runtime.sleep(LATENCY).await;
        let report = stage.server.report();
        assert!(report.connections.is_empty() && report.memory_held_bytes == 0);
    });
}

#[test]
fn a_removed_export_stays_for_its_connections_wherever_they_are() {
    on_thread(6, |runtime, sim| async move {
        let stage = stage(&runtime, sim);
        let client = moved(&stage).await;
        assert!(stage.server.exports().remove("").is_some());
        read(client, 4096).await;
    });
}

#[test]
fn little_memory_and_a_thread_that_has_ended_keep_connections_where_they_are() {
    for bytes_max in [u64::from(LONG), 1 << 30] {
        on_one(7, |runtime, sim| async move {
            let stage = Stage::new(
                runtime.clone(),
                sim,
                Rc::new(RamDevice::new("ram", SIZE_BYTES)),
                Limits { memory_bytes_max: bytes_max, moves: RESTLESS, ..Limits::default() },
            );
            let end = stage.server.add_thread();
            let _unserved = (bytes_max < 1 << 30).then_some(end);
            let client = Rc::new(stage.client().await);
            for _ in 0..20 {
                read(Rc::clone(&client), 4096).await;
            }
            assert_eq!(stage.server.report().moves, 0);
        });
    }
}
