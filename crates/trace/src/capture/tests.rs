//! Stories of captures on a RAM device.

use std::io::Cursor;
use std::rc::Rc;
use std::time::Duration;

use headpond_block::decorators::{Limits, ThrottleDevice};
use headpond_block::devices::RamDevice;
use headpond_block::{
    BlockDevice, Buffer, Executor, Order, Request, RequestFlags, Runtime, VirtualClock,
};

use super::*;
use crate::reader::{ReadOptions, TraceReader};
use crate::record::{Op, RecordFlags, TraceRecord};

fn run<T>(story: impl AsyncFnOnce(Runtime) -> T) -> T {
    let executor = Executor::new(Box::<VirtualClock>::default(), Order::Fifo);
    let runtime = executor.runtime();
    executor.block_on(story(runtime)).expect("the story ends")
}

fn drain(drain: Drain) -> (Vec<TraceRecord>, CaptureSummary) {
    let (bytes, summary) = drain.run(Vec::new(), "hv0", 0).unwrap();
    let input = Box::new(Cursor::new(bytes));
    let mut reader = TraceReader::from_input("test", input, ReadOptions::default()).unwrap();
    let records = reader.by_ref().collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(reader.names().device(0), Some("hv0"));
    (records, summary)
}

#[test]
fn requests_between_start_and_stop_are_noted_and_no_others() {
    let (recorder, end) = capture();
    run(async |runtime| {
        let device =
            CaptureDevice::new(Rc::new(RamDevice::new("ram", 1 << 20)), runtime.clone(), 3);
        let device_ref: &dyn BlockDevice = &device;
        device_ref.write(0, Buffer::zeroed(4096)).await.unwrap();
        device.start(recorder);
        runtime.sleep(Duration::from_micros(5)).await;
        let write = Request::write(8192, Buffer::zeroed(4096)).with_flags(RequestFlags::FUA);
        device.submit(write).await.unwrap();
        device_ref.flush().await.unwrap();
        assert!(device_ref.read(1 << 20, Buffer::zeroed(4096)).await.is_err());
        device.stop();
        device_ref.write(0, Buffer::zeroed(4096)).await.unwrap();
    });
    let (records, summary) = drain(end);
    assert_eq!(summary, CaptureSummary { records: 3, dropped: 0 });
    assert_eq!((records[0].issued_ns, records[0].queue), (5000, 3));
    assert_eq!((records[0].offset_bytes, records[0].flags), (8192, RecordFlags::FUA));
    assert_eq!((records[1].op, records[1].length_bytes), (Op::Flush, 0));
    assert_eq!(records[2].flags, RecordFlags::FAILED);
}

#[test]
fn request_in_flight_at_the_stop_is_noted_with_its_time() {
    let (recorder, end) = capture();
    run(async |runtime| {
        let ram = Rc::new(RamDevice::new("ram", 1 << 20));
        let limits = Limits { latency: Duration::from_millis(3), ..Limits::default() };
        let slow = Rc::new(ThrottleDevice::new(ram, runtime.clone(), limits));
        let device = CaptureDevice::new(slow, runtime, 0);
        device.start(recorder);
        let pending = device.submit(Request::read(0, Buffer::zeroed(4096)));
        device.stop();
        assert!(!device.is_recording());
        pending.await.unwrap();
    });
    let (records, _) = drain(end);
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].response_ns(), Some(3_000_000));
}

#[test]
fn full_channel_drops_and_counts_and_never_waits() {
    let (recorder, end) = capture();
    let counter = recorder.clone();
    run(async |runtime| {
        let ram = Rc::new(RamDevice::new("ram", 1 << 20));
        let device = CaptureDevice::new(ram, runtime, 0);
        device.start(recorder);
        for _ in 0..300 * 1024 {
            device.submit(Request::flush()).await.unwrap();
        }
    });
    let dropped = counter.dropped();
    assert!(dropped > 0);
    drop(counter);
    let (records, summary) = drain(end);
    assert_eq!(summary.dropped, dropped);
    assert_eq!(records.len() as u64 + dropped, 300 * 1024);
}
