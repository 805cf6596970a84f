//! Writes over a block whose newest version the cache has lost: as long as the core has nothing
//! newer, what it has is no answer.

use crate::bench::{Bench, block, byte_at, nop, simulate};
use headpond_block::decorators::{Fault, FaultControl, FaultRule};
use headpond_block::{BlockDevice, Buffer, RequestKind, Runtime};
use headpond_cache::{Mode, Slice, SliceConfig};
use std::time::Duration;

const BLOCK: u64 = 4096;
/// The block that is lost, between two that are dirty.
pub const LOST: u64 = 1;

fn with_mode(mode: Mode) -> SliceConfig {
    SliceConfig { mode, ..nop() }
}

/// A cut after which version 2 of a block is lost, of which the core has version 1.
pub async fn after_a_loss(runtime: &Runtime) -> Bench {
    let bench = Bench::new(runtime).await;
    let slice = bench.open(nop()).await;
    let device: &dyn BlockDevice = &slice;
    device.write(LOST * BLOCK, block(1)).await.unwrap();
    slice.flush_dirty().await.unwrap();
    let lose = FaultRule { times: Some(1), ..FaultRule::on(RequestKind::Write, Fault::Lose) };
    bench.cache_faults.add(lose);
    device.write(LOST * BLOCK, block(2)).await.unwrap();
    for other in [LOST - 1, LOST + 1] {
        device.write(other * BLOCK, block(4)).await.unwrap();
    }
    device.flush().await.unwrap();
    // An idle log is sealed.
    runtime.sleep(Duration::from_secs(1)).await;
    let bench = rewired(&bench);
    let again = bench.open(nop()).await;
    assert_eq!(again.stats().lost_blocks, 1);
    assert!(byte_at(&again, LOST * BLOCK).await.is_err());
    rewired(&bench)
}

/// The same devices for another life, with no faults; nothing that the one before still has under
/// way reaches them.
pub fn rewired(bench: &Bench) -> Bench {
    for before in [&bench.cache_faults, &bench.core_faults] {
        before.add(FaultRule::on(RequestKind::Write, Fault::Media));
    }
    let (cache_faults, core_faults) = (FaultControl::default(), FaultControl::default());
    Bench { cache_faults, core_faults, ..bench.clone() }
}

async fn read(slice: &Slice, index: u64) -> Result<u8, headpond_block::DeviceError> {
    byte_at(slice, index * BLOCK).await
}

/// Cuts the power while version 3 is on its way, the core's write or its flush unanswered; of both
/// nothing is left. What is read then?
async fn read_after_a_cut(runtime: &Runtime, mode: Mode, stuck: RequestKind) -> Option<u8> {
    let bench = after_a_loss(runtime).await;
    let slice = bench.open(with_mode(mode)).await;
    bench.core_faults.add(FaultRule::on(stuck, Fault::Hang));
    let writer = slice.clone();
    drop(runtime.spawn(async move {
        let device: &dyn BlockDevice = &writer;
        let _ = device.write(LOST * BLOCK, block(3)).await;
        let _ = device.flush().await;
    }));
    runtime.sleep(Duration::from_millis(10)).await;
    assert!(bench.core_faults.struck() > 0, "the core is stuck");
    let core = bench.core.memory().slice((LOST * BLOCK) as usize..((LOST + 1) * BLOCK) as usize);
    core.fill(1);
    let again = rewired(&bench).open(nop()).await;
    read(&again, LOST).await.ok()
}

/// The swarm, seed 75000777: a tombstone ended the loss, the power went before the core had the
/// write that it announced, and the core's older version was read.
#[test]
fn a_write_past_the_cache_ends_no_loss_before_the_core_has_it() {
    for mode in [Mode::PassThrough, Mode::WriteAround, Mode::WriteInvalidate] {
        for stuck in [RequestKind::Write, RequestKind::Flush] {
            simulate(async |runtime| {
                let found = read_after_a_cut(&runtime, mode, stuck).await;
                assert_eq!(found, None, "{mode:?}, {stuck:?} unanswered");
            });
        }
    }
}

/// A record that was written through says that the core has the block, too.
#[test]
fn a_write_through_ends_no_loss_before_the_core_has_it() {
    for stuck in [RequestKind::Write, RequestKind::Flush] {
        simulate(async |runtime| {
            let found = read_after_a_cut(&runtime, Mode::WriteThrough, stuck).await;
            assert!(matches!(found, None | Some(3)), "{stuck:?} unanswered: {found:?}");
        });
    }
}

#[test]
fn part_of_a_lost_block_is_refused_and_makes_the_rest_readable_in_no_mode() {
    for mode in Mode::ALL {
        simulate(async |runtime| {
            let bench = after_a_loss(&runtime).await;
            let slice = bench.open(with_mode(mode)).await;
            let device: &dyn BlockDevice = &slice;
            let part = Buffer::from_slice(&[3; 512]);
            assert!(device.write(LOST * BLOCK + 512, part).await.is_err(), "{mode:?}");
            assert!(read(&slice, LOST).await.is_err(), "{mode:?}");
            device.write(LOST * BLOCK, block(3)).await.unwrap();
            assert_eq!(read(&slice, LOST).await.unwrap(), 3, "{mode:?}");
        });
    }
}

#[test]
fn an_overwrite_heals_a_lost_block_for_good_in_every_mode() {
    for mode in Mode::ALL {
        simulate(async |runtime| {
            let bench = after_a_loss(&runtime).await;
            let slice = bench.open(with_mode(mode)).await;
            let device: &dyn BlockDevice = &slice;
            // Both neighbours in part, and the lost block between them as a whole.
            let long = Buffer::zeroed(512 + BLOCK as usize + 512);
            long.fill(3);
            device.write(LOST * BLOCK - 512, long).await.unwrap();
            device.flush().await.unwrap();
            for life in [slice, rewired(&bench).open(nop()).await] {
                assert_eq!(life.stats().lost_blocks, 0, "{mode:?}");
                assert_eq!(read(&life, LOST).await.unwrap(), 3, "{mode:?}");
                for (offset, byte) in [
                    (LOST * BLOCK - 1024, 4),
                    (LOST * BLOCK - 512, 3),
                    ((LOST + 1) * BLOCK, 3),
                    ((LOST + 1) * BLOCK + 512, 4),
                ] {
                    assert_eq!(byte_at(&life, offset).await.unwrap(), byte, "{mode:?}, {offset}");
                }
            }
        });
    }
}

#[test]
fn a_write_through_that_only_the_core_takes_heals_a_lost_block() {
    simulate(async |runtime| {
        let bench = after_a_loss(&runtime).await;
        let slice = bench.open(with_mode(Mode::WriteThrough)).await;
        bench.cache_faults.add(FaultRule::on(RequestKind::Write, Fault::Media));
        let device: &dyn BlockDevice = &slice;
        device.write(LOST * BLOCK, block(3)).await.unwrap();
        assert_eq!(read(&slice, LOST).await.unwrap(), 3);
    });
}
