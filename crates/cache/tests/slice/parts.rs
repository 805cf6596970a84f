//! Blocks of which the log has some sectors: who writes them waits for no read of the core.

use crate::bench::{Bench, block, byte_at, nop, simulate};
use crate::machine::small_cleaning;
use headpond_block::decorators::{Fault, FaultRule};
use headpond_block::{BlockDevice, Buffer, ByteRange, DeviceError, Request, RequestKind, Runtime};
use headpond_cache::{CleaningConfig, CleaningPolicy, Mode, Slice, SliceConfig};
use std::time::Duration;

/// Where the block under test lies, of which the core has [`OLD`].
const PLACE: u64 = 1 << 20;
const OLD: u8 = 1;
const SECTOR: u64 = 512;
/// Until whatever was written in part is whole.
const SOON: Duration = Duration::from_millis(300);

struct Parts {
    bench: Bench,
    slice: Slice,
}

impl Parts {
    async fn new(runtime: &Runtime) -> Self {
        Self::with(runtime, nop()).await
    }

    async fn with(runtime: &Runtime, config: SliceConfig) -> Self {
        let bench = Bench::new(runtime).await;
        (&*bench.core as &dyn BlockDevice).write(PLACE, block(OLD)).await.unwrap();
        let slice = bench.open(config).await;
        Self { bench, slice }
    }

    /// From here on the core answers no read.
    fn without_core(self) -> Self {
        self.bench.core_faults.add(FaultRule::on(RequestKind::Read, Fault::Media));
        self
    }

    fn device(&self) -> &dyn BlockDevice {
        &self.slice
    }

    async fn write(&self, sector: u64, byte: u8) {
        let data = Buffer::from_slice(&[byte; SECTOR as usize]);
        self.device().write(PLACE + sector * SECTOR, data).await.unwrap();
    }

    /// A byte of each sector.
    async fn content(&self) -> Result<[u8; 8], DeviceError> {
        content_of(&self.slice).await
    }

    /// A later life, after a stop or as after a power cut.
    async fn reopened(self, is_stopped: bool) -> Self {
        if is_stopped {
            self.slice.stop().await.unwrap();
        }
        let bench = Bench { core_faults: Default::default(), ..self.bench };
        bench.core_faults.add(FaultRule::on(RequestKind::Read, Fault::Media));
        let slice = bench.open(nop()).await;
        Self { bench, slice }
    }

    fn heal(&self) {
        self.bench.core_faults.clear();
    }

    /// Until nothing is there in part.
    async fn settle(&self) {
        for _ in 0..20 {
            self.bench.runtime.sleep(SOON).await;
            if self.slice.stats().memory.parts == 0 || self.slice.stats().dirty_bytes == 0 {
                break;
            }
        }
    }

    async fn core_content(&self) -> [u8; 8] {
        content_of(&*self.bench.core).await.unwrap()
    }
}

async fn content_of(device: &dyn BlockDevice) -> Result<[u8; 8], DeviceError> {
    let buffer = Buffer::zeroed(4096);
    device.read(PLACE, &buffer).await?;
    let bytes = buffer.to_vec();
    Ok(std::array::from_fn(|sector| bytes[sector * SECTOR as usize + 7]))
}

#[test]
fn a_write_of_part_of_a_block_waits_for_no_read_of_the_core() {
    simulate(async |runtime| {
        let parts = Parts::new(&runtime).await.without_core();
        parts.write(2, 5).await;
        parts.write(3, 6).await;
        // What it has it answers, and nothing else.
        assert_eq!(byte_at(parts.device(), PLACE + 2 * SECTOR).await.unwrap(), 5);
        let both = Buffer::zeroed(2 * SECTOR as usize);
        parts.device().read(PLACE + 2 * SECTOR, &both).await.unwrap();
        assert_eq!((both.to_vec()[0], both.to_vec()[1023]), (5, 6));
        assert!(byte_at(parts.device(), PLACE).await.is_err());
        assert!(parts.content().await.is_err());
        assert_eq!(parts.slice.stats().dirty_bytes, 4096);
        parts.heal();
        assert_eq!(parts.content().await.unwrap(), [1, 1, 5, 6, 1, 1, 1, 1]);
        let counters = parts.slice.stats().counters;
        assert_eq!(
            (counters.parts_written, counters.traffic.core.read_for_requests),
            (2, 4096 * 3)
        );
        parts.slice.self_check();
    });
}

#[test]
fn what_was_written_in_part_becomes_whole_beside_everything_else() {
    simulate(async |runtime| {
        let parts = Parts::new(&runtime).await;
        parts.write(0, 5).await;
        assert_eq!(parts.slice.stats().counters.traffic.core.read(), 0);
        runtime.sleep(SOON).await;
        let stats = parts.slice.stats();
        assert_eq!(stats.counters.parts_completed, 1);
        assert_eq!(stats.counters.traffic.core.read_to_complete, 4096);
        parts.bench.core_faults.add(FaultRule::on(RequestKind::Read, Fault::Media));
        assert_eq!(parts.content().await.unwrap(), [5, 1, 1, 1, 1, 1, 1, 1]);
        parts.slice.flush_dirty().await.unwrap();
        assert_eq!(parts.core_content().await, [5, 1, 1, 1, 1, 1, 1, 1]);
    });
}

/// Those beside it enter the cache, and it is whole by itself.
#[test]
fn a_read_over_a_part_brings_in_what_lies_beside_it() {
    simulate(async |runtime| {
        let parts = Parts::new(&runtime).await;
        parts.write(0, 5).await;
        let three = Buffer::zeroed(3 * 4096);
        parts.device().read(PLACE - 4096, &three).await.unwrap();
        assert_eq!((three.to_vec()[4096], three.to_vec()[4608]), (5, 1));
        runtime.sleep(Duration::from_millis(1)).await;
        let stats = parts.slice.stats();
        assert_eq!((stats.clean_bytes, stats.dirty_bytes), (2 * 4096, 4096));
        assert_eq!(stats.counters.read.misses, 1);
    });
}

#[test]
fn all_sectors_one_by_one_are_a_whole_block() {
    simulate(async |runtime| {
        let parts = Parts::new(&runtime).await.without_core();
        for sector in 0..8 {
            parts.write(sector, 10 + sector as u8).await;
        }
        assert_eq!(parts.content().await.unwrap(), [10, 11, 12, 13, 14, 15, 16, 17]);
        parts.slice.flush_dirty().await.unwrap();
        assert_eq!(parts.core_content().await, [10, 11, 12, 13, 14, 15, 16, 17]);
        assert_eq!(parts.slice.stats().counters.parts_written, 7);
    });
}

/// By the log, by a checkpoint that was taken while it served, by that of a stop, and carried on
/// by reclaim.
#[test]
fn a_part_outlives_stops_and_cuts_and_its_segment() {
    simulate(async |runtime| {
        for (is_stopped, churns, every) in
            [(false, 0, 0), (true, 0, 0), (false, 40, 0), (true, 40, 0), (false, 40, 1)]
        {
            let config = SliceConfig { checkpoint_every_bytes: every, ..nop() };
            let parts = Parts::with(&runtime, config).await.without_core();
            parts.write(2, 5).await;
            parts.write(7, 6).await;
            for round in 0..churns {
                for at in 0..64 {
                    parts.device().write(at * 8192, block(round)).await.unwrap();
                }
            }
            let stats = parts.slice.stats();
            assert!(churns == 0 || stats.counters.reinserted_blocks > 0, "{:?}", stats.counters);
            parts.device().flush().await.unwrap();
            let parts = parts.reopened(is_stopped).await;
            assert_eq!(byte_at(parts.device(), PLACE + 2 * SECTOR).await.unwrap(), 5);
            assert!(byte_at(parts.device(), PLACE).await.is_err(), "the core has that");
            // Once more, and by what that life has left.
            let parts = parts.reopened(true).await;
            parts.write(1, 4).await;
            let parts = parts.reopened(false).await;
            parts.heal();
            assert_eq!(parts.content().await.unwrap(), [1, 4, 5, 1, 1, 1, 1, 6]);
            parts.slice.flush_dirty().await.unwrap();
            assert_eq!(parts.core_content().await, [1, 4, 5, 1, 1, 1, 1, 6]);
            parts.slice.self_check();
        }
    });
}

/// The second one was under way to the log when the first was completed, and the whole block with
/// the first alone came after it.
#[test]
fn a_part_that_is_under_way_when_another_is_completed_is_not_lost() {
    simulate(async |runtime| {
        let parts = Parts::new(&runtime).await;
        parts.write(0, 5).await;
        let delay = Fault::Delay(Duration::from_millis(80));
        parts.bench.cache_faults.add(FaultRule::on(RequestKind::Write, delay));
        runtime.sleep(Duration::from_millis(60)).await;
        parts.write(1, 6).await;
        parts.settle().await;
        assert_eq!(parts.content().await.unwrap(), [5, 6, 1, 1, 1, 1, 1, 1]);
    });
}

/// The same of a whole block, and of one that the core is to have at once.
#[test]
fn a_whole_block_that_is_under_way_when_a_part_is_completed_is_not_lost() {
    simulate(async |runtime| {
        for is_asked in [false, true] {
            let parts = Parts::new(&runtime).await;
            parts.write(0, 5).await;
            let delay = Fault::Delay(Duration::from_millis(80));
            parts.bench.cache_faults.add(FaultRule::on(RequestKind::Write, delay));
            runtime.sleep(Duration::from_millis(60)).await;
            let slice = parts.slice.clone();
            let written = runtime
                .spawn(async move { (&slice as &dyn BlockDevice).write(PLACE, block(9)).await });
            runtime.sleep(Duration::from_millis(1)).await;
            if is_asked {
                let past = SliceConfig { mode: Mode::PassThrough, ..parts.slice.config() };
                parts.slice.set_config(past).unwrap();
                parts.write(1, 6).await;
            }
            written.await.unwrap();
            parts.settle().await;
            let expected = if is_asked { 6 } else { 9 };
            assert_eq!(parts.content().await.unwrap(), [9, expected, 9, 9, 9, 9, 9, 9]);
        }
    });
}

#[test]
fn whole_blocks_discards_and_zeroes_end_a_part() {
    simulate(async |runtime| {
        for what in 0..4usize {
            let parts = Parts::new(&runtime).await.without_core();
            parts.write(2, 5).await;
            let range = ByteRange::at(PLACE, 4096);
            match what {
                0 => parts.device().write(PLACE, block(9)).await.unwrap(),
                1 => parts.device().submit(Request::discard(range)).await.unwrap(),
                2 => parts.device().submit(Request::write_zeroes(range)).await.unwrap(),
                _ => {
                    let mode = Mode::WriteThrough;
                    parts.slice.set_config(SliceConfig { mode, ..nop() }).unwrap();
                    parts.device().write(PLACE, block(9)).await.unwrap();
                }
            }
            let parts = parts.reopened(what == 3).await;
            parts.heal();
            // The device in memory keeps what is discarded, but the core lacks the part.
            let expected = [9, 0, 0, 9][what];
            assert_eq!(parts.content().await.unwrap(), [expected; 8], "{what}");
        }
    });
}

/// What lies past the cache is written over what was there in part, not beside it.
#[test]
fn other_modes_find_the_whole_block() {
    let modes = [
        Mode::WriteThrough,
        Mode::WriteAround,
        Mode::WriteInvalidate,
        Mode::WriteOnly,
        Mode::PassThrough,
    ];
    simulate(async |runtime| {
        for mode in modes {
            let parts = Parts::new(&runtime).await;
            parts.write(2, 5).await;
            parts.slice.set_config(SliceConfig { mode, ..nop() }).unwrap();
            assert_eq!(parts.content().await.unwrap(), [1, 1, 5, 1, 1, 1, 1, 1], "{mode:?}");
            parts.write(3, 6).await;
            assert_eq!(parts.content().await.unwrap(), [1, 1, 5, 6, 1, 1, 1, 1], "{mode:?}");
            parts.settle().await;
            parts.slice.flush_dirty().await.unwrap();
            assert!(!parts.slice.is_draining() || mode == Mode::WriteOnly, "{mode:?}");
            assert_eq!(parts.core_content().await, [1, 1, 5, 6, 1, 1, 1, 1], "{mode:?}");
        }
    });
}

/// Its writes fail, or it has failed for good: the core gets what was written in part.
#[test]
fn a_cache_that_takes_no_more_gives_its_parts_to_the_core() {
    simulate(async |runtime| {
        let parts = Parts::new(&runtime).await;
        parts.write(2, 5).await;
        parts.bench.cache_faults.add(FaultRule::on(RequestKind::Write, Fault::Media));
        parts.slice.flush_dirty().await.unwrap();
        assert_eq!(parts.core_content().await, [1, 1, 5, 1, 1, 1, 1, 1]);
        assert_eq!(parts.content().await.unwrap(), [1, 1, 5, 1, 1, 1, 1, 1]);
        assert!(parts.slice.stats().is_failed && parts.bench.label.disowned.get() == 1);
    });
}

/// What else is dirty is cleaned all the same.
#[test]
fn a_flush_of_all_that_is_dirty_names_the_core_that_does_not_answer() {
    simulate(async |runtime| {
        let parts = Parts::new(&runtime).await;
        for kind in [RequestKind::Read, RequestKind::Write] {
            let range = Some(ByteRange::at(PLACE, 4096));
            let rule = FaultRule { range, ..FaultRule::on(kind, Fault::Media) };
            parts.bench.core_faults.add(rule);
        }
        parts.write(2, 5).await;
        parts.device().write(2 * PLACE, block(7)).await.unwrap();
        let error = parts.slice.flush_dirty().await.unwrap_err().to_string();
        assert!(error.contains("core"), "{error}");
        assert_eq!(byte_at(&*parts.bench.core, 2 * PLACE).await.unwrap(), 7);
        assert_eq!(byte_at(parts.device(), PLACE + 2 * SECTOR).await.unwrap(), 5);
        assert_eq!(parts.slice.stats().dirty_bytes, 4096);
        parts.heal();
        parts.slice.flush_dirty().await.unwrap();
        assert_eq!(parts.core_content().await, [1, 1, 5, 1, 1, 1, 1, 1]);
    });
}

/// It takes the sectors, which mends them there, and is asked for the others by whoever wants them.
#[test]
fn a_core_that_cannot_give_the_rest_is_given_the_sectors() {
    simulate(async |runtime| {
        let parts = Parts::new(&runtime).await.without_core();
        parts.write(2, 5).await;
        parts.write(6, 6).await;
        parts.slice.flush_dirty().await.unwrap();
        assert_eq!(parts.slice.stats().dirty_bytes, 0);
        assert_eq!(byte_at(parts.device(), PLACE + 2 * SECTOR).await.unwrap(), 5);
        assert!(byte_at(parts.device(), PLACE).await.is_err());
        // More of it, over what is clean by now; and a stop does not take that for the whole.
        parts.write(0, 4).await;
        let parts = parts.reopened(true).await;
        assert_eq!(byte_at(parts.device(), PLACE).await.unwrap(), 4);
        parts.slice.flush_dirty().await.unwrap();
        let parts = parts.reopened(true).await;
        assert!(byte_at(parts.device(), PLACE).await.is_err());
        parts.heal();
        assert_eq!(parts.content().await.unwrap(), [4, 1, 5, 1, 1, 1, 6, 1]);
        assert_eq!(parts.core_content().await, [4, 1, 5, 1, 1, 1, 6, 1]);
    });
}

/// What the core was given before its flush failed is dirty again, and no cleaner takes it for a
/// whole block.
#[test]
fn a_part_is_in_doubt_when_a_flush_of_the_core_fails() {
    simulate(async |runtime| {
        let stripe = CleaningConfig { policy: CleaningPolicy::Stripe, ..small_cleaning() };
        let parts = Parts::with(&runtime, SliceConfig { cleaning: stripe, ..nop() }).await;
        parts.bench.core_faults.add(FaultRule::on(RequestKind::Read, Fault::Media));
        let failing = FaultRule::on(RequestKind::Flush, Fault::Media);
        parts.bench.core_faults.add(FaultRule { times: Some(1), ..failing });
        parts.write(2, 5).await;
        assert!(parts.slice.flush_dirty().await.is_err());
        assert_eq!(parts.slice.stats().dirty_bytes, 4096);
        runtime.sleep(Duration::from_secs(20)).await;
        parts.heal();
        parts.slice.flush_dirty().await.unwrap();
        assert_eq!(parts.content().await.unwrap(), [1, 1, 5, 1, 1, 1, 1, 1]);
        assert_eq!(parts.core_content().await, [1, 1, 5, 1, 1, 1, 1, 1]);
        parts.slice.self_check();
    });
}

/// There is room for so many and no more; then the rest is read first, and one that ends makes
/// room for another.
#[test]
fn the_table_has_room_for_so_many() {
    simulate(async |runtime| {
        let parts = Parts::new(&runtime).await.without_core();
        let write = async |at: u64| {
            let data = Buffer::from_slice(&[7; SECTOR as usize]);
            parts.device().write(PLACE + at * 4096, data).await
        };
        let mut taken = 0;
        while write(taken).await.is_ok() {
            taken += 1;
        }
        assert!((8..=256).contains(&taken), "{taken}");
        assert!(parts.slice.stats().memory.parts > taken * 4096);
        parts.device().write(PLACE, block(9)).await.unwrap();
        write(taken).await.unwrap();
        assert!(write(taken + 1).await.is_err());
        // More of what there is takes no more room.
        parts.device().write(PLACE + 4096 + 1024, Buffer::from_slice(&[8; 512])).await.unwrap();
        parts.heal();
        parts.slice.flush_dirty().await.unwrap();
        assert_eq!(byte_at(&*parts.bench.core, PLACE + taken * 4096).await.unwrap(), 7);
        assert_eq!(parts.slice.stats().dirty_bytes, 0);
    });
}

#[test]
fn a_cache_of_before_reads_the_rest_first() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        bench.forget_classes().await;
        let slice = bench.open(nop()).await;
        let device: &dyn BlockDevice = &slice;
        device.write(PLACE, Buffer::from_slice(&[5; 512])).await.unwrap();
        let counters = slice.stats().counters;
        assert_eq!((counters.parts_written, counters.traffic.core.read_for_requests), (0, 4096));
    });
}

/// In the order of the flushes there are none; one from before is whole before the core is said to
/// be consistent.
#[test]
fn nothing_is_there_in_part_where_the_core_is_kept_in_order() {
    simulate(async |runtime| {
        let parts = Parts::new(&runtime).await.without_core();
        parts.write(2, 5).await;
        let cleaning = CleaningConfig { policy: CleaningPolicy::Ordered, ..small_cleaning() };
        parts.slice.set_config(SliceConfig { cleaning, ..nop() }).unwrap();
        let is_consistent = || parts.slice.stats().order.unwrap().is_consistent;
        assert!(!is_consistent());
        let other = Buffer::from_slice(&[6; 512]);
        assert!(parts.device().write(PLACE + 8192, other).await.is_err(), "the rest comes first");
        parts.heal();
        parts.settle().await;
        parts.slice.flush_dirty().await.unwrap();
        assert_eq!(parts.core_content().await, [1, 1, 5, 1, 1, 1, 1, 1]);
        assert!(is_consistent());
        parts.slice.self_check();
    });
}

/// A part whose place on the cache device is damaged is not taken for what the core has, and a
/// whole block heals it.
#[test]
fn a_damaged_part_is_an_error_in_another_life() {
    simulate(async |runtime| {
        let parts = Parts::new(&runtime).await.without_core();
        parts.write(2, 0x5a).await;
        parts.device().flush().await.unwrap();
        parts.slice.stop().await.unwrap();
        let bytes = parts.bench.cache.memory().to_vec();
        let at = bytes.windows(512).position(|it| it.iter().all(|byte| *byte == 0x5a)).unwrap();
        let rule = FaultRule::on(RequestKind::Read, Fault::Latent);
        let range = Some(ByteRange::at(at as u64 / 512 * 512, 512));
        parts.bench.cache_faults.add(FaultRule { range, ..rule });
        parts.heal();
        let slice = parts.bench.open(nop()).await;
        let parts = Parts { slice, ..parts };
        assert!(byte_at(parts.device(), PLACE + 2 * SECTOR).await.is_err());
        assert!(parts.content().await.is_err());
        assert!(parts.slice.flush_dirty().await.is_err());
        assert_eq!(parts.slice.stats().unreadable_blocks, 1);
        parts.device().write(PLACE, block(9)).await.unwrap();
        assert_eq!(parts.content().await.unwrap(), [9; 8]);
        parts.slice.flush_dirty().await.unwrap();
        assert_eq!(parts.core_content().await, [9; 8]);
    });
}
