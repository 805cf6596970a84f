//! What may come back at a cut after the device refused something: records that lie there all the
//! same, and a log that was given up while the label could not be written.

use crate::bench::{Bench, block, byte_at, nop, simulate};
use headpond_block::decorators::{Fault, FaultRule};
use headpond_block::{BlockDevice, Buffers, Request, RequestFlags, RequestKind};
use headpond_cache::{Mode, SliceConfig};
use std::time::Duration;

fn past() -> SliceConfig {
    SliceConfig { mode: Mode::PassThrough, ..nop() }
}

fn through() -> SliceConfig {
    SliceConfig { mode: Mode::WriteThrough, ..nop() }
}

fn stable(byte: u8) -> Request {
    Request::write(0, block(byte)).with_flags(RequestFlags::FUA)
}

/// The next writes, so many.
fn next(count: u64, fault: Fault) -> FaultRule {
    FaultRule { times: Some(count), ..FaultRule::on(RequestKind::Write, fault) }
}

/// A record lies on the device, was answered with an error, and its void one is late; what
/// `request` leaves at the core is there after a cut too.
fn is_stable_although_a_record_was_denied(request: Request) {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(nop()).await;
        let device: &dyn BlockDevice = &slice;
        bench.cache_faults.add(next(1, Fault::Deny));
        bench.cache_faults.add(next(1, Fault::Delay(Duration::from_millis(200))));
        device.write(0, block(1)).await.unwrap();
        slice.set_config(past()).unwrap();
        device.submit(request).await.unwrap();
        let at_core = byte_at(&*bench.core, 0).await.unwrap();
        // As after a power cut: the void record may not have arrived.
        bench.cache_faults.clear();
        let again = bench.open(nop()).await;
        assert_eq!(byte_at(&again, 0).await.unwrap(), at_core);
    });
}

#[test]
fn a_stable_write_past_the_cache_waits_until_a_record_that_failed_is_contradicted() {
    is_stable_although_a_record_was_denied(stable(2));
}

#[test]
fn stable_zeroes_past_the_cache_wait_until_a_record_that_failed_is_contradicted() {
    let kind = RequestKind::WriteZeroes;
    is_stable_although_a_record_was_denied(Request { kind, buffers: Buffers::new(), ..stable(0) });
}

#[test]
fn a_record_in_whose_place_an_empty_one_was_put_does_not_come_back() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(nop()).await;
        let device: &dyn BlockDevice = &slice;
        device.write(8192, block(9)).await.unwrap();
        bench.cache_faults.add(next(1, Fault::Deny));
        device.write(0, block(1)).await.unwrap();
        device.flush().await.unwrap();
        slice.set_config(past()).unwrap();
        device.submit(stable(2)).await.unwrap();
        let again = bench.open(nop()).await;
        assert_eq!(byte_at(&again, 0).await.unwrap(), 2);
        assert_eq!(byte_at(&again, 8192).await.unwrap(), 9);
        again.self_check();
    });
}

/// Block 0 is clean at 3 and its end cannot be recorded, nor can the label be written, so often.
/// Once that is over everything goes on.
fn recovers_after_failures_of_the_label(failures: u32) {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(nop()).await;
        let device: &dyn BlockDevice = &slice;
        device.write(0, block(3)).await.unwrap();
        slice.flush_dirty().await.unwrap();
        slice.set_config(past()).unwrap();
        bench.label.failures.set(failures);
        bench.cache_faults.add(FaultRule::on(RequestKind::Write, Fault::Media));
        assert!(device.submit(stable(4)).await.is_err());
        runtime.sleep(Duration::from_millis(10)).await;
        while bench.label.failures.get() > 0 {
            assert!(device.submit(stable(4)).await.is_err());
        }
        device.submit(stable(5)).await.unwrap();
        device.flush().await.unwrap();
        assert_eq!((slice.stats().is_failed, bench.label.disowned.get()), (true, 1));
        assert_eq!(byte_at(device, 0).await.unwrap(), 5);
    });
}

#[test]
fn what_could_not_be_ended_is_written_once_the_cache_is_disowned() {
    (1..5).for_each(recovers_after_failures_of_the_label);
}

#[test]
fn nothing_is_acknowledged_past_a_log_that_was_given_up_and_not_disowned() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(nop()).await;
        let device: &dyn BlockDevice = &slice;
        device.write(0, block(3)).await.unwrap();
        slice.flush_dirty().await.unwrap();
        bench.label.failures.set(1000);
        bench.cache_faults.add(FaultRule::on(RequestKind::Write, Fault::Media));
        // Its record cannot be made void.
        let _ = device.write(40960, block(1)).await;
        runtime.sleep(Duration::from_millis(10)).await;
        assert!(slice.stats().is_failed && bench.label.disowned.get() == 0);
        assert!(device.submit(stable(5)).await.is_err());
        assert!(device.flush().await.is_err());
        bench.label.failures.set(0);
        device.submit(stable(6)).await.unwrap();
        device.flush().await.unwrap();
        assert_eq!(bench.label.disowned.get(), 1);
    });
}

#[test]
fn a_write_through_that_is_not_recorded_ends_what_is_owed() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(nop()).await;
        let device: &dyn BlockDevice = &slice;
        device.write(0, block(3)).await.unwrap();
        slice.flush_dirty().await.unwrap();
        slice.set_config(past()).unwrap();
        bench.label.failures.set(1);
        bench.cache_faults.add(next(1, Fault::Media));
        assert!(device.submit(stable(4)).await.is_err());
        runtime.sleep(Duration::from_millis(10)).await;
        slice.set_config(through()).unwrap();
        bench.cache_faults.add(next(1, Fault::Media));
        device.submit(stable(5)).await.unwrap();
        runtime.sleep(Duration::from_millis(10)).await;
        assert!(!slice.stats().is_failed && bench.label.disowned.get() == 0);
        let again = bench.open(nop()).await;
        assert_eq!(byte_at(&again, 0).await.unwrap(), 5);
    });
}
