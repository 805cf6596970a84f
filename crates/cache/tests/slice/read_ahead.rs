//! What is read ahead is in the cache when its reader comes, and never older than what was written.

use crate::bench::{Bench, block, byte_at, nop, simulate};
use headpond_block::{BlockDevice, Buffer, ByteRange, Request};
use headpond_cache::classes::ClassId;
use headpond_cache::{Coverage, Mode, SliceConfig};
use std::time::Duration;

const AHEAD: ByteRange = ByteRange::at(1 << 20, 64 << 10);

#[test]
fn a_reader_that_catches_up_waits_instead_of_reading_again() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        (&*bench.core as &dyn BlockDevice).write(AHEAD.start(), block(7)).await.unwrap();
        let slice = bench.open(nop()).await;
        assert_eq!(slice.coverage(AHEAD), Coverage::Missing);
        slice.read_ahead(AHEAD, ClassId::UNCLASSIFIED, false);
        slice.read_ahead(AHEAD, ClassId::UNCLASSIFIED, false);
        assert_eq!(slice.coverage(AHEAD), Coverage::OnTheWay);
        let buffer = Buffer::zeroed(AHEAD.len() as usize);
        (&slice as &dyn BlockDevice).submit(Request::read(AHEAD.start(), &buffer)).await.unwrap();
        assert_eq!(buffer.to_vec()[0], 7);
        assert_eq!(slice.coverage(AHEAD), Coverage::Cached);
        let counters = slice.stats().counters;
        assert_eq!((counters.readahead_blocks, counters.inserted_blocks), (16, 16));
        assert_eq!((counters.read.hits, counters.read.blocks_hit), (1, 16));
        slice.stop().await.unwrap();
    });
}

#[test]
fn a_write_that_overtakes_what_is_read_ahead_wins() {
    for mode in Mode::ALL {
        simulate(async |runtime| {
            let bench = Bench::new(&runtime).await;
            (&*bench.core as &dyn BlockDevice).write(AHEAD.start(), block(1)).await.unwrap();
            let slice = bench.open(SliceConfig { mode, ..nop() }).await;
            let device: &dyn BlockDevice = &slice;
            slice.read_ahead(AHEAD, ClassId::UNCLASSIFIED, false);
            device.write(AHEAD.start(), block(2)).await.unwrap();
            assert_eq!(byte_at(device, AHEAD.start()).await.unwrap(), 2, "{mode:?}");
            bench.runtime.sleep(Duration::from_millis(1)).await;
            assert_eq!(byte_at(device, AHEAD.start()).await.unwrap(), 2, "{mode:?}");
            slice.self_check();
        });
    }
}

#[test]
fn nothing_is_read_ahead_where_nothing_is_inserted() {
    for mode in [Mode::PassThrough, Mode::WriteOnly] {
        simulate(async |runtime| {
            let bench = Bench::new(&runtime).await;
            let slice = bench.open(SliceConfig { mode, ..nop() }).await;
            slice.read_ahead(AHEAD, ClassId::UNCLASSIFIED, false);
            bench.runtime.sleep(Duration::from_millis(1)).await;
            assert_eq!(slice.stats().counters.readahead_blocks, 0);
            assert_eq!(slice.coverage(AHEAD), Coverage::Missing);
            assert!(!slice.admits(&Request::read(AHEAD.start(), Buffer::zeroed(4096))));
        });
    }
}

/// The swarm, seed 1795302962000005: a block that the cache had lost came back as the core had it.
#[test]
fn what_the_cache_has_lost_is_not_read_ahead() {
    simulate(async |runtime| {
        use headpond_block::RequestKind;
        use headpond_block::decorators::{Fault, FaultRule};
        let bench = Bench::new(&runtime).await;
        (&*bench.core as &dyn BlockDevice).write(AHEAD.start(), block(1)).await.unwrap();
        let slice = bench.open(nop()).await;
        let device: &dyn BlockDevice = &slice;
        let lose = FaultRule { times: Some(1), ..FaultRule::on(RequestKind::Write, Fault::Lose) };
        bench.cache_faults.add(lose);
        device.write(AHEAD.start(), block(2)).await.unwrap();
        device.write(0, block(3)).await.unwrap();
        device.flush().await.unwrap();
        runtime.sleep(Duration::from_secs(1)).await;
        let again = bench.open(nop()).await;
        assert_eq!(again.stats().lost_blocks, 1);
        again.read_ahead(AHEAD, ClassId::UNCLASSIFIED, false);
        runtime.sleep(Duration::from_secs(1)).await;
        assert!(byte_at(&again, AHEAD.start()).await.is_err(), "never as the core has it");
        assert_eq!(again.stats().counters.readahead_blocks, 15);
        assert_eq!(again.coverage(AHEAD), Coverage::Cached, "there is nothing left to bring in");
    });
}

#[test]
fn a_core_that_cannot_be_read_ahead_fails_only_its_reader() {
    use headpond_block::RequestKind;
    use headpond_block::decorators::{Fault, FaultRule};
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(nop()).await;
        let once = FaultRule { times: Some(1), ..FaultRule::on(RequestKind::Read, Fault::Media) };
        bench.core_faults.add(once);
        slice.read_ahead(AHEAD, ClassId::UNCLASSIFIED, false);
        assert_eq!(byte_at(&slice, AHEAD.start()).await.unwrap(), 0, "read once more, for itself");
        assert_eq!(slice.stats().counters.errors.core_read, 1);
    });
}

/// The swarm, seed 94: the core was written between the look at what may be inserted and the read.
#[test]
fn what_is_read_ahead_beside_a_write_past_the_cache_is_not_inserted() {
    use crate::machine::Machine;
    use headpond_block::RequestFlags;
    use headpond_cache::{AdmissionConfig, CutoffPolicy};
    for seed in 0..200 {
        let admission =
            AdmissionConfig { cutoff: CutoffPolicy::Always, ..AdmissionConfig::default() };
        let machine = Machine::new(SliceConfig { admission, ..nop() }, 4096, seed);
        machine.create(seed);
        headpond_sim::run(seed, |runtime, sim| async move {
            let (slice, _) = machine.open(&runtime, &sim).await;
            let device: &dyn BlockDevice = &slice;
            slice.read_ahead(AHEAD, ClassId::UNCLASSIFIED, false);
            let write = Request::write(AHEAD.start(), block(2));
            device.submit(write.with_flags(RequestFlags::STREAMING)).await.unwrap();
            for _ in 0..2 {
                assert_eq!(byte_at(device, AHEAD.start()).await.unwrap(), 2, "seed {seed}");
                runtime.sleep(Duration::from_millis(50)).await;
            }
        })
        .expect("no deadlock");
    }
}
