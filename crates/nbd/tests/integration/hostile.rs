//! What clients did to other servers, done to ours.

use crate::common::{SIZE_BYTES, Stage, on_both, story};
use crate::raw::RawClient;
use headpond_block::decorators::Limits as ThrottleRates;
use headpond_block::decorators::{
    Fault, FaultControl, FaultDevice, FaultRule, ProbeDevice, ThrottleDevice,
};
use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, Buffer, DeviceError, RequestKind};
use headpond_nbd::codec::option::encode_option;
use headpond_nbd::codec::wire::{Command, opt};
use headpond_nbd::limits::Limits;
use headpond_nbd::server::{ServerReport, StopError};
use std::rc::Rc;
use std::time::Duration;

const INVALID: u32 = 22;
const NO_SPACE: u32 = 28;
const SHUTTING_DOWN: u32 = 108;

#[test]
fn a_wrong_magic_ends_the_connection_and_nobody_elses() {
    story(1, async |stage| {
        let other = stage.client().await;
        let raw = RawClient::go(&stage).await;
        raw.send(&[0xee; 28]).await;
        assert!(raw.is_cut_off().await);
        let other: &dyn BlockDevice = &other;
        other.write(0, Buffer::zeroed(4096)).await.unwrap();
    });
}

#[test]
fn an_unknown_command_is_invalid_and_the_next_request_is_served() {
    story(2, async |stage| {
        let raw = RawClient::go(&stage).await;
        raw.ask(99, 0, 512).await;
        assert_eq!(raw.error().await, INVALID);
        assert_eq!(raw.outcome(Command::Trim, 0, 512).await, 0);
    });
}

#[test]
fn past_the_end_a_read_is_invalid_and_a_change_finds_no_space() {
    story(3, async |stage| {
        let raw = RawClient::go(&stage).await;
        assert_eq!(raw.outcome(Command::Read, SIZE_BYTES, 512).await, INVALID);
        assert_eq!(raw.outcome(Command::Read, u64::MAX - 511, 512).await, INVALID);
        assert_eq!(raw.outcome(Command::Trim, SIZE_BYTES - 512, 1024).await, NO_SPACE);
        raw.ask(Command::Write.to_wire(), u64::MAX - 511, 512).await;
        raw.send(&[1; 512]).await;
        assert_eq!(raw.error().await, NO_SPACE, "and its payload was skipped");
        assert_eq!(raw.outcome(Command::Flush, 0, 0).await, 0);
    });
}

#[test]
fn between_blocks_is_invalid() {
    story(4, async |stage| {
        let raw = RawClient::go(&stage).await;
        assert_eq!(raw.outcome(Command::Read, 100, 512).await, INVALID);
        assert_eq!(raw.outcome(Command::WriteZeroes, 0, 100).await, INVALID);
    });
}

#[test]
fn nothing_at_all_is_done_with_success() {
    story(5, async |stage| {
        let raw = RawClient::go(&stage).await;
        for command in [Command::Read, Command::Write, Command::Trim, Command::Cache] {
            assert_eq!(raw.outcome(command, 0, 0).await, 0, "{command:?}");
        }
    });
}

#[test]
fn a_read_that_is_too_long_is_invalid_and_costs_no_memory() {
    story(6, async |stage| {
        let raw = RawClient::go(&stage).await;
        assert_eq!(raw.outcome(Command::Read, 0, u32::MAX).await, INVALID);
        assert_eq!(stage.pool.overflows(), 0);
    });
}

#[test]
fn a_write_that_is_too_long_is_skipped_up_to_a_limit_and_then_cut_off() {
    story(7, async |stage| {
        let raw = RawClient::go(&stage).await;
        let too_long = (32 << 20) + 512;
        raw.ask(Command::Write.to_wire(), 0, too_long).await;
        for _ in 0..too_long / 512 / 1024 {
            raw.send(&[0; 512 * 1024]).await;
        }
        raw.send(&[0; 512]).await;
        assert_eq!(raw.error().await, INVALID);
        raw.ask(Command::Write.to_wire(), 0, u32::MAX).await;
        assert!(raw.is_cut_off().await);
        assert_eq!(stage.pool.overflows(), 0);
    });
}

#[test]
fn a_handshake_that_never_ends_is_ended() {
    story(8, async |stage| {
        let silent = RawClient(stage.dial());
        silent.receive(18).await;
        let begun = stage.runtime.now();
        assert!(silent.is_cut_off().await);
        let waited = stage.runtime.now().since(begun);
        assert!(waited > Duration::from_secs(9) && waited < Duration::from_secs(11), "{waited:?}");
        stage.runtime.sleep(Duration::from_millis(1)).await;
        assert_eq!(stage.server.report().failed_handshakes, 1);
    });
}

#[test]
fn a_slow_trickle_does_not_prolong_the_handshake() {
    story(9, async |stage| {
        let slow = RawClient::hello(&stage).await;
        for _ in 0..6 {
            stage.runtime.sleep(Duration::from_secs(2)).await;
            let mut message = Vec::new();
            encode_option(opt::LIST, b"", &mut message);
            let sent = slow.try_send(&message);
            if sent.await.is_err() {
                break;
            }
        }
        assert!(slow.receive_up_to(4096).await.len() < 4096);
        assert!(stage.server.report().connections.is_empty());
    });
}

#[test]
fn an_endless_option_ends_the_connection_without_being_read() {
    story(10, async |stage| {
        let raw = RawClient::hello(&stage).await;
        let mut message = Vec::new();
        encode_option(opt::GO, b"", &mut message);
        message[12..16].copy_from_slice(&u32::MAX.to_be_bytes());
        raw.send(&message).await;
        assert!(raw.is_cut_off().await);
    });
}

/// A device that takes ten milliseconds for everything.
fn slow(stage: &headpond_block::Runtime) -> Rc<dyn BlockDevice> {
    let limits = ThrottleRates { latency: Duration::from_millis(10), ..Default::default() };
    let ram = Rc::new(RamDevice::new("ram", SIZE_BYTES));
    Rc::new(ThrottleDevice::new(ram, stage.clone(), limits))
}

#[test]
fn a_client_that_vanishes_leaves_nothing_behind_and_disturbs_nobody() {
    on_both(12, |runtime, sim| async move {
        let device = slow(&runtime);
        let stage = Stage::new(runtime, sim, device, Limits::default());
        let other = stage.client().await;
        let raw = RawClient::go(&stage).await;
        for index in 0..50 {
            raw.ask(Command::Read.to_wire(), index * 65_536 % SIZE_BYTES, 65_536).await;
        }
        stage.runtime.sleep(Duration::from_millis(5)).await;
        raw.0.cut();
        let other: &dyn BlockDevice = &other;
        other.read(0, Buffer::zeroed(4096)).await.unwrap();
        stage.runtime.sleep(Duration::from_millis(100)).await;
        assert_eq!(stage.server.report().connections.len(), 1);
    });
}

#[test]
fn a_client_that_never_reads_is_not_read_from() {
    on_both(13, |runtime, sim| async move {
        let ram = Rc::new(RamDevice::new("ram", SIZE_BYTES));
        let probe = Rc::new(ProbeDevice::new(ram, runtime.clone()));
        let limits = Limits { in_flight_bytes_max: 1 << 20, ..Limits::default() };
        let stage = Stage::new(runtime, sim, probe, limits);
        let raw = RawClient::go(&stage).await;
        for _ in 0..100 {
            raw.ask(Command::Read.to_wire(), 0, 256 << 10).await;
        }
        stage.runtime.sleep(Duration::from_secs(1)).await;
        let report = stage.server.report();
        let in_flight = report.connections[0].in_flight;
        assert!((1..=4).contains(&in_flight), "{in_flight} of a quarter MiB each");
        let served = raw.receive(100 * (16 + (256 << 10))).await;
        assert_eq!(served.len(), 100 * (16 + (256 << 10)));
    });
}

#[test]
fn a_client_that_says_goodbye_and_never_reads_is_cut_off() {
    story(18, async |stage| {
        let raw = RawClient::go(&stage).await;
        for _ in 0..16 {
            raw.ask(Command::Read.to_wire(), 0, 1 << 20).await;
        }
        raw.ask(Command::Disconnect.to_wire(), 0, 0).await;
        stage.runtime.sleep(Duration::from_secs(11)).await;
        assert!(stage.server.report().connections.is_empty());
    });
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_payload_writes_nothing() {
    story(14, async |stage| {
        let raw = RawClient::go(&stage).await;
        raw.ask(Command::Write.to_wire(), 0, 128 << 10).await;
        raw.send(&[9; 100_000]).await;
        raw.0.cut();
        stage.runtime.sleep(Duration::from_secs(1)).await;
        assert!(stage.server.report().connections.is_empty());
        let client = stage.client().await;
        let client: &dyn BlockDevice = &client;
        let buffer = Buffer::from_slice(&[1; 4096]);
        client.read(0, &buffer).await.unwrap();
        assert_eq!(buffer.to_vec(), [0; 4096]);
    });
}

#[test]
fn a_server_that_stops_answers_what_it_has_and_refuses_what_comes() {
    on_both(15, |runtime, sim| async move {
        let probe = Rc::new(ProbeDevice::new(slow(&runtime), runtime.clone()));
        let stage = Stage::new(runtime, sim, probe.clone(), Limits::default());
        let raw = RawClient::go(&stage).await;
        raw.ask(Command::Trim.to_wire(), 0, 4096).await;
        stage.runtime.sleep(Duration::from_millis(2)).await;
        let server = stage.server.clone();
        let stopping = stage.runtime.spawn(async move { server.stop().await });
        stage.runtime.sleep(Duration::from_millis(1)).await;
        raw.ask(Command::Trim.to_wire(), 4096, 4096).await;
        assert_eq!(raw.error().await, SHUTTING_DOWN, "new work is refused at once");
        assert_eq!(raw.error().await, 0, "work in flight is finished");
        assert!(raw.is_cut_off().await);
        stopping.await.unwrap();
        assert_eq!(probe.recent().last().map(|(kind, _)| *kind), Some(RequestKind::Flush));
        let ServerReport { connections, refused, .. } = stage.server.report();
        assert!(connections.is_empty());
        assert_eq!(refused, 0);
    });
}

#[test]
fn a_server_whose_flush_fails_says_so_when_it_stops() {
    on_both(16, |runtime, sim| async move {
        let ram = Rc::new(RamDevice::new("ram", SIZE_BYTES));
        let faults = FaultControl::default();
        faults.add(FaultRule::on(RequestKind::Flush, Fault::Media));
        let device = Rc::new(FaultDevice::new(ram, faults, runtime.clone()));
        let stage = Stage::new(runtime, sim, device, Limits::default());
        let client = stage.client().await;
        let stopped = stage.server.stop().await;
        assert!(stopped.is_err());
        stage.runtime.sleep(Duration::from_millis(1)).await;
        assert!(!client.is_connected());
        let client: &dyn BlockDevice = &client;
        let gone = client.flush().await;
        assert!(gone.as_ref().is_err_and(DeviceError::is_gone), "{gone:?}");
    });
}

#[test]
fn a_device_that_hangs_does_not_keep_the_server_from_stopping() {
    on_both(17, |runtime, sim| async move {
        let ram = Rc::new(RamDevice::new("ram", SIZE_BYTES));
        let faults = FaultControl::default();
        faults.add(FaultRule::on(RequestKind::Write, Fault::Hang));
        let device = Rc::new(FaultDevice::new(ram, faults, runtime.clone()));
        let stage = Stage::new(runtime, sim, device, Limits::default());
        let client = Rc::new(stage.client().await);
        let writer = Rc::clone(&client);
        let writing = stage.runtime.spawn(async move {
            let writer: &dyn BlockDevice = &*writer;
            writer.write(0, Buffer::zeroed(512)).await
        });
        stage.runtime.sleep(Duration::from_millis(1)).await;
        let stopped = stage.server.stop().await;
        assert_eq!(stopped, Err(StopError::Hanging { connections: 1 }));
        assert!(writing.await.as_ref().is_err_and(DeviceError::is_gone));
    });
}

#[test]
fn noise_after_the_handshake_never_harms_the_server() {
    for seed in 0..40 {
        story(1000 + seed, async |stage| {
            let mut random = stage.sim.random();
            let raw = RawClient::go(&stage).await;
            for _ in 0..20 {
                let command = random.below(9) as u16;
                let length = (random.below(64) * 512) as u32;
                raw.ask(command, random.below(SIZE_BYTES * 2) / 512 * 512, length).await;
                let noise: Vec<u8> =
                    (0..random.below(3000)).map(|_| random.number() as u8).collect();
                let sent = raw.try_send(&noise);
                if sent.await.is_err() {
                    break;
                }
                if random.one_in(5) {
                    break;
                }
            }
            raw.0.cut();
            stage.runtime.sleep(Duration::from_millis(50)).await;
            let client = stage.client().await;
            let client: &dyn BlockDevice = &client;
            client.write(0, Buffer::zeroed(512)).await.unwrap();
            assert_eq!(stage.server.report().connections.len(), 1);
        });
    }
}
