//! What a cache writes to its device for each byte that enters it, and for what.

use crate::bench::simulate;
use crate::machine::{EXPECTED, options};
use headpond_block::decorators::{Limits, ThrottleDevice};
use headpond_block::devices::{NullDevice, RamDevice};
use headpond_block::{
    BLOCK_BYTES, BlockDevice, Buffer, Geometry, Request, RequestFlags, Runtime, Stability,
};
use headpond_cache::{CacheTraffic, CreateOptions, Foundation, Slice, SliceConfig, create};
use std::rc::Rc;
use std::time::Duration;

const CACHE_BYTES: u64 = 64 << 20;
const CORE_BYTES: u64 = 1 << 30;
/// How often the log goes round before it is measured, and meanwhile, in writes of a block each.
const FILLING: u64 = 6 * CACHE_BYTES / BLOCK_BYTES;
const MEASURED: u64 = 3 * CACHE_BYTES / BLOCK_BYTES;

#[derive(Clone, Copy, Debug)]
struct Scene {
    unit_bytes: u32,
    rotational: bool,
    /// Writes of the core a second.
    core: u32,
    fua: bool,
    /// Writes of the client in flight.
    depth: u64,
}

const SLOW: Scene = Scene { unit_bytes: 4096, rotational: true, core: 2_000, fua: false, depth: 1 };

/// A device that takes a while, and lends nothing.
fn slowed(runtime: &Runtime, device: Rc<dyn BlockDevice>, limits: Limits) -> Rc<dyn BlockDevice> {
    Rc::new(ThrottleDevice::new(device, runtime.clone(), limits))
}

async fn open(runtime: &Runtime, scene: Scene) -> Slice {
    let stability = Stability::Flushable;
    let geometry = Geometry { stability, ..Geometry::of_size(CACHE_BYTES) };
    let ram: Rc<dyn BlockDevice> = Rc::new(RamDevice::with_geometry("cache", geometry));
    let latency = Duration::from_micros(20);
    let cache = slowed(runtime, ram, Limits { latency, ..Limits::default() });
    let rotational = scene.rotational;
    let geometry = Geometry { stability, rotational, ..Geometry::of_size(CORE_BYTES) };
    let null: Rc<dyn BlockDevice> = Rc::new(NullDevice::with_geometry("core", geometry));
    let limits = Limits {
        operations_per_second: Some(scene.core),
        latency: Duration::from_millis(1),
        ..Limits::default()
    };
    let core = slowed(runtime, null, limits);
    let options = CreateOptions { core_bytes: CORE_BYTES, ..options(scene.unit_bytes) };
    let superblock = create(&*cache, &options).await.unwrap();
    let foundation = Foundation::new(runtime.clone(), cache, core);
    let config = SliceConfig::default();
    Slice::open(foundation, &superblock, EXPECTED, 0, config).await.unwrap().0
}

/// Random writes of one block each.
async fn write(slice: &Slice, scene: Scene, seed: u64, writes: u64) {
    let block = Buffer::from_slice(&[1; BLOCK_BYTES as usize]);
    let mut state = seed;
    for _ in 0..writes / scene.depth {
        let mut together = Vec::new();
        for _ in 0..scene.depth {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            let place = (state >> 20) % (CORE_BYTES / BLOCK_BYTES) * BLOCK_BYTES;
            let flags = if scene.fua { RequestFlags::FUA } else { RequestFlags::empty() };
            together.push(slice.submit(Request::write(place, block.clone()).with_flags(flags)));
        }
        for write in together {
            write.await.unwrap();
        }
    }
}

/// Of a cache that has been full for long.
fn settled(scene: Scene) -> CacheTraffic {
    let mut traffic = CacheTraffic::default();
    let found = &mut traffic;
    simulate(async |runtime| {
        let slice = open(&runtime, scene).await;
        write(&slice, scene, 1, FILLING).await;
        slice.reset_stats();
        let start = runtime.now();
        write(&slice, scene, 2, MEASURED).await;
        let stats = slice.stats();
        slice.self_check();
        let (took, all) = ((runtime.now() - start).as_secs_f64(), stats.counters.traffic.cache);
        let a_byte = |bytes: u64| bytes as f64 / all.written_data as f64;
        println!(
            "{scene:?}: {:.2} bytes a byte: 1 data, {:.2} copies, {:.2} descriptors, {:.2} padding, \
             {:.2} marks, {:.2} checkpoints; {:.0} writes a second, {:.0} % dirty, {} past",
            all.amplification().unwrap(),
            a_byte(all.written_copies),
            a_byte(all.written_descriptors),
            a_byte(all.written_padding),
            a_byte(all.written_marks),
            a_byte(all.written_checkpoints),
            MEASURED as f64 / took,
            stats.dirty_ratio * 100.0,
            stats.counters.bypass.total(),
        );
        *found = all;
    });
    traffic
}

#[test]
fn full_cache_before_a_core_that_keeps_up_writes_little_more_than_its_records() {
    for (unit_bytes, most) in [(512, 1.6), (4096, 2.6)] {
        for rotational in [true, false] {
            let traffic = settled(Scene { unit_bytes, rotational, core: 20_000, ..SLOW });
            assert!(traffic.amplification() < Some(most), "{unit_bytes}: {traffic:?}");
        }
    }
}

/// Prints them, for docs/cache-size.md.
mod conclusions {
    use super::*;

    #[test]
    fn a_full_cache_is_measured_for_the_docs() {
        for unit_bytes in [512, 4096] {
            for rotational in [true, false] {
                for (depth, fua, core) in
                    [(1, false, 2_000), (1, true, 2_000), (1, false, 20_000), (32, false, 2_000)]
                {
                    settled(Scene { unit_bytes, rotational, core, fua, depth });
                }
            }
        }
    }
}
