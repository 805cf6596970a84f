//! Our client against our server in virtual time, judged by a byte array.

use crate::common::{SIZE_BYTES, Stage, on_both, story};
use headpond_block::decorators::{
    Fault, FaultControl, FaultDevice, FaultRule, Limits as ThrottleRates, ProbeDevice,
    ThrottleDevice,
};
use headpond_block::devices::RamDevice;
use headpond_block::{
    BlockDevice, Buffer, Buffers, ByteRange, Cause, DeviceError, Geometry, Request, RequestFlags,
    RequestKind, Stability,
};
use headpond_nbd::client::ConnectError;
use headpond_nbd::client::handshake::Refusal;
use headpond_nbd::limits::Limits;
use headpond_nbd::server::Export;
use headpond_sim::Random;
use std::rc::Rc;
use std::time::Duration;

/// What the export should hold, and what to do to it next.
struct Model {
    bytes: Vec<u8>,
    random: Random,
}

impl Model {
    /// A request on an aligned range, applied to the model; for a read, what it must return.
    fn next(&mut self) -> (Request, Option<(Buffers, Vec<u8>)>) {
        let longest = if self.random.one_in(8) { 600 } else { 20 };
        let blocks = 1 + self.random.below(longest);
        let start = self.random.below(SIZE_BYTES / 512 - blocks) * 512;
        let range = ByteRange::at(start, blocks * 512);
        let place = start as usize..range.end() as usize;
        match self.random.below(5) {
            0 | 1 => {
                let memory = self.memory(range.len() as usize);
                let expected = self.bytes[place].to_vec();
                (Request::read(start, memory.clone()), Some((memory, expected)))
            }
            2 | 3 => {
                let memory = self.memory(range.len() as usize);
                let byte = self.random.number() as u8;
                memory.fill(byte);
                self.bytes[place].fill(byte);
                (Request::write(start, memory).with_flags(RequestFlags::FUA), None)
            }
            _ => {
                self.bytes[place].fill(0);
                (Request::write_zeroes(range), None)
            }
        }
    }

    /// Memory in one piece or in several.
    fn memory(&mut self, len: usize) -> Buffers {
        if self.random.one_in(2) {
            return Buffer::zeroed(len).into();
        }
        let cut = 1 + self.random.below(len as u64 - 1) as usize;
        [Buffer::zeroed(cut), Buffer::zeroed(len - cut)].into_iter().collect()
    }
}

#[test]
fn whatever_is_written_is_read_again() {
    for seed in 0..12 {
        story(seed, async |stage| {
            let client = stage.client().await;
            let client: &dyn BlockDevice = &client;
            let mut model =
                Model { bytes: vec![0; SIZE_BYTES as usize], random: stage.sim.random() };
            for step in 0..150 {
                let (request, expected) = model.next();
                client.submit(request).await.unwrap();
                if let Some((memory, expected)) = expected {
                    assert!(memory.to_vec() == expected, "seed {seed}, step {step}");
                }
            }
            let report = stage.server.report();
            assert_eq!(report.moves > 2, stage.has_thread, "{}", report.moves);
            assert_eq!(report.connections[0].totals.requests, report.totals.requests);
        });
    }
}

#[test]
fn a_stop_catches_a_connection_wherever_it_is() {
    for seed in 100..140 {
        story(seed, async |stage| {
            let client: Rc<dyn BlockDevice> = Rc::new(stage.client().await);
            let load = stage.runtime.spawn(async move {
                let (mut written, buffer) = (0_u64, Buffer::zeroed(4096));
                buffer.fill(7);
                while client.write(written * 4096 % SIZE_BYTES, &buffer).await.is_ok() {
                    written += 1;
                }
                written
            });
            let pause = stage.sim.random().below(20_000);
            stage.runtime.sleep(Duration::from_micros(pause)).await;
            stage.server.stop().await.unwrap();
            let report = stage.server.report();
            assert!(report.connections.is_empty() && report.memory_held_bytes == 0);
            assert_eq!(report.totals.written_bytes, load.await * 4096, "seed {seed}");
        });
    }
}

/// A device whose answers come late, so that requests overtake one another.
fn late(runtime: &headpond_block::Runtime) -> Rc<dyn BlockDevice> {
    let rates = ThrottleRates { latency: Duration::from_micros(300), ..Default::default() };
    let ram = Rc::new(RamDevice::new("ram", SIZE_BYTES));
    Rc::new(ThrottleDevice::new(ram, runtime.clone(), rates))
}

#[test]
fn hundreds_in_flight_are_each_answered_with_their_own_data() {
    for seed in 0..8 {
        on_both(seed, |runtime, sim| async move {
            let device = late(&runtime);
            let stage = Stage::new(runtime, sim, device, Limits::default());
            let client: Rc<dyn BlockDevice> = Rc::new(stage.client().await);
            let mut tasks = Vec::new();
            for index in 0..400u64 {
                let client = Rc::clone(&client);
                tasks.push(stage.runtime.spawn(async move {
                    let buffer = Buffer::zeroed(8192);
                    buffer.fill(index as u8);
                    client.write(index * 8192, &buffer).await.unwrap();
                    let back = Buffer::zeroed(8192);
                    client.read(index * 8192, &back).await.unwrap();
                    assert_eq!(back.to_vec(), [index as u8; 8192]);
                }));
            }
            for task in tasks {
                task.await;
            }
        });
    }
}

#[test]
fn small_and_large_writes_in_one_stream_arrive_whole() {
    on_both(77, |runtime, sim| async move {
        let device = late(&runtime);
        let stage = Stage::new(runtime, sim, device, Limits::default());
        let client: Rc<dyn BlockDevice> = Rc::new(stage.client().await);
        let sizes = [512, 200 << 10, 4096, 64 << 10, 65 << 10, 512, 300 << 10, 4096];
        let mut offset = 0;
        let mut tasks = Vec::new();
        for (index, size) in sizes.into_iter().enumerate() {
            let buffer = Buffer::zeroed(size);
            buffer.fill(index as u8 + 1);
            let (client, at) = (Rc::clone(&client), offset);
            tasks.push(stage.runtime.spawn(async move { client.write(at, &buffer).await }));
            offset += size as u64;
        }
        for task in tasks {
            task.await.unwrap();
        }
        let all = Buffer::zeroed(offset as usize);
        client.read(0, &all).await.unwrap();
        let expected: Vec<u8> =
            (1u8..).zip(sizes).flat_map(|(byte, size)| vec![byte; size]).collect();
        assert!(all.to_vec() == expected);
    });
}

#[test]
fn a_request_larger_than_the_server_takes_is_cut_into_pieces() {
    on_both(21, |runtime, sim| async move {
        let ram = Rc::new(RamDevice::new("ram", 80 << 20));
        let stage = Stage::new(runtime, sim, ram, Limits::default());
        let client = stage.client().await;
        let client: &dyn BlockDevice = &client;
        let buffer = Buffer::zeroed(70 << 20);
        buffer.fill(5);
        client.write(4096, &buffer).await.unwrap();
        buffer.fill(0);
        client.read(4096, &buffer).await.unwrap();
        assert!(buffer.to_vec().iter().all(|byte| *byte == 5));
    });
}

#[test]
fn errors_of_the_device_reach_the_client_as_what_they_are() {
    on_both(22, |runtime, sim| async move {
        let faults = FaultControl::default();
        let ram = Rc::new(RamDevice::new("ram", SIZE_BYTES));
        let device = Rc::new(FaultDevice::new(ram, faults.clone(), runtime.clone()));
        let stage = Stage::new(runtime, sim, device, Limits::default());
        let client = stage.client().await;
        let client: &dyn BlockDevice = &client;
        let once = |kind, fault| FaultRule { times: Some(1), ..FaultRule::on(kind, fault) };
        faults.add(once(RequestKind::Read, Fault::Media));
        let read = client.read(0, Buffer::zeroed(512)).await;
        assert!(
            matches!(read.as_ref().map_err(DeviceError::cause), Err(Cause::Media { .. })),
            "{read:?}"
        );
        faults.add(once(RequestKind::Write, Fault::NoSpace));
        let written = client.write(0, Buffer::zeroed(512)).await;
        assert!(
            matches!(written.as_ref().map_err(DeviceError::cause), Err(Cause::NoSpace)),
            "{written:?}"
        );
        client.read(0, Buffer::zeroed(512)).await.unwrap();
    });
}

#[test]
fn fua_flush_discard_and_cache_reach_the_device() {
    on_both(23, |runtime, sim| async move {
        let probe = Rc::new(ProbeDevice::new(late(&runtime), runtime.clone()));
        let stage = Stage::new(runtime, sim, probe.clone(), Limits::default());
        let nbd = stage.client().await;
        let client: &dyn BlockDevice = &nbd;
        client.submit(Request::discard(ByteRange::at(0, 8192))).await.unwrap();
        client.flush().await.unwrap();
        let write = Request::write(0, Buffer::zeroed(512)).with_flags(RequestFlags::FUA);
        client.submit(write).await.unwrap();
        nbd.cache(ByteRange::at(0, 3 << 20)).await.unwrap();
        let kinds: Vec<_> = probe.recent().into_iter().map(|(kind, _)| kind).collect();
        use RequestKind::{Discard, Flush, Read, Write};
        assert_eq!(kinds, [Discard, Flush, Write, Read, Read, Read]);
    });
}

#[test]
fn the_geometry_is_the_servers() {
    on_both(24, |runtime, sim| async move {
        let mut geometry = Geometry::of_size(SIZE_BYTES);
        geometry.logical_block_bytes = 4096;
        geometry.preferred_bytes = 65_536;
        geometry.rotational = true;
        let ram = Rc::new(RamDevice::with_geometry("ram", geometry.clone()));
        let stage = Stage::new(runtime, sim, ram, Limits::default());
        let client = stage.client().await;
        let expected = Geometry { stability: Stability::Flushable, ..geometry };
        assert_eq!(*client.geometry(), expected);
        let client: &dyn BlockDevice = &client;
        let misaligned = client.read(512, Buffer::zeroed(512)).await;
        assert!(matches!(
            misaligned.as_ref().map_err(DeviceError::cause),
            Err(Cause::Misaligned { .. })
        ));
    });
}

#[test]
fn exports_are_served_by_name_and_a_wrong_name_is_refused() {
    story(25, async |stage| {
        let ram = Rc::new(RamDevice::new("other", 1 << 20));
        stage.server.exports().add(Export::new("other", ram).read_only()).unwrap();
        let other = stage.try_client("other").await.unwrap();
        assert_eq!(other.geometry().size_bytes, 1 << 20);
        let other: &dyn BlockDevice = &other;
        let written = other.write(0, Buffer::zeroed(512)).await;
        assert!(matches!(written.as_ref().map_err(DeviceError::cause), Err(Cause::ReadOnly)));
        let refused = stage.try_client("nope").await.err();
        let expected = Refusal::UnknownExport("nope".into());
        assert!(matches!(refused, Some(ConnectError::Refused(why)) if why == expected));
    });
}

#[test]
fn a_lost_server_fails_everything_in_flight_and_later() {
    on_both(26, |runtime, sim| async move {
        let device = late(&runtime);
        let stage = Stage::new(runtime.clone(), sim, device, Limits::default());
        let stream = stage.dial();
        let client =
            headpond_nbd::client::NbdDevice::connect(&runtime, &stage.pool, stream.clone(), "");
        let client: Rc<dyn BlockDevice> = Rc::new(client.await.unwrap());
        let reading = {
            let client = Rc::clone(&client);
            runtime.spawn(async move { client.read(0, Buffer::zeroed(4096)).await })
        };
        runtime.sleep(Duration::from_micros(150)).await;
        stream.cut();
        assert!(reading.await.as_ref().is_err_and(DeviceError::is_gone));
        assert!(client.flush().await.as_ref().is_err_and(DeviceError::is_gone));
    });
}

#[test]
fn a_client_that_closes_is_gone_when_close_returns() {
    story(27, async |stage| {
        let client = stage.client().await;
        client.close().await;
        assert!(!client.is_connected());
        assert!(client.take_error().is_none(), "a plain close");
        stage.runtime.sleep(Duration::from_millis(1)).await;
        assert!(stage.server.report().connections.is_empty());
        assert_eq!(stage.server.report().accepted, 1);
    });
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    on_both(28, |runtime, sim| async move {
        let listener = headpond_sim::net::SimListener::new(&runtime, sim.random());
        let stream = listener.connect(headpond_sim::net::Link::LOCAL);
        let pool = headpond_block::BufferPool::new(&Default::default());
        let late = headpond_nbd::client::NbdDevice::connect(&runtime, &pool, stream, "").await;
        assert!(matches!(late.err(), Some(ConnectError::Late)));
    });
}

#[test]
fn statistics_count_what_was_done() {
    story(29, async |stage| {
        let client = stage.client().await;
        let device: &dyn BlockDevice = &client;
        device.write(0, Buffer::zeroed(8192)).await.unwrap();
        device.read(0, Buffer::zeroed(4096)).await.unwrap();
        let report = stage.server.report();
        let totals = report.connections[0].totals;
        assert_eq!((totals.requests, totals.errors), (2, 0));
        assert_eq!((totals.written_bytes, totals.read_bytes), (8192, 4096));
        assert_eq!(report.connections[0].export.as_deref(), Some(""));
    });
}
