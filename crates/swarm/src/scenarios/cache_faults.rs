//! The cache device fails, lies or is full: rows 17 to 22, 37, 38.

use super::rig::{Rig, Scene, cached_raid5, once, places_on};
use crate::topology::Topology;
use headpond_block::decorators::{Fault, FaultRule};
use headpond_block::{BlockDevice, Buffer, Request, RequestKind};
use headpond_cache::{CleaningPolicy, Mode};
use headpond_volume::{AlertKind, OpenError, SeqCutoff, Tolerance};

fn is_stale(error: &OpenError) -> bool {
    matches!(error, OpenError::Cache(headpond_cache::OpenError::Generation { .. }))
}

async fn clean_block(scene: &Scene, block: u64, byte: u8) {
    scene.promise(block, byte).await;
    scene.volume.clean_all().await.expect("cleans");
    assert_eq!(scene.cache().dirty_bytes, 0);
}

pub(super) fn cache_that_vanishes_clean_costs_nothing_and_the_volume_stays_online() {
    let mut rig = Rig::in_mode(Mode::WriteBack);
    rig.live(async |scene| {
        clean_block(scene, 3, 1).await;
        scene.lose_cache();
        scene.expect(3, 1).await;
        scene.flush().await.expect("there is nothing that only the cache had");
        scene.write(3, 2).await.expect("goes to the core");
        scene.flush().await.expect("the core has it");
        scene.expect(3, 2).await;
        let failed = scene.alert(AlertKind::CacheFailed);
        assert_eq!((scene.cache().failed, failed.at_risk.blocks), (true, 0), "{failed}");
        assert!(failed.action.contains("cache detach"), "{failed}");
    });
    rig.cut(1);
    let refused = rig.refusal();
    assert!(is_stale(&refused), "{refused}");
    assert!(refused.alert("v").action.contains("headpond serve v --force"), "{refused}");
    rig.tolerance = Tolerance::Forced;
    rig.live(async |scene| {
        scene.expect(3, 2).await;
        assert!(scene.warns("without its cache"));
    });
}

pub(super) fn cache_that_vanishes_dirty_costs_its_dirty_blocks_and_restarts_only_by_force() {
    let mut rig = Rig::in_mode(Mode::WriteBack);
    rig.live(async |scene| {
        scene.promise(3, 1).await;
        scene.promise(4, 1).await;
        scene.lose_cache();
        assert!(scene.read(3).await.is_err() && scene.read(4).await.is_err());
        let unreadable = scene.alert(AlertKind::DirtyUnreadable);
        assert_eq!(unreadable.at_risk.blocks, 2, "{unreadable}");
        scene.expect(100, 0).await;
        scene.write(100, 5).await.expect("goes to the core");
        scene.expect(100, 5).await;
        scene.write(3, 2).await.expect("all of it is new");
        scene.expect(3, 2).await;
        assert!(scene.read(4).await.is_err(), "never what the core has");
        let failed = scene.alert(AlertKind::CacheFailed);
        assert_eq!(failed.at_risk.blocks, 1, "block 4: {failed}");
        assert!(failed.action.contains("headpond flush") && failed.action.contains("--force"));
        assert!(scene.flush().await.is_err(), "what was acknowledged is not all stable");
        scene.write(4, 2).await.expect("all of it is new");
        scene.flush().await.expect("now it is");
    });
    rig.cut(1);
    let refused = rig.refusal();
    assert!(is_stale(&refused), "{refused}");
    rig.absent.cache = true;
    let refused = rig.refusal();
    assert!(matches!(refused, OpenError::NoCacheDevice { .. }), "{refused}");
    assert!(refused.alert("v").action.contains("reconnect the cache"));
    rig.tolerance = Tolerance::Forced;
    rig.live(async |scene| {
        for (block, byte) in [(100, 5), (3, 2), (4, 2)] {
            scene.expect(block, byte).await;
        }
    });
}

const LINKS: u8 = 12;

fn in_order() -> Rig {
    let mut rig = Rig::in_mode(Mode::WriteBack);
    let cleaning = &mut rig.description.cache.as_mut().expect("a cache").settings.cleaning;
    cleaning.policy = CleaningPolicy::Ordered;
    rig
}

/// Promises links of a chain on two blocks, one after the other.
async fn promise_chain(scene: &Scene) {
    for link in 1..=LINKS {
        let place = if link.is_multiple_of(2) { 200 } else { 3 };
        scene.write(place, link).await.expect("takes the write");
        scene.flush().await.expect("flushes");
    }
}

/// The last link that there is of the chain, of which nothing before it is missing.
async fn end_of_chain(scene: &Scene, at: u64) -> u8 {
    let odd = scene.read(3).await.expect("can be read");
    let even = scene.read(200).await.expect("can be read");
    assert!(odd.abs_diff(even) == 1 || odd + even == 0, "cut {at}: {odd} and {even}");
    odd.max(even)
}

/// A chain of promises on two blocks: whenever power and cache go, the array holds the end of a
/// chain that was once all there was.
pub(super) fn cache_that_is_lost_leaves_a_consistent_past_where_cleaning_is_ordered() {
    let mut pasts = std::collections::BTreeSet::new();
    for at in 0.. {
        let mut rig = in_order();
        let ended = rig.try_live(async |scene| {
            promise_chain(scene).await;
            let order = scene.cache().order.expect("it is asked for");
            assert!(order.is_consistent && order.epochs_waiting > 0, "{order:?}");
            rig.machine.power.cut_after(at * 3);
            scene.volume.clean_all().await.expect("cleans");
        });
        rig.cut(at);
        rig.absent.cache = true;
        rig.tolerance = Tolerance::Forced;
        rig.live(async |scene| {
            pasts.insert(end_of_chain(scene, at).await);
        });
        if !ended.was_cut() {
            break;
        }
    }
    assert!(pasts.len() > 3 && pasts.contains(&LINKS), "{pasts:?}");
}

/// The order goes on where a cut has interrupted it: whoever loses the cache then has a past of
/// which nothing is missing, and no later one has begun.
pub(super) fn cache_that_is_lost_after_a_restart_leaves_a_consistent_past_as_well() {
    let mut pasts = std::collections::BTreeSet::new();
    for at in 0..60 {
        let mut rig = in_order();
        rig.try_live(async |scene| {
            promise_chain(scene).await;
            rig.machine.power.cut_after(at % 10 * 7);
            scene.volume.clean_all().await.expect("cleans");
        });
        rig.cut(at);
        let ended = rig.try_live(async |scene| {
            scene.expect(200, LINKS).await;
            let order = scene.cache().order.expect("it is asked for");
            assert!(order.is_consistent, "{order:?}");
            rig.machine.power.cut_after(at * 3);
            scene.volume.clean_all().await.expect("cleans");
        });
        rig.cut(at);
        rig.absent.cache = true;
        rig.tolerance = Tolerance::Forced;
        rig.live(async |scene| {
            let newest = end_of_chain(scene, at).await;
            assert!(ended.was_cut() || newest == LINKS, "cut {at}: {newest}");
            pasts.insert(newest);
        });
    }
    assert!(pasts.len() > 6 && pasts.contains(&LINKS), "{pasts:?}");
}

/// Nothing was written while it was away, so it is as good as before.
pub(super) fn cache_that_was_away_over_a_restart_comes_back_with_its_dirty_data() {
    let mut rig = Rig::in_mode(Mode::WriteBack);
    rig.live(async |scene| scene.promise(3, 1).await);
    rig.halt();
    rig.absent.cache = true;
    assert!(matches!(rig.refusal(), OpenError::NoCacheDevice { .. }));
    rig.absent.cache = false;
    rig.live(async |scene| scene.expect(3, 1).await);
}

pub(super) fn clean_block_that_the_cache_cannot_read_comes_from_the_core_and_is_counted() {
    let rig = Rig::in_mode(Mode::WriteBack);
    rig.live(async |scene| {
        clean_block(scene, 3, 1).await;
        scene.controls.cache.add(once(RequestKind::Read, Fault::Media));
        scene.expect(3, 1).await;
        assert_eq!(scene.volume.stats().slices[0].counters.errors.cache_read, 1);
        let told = scene.alert(AlertKind::CacheReadErrors);
        assert!(told.at_risk.blocks == 0 && told.action.contains("cache scrub"), "{told}");
        scene.expect(3, 1).await;
        scene.clear_errors().await;
        assert!(scene.volume.status().alerts.is_empty(), "as the alert says");
    });
}

pub(super) fn cache_that_errs_too_often_is_mistrusted_until_a_mode_is_set() {
    let rig = Rig::in_mode(Mode::WriteBack);
    rig.live(async |scene| {
        scene.set("fallback.errors=3").await;
        scene.promise(4, 1).await;
        for block in 5..8 {
            scene.controls.cache.add(once(RequestKind::Write, Fault::Media));
            scene.write(block, 1).await.expect("goes to the core");
        }
        let told = scene.alert(AlertKind::CacheFallback);
        assert!(told.cause.contains("3 errors within 60 s"), "{told}");
        assert!(told.action.contains("set swarm mode=write-back"), "{told}");
        scene.expect(4, 1).await;
        scene.write(8, 1).await.expect("goes to the core");
        assert!(scene.cache().in_fallback && !scene.cache().failed);
        scene.set("mode=write-back").await;
        assert!(!scene.cache().in_fallback, "as the alert says");
        scene.promise(8, 2).await;
        assert!(scene.cache().dirty_bytes > 0);
        scene.expect(8, 2).await;
    });
    rig.cut(1);
    rig.live(async |scene| scene.expect(8, 2).await);
}

pub(super) fn dirty_block_that_the_cache_cannot_read_is_an_error_and_the_others_are_served() {
    let rig = Rig::in_mode(Mode::WriteBack);
    rig.live(async |scene| {
        scene.promise(3, 1).await;
        scene.promise(4, 1).await;
        let [place] = places_on(rig.cache(), 1)[..1] else { unreachable!("one place") };
        let range = headpond_block::ByteRange::at(place, 4096);
        let rule = FaultRule::on(RequestKind::Read, Fault::Latent);
        scene.controls.cache.add(FaultRule { range: Some(range), ..rule });
        assert!(scene.read(3).await.is_err());
        assert!(scene.read(3).await.is_err(), "and stays one");
        let told = scene.alert(AlertKind::DirtyUnreadable);
        assert_eq!((told.at_risk.blocks, told.at_risk.bytes), (1, 4096), "{told}");
        assert!(told.cause.contains("1 dirty blocks on"), "{told}");
        scene.expect(4, 1).await;
        scene.clear_errors().await;
        assert_eq!(scene.alert(AlertKind::DirtyUnreadable), told, "that makes nothing readable");
        assert!(scene.volume.clean_all().await.is_err(), "it is not taken for clean");
        scene.write(3, 2).await.expect("all of it is new");
        scene.expect(3, 2).await;
        scene.clear_errors().await;
        assert!(scene.volume.status().alerts.is_empty(), "nothing is lost now");
    });
}

pub(super) fn write_that_the_cache_refuses_goes_to_the_core_and_nothing_older_comes_back() {
    for seed in 0..8 {
        let rig = Rig::in_mode(Mode::WriteBack);
        rig.live(async |scene| {
            scene.promise(3, 1).await;
            scene.controls.cache.add(once(RequestKind::Write, Fault::Media));
            scene.write(3, 2).await.expect("goes to the core");
            scene.flush().await.expect("flushes");
            scene.expect(3, 2).await;
            assert!(!scene.cache().failed, "one error is not its end");
            let told = scene.alert(AlertKind::CacheWriteErrors);
            assert!(told.action.contains("cache replace"), "{told}");
        });
        rig.cut(seed);
        rig.live(async |scene| scene.expect(3, 2).await);
    }
}

/// Nothing cleans, and more is written than may be dirty.
pub(super) fn cache_full_of_dirty_data_says_so_until_there_is_room_again() {
    let mut rig = Rig::new(Topology { window_bytes: 24 << 20, ..cached_raid5() });
    let settings = &mut rig.description.cache.as_mut().expect("a cache").settings;
    settings.seq_cutoff = SeqCutoff::NEVER;
    rig.live(async |scene| {
        let most = scene.cache().dirty_bytes_max;
        assert!(scene.volume.status().alerts.is_empty());
        let data = Buffer::from_slice(&[1; 1 << 16]);
        for offset in (0..most + (1 << 20)).step_by(1 << 16) {
            let write = Request::write(offset, &data);
            scene.volume.submit(write).await.expect("is taken, by the cache or the array");
        }
        let full = scene.alert(AlertKind::CacheFull);
        assert!(full.at_risk.bytes == 0 && full.action.contains("cleaning=stripe"), "{full}");
        assert!(scene.volume.stats().slices[0].counters.bypass.dirty_limit >= 10);
        scene.volume.clean_all().await.expect("cleans");
        assert!(scene.volume.status().alerts.is_empty());
    });
}

/// One bit of a block changes on the cache device while nobody looks.
pub(super) fn silent_corruption_is_noticed_and_a_clean_block_comes_from_the_core() {
    let rig = Rig::in_mode(Mode::WriteBack);
    rig.live(async |scene| {
        clean_block(scene, 3, 1).await;
        scene.promise(4, 2).await;
        for byte in [1, 2] {
            for place in rig.places(byte) {
                rig.cache().poke(place + 1000, &[byte ^ 8]);
            }
        }
        scene.expect(3, 1).await;
        assert!(scene.read(4).await.is_err());
        assert!(scene.volume.clean_all().await.is_err(), "garbage does not reach the core");
        assert!(scene.volume.stats().slices[0].counters.errors.cache_checksum > 0);
        let told = scene.alert(AlertKind::CacheCorruption);
        assert!(told.at_risk.blocks == 1 && told.action.contains("cache scrub"), "{told}");
        assert_eq!(scene.alert(AlertKind::DirtyUnreadable).at_risk.blocks, 1);
    });
    rig.halt();
    rig.live(async |scene| {
        scene.expect(3, 1).await;
        assert!(scene.read(4).await.is_err());
    });
}

/// What was meant for one block lands on another, with a checksum that is right where it belongs.
pub(super) fn misdirected_write_is_noticed_by_the_block_that_it_hit() {
    let rig = Rig::in_mode(Mode::WriteBack);
    rig.live(async |scene| {
        clean_block(scene, 3, 1).await;
        scene.promise(4, 2).await;
        scene.promise(5, 3).await;
        for place in rig.places(1).into_iter().chain(rig.places(2)) {
            rig.cache().poke(place, &[3; 4096]);
        }
        scene.expect(3, 1).await;
        assert!(scene.read(4).await.is_err());
        scene.expect(5, 3).await;
    });
    rig.halt();
    rig.live(async |scene| {
        assert!(scene.read(4).await.is_err());
        scene.expect(5, 3).await;
    });
}

/// A whole record, valid in itself, lands behind the end of the log.
pub(super) fn misdirected_record_is_not_replayed_where_it_landed() {
    let rig = Rig::in_mode(Mode::WriteBack);
    rig.live(async |scene| {
        scene.promise(3, 1).await;
        scene.promise(3, 2).await;
    });
    rig.halt();
    let place = rig.places(1)[0];
    let around = rig.cache().peek(place - 4096, 8192);
    for distance in (4..64).map(|step| step * 8192) {
        rig.cache().poke(place - 4096 + 64 * 1024 + distance, &around);
    }
    rig.live(async |scene| scene.expect(3, 2).await);
}

/// The device acknowledged a write and holds what it held before.
pub(super) fn lost_write_is_noticed_by_the_next_read() {
    let rig = Rig::in_mode(Mode::WriteBack);
    rig.live(async |scene| {
        scene.promise(3, 1).await;
        scene.controls.cache.add(once(RequestKind::Write, Fault::Lose));
        scene.write(3, 2).await.expect("takes the write");
        assert!(scene.read(3).await.is_err(), "never the version before");
        scene.write(3, 4).await.expect("takes the write");
        scene.expect(3, 4).await;
    });
}

/// Each page that the cache holds is damaged in turn: a start refuses, or every block is right or
/// an error.
pub(super) fn damaged_cache_never_ends_the_program_nor_returns_something_else() {
    let rig = Rig::in_mode(Mode::WriteBack);
    rig.live(async |scene| {
        clean_block(scene, 1, 1).await;
        for block in 2..12 {
            scene.promise(block, block as u8).await;
        }
        scene.volume.stop().await.expect("stops");
    });
    rig.halt();
    let image = rig.cache().peek(0, rig.cache().geometry().size_bytes as usize);
    let pages = image.chunks(4096).zip((0..).step_by(4096));
    let pages = pages.filter(|(bytes, _)| bytes.iter().any(|byte| *byte != 0));
    let pages: Vec<u64> = pages.map(|(_, page)| page).collect();
    let (mut opened, mut refused) = (0, 0);
    for (page, damage) in pages.into_iter().flat_map(|page| (0..3).map(move |how| (page, how))) {
        let mut copy = Rig::of(rig.machine.duplicate());
        copy.set_mode(Mode::WriteBack);
        let mut bytes = copy.cache().peek(page, 4096);
        match damage {
            0 => bytes[page as usize / 4096 * 37 % 4096] ^= 1,
            1 => bytes.fill(0xff),
            _ => bytes.rotate_left(512),
        }
        copy.cache().poke(page, &bytes);
        let looked = copy.try_live(async |scene| {
            for block in 1..12 {
                let found = scene.read(block).await;
                assert!(found.is_err() || found == Ok(block as u8), "page {page}: {found:?}");
            }
        });
        match looked {
            headpond_sim::Ended::Finished(Ok(())) => opened += 1,
            headpond_sim::Ended::Finished(Err(error)) => {
                assert!(error.is_refusal(), "page {page}: {error}");
                refused += 1;
            }
            headpond_sim::Ended::Cut => unreachable!("the power is on"),
        }
    }
    assert!(opened > 20 && refused > 0, "{opened} opened, {refused} refused");
}
