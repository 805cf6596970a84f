//! Flushes of the core that fail: whatever it had taken by then may be lost, and is written again.

use crate::bench::{Bench, block, byte_at, nop, simulate};
use crate::machine::{CORE_BYTES, EXPECTED, small_cleaning};
use headpond_block::devices::RamDevice;
use headpond_block::{
    BlockDevice, ByteRange, Cause, DeviceError, DeviceName, Geometry, Request, RequestKind,
    Runtime, Submission,
};
use headpond_cache::{Foundation, Slice, SliceConfig, load};
use headpond_sim::Random;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const BLOCK: u64 = 4096;
const FLUSH: Duration = Duration::from_millis(300);

/// A core whose flushes take their time. One that fails loses whatever it took since the last one.
struct Forgetful {
    inner: Rc<RamDevice>,
    stable: Rc<RamDevice>,
    runtime: Runtime,
    /// Of so many flushes one fails; none while this is 0.
    one_fails_of: Cell<u32>,
    flushes: Cell<u32>,
}

impl Forgetful {
    fn new(bench: &Bench) -> Rc<Self> {
        let stable = Rc::new(RamDevice::with_geometry("stable", bench.core.geometry().clone()));
        Rc::new(Self {
            inner: Rc::clone(&bench.core),
            stable,
            runtime: bench.runtime.clone(),
            one_fails_of: Cell::new(1),
            flushes: Cell::default(),
        })
    }

    fn fails(&self) -> bool {
        self.flushes.set(self.flushes.get() + 1);
        self.one_fails_of.get() > 0 && self.flushes.get().is_multiple_of(self.one_fails_of.get())
    }
}

impl BlockDevice for Forgetful {
    fn name(&self) -> &DeviceName {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        if request.kind != RequestKind::Flush {
            return self.inner.submit(request);
        }
        let fails = self.fails();
        Submission::pending(async move {
            // What is written meanwhile is not covered, and is lost as well.
            let covered = self.inner.memory().to_vec();
            self.runtime.sleep(FLUSH).await;
            if fails {
                let stable = self.stable.memory().to_vec();
                self.inner.memory().copy_from(&stable);
                let range = ByteRange::at(0, BLOCK);
                return Err(DeviceError::new(self.name(), Cause::Media { range }));
            }
            self.stable.memory().copy_from(&covered);
            Ok(())
        })
    }
}

async fn open(bench: &Bench, core: &Rc<Forgetful>, config: SliceConfig) -> Slice {
    let superblock = load(&*bench.cache).await.unwrap();
    let core = Rc::clone(core) as Rc<dyn BlockDevice>;
    let foundation = Foundation { core, ..bench.foundation() };
    Slice::open(foundation, &superblock, EXPECTED, 0, config).await.unwrap().0
}

#[test]
fn flush_that_began_before_another_failed_makes_nothing_clean() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let core = Forgetful::new(&bench);
        core.one_fails_of.set(2);
        core.flushes.set(1);
        let slice = Rc::new(open(&bench, &core, nop()).await);
        let device: &dyn BlockDevice = &*slice;
        device.write(0, block(1)).await.unwrap();
        let first = Rc::clone(&slice);
        let first = runtime.spawn(async move { first.flush_dirty().await });
        runtime.sleep(FLUSH / 2).await;
        device.write(1 << 20, block(2)).await.unwrap();
        assert!(slice.flush_dirty().await.is_err() && first.await.is_err());
        assert_eq!(core.flushes.get(), 3);
        assert_eq!(slice.stats().dirty_bytes, 2 * BLOCK);
        core.one_fails_of.set(0);
        runtime.sleep(Duration::from_secs(1)).await;
        slice.flush_dirty().await.unwrap();
        assert_eq!(byte_at(&*core.stable, 0).await.unwrap(), 1);
        assert_eq!(byte_at(&*core.stable, 1 << 20).await.unwrap(), 2);
    });
}

/// Writes all over the core through a full cache, while flushes fail now and then.
async fn nothing_is_lost(runtime: Runtime, line_bytes: u32, seed: u64) {
    let bench = Bench::with_lines(&runtime, line_bytes).await;
    let core = Forgetful::new(&bench);
    core.one_fails_of.set(3);
    let config = SliceConfig { cleaning: small_cleaning(), ..SliceConfig::default() };
    let slice = open(&bench, &core, config).await;
    let device: &dyn BlockDevice = &slice;
    let (mut random, mut expected) = (Random::new(seed), vec![0; (CORE_BYTES / BLOCK) as usize]);
    for round in 0..6000_u64 {
        let (at, byte) = (random.below(CORE_BYTES / BLOCK), (round % 251) as u8 + 1);
        device.write(at * BLOCK, block(byte)).await.unwrap();
        expected[at as usize] = byte;
        if round % 8 == 0 {
            runtime.sleep(Duration::from_millis(1)).await;
        }
    }
    core.one_fails_of.set(0);
    runtime.sleep(Duration::from_secs(2)).await;
    slice.flush_dirty().await.unwrap();
    assert!(slice.stats().counters.reinserted_blocks > 0);
    let stable = core.stable.memory().to_vec();
    let lost = expected.iter().zip(stable.chunks(BLOCK as usize));
    let lost = lost.filter(|(byte, block)| **byte != block[0]).count();
    assert_eq!(lost, 0, "line of {line_bytes}, seed {seed}, {} flushes", core.flushes.get());
}

#[test]
fn what_reclaim_carries_on_beside_a_flush_that_fails_is_written_again() {
    for line_bytes in [4096, 65536] {
        for seed in 0..2 {
            simulate(|runtime| nothing_is_lost(runtime, line_bytes, seed));
        }
    }
}
