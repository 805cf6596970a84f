//! A start that compares what is clean with the core: what it says, refuses, and leaves out.

use crate::bench::{Bench, block, byte_at, nop, simulate};
use crate::machine::EXPECTED;
use headpond_block::decorators::{Fault, FaultRule};
use headpond_block::{BLOCK_BYTES, BlockDevice, RequestKind};
use headpond_cache::{ChangedCore, LoadedSlice, OpenError, Recovery, Slice, judge, load};

const CLEAN: u64 = 100;

/// A slice with clean blocks that was stopped, after which others wrote some of them to the core.
async fn changed(bench: &Bench, dirty: u64, changed: u64) {
    let slice = bench.open(nop()).await;
    for index in 0..CLEAN {
        (&slice as &dyn BlockDevice).write(index * BLOCK_BYTES, block(1)).await.unwrap();
    }
    slice.flush_dirty().await.unwrap();
    for index in CLEAN..CLEAN + dirty {
        (&slice as &dyn BlockDevice).write(index * BLOCK_BYTES, block(2)).await.unwrap();
    }
    slice.stop().await.unwrap();
    for index in 0..changed {
        (&*bench.core as &dyn BlockDevice).write(index * BLOCK_BYTES, block(3)).await.unwrap();
    }
}

async fn open(bench: &Bench, changed_core: ChangedCore) -> Result<(Slice, Recovery), OpenError> {
    let superblock = load(&*bench.cache).await.unwrap();
    let tell = |_| ();
    let loading =
        LoadedSlice::load(bench.foundation(), &superblock, EXPECTED, 0, nop(), &tell).await?;
    judge(vec![loading], changed_core).await?.remove(0).begin().await
}

async fn byte_of(slice: &Slice, index: u64) -> u8 {
    byte_at(slice, index * BLOCK_BYTES).await.unwrap()
}

#[test]
fn core_that_was_changed_costs_what_was_clean_where_nothing_is_dirty() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        changed(&bench, 0, CLEAN).await;
        let (slice, recovery) = open(&bench, ChangedCore::Refused).await.unwrap();
        assert!(recovery.dropped_clean);
        assert_eq!((recovery.sampled.compared, recovery.sampled.differing.len()), (64, 64));
        assert_eq!((recovery.clean_blocks, slice.stats().clean_bytes), (0, 0));
        assert_eq!(byte_of(&slice, 0).await, 3);
        slice.stop().await.unwrap();
        let (slice, recovery) = open(&bench, ChangedCore::Refused).await.unwrap();
        assert_eq!(recovery.sampled.differing, []);
        assert_eq!(byte_of(&slice, CLEAN - 1).await, 3);
    });
}

/// Half of what is clean was changed: with 64 of a hundred looked at, chance cannot miss it.
#[test]
fn core_that_was_changed_is_refused_where_something_is_dirty_until_it_is_taken() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        changed(&bench, 5, CLEAN / 2).await;
        for _ in 0..2 {
            let refused = open(&bench, ChangedCore::Refused).await.map(drop).unwrap_err();
            let OpenError::CoreChanged { dirty_blocks: 5, sampled, .. } = &refused else {
                panic!("{refused}")
            };
            assert!(sampled.differing.len() >= 14, "{refused}");
        }
        let (slice, recovery) = open(&bench, ChangedCore::Taken).await.unwrap();
        assert_eq!((recovery.dirty_blocks, recovery.clean_blocks), (5, 0));
        for (index, byte) in [(0, 3), (CLEAN - 1, 1), (CLEAN, 2)] {
            assert_eq!(byte_of(&slice, index).await, byte);
        }
        slice.flush_dirty().await.unwrap();
        assert_eq!(byte_of(&slice, CLEAN + 4).await, 2);
        slice.stop().await.unwrap();
    });
}

#[test]
fn one_block_that_differs_and_those_that_cannot_be_read_leave_everything_as_it_was() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        changed(&bench, 5, 0).await;
        let drawn = open(&bench, ChangedCore::Refused).await.unwrap();
        assert_eq!((drawn.1.sampled.compared, drawn.1.sampled.differing.len()), (64, 0));
        drawn.0.stop().await.unwrap();
        // Which are drawn changes from life to life: one of them at least, before all were.
        let mut told = 0;
        for _ in 0..12 {
            (&*bench.core as &dyn BlockDevice).write(7 * BLOCK_BYTES, block(3)).await.unwrap();
            let (slice, recovery) = open(&bench, ChangedCore::Refused).await.unwrap();
            told += recovery.sampled.differing.len();
            assert!(recovery.sampled.differing.iter().all(|block| block.0 == 7));
            assert!(!recovery.dropped_clean);
            assert_eq!(byte_of(&slice, 7).await, 1, "the cache has what was given to it");
            slice.stop().await.unwrap();
        }
        assert!((1..12).contains(&told), "{told}");
        bench.core_faults.add(FaultRule::on(RequestKind::Read, Fault::Media));
        let (_, recovery) = open(&bench, ChangedCore::Refused).await.unwrap();
        assert_eq!((recovery.sampled.compared, recovery.clean_blocks), (0, CLEAN));
    });
}
