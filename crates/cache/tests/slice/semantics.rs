//! What each mode does to core and cache, row by row, as its users may rely on it.

use crate::bench::{Bench, block, byte_at, nop, simulate};
use headpond_block::decorators::ProbeDevice;
use headpond_block::{BlockDevice, Buffer, ByteRange, Request, Runtime};
use headpond_cache::{Foundation, Mode, Slice, SliceConfig, load};
use std::rc::Rc;
use std::time::Duration;

/// Where the block under test lies.
const PLACE: u64 = 1 << 20;
const OLD: u8 = 1;
const NEW: u8 = 2;

/// What the cache has of the block before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Unmapped,
    Clean,
    Dirty,
}

/// What it has of it after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Unmapped,
    Clean,
    Dirty,
}

/// A slice whose core is watched.
struct Watched {
    bench: Bench,
    slice: Slice,
    core: Rc<ProbeDevice>,
}

impl Watched {
    /// In write-back, with the block as wanted: the old byte is what is read of it.
    async fn new(runtime: &Runtime, before: Before) -> Self {
        let bench = Bench::new(runtime).await;
        (&*bench.core as &dyn BlockDevice).write(PLACE, block(OLD)).await.unwrap();
        let foundation = bench.foundation();
        let core = Rc::new(ProbeDevice::new(foundation.core, runtime.clone()));
        let watched: Rc<dyn BlockDevice> = core.clone();
        let superblock = load(&*bench.cache).await.unwrap();
        let foundation = Foundation { core: watched, ..foundation };
        let opening = Slice::open(foundation, &superblock, crate::machine::EXPECTED, 0, nop());
        let slice = opening.await.unwrap().0;
        match before {
            Before::Unmapped => {}
            Before::Clean => drop(byte_at(&slice, PLACE).await.unwrap()),
            Before::Dirty => {
                (&slice as &dyn BlockDevice).write(PLACE, block(OLD)).await.unwrap();
            }
        }
        let watched = Self { bench, slice, core };
        watched.rest().await;
        watched
    }

    fn switch(&self, mode: Mode) {
        self.slice.set_config(SliceConfig { mode, ..self.slice.config() }).unwrap();
        self.core.reset();
    }

    /// What goes on beside a request ends.
    async fn rest(&self) {
        self.bench.runtime.sleep(Duration::from_millis(1)).await;
    }

    fn after(&self) -> After {
        let stats = self.slice.stats();
        match (stats.dirty_bytes, stats.clean_bytes + stats.written_bytes) {
            (0, 0) => After::Unmapped,
            (0, 4096) => After::Clean,
            (4096, 0) => After::Dirty,
            other => panic!("dirty and clean are {other:?}"),
        }
    }

    fn core_reads(&self) -> u64 {
        self.core.snapshot().reads.requests
    }
}

#[test]
fn a_read_miss_is_inserted_where_the_mode_says_so() {
    for mode in Mode::ALL {
        simulate(async |runtime| {
            let watched = Watched::new(&runtime, Before::Unmapped).await;
            watched.switch(mode);
            assert_eq!(byte_at(&watched.slice, PLACE).await.unwrap(), OLD);
            watched.rest().await;
            let is_inserted = !matches!(mode, Mode::WriteOnly | Mode::PassThrough);
            let expected = if is_inserted { After::Clean } else { After::Unmapped };
            assert_eq!(watched.after(), expected, "{mode:?}");
            assert_eq!(watched.core_reads(), 1, "{mode:?}");
        });
    }
}

#[test]
fn a_read_hit_comes_from_the_cache_unless_it_is_passed_through_and_clean() {
    for mode in Mode::ALL {
        for before in [Before::Clean, Before::Dirty] {
            simulate(async |runtime| {
                let watched = Watched::new(&runtime, before).await;
                watched.switch(mode);
                assert_eq!(byte_at(&watched.slice, PLACE).await.unwrap(), OLD);
                let is_past = mode == Mode::PassThrough && before == Before::Clean;
                assert_eq!(watched.core_reads(), u64::from(is_past), "{mode:?}, {before:?}");
                assert_eq!(watched.core.snapshot().writes.requests, 0, "nothing is cleaned by it");
            });
        }
    }
}

/// Writes the block in a mode; what must be at the core when that is acknowledged, and in the cache
/// soon after.
fn write_row(mode: Mode, before: Before, at_core: u8, after: After) {
    simulate(async |runtime| {
        let watched = Watched::new(&runtime, before).await;
        let row = format!("{mode:?}, {before:?}");
        watched.switch(mode);
        let device: &dyn BlockDevice = &watched.slice;
        device.write(PLACE, block(NEW)).await.unwrap();
        assert_eq!(byte_at(&*watched.bench.core, PLACE).await.unwrap(), at_core, "{row}");
        watched.rest().await;
        assert_eq!(watched.after(), after, "{row}");
        assert_eq!(byte_at(device, PLACE).await.unwrap(), NEW, "{row}");
        device.flush().await.unwrap();
        // Without a stop: what the log says of the block is judged anew.
        let again = watched.bench.open(nop()).await;
        assert_eq!(byte_at(&again, PLACE).await.unwrap(), NEW, "{row}, after an unclean stop");
    });
}

#[test]
fn write_through_and_around_have_both_and_nothing_dirty() {
    for before in [Before::Unmapped, Before::Clean, Before::Dirty] {
        write_row(Mode::WriteThrough, before, NEW, After::Clean);
        let around = if before == Before::Unmapped { After::Unmapped } else { After::Clean };
        write_row(Mode::WriteAround, before, NEW, around);
    }
}

#[test]
fn write_back_and_write_only_leave_the_core_alone() {
    for before in [Before::Unmapped, Before::Clean, Before::Dirty] {
        for mode in [Mode::WriteBack, Mode::WriteOnly] {
            write_row(mode, before, OLD, After::Dirty);
        }
    }
}

#[test]
fn write_invalidate_and_pass_through_end_the_mapping_for_good() {
    for before in [Before::Unmapped, Before::Clean, Before::Dirty] {
        write_row(Mode::WriteInvalidate, before, NEW, After::Unmapped);
        write_row(Mode::PassThrough, before, NEW, After::Unmapped);
    }
}

#[test]
fn write_around_of_what_is_half_mapped_ends_that_half() {
    for before in [Before::Clean, Before::Dirty] {
        simulate(async |runtime| {
            let watched = Watched::new(&runtime, before).await;
            watched.switch(Mode::WriteAround);
            let device: &dyn BlockDevice = &watched.slice;
            device.write(PLACE, Buffer::from_slice(&[NEW; 8192])).await.unwrap();
            assert_eq!(watched.after(), After::Unmapped, "{before:?}");
            for offset in [PLACE, PLACE + 4096] {
                assert_eq!(byte_at(&*watched.bench.core, offset).await.unwrap(), NEW);
                assert_eq!(byte_at(device, offset).await.unwrap(), NEW);
            }
        });
    }
}

#[test]
fn part_of_a_block_is_written_in_every_mode_and_the_rest_of_it_stays() {
    for mode in Mode::ALL {
        for before in [Before::Unmapped, Before::Clean, Before::Dirty] {
            simulate(async |runtime| {
                let watched = Watched::new(&runtime, before).await;
                watched.switch(mode);
                let device: &dyn BlockDevice = &watched.slice;
                device.write(PLACE + 512, Buffer::from_slice(&[NEW; 512])).await.unwrap();
                device.flush().await.unwrap();
                let again = watched.bench.open(nop()).await;
                for slice in [&watched.slice, &again] {
                    let row = format!("{mode:?}, {before:?}");
                    assert_eq!(byte_at(slice, PLACE + 512).await.unwrap(), NEW, "{row}");
                    assert_eq!(byte_at(slice, PLACE).await.unwrap(), OLD, "{row}");
                    assert_eq!(byte_at(slice, PLACE + 1024).await.unwrap(), OLD, "{row}");
                }
            });
        }
    }
}

#[test]
fn a_discard_ends_what_it_covers_wholly_for_good_and_leaves_the_rest() {
    for mode in Mode::ALL {
        for before in [Before::Unmapped, Before::Clean, Before::Dirty] {
            simulate(async |runtime| {
                let row = format!("{mode:?}, {before:?}");
                let watched = Watched::new(&runtime, before).await;
                let core: &dyn BlockDevice = &*watched.bench.core;
                core.write(PLACE - 4096, block(OLD)).await.unwrap();
                core.write(PLACE + 4096, block(OLD)).await.unwrap();
                watched.switch(mode);
                let device: &dyn BlockDevice = &watched.slice;
                // Part of a block alone: nothing happens.
                device.submit(Request::discard(ByteRange::at(PLACE, 2048))).await.unwrap();
                assert_eq!(byte_at(device, PLACE).await.unwrap(), OLD, "{row}");
                let discards = || watched.core.snapshot().discards;
                assert_eq!(discards().requests, 0, "{row}");
                // A block and parts of both neighbours: the block. This core forgets nothing, so it
                // is given something else to tell where a read comes from.
                core.write(PLACE, block(NEW)).await.unwrap();
                let range = ByteRange::at(PLACE - 512, 4096 + 1024);
                device.submit(Request::discard(range)).await.unwrap();
                assert_eq!((discards().requests, discards().bytes), (1, 4096), "{row}");
                // What the core lacks is replaced. Modes that make no dirt have cleaned it before.
                let is_dirty = before == Before::Dirty && mode.is_write_back();
                let (expected, dirty_bytes) = if is_dirty { (0, 4096) } else { (NEW, 0) };
                let again = watched.bench.open(nop()).await;
                for slice in [&watched.slice, &again] {
                    assert_eq!(slice.stats().dirty_bytes, dirty_bytes, "{row}");
                    assert_eq!(byte_at(slice, PLACE).await.unwrap(), expected, "{row}");
                    for kept in [PLACE - 512, PLACE + 4096] {
                        assert_eq!(byte_at(slice, kept).await.unwrap(), OLD, "{row}");
                    }
                }
            });
        }
    }
}

/// The core has what was cleaned before, and keeps what it is told to discard.
#[test]
fn a_discard_brings_nothing_older_back_however_it_is_stopped() {
    for mode in Mode::ALL {
        for is_flushed in [false, true] {
            simulate(async |runtime| {
                let row = format!("{mode:?}, {is_flushed}");
                let bench = Bench::new(&runtime).await;
                let slice = bench.open(nop()).await;
                let device: &dyn BlockDevice = &slice;
                for (content, is_cleaned) in [(OLD, true), (NEW, false)] {
                    for at in [0, 64 << 10] {
                        device.write(at, Buffer::from_slice(&[content; 8 << 10])).await.unwrap();
                    }
                    device.flush().await.unwrap();
                    if is_cleaned {
                        slice.flush_dirty().await.unwrap();
                    }
                }
                slice.set_config(SliceConfig { mode, ..nop() }).unwrap();
                let everything = ByteRange::at(2048, device.geometry().size_bytes - 2048);
                device.submit(Request::discard(everything)).await.unwrap();
                device.flush().await.unwrap();
                if is_flushed {
                    slice.flush_dirty().await.unwrap();
                }
                let again = bench.open(nop()).await;
                for slice in [&slice, &again] {
                    assert_eq!(byte_at(slice, 0).await.unwrap(), NEW, "a part of a block, {row}");
                    // Modes that make no dirt have cleaned it before.
                    let expected = if mode.is_write_back() { 0 } else { NEW };
                    for at in [4096, 64 << 10, 68 << 10] {
                        assert_eq!(byte_at(slice, at).await.unwrap(), expected, "{at}, {row}");
                    }
                }
            });
        }
    }
}
