//! What a promise costs on a real cache device: a file past the page cache, a null core, 4 KiB
//! writes anywhere, each stable when it is answered.
//!
//! Beside each row, in the same run and alternating, the device alone under as many such writes.
//! Then what the device got from the cache, request by request.

use headpond_block::decorators::ProbeDevice;
use headpond_block::devices::NullDevice;
use headpond_block::{BlockDevice, Buffer, Request, RequestFlags, Runtime};
use headpond_cache::{
    CleaningConfig, CleaningPolicy, CreateOptions, Expected, Foundation, Slice, SliceConfig, create,
};
use headpond_uring::{Allocation, FileDevice, FileOptions, Ring, RunConfig, run};
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

const CACHE_BYTES: u64 = 512 << 20;
const CORE_BYTES: u64 = 8 << 30;
const BLOCK: u64 = 4096;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(700);
/// Dirty blocks that fit without reclaim: a round ends there at the latest.
const WRITES_MAX: u64 = 48 << 10;
const SHOWN: usize = 12;

fn main() {
    let folder = headpond_testkit::tempdir();
    let path = folder.path().join("cache");
    run(&RunConfig::default(), |ring, runtime| async move {
        let file = FileOptions::new(path).create(CACHE_BYTES, Allocation::Preallocated);
        let file: Rc<dyn BlockDevice> = Rc::new(FileDevice::open(&ring, &file).expect("a file"));
        for offset in (0..CACHE_BYTES).step_by(1 << 20) {
            (&*file as &dyn BlockDevice)
                .write(offset, Buffer::zeroed(1 << 20))
                .await
                .expect("fill");
        }
        let bench = Bench { file, runtime, _ring: ring };
        for (depth, allowed) in [(1, 32), (32, 32), (32, 1)] {
            bench.row(depth, allowed).await;
        }
    })
    .expect("a ring");
}

struct Bench {
    file: Rc<dyn BlockDevice>,
    runtime: Runtime,
    _ring: Ring,
}

/// The cache on the file, watched.
struct Cache {
    slice: Slice,
    probe: Rc<ProbeDevice>,
}

impl Bench {
    async fn row(&self, depth: u32, allowed: u32) {
        let (mut ours, mut limit) = (Vec::new(), Vec::new());
        let mut last = None;
        for round in 0..ROUNDS {
            limit.push(self.rate(&self.file, CACHE_BYTES, depth).await);
            if let Some(Cache { slice, .. }) = last.take() {
                slice.stop().await.expect("stops");
            }
            let cache = self.open(round as u128, allowed).await;
            cache.probe.reset();
            let device: Rc<dyn BlockDevice> = Rc::new(cache.slice.clone());
            ours.push(self.rate(&device, CORE_BYTES, depth).await);
            last = Some(cache);
        }
        let cache = last.expect("a round");
        let (stats, seen) = (cache.slice.stats(), cache.probe.snapshot());
        let counters = stats.counters;
        let requests = counters.write.requests as f64;
        let mode = if allowed == 1 { " one record" } else { "" };
        let name = format!("durable write 4k d{depth}{mode}");
        println!(
            "{name:<32} {:.3} device writes and {:.3} bytes for each, {} flushes, {} seals; up to {} \
             records at once, {} in the end",
            seen.writes.requests as f64 / requests,
            seen.writes.bytes as f64 / (requests * BLOCK as f64),
            seen.flushes.requests,
            counters.seals,
            seen.in_flight_max,
            stats.records_in_flight_max,
        );
        for (kind, range) in cache.probe.recent().iter().rev().take(SHOWN).rev() {
            println!(
                "    {:<6} {:>7} bytes at {}",
                format!("{kind:?}"),
                range.len(),
                range.start()
            );
        }
        let (ours, limit) = (median(ours), median(limit));
        println!(r#"{{"name":"{name}","unit":"op/s","ours":{ours:.0},"limit":{limit:.0}}}"#);
        cache.slice.stop().await.expect("stops");
    }

    async fn open(&self, round: u128, allowed: u32) -> Cache {
        let options = CreateOptions {
            cache: uuid::Uuid::from_u128(round + 3),
            volume: uuid::Uuid::from_u128(1),
            core: uuid::Uuid::from_u128(2),
            core_bytes: CORE_BYTES,
            generation: 1,
            slices: 1,
            line_bytes: BLOCK as u32,
            device_bytes: None,
            unit_bytes: None,
        };
        let superblock = create(&*self.file, &options).await.expect("fits");
        let probe = Rc::new(ProbeDevice::new(Rc::clone(&self.file), self.runtime.clone()));
        let foundation = Foundation::new(
            self.runtime.clone(),
            Rc::clone(&probe) as Rc<dyn BlockDevice>,
            Rc::new(NullDevice::new("null", CORE_BYTES)),
        );
        let cleaning = CleaningConfig { policy: CleaningPolicy::Nop, ..CleaningConfig::default() };
        let config =
            SliceConfig { cleaning, records_in_flight_max: allowed, ..SliceConfig::default() };
        let expected = Expected { volume: options.volume, generation: 1 };
        let opened = Slice::open(foundation, &superblock, expected, 0, config).await;
        Cache { slice: opened.expect("opens").0, probe }
    }

    /// Writes a second, from so many writers.
    async fn rate(&self, device: &Rc<dyn BlockDevice>, size_bytes: u64, depth: u32) -> f64 {
        let (begun, written) = (Instant::now(), Rc::new(Cell::new(0)));
        let writers: Vec<_> = (0..depth)
            .map(|_| {
                let (device, written) = (Rc::clone(device), Rc::clone(&written));
                self.runtime.spawn(async move {
                    let data = Buffer::zeroed(BLOCK as usize);
                    data.fill(0x5a);
                    while begun.elapsed() < ROUND && written.get() < WRITES_MAX {
                        let index: u64 = written.replace(written.get() + 1);
                        let at = index.wrapping_mul(2_654_435_761) % (size_bytes / BLOCK) * BLOCK;
                        let write = Request::write(at, &data).with_flags(RequestFlags::FUA);
                        device.submit(write).await.expect("written");
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await;
        }
        written.get() as f64 / begun.elapsed().as_secs_f64()
    }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
