use super::*;
use crate::devices::RamDevice;
use crate::{
    BlockDevice, Buffer, Cause, DeviceError, Executor, Instant, Order, Request, RequestFlags,
    RequestKind, Runtime, VirtualClock,
};
use std::rc::Rc;
use std::time::Duration;

fn run<T>(story: impl AsyncFnOnce(Runtime) -> T) -> T {
    let executor = Executor::new(Box::<VirtualClock>::default(), Order::Fifo);
    let runtime = executor.runtime();
    executor.block_on(story(runtime)).expect("the story ends")
}

fn ram() -> Rc<RamDevice> {
    Rc::new(RamDevice::new("ram", 64 << 10))
}

async fn read_byte(device: &dyn BlockDevice, offset: u64) -> u8 {
    let buffer = Buffer::zeroed(512);
    device.read(offset, &buffer).await.unwrap();
    buffer.to_vec()[0]
}

fn filled(byte: u8) -> Buffer {
    Buffer::from_slice(&[byte; 512])
}

#[test]
fn a_fault_strikes_after_so_many_and_so_often() {
    run(async |runtime| {
        let control = FaultControl::default();
        let device = FaultDevice::new(ram(), control.clone(), runtime);
        let device: &dyn BlockDevice = &device;
        let rule = FaultRule::on(RequestKind::Write, Fault::Media);
        control.add(FaultRule { after: 1, times: Some(1), ..rule });
        assert!(device.write(0, filled(1)).await.is_ok());
        assert!(matches!(
            device.write(0, filled(2)).await.as_ref().map_err(DeviceError::cause),
            Err(Cause::Media { .. })
        ));
        assert!(device.write(512, filled(3)).await.is_ok());
        assert_eq!((read_byte(device, 0).await, control.struck()), (1, 1));
    });
}

#[test]
fn a_device_that_is_gone_stays_gone_until_cleared() {
    run(async |runtime| {
        let control = FaultControl::default();
        let device = FaultDevice::new(ram(), control.clone(), runtime);
        let device: &dyn BlockDevice = &device;
        let rule = FaultRule::on(RequestKind::Flush, Fault::Gone);
        control.add(FaultRule { times: Some(1), ..rule });
        assert!(device.flush().await.is_err());
        assert!(device.write(0, filled(1)).await.is_err());
        control.clear();
        assert!(device.write(0, filled(1)).await.is_ok());
    });
}

#[test]
fn corruption_touches_the_device_and_not_the_callers_memory() {
    run(async |runtime| {
        let control = FaultControl::default();
        let device = FaultDevice::new(ram(), control.clone(), runtime);
        let device: &dyn BlockDevice = &device;
        control.add(FaultRule::on(RequestKind::Write, Fault::Corrupt));
        let data = filled(0x0f);
        device.write(0, &data).await.unwrap();
        assert_eq!(data.to_vec()[0], 0x0f);
        assert_eq!(read_byte(device, 0).await, 0xf0);
    });
}

#[test]
fn throttled_rate_is_exact_over_time() {
    run(async |runtime| {
        let limits = Limits { operations_per_second: Some(100), ..Limits::default() };
        let device = ThrottleDevice::new(ram(), runtime.clone(), limits);
        for _ in 0..50 {
            (&device as &dyn BlockDevice).write(0, filled(1)).await.unwrap();
        }
        assert_eq!(runtime.now(), Instant::START + Duration::from_millis(490));
    });
}

#[test]
fn probe_counts_what_passes() {
    run(async |runtime| {
        let device = ProbeDevice::new(ram(), runtime);
        let write = Request::write(0, filled(1)).with_flags(RequestFlags::FUA);
        device.submit(write).await.unwrap();
        assert!(device.submit(Request::read(100, filled(0))).await.is_err());
        let seen = device.snapshot();
        assert_eq!((seen.writes.requests, seen.writes.bytes, seen.fua_writes), (1, 512, 1));
        assert_eq!((seen.reads.errors, seen.in_flight, seen.in_flight_max), (1, 0, 1));
        assert_eq!(device.recent().len(), 2);
    });
}

#[test]
fn unflushed_writes_are_read_back_but_are_not_below() {
    run(async |_| {
        let below = ram();
        let device = VolatileDevice::new(below.clone(), Leak::Nothing, 1);
        let device: &dyn BlockDevice = &device;
        device.write(0, filled(1)).await.unwrap();
        assert_eq!(read_byte(device, 0).await, 1);
        assert_eq!(below.memory().to_vec()[0], 0);
        device.flush().await.unwrap();
        assert_eq!(below.memory().to_vec()[0], 1);
    });
}

#[test]
fn fua_supersedes_older_unflushed_data() {
    run(async |_| {
        let below = ram();
        let device = VolatileDevice::new(below.clone(), Leak::OneIn(1), 1);
        let device: &dyn BlockDevice = &device;
        device.write(0, filled(1)).await.unwrap();
        device.submit(Request::write(0, filled(2)).with_flags(RequestFlags::FUA)).await.unwrap();
        assert_eq!(below.memory().to_vec()[0], 2);
        device.flush().await.unwrap();
        assert_eq!(read_byte(device, 0).await, 2);
    });
}

#[test]
fn some_unflushed_blocks_leak_and_others_do_not() {
    run(async |_| {
        let below = ram();
        let device = VolatileDevice::new(below.clone(), Leak::OneIn(2), 3);
        for block in 0..64 {
            (&device as &dyn BlockDevice).write(block * 512, filled(9)).await.unwrap();
        }
        let leaked = (0..64)
            .filter(|block| below.memory().slice(block * 512..block * 512 + 1).to_vec() == [9]);
        let leaked = leaked.count();
        assert!((10..55).contains(&leaked), "{leaked} leaked");
        assert_eq!(device.unflushed_blocks(), 64 - leaked);
    });
}
