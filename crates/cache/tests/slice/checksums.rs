//! Memory has checksums where they are asked for, and every read compares them then.

use crate::bench::{block, byte_at, flushable, nop, simulate};
use crate::machine::{CACHE_BYTES, CORE_BYTES, EXPECTED, options};
use headpond_block::devices::RamDevice;
use headpond_block::{BLOCK_BYTES, BlockDevice, Cause, DeviceError, Runtime};
use headpond_cache::{Checksums, CleanError, Foundation, Slice, SliceConfig, create};
use std::rc::Rc;

struct InMemory {
    slice: Slice,
    cache: Rc<RamDevice>,
    core: Rc<RamDevice>,
}

fn config(checksums: Checksums) -> SliceConfig {
    SliceConfig { allow_volatile: true, checksums, ..nop() }
}

impl InMemory {
    async fn open(runtime: &Runtime, checksums: Checksums) -> Self {
        let cache = Rc::new(RamDevice::new("ram", CACHE_BYTES));
        let core = flushable("core", CORE_BYTES);
        let superblock = create(&*cache, &options(512)).await.unwrap();
        let foundation = Foundation::new(
            runtime.clone(),
            Rc::clone(&cache) as Rc<dyn BlockDevice>,
            Rc::clone(&core) as Rc<dyn BlockDevice>,
        );
        let opened = Slice::open(foundation, &superblock, EXPECTED, 0, config(checksums)).await;
        Self { slice: opened.unwrap().0, cache, core }
    }

    async fn write(&self, index: u64, byte: u8) {
        let device: &dyn BlockDevice = &self.slice;
        device.write(index * BLOCK_BYTES, block(byte)).await.unwrap();
    }

    async fn read(&self, index: u64) -> Result<u8, DeviceError> {
        byte_at(&self.slice, index * BLOCK_BYTES).await
    }

    /// Flips bits of the first byte of every block that is full of `byte`; answers how many.
    fn rot(&self, byte: u8) -> usize {
        let memory = self.cache.memory();
        let (mut bytes, mut rotten) = (memory.to_vec(), 0);
        for at in (0..bytes.len()).step_by(512) {
            // A record's data begins at any unit, and a block is full of its byte.
            let is_whole =
                bytes.get(at..at + 4096).is_some_and(|it| it.iter().all(|it| *it == byte));
            if is_whole {
                bytes[at] ^= 0x40;
                rotten += 1;
            }
        }
        memory.copy_from(&bytes);
        rotten
    }
}

#[test]
fn memory_is_trusted_unless_checksums_are_asked_for() {
    simulate(async |runtime| {
        let trusted = InMemory::open(&runtime, Checksums::Auto).await;
        trusted.write(3, 1).await;
        assert_eq!(trusted.rot(1), 1);
        assert_eq!(trusted.read(3).await.unwrap(), 0x41, "nobody compares");
        let report = trusted.slice.scrub().await.unwrap();
        assert_eq!((report.blocks, report.unchecked_blocks), (0, 1));

        let checked = InMemory::open(&runtime, Checksums::Always).await;
        checked.write(3, 1).await;
        assert_eq!(checked.read(3).await.unwrap(), 1);
        assert_eq!(checked.rot(1), 1);
        assert!(matches!(
            checked.read(3).await.as_ref().map_err(DeviceError::cause),
            Err(Cause::Corrupt { .. })
        ));
        let whole = headpond_block::Buffer::zeroed(2 * 4096);
        let device: &dyn BlockDevice = &checked.slice;
        let several = device.read(2 * BLOCK_BYTES, &whole).await;
        assert!(
            matches!(several.as_ref().map_err(DeviceError::cause), Err(Cause::Corrupt { .. })),
            "{several:?}"
        );
        let report = checked.slice.scrub().await.unwrap();
        assert_eq!((report.blocks, report.unchecked_blocks, report.lost.len()), (1, 0, 1));
    });
}

#[test]
fn what_rots_in_memory_never_goes_to_the_core_and_the_core_answers_for_what_it_has() {
    simulate(async |runtime| {
        let checked = InMemory::open(&runtime, Checksums::Always).await;
        checked.write(3, 1).await;
        checked.slice.flush_dirty().await.unwrap();
        checked.write(7, 2).await;
        assert_eq!((checked.rot(1), checked.rot(2)), (1, 1));
        assert_eq!(checked.read(3).await.unwrap(), 1, "the core has it");
        let error = checked.slice.flush_dirty().await.unwrap_err();
        assert!(
            matches!(&error, CleanError::Core { source, .. } if matches!(source.cause(), Cause::Corrupt { .. })),
            "{error}"
        );
        assert_eq!(byte_at(&*checked.core, 7 * BLOCK_BYTES).await.unwrap(), 0);
    });
}

#[test]
fn checksums_that_are_asked_for_later_hold_for_what_is_written_later_and_for_copies() {
    simulate(async |runtime| {
        let memory = InMemory::open(&runtime, Checksums::Auto).await;
        memory.write(3, 1).await;
        memory.slice.set_config(config(Checksums::Always)).unwrap();
        assert_eq!(memory.rot(1), 1);
        assert_eq!(memory.read(3).await.unwrap(), 0x41, "it was written before");
        // Several times the log, so that reclaim carries on what is dirty.
        for round in 0..4 {
            for index in 100..1600 {
                memory.write(index, 2 + round).await;
            }
        }
        let report = memory.slice.scrub().await.unwrap();
        assert_eq!((report.blocks, report.unchecked_blocks, report.lost.len()), (1501, 0, 0));
        assert_eq!(memory.read(3).await.unwrap(), 0x41, "its copy is as good as it was");
        let rotten = memory.rot(5);
        assert!(rotten >= 1500, "{rotten}");
        assert!(matches!(
            memory.read(100).await.as_ref().map_err(DeviceError::cause),
            Err(Cause::Corrupt { .. })
        ));
        // No longer: all of it is taken for what was written.
        memory.slice.set_config(config(Checksums::Auto)).unwrap();
        assert_eq!(memory.read(100).await.unwrap(), 0x45);
    });
}
