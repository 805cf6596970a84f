//! What goes to the core because it answers sooner, and what never does.

use crate::bench::{Bench, block, nop, simulate};
use crate::machine::{CACHE_BYTES, CORE_BYTES, EXPECTED, options, small_cleaning};
use headpond_block::decorators::{Fault, FaultRule};
use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, Buffer, DeviceError, RequestKind};
use headpond_cache::{
    BypassPolicy, CleaningConfig, CleaningPolicy, Counters, FallbackConfig, Foundation, Slice,
    SliceConfig, StripeConfig, create,
};
use std::rc::Rc;
use std::time::Duration;

const BYPASS: BypassPolicy = BypassPolicy::Adaptive;
/// Blocks that the cache has.
const FEW: u64 = 32;
/// More than the cache has room for.
const MANY: u64 = CORE_BYTES / 2 / 4096;
/// Until a share has settled there may be so many requests.
const SETTLED_AFTER: u64 = 40_000;
/// The smaller one may go while two probes pay.
const PROBES: u64 = 2;

fn reading() -> SliceConfig {
    SliceConfig { bypass: BYPASS, ..nop() }
}

/// The cleaner cleans whatever there is.
fn writing(policy: CleaningPolicy) -> SliceConfig {
    let stripe = StripeConfig { low_percent: 0, target_percent: 0, ..StripeConfig::default() };
    let cleaning = CleaningConfig { policy, stripe, ..small_cleaning() };
    SliceConfig { bypass: BYPASS, cleaning, ..SliceConfig::default() }
}

fn slow(kind: RequestKind, millis: u64) -> FaultRule {
    FaultRule::on(kind, Fault::Delay(Duration::from_millis(millis)))
}

fn went_past(slice: &Slice) -> u64 {
    slice.stats().counters.bypass.adaptive
}

/// The first byte of a block.
async fn read(device: &dyn BlockDevice, offset: u64) -> Result<u8, DeviceError> {
    let buffer = Buffer::zeroed(4096);
    device.read(offset, &buffer).await?;
    Ok(buffer.to_vec()[0])
}

/// Brings blocks into the cache, which hold what the core does.
async fn fill(bench: &Bench, slice: &Slice, byte: u8) {
    bench.core.memory().fill(byte);
    for place in 0..FEW {
        read(slice, place * 4096).await.unwrap();
    }
    bench.runtime.sleep(Duration::from_millis(100)).await;
    assert!(slice.stats().clean_bytes >= FEW * 4096);
}

/// Reads hits until nearly all of them go to the core.
async fn settle_reads(bench: &Bench, slice: &Slice, byte: u8) {
    bench.cache_faults.add(slow(RequestKind::Read, 1));
    for turn in 0..SETTLED_AFTER {
        if slice.stats().bypass.reads.share > 0.9 {
            return;
        }
        assert_eq!(read(slice, turn % FEW * 4096).await.unwrap(), byte);
    }
    panic!("{:?}", slice.stats().bypass);
}

/// Writes until nearly all writes go to the core that may, or so often.
async fn settle_writes(bench: &Bench, slice: &Slice, most: u64) {
    bench.cache_faults.add(slow(RequestKind::Write, 1));
    for turn in 0..most {
        if slice.stats().bypass.writes.share > 0.9 {
            return;
        }
        let place = FEW + turn % MANY;
        (slice as &dyn BlockDevice).write(place * 4096, block(1)).await.unwrap();
    }
}

#[test]
fn hits_go_to_the_core_while_it_answers_sooner_and_come_back() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(reading()).await;
        fill(&bench, &slice, 3).await;
        settle_reads(&bench, &slice, 3).await;
        let before = went_past(&slice);
        for place in 0..FEW {
            assert_eq!(read(&slice, place * 4096).await.unwrap(), 3);
        }
        assert!(went_past(&slice) - before > FEW * 3 / 4, "all but those that are timed");
        bench.cache_faults.clear();
        bench.core_faults.add(slow(RequestKind::Read, 5));
        let mut turns = 0..SETTLED_AFTER;
        while slice.stats().bypass.reads.share > 0.0 {
            let turn = turns.next().expect("it falls");
            assert_eq!(read(&slice, turn % FEW * 4096).await.unwrap(), 3);
        }
        let before = went_past(&slice);
        for place in 0..100 * FEW {
            read(&slice, place % FEW * 4096).await.unwrap();
        }
        assert!(went_past(&slice) - before <= PROBES, "back in the cache");
        assert_eq!(slice.stats().clean_bytes, FEW * 4096, "which has had them all the time");
        slice.self_check();
    });
}

#[test]
fn set_to_off_nothing_goes_from_the_next_request_on() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(reading()).await;
        fill(&bench, &slice, 3).await;
        settle_reads(&bench, &slice, 3).await;
        slice.set_config(nop()).unwrap();
        let before = went_past(&slice);
        for place in 0..10 * FEW {
            read(&slice, place % FEW * 4096).await.unwrap();
        }
        assert_eq!(went_past(&slice), before);
        assert_eq!(slice.stats().bypass, Default::default());
    });
}

#[test]
fn what_only_the_cache_has_is_read_and_written_there() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(reading()).await;
        let device: &dyn BlockDevice = &slice;
        fill(&bench, &slice, 3).await;
        device.write(0, block(7)).await.unwrap();
        for turn in 1..SETTLED_AFTER {
            if slice.stats().bypass.reads.share > 0.9 {
                break;
            }
            bench.cache_faults.clear();
            bench.cache_faults.add(slow(RequestKind::Read, 1));
            let place = turn % FEW;
            let expected = if place == 0 { 7 } else { 3 };
            assert_eq!(read(device, place * 4096).await.unwrap(), expected);
        }
        let (before, misses) = (went_past(&slice), slice.stats().counters.read.blocks_missed);
        for turn in 0..100 {
            device.write(0, block(turn)).await.unwrap();
            assert_eq!(read(device, 0).await.unwrap(), turn);
        }
        assert_eq!(went_past(&slice), before, "neither reads nor writes of a dirty block");
        assert_eq!(slice.stats().counters.read.blocks_missed, misses);
        assert_eq!(read(&*bench.core, 0).await.unwrap(), 3);
        slice.self_check();
    });
}

#[test]
fn a_write_that_goes_past_ends_what_the_cache_had_for_good() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(writing(CleaningPolicy::Stripe)).await;
        let device: &dyn BlockDevice = &slice;
        fill(&bench, &slice, 3).await;
        settle_writes(&bench, &slice, SETTLED_AFTER).await;
        slice.flush_dirty().await.unwrap();
        let before = went_past(&slice);
        for place in 0..FEW {
            device.write(place * 4096, block(9)).await.unwrap();
            assert_eq!(read(device, place * 4096).await.unwrap(), 9);
        }
        let past = went_past(&slice) - before;
        assert!(past > FEW / 2, "{past}");
        // As after a kill: nothing is written down any more.
        drop(slice);
        let slice = bench.open(writing(CleaningPolicy::Stripe)).await;
        for place in 0..FEW {
            assert_eq!(read(&slice, place * 4096).await.unwrap(), 9);
        }
    });
}

/// Where the core is to be a consistent past, a write that went there would be ahead of it.
#[test]
fn while_order_is_kept_no_write_goes_past() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(writing(CleaningPolicy::Stripe)).await;
        settle_writes(&bench, &slice, SETTLED_AFTER).await;
        assert!(slice.stats().bypass.writes.share > 0.9);
        let quiet = CleaningConfig { policy: CleaningPolicy::Ordered, ..small_cleaning() };
        slice.set_config(SliceConfig { cleaning: quiet, ..slice.config() }).unwrap();
        slice.flush_dirty().await.unwrap();
        let before = slice.stats().counters;
        for place in 0..20 * FEW {
            let device: &dyn BlockDevice = &slice;
            device.write(place * 4096, block(2)).await.unwrap();
        }
        let after = slice.stats().counters;
        assert_eq!(after.bypass.total(), before.bypass.total());
        let written = |counters: &Counters| counters.traffic.core.written_by_requests;
        assert_eq!(written(&after), written(&before), "the cleaner alone writes to the core");
        slice.self_check();
    });
}

/// Opened in order, no share ever opens, however slow the cache is.
#[test]
fn in_order_from_the_start_writes_never_probe() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(writing(CleaningPolicy::Ordered)).await;
        settle_writes(&bench, &slice, 4000).await;
        assert_eq!(slice.stats().counters.bypass.total(), 0);
        assert_eq!(slice.stats().bypass.writes.core_us, None, "it was never asked");
    });
}

#[test]
fn in_fallback_all_goes_past_for_that_reason_and_the_share_opens_again_afterwards() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let fallback = FallbackConfig { errors: 3, window_s: 10 };
        let slice = bench.open(SliceConfig { fallback, ..reading() }).await;
        fill(&bench, &slice, 3).await;
        settle_reads(&bench, &slice, 3).await;
        bench.cache_faults.clear();
        bench.cache_faults.add(FaultRule::on(RequestKind::Read, Fault::Media));
        for turn in 0..40 * FEW {
            assert_eq!(read(&slice, turn % FEW * 4096).await.unwrap(), 3);
        }
        bench.cache_faults.clear();
        assert!(slice.stats().is_in_fallback);
        let before = slice.stats().counters.bypass;
        for place in 0..FEW {
            read(&slice, place * 4096).await.unwrap();
            (&slice as &dyn BlockDevice).write(place * 4096, block(3)).await.unwrap();
        }
        let after = slice.stats().counters.bypass;
        assert_eq!(after.cache_error, before.cache_error + 2 * FEW);
        assert_eq!(after.adaptive, before.adaptive);
        // Until what could not be read has ended, too.
        runtime.sleep(Duration::from_millis(1)).await;
        slice.leave_fallback();
        fill(&bench, &slice, 3).await;
        settle_reads(&bench, &slice, 3).await;
        let before = went_past(&slice);
        for place in 0..FEW {
            read(&slice, place * 4096).await.unwrap();
        }
        assert!(went_past(&slice) > before);
        slice.self_check();
    });
}

#[test]
fn what_the_core_fails_at_is_answered_by_the_cache() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(writing(CleaningPolicy::Stripe)).await;
        let device: &dyn BlockDevice = &slice;
        settle_writes(&bench, &slice, SETTLED_AFTER).await;
        slice.flush_dirty().await.unwrap();
        fill(&bench, &slice, 4).await;
        settle_reads(&bench, &slice, 4).await;
        for kind in [RequestKind::Read, RequestKind::Write] {
            bench.core_faults.add(FaultRule::on(kind, Fault::Media));
        }
        for place in 0..FEW {
            assert_eq!(read(device, place * 4096).await.unwrap(), 4);
        }
        let errors = slice.stats().counters.errors.core_read;
        assert!(errors > FEW / 2, "the core was asked: {errors}");
        for place in 0..FEW {
            device.write(place * 4096, block(6)).await.unwrap();
            assert_eq!(read(device, place * 4096).await.unwrap(), 6);
        }
        assert!(slice.stats().counters.errors.core_write > 0, "the core was asked");
        assert_eq!(slice.stats().counters.write.failed, 0);
        bench.core_faults.clear();
        runtime.sleep(Duration::from_secs(60)).await;
        slice.flush_dirty().await.unwrap();
        for place in 0..FEW {
            assert_eq!(read(&*bench.core, place * 4096).await.unwrap(), 6);
        }
        slice.self_check();
    });
}

#[test]
fn a_cache_in_memory_takes_no_part() {
    simulate(async |runtime| {
        let cache: Rc<dyn BlockDevice> = Rc::new(RamDevice::new("ram", CACHE_BYTES));
        let core: Rc<dyn BlockDevice> = Rc::new(RamDevice::new("core", CORE_BYTES));
        let superblock = create(&*cache, &options(512)).await.unwrap();
        let foundation = Foundation::new(runtime.clone(), cache, core);
        let config = SliceConfig { allow_volatile: true, ..reading() };
        let slice = Slice::open(foundation, &superblock, EXPECTED, 0, config).await.unwrap().0;
        assert_eq!(slice.config().bypass, BYPASS, "that is what is set");
        assert_eq!(slice.stats().bypass, Default::default());
        for turn in 0..2000 {
            read(&slice, turn % FEW * 4096).await.unwrap();
            runtime.sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(went_past(&slice), 0);
    });
}
