//! Power cuts, torn and lying devices: rows 2 to 14.

use super::rig::{A_WHILE, Rig, cached_raid5, once};
use crate::topology::Topology;
use headpond_block::decorators::{Fault, FaultRule};
use headpond_block::{Cause, RequestFlags, RequestKind};
use headpond_cache::format::{slice_header, superblock};
use headpond_cache::{BlockRun, CoreBlock, Mode};
use headpond_raid::{AssembleError, JournalWhen, Level};
use headpond_sim::Ended;
use headpond_volume::{AlertKind, OpenError, Tolerance};
use std::time::Duration;

/// With its own promise, and with one for all, in each mode.
pub(super) fn flushed_and_fua_writes_outlive_a_cut_in_every_mode() {
    for (mode, seed) in [Mode::WriteBack, Mode::WriteThrough, Mode::PassThrough]
        .into_iter()
        .zip(0..)
        .cycle()
        .take(48)
    {
        let rig = Rig::in_mode(mode);
        rig.live(async |scene| {
            scene.promise(3, 1).await;
            scene.promise(4, 1).await;
            scene.write_with(3, 2, RequestFlags::FUA).await.expect("takes the write");
            scene.write(4, 2).await.expect("takes the write");
            scene.flush().await.expect("flushes");
            scene.write_with(5, 2, RequestFlags::FUA).await.expect("takes the write");
        });
        rig.cut(seed);
        rig.live(async |scene| {
            for block in 3..6 {
                scene.expect(block, 2).await;
            }
        });
    }
}

pub(super) fn torn_block_that_nobody_promised_gives_way_to_the_version_before() {
    let rig = Rig::in_mode(Mode::WriteBack);
    rig.live(async |scene| {
        scene.promise(3, 1).await;
        scene.write(3, 2).await.expect("takes the write");
    });
    rig.halt();
    rig.tear(2);
    rig.live(async |scene| scene.expect(3, 1).await);
}

pub(super) fn torn_block_that_was_promised_is_an_error_until_it_is_written_again() {
    let rig = Rig::in_mode(Mode::WriteBack);
    tear_a_promise(&rig);
    rig.live(async |scene| {
        assert!(scene.read(3).await.is_err());
        scene.expect(4, 4).await;
        assert_eq!(scene.cache().lost_blocks, 1);
        let damaged = scene.alert(AlertKind::DamagedBlocks);
        assert_eq!((damaged.at_risk.blocks, damaged.at_risk.bytes), (1, 4096));
        assert!(damaged.action.contains("cache scrub"), "{damaged}");
        scene.promise(3, 5).await;
        scene.expect(3, 5).await;
    });
}

/// Each copy of each superblock and header in turn loses its last sector, as a cut leaves it.
pub(super) fn torn_copy_of_any_superblock_costs_nothing() {
    for copy in 0..2 {
        for device in 0..5 {
            let rig = Rig::in_mode(Mode::WriteBack);
            rig.live(async |scene| {
                scene.promise(3, 1).await;
                scene.volume.stop().await.expect("stops");
            });
            rig.halt();
            tear_copy(&rig, device, copy);
            rig.live(async |scene| {
                scene.expect(3, 1).await;
                scene.promise(3, 2).await;
                scene.volume.stop().await.expect("stops");
            });
            rig.halt();
            rig.live(async |scene| scene.expect(3, 2).await);
        }
    }
}

/// Of the members, the cache, and the cache's only slice.
fn tear_copy(rig: &Rig, device: usize, copy: usize) {
    let torn = [0xaa; 512];
    let slice = rig.cache_superblock().slices[0].start();
    match rig.machine.members[..rig.machine.topology.members].get(device) {
        Some(member) => {
            use headpond_raid::superblock::{COPY_OFFSETS, SUPERBLOCK_BYTES};
            member.poke(COPY_OFFSETS[copy] + SUPERBLOCK_BYTES as u64 - 512, &torn);
        }
        None if device == 3 => {
            let end = superblock::COPY_OFFSETS[copy] + superblock::SUPERBLOCK_BYTES as u64;
            rig.cache().poke(end - 512, &torn);
        }
        None => {
            let end = slice_header::COPY_OFFSETS[copy] + slice_header::HEADER_BYTES as u64;
            rig.cache().poke(slice + end - 512, &torn);
        }
    }
}

/// A device that wrote the head of a record and lost the power before the rest.
pub(super) fn descriptor_that_landed_before_its_data_is_as_if_never_written() {
    let rig = Rig::in_mode(Mode::WriteBack);
    rig.live(async |scene| {
        scene.promise(3, 1).await;
        scene.write(3, 2).await.expect("takes the write");
    });
    rig.halt();
    for place in rig.places(2) {
        rig.cache().poke(place, &[0; 4096]);
    }
    rig.live(async |scene| scene.expect(3, 1).await);
}

/// The members take the new data before the log forgets the old.
pub(super) fn write_past_a_dirty_block_cut_anywhere_leaves_the_old_block_or_the_new() {
    let (mut olds, mut news) = (0, 0);
    for (at, seed) in (0..30).flat_map(|at| (0..4).map(move |seed| (at, seed))) {
        let mut rig = Rig::in_mode(Mode::WriteBack);
        rig.live(async |scene| {
            scene.promise(3, 1).await;
            scene.volume.stop().await.expect("stops");
        });
        rig.halt();
        rig.set_mode(Mode::PassThrough);
        let ended = rig.try_live(async |scene| {
            rig.machine.power.cut_after(at);
            scene.write(3, 2).await.expect("takes the write");
            scene.flush().await.expect("flushes");
        });
        rig.cut(seed);
        let found = rig.live(async |scene| scene.read(3).await.expect("can be read"));
        let is_promised = matches!(ended, Ended::Finished(Ok(())));
        assert!(found == 2 || found == 1 && !is_promised, "cut at {at}, seed {seed}: {found}");
        (olds, news) = (olds + u32::from(found == 1), news + u32::from(found == 2));
    }
    assert!(olds > 0 && news > 0, "{olds} old, {news} new");
}

/// The device acknowledged a record and the flush after it, and the record is not there.
/// Of the log nothing is missing in the middle: it merely ends too soon.
pub(super) fn log_that_a_lying_device_cut_short_is_noticed_and_the_volume_takes_no_writes() {
    let mut rig = Rig::in_mode(Mode::WriteBack).with_owner();
    let image = rig.live(async |scene| {
        scene.promise(3, 1).await;
        let cache = rig.cache();
        let image = cache.peek(0, cache.geometry().size_bytes as usize);
        scene.promise(3, 2).await;
        scene.promise(4, 4).await;
        scene.runtime.sleep(A_WHILE).await;
        image
    });
    rig.halt();
    rig.cache().poke(0, &image);
    for life in 0..2 {
        rig.live(async |scene| {
            scene.expect(3, 1).await;
            let refused = scene.write(5, 5).await.expect_err("nobody has accepted it");
            assert!(matches!(refused.cause(), Cause::ReadOnly), "{refused}");
            scene.flush().await.expect("there is nothing to flush");
            let broken = scene.alert(AlertKind::FlushedDataLost);
            assert!(life > 0 || broken.cause.contains("log ends"), "{broken}");
            assert!(broken.action.contains("--force"), "{broken}");
            scene.runtime.sleep(A_WHILE).await;
            if life == 0 {
                scene.volume.stop().await.expect("stops");
            }
        });
        rig.halt();
    }
    rig.tolerance = Tolerance::Forced;
    rig.live(async |scene| {
        assert!(scene.warns("accepted"), "{:?}", scene.volume.status().warnings);
        scene.promise(5, 5).await;
        scene.runtime.sleep(A_WHILE).await;
    });
    rig.halt();
    rig.tolerance = Tolerance::Careful;
    rig.live(async |scene| {
        scene.expect(5, 5).await;
        scene.promise(5, 6).await;
    });
}

pub(super) fn volume_whose_promised_blocks_are_damaged_takes_no_writes_where_that_can_be_kept() {
    let mut rig = Rig::in_mode(Mode::WriteBack).with_owner();
    tear_a_promise(&rig);
    rig.live(async |scene| {
        assert!(scene.read(3).await.is_err());
        scene.expect(4, 4).await;
        assert!(scene.write(3, 5).await.is_err());
        let broken = scene.alert(AlertKind::FlushedDataLost);
        assert_eq!((broken.at_risk.blocks, broken.at_risk.bytes), (1, 4096), "{broken}");
        scene.alert(AlertKind::DamagedBlocks);
    });
    rig.halt();
    rig.tolerance = Tolerance::Forced;
    rig.live(async |scene| scene.promise(4, 5).await);
    rig.halt();
    rig.tolerance = Tolerance::Careful;
    rig.live(async |scene| {
        assert!(scene.read(3).await.is_err(), "it is damaged still");
        scene.promise(3, 6).await;
        scene.expect(3, 6).await;
    });
}

pub(super) fn flushed_record_that_a_lying_device_lost_is_an_error_never_something_older() {
    let rig = Rig::in_mode(Mode::WriteBack);
    rig.live(async |scene| {
        scene.promise(3, 1).await;
        scene.controls.cache.add(once(RequestKind::Write, Fault::Lose));
        scene.write(3, 2).await.expect("takes the write");
        scene.promise(4, 4).await;
    });
    rig.halt();
    rig.live(async |scene| {
        assert!(scene.read(3).await.is_err());
        scene.expect(4, 4).await;
        assert_eq!(scene.cache().lost_blocks, 1);
        assert!(scene.warns("the cache device lost flushed data"));
        let lost = scene.volume.scrub_cache().await.expect("reads all").lost;
        assert_eq!(lost, [BlockRun { first: CoreBlock(3), count: 1 }], "which it is");
    });
}

pub(super) fn degraded_and_torn_is_refused_unless_forced() {
    let mut rig = Rig::uncached(Level::Raid5, 3);
    rig.live(async |scene| {
        for block in 0..8 {
            scene.write(block, 1).await.expect("takes the write");
        }
    });
    rig.halt();
    rig.absent.members.insert(0);
    let refused = rig.refusal();
    let is_right = |error: &OpenError| {
        matches!(error, OpenError::Array(AssembleError::DegradedAndUnclean { .. }))
    };
    assert!(is_right(&refused), "{refused}");
    rig.tolerance = Tolerance::Forced;
    rig.live(async |scene| {
        scene.write(0, 2).await.expect("takes the write");
        scene.expect(0, 2).await;
    });
}

/// Of a stripe some blocks were promised, and others are being written when the power goes.
pub(super) fn degraded_and_torn_is_made_whole_from_the_stripe_journal() {
    for seed in 0..16 {
        let journal = Some([JournalWhen::Degraded, JournalWhen::Always][seed as usize % 2]);
        let mut rig = Rig::new(Topology { cache: None, journal, ..cached_raid5() });
        rig.absent.members.insert(seed as usize % 3);
        rig.live(async |scene| {
            for block in 0..16 {
                scene.promise(block, 1).await;
            }
            for block in [0, 5, 10, 15] {
                scene.write(block, 2).await.expect("takes the write");
            }
        });
        rig.cut(seed);
        rig.live(async |scene| {
            for block in (0..16).filter(|block| block % 5 > 0) {
                scene.expect(block, 1).await;
            }
        });
    }
}

/// The members have taken what was cleaned and not yet flushed it: it is still dirty.
pub(super) fn cut_between_cleaning_and_the_flush_of_the_core_leaves_the_data_dirty() {
    for seed in 0..8 {
        let rig = Rig::in_mode(Mode::WriteBack);
        rig.live(async |scene| {
            scene.promise(3, 1).await;
            for member in &scene.controls.members {
                let late = Fault::Delay(Duration::from_secs(10));
                member.add(FaultRule::on(RequestKind::Flush, late));
            }
            let volume = scene.volume.clone();
            drop(scene.runtime.spawn(async move { volume.clean_all().await }));
            scene.runtime.sleep(Duration::from_secs(1)).await;
            let stats = scene.volume.stats().slices[0].clone();
            assert_eq!(stats.counters.cleaning_writes, 1, "it is at the members");
            assert_eq!((stats.clean_bytes, stats.dirty_bytes + stats.written_bytes), (0, 4096));
        });
        rig.cut(seed);
        rig.live(async |scene| {
            scene.expect(3, 1).await;
            assert_eq!(scene.cache().dirty_bytes, 4096);
        });
    }
}

/// The new mode makes no dirty data, and what there is from before outlives a cut all the same.
pub(super) fn cut_after_a_switch_to_write_through_keeps_what_was_dirty_dirty() {
    for seed in 0..8 {
        let mut rig = Rig::in_mode(Mode::WriteBack);
        rig.live(async |scene| {
            scene.promise(3, 1).await;
            let change = headpond_volume::SettingChange::new("mode", Mode::WriteThrough);
            scene.volume.set(&[change]).await.expect("a mode that is allowed");
            assert!(scene.cache().draining);
        });
        rig.cut(seed);
        rig.set_mode(Mode::WriteThrough);
        rig.live(async |scene| {
            scene.expect(3, 1).await;
            assert!(scene.cache().draining);
            scene.runtime.sleep(A_WHILE).await;
            assert!(!scene.cache().draining);
        });
        rig.cut(seed);
        rig.set_mode(Mode::PassThrough);
        rig.live(async |scene| scene.expect(3, 1).await);
    }
}

pub(super) fn killed_program_loses_nothing_that_it_acknowledged() {
    for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::PassThrough] {
        let rig = Rig::in_mode(mode);
        rig.live(async |scene| {
            for block in 0..32 {
                scene.write(block, 1).await.expect("takes the write");
                scene.write(block, 2).await.expect("takes the write");
            }
        });
        rig.halt();
        rig.live(async |scene| {
            for block in 0..32 {
                scene.expect(block, 2).await;
            }
        });
    }
}

/// A stop that is cut at each of its operations leaves metadata that the next start understands.
pub(super) fn stop_cut_anywhere_loses_nothing_and_leaves_dirty_data_dirty() {
    let mut cuts = 0;
    for at in 0.. {
        let rig = Rig::in_mode(Mode::WriteBack);
        let ended = rig.try_live(async |scene| {
            for block in 0..8 {
                scene.write(block, 1).await.expect("takes the write");
            }
            scene.flush().await.expect("flushes");
            rig.machine.power.cut_after(at);
            scene.volume.stop().await.expect("stops");
        });
        rig.cut(at);
        rig.live(async |scene| {
            // Before the cleaner has had time.
            assert_eq!(scene.cache().dirty_bytes, 8 * 4096, "cut at {at}");
            for block in 0..8 {
                scene.expect(block, 1).await;
            }
        });
        if matches!(ended, Ended::Finished(_)) {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 10, "a stop has more than {cuts} operations");
}

/// The stop says that the log needs no replay, and not that nothing is dirty.
pub(super) fn dirty_data_stays_dirty_over_a_clean_stop_and_a_cut_after_it() {
    let rig = Rig::in_mode(Mode::WriteBack);
    rig.live(async |scene| {
        scene.promise(3, 1).await;
        scene.volume.stop().await.expect("stops");
    });
    rig.halt();
    rig.live(async |scene| assert_eq!(scene.cache().dirty_bytes, 4096));
    rig.cut(5);
    rig.live(async |scene| {
        scene.expect(3, 1).await;
        assert_eq!(scene.cache().dirty_bytes, 4096);
    });
}

/// Blocks that were written past the cache do not come back from it.
pub(super) fn switch_to_pass_through_brings_no_old_mapping_back() {
    let mut rig = Rig::in_mode(Mode::WriteBack);
    rig.live(async |scene| {
        scene.promise(3, 1).await;
        let change = headpond_volume::SettingChange::new("mode", Mode::PassThrough);
        scene.volume.set(&[change]).await.expect("a mode that is allowed");
        scene.write(3, 2).await.expect("takes the write");
        scene.flush().await.expect("flushes");
        scene.expect(3, 2).await;
    });
    rig.cut(9);
    for mode in [Mode::PassThrough, Mode::WriteBack] {
        rig.set_mode(mode);
        rig.live(async |scene| scene.expect(3, 2).await);
        rig.halt();
    }
}

/// Block 3 was promised twice, and then block 4; the second record is torn.
fn tear_a_promise(rig: &Rig) {
    rig.live(async |scene| {
        scene.promise(3, 1).await;
        scene.promise(3, 2).await;
        scene.promise(4, 4).await;
    });
    rig.halt();
    rig.tear(2);
}
